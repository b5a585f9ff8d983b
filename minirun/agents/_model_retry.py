"""
A model's provider has failed before it said anything: whether it is asked again, and when.

It is asked the same question, so nothing of it is in the prompt or in the log, and all attempts together are one
question for `RunConfig.max_llm_calls`. Whoever runs the agent is told by a partial event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from .._json import finite
from ..errors import (
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelTimeoutError,
)
from ..events import Event
from ..runtime import InvocationContext
from ..tools import RetryConfig

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["RETRIED", "is_retried"]

RETRIED = (ModelRateLimitedError, ModelOverloadedError, ModelTimeoutError, ModelConnectionError)
"""What is asked again unless a RetryConfig names other errors: what may be gone in a moment."""

STANDARD = RetryConfig(max_attempts=3)
"""What `LlmAgent(model_retry="standard")` stands for."""

# The official SDK of OpenAI stops following the provider's word beyond two minutes; a caller that waits for longer is
# better told so.
RETRY_AFTER_S_MAX = 120.0


async def is_retried(agent: LlmAgent, ctx: InvocationContext, event_id: str, error: Exception, attempt: int) -> bool:
    """
    Say whether the model is to be asked again after *attempt* attempts, and wait until then.

    A checkpoint if so.
    """
    retry = STANDARD if agent.model_retry == "standard" else agent.model_retry
    if not isinstance(retry, RetryConfig) or attempt >= retry.max_attempts or not _is_covered(retry, error):
        return False
    invocation, path = ctx._invocation, f"asks again {ctx._path}"
    delay_s = retry.delay_s(attempt, invocation.env.random(path))
    told = finite(getattr(error, "retry_after_s", None))
    if told is not None:
        if told > RETRY_AFTER_S_MAX:
            return False  # there is no room for as long as that, and asking earlier is of no use
        delay_s = max(delay_s, told)
    if trio.current_time() + delay_s >= trio.current_effective_deadline():
        return False  # the run would be over: what the provider has said is worth more
    await ctx.emit(_notice(ctx, event_id, error, attempt, delay_s))
    await invocation.env.sleep(delay_s)
    await invocation.env.point(path)
    return not ctx.end_invocation


def _is_covered(retry: RetryConfig, error: Exception) -> bool:
    return isinstance(error, RETRIED) if retry.exceptions is None else retry.covers(error)


def _notice(ctx: InvocationContext, event_id: str, error: Exception, attempt: int, delay_s: float) -> Event:
    """What a caller is told of it: a partial event without content."""
    told: dict[str, Any] = {"attempt": attempt, "error": type(error).__name__, "delay_s": delay_s}
    message = ctx._invocation.secrets.text_of(error)
    if message:
        told["message"] = message
    if isinstance(error, ModelError):
        about = {"status": error.status, "request_id": error.request_id}
        told.update({name: value for name, value in about.items() if value is not None})
    return Event(
        id=event_id,
        invocation_id=ctx.invocation_id,
        author=ctx.agent_name,
        branch=ctx.branch,
        partial=True,
        custom_metadata={"model_retry": told},
    )
