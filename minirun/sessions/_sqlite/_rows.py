"""The rows of sessions, open calls and invocations, as several modules read and write them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from itertools import product
from types import NoneType
from typing import Any, Final, NamedTuple

import attrs

from ..._json import brief
from ...errors import AlreadyExistsError
from ...events import Event
from .._calls import CallChanges, OpenCall, Pending
from .._invocation import Invocation, InvocationStatus
from .._key import SessionKey
from .._scoped import CHAIN_START
from ._errors import damage
from ._logs import NUMBER_MAX
from ._schema import UNFINISHED

__all__ = [
    "CALL", "ROW", "Row", "call_of", "find_session", "insert_session", "read_open_calls", "row_of",
    "stored_status", "write_call", "write_calls", "write_invocation",
]


class Row(NamedTuple):
    """A row of `sessions`."""

    id: int
    revision: int
    create_time: float
    update_time: float
    epoch: int
    owner: str | None
    expires: float | None
    chain: bytes
    compaction: int
    """The `seq` of the newest visible compaction; 0: none."""


ROW: Final = (
    "s.id, s.revision, s.create_time, s.update_time, s.lease_epoch, s.lease_owner, s.lease_expires, s.chain,"
    " s.compaction"
)
"""The columns of a Row, in a query where `s` is the table of sessions."""


_ROW_TYPES: Final = ((int,), (int,), (float,), (float,), (int,), (str, NoneType), (float, NoneType), (bytes,), (int,))
# As `_leases.py` writes it: the owner; or the owner, the boot, and the expiry on the steady clock.
_LEASE: Final = re.compile(r"[\w.-]{1,64}(:[\w.-]{1,64}:[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?)?", re.ASCII)
_ROWS_TYPES: Final = frozenset(product(*_ROW_TYPES))


def row_of(columns: Sequence[Any]) -> Row:
    """
    The row that has these columns.

    Raises:
        sqlite3.DatabaseError: They have types that were never written: the file is damaged.
    """
    if tuple(map(type, columns)) not in _ROWS_TYPES:
        for value, kinds in zip(columns, _ROW_TYPES, strict=True):
            if type(value) not in kinds:
                raise damage(f"a session's row has {brief(value)} where {kinds[0].__name__} was written")
    row = Row(*columns)
    if not (0 <= row.revision < NUMBER_MAX and 0 <= row.epoch < NUMBER_MAX and 0 <= row.compaction <= row.revision):
        raise damage(f"a session's row has the numbers {row.revision}, {row.epoch} and {row.compaction}")
    if row.owner is not None and not _LEASE.fullmatch(row.owner):
        raise damage(f"a session's row has a lease of {brief(row.owner)}")
    return row


def find_session(db: sqlite3.Connection, key: SessionKey) -> Row | None:
    """The session's row, if there is one."""
    columns = db.execute(
        f"SELECT {ROW} FROM sessions s WHERE app_name = ? AND user_id = ? AND session_id = ?",
        (key.app_name, key.user_id, key.session_id),
    ).fetchone()
    return None if columns is None else row_of(columns)


def insert_session(db: sqlite3.Connection, key: SessionKey, newest: Event, created: float) -> Row:
    """
    Insert the row of a session whose newest event is *newest*; its chain is still missing.

    Raises:
        AlreadyExistsError: There is such a session.
    """
    if find_session(db, key) is not None:
        msg = f"there is a {key} already; get it with get_session, or choose another id"
        raise AlreadyExistsError(msg)
    db.execute(
        "INSERT INTO sessions (app_name, user_id, session_id, revision, create_time, update_time, chain)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (key.app_name, key.user_id, key.session_id, newest.seq, created, newest.timestamp, CHAIN_START),
    )
    row = find_session(db, key)
    assert row is not None
    return row


CALL: Final = "o.call_id, o.name, o.seq, o.invocation_id, o.author, o.branch, o.place, o.pending, o.pending_seq"
"""The columns of an OpenCall, in a query where `o` is the table of open calls."""

_CALL_TYPES: Final = ((str,), (str,), (int,), (str,), (str,), (str, NoneType), (int,), (str,), (int,))


def call_of(columns: Sequence[Any]) -> OpenCall:
    """
    The open call that has these columns.

    Raises:
        sqlite3.DatabaseError: They are none that were ever written: the file is damaged.
    """
    for value, kinds in zip(columns, _CALL_TYPES, strict=True):
        if type(value) not in kinds:
            raise damage(f"the row of an open call has {brief(value)} where {kinds[0].__name__} was written")
    call = OpenCall(*columns)
    if call.pending not in Pending.__members__.values():
        raise damage(f"the row of the open call {brief(call.call_id)} says it is pending for {brief(call.pending)}")
    return attrs.evolve(call, pending=Pending(call.pending))


def read_open_calls(db: sqlite3.Connection, session: int) -> dict[str, OpenCall]:
    """The calls of the session that have no response."""
    rows = db.execute(f"SELECT {CALL} FROM open_calls o WHERE session = ? ORDER BY seq, place", (session,))
    return {columns[0]: call_of(columns) for columns in rows}


def write_call(db: sqlite3.Connection, session: int, call: OpenCall, number: int) -> None:
    """Note an open call, or what it is by now; *number* is that of the newest event."""
    db.execute(
        "INSERT INTO open_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session, call_id) DO UPDATE SET"
        " name = excluded.name, seq = excluded.seq, place = excluded.place, invocation_id = excluded.invocation_id,"
        " author = excluded.author, branch = excluded.branch, pending_seq = excluded.pending_seq,"
        " pending_no = CASE WHEN pending = excluded.pending THEN pending_no ELSE excluded.pending_no END,"
        " pending = excluded.pending",
        (
            session,
            call.call_id,
            call.name,
            call.seq,
            call.place,
            call.invocation_id,
            call.author,
            call.branch,
            call.pending,
            call.pending_seq,
            number if call.pending else 0,
        ),
    )


def write_invocation(
    db: sqlite3.Connection, session: int, run: Invocation, which: str = UNFINISHED, *, epoch: int, number: int
) -> bool:
    """
    Note an invocation; one that is noted already goes on, and keeps its beginning and its place in the list.

    *which* of these may go on is a condition; *number* is that of the event it begins with, or of the newest one.

    Returns:
        False if it is not one of those; then nothing is changed.
    """
    cursor = db.execute(
        "INSERT INTO invocations VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session, invocation_id) DO UPDATE SET"
        f" status = excluded.status, epoch = excluded.epoch, end_seq = excluded.end_seq WHERE {which}",
        (session, run.invocation_id, stored_status(run.status), epoch, run.seq, run.end_seq, number),
    )
    return cursor.rowcount == 1


def write_calls(db: sqlite3.Connection, session: int, changes: CallChanges, number: int) -> None:
    """Write what event *number* has made of the open calls."""
    for call_id, call in changes.items():
        if call is None:
            db.execute("DELETE FROM open_calls WHERE session = ? AND call_id = ?", (session, call_id))
        else:
            write_call(db, session, call, number)


def stored_status(status: InvocationStatus) -> InvocationStatus:
    """What is written: an interrupted invocation is one that runs, and whose owner is gone."""
    return InvocationStatus.RUNNING if status is InvocationStatus.INTERRUPTED else status
