"""
Schemas of a document as those that minirun checks arguments by, and that models are shown.

Rules of this file:

1.  What comes out accepts whatever the document's own schema accepts. A keyword that is not known here, or is
    malformed, is left out, not refused: the server has the last word. So `oneOf` becomes `anyOf`, and `not` is left
    out, for what is looser inside would be stricter outside.
2.  What comes out is bounded: in depth, in the number of schemas, and in text. Behind the bounds anything is accepted.
3.  References become references, to `$defs`: each schema that is referred to stands there once, also one that contains
    itself.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ..._json import finite, freeze, is_count
from ...errors import ConfigurationError, InvalidValueError
from ...flows._json_schema import compile_schema
from ._document import Document, UnreadableError, cleaned

__all__ = ["Schemas", "safe_parameters"]

# Of one tool. A model reads all of it each time that it is asked.
SCHEMAS_MAX = 1_000
TEXT_CHARS_MAX = 20_000
LEVELS_MAX = 12
DESCRIPTION_CHARS_MAX = 500
OPTIONS_MAX = 200
OPTION_CHARS_MAX = 4_000
PATTERN_CHARS_MAX = 300
NAME_CHARS_MAX = 200

_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = ("minimum", "maximum")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


class Schemas:
    """
    The schemas of one tool.

    Args:
        document: Where they are from.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}  # by reference: under which name it stands in the definitions
        self._definitions: dict[str, Any] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._schemas = 0
        self._chars = 0

    def of(self, schema: object) -> Any:
        """Return *schema*, and take up what it refers to."""
        made = self._made(schema, 0)
        while self._waiting:
            name, target = self._waiting.pop()
            self._definitions[name] = self._made(target, 0)
        return made

    @property
    def definitions(self) -> dict[str, Any]:
        """What the schemas refer to, by name."""
        return self._definitions

    def text(self, text: object) -> str:
        """Return a description, as long as there is room for it."""
        found = cleaned(text, DESCRIPTION_CHARS_MAX)
        self._chars += len(found)
        return found if self._chars <= TEXT_CHARS_MAX else ""

    def _made(self, schema: object, level: int) -> Any:
        if isinstance(schema, bool):
            return schema
        self._schemas += 1
        if not isinstance(schema, dict) or level > LEVELS_MAX or self._schemas > SCHEMAS_MAX:
            return {}
        made: dict[str, Any] = {}
        description = self.text(schema.get("description"))
        if description:
            made["description"] = description
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = self._defined(reference)
            return {**made, "$ref": f"#/$defs/{name}"} if name else made
        made |= self._plain(schema)
        made |= self._parts(schema, level)
        return self._with_null(made, schema)

    def _defined(self, reference: str) -> str:
        """The name of the definition for a reference; empty if it leads nowhere."""
        if reference in self._names:
            return self._names[reference]
        try:
            target = self._document.at(reference)
        except UnreadableError:
            return ""
        base = name = _ODD.sub("_", unquote(reference.rpartition("/")[2]))[:60] or "definition"
        count = 1
        while name in self._names.values():
            count += 1
            name = f"{base}_{count}"
        self._names[reference] = name
        self._definitions[name] = {}
        self._waiting.append((name, target))
        return name

    def _plain(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords that have no schemas in them."""
        made: dict[str, Any] = {}
        kinds = schema.get("type")
        known = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]
        if known and _TYPES.issuperset(known):
            made["type"] = list(dict.fromkeys(known)) if len(known) > 1 else known[0]
        if isinstance(schema.get("format"), str):
            made["format"] = cleaned(schema["format"], 40)
        options = schema.get("enum")
        if isinstance(options, list) and 0 < len(options) <= OPTIONS_MAX and _is_small(options):
            made["enum"] = options
        for word in ("const", "default"):
            if word in schema and _is_small(schema[word]):
                made[word] = schema[word]
        for word in _COUNTS:
            if is_count(schema.get(word)):
                made[word] = schema[word]
        for word in _BOUNDS:
            other = f"exclusive{word.capitalize()}"
            is_exclusive = schema.get(other)  # OpenAPI 3.0: whether the bound itself is out; 3.1: another bound
            if finite(schema.get(word)) is not None:
                made[other if is_exclusive is True else word] = schema[word]
            if finite(is_exclusive) is not None:
                made[other] = is_exclusive
        step = finite(schema.get("multipleOf"))
        if step is not None and step > 0:
            made["multipleOf"] = schema["multipleOf"]
        if isinstance(schema.get("uniqueItems"), bool):
            made["uniqueItems"] = schema["uniqueItems"]
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and len(pattern) <= PATTERN_CHARS_MAX and _compiles({"pattern": pattern}):
            # It is shown to models, and never run: see `RestApiTool._checks_patterns`.
            made["pattern"] = pattern
        return made

    def _parts(self, schema: Mapping[str, Any], level: int) -> dict[str, Any]:
        """The keywords that have schemas in them."""
        made: dict[str, Any] = {}
        properties, absent = schema.get("properties"), set()
        if isinstance(properties, dict):
            kept = {}
            for name, each in properties.items():
                if len(name) > NAME_CHARS_MAX or _CONTROL.search(name) or _is_read_only(each):
                    absent.add(name)
                else:
                    kept[name] = self._made(each, level + 1)
            made["properties"] = kept
        required = schema.get("required")
        if isinstance(required, list):
            names = [name for name in dict.fromkeys(filter(_is_name, required)) if name not in absent]
            made |= {"required": names} if names else {}
        others = schema.get("additionalProperties")
        if isinstance(others, (bool, dict)) and "patternProperties" not in schema and not absent:
            made["additionalProperties"] = self._made(others, level + 1)
        if isinstance(schema.get("items"), (bool, dict)):
            made["items"] = self._made(schema["items"], level + 1)
        for word, new in (("allOf", "allOf"), ("anyOf", "anyOf"), ("oneOf", "anyOf"), ("prefixItems", "prefixItems")):
            members = schema.get(word)
            if isinstance(members, list) and 0 < len(members) <= OPTIONS_MAX:
                each = [self._made(member, level + 1) for member in members]
                if new in made:  # anyOf and oneOf in one schema
                    made.setdefault("allOf", []).append({new: each})
                else:
                    made[new] = each
        return made

    def _with_null(self, made: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
        """OpenAPI 3.0 says beside the type that a value may be null."""
        if schema.get("nullable") is not True:
            return made
        if "enum" in made and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        if "type" in made:
            kinds = made["type"] if isinstance(made["type"], list) else [made["type"]]
            made["type"] = [*kinds, *(["null"] if "null" not in kinds else [])]
        inner = {word: made.pop(word) for word in ("allOf", "anyOf") if word in made}
        if inner:
            made["anyOf"] = [inner, {"type": "null"}]
        return made


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= NAME_CHARS_MAX and not _CONTROL.search(value)


def _is_read_only(schema: object) -> bool:
    """Whether only responses have it."""
    return isinstance(schema, dict) and schema.get("readOnly") is True


def _is_small(value: object) -> bool:
    """Whether a value may stand in a schema as it is."""
    try:
        freeze(value)
        return len(repr(value)) <= OPTION_CHARS_MAX and not any(map(_CONTROL.search, _texts_in(value)))
    except (InvalidValueError, ValueError):
        return False


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts_in(each)


def _compiles(schema: Mapping[str, Any]) -> bool:
    try:
        compile_schema(schema)
    except (ConfigurationError, RecursionError):
        return False
    return True


def safe_parameters(properties: Mapping[str, Any], required: list[str], schemas: Schemas) -> dict[str, Any]:
    """
    Return the schema of a tool's arguments, which can be checked; what cannot be, should any be left, is anything.
    """
    _break_rings(schemas.definitions)
    shape: dict[str, Any] = {"type": "object", "additionalProperties": False}
    definitions = {"$defs": schemas.definitions} if schemas.definitions else {}
    whole = {**shape, "properties": dict(properties), "required": required, **definitions}
    if _compiles(whole):
        return whole
    texts = {
        name: {word: text for word, text in each.items() if word == "description"} if isinstance(each, dict) else {}
        for name, each in properties.items()
    }
    return {**shape, "properties": texts, "required": required}


def _break_rings(definitions: dict[str, Any]) -> None:
    """Let definitions that only refer to each other, and never say what a value is, be anything."""
    while True:
        about = {name: list(_same_value(schema)) for name, schema in definitions.items()}
        try:
            graphlib.TopologicalSorter(about).prepare()
            return
        except graphlib.CycleError as error:
            definitions.update((name, {}) for name in error.args[1])


def _same_value(schema: Any) -> Iterator[str]:
    """The definitions that are asked about the same value as *schema* is."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix("#/$defs/")
        for word in ("allOf", "anyOf"):
            for member in schema.get(word, ()):
                yield from _same_value(member)
