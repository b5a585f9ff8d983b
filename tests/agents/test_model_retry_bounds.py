"""Asking a model again: how often, for how long a wait, within which deadline, and what the caller is told."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import Event, LlmAgent, RunConfig
from minirun.errors import (
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelTimeoutError,
)
from minirun.testing import ScriptedLlm
from minirun.tools import RetryConfig

from ..helpers import run_to_end, runner_for

AT_ONCE = RetryConfig(max_attempts=3, initial_delay=0, jitter=0)


async def asked(error: Exception, *, fails: int = 1, retry: Any = AT_ONCE, **config: Any) -> tuple[float, list[Event]]:
    """Ask a model that fails so often; return how long it took, and the events."""
    began = trio.current_time()
    agent = LlmAgent(name="a", model=ScriptedLlm([*[error] * fails, "fine"]), model_retry=retry)
    events, _ = await run_to_end(runner_for(agent), run_config=RunConfig(**config))
    assert events[-1].text == "fine"
    return trio.current_time() - began, events


@pytest.mark.parametrize("seconds", [0, 3, 119.5, 120])
async def test_what_the_provider_says_is_waited_for(seconds: float, autojump_clock: MockClock) -> None:
    """Up to two minutes, whatever the setting would wait for if that is less."""
    took, _ = await asked(ModelRateLimitedError("slow down", retry_after_s=seconds))
    assert took == seconds
    longer = RetryConfig(max_attempts=3, initial_delay=50, jitter=0)
    took, _ = await asked(ModelRateLimitedError("slow down", retry_after_s=seconds), retry=longer)
    assert took == max(50, seconds)


@pytest.mark.parametrize("seconds", [120.5, 3600])
async def test_a_longer_wait_is_left_to_the_caller(seconds: float, autojump_clock: MockClock) -> None:
    """The error is the run's, at once: asking earlier is of no use."""
    began = trio.current_time()
    with pytest.raises(ModelRateLimitedError, match="slow down"):
        await asked(ModelRateLimitedError("slow down", retry_after_s=seconds))
    assert trio.current_time() == began


async def test_nobody_waits_until_the_deadline(autojump_clock: MockClock) -> None:
    """A wait that would end at it or later is not begun: what the provider has said is worth more."""
    took, _ = await asked(ModelOverloadedError("busy", retry_after_s=9.5), deadline_s=10)
    assert took == 9.5
    for seconds in (10, 11):
        began = trio.current_time()
        with pytest.raises(ModelOverloadedError, match="busy"):
            await asked(ModelOverloadedError("busy", retry_after_s=seconds), deadline_s=10)
        assert trio.current_time() == began


@pytest.mark.parametrize(
    ("retry", "attempts"), [(AT_ONCE, 3), ("standard", 3), (RetryConfig(max_attempts=1), 1), (None, 1)]
)
async def test_a_model_is_asked_so_often_and_no_more(retry: Any, attempts: int, autojump_clock: MockClock) -> None:
    """One failure less is got over; as many are the run's error."""
    _, events = await asked(ModelTimeoutError("late"), fails=attempts - 1, retry=retry)
    notices = [event.custom_metadata for event in events if event.partial]
    assert [told["model_retry"]["attempt"] for told in notices if told] == list(range(1, attempts))
    with pytest.raises(ModelTimeoutError, match="late"):
        await asked(ModelTimeoutError("late"), fails=attempts, retry=retry)


@pytest.mark.parametrize(
    ("error", "exceptions", "is_again"),
    [
        (ModelRateLimitedError("x"), None, True),
        (ModelOverloadedError("x"), None, True),
        (ModelTimeoutError("x"), None, True),
        (ModelConnectionError("x"), None, True),
        (ModelRequestError("x"), None, False),
        (ValueError("x"), None, False),
        (ValueError("x"), ["ValueError"], True),
        (ModelConnectionError("x"), ["ValueError"], False),
    ],
)
async def test_only_what_may_be_gone_in_a_moment_is_tried_again(
    error: Exception, exceptions: Any, is_again: bool, autojump_clock: MockClock
) -> None:
    """Unless the setting names other errors."""
    retry = RetryConfig(max_attempts=2, initial_delay=0, jitter=0, exceptions=exceptions)
    if is_again:
        await asked(error, retry=retry)
    else:
        with pytest.raises(type(error)):
            await asked(error, retry=retry)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ModelRateLimitedError("slow down", status=429, request_id="r-1", retry_after_s=2),
            {
                "error": "ModelRateLimitedError",
                "delay_s": 2,
                "message": "slow down",
                "status": 429,
                "request_id": "r-1",
            },
        ),
        (ModelConnectionError(""), {"error": "ModelConnectionError", "delay_s": 0}),
        (ValueError("odd"), {"error": "ValueError", "delay_s": 0, "message": "odd"}),
    ],
)
async def test_the_caller_is_told_of_each_attempt_that_failed(
    error: Exception, told: dict[str, Any], autojump_clock: MockClock
) -> None:
    """By a partial event of the agent without content, which has what is known of the error and of the wait."""
    retry = RetryConfig(max_attempts=3, initial_delay=0, jitter=0, exceptions=[ModelError, ValueError])
    _, events = await asked(error, retry=retry)
    [notice] = [event for event in events if event.partial]
    assert notice.custom_metadata == {"model_retry": {"attempt": 1, **told}}
    assert (notice.author, notice.content, notice.invocation_id) == ("a", None, events[-1].invocation_id)
