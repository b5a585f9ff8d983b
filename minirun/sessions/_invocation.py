"""The invocations of runs, as stores record them: how far each has come."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from .._record import Record
from ._key import SessionKey

if TYPE_CHECKING:
    from ..events import Event

__all__ = ["Invocation", "InvocationStatus", "invocation_of", "may_begin"]


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


def may_begin(found: Invocation, event: Event) -> bool:
    """Whether a run of an invocation that is recorded so may begin with *event*, which says if it goes on after all."""
    status = found.status
    return not status.has_ended or (status is not status.COMPLETED and event.actions.replay.attempt is not None)


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
