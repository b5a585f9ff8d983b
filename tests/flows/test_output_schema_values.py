"""
What an answer of a form comes to: its value as JSON, or what is wrong with it.

The law: whatever text or arguments come, there is a value that the schema allows and that reads back as itself, or
there are problems, and never an exception.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from typing import Annotated, Any, Literal, TypedDict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._json import DEPTH_MAX, FrozenDict, freeze
from minirun.errors import ConfigurationError, InvalidValueError
from minirun.flows._json_schema import compile_schema
from minirun.flows._output import Outcome, OutputSchema
from minirun.flows._types import PROBLEMS_MAX

from ..tools.test_schema import Account, Place, Scaled, Tree, Trip, damaged_pairs, valid_pairs
from .test_json_schema import Case, fitting_pairs, json_values, wrong_pairs

# --- forms to play with -----------------------------------------------------------------------------------------------


def stripped(text: str) -> str:
    return text.strip()


class Unit(enum.StrEnum):
    GRAM = "g"
    PIECE = "pc"


@dataclasses.dataclass
class Ingredient:
    name: str
    amount: float = 1.0
    unit: Unit = Unit.PIECE


@attrs.frozen
class Recipe:
    """
    A recipe.

    Attributes:
        title: How it is called.
    """

    title: str = attrs.field(converter=stripped)
    ingredients: list[Ingredient] = attrs.field(factory=list)
    tags: frozenset[str] = frozenset({"soup", "easy", "quick"})
    day: datetime.date | None = None
    _secret: int = 7
    count: int = attrs.field(init=False, default=0)


class Model:
    """What has a schema of its own, and no validator."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {
            "type": "object",
            "title": "Model",
            "properties": {"a": {"type": "integer", "title": "A"}},
            "required": ["a"],
        }


ANYTHING = OutputSchema.of({})


def value_of(outcome: Outcome) -> Any:
    assert outcome.problems == []
    return outcome.value


# --- the law ----------------------------------------------------------------------------------------------------------


def check_outcome(form: OutputSchema, outcome: Outcome) -> None:
    """An outcome is problems for a model's eyes, or a value that the form allows, and that reads back as itself."""
    freeze(outcome.problems)
    if outcome.problems:
        assert outcome.value is None
        assert len(outcome.problems) <= PROBLEMS_MAX + 1
        assert all(len(line) <= 500 and "\n" not in line for line in outcome.problems)
    elif not compile_schema(form.schema).problems(outcome.value):
        assert value_of(form.parse_text(form.dump(outcome.value))) == outcome.value
        if is_wrapped(form) or isinstance(outcome.value, dict):
            assert value_of(form.parse_args(arguments_for(form, outcome.value))) == outcome.value


def is_wrapped(form: OutputSchema) -> bool:
    return list(form.tool_parameters.get("required", ())) == ["result"]


def arguments_for(form: OutputSchema, value: Any) -> dict[str, Any]:
    return {"result": value} if is_wrapped(form) else dict(value)


@given(valid_pairs | damaged_pairs)
def test_an_answer_of_a_type_has_a_value_or_problems(pair: tuple[Any, Any]) -> None:
    """
    Any JSON value, as text or as arguments of a call, is read as a type's value or has problems, the same either way.
    """
    tp, value = pair
    form = OutputSchema.of(type(None) if tp is None else tp)
    outcome = form.parse_text(json.dumps(value))
    check_outcome(form, outcome)
    if is_wrapped(form) or isinstance(value, dict):
        called = form.parse_args(arguments_for(form, value))
        assert (called.value, len(called.problems)) == (outcome.value, len(outcome.problems))


@given(fitting_pairs)
def test_an_answer_that_fits_a_schema_is_the_value(pair: tuple[Case, Any]) -> None:
    """
    What fits a JSON schema is the value as it is.
    """
    case, value = pair
    form = OutputSchema.of(case.document)
    outcome = form.parse_text(json.dumps(value, ensure_ascii=False))
    check_outcome(form, outcome)
    assert value_of(outcome) == value


@given(wrong_pairs)
def test_an_answer_that_does_not_fit_a_schema_has_problems(pair: tuple[Case, Any]) -> None:
    """
    What does not fit a JSON schema has problems, as text and as arguments.
    """
    case, value = pair
    form = OutputSchema.of(case.document)
    outcome = form.parse_text(json.dumps(value))
    assert outcome.problems
    check_outcome(form, outcome)
    assert not is_wrapped(form) or form.parse_args({"result": value}).problems


broken_texts = st.lists(
    st.sampled_from([*'{}[]":,1-\n \\a\ud800', "e9", "NaN", "null", "```", "json", "\\ud800"])
    | json_values.map(json.dumps)
    | st.text(max_size=3)
).map("".join)


@given(broken_texts)
def test_no_text_is_an_exception(text: str) -> None:
    """
    Whatever a model says, it is a value or has problems that can be told and stored.
    """
    for form in (ANYTHING, OutputSchema.of(Recipe), OutputSchema.of(list[Recipe])):
        check_outcome(form, form.parse_text(text))


@given(
    json_values,
    st.sampled_from(["{}", " {}\n", "```\n{}\n```", "```json\n{}\n```\n", "\n```JSON\r\n{}```", "```json {}```"]),
)
def test_space_and_one_fence_are_taken_away(value: Any, around: str) -> None:
    """
    A value is the same with space or one Markdown fence around it.
    """
    text = around.replace("{}", json.dumps(value, indent=1))
    assert value_of(ANYTHING.parse_text(text)) == value


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected JSON, found nothing"),
        (" \n", "expected JSON, found nothing"),
        ("``````", "expected JSON, found nothing"),
        ("```json\n```", "expected JSON, found nothing"),
        ("Sure: {}", "expected JSON alone, found 'Sure: {}' at line 1, column 1"),
        ('{"a": 1}\nI hope so.', "expected JSON alone, found 'I hope so.' at line 2, column 1"),
        ("Here:\n```json\n{}\n```", "expected JSON alone, found 'Here:\\n```json\\n{}\\n```' at line 1, column 1"),
        ("```\n```\n{}\n```\n```", "expected JSON alone, found '```\\n{}\\n```' at line 1, column 1"),
        ('{"a": [1,\n 2', "expected JSON alone, found the end of the text at line 2, column 3"),
        ("[1, 2,\n]", "expected JSON alone, found ',\\n]' at line 1, column 6"),
        ('{"a": 1,}', "expected JSON alone, found ',}' at line 1, column 8"),
        ("{'a': 1}", "expected JSON alone, found \"'a': 1}\" at line 1, column 2"),
        ('"a\nb"', "expected JSON alone, found '\\nb\"' at line 1, column 3"),
        ("\ud800", "expected JSON alone, found '\\ud800' at line 1, column 1"),
        ('{"a": 1, "b": {"a": 2, "a": 3}}', "expected each key once, found 'a' twice in one object"),
        ("[NaN]", "expected JSON, found NaN, which it has not; write null or a string"),
        ("-Infinity", "expected JSON, found -Infinity, which it has not; write null or a string"),
        ("1e999", "expected numbers that a double can hold, found 1e999"),
        ("9" * 5000, "expected integers of at most 4000 digits, found one of 5000"),
        (
            '["\\udfff"]',
            "the value[0]: expected text that UTF-8 can write, found a lone surrogate at character 0",
        ),
        ("[" * 100 + "]" * 100, "the value: nested deeper than 99 levels; flatten it"),
        ('{"a":' * 500 + "1" + "}" * 500, "the value: nested deeper than 99 levels; flatten it"),
        ("[" * 100_000, "the value: nested deeper than 99 levels; flatten it"),
    ],
)
def test_what_is_not_one_json_value_is_a_problem(text: str, problem: str) -> None:
    """
    Words around the JSON, a second fence and what JSON has no one meaning for are problems, told in one line.
    """
    assert ANYTHING.parse_text(text) == Outcome(problems=[problem])


def test_the_deepest_value_can_be_stored() -> None:
    """
    A value of as many levels as a stored one may have fits below the key of a state.
    """
    text = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    forms: list[Any] = [{}, Any]
    for tp in forms:
        freeze({"result": value_of(OutputSchema.of(tp).parse_text(text))})
    assert ANYTHING.parse_args({"result": json.loads(f"[{text}]")}).problems


def test_large_answers_take_no_time() -> None:
    """
    A large answer with a problem at every place has a few short problems.
    """
    form = OutputSchema.of(dict[str, list[int]])
    many = {"k" * 1000: ["x"] * 10_000}
    check_outcome(form, form.parse_text(json.dumps(many)))
    check_outcome(form, form.parse_args(many))
    check_outcome(ANYTHING, ANYTHING.parse_text("[" + "NaN," * 100_000 + "1]"))
    check_outcome(ANYTHING, ANYTHING.parse_text("{" + '"a":1,' * 100_000 + '"b":1}'))
    check_outcome(ANYTHING, ANYTHING.parse_text(f'{{"{"k" * 100_000}": "\\ud800"}}'))
    check_outcome(ANYTHING, ANYTHING.parse_text("`" * 100_000))
    check_outcome(ANYTHING, ANYTHING.parse_text("1." + "3" * 100_000))


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_value_is_what_the_instance_holds() -> None:
    """
    The value of a class has what its constructor made of the answer, defaults and factories filled in.
    """
    text = '{"title": " Stew ", "ingredients": [{"name": "salt", "amount": 3}], "day": "20241231"}'
    assert value_of(OutputSchema.of(Recipe).parse_text(text)) == {
        "title": "Stew",
        "ingredients": [{"name": "salt", "amount": 3.0, "unit": "pc"}],
        "tags": ["easy", "quick", "soup"],
        "day": "2024-12-31",
        "secret": 7,
    }


@pytest.mark.parametrize(
    ("tp", "value", "expected"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (Unit, "g", "g"),
        (str | None, None, None),
        (Literal["a", 1], 1.0, 1),
        (Annotated[int, "how many"], 3, 3),
        (set[int], [10, 9, 10.0], [9, 10]),
        (set[int | str | None], ["b", None, 2, "a"], [None, 2, "a", "b"]),
        (tuple[int, Unit], [1.0, "pc"], [1, "pc"]),
        (dict[str, Ingredient], {"a": {"name": "b"}}, {"a": {"name": "b", "amount": 1.0, "unit": "pc"}}),
        (list[Ingredient | str], ["a", {"name": "b", "unit": "g"}], ["a", {"name": "b", "amount": 1.0, "unit": "g"}]),
        (datetime.datetime, "2024-12-31T12:00Z", "2024-12-31T12:00:00+00:00"),
        (Place, {"city": "Oslo", "zip": 1.0}, {"city": "Oslo", "zip": 1}),
        (Trip, {"city": "Oslo", "nights": 1}, {"city": "Oslo", "nights": 1}),
        (Account, {"owner": "ann"}, {"owner": "ann", "limit": 10.0, "code": 0}),
        (Any, {"a": [1.0]}, {"a": [1.0]}),
        ({"type": "integer"}, 3.0, 3.0),
    ],
)
def test_values(tp: Any, value: object, expected: object) -> None:
    """
    A value is plain JSON in the one form that its type has.
    """
    found = value_of(OutputSchema.of(tp).parse_text(json.dumps(value)))
    assert json.dumps(found) == json.dumps(expected)


def test_a_value_is_frozen() -> None:
    """
    A value may be stored and shared as it is.
    """
    for form in (ANYTHING, OutputSchema.of(Ingredient)):
        assert type(value_of(form.parse_text('{"name": "salt"}'))) is FrozenDict
        assert (
            type(value_of(form.parse_args({"name": "salt"} if form is not ANYTHING else {"result": {}}))) is FrozenDict
        )


def test_a_value_is_dumped_on_one_line() -> None:
    """
    The text of a value is compact JSON, characters as they are; what is no JSON is refused.
    """
    assert ANYTHING.dump({"a": [1, "é\n"]}) == '{"a":[1,"é\\n"]}'
    with pytest.raises(InvalidValueError):
        ANYTHING.dump(float("nan"))


def test_problems_name_their_places() -> None:
    """
    All problems of an answer are told with their paths, for a class as for a schema.
    """
    text = '{"title": 1, "ingredients": [{"name": "salt", "amount": "much"}], "price": 2}'
    assert OutputSchema.of(Recipe).parse_text(text).problems == [
        "price: unknown name, expected one of title, ingredients, tags, day, secret",
        "title: expected string, found integer 1",
        "ingredients[0].amount: expected number, found string 'much'",
    ]
    schema = {"type": "array", "items": {"type": "object", "required": ["name"]}}
    assert OutputSchema.of(schema).parse_text("[{}]").problems == ["[0].name: missing, expected any value"]
    assert OutputSchema.of(int).parse_text('"x"').problems == ["the value: expected integer, found string 'x'"]


def test_a_constructor_may_refuse() -> None:
    """
    What a constructor refuses with a ValueError is a problem, and what it makes that is no JSON is one, too.
    """
    form = OutputSchema.of(Account)
    assert form.parse_text('{"owner": "ann", "limit": -1}').problems == ["the value: 'limit' must be >= 0: -1.0"]
    endless = dataclasses.make_dataclass("Endless", [("limit", float, dataclasses.field(default=float("inf")))])
    assert OutputSchema.of(endless).parse_text("{}").problems == [
        "the value['limit']: expected a finite number, found inf; store None or a string instead"
    ]


def test_an_instance_that_contains_itself_is_a_problem() -> None:
    """
    An instance without an end has no value.
    """

    def close(self: Any) -> None:
        self.link = self

    ring = dataclasses.make_dataclass("Ring", [("link", Any)], namespace={"__post_init__": close})
    assert OutputSchema.of(ring).parse_text('{"link": 1}').problems


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tp",
    [
        int,
        list[Ingredient],
        Ingredient | None,
        Any,
        {},
        {"type": "array", "items": {"$ref": "#"}},
        list[Tree],
        {"properties": {}},
    ],
)
def test_what_is_no_object_is_wrapped_for_a_tool(tp: Any) -> None:
    """
    A tool takes a value that need not be an object as its one argument `result`, and gives it unwrapped.
    """
    form = OutputSchema.of(tp)
    parameters = form.tool_parameters
    assert (parameters["type"], parameters["required"], list(parameters["properties"])) == (
        "object",
        ["result"],
        ["result"],
    )
    compile_schema(parameters)
    assert form.parse_args({}).problems[0].startswith("result: missing")
    assert len(form.parse_args({"more": 1}).problems) == 2
    assert value_of(OutputSchema.of(int).parse_args({"result": 3.0})) == 3


def test_the_path_of_a_wrapped_problem_starts_at_the_argument() -> None:
    """
    A problem of a wrapped value is told where the model wrote it.
    """
    for tp in (list[int], {"type": "array", "items": {"type": "integer"}}):
        (problem,) = OutputSchema.of(tp).parse_args({"result": [1, "x"]}).problems
        assert problem.startswith("result[1]: expected")


@pytest.mark.parametrize(
    "tp",
    [
        Recipe,
        Place,
        dict[str, int],
        Tree,
        {"type": "object"},
        Model.model_json_schema(),
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
    ],
)
def test_an_object_is_the_arguments_of_a_tool(tp: Any) -> None:
    """
    A tool takes the parts of an object as its arguments, also those of a class that contains itself.
    """
    form = OutputSchema.of(tp)
    assert form.tool_parameters["type"] == "object"
    assert "result" not in form.tool_parameters.get("properties", {})
    compile_schema(form.tool_parameters)
    value = {"title": "a", "city": "b", "value": 1, "a": 1}
    known = form.tool_parameters.get("properties", {"a": 1})
    args = {name: value[name] for name in known if name in value}
    assert value_of(form.parse_args(args)) == value_of(form.parse_text(json.dumps(args)))


def test_arguments_that_are_no_json_are_problems() -> None:
    """
    Arguments that could not be stored are problems, not exceptions.
    """
    for bad in (float("nan"), {1}, "\ud800"):
        assert ANYTHING.parse_args({"result": bad}).problems
        assert OutputSchema.of(dict[str, Any]).parse_args({"a": bad}).problems


# --- what is a form ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "message"),
    [
        (None, r"^form: found None, expected a type; or give a JSON schema as a dict"),
        (
            Model,
            r"^form: .*Model is not supported; supported are str, .* pydantic models, .*; or give a JSON schema as a",
        ),
        (list[Model], r"Model is not supported"),
        (Recipe("x"), r"^form: Recipe\(title='x'.* is not supported"),
        ("Recipe", r"^form: 'Recipe' is not supported"),
        ([int], r"is not supported"),
        (bytes, r"^form: bytes is not supported"),
        (7, r"^form: 7 is not supported"),
        (Scaled, r"^form: expected Scaled to keep its arguments as fields, found that 'factor' is none$"),
        (list[Scaled], r"^form: expected Scaled to keep"),
        ({"type": "strin"}, r"^form at #/type: expected some of"),
        ({"if": {}}, r"^form at #: the keyword 'if' is not supported"),
        ({"$ref": "#"}, r"^form at #: refers to itself without end"),
        ({"const": {1}}, r"^form\['const'\]: expected a JSON value"),
        (enum.Enum("Odd", {"A": float("nan")}), r"expected a finite number"),
    ],
)
def test_what_is_no_form_is_refused(tp: Any, message: str) -> None:
    """
    What has no form that can be checked and written is refused, with what is accepted instead.
    """
    with pytest.raises(ConfigurationError, match=message):
        OutputSchema.of(tp, "form")


def test_a_class_with_a_constructor_of_its_own_is_refused() -> None:
    """
    A class whose constructor takes what it does not keep could not say its value.
    """

    @attrs.define(init=False)
    class Parsed:
        number: int

        def __init__(self, text: str) -> None:
            self.number = int(text)

    with pytest.raises(ConfigurationError, match=r"'text' of Parsed|'text' is none$"):
        OutputSchema.of(Parsed)


def test_schemas_are_frozen_and_described() -> None:
    """
    The schemas are JSON that nobody can change, with the descriptions of the docstring.
    """
    form = OutputSchema.of(Recipe)
    assert form.schema["properties"]["title"] == {"type": "string", "description": "How it is called."}
    assert form.tool_parameters == form.schema
    assert json.loads(json.dumps(form.schema)) == form.schema
    with pytest.raises(TypeError):
        form.schema["type"] = "array"


def test_a_typed_dict_of_typed_dicts_is_a_form() -> None:
    """
    A form may be made of TypedDicts, which stay dicts with the keys that were given.
    """
    menu: Any = TypedDict("menu", {"places": list[Place]})
    form = OutputSchema.of(menu)
    assert value_of(form.parse_text('{"places": [{"city": "Oslo"}]}')) == {"places": [{"city": "Oslo"}]}
    assert form.parse_text('{"places": [{}]}').problems == ["places[0].city: missing, expected string"]
