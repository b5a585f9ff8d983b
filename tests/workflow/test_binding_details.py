"""Details of functions as nodes: what an annotation lets through, how deep an output is, and how contexts are found."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import pytest

from minirun._json import freeze
from minirun.errors import InvalidValueError, NodeInputError, WorkflowConfigurationError
from minirun.types import Content, Part
from minirun.workflow._binding import Binding

from .test_workflow_binding import CTX, arguments, user


def annotated(annotation: Any) -> Any:
    """A function whose one parameter has this annotation."""

    def node(city: Any) -> None: ...

    node.__annotations__["city"] = annotation
    return node


KINDS = [None, bool, int, float, str, list, dict]


@pytest.mark.parametrize("annotation", KINDS)
def test_what_may_be_anything_contradicts_nothing(annotation: Any) -> None:
    """A field of any kind fits each parameter, and a parameter of any kind each field."""
    Binding.of(annotated(annotation), state_schema_fields={"city": Any})
    Binding.of(annotated(Any), state_schema_fields={"city": annotation})


@pytest.mark.parametrize("annotation", KINDS)
def test_a_kind_fits_itself_and_is_told_beside_another(annotation: Any) -> None:
    """Each kind of JSON fits a field of that kind, and is named where it meets another one."""
    Binding.of(annotated(annotation), state_schema_fields={"city": annotation})
    others = [each for each in KINDS if each is not annotation and {each, annotation} != {int, float}]
    for other in others:
        with pytest.raises(WorkflowConfigurationError, match="annotate both alike"):
            Binding.of(annotated(annotation), state_schema_fields={"city": other})


@pytest.mark.parametrize(("option", "kind"), [(None, None), (True, bool), (3, int), ("red", str)], ids=repr)
def test_an_option_is_of_its_kind(option: Any, kind: Any) -> None:
    """A field that holds one of some values has the kinds of these values, and no others."""
    options = {"city": Literal[option]}
    assert Binding.of(annotated(kind), state_schema_fields=options).name == "node"
    with pytest.raises(WorkflowConfigurationError, match="annotate both alike"):
        Binding.of(annotated(list), state_schema_fields=options)


class Rate(enum.Enum):
    """One of two rates."""

    LOW = 0.5
    HIGH = 1.5


def test_numbers_to_choose_from_are_numbers() -> None:
    """A class of them fits a field that holds numbers, and no text."""
    Binding.of(annotated(Rate), state_schema_fields={"city": float})
    Binding.of(annotated(float), state_schema_fields={"city": Rate})
    with pytest.raises(WorkflowConfigurationError, match=r"the field 'city' of the state \(number\)"):
        Binding.of(annotated(str), state_schema_fields={"city": Rate})


@pytest.mark.parametrize(
    ("annotation", "field", "fits"),
    [
        (int | None, str | None, False),
        (None, str | None, True),
        (int | None, None, True),
        (None, None, True),
    ],
)
def test_only_nothing_in_common(annotation: Any, field: Any, fits: bool) -> None:
    """Two that share null alone contradict each other, unless null is all that one of them knows."""
    if fits:
        Binding.of(annotated(annotation), state_schema_fields={"city": field})
    else:
        with pytest.raises(WorkflowConfigurationError, match="annotate both alike"):
            Binding.of(annotated(annotation), state_schema_fields={"city": field})


def test_a_text_stays_a_text_where_a_text_is_expected() -> None:
    """Of a parameter that takes messages and texts, a text in the input is no message."""
    assert arguments(annotated(str | Content), "hi") == {"city": "hi"}
    assert arguments(annotated(str | Content), user("hi")) == {"city": user("hi")}
    assert arguments(annotated(int | Content), "hi") == {"city": user("hi")}
    assert arguments(annotated(int | Content), 3) == {"city": 3}


def test_a_parameter_that_is_nothing() -> None:
    """One that is annotated with None takes None, and no message."""
    assert arguments(annotated(None), None) == {"city": None}
    assert arguments(annotated(None), user("null")) == {"city": None}
    with pytest.raises(NodeInputError, match="expected null, found string 'x'"):
        arguments(annotated(None), "x")


def test_an_annotation_that_cannot_be_hashed() -> None:
    """What stands beside the type in an annotation may be anything, such as a list."""
    assert arguments(annotated(Annotated[str, ["x"]]), "hi") == {"city": "hi"}
    assert arguments(annotated(Annotated[int, {}]), user("3")) == {"city": 3}


def nested(levels: int) -> Any:
    """A list in lists, so many of them."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("of_event", [False, True])
def test_how_deep_an_output_may_be(of_event: bool) -> None:
    """An output leaves room for the level of a join around it: 99 levels, also one that is JSON already."""
    binding = Binding.of(lambda: None, name="n")

    def written(levels: int) -> Any:
        value = nested(levels)
        return binding.written(freeze(value) if of_event else value)

    assert written(99) == nested(99)
    with pytest.raises(InvalidValueError, match="nested deeper than 100 levels"):
        written(100)


def test_a_part_is_told_as_a_content_is() -> None:
    """A part of a message is no output; how to say it stands in the error."""
    binding = Binding.of(lambda: None, name="n")
    with pytest.raises(InvalidValueError, match=r"found Part; return its text, or say it with `Event\(message=...\)`"):
        binding.written(Part(text="x"))


def test_a_name_that_is_no_text_is_told() -> None:
    """A callable whose `__name__` is something else is refused by what was found."""

    class Odd:
        __name__ = 3

        def __call__(self, node_input: Any) -> None: ...

    with pytest.raises(WorkflowConfigurationError, match="expected a node's name to be an identifier, found 3"):
        Binding.of(Odd())


def test_a_context_by_the_last_word_of_its_name() -> None:
    """A class of contexts in a union that cannot be read counts where it stands first; a text elsewhere does not."""

    def one(it: object) -> None: ...

    one.__annotations__["it"] = "missing.Context|None"
    assert arguments(one) == {"it": CTX}
    one.__annotations__["it"] = "None | missing.Context"
    with pytest.raises(WorkflowConfigurationError, match="cannot resolve"):
        Binding.of(one)


@pytest.mark.parametrize(("inner", "text", "expected"), [("string", "3", "3"), ("integer", "3", 3)])
def test_a_schema_that_goes_in_a_circle_is_read_by_what_else_it_says(inner: str, text: str, expected: object) -> None:
    """A definition that leads to itself adds no kinds of values."""
    below = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": inner}]}, "b": below}}
    assert arguments(annotated(Any), user(text), input_schema=schema, name="node") == {"city": expected}
