"""What is read of a database beside the sessions that are run: logs, and lists of sessions, invocations and
questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import trio

from ..._json import JSON
from ..._postgres._values import Statement
from ..._values import changed
from ...events import Event
from .._calls import OpenCall
from .._earlier import PAGE_EVENTS
from .._invocation import Invocation, InvocationStatus
from .._key import SessionKey
from .._session import Session
from .._state import Scope
from ._cache import FIND, PASTS
from ._database import Database
from ._leases import Leases
from ._logs import events_of, log_of, read_lines
from ._rows import CALL, FREE, INVOCATION, call_of, read_segments, row_of, stored_invocation
from ._schema import UNFINISHED, WAITS
from ._state import read_key_of, read_value
from ._text import stored_key

__all__ = ["Queries"]

# What is not asked for is NULL. A list of all can take longer than a commit may.
LIST_S: Final = 120.0

_SESSIONS: Final = Statement(
    "sessions",
    """
    SELECT id, app_name, user_id, session_id, revision, create_time, update_time FROM minirun.sessions
    WHERE id > $1 AND ($2::text IS NULL OR app_name = $2) AND ($3::text IS NULL OR user_id = $3)
    ORDER BY id LIMIT $4
    """,
    "int8 text text int8",
    once=True,  # planned for what is asked: the index that fits is another one each time
)
# Each step asks an index for the next name of an app.
_APPS_WITH: Final = Statement(
    "apps_with",
    """
    WITH RECURSIVE apps (name) AS (
        SELECT min(app_name) FROM minirun.sessions UNION ALL
        SELECT (SELECT min(app_name) FROM minirun.sessions WHERE app_name > name) FROM apps WHERE name IS NOT NULL
    )
    SELECT name FROM apps JOIN minirun.sessions ON app_name = name AND user_id = $1 AND session_id = $2
    """,
    "text text",
)
_WAITING: Final = Statement(
    "waiting",
    f"""
    SELECT s.app_name, s.user_id, s.session_id, s.id, asked.data, marked.data, {CALL} FROM minirun.open_calls o
    JOIN minirun.sessions s ON s.id = o.session
    LEFT JOIN minirun.events asked ON asked.log = {log_of("o.session", "o.seq")} AND asked.seq = o.seq
    LEFT JOIN minirun.events marked
        ON marked.log = {log_of("o.session", "o.pending_seq")} AND marked.seq = o.pending_seq
    WHERE o.{WAITS} AND ($1::text IS NULL OR s.app_name = $1) AND ($2::text IS NULL OR s.user_id = $2)
        AND ($3::text IS NULL OR s.session_id = $3)
    ORDER BY o.pending_no, o.session, o.seq, o.place
    """,
    "text text text",
    once=True,
)
_USER_STATE: Final = Statement(
    "user_state",
    "SELECT key, name, value FROM minirun.shared_state WHERE app_name = $1 AND user_id = $2 AND value IS NOT NULL"
    " ORDER BY key",
    "text text",
)
# The session of an invocation, whether it was begun under the lease that the session has now, whose that is, and
# whether its worker is gone.
_RUNS: Final = (
    "SELECT s.app_name, s.user_id, s.session_id, s.id, i.epoch = s.lease_epoch, s.lease_owner = $1,"
    f" i.status <> 'running' OR {FREE}, {INVOCATION}"
    " FROM minirun.invocations i JOIN minirun.sessions s ON s.id = i.session"
)
_HERE: Final = "s.app_name = $2 AND s.user_id = $3 AND s.session_id = $4"
_ORDER: Final = "ORDER BY i.commit_no, i.session, i.seq"
# Planned for what is asked, as `_SESSIONS` is.
_ASKED: Final = (
    "($2::text IS NULL OR s.app_name = $2) AND ($3::text IS NULL OR s.user_id = $3)"
    " AND ($4::text IS NULL OR s.session_id = $4)"
)
_ALL_RUNS: Final = Statement("all_runs", f"{_RUNS} WHERE {_ASKED} {_ORDER}", "text text text text", once=True)
_UNFINISHED_RUNS: Final = Statement(
    "unfinished_runs", f"{_RUNS} WHERE i.{UNFINISHED} AND {_ASKED} {_ORDER}", "text text text text", once=True
)
_RUN: Final = Statement("run", f"{_RUNS} WHERE {_HERE} AND i.invocation_id = $5", "text text text text text")
_NOT_ENDED: Final = Statement(
    "not_ended", f"{_RUNS} WHERE {_HERE} AND i.{UNFINISHED} AND i.seq > $5 ORDER BY i.seq", "text text text text int8"
)


class Queries:
    """What one service reads of its database."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases

    async def log(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        """The session's events above *after_seq*, in order, page by page; none if there is no such session."""
        place = (key.app_name, key.user_id, key.session_id)
        while True:
            found, pasts = await self._database.snapshot(FIND(self._leases.owner, *place), PASTS(*place))
            if not found.rows:
                return []
            row = row_of(self._database.name, found.rows[0])
            segments = read_segments(self._database.name, pasts.rows, row)
            last = row.revision if limit is None else min(row.revision, after_seq + limit)
            events: list[Event] = []
            for first in range(after_seq + 1, last + 1, PAGE_EVENTS):
                if events:
                    await trio.lowlevel.checkpoint()
                page = await read_lines(self._database, segments, first, min(first + PAGE_EVENTS, last + 1))
                if page is None:
                    break  # it was deleted, and perhaps made again
                events.extend(event for event, _ in page)
            else:
                return events

    async def sessions(
        self, app_name: str | None, user_id: str | None, limit: int | None, after: int
    ) -> list[Session]:
        """The sessions with a number above *after*, in that order, without events and state."""
        from .._listed import listed_session  # most programs list nothing

        await self._database.ready()
        [found] = await self._database.pool.read(_SESSIONS(after, app_name, user_id, limit), slow_s=LIST_S)
        return [
            listed_session(SessionKey(app, user, name), number, *rest) for number, app, user, name, *rest in found.rows
        ]

    async def apps_with(self, user_id: str, session_id: str) -> set[str]:
        """The apps that have a session of this user and id; the costs are those of the apps, not of their sessions."""
        [found] = await self._database.read(_APPS_WITH(user_id, session_id))
        return {app for (app,) in found.rows}

    async def waiting(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        """The calls that wait for somebody outside, with the event that holds each and the one that lets it wait."""
        await self._database.ready()
        [found] = await self._database.pool.read(_WAITING(app_name, user_id, session_id), slow_s=LIST_S)
        waiting, name = [], self._database.name
        for app, user, session_id, session, asked, marked, *columns in found.rows:
            call = call_of(name, columns)
            places = ((call.seq, asked), (call.pending_seq, marked))
            rows = [[] if data is None else [(seq, data)] for seq, data in places]
            asks, marks = (
                events_of(name, session, row, seq, seq + 1)[0][0] for row, (seq, _) in zip(rows, places, strict=True)
            )
            waiting.append((SessionKey(app, user, session_id), call, asks, marks))
        return waiting

    async def user_state(self, app_name: str, user_id: str) -> dict[str, JSON]:
        """The values that all sessions of a user share, under their full keys."""
        [found] = await self._database.read(_USER_STATE(app_name, user_id))
        name = self._database.name
        keys = [read_key_of(name, stored, long_key, Scope.USER) for stored, long_key, _ in found.rows]
        return {key: read_value(name, key, data) for key, (_, _, data) in zip(keys, found.rows, strict=True)}

    async def all_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        """Those of an app, a user, a session, or of all, or at least those of a status, oldest first."""
        is_open = status is not None and not status.has_ended
        query = (_UNFINISHED_RUNS if is_open else _ALL_RUNS)(self._leases.owner, app_name, user_id, session_id)
        await self._database.ready()
        [found] = await self._database.pool.read(query, slow_s=LIST_S)
        return [self._invocation(columns) for columns in found.rows]

    async def invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        """One of a session."""
        place = (key.app_name, key.user_id, key.session_id)
        [found] = await self._database.read(_RUN(self._leases.owner, *place, stored_key(invocation_id)[0]))
        return self._invocation(found.rows[0]) if found.rows else None

    async def not_ended(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        """Those of a session that have begun after an event, and not ended."""
        place = (key.app_name, key.user_id, key.session_id)
        [found] = await self._database.read(_NOT_ENDED(self._leases.owner, *place, after_seq))
        return [self._invocation(columns) for columns in found.rows]

    def _invocation(self, columns: Sequence[Any]) -> Invocation:
        """An invocation as it is listed: one that nobody runs is interrupted."""
        app, user, name, session, is_current, is_mine, is_free, *rest = columns
        found = stored_invocation(self._database.name, SessionKey(app, user, name), *rest)
        if found.status is not InvocationStatus.RUNNING:
            return found
        runs_here = (session, found.invocation_id) in self._leases.running
        if is_current and (runs_here if is_mine else not is_free):
            return found
        return changed(found, status=InvocationStatus.INTERRUPTED)
