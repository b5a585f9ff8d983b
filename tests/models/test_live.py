"""
The providers themselves: `pytest -m live`, for those who have keys. Each test costs a few dozen tokens.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import NamedTuple

import pytest

from minirun import InMemoryRunner, LlmAgent, RunConfig, StreamingMode


class Live(NamedTuple):
    """A class of models, the variable that has its key, and a model of its provider, unless `MODEL_VARIABLE` says."""

    module: str
    name: str
    key_variable: str
    model_variable: str
    model: str


LIVE = (
    Live("openai", "OpenAIChat", "OPENAI_API_KEY", "MINIRUN_LIVE_OPENAI", "gpt-5-mini"),
    Live("openai", "OpenAIResponses", "OPENAI_API_KEY", "MINIRUN_LIVE_OPENAI", "gpt-5-mini"),
    Live("anthropic", "Claude", "ANTHROPIC_API_KEY", "MINIRUN_LIVE_ANTHROPIC", "claude-haiku-4-5"),
    Live("gemini", "Gemini", "GEMINI_API_KEY", "MINIRUN_LIVE_GEMINI", "gemini-2.5-flash"),
)


def opening_hours(museum: str) -> str:
    """Say when a museum is open."""
    return f"{museum} is open from 11 to 17."


@pytest.fixture
def key(live: Live) -> str:
    """The key of its provider."""
    found = os.environ.get(live.key_variable)
    if not found:
        pytest.skip(f"{live.name} asks its provider, and {live.key_variable} has no key")
    return found


@pytest.mark.live
@pytest.mark.parametrize("live", LIVE, ids=lambda live: live.name)
async def test_a_provider_calls_a_tool_and_answers(live: Live, key: str) -> None:
    """
    A real model streams, calls a tool with the right argument, understands its result, and tells what it has used.
    """
    make = getattr(import_module(f"minirun.models.{live.module}"), live.name)
    model = make(os.environ.get(live.model_variable) or live.model, api_key=key)
    instruction = "Answer in one sentence. Ask your tool for opening hours."
    agent = LlmAgent(name="guide", model=model, instruction=instruction, tools=[opening_hours])
    question, config = "When is the Fram museum open?", RunConfig(streaming_mode=StreamingMode.SSE)
    async with InMemoryRunner(agent=agent, auto_create_session=True) as runner:
        async with runner.run_async(user_id="u", session_id="s", new_message=question, run_config=config) as run:
            events = [event async for event in run]
            answer = run.answer
    assert [call.name for event in events for call in event.get_function_calls() if not event.partial] == [
        "opening_hours"
    ]
    assert any(event.partial for event in events)
    assert answer is not None
    assert "17" in answer.text or "5" in answer.text
    assert answer.usage_metadata is not None
    assert answer.usage_metadata.prompt_token_count
    assert answer.model_version
