"""What an LlmAgent has said and called before, where its invocation is resumed."""

from __future__ import annotations

from collections.abc import Sequence

from ..events import Event
from ..runtime import InvocationContext
from ..types import FunctionCall

__all__ = ["recorded_answer", "without_responses"]


async def recorded_answer(ctx: InvocationContext, event_id: str) -> Event | None:
    """Return the model's answer that was recorded under this id, counted as if it had been asked for now; or None."""
    replayer, budgets = ctx._invocation.replayer, ctx._invocation.budgets
    assert replayer is not None, "only a resumed invocation has a record"
    recorded = replayer.record.find(event_id)
    if recorded is None:
        return None
    if recorded.actions.replay.asked is not False:
        budgets.count_llm_call()
        budgets.count_tokens(recorded.usage_metadata)
    return await replayer.repeat(ctx, recorded, {})


async def without_responses(
    ctx: InvocationContext, calls: Sequence[FunctionCall]
) -> tuple[Event | None, Sequence[FunctionCall]]:
    """Return the event with the last responses if all calls have one; else None, and those that are left to make."""
    replayer = ctx._invocation.replayer
    assert replayer is not None, "only a resumed invocation has a record"
    event, left = await replayer.repeat_responses(ctx, calls)
    if event is not None and not left:
        return event, left
    await replayer.leave_replay(ctx, "calls of tools", left)
    return None, left
