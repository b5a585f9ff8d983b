"""Reading the logs of sessions: the events of a session stand in its own log, and those of its past in others'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..._codec import from_json
from ..._postgres._values import Statement
from ...errors import InvalidValueError
from ...events import Event
from .._kept import memory_of
from .._scoped import Segment
from ._database import Database
from ._rows import corrupt

__all__ = ["events_of", "is_there", "log_of", "read_lines"]

_LINES: Final = Statement(
    "lines",
    "SELECT seq, data FROM minirun.events WHERE log = $1 AND seq >= $2 AND seq < $3 ORDER BY seq",
    "int8 int8 int8",
)
_EXISTS: Final = Statement("exists", "SELECT FROM minirun.sessions WHERE id = $1", "int8")


def log_of(session: str, seq: str) -> str:
    """In a query: the log that an event of a session stands in, given the columns of its number and of its `seq`."""
    past = f"SELECT p.log FROM minirun.shared_pasts p WHERE p.session = {session} AND {seq} BETWEEN p.first_seq"
    return f"coalesce(({past} AND p.last_seq), {session})"


Line = tuple[Event, int]
"""An event, and about its size in memory."""


async def read_lines(database: Database, segments: Sequence[Segment], first: int, until: int) -> list[Line] | None:
    """
    The events from *first* up to *until* of the session that has these segments; None if it was deleted.

    Raises:
        StorageCorruptError: One of them cannot be read, or is not there.
    """
    wanted = [
        _LINES(segment.log, max(first, segment.first_seq), min(until, segment.last_seq + 1))
        for segment in segments
        if segment.first_seq < until and segment.last_seq >= first
    ]
    if first >= until:
        return []
    rows = [row for result in await database.read(*wanted) for row in result.rows]
    session = segments[-1].log
    if [seq for seq, _ in rows] != list(range(first, until)) and not await is_there(database, session):
        return None
    return events_of(database.name, session, rows, first, until)


async def is_there(database: Database, session: int) -> bool:
    """Whether there is a session of this number."""
    [result] = await database.read(_EXISTS(session))
    return bool(result.rows)


def events_of(name: str, session: int, rows: Sequence[Sequence[Any]], first: int, until: int) -> list[Line]:
    """
    The events from *first* up to *until* that rows (seq, text) hold; *name* is that of the database.

    Raises:
        StorageCorruptError: One of them cannot be read, or is not there.
    """
    try:
        lines = [(from_json(Event, data), memory_of(data)) for _, data in rows]
    except (InvalidValueError, TypeError) as error:
        raise corrupt(name, f"an event of session row {session}: {error}") from error
    if [event.seq for event, _ in lines] != list(range(first, until)):
        raise corrupt(name, f"the events {first} to {until - 1} of session row {session} are not all there")
    return lines
