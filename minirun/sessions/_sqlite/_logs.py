"""
The logs of a session file: where the events of a session stand, reading them, and the numbers of new ones.

See `_schema.py` for what a log is, and for the hash chain of a session.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Final

from ..._codec import from_json
from ..._json import brief
from ...errors import InvalidValueError
from ...events import Event
from .._kept import memory_of
from .._scoped import SEQ_MAX, Segment, segments_of
from ._errors import corrupt, damage
from ._file import Transaction

__all__ = ["NUMBER_MAX", "base_no", "link", "may_be_called", "newest_no", "next_no", "read_lines", "read_segments"]

# What no number in a file comes near.
NUMBER_MAX: Final = 2**62


def link(before: bytes, seq: int, commit_no: int, data: str) -> bytes:
    """The link of an event in its session's chain."""
    return hashlib.sha256(b"%b%d %d %b" % (before, seq, commit_no, data.encode())).digest()


def newest_no(db: sqlite3.Connection) -> int:
    """The highest number that an event of the file has or had."""
    return _newest(db)[0]


def _newest(db: sqlite3.Connection) -> tuple[int, bool]:
    """That number, and whether a message waits in any session (`_messages`)."""
    numbers = "max(deleted_no, (SELECT coalesce(max(commit_no), 0) FROM events)), (SELECT min(log) < 0 FROM events)"
    found = db.execute(f"SELECT {numbers} FROM store").fetchone()
    if found is None or type(found[0]) is not int or found[0] >= NUMBER_MAX:
        raise damage(f"the number of the newest event is missing, found {brief(found)}")
    return found[0], bool(found[1])


def read_segments(db: sqlite3.Connection, session: int, revision: int = SEQ_MAX) -> tuple[Segment, ...]:
    """
    Where the events of the session are, whose newest is *revision*; see `segments_of`.

    Raises:
        sqlite3.DatabaseError: They make no sense.
    """
    query = "SELECT first_seq, last_seq, log FROM shared_pasts WHERE session = ? ORDER BY first_seq"
    return segments_of(db.execute(query, (session,)), session, revision, damage)


def read_lines(
    db: sqlite3.Connection, name: str, segments: tuple[Segment, ...], first: int, until: int
) -> list[tuple[Event, int]]:
    """
    The events from *first* up to *until*, each with about its size in memory; *name* is that of the file.

    Raises:
        StorageCorruptError: One of them cannot be read, or is not there.
    """
    rows: list[str] = []
    for segment in segments:
        if segment.first_seq < until and segment.last_seq >= first:
            found = db.execute(
                "SELECT data FROM events WHERE log = ? AND seq >= ? AND seq < ? ORDER BY seq",
                (segment.log, max(first, segment.first_seq), min(until, segment.last_seq + 1)),
            )
            rows.extend(data for (data,) in found)
    try:
        lines = [(from_json(Event, line), memory_of(line)) for line in rows]
    except (InvalidValueError, TypeError) as error:
        raise corrupt(name, f"an event of log {segments[-1].log}: {error}") from error
    if [event.seq for event, _ in lines] != list(range(first, until)):
        raise corrupt(name, f"the events {first} to {until - 1} of log {segments[-1].log} are not all there")
    return lines


def may_be_called(db: sqlite3.Connection, session: int, epoch: int | None) -> bool:
    """Whether messages may have come to a run of this lease at its end: some wait, or the session is another run's."""
    query = "SELECT 1 FROM events WHERE log = ? UNION ALL SELECT 1 FROM sessions WHERE id = ? AND lease_epoch <> ?"
    return db.execute(f"{query} LIMIT 1", (-session, session, epoch)).fetchone() is not None


def base_no(transaction: Transaction) -> int:
    """The number of the newest event when the transaction's first event was about to be written."""
    if "base_no" not in transaction.shared:
        number, transaction.shared["has_messages"] = _newest(transaction.db)
        transaction.shared["base_no"] = transaction.shared["last_no"] = number
    base: int = transaction.shared["base_no"]
    return base


def next_no(transaction: Transaction) -> int:
    """A number for one more event; that of an event that is undone is not used again within the transaction."""
    base_no(transaction)
    transaction.shared["last_no"] += 1
    number: int = transaction.shared["last_no"]
    return number
