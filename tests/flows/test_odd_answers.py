"""
What providers, and servers that only speak like them, send and should not: it is read, or told as a ModelError.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import Event, LlmAgent, RunConfig, StreamingMode
from minirun.errors import (
    ConfigurationError,
    ContextTooLongError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
)
from minirun.models import LlmRequest, LlmResponse
from minirun.models._adapter import Redactor
from minirun.models._wire import Wire
from minirun.models._wire_anthropic import MessagesWire
from minirun.models._wire_gemini import GeminiWire
from minirun.models._wire_openai_chat import ChatWire
from minirun.models._wire_openai_responses import ResponsesWire
from minirun.models.openai import OpenAIChat
from minirun.testing import ScriptedLlm
from minirun.types import Blob, Content, FunctionCall, FunctionResponse, Part

from ..helpers import run_to_end, runner_for, stored_events
from ..provider_servers.server import Reply
from ..wire_models import APIS, TEXT, Api, answer, ask, playing, request, streamed, whole

# How long a server says nothing until it is given up: enough for the first request on a busy machine.
STALL_MS = 3000

WIRES: list[Wire] = [ChatWire(), ChatWire((), "compatible"), MessagesWire(), ResponsesWire(), GeminiWire()]

# --- any JSON at all --------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "text", "thinking", "redacted_thinking", "tool_use", "message", "message_start", "message_delta",
        "content_block_start", "content_block_delta", "text_delta", "thinking_delta", "signature_delta", "stop",
        "input_json_delta", "citations_delta", "message_stop", "refusal", "tool_calls", "content_filter", "{}",
        "response.output_text.delta", "response.output_item.done", "response.completed", "function_call", "\ud800",
    ]
)  # fmt: skip
KEYS = st.sampled_from(
    [
        "type", "index", "content_block", "delta", "message", "usage", "content", "stop_reason", "citation",
        "citations", "text", "thinking", "signature", "data", "name", "id", "input", "partial_json", "input_tokens",
        "output_tokens", "choices", "finish_reason", "tool_calls", "function", "arguments", "reasoning", "refusal",
        "prompt_tokens", "completion_tokens_details", "model", "stop_details", "explanation", "error", "code",
        "output_index", "content_index", "item", "item_id", "call_id", "response", "output", "status",
    ]
)  # fmt: skip
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**4100) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
EVENTS = st.lists(st.dictionaries(KEYS, ODD, max_size=5), max_size=6)


def is_storable(response: LlmResponse) -> bool:
    """Whether the event of a response can be written and read back."""
    names = ("content", "finish_reason", "error_code", "error_message", "usage_metadata", "model_version")
    event = Event(author="a", **{name: getattr(response, name) for name in (*names, "citation_metadata")})
    return Event.from_json(event.to_json()) == event


@pytest.mark.parametrize("wire", WIRES)
@given(EVENTS, st.booleans())
def test_any_events_are_an_answer_or_a_model_error(wire: Wire, events: list[Any], shows: bool) -> None:
    """
    Whatever JSON a stream is made of, it ends in a response that can be stored, or in an error of the family.
    """
    assembler = wire.assembler(shows)
    try:
        for event in events:
            assembler.feed(event)
        assembler.end()
    except ModelError:
        return
    assert is_storable(assembler.response("req"))


@pytest.mark.parametrize("wire", WIRES)
@given(st.dictionaries(KEYS, ODD, max_size=5))
def test_any_body_is_an_answer_or_a_model_error(wire: Wire, body: Any) -> None:
    """
    Whatever JSON a whole answer is, it is a response that can be stored, or an error of the family.
    """
    assembler = wire.assembler(True)
    try:
        assembler.feed_whole(body)
    except ModelError:
        return
    assert is_storable(assembler.response("req"))


# --- calls ------------------------------------------------------------------------------------------------------------


def chunk(*calls: Any, reason: str | None = None) -> Any:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": reason}]}


def piece(name: str, args: Any, **others: Any) -> Any:
    return {"function": {"name": name, "arguments": args}, **others}


def calls_in(wire: Wire, *events: Any) -> list[tuple[str, Any, str | None]]:
    assembler = wire.assembler(True)
    for event in events:
        assembler.feed(event)
    content = assembler.response().content
    return [(call.name, dict(call.args), call.args_text) for call in content.calls] if content is not None else []


@pytest.mark.parametrize(
    "about",
    [
        ({}, {}),  # neither an index nor an id
        ({"index": 0}, {"index": 0}),
        ({"index": 0, "id": "1"}, {"index": 0, "id": "1"}),
        ({"index": 0, "id": "1"}, {"index": 0, "id": "2"}),
        ({"index": 0, "id": "1"}, {"index": 1, "id": "1"}),
        ({"index": None, "id": None}, {"index": None, "id": None}),
        ({"index": []}, {"index": {}}),
    ],
)
@pytest.mark.parametrize("second", ["add", "now"])
def test_calls_are_told_apart_however_a_server_counts_them(about: tuple[Any, Any], second: str) -> None:
    """
    Whole calls are calls of their own, also where index and id are missing or the same for all.
    """
    first, last = piece("add", '{"a":1}', **about[0]), piece(second, '{"b":2}', **about[1])
    expected = [("add", {"a": 1}, None), (second, {"b": 2}, None)]
    assert calls_in(ChatWire(), chunk(first), chunk(last)) == expected
    assembler = ChatWire().assembler(True)
    assembler.feed_whole({"choices": [{"message": {"tool_calls": [first, last]}, "finish_reason": "tool_calls"}]})
    content = assembler.response().content
    assert content is not None
    assert [(call.name, dict(call.args), call.args_text) for call in content.calls] == expected


def test_a_server_may_repeat_a_name_in_every_piece() -> None:
    """
    Pieces of one call stay one call where each has its name and id.
    """
    pieces = [piece("add", text, index=0, id="1") for text in ('{"a"', ':{"b":1}', ',"c":2}', "")]
    assert calls_in(ChatWire(), *map(chunk, pieces)) == [("add", {"a": {"b": 1}, "c": 2}, None)]


def test_arguments_may_be_an_object_or_a_text() -> None:
    """
    Chat completions' text may be an object and Anthropic's object a text; what no store keeps stays as text.
    """
    assert calls_in(ChatWire(), chunk(piece("add", {"a": 1}, index=0))) == [("add", {"a": 1}, None)]
    [(_, args, text)] = calls_in(ChatWire(), chunk(piece("add", {"a": float("inf")}, index=0)))
    assert (args, text is not None) == ({}, True)
    block = {"type": "tool_use", "id": "t", "name": "add", "input": '{"a":1'}
    event = {"type": "content_block_start", "index": 0, "content_block": block}
    assert calls_in(MessagesWire(), event) == [("add", {}, '{"a":1')]


def test_blocks_with_one_index_stay_apart() -> None:
    """
    A block that starts at the index of another, as some servers have it, does not swallow its call.
    """
    text = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}}
    block = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
    call = {"type": "content_block_start", "index": 0, "content_block": block}
    delta = {"type": "input_json_delta", "partial_json": '{"a":1}'}
    more = {"type": "content_block_delta", "index": 0, "delta": delta}
    assert calls_in(MessagesWire(), text, call, more) == [("add", {"a": 1}, None)]


def repeated_in_responses() -> list[Any]:
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "add", "arguments": '{"a":1}'}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    other = {**done, "output_index": 1, "item": {**item, "id": "fc_2"}}
    end = {"type": "response.completed", "response": {"status": "completed", "output": [item, other["item"], item]}}
    return [done, done, other, end]


def repeated_in_messages(*indexes: int) -> list[Any]:
    block = {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}
    blocks = [{"type": "content_block_start", "index": index, "content_block": block} for index in indexes]
    return [*blocks, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]


def spelled(*args: str) -> list[Any]:
    calls = (piece("add", text, index=at, id="c") for at, text in enumerate(args))
    return [chunk(*calls, reason="tool_calls")]


CALL = {"functionCall": {"name": "add", "args": {"a": 1}, "id": "c"}}
REPEATED: list[tuple[str, list[Any]]] = [
    ("openai", [chunk(piece("add", '{"a":1}', index=0, id="c"))] * 2 + [chunk(reason="tool_calls")]),
    ("openai", [chunk(piece("add", '{"a":1}', index=0))] * 2 + [chunk(reason="tool_calls")]),
    ("openai", [chunk(*(piece("add", '{"a":1}', index=at, id="c") for at in (0, 1)), reason="tool_calls")]),
    ("openai", spelled('{"a":1}', '{"a":1.0}')),
    ("openai", spelled('{"a":1,"b":{"c":2,"d":[3]}}', '{"b": {"d": [3], "c": 2}, "a": 1}')),
    ("openai", spelled("", '{"a":1}', "{}")),
    ("responses", repeated_in_responses()),
    ("anthropic", repeated_in_messages(0, 0)),
    ("anthropic", repeated_in_messages(0, 1)),
    ("gemini", [{"candidates": [{"content": {"parts": [CALL, CALL]}}]}, {"candidates": [{"finishReason": "STOP"}]}]),
]


@pytest.mark.parametrize(("name", "events"), REPEATED)
async def test_a_call_that_a_server_repeats_is_made_once(name: str, events: list[Any]) -> None:
    """
    A call that comes again in the same response, with its id or in its place, is stored and made once.
    """
    made: list[int] = []

    async def add(a: int, b: dict[str, Any] | None = None) -> None:
        """Add."""
        made.append(a)

    said = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    async with playing(APIS[name], Reply([said.encode()]), streamed(APIS[name].text)) as (model, _):
        agent = LlmAgent(name="a", model=model, tools=[add])
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        stored, _ = await run_to_end(runner_for(agent), run_config=config)
    assert made == [1]
    assert [len(event.get_function_calls()) for event in stored if not event.partial] == [1, 0, 0]


@pytest.mark.parametrize("args", [('{"a":1}', '{"a":true}'), ('{"a":[1,2]}', '{"a":[2,1]}')])
def test_calls_with_one_id_and_different_arguments_are_different(args: tuple[str, str]) -> None:
    """
    A boolean is no number, and the order of a list counts.
    """
    assert len(calls_in(ChatWire(), *spelled(*args))) == 2


ADD = {"type": "tool_use", "id": "t", "name": "add", "input": {}}


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        (ChatWire(), [chunk(piece("add", "{}", index=0)), chunk(reason="content_filter")]),
        (
            MessagesWire(),
            [
                {"type": "content_block_start", "index": 0, "content_block": ADD},
                {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
            ],
        ),
    ],
)
async def test_an_answer_that_the_policy_has_stopped_makes_no_calls(wire: Wire, events: list[Any]) -> None:
    """
    What a refusal or a content filter leaves of an answer is an error, and no call in it is made.
    """
    made: list[str] = []

    async def add() -> None:
        """Add."""
        made.append("add")

    assembler = wire.assembler(True)
    for event in events:
        assembler.feed(event)
    agent = LlmAgent(name="a", model=ScriptedLlm([assembler.response()]), tools=[add])
    [event], _ = await run_to_end(runner_for(agent))
    assert (event.error_code, event.get_function_calls(), made) == ("SAFETY", [], [])


def test_only_the_first_of_several_choices_counts() -> None:
    """
    Choices that `extra_body` has asked for are not mixed into the answer.
    """
    assembler = ChatWire().assembler(True)
    for index, text in [(0, "A"), (1, "x"), (0, "B")]:
        assembler.feed({"choices": [{"index": index, "delta": {"content": text}}]})
    content = assembler.response().content
    assert content is not None
    assert content.text == "AB"


# --- histories --------------------------------------------------------------------------------------------------------


def names_in(value: Any) -> Iterator[str]:
    """All that stands under `name` in a body."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from [item] if key == "name" else names_in(item)



@pytest.mark.parametrize("name", ["", "functions.add", "a b\nc", "näh", "l" * 300])
def test_a_name_that_no_tool_has_does_not_spoil_the_history(name: str) -> None:
    """
    A call of what no tool can be named goes back under a name that the API takes.
    """
    contents = [
        Content(role="user", parts=[Part(text="hi")]),
        Content(role="model", parts=[Part(function_call=FunctionCall(name=name, id="c"))]),
        Content(role="user", parts=[Part(function_response=FunctionResponse(name=name, id="c", response={}))]),
    ]
    for wire in WIRES:
        names = [*names_in(wire.outgoing(LlmRequest(contents=contents), "m", False).body)]
        assert names
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", found) for found in names)


@pytest.mark.parametrize("blob", [Blob(data=b"", mime_type="image/png"), Blob(data=b"\0", mime_type="video/mp4")])
def test_media_of_tools_that_cannot_be_shown_are_told(blob: Blob) -> None:
    """
    The log has them, so they are told in words, and the session goes on. What Gemini takes of them it is shown.
    """
    answered = FunctionResponse(name="look", id="c", response={"r": 1}, parts=[Part(inline_data=blob)])
    contents = [
        Content(role="user", parts=[Part(text="hi")]),
        Content(role="model", parts=[Part(function_call=FunctionCall(name="look", id="c"))]),
        Content(role="user", parts=[Part(function_response=answered)]),
    ]
    for wire in WIRES:
        sent = str(wire.outgoing(LlmRequest(contents=contents), "m", False).body)
        if wire.provider != "gemini":
            assert f"file of type {blob.mime_type}" in sent
        else:
            assert ("inlineData" in sent) is bool(blob.data)


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "http://h/v1?"}, {"base_url": "http://h/v1#"}, {"base_url": "http://h/v1\n"},
        {"base_url": "http://h a/v1"}, {"base_url": " http://h"}, {"base_url": f"http://{'a' * 70}.de/v1"},
        {"base_url": "http://.../v1"}, {"base_url": "http://xn--ä/v1"}, {"ignore": 5}, {"ignore": None},
        {"ignore": {"thinking_config.nonsense"}}, {"headers": 5}, {"headers": {"a b": "c"}}, {"headers": {"": "c"}},
        {"headers": {"a:": "c"}}, {"headers": {"a": "é"}}, {"headers": {"a": "b\r\nc: d"}},
    ],
)  # fmt: skip
def test_odd_settings_are_refused_when_a_model_is_made(options: dict[str, Any]) -> None:
    """
    What would fail in the first request, or lead it somewhere else, is a ConfigurationError at once.
    """
    with pytest.raises(ConfigurationError, match="expected"):
        OpenAIChat("m", **{"base_url": "http://h/v1", **options})


@pytest.mark.parametrize("name", ["\ud800", "a\nb"])
def test_a_model_has_a_name_that_can_be_sent(name: str) -> None:
    """
    Half a surrogate pair and line ends are refused.
    """
    with pytest.raises(ConfigurationError, match="name of a model"):
        OpenAIChat(name, base_url="http://h/v1")


# --- responses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
async def test_a_whole_answer_in_place_of_a_stream_is_taken(api: Api) -> None:
    """
    A server that does not stream, though it was asked to, has answered all the same; so has one with an error.
    """
    kind = "RESOURCE_EXHAUSTED" if api.name == "gemini" else "rate_limit_error"
    async with playing(api, whole(api.whole), whole(api.error(kind, "slow"), 200)) as (model, _):
        assert (await answer(model)).finish_reason == "STOP"
        with pytest.raises(ModelRateLimitedError, match="slow"):
            await ask(model)


LOST = {"message": "upstream lost", "code": 502}


def choice(said: str, reason: str | None = None, **more: Any) -> Any:
    return {"choices": [{"index": 0, said: {"content": "half"}, "finish_reason": reason, **more}]}


def candidate(reason: str | None = None, **more: Any) -> Any:
    return {"candidates": [{"content": {"parts": [{"text": "half"}]}, "finishReason": reason, **more}]}


def ended(kind: str, **more: Any) -> Any:
    item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "half"}]}
    return {"type": kind, "response": {"output": [item], **more}}


HALF = {
    "openai": choice("delta"),
    "responses": {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "half"},
    "anthropic": {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half"}},
    "gemini": candidate(),
}
LOST_IN_STREAMS: list[tuple[str, list[Any]]] = [
    ("openai", [{"error": LOST, **choice("delta", "error")}]),
    ("openai", [{"error": LOST, "choices": []}]),
    ("openai", [{"error": "upstream lost"}]),
    ("openai", [{"object": "error", **LOST}]),
    ("openai", [choice("delta", "error", error=LOST)]),
    ("openai", [choice("delta", error=LOST)]),
    ("openai", [choice("delta", "error")]),
    ("openai", [choice("delta", "abort")]),
    ("openai", [choice("delta", "insufficient_system_resource")]),
    ("openai", [choice("delta", "network_error")]),
    ("openai", [choice("delta", "upstream_error")]),
    ("openai", [choice("delta", "cancelled")]),
    ("openai", [choice("delta", "stop", native_finish_reason="error")]),
    ("openai", [{"choices": [{"index": 0, "delta": {"error": LOST}, "finish_reason": "stop"}]}]),
    ("openai", [{"status": 502, "message": "upstream lost"}, choice("delta", "stop")]),
    ("openai", [choice("delta", "stop"), {"error": LOST}]),
    ("openai", []),
    ("responses", [ended("response.failed", status="failed", error=LOST)]),
    ("responses", [ended("response.completed", status="failed", error=LOST)]),
    ("responses", [ended("response.completed", status="failed", error=None)]),
    ("responses", [ended("response.incomplete", status="incomplete", incomplete_details={"reason": "error"})]),
    ("responses", [ended("response.incomplete", status="incomplete", incomplete_details={"reason": "steered"})]),
    ("responses", [ended("response.incomplete", status="incomplete")]),
    ("responses", [ended("response.completed", status="cancelled")]),
    ("responses", [{"type": "error", "code": "server_error", "message": "upstream lost"}]),
    ("responses", [{"type": "error", "error": LOST}]),
    ("responses", []),
    ("anthropic", [{"type": "error", "error": {"type": "api_error", "message": "upstream lost"}}]),
    ("anthropic", [{"type": "message_delta", "delta": {"stop_reason": "error"}}, {"type": "message_stop"}]),
    ("anthropic", [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}]),
    ("anthropic", []),
    ("gemini", [{"error": {**LOST, "status": "UNAVAILABLE"}}]),
    ("gemini", [{"error": LOST, **candidate("STOP")}]),
    ("gemini", [candidate("ERROR")]),
    ("gemini", [candidate("STOP", error=LOST)]),
    ("gemini", []),
]
LOST_WHOLE: list[tuple[str, Any]] = [
    ("openai", {"error": LOST}),
    ("openai", {"object": "error", **LOST}),
    ("openai", {"error": {**LOST, "code": "502"}, **choice("message", "stop")}),
    ("openai", choice("message", "error", error=LOST)),
    ("openai", choice("message", "stop", error=LOST)),
    ("openai", choice("message", "error")),
    ("openai", {"choices": [{"message": {"content": "half", "error": LOST}, "finish_reason": "stop"}]}),
    ("openai", {"status": 502, "message": "upstream lost"}),
    ("responses", ended("", status="completed", error=LOST)["response"]),
    ("responses", ended("", status="failed", error=None)["response"]),
    ("responses", ended("", status="cancelled")["response"]),
    ("responses", ended("", status="incomplete")["response"]),
    ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "upstream lost"}}),
    ("anthropic", {"type": "message", "content": [{"type": "text", "text": "half"}], "stop_reason": "error"}),
    ("gemini", {"error": LOST}),
    ("gemini", candidate("ERROR")),
]
PASSING = (ModelOverloadedError, ModelConnectionError)


def stream_of(*events: Any) -> Reply:
    """A stream that ends as those do that are complete."""
    return Reply([*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"])


@pytest.mark.parametrize(("name", "events"), LOST_IN_STREAMS)
async def test_a_model_that_is_lost_in_a_stream_gives_no_answer(name: str, events: list[Any]) -> None:
    """
    A stream of status 200 that tells of a failure, or ends early, is an error that is retried, not half an answer.
    """
    async with playing(APIS[name], stream_of(HALF[name], *events)) as (model, _):
        with pytest.raises(PASSING) as caught:
            await ask(model)
    assert caught.value.has_begun


@pytest.mark.parametrize(("name", "body"), LOST_WHOLE)
async def test_a_model_that_is_lost_gives_no_whole_answer(name: str, body: Any) -> None:
    """
    A body of status 200 that tells of a failure is an error that is retried, whatever else is in it.
    """
    async with playing(APIS[name], whole(body), whole(body)) as (model, _):
        for stream in (False, True):
            with pytest.raises(PASSING):
                await ask(model, stream=stream)


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
@pytest.mark.parametrize("data", ['{"message":"upstream lost","code":502}', "upstream lost"])
async def test_an_event_that_is_named_an_error_is_one(api: Api, data: str) -> None:
    """
    An event `error` with the fields of an error alone, or with plain text, is an error with these words.
    """
    async with playing(api, Reply([f"event: error\ndata: {data}\n\n".encode()])) as (model, _):
        with pytest.raises(ModelOverloadedError, match="upstream lost"):
            await ask(model)


async def test_an_error_in_plain_text_is_one() -> None:
    """
    Data that is no JSON and begins with `error` is an error with these words, after half an answer, too.
    """
    half = f"data: {json.dumps(HALF['openai'])}\n\ndata: error: upstream lost\n\n"
    async with playing(APIS["openai"], Reply([half.encode()])) as (model, _):
        with pytest.raises(ModelOverloadedError, match="upstream lost"):
            await ask(model)


@pytest.mark.parametrize("nothing", ["", None])
@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
async def test_an_empty_error_beside_an_answer_is_none(api: Api, nothing: str | None) -> None:
    """
    A body with `"error": ""`, or null, is the answer that it holds.
    """
    async with playing(api, whole({**api.whole, "error": nothing})) as (model, _):
        assert (await answer(model, stream=False)).finish_reason == "STOP"


async def test_a_run_whose_model_was_lost_asks_again_or_fails(autojump_clock: MockClock) -> None:
    """
    Before its first fragment, a lost answer is asked for again; after it, the run raises, and none of it is stored.
    """
    api = APIS["openai"]
    half = stream_of(HALF["openai"], choice("delta", "error"))
    async with playing(api, stream_of({"error": LOST}), streamed(api.text), half) as (model, _):
        runner = runner_for(LlmAgent(name="a", model=model))
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        events, _ = await run_to_end(runner, run_config=config)
        assert events[-1].text == TEXT
        with pytest.raises(ModelOverloadedError, match="broke off"):
            await run_to_end(runner, run_config=config)
        [told] = [event for event in await stored_events(runner) if event.error_code]
    assert (told.error_code, told.content) == ("ModelOverloadedError", None)


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
@pytest.mark.parametrize("how", [{"breaks": True}, {"stalls": True}])
async def test_a_status_counts_although_its_body_is_cut_off(
    api: Api, how: dict[str, bool], idle_clock: MockClock
) -> None:
    """
    An error whose words break off, or never come, is the error that its status says, not a lost connection.
    """
    reply = Reply([b'{"err'], 401, content_type="application/json", **how)  # type: ignore[arg-type]  # flags
    async with playing(api, reply) as (model, _):
        with pytest.raises(ModelAuthenticationError):
            await ask(model, request(http_options={"timeout": STALL_MS}))


@pytest.mark.parametrize("how", [{"breaks": True}, {"stalls": True}])
async def test_what_is_lost_after_the_end_of_an_answer_is_no_loss(how: dict[str, bool], idle_clock: MockClock) -> None:
    """
    A stream that breaks, or stalls, when the answer has ended by its own sign is an answer.
    """
    said = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    async with playing(APIS["openai"], Reply([said], **how)) as (model, _):  # type: ignore[arg-type]  # flags
        response = await answer(model, request(http_options={"timeout": STALL_MS}))
    assert response.content is not None
    assert response.content.text == "hi"


async def test_an_empty_event_keeps_a_stream_alive() -> None:
    """
    An event with blank data, which some servers send while nothing else comes, is read over.
    """
    said = b'data:\n\ndata: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    async with playing(APIS["openai"], Reply([said])) as (model, _):
        assert (await answer(model)).finish_reason == "STOP"


ODD_KEY = "sk-ABCDEF0123456789/+=zz?"


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_that_a_server_repeats_is_in_no_message(api: Api, stream: bool) -> None:
    """
    Errors are logged and stored, so the key is taken out of a provider's words.
    """
    async with playing(api, api_key="sk-SECRET") as (model, _):
        with pytest.raises(ModelAuthenticationError) as caught:
            await ask(model, stream=stream)
    assert "SECRET" not in f"{caught.value}{caught.value!r}"
    async with playing(api, whole(api.error("rate_limit_error", f"key {KEYS_OF[api.name]}"), 429)) as (model, _):
        with pytest.raises(ModelRateLimitedError, match=r"key \[the key\]"):
            await ask(model, stream=stream)


@pytest.mark.parametrize(
    "form",
    [quote(ODD_KEY), quote(ODD_KEY, safe=""), quote(ODD_KEY, safe="").replace("%2F", "%2f").replace("%2B", "%2b")
     .replace("%3D", "%3d").replace("%3F", "%3f"), b64encode(ODD_KEY.encode()).decode(),
     b64encode(f"me:{ODD_KEY}".encode()).decode(), b64encode(f"you:{ODD_KEY}!".encode()).decode()],
)  # fmt: skip
def test_a_key_is_found_in_other_forms(form: str) -> None:
    """
    A key that a server repeats percent-encoded, or in base64 with a name before it, is taken out, too.
    """
    error = ModelError(f"key {form}.")
    with pytest.raises(ModelError) as caught, Redactor(ODD_KEY, {}):
        raise error
    left = str(caught.value).replace("[the key]", "")
    assert len(left) < len(f"key {form}.") - len(ODD_KEY)


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
async def test_a_key_that_a_server_repeats_is_no_request_id(api: Api) -> None:
    """
    The request id of a response, and of an error that is found in its body, is without the key.
    """
    headers = {api.request_id_header: api.key}
    script = [Reply([json.dumps(body).encode()], headers=headers, content_type="application/json")
              for body in (api.whole, {"id": "x"})]  # fmt: skip
    async with playing(api, *script) as (model, _):
        assert (await answer(model, stream=False)).request_id == "[the key]"
        with pytest.raises(ModelError) as caught:
            await ask(model, stream=False)
    assert caught.value.request_id == "[the key]"


KEYS_OF = {"openai": "sk-test", "responses": "sk-test", "anthropic": "sk-ant-test", "gemini": "AIza-test"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_conversation_that_is_too_long_is_told_as_such_with_any_status(wire: Wire) -> None:
    """
    In a stream, where there is no status, and from servers that say so with a 500.
    """
    body = b'{"error":{"message":"the request exceeds the available context size","type":"server_error"}}'
    assert type(wire.failure(500, {}, body)) is ContextTooLongError
    with pytest.raises(ContextTooLongError):
        wire.assembler(True).feed({"error": {"message": "This model's maximum context length is 8 tokens"}})
