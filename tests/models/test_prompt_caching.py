"""
What each API is told of caching, for apps that have a ContextCacheConfig.
"""

from __future__ import annotations

from typing import Any

import pytest

from minirun.models import ContextCacheConfig, LlmRequest
from minirun.types import Content, FunctionDeclaration, GenerateContentConfig, Part

from ..wire_models import APIS, ask, playing, streamed

CONTENTS = [Content(role="user", parts=[Part(text="a"), Part(text="b")])]
ADD = FunctionDeclaration(name="add", parameters={"type": "object", "properties": {}})
NOW = FunctionDeclaration(name="now")


async def body_of(api: str, config: ContextCacheConfig | None, **settings: Any) -> Any:
    """The body of a request with that caching, which the server has accepted."""
    key = "minirun-1" if config is not None else None
    asked = LlmRequest(contents=CONTENTS, config=GenerateContentConfig(**settings), cache_config=config, cache_key=key)
    async with playing(APIS[api], streamed(APIS[api].text)) as (model, server):
        await ask(model, asked)
    return server.asked[0].body


@pytest.mark.parametrize(("seconds", "ttl"), [(300, "5m"), (301, "1h"), (1800, "1h")])
async def test_claude_is_given_marks(seconds: float, ttl: str) -> None:
    """
    The system instruction, which stands after the tools, and the newest message have a mark, for as long as asked.
    """
    mark = {"type": "ephemeral", "ttl": ttl}
    found = await body_of("anthropic", ContextCacheConfig(ttl_seconds=seconds), system_instruction="s", tools=[ADD])
    assert found["system"] == [{"type": "text", "text": "s", "cache_control": mark}]
    assert found["messages"][-1]["content"] == [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": mark}
    ]  # fmt: skip
    assert "cache_control" not in found["tools"][0]


async def test_without_an_instruction_the_last_tool_has_the_mark() -> None:
    """
    The end of what all requests have is the last tool, where there is no system instruction.
    """
    found = await body_of("anthropic", ContextCacheConfig(), tools=[ADD, NOW])
    assert ["cache_control" in tool for tool in found["tools"]] == [False, True]


async def test_short_requests_have_no_marks() -> None:
    """
    Without caching, and below `min_tokens`, a request to Claude is the same.
    """
    bodies = [await body_of("anthropic", config) for config in (None, ContextCacheConfig(min_tokens=1000))]
    assert bodies[0] == bodies[1]
    assert bodies[0] != await body_of("anthropic", ContextCacheConfig(min_tokens=10))


@pytest.mark.parametrize(("api", "told"), [("openai", "minirun-1"), ("responses", "minirun-1"), ("gemini", None)])
async def test_others_cache_by_themselves(api: str, told: str | None) -> None:
    """
    OpenAI is given the key of what is shared; Gemini nothing.
    """
    found = await body_of(api, ContextCacheConfig())
    assert found.get("prompt_cache_key") == told
    without = await body_of(api, None)
    assert {name: value for name, value in found.items() if name != "prompt_cache_key"} == without
