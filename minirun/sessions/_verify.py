"""
Is a session file what its events say?

Nearly everything in a file but the events themselves can be derived from them. So verifying is deriving it again and
comparing: the chain, link by link; the order, without a gap; each session's state and the shared state, as the fold
of the log (promise P4); what refers to what. SQLite's own check comes first; it knows nothing of values.

What nothing else in the file says cannot be checked: when a fork was made, and the leases.

The file is only read, in one transaction: others may go on using it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from .._codec import event_from_json
from .._json import JSON, dumps, freeze, loads
from ..env import REAL_ENV
from ..errors import InvalidValueError, StorageFormatError
from ..events import Event
from ._fold import apply_event
from ._live import OpenCall, SessionKey, opened_calls
from ._session import InvocationStatus
from ._sqlite_errors import SQLITE_ERRORS
from ._sqlite_format import APPLICATION_ID
from ._sqlite_schema import (
    CHAIN_START,
    FORMAT,
    NO_USER,
    ROW,
    Row,
    link,
    newest_no,
    read_open_calls,
    read_segments,
    row_of,
    shared_user,
)
from ._state import MISSING, Scope, Values, apply_write, scope_of, writes_of

__all__ = ["Damage", "Progress", "Step", "fold_shared", "open_to_read", "read_bases", "scan", "verify"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many events have been looked at, and how many there are."""

# About five times per second: an event takes about 20 us.
PROGRESS_EVERY = 10_000


@attrs.frozen
class Damage:
    """Something in a file that is not what it should be: where, and what."""

    place: str
    problem: str
    seq: int | None = None

    def __str__(self) -> str:
        return f"{self.place}{'' if self.seq is None else f', event {self.seq}'}: {self.problem}"


def verify(path: str | PathLike[str], *, progress: Progress | None = None) -> list[Damage]:
    """
    Look at a whole session file and return what is damaged; an empty list for a sound one.

    Nothing is written; SQLite may leave an empty `-wal` beside the file.

    It blocks, for about 20 seconds per million events; in a trio program call it through `trio.to_thread.run_sync`.

    Raises:
        StorageFormatError: It is not a file of minirun in the format of this version.
    """
    with closing(open_to_read(Path(path))) as db:
        return _Verifier(db, progress or _ignore).run()


def _ignore(done: int, total: int) -> None:
    pass


def open_to_read(path: Path) -> sqlite3.Connection:
    """
    Open a session file so that nothing can change it, in a transaction.

    Raises:
        StorageFormatError: There is none, or it is not in our format.
    """
    if not path.is_file():
        msg = f"expected a session file, found none at {str(path)!r}"
        raise StorageFormatError(msg)
    db = REAL_ENV.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        db.execute("BEGIN")
        [application] = db.execute("PRAGMA application_id").fetchone()
        [version] = db.execute("PRAGMA user_version").fetchone()
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # reads the names of all tables
    except SQLITE_ERRORS as error:
        db.close()
        msg = f"{path}: expected a session file, found one that SQLite cannot read: {error}"
        raise StorageFormatError(msg) from error
    if (application, version) != (APPLICATION_ID, FORMAT.version):
        db.close()
        msg = f"{path}: expected a minirun file of format {FORMAT.version}, found another one (format {version})"
        raise StorageFormatError(msg)
    return db


@attrs.frozen
class Step:
    """One event of a log, as it was read, or what is wrong with it: then the log ends there."""

    seq: int
    event: Event | None
    commit_no: int = 0
    chain: bytes = b""
    problem: str = ""


def scan(db: sqlite3.Connection, row: Row) -> Iterator[Step]:
    """Read a session's events in order, checking each; after the first that is wrong comes nothing."""
    chain, number, expected = CHAIN_START, 0, 0
    for segment in read_segments(db, row.id):
        rows = db.execute(
            "SELECT seq, commit_no, chain, data FROM events WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            (segment.log, segment.first_seq, min(segment.last_seq, row.revision)),
        )
        for seq, commit_no, stored, data in rows:
            problem, event = "", None
            if seq != expected:
                problem = f"it is missing; the next one is {seq}"
            elif type(data) is not str or type(commit_no) is not int:
                problem = f"its row has the wrong types: {data!r:.40}, {commit_no!r:.40}"
            elif (linked := link(chain, seq, commit_no, data)) != stored:
                problem = f"expected the link {linked.hex()[:16]}… in the hash chain, found {_shown(stored)}"
            elif commit_no <= number:
                problem = f"expected a number above {number}, found {commit_no}"
            else:
                try:
                    event = event_from_json(data)
                    writes_of(event.actions)
                except (InvalidValueError, TypeError) as error:
                    problem = f"it cannot be read: {error}"
                else:
                    problem = "" if event.seq == seq else f"expected the seq {seq} in it, found {event.seq}"
            if problem:
                yield Step(expected, None, problem=problem)
                return
            chain, number, expected = stored, commit_no, seq + 1
            yield Step(seq, event, commit_no, stored)
    if expected <= row.revision:
        yield Step(expected, None, problem=f"it is missing; the session goes on to {row.revision}")


def _shown(link: object) -> str:
    return f"{link.hex()[:16]}…" if isinstance(link, bytes) else repr(link)[:40]


class _Verifier:
    def __init__(self, db: sqlite3.Connection, progress: Progress) -> None:
        self._db = db
        self._progress = progress
        self._damages: list[Damage] = []
        self._total = 0
        self._done = 0

    def run(self) -> list[Damage]:
        for check in (self._check_sqlite, self._check_sessions, self._check_shared, self._check_orphans):
            try:
                check()
            except SQLITE_ERRORS as error:
                self._report("file", f"SQLite cannot read it: {error}")
            except (TypeError, ValueError) as error:  # a value of a kind that was never written
                self._report("file", f"a row makes no sense: {error}")
        return self._damages

    def _report(self, place: str, problem: str, seq: int | None = None) -> None:
        self._damages.append(Damage(place, problem, seq))

    def _check_sqlite(self) -> None:
        for (problem,) in self._db.execute("PRAGMA integrity_check"):
            if problem != "ok":
                self._report("file", f"SQLite's integrity_check: {problem}")
        for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check"):
            self._report("file", f"row {row} of {table} refers to no row of {parent}")
        newest_no(self._db)
        [self._total] = self._db.execute("SELECT coalesce(sum(revision + 1), 0) FROM sessions").fetchone()

    # --- sessions

    def _check_sessions(self) -> None:
        for columns in self._db.execute(f"SELECT app_name, user_id, session_id, {ROW} FROM sessions s ORDER BY id"):
            place = str(SessionKey(*columns[:3]))
            try:
                self._check_session(place, row_of(columns[3:]))
            except SQLITE_ERRORS as error:
                self._report(place, f"SQLite cannot read it: {error}")
            except (TypeError, ValueError) as error:
                self._report(place, f"a row makes no sense: {error}")

    def _check_session(self, place: str, row: Row) -> None:
        values = Values({}, {}, {})
        calls: dict[str, OpenCall] = {}
        invocations = self._invocations(row.id)
        last: Step | None = None
        made_here = len(read_segments(self._db, row.id)) == 1  # a fork was made later than its first event
        for step in scan(self._db, row):
            self._tick()
            if step.event is None:
                self._report(place, step.problem, step.seq)
                return  # what follows is not its log any more
            last = step
            if step.seq == 0 and made_here and step.event.timestamp != row.create_time:
                self._report(place, f"expected the create time {step.event.timestamp}, found {row.create_time}")
            try:
                values.apply(apply_event(values, step.event, shared=False))
            except InvalidValueError as error:
                self._report(place, f"its state changes cannot be applied: {error}", step.seq)
                return
            calls.update({call.call_id: call for call in opened_calls(step.event)})
            for response in step.event.get_function_responses():
                calls.pop(response.id or "", None)
            for name in [name for name, (seq, _, _) in invocations.items() if seq == step.seq]:
                self._check_invocation(place, name, invocations.pop(name), step)
        for name, (seq, _, _) in invocations.items():
            self._report(place, f"invocation {name!r} begins at event {seq!r}, which there is not")
        if last is None or last.chain != row.chain:
            self._report(place, "the newest link of the hash chain is not the one in the session's row")
        if last is not None and last.event is not None and last.event.timestamp != row.update_time:
            self._report(place, f"expected the update time {last.event.timestamp}, found {row.update_time}")
        self._check_state(place, row.id, values)
        for call_id, call in read_open_calls(self._db, row.id).items():
            if calls.get(call_id) != call:
                self._report(place, f"call {call_id!r:.80} is noted as open, and is not open at event {call.seq!r}")

    def _invocations(self, session: int) -> dict[str, tuple[int, str, int]]:
        query = "SELECT invocation_id, seq, status, commit_no FROM invocations WHERE session = ?"
        return {name: (seq, status, number) for name, seq, status, number in self._db.execute(query, (session,))}

    def _check_invocation(self, place: str, name: str, found: tuple[int, str, int], step: Step) -> None:
        seq, status, number = found
        assert step.event is not None
        if step.event.invocation_id != name or number < step.commit_no:
            self._report(place, f"invocation {name!r} is noted to begin here, and does not", seq)
        if status not in InvocationStatus.__members__.values():
            self._report(place, f"invocation {name!r} has the status {status!r:.40}", seq)

    def _check_state(self, place: str, session: int, values: Values) -> None:
        rows = self._db.execute("SELECT key, value FROM session_state WHERE session = ?", (session,))
        self._compare(place, dict(rows), values.session)

    def _compare(self, place: str, stored: dict[str, Any], expected: dict[str, JSON]) -> None:
        for key in sorted(stored.keys() | expected.keys(), key=str):
            wanted = dumps(expected[key]) if key in expected else None
            if stored.get(key) != wanted:
                shown = "no such key" if wanted is None else f"{wanted:.80}"
                self._report(place, f"state key {key!r:.80}: expected {shown}, found {stored.get(key)!r:.80}")

    def _tick(self) -> None:
        self._done += 1
        if self._done % PROGRESS_EVERY == 0:
            self._progress(self._done, self._total)

    # --- shared state

    def _check_shared(self) -> None:
        stored: dict[tuple[str, str], dict[str, Any]] = {}
        for app, user, key, value in self._db.execute("SELECT app_name, user_id, key, value FROM shared_state"):
            scope = stored.setdefault((app, user), {})
            if value is not None:
                scope[key] = value
        folded = fold_shared(self._db, read_bases(self._db, self._report), self._report)
        expected = {place: values for place, (values, _) in folded.items()}
        for app, user in sorted(stored.keys() | expected.keys(), key=repr):
            place = f"the state of app {app!r}" if user == NO_USER else f"the state of user {user!r} in app {app!r}"
            self._compare(place, stored.get((app, user), {}), expected.get((app, user), {}))

    def _check_orphans(self) -> None:
        query = (
            "SELECT log, count(*) FROM events WHERE log NOT IN (SELECT id FROM sessions)"
            " AND log NOT IN (SELECT log FROM shared_pasts) GROUP BY log"
        )
        for log, count in self._db.execute(query):
            self._report("file", f"{count} events of log {log}, which no session shows")
        for log, count in self._db.execute(
            "SELECT e.log, count(*) FROM events e JOIN sessions s ON s.id = e.log WHERE e.seq > s.revision GROUP BY log"
        ):
            self._report("file", f"{count} events of log {log} beyond the end of its session")


Scopes: TypeAlias = dict[tuple[str, str], tuple[dict[str, JSON], dict[str, int]]]
"""By app and user (`NO_USER` for the app's own): the values, and which event each key was last changed by."""


Bases: TypeAlias = dict[tuple[str, str], tuple[int, dict[str, JSON]]]
"""By app and user: the values that the fold of a shared scope begins with, and after which event."""


def read_bases(db: sqlite3.Connection, report: Callable[[str, str], None]) -> Bases:
    """The base rows, without what cannot be right in them."""
    newest = newest_no(db)
    bases: Bases = {}
    for app, user, number, value in db.execute("SELECT app_name, user_id, commit_no, value FROM shared_base"):
        what = f"the base of the state of {user or 'all users'!r} in app {app!r}"
        scope = Scope.USER if user else Scope.APP
        try:
            found = freeze(loads(value))
            values = {key: value for key, value in found.items() if scope_of(key) is scope}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            report("file", f"{what} cannot be read: {error}")
            continue
        if len(values) < len(found):
            report("file", f"{what} has keys of another scope")
        if type(number) is not int or number > newest:
            report("file", f"{what} is said to be of event number {number!r:.40}, and the newest is {newest}")
            number = newest
        bases[app, user] = (number, values)
    return bases


def fold_shared(db: sqlite3.Connection, bases: Bases, report: Callable[[str, str], None]) -> Scopes:
    """What the events make of the shared scopes, in the order of their commits, from the bases on (promise P4)."""
    scopes: Scopes = {place: (dict(values), dict.fromkeys(values, no)) for place, (no, values) in bases.items()}
    since = {place: number for place, (number, _) in bases.items()}
    owners = {log: (app, user) for log, app, user in db.execute(_OWNERS)}
    for number, log, data in db.execute(_SHARED_EVENTS):
        if log not in owners:
            continue
        app, user_id = owners[log]
        try:
            writes = writes_of(event_from_json(data).actions)
        except (InvalidValueError, TypeError):
            continue  # its session's log ends before it; that is reported there
        for key, write in writes.items():
            place = (app, shared_user(key, user_id))
            if scope_of(key) is Scope.SESSION or number <= since.get(place, 0):
                continue
            values, changed_by = scopes.setdefault(place, ({}, {}))
            try:
                value = apply_write(key, values.get(key, MISSING), write)
            except InvalidValueError as error:
                report("file", f"event number {number} cannot be applied to the shared state: {error}")
                continue
            changed_by[key] = number
            if value is MISSING:
                values.pop(key, None)
            else:
                values[key] = value
    return scopes


_OWNERS = (
    "SELECT id, app_name, user_id FROM sessions UNION"
    " SELECT p.log, s.app_name, s.user_id FROM shared_pasts p JOIN sessions s ON s.id = p.session"
)
# Keys stand in the text as they are; the others need not be decoded again.
_SHARED_EVENTS = (
    "SELECT commit_no, log, data FROM events WHERE instr(data, '\"user:') OR instr(data, '\"app:') ORDER BY commit_no"
)
