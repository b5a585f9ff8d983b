"""Threads that were given up: their call was cancelled, and they have not ended in the time that they have then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import ThreadsExhaustedError

if TYPE_CHECKING:
    from ._threads import LateOutcome, Threads

__all__ = ["exhausted", "note_abandoned"]

_logger = logging.getLogger("minirun")


def note_abandoned(threads: Threads, thread: LateOutcome, call: Callable[[], Any], grace_s: float) -> None:
    """Count a thread that goes on alone, until it has returned, and say so."""
    threads.abandoned.add(thread)
    if thread.has_returned:  # it discards itself, perhaps just before it was added
        threads.abandoned.discard(thread)
    func = getattr(call, "func", call)
    _logger.warning(
        "the thread of %s was cancelled, has not ended within thread_grace_s=%s seconds, and goes on alone; "
        "%d of at most %d such threads of this runner still run",
        getattr(func, "__qualname__", type(func).__qualname__),
        grace_s,
        len(threads.abandoned),
        threads.limiter.total_tokens,
    )


def exhausted(count: int) -> ThreadsExhaustedError:
    """Return the error that refuses another thread, while *count* abandoned ones run."""
    return ThreadsExhaustedError(
        f"expected fewer than {count} abandoned threads of tools, found {count} that still run; "
        "give what tools wait for a time limit of its own"
    )
