"""
The live sessions of a file that ran lately, and how one is brought up to date when it is opened.

Opening a cached session reads its row, and whether its shared scopes have anything newer; only what is newer than the
cached is read after that. A long load runs in pages that let other tasks go on.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ...errors import InvalidValueError
from ...events import Event
from .._fold import apply_event
from .._kept import SESSION_BYTES, KeptSessions
from .._key import SessionKey
from .._scoped import SEQ_MAX, CachedScope, ScopedSession
from .._session import GetSessionConfig
from ._errors import corrupt
from ._file import SqliteFile
from ._logs import read_lines, read_segments
from ._rows import ROW, Row, find_session, read_open_calls, row_of
from ._state import NO_USER, read_state, refresh_scopes

if TYPE_CHECKING:
    from .._compactions import Compaction

__all__ = ["SessionCache"]

# A session's row, and whether its shared scopes have anything newer than two numbers: that of the app's, the user's.
_NEWER = "EXISTS (SELECT 1 FROM shared_state WHERE app_name = s.app_name AND user_id = {} AND commit_no > ?)"
_ROW_AND_NEWS = (
    f"SELECT {ROW}, {_NEWER.format(repr(NO_USER))} OR {_NEWER.format('s.user_id')} FROM sessions s"
    " WHERE app_name = ? AND user_id = ? AND session_id = ?"
)


class SessionCache(KeptSessions[ScopedSession]):
    """The live sessions of *file*."""

    def __init__(self, file: SqliteFile, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.file = file
        self._generation = 1  # of the file that the sessions were read from
        self._scopes: WeakValueDictionary[tuple[str, str], CachedScope] = WeakValueDictionary()

    def _forget(self) -> None:
        """Drop what was read from a file that is not the one that is open now."""
        self._generation = self.file.generation
        self.clear()
        for scope in self._scopes.values():
            scope.commit_no = -1

    # --- opening

    async def open(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[ScopedSession, Row] | None:
        """The session as it is now, with what *config* asks for loaded, and its row; None if there is none."""
        while True:
            found = await self.file.look(partial(self._unchanged, key)) if key in self.sessions else None
            if found is None:
                async with self.file.reading() as db:
                    row = find_session(db, key)
                    if row is None:
                        self.drop(key)
                        return None
                    found = self._current(db, key, row), row
            live, row = found
            live.epoch, live.has_messages = row.epoch, bool(row.has_messages)
            for wanted in live.wanted(config) if live.first_seq > 1 else ():
                from .._earlier import load_earlier  # all of a new session is there

                if not await load_earlier(self, live, wanted):
                    break
            else:
                return self.keep(live), row

    def _unchanged(self, key: SessionKey, db: sqlite3.Connection) -> tuple[ScopedSession, Row] | None:
        """The cached live session and its row, if nobody has written to it or its shared scopes; None: look closer."""
        live = self.sessions.get(key)
        if live is None or self._generation != self.file.generation:
            return None
        known = (live.app.commit_no, live.user.commit_no)
        columns = db.execute(_ROW_AND_NEWS, (*known, key.app_name, key.user_id, key.session_id)).fetchone()
        if columns is None or columns[-1]:
            return None
        row = row_of(columns[:-1])
        is_same = (live.incarnation, live.revision, live.mark) == (row.id, row.revision, row.chain)
        return (live, row) if is_same else None

    def _current(self, db: sqlite3.Connection, key: SessionKey, row: Row) -> ScopedSession:
        """The live session at *row*'s revision: the cached one brought up to date, or a new one without events."""
        if self._generation != self.file.generation:  # perhaps another file, or the same one with less in it
            self._forget()
        live = self.sessions.get(key)
        if live is not None and live.revision != row.revision and (live.held or live.revision > row.revision):
            live = None  # a run that was overtaken must not be helped along; nor can what is stored get less
        if live is not None and live.revision == row.revision and live.mark != row.chain:
            live = None  # another history: another file, or the same one restored
        if live is None or live.incarnation != row.id:
            self.drop(key)
            return self.new(db, key, row)
        refresh_scopes(db, self.file.name, live)
        if live.revision < row.revision:  # another process has written
            open_calls = read_open_calls(db, row.id)
            for event, size in read_lines(db, self.file.name, live.segments, live.revision + 1, row.revision + 1):
                live.advance(event, apply_event(live.values, event, shared=False), {})
                self.grow(live, size)
            live.open_calls = open_calls
            live.compaction = self.compaction_at(db, live, row.compaction)
            live.mark = row.chain  # the last step: where a read fails before it, all is read again
        return live

    def new(self, db: sqlite3.Connection, key: SessionKey, row: Row, until: int = SEQ_MAX) -> ScopedSession:
        """A live session without events; its shared scopes are current up to the number *until*."""
        values, size = read_state(db, self.file.name, row.id)
        scopes = (self._scope(key.app_name, NO_USER), self._scope(key.app_name, key.user_id))
        segments, open_calls = read_segments(db, row.id, row.revision), read_open_calls(db, row.id)
        live = ScopedSession(key, row, values, scopes, segments, open_calls, SESSION_BYTES + size)
        live.compaction = self.compaction_at(db, live, row.compaction)
        refresh_scopes(db, self.file.name, live, until)
        return live

    def _scope(self, app_name: str, user: str) -> CachedScope:
        scope = self._scopes.get((app_name, user))
        if scope is None:
            scope = self._scopes[app_name, user] = CachedScope()
        return scope

    def compaction_at(self, db: sqlite3.Connection, live: ScopedSession, seq: int) -> Compaction | None:
        """The compaction that stands at event *seq*; None for 0."""
        if seq == 0:
            return None
        from .._compactions import Compaction  # few sessions have summaries

        [(event, _)] = read_lines(db, self.file.name, live.segments, seq, seq + 1)
        try:
            return Compaction.of(event)
        except InvalidValueError as error:
            what = f"the compaction at event {seq} of session row {live.incarnation}: {error}"
            raise corrupt(self.file.name, what) from error

    async def lines(self, live: ScopedSession, first: int, until: int) -> list[tuple[Event, int]] | None:
        """The session's events from *first* up to *until*, each with its size; None if it was deleted."""
        async with self.file.reading() as db:
            there = db.execute("SELECT 1 FROM sessions WHERE id = ?", (live.incarnation,)).fetchone()
            return read_lines(db, self.file.name, live.segments, first, until) if there else None
