"""What is read of a file beside the sessions that are run: logs, and lists of sessions, invocations and questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import trio

from ..._json import JSON, brief
from ..._values import changed
from ...events import Event
from .._calls import OpenCall
from .._earlier import PAGE_EVENTS
from .._invocation import Invocation, InvocationStatus, invocation_of
from .._key import SessionKey
from .._session import Session
from .._state import Scope
from ._errors import corrupt
from ._file import SqliteFile
from ._leases import Leases
from ._logs import read_lines, read_segments
from ._rows import CALL, ROW, call_of, find_session, row_of
from ._schema import UNFINISHED, WAITS
from ._state import read_key, read_value

__all__ = ["INVOCATION", "Queries", "stored_invocation"]

# Columns of an invocation, as `stored_invocation` takes them, and of one with its session.
INVOCATION: Final = "i.invocation_id, i.status, i.seq, i.end_seq"
_INVOCATIONS: Final = (
    f"SELECT s.app_name, s.user_id, s.session_id, i.epoch, {INVOCATION}, {ROW}"
    " FROM invocations i JOIN sessions s ON s.id = i.session"
)
_OLDEST_FIRST: Final = "ORDER BY i.commit_no, i.session, i.seq"
# Each step asks an index for the next name of an app.
_APPS_WITH: Final = (
    "WITH RECURSIVE apps (name) AS (SELECT min(app_name) FROM sessions UNION ALL"
    " SELECT (SELECT min(app_name) FROM sessions WHERE app_name > name) FROM apps WHERE name NOT NULL)"
    " SELECT name FROM apps JOIN sessions ON app_name = name AND user_id = ? AND session_id = ?"
)


class Queries:
    """What one service reads of its file."""

    def __init__(self, file: SqliteFile, leases: Leases) -> None:
        self._file = file
        self._leases = leases

    async def log(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        """The session's events above *after_seq*, in order, page by page; none if there is no such session."""
        events: list[Event] = []
        incarnation = None
        while True:
            if events:
                await trio.lowlevel.checkpoint()
            async with self._file.reading() as db:
                row = find_session(db, key)
                if row is None:
                    return []
                if row.id != incarnation:  # at the first page, and when it was deleted and made again meanwhile
                    incarnation, events = row.id, []
                    segments = read_segments(db, row.id, row.revision)
                first = after_seq + 1 + len(events)
                last = row.revision if limit is None else min(row.revision, after_seq + limit)
                page = read_lines(db, self._file.name, segments, first, min(first + PAGE_EVENTS, last + 1))
            events.extend(event for event, _ in page)
            if first + len(page) > last:
                return events

    async def sessions(
        self, app_name: str | None, user_id: str | None, limit: int | None, after: int
    ) -> list[Session]:
        """The sessions with a number above *after*, in that order, without events and state."""
        from .._listed import listed_session  # most programs list nothing

        where, values = _where({"id > ?": after, "app_name = ?": app_name, "user_id = ?": user_id})
        query = (
            "SELECT id, app_name, user_id, session_id, revision, create_time, update_time FROM sessions"
            f" WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        )
        async with self._file.reading() as db:
            rows = db.execute(query, (*values, -1 if limit is None else limit)).fetchall()
        return [listed_session(SessionKey(app, user, name), number, *rest) for number, app, user, name, *rest in rows]

    async def apps_with(self, user_id: str, session_id: str) -> set[str]:
        """The apps that have a session of this user and id; the costs are those of the apps, not of their sessions."""
        async with self._file.reading() as db:
            return {app for (app,) in db.execute(_APPS_WITH, (user_id, session_id))}

    async def waiting(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        """The calls that wait for somebody outside, with the event that holds each and the one that lets it wait."""
        where, values = _where({"s.app_name = ?": app_name, "s.user_id = ?": user_id, "s.session_id = ?": session_id})
        query = (
            f"SELECT s.app_name, s.user_id, s.session_id, s.id, {CALL} FROM open_calls o"
            f" JOIN sessions s ON s.id = o.session WHERE {' AND '.join([WAITS, *where])}"
            " ORDER BY o.pending_no, o.session, o.seq, o.place"
        )
        found = []
        async with self._file.reading() as db:
            for app, user, name, session, *columns in db.execute(query, values).fetchall():
                call, segments = call_of(columns), read_segments(db, session)
                [(event, _)] = read_lines(db, self._file.name, segments, call.seq, call.seq + 1)
                [(mark, _)] = read_lines(db, self._file.name, segments, call.pending_seq, call.pending_seq + 1)
                found.append((SessionKey(app, user, name), call, event, mark))
        return found

    async def user_state(self, app_name: str, user_id: str) -> dict[str, JSON]:
        """The values that all sessions of a user share, under their full keys."""
        query = "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL"
        async with self._file.reading() as db:
            rows = db.execute(f"{query} ORDER BY key", (app_name, user_id)).fetchall()
        name = self._file.name
        return {read_key(name, key, Scope.USER): read_value(name, key, data) for key, data in rows}

    async def all_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        """Those of an app, a user, a session, or of all, or at least those of a status, oldest first."""
        where, values = _where({"s.app_name = ?": app_name, "s.user_id = ?": user_id, "s.session_id = ?": session_id})
        if status is not None and not status.has_ended:
            where.append(UNFINISHED)  # the very words of its index, so that those that have ended are not looked at
        return await self.invocations(f"{' AND '.join(where) or 'true'} {_OLDEST_FIRST}", *values)

    async def invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        """One of a session."""
        where = "s.app_name = ? AND s.user_id = ? AND s.session_id = ? AND i.invocation_id = ?"
        found = await self.invocations(where, key.app_name, key.user_id, key.session_id, invocation_id)
        return found[0] if found else None

    async def not_ended(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        """Those of a session that have begun after an event, and not ended."""
        where = (
            f"{UNFINISHED} AND i.session = (SELECT id FROM sessions"
            " WHERE app_name = ? AND user_id = ? AND session_id = ?) AND i.seq > ? ORDER BY i.seq"
        )
        return await self.invocations(where, key.app_name, key.user_id, key.session_id, after_seq)

    async def invocations(self, where: str, *parameters: object) -> list[Invocation]:
        """The invocations that a condition finds; those that nobody runs are interrupted."""
        async with self._file.reading() as db:
            rows = db.execute(f"{_INVOCATIONS} WHERE {where}", parameters).fetchall()
            return [self._invocation(columns) for columns in rows]

    def _invocation(self, columns: Sequence[Any]) -> Invocation:
        app, user, session, epoch, *rest = columns
        found = stored_invocation(self._file.name, SessionKey(app, user, session), *rest[:4])
        row, leases = row_of(rest[4:]), self._leases
        if found.status is not InvocationStatus.RUNNING:
            return found
        ours = (row.id, found.invocation_id) in leases.running
        if epoch == row.epoch and (ours if leases.is_mine(row) else not leases.is_free(row)):
            return found
        return changed(found, status=InvocationStatus.INTERRUPTED)


def stored_invocation(
    name: str, key: SessionKey, invocation_id: str, status: str, seq: int | None, end_seq: int | None
) -> Invocation:
    """
    The invocation of a row, as it is written.

    Raises:
        StorageCorruptError: It makes no sense.
    """
    if status not in InvocationStatus.__members__.values() or type(seq) is not int:
        what = f"has the status {brief(status)} and begins at {brief(seq)}"
        raise corrupt(name, f"an invocation of session {brief(key.session_id)} {what}")
    return invocation_of(key, invocation_id, InvocationStatus(status), seq, end_seq)


def _where(wanted: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """The conditions that ask for something, and what they ask for."""
    asked = {test: value for test, value in wanted.items() if value is not None}
    return [*asked], [*asked.values()]
