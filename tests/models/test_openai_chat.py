"""
OpenAI's chat completions, and the servers that speak them.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, OpenAI

from minirun.errors import ConfigurationError, ModelOverloadedError, ModelRateLimitedError, NotSupportedError
from minirun.models._seals import sealed
from minirun.models.openai import OpenAIChat
from minirun.types import (
    Blob,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    Part,
)

from ..provider_servers.openai_chat import KEY, chat_completions
from ..provider_servers.server import Reply, fixture, served
from ..wire_models import APIS, TEXT, answer, ask, body_sent, model_says, playing, request, streamed, user_says, whole

API = APIS["openai"]
body_of = partial(body_sent, API)
ADD = FunctionDeclaration(name="add", description="Add.", parameters={"type": "object", "properties": {}})
NOW = FunctionDeclaration(name="now")


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_messages() -> None:
    """
    Instruction, texts, calls and the tools' answers stand in the messages in order; thoughts do not.
    """
    calls = model_says(
        Part(text="secret", thought=True, thought_signature=sealed("anthropic", "thinking", "s")),
        Part(text="Let me see."),
        Part(function_call=FunctionCall(name="add", args={"a": 1}, id="c1")),
        Part(function_call=FunctionCall(name="now", id="c2", args_text="{")),
    )
    answers = user_says(
        Part(function_response=FunctionResponse(name="add", response={"result": 3}, id="c1")),
        Part(function_response=FunctionResponse(name="now", response={"error": "no"}, id="c2")),
    )
    body = await body_of("hi", calls, answers, system_instruction="Be brief.", tools=[ADD, NOW])
    assert body["messages"] == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"result":3}'},
        {"role": "tool", "tool_call_id": "c2", "content": '{"error":"no"}'},
    ]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["add", "now"]


async def test_media_are_parts() -> None:
    """
    Images, sounds, PDFs, texts, addresses and uploaded files go in as what they are; a model's own are told as text.
    """
    media = [
        Part(text="look"),
        Part(inline_data=Blob(data=b"\x01", mime_type="image/png")),
        Part(inline_data=Blob(data=b"\x02", mime_type="audio/wav")),
        Part(inline_data=Blob(data=b"\x03", mime_type="application/pdf", display_name="a.pdf")),
        Part(inline_data=Blob(data="grüße".encode(), mime_type="text/plain; charset=utf-8")),
        Part(file_data=FileData(file_uri="https://h/i.png", mime_type="image/png")),
        Part(file_data=FileData(file_uri="file-7")),
        Part(executable_code=ExecutableCode(code="1+1", language="PYTHON")),
    ]
    drawn = model_says(Part(inline_data=Blob(data=b"\x04", mime_type="image/png")))
    user, assistant, _ = (await body_of(user_says(*media), drawn, "thanks"))["messages"]
    assert user["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}},
        {"type": "input_audio", "input_audio": {"data": "Ag==", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,Aw=="}},
        {"type": "text", "text": "grüße"},
        {"type": "image_url", "image_url": {"url": "https://h/i.png"}},
        {"type": "file", "file": {"file_id": "file-7"}},
        {"type": "text", "text": "```python\n1+1\n```"},
    ]
    assert assistant["content"] == "[a file of type image/png, which you are not shown]"


@pytest.mark.parametrize(
    "part",
    [
        Part(inline_data=Blob(data=b"\x04", mime_type="video/mp4")),
        Part(inline_data=Blob(data=b"\x04", mime_type="image/tiff")),
        Part(inline_data=Blob(data=b"\x04", mime_type="hm")),
        Part(file_data=FileData(file_uri="gs://bucket/i.png", mime_type="image/png")),
        Part(file_data=FileData(file_uri="https://h/a.pdf", mime_type="application/pdf")),
    ],
)
async def test_media_that_the_api_does_not_take_are_told_in_words(part: Part) -> None:
    """
    What cannot be sent is told to the model in words: it is in the log, and later requests have it, too.
    """
    [message] = (await body_of(user_says(Part(text="see"), part)))["messages"]
    [_, piece] = message["content"]
    assert piece["type"] == "text"
    assert "which you are not shown" in piece["text"]


async def test_a_model_that_reads_text_only_is_told_of_media_in_words() -> None:
    """
    With `sees_media=False` no image, sound or file is sent, but texts are; a server of one's own takes any image.
    """
    kinds = ["image/png", "application/pdf", "audio/wav", "text/csv", "image/bmp"]
    media = [Part(inline_data=Blob(data=b"a", mime_type=kind)) for kind in kinds]
    for sees_media, types in ((True, "image_url file input_audio text image_url"), (False, "text text text text text")):
        options = {"sees_media": sees_media, "dialect": "compatible"}
        [message] = (await body_of(user_says(*media), options=options))["messages"]
        assert [piece["type"] for piece in message["content"]] == types.split()
        assert message["content"][3]["text"] == "a"
    with pytest.raises(ConfigurationError, match="sees_media"):
        OpenAIChat("m", api_key="k", sees_media="no")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("mode", "names", "sent"),
    [
        ("AUTO", [], "auto"),
        ("ANY", [], "required"),
        ("NONE", [], "none"),
        ("ANY", ["add"], {"type": "function", "function": {"name": "add"}}),
        (
            "ANY",
            ["add", "now"],
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [
                        {"type": "function", "function": {"name": "add"}},
                        {"type": "function", "function": {"name": "now"}},
                    ],
                },
            },
        ),
    ],
)
async def test_tools_are_chosen(mode: str, names: list[str], sent: Any) -> None:
    """
    ADK's modes and allowed names are the API's tool_choice.
    """
    config = {"function_calling_config": {"mode": mode, "allowed_function_names": names}}
    assert (await body_of("hi", tools=[ADD, NOW], tool_config=config))["tool_choice"] == sent


async def test_settings_are_the_apis() -> None:
    """
    Each setting that the API has is sent under its name there.
    """
    body = await body_of(
        "hi", temperature=0.5, top_p=0.9, max_output_tokens=7, stop_sequences=["x"], presence_penalty=0.1,
        frequency_penalty=0.2, seed=3, labels={"team": "a"}, thinking_config={"thinking_level": "LOW"},
    )  # fmt: skip
    del body["messages"]
    assert body == {
        "model": "gpt-5", "temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 7, "stop": ["x"],
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "seed": 3, "metadata": {"team": "a"},
        "reasoning_effort": "low", "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"thinking_config": {"thinking_budget": 100}}, "thinking_config.thinking_budget"),
        ({"thinking_config": {"thinking_level": "vast"}}, "thinking_config.thinking_level"),
        ({"response_mime_type": "text/x.enum"}, "response_mime_type"),
        ({"tools": [ADD], "tool_config": {"function_calling_config": {"mode": "VALIDATED"}}}, "tool_config"),
    ],
)
async def test_values_that_the_api_does_not_have_are_refused(config: dict[str, Any], name: str) -> None:
    """
    A setting with a value that the API does not have is refused by name, and left out with `ignore`.
    """
    async with playing(API) as (model, _):
        with pytest.raises(NotSupportedError, match=name):
            await ask(model, request(**config))
    body = await body_of("hi", options={"ignore": {name}}, **config)
    assert not {"reasoning_effort", "response_format", "tool_choice"} & body.keys()


async def test_answers_of_a_schema_are_asked_for() -> None:
    """
    A schema is sent closed, and strict where all of its properties are required.
    """
    inner = {"type": "object", "properties": {"properties": {"type": "string"}}, "required": ["properties"]}
    schema = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    form = (await body_of("hi", response_schema=schema))["response_format"]["json_schema"]
    closed = {**schema, "properties": {"a": {**inner, "additionalProperties": False}}, "additionalProperties": False}
    assert form == {"name": "response", "schema": closed, "strict": True}
    form = (await body_of("hi", response_schema={**schema, "required": []}))["response_format"]["json_schema"]
    assert form["strict"] is False
    assert (await body_of("hi", response_mime_type="application/json"))["response_format"] == {"type": "json_object"}


async def test_other_servers_get_what_they_know() -> None:
    """
    Servers that are not OpenAI's get `max_tokens` and the role `system`, and need no key.
    """
    body = await body_of("hi", options={"dialect": None}, max_output_tokens=7, system_instruction="Be brief.")
    assert body["max_tokens"] == 7
    assert body["messages"][0]["role"] == "system"
    assert OpenAIChat("qwen3", base_url="http://localhost:11434/v1").name == "qwen3"
    with pytest.raises(ConfigurationError, match="api_key"):
        OpenAIChat("gpt-5")
    with pytest.raises(ConfigurationError, match="dialect"):
        OpenAIChat("gpt-5", base_url="http://h/v1", dialect="open")  # type: ignore[arg-type]  # that is the mistake


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_thoughts_of_other_servers_are_thoughts() -> None:
    """
    `reasoning_content` comes as thoughts, before the text; with `include_thoughts=False` it does not come.
    """
    script = [streamed("chat_reasoning.sse")] * 2
    async with playing(API, *script) as (model, _):
        *fragments, response = await ask(model)
        hidden = await answer(model, request(thinking_config={"include_thoughts": False}))
    assert response.content == model_says(Part(text="Let me think.", thought=True), Part(text="42"))
    assert [part.text for each in fragments if each.content for part in each.content.parts] == [
        "Let me ", "think.", "42"
    ]  # fmt: skip
    assert hidden.content == model_says(Part(text="42"))


def chunk(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"id": "i", "model": "m", "choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


@pytest.mark.parametrize("args", ["{", "[1]", '{"a": NaN}', "[" * 5000, '{"a":' * 200 + "1" + "}" * 200])
async def test_arguments_that_are_no_object_are_kept_as_text(args: str) -> None:
    """
    A call whose arguments cannot be arguments is a call still, with their text, and no exception.
    """
    call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": args}}
    reply = Reply([chunk(delta={"tool_calls": [call]}), chunk(delta={}, finish_reason="tool_calls")])
    async with playing(API, reply) as (model, _):
        response = await answer(model)
    assert response.content is not None
    (found,) = response.content.calls
    assert found == FunctionCall(name="add", id="c", args_text=args)


async def test_calls_without_an_index_are_told_apart() -> None:
    """
    Calls of servers that give no index, or the same one to all, are told apart by their ids.
    """
    functions = [{"name": "add", "arguments": {"n": n}} for n in range(3)]
    calls: list[dict[str, Any]] = [{"id": f"c{n}", "function": function} for n, function in enumerate(functions)]
    calls[2]["index"] = calls[1]["index"] = 0
    pieces = [chunk(delta={"tool_calls": [call]}) for call in calls]
    async with playing(API, Reply([*pieces, chunk(delta={}, finish_reason="stop")])) as (model, _):
        response = await answer(model)
    assert response.content is not None
    assert [(call.id, call.args) for call in response.content.calls] == [(f"c{n}", {"n": n}) for n in range(3)]


@pytest.mark.parametrize(
    ("said", "reason", "found"),
    [("stop", {}, "STOP"), ("length", {}, "MAX_TOKENS"), ("content_filter", {}, "SAFETY"), ("odd", {}, "OTHER"),
     ("tool_calls", {}, "STOP"), ("function_call", {}, "STOP"), ("stop", {"refusal": "I will not."}, "SAFETY")],
)  # fmt: skip
async def test_finish_reasons_are_adks(said: str, reason: dict[str, str], found: str) -> None:
    """
    The reason for stopping is one of ADK's names; what the policy has stopped has an error code.
    """
    reply = Reply([chunk(delta={"content": None, **reason}), chunk(delta={}, finish_reason=said)])
    async with playing(API, reply) as (model, _):
        response = await answer(model)
    assert response.finish_reason == found
    assert response.error_code == ("SAFETY" if found == "SAFETY" else None)
    if reason:
        assert response.error_message == "I will not."


# --- through the SDK --------------------------------------------------------------------------------------------------

# The SDKs leave generators to the garbage collector when a stream ends; trio warns of that.
leaves_generators = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@leaves_generators
async def test_the_sdks_client_sends_the_requests() -> None:
    """
    Through OpenAI's own client answers, errors and lost connections are what they are without it, and it is not closed.
    """
    server = chat_completions()
    slow = whole(API.error("rate_limit_error", "slow down"), 429)
    slow.headers["retry-after"] = "2"
    begun = fixture("chat_text.sse")[:600].rpartition(b"\n\n")[0] + b"\n\n"
    lost = b'data: {"error":"upstream lost"}\n\n'
    server.script += [streamed("chat_text.sse"), whole(API.whole), slow, Reply([begun, API.error_event])]
    server.script.append(Reply([begun, lost]))
    async with served(server) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        model = OpenAIChat("gpt-5", client=client)
        for stream in (True, False):
            response = await answer(model, stream=stream)
            assert response.content is not None
            assert (response.content.text, response.model_version) == (TEXT, "gpt-5-2026-01-01")
        with pytest.raises(ModelRateLimitedError) as caught:
            await ask(model)
        assert (caught.value.status, caught.value.retry_after_s) == (429, 2.0)
        with pytest.raises(ModelOverloadedError) as overloaded:
            await ask(model)
        assert overloaded.value.has_begun
        with pytest.raises(ModelOverloadedError, match="upstream lost"):
            await ask(model)
        await model.aclose()
        assert not client.is_closed()
    assert len(server.asked) == 5


@leaves_generators
async def test_azures_client_sends_the_requests() -> None:
    """
    A client of a cloud brings its own address and its own way to sign in.
    """
    server = chat_completions()
    server.script.append(streamed("chat_text.sse"))
    async with served(server) as url:
        async with AsyncAzureOpenAI(azure_endpoint=url, api_key=KEY, api_version="2026-01-01") as client:
            response = await answer(OpenAIChat("gpt-5", client=client))
    assert response.content is not None
    assert response.content.text == TEXT


@pytest.mark.parametrize(
    "options", [{"api_key": KEY}, {"headers": {"a": "b"}}, {"base_url": "http://localhost/v1"}, {"timeout_s": 5}]
)
def test_a_client_has_its_own_key_address_and_time(options: dict[str, Any]) -> None:
    """
    A key, a header, an address or a time-out beside a client would have no effect, and is refused.
    """
    with pytest.raises(ConfigurationError, match="beside client"):
        OpenAIChat("gpt-5", client=AsyncOpenAI(api_key=KEY), **options)


def test_a_client_is_async() -> None:
    """
    A client that is not async is refused.
    """
    with pytest.raises(ConfigurationError, match="async client"):
        OpenAIChat("gpt-5", client=OpenAI(api_key=KEY))
