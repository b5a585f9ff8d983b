"""
What tools return, and what a model is told of it: one reader and one writer of types.

The law: what is read as a type, and written again, is read as the same value. Pydantic's models are types like others.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, NewType, Protocol, TypedDict, TypeVar

import attrs
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import AgentTool, FunctionTool, InvocationContext, LlmAgent, ToolContext
from minirun._json import freeze
from minirun.errors import ArgumentError, InvalidMessageError, InvalidValueError, OutputSchemaError
from minirun.flows._output import OutputSchema
from minirun.flows._written import written
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool

from ..helpers import run_to_end, runner_for
from ..schemas import convert, schema_for
from ..tools.test_schema import allowed, valid_pairs
from ..tools.test_tools import answers


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    sku: str
    when: datetime.date
    total: float = dataclasses.field(init=False, default=9.5)


@attrs.frozen
class Order:
    lines: list[Line]
    colors: frozenset[Color] = frozenset({Color.RED, Color.BLUE})
    _key: int = 7


class Item(pydantic.BaseModel):
    name: str = pydantic.Field(description="what it is called")
    count: int = pydantic.Field(default=1, ge=1)
    due: datetime.date | None = None


class Node(pydantic.BaseModel):
    item: Item
    children: list[Node] = []


class Basket(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    items: list[Item]
    first: Item | None = None
    on: datetime.datetime | None = None
    their_id: str = pydantic.Field(default="x", alias="theirId")


@dataclasses.dataclass
class Parcel:
    weight: int
    marks: list[int] = dataclasses.field(default_factory=list)
    twice: int = dataclasses.field(init=False)
    seal: object = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.weight


@attrs.define
class Crate:
    owner: str
    _open: bool = False
    _label: str = attrs.field(init=False)
    parcels: list[Parcel] = attrs.field(init=False, factory=list)
    lid: str = attrs.field(init=False, eq=False)

    @_label.default
    def _of_owner(self) -> str:
        return f"{self.owner}!"


@dataclasses.dataclass
class Opened:
    name: str
    by: dataclasses.InitVar["int"]  # noqa: UP037  # that is the point
    on: dataclasses.InitVar[datetime.date]

    def __post_init__(self, by: int, on: datetime.date) -> None:
        self.name += f" {by} {on:%Y}"


def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value


class Even(pydantic.BaseModel):
    count: Annotated[int, pydantic.AfterValidator(even)]


@dataclasses.dataclass
class EvenLine:
    count: int

    def __post_init__(self) -> None:
        even(self.count)


@attrs.frozen
class EvenRow:
    count: int = attrs.field(validator=lambda row, field, value: even(value))


class Squared(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def area(self) -> int:
        return self.side**2


class Page(TypedDict):
    orders: list[Order]


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


class Named(Protocol):
    name: str


class Socket:
    """Something that is open."""


class Arbitrary(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    name: str


class WithSocket(Arbitrary):
    socket: Socket | None = None


class WithCallback(Arbitrary):
    callback: Callable[[], int]


class Serialized(Arbitrary):
    socket: Socket

    @pydantic.field_serializer("socket")
    def _as_text(self, value: Socket) -> str:
        return "open"


class Excluded(Arbitrary):
    socket: Socket = pydantic.Field(exclude=True)


class Untyped(Arbitrary):
    socket: Any


T = TypeVar("T")
Word = TypeVar("Word", bound=str)
Whole = TypeVar("Whole", bound=int)
Raw = TypeVar("Raw", bound=bytes)
Either = TypeVar("Either", str, bytes)
Sku = NewType("Sku", str)
Number = NewType("Number", int)
Rank = NewType("Rank", Number)
Level = enum.IntEnum("Level", ["LOW", "HIGH"])
DAY = datetime.date(2024, 5, 1)
ORDER = Order([Line("a", DAY)])
TOLD = {
    "lines": [{"sku": "a", "when": "2024-05-01", "total": 9.5}],
    "colors": ["blue", "red"],
    "key": 7,
}


# --- what is written --------------------------------------------------------------------------------------------------


@given(valid_pairs)
def test_what_is_written_is_read_again_as_the_same(pair: tuple[Any, Any]) -> None:
    """
    A value of a type, written, is JSON, and read as that type it is the same value.
    """
    tp, value = pair
    made = convert(tp, value, "x")
    again = freeze(written(made, "x"))
    assert convert(tp, again, "x") == made


@given(
    st.builds(Parcel, st.integers(-(2**53), 2**53), st.lists(st.integers(0, 9)))
    | st.builds(Crate, st.text(), st.booleans())
)
def test_what_a_class_sets_itself_is_read_again_as_the_same(value: Parcel | Crate) -> None:
    """
    A field with `init=False` is told with the others, and an object that has it is read as it was.
    """
    told = freeze(written([value], "x"), "x")
    assert convert(list[type(value)], told, "x") == [value]  # type: ignore[misc]  # a type that is made while it runs
    assert not allowed(type(value), told[0]), "nobody is asked for it"


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [("twice", 5, "expected 4, found integer 5"), ("seal", "x", "expected nothing, found 'x'")],
)
def test_what_a_class_sets_itself_cannot_be_given_otherwise(name: str, found: object, expected: str) -> None:
    """
    Another value than the class comes to is a problem with its path, and is not left out without a word.
    """
    with pytest.raises(ArgumentError) as caught:
        convert(dict[str, Parcel], {"a": {"weight": 2, name: found}}, "x")
    assert (
        str(caught.value)
        == f"x['a'].{name}: {expected.replace('integer ', '')}; the class sets it itself, leave it out"
    )


def test_the_annotation_of_an_init_var_may_be_a_text() -> None:
    """
    What a constructor takes and does not keep is read as it is annotated, in both ways of writing that.
    """
    assert convert(Opened, {"name": "a", "by": 2, "on": "2024-05-01"}, "x") == Opened("a", 2, DAY)
    assert schema_for(Opened)["properties"]["by"] == {"type": "integer"}
    lost = dataclasses.make_dataclass("Lost", [("by", dataclasses.InitVar("Nowhere"))])  # type: ignore[arg-type]  # a text
    with pytest.raises(TypeError, match=r"the annotation 'Nowhere' of field 'by' of .*Lost"):
        schema_for(lost)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (DAY, "2024-05-01"),
        (datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC), "2024-05-01T12:00:00+00:00"),
        (Color.RED, "red"),
        ({"b", "a"}, ["a", "b"]),
        ({3, 1, 2}, [1, 2, 3]),
        ({("b", 1), ("a", 2)}, [["a", 2], ["b", 1]]),
        (ORDER, TOLD),
        ([ORDER, (DAY, {Color.RED: {1}})], [TOLD, ["2024-05-01", {"red": [1]}]]),
        (collections.ChainMap({"a": DAY}), {"a": "2024-05-01"}),
        (Item(name="pen"), {"name": "pen", "count": 1, "due": None}),
        (
            [Basket(items=[Item(name="pen", due=DAY)])],
            [{"items": [{"name": "pen", "count": 1, "due": "2024-05-01"}], "first": None, "on": None, "theirId": "x"}],
        ),
    ],
)
async def test_what_a_tool_returns_is_told_as_what_it_is(value: Any, told: Any) -> None:
    """
    Dates, enums, sets, classes with fields and models of pydantic are results, also without an annotation, and inside
    of others.
    """
    seen: list[Any] = []

    async def find():  # type: ignore[no-untyped-def]  # that is the point
        return value

    def look(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> None:
        seen.append(tool_response)

    model = ScriptedLlm([call("find"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[find], after_tool_callback=look)
    events, _ = await run_to_end(runner_for(agent))
    [response] = events[1].get_function_responses()
    assert response.response == {"result": told}
    assert seen == [value], "a hook sees what was returned"


async def test_what_is_said_of_a_result_that_comes_later_is_told_in_the_same_way() -> None:
    """
    What a long-running tool returns at first, the hint of its question, is converted as results are.
    """

    async def begin() -> Order:
        return ORDER

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([call("begin")]), tools=[LongRunningFunctionTool(begin)]))
    _, run = await run_to_end(runner)
    assert run.pending[0].hint == TOLD


async def test_a_dict_with_such_values_is_the_response_itself() -> None:
    """
    A dict is the response as it is, whatever has to be converted in it.
    """

    async def find() -> dict[str, datetime.date]:
        return {"day": DAY}

    assert await answers([find], call("find")) == [{"day": "2024-05-01"}]


async def test_what_has_no_form_is_told_with_its_path() -> None:
    """
    Without an annotation nobody knows before the call: the model is told which value has no form.
    """
    loop: list[Any] = []
    loop.append({"again": loop, "day": DAY})

    async def find(which: int):  # type: ignore[no-untyped-def]  # that is the point
        return [{"a": [DAY, b"x"]}, {(1, 2): DAY}, loop][which]

    found = await answers([find], call("find", which=0), call("find", which=1), call("find", which=2))
    texts = [each["error"]["message"] for each in found]
    assert texts[0].startswith("result of 'find'['a'][1]: expected a value that JSON has a form for, found bytes; ")
    assert texts[1] == "result of 'find': expected keys that are strings, found (1, 2)"
    assert texts[2].endswith("nested deeper than 100 levels; flatten it")


def test_a_set_of_integers_that_python_does_not_write_is_a_list() -> None:
    """
    Sorting a set asks for no digits: whether a number can be stored is told by who stores it.
    """
    large = 10**5000
    assert written({large, 1}, "x") == [1, large]
    assert written({(large,)}, "x") == [[large]]


# --- what is refused when the tool is made ----------------------------------------------------------------------------


def returning(tp: Any) -> Callable[[], Any]:
    def find() -> None:
        """Return what its annotation says."""

    find.__annotations__["return"] = tp
    return find


@dataclasses.dataclass
class Unknown:
    owner: Unseen  # type: ignore[name-defined]  # noqa: F821  # as under `if TYPE_CHECKING:`
    name: str


@pytest.mark.parametrize("tp", ["Unseen", "list[Unseen]", "datetime.Unseen", "list[", "", Unknown, bytes])
async def test_a_result_is_written_as_what_it_is_whatever_its_annotation(tp: Any) -> None:
    """
    The annotation of a result is not read: the result is written by its value.
    """

    async def find():  # type: ignore[no-untyped-def]  # annotated below
        return [DAY]

    find.__annotations__["return"] = tp
    assert await answers([find], call("find")) == [{"result": ["2024-05-01"]}]


# --- pydantic ---------------------------------------------------------------------------------------------------------


def test_a_pydantic_model_is_described_by_its_own_schema() -> None:
    """
    The schema of a parameter is the model's own; what it refers to stands among the definitions of the whole.
    """

    def plan(basket: Basket, others: list[Item], root: Node | None = None) -> None:
        """Plan."""

    schema = FunctionTool(plan).declaration.parameters
    assert schema["properties"]["others"]["items"]["properties"]["name"]["description"] == "what it is called"
    assert schema["properties"]["basket"]["properties"]["first"]["anyOf"][0] == {"$ref": "#/$defs/Item"}
    assert schema["properties"]["root"]["anyOf"][0] == {"$ref": "#/$defs/Node"}
    assert sorted(schema["$defs"]) == ["Item", "Node"]
    assert schema["required"] == ["basket", "others"]


def test_two_pydantic_models_of_one_name_stay_apart() -> None:
    """
    Models that refer to different classes of the same name have a definition each.
    """
    other = pydantic.create_model("Item", other=(int, ...))
    holder = pydantic.create_model("Holder", item=(other, ...))
    pair_of: Any = tuple
    schema = schema_for(pair_of[Node, holder])
    [node, held] = schema["prefixItems"]
    assert node == {"$ref": "#/$defs/Node"}
    assert held["properties"]["item"] == {"$ref": "#/$defs/Item_2"}
    assert list(schema["$defs"]["Item_2"]["properties"]) == ["other"]
    assert list(schema["$defs"]["Item"]["properties"]) == ["name", "count", "due"]


async def test_pydantic_models_are_parameters_and_results() -> None:
    """
    A tool gets models, nested, optional and in lists, and returns them; a strict one takes text for a date, too.
    """
    got: list[Any] = []

    def plan(basket: Basket, extra: list[Item] | None = None, either: int | Item = 1) -> Basket:
        got.append((basket, extra, either))
        return basket

    told = {"items": [{"name": "pen", "due": "2024-05-01"}], "on": "2024-05-01T12:00:00Z", "theirId": "b"}
    [found] = await answers([plan], call("plan", basket=told, extra=[{"name": "cup"}], either={"name": "mug"}))
    [(basket, extra, either)] = got
    assert (basket.items[0].due, basket.their_id, extra, either) == (DAY, "b", [Item(name="cup")], Item(name="mug"))
    assert convert(Basket, found["result"], "x") == basket


async def test_what_does_not_fit_a_pydantic_model_is_told_with_its_path() -> None:
    """
    The problems that the model's own validator has found are told with their paths, and what was found there.
    """

    def plan(basket: Basket, extra: list[Item] | None = None) -> None:
        """Plan."""

    wrong = call("plan", basket={"items": [{"count": 0}], "theirId": 5}, extra=[7])
    [found] = await answers([plan], wrong)
    assert found["error"]["type"] == "ArgumentError"
    assert found["error"]["message"].splitlines() == [
        "basket.items[0].name: Field required",
        "basket.items[0].count: Input should be greater than or equal to 1, found 0",
        "basket.theirId: Input should be a valid string, found 5",
        "extra[0]: expected Item object, found integer 7",
    ]


async def test_pydantic_models_are_forms_of_answers() -> None:
    """
    `output_schema` takes a model: a wrong answer is refused, and the value of a right one has what the model adds.
    """
    good = '{"item": {"name": "pen"}, "children": [{"item": {"name": "cup"}}]}'
    model = ScriptedLlm(['{"item": {"count": 1}}', good])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, output_schema=Node)))
    assert events[0].error_message == "item.name: Field required"
    item = {"name": "pen", "count": 1, "due": None}
    cup = {"item": {**item, "name": "cup"}, "children": []}
    assert run.answer is not None
    assert run.answer.output == {"item": item, "children": [cup]}

    agent = LlmAgent(name="a", model=ScriptedLlm(["[]"]), output_schema=list[Node] | Item, output_retries=0)
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert run.answer.output == []
    bad = LlmAgent(name="a", model=ScriptedLlm(["{}"]), output_schema=Item, output_retries=0)
    with pytest.raises(OutputSchemaError, match="name: Field required"):
        await run_to_end(runner_for(bad))


async def test_a_pydantic_model_is_what_an_agent_is_given() -> None:
    """
    `input_schema` takes a model: another agent's model is told its fields, and what it sends is checked.
    """
    inner = LlmAgent(name="inner", model=ScriptedLlm(["ok"]), input_schema=Item)
    outer = ScriptedLlm([call("inner", count=2), call("inner", name="pen"), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="outer", model=outer, tools=[AgentTool(inner)])))
    assert outer.requests[0].config.tools[0].parameters["required"] == ["name"]
    [first, second] = [each.response for event in events for each in event.get_function_responses()]
    assert first["error"]["message"] == "name: Field required"
    assert second == {"result": "ok"}


async def test_a_pydantic_model_is_the_form_of_a_humans_answer() -> None:
    """
    `request_input(response_schema=)` takes a model: what does not fit its schema is refused before it is stored.
    """
    got: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        got.append(await ctx.request_input("What?", response_schema=Item))

    runner = runner_for(logic)
    _, run = await run_to_end(runner)
    with pytest.raises(InvalidMessageError, match="count"):
        await run_to_end(runner, run.pending[0].reply({"name": "pen", "count": 0}))
    await run_to_end(runner, run.pending[0].reply({"name": "pen"}))
    assert got == [{"name": "pen"}]


@pytest.mark.parametrize("form", [Even, list[Even], EvenLine, EvenRow])
async def test_what_only_a_validator_refuses_is_asked_again(form: Any) -> None:
    """
    An answer that fits the schema, and that a validator refuses, is no answer: the question is asked again with the
    reason, as often as it takes, and the logic gets what its class accepts.
    """
    got: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        got.append(await ctx.request_input("How many?", response_schema=form))

    def reply(count: int) -> Any:
        return [{"count": count}] if form == list[Even] else {"count": count}

    runner = runner_for(logic)
    _, run = await run_to_end(runner)
    for count in (1, 1, 3):
        _, run = await run_to_end(runner, run.pending[0].reply(reply(count)))
        assert (run.status, got) == ("paused", [])
        [question] = run.pending
        assert question.hint.startswith("How many?\n\n(The answer before did not fit: ")
        assert f"{count} is odd" in question.hint
    _, run = await run_to_end(runner, run.pending[0].reply(reply(2)))
    assert (run.status, got) == ("completed", [reply(2)])


@pytest.mark.parametrize("kind", [WithSocket, WithCallback])
def test_a_pydantic_model_that_could_not_be_told_is_refused(kind: Any) -> None:
    """
    A model of `arbitrary_types_allowed` with a field that has no JSON schema is refused as the parameter of a tool when
    the tool is made, on one line.
    """

    def take(holder) -> None:  # type: ignore[no-untyped-def]  # annotated below
        """Take it."""

    take.__annotations__["holder"] = kind
    with pytest.raises(TypeError, match=r"parameter 'holder' of .*take\(\): With\w+ has no JSON schema \(.*\)$"):
        FunctionTool(take)


@pytest.mark.parametrize("kind", [Serialized, Excluded, Untyped])
async def test_a_pydantic_model_that_can_be_told_makes_a_tool(kind: Any) -> None:
    """
    One that says how such a field is written, or leaves it out, is a result like others.
    """

    async def find():  # type: ignore[no-untyped-def]  # annotated below
        return kind(name="a", socket=Socket()) if kind is not Untyped else Untyped(name="a", socket="open")

    find.__annotations__["return"] = kind
    told = {"name": "a"} if kind is Excluded else {"name": "a", "socket": "open"}
    assert await answers([find], call("find")) == [{"result": told}]


def test_an_answer_with_what_its_model_computes_is_read_again() -> None:
    """
    What a form stores has no computed fields, which a model that forbids others would refuse; a result has them.
    """
    form = OutputSchema.of(Squared)
    value = form.parse_text('{"side": 3}').value
    assert value == {"side": 3}
    assert convert(Squared, value, "x") == Squared(side=3)
    assert written(Squared(side=3), "x") == {"side": 3, "area": 9}


def test_a_pydantic_model_without_a_schema_is_refused() -> None:
    """
    A model with a field that has no JSON schema is refused by name when the tool is made.
    """
    holder = pydantic.create_model(
        "Holder", __config__=pydantic.ConfigDict(arbitrary_types_allowed=True), socket=(Socket, ...)
    )

    def take(holder) -> None:  # type: ignore[no-untyped-def]  # annotated below
        """Take it."""

    take.__annotations__["holder"] = holder
    with pytest.raises(TypeError, match=r"parameter 'holder' of .*take\(\): Holder has no JSON schema"):
        FunctionTool(take)
    with pytest.raises(InvalidValueError, match="x: Holder cannot be written as JSON"):
        written(holder(socket=Socket()), "x")


def test_a_form_of_pydantic_models_reads_what_it_has_written() -> None:
    """
    What an answer came to fits the form again, for it is read from the log like an answer.
    """
    form = OutputSchema.of(list[Node])
    value = form.parse_text('[{"item": {"name": "pen"}, "children": [{"item": {"name": "cup"}}]}]').value
    assert form.parse_text(form.dump(value)).value == value


# --- sets -------------------------------------------------------------------------------------------------------------


class Tagged(pydantic.BaseModel):
    """A model with sets at several depths."""

    tags: set[int]
    more: list[dict[str, frozenset[int]]] = []  # pydantic copies it
    own: list[int] = []


@dataclasses.dataclass
class Tray:
    """A class with a set."""

    tags: set[int]


@attrs.frozen
class Box:
    """Another one."""

    tags: frozenset[int]


def holders(tags: set[int]) -> list[Any]:
    """What may hold a set."""
    frozen = frozenset(tags)
    return [
        tags, frozen, {"a": [tags]}, {(1, 2), (3, 4)}, {frozen, frozenset([1])}, Tray(tags), Box(frozen),
        Tagged(tags=tags, more=[{"a": frozen}], own=[8, 0, 3]), [Tagged(tags=set(), more=[{}, {"b": frozen}])],
    ]  # fmt: skip


def test_a_set_is_written_in_one_order() -> None:
    """Whatever its hashes and how it was made: processes differ in them, and what they write is compared."""
    one, other = set([0, 8, 3]), set([8, 0, 3])  # noqa: C405 # two meet in one place; a literal would be put in order
    assert list(one) != list(other), "expected sets that are equal and have another order"
    for first, second in zip(holders(one), holders(other), strict=True):
        assert freeze(written(first, "result")) == freeze(written(second, "result"))
        assert repr(written(first, "result")) == repr(written(second, "result"))
    tagged = written(Tagged(tags=other, own=[8, 0, 3]), "result")
    assert (sorted(tagged["tags"]), tagged["own"]) == ([0, 3, 8], [8, 0, 3])
