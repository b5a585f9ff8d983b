"""
OpenAI's responses.
"""

from __future__ import annotations

import json
from typing import Any

from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

from .openai_chat import KEY
from .server import Asked, FakeProvider
from .strict import problem_with

__all__ = ["KEY", "problem_with_body", "responses"]


def problem_with_body(body: Any) -> str | None:
    """What the API would find wrong with a request's body."""
    kind = ResponseCreateParamsStreaming if body.get("stream") else ResponseCreateParamsNonStreaming
    return problem_with(body, kind) or _problem_with_items(body)


def _problem_with_items(body: Any) -> str | None:
    if body.get("store") is not False:
        return "store: this organization keeps nothing"
    open_ids: list[str] = []
    thought: str | None = None
    for index, item in enumerate(body["input"]):
        kind = item.get("type", "message")
        if (
            thought is not None
            and kind != "reasoning"
            and (kind == "function_call_output" or item.get("role") == "user")
        ):
            return f"Item '{thought}' of type 'reasoning' was provided without its required following item."
        thought = None
        if kind == "reasoning":
            if not item.get("encrypted_content"):
                return f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
            thought = item["id"]
        elif "id" in item:
            return f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
        elif kind == "function_call":
            json.loads(item["arguments"])
            open_ids.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_ids:
                return f"input[{index}]: No tool call found for function call output with call_id {item['call_id']}."
            open_ids.remove(item["call_id"])
        elif item["role"] == "user" and open_ids:
            return f"No tool output found for function call {open_ids[0]}."
    if thought is not None:
        return f"Item '{thought}' of type 'reasoning' was provided without its required following item."
    return f"No tool output found for function call {open_ids[0]}." if open_ids else None


def _refusal(asked: Asked) -> tuple[int, Any] | None:
    def error(status: int, kind: str, message: str, code: str | None = None) -> tuple[int, Any]:
        return status, {"error": {"message": message, "type": kind, "param": None, "code": code}}

    if asked.path != "/v1/responses":
        return error(404, "invalid_request_error", f"Invalid URL (POST {asked.path})")
    if asked.headers.get("authorization") != f"Bearer {KEY}":
        return error(401, "invalid_request_error", "Incorrect API key provided", "invalid_api_key")
    problem = problem_with_body(asked.body)
    return error(400, "invalid_request_error", problem) if problem else None


def responses() -> FakeProvider:
    """The server."""
    return FakeProvider(_refusal)
