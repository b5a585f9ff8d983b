"""
What an answer of a form is while it streams: a prefix of what it will be, of the types it will have, and never stored.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from enum import Enum
from itertools import pairwise
from typing import Any, TypedDict

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import Event, InMemorySessionService, LlmAgent, RunConfig, Runner, StreamingMode
from minirun._json import FrozenDict, FrozenList
from minirun.errors import InvalidValueError
from minirun.events import EventActions
from minirun.flows._output import OutputSchema
from minirun.flows._partial_json import PartialValue
from minirun.flows._partial_shapes import shape_of
from minirun.models import LlmCapabilities, LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..examples import examples
from ..helpers import PLACE
from ..models.test_streamed_answers import APIS, Block

TEXTS = st.text(st.sampled_from('aß😀 \n"\\/\u2028{}[],:1'), max_size=5)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def is_prefix(part: Any, whole: Any) -> bool:
    """Whether *part* is a beginning of *whole*: its items and keys are there, equal but for the last one."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        heads = part[:-1] == whole[: max(0, len(part) - 1)]
        return len(part) <= len(whole) and heads and (not part or is_prefix(part[-1], whole[len(part) - 1]))
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_prefix(part[key], whole[key]) for key in part)
    return type(part) is type(whole) and bool(part == whole)


def values_of(text: str, tp: Any = None) -> list[Any]:
    """The value after each character."""
    partial = PartialValue(shape_of({} if tp is None else tp))
    found = []
    for char in text:
        partial.feed(char)
        found.append(partial.value)
    return found


@given(value=JSON, ascii=st.booleans(), indent=st.sampled_from([None, 1]), fence=st.sampled_from(["", "```json\n"]))
def test_a_text_cut_anywhere_gives_a_prefix_of_its_value(
    value: Any, ascii: bool, indent: int | None, fence: str
) -> None:
    """Whatever JSON it is, however it is written; and each value is a prefix of the next one."""
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    found = values_of(f"{fence}{text}{chr(10)}{fence[:3]} ")
    shown = [each for each in found if each is not None]
    assert all(is_prefix(each, value) for each in shown)
    assert all(is_prefix(a, b) for a, b in pairwise(shown))
    assert found[-1] == value
    assert type(found[-1]) in (str, int, float, bool, type(None), FrozenList, FrozenDict)


@given(value=JSON, data=st.data())
def test_a_value_does_not_depend_on_where_its_text_is_cut(value: Any, data: st.DataObject) -> None:
    """In one piece, in two or by characters: the same comes of it, with the depth that frozen values know of."""
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))[: data.draw(st.integers(0, 200))]
    at = data.draw(st.integers(0, len(text)))
    partial = PartialValue()
    partial.feed(text[:at])
    partial.feed(text[at:])
    assert partial.value == (values_of(text) or [None])[-1]
    if isinstance(partial.value, (list, dict)):
        assert getattr(partial.value, "depth", None) == depth(partial.value)


def depth(value: Any) -> int:
    """How deep it is nested."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(depth, items), default=0)


@given(text=st.text(st.sampled_from('[]{}",:\\u0aD8+-.1eE truefalsn`\n\x00\ud800'), max_size=30))
def test_a_text_that_is_no_json_never_raises(text: str) -> None:
    """What was good before stays; where the whole text is JSON, the value is that."""
    found = values_of(text + " ")
    shown = [each for each in found if each is not None]
    assert all(is_prefix(a, b) for a, b in pairwise(shown))


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("[1, 2 3]", [1, 2]),
        ('{"a": 1, "a": 2}', {"a": 1}),
        ('{"a": "x\ny"}', {"a": "x"}),
        (r'["\ud800 x"]', [""]),
        ("[1, NaN]", [1]),
        ("[1, 1e999]", [1]),
        ("[01]", []),
        ("Here it is: [1]", None),
        ("[" * 200, None),
    ],
)  # fmt: skip
def test_a_value_stays_as_it_was_where_its_text_goes_wrong(text: str, last: Any) -> None:
    """It is what there was before; nothing after it counts."""
    found = values_of(text + " , 5]}")[-1]
    assert (found == last) if last is not None else (found is None or depth(found) == 99)


class Cabin(Enum):
    ECONOMY = "eco"
    BUSINESS = "bus"


@attrs.frozen
class Leg:
    to: str
    seats: int = 1


@attrs.frozen
class Flight:
    number: str
    price: float
    day: date
    cabin: Cabin = Cabin.ECONOMY
    legs: list[Leg] = attrs.field(factory=list)
    note: str | None = None


class Row(TypedDict, total=False):
    name: str
    tags: list[str]
    either: int | str


LEGS = st.lists(st.fixed_dictionaries({"to": TEXTS}, optional={"seats": st.integers(0, 9)}), max_size=2)
FLIGHTS = st.lists(
    st.fixed_dictionaries(
        {"number": TEXTS, "price": st.integers(0, 999) | st.floats(0, 9), "day": st.just("2026-11-23")},
        optional={"cabin": st.sampled_from(["eco", "bus"]), "legs": LEGS, "note": st.none() | TEXTS},
    ),
    max_size=3,
)
ROWS = st.dictionaries(
    TEXTS,
    st.fixed_dictionaries({}, optional={"name": TEXTS, "tags": st.lists(TEXTS, max_size=2), "either": st.just(3)}),
    max_size=3,
)


@pytest.mark.parametrize(("tp", "answers"), [(list[Flight], FLIGHTS), (dict[str, Row], ROWS)], ids=["rows", "by key"])
@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_typed_answer_is_a_prefix_of_its_output(tp: Any, answers: Any, data: st.DataObject) -> None:
    """What is complete is what the output has in its place: a float for 3, the defaults of a complete object."""
    text = json.dumps(data.draw(answers))
    output = OutputSchema.of(tp).parse_text(text).value
    found = values_of(text, tp)
    assert all(is_prefix(each, output) for each in found if each is not None)
    assert found[-1] == output


def test_a_row_is_seen_as_it_grows() -> None:
    """Texts grow, numbers and dates come when they are complete, and the complete object has its defaults."""
    text = '[{"number": "TP 571", "price": 80, "day": "2026-11-23"}'
    found = values_of(text, list[Flight])
    cuts = {text.index(", "): 0, text.index("571"): 0, text.index("80") + 2: 0, len(text) - 2: 0}
    assert [found[at] for at in cuts] == [
        [{"number": "TP 571"}],
        [{"number": "TP 5"}],
        [{"number": "TP 571", "price": 80.0}],
        [{"number": "TP 571", "price": 80.0, "day": "2026-11-23"}],
    ]
    assert type(found[text.index("80") + 2][0]["price"]) is float
    assert found[-1] == [
        {"number": "TP 571", "price": 80.0, "day": "2026-11-23", "cabin": "eco", "legs": [], "note": None}
    ]


def test_what_does_not_fit_its_type_stops_the_value_there() -> None:
    """A program that takes a price for a number never gets a text."""
    assert values_of('[{"price": "much", "number": "x"}]', list[Flight])[-1] == [{}]
    assert values_of('[{"number": 3, "price": 1}]', list[Flight])[-1] == [{}]
    assert values_of('{"number": "x"}', list[Flight])[-1] is None


def test_a_pydantic_model_is_seen_as_it_grows() -> None:
    """Its fields come like those of other classes; what it reads more freely comes with the whole object."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", name=(str, ...), price=(float, ...), count=(int, 3))
    found = values_of('{"name": "ab", "price": "4", "count": 2}', model)
    assert found[10] == {"name": "a"}
    assert found[-2] == {"name": "ab"}
    assert found[-1] == {"name": "ab", "price": 4.0, "count": 2}


def test_taking_a_text_costs_what_it_is_long() -> None:
    """Four times the text takes some four times as many calls, and no piece of it is looked at with all before it."""

    def calls(rows: int) -> int:
        text = json.dumps([{"to": f"city {number}", "seats": number} for number in range(rows)])
        partial, counted = PartialValue(shape_of(list[Leg])), 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        for at in range(0, len(text), 20):
            sys.setprofile(count)
            try:
                partial.feed(text[at : at + 20])
                _ = partial.value
            finally:
                sys.setprofile(None)
            assert len(partial._text) <= 40
        assert partial.value is not None
        return counted

    assert calls(800) < 4.5 * calls(200)


# --- in runs ----------------------------------------------------------------------------------------------------------


def pieces(text: str, size: int = 7) -> list[str]:
    """A text in pieces."""
    return [text[at : at + size] for at in range(0, len(text), size)]


async def partials(agent: LlmAgent, streaming: bool = True) -> tuple[list[Event], list[Event]]:
    """The partial events of a run and the others."""
    service = InMemorySessionService()
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    config = RunConfig(streaming_mode=StreamingMode.SSE if streaming else StreamingMode.NONE)
    async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
        events = [event async for event in run]
    return [event for event in events if event.partial], [event for event in events if not event.partial]


LEG_TEXT = '{"to": "Porto", "seats": 2}'
LEGS_TEXT = f"[{LEG_TEXT}, {LEG_TEXT}]"


async def test_an_answer_in_text_has_its_value_so_far() -> None:
    """Each partial event has more of it; those that are stored have an output, and no part of one."""
    agent = LlmAgent(name="a", model=ScriptedLlm([pieces(LEGS_TEXT)]), output_schema=list[Leg])
    shown, stored = await partials(agent)
    assert [event.partial_output for event in shown[:4]] == [[{}], [{"to": "Porto"}], [{"to": "Porto"}], [
        {"to": "Porto", "seats": 2}
    ]]  # fmt: skip
    assert [event.partial_output for event in stored] == [None] * len(stored)
    assert shown[-1].partial_output == stored[-1].output == [{"to": "Porto", "seats": 2}] * 2


@pytest.mark.parametrize(
    ("tp", "args", "value"),
    [
        (Leg, LEG_TEXT, {"to": "Porto", "seats": 2}),
        (list[Leg], f'{{"result": {LEGS_TEXT}}}', [{"to": "Porto", "seats": 2}] * 2),
    ],
    ids=["object", "list"],
)
async def test_an_answer_by_a_tool_has_its_value_so_far(tp: Any, args: str, value: Any) -> None:
    """Pieces of the arguments are read, and nobody is shown half a call."""
    said = [Part(function_call=FunctionCall(name="set_model_response", args_text=piece)) for piece in pieces(args)]
    done = LlmResponse(
        content=Content(role="model", parts=[call("set_model_response", **json.loads(args))]), partial=False
    )
    model = ScriptedLlm([["I know: ", *said, done]], capabilities=LlmCapabilities(output_schema=False))
    shown, stored = await partials(LlmAgent(name="a", model=model, output_schema=tp))
    assert all(is_prefix(event.partial_output, value) for event in shown if event.partial_output is not None)
    assert shown[0].text == "I know: "
    assert not any(event.get_function_calls() for event in shown)
    assert shown[-1].partial_output == stored[-1].output == value
    assert [event.partial_output for event in stored] == [None] * len(stored)


async def test_agents_without_a_form_and_runs_without_streams_have_none() -> None:
    """JSON that nobody has asked for is a text."""
    shown, _ = await partials(LlmAgent(name="a", model=ScriptedLlm([pieces(LEGS_TEXT)])))
    assert [event.partial_output for event in shown] == [None] * len(shown)
    agent = LlmAgent(name="a", model=ScriptedLlm([pieces(LEGS_TEXT)]), output_schema=list[Leg])
    assert (await partials(agent, streaming=False))[0] == []


async def test_a_model_that_answers_again_begins_anew() -> None:
    """The second answer's parts do not come after those of the first."""
    agent = LlmAgent(name="a", model=ScriptedLlm([pieces("[{]"), pieces(LEGS_TEXT)]), output_schema=list[Leg])
    shown, _ = await partials(agent)
    assert shown[-1].partial_output == [{"to": "Porto", "seats": 2}] * 2


def test_only_partial_events_have_one() -> None:
    """An event that would be stored cannot be given one."""
    assert Event(partial=True, partial_output=[1]).partial_output == [1]
    with pytest.raises(InvalidValueError, match="partial_output"):
        Event(partial_output=[1], actions=EventActions())


@pytest.mark.parametrize("name", ["openai", "responses", "anthropic"])
@given(args=st.dictionaries(TEXTS, JSON, max_size=3), length=st.integers(1, 5))
def test_apis_show_the_arguments_of_the_answering_call_as_they_come(name: str, args: Any, length: int) -> None:
    """Their pieces are those of the arguments' JSON, however it is cut; those of another call are not shown."""
    wire, encode, _ = APIS[name]

    def cut(text: str) -> list[str]:
        return [text[start : start + length] for start in range(0, len(text), length)]

    assembler, shown = wire.assembler(True), []
    for event in encode([Block("call", "other", args, "1"), Block("call", "set_model_response", args, "2")], cut):
        shown += [part.function_call for part in assembler.feed(event) if part.function_call is not None]
    assert {each.name for each in shown} == {"set_model_response"}
    assert json.loads("".join(each.args_text or "" for each in shown)) == args


@pytest.mark.parametrize("text", ["[null]", "[1]", '["a"]', "[[]]"])
def test_what_is_no_object_where_a_typed_dict_belongs_shows_nothing(text: str) -> None:
    """And raises nothing: the whole answer says what is wrong with it."""
    value = PartialValue(shape_of(list[Row]))
    value.feed(text)
    assert value.value == []
