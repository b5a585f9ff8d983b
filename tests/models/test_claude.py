"""
Anthropic's messages.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from minirun.errors import ConfigurationError, ModelOverloadedError, ModelRateLimitedError, NotSupportedError
from minirun.models._seals import sealed
from minirun.models.anthropic import Claude
from minirun.types import Blob, FileData, FunctionCall, FunctionDeclaration, FunctionResponse, Part

from ..provider_servers.anthropic import KEY, messages
from ..provider_servers.server import Reply, fixture, served
from ..wire_models import APIS, TEXT, answer, ask, body_sent, model_says, playing, request, streamed, user_says, whole

API = APIS["anthropic"]
body_of = partial(body_sent, API)
ADD = FunctionDeclaration(name="add", description="Add.", parameters={"type": "object", "properties": {}})
NOW = FunctionDeclaration(name="now")


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_blocks() -> None:
    """
    Texts, calls and results stand in blocks, results first; blank texts and thoughts of others are left out.
    """
    calls = model_says(
        Part(text="theirs", thought=True, thought_signature=sealed("gemini", "signature", "s")),
        Part(text="nobody's", thought=True),
        Part(text=" \n"),
        Part(text="Let me see.", thought_signature=sealed("gemini", "signature", "s")),
        Part(function_call=FunctionCall(name="add", args={"a": 1}, id="c1")),
        Part(function_call=FunctionCall(name="now", id="c2")),
    )
    answers = user_says(
        Part(text="by the way"),
        Part(function_response=FunctionResponse(name="add", response={"result": 3}, id="c1")),
        Part(function_response=FunctionResponse(name="now", response={"error": "no"}, id="c2")),
    )
    body = await body_of("hi", calls, answers, system_instruction="Be brief.", tools=[ADD, NOW])
    assert (body["system"], body["max_tokens"], body["model"]) == ("Be brief.", 8192, "claude-opus-4-5")
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": '{"result":3}'},
                {"type": "tool_result", "tool_use_id": "c2", "content": '{"error":"no"}', "is_error": True},
                {"type": "text", "text": "by the way"},
            ],
        },
    ]
    assert [tool["name"] for tool in body["tools"]] == ["add", "now"]


async def test_a_message_never_becomes_empty() -> None:
    """
    An answer of nothing but others' thoughts is left out, and a blank question is told as such.
    """
    thought = model_says(Part(text="theirs", thought=True, thought_signature=sealed("gemini", "signature", "s")))
    body = await body_of("hi", thought, " ")
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert body["messages"][1]["content"] == [{"type": "text", "text": "(nothing)"}]


async def test_thoughts_go_back_as_they_came() -> None:
    """
    Thoughts, shown and redacted, keep their seals letter for letter, and go back in their places.
    """
    async with playing(API, streamed("messages_calls.sse"), streamed("messages_text.sse")) as (model, server):
        *fragments, response = await ask(model)
        assert response.content is not None
        answers = user_says(
            *(
                Part(function_response=FunctionResponse(name=call.name, response={}, id=call.id))
                for call in response.content.calls
            )
        )
        await ask(model, request("hi", response.content, answers, tools=[ADD, NOW]))
    first, second, *_ = response.content.parts
    assert (first.text, first.thought) == ("Two calls.", True)
    assert (second.text, second.thought) == ("", True)
    assert [part.text for each in fragments if each.content for part in each.content.parts] == ["Two ", "calls."]
    assert server.asked[1].body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Two calls.", "signature": "EqQB+/seal=="},
        {"type": "redacted_thinking", "data": "Emwredacted=="},
        {"type": "tool_use", "id": "toolu_a", "name": "add", "input": {"a": 1, "b": 2}},
        {"type": "tool_use", "id": "toolu_b", "name": "now", "input": {}},
    ]


async def test_media_are_blocks() -> None:
    """
    Images, PDFs, texts, addresses and uploaded files go in as what they are.
    """
    media = [
        Part(inline_data=Blob(data=b"\x01", mime_type="image/png")),
        Part(inline_data=Blob(data=b"\x03", mime_type="application/pdf", display_name="a.pdf")),
        Part(inline_data=Blob(data="grüße".encode(), mime_type="text/csv")),
        Part(file_data=FileData(file_uri="https://h/i.png", mime_type="image/png")),
        Part(file_data=FileData(file_uri="https://h/a.pdf", mime_type="application/pdf")),
        Part(file_data=FileData(file_uri="file_7")),
    ]
    (message,) = (await body_of(user_says(*media)))["messages"]
    assert [(block["type"], block["source"]) for block in message["content"]] == [
        ("image", {"type": "base64", "media_type": "image/png", "data": "AQ=="}),
        ("document", {"type": "base64", "media_type": "application/pdf", "data": "Aw=="}),
        ("document", {"type": "text", "media_type": "text/plain", "data": "grüße"}),
        ("image", {"type": "url", "url": "https://h/i.png"}),
        ("document", {"type": "url", "url": "https://h/a.pdf"}),
        ("document", {"type": "file", "file_id": "file_7"}),
    ]
    assert message["content"][1]["title"] == "a.pdf"
    for part in (
        Part(inline_data=Blob(data=b"\x04", mime_type="audio/wav")),
        Part(file_data=FileData(file_uri="gs://bucket/i.png", mime_type="image/png")),
    ):
        (message,) = (await body_of(user_says(part)))["messages"]
        assert message["content"][0]["type"] == "text"
        assert "which you are not shown" in message["content"][0]["text"]


@pytest.mark.parametrize(
    ("mode", "names", "sent", "tools"),
    [
        ("AUTO", [], {"type": "auto"}, ["add", "now"]),
        ("ANY", [], {"type": "any"}, ["add", "now"]),
        ("NONE", [], {"type": "none"}, ["add", "now"]),
        ("ANY", ["add"], {"type": "tool", "name": "add"}, ["add", "now"]),
        ("ANY", ["add", "now"], {"type": "any"}, ["add", "now"]),
    ],
)
async def test_tools_are_chosen(mode: str, names: list[str], sent: Any, tools: list[str]) -> None:
    """
    ADK's modes and allowed names are the API's tool_choice; of several allowed tools the model is shown these alone.
    """
    other = FunctionDeclaration(name="other")
    shown = [ADD, NOW, *([other] if len(names) > 1 else [])]
    config = {"function_calling_config": {"mode": mode, "allowed_function_names": names}}
    body = await body_of("hi", tools=shown, tool_config=config)
    assert body["tool_choice"] == sent
    assert [tool["name"] for tool in body["tools"]] == tools


@pytest.mark.parametrize(
    ("thinking", "sent", "effort"),
    [
        ({"thinking_budget": 0}, {"type": "disabled"}, None),
        ({"thinking_budget": -1}, {"type": "adaptive"}, None),
        ({"thinking_budget": 2000}, {"type": "enabled", "budget_tokens": 2000}, None),
        ({"thinking_level": "low"}, {"type": "adaptive"}, "low"),
        ({"include_thoughts": True}, {"type": "adaptive", "display": "summarized"}, None),
        (
            {"thinking_budget": 2000, "include_thoughts": False},
            {"type": "enabled", "budget_tokens": 2000, "display": "omitted"},
            None,
        ),
    ],
)
async def test_thinking_is_the_apis(thinking: dict[str, Any], sent: Any, effort: str | None) -> None:
    """
    Budgets, levels and whether thoughts are shown are the API's thinking and effort.
    """
    body = await body_of("hi", thinking_config=thinking)
    assert body["thinking"] == sent
    assert body.get("output_config", {}).get("effort") == effort


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"temperature": 0.5}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"seed": 1}, "seed"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"labels": {"a": "b"}}, "labels"),
        ({"thinking_config": {"thinking_budget": 100}}, "thinking_config.thinking_budget"),
        ({"thinking_config": {"thinking_level": "minimal"}}, "thinking_config.thinking_level"),
        ({"response_mime_type": "application/json"}, "response_mime_type"),
        ({"tools": [ADD], "tool_config": {"function_calling_config": {"mode": "VALIDATED"}}}, "tool_config"),
    ],
)
async def test_what_the_api_does_not_have_is_refused(config: dict[str, Any], name: str) -> None:
    """
    A setting, or a value of one, that the API does not have is refused by name, and left out with `ignore`.
    """
    async with playing(API) as (model, server):
        with pytest.raises(NotSupportedError, match=name):
            await ask(model, request(**config))
        assert server.asked == []
    body = await body_of("hi", options={"ignore": {name}}, **config)
    assert body.keys() <= {"model", "max_tokens", "messages", "stream", "tools"}


async def test_limits_and_forms_are_the_apis() -> None:
    """
    The limit of an answer, what ends it, and its schema, closed, are sent under the API's names.
    """
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    body = await body_of("hi", options={"max_tokens": 5}, stop_sequences=["x"], response_schema=schema)
    assert (body["max_tokens"], body["stop_sequences"]) == (5, ["x"])
    assert body["output_config"]["format"] == {
        "type": "json_schema",
        "schema": {**schema, "additionalProperties": False},
    }
    assert (await body_of("hi", max_output_tokens=9))["max_tokens"] == 9


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"max_tokens": 1.5}, {"api_version": ""}, {"api_key": None}])
def test_what_cannot_work_is_refused(options: dict[str, Any]) -> None:
    """
    A limit, a version or a missing key that cannot work is refused when the model is made.
    """
    with pytest.raises(ConfigurationError, match="expected"):
        Claude("claude-opus-4-5", **({"api_key": KEY} | options))


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "found"),
    [("end_turn", "STOP"), ("stop_sequence", "STOP"), ("max_tokens", "MAX_TOKENS"), ("pause_turn", "OTHER"),
     ("model_context_window_exceeded", "MAX_TOKENS"), ("refusal", "SAFETY")],
)  # fmt: skip
async def test_finish_reasons_are_adks(said: str, found: str) -> None:
    """
    The reason for stopping is one of ADK's names; what the policy has stopped has an error code and a reason.
    """
    body = {**API.whole, "stop_reason": said, "stop_details": {"type": "refusal", "explanation": "No."}}
    async with playing(API, whole(body)) as (model, _):
        response = await answer(model, stream=False)
    assert response.finish_reason == found
    assert (response.error_code, response.error_message) == (("SAFETY", "No.") if found == "SAFETY" else (None, None))


async def test_blocks_of_the_providers_own_tools_are_read_over() -> None:
    """
    Blocks and deltas that nobody here knows are left out, and citations are kept.
    """
    events = [
        {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "id": "s"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "see"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "news_delta"}},
        {"type": "news"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    async with playing(API, Reply([f"data: {json.dumps(event)}\n\n".encode() for event in events])) as (model, _):
        response = await answer(model)
    assert response.content == model_says(Part(text="see"))
    assert response.citation_metadata == {"citations": [{"url": "u"}]}


# --- through the SDK --------------------------------------------------------------------------------------------------

# The SDKs leave generators to the garbage collector when a stream ends; trio warns of that.
leaves_generators = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@leaves_generators
async def test_the_sdks_client_sends_the_requests() -> None:
    """
    Through Anthropic's own client answers, seals, errors are what they are without it, and it is not closed.
    """
    server = messages()
    slow = whole(API.error("rate_limit_error", "slow down"), 429)
    slow.headers["retry-after"] = "2"
    data = fixture("messages_text.sse")
    begun = data[: data.index(b"\n\n", data.index("Grüße".encode())) + 2]
    server.script += [streamed("messages_text.sse"), whole(API.whole), streamed("messages_calls.sse"), slow]
    server.script.append(Reply([begun, API.error_event]))
    async with served(server) as url, AsyncAnthropic(base_url=url, api_key=KEY) as client:
        model = Claude("claude-opus-4-5", client=client)
        for stream in (True, False):
            response = await answer(model, stream=stream)
            assert response.content is not None
            assert (response.content.text, response.response_id) == (TEXT, "msg_1")
        calls = await answer(model)
        assert calls.content is not None
        assert len(calls.content.calls) == 2
        with pytest.raises(ModelRateLimitedError) as caught:
            await ask(model)
        assert (caught.value.status, caught.value.retry_after_s) == (429, 2.0)
        with pytest.raises(ModelOverloadedError) as overloaded:
            await ask(model)
        assert overloaded.value.has_begun
        await model.aclose()
        assert not client.is_closed()
    assert len(server.asked) == 5
