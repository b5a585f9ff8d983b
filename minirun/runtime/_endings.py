"""
How a run ends, as a table.

What has stopped the agents, and whether a question of the invocation is open then, decides how the invocation is
recorded, which of its open calls are answered, and whether its failure is stored. Whatever the table says, an
invocation of which the store has refused the closing events is interrupted: the next run closes them.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from ..errors import StorageError
from ..sessions import InvocationStatus
from ._failure import is_only_cancelled, is_pause, leading_failure

__all__ = ["ENDINGS", "Closes", "Ending", "Stop", "ending_of", "failed_by", "stopped_by"]


class Stop(Enum):
    """What has stopped the agents of a run."""

    END = auto()  # they have come to their end
    PAUSE = auto()  # one has asked, or sleeps
    LEAVING = auto()  # the caller has left
    SUPERVISOR = auto()  # so has a supervisor
    INTERRUPT = auto()  # Ctrl-C, SystemExit
    FAILURE = auto()  # an exception, the deadline
    STORE = auto()  # a transient failure of the store
    NOTHING_NEW = auto()  # a failure, or a hook's answer, before anything new was done in a resumed invocation


class Closes(Enum):
    """Which open calls are answered at the end."""

    ALL = auto()
    NOT_WAITING = auto()  # but those that wait, or have something inside that waits
    NONE = auto()


class Ending(NamedTuple):
    """How an invocation is left by a run."""

    status: InvocationStatus
    closes: Closes
    stores_failure: bool = False


_COMPLETED = Ending(InvocationStatus.COMPLETED, Closes.ALL)
_CANCELLED = Ending(InvocationStatus.CANCELLED, Closes.ALL)
_PAUSED = Ending(InvocationStatus.PAUSED, Closes.NOT_WAITING)
_FAILED = Ending(InvocationStatus.FAILED, Closes.ALL, stores_failure=True)
_INTERRUPTED = Ending(InvocationStatus.INTERRUPTED, Closes.NONE)
_STILL_PAUSED = Ending(InvocationStatus.PAUSED, Closes.NONE)

ENDINGS: Final[dict[Stop, tuple[Ending, Ending]]] = {
    # stopped by      no question open, a question open
    Stop.END:         (_COMPLETED,      _COMPLETED),
    Stop.PAUSE:       (_CANCELLED,      _PAUSED),  # an end that could not be stored as a whole has withdrawn questions
    Stop.LEAVING:     (_CANCELLED,      _PAUSED),  # who leaves a run that waits does not take its questions back
    Stop.SUPERVISOR:  (_INTERRUPTED,    _INTERRUPTED),
    Stop.INTERRUPT:   (_FAILED,         _PAUSED),
    Stop.FAILURE:     (_FAILED,         _FAILED),
    Stop.STORE:       (_INTERRUPTED,    _INTERRUPTED),  # as if the process had died: a worker resumes it
    Stop.NOTHING_NEW: (_INTERRUPTED,    _STILL_PAUSED),
}


def ending_of(stop: Stop, *, waits: bool) -> Ending:
    """Return how a run ends that was stopped so, while a question of its invocation *waits* or not."""
    return ENDINGS[stop][waits]


def stopped_by(error: BaseException | None, *, has_left: bool, is_supervised: bool) -> Stop:
    """
    Say what *error*, which has left the agents, means: a cancellation is the deadline's, unless the caller has left.
    """
    if error is None:
        return Stop.END
    if is_pause(error):
        return Stop.PAUSE
    if is_only_cancelled(error):
        return Stop.FAILURE if not has_left else Stop.SUPERVISOR if is_supervised else Stop.LEAVING
    return failed_by(leading_failure(error))


def failed_by(failure: BaseException) -> Stop:
    """Return what stopped a run that fails with *failure*, which is not a group."""
    if isinstance(failure, StorageError) and failure.is_transient:
        return Stop.STORE
    return Stop.FAILURE if isinstance(failure, Exception) else Stop.INTERRUPT
