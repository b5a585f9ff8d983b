"""The answers of models that an invocation has recorded, for a run that goes on with it."""

from __future__ import annotations

from ..events import Event
from ..runtime import InvocationContext
from ._base import INVALID_OUTPUT

__all__ = ["recorded_answer"]


async def recorded_answer(ctx: InvocationContext, event_id: str) -> tuple[Event, list[str]] | None:
    """Return the answer that is recorded as the event of this id, and what is wrong with its form; None: none is."""
    replayer, budgets = ctx._invocation.replayer, ctx._invocation.budgets
    recorded = None if replayer is None else replayer.record.find(event_id)
    if replayer is None or recorded is None:
        return None
    if recorded.actions.replay.asked is not False:
        budgets.count_llm_call()
        budgets.count_tokens(recorded.usage_metadata)
    event = await replayer.repeat(ctx, recorded, {})
    return event, [event.error_message or ""] if event.error_code == INVALID_OUTPUT else []
