"""
Whether a JSON value fits a JSON schema, and if not, why.

The supported part of draft 2020-12:

* type (also a list of types), enum, const
* minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
* minLength, maxLength, pattern (Python's `re.search`)
* items, prefixItems, minItems, maxItems, uniqueItems
* properties, required, additionalProperties
* anyOf, oneOf, allOf, not, and `true` and `false` as schemas
* $defs at the top, and $ref to `#` or `#/$defs/name`, also where a schema contains itself
* annotations without effect: title, description, default, examples, format, nullable and others of `_ANNOTATIONS`

Every other keyword is refused when the schema is compiled, because a rule that is not checked is not a rule. So are
references that lead back to a definition without a step into the value: checking them would not end.

A schema is compiled into nodes of plain functions that call each other. The result of a definition for a value is
remembered during a check, so the cost is at most the size of the value times that of the schema. Only the first
problems are reported, and of a value only its beginning: the report goes to a model.
"""

from __future__ import annotations

import graphlib
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn, TypeAlias
from urllib.parse import unquote

import attrs

from .._json import freeze
from ..errors import ConfigurationError, InvalidValueError
from ._types import FOUND_CHARS_MAX, LINE_CHARS_MAX, PROBLEMS_MAX, bounded, cut

__all__ = ["Checker", "as_object", "compile_schema", "wrapped"]

OPTIONS_MAX = 10
_NOTHING: Any = object()


class Problem(NamedTuple):
    """A problem of one part of a value. Its text is made when it is reported; most problems in a union never are."""

    expected: str
    value: Any = _NOTHING
    steps: tuple[str | int, ...] = ()
    is_kind: bool = False  # the part has another type, or is another constant
    is_tag: bool = False  # it is another constant, so perhaps another member of a union was meant

    def __str__(self) -> str:
        path = ""
        for step in self.steps:
            if isinstance(step, str) and step.isidentifier() and len(step) <= FOUND_CHARS_MAX:
                path += f".{step}" if path else step
            else:
                path += f"[{cut(repr(step))}]"
        found = "" if self.value is _NOTHING else f", found {shown(self.value)}"
        return f"{path or 'the value'}: {self.expected}{found}"


# The problems of a definition for a value, by the ids of both, in one check.
_Known: TypeAlias = dict[tuple[int, int], list[Problem]]
_Rule: TypeAlias = Callable[[Any, _Known], list[Problem]]


@attrs.define(eq=False)
class Node:
    """A compiled schema. Definitions are made empty and filled later, because they can refer to each other."""

    expected: str = "any value"
    kind: Callable[[Any], bool] | None = None  # type, enum and const: a value of another kind has no other problem
    is_tag: bool = False
    rules: list[_Rule] = attrs.Factory(list)
    is_definition: bool = False
    is_never: bool = False  # the schema `false`

    def check(self, value: Any, known: _Known) -> list[Problem]:
        key = (id(self), id(value))
        if key in known:
            return known[key]
        if self.kind is not None and not self.kind(value):
            return [Problem(f"expected {self.expected}", value, (), True, self.is_tag)]
        found: list[Problem] = []
        for rule in self.rules:
            found += rule(value, known)
            if len(found) > PROBLEMS_MAX:
                break
        if self.is_definition:
            known[key] = found
        return found

    def check_at(self, step: str | int, value: Any, known: _Known) -> list[Problem]:
        return [problem._replace(steps=(step, *problem.steps)) for problem in self.check(value, known)]


@attrs.frozen(eq=False)
class Checker:
    """A compiled schema."""

    schema: Any
    """The schema, frozen."""

    _root: Node = attrs.field(repr=False)

    def problems(self, value: object) -> list[str]:
        """
        Return a line for each problem of *value*, with its path; an empty list if it fits.

        A value that is not JSON, or is nested deeper than a stored value can be, has one problem.
        """
        try:
            return bounded(map(str, self._root.check(freeze(value, "the value"), {})))
        except InvalidValueError as error:
            return bounded([str(error)])
        except RecursionError:
            return ["the value: nested too deeply; flatten it"]


def compile_schema(schema: Mapping[str, Any], what: str = "schema", *, patterns: bool = True) -> Checker:
    """
    Compile a JSON schema; *what* is its name in messages.

    Args:
        patterns: Whether `pattern` is checked. A pattern of an untrusted document can take a time that is exponential
            in the length of the text, so it must not run.

    Raises:
        ConfigurationError: It is not JSON, has a keyword that is not supported or is misused, a `$ref` that leads
            nowhere, or definitions that only refer to each other.
    """
    try:
        frozen = freeze(schema, what)
    except InvalidValueError as error:
        raise ConfigurationError(str(error)) from None
    return Checker(frozen, _Compiler(frozen, what, patterns).compile())


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


# --- values -----------------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """The beginning of the value as JSON; the rest of it is not even looked at."""
    text = ""
    for piece in _ENCODER.iterencode(value):
        text += piece
        if len(text) > FOUND_CHARS_MAX:
            break
    return cut(text)


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def few(options: Iterable[str], between: str = ", ") -> str:
    """Return the first few different options as one text."""
    several = list(dict.fromkeys(options))
    more = ["..."] if len(several) > OPTIONS_MAX else []
    return cut(between.join(several[:OPTIONS_MAX] + more), LINE_CHARS_MAX // 2)


def is_number(value: Any) -> bool:
    """Whether *value* is a number in JSON, where true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether *value* is a number without a fraction, however it is written."""
    return is_number(value) and (isinstance(value, int) or value.is_integer())


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda value: value is None),
    "boolean": ("a boolean", _is(bool)),
    "integer": ("an integer", is_integer),
    "number": ("a number", is_number),
    "string": ("a string", _is(str)),
    "array": ("an array", _is(list)),
    "object": ("an object", _is(dict)),
}


# By keyword: the values that it applies to, what it measures, how it compares, and the expectation.
LIMITS: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[[Any, Any], bool], str]] = {
    "minimum": (is_number, lambda value: value, operator.ge, "at least {}"),
    "maximum": (is_number, lambda value: value, operator.le, "at most {}"),
    "exclusiveMinimum": (is_number, lambda value: value, operator.gt, "more than {}"),
    "exclusiveMaximum": (is_number, lambda value: value, operator.lt, "less than {}"),
    "minLength": (_is(str), len, operator.ge, "at least {} characters"),
    "maxLength": (_is(str), len, operator.le, "at most {} characters"),
    "minItems": (_is(list), len, operator.ge, "at least {} items"),
    "maxItems": (_is(list), len, operator.le, "at most {} items"),
}


def _exact(number: Any) -> Fraction:
    return Fraction(repr(number) if isinstance(number, float) else number)  # 0.3 is written as three times 0.1


def key_of(value: Any) -> Any:
    """What two values share exactly if they are equal in JSON: 1 is 1.0, and neither is true."""
    if value is None or isinstance(value, bool):
        return ("constant", value)
    if isinstance(value, list):
        return ("array", tuple([key_of(item) for item in value]))
    if isinstance(value, dict):
        return ("object", frozenset([(name, key_of(item)) for name, item in value.items()]))
    return value


def _duplicates(value: Any, known: _Known) -> list[Problem]:
    seen: dict[Any, int] = {}
    for index, item in enumerate(value if isinstance(value, list) else ()):
        first = seen.setdefault(key_of(item), index)
        if first != index:
            return [Problem(f"expected different items, found equal ones at {first} and {index}")]
    return []


def _among(options: Iterable[Any]) -> Callable[[Any], bool]:
    keys = frozenset(map(key_of, options))
    return lambda value: key_of(value) in keys


def _test(fits: Callable[[Any], bool], expected: str) -> _Rule:
    return lambda value, known: [] if fits(value) else [Problem(f"expected {expected}", value)]


def _is_elsewhere(problem: Problem) -> bool:
    return problem.is_kind and not problem.steps


def _closest(attempts: Sequence[list[Problem]], value: Any) -> list[Problem]:
    """
    Return the problems of the member of a union that was meant most likely.

    That is the member with the right constants if there is one, then the one with the fewest problems. If the value has
    the kind of no member, that is the problem.
    """
    near = [problems for problems in attempts if not any(map(_is_elsewhere, problems))]
    if near:
        return min(near, key=lambda found: (any(each.is_tag and len(each.steps) == 1 for each in found), len(found)))
    kinds = [each.expected.removeprefix("expected ") for found in attempts for each in found if _is_elsewhere(each)]
    return [Problem(f"expected {few(kinds, ' or ')}", value, (), True)]


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

    def __init__(self, schema: Any, what: str, patterns: bool) -> None:
        self._schema = schema
        self._what = what
        self._patterns = patterns
        self._definitions: dict[str, Node] = {"#": Node(is_definition=True)}
        # From definition to definition, where both are about the same value.
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

    def _node(self, schema: Any, where: str, owner: str | None = None) -> Node:
        """Compile a schema inside another. *owner* is the definition that is about the same value, if there is one."""
        node = Node()
        self._fill(node, schema, where, owner)
        return node

    def _nodes(self, schema: Mapping[str, Any], keyword: str, where: str, owner: str | None = None) -> list[Node]:
        members = self._list(schema[keyword], f"{where}/{keyword}")
        return [self._node(each, f"{where}/{keyword}/{index}", owner) for index, each in enumerate(members)]

    def _fill(self, node: Node, schema: Any, where: str, owner: str | None) -> None:
        if isinstance(schema, bool):
            if not schema:
                node.expected, node.is_never, node.kind = "nothing here", True, lambda value: False
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
        for keyword, argument in schema.items():
            self._add_test(node, keyword, argument, f"{where}/{keyword}")
        if not schema.keys().isdisjoint(("properties", "required", "additionalProperties")):
            node.rules.append(self._object_rule(schema, where))
        if not schema.keys().isdisjoint(("items", "prefixItems")):
            node.rules.append(self._array_rule(schema, where))
        self._add_combinations(node, schema, where, owner)
        if node.expected == "any value" and node.rules:
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
                tests.append(_among(options))
        if tests:
            node.is_tag = "const" in schema or len(schema.get("enum", ())) == 1
            node.kind = lambda value: all(test(value) for test in tests)

    def _add_test(self, node: Node, keyword: str, argument: Any, where: str) -> None:
        if keyword in LIMITS:
            applies, measure, compare, expected = LIMITS[keyword]
            if measure is len and not (is_integer(argument) and argument >= 0):
                self._refuse(where, f"expected an integer from 0 on, found {shown(argument)}")
            if not is_number(argument):
                self._refuse(where, f"expected a number, found {shown(argument)}")
            expected = expected.format(shown(argument))
            node.rules.append(_test(lambda value: not applies(value) or compare(measure(value), argument), expected))
        elif keyword == "multipleOf":
            if not is_number(argument) or argument <= 0:
                self._refuse(where, f"expected a number above 0, found {shown(argument)}")
            exact = _exact(argument)
            expected = f"a multiple of {shown(argument)}"
            node.rules.append(_test(lambda value: not is_number(value) or _exact(value) % exact == 0, expected))
        elif keyword == "pattern":
            if not isinstance(argument, str):
                self._refuse(where, f"expected a regular expression, found {shown(argument)}")
            if self._patterns:
                node.rules.append(self._pattern_rule(argument, where))
        elif keyword == "uniqueItems":
            if not isinstance(argument, bool):
                self._refuse(where, f"expected true or false, found {shown(argument)}")
            node.rules += [_duplicates] if argument else []

    def _pattern_rule(self, pattern: str, where: str) -> _Rule:
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self._refuse(where, f"expected a regular expression, found {shown(pattern)} ({error})")
        expected = f"text that matches {cut(repr(pattern))}"
        return _test(lambda value: not isinstance(value, str) or compiled.search(value) is not None, expected)

    def _object_rule(self, schema: Mapping[str, Any], where: str) -> _Rule:
        given = self._object(schema.get("properties", {}), f"{where}/properties")
        properties = {name: self._node(each, f"{where}/properties/{name}") for name, each in given.items()}
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            self._refuse(f"{where}/required", f"expected a list of names, found {shown(required)}")
        other = None
        if "additionalProperties" in schema:
            other = self._node(schema["additionalProperties"], f"{where}/additionalProperties")
        unknown = f"unknown name, expected {f'one of {few(properties)}' if properties else 'no name at all'}"
        missing = {name: properties[name].expected if name in properties else "any value" for name in required}

        def rule(value: Any, known: _Known) -> list[Problem]:
            if not isinstance(value, dict):
                return []
            absent = [name for name in missing if name not in value]
            found = [Problem(f"missing, expected {missing[name]}", steps=(name,)) for name in absent]
            for name, part in value.items():
                if len(found) > PROBLEMS_MAX:
                    break
                node = properties.get(name, other)
                if node is not None and node is other and node.is_never:
                    found.append(Problem(unknown, steps=(name,)))
                elif node is not None:
                    found += node.check_at(name, part, known)
            return found

        return rule

    def _array_rule(self, schema: Mapping[str, Any], where: str) -> _Rule:
        if isinstance(schema.get("items"), list):
            self._refuse(f"{where}/items", "expected one schema, found a list; write prefixItems")
        prefix = self._nodes(schema, "prefixItems", where) if "prefixItems" in schema else []
        rest = self._node(schema["items"], f"{where}/items") if "items" in schema else None

        def rule(value: Any, known: _Known) -> list[Problem]:
            found: list[Problem] = []
            for index, part in enumerate(value if isinstance(value, list) else ()):
                node = prefix[index] if index < len(prefix) else rest
                if node is None or len(found) > PROBLEMS_MAX:
                    break
                found += node.check_at(index, part, known)
            return found

        return rule

    def _add_combinations(self, node: Node, schema: Mapping[str, Any], where: str, owner: str | None) -> None:
        expected = ""
        if "$ref" in schema:
            target, expected = self._target(schema["$ref"], f"{where}/$ref")
            if owner is not None:
                self._references.setdefault(owner, []).append(target)
            node.rules.append(self._definitions[target].check)
        if "allOf" in schema:
            node.rules += [member.check for member in self._nodes(schema, "allOf", where, owner)]
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                members = self._nodes(schema, keyword, where, owner)
                expected = few((member.expected for member in members), " or ")
                node.rules.append(_union_rule(members, is_any=keyword == "anyOf"))
        if "not" in schema:
            refused = self._node(schema["not"], f"{where}/not", owner)
            expectation = f"expected anything but {refused.expected}"
            node.rules.append(
                lambda value, known: [] if refused.check(value, known) else [Problem(expectation, value)]
            )
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

    def _list(self, argument: Any, where: str) -> list[Any]:
        if not isinstance(argument, list) or not argument:
            self._refuse(where, f"expected a list that is not empty, found {shown(argument)}")
        return argument

    def _object(self, argument: Any, where: str) -> dict[str, Any]:
        if not isinstance(argument, dict):
            self._refuse(where, f"expected an object, found {shown(argument)}")
        return argument

    def _refuse(self, where: str, problem: str) -> NoReturn:
        msg = f"{self._what} at {where[:LINE_CHARS_MAX]}: {problem}"
        raise ConfigurationError(msg)


def _union_rule(members: Sequence[Node], *, is_any: bool) -> _Rule:
    def rule(value: Any, known: _Known) -> list[Problem]:
        attempts = []
        for member in members:
            attempts.append(member.check(value, known))
            if is_any and not attempts[-1]:
                return []
        fitting = [index for index, problems in enumerate(attempts) if not problems]
        if len(fitting) < 2:
            return [] if fitting else _closest(attempts, value)
        both = f"fits both number {fitting[0]} and number {fitting[1]}"
        return [Problem(f"expected to fit one member of oneOf, {both}", value)]

    return rule


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
