"""
The live sessions of a database that ran lately, and how one is brought up to date when it is opened.

Opening a cached session is one round trip, which asks for its row, and whether its shared scopes have anything newer;
only what is newer than the cached is read after that. A long load runs in pages that let other tasks go on.

Between a question and its answer, other tasks of this worker may change what is cached. So what an answer says is taken
over without a checkpoint, and only if it still fits what is cached by then. Where it does not, the question is asked
again: what happened meanwhile is this worker's own append, in most cases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from ..._postgres._values import Statement
from ...errors import InvalidValueError
from .._earlier import PAGE_EVENTS, load_earlier
from .._fold import apply_event
from .._kept import SESSION_BYTES, KeptSessions
from .._key import SessionKey
from .._scoped import SEQ_MAX, CachedScope, Segment
from .._session import GetSessionConfig
from ._database import Database
from ._logs import Line, events_of, read_lines
from ._rows import CALL, ROW, call_of, corrupt, read_segments, row_of
from ._session import DatabaseSession, Row
from ._state import NO_USER, Scopes, news_call, read_state, take_news

if TYPE_CHECKING:
    from .._compactions import Compaction

__all__ = ["CALLS", "FIND", "PASTS", "STATE", "THERE", "SessionCache"]

_PLACE: Final = "s.app_name = ${} AND s.user_id = ${} AND s.session_id = ${}"
THERE: Final = f"(SELECT s.id FROM minirun.sessions s WHERE {_PLACE.format(1, 2, 3)})"
_NEWER: Final = (
    "EXISTS (SELECT FROM minirun.shared_state WHERE app_name = s.app_name AND user_id = {} AND commit_no > {})"
)
_HAS_NEWS: Final = " OR ".join((_NEWER.format("''", "$5"), _NEWER.format("s.user_id", "$6")))

FIND: Final = Statement("find", f"SELECT {ROW} FROM minirun.sessions s WHERE {_PLACE.format(2, 3, 4)}", "text " * 4)
"""The row of a session; the first parameter is the worker that asks."""
_LOOK: Final = Statement(
    "look",
    f"SELECT {ROW}, {_HAS_NEWS} FROM minirun.sessions s WHERE {_PLACE.format(2, 3, 4)}",
    "text text text text int8 int8",
)
STATE: Final = Statement(
    "state", f"SELECT key, name, value FROM minirun.session_state WHERE session = {THERE}", "text text text"
)
CALLS: Final = Statement(
    "calls", f"SELECT {CALL} FROM minirun.open_calls o WHERE session = {THERE} ORDER BY seq, place", "text text text"
)
PASTS: Final = Statement(
    "pasts",
    f"SELECT first_seq, last_seq, log FROM minirun.shared_pasts WHERE session = {THERE} ORDER BY first_seq",
    "text text text",
)
_LATER: Final = Statement(
    "later",
    f"SELECT seq, data FROM minirun.events WHERE log = $1 AND seq > $2 ORDER BY seq LIMIT {PAGE_EVENTS}",
    "int8 int8",
)
# Waits for a statement that may still be at work on the session, and changes nothing.
_SETTLE: Final = Statement(
    "settle", f"SELECT FROM minirun.sessions s WHERE {_PLACE.format(1, 2, 3)} FOR UPDATE", "text text text"
)


class SessionCache(KeptSessions[DatabaseSession]):
    """
    The live sessions of a database.

    Args:
        owner: What the leases of this worker are called.
        answered: Waits until the appends that were sent are answered.
    """

    def __init__(
        self, database: Database, max_bytes: int, owner: Callable[[], str], answered: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(max_bytes)
        self._database = database
        self._owner = owner
        self._answered = answered
        self._scopes: WeakValueDictionary[tuple[str, str], CachedScope] = WeakValueDictionary()
        self._doubtful: set[SessionKey] = set()

    def doubt(self, key: SessionKey) -> None:
        """Nobody knows whether an append of the session was stored: read it again, once no statement is at work."""
        self.drop(key)
        self._doubtful.add(key)

    async def open(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[DatabaseSession, Row] | None:
        """The session as it is now, with what *config* asks for loaded, and its row; None if there is none."""
        if key in self._doubtful:
            await self._database.write(_SETTLE(key.app_name, key.user_id, key.session_id))
            self._doubtful.discard(key)
        while True:
            cached = self.sessions.get(key)
            looked = await (self._load(key) if cached is None else self._look(key, cached))
            if looked is None:
                continue
            if not looked:
                return None
            live, row = looked[0]
            for wanted in live.wanted(config):
                if not await load_earlier(self, live, wanted):
                    self.drop(key)
                    break
            else:
                return self.keep(live), row

    # --- what is there. Each returns a list of what was found; an empty one: no such session; None: look again.

    async def _look(self, key: SessionKey, live: DatabaseSession) -> list[tuple[DatabaseSession, Row]] | None:
        """Compare the cached session with what is stored, and bring it up to date."""
        before = live.revision
        place = (key.app_name, key.user_id, key.session_id)
        [result] = await self._database.read(_LOOK(self._owner(), *place, live.app.commit_no, live.user.commit_no))
        if self.sessions.get(key) is not live:
            return None
        if not result.rows:
            self.drop(key)
            return []
        *columns, has_news = result.rows[0]
        row = row_of(self._database.name, columns)
        is_same = (live.incarnation, live.revision, live.mark) == (row.id, row.revision, row.chain)
        if is_same and not has_news:
            live.see(row)
            return [(live, row)]
        if live.in_flight:
            await self._answered()
            return None
        if is_same:
            scopes = self._shared_by(live)
            [news] = await self._database.read(news_call(scopes))
            take_news(self._database.name, scopes, news.rows)
            if self.sessions.get(key) is not live or live.revision != before:
                return None
            live.see(row)
            return [(live, row)]
        if live.incarnation == row.id and before <= row.revision < live.revision:
            return None  # overtaken by the answer to an append of ours
        if live.incarnation == row.id and live.revision < row.revision and not live.held:
            return await self._catch_up(key, live)
        self.drop(key)  # another history; or a run was overtaken, which must not be helped along
        return None

    async def _catch_up(self, key: SessionKey, live: DatabaseSession) -> list[tuple[DatabaseSession, Row]] | None:
        """Take over what another worker has written."""
        before, scopes = live.revision, self._shared_by(live)
        place = (key.app_name, key.user_id, key.session_id)
        found, calls, news, later = await self._database.snapshot(
            FIND(self._owner(), *place), CALLS(*place), news_call(scopes), _LATER(live.incarnation, before)
        )
        if not found.rows:
            self.drop(key)
            return []
        row, name = row_of(self._database.name, found.rows[0]), self._database.name
        compaction = None
        if row.id == live.incarnation and row.compaction:
            compaction = await self.compaction_at(live.segments, row.compaction)
        if self.sessions.get(key) is not live or live.revision != before or live.held or live.in_flight:
            return None
        if row.id != live.incarnation or row.revision != before + len(later.rows):
            self.drop(key)  # another session; or so much is new that it is loaded page by page
            return None
        lines = events_of(name, row.id, later.rows, before + 1, row.revision + 1)
        open_calls = {call.call_id: call for call in (call_of(name, columns) for columns in calls.rows)}
        for event, size in lines:
            live.advance(event, apply_event(live.values, event, shared=False), {})
            self.grow(live, size)
        take_news(name, scopes, news.rows)
        live.open_calls = open_calls
        live.compaction = compaction
        live.mark = row.chain
        live.see(row)
        return [(live, row)]

    async def _load(self, key: SessionKey) -> list[tuple[DatabaseSession, Row]] | None:
        """A live session without events."""
        place = (key.app_name, key.user_id, key.session_id)
        both = (self._scope(key.app_name, NO_USER), self._scope(key.app_name, key.user_id))
        scopes = {(key.app_name, NO_USER): both[0], (key.app_name, key.user_id): both[1]}
        found, state, calls, pasts, news = await self._database.snapshot(
            FIND(self._owner(), *place), STATE(*place), CALLS(*place), PASTS(*place), news_call(scopes)
        )
        if not found.rows:
            return []
        name = self._database.name
        row = row_of(name, found.rows[0])
        segments = read_segments(name, pasts.rows, row)
        compaction = await self.compaction_at(segments, row.compaction) if row.compaction else None
        if key in self.sessions:
            return None  # another task was faster
        values, size = read_state(name, state.rows)
        open_calls = {call.call_id: call for call in (call_of(name, columns) for columns in calls.rows)}
        live = DatabaseSession(key, row, values, both, segments, open_calls, SESSION_BYTES + size)
        live.compaction = compaction
        take_news(name, scopes, news.rows)
        live.see(row)
        return [(self.keep(live), row)]

    def made(self, key: SessionKey, row: Row) -> DatabaseSession:
        """The live session of one that was just made, without state and events, and not kept yet."""
        both = (self._scope(key.app_name, NO_USER), self._scope(key.app_name, key.user_id))
        return DatabaseSession(key, row, {}, both, (Segment(0, SEQ_MAX, row.id),), {}, SESSION_BYTES)

    def scopes_of(self, key: SessionKey) -> Scopes:
        """The shared scopes of a session with this key, by app and user."""
        users = (NO_USER, key.user_id)
        return {(key.app_name, user): self._scope(key.app_name, user) for user in users}

    def _shared_by(self, live: DatabaseSession) -> Scopes:
        return {(live.key.app_name, NO_USER): live.app, (live.key.app_name, live.key.user_id): live.user}

    def _scope(self, app_name: str, user: str) -> CachedScope:
        scope = self._scopes.get((app_name, user))
        if scope is None:
            scope = self._scopes[app_name, user] = CachedScope()
        return scope

    # --- events

    async def compaction_at(self, segments: tuple[Segment, ...], seq: int) -> Compaction | None:
        """The compaction that stands at event *seq*; None for 0, or if the session was deleted."""
        lines = await read_lines(self._database, segments, seq, seq + 1) if seq else None
        if not lines:
            return None
        from .._compactions import Compaction  # few sessions have summaries

        try:
            return Compaction.of(lines[0][0])
        except InvalidValueError as error:
            what = f"the compaction at event {seq} of session row {segments[-1].log}: {error}"
            raise corrupt(self._database.name, what) from error

    async def lines(self, live: DatabaseSession, first: int, until: int) -> list[Line] | None:
        """The session's events from *first* up to *until*, each with its size; None if it was deleted."""
        return await read_lines(self._database, live.segments, first, until)
