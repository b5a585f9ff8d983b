"""The rows of sessions, open calls and invocations: how they are asked for, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ..._json import brief, dumps, loads
from ...errors import StorageCorruptError
from .._calls import OpenCall, Pending
from .._invocation import Invocation, InvocationStatus, invocation_of
from .._key import SessionKey
from .._scoped import Segment, segments_of
from ._session import SEQ_MAX, Row
from ._text import read_key, stored_key

__all__ = [
    "CALL", "FREE", "INVOCATION", "ROW", "call_of", "call_row", "corrupt", "read_segments", "row_of",
    "stored_invocation", "stored_status",
]  # fmt: skip

# Whether no other living worker has the lease of the session `s`; `$1` is the worker that asks. A worker holds an
# advisory lock as long as it lives: who can share that lock, if only until the end of the statement, knows that it does
# not. Expiry is on the database's clock, and frees also those whose worker is stopped, or cut off.
FREE: Final = (
    "CASE WHEN s.lease_owner IS NULL OR s.lease_owner = $1 OR s.lease_expires <= now() THEN true"
    " ELSE pg_try_advisory_xact_lock_shared(hashtextextended(s.lease_owner, 0)) END"
)
ROW: Final = (
    "s.id, s.revision, s.create_time, s.update_time, s.lease_epoch, s.lease_owner, s.lease_expires,"
    " coalesce(s.lease_expires <= now(), true),"
    f" {FREE}, s.chain, s.compaction, EXISTS (SELECT FROM minirun.events e WHERE e.log = -s.id)"
)
"""The columns of a Row, in a query where `s` is the table of sessions, and `$1` the worker that asks."""

CALL: Final = "o.call_id, o.seq, o.place, o.pending, o.pending_seq, o.data"
"""The columns of an OpenCall, in a query where `o` is the table of open calls."""

INVOCATION: Final = "i.invocation_id, i.name, i.status, i.seq, i.end_seq"
"""The columns of an invocation, in a query where `i` is their table."""


def corrupt(name: str, what: str) -> StorageCorruptError:
    """The error for a database of this name in which *what* makes no sense."""
    return StorageCorruptError(f"{name}: {what:.300}; restore a backup")


def row_of(name: str, columns: Sequence[Any]) -> Row:
    """
    The row that has these columns; *name* is that of the database.

    Raises:
        StorageCorruptError: Its numbers were never written.
    """
    row = Row(*columns)
    if not (0 <= row.revision < SEQ_MAX and 0 <= row.epoch < SEQ_MAX and 0 <= row.compaction <= row.revision):
        raise corrupt(name, f"session row {row.id} has the numbers {row.revision}, {row.epoch} and {row.compaction}")
    return row


def read_segments(name: str, past: Sequence[Sequence[Any]], row: Row) -> tuple[Segment, ...]:
    """
    Where the events of a session are, given its rows of `shared_pasts`; see `segments_of`.

    Raises:
        StorageCorruptError: They make no sense.
    """
    return segments_of(past, row.id, row.revision, partial(corrupt, name))


def call_row(call: OpenCall) -> tuple[str, int, int, str, int, str]:
    """An open call as its columns have it: the id as `stored_key` writes it, and in `data` whatever is text."""
    key, _ = stored_key(call.call_id)
    data = dumps([call.call_id, call.name, call.invocation_id, call.author, call.branch])
    return key, call.seq, call.place, str(call.pending), call.pending_seq, data


def call_of(name: str, columns: Sequence[Any]) -> OpenCall:
    """
    The open call that has these columns.

    Raises:
        StorageCorruptError: They are none that were ever written.
    """
    key, seq, place, pending, pending_seq, data = columns
    try:
        call_id, called, invocation_id, author, branch = loads(data)
        if stored_key(call_id)[0] != key or not all(isinstance(text, str) for text in (called, invocation_id, author)):
            raise ValueError("it is of another call")
        return OpenCall(call_id, called, seq, invocation_id, author, branch, place, Pending(pending), pending_seq)
    except (ValueError, TypeError, RecursionError) as error:
        raise corrupt(name, f"the open call {brief(key)} cannot be read: {error}") from error


def stored_invocation(
    name: str, key: SessionKey, stored_id: str, long_id: str | None, status: str, seq: int, end_seq: int | None
) -> Invocation:
    """
    The invocation of a row, as it is written.

    Raises:
        StorageCorruptError: It makes no sense.
    """
    try:
        return invocation_of(key, read_key(stored_id, long_id), InvocationStatus(status), seq, end_seq)
    except (ValueError, TypeError) as error:
        what = f"an invocation of session {brief(key.session_id)} has the status {brief(status)}, id {brief(stored_id)}"
        raise corrupt(name, f"{what}: {error}") from error


def stored_status(status: InvocationStatus) -> str:
    """What is written: an interrupted invocation is one that runs, and whose owner is gone."""
    return str(InvocationStatus.RUNNING if status is InvocationStatus.INTERRUPTED else status)
