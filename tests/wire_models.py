"""
The models behind HTTP, side by side: for each API its fake server, how to make the model, and what its wire looks like.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import attrs
import pytest

from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.models.anthropic import Claude
from minirun.models.gemini import Gemini
from minirun.models.openai import OpenAIChat, OpenAIResponses
from minirun.types import Content, GenerateContentConfig, Part

from .provider_servers import anthropic, gemini, openai_chat, openai_responses
from .provider_servers.server import FakeProvider, Reply, fixture, served

__all__ = ["APIS", "Api", "answer", "ask", "request", "streamed", "whole"]


@attrs.frozen
class Api:
    """One API."""

    name: str
    server: Callable[[], FakeProvider]
    model: Callable[..., BaseLlm]  # given the server's address, and options
    text: str  # the file of a stream whose text is TEXT
    calls: str  # that of one with two calls
    whole: dict[str, Any]  # the body that says TEXT without a stream
    error: Callable[[str, str], Any]  # the body of an error, given its type and message
    error_event: bytes  # an error in a stream that stands for an overloaded server
    request_id_header: str
    key: str
    base: str  # what of the base URL comes after the server's address
    end: bytes  # what stands in the last event of the stream with the calls that has to come
    response_id: str
    model_version: str
    cached: tuple[int, int | None]  # tokens read from the cache, and written to it
    call_ids: tuple[str | None, str | None]
    lacking: dict[str, Any]  # settings that the API does not have; the first is refused
    more: dict[str, Any]  # a field for `extra_body`


def _openai(url: str, **options: Any) -> BaseLlm:
    return OpenAIChat("gpt-5", **({"base_url": f"{url}/v1", "api_key": openai_chat.KEY, "dialect": "openai"} | options))


def _responses(url: str, **options: Any) -> BaseLlm:
    return OpenAIResponses("gpt-5", **({"base_url": f"{url}/v1", "api_key": openai_chat.KEY} | options))


def _gemini(url: str, **options: Any) -> BaseLlm:
    if "client" in options:
        pytest.skip("the async client of google-genai does not run on trio")
    return Gemini("gemini-3-pro", **({"base_url": f"{url}/v1", "api_key": gemini.KEY} | options))


def _claude(url: str, **options: Any) -> BaseLlm:
    return Claude("claude-opus-4-5", **({"base_url": url, "api_key": anthropic.KEY} | options))


LACKING = {"top_k": 3, "cached_content": "c", "safety_settings": [{"category": "c", "threshold": "t"}]}
TEXT = "Grüße 😀 from\nhere\ufffd"

APIS = {
    api.name: api
    for api in (
        Api(
            "openai",
            openai_chat.chat_completions,
            _openai,
            "chat_text.sse",
            "chat_calls.sse",
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": "gpt-5-2026-01-01",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "Grüße \ud83d\ude00 from\nhere\ud800"},
                    }
                ],
                "usage": {
                    "prompt_tokens": 20,
                    "completion_tokens": 12,
                    "total_tokens": 32,
                    "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 5},
                },
            },
            lambda kind, message: {"error": {"message": message, "type": kind, "param": None, "code": kind}},
            b'data: {"error":{"message":"overloaded","type":"server_error","code":null}}\n\n',
            "x-request-id",
            openai_chat.KEY,
            "/v1",
            b'"finish_reason":"tool_calls"',
            "chatcmpl-1",
            "gpt-5-2026-01-01",
            (8, 4),
            ("call_a", "call_b"),
            LACKING,
            {"service_tier": "auto"},
        ),
        Api(
            "responses",
            openai_responses.responses,
            _responses,
            "responses_text.sse",
            "responses_calls.sse",
            {
                "id": "resp_1",
                "object": "response",
                "status": "completed",
                "model": "gpt-5-2026-01-01",
                "error": None,
                "output": [
                    {
                        "id": "msg_1",
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "Grüße \ud83d\ude00 from\nhere\ud800"}],
                    }
                ],
                "usage": {
                    "input_tokens": 20,
                    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 4},
                    "output_tokens": 12,
                    "output_tokens_details": {"reasoning_tokens": 5},
                    "total_tokens": 32,
                },
            },
            lambda kind, message: {"error": {"message": message, "type": kind, "param": None, "code": kind}},
            b'event: error\ndata: {"type":"error","code":"server_error","message":"overloaded","param":null}\n\n',
            "x-request-id",
            openai_chat.KEY,
            "/v1",
            b'"type":"response.completed"',
            "resp_1",
            "gpt-5-2026-01-01",
            (8, 4),
            ("call_a", "call_b"),
            LACKING,
            {"service_tier": "auto"},
        ),
        Api(
            "gemini",
            gemini.gemini,
            _gemini,
            "gemini_text.sse",
            "gemini_calls.sse",
            {
                "candidates": [
                    {
                        "content": {"role": "model", "parts": [{"text": "Grüße \ud83d\ude00 from\nhere\ud800"}]},
                        "finishReason": "STOP",
                    }
                ],
                "usageMetadata": {
                    "promptTokenCount": 17,
                    "toolUsePromptTokenCount": 3,
                    "candidatesTokenCount": 7,
                    "thoughtsTokenCount": 5,
                    "totalTokenCount": 32,
                    "cachedContentTokenCount": 8,
                },
                "modelVersion": "gemini-3-pro-2026",
                "responseId": "g-1",
            },
            lambda kind, message: {"error": {"code": 999, "status": kind, "message": message}},
            b'data: {"error":{"code":503,"status":"UNAVAILABLE","message":"overloaded"}}\n\n',
            "x-request-id",
            gemini.KEY,
            "/v1",
            b'"finishReason":"STOP"',
            "g-1",
            "gemini-3-pro-2026",
            (8, None),
            ("fn-a", None),
            {"thinking_config": {"thinking_level": "max"}},
            {"serviceTier": "standard"},
        ),
        Api(
            "anthropic",
            anthropic.messages,
            _claude,
            "messages_text.sse",
            "messages_calls.sse",
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-4-5-20260101",
                "content": [{"type": "text", "text": "Grüße \ud83d\ude00 from\nhere\ud800"}],
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 4,
                    "cache_read_input_tokens": 6,
                    "output_tokens": 12,
                    "output_tokens_details": {"thinking_tokens": 5},
                },
            },
            lambda kind, message: {"type": "error", "error": {"type": kind, "message": message}},
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"overloaded"}}\n\n',
            "request-id",
            anthropic.KEY,
            "",
            b"message_stop",
            "msg_1",
            "claude-opus-4-5-20260101",
            (6, 4),
            ("toolu_a", "toolu_b"),
            LACKING,
            {"service_tier": "auto"},
        ),
    )
}


def request(*contents: Content | str, **config: Any) -> LlmRequest:
    """A request; texts are the user's."""
    given = [Content(role="user", parts=[Part(text=item)]) if isinstance(item, str) else item for item in contents]
    return LlmRequest(contents=given or [Content(role="user", parts=[Part(text="hi")])],
                      config=GenerateContentConfig(**config))  # fmt: skip


def streamed(name: str, **options: Any) -> Reply:
    """A reply that plays a file."""
    return Reply([fixture(name)], **options)


def whole(body: Any, status: int = 200, **headers: str) -> Reply:
    """A reply with a JSON body."""
    data = json.dumps(body).encode()
    return Reply([data], status, {name.replace("_", "-"): value for name, value in headers.items()}, "application/json")


async def ask(model: BaseLlm, asked: LlmRequest | None = None, stream: bool = True) -> list[LlmResponse]:
    """All responses to a request."""
    async with aclosing(model.generate_content_async(asked or request(), stream)) as responses:
        return [response async for response in responses]


async def answer(model: BaseLlm, asked: LlmRequest | None = None, stream: bool = True) -> LlmResponse:
    """The complete response to a request."""
    return (await ask(model, asked, stream))[-1]


@asynccontextmanager
async def playing(api: Api, *script: Reply, **options: Any) -> AsyncGenerator[tuple[BaseLlm, FakeProvider]]:
    """A model of an API whose server answers from a script, and the server."""
    server = api.server()
    server.script += script
    async with served(server) as url:
        model = api.model(url, **options)
        yield model, server
        await model.aclose()


def model_says(*parts: Part) -> Content:
    return Content(role="model", parts=parts)


def user_says(*parts: Part) -> Content:
    return Content(role="user", parts=parts)


async def body_sent(
    api: Api, *contents: Content | str, options: dict[str, Any] | None = None, **config: Any
) -> Any:
    """The body that is sent for a request, which the server has accepted and answered."""
    async with playing(api, streamed(api.text), **(options or {})) as (model, server):
        await ask(model, request(*contents, **config))
    return server.asked[0].body
