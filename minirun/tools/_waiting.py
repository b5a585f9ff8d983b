"""Calls that wait for somebody outside: what is stored of them when the invocation pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..env import derived_id
from ..events import Event, EventActions
from ..flows._branches import calls_around
from ..runtime import InvocationContext, ToolContext

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["has_asked", "mark_waiting"]


async def mark_waiting(
    context: InvocationContext, waiting: Sequence[ToolCall], *, closing: bool = False
) -> list[ToolCall]:
    """
    Store which calls wait, unless it is stored already, with what long-running tools have written and saved: their
    results come later, and not from them. Return those that have failed instead, because what they wrote does not fit.
    """
    calls = context._invocation.live.open_calls
    unmarked = [each for each in waiting if each.id in calls and not calls[each.id].pending]
    for each in unmarked:
        if each.tool.is_long_running:
            each.merge_into(context)
    failed = [each for each in unmarked if not each.is_waiting]
    unmarked = [each for each in unmarked if each.is_waiting]
    if not unmarked:
        return failed
    long_running = [each for each in unmarked if each.tool.is_long_running]
    interim = {each.id: each.initial_result for each in long_running if each.initial_result is not None}
    event = Event(
        id=derived_id(context.invocation_id, "waits", *(each.call.id for each in unmarked)),
        long_running_tool_ids=[each.id for each in long_running],
        actions=EventActions(suspended_calls=[each.id for each in unmarked if not each.tool.is_long_running]),
        custom_metadata={"interim": interim} if interim else None,
    )
    await context._invocation.emitter.emit(context, event, closing=closing)
    return failed


def has_asked(context: ToolContext) -> bool:
    """Whether the call of *context*, or something inside of it, waits: a cancellation does not take a question back."""
    call_id = context.function_call_id
    for call in context._invocation.open_calls():
        is_inside = call.pending == "waits" and call_id in calls_around(call.branch)
        if is_inside or (call.call_id == call_id and call.pending):
            return True
    return False
