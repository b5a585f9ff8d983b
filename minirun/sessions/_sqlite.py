"""
Sessions in one SQLite file.

An append is one transaction: the event, one row for each state key it changes, the session's revision, the calls it
opens and answers, and with the user message the invocation's `running`. So nothing is ever half there. What an event
changes is decided by `apply_event` inside the transaction, on values that are current there.

Every commit has a number, increasing over the whole file. The shared scopes (`user:`, `app:`) carry the number of the
last commit that changed each key; a cached scope knows up to which number it is current, so catching up with other
processes reads only what is newer.

The lease of a session (owner, expiry, epoch) says which process runs it. Its first append takes it, `epoch + 1`; from
then on an append of any other epoch is stale. An outside append takes no lease, but ends one that has expired.
"""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import trio

from .._codec import event_from_json, event_to_json
from .._json import JSON, dumps, freeze, loads, shown
from .._window import Window
from ..env import Env
from ..errors import (
    AlreadyExistsError,
    ConfigurationError,
    InvalidValueError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageCorruptError,
    StorageError,
    StorageReadOnlyError,
)
from ..events import Event
from ._fold import apply_event
from ._lease import OwnerLock, owner_is_gone
from ._live import LiveSession, OpenCall, SessionKey, opened_calls
from ._service import BaseSessionService, ChangedMeanwhileError, SessionWriter
from ._session import GetSessionConfig, Invocation, InvocationStatus, Session
from ._sqlite_file import Durability, SqliteFile
from ._state import MISSING, Scope, Values, _Missing, scope_of

__all__ = ["SqliteSessionService"]

# An id in `sessions` is never used twice: a session that was deleted and made again is another one.
SCHEMA = """
CREATE TABLE store (only INTEGER PRIMARY KEY CHECK (only = 1), commit_no INTEGER NOT NULL);
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
    UNIQUE (app_name, user_id, session_id)
);
CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    commit_no INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE TABLE session_state (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;
CREATE TABLE shared_state (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT,
    commit_no INTEGER NOT NULL,
    PRIMARY KEY (app_name, user_id, key)
) WITHOUT ROWID;
CREATE INDEX shared_state_commits ON shared_state (app_name, user_id, commit_no);
CREATE TABLE shared_base (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    commit_no INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (app_name, user_id)
) WITHOUT ROWID;
CREATE TABLE open_calls (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    invocation_id TEXT NOT NULL,
    author TEXT NOT NULL,
    branch TEXT,
    PRIMARY KEY (session, call_id)
) WITHOUT ROWID;
CREATE TABLE invocations (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    invocation_id TEXT NOT NULL,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (session, invocation_id)
) WITHOUT ROWID
"""

# In `shared_state` the app's own scope has no user; no user id is empty.
NO_USER = ""

# A lease outlives three missed renewals by a margin; a host whose loop stands still for longer loses it.
LEASE_S = 30.0
RENEW_EVERY_S = 8.0
# How often a waiting process looks whether the lease is free: the first pause and the longest.
LEASE_POLL_S = (0.01, 0.25)

# Decoding so many events takes about 5 ms; then other tasks get their turn.
PAGE_EVENTS = 250

# How much is kept of the sessions that ran lately, counted as JSON; in memory it is about four times as large.
CACHE_BYTES = 64 * 2**20


class _Scope:
    """The cached values of one `user:` or `app:` scope, current up to `commit_no`."""

    __slots__ = ("__weakref__", "commit_no", "values")

    def __init__(self) -> None:
        self.values: dict[str, JSON] = {}
        self.commit_no = -1


class _Row:
    """A row of `sessions`."""

    __slots__ = ("create_time", "epoch", "expires", "id", "owner", "revision", "update_time")

    def __init__(self, columns: tuple[Any, ...]) -> None:
        (self.id, self.revision, self.create_time, self.update_time, self.epoch, self.owner, self.expires) = columns


_ROW = "id, revision, create_time, update_time, lease_epoch, lease_owner, lease_expires"


class SqliteSessionService(BaseSessionService):
    """
    Keeps sessions in one SQLite file, which several processes may share.

    Args:
        path: A file (its folder must exist), `":memory:"`, or `"sqlite:///FILE"`. It is opened on first use.
        durability: `"power"`: what is stored survives a power cut; each commit waits for the disk, in a worker
            thread. `"process"`: it survives the end of the process, `kill -9` included; a power cut may take the
            latest commits, never part of one.
        cache_bytes: How much of the sessions that ran lately is kept for their next turn, in bytes of JSON.
        env: Where time and ids come from.

    Raises:
        StorageFormatError: On first use: the file is not one of minirun's, or a newer version's, or has no folder.
        StorageReadOnlyError: On first use: the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        cache_bytes: int = CACHE_BYTES,
        env: Env | None = None,
    ) -> None:
        super().__init__(env=env)
        if durability not in ("power", "process"):
            msg = f"expected durability 'power' or 'process', found {durability!r:.80}"
            raise ConfigurationError(msg)
        if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 0:
            msg = f"expected cache_bytes to be an integer from 0 up, found {shown(cache_bytes)}"
            raise ConfigurationError(msg)
        self._path = _parse_path(path)
        self._file = SqliteFile(self._path, SCHEMA, durability, self._env)
        self._cache: OrderedDict[SessionKey, LiveSession] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._scopes: WeakValueDictionary[tuple[str, str], _Scope] = WeakValueDictionary()
        self._owner = self._env.new_id("owner")[:16]
        self._owner_lock: OwnerLock | None = None
        self.renew_every_s = None if self._path is None else RENEW_EVERY_S

    def _store_id(self) -> Hashable:
        return id(self) if self._path is None else self._path

    # --- sessions

    async def _create(self, key: SessionKey, event: Event) -> LiveSession:
        place = (key.app_name, key.user_id, key.session_id)
        async with self._file.writing() as db:
            if db.execute(f"SELECT 1 FROM sessions WHERE {_PLACE}", place).fetchone():
                msg = f"there is a {key} already; get it with get_session, or choose another id"
                raise AlreadyExistsError(msg)
            db.execute(
                "INSERT INTO sessions (app_name, user_id, session_id, revision, create_time, update_time)"
                " VALUES (?, ?, ?, 0, ?, ?)",
                (*place, event.timestamp, event.timestamp),
            )
            [incarnation] = db.execute("SELECT last_insert_rowid()").fetchone()
            assert event.timestamp is not None
            live = self._new_live(db, key, _Row((incarnation, 0, event.timestamp, event.timestamp, 0, None, None)))
            changes = self._write_event(db, live, event, event_to_json(event))
        live.values.apply(changes)
        return self._cached(live)

    async def _delete(self, key: SessionKey) -> None:
        pause, longest = LEASE_POLL_S
        while True:
            async with self._file.writing() as db:
                row = _find(db, key)
                if row is None or self._is_free(row):
                    if row is not None:
                        self._write_base(db, key)
                        db.execute("DELETE FROM sessions WHERE id = ?", (row.id,))
                    self._uncache(key)
                    return
            await self._env.sleep(pause)
            pause = min(2 * pause, longest)

    def _write_base(self, db: sqlite3.Connection, key: SessionKey) -> None:
        """Let the shared scopes no longer depend on the deltas of a session that is about to go (promise P4)."""
        [commit_no] = db.execute("SELECT commit_no FROM store").fetchone()
        for user in (NO_USER, key.user_id):
            rows = db.execute(
                "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL",
                (key.app_name, user),
            )
            value = "{" + ",".join(f"{dumps(name)}:{data}" for name, data in rows) + "}"
            db.execute(
                "INSERT OR REPLACE INTO shared_base VALUES (?, ?, ?, ?)", (key.app_name, user, commit_no, value)
            )

    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        query = (
            "SELECT id, app_name, user_id, session_id, revision, create_time, update_time FROM sessions"
            " WHERE id > ? AND app_name = coalesce(?, app_name) AND user_id = coalesce(?, user_id) ORDER BY id LIMIT ?"
        )
        async with self._file.reading() as db:
            rows = db.execute(query, (after, app_name, user_id, -1 if limit is None else limit)).fetchall()
        return [
            Session(
                id=session_id,
                app_name=app,
                user_id=user,
                values=Values({}, {}, {}),
                events=Window([]),
                revision=revision,
                create_time=created,
                last_update_time=updated,
                incarnation=incarnation,
            )
            for incarnation, app, user, session_id, revision, created, updated in rows
        ]

    # --- reading

    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        opened = await self._open_row(key, config)
        return None if opened is None else opened[0]

    async def _open_free(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> LiveSession | None:
        pause, longest = LEASE_POLL_S
        while True:
            opened = await self._open_row(key, config)
            if opened is None:
                return None
            live, row = opened
            if self._is_free(row):
                return live
            if reject:
                msg = f"another process is running {key}; wait for it, or try again later"
                raise SessionBusyError(msg)
            await self._env.sleep(pause)
            pause = min(2 * pause, longest)

    async def _open_row(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[LiveSession, _Row] | None:
        while True:
            async with self._file.reading() as db:
                row = _find(db, key)
                if row is None:
                    self._uncache(key)
                    return None
                live = self._current(db, key, row)
                first = _first_wanted(row.revision, config)
                newest = self._page(db, row.id, first, live.first_seq) if first < live.first_seq else []
            if newest and not await self._load_earlier(live, newest, first):
                continue  # deleted while its pages were read
            return self._cached(live), row

    def _current(self, db: sqlite3.Connection, key: SessionKey, row: _Row) -> LiveSession:
        """The live session at *row*'s revision: the cached one brought up to date, or a new one without events."""
        live = self._cache.get(key)
        if live is None or live.incarnation != row.id:
            self._uncache(key)
            return self._new_live(db, key, row)
        self._refresh_scopes(db, live)
        if live.revision < row.revision:  # another process has written
            for event, size in self._lines(db, row.id, live.revision + 1, row.revision + 1):
                live.advance(event, apply_event(live.values, event, shared=False), tracked=False)
                self._grow(live, size)
            live.open_calls = _read_open_calls(db, row.id)
        return live

    def _new_live(self, db: sqlite3.Connection, key: SessionKey, row: _Row) -> LiveSession:
        app, user = self._scope(key.app_name, NO_USER), self._scope(key.app_name, key.user_id)
        rows = db.execute("SELECT key, value FROM session_state WHERE session = ?", (row.id,)).fetchall()
        values = Values({name: self._value(name, data) for name, data in rows}, user.values, app.values)
        live = LiveSession(
            key,
            values,
            incarnation=row.id,
            create_time=row.create_time,
            last_update_time=row.update_time,
            revision=row.revision,
            open_calls=_read_open_calls(db, row.id),
            size=sum(len(data) for _, data in rows),
        )
        live.keeps = (app, user)
        self._refresh_scopes(db, live)
        return live

    async def _load_earlier(self, live: LiveSession, newest: list[tuple[Event, int]], first: int) -> bool:
        """Load the events from *first* on, page by page; False if the session was deleted meanwhile."""
        pages = [newest]
        until = live.first_seq - len(newest)
        while until > first:
            await trio.lowlevel.checkpoint()
            async with self._file.reading() as db:
                if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (live.incarnation,)).fetchone():
                    return False
                pages.append(self._page(db, live.incarnation, first, until))
            until -= len(pages[-1])
        loaded = [line for page in reversed(pages) for line in page]
        earlier = loaded[: max(0, live.first_seq - first)]  # another task may have loaded the later ones meanwhile
        if earlier:
            live.prepend([event for event, _ in earlier])
            self._grow(live, sum(size for _, size in earlier))
        return True

    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        events: list[Event] = []
        incarnation = None
        while True:
            async with self._file.reading() as db:
                row = _find(db, key)
                if row is None:
                    return []
                if row.id != incarnation:  # at the first page, and when it was deleted and made again meanwhile
                    incarnation, events = row.id, []
                first = after_seq + 1 + len(events)
                last = row.revision if limit is None else min(row.revision, after_seq + limit)
                page = self._lines(db, row.id, first, min(first + PAGE_EVENTS, last + 1))
            events.extend(event for event, _ in page)
            if first + len(page) > last:
                return events

    def _page(self, db: sqlite3.Connection, session: int, first: int, until: int) -> list[tuple[Event, int]]:
        """The last page of the events from *first* up to *until*."""
        return self._lines(db, session, max(first, until - PAGE_EVENTS), until)

    def _lines(self, db: sqlite3.Connection, session: int, first: int, until: int) -> list[tuple[Event, int]]:
        """The events from *first* up to *until*, each with its size; every one of them must be there."""
        rows = db.execute(
            "SELECT data FROM events WHERE session = ? AND seq >= ? AND seq < ? ORDER BY seq", (session, first, until)
        )
        try:
            lines = [(event_from_json(line), len(line)) for (line,) in rows]
        except (InvalidValueError, TypeError) as error:
            raise self._damaged(f"an event of session row {session}: {error}") from error
        if [event.seq for event, _ in lines] != list(range(first, until)):
            raise self._damaged(f"the events {first} to {until - 1} of session row {session} are not all there")
        return lines

    def _value(self, key: str, data: str) -> JSON:
        try:
            return freeze(loads(data))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"the value of state key {key!r:.80}: {error}") from error

    def _damaged(self, what: str) -> StorageCorruptError:
        return StorageCorruptError(f"{self._file.name} is damaged: {what:.300}; keep a copy of it and restore a backup")

    # --- writing

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        line = event_to_json(event)
        epoch = 0
        if writer is not None and writer.epoch is None:
            self._sign()
        try:
            async with self._file.writing() as db:
                row = _find(db, live.key)
                epoch = self._check_turn(live, row, writer)
                changes = self._write_event(db, live, event, line)
                self._write_calls(db, live, event, tracked=writer is not None)
                self._write_session(db, live, event, epoch, writer)
                if writer is not None and begins:
                    db.execute(
                        "INSERT INTO invocations VALUES (?, ?, ?, ?, ?)",
                        (live.incarnation, writer.invocation_id, InvocationStatus.RUNNING, epoch, event.seq),
                    )
        except StorageError as error:
            if error.stored is None:
                self._uncache(live.key)  # nobody knows whether it happened: read it again
                if writer is not None and writer.epoch is None:
                    writer.epoch = epoch  # the lease may have been taken; leaving gives it back, if so
            raise
        if writer is not None:
            writer.epoch = epoch
        live.advance(event, changes, tracked=writer is not None)
        self._grow(live, len(line))

    def _check_turn(self, live: LiveSession, row: _Row | None, writer: SessionWriter | None) -> int:
        """Return the epoch to write under, or raise because it is not the writer's turn (any more)."""
        if row is None or row.id != live.incarnation:
            msg = f"{live.key} was deleted"
            raise SessionNotFoundError(msg)
        entered = writer is not None and writer.epoch is not None
        if entered:
            assert writer is not None
            assert writer.epoch is not None
            free = row.epoch == writer.epoch
        else:
            free = self._is_free(row)
        if free and row.revision == live.revision:
            taken: int = row.epoch if entered or (writer is None and row.owner is None) else row.epoch + 1
            return taken
        if writer is None:
            raise ChangedMeanwhileError
        msg = (
            f"{live.key} was read at revision {live.revision} and is at {row.revision}: another process has "
            f"{'taken the session over' if entered else 'entered it first'}; run the message again"
        )
        raise StaleSessionError(msg)

    def _write_event(
        self, db: sqlite3.Connection, live: LiveSession, event: Event, line: str
    ) -> dict[str, JSON | _Missing]:
        """Write the event and the state it changes; return the changes. The live session stays as it is."""
        [commit_no] = db.execute("SELECT commit_no + 1 FROM store").fetchone()
        db.execute("UPDATE store SET commit_no = ?", (commit_no,))
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (live.incarnation, event.seq, commit_no, line))
        actions = event.actions
        if not (actions.state_delta or actions.state_removed or actions.state_ops):
            return {}
        self._refresh_scopes(db, live)
        changes = apply_event(live.values, event)
        for key, value in changes.items():
            _write_value(db, live, key, value, commit_no)
        return changes

    def _write_calls(self, db: sqlite3.Connection, live: LiveSession, event: Event, *, tracked: bool) -> None:
        if event.content is None:
            return
        for call in opened_calls(event) if tracked else ():
            db.execute(
                "INSERT INTO open_calls VALUES (?, ?, ?, ?, ?, ?, ?)",
                (live.incarnation, call.call_id, call.name, call.seq, call.invocation_id, call.author, call.branch),
            )
        for response in event.get_function_responses():
            db.execute("DELETE FROM open_calls WHERE session = ? AND call_id = ?", (live.incarnation, response.id))

    def _write_session(
        self, db: sqlite3.Connection, live: LiveSession, event: Event, epoch: int, writer: SessionWriter | None
    ) -> None:
        if writer is not None and writer.epoch is not None:  # the lease is renewed by its own task
            db.execute(
                "UPDATE sessions SET revision = ?, update_time = ? WHERE id = ?",
                (event.seq, event.timestamp, live.incarnation),
            )
            return
        owner = None if writer is None else self._owner
        expires = None if writer is None else self._env.now() + LEASE_S
        db.execute(
            "UPDATE sessions SET revision = ?, update_time = ?, lease_epoch = ?, lease_owner = ?, lease_expires = ?"
            " WHERE id = ?",
            (event.seq, event.timestamp, epoch, owner, expires, live.incarnation),
        )

    # --- shared scopes

    def _scope(self, app_name: str, user: str) -> _Scope:
        scope = self._scopes.get((app_name, user))
        if scope is None:
            scope = self._scopes[app_name, user] = _Scope()
        return scope

    def _refresh_scopes(self, db: sqlite3.Connection, live: LiveSession) -> None:
        """Take over what other processes have committed to the session's shared scopes."""
        for scope, user in zip(live.keeps, (NO_USER, live.key.user_id), strict=True):
            rows = db.execute(
                "SELECT key, value, commit_no FROM shared_state WHERE app_name = ? AND user_id = ? AND commit_no > ?",
                (live.key.app_name, user, scope.commit_no),
            )
            for key, data, commit_no in rows:
                if data is None:
                    scope.values.pop(key, None)
                else:
                    scope.values[key] = self._value(key, data)
                scope.commit_no = max(scope.commit_no, commit_no)

    # --- leases and invocations

    def _is_free(self, row: _Row) -> bool:
        """Whether no other living owner has the session. Within this process the gate decides."""
        if row.owner is None or row.owner == self._owner or row.expires <= self._env.now():
            return True
        return self._path is not None and owner_is_gone(self._path, row.owner)

    def _sign(self) -> None:
        if self._owner_lock is None and self._path is not None:
            try:
                self._owner_lock = OwnerLock(self._path, self._owner)
            except OSError as error:
                msg = f"{self._path}: cannot make a lock file beside it: {error}; make the folder writable"
                raise StorageReadOnlyError(msg) from error

    async def _renew(self, writer: SessionWriter) -> None:
        async with self._file.writing(durable=False) as db:
            db.execute(
                "UPDATE sessions SET lease_expires = ? WHERE id = ? AND lease_epoch = ? AND lease_owner = ?",
                (self._env.now() + LEASE_S, writer.live.incarnation, writer.epoch, self._owner),
            )

    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        async with self._file.writing(durable=False) as db:
            if status is not None:
                db.execute(
                    "UPDATE invocations SET status = ? WHERE session = ? AND invocation_id = ?",
                    (status, writer.live.incarnation, writer.invocation_id),
                )
            db.execute(
                "UPDATE sessions SET lease_owner = NULL, lease_expires = NULL WHERE id = ?"
                " AND lease_epoch = ? AND lease_owner = ?",
                (writer.live.incarnation, writer.epoch, self._owner),
            )

    async def _list_invocations(self, app_name: str | None) -> list[Invocation]:
        query = (
            "SELECT s.app_name, s.user_id, s.session_id, i.invocation_id, i.status, i.epoch, i.seq,"
            " s.lease_epoch, s.lease_owner, s.lease_expires"
            " FROM invocations i JOIN sessions s ON s.id = i.session"
            " JOIN events e ON e.session = i.session AND e.seq = i.seq"
            " WHERE s.app_name = coalesce(?, s.app_name) ORDER BY e.commit_no"
        )
        async with self._file.reading() as db:
            rows = db.execute(query, (app_name,)).fetchall()
        return [self._invocation(row) for row in rows]

    def _invocation(self, columns: tuple[Any, ...]) -> Invocation:
        app, user, session, invocation_id, status, epoch, seq, now_epoch, owner, expires = columns
        if status == InvocationStatus.RUNNING:
            row = _Row((0, 0, 0.0, 0.0, now_epoch, owner, expires))
            owned = owner is not None and epoch == now_epoch and (owner == self._owner or not self._is_free(row))
            status = InvocationStatus.RUNNING if owned else InvocationStatus.INTERRUPTED
        return Invocation(
            app_name=app,
            user_id=user,
            session_id=session,
            invocation_id=invocation_id,
            status=InvocationStatus(status),
            seq=seq,
        )

    # --- the cache

    def _cached(self, live: LiveSession) -> LiveSession:
        present = self._cache.get(live.key)
        if present is not live:
            self._uncache(live.key)
            self._cache[live.key] = live
            self._cached_bytes += live.size
        self._cache.move_to_end(live.key)
        while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
            self._uncache(next(iter(self._cache)))
        return live

    def _uncache(self, key: SessionKey) -> None:
        live = self._cache.pop(key, None)
        if live is not None:
            self._cached_bytes -= live.size

    def _grow(self, live: LiveSession, size: int) -> None:
        live.size += size
        if self._cache.get(live.key) is live:
            self._cached_bytes += size

    async def _close(self) -> None:
        await self._file.close()
        if self._owner_lock is not None:
            self._owner_lock.release()


# --- rows -----------------------------------------------------------------------------------------------------------

_PLACE = "app_name = ? AND user_id = ? AND session_id = ?"


def _parse_path(path: str | os.PathLike[str]) -> Path | None:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or "\0" in text:
        raise InvalidValueError("path", f"expected a file name as text without NUL, found {shown(path)}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise InvalidValueError("path", f"expected a file name, found {shown(path)} ({error})") from None
    if "://" in text:
        if not text.startswith("sqlite:///"):
            raise InvalidValueError("path", f"expected a file name or sqlite:///FILE, found {text!r:.80}")
        text = text.removeprefix("sqlite:///")
    if text == ":memory:":
        return None
    if not text.strip():
        raise InvalidValueError("path", f"expected a file name, ':memory:' or sqlite:///FILE, found {path!r:.80}")
    # Resolved once: neither a change of folder nor a link may make two files, or two owners, out of one.
    return Path(os.path.realpath(text))


def _find(db: sqlite3.Connection, key: SessionKey) -> _Row | None:
    columns = db.execute(
        f"SELECT {_ROW} FROM sessions WHERE {_PLACE}", (key.app_name, key.user_id, key.session_id)
    ).fetchone()
    return None if columns is None else _Row(columns)


def _first_wanted(revision: int, config: GetSessionConfig | None) -> int:
    if config is None:
        return 1
    first = 1 if config.after_seq is None else config.after_seq + 1
    if config.num_recent_events is not None:
        first = max(first, revision + 1 - config.num_recent_events)
    return min(first, revision + 1)


def _read_open_calls(db: sqlite3.Connection, session: int) -> dict[str, OpenCall]:
    rows = db.execute(
        "SELECT call_id, name, seq, invocation_id, author, branch FROM open_calls WHERE session = ? ORDER BY seq",
        (session,),
    )
    return {columns[0]: OpenCall(*columns) for columns in rows}


def _write_value(
    db: sqlite3.Connection, live: LiveSession, key: str, value: JSON | _Missing, commit_no: int
) -> None:
    scope = scope_of(key)
    data = None if value is MISSING else dumps(value)
    if scope is Scope.SESSION:
        if data is None:
            db.execute("DELETE FROM session_state WHERE session = ? AND key = ?", (live.incarnation, key))
        else:
            db.execute("INSERT OR REPLACE INTO session_state VALUES (?, ?, ?)", (live.incarnation, key, data))
        return
    # A removed key leaves its row, without a value, so that other processes hear of the removal.
    user = NO_USER if scope is Scope.APP else live.key.user_id
    db.execute(
        "INSERT OR REPLACE INTO shared_state VALUES (?, ?, ?, ?, ?)", (live.key.app_name, user, key, data, commit_no)
    )
