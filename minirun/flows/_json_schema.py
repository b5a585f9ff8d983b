"""
Whether a JSON value fits a JSON schema, and if not, why.

The schemas are a part of draft 2020-12, the part that models are told and that classes turn into:

* type (also a list of types), enum, const
* minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
* minLength, maxLength, pattern (as Python's `re.search`, in bounded time; see `_patterns`)
* items, prefixItems, minItems, maxItems, uniqueItems
* properties, required, additionalProperties
* anyOf, oneOf, allOf, not, and `true` and `false` as schemas
* $defs at the top, and $ref to `#` or `#/$defs/name`, also where a schema contains itself
* what means nothing here: title, description, default, examples, format, nullable and others of `_ANNOTATIONS`

Every other keyword is refused by name when the schema is compiled, for a rule that is not checked is no rule.

A schema is compiled once into nodes (`_json_nodes`), which nothing changes afterwards. References that lead back to a
schema without a step into the value are refused.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import attrs

from .._json import freeze
from ..errors import ConfigurationError, InvalidValueError
from . import _json_nodes as nodes
from ._json_nodes import LIMITS, TYPES, Node, few, shown
from ._types import LINE_CHARS_MAX, bounded, cut

if TYPE_CHECKING:
    from ._patterns import Pattern

__all__ = ["Checker", "as_object", "compile_schema", "wrapped"]


# --- what others ask --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Checker:
    """A compiled schema."""

    schema: Any
    """The schema, frozen."""

    _root: Node = attrs.field(repr=False)

    def problems(self, value: object) -> list[str]:
        """
        Return what is wrong with *value*, a line for each problem with its path; nothing if it fits.

        A value that is no JSON, such as NaN, or is nested deeper than a stored value may be, has one problem.
        """
        try:
            value = freeze(value, "the value")
        except InvalidValueError as error:
            return bounded([str(error)])
        return bounded(map(nodes.told, nodes.check(self._root, value)))


def compile_schema(schema: Mapping[str, Any], what: str = "schema") -> Checker:
    """
    Compile a JSON schema, the one that this module's head describes. *what* is what messages call it.

    Raises:
        ConfigurationError: It is no JSON, has a keyword that is not supported or is misused, a `$ref` that leads
            nowhere, or definitions that only refer to each other.
    """
    try:
        frozen = freeze(schema, what)
    except InvalidValueError as error:
        raise ConfigurationError(str(error)) from None
    return Checker(frozen, _Compiler(frozen, what).compile())


def wrapped(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of the objects that have nothing but a value of *schema*, under this name."""
    inner = {keyword: each for keyword, each in schema.items() if keyword not in _TOP_ONLY}
    definitions = dict(schema.get("$defs", {}))
    if _rerooted(inner, "") != inner or _rerooted(definitions, "", "map") != definitions:  # something refers to "#"
        own = name
        while own in definitions:
            own += "_"
        pointer = f"#/$defs/{own}"
        definitions = {**_rerooted(definitions, pointer, "map"), own: _rerooted(inner, pointer)}
        inner = {"$ref": pointer}
    found = {"type": "object", "properties": {name: inner}, "required": [name], "additionalProperties": False}
    return {**found, "$defs": definitions} if definitions else found


def as_object(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return *schema* with `type: object` at its top, where providers want it; None if it is not about objects."""
    top = dict(schema)
    while top.keys() - _ANNOTATIONS - _TOP_ONLY == {"$ref"} and (name := _name_in(top["$ref"])) is not None:
        target = schema["$defs"][name]
        top = {**(target if isinstance(target, dict) else {}), **{word: top[word] for word in top if word != "$ref"}}
    return top if top.get("type") == "object" else None


# --- compiling --------------------------------------------------------------------------------------------------------


_ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "example", "examples", "format", "nullable", "discriminator"),
        *("deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "propertyOrdering"),
        *("$comment", "$schema"),
    }
)
_TOP_ONLY = frozenset({"$defs", "$schema", "$id"})
# Where in a schema there are others: as the value of a keyword, in a list, or by name in an object.
_INSIDE = {
    **dict.fromkeys(("additionalProperties", "items", "not"), "one"),
    **dict.fromkeys(("prefixItems", "anyOf", "oneOf", "allOf"), "list"),
    **dict.fromkeys(("properties", "$defs"), "map"),
}
_SUPPORTED = (
    *("type", "enum", "const", *LIMITS, "multipleOf", "pattern", "uniqueItems", "items", "prefixItems"),
    *("properties", "required", "additionalProperties", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs"),
)
_KNOWN = frozenset({*_SUPPORTED, *_ANNOTATIONS, *_TOP_ONLY})


class _Compiler:
    """Compiles one schema and its definitions. Places in messages are JSON pointers, such as `#/properties/city`."""

    def __init__(self, schema: Any, what: str) -> None:
        self._schema = schema
        self._what = what
        self._definitions: dict[str, Node] = {"#": Node(is_definition=True)}
        # Which definitions say something about the same value that another is asked about.
        self._references: dict[str, list[str]] = {}

    def compile(self) -> Node:
        root = self._schema
        if not isinstance(root, dict):
            self._refuse("#", f"expected an object, found {shown(root)}")
        definitions = self._object(root.get("$defs", {}), "#/$defs")
        pointers = {name: f"#/$defs/{name}" for name in definitions}
        self._definitions |= {pointer: Node(is_definition=True) for pointer in pointers.values()}
        self._fill(self._definitions["#"], root, "#", "#")
        for name, pointer in pointers.items():
            self._fill(self._definitions[pointer], definitions[name], pointer, pointer)
        try:
            graphlib.TopologicalSorter(self._references).prepare()
        except graphlib.CycleError as error:
            ring = " to ".join(reversed(error.args[1]))
            self._refuse(error.args[1][0], f"refers to itself without end ({cut(ring)}); say what it is")
        return self._definitions["#"]

    def _node(self, schema: Any, where: str, owner: str | None) -> Node:
        """Compile a schema inside another. *owner* is the definition that is about the same value, if one is."""
        node = Node()
        self._fill(node, schema, where, owner)
        return node

    def _fill(self, node: Node, schema: Any, where: str, owner: str | None) -> None:
        if isinstance(schema, bool):
            if not schema:
                node.expected, node.is_never = "nothing", True
                node.kind = nodes.kind_test("nothing here", lambda value: False)
            return
        if not isinstance(schema, dict):
            self._refuse(where, f"expected a schema (an object, true or false), found {shown(schema)}")
        for keyword in schema:
            if keyword not in _KNOWN and not keyword.startswith("x-"):
                advice = "write $defs" if keyword == "definitions" else f"supported are {', '.join(_SUPPORTED)}"
                self._refuse(where, f"the keyword {cut(repr(keyword))} is not supported; {advice}")
            if keyword in _TOP_ONLY - _ANNOTATIONS and where != "#":
                self._refuse(where, f"expected {keyword} at the top of the schema only; move it there")
        self._add_kind(node, schema, where)
        self._add_tests(node, schema, where)
        self._add_parts(node, schema, where)
        self._add_combinations(node, schema, where, owner)
        if node.expected == "any value" and (node.tests or node.applicators):
            node.expected = "a value that fits"

    def _add_kind(self, node: Node, schema: Mapping[str, Any], where: str) -> None:
        tests: list[Callable[[Any], bool]] = []
        if "type" in schema:
            node.expected = _words(schema)
            if not node.expected:
                self._refuse(f"{where}/type", f"expected some of {', '.join(TYPES)}, found {shown(schema['type'])}")
            kinds = [TYPES[name][1] for name in _names(schema)]
            tests.append(lambda value: any(kind(value) for kind in kinds))
        for keyword in ("enum", "const"):
            if keyword in schema:
                options = self._list(schema[keyword], f"{where}/enum") if keyword == "enum" else [schema[keyword]]
                node.expected = ("one of " if len(options) > 1 else "") + few(map(shown, options))
                tests.append(nodes.among(frozenset(map(nodes.key_of, options))))
        if tests:
            is_tag = "const" in schema or len(schema.get("enum", ())) == 1
            node.kind = nodes.kind_test(node.expected, lambda value: all(test(value) for test in tests), is_tag)

    def _add_tests(self, node: Node, schema: Mapping[str, Any], where: str) -> None:
        for keyword, argument in schema.items():
            place = f"{where}/{keyword}"
            if keyword in LIMITS:
                counts = LIMITS[keyword].measure is len
                if not (nodes.is_integer(argument) and argument >= 0 if counts else nodes.is_number(argument)):
                    expected = "an integer from 0 on" if counts else "a number"
                    self._refuse(place, f"expected {expected}, found {shown(argument)}")
                node.tests.append(nodes.limit_test(LIMITS[keyword], argument))
            elif keyword == "multipleOf":
                if not nodes.is_number(argument) or argument <= 0:
                    self._refuse(place, f"expected a number above 0, found {shown(argument)}")
                node.tests.append(nodes.multiple_test(argument))
            elif keyword == "pattern":
                node.tests.append(nodes.pattern_test(self._compiled(argument, place)))
            elif keyword == "uniqueItems":
                if not isinstance(argument, bool):
                    self._refuse(place, f"expected true or false, found {shown(argument)}")
                node.tests.extend([nodes.unique_test] if argument else [])

    def _add_parts(self, node: Node, schema: Mapping[str, Any], where: str) -> None:
        if not schema.keys().isdisjoint(("properties", "required", "additionalProperties")):
            properties = {
                name: self._node(each, f"{where}/properties/{name}", None)
                for name, each in self._object(schema.get("properties", {}), f"{where}/properties").items()
            }
            required = schema.get("required", [])
            if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
                self._refuse(f"{where}/required", f"expected a list of names, found {shown(required)}")
            other = None
            if "additionalProperties" in schema:
                other = self._node(schema["additionalProperties"], f"{where}/additionalProperties", None)
            node.applicators.append(nodes.object_parts(properties, list(dict.fromkeys(required)), other))
        if not schema.keys().isdisjoint(("items", "prefixItems")):
            if isinstance(schema.get("items"), list):
                self._refuse(f"{where}/items", "expected one schema, found a list; write prefixItems")
            prefix = self._nodes(schema, "prefixItems", where, None) if "prefixItems" in schema else []
            rest = self._node(schema["items"], f"{where}/items", None) if "items" in schema else None
            node.applicators.append(nodes.array_parts(prefix, rest))

    def _add_combinations(self, node: Node, schema: Mapping[str, Any], where: str, owner: str | None) -> None:
        expected = ""
        if "$ref" in schema:
            target, expected = self._target(schema["$ref"], f"{where}/$ref")
            if owner is not None:
                self._references.setdefault(owner, []).append(target)
            node.applicators.append(nodes.all_of([self._definitions[target]]))
        if "allOf" in schema:
            node.applicators.append(nodes.all_of(self._nodes(schema, "allOf", where, owner)))
        for keyword, combine in (("anyOf", nodes.any_of), ("oneOf", nodes.one_of)):
            if keyword in schema:
                members = self._nodes(schema, keyword, where, owner)
                expected = few((member.expected for member in members), " or ")
                node.applicators.append(combine(members))
        if "not" in schema:
            node.applicators.append(nodes.not_(self._node(schema["not"], f"{where}/not", owner)))
        if expected and node.kind is None:
            node.expected = expected

    def _target(self, reference: Any, where: str) -> tuple[str, str]:
        """The definition that a `$ref` leads to, and what messages say that it expects."""
        name = _name_in(reference)
        pointer = f"#/$defs/{name}"
        if name is not None and pointer in self._definitions:
            return pointer, _words(self._schema["$defs"][name]) or cut(name)
        if reference == "#":
            return "#", _words(self._schema) or "the same as at the top"
        found = ", ".join(self._definitions)
        self._refuse(where, f"expected one of {cut(found)}, found {shown(reference)}, which leads nowhere")

    def _nodes(self, schema: Mapping[str, Any], keyword: str, where: str, owner: str | None) -> list[Node]:
        place = f"{where}/{keyword}"
        members = self._list(schema[keyword], place)
        return [self._node(each, f"{place}/{index}", owner) for index, each in enumerate(members)]

    def _list(self, argument: Any, where: str) -> list[Any]:
        if not isinstance(argument, list) or not argument:
            self._refuse(where, f"expected a list that is not empty, found {shown(argument)}")
        return argument

    def _object(self, argument: Any, where: str) -> dict[str, Any]:
        if not isinstance(argument, dict):
            self._refuse(where, f"expected an object, found {shown(argument)}")
        return argument

    def _compiled(self, pattern: object, where: str) -> Pattern:
        if not isinstance(pattern, str):
            self._refuse(where, f"expected a regular expression, found {shown(pattern)}")
        from ._patterns import Pattern, PatternError  # few schemas have one

        try:
            return Pattern(pattern)
        except PatternError as error:
            self._refuse(where, f"expected a pattern that can be tried in one pass, found {shown(pattern)}: {error}")
        except (re.error, OverflowError, RecursionError) as error:
            self._refuse(where, f"expected a regular expression, found {shown(pattern)} ({error})")

    def _refuse(self, where: str, problem: str) -> NoReturn:
        msg = f"{self._what} at {where[:LINE_CHARS_MAX]}: {problem}"
        raise ConfigurationError(msg)


def _names(schema: Mapping[str, Any]) -> list[Any]:
    names = schema.get("type", [])
    return names if isinstance(names, list) else [names]


def _words(schema: Any) -> str:
    """What the type of a schema is called in messages; empty if it has none, or one that does not exist."""
    names = _names(schema) if isinstance(schema, dict) else []
    known = all(isinstance(name, str) and name in TYPES for name in names)
    return " or ".join(TYPES[name][0] for name in names) if known else ""


def _name_in(reference: Any) -> str | None:
    """The name of the definition that a `$ref` leads to: https://www.rfc-editor.org/rfc/rfc6901#section-6."""
    head, _, name = reference.rpartition("/") if isinstance(reference, str) else ("", "", "")
    return unquote(name).replace("~1", "/").replace("~0", "~") if head == "#/$defs" else None


def _rerooted(schema: Any, root: str, form: str = "one") -> Any:
    """The schema with *root* in the place of `#` wherever it refers to it."""
    if form == "list":
        return [_rerooted(each, root) for each in schema]
    if form == "map":
        return {name: _rerooted(each, root) for name, each in schema.items()}
    if not isinstance(schema, dict):
        return schema
    changed = {word: _rerooted(each, root, _INSIDE[word]) for word, each in schema.items() if word in _INSIDE}
    return {**schema, **changed, **({"$ref": root} if schema.get("$ref") == "#" else {})}
