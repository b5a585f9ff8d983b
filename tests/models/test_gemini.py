"""
Google's Gemini: contents in and out, seals on any part, and the many ways in which it gives no answer.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any

import pytest

from minirun import InMemoryRunner, LlmAgent, RunConfig, StreamingMode
from minirun.errors import (
    ContextTooLongError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
)
from minirun.models._seals import opened, sealed
from minirun.models._sse import SseReader
from minirun.models.gemini import BASE_URL, Gemini
from minirun.types import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    Part,
)

from ..provider_servers.server import Reply, fixture
from ..wire_models import APIS, answer, ask, body_sent, playing, request, streamed, whole

API = APIS["gemini"]
body_of = partial(body_sent, API)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = FunctionDeclaration(name="add", description="Add.", parameters=SCHEMA)
NOW = FunctionDeclaration(name="now")
OWN_ID = "call-0123456789abcdef01234567"


def events(*found: dict[str, Any]) -> Reply:
    return Reply([f"data: {json.dumps(event)}\n\n".encode() for event in found])


def said(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **candidate}]}


def told(role: str, *parts: Part) -> Content:
    return Content(role=role, parts=parts)


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_settings_have_their_places() -> None:
    """
    System instruction, tools and their choice, the settings of an answer, safety and labels stand where they belong.
    """
    found = await body_of(
        "hi", system_instruction="Be brief.", tools=[ADD, NOW], temperature=0.5, top_p=0.5, top_k=3, seed=1,
        max_output_tokens=9, stop_sequences=["x"], presence_penalty=0.5, frequency_penalty=0.5, response_schema=SCHEMA,
        tool_config={"function_calling_config": {"mode": "ANY", "allowed_function_names": ["add"]}},
        thinking_config={"include_thoughts": True, "thinking_level": "low"}, labels={"a": "b"},
        safety_settings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        extra_body={"generationConfig": {"candidateCount": 1}},
    )  # fmt: skip
    assert found == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "add", "description": "Add.", "parametersJsonSchema": SCHEMA},
                    {"name": "now"},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {
            "temperature": 0.5, "topP": 0.5, "topK": 3, "maxOutputTokens": 9, "stopSequences": ["x"],
            "presencePenalty": 0.5, "frequencyPenalty": 0.5, "seed": 1, "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
            "candidateCount": 1,
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "labels": {"a": "b"},
    }  # fmt: skip


async def test_a_cached_content_has_the_instruction_and_the_tools() -> None:
    """
    With a cached content the system instruction, the tools and their choice, which it has, are not sent.
    """
    found = await body_of("hi", system_instruction="x", tools=[ADD], cached_content="cachedContents/1")
    assert found.keys() == {"cachedContent", "contents"}


async def test_a_conversation_is_contents() -> None:
    """
    Own seals go back on their parts, also on calls and empty texts; unsealed thoughts, and seals of others, do not. Ids
    that the provider gave go back, those that minirun made do not.
    """
    mine, other = sealed("gemini", "signature", "YWI="), sealed("openai", "item", "{}")
    model = told(
        "model",
        Part(text="unsealed", thought=True),
        Part(text="other", thought=True, thought_signature=other),
        Part(text="mine", thought=True, thought_signature=mine),
        Part(text="said", thought_signature=other),
        Part(function_call=FunctionCall(name="add", args={"a": 1}, id="fn-1"), thought_signature=mine),
        Part(function_call=FunctionCall(name="now", id=OWN_ID)),
        Part(text="", thought_signature=mine),
    )
    answers = told(
        "user",
        Part(text="there"),
        Part(function_response=FunctionResponse(name="add", id="fn-1", response={"result": 1})),
        Part(function_response=FunctionResponse(name="now", id=OWN_ID, response={"error": "no"})),
    )
    found = await body_of("hi", model, answers)
    assert found["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "mine", "thought": True, "thoughtSignature": "YWI="},
                {"text": "said"},
                {"functionCall": {"name": "add", "args": {"a": 1}, "id": "fn-1"}, "thoughtSignature": "YWI="},
                {"functionCall": {"name": "now", "args": {}}},
                {"text": "", "thoughtSignature": "YWI="},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "response": {"result": 1}, "id": "fn-1"}},
                {"functionResponse": {"name": "now", "response": {"error": "no"}}},
                {"text": "there"},
            ],
        },
    ]


async def test_media_and_code_go_in() -> None:
    """
    Media, by bytes or by address, stand in messages and in what tools answer; code and its result are parts as well.
    """
    media = [
        Part(inline_data=Blob(data=b"\x89", mime_type="image/png; x=1")),
        Part(file_data=FileData(file_uri="gs://b/f", mime_type="video/mp4")),
    ]
    parts = [{"inlineData": {"mimeType": "image/png", "data": "iQ=="}},
             {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/f"}}]  # fmt: skip
    found = await body_of(
        told("user", *media),
        told(
            "model",
            Part(executable_code=ExecutableCode(code="1", language="PYTHON")),
            Part(code_execution_result=CodeExecutionResult(outcome="OUTCOME_OK", output="1")),
            Part(executable_code=ExecutableCode(code="1", language="lua")),
            Part(function_call=FunctionCall(name="now", id="f")),
        ),
        told("user", Part(function_response=FunctionResponse(name="now", id="f", parts=media))),
    )
    assert found["contents"][0]["parts"] == parts
    assert found["contents"][1]["parts"][:3] == [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "```lua\n1\n```"},
    ]
    assert found["contents"][2]["parts"] == [
        {"functionResponse": {"name": "now", "response": {}, "id": "f", "parts": parts}}
    ]


@pytest.mark.parametrize("kind", ["hm", "application/zip", "", "application/"])
async def test_media_that_it_does_not_take_are_told_in_words(kind: str) -> None:
    """
    What the API does not take is told in words; in what a tool has answered, the response tells of it already.
    """
    media = Part(inline_data=Blob(data=b"a", mime_type=kind))
    found = await body_of(
        told("user", media),
        told("model", Part(function_call=FunctionCall(name="now", id="f"))),
        told("user", Part(function_response=FunctionResponse(name="now", id="f", parts=[media]))),
    )
    [part] = found["contents"][0]["parts"]
    assert "which you are not shown" in part["text"]
    assert "parts" not in found["contents"][2]["parts"][0]["functionResponse"]


@pytest.mark.parametrize(("name", "is_new"), [("gemini-2.5-pro", False), ("gemini-3-pro", True), ("tuned/x", True)])
def test_what_a_model_is_able_to_do_follows_from_its_name(name: str, is_new: bool) -> None:
    """
    Models before Gemini 3 keep to no schema beside tools, and see no media in what tools answer.
    """
    able = Gemini(name, api_key="k").capabilities
    assert (able.output_schema, able.output_schema_and_tools, able.media_in_tool_results) == (True, is_new, is_new)


def test_vertex_takes_tokens() -> None:
    """
    Google's own API gets a key in a header of its own; Vertex AI gets a token.
    """
    host = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google"
    found = [Gemini("m", api_key="k", base_url=url)._wire.headers("k") for url in (BASE_URL, host)]
    assert found == [{"x-goog-api-key": "k"}, {"authorization": "Bearer k"}]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gemini-3-pro", "/models/gemini-3-pro:generateContent"),
        ("tunedModels/a", "/tunedModels/a:generateContent"),
        ("a?b:c", "/models/a%3Fb%3Ac:generateContent"),
    ],
)
def test_names_are_paths(name: str, path: str) -> None:
    """
    A name with a slash is the whole path, and no name leads elsewhere.
    """
    assert Gemini(name, api_key="k")._wire.outgoing(request(), name, False).path == path


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_seals_stay_on_the_parts_that_they_came_with() -> None:
    """
    Texts of one kind are joined up to a seal; a sealed part stays alone, be it a call or an empty text.
    """
    parts: list[dict[str, Any]] = [
        {"text": "a", "thought": True}, {"text": "b", "thought": True}, {"text": "c"}, {"text": "d"},
        {"text": "e", "thoughtSignature": "RQ=="}, {"text": "f"}, {"text": "", "thoughtSignature": "Rg=="},
        {"text": "g"},
    ]  # fmt: skip
    async with playing(API, events(*map(said, parts), said(finishReason="STOP"))) as (model, server):
        found = await answer(model)
        assert found.content is not None
        server.script.append(streamed("gemini_text.sse"))
        await ask(model, request("hi", found.content, "go on"))
    shown = [
        (part.thought, part.text, seal and seal.payload)
        for part in found.content.parts
        for seal in [opened(part.thought_signature, "gemini")]
    ]
    assert shown == [
        (True, "ab", None), (None, "cd", None), (None, "e", "RQ=="), (None, "f", None), (None, "", "Rg=="),
        (None, "g", None),
    ]  # fmt: skip
    assert server.asked[1].body["contents"][1]["parts"] == [
        {"text": "cd"}, parts[4], {"text": "f"}, parts[6], {"text": "g"}
    ]  # fmt: skip


async def test_calls_without_ids_come_and_go() -> None:
    """
    In an agent, calls without ids get some; their answers go back by name and order, and the calls' seals with them.
    """

    async def add(a: int, b: int) -> int:
        return a + b

    def now() -> str:
        return "noon"

    async with playing(API, streamed("gemini_calls.sse"), streamed("gemini_text.sse")) as (model, server):
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=model, tools=[add, now]), auto_create_session=True)
        streaming = RunConfig(streaming_mode=StreamingMode.SSE)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=streaming) as run:
            await run.wait()
    assert server.asked[1].body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "add", "args": {"a": 1, "b": 2}, "id": "fn-a"},
                 "thoughtSignature": "CrQBcall+/seal++"},
                {"functionCall": {"name": "now", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "response": {"result": 3}, "id": "fn-a"}},
                {"functionResponse": {"name": "now", "response": {"result": "noon"}}},
            ],
        },
    ]  # fmt: skip


async def test_what_an_answer_says_beside_its_text() -> None:
    """
    Sources and searches are told, and usage is summed over what tools have put into the prompt.
    """
    async with playing(API, streamed("gemini_text.sse")) as (model, _):
        found = await answer(model)
    assert found.citation_metadata == {"citations": [{"uri": "https://h/", "startIndex": 0, "endIndex": 5}]}
    assert found.grounding_metadata == {"webSearchQueries": ["a"]}
    assert found.usage_metadata is not None
    assert found.usage_metadata.prompt_token_count == 20
    assert found.usage_metadata.tool_use_prompt_token_count == 3


async def test_pictures_and_code_come_out() -> None:
    """
    Pictures, files, code and its result are parts of the answer, shown as they come; unknown parts are read over.
    """
    data = base64.b64encode(b"\x89").decode()
    parts: list[dict[str, Any]] = [
        {"inlineData": {"mimeType": "image/png", "data": data}, "thoughtSignature": "RQ=="},
        {"fileData": {"fileUri": "gs://b/f"}},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"id": "x"}},
    ]
    async with playing(API, events(said(*parts), said(finishReason="STOP"))) as (model, _):
        *fragments, found = await ask(model)
    assert found.content is not None
    picture, file, code, result = found.content.parts
    assert picture.inline_data == Blob(data=b"\x89", mime_type="image/png")
    assert opened(picture.thought_signature, "gemini") is not None
    assert file.file_data == FileData(file_uri="gs://b/f")
    assert code.executable_code == ExecutableCode(code="1", language="PYTHON")
    assert result.code_execution_result == CodeExecutionResult(outcome="OUTCOME_OK", output="1")
    assert sum(len(each.content.parts) for each in fragments if each.content) == 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reason", ["SAFETY", "RECITATION", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"]
)
async def test_reasons_that_leave_no_answer_are_error_codes(reason: str, stream: bool) -> None:
    """
    Every finish reason but the end and the limit is an error code, with the provider's words.
    """
    body = {"candidates": [{"finishReason": reason, "finishMessage": "so it is"}]}
    async with playing(API, events(body) if stream else whole(body)) as (model, _):
        found = await answer(model, stream=stream)
    assert (found.finish_reason, found.error_code, found.error_message) == (reason, reason, "so it is")


async def test_the_limit_of_tokens_is_no_error() -> None:
    """
    An answer that the limit has cut off is one, and says so.
    """
    async with playing(API, events(said({"text": "a"}, finishReason="MAX_TOKENS"))) as (model, _):
        found = await answer(model)
    assert (found.finish_reason, found.error_code) == ("MAX_TOKENS", None)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_blocked_prompt_is_an_error_code(stream: bool) -> None:
    """
    A prompt that is blocked has no candidates; why is the error code.
    """
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}
    async with playing(API, events(body) if stream else whole(body)) as (model, _):
        found = await answer(model, stream=stream)
    assert (found.finish_reason, found.error_code) == ("PROHIBITED_CONTENT", "PROHIBITED_CONTENT")
    assert found.usage_metadata is not None
    assert found.usage_metadata.prompt_token_count == 3


@pytest.mark.parametrize("parts", [[], [{"text": ""}], [{"text": "", "thoughtSignature": "RQ=="}]])
async def test_an_empty_answer_is_an_error_of_the_turn(parts: list[dict[str, Any]]) -> None:
    """
    An answer that ends well and says nothing, sealed or not, is an event with an error code.
    """
    async with playing(API, whole(said(*parts, finishReason="STOP"))) as (model, _):
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            found = [event async for event in run]
    assert found[-1].error_code == "MODEL_RETURNED_NO_CONTENT"


# --- failures ---------------------------------------------------------------------------------------------------------


def error(code: int, status: str, message: str = "so it is", *details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


@pytest.mark.parametrize("stream", [False, True])
async def test_how_long_to_wait_stands_in_the_body(stream: bool) -> None:
    """
    A `RetryInfo` says how long to wait, where no header does.
    """
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}
    body = error(429, "RESOURCE_EXHAUSTED", "quota", {"@type": "x"}, retry)
    async with playing(API, whole(body, 429), whole(body, 429, retry_after="1")) as (model, _):
        for seconds in (37.5, 1.0):
            with pytest.raises(ModelRateLimitedError) as caught:
                await ask(model, stream=stream)
            assert caught.value.retry_after_s == seconds


async def test_a_wrong_key_is_told_as_one() -> None:
    """
    Google answers a wrong key with status 400, and it is an authentication error all the same.
    """
    async with playing(API, api_key="wrong") as (model, _):
        with pytest.raises(ModelAuthenticationError, match="API key not valid") as caught:
            await ask(model)
    assert caught.value.status == 400


async def test_a_conversation_that_is_too_long_is_told_as_one() -> None:
    """
    The words of the provider say that there are too many tokens.
    """
    words = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
    async with playing(API, whole(error(400, "INVALID_ARGUMENT", words), 400)) as (model, _):
        with pytest.raises(ContextTooLongError):
            await ask(model)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("before", [b"", fixture("gemini_text.sse")[:500].rpartition(b"\n\n")[0] + b"\n\n"])
async def test_json_in_the_place_of_events_is_an_error(before: bytes, listed: bool, indent: int | None) -> None:
    """
    An error that comes as plain JSON, at once or after some events, on one line or on many, is that error.
    """
    body = error(503, "UNAVAILABLE")
    told = json.dumps([body] if listed else body, indent=indent).encode()
    async with playing(API, Reply([before, told]), Reply([before, told + b"\n\n"])) as (model, _):
        for _ in range(2):
            with pytest.raises(ModelOverloadedError, match="so it is") as caught:
                await ask(model)
            assert caught.value.has_begun is bool(before)


async def test_json_that_is_cut_off_is_a_lost_connection() -> None:
    """
    JSON in the place of events that does not end says nothing.
    """
    async with playing(API, Reply([b'{"error": {"code": 503'])) as (model, _):
        with pytest.raises(ModelConnectionError):
            await ask(model)


def test_every_byte_may_be_the_last() -> None:
    """
    A stream that is cut anywhere before the event with a reason to finish has not ended, byte by byte.
    """
    data = fixture("gemini_text.sse")
    end = data.index(b"\n\n", data.index(b'"finishReason"'))
    wire = Gemini("m", api_key="k")._wire
    for place in range(end):
        assembler, reader = wire.assembler(True), SseReader()
        for event in reader.feed(data[:place]):
            assembler.feed(json.loads(event.data))
        assert not assembler.is_done
        assert reader.left() == b""


@pytest.mark.parametrize(
    "body", [{"error": "odd"}, {"error": {"code": "x", "details": {}}}, {"error": {"details": [{"retryDelay": 3}]}}]
)
async def test_odd_errors_are_errors(body: dict[str, Any]) -> None:
    """
    An error of another form is still one of the family.
    """
    async with playing(API, whole(body)) as (model, _):
        with pytest.raises(ModelError):
            await ask(model, stream=False)
