"""
The calls of one turn: they begin in call order, run together, and are answered together, in call order, by one event.

Each call was stored before this begins, and each is answered whatever happens: with its result, its error, that it
was cancelled, or that nobody knows (promise P6). A cancelled batch stores what there is and lets the cancellation go
on; if that is a supervisor's, what has no result stays open, for the run that goes on. Every tool writes to a layer of
its own; the layers of those that succeeded are merged in call order. So of two calls that write one key the later one
wins, if both leave it to the batch to store; what a call stores by an event of its own, as an agent that is a tool
does, counts from that commit on.

A call may have to wait for somebody outside: for permission, for an answer, for a result that comes later. Those that
are done are answered; the others stay open, and the invocation is paused. When it is resumed, only they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from ..env import derived_id
from ..errors import TransfersLimitExceededError
from ..events import Event
from ..flows._branches import calls_around
from ..runtime import InvocationContext
from ..runtime._endings import Stop, failed_by
from ..runtime._failure import Pause, leading_failure
from ..sessions import InvocationStatus
from ..sessions._concurrent import ConcurrentWrites
from ..types import Content, FunctionCall, Part
from ._base import BaseTool
from ._call import ToolCall
from ._outcome import Failure

__all__ = ["run_calls", "run_group"]


async def run_calls(context: InvocationContext, calls: Sequence[FunctionCall], tools: Mapping[str, BaseTool]) -> Event:
    """
    Run *calls* and return the stored event that answers them.

    Raises:
        Pause: Some wait. The others are answered.
        FatalError: A tool has met a limit of the run. The calls are answered all the same.
    """
    context._invocation.budgets.spend("max_tool_calls", len(calls))
    return await run_group(context, calls, tools)


async def run_group(
    context: InvocationContext,
    calls: Sequence[FunctionCall],
    tools: Mapping[str, BaseTool],
    later: Sequence[FunctionCall] = (),
    call_type: Callable[..., ToolCall] = ToolCall,
) -> Event:
    """As `run_calls`, for calls that are counted; those *later* in their turn begin after them, and wait with them."""
    concurrent = ConcurrentWrites()
    batch = [call_type(context, call, tools, concurrent, index) for index, call in enumerate(calls)]
    replayer = context._invocation.replayer
    try:
        if replayer is not None:
            replayer.record.start_calls(each.id for each in batch)
        if len(batch) > 1:
            from ._starts import run_side_by_side  # most turns have one call

            await run_side_by_side(batch)
        else:
            async with trio.open_nursery() as nursery:
                for each in batch:
                    nursery.start_soon(each.run, name=f"tool {each.call.name}")
        done, waiting = _parted(batch)
        await _close_inside(context, done)
        event = await context.emit(_responses(context, done)) if done else Event()
        if waiting:
            from ._waiting import mark_waiting  # few calls wait for somebody

            failed = await mark_waiting(context, waiting, later)
            if failed:
                event = await context.emit(_responses(context, failed))
    except BaseException as error:
        with trio.CancelScope(shield=True):
            await _close(context, batch, later, error)
        raise
    for each in batch:
        if isinstance(each.outcome, Failure) and isinstance(each.outcome.error, TransfersLimitExceededError):
            raise each.outcome.error
    if any(each.is_waiting for each in batch):
        raise Pause("for a tool")
    return event


def _parted(batch: Sequence[ToolCall]) -> tuple[list[ToolCall], list[ToolCall]]:
    """The calls that are to be answered now, and those that wait."""
    return [each for each in batch if not each.is_waiting], [each for each in batch if each.is_waiting]


async def _close_inside(context: InvocationContext, batch: Sequence[ToolCall]) -> None:
    """What agents have left open inside of calls that are to be answered is answered before."""
    ids = {each.id for each in batch if each.id in context._invocation.inside}
    if ids:
        open_calls = context._invocation.open_calls()
        inside = [call for call in open_calls if not ids.isdisjoint(calls_around(call.branch))]
        if inside:
            from ..runtime._closing import close_calls  # few agents in calls leave something open

            await close_calls(context, inside)


async def _close(
    context: InvocationContext, batch: Sequence[ToolCall], later: Sequence[FunctionCall], error: BaseException
) -> None:
    """Answer what is open of a batch that *error* stopped, and mark what waits, with the calls *later* in the turn."""
    done, waiting = _parted(batch)
    is_interrupted = context._invocation.status is InvocationStatus.INTERRUPTED
    if is_interrupted or failed_by(leading_failure(error)) is Stop.STORE:  # as a process that dies would leave them
        done = [each for each in done if each.outcome is not None]
    if any(each.id in context._invocation.live.open_calls for each in done):
        try:
            await _close_inside(context, done)
            await context._invocation.emitter.emit(context, _responses(context, done), closing=True)
        except Exception:  # the store fails: the end of the run tries again and reports it
            context._invocation.failures.unrecorded_calls |= {each.call.id for each in batch if each.was_made}
            return
    if waiting:
        from ._waiting import mark_waiting  # few calls wait for somebody

        await mark_waiting(context, waiting, later, closing=True)


def _responses(context: InvocationContext, done: Sequence[ToolCall]) -> Event:
    """The event that answers the calls, with what they have written and saved, in their order."""
    has_actions = any(each.context._draft is not None for each in done)  # few tools set any
    if has_actions and any(each.context.actions.transfer_to_agent is not None for each in done):
        from ._handover import choose_target  # few tools hand over

        choose_target(context, done)
    for each in done:
        each.merge_into(context)
    if has_actions:
        context.actions.merge_flags(each.context.actions for each in done)
    parts = [Part(function_response=each.response()) for each in done]
    event_id = derived_id(context.invocation_id, "responses", *(each.call.id for each in done))
    return Event(id=event_id, content=Content(role="user", parts=parts))
