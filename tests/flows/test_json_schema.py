"""
Whether a value fits a JSON schema, and what is said if it does not.

The law: what was made for a schema has no problems, and what was made against it has some. The strategy makes both,
for schemas of every keyword; the examples show the messages, what is refused, and what may not take long.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._json import DEPTH_MAX, freeze
from minirun.errors import ConfigurationError
from minirun.flows._json_schema import as_object, compile_schema, wrapped
from minirun.flows._types import PROBLEMS_MAX

from ..schemas import schema_for
from ..tools.test_schema import Tree, valid_pairs

# --- schemas with values ----------------------------------------------------------------------------------------------

numbers = st.integers(-50, 50) | st.integers(-50, 50).map(float) | st.floats(-50, 50)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "number": numbers,
    "string": st.text("abc é", max_size=4),
}
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(*SCALARS.values()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=5,
)
VALUES = {
    **SCALARS,
    "array": st.lists(json_values, max_size=3),
    "object": st.dictionaries(st.sampled_from(["a", "b", "x y"]), json_values, max_size=3),
}
TYPES = frozenset(VALUES)


class Case(NamedTuple):
    """A schema, of which types its values are, values that fit, values of these types that do not, and definitions."""

    schema: Any
    types: frozenset[str]
    fitting: st.SearchStrategy[Any]
    wrong: st.SearchStrategy[Any] = st.nothing()
    defs: Mapping[str, Any] = {}

    @property
    def misfits(self) -> st.SearchStrategy[Any]:
        return st.one_of(self.wrong, *(VALUES[name] for name in sorted(TYPES - self.types)))

    @property
    def document(self) -> dict[str, Any]:
        schema = self.schema if isinstance(self.schema, dict) else {"allOf": [self.schema]}
        return {**schema, "$defs": self.defs} if self.defs else schema


def canonical(value: Any) -> str:
    """Equal for what JSON calls equal."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return repr(float(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def type_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def leaf(schema: Any, types: str, fitting: st.SearchStrategy[Any], *wrong: object) -> Case:
    return Case(schema, frozenset(types.split()), fitting, st.one_of(*map(st.just, wrong)))


pairs = st.just({"a": [1.0, True]})
LEAVES = [
    leaf({"type": "null"}, "null", st.none()),
    leaf({"type": "boolean", "title": "?"}, "boolean", st.booleans()),
    leaf({"type": "integer"}, "number", st.integers() | st.integers(-50, 50).map(float), -0.5, 1.5, 1e-9),
    leaf({"type": "integer", "minimum": 1, "maximum": 5}, "number", st.integers(1, 5), 0, 0.5, 6, 6.0),
    leaf({"type": "number", "exclusiveMinimum": 0}, "number", st.floats(0.1, 9), 0, 0.0, -1),
    leaf({"type": "number", "exclusiveMaximum": 0}, "number", st.floats(-9, -0.1), 0, 0.0, 1),
    leaf({"type": "number", "multipleOf": 0.1}, "number", st.sampled_from([0, 1, 0.3, 2.7]), 0.25, 1e-9),
    leaf({"type": "string", "format": "email"}, "string", st.text(max_size=5)),
    leaf({"type": "string", "minLength": 2}, "string", st.text("a😀", min_size=2, max_size=3), "", "a", "😀"),
    leaf({"type": "string", "maxLength": 1}, "string", st.text("a😀", max_size=1), "ab", "😀😀"),
    leaf({"type": "string", "pattern": "a+b$"}, "string", st.sampled_from(["ab", "caab"]), "", "b", "abc"),
    leaf({"type": ["string", "null"]}, "string null", st.none() | st.text(max_size=3)),
    leaf({"const": 1}, "number", st.sampled_from([1, 1.0]), 0, 2, 1.5),
    leaf({"const": {"a": [1, True]}}, "object", pairs, {}, {"a": [1, 1]}, {"a": [True, True]}),
    leaf({"enum": ["a", False, None]}, "string boolean null", st.sampled_from(["a", False, None]), "b", "", True),
    leaf({}, " ".join(TYPES), json_values),
    leaf(True, " ".join(TYPES), json_values),
    leaf({"not": {"type": "string"}}, " ".join(TYPES - {"string"}), st.booleans() | numbers),
    leaf({"minLength": 1, "minimum": 1}, " ".join(TYPES), st.sampled_from(["a", 1, None, []]), "", 0, 0.5),
]

tree: st.SearchStrategy[Any] = st.recursive(
    st.just({}), lambda inner: st.fixed_dictionaries({}, optional={"kids": st.lists(inner, max_size=2)}), max_leaves=4
)
LEAVES.append(
    Case(
        {"$ref": "#/$defs/tree"},
        frozenset({"object"}),
        tree,
        st.sampled_from([{"kids": {}}, {"kids": [{"kids": [1]}]}, {"x": 1}]),
        {
            "tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "additionalProperties": False,
            }
        },
    )
)


def compounds(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.tuples(cases, cases).flatmap(lambda two: st.sampled_from([*of_one(two[0]), *of_two(*two)]))


def of_one(case: Case) -> list[Case]:
    """What can be made of one schema."""
    schema, defs = case.schema, case.defs
    name = "d" + hashlib.sha256(canonical(schema).encode()).hexdigest()[:8]
    reference, with_name = {"$ref": f"#/$defs/{name}"}, {**defs, name: schema}
    none_or_one, many = st.lists(case.fitting, max_size=1), st.lists(case.fitting, min_size=2, max_size=4)
    spoiled = st.tuples(none_or_one, case.misfits, none_or_one).map(lambda parts: [*parts[0], parts[1], *parts[2]])
    two_alike = st.tuples(case.fitting, none_or_one).map(lambda parts: [parts[0], *parts[1], parts[0]])
    different = st.lists(case.fitting, max_size=3, unique_by=canonical)
    array, same = frozenset({"array"}), (case.types, case.fitting, case.wrong)
    found = [
        Case({"type": "array", "items": schema}, array, many, spoiled, defs),
        Case({"type": "array", "items": schema, "minItems": 2}, array, many, spoiled | none_or_one, defs),
        Case({"type": "array", "items": schema, "maxItems": 1}, array, none_or_one, many, defs),
        Case({"type": "array", "items": schema, "uniqueItems": True}, array, different, spoiled | two_alike, defs),
        Case({"allOf": [schema, {}, schema]}, *same, defs),
        Case({"not": {"not": schema}}, *same, defs),
        Case({**reference, "description": "elsewhere"}, *same, with_name),
        Case({"anyOf": [reference, reference]}, *same, with_name),
    ]
    if not case.misfits.is_empty:  # turned around
        found += [
            Case(turned, TYPES, case.misfits, case.fitting, defs)
            for turned in ({"not": schema}, {"oneOf": [schema, True]})
        ]
    return found


def of_two(one: Case, two: Case) -> list[Case]:
    """What can be made of two schemas."""
    defs = {**one.defs, **two.defs}
    pairs = st.tuples(one.fitting, two.fitting).map(list)
    bad_pairs = st.tuples(one.misfits, two.fitting).map(list) | st.tuples(one.fitting, two.misfits).map(list)
    triples = st.tuples(one.fitting, two.fitting, one.misfits).map(list)
    good = st.fixed_dictionaries({"a": one.fitting}, optional={"b": two.fitting})
    bad = st.fixed_dictionaries({"a": one.misfits}, optional={"b": two.fitting}) | st.fixed_dictionaries(
        {"b": two.misfits}, optional={"a": one.fitting}
    )
    extra = st.fixed_dictionaries({"a": one.fitting, "x y": two.fitting})
    bad_extra = st.fixed_dictionaries({"a": one.fitting, "x y": two.misfits})
    properties = {"type": "object", "properties": {"a": one.schema, "b": two.schema}, "required": ["a"]}
    others = {"type": "object", "properties": {"a": one.schema}, "additionalProperties": two.schema}
    array, record = frozenset({"array"}), frozenset({"object"})
    found = [
        Case({"type": "array", "prefixItems": [one.schema, two.schema]}, array, pairs, bad_pairs, defs),
        Case(
            {"type": "array", "prefixItems": [one.schema, two.schema], "items": one.schema},
            array,
            pairs,
            bad_pairs | triples,
            defs,
        ),
        Case(
            {"type": "array", "prefixItems": [one.schema], "items": False},
            array,
            st.lists(one.fitting, max_size=1),
            pairs,
            defs,
        ),
        Case(properties, record, good, bad | st.just({}), defs),
        Case({**properties, "additionalProperties": False}, record, good, bad | extra, defs),
        Case(others, record, extra, bad_extra, defs),
    ]
    if not one.types & two.types:
        types, fitting, wrong = one.types | two.types, one.fitting | two.fitting, one.wrong | two.wrong
        found += [
            Case({"anyOf": [one.schema, two.schema]}, types, fitting, wrong, defs),
            Case({"oneOf": [two.schema, one.schema, False]}, types, fitting, wrong, defs),
        ]
    return found


cases: st.SearchStrategy[Case] = st.recursive(st.sampled_from(LEAVES), compounds, max_leaves=6)
fitting_pairs = cases.flatmap(lambda case: st.tuples(st.just(case), case.fitting))
wrong_pairs = cases.filter(lambda case: not case.misfits.is_empty).flatmap(
    lambda case: st.tuples(st.just(case), case.misfits)
)


def problems_of(schema: Any, value: object) -> list[str]:
    return compile_schema(schema).problems(value)


@given(fitting_pairs)
def test_what_fits_has_no_problems(pair: tuple[Case, Any]) -> None:
    """
    A value made for a schema has no problems, nor has it where an object holds it.
    """
    case, value = pair
    assert problems_of(case.document, value) == []
    assert problems_of(wrapped(case.document, "it"), {"it": value}) == []


@given(wrong_pairs)
def test_what_does_not_fit_has_problems(pair: tuple[Case, Any]) -> None:
    """
    A value made against a schema has problems, a few short lines that can be stored, also where an object holds it.
    """
    case, value = pair
    found = problems_of(case.document, value)
    assert 0 < len(found) <= PROBLEMS_MAX + 1
    assert all("\n" not in line and ": " in line and len(line) < 600 for line in freeze(found))
    inside = problems_of(wrapped(case.document, "it"), {"it": value})
    assert inside
    assert all(line.startswith("it") for line in inside)


@given(cases, json_values)
def test_any_value_is_checked(case: Case, value: Any) -> None:
    """
    Any schema with any value gives the same answer each time, whether the value is frozen or not.
    """
    checker = compile_schema(case.document)
    assert checker.problems(value) == checker.problems(freeze(value)) == problems_of(checker.schema, value)


@given(valid_pairs)
def test_what_fits_a_type_fits_its_schema(pair: tuple[Any, Any]) -> None:
    """
    The schema of a type compiles, and what was made for the type has no problems.
    """
    assert problems_of(schema_for(pair[0]), pair[1]) == []


# --- messages ---------------------------------------------------------------------------------------------------------

ITEM = {
    "type": "object",
    "properties": {"name": {"type": "integer"}, "kind": {"const": "item"}},
    "required": ["name"],
    "additionalProperties": False,
}
SHAPES = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "box"}, "w": {"type": "number"}, "h": {"type": "number"}},
            "required": ["kind", "w", "h"],
        },
        {"type": "null"},
    ]
}


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ({"type": "integer"}, "x", ['the value: expected an integer, found "x"']),
        ({"type": "integer"}, True, ["the value: expected an integer, found true"]),
        ({"type": ["integer", "null"]}, 1.5, ["the value: expected an integer or null, found 1.5"]),
        ({"type": "number", "minimum": 2}, "x", ['the value: expected a number, found "x"']),
        ({"enum": [1]}, True, ["the value: expected 1, found true"]),
        ({"enum": ["a", "b"]}, "c", ['the value: expected one of "a", "b", found "c"']),
        ({"enum": list(range(99))}, 99, ["the value: expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..., found 99"]),
        ({"const": [1, {"a": None}]}, {}, ['the value: expected [1, {"a": null}], found {}']),
        (
            {"minimum": 3, "multipleOf": 2},
            1,
            ["the value: expected at least 3, found 1", "the value: expected a multiple of 2, found 1"],
        ),
        ({"maximum": 3}, 4, ["the value: expected at most 3, found 4"]),
        ({"exclusiveMinimum": 3}, 3.0, ["the value: expected more than 3, found 3.0"]),
        ({"exclusiveMaximum": 3}, 3, ["the value: expected less than 3, found 3"]),
        ({"minLength": 2}, "é", ['the value: expected at least 2 characters, found "é"']),
        ({"maxItems": 1}, [1, 2], ["the value: expected at most 1 items, found [1, 2]"]),
        ({"pattern": "^a$"}, "b", ["the value: expected text that matches '^a$', found \"b\""]),
        ({"uniqueItems": True}, [1, True, 1.0], ["the value: expected different items, found equal ones at 0 and 2"]),
        ({"uniqueItems": True}, [{"a": 1}, {"a": True}], []),
        ({"not": {"type": "string"}}, "x", ['the value: expected anything but a string, found "x"']),
        ({"properties": {"a": False}}, {"a": 1}, ["a: expected nothing here, found 1"]),
        ({"prefixItems": [{}], "items": False}, [1, 2], ["[1]: expected nothing here, found 2"]),
        ({"required": ["a", "a"]}, {}, ["a: missing, expected any value"]),
        ({"additionalProperties": False}, {"a": 1}, ["a: unknown name, expected no name at all"]),
        ({"additionalProperties": {"minimum": 3}}, {"a b": 1, "c": 3}, ["['a b']: expected at least 3, found 1"]),
        (
            {"oneOf": [{"minimum": 1}, {"maximum": 5}]},
            3,
            ["the value: expected to fit one member of oneOf, fits both number 0 and number 1, found 3"],
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, ["the value: expected a string or null, found 3"]),
        (
            {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]},
            "",
            ['the value: expected at least 2 characters, found ""'],
        ),
        ({"type": "string"}, "x" * 99, []),
        ({"type": "null"}, "x" * 99, [f'the value: expected null, found "{"x" * 56}...']),
        ({"properties": {"n" * 99: {"type": "null"}}}, {"n" * 99: 0}, [f"['{'n' * 56}...]: expected null, found 0"]),
        (
            {"type": "object", "properties": {"items": {"type": "array", "items": ITEM}}},
            {"items": [{"name": 1}, {"name": 2.0}, {"name": "x"}, {"price": 1, "kind": "box"}, 5]},
            [
                'items[2].name: expected an integer, found "x"',
                "items[3].name: missing, expected an integer",
                "items[3].price: unknown name, expected one of name, kind",
                'items[3].kind: expected "item", found "box"',
                "items[4]: expected an object, found 5",
            ],
        ),
        (
            SHAPES,
            {"kind": "box", "w": "1", "h": "2"},
            ['w: expected a number, found "1"', 'h: expected a number, found "2"'],
        ),
        (SHAPES, {"kind": "circle"}, ["r: missing, expected a number"]),
        (SHAPES, {"kind": "line", "r": 1}, ['kind: expected "circle", found "line"']),
        (SHAPES, 7, ["the value: expected an object or null, found 7"]),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/y"}, "c": {"$ref": "#"}},
                "required": ["a", "b", "c"],
                "$defs": {"x": {"type": "array"}, "y": {"minimum": 1}},
            },
            {},
            ["a: missing, expected an array", "b: missing, expected y", "c: missing, expected the same as at the top"],
        ),
        ({"allOf": [{"minimum": 3}, {"minimum": 3}]}, 1, ["the value: expected at least 3, found 1"]),
        (
            {"allOf": [{"type": "null"}, {"const": 1}, False]},
            1,
            ["the value: expected null, found 1", "the value: expected nothing here, found 1"],
        ),
        ({}, float("nan"), ["the value: expected a finite number, found nan; store None or a string instead"]),
        (
            {},
            {"a": float("inf")},
            ["the value['a']: expected a finite number, found inf; store None or a string instead"],
        ),
    ],
)
def test_messages(schema: Any, value: Any, found: list[str]) -> None:
    """
    A problem says where, what was expected and what was found; all of them are told.
    """
    assert problems_of(schema, value) == found


def test_only_the_first_problems_are_told() -> None:
    """
    Of a thousand problems the first few are told, and that there are more.
    """
    found = problems_of({"items": {"type": "integer"}}, ["x"] * 1000)
    assert len(found) == PROBLEMS_MAX + 1
    assert found[PROBLEMS_MAX - 1] == f'[{PROBLEMS_MAX - 1}]: expected an integer, found "x"'
    assert found[-1] == f"there are more problems than these {PROBLEMS_MAX}"
    assert len(problems_of({"required": list(string.ascii_letters)}, {})) == PROBLEMS_MAX + 1


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([], r"^form at #: expected an object, found \[\]$"),
        (True, r"^form at #: expected an object, found true$"),
        ({"if": {}}, r"^form at #: the keyword 'if' is not supported; supported are type, enum, .*\$defs$"),
        ({"items": {"typ": "integer"}}, r"^form at #/items: the keyword 'typ' is not supported"),
        ({"properties": {"a": {"patternProperties": {}}}}, r"^form at #/properties/a: the keyword 'patternProperties'"),
        ({"definitions": {}}, r"the keyword 'definitions' is not supported; write \$defs$"),
        ({"$anchor": "a"}, r"the keyword '\$anchor' is not supported"),
        ({"not": {"$defs": {}}}, r"^form at #/not: expected \$defs at the top of the schema only; move it there$"),
        ({"$defs": {"a": {"$id": "x"}}}, r"^form at #/\$defs/a: expected \$id at the top of the schema only"),
        ({"$defs": []}, r"^form at #/\$defs: expected an object, found \[\]$"),
        ({"type": "int"}, r'^form at #/type: expected some of null, boolean, .*, found "int"$'),
        ({"type": []}, r"^form at #/type: expected some of .*, found \[\]$"),
        ({"type": ["null", 1]}, r"^form at #/type: expected some of"),
        ({"enum": []}, r"^form at #/enum: expected a list that is not empty, found \[\]$"),
        ({"enum": "ab"}, r'^form at #/enum: expected a list that is not empty, found "ab"$'),
        ({"anyOf": []}, r"^form at #/anyOf: expected a list that is not empty"),
        ({"allOf": [{}, 1]}, r"^form at #/allOf/1: expected a schema \(an object, true or false\), found 1$"),
        ({"prefixItems": {}}, r"^form at #/prefixItems: expected a list that is not empty, found \{\}$"),
        ({"items": [{}]}, r"^form at #/items: expected one schema, found a list; write prefixItems$"),
        ({"properties": []}, r"^form at #/properties: expected an object, found \[\]$"),
        ({"required": "a"}, r'^form at #/required: expected a list of names, found "a"$'),
        ({"required": [1]}, r"^form at #/required: expected a list of names, found \[1\]$"),
        ({"additionalProperties": None}, r"^form at #/additionalProperties: expected a schema .* found null$"),
        ({"minimum": "1"}, r'^form at #/minimum: expected a number, found "1"$'),
        ({"exclusiveMinimum": True}, r"^form at #/exclusiveMinimum: expected a number, found true$"),
        ({"minLength": -1}, r"^form at #/minLength: expected an integer from 0 on, found -1$"),
        ({"maxItems": 1.5}, r"^form at #/maxItems: expected an integer from 0 on, found 1.5$"),
        ({"multipleOf": 0}, r"^form at #/multipleOf: expected a number above 0, found 0$"),
        ({"uniqueItems": 1}, r"^form at #/uniqueItems: expected true or false, found 1$"),
        ({"pattern": "("}, r'^form at #/pattern: expected a regular expression, found "\(" \(missing \)'),
        ({"pattern": "a{99999999999}"}, r"^form at #/pattern: expected a regular expression"),
        ({"pattern": 1}, r"^form at #/pattern: expected a regular expression, found 1$"),
        ({"$ref": "#/$defs/a"}, r'^form at #/\$ref: expected one of #, found "#/\$defs/a", which leads nowhere$'),
        ({"$ref": "#/$defs/a", "$defs": {"b": {}}}, r"expected one of #, #/\$defs/b, found .* leads nowhere$"),
        ({"$ref": "#/$defs/a/b", "$defs": {"a/b": {}}}, r"leads nowhere$"),
        ({"$ref": "#/properties/a", "properties": {"a": {}}}, r"leads nowhere$"),
        ({"$ref": "https://example.org"}, r"leads nowhere$"),
        ({"$ref": 1}, r"leads nowhere$"),
        ({"$ref": "#"}, r"^form at #: refers to itself without end \(# to #\); say what it is$"),
        ({"not": {"$ref": "#"}}, r"refers to itself without end"),
        (
            {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
            r"^form at #/\$defs/a: refers to itself",
        ),
        (
            {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"oneOf": [{}, {"$ref": "#/$defs/a"}]}}},
            r"without end \(#/\$defs/. to #/\$defs/. to #/\$defs/.\)",
        ),
        ({"const": float("inf")}, r"^form\['const'\]: expected a finite number, found inf"),
        ({"enum": [{1}]}, r"^form\['enum'\]\[0\]: expected a JSON value"),
        ({"title": "\ud800"}, r"^form\['title'\]: expected text that UTF-8 can write"),
    ],
)
def test_what_is_not_checked_is_refused(schema: Any, message: str) -> None:
    """
    An unknown keyword, a misused one, and a reference that leads nowhere or in a circle are refused by name.
    """
    with pytest.raises(ConfigurationError, match=message):
        compile_schema(schema, "form")


def test_a_schema_that_contains_itself_is_refused() -> None:
    """
    A dict in itself is no schema, and neither is one of too many levels.
    """
    schema: dict[str, Any] = {}
    schema["not"] = schema
    with pytest.raises(ConfigurationError, match=r"nested deeper than 100 levels, or containing itself"):
        compile_schema(schema)
    deep: dict[str, Any] = {}
    for _ in range(DEPTH_MAX - 1):
        deep = {"not": deep}
    assert compile_schema(deep).problems(1) == ["the value: expected anything but a value that fits, found 1"]


def test_annotations_mean_nothing() -> None:
    """
    What only describes, an unknown format among it, refuses nothing.
    """
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/thing",
        "$comment": "none",
        "title": "Thing",
        "description": "a thing",
        "default": "not even a thing",
        "examples": [1],
        "properties": {"a": {"format": "date", "nullable": True, "deprecated": True, "readOnly": True, "x-order": 1}},
    }
    assert problems_of(schema, {"a": "no date"}) == []


def test_names_in_references_may_be_escaped() -> None:
    """
    A `$ref` is a JSON pointer in a URI: `~1` is a slash, `~0` a tilde, and other characters may be in percents.
    """
    schema = {"$defs": {"a/b~ c%": {"type": "null"}}, "properties": {"x": {"$ref": "#/$defs/a~1b~0%20c%25"}}}
    assert problems_of(schema, {"x": 1}) == ["x: expected null, found 1"]


def test_a_schema_is_what_it_was_when_compiled() -> None:
    """
    Changing the dict afterwards changes nothing.
    """
    schema: dict[str, Any] = {"type": "string", "enum": ["a"]}
    checker = compile_schema(schema)
    schema["enum"].append("b")
    assert checker.problems("b") == ['the value: expected "a", found "b"']


def test_a_wrapped_schema_keeps_its_references() -> None:
    """
    Where an object holds the value, `#` still means the value's schema, and definitions stay at the top.
    """
    schema = {
        "$schema": "x",
        "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}, {"$ref": "#/$defs/result"}],
        "$defs": {"result": {"type": "object", "properties": {"$ref": {"$ref": "#"}}, "const": {"$ref": "#"}}},
    }
    outer = wrapped(schema, "result")
    assert outer["properties"] == {"result": {"$ref": "#/$defs/result_"}}
    assert outer["$defs"]["result"]["properties"] == {"$ref": {"$ref": "#/$defs/result_"}}
    assert outer["$defs"]["result"]["const"] == {"$ref": "#"}
    assert "$schema" not in json.dumps(outer)
    assert problems_of(outer, {"result": [[None], []]}) == []
    assert problems_of(outer, {"result": [[1]]}) == [
        'result[0][0]: expected null or an array or {"$ref": "#"}, found 1',
    ]


def test_an_object_is_recognised_behind_references() -> None:
    """
    A schema that is a reference to one of an object gets that type at its top; others get none.
    """
    recursive = schema_for(Tree)
    found = as_object(recursive)
    assert found is not None
    assert found["type"] == "object"
    assert list(found["$defs"]) == ["Tree"]
    value = {"value": 1, "children": [{"value": "x"}]}
    assert problems_of(found, value) == problems_of(recursive, value) != []
    chain = {
        "$ref": "#/$defs/a",
        "title": "T",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "object"}, "c": True},
    }
    assert as_object(chain) == {"type": "object", "title": "T", "$defs": chain["$defs"]}
    for other in ({}, {"type": "array"}, {"type": ["object"]}, {**chain, "$ref": "#/$defs/c"}, {**chain, "minimum": 1}):
        assert as_object(other) is None


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_recursive_schema_follows_the_deepest_value() -> None:
    """
    A value as deep as one can be is checked to its end; a deeper one is refused, and so is a schema that goes deeper.
    """
    last = {"type": "array", "items": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/l"}]}}
    checker = compile_schema({"$ref": "#/$defs/l", "$defs": {"l": last}})
    value: Any = "x"
    for _ in range(DEPTH_MAX):
        value = [value]
    end = "[0]" * DEPTH_MAX
    assert checker.problems(value) == [f'{end}: expected null or an array, found "x"']
    assert checker.problems([value])[0].endswith("nested deeper than 100 levels, or containing itself; flatten it")
    links = {f"l{index}": {"allOf": [{"$ref": f"#/$defs/l{index + 1}"}]} for index in range(2_000)}
    chain = compile_schema({"$ref": "#/$defs/l0", "$defs": {**links, "l2000": last, "l": last}})
    assert chain.problems([]) == ["the value: nested too deeply; flatten it"]


def test_definitions_are_asked_once() -> None:
    """
    Definitions that refer to each other twice at every step take no time, although the ways through them are endless.
    """
    twice = {
        f"d{index}": {keyword: [{"$ref": f"#/$defs/d{index + 1}"}] * 2}
        for index, keyword in enumerate(["allOf", "anyOf", "oneOf", "anyOf"] * 10)
    }
    fits = {"$ref": "#/$defs/d0", "$defs": {**twice, "d40": {"type": "integer"}}}
    assert problems_of(fits, "x") == ['the value: expected an integer, found "x"']
    branching = {
        "$ref": "#/$defs/n",
        "$defs": {
            "n": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": each} for each in (1, 1)]}
        },
    }
    value: Any = "x"
    for _ in range(60):
        value = [value]
    assert problems_of(branching, value) == ["[0]" * 60 + ': expected an array, found "x"']


def test_large_values_are_checked_at_once() -> None:
    """
    A long array, a long text and many names take no more than a look at each.
    """
    record = {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    }
    value = {f"name{index}": [str(item) for item in range(100)] for index in range(300)}
    assert problems_of(record, value) == []
    assert len(problems_of(record, {name: [*items, "0"] for name, items in value.items()})) == PROBLEMS_MAX + 1
    many = {"anyOf": [{"const": index} for index in range(2000)]}
    assert problems_of(many, "x" * 1_000_000)[0].startswith("the value: expected 0 or 1 or 2 or")
