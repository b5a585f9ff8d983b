"""
What an answer of a form is while it streams: a prefix of what it will be, of the types it will have, and never stored.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import Event, InMemorySessionService, LlmAgent, RunConfig, Runner, StreamingMode
from minirun.errors import InvalidValueError
from minirun.events import EventActions
from minirun.flows._partial_json import PartialValue
from minirun.models import LlmCapabilities, LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

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


def values_of(text: str) -> list[Any]:
    """The value after each character."""
    partial = PartialValue()
    return [partial.feed(char) for char in text]


@attrs.frozen
class Leg:
    to: str
    seats: int = 1


# --- values -----------------------------------------------------------------------------------------------------------


@given(
    value=st.lists(JSON, max_size=4) | st.dictionaries(TEXTS, JSON, max_size=4),
    ascii=st.booleans(),
    fence=st.booleans(),
)
def test_each_value_is_a_prefix_of_the_next_and_the_last_is_whole(value: Any, ascii: bool, fence: bool) -> None:
    """The value never shrinks, is a prefix of the complete value, and is complete with the last character."""
    text = json.dumps(value, ensure_ascii=ascii)
    found = values_of(f"```json\n{text}\n```" if fence else text)
    assert found[-1] == value
    shown = [each for each in found if each is not None]
    assert all(is_prefix(one, other) for one, other in pairwise(shown))
    assert all(is_prefix(each, value) for each in shown)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2", [1]),
        ("[1, 2,", [1, 2]),
        ('{"a": tr', {}),
        ('{"a": true, "b', {"a": True}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "\\ud83d', {"a": ""}),
        ('{"a": "\\\\u12', {"a": "\\u12"}),
        ('{"a": {"b": [{"c": "d', {"a": {"b": [{"c": "d"}]}}),
        ("I think {", None),
        ('"text', None),
        ('{"a": 1, "a": 2}', {"a": 1}),
        ("[1, NaN, 2]", [1]),
        ('[1, "\\ud83dx", 2]', [1, ""]),
        ("[1] and more", [1]),
        ("[" * 200, None),
        (" " * 20_000 + "[1,", [1]),
    ],
)
def test_an_incomplete_text_has_the_value_of_its_complete_parts(text: str, value: Any) -> None:
    """Incomplete and invalid parts are left out; the value stays the same once the text is not JSON."""
    last = values_of(text)[-1]
    assert last == value if value is not None or text[0] != "[" else last is not None


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
