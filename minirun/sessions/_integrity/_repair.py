"""
What is whole in a damaged file, in a new one.

Of every session the longest beginning is kept that the hash chain vouches for; what can be derived is derived again
from that. Rows are read one by one, by their numbers, where SQLite cannot read a table from end to end. The old file is
only read, and whatever of it is not in the new one is told.

A base of a shared scope can be derived from nothing: it stands for events that were deleted. Where it makes no sense,
or an event that is kept does not fit what those before it make of the scope, as some of them may be lost, the scope's
values as they were stored take its place; they are told to be unchecked.

Not handled: a file whose first page SQLite cannot read, and rows below an inner page of a table that is gone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any, Final

import attrs

from ..._files import open_private
from ..._json import JSON, brief, dumps
from ...env import REAL_ENV
from ...errors import AlreadyExistsError, InvalidValueError
from .._invocation import Invocation, InvocationStatus, invocation_of
from .._key import SessionKey, session_key
from .._past import LogFold, invocation_at
from .._scoped import CHAIN_START, SEQ_MAX, Segment
from .._sqlite._errors import SQLITE_ERRORS, storage_error
from .._sqlite._format import check_place, foreign_parts, make_format, refuse_url
from .._sqlite._logs import link, read_segments
from .._sqlite._rows import write_call, write_invocation
from .._sqlite._schema import FORMAT
from ._artifacts import save_artifacts
from ._memories import save_memories
from ._salvage import salvaged
from ._verify import (
    PROGRESS_EVERY,
    ROW_ERRORS,
    USED,
    Damage,
    Progress,
    SharedScope,
    Step,
    base_values,
    could_end,
    fold_shared,
    is_number,
    open_to_read,
    scan,
    scope_place,
    verify,
)

__all__ = ["Repaired", "SavedSession", "repair"]


@attrs.frozen
class SavedSession:
    """What became of a session: its newest event in the new file, if any was whole, and in the old one, if known."""

    key: SessionKey
    revision: int | None
    was: int | None
    problem: str = ""

    def __str__(self) -> str:
        kept = "nothing" if self.revision is None else f"events 0 to {self.revision}"
        was = "" if self.was is None else f" of {self.was}"
        return f"{self.key}: kept {kept}" + (f"{was} ({self.problem})" if self.problem else "")


@attrs.frozen
class Repaired:
    """What became of a file: of each session, and what else is not as it was."""

    sessions: list[SavedSession]
    damages: list[Damage]
    """Events and notes that are not kept, and shared values that are other than they were."""

    @property
    def losses(self) -> list[SavedSession | Damage]:
        """What is not as it was, or may not be."""
        return [*(one for one in self.sessions if one.problem), *self.damages]


def repair(path: str | PathLike[str], new_path: str | PathLike[str], *, progress: Progress | None = None) -> Repaired:
    """
    Save every session's longest whole beginning into a new file, and return what became of each.

    State, open calls and invocations are what the events that were kept say. Events whose session has lost its row
    are saved as sessions of the app `recovered`. If it fails, there is no new file. It blocks, as `verify` does.

    Raises:
        AlreadyExistsError: There is a file at *new_path*; nothing is changed.
        InvalidValueError: A path is a URL.
        StorageFormatError: The old file is not one of minirun, or SQLite cannot read its first page; or there is no
            folder for the new one.
        StorageError: The new file cannot be written.
    """
    refuse_url(new_path)
    target = Path(new_path)
    with closing(open_to_read(Path(path))) as old:
        _claim(target)
        try:
            repaired = _write(old, target, progress)
        except BaseException as error:
            for suffix in ("", "-wal", "-shm", "-journal"):
                target.with_name(target.name + suffix).unlink(missing_ok=True)
            if isinstance(error, SQLITE_ERRORS):  # those of the old file are dealt with where they arise
                raise storage_error(error, str(target), "writing") from error
            raise
    left = verify(target)
    assert not left, f"what was saved verifies: {left[0]}"
    return repaired


def _claim(target: Path) -> None:
    """Make the file, so that it is certainly a new one."""
    check_place(target)
    try:
        os.close(open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        msg = f"expected a new file name, found a file at {str(target)!r}"
        raise AlreadyExistsError(msg) from None


def _write(old: sqlite3.Connection, target: Path, progress: Progress | None) -> Repaired:
    with closing(REAL_ENV.connect(str(target))) as new:
        new.execute("PRAGMA journal_mode=WAL")
        make_format(new, str(target), FORMAT)
        new.execute("BEGIN IMMEDIATE")
        repaired = _Repair(old, new, progress).run()
        new.execute("COMMIT")
    return repaired


class _Repair:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, progress: Progress | None) -> None:
        self._old = old
        self._new = new
        self._progress = progress
        self._damages: list[Damage] = []

    def run(self) -> Repaired:
        self._copy_events()
        rows = dict(
            salvaged(self._old, "sessions", "id", "app_name, user_id, session_id, revision, create_time, chain")
        )
        for session, names in _names_in_index(self._old):
            rows.setdefault(session, (*names, None, None, None))
        saved = [self._save_session(session, rows[session]) for session in sorted(rows)]
        saved += [self._save_lost(log) for log in self._lost_logs(rows)]
        self._drop_unused(rows)
        self._save_shared()
        save_artifacts(self._old, self._new, self._lose)
        save_memories(self._old, self._new, self._lose)
        self._check_old()
        return Repaired(saved, self._damages)

    def _lose(self, place: str, problem: str) -> None:
        self._damages.append(Damage(place, problem))

    def _check_old(self) -> None:
        """Say that the old file is damaged, where SQLite sees it: a table may have lost rows that nothing tells of."""
        try:
            [found] = self._old.execute("PRAGMA integrity_check(1)").fetchone()
        except SQLITE_ERRORS as error:
            found = str(error)
        try:
            for problem in foreign_parts(self._old, FORMAT):
                self._lose("file", f"its schema has {problem}; the new one does not")
        except SQLITE_ERRORS:
            pass  # integrity_check tells
        if found != "ok":
            self._lose("file", f"SQLite's integrity_check: {found}; there may have been more than could be found")

    # --- events

    def _copy_events(self) -> None:
        """All events that can be read, and messages; which events are whole is seen later, in the new file."""
        try:
            [total] = self._old.execute("SELECT count(*) FROM events").fetchone()
        except SQLITE_ERRORS:
            total = 0
        rows = salvaged(self._old, "events", "commit_no", "log, seq, chain, data")
        for done, (number, (log, seq, chain, data)) in enumerate(rows, 1):
            is_event = type(data) is str and is_number(number) and is_number(seq)
            if type(log) is int and log < 0 and not (is_event and link(CHAIN_START, seq, number, data) == chain):
                self._lose("file", f"a message that waits for session row {-log} is not kept: it was changed")
            elif is_event and type(log) is int and type(chain) is bytes:
                self._new.execute(
                    "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?)", (number, log, seq, chain, data)
                )
            if self._progress is not None and done % PROGRESS_EVERY == 0:
                self._progress(done, max(done, total))

    def _drop_unused(self, rows: dict[int, Any]) -> None:
        new = self._new
        query = f"SELECT log, count(*) FROM events e WHERE NOT {USED} GROUP BY log"
        for log, count in new.execute(query).fetchall():
            if log not in rows:
                self._lose("file", f"{count} events of log {log}, whose session nobody knows, are not kept")
        new.execute(f"DELETE FROM events AS e WHERE NOT {USED}")

    # --- sessions

    def _save_session(self, session: int, columns: Sequence[Any], lost: str = "") -> SavedSession:
        *names, revision, created, chain = columns
        was = revision if is_number(revision) else None
        key = SessionKey(*(name if isinstance(name, str) else repr(name) for name in names))
        try:
            if not is_number(session) or session_key(*names) != key:
                raise InvalidValueError(
                    "its row", f"expected a number and a name, found {brief(session, 40)}, {brief(names)}"
                )
        except ROW_ERRORS as error:
            return SavedSession(key, None, was, str(error))
        segments = self._segments(session, revision, chain)
        log = _Log()
        for step in scan(self._new, segments, None):
            if not log.goes_on(step):
                break
        if log.last is None:
            return SavedSession(key, None, was, log.problem or "it has no events")
        problem = log.problem
        if was is None:
            problem = lost or problem or "how far it went is lost with its row"
        elif not problem and log.last.seq < was:
            problem = f"event {log.last.seq + 1}: it is missing; the session went on to {was}"
        assert log.last.event is not None
        if len(segments) == 1 or type(created) is not float:  # only a fork is made later than its first event
            created = log.began
        try:
            self._new.execute(
                "INSERT INTO sessions (id, app_name, user_id, session_id, revision, create_time, update_time, chain,"
                " compaction) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session,
                    *names,
                    log.last.seq,
                    created,
                    log.last.event.timestamp,
                    log.last.chain,
                    log.compactions.seq,
                ),
            )
        except sqlite3.IntegrityError:
            return SavedSession(key, None, was, "there is another session of its name")
        self._insert_rest(key, session, segments, log, cut=bool(problem))
        return SavedSession(key, log.last.seq, was, problem)

    def _lost_logs(self, rows: dict[int, Any]) -> list[int]:
        """The logs of sessions whose rows are lost; not those of deleted ones, which only forks have shown."""
        query = (
            f"SELECT DISTINCT log FROM events e WHERE NOT {USED} AND log >= 0"
            " AND log NOT IN (SELECT log FROM shared_pasts) ORDER BY log"
        )
        return [log for (log,) in self._new.execute(query).fetchall() if log not in rows]

    def _save_lost(self, log: int) -> SavedSession:
        names = (RECOVERED, RECOVERED, f"log-{log}")
        return self._save_session(log, (*names, None, None, None), "the row of the session that has written it is lost")

    def _segments(self, session: int, revision: object, chain: object) -> tuple[Segment, ...]:
        """
        Where its events are.

        The past that a fork shares is where its rows say only if its own log goes on from there; else the hash chain
        tells which event stands before it.
        """
        claimed = self._claimed_past(session)
        own = self._new.execute(
            "SELECT seq, commit_no, chain, data FROM events WHERE log = ? ORDER BY seq LIMIT 1", (session,)
        ).fetchone()
        if own is not None:
            begin = own[0]
        elif is_number(revision):
            begin = revision + 1
        else:
            return _path(claimed, session)

        def goes_on(before: bytes) -> bool:
            return bool(before == chain if own is None else link(before, begin, own[1], own[3]) == own[2])

        past = _until(claimed, begin)
        query = "SELECT log, chain FROM events WHERE seq = ? AND log < ?"
        if past and past[-1].last_seq == begin - 1:
            found = self._new.execute(f"{query} AND log = ?", (begin - 1, session, past[-1].log)).fetchone()
            if found is not None and goes_on(found[1]):
                return _path(past, session)
        for log, before in self._new.execute(query, (begin - 1, session)).fetchall():
            if goes_on(before):
                return _path(_until(self._segments(log, None, None), begin), session)
        return _path(past, session)

    def _claimed_past(self, session: int) -> Sequence[Segment]:
        try:
            return read_segments(self._old, session)[:-1]
        except ROW_ERRORS:
            return ()

    def _insert_rest(self, key: SessionKey, session: int, segments: Sequence[Segment], log: _Log, *, cut: bool) -> None:
        new = self._new
        assert log.last is not None
        for part in segments[:-1]:
            if part.first_seq <= log.last.seq:
                last = min(part.last_seq, log.last.seq)
                new.execute("INSERT INTO shared_pasts VALUES (?, ?, ?, ?)", (session, part.first_seq, last, part.log))
        for name, value in log.values.session.items():
            new.execute("INSERT INTO session_state VALUES (?, ?, ?)", (session, name, dumps(value)))
        for call in log.calls.calls.values():
            marked = self._first_event(segments, call.pending_seq, log.last.seq)
            write_call(new, session, call, marked[0] if marked is not None else 0)
        self._save_invocations(key, session, segments, log, cut=cut)

    def _save_invocations(
        self, key: SessionKey, session: int, segments: Sequence[Segment], log: _Log, *, cut: bool
    ) -> None:
        """Keep the notes that the kept events bear out, as of the last of these; nobody runs any of them."""
        assert log.last is not None
        waiting = log.calls.paused()
        kept: list[tuple[int, Invocation]] = []
        columns = "invocation_id, status, seq, end_seq"
        for name, status, seq, end_seq in _readable(self._old, "invocations", columns, session):
            found = self._first_event(segments, seq, log.last.seq)
            if found is not None and found[1] == name and status in InvocationStatus.__members__.values():
                is_sound = could_end(status, seq, end_seq, SEQ_MAX)
                run = invocation_of(key, name, InvocationStatus(status), seq, end_seq if is_sound else None)
                kept.append((found[0], invocation_at(run, log.last.seq, waits=name in waiting)))
                if not is_sound:
                    self._lose(str(key), f"how invocation {brief(name)} ended is not kept")
            elif not cut:
                self._lose(str(key), f"what was noted of invocation {brief(name)} is not kept")
        for name in waiting.keys() - {run.invocation_id for _, run in kept}:  # so that its questions can be answered
            found = self._first_event(segments, waiting[name], log.last.seq)
            assert found is not None
            kept.append((found[0], invocation_of(key, name, InvocationStatus.PAUSED, waiting[name], log.last.seq)))
        for number, run in sorted(kept, key=lambda each: (each[1].seq, each[1].invocation_id)):
            write_invocation(self._new, session, run, epoch=-1, number=number)

    def _first_event(self, segments: Sequence[Segment], seq: Any, revision: int) -> tuple[int, str | None] | None:
        """The number and the invocation of the event *seq*, if it was kept."""
        for part in segments:
            if is_number(seq) and part.first_seq <= seq <= min(part.last_seq, revision):
                query = "SELECT commit_no, json_extract(data, '$.invocation_id') FROM events WHERE log = ? AND seq = ?"
                found: tuple[int, str | None] | None = self._new.execute(query, (part.log, seq)).fetchone()
                return found
        return None

    # --- what they share

    def _save_shared(self) -> None:
        new = self._new
        stored = self._stored_values()
        bases = self._bases(stored)
        for (app, user), base in bases.items():
            new.execute("INSERT INTO shared_base VALUES (?, ?, ?, ?)", (app, user, base.base_no, dumps(base.values)))
        unfit: list[tuple[str, str]] = []  # events that do not fit what the others make of a scope, as some are lost
        scopes = fold_shared(new, lambda *told: unfit.append(told))
        problems = dict(reversed(unfit))  # the first one of each scope
        for app, user in [place for place in scopes if scope_place(*place) in problems]:
            base = bases[app, user] = self._stored_base(app, user, stored, problems[scope_place(app, user)])
            values = (app, user, base.base_no, dumps(base.values))
            new.execute("INSERT OR REPLACE INTO shared_base VALUES (?, ?, ?, ?)", values)
        if unfit:
            scopes = fold_shared(new, self._lose)
        new.execute("UPDATE store SET deleted_no = ?", (max((base.base_no for base in bases.values()), default=0),))
        for (app, user), scope in scopes.items():
            for key in scope.values.keys() | scope.numbers.keys():
                data = dumps(scope.values[key]) if key in scope.values else None
                row = (app, user, key, data, scope.numbers.get(key, scope.base_no))
                new.execute("INSERT INTO shared_state VALUES (?, ?, ?, ?, ?)", row)
        for app, user in sorted(stored.keys() | scopes.keys()):
            found, kept = stored.get((app, user), {}), scopes.get((app, user), SharedScope({}, 0)).values
            for key in sorted(found.keys() | kept.keys()):
                was, now = found.get(key), dumps(kept[key]) if key in kept else None
                if was != now:
                    self._lose(scope_place(app, user), f"state key {brief(key)}: kept {now!s:.80}, found {was!s:.80}")

    def _stored_values(self) -> dict[tuple[str, str], dict[str, str]]:
        """The values of the shared scopes that can be read in the old file, as JSON."""
        stored: dict[tuple[str, str], dict[str, str]] = {}
        for _, columns in salvaged(self._old, "shared_state", "rowid", "app_name, user_id, key, value"):
            if all(isinstance(column, str) for column in columns):
                app, user, key, value = columns
                stored.setdefault((app, user), {})[key] = value
        return stored

    def _bases(self, stored: dict[tuple[str, str], dict[str, str]]) -> dict[tuple[str, str], SharedScope]:
        """The base of each scope that has one: of those that make no sense, what is stored."""
        bases: dict[tuple[str, str], SharedScope] = {}
        newest, whole = self._deleted_no(), self._knows_all_bases()
        rows = salvaged(self._old, "shared_base", "rowid", "app_name, user_id, commit_no, value")
        for _, (app, user, number, value) in rows:
            if not isinstance(app, str) or not isinstance(user, str):
                self._lose("file", f"the base of the state of app {brief(app)}, user {brief(user)} is not kept")
                continue
            try:
                bases[app, user] = SharedScope(base_values(user, number, value), number)
                problem = "" if number <= newest else f"it has the number {number}, and there are {newest}"
            except (ValueError, TypeError, RecursionError) as error:
                problem = str(error)
            if problem:
                bases[app, user] = self._stored_base(app, user, stored, f"its base makes no sense ({problem})")
        if not whole:
            for app, user in sorted(stored.keys() - bases.keys()):
                problem = "its base makes no sense (nobody knows whether it had one)"
                bases[app, user] = self._stored_base(app, user, stored, problem)
        return bases

    def _deleted_no(self) -> int:
        """The number of the newest event that a base can stand for."""
        try:
            rows = self._old.execute("SELECT deleted_no FROM store").fetchall()
        except SQLITE_ERRORS:
            return 0
        return rows[0][0] if len(rows) == 1 and is_number(rows[0][0]) else 0

    def _knows_all_bases(self) -> bool:
        """Whether the table of bases can be read from end to end."""
        try:
            [found] = self._old.execute("PRAGMA integrity_check(shared_base)").fetchone()
        except SQLITE_ERRORS:
            return False
        return bool(found == "ok")

    def _stored_base(
        self, app: str, user: str, stored: dict[tuple[str, str], dict[str, str]], problem: str
    ) -> SharedScope:
        [newest] = self._new.execute("SELECT coalesce(max(commit_no), 0) FROM events").fetchone()
        values: dict[str, JSON] = {}
        for key, data in stored.get((app, user), {}).items():
            try:
                values |= base_values(user, newest, f"{{{dumps(key)}:{data}}}")
            except (ValueError, TypeError, RecursionError):
                pass  # told as a value that is other than it was
        self._lose(scope_place(app, user), f"{problem}; its values are kept unchecked")
        return SharedScope(values, newest)


def _until(segments: Sequence[Segment], end: int) -> tuple[Segment, ...]:
    """What of the segments is below *end*."""
    below = (part for part in segments if part.first_seq < end)
    return tuple(part._replace(last_seq=min(part.last_seq, end - 1)) for part in below)


def _path(past: Sequence[Segment], session: int) -> tuple[Segment, ...]:
    """The past, and the session's own log that goes on from there."""
    return (*past, Segment(past[-1].last_seq + 1 if past else 0, SEQ_MAX, session))


# Where the events of sessions go whose row cannot be read.
RECOVERED: Final = "recovered"


class _Log(LogFold):
    """What the whole beginning of a log amounts to."""

    def __init__(self) -> None:
        super().__init__()
        self.began: float | None = None
        self.last: Step | None = None
        self.problem = ""

    def goes_on(self, step: Step) -> bool:
        """Go on with the next event; False if it is not whole."""
        try:
            if step.event is None:
                raise InvalidValueError(f"event {step.seq}", step.problem)
            self.take(step.event)
        except InvalidValueError as error:
            self.problem = str(error)
            return False
        if self.last is None:
            self.began = step.event.timestamp
        self.last = step
        return True


# --- reading what can be read -----------------------------------------------------------------------------------------


def _names_in_index(db: sqlite3.Connection) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The names of the sessions as the index of their table has them, by the number of the session."""
    query = "SELECT id, app_name, user_id, session_id FROM sessions INDEXED BY sqlite_autoindex_sessions_1"
    try:
        for session, *names in db.execute(f"{query} ORDER BY app_name, user_id, session_id"):
            yield session, tuple(names)
    except SQLITE_ERRORS:
        return  # so far it could be read


def _readable(db: sqlite3.Connection, table: str, columns: str, session: int) -> list[tuple[Any, ...]]:
    """The rows of the session that can be read."""
    rows: list[tuple[Any, ...]] = []
    try:
        rows.extend(db.execute(f"SELECT {columns} FROM {table} WHERE session = ?", (session,)))
    except SQLITE_ERRORS:
        pass
    return rows
