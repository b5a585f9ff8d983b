"""
An append: what one event writes, worked out before it is sent, and what it makes of the live session once it is stored.

It stands on the session as this worker knows it. The statement stores it if that is still so (`_statement`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import StaleSessionError
from ...events import Event
from .._fold import apply_event
from .._kept import memory_of
from .._store import SessionWriter
from ._rows import call_row
from ._session import DatabaseSession
from ._state import STATE_KEY_BYTES, is_shared, shared_rows, state_rows
from ._statement import CONTINUES, ENTERS, OUTSIDE, Rows
from ._text import message_begins, stored_key

if TYPE_CHECKING:
    from .._compactions import Compaction
    from ._rewind import Undone

__all__ = ["Append"]


class Append:
    """One event on its way into the store."""

    def __init__(
        self,
        live: DatabaseSession,
        event: Event,
        line: str,
        writer: SessionWriter | None,
        *,
        begins: bool,
        undone: Undone | None = None,
    ) -> None:
        """
        Work out what *event*, of which *line* is the text, writes; *undone* is what a rewind has to know.

        Raises:
            InvalidValueError: An operation does not fit the session's own state.
        """
        assert live.mark is not None, "a session of a database has a link always"
        assert event.seq is not None
        self.live = live
        self.event = event
        self.line = line
        self.writer = writer
        self._begins = begins
        self._undone = undone
        # What the event was completed for, and the rest as it is now: others may bring the live session up to date
        # while this waits, before here or after. Then these never stood together in its row, and the append is stale.
        self.revision = event.seq - 1
        self.mark = live.mark
        self.epoch = live.epoch if writer is None or writer.epoch is None else writer.epoch
        self.gone = live.gone
        self.is_shared = is_shared(event)
        self._changes = apply_event(live.values, event, shared=False)
        self._calls = live.call_changes(event, tracked=writer is not None)
        self._compaction = self._compaction_after()

    @property
    def has_entered(self) -> bool:
        """Whether it is of a run that has taken the lease before."""
        return self.writer is not None and self.writer.epoch is not None

    def member(self) -> tuple[Any, ...]:
        """What there is of it, as the statement takes it."""
        mode = OUTSIDE if self.writer is None else CONTINUES if self.has_entered else ENTERS
        compaction = 0 if self._compaction is None else self._compaction.seq
        stands_on = (self.live.incarnation, self.revision, self.mark, self.epoch)
        return (*stands_on, mode, self.gone, self.event.timestamp, compaction, self.line)

    def add_rows(self, member: int, rows: Rows) -> None:
        """Add what it writes as *member* of a group."""
        present, removed = state_rows(member, self._changes)
        rows["set_state"] += present
        rows["removed_state"] += removed
        if self.is_shared:
            rows["shared"] += shared_rows(member, self.live.key, self.event)
        for call_id, call in self._calls.items():
            if call is None:
                rows["answered"].append((member, stored_key(call_id)[0]))
            else:
                rows["calls"].append((member, *call_row(call)))
        if self.writer is not None and self._begins:
            again = self.event.actions.replay.attempt is not None
            rows["begun"].append((member, *stored_key(self.writer.invocation_id), again))
        if named := list(self.event.actions.named_artifacts()):
            from ._artifacts import named_rows  # few events name artifacts

            rows["artifacts"] += named_rows(member, self.live.key, named)
        if self.event.actions.replay.sent is not None:
            rows["taken"].append((member, message_begins(self.event.id)))
        if self._undone is not None:
            rows["undone"] += [(member, *run) for run in self._undone.runs]

    def apply(self, epoch: int, chain: bytes, *, has_messages: bool) -> None:
        """Take over that it is stored; the shared scopes are brought up to date by themselves."""
        live = self.live
        live.has_messages = has_messages
        if self.writer is not None:
            self.writer.epoch = epoch
        live.epoch, live.gone = epoch, None
        live.advance(self.event, self._changes, self._calls)
        live.compaction = self._compaction
        live.mark = chain

    @property
    def bytes(self) -> int:
        """About what it adds to the live session in memory."""
        return memory_of(self.line) + STATE_KEY_BYTES * len(self._changes)

    def run_error(self) -> StaleSessionError:
        """The error for an invocation that has been ended meanwhile."""
        assert self.writer is not None
        msg = f"the invocation {self.writer.invocation_id!r} of {self.live.key} has just been ended by another process"
        return StaleSessionError(f"{msg}; look at it again")

    def _compaction_after(self) -> Compaction | None:
        """The compaction that is in force once the event is stored."""
        if self.event.actions.compaction is not None:
            from .._compactions import Compaction  # few events are summaries

            return Compaction.of(self.event)
        return self.live.compaction if self._undone is None else self._undone.compaction
