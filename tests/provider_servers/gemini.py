"""
Google's Gemini.
"""

from __future__ import annotations

import re
from typing import Any

import pydantic
from google.genai import types

from .server import Asked, FakeProvider

__all__ = ["KEY", "gemini", "problem_with_body"]

KEY = "AIza-test"

_PATH = re.compile(r"/v1/models/gemini-[a-z0-9.-]+:(generateContent|streamGenerateContent)")


class _Body(pydantic.BaseModel):
    """A request, of the SDK's own types. It has the pieces only: its converters put them together."""

    model_config = types.Content.model_config

    contents: list[types.Content]
    system_instruction: types.Content | None = None
    tools: list[types.Tool] | None = None
    tool_config: types.ToolConfig | None = None
    generation_config: types.GenerationConfig | None = None
    safety_settings: list[types.SafetySetting] | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: str | None = None


def problem_with_body(body: Any) -> str | None:
    """What the API would find wrong with a request's body."""
    try:
        made = _Body.model_validate(body)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        return f"Invalid JSON payload received. {'.'.join(map(str, first['loc']))}: {first['msg']}"
    told = made.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if _plain(told) != _plain(body):  # pydantic knows the fields by two names, the API by one
        return f"Invalid JSON payload received. Unknown name: {body}"
    if made.cached_content and {"systemInstruction", "tools", "toolConfig"} & body.keys():
        return "CachedContent can not be used with GenerateContent request setting system_instruction, tools"
    return _problem_with_contents(body["contents"])


def _plain(value: Any) -> Any:
    """A value with base64 in one alphabet."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.replace("-", "+").replace("_", "/").rstrip("=") if isinstance(value, str) else value


def _problem_with_contents(contents: list[Any]) -> str | None:
    called: list[tuple[str, str | None]] = []
    for index, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            return "Please use a valid role: user, model."
        if not content["parts"]:
            return f"contents[{index}].parts must not be empty"
        for part in content["parts"]:
            if part.get("text") == "" and "thoughtSignature" not in part:
                return f"contents[{index}]: a part must have one initialized field"
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if [(answer["name"], answer.get("id")) for answer in answers] != called:
            return "the number of function response parts is equal to the number of function call parts"
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        called = [(call["name"], call.get("id")) for call in calls]
    if contents[-1]["role"] != "user":
        return "ensure that single turn requests end with a user role"
    return None


def _refusal(asked: Asked) -> tuple[int, Any] | None:
    def error(status: int, name: str, message: str, *details: Any) -> tuple[int, Any]:
        return status, {"error": {"code": status, "status": name, "message": message, "details": list(details)}}

    found = _PATH.fullmatch(asked.path)
    if found is None or asked.query != ("alt=sse" if found[1] == "streamGenerateContent" else ""):
        return error(404, "NOT_FOUND", "Requested entity was not found.")
    if asked.headers.get("x-goog-api-key") != KEY:
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        return error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", reason)
    problem = problem_with_body(asked.body)
    return error(400, "INVALID_ARGUMENT", problem) if problem else None


def gemini() -> FakeProvider:
    """The server."""
    return FakeProvider(_refusal)
