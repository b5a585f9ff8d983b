"""
OpenAI's chat completions.
"""

from __future__ import annotations

import json
import re
from typing import Any

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from .server import Asked, FakeProvider
from .strict import problem_with

__all__ = ["KEY", "chat_completions", "problem_with_body"]

KEY = "sk-test"


def problem_with_body(body: Any) -> str | None:
    """What the API would find wrong with a request's body."""
    kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
    return problem_with(body, kind) or _problem_with_messages(body["messages"])


def _problem_with_messages(messages: list[Any]) -> str | None:
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                return f"messages[{index}]: 'tool' must be a response to a preceding message with 'tool_calls'"
            open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            return f"messages[{index}]: 'tool_calls' must be followed by tool messages, missing are {open_ids}"
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
            if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"]):
                return f"messages[{index}].tool_calls: expected a name that matches '^[a-zA-Z0-9_-]+$'"
            open_ids.append(call["id"])
        if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
            return f"messages[{index}]: expected content or tool_calls"
    return f"calls without an answer: {open_ids}" if open_ids else None


def _refusal(asked: Asked) -> tuple[int, Any] | None:
    def error(status: int, kind: str, message: str, code: str | None = None) -> tuple[int, Any]:
        return status, {"error": {"message": message, "type": kind, "param": None, "code": code}}

    if asked.path not in ("/v1/chat/completions", "/openai/deployments/gpt-5/chat/completions"):
        return error(404, "invalid_request_error", f"Invalid URL (POST {asked.path})")
    if KEY not in (asked.headers.get("authorization", "").removeprefix("Bearer "), asked.headers.get("api-key")):
        return error(401, "invalid_request_error", "Incorrect API key provided", "invalid_api_key")
    problem = problem_with_body(asked.body)
    return error(400, "invalid_request_error", problem) if problem else None


def chat_completions() -> FakeProvider:
    """The server."""
    return FakeProvider(_refusal)
