"""
Anthropic's messages.
"""

from __future__ import annotations

import re
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming

from .server import Asked, FakeProvider
from .strict import problem_with

__all__ = ["KEY", "messages", "problem_with_body"]

KEY = "sk-ant-test"


def problem_with_body(body: Any) -> str | None:
    """What the API would find wrong with a request's body."""
    kind = MessageCreateParamsStreaming if body.get("stream") else MessageCreateParamsNonStreaming
    return problem_with(body, kind) or _problem_with_messages(body["messages"])


def _problem_with_messages(messages: list[Any]) -> str | None:
    called: list[str] = []
    for index, message in enumerate(messages):
        blocks = message["content"]
        if not blocks:
            return f"messages.{index}: all messages must have non-empty content"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return f"messages.{index}: text content blocks must contain non-whitespace text"
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            return f"messages.{index}: tool_result blocks must come first"
        if sorted(answered) != sorted(called):
            return f"messages.{index}: `tool_use` ids were found without `tool_result` blocks: {called}"
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if any(
            not re.fullmatch("[a-zA-Z0-9_-]{1,128}", block["name"]) for block in blocks if block["type"] == "tool_use"
        ):
            return f"messages.{index}: tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if any(_is_empty(block) for block in _all_blocks(blocks)):
            return f"messages.{index}: media and text blocks must be non-empty"
        allowed = {"assistant": {"text", "thinking", "redacted_thinking", "tool_use"}}
        wrong = {block["type"] for block in blocks} - allowed.get(message["role"], {block["type"] for block in blocks})
        if wrong:
            return f"messages.{index}: an assistant does not say {wrong}"
    if messages[0]["role"] != "user":
        return 'messages: first message must use the "user" role'
    if messages[-1]["role"] != "user":
        return "This model does not support assistant message prefill"
    return f"messages: calls without results: {called}" if called else None


def _all_blocks(blocks: list[Any]) -> list[Any]:
    inner = [
        block["content"] for block in blocks if block["type"] == "tool_result" and isinstance(block["content"], list)
    ]
    return [*blocks, *(block for found in inner for block in found)]


def _is_empty(block: Any) -> bool:
    return block["type"] in ("image", "document") and block["source"].get("data") == ""


def _refusal(asked: Asked) -> tuple[int, Any] | None:
    def error(status: int, kind: str, message: str) -> tuple[int, Any]:
        return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_refused"}

    if asked.path != "/v1/messages":
        return error(404, "not_found_error", "Not found")
    if asked.headers.get("authorization") != f"Bearer {KEY}":
        return error(401, "authentication_error", "invalid bearer token")
    if asked.headers.get("anthropic-version") != "2026-10-21":
        return error(400, "invalid_request_error", "anthropic-version: is not a valid version")
    problem = problem_with_body(asked.body)
    return error(400, "invalid_request_error", problem) if problem else None


def messages() -> FakeProvider:
    """The server."""
    return FakeProvider(_refusal)
