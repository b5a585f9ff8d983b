"""
The messages that wait for the runs of a session: events in the log whose number is the session's, but negative.

So a file needs no table for them. The first is the lowest `seq` there, and each has a chain of its own, of one link.
What takes a message is the append of it: both are one transaction.
"""

from __future__ import annotations

import sqlite3

from ..._codec import from_json, to_json
from ...errors import InvalidValueError
from ...events import Event
from .._invocation import Invocation
from .._key import SessionKey
from .._messages import has_message, message_from_json, received
from .._scoped import CHAIN_START, ScopedSession
from .._store import SessionWriter
from ._cache import SessionCache
from ._errors import corrupt
from ._file import Transaction
from ._leases import Leases
from ._logs import link, next_no
from ._queries import INVOCATION, stored_invocation
from ._rows import find_session
from ._schema import UNFINISHED

__all__ = ["is_called", "leaves_messages", "look_at_messages", "put_message", "waiting_messages"]


def put_message(
    cache: SessionCache, leases: Leases, key: SessionKey, message: Event, transaction: Transaction
) -> bool:
    """
    Let *message* wait, and return True; False if there is no such session.

    Raises:
        InvocationNotFoundError, InvocationEndedError: There is no invocation that it could wait for.
    """
    db = transaction.db
    row = find_session(db, key)
    if row is None:
        return False
    name = cache.file.name
    runs = _invocations(db, name, key, row.id, UNFINISHED)
    if not any(message.invocation_id in (None, run.invocation_id) for run in runs):
        runs = _invocations(db, name, key, row.id, "true")  # to say why not
    line = to_json(received(key, message, runs))
    [seq] = db.execute("SELECT coalesce(max(seq), 0) + 1 FROM events WHERE log = ?", (-row.id,)).fetchone()
    number = next_no(transaction)
    chain = link(CHAIN_START, seq, number, line)
    db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (number, -row.id, seq, chain, line))

    def tell() -> None:
        live = cache.sessions.get(key)
        if live is not None and live.incarnation == row.id:
            live.has_messages = True

    transaction.after_commit(tell)
    return True


def _invocations(db: sqlite3.Connection, name: str, key: SessionKey, session: int, where: str) -> list[Invocation]:
    query = f"SELECT {INVOCATION} FROM invocations i WHERE session = ? AND {where} ORDER BY seq"
    return [stored_invocation(name, key, *columns) for columns in db.execute(query, (session,)).fetchall()]


def waiting_messages(name: str, session: int, db: sqlite3.Connection) -> list[Event]:
    """
    The messages that wait in a session of the file *name*, in their order.

    Raises:
        StorageCorruptError: One cannot be read.
    """
    rows = db.execute("SELECT data FROM events WHERE log = ? ORDER BY seq", (-session,)).fetchall()
    try:
        return [message_from_json(line) for (line,) in rows]
    except (InvalidValueError, TypeError) as error:
        raise corrupt(name, f"a message of session row {session}: {error}") from error


def look_at_messages(db: sqlite3.Connection, live: ScopedSession, event: Event) -> None:
    """Take *event* from those that wait, if it is one, and note whether others do."""
    if event.actions.replay.sent is not None:
        for seq, message in enumerate_messages(db, live.incarnation):
            if message.id == event.id:
                db.execute("DELETE FROM events WHERE log = ? AND seq = ?", (-live.incarnation, seq))
    waiting = db.execute("SELECT 1 FROM events WHERE log = ? LIMIT 1", (-live.incarnation,))
    live.has_messages = waiting.fetchone() is not None


def enumerate_messages(db: sqlite3.Connection, session: int) -> list[tuple[int, Event]]:
    """The messages that wait in a session, each with its place among them."""
    rows = db.execute("SELECT seq, data FROM events WHERE log = ? ORDER BY seq", (-session,)).fetchall()
    return [(seq, from_json(Event, line)) for seq, line in rows]


def is_called(db: sqlite3.Connection, writer: SessionWriter) -> bool:
    """Whether a message waits for the invocation of *writer*, and it can take it: it has the session still."""
    query = "SELECT lease_epoch FROM sessions WHERE id = ?"
    if db.execute(query, (writer.live.incarnation,)).fetchone() != (writer.epoch,):
        return False
    for _, message in enumerate_messages(db, writer.live.incarnation):
        if message.invocation_id == writer.invocation_id:
            writer.live.has_messages = True
            return True
    return False


def leaves_messages(db: sqlite3.Connection, writer: SessionWriter, revision: int) -> bool:
    """Whether messages for the invocation of *writer* wait, or were taken over by a later run, after its *revision*."""
    session = writer.live.incarnation
    query = "SELECT data FROM events WHERE log = ? UNION ALL SELECT data FROM events WHERE log = ? AND seq > ?"
    rows = db.execute(query, (-session, session, revision)).fetchall()
    return has_message((from_json(Event, line) for (line,) in rows), writer.invocation_id)
