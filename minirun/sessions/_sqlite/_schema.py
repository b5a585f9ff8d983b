"""
The tables of a session file, and the rows that several modules read.

`store.deleted_no` is the highest number of an event when a session was last deleted: no number is used twice.

`events` holds logs, all in the order of their commits, so that a group commit writes few pages (measured for 16
sessions: 260 instead of 470 us). A session writes the log of its own number; the log of a fork goes on where the past
ends that it shares, and `shared_pasts` says which logs that past stands in. So a fork copies no event, and what a
deleted session has logged goes when no fork shows it any more.

Tables with values have rowids: without, SQLite reads a neighbour's whole value, which may be large, to compare its key.

A row of `open_calls` that is pending has the number of the newest event when it came to be so (`pending_no`): the
questions of all sessions have one order. The rows of questions, and of invocations that have not ended, have indexes of
their own: who looks for them does not pass what is over.

Artifacts may stand in the same file. An artifact keeps its row, and so its next number, when its versions are deleted.
A version names its content by the hash, or is hidden; it is staged as long as it has a stager, the owner that will
make it visible with an event. A content without a hash is on its way in or out. `content_uses` says who, of several
processes, is writing or reading a content that perhaps no version names.

Every event carries its link of the session's hash chain: SHA-256 of the link before it, its place and its text. The
newest link stands in the session's row too. So a changed, exchanged or missing event is found, even where SQLite,
which has no checksums, sees nothing wrong; `minirun.sessions.verify` is what looks.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from itertools import product
from types import NoneType
from typing import Any, Final, NamedTuple

import attrs

from .._calls import CallChanges, OpenCall, Pending
from .._live import SessionKey
from .._session import InvocationStatus
from .._state import Scope, scope_of
from ._errors import damage
from ._format import Format

__all__ = [
    "CALL",
    "CHAIN_START",
    "FORMAT",
    "NO_USER",
    "ROW",
    "SEQ_MAX",
    "UNFINISHED",
    "WAITS",
    "Row",
    "Segment",
    "call_of",
    "find_session",
    "link",
    "newest_no",
    "read_open_calls",
    "read_segments",
    "read_session",
    "row_of",
    "shared_user",
    "stored_status",
    "write_call",
    "write_calls",
    "write_invocation",
]

# An id in `sessions` is never used twice: a session that was deleted and made again is another one.
SCHEMA: Final = """
CREATE TABLE store (only INTEGER PRIMARY KEY CHECK (only = 1), deleted_no INTEGER NOT NULL);
INSERT INTO store VALUES (1, 0);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    create_time REAL NOT NULL,
    update_time REAL NOT NULL,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_expires REAL,
    chain BLOB NOT NULL,
    compaction INTEGER NOT NULL DEFAULT 0,
    UNIQUE (app_name, user_id, session_id)
);
CREATE INDEX sessions_of_users ON sessions (app_name, user_id, id);
CREATE INDEX sessions_of_apps ON sessions (app_name, id);
CREATE TABLE events (
    commit_no INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    chain BLOB NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (log, seq)
);
CREATE TABLE shared_pasts (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    log INTEGER NOT NULL,
    PRIMARY KEY (session, first_seq)
) WITHOUT ROWID;
CREATE INDEX shared_pasts_logs ON shared_pasts (log);
CREATE TABLE session_state (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (session, key)
);
CREATE TABLE shared_state (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT,
    commit_no INTEGER NOT NULL,
    UNIQUE (app_name, user_id, key)
);
CREATE INDEX shared_state_commits ON shared_state (app_name, user_id, commit_no);
CREATE TABLE shared_base (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    commit_no INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (app_name, user_id)
);
CREATE TABLE open_calls (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    invocation_id TEXT NOT NULL,
    author TEXT NOT NULL,
    branch TEXT,
    pending TEXT NOT NULL,
    pending_seq INTEGER NOT NULL,
    pending_no INTEGER NOT NULL,
    UNIQUE (session, call_id)
);
CREATE INDEX open_calls_waiting ON open_calls (pending_no) WHERE pending = 'waits';
CREATE TABLE invocations (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    invocation_id TEXT NOT NULL,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    end_seq INTEGER,
    commit_no INTEGER NOT NULL,
    PRIMARY KEY (session, invocation_id)
) WITHOUT ROWID;
CREATE INDEX invocations_unfinished ON invocations (session, seq) WHERE status IN ('running', 'paused');
CREATE TABLE artifacts (
    id INTEGER PRIMARY KEY,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    filename TEXT NOT NULL,
    next_version INTEGER NOT NULL,
    UNIQUE (app_name, user_id, session_id, filename)
);
CREATE TABLE artifact_versions (
    artifact INTEGER NOT NULL REFERENCES artifacts,
    version INTEGER NOT NULL,
    sha256 TEXT,
    size INTEGER NOT NULL,
    create_time REAL NOT NULL,
    about TEXT NOT NULL,
    stager TEXT,
    seq INTEGER,
    UNIQUE (artifact, version)
);
CREATE INDEX artifact_versions_contents ON artifact_versions (sha256);
CREATE INDEX artifact_versions_staged ON artifact_versions (stager) WHERE stager IS NOT NULL;
CREATE TABLE contents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 TEXT UNIQUE,
    size INTEGER NOT NULL
);
CREATE TABLE chunks (
    content INTEGER NOT NULL REFERENCES contents,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (content, number)
);
CREATE TABLE content_uses (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content INTEGER NOT NULL REFERENCES contents,
    owner TEXT NOT NULL
);
CREATE INDEX content_uses_contents ON content_uses (content)
"""

# The conditions of the two partial indexes: SQLite uses one where a query has the very same words.
WAITS: Final = "pending = 'waits'"
UNFINISHED: Final = "status IN ('running', 'paused')"

# The format of 0.1.0. Until that is released there is one format and nothing to migrate.
FORMAT: Final = Format(version=1, schema=SCHEMA)

# In `shared_state` the app's own scope has no user; no user id is empty.
NO_USER: Final = ""

CHAIN_START: Final = bytes(32)
"""What stands before the first link of every chain."""


def link(before: bytes, seq: int, commit_no: int, data: str) -> bytes:
    """The link of an event in its session's chain."""
    return hashlib.sha256(b"%b%d %d %b" % (before, seq, commit_no, data.encode())).digest()


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
                raise damage(f"a session's row has {value!r:.80} where {kinds[0].__name__} was written")
    return Row(*columns)


class Segment(NamedTuple):
    """Which log holds the events *first_seq* to *last_seq* of a session."""

    first_seq: int
    last_seq: int
    log: int


def newest_no(db: sqlite3.Connection) -> int:
    """The highest number that an event of the file has or had."""
    query = "SELECT max(deleted_no, (SELECT coalesce(max(commit_no), 0) FROM events)) FROM store"
    found = db.execute(query).fetchone()
    if found is None or type(found[0]) is not int:
        raise damage(f"the number of the newest event is missing, found {found!r:.80}")
    number: int = found[0]
    return number


def find_session(db: sqlite3.Connection, key: SessionKey) -> Row | None:
    """The session's row, if there is one."""
    columns = db.execute(
        f"SELECT {ROW} FROM sessions s WHERE app_name = ? AND user_id = ? AND session_id = ?",
        (key.app_name, key.user_id, key.session_id),
    ).fetchone()
    return None if columns is None else row_of(columns)


def read_session(db: sqlite3.Connection, session: int) -> Row | None:
    """The row of this number, if it is still there."""
    columns = db.execute(f"SELECT {ROW} FROM sessions s WHERE id = ?", (session,)).fetchone()
    return None if columns is None else row_of(columns)


def read_segments(db: sqlite3.Connection, session: int) -> tuple[Segment, ...]:
    """Where the events of the session are, in order; the last segment is its own log, without an end."""
    rows = db.execute(
        "SELECT first_seq, last_seq, log FROM shared_pasts WHERE session = ? ORDER BY first_seq", (session,)
    )
    past = tuple(Segment(*columns) for columns in rows)
    if any(type(number) is not int for segment in past for number in segment):
        raise damage(f"the shared past of session row {session} makes no sense: {past!r:.80}")
    return (*past, Segment(past[-1].last_seq + 1 if past else 0, SEQ_MAX, session))


# SQLite's largest integer.
SEQ_MAX: Final = 2**63 - 1


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
            raise damage(f"the row of an open call has {value!r:.80} where {kinds[0].__name__} was written")
    call = OpenCall(*columns)
    if call.pending not in Pending.__members__.values():
        raise damage(f"the row of the open call {call.call_id!r:.80} says that it is pending for {call.pending!r:.80}")
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
    db: sqlite3.Connection,
    session: int,
    invocation_id: str,
    status: InvocationStatus,
    epoch: int,
    seq: int,
    end_seq: int | None,
    number: int,
) -> bool:
    """
    Note an invocation; one that is noted already goes on, and keeps its beginning and its place in the list.

    Returns:
        False if it has ended; then nothing is changed.
    """
    cursor = db.execute(
        "INSERT INTO invocations VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session, invocation_id) DO UPDATE SET"
        f" status = excluded.status, epoch = excluded.epoch, end_seq = excluded.end_seq WHERE {UNFINISHED}",
        (session, invocation_id, stored_status(status), epoch, seq, end_seq, number),
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


def shared_user(key: str, user_id: str) -> str:
    """Whose scope a `user:` or `app:` key belongs to, as `shared_state` names it."""
    return NO_USER if scope_of(key) is Scope.APP else user_id
