"""
OpenAI's responses: items in and out, and what of them goes back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import pytest
from openai import AsyncOpenAI

from minirun.errors import (
    ConfigurationError,
    ModelConnectionError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRefusedError,
)
from minirun.models import LlmResponse
from minirun.models._seals import opened, sealed
from minirun.models._sse import SseReader
from minirun.models.openai import OpenAIResponses
from minirun.types import Blob, Content, FileData, FunctionCall, FunctionDeclaration, FunctionResponse, Part

from ..provider_servers.openai_responses import KEY, responses
from ..provider_servers.server import Reply, fixture, served
from ..wire_models import APIS, TEXT, answer, ask, body_sent, playing, request, streamed, whole

API = APIS["responses"]
body_of = partial(body_sent, API)
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Two calls."}, {"type": "summary_text", "text": "Go."}],
    "encrypted_content": "gAAAAAB+/seal==",
}
ADD = FunctionDeclaration(name="add", description="Add.", parameters={"type": "object", "properties": {}})
NOW = FunctionDeclaration(name="now")


def answers(*found: FunctionResponse) -> Content:
    return Content(role="user", parts=[Part(function_response=each) for each in found])


def events(*found: dict[str, Any]) -> Reply:
    return Reply([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in found])


def body(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "resp_9", "model": "m", "status": status, "output": list(output), "error": None, **more}


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_items() -> None:
    """
    Instruction, texts, calls and answers are items in order, nothing is stored, and encrypted thoughts are asked for.
    """
    calls = Content(
        role="model",
        parts=[
            Part(text="secret", thought=True, thought_signature=sealed("anthropic", "thinking", "s")),
            Part(text="Let me see.", thought_signature=sealed("openai", "phase", "commentary")),
            Part(function_call=FunctionCall(name="add", args={"a": 1}, id="c1")),
        ],
    )
    found = await body_of(
        "hi", calls, answers(FunctionResponse(name="add", response={"result": 3}, id="c1")),
        system_instruction="Be brief.", tools=[ADD, NOW], temperature=0.5, max_output_tokens=9, labels={"a": "b"},
        thinking_config={"thinking_level": "low", "include_thoughts": True},
    )  # fmt: skip
    assert found == {
        "model": "gpt-5",
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            },
            {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}, "strict": False},
        ],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"role": "assistant", "content": "Let me see.", "phase": "commentary"},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": '{"result":3}'},
        ],
        "temperature": 0.5,
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
    }


async def test_a_thought_goes_back_as_the_item_that_it_was() -> None:
    """
    What was streamed goes back in its place: the reasoning item whole, with its encrypted content, and calls by their
    call ids, without ids of items.
    """
    async with playing(API, streamed("responses_calls.sse"), streamed("responses_text.sse")) as (model, server):
        first = (await answer(model, request(tools=[ADD, NOW]))).content
        assert first is not None
        said = [FunctionResponse(name=call.name, id=call.id, response={"result": 1}) for call in first.calls]
        await ask(model, request("hi", first, answers(*said), tools=[ADD, NOW]))
    assert server.asked[1].body["input"][1:4] == [
        REASONING,
        {"type": "function_call", "call_id": "call_a", "name": "add", "arguments": '{"a":1,"b":2}'},
        {"type": "function_call", "call_id": "call_b", "name": "now", "arguments": "{}"},
    ]


@pytest.mark.parametrize(
    "seal",
    [
        None,
        sealed("openai", "item", json.dumps(REASONING)),
        sealed("gemini", "signature", "YQ=="),
        sealed("anthropic", "phase", "commentary"),
    ],
)
async def test_a_text_has_a_phase_if_it_was_sealed_with_one(seal: bytes | None) -> None:
    """
    What else is sealed on a text, here or by another provider, is left out.
    """
    content = Content(role="model", parts=[Part(text="Let me see.", thought_signature=seal)])
    found = await body_of("hi", content, "go on")
    assert found["input"][1] == {"role": "assistant", "content": "Let me see."}


async def test_a_thought_that_led_to_nothing_stays_here() -> None:
    """
    A reasoning item without what follows it, as the limit of tokens leaves it, is not sent back.
    """
    seal = sealed("openai", "item", json.dumps(REASONING))
    cut = Content(role="model", parts=[Part(text="…", thought=True, thought_signature=seal)])
    found = await body_of("hi", cut, "go on")
    assert [item.get("type", item.get("role")) for item in found["input"]] == ["user", "user"]


@pytest.mark.parametrize(
    ("name", "options", "asks"),
    [
        ("gpt-5", {}, True), ("o3", {}, True), ("gpt-4.1-mini", {}, False), ("ft:gpt-4o:x", {}, False),
        ("mine", {"reasoning": False}, False), ("gpt-4-of-mine", {"reasoning": True}, True),
    ],
)  # fmt: skip
async def test_models_that_do_not_think_are_not_asked_for_thoughts(
    name: str, options: dict[str, Any], asks: bool
) -> None:
    """
    Encrypted thoughts are asked for by the model's name, or as `reasoning` says.
    """
    server = responses()
    server.script.append(streamed("responses_text.sse"))
    async with served(server) as url:
        model = OpenAIResponses(name, base_url=f"{url}/v1", api_key=KEY, **options)
        await ask(model)
        await model.aclose()
    assert ("include" in server.asked[0].body) is asks


def test_reasoning_is_yes_or_no() -> None:
    """
    `reasoning` that is neither is refused.
    """
    with pytest.raises(ConfigurationError, match="expected reasoning"):
        OpenAIResponses("m", base_url="http://h/v1", reasoning="low")  # type: ignore[arg-type]  # that is the mistake


async def test_media_are_pieces_also_in_what_tools_answer() -> None:
    """
    Images, PDFs, texts and files by address or id stand in the user's message, and in the output of a call.
    """
    media = [
        Part(inline_data=Blob(data=b"\x89", mime_type="image/png")),
        Part(inline_data=Blob(data=b"%PDF", mime_type="application/pdf", display_name="a.pdf")),
        Part(inline_data=Blob(data=b"a,b", mime_type="text/csv")),
        Part(file_data=FileData(file_uri="https://h/i.png", mime_type="image/png")),
        Part(file_data=FileData(file_uri="https://h/f.pdf", mime_type="application/pdf")),
        Part(file_data=FileData(file_uri="file-1")),
    ]
    call = Content(role="model", parts=[Part(function_call=FunctionCall(name="add", id="c1"))])
    done = answers(FunctionResponse(name="add", id="c1", response={"result": "see"}, parts=media))
    found = await body_of(Content(role="user", parts=media), call, done)
    pieces = [
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iQ=="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_text", "text": "a,b"},
        {"type": "input_image", "detail": "auto", "image_url": "https://h/i.png"},
        {"type": "input_file", "file_url": "https://h/f.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    ]
    assert found["input"][0]["content"] == pieces
    assert found["input"][2]["output"] == [{"type": "input_text", "text": '{"result":"see"}'}, *pieces]


@pytest.mark.parametrize(
    "part",
    [
        Part(inline_data=Blob(data=b"x", mime_type="audio/wav")),
        Part(inline_data=Blob(data=b"x", mime_type="image/tiff")),
        Part(file_data=FileData(file_uri="gs://bucket/f")),
    ],
)
async def test_media_that_it_does_not_take_are_told_in_words(part: Part) -> None:
    """
    What responses do not take is told to the model in words: it is in the log, and later requests have it, too.
    """
    [message] = (await body_of(Content(role="user", parts=[part])))["input"]
    [piece] = message["content"]
    assert piece["type"] == "input_text"
    assert "which you are not shown" in piece["text"]


@pytest.mark.parametrize(
    ("config", "sent"),
    [
        ({"mode": "AUTO"}, "auto"),
        ({"mode": "NONE"}, "none"),
        ({"mode": "ANY"}, "required"),
        ({"mode": "ANY", "allowed_function_names": ["add"]}, {"type": "function", "name": "add"}),
        (
            {"mode": "ANY", "allowed_function_names": ["add", "now"]},
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "add"}, {"type": "function", "name": "now"}],
            },
        ),
    ],
)
async def test_how_tools_are_chosen(config: dict[str, Any], sent: object) -> None:
    """
    Each mode, and the tools that are allowed, have their own form.
    """
    found = await body_of("hi", tools=[ADD, NOW], tool_config={"function_calling_config": config})
    assert found["tool_choice"] == sent


async def test_the_form_of_an_answer() -> None:
    """
    A schema is sent closed, and strict where it can be; JSON without a schema is its own form.
    """
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    found = await body_of("hi", response_schema=schema, response_mime_type="application/json")
    assert found["text"]["format"] == {
        "type": "json_schema", "name": "response", "schema": {**schema, "additionalProperties": False}, "strict": True
    }  # fmt: skip
    assert (await body_of("hi", response_mime_type="application/json"))["text"] == {"format": {"type": "json_object"}}


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_thoughts_are_shown_and_sealed() -> None:
    """
    Parts of a summary come with a blank line between them; the seal is the item as it was when it was done.
    """
    async with playing(API, streamed("responses_calls.sse")) as (model, _):
        *fragments, last = await ask(model)
    assert last.content is not None
    thought = last.content.parts[0]
    assert (thought.thought, thought.text) == (True, "Two calls.\n\nGo.")
    assert "".join(each.content.parts[0].text or "" for each in fragments if each.content) == thought.text
    seal = opened(thought.thought_signature, "openai")
    assert seal is not None
    assert json.loads(seal.payload) == REASONING


async def test_what_does_not_come_in_pieces_comes_at_the_end() -> None:
    """
    A server that sends only what is done, or only the end, is understood, and its text is shown once.
    """
    message = {
        "type": "message",
        "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
    }
    items: list[dict[str, Any]] = [
        {**REASONING, "encrypted_content": None},
        message,
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a":1}'},
        {"type": "web_search_call", "id": "ws_1"},
    ]
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(items)
    ]
    end = {"type": "response.completed", "response": body(*items)}
    async with playing(API, events(*done, end), events(end), whole(body(*items))) as (model, _):
        first, second, third = await ask(model), await ask(model), await ask(model, stream=False)
    assert first[-1] == second[-1] == third[-1]
    content = first[-1].content
    assert content is not None
    assert [part.text for part in content.parts] == ["Two calls.\n\nGo.", "a", "b", None]
    assert content.parts[0].thought_signature is None
    assert content.calls[0].args == {"a": 1}
    for found in (first, second):
        texts = [part.text for each in found[:-1] if each.content for part in each.content.parts if not part.thought]
        assert texts == ["a", "b"]


@pytest.mark.parametrize(
    ("more", "reason", "code"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "MAX_TOKENS", None),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "SAFETY", "SAFETY"),
    ],
)
async def test_an_answer_that_is_not_complete_says_why(more: dict[str, Any], reason: str, code: str | None) -> None:
    """
    The limit of tokens is a finish reason; a filter is an error code too.
    """
    told = body(**more)
    async with playing(API, events({"type": "response.incomplete", "response": told}), whole(told)) as (model, _):
        for stream in (True, False):
            found = await answer(model, stream=stream)
            assert (found.finish_reason, found.error_code) == (reason, code)


async def test_a_refusal_is_an_error_code() -> None:
    """
    A refusal is no text of the answer: it is the message of the error code SAFETY.
    """
    message = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    async with playing(API, events({"type": "response.completed", "response": body(message)})) as (model, _):
        found = await answer(model)
    assert (found.finish_reason, found.error_code, found.error_message) == ("SAFETY", "SAFETY", "I cannot.")
    assert found.content is None


async def test_sources_are_told() -> None:
    """
    The annotations of a text are its citations.
    """
    async with playing(API, streamed("responses_text.sse")) as (model, _):
        found = await answer(model)
    assert found.citation_metadata is not None
    assert found.citation_metadata["citations"][0]["url"] == "https://h/"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("server_error", ModelOverloadedError),
        ("rate_limit_exceeded", ModelRateLimitedError),
        ("bio_policy", ModelRefusedError),
        ("image_content_policy_violation", ModelRefusedError),
    ],
)
async def test_a_response_that_failed_is_an_error(code: str, error: type[Exception]) -> None:
    """
    `response.failed`, and a whole body that has failed, are errors of the family, by their code.
    """
    failed = body(status="failed") | {"error": {"code": code, "message": "so it is"}}
    script = [events({"type": "response.failed", "response": failed}), whole(failed)]
    async with playing(API, *script) as (model, _):
        for stream in (True, False):
            with pytest.raises(error, match="so it is"):
                await ask(model, stream=stream)


def without(value: Any, names: Sequence[str]) -> Any:
    """A JSON value without the keys of these names."""
    if isinstance(value, list):
        return [without(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without(item, names) for name, item in value.items() if name not in names}


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("responses_text.sse", ["output_index", "content_index"]),
        ("responses_text.sse", ["output_index", "content_index", "item_id"]),
        ("responses_text.sse", ["output_index", "content_index", "item_id", "id"]),
        ("responses_calls.sse", ["output_index"]),
    ],
)
async def test_a_stream_without_positions_is_read_once(name: str, left_out: list[str]) -> None:
    """
    Items are known by id, or by order, where a server (llama.cpp is one) sends no `output_index`.
    """
    told = [json.loads(line[6:]) for line in fixture(name).decode().splitlines() if line.startswith("data: {")]
    async with playing(API, streamed(name), events(*without(told, left_out))) as (model, _):
        expected, found = await ask(model), await ask(model)
    assert parts_of(found) == parts_of(expected)


def parts_of(found: list[LlmResponse]) -> list[list[Part]]:
    """The parts of each response, without their seals, which hold whole items."""
    contents = [response.content for response in found if response.content is not None]
    return [[attrs.evolve(part, thought_signature=None) for part in content.parts] for content in contents]


@pytest.mark.parametrize("value", [[], {}, "1", None, 1.5])
async def test_an_index_that_is_no_number_is_as_if_it_were_not_there(value: Any) -> None:
    """
    A stream whose indexes are lists, objects or texts is read by its ids.
    """
    told = [json.loads(line[6:]) for line in fixture("responses_text.sse").decode().splitlines() if "data: {" in line]
    for event in told:
        event |= {index: value for index in ("output_index", "content_index") if index in event}
    async with playing(API, events(*told)) as (model, _):
        response = await answer(model)
    assert response.content is not None
    assert response.content.text == TEXT


def text_of(item_id: str | None, text: str) -> dict[str, Any]:
    item = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return item if item_id is None else {**item, "id": item_id}


def call_of(item_id: str, args: str) -> dict[str, Any]:
    return {"type": "function_call", "id": item_id, "call_id": f"c{item_id}", "name": "add", "arguments": args}


def of(item: dict[str, Any], event: str, index: int | None = None, text: str = "", by: str = "") -> dict[str, Any]:
    """An event about an item; *by*: the `item_id` of its pieces, if it is another one than the item's."""
    about: dict[str, Any] = {} if index is None else {"output_index": index}
    if event != "delta":
        return {"type": f"response.output_item.{event}", "item": item, **about}
    kind = "function_call_arguments" if item["type"] == "function_call" else "output_text"
    return {"type": f"response.{kind}.delta", "item_id": by or item["id"], "delta": text, **about}


M, N = text_of("m", "hi"), text_of("n", "ho")
F, G = call_of("f", '{"a":1}'), call_of("g", '{"a":2}')
NEW_F, THOUGHT = call_of("f", ""), {"type": "reasoning", "id": "rs_9", "summary": []}
M_STREAMED = [of(M, "delta", 0, "hi"), of(M, "done", 0)]
F_STREAMED = [of(NEW_F, "added", 0), of(F, "delta", 0, '{"a":1}')]
ODD_STREAMS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], list[object]]] = {
    "two calls at one index": ([*F_STREAMED, of(F, "done", 0), of(G, "added", 0), of(G, "done", 0)], [F, G], [1, 2]),
    "two calls grow at one index": (
        [*F_STREAMED[:1], of({**G, "arguments": ""}, "added", 0), of(G, "delta", 0, '{"a":2}'), *F_STREAMED[1:]],
        [F, G],
        [1, 2],
    ),
    "two texts at one index": ([*M_STREAMED, of(N, "delta", 0, "ho")], [M, N], ["hi", "ho"]),
    "other ids in pieces at an index": (
        [of(text_of("m", ""), "added", 0), of(M, "delta", 0, "h", "X"), of(M, "delta", 0, "i", "Y"), of(M, "done", 0)],
        [M],
        ["hi"],
    ),
    "a call repeated after it is done": ([*F_STREAMED, of(F, "done", 0), *F_STREAMED[1:], of(F, "done", 0)], [F], [1]),
    "a text repeated after it is done": ([*M_STREAMED, *M_STREAMED], [M], ["hi"]),
    "other ids in pieces": (
        [of(text_of("m", ""), "added"), of(M, "delta", None, "h", "X"), of(M, "delta", None, "i", "X"), of(M, "done")],
        [M],
        ["hi"],
    ),
    "other ids at the end, after a thought": (M_STREAMED, [THOUGHT, text_of("n", "hi")], ["hi"]),
    "no ids at the end, counted from 1": ([of(M, "delta", 1, "hi")], [text_of(None, "hi")], ["hi"]),
    "other ids at the end, counted from 1": ([of(M, "delta", 1, "hi"), of(M, "done", 1)], [text_of("b", "hi")], ["hi"]),
    "only the second text in pieces": ([of(M, "delta", 1, "hi")], [N, text_of("b", "hi")], ["hi", "ho"]),
}


@pytest.mark.parametrize("name", ODD_STREAMS)
def test_each_item_is_read_once(name: str) -> None:
    """
    Items are told apart, and are not doubled, where ids and indexes of a stream are not as OpenAI has them.
    """
    told, output, expected = ODD_STREAMS[name]
    assembler = OpenAIResponses("gpt-5", base_url="http://h/v1")._wire.assembler(True)
    shown = [part for event in told for part in assembler.feed(event)]
    shown += assembler.feed({"type": "response.completed", "response": body(*output)})
    content = assembler.response().content
    assert content is not None
    found = [part.text or (part.function_call and part.function_call.args.get("a")) for part in content.parts]
    assert found == expected
    assert "".join(part.text or "" for part in shown) == "".join(text for text in expected if isinstance(text, str))


async def test_every_byte_may_be_the_last() -> None:
    """
    A stream that is cut anywhere before its last event is a lost connection, byte by byte.
    """
    data = fixture("responses_text.sse")
    end = data.index(b"event: response.completed")
    wire = OpenAIResponses("gpt-5", base_url="http://h/v1")._wire
    for place in range(end):
        assembler = wire.assembler(True)
        for event in SseReader().feed(data[:place]):
            assembler.feed(json.loads(event.data))
        assert not assembler.is_done
    async with playing(API, Reply([data[:end]])) as (model, _):
        with pytest.raises(ModelConnectionError):
            await ask(model)


async def test_an_sdks_client_sends_it() -> None:
    """
    With OpenAI's own client the same is sent, and the same answer comes back.
    """
    server = responses()
    server.script += [streamed("responses_text.sse"), whole(API.whole), whole(API.error("server_error", "oh"), 500)]
    async with served(server) as url:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            model = OpenAIResponses("gpt-5", client=client)
            for stream in (True, False):
                found = await answer(model, stream=stream)
                assert found.content is not None
                assert found.content.text == TEXT
            with pytest.raises(ModelOverloadedError, match="oh"):
                await ask(model)
    assert server.asked[0].body["store"] is False
