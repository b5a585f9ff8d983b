"""
How a function becomes a node: where its arguments come from, what comes of its output, and what is refused.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from decimal import Decimal
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import Event, InvocationContext, ToolContext
from minirun._json import FrozenDict, freeze, loads
from minirun.errors import (
    ConfigurationError,
    InvalidValueError,
    NodeInputError,
    WorkflowConfigurationError,
    WorkflowError,
)
from minirun.events import EventActions
from minirun.flows._schema import Compiler
from minirun.flows._types import Field
from minirun.types import Blob, Content, Part, UsageMetadata
from minirun.workflow._binding import Binding
from minirun.workflow._collected import Collected
from minirun.workflow._request_input import RequestInput

if TYPE_CHECKING:
    from decimal import Decimal as Unseen

    from minirun.agents import CallbackContext

CTX = object()  # a binding hands the context on, whatever it is


def arguments(
    func: Callable[..., Any], node_input: object = None, state: Mapping[str, object] | None = None, **options: Any
) -> dict[str, Any]:
    """What *func* would be called with as a node."""
    given = node_input if isinstance(node_input, Content) else freeze(node_input)
    return Binding.of(func, **options).arguments(CTX, given, freeze(state or {}))


def user(text: str) -> Content:
    return Content(role="user", parts=[Part(text=text)])


# --- types to play with -----------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


@attrs.frozen
class Ticket:
    text: str
    urgent: bool = False
    color: Color = Color.RED


@attrs.frozen
class Tree:
    below: list[Tree] = attrs.Factory(list)


@dataclasses.dataclass
class Order:
    tickets: list[Ticket]
    due: datetime.date
    tags: set[str] = dataclasses.field(default_factory=set)


class Row(TypedDict):
    id: int
    note: NotRequired[str | None]


class Sheet(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    rows: list[dict[str, int]] = []
    rate: float = 0.5

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic's documents say
    @property
    def size(self) -> int:
        return len(self.rows)


# --- where arguments come from ----------------------------------------------------------------------------------------


async def classify_and_route(user_msg: str, ctx):  # type: ignore[no-untyped-def]  # as in the documents
    intent = "billing" if "invoice" in user_msg.lower() else "support"
    yield Event(state={"last_intent": intent}, actions=EventActions(route=intent))


async def test_the_documents_example() -> None:
    """
    The one parameter that the state does not know is the input: here the text of the user's message.
    """
    binding = Binding.of(classify_and_route)
    assert (binding.name, binding.kind) == ("classify_and_route", "async generator")
    given = binding.arguments(CTX, user("My invoice is wrong"), {})
    assert given == {"user_msg": "My invoice is wrong", "ctx": CTX}
    collected = Collected(binding)
    assert [collected.add(item) async for item in classify_and_route(**given)] == [()]
    assert (collected.route, collected.has_output) == ("billing", False)
    assert collected.event == Event(state={"last_intent": "billing"})


def test_names_say_where_values_come_from() -> None:
    """
    `ctx` is the context, `node_input` the input, and any other name a key of the state.
    """

    def node(ctx: Any, node_input: list[int], city: str, limit: int = 5) -> None: ...

    assert arguments(node, [1], {"city": "Rome"}) == {"ctx": CTX, "node_input": [1], "city": "Rome"}
    assert arguments(node, [1], {"city": "Rome", "limit": 7})["limit"] == 7


def test_what_is_annotated_as_a_context_is_the_context() -> None:
    """
    Whatever its name, and also if the class is imported for type checkers only.
    """

    def one(it: InvocationContext, node_input: str) -> None: ...
    def two(it: CallbackContext | None) -> None: ...
    def three(tool_context: "ToolContext | None" = None) -> None: ...  # noqa: UP037 # as many write it

    assert arguments(one, "x") == {"it": CTX, "node_input": "x"}
    assert arguments(two) == {"it": CTX}
    assert arguments(three) == {"tool_context": CTX}


@pytest.mark.parametrize(
    "name",
    ["CallbackContext", "Context", "InvocationContext", "NodeContext", "ReadonlyContext", "ToolContext"],
)
def test_a_context_that_only_type_checkers_know_is_known_by_its_name(name: str) -> None:
    """
    The names of contexts, here and in ADK, are enough where the class cannot be found; other names are not.
    """
    for annotation in (f"unknown.{name} | None", f" {name}"):

        def one(it: object, node_input: str) -> None: ...

        one.__annotations__["it"] = annotation
        assert arguments(one, "x") == {"it": CTX, "node_input": "x"}

    def two(it: object) -> None: ...

    two.__annotations__["it"] = f"unknown.{name}s"
    with pytest.raises(WorkflowConfigurationError, match=f"unknown.{name}s"):
        Binding.of(two)


def test_one_unknown_name_is_the_input() -> None:
    """
    It is the input only where the state has no such key, and where there is no `node_input`.
    """

    def node(text: str) -> None: ...
    def both(text: str, node_input: str) -> None: ...

    assert arguments(node, "said") == {"text": "said"}
    assert arguments(node, "said", {"text": "kept"}) == {"text": "kept"}
    with pytest.raises(NodeInputError, match=r"node 'both': state\['text'\]: missing; write the key before"):
        arguments(both, "said")


def test_a_default_stands_where_the_state_has_no_value() -> None:
    """
    A parameter with a default is never the input, so a counter begins with its default.
    """

    def tick(count: int = 0) -> None: ...
    def node(text: str, count: int = 0) -> None: ...

    assert arguments(tick, "said") == {}
    assert arguments(tick, "said", {"count": 3}) == {"count": 3}
    assert arguments(node, "said") == {"text": "said"}


def test_two_unknown_names_are_told_by_name() -> None:
    """
    None of them is guessed to be the input.
    """

    def node(text: str, other: str) -> None: ...

    with pytest.raises(NodeInputError) as caught:
        arguments(node, "said")
    assert "state['text']: missing" in str(caught.value)
    assert "state['other']: missing" in str(caught.value)
    assert "`node_input`" in str(caught.value)


def test_parameters_from_the_input() -> None:
    """
    With `parameter_binding="node_input"` they are fields of the input, and what nobody asks for is left.
    """

    def node(city: str, days: int = 3, *, node_input: Any) -> None: ...

    def of(node_input: object) -> dict[str, Any]:
        return arguments(node, node_input, {"days": 9}, parameter_binding="node_input")

    value = {"city": "Rome", "more": 1}
    assert of(value) == {"city": "Rome", "node_input": value}
    message = user('{"city": "Rome", "days": 1}')
    assert of(message) == {"city": "Rome", "days": 1, "node_input": message}
    with pytest.raises(NodeInputError, match=r"node_input\['city'\]: missing"):
        of({"days": 1})
    with pytest.raises(NodeInputError, match="node_input: expected object with the arguments, found integer 3"):
        of(3)


GIVE_IT = "let the node before it give it, or give the parameter a default"
WRITE_IT = "write the key before this node runs, or give the parameter a default"
NAME_IT = "several parameters have no value, so none of them is the input; name that one `node_input`"


@pytest.mark.parametrize(
    ("given", "options", "problems"),
    [
        (3, {}, [f"state['a']: missing; {NAME_IT}", f"state['b']: missing; {NAME_IT}"]),
        (
            3,
            {"state_schema_fields": {"a": int, "b": str}},
            [f"state['a']: missing; {WRITE_IT}", f"state['b']: missing; {WRITE_IT}"],
        ),
        (
            {},
            {"parameter_binding": "node_input"},
            [f"node_input['a']: missing; {GIVE_IT}", f"node_input['b']: missing; {GIVE_IT}"],
        ),
        (
            {"a": "x", "b": 1},
            {"parameter_binding": "node_input"},
            ["node_input['a']: expected integer, found string 'x'", "node_input['b']: expected string, found integer"],
        ),
        (
            {"a": "x"},
            {"parameter_binding": "node_input"},
            ["node_input['a']: expected integer, found string 'x'", f"node_input['b']: missing; {GIVE_IT}"],
        ),
        (user("[1]"), {"parameter_binding": "node_input"}, ["node_input: expected object with the arguments, found "]),
        (user("hi"), {"parameter_binding": "node_input"}, ["node_input: expected JSON alone, found 'hi' at line 1"]),
        (user('"a"'), {"parameter_binding": "node_input"}, ["node_input: expected object with the arguments, found "]),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(given: Any, options: Any, problems: list[str]) -> None:
    """
    The advice follows from where the values of the parameters come from; each problem is a line.
    """

    def node(a: int, b: str) -> None: ...

    with pytest.raises(NodeInputError) as caught:
        arguments(node, given, **options)
    lines = str(caught.value).removeprefix("node 'node': ").splitlines()
    assert len(lines) == len(problems)
    assert all(line.startswith(problem) for line, problem in zip(lines, problems, strict=True)), lines


def test_what_a_partial_fixes_is_left_to_it() -> None:
    """
    The rest is bound as if the fixed parameters were not there.
    """

    def node(prefix: str, text: str, limit: int) -> None: ...

    bound = functools.partial(functools.partial(node, "x"), limit=3)
    binding = Binding.of(bound, state_schema_fields={})
    assert binding.name == "node"
    assert binding.arguments(CTX, "said", freeze({"limit": 4})) == {"text": "said"}


def test_how_functions_are_called() -> None:
    """
    Each kind of function is recognised through partials, methods and objects that can be called.
    """

    async def later(node_input: int) -> int:
        return node_input

    def several(node_input: int) -> Iterator[int]:
        yield node_input

    class Caller:
        async def __call__(self, node_input: int) -> AsyncIterator[int]:
            yield node_input

        async def method(self, node_input: int) -> int:
            return node_input

    assert Binding.of(later).kind == "async"
    assert Binding.of(functools.partial(later)).kind == "async"
    assert Binding.of(several).kind == "generator"
    assert Binding.of(Caller()).kind == "async generator"
    assert Binding.of(Caller()).name == "Caller"
    assert Binding.of(Caller().method).kind == "async"
    assert Binding.of(lambda node_input: node_input, name="same").kind == "sync"


# --- how values are read ----------------------------------------------------------------------------------------------


def test_values_are_read_by_annotation() -> None:
    """
    JSON becomes what the annotation says, from the input as from the state.
    """

    def node(node_input: Ticket, order: Order, row: Row, sheet: Sheet) -> None: ...

    order = {"tickets": [{"text": "a"}], "due": "2026-11-23", "tags": ["b"]}
    found = arguments(
        node, {"text": "x", "color": "green"}, {"order": order, "row": {"id": 1}, "sheet": {"rows": [{"id": 2}]}}
    )
    assert found == {
        "node_input": Ticket("x", color=Color.GREEN),
        "order": Order([Ticket("a")], datetime.date(2026, 11, 23), {"b"}),
        "row": {"id": 1},
        "sheet": Sheet(rows=[{"id": 2}]),
    }


def test_all_that_does_not_fit_is_told_at_once() -> None:
    """
    The message names the node and has a line for each problem, with the path to it.
    """

    def lookup(node_input: list[Ticket], city: str) -> None: ...

    with pytest.raises(NodeInputError) as caught:
        arguments(lookup, [{"text": 3}], {"city": 4})
    assert str(caught.value).splitlines() == [
        "node 'lookup': node_input[0].text: expected string, found integer 3",
        "state['city']: expected string, found integer 4",
    ]


def test_nothing_is_coerced() -> None:
    """
    A string is no number, as in the arguments of tools (W40).
    """

    def node(node_input: int) -> None: ...

    with pytest.raises(NodeInputError, match="expected integer, found string '3'"):
        arguments(node, "3")


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (str, "[1]", "[1]"),
        (str | None, "null", "null"),
        (Color, "red", Color.RED),
        (Literal["a", "b"], "a", "a"),
        (datetime.date, "2026-11-23", datetime.date(2026, 11, 23)),
        (Ticket | str, '{"text": "x"}', '{"text": "x"}'),
        (Ticket, ' {"text": "x"}\n', Ticket("x")),
        (list[int], "[1, 2]", [1, 2]),
        (int, "3", 3),
        (dict, '{"a": [1]}', {"a": [1]}),
        (Sheet, '{"rate": 1.5}', Sheet(rate=1.5)),
    ],
)
def test_the_users_message_is_its_text_or_the_json_in_it(annotation: Any, text: str, expected: object) -> None:
    """
    A type that takes text gets the text as it is; for any other the text is read as JSON.
    """

    def node(node_input: Any) -> None: ...

    node.__annotations__["node_input"] = annotation
    assert arguments(node, user(text)) == {"node_input": expected}


def test_the_message_itself() -> None:
    """
    Annotated with `Content`, or with nothing, a parameter gets the message with all its parts.
    """

    def one(node_input: Content) -> None: ...
    def two(node_input: Ticket | Content | None) -> None: ...
    def three(node_input) -> None: ...  # type: ignore[no-untyped-def]
    def four(message: object) -> None: ...

    message = Content(role="user", parts=[Part(text="hi"), Part(inline_data=Blob(data=b"1", mime_type="image/png"))])
    for node in (one, two, three, four):
        assert [*arguments(node, message).values()] == [message]
    assert arguments(one, "hi") == {"node_input": user("hi")}
    assert arguments(two, "hi") == {"node_input": user("hi")}
    assert arguments(two, {"text": "hi"}) == {"node_input": Ticket("hi")}
    assert arguments(two, None) == {"node_input": None}
    with pytest.raises(NodeInputError, match="node_input: expected a message or its text, found object"):
        arguments(one, {"text": "hi"})


def test_a_message_that_is_no_json() -> None:
    """
    It is told at the node, as any input that does not fit (W20).
    """

    def node(node_input: Ticket) -> None: ...

    with pytest.raises(NodeInputError, match="node 'node': node_input: expected JSON alone, found 'hello'"):
        arguments(node, user("hello"))


def test_an_input_schema_is_checked_first() -> None:
    """
    A type or a JSON schema; what the function gets is JSON with the defaults of the type filled in.
    """

    def node(node_input: Any) -> None: ...

    full = {"text": "x", "urgent": False, "color": "red"}
    assert arguments(node, {"text": "x"}, input_schema=Ticket) == {"node_input": full}
    assert arguments(node, user('{"text": "x"}'), input_schema=Ticket) == {"node_input": full}
    assert arguments(node, user("[1]"), input_schema=str) == {"node_input": "[1]"}
    assert arguments(node, 3, input_schema={"type": "integer"}) == {"node_input": 3}
    with pytest.raises(NodeInputError, match="node 'node': node_input: text: missing, expected string"):
        arguments(node, {}, input_schema=Ticket)


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string"}, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["integer", "null"]}, "null", None),
        ({"enum": [1, "a"]}, "a", "a"),
        ({"enum": [1, None]}, "1", 1),
        ({"enum": [1.5, True, [2], {"a": 3}]}, '{"a": 3}', {"a": 3}),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", "3"),
        ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
        ({"anyOf": [{"type": "integer"}, {"enum": ["a"]}]}, "a", "a"),
        ({"$ref": "#/$defs/many", "$defs": {"many": {"type": "array", "items": {"type": "integer"}}}}, "[1]", [1]),
        ({"$ref": "#/$defs/word", "$defs": {"word": {"type": "string"}}}, "[1]", "[1]"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, ' {"a": "b"}\n', {"a": "b"}),
        (list[Tree], '[{"below": [{}]}]', [{"below": [{"below": []}]}]),
        (Tree | None, "null", None),
        (Tree | str, "null", "null"),
        ({}, "3", "3"),
        ({"anyOf": [True, {"type": "integer"}]}, "3", "3"),
        ({"const": 3, "type": "integer"}, "3", 3),
    ],
    ids=repr,
)
def test_the_users_message_is_read_by_the_input_schema(schema: Any, text: str, expected: object) -> None:
    """
    Where the schema allows a string it is the text; where it allows none, the text is read as JSON.
    """

    def node(node_input: Any) -> None: ...

    assert arguments(node, user(text), input_schema=schema) == {"node_input": expected}


def test_a_message_that_does_not_fit_the_input_schema() -> None:
    """
    One that is no JSON is told as that, and one of another form with what is wrong with it.
    """

    def node(node_input: Any) -> None: ...

    with pytest.raises(NodeInputError) as caught:
        arguments(node, user("hello"), input_schema=Ticket)
    assert str(caught.value) == (
        "node 'node': node_input: expected JSON alone, found 'hello' at line 1, column 1; "
        "the message is read as JSON, since no text is expected"
    )
    with pytest.raises(NodeInputError, match=r"^node 'node': node_input: the value: expected Ticket object, found int"):
        arguments(node, user("3"), input_schema=Ticket)


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_what_is_no_json_is_told_with_its_path() -> None:
    """
    It is told at the return, and not in the store (W10).
    """
    lookup = Binding.of(lambda: None, name="lookup")

    @attrs.frozen
    class Hit:
        when: object

    endless: list[Any] = []
    endless.append(endless)
    for value, path in (
        ([0, 1, 2, Hit(b"now")], "output of 'lookup'[3].when"),
        ({"a": {"b": Decimal(1)}}, "output of 'lookup'['a']['b']"),
        ([float("nan")], "output of 'lookup'[0]"),
        ({1: 2}, "output of 'lookup'"),
        ([Event(message="hi")], "output of 'lookup'[0]"),
        ({"a": RequestInput()}, "output of 'lookup'['a']"),
        (user("hi"), "output of 'lookup'"),
        ((each for each in "ab"), "output of 'lookup'"),
        (endless, "output of 'lookup'" + "[0]" * 100),
    ):
        with pytest.raises(InvalidValueError) as caught:
            lookup.written(value)
        assert caught.value.path == path[:200]
    with pytest.raises(InvalidValueError, match=r"found Content; return its text, or say it with"):
        lookup.written(user("hi"))


def test_an_output_cannot_be_changed() -> None:
    """
    Neither the function that returned it nor the next one can change what is recorded (W11).
    """

    def untyped(node_input) -> None: ...  # type: ignore[no-untyped-def]
    def typed(node_input: dict[str, list[int]]) -> None: ...

    value = {"a": [1]}
    output = Binding.of(untyped).written(value)
    value["a"].append(2)
    assert output == {"a": [1]}
    next_one = arguments(untyped, output)["node_input"]
    assert next_one is output
    with pytest.raises(TypeError, match="cannot change"):
        next_one["a"].append(2)
    arguments(typed, output)["node_input"]["a"].append(2)
    assert output == {"a": [1]}


def test_an_output_schema_is_checked() -> None:
    """
    What does not fit is told with the node's name; what fits is kept as it is.
    """
    binding = Binding.of(lambda: None, name="n", output_schema=Ticket)
    assert binding.written({"text": "x"}) == {"text": "x"}
    assert binding.written(Ticket("x")) == {"text": "x", "urgent": False, "color": "red"}
    with pytest.raises(InvalidValueError, match=r"output of 'n': expected what output_schema says; text: expected"):
        binding.written({"text": 3})


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    bool | None: st.none() | st.booleans(),
    datetime.datetime: st.datetimes(timezones=st.just(datetime.UTC)),
    Color: st.sampled_from(Color),
    Ticket: st.builds(Ticket, st.text(), st.booleans(), st.sampled_from(Color)),
    Order: st.builds(Order, st.lists(st.builds(Ticket, st.text())), st.dates(), st.sets(st.text())),
    Row: st.fixed_dictionaries({"id": st.integers()}, optional={"note": st.none() | st.text()}),
    Sheet: st.builds(Sheet, rows=st.lists(st.fixed_dictionaries({"id": st.integers(-9, 9)})), rate=st.floats(0, 1)),
    Any: st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
}


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """A type and a value of it: alone, or in a collection."""
    annotation, values = draw(st.sampled_from(list(VALUES.items())))
    shape = draw(st.sampled_from(["alone", "list", "dict", "tuple"]))
    if shape == "list":
        annotation, values = GenericAlias(list, (annotation,)), st.lists(values, max_size=4)
    elif shape == "dict":
        annotation, values = GenericAlias(dict, (str, annotation)), st.dictionaries(st.text(), values, max_size=4)
    elif shape == "tuple":
        annotation, values = GenericAlias(tuple, (annotation, ...)), st.lists(values, max_size=4).map(tuple)
    return annotation, draw(values)


@given(typed_values())
def test_the_next_node_reads_what_was_returned(typed: tuple[Any, Any]) -> None:
    """
    A value that is written and read by the same annotation is equal, also from the log of a run before (W9).
    """
    annotation, value = typed

    def node(node_input: Any) -> None: ...

    node.__annotations__["node_input"] = annotation
    binding = Binding.of(node)
    fresh = binding.written(value)
    resumed = freeze(loads(json.dumps(fresh)))
    assert resumed == fresh
    for output in (fresh, resumed):
        read = binding.arguments(CTX, output, {})["node_input"]
        assert read == value
        assert binding.written(read) == fresh


# --- what is refused when the node is made ----------------------------------------------------------------------------


def args(*args: int) -> None: ...
def kwargs(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def unreadable(a: Decimal) -> None: ...
def unknown(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821 # what is tested


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (args, r"node 'args': args\(\): expected named parameters only, found \*args"),
        (kwargs, r"found \*\*kwargs"),
        (positional, r"parameter 'a' of positional\(\) is positional-only"),
        (unreadable, r"parameter 'a' of unreadable\(\): decimal.Decimal is not supported"),
        (unknown, r"cannot resolve the annotation 'Missing' of parameter 'a' of unknown\(\)"),
        (lambda node_input: None, r"identifier, found a lambda; write `node\(func, name=...\)`"),
        (Ticket, "found <class .*Ticket'> of type type; of a class, make an instance first"),
        (3, "expected a function or an object that can be called, found 3 of type int"),
    ],
)
def test_functions_that_cannot_be_nodes(func: Any, message: str) -> None:
    """
    They are refused when the node is made, by what is wrong with them.
    """
    with pytest.raises(WorkflowConfigurationError, match=message):
        Binding.of(func)


def test_other_arguments_that_are_refused() -> None:
    """
    Names that are no identifiers, an unknown way to bind parameters, and schemas that are none.
    """
    with pytest.raises(WorkflowConfigurationError, match="identifier, found 'a b' of type str"):
        Binding.of(classify_and_route, name="a b")
    with pytest.raises(WorkflowConfigurationError, match="'state' or 'node_input', found 'input'"):
        Binding.of(classify_and_route, parameter_binding="input")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="input_schema of node 'classify_and_route'"):
        Binding.of(classify_and_route, input_schema=Decimal)
    with pytest.raises(ConfigurationError, match="output_schema of node 'classify_and_route'"):
        Binding.of(classify_and_route, output_schema={"type": "nothing"})


def test_annotations_of_results_that_say_nothing_of_json() -> None:
    """
    Events and questions beside values, and what only a type checker knows.
    """

    def one() -> Event: ...  # type: ignore[empty-body]
    def two() -> Event | RequestInput | list[Ticket] | None: ...
    def three() -> Unseen: ...  # type: ignore[empty-body]

    def four() -> Iterator[Event | int]:
        yield 1

    async def five() -> AsyncIterator[Annotated[int, "how many"] | Event]:
        yield 1

    for func in (one, two, three, four, five):
        Binding.of(func)


def test_parameters_that_come_from_nowhere() -> None:
    """
    Under a schema of the state, only one parameter that is no field can be the input; a default is none.
    """

    def one(text: str) -> None: ...
    def two(text: str, city: str) -> None: ...
    def with_input(node_input: str, text: str) -> None: ...
    def with_default(text: str = "") -> None: ...

    fields = {"city": str}
    assert arguments(one, "x", state_schema_fields=fields) == {"text": "x"}
    assert arguments(two, "x", {"city": "Rome"}, state_schema_fields=fields) == {"text": "x", "city": "Rome"}
    for func, names in ((two, "'text', 'city'"), (with_input, "'text'"), (with_default, "'text'")):
        with pytest.raises(WorkflowConfigurationError, match=rf"fields of the state \(town\), found {names};"):
            Binding.of(func, state_schema_fields={"town": str})
        Binding.of(func, parameter_binding="node_input", state_schema_fields={"town": str})


def test_a_field_of_the_state_is_never_the_input() -> None:
    """
    Without a value it is missing, whatever the input is.
    """

    def node(city: str) -> None: ...

    with pytest.raises(NodeInputError, match=r"state\['city'\]: missing; write the key before this node runs"):
        arguments(node, "said", state_schema_fields={"city": str})


@pytest.mark.parametrize(
    ("annotation", "field", "fits"),
    [
        (str, str, True),
        (float, int, True),
        (str | None, str, True),
        (Ticket, dict, True),
        (Any, int, True),
        (str, Color, True),
        (str, int, False),
        (str | None, int | None, False),
        (list[int], Ticket, False),
        (bool, float, False),
        (None, int | None, True),
        (int | None, None, True),
        (str | None, None, True),
        (None, int, False),
        (int | None, int | str, True),
    ],
)
def test_an_annotation_that_contradicts_the_field(annotation: Any, field: Any, fits: bool) -> None:
    """
    A parameter that can take no value of its field is refused; one that can take some is not.
    """

    def node(city: Any) -> None: ...

    node.__annotations__["city"] = annotation
    binding = Binding.of(node)
    compiled = Field(Compiler().compile(field, "city"), required=True)
    if fits:
        binding.with_state_fields({"city": field})
        binding.with_state_fields({"city": compiled})
    else:
        with pytest.raises(WorkflowConfigurationError, match=r"node 'node': expected parameter 'city' to take"):
            binding.with_state_fields({"city": compiled})
        with pytest.raises(WorkflowConfigurationError, match="parameter 'city' to take values of the field 'city'"):
            binding.with_state_fields({"city": field})


@pytest.mark.parametrize(
    ("annotation", "field", "takes", "holds"),
    [
        (bool, float, "boolean", "number"),
        (str, int, "string", "number"),
        (list[int], Tree, "array", "object"),
        (Tree, list[Tree], "object", "array"),
        (Literal[1, 2], Literal["a", None], "number", "null or string"),
        (Color, Literal[1, True], "string", "boolean or number"),
        (Tree | list[int], int | str | None, "array or object", "null or number or string"),
        (bool | None, int | None, "boolean or null", "null or number"),
        (dict, tuple[int, ...], "object", "array"),
        (Content | bool, dict, "boolean", "object"),
    ],
)
def test_a_contradiction_is_told_with_the_kinds_of_both(annotation: Any, field: Any, takes: str, holds: str) -> None:
    """
    What the parameter takes and what the field holds stand in the message, in JSON's words.
    """

    def node(city: Any) -> None: ...

    node.__annotations__["city"] = annotation
    with pytest.raises(WorkflowConfigurationError) as caught:
        Binding.of(node, state_schema_fields={"city": field})
    assert str(caught.value) == (
        f"node 'node': expected parameter 'city' to take values of the field 'city' of the state ({holds}), "
        f"found that it takes others only ({takes}); annotate both alike"
    )


def test_a_field_of_a_type_without_json_is_refused() -> None:
    """
    The refusal names the node and the field.
    """

    def node(city: str) -> None: ...

    with pytest.raises(WorkflowConfigurationError, match=r"^node 'node': field 'city' of the state: decimal.Decimal"):
        Binding.of(node, state_schema_fields={"city": Decimal})


# --- what a run yields ------------------------------------------------------------------------------------------------


def collected() -> Collected:
    return Collected(Binding.of(lambda: None, name="n"))


def routed(route: Any, **fields: Any) -> Event:
    state = fields.pop("state", {})
    return Event(actions=EventActions(route=route, state_delta=state), **fields)


def test_a_run_without_items_has_the_output_none() -> None:
    """
    None is skipped, and what gave nothing gave None (W8).
    """
    run = collected()
    assert run.add(None) == ()
    assert (run.output, run.has_output, run.route, run.event) == (None, True, None, None)


def test_words_are_emitted_as_they_come() -> None:
    """
    An event without output and route is not the outcome.
    """
    run, said = collected(), Event(message="hi", state={"a": 1})
    assert run.add(said) == (("emit", said),)
    assert run.add({"b": (1, 2)}) == ()
    assert (run.output, run.has_output, run.event) == ({"b": [1, 2]}, True, None)
    assert type(run.output) is FrozenDict


def test_an_event_with_an_output_is_the_outcome() -> None:
    """
    Its words, state and route are stored with the output, in one event.
    """
    run = collected()
    assert run.add(routed("x", output=[1], message="hi", state={"a": 1})) == ()
    assert (run.output, run.route) == ([1], "x")
    assert run.event == Event(message="hi", state={"a": 1})


@pytest.mark.parametrize(
    "said",
    [
        {"message": "hi"},
        {"error_code": "E"},
        {"error_message": "m"},
        {"custom_metadata": {"a": 1}},
        {"usage_metadata": UsageMetadata(total_token_count=1)},
        {"state": {"k": 1}},
        {"actions": EventActions(escalate=True)},
        {"actions": EventActions(artifact_delta={"f": 0})},
    ],
    ids=lambda said: next(iter(said)),
)
def test_what_is_said_beside_an_outcome_is_kept(said: dict[str, Any]) -> None:
    """
    Each field of an event counts; the output and the route themselves are not said twice.
    """
    run = collected()
    assert run.add(Event(output=1, **said)) == ()
    assert (run.output, run.event) == (1, Event(**said))
    run = collected()
    if "actions" not in said:
        assert run.add(Event(route=["x", "y"], **said)) == ()
        assert (run.route, run.event) == (("x", "y"), Event(**said))
    assert run.add(Event(output=2)) == ()
    assert run.output == 2


def test_an_outcome_alone_says_nothing_else() -> None:
    """
    Without anything beside them, an output and a route leave no event.
    """
    run = collected()
    assert run.add(Event(output=1, route="x")) == ()
    assert (run.output, run.route, run.event, run.has_output) == (1, "x", None, True)


def test_only_a_route_is_no_output() -> None:
    """
    Such a run passes its input on; a list of routes is a tuple.
    """
    run = collected()
    run.add(routed(["x", True, 1]))
    assert (run.output, run.has_output, run.route, run.event) == (None, False, ("x", True, 1), None)
    run.add(5)
    assert (run.output, run.has_output) == (5, True)


def test_the_last_route_wins() -> None:
    """
    Output and routes may come in several events.
    """
    run = collected()
    for item in (routed("a"), 5, routed("b")):
        assert run.add(item) == ()
    assert (run.output, run.route, run.event) == (5, "b", None)


def test_a_second_output_is_refused() -> None:
    """
    Before anything of it is taken, whether it is a value or in an event (W16).
    """
    run = collected()
    run.add(1)
    for second in (2, Event(output=2, state={"a": 1}), routed("x", output=2)):
        with pytest.raises(WorkflowError, match="node 'n': expected one output at most, found a second, 2 after 1"):
            run.add(second)
        assert (run.output, run.route, run.event) == (1, None, None)


def test_what_is_said_keeps_its_order() -> None:
    """
    Where something is said after an event that was kept, its words are said first; its route stays.
    """
    run, after, ask = collected(), Event(message="B"), RequestInput(message="?")
    assert run.add(routed("x", message="A", state={"a": 1})) == ()
    assert run.add(after) == (("emit", Event(message="A", state={"a": 1})), ("emit", after))
    assert (run.route, run.event) == ("x", None)
    assert run.add(Event(output=1, message="C")) == ()
    assert run.add(ask) == (("emit", Event(message="C")), ("ask", ask))
    assert run.add(routed("y", message="D")) == ()
    assert (run.output, run.route, run.event) == (1, "y", Event(message="D"))


def test_of_two_outcomes_the_last_one_keeps_its_words() -> None:
    """
    What the first one says is an event of its own then; its output counts, and its route if the second has none.
    """
    run = collected()
    assert run.add(routed("x", output=1, message="A")) == ()
    assert run.add(routed("y", message="B", state={"a": 1})) == (("emit", Event(message="A")),)
    assert (run.output, run.route, run.event) == (1, "y", Event(message="B", state={"a": 1}))


def test_partial_events() -> None:
    """
    They are shown as they come, and cannot carry what has to be stored (W37).
    """
    run, part = collected(), Event(message="h", partial=True)
    assert run.add(part) == (("emit", part),)
    with pytest.raises(WorkflowError, match="in a partial event, which is not stored"):
        run.add(Event(output=1, partial=True))


def test_outputs_in_events_are_checked_as_others() -> None:
    """
    Also by `output_schema`, and before anything is taken.
    """
    run = Collected(Binding.of(lambda: None, name="n", output_schema=int))
    with pytest.raises(InvalidValueError, match="output of 'n'"):
        run.add(routed("x", output="1"))
    assert (run.has_output, run.route, run.event) == (True, None, None)


def test_questions_are_values() -> None:
    """
    Their payload is frozen JSON, and what cannot be asked is refused.
    """
    ask = RequestInput(interrupt_id="q", message="Send?", payload={"a": (1,)}, response_schema=bool)
    assert ask.payload == {"a": [1]}
    assert type(ask.payload) is FrozenDict
    assert RequestInput() == RequestInput(payload=None)
    for wrong in ({"interrupt_id": ""}, {"message": 3}, {"payload": b""}):
        with pytest.raises(InvalidValueError, match=f"RequestInput.{next(iter(wrong))}"):
            RequestInput(**wrong)
    with pytest.raises(AttributeError):
        ask.message = "Send it?"  # type: ignore[misc]
