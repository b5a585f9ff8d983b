"""
Sessions in one SQLite file.

An append is one transaction: the event, one row for each state key it changes, the session's revision, the calls it
opens and answers, and with the user message the invocation's `running`. So nothing is ever half there. What an event
changes is decided by `apply_event` inside the transaction, on values that are current there.

Every event has a number, increasing over the whole file: `commit_no`. The shared scopes (`user:`, `app:`) carry the
number of the event that last changed each key; a cached scope knows up to which number it is current, so catching up
with other processes reads only what is newer.

Appends that share a transaction see each other's shared values through `_Uncommitted`; the cached scopes, which other
runs read, change when all of it is stored, in the order of the numbers.

The lease of a session (owner, expiry, epoch) says which process runs it. Its first append takes it, `epoch + 1`; from
then on an append of any other epoch is stale. An outside append takes no lease, but ends one that has expired.
"""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import trio

from ..._codec import event_from_json, event_to_json
from ..._json import JSON, dumps, freeze, loads, shown
from ..._values import changed
from ..._window import Window
from ...env import Env
from ...errors import (
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
from ...events import Event
from .._calls import CallFold, OpenCall, is_of_a_run, waiting_invocations
from .._compactions import Compaction, CompactionFold
from .._fold import apply_event
from .._live import LiveSession, SessionKey, visible_tail
from .._service import BaseSessionService, ChangedMeanwhileError, SessionWriter, check_fork_seq
from .._session import GetSessionConfig, Invocation, InvocationStatus, Session, invocation_at
from .._state import MISSING, Scope, Values, _Missing, scope_of, writes_of
from ._artifacts import copy_artifacts, delete_artifacts, publish_artifacts, reserve_named, reserve_used
from ._errors import ADVICE
from ._file import Durability, SqliteFile, Transaction
from ._fork import Past, copy_rows, write_past
from ._format import parse_path
from ._owner_lock import OwnerLock, owner_is_gone, sweep_up
from ._schema import (
    CALL,
    CHAIN_START,
    FORMAT,
    NO_USER,
    ROW,
    SEQ_MAX,
    UNFINISHED,
    WAITS,
    Row,
    Segment,
    call_of,
    find_session,
    link,
    newest_no,
    read_open_calls,
    read_segments,
    read_session,
    row_of,
    shared_user,
    stored_status,
    write_calls,
    write_invocation,
)

__all__ = ["SqliteSessionService"]

# A lease outlives three missed renewals by a margin; a host whose loop stands still for longer loses it.
LEASE_S = 30.0
RENEW_EVERY_S = 8.0
# How often a waiting process looks whether the lease is free: the first pause and the longest.
LEASE_POLL_S = (0.01, 0.25)

# Decoding so many events takes about 5 ms; then other tasks get their turn.
PAGE_EVENTS = 250

# How much is kept of the sessions that ran lately, counted as JSON; in memory it is about four times as large.
CACHE_BYTES = 64 * 2**20


# Columns of an invocation, as `_invocation_of` takes them, and of one with its session.
INVOCATION = "i.invocation_id, i.status, i.seq, i.end_seq"
_INVOCATIONS = (
    f"SELECT s.app_name, s.user_id, s.session_id, i.epoch, {INVOCATION}, {ROW}"
    " FROM invocations i JOIN sessions s ON s.id = i.session"
)

# A session's row, and whether its shared scopes have anything newer than two numbers: that of the app's, the user's.
_NEWER = "EXISTS (SELECT 1 FROM shared_state WHERE app_name = s.app_name AND user_id = {} AND commit_no > ?)"
_ROW_AND_NEWS = (
    f"SELECT {ROW}, {_NEWER.format(repr(NO_USER))} OR {_NEWER.format('s.user_id')} FROM sessions s"
    " WHERE app_name = ? AND user_id = ? AND session_id = ?"
)

# A session goes on by an event, if it is at the event before and its lease is as expected: if a row was changed, both
# were so. With the lease that was taken before (its own task renews it), and with one that is taken, ended or left.
_EVENT = "revision = ?, update_time = ?, chain = ?, compaction = ?"
_GO_ON = f"UPDATE sessions SET {_EVENT} WHERE id = ? AND revision = ? AND chain = ? AND lease_epoch = ?"
_ENTER = (
    f"UPDATE sessions SET {_EVENT}, lease_epoch = ?, lease_owner = ?, lease_expires = ?"
    " WHERE id = ? AND revision = ? AND chain = ? AND lease_epoch = ? AND lease_owner IS ?"
)


class _Scope:
    """The cached values of one `user:` or `app:` scope, current up to `commit_no`."""

    __slots__ = ("__weakref__", "commit_no", "values")

    def __init__(self) -> None:
        self.values: dict[str, JSON] = {}
        self.commit_no = -1


class _Notes:
    """What the service remembers with a live session: its shared scopes, where its events are, the epoch last seen."""

    __slots__ = ("app", "epoch", "segments", "user")

    def __init__(self, app: _Scope, user: _Scope, segments: tuple[Segment, ...], epoch: int) -> None:
        self.app = app
        self.user = user
        self.segments = segments
        self.epoch = epoch


class _Uncommitted:
    """The values that a session has within a transaction, where others have written to its shared scopes already."""

    def __init__(self, live: LiveSession, shared: dict[tuple[str, str], JSON | _Missing]) -> None:
        self._values = live.values
        self._user_id = live.key.user_id
        self._shared = shared

    def get(self, key: object) -> JSON | _Missing:
        assert isinstance(key, str)
        if scope_of(key) is not Scope.SESSION:
            place = (shared_user(key, self._user_id), key)
            if place in self._shared:
                return self._shared[place]
        return self._values.get(key)

    def copy(self) -> Values:
        """A copy that can be written to."""
        values = self._values.copy()
        mine = {key: value for (user, key), value in self._shared.items() if user in (NO_USER, self._user_id)}
        values.apply(mine)
        return values


class SqliteSessionService(BaseSessionService):
    """
    Keeps sessions in one SQLite file, which several processes may share.

    What waits to be stored at the same moment, of whatever sessions, shares one transaction and one wait for the disk.

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
        StorageMissingError: On later use: the file was deleted or replaced. It works again once it is back.
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
        self._path = parse_path(path)
        self._file = SqliteFile(self._path, FORMAT, durability, self._env)
        self._generation = 1  # of the file that the cache was read from
        self._cache: OrderedDict[SessionKey, LiveSession] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._scopes: WeakValueDictionary[tuple[str, str], _Scope] = WeakValueDictionary()
        self._owner = self._env.new_id("owner")[:16]
        self._owner_lock: OwnerLock | None = None
        self._outlived: dict[int, tuple[int, float]] = {}  # leases of others that are over whatever the clock says
        self._unfinished: dict[tuple[int, str], Callable[[Transaction], None]] = {}  # ends that are not recorded yet
        self._running: set[tuple[int, str]] = set()  # the invocations of this process, by session and id
        self.renew_every_s = None if self._path is None else RENEW_EVERY_S

    def _store_id(self) -> Hashable:
        return id(self) if self._path is None else self._path

    # --- making and deleting sessions

    async def _create(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        lines = [event_to_json(event) for event in events]
        return await self._file.write(partial(self._do_create, key, events, lines))

    def _do_create(
        self, key: SessionKey, events: Sequence[Event], lines: Sequence[str], transaction: Transaction
    ) -> LiveSession:
        db = transaction.db
        created, newest = events[0].timestamp, events[-1]
        assert created is not None
        row = self._insert_session(db, key, newest, created)
        live = self._new_live(db, key, row, until=_base_no(transaction))
        live.revision = -1  # nothing is applied yet
        current = self._within(transaction, live)
        history = current.copy() if len(events) > 1 else None  # each event stands on those before it
        chain, done, calls = CHAIN_START, [], CallFold()
        for event, line in zip(events, lines, strict=True):
            assert event.seq is not None
            number = _next_no(transaction)
            chain = link(chain, event.seq, number, line)
            changes = self._write_event(transaction, live, history or current, event, line, chain, number)
            if history is not None:
                history.apply(changes)
            called = calls.take(event, tracked=is_of_a_run(event)) if event.seq else {}
            write_calls(db, row.id, called, number)
            done.append((event, line, changes, called, number))
        reserve_named(db, key, events)
        compaction = CompactionFold.over(events).seq
        db.execute("UPDATE sessions SET chain = ?, compaction = ? WHERE id = ?", (chain, compaction, row.id))
        for name, seq in calls.paused().items():
            write_invocation(db, row.id, name, InvocationStatus.PAUSED, 0, seq, newest.seq, done[seq][-1])

        def apply() -> None:
            for event, line, changes, called, number in done:
                if event.seq:
                    live.advance(event, changes, called)
                else:
                    live.values.apply(changes)
                    live.revision, live.first_seq = 0, 1
                self._mark_scopes(live, changes, number)
                live.size += len(line)
            live.mark = chain
            self._cached(live)

        for _, _, changes, _, _ in done:
            _note_shared(transaction, live, changes)
        transaction.after_commit(apply)
        return live

    def _insert_session(self, db: sqlite3.Connection, key: SessionKey, newest: Event, created: float) -> Row:
        """Insert the row of a session whose newest event is *newest*; its chain is still missing."""
        if find_session(db, key) is not None:
            msg = f"there is a {key} already; get it with get_session, or choose another id"
            raise AlreadyExistsError(msg)
        db.execute(
            "INSERT INTO sessions (app_name, user_id, session_id, revision, create_time, update_time, chain)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key.app_name, key.user_id, key.session_id, newest.seq, created, newest.timestamp, CHAIN_START),
        )
        row = find_session(db, key)
        assert row is not None
        return row

    async def _delete(self, key: SessionKey) -> None:
        waiting = _Waiting(self)
        while (row := await self._file.write(partial(self._do_delete, key))) is not None:
            await waiting.sleep(row)

    def _do_delete(self, key: SessionKey, transaction: Transaction) -> Row | None:
        """Delete the session, unless another process is running it: then its row is returned."""
        db = transaction.db
        row = find_session(db, key)
        if row is not None:
            if not self._is_free(row):
                return row
            self._write_base(transaction, key)
            logs = [segment.log for segment in read_segments(db, row.id)]
            db.execute("DELETE FROM sessions WHERE id = ?", (row.id,))
            delete_artifacts(db, _scope_of_artifacts(key), staged=True)
            for log in logs:
                if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (log,)).fetchone():
                    [kept] = db.execute("SELECT max(last_seq) FROM shared_pasts WHERE log = ?", (log,)).fetchone()
                    db.execute("DELETE FROM events WHERE log = ? AND seq > ?", (log, -1 if kept is None else kept))
        transaction.after_commit(partial(self._uncache, key))
        return None

    def _write_base(self, transaction: Transaction, key: SessionKey) -> None:
        """Let the shared scopes no longer depend on the deltas of a session that is about to go (promise P4)."""
        db = transaction.db
        newest = newest_no(db)
        db.execute("UPDATE store SET deleted_no = ?", (newest,))
        for user in (NO_USER, key.user_id):
            rows = db.execute(
                "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL",
                (key.app_name, user),
            )
            value = (
                "{"
                + ",".join(f"{dumps(self._key(name, Scope.USER if user else Scope.APP))}:{data}" for name, data in rows)
                + "}"
            )
            db.execute("INSERT OR REPLACE INTO shared_base VALUES (?, ?, ?, ?)", (key.app_name, user, newest, value))

    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        wanted: dict[str, Any] = {"id > ?": after, "app_name = ?": app_name, "user_id = ?": user_id}
        where = {test: value for test, value in wanted.items() if value is not None}
        query = (
            "SELECT id, app_name, user_id, session_id, revision, create_time, update_time FROM sessions"
            f" WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        )
        async with self._file.reading() as db:
            rows = db.execute(query, (*where.values(), -1 if limit is None else limit)).fetchall()
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

    # --- forking

    async def _fork(self, key: SessionKey, at_seq: int | None, new: SessionKey) -> None:
        past: Past | None = None
        while not await self._file.write(partial(self._do_fork, key, at_seq, past, new)):
            assert at_seq is not None
            past = await self._read_past(key, at_seq)

    async def _read_past(self, key: SessionKey, at_seq: int) -> Past:
        """What a session was at an event of the past; it is found by going through its log."""
        events = await self._read(key, -1, at_seq + 2)
        if not events:
            raise await self._not_found(key)
        return Past(events, at_seq)

    def _do_fork(
        self, key: SessionKey, at_seq: int | None, past: Past | None, new: SessionKey, transaction: Transaction
    ) -> bool:
        """Make the fork and return True, unless its past must be read first."""
        db = transaction.db
        source = find_session(db, key)
        if source is None:
            msg = f"there is no {key}"
            raise SessionNotFoundError(msg)
        check_fork_seq(key, at_seq, source.revision)
        at = source.revision if at_seq is None else at_seq
        if at < source.revision and past is None:
            return False
        segments = [segment for segment in read_segments(db, source.id) if segment.first_seq <= at]
        [(newest, _)] = self._lines(db, tuple(segments), at, at + 1)
        [chain] = db.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (segments[-1].log, at)).fetchone()
        if past is not None and past.newest.id != newest.id:
            return False  # the session was deleted and made again meanwhile
        row = self._insert_session(db, new, newest, self._env.now())
        compaction = source.compaction if past is None else past.compaction
        db.execute("UPDATE sessions SET chain = ?, compaction = ? WHERE id = ?", (chain, compaction, row.id))
        for segment in segments:
            last = min(segment.last_seq, at)
            db.execute("INSERT INTO shared_pasts VALUES (?, ?, ?, ?)", (row.id, segment.first_seq, last, segment.log))
        newest_number = newest_no(db)
        if at == source.revision:
            copy_rows(db, source.id, row.id, newest_number)
        else:
            assert past is not None
            write_past(db, row.id, past, newest_number)
        copy_artifacts(db, _scope_of_artifacts(key), _scope_of_artifacts(new), at_seq=at)
        if past is None:
            reserve_used(db, _scope_of_artifacts(key), _scope_of_artifacts(new))
        else:
            reserve_named(db, new, past.events)
        waiting = waiting_invocations(read_open_calls(db, row.id))
        paused = {} if past is None else dict(past.paused)
        query = f"SELECT {INVOCATION} FROM invocations i WHERE session = ? AND seq <= ? ORDER BY commit_no, seq"
        for columns in db.execute(query, (source.id, at)).fetchall():
            run = self._invocation_of(new, *columns)
            paused.pop(run.invocation_id, None)
            waits = run.invocation_id in waiting and (past is None or past.cut != run.invocation_id)
            # Nobody runs them in the fork: what was running there is interrupted here.
            run = invocation_at(run, at, waits=waits)
            write_invocation(db, row.id, run.invocation_id, run.status, 0, run.seq, run.end_seq, newest_number)
        for name, seq in paused.items():  # an import records only those that wait at the end of its log
            write_invocation(db, row.id, name, InvocationStatus.PAUSED, 0, seq, at, newest_number)
        return True

    # --- reading

    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        opened = await self._open_row(key, config)
        return None if opened is None else opened[0]

    async def _open_free(self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool) -> LiveSession | None:
        waiting = _Waiting(self)
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
            await waiting.sleep(row)

    def _at_hand(self, key: SessionKey) -> LiveSession | None:
        return self._cache.get(key)

    async def _open_row(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[LiveSession, Row] | None:
        while True:
            found = await self._file.look(partial(self._unchanged, key)) if key in self._cache else None
            if found is None:
                async with self._file.reading() as db:
                    row = find_session(db, key)
                    if row is None:
                        self._uncache(key)
                        return None
                    found = self._current(db, key, row), row
            live, row = found
            live.notes.epoch = row.epoch
            for wanted in live.wanted(config):
                if not await self._load_earlier(live, wanted):
                    break
            else:
                return self._cached(live), row

    def _unchanged(self, key: SessionKey, db: sqlite3.Connection) -> tuple[LiveSession, Row] | None:
        """The cached live session and its row, if nobody has written to it or its shared scopes; None: look closer."""
        live = self._cache.get(key)
        if live is None or self._generation != self._file.generation:
            return None
        known = (live.notes.app.commit_no, live.notes.user.commit_no)
        columns = db.execute(_ROW_AND_NEWS, (*known, key.app_name, key.user_id, key.session_id)).fetchone()
        if columns is None or columns[-1]:
            return None
        row = row_of(columns[:-1])
        is_same = (live.incarnation, live.revision, live.mark) == (row.id, row.revision, row.chain)
        return (live, row) if is_same else None

    def _current(self, db: sqlite3.Connection, key: SessionKey, row: Row) -> LiveSession:
        """The live session at *row*'s revision: the cached one brought up to date, or a new one without events."""
        if self._generation != self._file.generation:  # perhaps another file, or the same one with less in it
            self._forget()
        live = self._cache.get(key)
        if live is not None and live.revision != row.revision and (live.held or live.revision > row.revision):
            live = None  # a run that was overtaken must not be helped along; nor can what is stored get less
        if live is not None and live.revision == row.revision and live.mark != row.chain:
            live = None  # another history: another file, or the same one restored
        if live is None or live.incarnation != row.id:
            self._uncache(key)
            return self._new_live(db, key, row)
        self._refresh_scopes(db, live)
        if live.revision < row.revision:  # another process has written
            open_calls = read_open_calls(db, row.id)
            for event, size in self._lines(db, live.notes.segments, live.revision + 1, row.revision + 1):
                live.advance(event, apply_event(live.values, event, shared=False), {})
                self._grow(live, size)
            live.open_calls = open_calls
            live.compaction = self._compaction(db, live, row.compaction)
            live.mark = row.chain  # the last step: where a read fails before it, all is read again
        return live

    def _new_live(self, db: sqlite3.Connection, key: SessionKey, row: Row, until: int = SEQ_MAX) -> LiveSession:
        app, user = self._scope(key.app_name, NO_USER), self._scope(key.app_name, key.user_id)
        rows = db.execute("SELECT key, value FROM session_state WHERE session = ?", (row.id,)).fetchall()
        values = Values(
            {self._key(name, Scope.SESSION): self._value(name, data) for name, data in rows}, user.values, app.values
        )
        live = LiveSession(
            key,
            values,
            incarnation=row.id,
            create_time=row.create_time,
            last_update_time=row.update_time,
            revision=row.revision,
            open_calls=read_open_calls(db, row.id),
            size=sum(len(data) for _, data in rows),
        )
        live.mark = row.chain
        live.notes = _Notes(app, user, read_segments(db, row.id), row.epoch)
        live.compaction = self._compaction(db, live, row.compaction)
        self._refresh_scopes(db, live, until)
        return live

    def _compaction(self, db: sqlite3.Connection, live: LiveSession, seq: int) -> Compaction | None:
        """The compaction that stands at event *seq*; None for 0."""
        if seq == 0:
            return None
        [(event, _)] = self._lines(db, live.notes.segments, seq, seq + 1)
        try:
            return Compaction.of(event)
        except InvalidValueError as error:
            raise self._damaged(f"the compaction at event {seq} of session row {live.incarnation}: {error}") from error

    async def _load_earlier(self, live: LiveSession, config: GetSessionConfig | None) -> bool:
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
            async with self._file.reading() as db:
                if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (live.incarnation,)).fetchone():
                    return False
                begin = max(first, until - min(PAGE_EVENTS, PAGE_EVENTS if missing is None else missing))
                lines = self._lines(db, live.notes.segments, begin, until)
            page, until = visible_tail((event for event, _ in reversed(lines)), until)
            size += sum(length for _, length in lines)
            pages.append(page)
            missing = None if missing is None else missing - len(page)
        loaded = [event for page in reversed(pages) for event in page]
        if live.first_seq > until:  # else another task has loaded it meanwhile
            earlier = [event for event in loaded if (event.seq or 0) < live.first_seq]
            live.prepend(earlier, until)
            self._grow(live, size)
        if count is not None and len(live.events) < count and live.first_seq > max(first, 1):
            return await self._load_earlier(live, config)  # a rewind has undone meanwhile what was counted
        return True

    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
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
                    segments = read_segments(db, row.id)
                first = after_seq + 1 + len(events)
                last = row.revision if limit is None else min(row.revision, after_seq + limit)
                page = self._lines(db, segments, first, min(first + PAGE_EVENTS, last + 1))
            events.extend(event for event, _ in page)
            if first + len(page) > last:
                return events

    def _lines(
        self, db: sqlite3.Connection, segments: tuple[Segment, ...], first: int, until: int
    ) -> list[tuple[Event, int]]:
        """The events from *first* up to *until*, each with its size; every one of them must be there."""
        rows: list[str] = []
        for segment in segments:
            if segment.first_seq < until and segment.last_seq >= first:
                found = db.execute(
                    "SELECT data FROM events WHERE log = ? AND seq >= ? AND seq < ? ORDER BY seq",
                    (segment.log, max(first, segment.first_seq), min(until, segment.last_seq + 1)),
                )
                rows.extend(data for (data,) in found)
        try:
            lines = [(event_from_json(line), len(line)) for line in rows]
        except (InvalidValueError, TypeError) as error:
            raise self._damaged(f"an event of log {segments[-1].log}: {error}") from error
        if [event.seq for event, _ in lines] != list(range(first, until)):
            raise self._damaged(f"the events {first} to {until - 1} of log {segments[-1].log} are not all there")
        return lines

    def _value(self, key: str, data: str) -> JSON:
        try:
            return freeze(loads(data))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"the value of state key {key!r:.80}: {error}") from error

    def _key(self, key: object, scope: Scope) -> str:
        if not isinstance(key, str) or scope_of(key) is not scope:
            raise self._damaged(f"a state key of the {scope.value} is {key!r:.80}")
        return key

    def _damaged(self, what: str) -> StorageCorruptError:
        return StorageCorruptError(f"{self._file.name}: {what:.300}; {ADVICE[StorageCorruptError]}")

    # --- writing

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        if writer is not None and writer.epoch is None:
            self._sign()
        await self._finish_before()
        work = _Append(self, live, event, event_to_json(event), writer, begins=begins)
        try:
            await self._file.write(work)
        except StorageError as error:
            if error.stored is None:
                self._uncache(live.key)  # nobody knows whether it happened: read it again
                if writer is not None and writer.epoch is None:
                    writer.epoch = work.epoch  # the lease may have been taken; leaving gives it back, if so
            raise

    def _do_append(self, append: _Append, transaction: Transaction) -> None:
        db, live, event, writer = transaction.db, append.live, append.event, append.writer
        if event.actions.rewind_before_seq is not None:  # what it undoes is read, which must be what it knows
            self._check_turn(append, read_session(db, live.incarnation))
        values = live.values if _stays_within(event) else self._within(transaction, live)
        number = _next_no(transaction)
        assert event.seq is not None
        assert append.mark is not None, "a session of a file has a link always"
        chain = link(append.mark, event.seq, number, append.line)
        compaction = self._compaction_with(db, live, event)
        epoch = append.epoch = self._take_turn(db, append, chain, 0 if compaction is None else compaction.seq)
        changes = self._write_event(transaction, live, values, event, append.line, chain, number)
        calls = live.call_changes(event, tracked=writer is not None, visible=self._undoable(db, live, event))
        write_calls(db, live.incarnation, calls, number)
        publish_artifacts(db, live.key, event.seq, event.actions.named_artifacts())
        if event.actions.rewind_before_seq is not None:
            self._rewind_invocations(db, live, event, writer)
        if writer is not None and append.begins:
            name, running = writer.invocation_id, InvocationStatus.RUNNING
            if not write_invocation(db, live.incarnation, name, running, epoch, event.seq, None, number):
                msg = f"the invocation {name!r} of {live.key} has just been ended by another process"
                raise StaleSessionError(f"{msg}; look at it again")

        _note_shared(transaction, live, changes)

        def apply() -> None:
            if writer is not None:
                writer.epoch = epoch
                self._running.add((live.incarnation, writer.invocation_id))
            live.notes.epoch = epoch
            live.advance(event, changes, calls)
            live.compaction = compaction
            live.mark = chain
            self._mark_scopes(live, changes, number)
            self._grow(live, len(append.line))

        transaction.after_commit(apply)

    def _take_turn(self, db: sqlite3.Connection, append: _Append, chain: bytes, compaction: int) -> int:
        """Let the session's row go on by the event, and return the epoch of that; raises as `_check_turn`."""
        live, event, writer = append.live, append.event, append.writer
        moved = (event.seq, event.timestamp, chain, compaction)
        place = (live.incarnation, append.revision, append.mark)
        if writer is not None and writer.epoch is not None:
            if db.execute(_GO_ON, (*moved, *place, writer.epoch)).rowcount == 1:
                return writer.epoch
            return self._check_turn(append, read_session(db, live.incarnation))
        owner = None if writer is None else self._owner
        expires = None if writer is None else self._env.now() + LEASE_S
        # Nobody has the lease, in most cases, and its epoch is the one last seen: then there is nothing to ask.
        epoch: int = live.notes.epoch + (writer is not None)
        if db.execute(_ENTER, (*moved, epoch, owner, expires, *place, live.notes.epoch, None)).rowcount == 1:
            return epoch
        row = read_session(db, live.incarnation)
        epoch = self._check_turn(append, row)
        assert row is not None
        db.execute(_ENTER, (*moved, epoch, owner, expires, *place, row.epoch, row.owner))
        return epoch

    def _check_turn(self, append: _Append, row: Row | None) -> int:
        """Return the epoch to write under, or raise because it is not the writer's turn (any more)."""
        live, writer = append.live, append.writer
        if row is None:
            msg = f"{live.key} was deleted"
            raise SessionNotFoundError(msg)
        entered = writer is not None and writer.epoch is not None
        if entered:
            assert writer is not None
            free = row.epoch == writer.epoch
        else:
            free = self._is_free(row)
        if free and row.revision == append.revision and row.chain == append.mark:
            taken: int = row.epoch if entered or (writer is None and row.owner is None) else row.epoch + 1
            return taken
        if writer is None:
            raise ChangedMeanwhileError
        msg = (
            f"{live.key} was read at revision {append.revision} and is at {row.revision}: another process has "
            f"{'taken the session over' if entered else 'entered it first'}, or the file is another one; "
            "run the message again"
        )
        raise StaleSessionError(msg)

    def _within(self, transaction: Transaction, live: LiveSession) -> _Uncommitted:
        """The values that the session has in this transaction: the newest ones stored, and what others have written."""
        self._refresh_scopes(transaction.db, live, _base_no(transaction))
        return _Uncommitted(live, transaction.shared.get(("scopes", live.key.app_name), {}))

    def _write_event(
        self,
        transaction: Transaction,
        live: LiveSession,
        values: Values | _Uncommitted,
        event: Event,
        line: str,
        chain: bytes,
        number: int,
    ) -> dict[str, JSON | _Missing]:
        """Write the event and the state it changes; return the changes."""
        db = transaction.db
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (number, live.incarnation, event.seq, chain, line))
        changes = apply_event(values, event)
        for key, value in changes.items():
            _write_value(db, live, key, value, number)
        return changes

    def _undoable(self, db: sqlite3.Connection, live: LiveSession, event: Event) -> list[Event] | None:
        """All that is visible, if the event undoes a part of it and not all of it is loaded."""
        if event.actions.rewind_before_seq is None or live.first_seq <= 1:
            return None
        lines = self._lines(db, live.notes.segments, 1, live.revision + 1)
        return visible_tail((line for line, _ in reversed(lines)), live.revision + 1)[0]

    def _compaction_with(self, db: sqlite3.Connection, live: LiveSession, event: Event) -> Compaction | None:
        """The compaction that is in force once *event* is stored."""
        if event.actions.compaction is not None:
            return Compaction.of(event)
        found, target = live.compaction, event.actions.rewind_before_seq
        while target is not None and found is not None and found.seq >= target:
            found = self._compaction(db, live, found.previous_seq)
        return found

    def _rewind_invocations(
        self, db: sqlite3.Connection, live: LiveSession, event: Event, writer: SessionWriter | None
    ) -> None:
        """Let the others of the session be what they were before what is undone; what has begun in it is over."""
        target = event.actions.rewind_before_seq
        assert target is not None
        waiting = waiting_invocations(read_open_calls(db, live.incarnation))
        query = f"SELECT {INVOCATION} FROM invocations i WHERE session = ? AND (end_seq IS NULL OR end_seq >= ?)"
        for columns in db.execute(query, (live.incarnation, target)).fetchall():
            run = self._invocation_of(live.key, *columns)
            if writer is not None and run.invocation_id == writer.invocation_id:
                continue
            if run.seq < target:
                run = invocation_at(run, target - 1, waits=run.invocation_id in waiting)
            elif run.status in (InvocationStatus.RUNNING, InvocationStatus.PAUSED):
                run = changed(run, status=InvocationStatus.CANCELLED, end_seq=event.seq)
            db.execute(
                "UPDATE invocations SET status = ?, end_seq = ? WHERE session = ? AND invocation_id = ?",
                (stored_status(run.status), run.end_seq, live.incarnation, run.invocation_id),
            )

    # --- shared scopes

    def _scope(self, app_name: str, user: str) -> _Scope:
        scope = self._scopes.get((app_name, user))
        if scope is None:
            scope = self._scopes[app_name, user] = _Scope()
        return scope

    def _refresh_scopes(self, db: sqlite3.Connection, live: LiveSession, until: int = SEQ_MAX) -> None:
        """Take over what other processes have committed to the session's shared scopes, up to the number *until*."""
        for scope, user in ((live.notes.app, NO_USER), (live.notes.user, live.key.user_id)):
            rows = db.execute(
                "SELECT key, value, commit_no FROM shared_state"
                " WHERE app_name = ? AND user_id = ? AND commit_no > ? AND commit_no <= ?",
                (live.key.app_name, user, scope.commit_no, until),
            )
            if scope.commit_no < 0:
                scope.values.clear()
            for name, data, commit_no in rows:
                key = self._key(name, Scope.USER if user else Scope.APP)
                if data is None:
                    scope.values.pop(key, None)
                else:
                    scope.values[key] = self._value(key, data)
                scope.commit_no = max(scope.commit_no, commit_no)

    def _mark_scopes(self, live: LiveSession, changes: dict[str, JSON | _Missing], number: int) -> None:
        """Note that the scopes have what event *number* has changed: they were current when it was written."""
        for key in changes:
            kind = scope_of(key)
            if kind is not Scope.SESSION:
                scope = live.notes.app if kind is Scope.APP else live.notes.user
                scope.commit_no = max(scope.commit_no, number)

    # --- leases and invocations

    def _is_free(self, row: Row) -> bool:
        """Whether no other living owner has the session. Within this process the gate decides."""
        if row.owner is None or row.owner == self._owner or row.expires is None or row.expires <= self._env.now():
            return True
        if self._outlived.get(row.id) == (row.epoch, row.expires):
            return True
        return self._path is not None and owner_is_gone(self._path, row.owner)

    def _sign(self) -> None:
        if self._owner_lock is None and self._path is not None:
            try:
                sweep_up(self._path)
                self._owner_lock = OwnerLock(self._path, self._owner)
            except OSError as error:
                msg = f"{self._path}: cannot make a lock file beside it: {error}; make the folder writable"
                raise StorageReadOnlyError(msg) from error

    async def _renew(self, writers: Sequence[SessionWriter]) -> None:
        def renew(transaction: Transaction) -> None:
            expires = self._env.now() + LEASE_S
            for writer in writers:
                transaction.db.execute(
                    "UPDATE sessions SET lease_expires = ? WHERE id = ? AND lease_epoch = ? AND lease_owner = ?",
                    (expires, writer.live.incarnation, writer.epoch, self._owner),
                )

        await self._file.write(renew, durable=False)

    async def _record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        await self._file.write(partial(_write_end, writer, status, writer.live.revision), durable=False)
        return True

    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        self._running.discard((writer.live.incarnation, writer.invocation_id))  # also where that cannot be stored
        revision = writer.live.revision

        def finish(transaction: Transaction) -> None:
            if status is not None:
                _write_end(writer, status, revision, transaction)
            transaction.db.execute(
                "UPDATE sessions SET lease_owner = NULL, lease_expires = NULL WHERE id = ?"
                " AND lease_epoch = ? AND lease_owner = ?",
                (writer.live.incarnation, writer.epoch, self._owner),
            )

        try:
            await self._file.write(finish, durable=False)
        except StorageError:
            self._unfinished[writer.live.incarnation, writer.invocation_id] = finish  # the next append tries again
            raise

    async def _finish_before(self) -> None:
        """Record the ends that are late, by themselves: they stand also where the append after them is refused."""
        if self._unfinished:
            try:
                await self._file.write(self._finish_late, durable=False)
            except StorageError:
                return  # what comes next will tell

    def _finish_late(self, transaction: Transaction) -> None:
        """Record the ends of runs that met a failing store; doing so twice changes nothing."""
        late = list(self._unfinished.items())
        for _, finish in late:
            finish(transaction)

        def forget() -> None:
            for place, _ in late:
                self._unfinished.pop(place, None)

        transaction.after_commit(forget)

    async def _list_invocations(self, app_name: str | None, status: InvocationStatus | None) -> list[Invocation]:
        # With the very words of its index, so that those that have ended are not looked at.
        only = f" AND {UNFINISHED}" if status is not None and not status.has_ended else ""
        order = "i.commit_no, i.session, i.seq"
        query = f"{_INVOCATIONS} WHERE s.app_name = coalesce(?, s.app_name){only} ORDER BY {order}"
        async with self._file.reading() as db:
            rows = db.execute(query, (app_name,)).fetchall()
            return [self._found_invocation(columns) for columns in rows]

    async def _invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        where = "s.app_name = ? AND s.user_id = ? AND s.session_id = ? AND i.invocation_id = ?"
        async with self._file.reading() as db:
            query = f"{_INVOCATIONS} WHERE {where}"
            columns = db.execute(query, (key.app_name, key.user_id, key.session_id, invocation_id)).fetchone()
            return None if columns is None else self._found_invocation(columns)

    async def _not_ended(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        query = (
            f"{_INVOCATIONS} WHERE {UNFINISHED} AND i.session = (SELECT id FROM sessions"
            " WHERE app_name = ? AND user_id = ? AND session_id = ?) AND i.seq > ? ORDER BY i.seq"
        )
        async with self._file.reading() as db:
            rows = db.execute(query, (key.app_name, key.user_id, key.session_id, after_seq)).fetchall()
            return [self._found_invocation(columns) for columns in rows]

    def _found_invocation(self, columns: Sequence[Any]) -> Invocation:
        """The invocation of a row, and whether somebody runs it."""
        app, user, session, epoch, *rest = columns
        found = self._invocation_of(SessionKey(app, user, session), *rest[:4])
        row = row_of(rest[4:])
        if found.status is not InvocationStatus.RUNNING:
            return found
        ours = row.owner == self._owner and (row.id, found.invocation_id) in self._running
        theirs = row.owner not in (None, self._owner) and not self._is_free(row)
        if epoch == row.epoch and (ours or theirs):
            return found
        return changed(found, status=InvocationStatus.INTERRUPTED)

    def _invocation_of(
        self, key: SessionKey, invocation_id: str, status: str, seq: int | None, end_seq: int | None
    ) -> Invocation:
        if status not in InvocationStatus.__members__.values() or type(seq) is not int:
            what = f"has the status {status!r:.80} and begins at {seq!r:.80}"
            raise self._damaged(f"an invocation of session {key.session_id!r:.80} {what}")
        return Invocation(
            app_name=key.app_name,
            user_id=key.user_id,
            session_id=key.session_id,
            invocation_id=invocation_id,
            status=InvocationStatus(status),
            seq=seq,
            end_seq=end_seq,
        )

    async def _list_waiting(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        wanted = {"s.app_name = ?": app_name, "s.user_id = ?": user_id, "s.session_id = ?": session_id}
        where = {test: value for test, value in wanted.items() if value is not None}
        query = (
            f"SELECT s.app_name, s.user_id, s.session_id, s.id, {CALL} FROM open_calls o"
            f" JOIN sessions s ON s.id = o.session WHERE {' AND '.join([WAITS, *where])}"
            " ORDER BY o.pending_no, o.session, o.seq, o.place"
        )
        found = []
        async with self._file.reading() as db:
            for app, user, name, session, *columns in db.execute(query, (*where.values(),)).fetchall():
                call, segments = call_of(columns), read_segments(db, session)
                [(event, _)] = self._lines(db, segments, call.seq, call.seq + 1)
                [(mark, _)] = self._lines(db, segments, call.pending_seq, call.pending_seq + 1)
                found.append((SessionKey(app, user, name), call, event, mark))
        return found

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

    def _forget(self) -> None:
        """Drop what was read from a file that is not the one that is open now."""
        self._generation = self._file.generation
        self._cache.clear()
        self._cached_bytes = 0
        for scope in self._scopes.values():
            scope.commit_no = -1

    def _grow(self, live: LiveSession, size: int) -> None:
        live.size += size
        if self._cache.get(live.key) is live:
            self._cached_bytes += size

    async def _close(self) -> None:
        await self._file.close()
        if self._owner_lock is not None:
            self._owner_lock.release()


class _Waiting:
    """
    Waiting for the lease of another process to end.

    Its time of expiry is on the wall clock, which may have been set back since, or be another machine's. A living owner
    renews its lease every few seconds; so one that stays the same for as long as a lease lasts, on our own steady
    clock, is over whatever the time of expiry says.
    """

    def __init__(self, service: SqliteSessionService) -> None:
        self._service = service
        self._pause_s, self._longest_s = LEASE_POLL_S
        self._lease: tuple[int, float] | None = None
        self._since = 0.0

    async def sleep(self, row: Row) -> None:
        """Sleep until it is time to look again at the session, of which *row* was found."""
        assert row.expires is not None, "a session without a lease is free"
        lease, now = (row.epoch, row.expires), trio.current_time()
        if lease != self._lease:
            self._lease, self._since = lease, now
        elif now - self._since >= LEASE_S:
            self._service._outlived[row.id] = lease
        await self._service._env.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s)


class _Append:
    """The work of one append, and the epoch that it found or took."""

    __slots__ = ("_service", "begins", "epoch", "event", "line", "live", "mark", "revision", "writer")

    def __init__(
        self,
        service: SqliteSessionService,
        live: LiveSession,
        event: Event,
        line: str,
        writer: SessionWriter | None,
        *,
        begins: bool,
    ) -> None:
        self._service = service
        self.live = live
        self.event = event
        self.line = line
        self.writer = writer
        self.begins = begins
        # What it stands on, as it is now: while it waits for its turn others may bring the live session up to date.
        self.revision = live.revision
        self.mark = live.mark
        self.epoch = 0

    def __call__(self, transaction: Transaction) -> None:
        self._service._do_append(self, transaction)


# --- within a transaction ---------------------------------------------------------------------------------------------


def _write_end(writer: SessionWriter, status: InvocationStatus, revision: int, transaction: Transaction) -> None:
    """Record how an invocation has ended, if nobody has resumed it since: this may come late."""
    transaction.db.execute(
        "UPDATE invocations SET status = ?, end_seq = max(seq, ?)"
        " WHERE session = ? AND invocation_id = ? AND epoch = ?",
        (status, revision, writer.live.incarnation, writer.invocation_id, writer.epoch),
    )


def _scope_of_artifacts(key: SessionKey) -> tuple[str, str, str]:
    return key.app_name, key.user_id, key.session_id


def _stays_within(event: Event) -> bool:
    """Whether the event changes the session's own state only, if any."""
    return all(scope_of(key) is Scope.SESSION for key in writes_of(event.actions))


def _note_shared(transaction: Transaction, live: LiveSession, changes: dict[str, JSON | _Missing]) -> None:
    """Let later jobs of the transaction see what this one has written to the shared scopes. The last thing it does."""
    for key, value in changes.items():
        if scope_of(key) is not Scope.SESSION:
            shared = transaction.shared.setdefault(("scopes", live.key.app_name), {})
            shared[shared_user(key, live.key.user_id), key] = value


# --- rows -----------------------------------------------------------------------------------------------------------


def _base_no(transaction: Transaction) -> int:
    """The number of the newest event when the transaction's first event was about to be written."""
    if "base_no" not in transaction.shared:
        transaction.shared["base_no"] = transaction.shared["last_no"] = newest_no(transaction.db)
    number: int = transaction.shared["base_no"]
    return number


def _next_no(transaction: Transaction) -> int:
    """A number for one more event; that of an event that is undone is not used again within the transaction."""
    _base_no(transaction)
    transaction.shared["last_no"] += 1
    number: int = transaction.shared["last_no"]
    return number


def _write_value(db: sqlite3.Connection, live: LiveSession, key: str, value: JSON | _Missing, number: int) -> None:
    data = None if value is MISSING else dumps(value)
    if scope_of(key) is Scope.SESSION:
        if data is None:
            db.execute("DELETE FROM session_state WHERE session = ? AND key = ?", (live.incarnation, key))
        else:
            db.execute(
                "INSERT INTO session_state VALUES (?, ?, ?)"
                " ON CONFLICT (session, key) DO UPDATE SET value = excluded.value",
                (live.incarnation, key, data),
            )
        return
    # A removed key leaves its row, without a value, so that other processes hear of the removal.
    user = shared_user(key, live.key.user_id)
    db.execute(
        "INSERT INTO shared_state VALUES (?, ?, ?, ?, ?) ON CONFLICT (app_name, user_id, key)"
        " DO UPDATE SET value = excluded.value, commit_no = excluded.commit_no",
        (live.key.app_name, user, key, data, number),
    )
