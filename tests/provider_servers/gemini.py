"""
Google's Gemini.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pydantic
from google.genai import types

from .server import Asked, FakeProvider

__all__ = ["KEY", "Caches", "gemini", "problem_with_body", "problem_with_fields"]

KEY = "AIza-test"

_PATH = re.compile(r"/v1/models/(gemini-[a-z0-9.-]+):(generateContent|streamGenerateContent)")
_TTL = re.compile(r"[0-9]+(\.[0-9]{1,9})?s")


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


class _CacheBody(pydantic.BaseModel):
    """A request for a cache."""

    model_config = types.Content.model_config

    model: str
    contents: list[types.Content] | None = None
    system_instruction: types.Content | None = None
    tools: list[types.Tool] | None = None
    tool_config: types.ToolConfig | None = None
    ttl: str


def problem_with_body(body: Any) -> str | None:
    """What the API would find wrong with a request's body."""
    problem = problem_with_fields(_Body, body)
    if problem is not None:
        return problem
    if body.get("cachedContent") and {"systemInstruction", "tools", "toolConfig"} & body.keys():
        return "CachedContent can not be used with GenerateContent request setting system_instruction, tools"
    return _problem_with_contents(body["contents"])


def problem_with_fields(kind: type[pydantic.BaseModel], body: Any) -> str | None:
    try:
        made = kind.model_validate(body)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        return f"Invalid JSON payload received. {'.'.join(map(str, first['loc']))}: {first['msg']}"
    told = made.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if _plain(told) != _plain(body):  # pydantic knows the fields by two names, the API by one
        return f"Invalid JSON payload received. Unknown name: {body}"
    return None


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


class Caches:
    """
    The `cachedContents` of a project.

    Args:
        expiry: Until when each is kept, as the API tells it.
        letters_min: Smaller ones are refused.
    """

    def __init__(self, expiry: str = "2999-01-01T00:00:00.123456789Z", letters_min: int = 0) -> None:
        self.kept: dict[str, Any] = {}  # by name
        self._made = 0
        self._expiry = expiry
        self._letters_min = letters_min

    def problem_with(self, asked: Asked) -> tuple[int, Any] | None:
        """What is wrong with a request for a cache."""
        problem = problem_with_fields(_CacheBody, asked.body)
        if problem is None and (not _TTL.fullmatch(asked.body["ttl"]) or not asked.body["model"].startswith("models/")):
            problem = "Invalid value at 'ttl' or 'model'"
        if problem is None and asked.body.get("contents"):
            # words of the user, as there will be at its end, make it a whole conversation
            after = {"role": "user", "parts": [{"text": "and then"}]}
            problem = _problem_with_contents([*asked.body["contents"], after])
        if problem is None and len(json.dumps(asked.body)) < self._letters_min:
            problem = f"Cached content is too small. min_total_token_count={self._letters_min}"
        return _error(400, "INVALID_ARGUMENT", problem) if problem else None

    def make(self, asked: Asked) -> Any | None:
        """Make one, if that is what is asked for."""
        if asked.path != "/v1/cachedContents":
            return None
        self._made += 1
        name = f"cachedContents/made-{self._made}"
        self.kept[name] = asked.body
        return {"name": name, "model": asked.body["model"], "expireTime": self._expiry}

    def whole(self, asked: Asked) -> Any | None:
        """The body of a request, with what its cache has in its place; None: there is no such cache."""
        body = dict(asked.body)
        name = str(body.pop("cachedContent", ""))
        if not name.startswith("cachedContents/made-"):
            return asked.body
        kept = self.kept.get(name)
        found = _PATH.fullmatch(asked.path)
        if kept is None or found is None or kept["model"] != f"models/{found[1]}":
            return None
        rest = {field: value for field, value in kept.items() if field not in ("model", "ttl")}
        return {**rest, **body, "contents": [*kept.get("contents", ()), *body["contents"]]}


def _error(status: int, name: str, message: str, *details: Any) -> tuple[int, Any]:
    return status, {"error": {"code": status, "status": name, "message": message, "details": list(details)}}


def _refusal(asked: Asked, caches: Caches) -> tuple[int, Any] | None:
    found = _PATH.fullmatch(asked.path)
    makes_cache = asked.path == "/v1/cachedContents" and not asked.query
    is_answer = found is not None and asked.query == ("alt=sse" if found[2] == "streamGenerateContent" else "")
    if not is_answer and not makes_cache:
        return _error(404, "NOT_FOUND", "Requested entity was not found.")
    if asked.headers.get("x-goog-api-key") != KEY:
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", reason)
    if makes_cache:
        return caches.problem_with(asked)
    problem = problem_with_body(asked.body)
    if problem:
        return _error(400, "INVALID_ARGUMENT", problem)
    whole = caches.whole(asked)
    if whole is None:
        return _error(403, "PERMISSION_DENIED", "CachedContent not found (or permission denied)")
    problem = problem_with_body(whole)
    return _error(400, "INVALID_ARGUMENT", problem) if problem else None


def gemini(caches: Caches | None = None) -> FakeProvider:
    """The server."""
    kept = caches or Caches()
    return FakeProvider(lambda asked: _refusal(asked, kept), kept.make)
