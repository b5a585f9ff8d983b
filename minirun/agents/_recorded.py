"""What an LlmAgent has called before, where its invocation is resumed."""

from __future__ import annotations

from ..events import Event
from ..runtime import InvocationContext
from ..types import FunctionCall

__all__ = ["without_responses"]


async def without_responses(
    ctx: InvocationContext, calls: list[FunctionCall]
) -> tuple[Event | None, list[FunctionCall]]:
    """Return the event with the last recorded responses, if there is one, and the calls that are left to make."""
    replayer = ctx._invocation.replayer
    assert replayer is not None, "only a resumed invocation has a record"
    event, left = await replayer.repeat_responses(ctx, calls)
    if left:
        await replayer.leave_replay(ctx, "calls of tools", left)
    return event, left
