"""Calls that are cut off, by their time or by a cancellation, and what is known of them: a thread may have gone on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from .._threads import LateOutcome
from ..errors import ToolTimeoutError
from ..runtime import ToolContext
from ._outcome import UNKNOWN, Failure, Outcome

if TYPE_CHECKING:
    from ._attempts import Attempts

__all__ = ["called_within", "ended_late"]


async def called_within(
    attempts: Attempts, limit_s: float, context: ToolContext, args: Mapping[str, Any]
) -> Outcome:
    """An attempt that its time has cancelled is a timeout; one that gave a result or an error is not, even then."""
    failed_with = ""
    scope = trio.CancelScope(deadline=trio.current_time() + limit_s)
    try:
        with scope:
            return await attempts._called(context, args)
    except Exception as error:
        if not scope.cancelled_caught:
            return attempts._failed(error)
        failed_with = _told(context, attempts._first(error))
    if context.late is not None and context.late.error is not None:
        failed_with = _told(context, context.late.error)
    return attempts._numbered(_timed_out(limit_s, context.late, failed_with))


def _timed_out(limit_s: float, late: LateOutcome | None, failed_with: str) -> Failure:
    """The failure of an attempt that its time has cancelled; *failed_with* is what it, or its thread, raised."""
    kind, took = ToolTimeoutError.__name__, f"the call took longer than timeout_s={limit_s} seconds"
    if late is None:
        message = f"{took} and was cancelled" + (f"; then it failed with {failed_with}" if failed_with else "")
    elif late.finished:
        how = "with a result, which was dropped" if late.error is None else f"with {failed_with}"
        message = f"{took}; its thread has ended since, {how}"
    elif late.revoked:
        message = f"{took}, waiting for a thread; it was not begun"
    else:
        kind, message = UNKNOWN, f"{took} and its thread did not end in time; it may still take effect"
    return Failure(kind, message, ToolTimeoutError(message), is_final=kind == UNKNOWN)


def ended_late(attempts: Attempts, late: LateOutcome) -> Outcome | None:
    """Return what became of a thread after the call was cancelled; None if it had not begun."""
    if late.finished:
        return attempts._returned(late.value) if late.error is None else attempts._failed(late.error)
    if late.revoked:
        return None
    message = "the call was cancelled and its thread did not end in time; it may still take effect"
    return attempts._numbered(Failure(UNKNOWN, message))


def _told(context: ToolContext, error: Exception) -> str:
    return f"{type(error).__name__}: {context._invocation.secrets.text_of(error)}"
