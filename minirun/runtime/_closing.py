"""What a run stores at its end, and where makers of calls end before it: answers to what is open, and failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio

from ..errors import StorageError
from ..events import Event, EventActions
from ..sessions import InvocationStatus, OpenCall
from ..sessions._recovery import around_waiting, by_event, closing_event_at_end
from ._context import InvocationContext
from ._endings import Closes, Ending

__all__ = ["close_calls", "close_open_calls"]


async def close_calls(context: InvocationContext, calls: Iterable[OpenCall]) -> None:
    """
    Answer *calls*, whose maker has ended before they gave a result, what waits included: nobody waits any more.

    Raises:
        StorageError, StaleSessionError: What was answered until then is stored; the maker must not end before the rest.
    """
    replayer = context._invocation.replayer
    if replayer is not None:
        # A run that fails after this has not left the invocation as it was: only a failed one asks its questions again.
        replayer.has_new = True
    failures = context._invocation.failures
    with trio.CancelScope(shield=True):
        for group in by_event(calls):
            try:
                await _emit(context, closing_event_at_end(group, failures.unrecorded_calls))
            except StorageError:
                failures.has_unclosed_calls = True
                raise


async def close_open_calls(
    context: InvocationContext, ending: Ending, failure: BaseException | None, others: Sequence[Exception]
) -> None:
    """
    Answer the open calls, but not what waits if the ending keeps it, and store the *failure* and the *others* with it.

    Raises:
        StorageError, StaleSessionError: What was answered until then is stored; the next run answers the rest.
    """
    invocation = context._invocation
    to_close = invocation.open_calls()
    if ending.closes is Closes.NOT_WAITING:
        kept = around_waiting(to_close)
        to_close = [call for call in to_close if not (call.pending or call.call_id in kept)]
        to_close = await _without_suspended(context, to_close)
    for calls in by_event(to_close):
        await _emit(context, closing_event_at_end(calls, invocation.failures.unrecorded_calls))
    if invocation.silent_readers and ending.status is InvocationStatus.PAUSED:  # nobody else will say what they read
        await _emit(context, Event())
    if invocation.live.has_messages and ending.status in (InvocationStatus.FAILED, InvocationStatus.CANCELLED):
        await invocation.program.messages().store_messages(context)
    if ending.stores_failure and failure is not None:
        for error in (failure, *(other for other in others if other is not failure)):
            await _emit(context, _error_event(context, error))


async def _without_suspended(context: InvocationContext, calls: list[OpenCall]) -> list[OpenCall]:
    """
    Suspend those of *calls* that no agent has come to again, and return the others.

    Batches answer or mark the calls that they come to. So these are left over from an earlier run: an agent that waits
    has asked before them.
    """
    replayer, unrecorded = context._invocation.replayer, context._invocation.failures.unrecorded_calls
    if replayer is None:
        return calls
    left = [call for call in calls if call.call_id in replayer.record.open_before and call.call_id not in unrecorded]
    if left:
        ids = [call.call_id for call in left]
        await _emit(context, Event(actions=EventActions(suspended_calls=ids)))
    return [call for call in calls if call not in left]


async def _emit(context: InvocationContext, event: Event) -> None:
    await context._invocation.emitter.emit(context, event, closing=True)


def _error_event(context: InvocationContext, error: BaseException) -> Event:
    author, branch, node = context._invocation.failures.origin(error)
    text = context._invocation.secrets.text_of(error)
    message = text.encode(errors="replace").decode() if text else type(error).__name__
    return Event(
        author=author, branch=branch, node_info=node, error_code=type(error).__name__, error_message=message
    )
