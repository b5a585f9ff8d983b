"""The invocations of runs, as stores record them: how far each has come."""

from __future__ import annotations

from enum import StrEnum

import attrs

from .._record import Record
from ..events import Event
from ._key import SessionKey

__all__ = ["Invocation", "InvocationStatus", "invocation_at", "invocation_of", "may_begin", "rewound_invocation"]


class InvocationStatus(StrEnum):
    """How far an invocation has come."""

    RUNNING = "running"
    PAUSED = "paused"
    """It waits for somebody outside, and for no process: it can be resumed."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """Begun, and left, or its owner is gone. A file has it as running; this is how listing reports it."""

    @property
    def has_ended(self) -> bool:
        """Whether nobody goes on with it, unless somebody names one that has failed, or was cancelled."""
        return self in (InvocationStatus.COMPLETED, InvocationStatus.FAILED, InvocationStatus.CANCELLED)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Invocation(Record):
    """
    One invocation of a session.

    `seq` is that of the event it began with, also when it was resumed since. `end_seq` is the session's revision when
    it ended or paused; None while it runs, and where nobody has recorded an end.
    """

    app_name: str
    user_id: str
    session_id: str
    invocation_id: str
    status: InvocationStatus
    seq: int
    end_seq: int | None = None


def may_begin(found: Invocation | None, event: Event) -> bool:
    """Whether a run of an invocation that is recorded so may begin with *event*, which says if it goes on after all."""
    if found is None or not found.status.has_ended:
        return True
    return found.status is not InvocationStatus.COMPLETED and event.actions.replay.attempt is not None


def invocation_at(found: Invocation, seq: int, *, waits: bool) -> Invocation:
    """
    What an invocation was when *seq* was the newest event, as far as that is known; *waits*: a call of it waited then.
    """
    if found.end_seq is not None and found.end_seq <= seq:
        return found
    if found.end_seq is None or not waits:
        return attrs.evolve(found, status=InvocationStatus.INTERRUPTED, end_seq=None)
    return attrs.evolve(found, status=InvocationStatus.PAUSED, end_seq=seq)


def rewound_invocation(found: Invocation, target: int, rewind_seq: int, *, waits: bool) -> Invocation:
    """
    What an invocation is once event *rewind_seq* has undone those from *target* on: what it was before them.

    One that has begun in the undone part, and not ended, is cancelled. *waits*: a call of it waited before *target*.
    """
    if found.seq < target:
        return invocation_at(found, target - 1, waits=waits)
    if found.status.has_ended:
        return found
    return attrs.evolve(found, status=InvocationStatus.CANCELLED, end_seq=rewind_seq)


def invocation_of(
    key: SessionKey, invocation_id: str, status: InvocationStatus, seq: int, end_seq: int | None = None
) -> Invocation:
    """An invocation of the session *key*."""
    return Invocation(
        app_name=key.app_name,
        user_id=key.user_id,
        session_id=key.session_id,
        invocation_id=invocation_id,
        status=status,
        seq=seq,
        end_seq=end_seq,
    )
