"""
What a model is told about a function's arguments, and what of its JSON the function then gets.

The law: `convert` accepts what the schema allows, and refuses the rest with ArgumentError. The properties check it for
generated types, with a schema checker small enough to read (`fits`); the examples show the messages and conversions.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, TypedDict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._json import FrozenDict, FrozenList, freeze
from minirun.errors import ArgumentError
from minirun.flows._signature import Signature, signature_of
from minirun.flows._types import LINE_CHARS_MAX, PROBLEMS_MAX

from ..schemas import convert, schema_for

# --- types to play with -----------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Line:
    sku: str
    qty: int = 1

    def __post_init__(self) -> None:
        if self.qty < 1:
            msg = "qty must be positive"
            raise ValueError(msg)


@dataclasses.dataclass
class Order:
    lines: list[Line]
    color: Color = Color.RED
    note: str | None = None
    tags: set[str] = dataclasses.field(default_factory=set)
    total: float = dataclasses.field(init=False, default=0.0)


@attrs.define
class Account:
    _owner: str
    limit: float = attrs.field(default=10.0, validator=attrs.validators.ge(0))
    history: list[str] = attrs.field(init=False, factory=list)
    code: int = attrs.field(default=0, kw_only=True, validator=attrs.validators.instance_of(int))


@dataclasses.dataclass
class Scaled:
    value: int
    factor: dataclasses.InitVar[int] = 1

    def __post_init__(self, factor: int) -> None:
        self.value *= factor


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)
    parent: Tree | None = None


@dataclasses.dataclass
class Ping:
    pong: Pong | None = None


@dataclasses.dataclass
class Pong:
    ping: Ping | None = None
    again: Pong | None = None


@dataclasses.dataclass
class Add:
    inner: Add | Mul | int
    op: Literal["add"]


@dataclasses.dataclass
class Mul:
    inner: Add | Mul | int
    op: Literal["mul"]


@dataclasses.dataclass
class Lost:
    where: int


Lost.__annotations__["where"] = "Nowhere"


class Place(TypedDict):
    city: str
    zip: NotRequired[int]


class Trip(Place, total=False):
    nights: Annotated[Required[int], "how many nights"]
    stops: list[Place]


UserId = NewType("UserId", int)
Day = datetime.date | None


# --- the law ----------------------------------------------------------------------------------------------------------


def equal(a: object, b: object) -> bool:
    """JSON's equality of scalars: 1 is 1.0, and neither is true."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: KINDS["number"](value) and value == int(value),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
FORMATS: dict[str, Callable[[str], object]] = {
    "date": datetime.date.fromisoformat,
    "date-time": datetime.datetime.fromisoformat,
}


def fits(schema: Mapping[str, Any], value: Any, defs: Mapping[str, Any]) -> bool:
    """Whether a schema allows a value. It knows the words that `schema_for` uses; `uniqueItems` is advice."""
    if "$ref" in schema:
        return fits(defs[schema["$ref"].removeprefix("#/$defs/")], value, defs)
    if "anyOf" in schema:
        return any(fits(member, value, defs) for member in schema["anyOf"])
    if "type" in schema and not KINDS[schema["type"]](value):
        return False
    if "enum" in schema and not any(equal(option, value) for option in schema["enum"]):
        return False
    if "format" in schema and not in_format(schema["format"], value):
        return False
    if schema.get("type") == "array":
        return fits_array(schema, value, defs)
    return schema.get("type") != "object" or fits_object(schema, value, defs)


def in_format(name: str, value: str) -> bool:
    try:
        FORMATS[name](value)
    except ValueError:
        return False
    return True


def fits_array(schema: Mapping[str, Any], value: list[Any], defs: Mapping[str, Any]) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    items = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
    return all(fits(item, each, defs) for item, each in zip(items, value, strict=True))


def fits_object(schema: Mapping[str, Any], value: dict[str, Any], defs: Mapping[str, Any]) -> bool:
    known, other = schema.get("properties", {}), schema.get("additionalProperties", {})
    if not set(schema.get("required", ())) <= set(value) or (other is False and not set(value) <= set(known)):
        return False
    return all(fits(known.get(name, other), each, defs) for name, each in value.items())


def allowed(tp: object, value: object) -> bool:
    schema = schema_for(tp)
    return fits(schema, value, schema.get("$defs", {}))


# A type, and the JSON values that fit it.
Case = tuple[Any, st.SearchStrategy[Any]]

# Beyond 2**53 a float is not the integer that was sent.
whole = st.integers(-(2**53), 2**53)
numbers = st.floats(allow_nan=False, allow_infinity=False) | whole
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5) | st.sampled_from(["red", "a", "2024-12-31"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=6,
)
LEAVES: list[Case] = [
    (str, st.text(max_size=5)),
    (int, whole | whole.map(float)),
    (float, numbers),
    (bool, st.booleans()),
    (None, st.none()),
    (Any, json_values),
    (Color, st.sampled_from(["red", "green"])),
    (Level, st.sampled_from([1, 2, 2.0])),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (Literal[True, 2], st.sampled_from([True, 2])),
    (UserId, whole),
    (set[str], st.lists(st.text(max_size=3), max_size=3, unique=True)),
    (frozenset[int], st.lists(whole, max_size=3, unique=True)),
    (list, st.lists(json_values, max_size=2)),
    (dict, st.dictionaries(st.text(max_size=3), json_values, max_size=2)),
    (datetime.date, st.dates().map(datetime.date.isoformat)),
    (datetime.datetime, st.datetimes(timezones=st.none() | st.just(datetime.UTC)).map(datetime.datetime.isoformat)),
    (Tree, st.just({"value": 1, "children": [{"value": 2, "parent": {"value": 3.0}}]})),
]
# As values, because a type made at run time is no type to mypy.
list_of: Any = list
tuple_of: Any = tuple
dict_of: Any = dict
sequence_of: Any = Sequence
mapping_of: Any = Mapping
annotated: Any = typing.Annotated
union: Any = typing.Union
not_required: Any = typing.NotRequired
typed_dict: Any = vars(typing)["TypedDict"]


def objects(a: st.SearchStrategy[Any], b: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with `a`, and perhaps with `b`."""
    return st.fixed_dictionaries({"a": a}, optional={"b": b})


def compounds(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.tuples(cases, cases).flatmap(lambda two: st.sampled_from([*of_one(two[0]), *of_two(*two)]))


def of_one(case: Case) -> list[Case]:
    tp, values = case
    lists = st.lists(values, max_size=3)
    dicts = st.dictionaries(st.text(max_size=3), values, max_size=3)
    return [
        (list_of[tp], lists),
        (sequence_of[tp], lists),
        (tuple_of[tp, ...], lists),
        (dict_of[str, tp], dicts),
        (mapping_of[str, tp], dicts),
        (annotated[tp, "a thing"], values),
        (union[tp, None], values | st.none()),
    ]


def of_two(one: Case, two: Case) -> list[Case]:
    (a, a_values), (b, b_values) = one, two
    both = objects(a_values, b_values)
    b_or_none = union[b, None]  # a default is one of its type, so that what has it can be told and read again
    return [
        (union[a, b], a_values | b_values),
        (tuple_of[a, b], st.tuples(a_values, b_values).map(list)),
        (typed_dict("Typed", {"a": a, "b": not_required[b]}), both),
        (dataclasses.make_dataclass("Data", [("a", a), ("b", b_or_none, dataclasses.field(default=None))]), both),
        (
            attrs.make_class("Attrs", {"a": attrs.field(type=a), "b": attrs.field(type=b_or_none, factory=NoneType)}),
            both,
        ),
    ]


cases: st.SearchStrategy[Case] = st.recursive(st.sampled_from(LEAVES), compounds, max_leaves=6)
valid_pairs: st.SearchStrategy[tuple[Any, Any]] = cases.flatmap(lambda case: st.tuples(st.just(case[0]), case[1]))


def damaged(value: Any) -> st.SearchStrategy[Any]:
    """The value with one place in it replaced by something else, or with one name more or less."""
    places = [json_values]
    if isinstance(value, list):
        for index, item in enumerate(value):
            around = functools.partial(_put_item, value, index)
            places.append(damaged(item).map(around))
    if isinstance(value, dict):
        places.append(st.just({**value, "unknown": 1}))
        for key, item in value.items():
            places.append(damaged(item).map(functools.partial(_put_value, value, key)))
            places.append(st.just({name: each for name, each in value.items() if name != key}))
    return st.one_of(places)


def _put_item(value: list[Any], index: int, item: Any) -> list[Any]:
    return [*value[:index], item, *value[index + 1 :]]


def _put_value(value: dict[str, Any], key: str, item: Any) -> dict[str, Any]:
    return {**value, key: item}


damaged_pairs = valid_pairs.flatmap(lambda pair: st.tuples(st.just(pair[0]), damaged(pair[1])))


@given(valid_pairs)
def test_what_fits_a_type_is_converted_and_allowed_by_its_schema(pair: tuple[Any, Any]) -> None:
    """
    A value made for a type is converted, and the schema of the type allows it.
    """
    tp, value = pair
    convert(tp, value, "x")
    assert allowed(tp, value)


@given(damaged_pairs)
def test_convert_accepts_exactly_what_the_schema_allows(pair: tuple[Any, Any]) -> None:
    """
    Any JSON value is either allowed by the schema and converted, or refused with ArgumentError and its path.
    """
    tp, value = pair
    if allowed(tp, value):
        convert(tp, value, "x")
    else:
        with pytest.raises(ArgumentError, match=r"^x"):
            convert(tp, value, "x")


@given(valid_pairs)
def test_a_frozen_value_converts_like_a_plain_one_and_leaves_nothing_frozen(pair: tuple[Any, Any]) -> None:
    """
    Frozen arguments convert to what plain ones do, and the function may change every list and dict that it gets.
    """
    tp, value = pair
    converted = convert(tp, freeze(value), "x")
    assert converted == convert(tp, value, "x")
    assert not any(isinstance(each, (FrozenList, FrozenDict)) for each in parts_of(converted))


def parts_of(value: Any) -> list[Any]:
    if dataclasses.is_dataclass(value) or attrs.has(type(value)):
        inner = [getattr(value, name) for name in ("a", "b", "value", "children") if hasattr(value, name)]
    elif isinstance(value, dict):
        inner = list(value.values())
    else:
        inner = list(value) if isinstance(value, (list, tuple, set, frozenset)) else []
    return [value, *(part for each in inner for part in parts_of(each))]


@given(valid_pairs)
def test_a_schema_is_json(pair: tuple[Any, Any]) -> None:
    """
    A schema survives a round trip through JSON.
    """
    schema = schema_for(pair[0])
    assert json.loads(json.dumps(schema)) == schema


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (typing.Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Color, {"type": "string", "enum": ["red", "green"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple, {"type": "array", "items": {}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (frozenset[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict, {"type": "object", "additionalProperties": {}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Annotated[int, 3, "how many", "ignored"], {"type": "integer", "description": "how many"}),
        (Annotated[int, {"un": "hashable"}], {"type": "integer"}),
        (UserId, {"type": "integer"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
    ],
)
def test_schema_of_a_type(tp: object, schema: dict[str, Any]) -> None:
    """
    Each supported type has one schema.
    """
    assert schema_for(tp) == schema


def test_a_default_that_is_made_anew_is_not_shown() -> None:
    """
    A field with a factory may be left out, and its schema shows no default.
    """

    @attrs.frozen
    class Basket:
        items: list[int] = attrs.Factory(list)
        limit: int = 5

    assert schema_for(Basket) == {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "integer"}},
            "limit": {"type": "integer", "default": 5},
        },
        "required": [],
        "additionalProperties": False,
    }
    assert convert(Basket, {}, "basket") == Basket()


def test_schema_of_a_dataclass_shows_its_arguments() -> None:
    """
    A dataclass is an object of the arguments of its constructor, inlined, with the defaults that JSON can show.
    """
    line = {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "qty": {"type": "integer", "default": 1}},
        "required": ["sku"],
        "additionalProperties": False,
    }
    schema = schema_for(Order)
    assert schema["required"] == ["lines"]
    assert schema["properties"] == {
        "lines": {"type": "array", "items": line},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    }
    assert "$defs" not in schema


def test_schema_of_an_attrs_class_uses_aliases() -> None:
    """
    An attrs class goes by the names of its constructor, without the fields that it fills itself.
    """
    assert list(schema_for(Account)["properties"]) == ["owner", "limit", "code"]


def test_schema_of_a_typed_dict() -> None:
    """
    A TypedDict requires what total, Required and NotRequired say, in string annotations too.
    """
    schema = schema_for(Trip)
    assert set(schema["required"]) == {"city", "nights"}
    assert schema["properties"]["nights"] == {"type": "integer", "description": "how many nights"}
    assert schema["properties"]["stops"]["items"]["required"] == ["city"]
    assert schema["additionalProperties"] is False


def test_a_recursive_type_has_a_definition() -> None:
    """
    Only a class that contains itself is put into $defs, and it is referred to wherever it appears.
    """
    schema = schema_for(Tree)
    assert schema["$ref"] == "#/$defs/Tree"
    assert list(schema["$defs"]) == ["Tree"]
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_classes_that_contain_each_other() -> None:
    """
    Mutually recursive classes convert, and their references resolve.
    """
    schema = schema_for(tuple[Ping, Pong])
    assert set(schema["$defs"]) == {"Ping", "Pong"}
    value = [{"pong": {"ping": {}}}, {"again": {"ping": {"pong": None}}}]
    assert convert(tuple[Ping, Pong], value, "x") == (Ping(Pong(Ping())), Pong(again=Pong(Ping())))
    assert allowed(tuple[Ping, Pong], value)


def test_two_recursive_classes_of_one_name_stay_apart() -> None:
    """
    Recursive classes with the same name get definitions of their own.
    """
    twin: Any = dataclasses.make_dataclass("Tree", [("up", Any)])
    twin.__annotations__["up"] = twin
    schema = schema_for(tuple[Tree, twin])
    assert [each["$ref"] for each in schema["prefixItems"]] == ["#/$defs/Tree", "#/$defs/Tree_"]


def test_the_parameters_of_a_function_share_their_definitions() -> None:
    """
    Recursive classes of several parameters all have their definitions in the one schema of the function.
    """

    def grow(tree: Tree, ping: Ping, count: int) -> None: ...

    signature = signature_of(grow, skip=())
    assert {"Tree", "Ping"} <= signature.schema["$defs"].keys()
    assert signature.bind({"tree": {"value": 1}, "ping": {}, "count": 2.0}) == (
        [],
        {"tree": Tree(1), "ping": Ping(), "count": 2},
    )


def test_a_schema_belongs_to_one_function() -> None:
    """
    A function's schema shares nothing with another one's, however plain the types of both are.
    """

    def one(city: str) -> None: ...
    def other(town: str) -> None: ...

    signature_of(one, skip=()).schema["properties"]["city"]["title"] = "changed"
    assert signature_of(other, skip=()).schema["properties"] == {"town": {"type": "string"}}


def test_an_annotation_need_not_be_hashable() -> None:
    """
    What else stands in `Annotated` may be anything, a list for example.
    """

    def look(city: Annotated[str, ["a note"], "the city"]) -> None: ...

    assert signature_of(look, skip=()).schema["properties"]["city"] == {"type": "string", "description": "the city"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type X = ...` came with Python 3.12")
def test_a_type_statement_may_be_recursive() -> None:
    """
    A type statement is what it stands for.
    """
    names: dict[str, Any] = {}
    exec("type Nested = int | list[Nested]", names)
    assert convert(names["Nested"], [1, [2.0, []]], "x") == [1, [2, []]]
    assert schema_for(names["Nested"])["$ref"] == "#/$defs/Nested"


def test_a_schema_is_the_callers_own() -> None:
    """
    Changing a schema changes nobody else's.
    """
    schema_for(str)["type"] = "broken"
    assert schema_for(str) == {"type": "string"}


@pytest.mark.parametrize(
    "tp",
    [
        bytes,
        complex,
        type,
        Callable[[int], str],
        dict[int, str],
        set[bytes],
        Literal[b"x"],
        Literal[Color.RED],
        typing.TypeVar("T"),
        enum.Enum("Empty", []),
        enum.Enum("Pairs", {"A": (1, 2)}),
        "int",
        [int],
        datetime.time,
        dataclasses.make_dataclass("HasBytes", [("data", bytes)]),
    ],
    ids=repr,
)
def test_an_unsupported_type_is_refused_by_name(tp: object) -> None:
    """
    A type without a form in JSON is refused before any call, with the list of those that have one.
    """
    with pytest.raises(TypeError, match=r"is not supported; supported are str, int"):
        schema_for(tp)


def test_an_unsupported_type_is_found_inside_others() -> None:
    """
    The refusal says where the type stands.
    """
    has_bytes = dataclasses.make_dataclass("HasBytes", [("data", list[bytes])])
    with pytest.raises(TypeError, match=r"^field 'data' of HasBytes in schema: bytes is not supported"):
        schema_for(list[has_bytes])  # type: ignore[valid-type]  # made at run time


def test_a_class_whose_annotations_do_not_resolve_is_refused() -> None:
    """
    A class with an unknown name in its annotations is refused with both names.
    """
    with pytest.raises(TypeError, match=r"annotations of Lost in schema .*'Nowhere'"):
        schema_for(Lost)


# --- conversions ------------------------------------------------------------------------------------------------------


def same(one: object, two: object) -> bool:
    return one == two and type(one) is type(two)


@pytest.mark.parametrize(
    ("tp", "value", "expected"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (int | float, 1.0, 1.0),
        (float | int, 1, 1),
        (str | int, 5, 5),
        (int | bool, True, True),
        (float | bool, True, True),
        (int | str | None, 3.0, 3),
        (list[int] | list[float], [1.0], [1.0]),
        (Literal[1] | float, 1.0, 1.0),
        (Literal[1, True], True, True),
        (Literal[True, 1], 1, 1),
        (Literal[1], 1.0, 1),
        (Color, "green", Color.GREEN),
        (Level, 2.0, Level.HIGH),
        (Color | str, "blue", "blue"),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[()], [], ()),
        (set[str], ["a", "a"], {"a"}),
        (frozenset[int], [1, 1.0], frozenset({1})),
        (set, ["a"], {"a"}),
        (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
        (datetime.datetime, "2024-02-29T12:00:00Z", datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)),
        (datetime.date | str, "someday", "someday"),
        (Line, {"sku": "a", "qty": 2.0}, Line("a", 2)),
        (Order, {"lines": [{"sku": "a"}], "color": "green"}, Order([Line("a")], Color.GREEN)),
        (Account, {"owner": "ann", "limit": 3, "code": 4}, Account("ann", 3.0, code=4)),
        (Scaled, {"value": 2, "factor": 3}, Scaled(6)),
        (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
        (Place, {"city": "Oslo", "zip": 1.0}, {"city": "Oslo", "zip": 1}),
        (Trip, {"city": "Oslo", "nights": 2.0, "stops": []}, {"city": "Oslo", "nights": 2, "stops": []}),
    ],
)
def test_conversion(tp: object, value: object, expected: object) -> None:
    """
    A value becomes what the annotation promises.
    """
    assert same(convert(tp, value, "x"), expected)


@pytest.mark.parametrize(
    ("tp", "value", "message"),
    [
        (int, "5", "x: expected integer, found string '5'"),
        (int, True, "x: expected integer, found boolean true"),
        (int, 1.5, "x: expected integer, found number 1.5"),
        (int, None, "x: expected integer, found null"),
        (int, float("inf"), "x: expected integer, found number inf"),
        (float, False, "x: expected number, found boolean false"),
        (float, "1.5", "x: expected number, found string '1.5'"),
        (bool, 1, "x: expected boolean, found integer 1"),
        (str, 1, "x: expected string, found integer 1"),
        (str, None, "x: expected string, found null"),
        (None, 0, "x: expected null, found integer 0"),
        (str | None, 1, "x: expected string or null, found integer 1"),
        (Literal[1], True, "x: expected one of 1, found boolean true"),
        (Literal[True, None], 1, "x: expected one of true, null, found integer 1"),
        (Color, "blue", "x: expected one of 'red', 'green', found string 'blue'"),
        (list[int], "ab", "x: expected array of integer, found string 'ab'"),
        (
            list[int],
            [1, "a", {"b": []}],
            "x[1]: expected integer, found string 'a'\nx[2]: expected integer, found object {'b': []}",
        ),
        (tuple[int, str], [1], "x: expected array of 2 items (integer, string), found array [1]"),
        (set[Any], [[1]], "x: expected items that a set can hold, so no arrays or objects, found array [[1]]"),
        (dict[str, int], {"a b": "c"}, "x['a b']: expected integer, found string 'c'"),
        (datetime.date, "2024-02-30", "x: expected date such as '2024-12-31', found string '2024-02-30'"),
        (Line, {"qty": 1}, "x.sku: missing, expected string"),
        (Line, {"sku": "a", "price": 1}, "x.price: unknown name, expected one of sku, qty"),
        (Line, {"sku": "a", "-": 1}, "x['-']: unknown name, expected one of sku, qty"),
        (list[Line], [{"sku": "a", "qty": 0}], "x[0]: qty must be positive"),
        (Account, {"owner": "ann", "limit": -1}, "x: 'limit' must be >= 0: -1.0"),
        (Account | None, {"owner": "ann", "limit": "a"}, "x.limit: expected number, found string 'a'"),
        (
            Add | Mul,
            {"op": "mul", "inner": "a"},
            "x.inner: expected Add object or Mul object or integer, found string 'a'",
        ),
        (list[int] | list[str], [1.5], "x: expected array of integer or array of string, found array [1.5]"),
        (Place, {}, "x.city: missing, expected string"),
        (str, ["long " * 100], f"x: expected string, found array {repr(['long ' * 100])[:57]}..."),
        (int, "a" * 100, f"x: expected integer, found string '{'a' * 56}..."),
    ],
)
def test_refusal(tp: object, value: object, message: str) -> None:
    """
    A refusal says where, what was expected and what was found, one line for each problem.
    """
    with pytest.raises(ArgumentError) as caught:
        convert(tp, value, "x")
    assert str(caught.value) == message


def test_an_integer_beyond_every_float_is_refused() -> None:
    """
    An integer that no float can hold is a problem of the argument, not an OverflowError.
    """
    with pytest.raises(ArgumentError, match=r"^x: expected number up to 1.8e\+308, found integer 1000"):
        convert(float, 10**400, "x")


def test_an_error_without_a_message_shows_its_type() -> None:
    """
    A constructor that raises a bare ValueError is reported by the error's name.
    """

    def refuse(self: object) -> None:
        raise ValueError

    strict = dataclasses.make_dataclass("Strict", [], namespace={"__post_init__": refuse})
    with pytest.raises(ArgumentError, match=r"^x: ValueError$"):
        convert(strict, {}, "x")


def test_a_long_key_is_cut_in_paths() -> None:
    """
    A key of any length is told by its beginning and its number, and the values under it are read at once.
    """
    value = {"a": ["x"], "k" * 100_000: ["x"] * 10_000, "k" * 100_001: [1]}
    with pytest.raises(ArgumentError) as caught:
        convert(dict[str, list[int | None]], value, "x")
    lines = str(caught.value).splitlines()
    assert len(lines) == PROBLEMS_MAX + 1
    assert lines[1] == f"x['{'k' * 56}..., key 1][0]: expected integer or null, found string 'x'"
    with pytest.raises(ArgumentError) as caught:
        convert(Place, {"k" * 100_000: 1}, "x")
    assert str(caught.value).startswith(f"x.{'k' * 60}: unknown name, expected one of city, zip")


@pytest.mark.parametrize(
    ("tp", "value"),
    [
        (list[int], ["x" * 1_000] * 1_000_000),
        (dict[str, int], dict.fromkeys(map(str, range(100_000)), "x" * 1_000)),
        (list[list[int] | Place], [["x" * 1_000] * 100] * 10_000),
        (list[Place], [{}] * 100_000),
        (Place, dict.fromkeys(map(str, range(100_000)))),
        (list[dict[str, list[int]]], [{"k" * 60: ["x" * 1_000] * 10}] * 10_000),
    ],
)
def test_of_many_problems_the_first_are_told(tp: object, value: Any) -> None:
    """
    Whatever is wrong with however much, at most 20 lines of at most 500 characters say so, and that there is more.
    """
    with pytest.raises(ArgumentError) as caught:
        convert(tp, value, "x")
    lines = str(caught.value).splitlines()
    assert len(lines) == PROBLEMS_MAX + 1
    assert max(map(len, lines)) <= LINE_CHARS_MAX
    assert lines[-1] == "there are more problems than these 20"


def test_reading_ends_soon_after_there_are_problems_enough() -> None:
    """
    What follows twenty problems is not read: a model that sends a megabyte of nonsense does not stop the loop.
    """
    met: list[int] = []

    def meet(number: int) -> None:
        met.append(number)
        raise ValueError

    picky = dataclasses.make_dataclass("Picky", [("number", int)], namespace={"__post_init__": lambda self: meet(0)})
    with pytest.raises(ArgumentError):
        convert(list[picky], [{"number": 1}] * 100_000, "x")  # type: ignore[valid-type]
    assert len(met) == PROBLEMS_MAX + 1


def test_nested_unions_are_read_once_each() -> None:
    """
    A deep value that fits no member of nested unions is refused at once, not after trying every combination.
    """
    value: dict[str, Any] = {"inner": "wrong", "op": "mul"}
    for _ in range(40):
        value = {"inner": value, "op": "mul"}
    with pytest.raises(ArgumentError, match=r"^x(.inner)+: expected"):
        convert(Add | Mul, value, "x")


def test_endless_nesting_is_a_problem_of_the_argument() -> None:
    """
    A value nested deeper than Python can follow is refused like any other.
    """
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ArgumentError, match=r"^x: nested too deeply; flatten the value$"):
        convert(Any, value, "x")


def test_the_deepest_value_that_a_log_holds_is_read() -> None:
    """
    A recursive type follows a value through 100 levels, as deep as a stored value can be.
    """
    value: dict[str, Any] = {"value": 0}
    for level in range(99):
        value = {"value": level, "parent": value}
    assert isinstance(convert(Tree, freeze(value), "x"), Tree)


# --- functions --------------------------------------------------------------------------------------------------------


def book(order: Order, city: Annotated[str, "where to"] = "Oslo", *, ctx: object, when: Day = None) -> None:
    """A function with a context."""


async def book_later(order: Order, count: int = 3) -> None:
    """An async function."""


def divide(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
    return a, b, c, d


class Desk:
    def __call__(self, city: str) -> str:
        return city

    def reserve(self, city: str, nights: int = 1) -> str:
        return city * nights


def properties(func: Callable[..., object]) -> dict[str, Any]:
    found: dict[str, Any] = signature_of(func, skip=()).schema["properties"]
    return found


def test_signature_of_a_function() -> None:
    """
    A function is an object of its parameters, without those to skip.
    """
    schema = signature_of(book, skip={"ctx"}).schema
    assert schema["type"] == "object"
    assert schema["required"] == ["order"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["order", "city", "when"]
    assert schema["properties"]["city"] == {"type": "string", "description": "where to", "default": "Oslo"}
    assert schema["properties"]["when"]["default"] is None


def test_signature_of_other_callables() -> None:
    """
    Async functions, methods, callable objects and wrapped functions have signatures too.
    """

    @functools.wraps(divide)
    def wrapper(*args: Any, **kwargs: Any) -> object:
        return divide(*args, **kwargs)

    assert list(properties(book_later)) == ["order", "count"]
    assert list(properties(Desk())) == ["city"]
    assert list(properties(Desk().reserve)) == ["city", "nights"]
    assert list(properties(wrapper)) == ["a", "b", "c", "d"]
    assert list(properties(functools.cache(book_later))) == ["order", "count"]


def test_what_a_partial_has_fixed_is_not_shown() -> None:
    """
    A model neither sees nor replaces the arguments of a partial.
    """
    partial = functools.partial(functools.partial(divide, 1), d=5)
    signature = signature_of(partial, skip=())
    assert list(signature.schema["properties"]) == ["b", "c"]
    args, kwargs = signature.bind({"c": 7})
    assert partial(*args, **kwargs) == (1, 2, 7, 5)
    with pytest.raises(ArgumentError, match=r"^d: unknown name, expected one of b, c$"):
        signature.bind({"d": 1})


def test_parameters_without_annotation_take_anything() -> None:
    """
    A parameter without annotation has an empty schema, and its default if JSON can show it.
    """

    def loose(a, b=1, c=print, d=float("nan")):  # type: ignore[no-untyped-def]  # the fact at hand
        return a

    assert properties(loose) == {"a": {}, "b": {"default": 1}, "c": {}, "d": {}}
    args, kwargs = signature_of(loose, skip=()).bind({"a": freeze({"x": [1]})})
    assert args == []
    assert type(kwargs["a"]) is dict


def test_a_function_without_parameters() -> None:
    """
    A function without parameters accepts no arguments.
    """
    signature = signature_of(lambda: None, skip=())
    assert signature.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert signature.bind({}) == ([], {})
    with pytest.raises(ArgumentError, match=r"^a: unknown name, expected none at all$"):
        signature.bind({"a": 1})


def test_definitions_stand_at_the_top_of_a_signature() -> None:
    """
    The definition of a recursive parameter is where `#/$defs` leads.
    """

    def grow(tree: Tree, other: Tree) -> None:
        """Two trees, one definition."""

    schema = signature_of(grow, skip=()).schema
    assert schema["properties"]["tree"] == schema["properties"]["other"] == {"$ref": "#/$defs/Tree"}
    assert list(schema["$defs"]) == ["Tree"]


def test_bind_converts() -> None:
    """
    Bound arguments are what the annotations promise; the function's own defaults fill the rest.
    """
    signature = signature_of(book, skip={"ctx"})
    args, kwargs = signature.bind(freeze({"order": {"lines": []}, "when": "2024-01-01"}))
    assert args == []
    assert kwargs == {"order": Order([]), "when": datetime.date(2024, 1, 1)}


@given(st.dictionaries(st.sampled_from("abcd"), st.integers()).filter(lambda args: "a" in args))
def test_bound_arguments_call_the_function(args: dict[str, int]) -> None:
    """
    Whatever subset of the arguments is given, calling with the bound ones passes each to its parameter.
    """
    positional, named = signature_of(divide, skip=()).bind(args)
    assert divide(*positional, **named) == tuple(({"b": 2, "c": 3, "d": 4} | args)[name] for name in "abcd")


def test_bind_reports_every_problem() -> None:
    """
    One error names all unknown, missing and wrong arguments with their paths.
    """

    def sell(order: Order, city: str, price: float) -> None:
        """Three parameters."""

    lines = [{"sku": "a"}, {}, {"sku": "b", "qty": "x"}]
    with pytest.raises(ArgumentError) as caught:
        signature_of(sell, skip=()).bind({"order": {"lines": lines}, "town": 1, "price": None})
    assert str(caught.value).splitlines() == [
        "town: unknown name, expected one of order, city, price",
        "order.lines[1].sku: missing, expected string",
        "order.lines[2].qty: expected integer, found string 'x'",
        "city: missing, expected string",
        "price: expected number, found null",
    ]


def test_starred_parameters_are_refused() -> None:
    """
    A model cannot fill *args, so a function with it is refused by the parameter's name; a class also with **kwargs.
    """

    def many(*names: str) -> None:
        """Takes any number."""

    with pytest.raises(TypeError, match=r"many\(\): expected named parameters only, found \*names; name each one"):
        signature_of(many, skip=())

    @dataclasses.dataclass(init=False)
    class Loose:
        def __init__(self, **options: int) -> None:
            self.options = options

    with pytest.raises(TypeError, match=r"Loose\(\) .*found \*\*options; name each one"):
        convert(Loose, {}, "x")


def test_a_function_may_take_other_names() -> None:
    """
    `**rest` is shown as additional properties, and takes any name that is no parameter, with values of its annotation.
    """
    signature = signature_of(functools.partial(opened, fixed=1), skip={"ctx"})
    assert signature.schema == {
        "type": "object",
        "properties": {"to": {"type": "string"}},
        "required": ["to"],
        "additionalProperties": {"type": "string", "format": "date"},
    }
    assert signature.bind({"to": "a", "on": "2024-01-01"}) == ([], {"to": "a", "on": datetime.date(2024, 1, 1)})
    for name in ("ctx", "fixed"):
        with pytest.raises(ArgumentError, match=rf"^{name}: unknown name, expected one of to$"):
            signature.bind({"to": "a", name: "2024-01-01"})
    with pytest.raises(ArgumentError) as caught:
        signature.bind({"on": 1, "at": "2024-01-01"})
    assert str(caught.value).splitlines() == [
        "to: missing, expected string",
        "on: expected date such as '2024-12-31', found integer 1",
    ]


def opened(to: str, *, ctx: object, fixed: int, **rest: datetime.date) -> None:
    """A function that takes any name."""


def test_a_skipped_parameter_must_take_a_keyword() -> None:
    """
    The caller passes what is skipped by keyword, so it cannot be positional-only.
    """
    with pytest.raises(TypeError, match=r"^parameter 'a' of divide\(\) is positional-only"):
        signature_of(divide, skip={"a"})


def test_only_what_a_model_fills_must_resolve() -> None:
    """
    An unknown name is refused with function, parameter and annotation, unless it belongs to the context or the result.
    """

    def plan(ctx: object, city: str) -> None:
        """Its annotations are replaced below."""

    plan.__annotations__ = {"ctx": "Nowhere", "city": "str", "return": "Nowhere"}
    assert signature_of(plan, skip={"ctx"}).bind({"city": "Oslo"}) == ([], {"city": "Oslo"})
    with pytest.raises(TypeError, match=r"the annotation 'Nowhere' of parameter 'ctx' of .*plan\(\) .*not defined"):
        signature_of(plan, skip=())


def test_an_unsupported_parameter_is_named() -> None:
    """
    A parameter that JSON has no form for is refused with its name and the function's.
    """

    def send(data: bytes) -> None:
        """Takes bytes."""

    with pytest.raises(TypeError, match=r"parameter 'data' of .*send\(\): bytes is not supported"):
        signature_of(send, skip=())


def test_a_function_without_a_readable_signature_is_refused() -> None:
    """
    Some builtins have no signature; the error says to wrap them.
    """
    with pytest.raises(TypeError, match=r"expected a function with a signature, found none"):
        signature_of(max, skip=())


def test_binding_does_not_compile() -> None:
    """
    What a call costs is its conversion: the annotations are read once.
    """

    def late(city: str) -> None:
        """Its annotation changes below."""

    signature: Signature = signature_of(late, skip=())
    late.__annotations__["city"] = "Nowhere"
    assert signature.bind({"city": "Oslo"}) == ([], {"city": "Oslo"})
