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

import trio

from ...errors import InvalidValueError
from ...events import Event
from .._fold import apply_event
from .._kept import SESSION_BYTES, KeptSessions
from .._key import SessionKey
from .._live import visible_tail
from .._session import GetSessionConfig
from ._errors import corrupt
from ._file import SqliteFile
from ._logs import SEQ_MAX, read_lines, read_segments
from ._rows import ROW, Row, find_session, read_open_calls, row_of
from ._session import CachedScope, FileSession
from ._state import NO_USER, read_state, refresh_scopes

if TYPE_CHECKING:
    from .._compactions import Compaction

__all__ = ["PAGE_EVENTS", "SessionCache"]

# Decoding so many events takes about 5 ms; then other tasks get their turn.
PAGE_EVENTS = 250

# A session's row, and whether its shared scopes have anything newer than two numbers: that of the app's, the user's.
_NEWER = "EXISTS (SELECT 1 FROM shared_state WHERE app_name = s.app_name AND user_id = {} AND commit_no > ?)"
_ROW_AND_NEWS = (
    f"SELECT {ROW}, {_NEWER.format(repr(NO_USER))} OR {_NEWER.format('s.user_id')} FROM sessions s"
    " WHERE app_name = ? AND user_id = ? AND session_id = ?"
)


class SessionCache(KeptSessions[FileSession]):
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

    async def open(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[FileSession, Row] | None:
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
            for wanted in live.wanted(config):
                if not await self._load_earlier(live, wanted):
                    break
            else:
                return self.keep(live), row

    def _unchanged(self, key: SessionKey, db: sqlite3.Connection) -> tuple[FileSession, Row] | None:
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

    def _current(self, db: sqlite3.Connection, key: SessionKey, row: Row) -> FileSession:
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
            for event, size in self.lines(db, live, live.revision + 1, row.revision + 1):
                live.advance(event, apply_event(live.values, event, shared=False), {})
                self.grow(live, size)
            live.open_calls = open_calls
            live.compaction = self.compaction_at(db, live, row.compaction)
            live.mark = row.chain  # the last step: where a read fails before it, all is read again
        return live

    def new(self, db: sqlite3.Connection, key: SessionKey, row: Row, until: int = SEQ_MAX) -> FileSession:
        """A live session without events; its shared scopes are current up to the number *until*."""
        values, size = read_state(db, self.file.name, row.id)
        scopes = (self._scope(key.app_name, NO_USER), self._scope(key.app_name, key.user_id))
        segments, open_calls = read_segments(db, row.id), read_open_calls(db, row.id)
        live = FileSession(key, row, values, scopes, segments, open_calls, SESSION_BYTES + size)
        live.compaction = self.compaction_at(db, live, row.compaction)
        refresh_scopes(db, self.file.name, live, until)
        return live

    def _scope(self, app_name: str, user: str) -> CachedScope:
        scope = self._scopes.get((app_name, user))
        if scope is None:
            scope = self._scopes[app_name, user] = CachedScope()
        return scope

    def compaction_at(self, db: sqlite3.Connection, live: FileSession, seq: int) -> Compaction | None:
        """The compaction that stands at event *seq*; None for 0."""
        if seq == 0:
            return None
        from .._compactions import Compaction  # few sessions have summaries

        [(event, _)] = self.lines(db, live, seq, seq + 1)
        try:
            return Compaction.of(event)
        except InvalidValueError as error:
            what = f"the compaction at event {seq} of session row {live.incarnation}: {error}"
            raise corrupt(self.file.name, what) from error

    def lines(self, db: sqlite3.Connection, live: FileSession, first: int, until: int) -> list[tuple[Event, int]]:
        """The session's events from *first* up to *until*, each with its size; every one of them must be there."""
        return read_lines(db, self.file.name, live.segments, first, until)

    async def _load_earlier(self, live: FileSession, config: GetSessionConfig | None) -> bool:
        """
        Load what *config* asks for, from the newest event backwards, page by page; False if it was deleted meanwhile.
        """
        first = 1 if config is None or config.after_seq is None else config.after_seq + 1
        count = None if config is None else config.num_recent_events
        pages: list[list[Event]] = []
        size, until = 0, live.first_seq
        missing = None if count is None else count - len(live.events)
        while until > first and (missing is None or missing > 0):
            if pages:
                await trio.lowlevel.checkpoint()
            async with self.file.reading() as db:
                if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (live.incarnation,)).fetchone():
                    return False
                begin = max(first, until - min(PAGE_EVENTS, PAGE_EVENTS if missing is None else missing))
                lines = self.lines(db, live, begin, until)
            page, until = visible_tail((event for event, _ in reversed(lines)), until)
            size += sum(length for _, length in lines)
            pages.append(page)
            missing = None if missing is None else missing - len(page)
        loaded = [event for page in reversed(pages) for event in page]
        if live.first_seq > until:  # else another task has loaded it meanwhile
            earlier = [event for event in loaded if (event.seq or 0) < live.first_seq]
            live.prepend(earlier, until)
            self.grow(live, size)
        if count is not None and len(live.events) < count and live.first_seq > max(first, 1):
            return await self._load_earlier(live, config)  # a rewind has undone meanwhile what was counted
        return True
