"""
An append: the work of one event within a transaction.

An append writes the event, one row for each state key it changes, the session's revision, the calls it opens and
answers, and with the first event of a run that it runs. So nothing is ever half there. What an event changes is decided
by `apply_event` inside the transaction, on values that are current there. The live session is advanced after COMMIT.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import StaleSessionError
from ...events import Event
from .._invocation import InvocationStatus, invocation_of
from .._kept import memory_of
from .._scoped import ScopedSession
from .._store import SessionWriter
from ._cache import SessionCache
from ._file import Transaction
from ._leases import Leases
from ._logs import link, next_no
from ._rows import Row, write_calls, write_invocation
from ._schema import NOT_COMPLETED, UNFINISHED
from ._state import current_values, mark_scopes, note_shared, stays_within, write_event

if TYPE_CHECKING:
    from .._compactions import Compaction

__all__ = ["Append"]

# A session goes on by an event, if it is at the event before and its lease is as expected: if a row was changed, both
# were so. With the lease that was taken before (its own task renews it), and with one that is taken, ended or left.
_EVENT = "revision = ?, update_time = ?, chain = ?, compaction = ?"
_GO_ON = f"UPDATE sessions SET {_EVENT} WHERE id = ? AND revision = ? AND chain = ? AND lease_epoch = ?"
_ENTER = (
    f"UPDATE sessions SET {_EVENT}, lease_epoch = ?, lease_owner = ?, lease_expires = ?"
    " WHERE id = ? AND revision = ? AND chain = ? AND lease_epoch = ? AND lease_owner IS ?"
)


class Append:
    """The work of one append, and the epoch that it found or took."""

    __slots__ = ("_begins", "_cache", "_event", "_leases", "_line", "_live", "_mark", "_seq", "_writer", "epoch")

    def __init__(
        self,
        cache: SessionCache,
        leases: Leases,
        live: ScopedSession,
        event: Event,
        line: str,
        writer: SessionWriter | None,
        *,
        begins: bool,
    ) -> None:
        self._cache = cache
        self._leases = leases
        self._live = live
        self._event = event
        self._line = line
        self._writer = writer
        self._begins = begins
        # Its place, which the event was completed for. While it waits, before here or after, others may bring the live
        # session up to date: this place and this link then never were the newest together, and it is stale.
        assert event.seq is not None
        self._seq = event.seq
        assert live.mark is not None, "a session of a file has a link always"
        self._mark = live.mark
        self.epoch = 0

    def __call__(self, transaction: Transaction) -> None:
        """
        Write it, and apply it to the live session once it is stored.

        Raises:
            ChangedMeanwhileError, StaleSessionError: It is not its turn (any more).
            SessionNotFoundError: The session was deleted.
        """
        db, live, event, writer = transaction.db, self._live, self._event, self._writer
        is_rewind = event.actions.rewind_before_seq is not None
        if is_rewind:  # what it undoes is read, which must be what it knows
            self._check_writer(db)
        values = live.values if stays_within(event) else current_values(transaction, self._cache.file.name, live)
        number = next_no(transaction)
        chain = link(self._mark, self._seq, number, self._line)
        compaction = self._compaction_after(db)
        epoch = self.epoch = self._update_row(db, chain, 0 if compaction is None else compaction.seq)
        changes = write_event(db, live, values, event, self._line, chain, number)
        calls = live.call_changes(event, tracked=writer is not None)
        write_calls(db, live.incarnation, calls, number)
        named = event.actions.named_artifacts()
        if named:
            from ._artifacts import publish_artifacts  # few events name artifacts

            publish_artifacts(db, live.key, self._seq, named)
        if is_rewind:
            from ._rewind import rewind_invocations  # few sessions are rewound

            rewind_invocations(db, self._cache.file.name, live, event, writer)
        if writer is not None and self._begins:
            run = invocation_of(live.key, writer.invocation_id, InvocationStatus.RUNNING, self._seq)
            which = UNFINISHED if event.actions.replay.attempt is None else NOT_COMPLETED
            if not write_invocation(db, live.incarnation, run, which, epoch=epoch, number=number):
                msg = f"the invocation {run.invocation_id!r} of {live.key} has just been ended by another process"
                raise StaleSessionError(f"{msg}; look at it again")
        note_shared(transaction, live, changes)
        if transaction.shared["has_messages"]:
            from ._messages import look_at_messages  # in few files messages wait for runs

            look_at_messages(db, live, event)

        def apply() -> None:
            if writer is not None:
                writer.epoch = epoch
                self._leases.running.add((live.incarnation, writer.invocation_id))
            live.epoch = epoch
            live.advance(event, changes, calls)
            live.compaction = compaction
            live.mark = chain
            mark_scopes(live, changes, number)
            self._cache.grow(live, memory_of(self._line))

        transaction.after_commit(apply)

    def _compaction_after(self, db: sqlite3.Connection) -> Compaction | None:
        """The compaction that is in force once the event is stored."""
        actions, found = self._event.actions, self._live.compaction
        if actions.compaction is not None:
            from .._compactions import Compaction  # few events are summaries

            return Compaction.of(self._event)
        while actions.rewind_before_seq is not None and found is not None and found.seq >= actions.rewind_before_seq:
            found = self._cache.compaction_at(db, self._live, found.previous_seq)
        return found

    def _update_row(self, db: sqlite3.Connection, chain: bytes, compaction: int) -> int:
        """Let the session's row go on by the event, and return the epoch of that; raises as `_check_writer`."""
        live, event, writer = self._live, self._event, self._writer
        moved: Sequence[object] = (self._seq, event.timestamp, chain, compaction)
        place: Sequence[object] = (live.incarnation, self._seq - 1, self._mark)
        if writer is not None and writer.epoch is not None:
            if db.execute(_GO_ON, (*moved, *place, writer.epoch)).rowcount == 1:
                return writer.epoch
            return self._check_writer(db)[1]
        lease = (None, None) if writer is None else self._leases.taken()
        # Nobody has the lease, in most cases, and its epoch is the one last seen: then there is nothing to ask.
        epoch = live.epoch + (writer is not None)
        if db.execute(_ENTER, (*moved, epoch, *lease, *place, live.epoch, None)).rowcount == 1:
            return epoch
        row, epoch = self._check_writer(db)
        db.execute(_ENTER, (*moved, epoch, *lease, *place, row.epoch, row.owner))
        return epoch

    def _check_writer(self, db: sqlite3.Connection) -> tuple[Row, int]:
        """Return the session's row and the epoch to write under, or raise because it is not the writer's turn."""
        from ._turn import check_writer  # most appends find the row as they expect it

        return check_writer(db, self._leases, self._live, self._writer, self._seq - 1, self._mark)
