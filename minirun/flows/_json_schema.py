"""
Whether a JSON value fits a JSON schema, and if not, why.

The schemas are a part of draft 2020-12, the part that models are told and that classes turn into:

* type (also a list of types), enum, const
* minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
* minLength, maxLength, pattern (Python's `re.search`)
* items, prefixItems, minItems, maxItems, uniqueItems
* properties, required, additionalProperties
* anyOf, oneOf, allOf, not, and `true` and `false` as schemas
* $defs at the top, and $ref to `#` or `#/$defs/name`, also where a schema contains itself
* what means nothing here: title, description, default, examples, format, nullable and others of `_ANNOTATIONS`

Every other keyword is refused by name when the schema is compiled, for a rule that is not checked is no rule.

The rules of this file:

* A schema is compiled once into nodes, which nothing changes afterwards. A node's tests look at a value alone; its
  applicators ask for parts of it, or for the same value, to be checked by other nodes.
* An applicator is a generator: it yields (node, value) and gets the problems. So the depth of a value and that of a
  schema are no matter of Python's stack, and the answer is the same wherever the check is called.
* It always ends. References that lead back to a schema without a step into the value are refused, and what a
  definition says about a value is asked once, so the cost is at most the size of the value times that of the schema.
  (That of `pattern` is up to who writes it.)
* Of many problems only the first few are told, and of a value only its beginning: they go to a model.
"""

from __future__ import annotations

import graphlib
import itertools
import json
import operator
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn, TypeAlias
from urllib.parse import unquote

import attrs

from .._json import freeze
from ..errors import ConfigurationError, InvalidValueError

__all__ = ["PROBLEMS_MAX", "Checker", "as_object", "bounded", "compile_schema", "wrapped"]

# Enough to mend an answer in one go; a model that has more to mend had better begin anew.
PROBLEMS_MAX = 20
# Long enough to recognise a value or an option, short enough for twenty of them in a prompt.
FOUND_CHARS_MAX = 60
OPTIONS_MAX = 10
LINE_CHARS_MAX = 500

_Path: TypeAlias = tuple[str | int, ...]
_NOTHING: Any = object()


# --- what others ask --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Checker:
    """A compiled schema."""

    schema: Any
    """The schema, frozen."""

    _root: _Node = attrs.field(repr=False)

    def problems(self, value: object) -> list[str]:
        """
        Return what is wrong with *value*, a line for each problem with its path; nothing if it fits.

        A value that is no JSON, such as NaN, or is nested deeper than a stored value may be, has one problem.
        """
        try:
            value = freeze(value, "the value")
        except InvalidValueError as error:
            return bounded([str(error)])
        return bounded(map(_told, _check(self._root, value)))


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


def bounded(lines: Iterable[str]) -> list[str]:
    """Return the first few different problems, each cut to a length that one can read, and whether there are more."""
    found = list(dict.fromkeys(lines))
    told = [_cut(line, LINE_CHARS_MAX) for line in found[:PROBLEMS_MAX]]
    return told if len(found) <= PROBLEMS_MAX else [*told, f"there are more problems than these {PROBLEMS_MAX}"]


def _path_of(steps: _Path) -> str:
    """Return a path such as `items[2].name`; empty for the value itself."""
    text = ""
    for step in steps:
        if isinstance(step, str) and step.isidentifier() and len(step) <= FOUND_CHARS_MAX:
            text += f".{step}" if text else step
        else:
            text += f"[{_cut(repr(step))}]"
    return text


# --- checking ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Problem:
    """What is wrong at one place. Its text is made when it is told, as most problems of a union's members never are."""

    expected: str
    value: Any = _NOTHING  # what was found there
    steps: _Path = ()
    is_kind: bool = False  # the value is another kind of thing altogether
    is_tag: bool = False  # a constant is another one, so perhaps another member of a union was meant

    def under(self, step: str | int) -> _Problem:
        return attrs.evolve(self, steps=(step, *self.steps))


# What an applicator asks for, and what it returns.
_Steps: TypeAlias = Generator[tuple["_Node", Any], list[_Problem], list[_Problem]]
_Test: TypeAlias = Callable[[Any], _Problem | None]
_Applicator: TypeAlias = Callable[[Any], _Steps]


@attrs.define(eq=False)
class _Node:
    """A schema, compiled. Definitions are made empty and filled in, as they may refer to each other."""

    expected: str = "any value"
    kind: _Test | None = None  # type, enum and const; what is of another kind has no other problem
    tests: list[_Test] = attrs.Factory(list)
    applicators: list[_Applicator] = attrs.Factory(list)
    is_definition: bool = False
    is_never: bool = False  # the schema `false`

    def check(self, value: Any) -> _Steps:
        if self.kind is not None and (problem := self.kind(value)) is not None:
            return [problem]
        found = [problem for test in self.tests if (problem := test(value)) is not None]
        for applicator in self.applicators:
            if len(found) > PROBLEMS_MAX:
                break
            found += yield from applicator(value)
        return found


def _check(root: _Node, value: Any) -> list[_Problem]:
    known: dict[tuple[int, int], list[_Problem]] = {}  # by definition and value: many places may ask for the same
    stack: list[tuple[tuple[int, int] | None, _Steps]] = [(None, root.check(value))]
    answer: Any = None
    while stack:
        key, steps = stack[-1]
        try:
            node, part = steps.send(answer)
        except StopIteration as done:
            answer = done.value
            stack.pop()
            if key is not None:
                known[key] = answer
            continue
        key = (id(node), id(part)) if node.is_definition else None
        answer = known.get(key) if key is not None else None
        if answer is None:
            stack.append((key, node.check(part)))
    found: list[_Problem] = answer
    return found


def _told(problem: _Problem) -> str:
    found = "" if problem.value is _NOTHING else f", found {_shown(problem.value)}"
    return f"{_path_of(problem.steps) or 'the value'}: {problem.expected}{found}"


def _shown(value: Any) -> str:
    """The beginning of the value as JSON; the rest of it is not even looked at."""
    text = ""
    for piece in _ENCODER.iterencode(value):
        text += piece
        if len(text) > FOUND_CHARS_MAX:
            break
    return _cut(text)


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _cut(text: str, chars_max: int = FOUND_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 3]}..."


def _few(options: Iterable[str], between: str = ", ") -> str:
    several = list(dict.fromkeys(options))
    more = ["..."] if len(several) > OPTIONS_MAX else []
    return _cut(between.join(several[:OPTIONS_MAX] + more), LINE_CHARS_MAX // 2)


def _key(value: Any) -> Any:
    """What two values share exactly if they are equal in JSON: 1 is 1.0, and neither is true."""
    if value is None or isinstance(value, bool):
        return ("constant", value)
    if isinstance(value, list):
        return ("array", tuple([_key(item) for item in value]))
    if isinstance(value, dict):
        return ("object", frozenset([(name, _key(item)) for name, item in value.items()]))
    return value


# --- tests: what looks at a value alone -------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda value: value is None),
    "boolean": ("a boolean", _is(bool)),
    "integer": ("an integer", _is_integer),
    "number": ("a number", _is_number),
    "string": ("a string", _is(str)),
    "array": ("an array", _is(list)),
    "object": ("an object", _is(dict)),
}


@attrs.frozen
class _Limit:
    """A keyword that compares: with which values it has to do, what of them it measures, and how."""

    applies: Callable[[Any], bool]
    measure: Callable[[Any], Any]
    compare: Callable[[Any, Any], bool]
    expected: str


def _itself(value: Any) -> Any:
    return value


_LIMITS = {
    "minimum": _Limit(_is_number, _itself, operator.ge, "at least {}"),
    "maximum": _Limit(_is_number, _itself, operator.le, "at most {}"),
    "exclusiveMinimum": _Limit(_is_number, _itself, operator.gt, "more than {}"),
    "exclusiveMaximum": _Limit(_is_number, _itself, operator.lt, "less than {}"),
    "minLength": _Limit(_is(str), len, operator.ge, "at least {} characters"),
    "maxLength": _Limit(_is(str), len, operator.le, "at most {} characters"),
    "minItems": _Limit(_is(list), len, operator.ge, "at least {} items"),
    "maxItems": _Limit(_is(list), len, operator.le, "at most {} items"),
}


def _limit(limit: _Limit, bound: Any) -> _Test:
    expected = f"expected {limit.expected.format(_shown(bound))}"

    def test(value: Any) -> _Problem | None:
        fits = not limit.applies(value) or limit.compare(limit.measure(value), bound)
        return None if fits else _Problem(expected, value)

    return test


def _multiple_of(divisor: Any) -> _Test:
    exact = _exact(divisor)

    def test(value: Any) -> _Problem | None:
        fits = not _is_number(value) or _exact(value) % exact == 0
        return None if fits else _Problem(f"expected a multiple of {_shown(divisor)}", value)

    return test


def _exact(number: Any) -> Fraction:
    return Fraction(repr(number) if isinstance(number, float) else number)  # 0.3 is three times 0.1 for who wrote it


def _pattern(pattern: re.Pattern[str]) -> _Test:
    expected = f"expected text that matches {_cut(repr(pattern.pattern))}"

    def test(value: Any) -> _Problem | None:
        fits = not isinstance(value, str) or pattern.search(value) is not None
        return None if fits else _Problem(expected, value)

    return test


def _unique(value: Any) -> _Problem | None:
    if not isinstance(value, list):
        return None
    seen: dict[Any, int] = {}
    for index, item in enumerate(value):
        first = seen.setdefault(_key(item), index)
        if first != index:
            return _Problem(f"expected different items, found equal ones at {first} and {index}")
    return None


def _kind(expected: str, fits: Callable[[Any], bool], is_tag: bool = False) -> _Test:
    def test(value: Any) -> _Problem | None:
        return None if fits(value) else _Problem(f"expected {expected}", value, (), True, is_tag)

    return test


# --- applicators: what asks other nodes -------------------------------------------------------------------------------


def _object(properties: Mapping[str, _Node], required: Sequence[str], other: _Node | None) -> _Applicator:
    known = f"expected one of {_few(properties)}" if properties else "expected no name at all"

    def apply(value: Any) -> _Steps:
        if not isinstance(value, dict):
            return []
        found = []
        for name in required:
            if name not in value:
                expected = properties[name].expected if name in properties else "any value"
                found.append(_Problem(f"missing, expected {expected}", steps=(name,)))
        for name, part in value.items():
            if len(found) > PROBLEMS_MAX:
                break
            node = properties.get(name, other)
            if node is not None and node is other and node.is_never:
                found.append(_Problem(f"unknown name, {known}", steps=(name,)))
            elif node is not None:
                problems = yield node, part
                found += [problem.under(name) for problem in problems]
        return found

    return apply


def _array(prefix: Sequence[_Node], rest: _Node | None) -> _Applicator:
    def apply(value: Any) -> _Steps:
        found: list[_Problem] = []
        for index, part in enumerate(value if isinstance(value, list) else ()):
            node = prefix[index] if index < len(prefix) else rest
            if node is None or len(found) > PROBLEMS_MAX:
                break
            problems = yield node, part
            found += [problem.under(index) for problem in problems]
        return found

    return apply


def _all_of(members: Sequence[_Node]) -> _Applicator:
    def apply(value: Any) -> _Steps:
        found: list[_Problem] = []
        for member in members:
            found += yield member, value
            if len(found) > PROBLEMS_MAX:
                break
        return found

    return apply


def _any_of(members: Sequence[_Node]) -> _Applicator:
    def apply(value: Any) -> _Steps:
        attempts = []
        for member in members:
            problems = yield member, value
            if not problems:
                return []
            attempts.append(problems)
        return _closest(attempts, value)

    return apply


def _one_of(members: Sequence[_Node]) -> _Applicator:
    def apply(value: Any) -> _Steps:
        attempts = []
        for member in members:
            attempts.append((yield member, value))
        fitting = [index for index, problems in enumerate(attempts) if not problems]
        if not fitting:
            return _closest(attempts, value)
        if len(fitting) == 1:
            return []
        first, second = fitting[:2]
        return [_Problem(f"expected to fit one member of oneOf, fits both number {first} and number {second}", value)]

    return apply


def _closest(attempts: Sequence[list[_Problem]], value: Any) -> list[_Problem]:
    """
    The problems of the member of a union that was meant most likely: who mends them has a value that fits.

    That is the one with the right constants if there is one, then the one with the fewest problems. If the value is
    none of these things at all, that is the problem.
    """
    near = [problems for problems in attempts if not any(map(_is_elsewhere, problems))]
    if near:
        return min(near, key=lambda found: (any(each.is_tag and len(each.steps) == 1 for each in found), len(found)))
    kinds = [each.expected.removeprefix("expected ") for each in itertools.chain(*attempts) if _is_elsewhere(each)]
    return [_Problem(f"expected {_few(kinds, ' or ')}", value, (), True)]


def _is_elsewhere(problem: _Problem) -> bool:
    return problem.is_kind and not problem.steps


def _not(member: _Node) -> _Applicator:
    def apply(value: Any) -> _Steps:
        problems = yield member, value
        return [] if problems else [_Problem(f"expected anything but {member.expected}", value)]

    return apply


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
    *("type", "enum", "const", *_LIMITS, "multipleOf", "pattern", "uniqueItems", "items", "prefixItems"),
    *("properties", "required", "additionalProperties", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs"),
)
_KNOWN = frozenset({*_SUPPORTED, *_ANNOTATIONS, *_TOP_ONLY})


class _Compiler:
    """Compiles one schema and its definitions. Places in messages are JSON pointers, such as `#/properties/city`."""

    def __init__(self, schema: Any, what: str) -> None:
        self._schema = schema
        self._what = what
        self._definitions: dict[str, _Node] = {"#": _Node(is_definition=True)}
        # Which definitions say something about the same value that another is asked about.
        self._references: dict[str, list[str]] = {}

    def compile(self) -> _Node:
        root = self._schema
        if not isinstance(root, dict):
            self._refuse("#", f"expected an object, found {_shown(root)}")
        definitions = self._object(root.get("$defs", {}), "#/$defs")
        pointers = {name: f"#/$defs/{name}" for name in definitions}
        self._definitions |= {pointer: _Node(is_definition=True) for pointer in pointers.values()}
        self._fill(self._definitions["#"], root, "#", "#")
        for name, pointer in pointers.items():
            self._fill(self._definitions[pointer], definitions[name], pointer, pointer)
        try:
            graphlib.TopologicalSorter(self._references).prepare()
        except graphlib.CycleError as error:
            ring = " to ".join(reversed(error.args[1]))
            self._refuse(error.args[1][0], f"refers to itself without end ({_cut(ring)}); say what it is")
        return self._definitions["#"]

    def _node(self, schema: Any, where: str, owner: str | None) -> _Node:
        """Compile a schema inside another. *owner* is the definition that is about the same value, if one is."""
        node = _Node()
        self._fill(node, schema, where, owner)
        return node

    def _fill(self, node: _Node, schema: Any, where: str, owner: str | None) -> None:
        if isinstance(schema, bool):
            if not schema:
                node.expected, node.is_never, node.kind = "nothing", True, _kind("nothing here", lambda value: False)
            return
        if not isinstance(schema, dict):
            self._refuse(where, f"expected a schema (an object, true or false), found {_shown(schema)}")
        for keyword in schema:
            if keyword not in _KNOWN and not keyword.startswith("x-"):
                advice = "write $defs" if keyword == "definitions" else f"supported are {', '.join(_SUPPORTED)}"
                self._refuse(where, f"the keyword {_cut(repr(keyword))} is not supported; {advice}")
            if keyword in _TOP_ONLY - _ANNOTATIONS and where != "#":
                self._refuse(where, f"expected {keyword} at the top of the schema only; move it there")
        self._add_kind(node, schema, where)
        self._add_tests(node, schema, where)
        self._add_parts(node, schema, where)
        self._add_combinations(node, schema, where, owner)
        if node.expected == "any value" and (node.tests or node.applicators):
            node.expected = "a value that fits"

    def _add_kind(self, node: _Node, schema: Mapping[str, Any], where: str) -> None:
        tests: list[Callable[[Any], bool]] = []
        if "type" in schema:
            node.expected = _words(schema)
            if not node.expected:
                self._refuse(f"{where}/type", f"expected some of {', '.join(_TYPES)}, found {_shown(schema['type'])}")
            kinds = [_TYPES[name][1] for name in _names(schema)]
            tests.append(lambda value: any(kind(value) for kind in kinds))
        for keyword in ("enum", "const"):
            if keyword in schema:
                options = self._list(schema[keyword], f"{where}/enum") if keyword == "enum" else [schema[keyword]]
                node.expected = ("one of " if len(options) > 1 else "") + _few(map(_shown, options))
                tests.append(_among(frozenset(map(_key, options))))
        if tests:
            is_tag = "const" in schema or len(schema.get("enum", ())) == 1
            node.kind = _kind(node.expected, lambda value: all(test(value) for test in tests), is_tag)

    def _add_tests(self, node: _Node, schema: Mapping[str, Any], where: str) -> None:
        for keyword, argument in schema.items():
            place = f"{where}/{keyword}"
            if keyword in _LIMITS:
                counts = _LIMITS[keyword].measure is len
                if not (_is_integer(argument) and argument >= 0 if counts else _is_number(argument)):
                    expected = "an integer from 0 on" if counts else "a number"
                    self._refuse(place, f"expected {expected}, found {_shown(argument)}")
                node.tests.append(_limit(_LIMITS[keyword], argument))
            elif keyword == "multipleOf":
                if not _is_number(argument) or argument <= 0:
                    self._refuse(place, f"expected a number above 0, found {_shown(argument)}")
                node.tests.append(_multiple_of(argument))
            elif keyword == "pattern":
                node.tests.append(_pattern(self._compiled(argument, place)))
            elif keyword == "uniqueItems":
                if not isinstance(argument, bool):
                    self._refuse(place, f"expected true or false, found {_shown(argument)}")
                node.tests.extend([_unique] if argument else [])

    def _add_parts(self, node: _Node, schema: Mapping[str, Any], where: str) -> None:
        if not schema.keys().isdisjoint(("properties", "required", "additionalProperties")):
            properties = {
                name: self._node(each, f"{where}/properties/{name}", None)
                for name, each in self._object(schema.get("properties", {}), f"{where}/properties").items()
            }
            required = schema.get("required", [])
            if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
                self._refuse(f"{where}/required", f"expected a list of names, found {_shown(required)}")
            other = None
            if "additionalProperties" in schema:
                other = self._node(schema["additionalProperties"], f"{where}/additionalProperties", None)
            node.applicators.append(_object(properties, list(dict.fromkeys(required)), other))
        if not schema.keys().isdisjoint(("items", "prefixItems")):
            if isinstance(schema.get("items"), list):
                self._refuse(f"{where}/items", "expected one schema, found a list; write prefixItems")
            prefix = self._nodes(schema, "prefixItems", where, None) if "prefixItems" in schema else []
            rest = self._node(schema["items"], f"{where}/items", None) if "items" in schema else None
            node.applicators.append(_array(prefix, rest))

    def _add_combinations(self, node: _Node, schema: Mapping[str, Any], where: str, owner: str | None) -> None:
        expected = ""
        if "$ref" in schema:
            target, expected = self._target(schema["$ref"], f"{where}/$ref")
            if owner is not None:
                self._references.setdefault(owner, []).append(target)
            node.applicators.append(_all_of([self._definitions[target]]))
        if "allOf" in schema:
            node.applicators.append(_all_of(self._nodes(schema, "allOf", where, owner)))
        for keyword, combine in (("anyOf", _any_of), ("oneOf", _one_of)):
            if keyword in schema:
                members = self._nodes(schema, keyword, where, owner)
                expected = _few((member.expected for member in members), " or ")
                node.applicators.append(combine(members))
        if "not" in schema:
            node.applicators.append(_not(self._node(schema["not"], f"{where}/not", owner)))
        if expected and node.kind is None:
            node.expected = expected

    def _target(self, reference: Any, where: str) -> tuple[str, str]:
        """The definition that a `$ref` leads to, and what messages say that it expects."""
        name = _name_in(reference)
        pointer = f"#/$defs/{name}"
        if name is not None and pointer in self._definitions:
            return pointer, _words(self._schema["$defs"][name]) or _cut(name)
        if reference == "#":
            return "#", _words(self._schema) or "the same as at the top"
        found = ", ".join(self._definitions)
        self._refuse(where, f"expected one of {_cut(found)}, found {_shown(reference)}, which leads nowhere")

    def _nodes(self, schema: Mapping[str, Any], keyword: str, where: str, owner: str | None) -> list[_Node]:
        place = f"{where}/{keyword}"
        members = self._list(schema[keyword], place)
        return [self._node(each, f"{place}/{index}", owner) for index, each in enumerate(members)]

    def _list(self, argument: Any, where: str) -> list[Any]:
        if not isinstance(argument, list) or not argument:
            self._refuse(where, f"expected a list that is not empty, found {_shown(argument)}")
        return argument

    def _object(self, argument: Any, where: str) -> dict[str, Any]:
        if not isinstance(argument, dict):
            self._refuse(where, f"expected an object, found {_shown(argument)}")
        return argument

    def _compiled(self, pattern: Any, where: str) -> re.Pattern[str]:
        if not isinstance(pattern, str):
            self._refuse(where, f"expected a regular expression, found {_shown(pattern)}")
        try:
            return re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self._refuse(where, f"expected a regular expression, found {_shown(pattern)} ({error})")

    def _refuse(self, where: str, problem: str) -> NoReturn:
        msg = f"{self._what} at {where[:LINE_CHARS_MAX]}: {problem}"
        raise ConfigurationError(msg)


def _names(schema: Mapping[str, Any]) -> list[Any]:
    names = schema.get("type", [])
    return names if isinstance(names, list) else [names]


def _words(schema: Any) -> str:
    """What the type of a schema is called in messages; empty if it has none, or one that does not exist."""
    names = _names(schema) if isinstance(schema, dict) else []
    known = all(isinstance(name, str) and name in _TYPES for name in names)
    return " or ".join(_TYPES[name][0] for name in names) if known else ""


def _name_in(reference: Any) -> str | None:
    """The name of the definition that a `$ref` leads to: https://www.rfc-editor.org/rfc/rfc6901#section-6."""
    head, _, name = reference.rpartition("/") if isinstance(reference, str) else ("", "", "")
    return unquote(name).replace("~1", "/").replace("~0", "~") if head == "#/$defs" else None


def _among(options: frozenset[Any]) -> Callable[[Any], bool]:
    return lambda value: _key(value) in options


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
