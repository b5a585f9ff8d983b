"""
The nodes that a JSON schema is compiled into, and how a value is checked by them.

* A node's tests look at a value alone; its applicators ask for parts of it, or for the same value, to be checked by
  other nodes.
* An applicator is a generator: it yields (node, value) and gets the problems. So the depth of a value and that of a
  schema are no matter of Python's stack, and the answer is the same wherever the check is called.
* It always ends: what a definition says about a value is asked once, so the cost is at most the size of the value times
  that of the schema. (That of `pattern`, too: see `_patterns`.)
* Of many problems only the first few are told, and of a value only its beginning: they go to a model.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ._types import FOUND_CHARS_MAX, LINE_CHARS_MAX, PROBLEMS_MAX, cut

if TYPE_CHECKING:
    from ._patterns import Pattern

__all__ = [
    "LIMITS",
    "TYPES",
    "Node",
    "all_of",
    "among",
    "any_of",
    "array_parts",
    "check",
    "few",
    "is_integer",
    "is_number",
    "key_of",
    "kind_test",
    "limit_test",
    "multiple_test",
    "not_",
    "object_parts",
    "one_of",
    "pattern_test",
    "shown",
    "told",
    "unique_test",
]

OPTIONS_MAX = 10

_Path: TypeAlias = tuple[str | int, ...]
_NOTHING: Any = object()


# --- checking ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Problem:
    """What is wrong at one place. Its text is made when it is told, as most problems of a union's members never are."""

    expected: str
    value: Any = _NOTHING  # what was found there
    steps: _Path = ()
    is_kind: bool = False  # the value is another kind of thing altogether
    is_tag: bool = False  # a constant is another one, so perhaps another member of a union was meant

    def under(self, step: str | int) -> Problem:
        return attrs.evolve(self, steps=(step, *self.steps))


# What an applicator asks for, and what it returns.
Steps: TypeAlias = Generator[tuple["Node", Any], list[Problem], list[Problem]]
Test: TypeAlias = Callable[[Any], Problem | None]
Applicator: TypeAlias = Callable[[Any], Steps]


@attrs.define(eq=False)
class Node:
    """A schema, compiled. Definitions are made empty and filled in, as they may refer to each other."""

    expected: str = "any value"
    kind: Test | None = None  # type, enum and const; what is of another kind has no other problem
    tests: list[Test] = attrs.Factory(list)
    applicators: list[Applicator] = attrs.Factory(list)
    is_definition: bool = False
    is_never: bool = False  # the schema `false`

    def check(self, value: Any) -> Steps:
        if self.kind is not None and (problem := self.kind(value)) is not None:
            return [problem]
        found = [problem for test in self.tests if (problem := test(value)) is not None]
        for applicator in self.applicators:
            if len(found) > PROBLEMS_MAX:
                break
            found += yield from applicator(value)
        return found


def check(root: Node, value: Any) -> list[Problem]:
    """Return the problems that *value* has as one of *root*; none if it fits."""
    known: dict[tuple[int, int], list[Problem]] = {}  # by definition and value: many places may ask for the same
    stack: list[tuple[tuple[int, int] | None, Steps]] = [(None, root.check(value))]
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
    found: list[Problem] = answer
    return found


# --- what messages say ------------------------------------------------------------------------------------------------


def _path_of(steps: _Path) -> str:
    """Return a path such as `items[2].name`; empty for the value itself."""
    text = ""
    for step in steps:
        if isinstance(step, str) and step.isidentifier() and len(step) <= FOUND_CHARS_MAX:
            text += f".{step}" if text else step
        else:
            text += f"[{cut(repr(step))}]"
    return text


def told(problem: Problem) -> str:
    """Return a problem as one line."""
    found = "" if problem.value is _NOTHING else f", found {shown(problem.value)}"
    return f"{_path_of(problem.steps) or 'the value'}: {problem.expected}{found}"


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


# --- tests: what looks at a value alone -------------------------------------------------------------------------------


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


@attrs.frozen
class _Limit:
    """A keyword that compares: with which values it has to do, what of them it measures, and how."""

    applies: Callable[[Any], bool]
    measure: Callable[[Any], Any]
    compare: Callable[[Any, Any], bool]
    expected: str


def _itself(value: Any) -> Any:
    return value


LIMITS = {
    "minimum": _Limit(is_number, _itself, operator.ge, "at least {}"),
    "maximum": _Limit(is_number, _itself, operator.le, "at most {}"),
    "exclusiveMinimum": _Limit(is_number, _itself, operator.gt, "more than {}"),
    "exclusiveMaximum": _Limit(is_number, _itself, operator.lt, "less than {}"),
    "minLength": _Limit(_is(str), len, operator.ge, "at least {} characters"),
    "maxLength": _Limit(_is(str), len, operator.le, "at most {} characters"),
    "minItems": _Limit(_is(list), len, operator.ge, "at least {} items"),
    "maxItems": _Limit(_is(list), len, operator.le, "at most {} items"),
}


def limit_test(limit: _Limit, bound: Any) -> Test:
    expected = f"expected {limit.expected.format(shown(bound))}"

    def test(value: Any) -> Problem | None:
        fits = not limit.applies(value) or limit.compare(limit.measure(value), bound)
        return None if fits else Problem(expected, value)

    return test


def multiple_test(divisor: Any) -> Test:
    exact = _exact(divisor)

    def test(value: Any) -> Problem | None:
        fits = not is_number(value) or _exact(value) % exact == 0
        return None if fits else Problem(f"expected a multiple of {shown(divisor)}", value)

    return test


def _exact(number: Any) -> Fraction:
    return Fraction(repr(number) if isinstance(number, float) else number)  # 0.3 is three times 0.1 for who wrote it


def pattern_test(pattern: Pattern) -> Test:
    expected = f"expected text that matches {cut(repr(pattern.source))}"

    def test(value: Any) -> Problem | None:
        fits = not isinstance(value, str) or pattern.fits(value)
        return None if fits else Problem(expected, value)

    return test


def unique_test(value: Any) -> Problem | None:
    if not isinstance(value, list):
        return None
    seen: dict[Any, int] = {}
    for index, item in enumerate(value):
        first = seen.setdefault(key_of(item), index)
        if first != index:
            return Problem(f"expected different items, found equal ones at {first} and {index}")
    return None


def key_of(value: Any) -> Any:
    """What two values share exactly if they are equal in JSON: 1 is 1.0, and neither is true."""
    if value is None or isinstance(value, bool):
        return ("constant", value)
    if isinstance(value, list):
        return ("array", tuple([key_of(item) for item in value]))
    if isinstance(value, dict):
        return ("object", frozenset([(name, key_of(item)) for name, item in value.items()]))
    return value


def kind_test(expected: str, fits: Callable[[Any], bool], is_tag: bool = False) -> Test:
    def test(value: Any) -> Problem | None:
        return None if fits(value) else Problem(f"expected {expected}", value, (), True, is_tag)

    return test


def among(options: frozenset[Any]) -> Callable[[Any], bool]:
    return lambda value: key_of(value) in options


# --- applicators: what asks other nodes -------------------------------------------------------------------------------


def object_parts(properties: Mapping[str, Node], required: Sequence[str], other: Node | None) -> Applicator:
    known = f"expected one of {few(properties)}" if properties else "expected no name at all"

    def apply(value: Any) -> Steps:
        if not isinstance(value, dict):
            return []
        found = []
        for name in required:
            if name not in value:
                expected = properties[name].expected if name in properties else "any value"
                found.append(Problem(f"missing, expected {expected}", steps=(name,)))
        for name, part in value.items():
            if len(found) > PROBLEMS_MAX:
                break
            node = properties.get(name, other)
            if node is not None and node is other and node.is_never:
                found.append(Problem(f"unknown name, {known}", steps=(name,)))
            elif node is not None:
                problems = yield node, part
                found += [problem.under(name) for problem in problems]
        return found

    return apply


def array_parts(prefix: Sequence[Node], rest: Node | None) -> Applicator:
    def apply(value: Any) -> Steps:
        found: list[Problem] = []
        for index, part in enumerate(value if isinstance(value, list) else ()):
            node = prefix[index] if index < len(prefix) else rest
            if node is None or len(found) > PROBLEMS_MAX:
                break
            problems = yield node, part
            found += [problem.under(index) for problem in problems]
        return found

    return apply


def all_of(members: Sequence[Node]) -> Applicator:
    def apply(value: Any) -> Steps:
        found: list[Problem] = []
        for member in members:
            found += yield member, value
            if len(found) > PROBLEMS_MAX:
                break
        return found

    return apply


def any_of(members: Sequence[Node]) -> Applicator:
    def apply(value: Any) -> Steps:
        attempts = []
        for member in members:
            problems = yield member, value
            if not problems:
                return []
            attempts.append(problems)
        return _closest(attempts, value)

    return apply


def one_of(members: Sequence[Node]) -> Applicator:
    def apply(value: Any) -> Steps:
        attempts = []
        for member in members:
            attempts.append((yield member, value))
        fitting = [index for index, problems in enumerate(attempts) if not problems]
        if not fitting:
            return _closest(attempts, value)
        if len(fitting) == 1:
            return []
        first, second = fitting[:2]
        return [Problem(f"expected to fit one member of oneOf, fits both number {first} and number {second}", value)]

    return apply


def _closest(attempts: Sequence[list[Problem]], value: Any) -> list[Problem]:
    """
    The problems of the member of a union that was meant most likely: who mends them has a value that fits.

    That is the one with the right constants if there is one, then the one with the fewest problems. If the value is
    none of these things at all, that is the problem.
    """
    near = [problems for problems in attempts if not any(map(_is_elsewhere, problems))]
    if near:
        return min(near, key=lambda found: (any(each.is_tag and len(each.steps) == 1 for each in found), len(found)))
    kinds = [each.expected.removeprefix("expected ") for each in itertools.chain(*attempts) if _is_elsewhere(each)]
    return [Problem(f"expected {few(kinds, ' or ')}", value, (), True)]


def _is_elsewhere(problem: Problem) -> bool:
    return problem.is_kind and not problem.steps


def not_(member: Node) -> Applicator:
    def apply(value: Any) -> Steps:
        problems = yield member, value
        return [] if problems else [Problem(f"expected anything but {member.expected}", value)]

    return apply
