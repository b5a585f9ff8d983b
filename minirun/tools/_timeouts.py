"""What is known of a call that was cut off, by its time or by a cancellation: its thread may have gone on."""

from __future__ import annotations

from .._threads import LateOutcome
from ..errors import ToolTimeoutError
from ._outcome import UNKNOWN, Failure

__all__ = ["timed_out", "unknown_after_cancellation"]


def timed_out(limit_s: float, late: LateOutcome | None, failed_with: str) -> Failure:
    """Return the failure of an attempt that its time has cancelled; *failed_with* is what it, or its thread, raised."""
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


def unknown_after_cancellation() -> Failure:
    """Return the failure of a call that was cancelled while its thread went on."""
    return Failure(UNKNOWN, "the call was cancelled and its thread did not end in time; it may still take effect")
