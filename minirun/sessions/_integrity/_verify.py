"""
Is a session file what its events say?

Nearly everything in a file but the events themselves can be derived from them. So verifying is deriving it again and
comparing: the chain, link by link; the order, without a gap; each session's state and the shared state, as the fold
of the log (promise P4); what refers to what; the hashes of artifacts; the index of memories. SQLite's own check comes
first; it knows nothing of values.

The file is only read, in one transaction: others may go on using it.

What nothing else in the file bears witness to can change unseen: under which name a session stands (as long as it could
be one), when a fork was made, how far a lease reaches, how an invocation has ended, and that a row of `open_calls` or
`invocations` was there at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeGuard

import attrs

from ..._codec import from_json
from ..._json import JSON, brief, dumps, freeze, loads
from ...env import REAL_ENV
from ...errors import InvalidValueError, StorageFormatError
from ...events import Event
from .._calls import OpenCall, Pending
from .._invocation import InvocationStatus
from .._key import SessionKey, session_key
from .._past import LogFold
from .._scoped import CHAIN_START, SEQ_MAX, Segment
from .._sqlite._errors import SQLITE_ERRORS
from .._sqlite._format import APPLICATION_ID, refuse_url
from .._sqlite._logs import NUMBER_MAX, link, newest_no, read_segments
from .._sqlite._rows import ROW, Row, read_open_calls, row_of
from .._sqlite._schema import FORMAT
from .._sqlite._state import NO_USER, shared_user
from .._state import MISSING, Scope, Values, apply_write, scope_of, writes_of
from ._artifacts import check_artifacts
from ._memories import check_memories

__all__ = [
    "Damage",
    "Progress",
    "SharedScope",
    "Step",
    "base_problem",
    "base_values",
    "could_end",
    "lease_problem",
    "open_to_read",
    "scope_place",
    "verify",
]

# What comes of reading a row: of the database, and of values that were never written (a text where a number was).
ROW_ERRORS: Final = (*SQLITE_ERRORS, TypeError, ValueError, OverflowError)

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
        InvalidValueError: *path* is a URL.
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
        InvalidValueError: *path* is a URL.
        StorageFormatError: There is none, or it is not in our format.
    """
    refuse_url(path)
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
    commit_no: int
    """Of the last one that was whole, where this is not; so is the chain."""
    chain: bytes
    problem: str = ""


def is_number(value: object) -> TypeGuard[int]:
    """Whether it could be a `seq`, a `commit_no` or an id."""
    return type(value) is int and 0 <= value < SEQ_MAX


def scan(db: sqlite3.Connection, segments: Iterable[Segment], revision: int | None) -> Iterator[Step]:
    """
    Read a log in order, checking each event; after the first that is wrong comes nothing.

    It must reach *revision*; with None it ends with its last event.
    """
    chain, number, expected = CHAIN_START, 0, 0
    until = SEQ_MAX if revision is None else revision
    for segment in segments:
        rows = db.execute(
            "SELECT seq, commit_no, chain, data FROM events WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            (segment.log, segment.first_seq, min(segment.last_seq, until)),
        )
        for seq, commit_no, stored, data in rows:
            event = None
            if seq != expected:
                problem = f"it is missing; the next one is {seq}"
            elif type(data) is not str or type(commit_no) is not int:
                problem = f"its row has the wrong types: {brief(data, 40)}, {brief(commit_no, 40)}"
            elif (linked := link(chain, seq, commit_no, data)) != stored:
                problem = f"expected the link {linked.hex()[:16]}… in the hash chain, found {_shown(stored)}"
            elif commit_no <= number:
                problem = f"expected a number above {number}, found {commit_no}"
            else:
                try:
                    event = from_json(Event, data)
                    writes_of(event.actions)
                except (InvalidValueError, TypeError) as error:
                    problem = f"it cannot be read: {error}"
                else:
                    problem = "" if event.seq == seq else f"expected the seq {seq} in it, found {event.seq}"
            if problem:
                yield Step(expected, None, number, chain, problem)
                return
            chain, number, expected = stored, commit_no, seq + 1
            yield Step(seq, event, commit_no, stored)
    if revision is not None and expected <= revision:
        yield Step(expected, None, number, chain, f"it is missing; the session goes on to {revision}")


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
        for check in (
            self._check_sqlite,
            self._check_store,
            self._check_sessions,
            self._check_shared,
            self._check_unused,
            partial(check_artifacts, self._db, self._report),
            partial(check_memories, self._db, self._report),
        ):
            self._guarded("file", check)
        return self._damages

    def _guarded(self, place: str, check: Callable[[], object]) -> None:
        try:
            check()
        except SQLITE_ERRORS as error:
            self._report(place, f"SQLite cannot read it: {error}")
        except ROW_ERRORS as error:  # a value of a kind that was never written
            self._report(place, f"a row makes no sense: {error}")

    def _report(self, place: str, problem: str, seq: int | None = None) -> None:
        self._damages.append(Damage(place, problem, seq))

    def _check_sqlite(self) -> None:
        for (problem,) in self._db.execute("PRAGMA integrity_check"):
            if problem != "ok":
                self._report("file", f"SQLite's integrity_check: {problem}")
        for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check"):
            self._report("file", f"row {row} of {table} refers to no row of {parent}")
        [self._total] = self._db.execute("SELECT coalesce(sum(revision + 1), 0) FROM sessions").fetchone()

    def _check_store(self) -> None:
        newest_no(self._db)
        rows = self._db.execute("SELECT only, deleted_no FROM store").fetchall()
        if len(rows) != 1 or rows[0][0] != 1 or not is_number(rows[0][1]):
            self._report("file", f"expected one row with a number in the table of the store, found {brief(rows)}")

    # --- sessions

    def _check_sessions(self) -> None:
        for columns in self._db.execute(f"SELECT app_name, user_id, session_id, {ROW} FROM sessions s ORDER BY id"):
            key = SessionKey(*columns[:3])
            self._guarded(str(key), partial(session_key, *columns[:3]))  # raises where one is no name
            self._guarded(str(key), partial(self._check_session, str(key), columns[3:]))

    def _check_session(self, place: str, columns: Sequence[Any]) -> None:
        row = row_of(columns)
        if problem := lease_problem(row.epoch, row.owner, row.expires):
            self._report(place, problem)
        segments = read_segments(self._db, row.id, row.revision)
        log = LogFold()
        invocations = self._invocations(row.id)
        noted_here = [noted for found in invocations.values() for noted in found]
        paused = {noted.invocation_id for noted in noted_here if noted.status == InvocationStatus.PAUSED}
        chain: bytes | None = None
        updated: float | None = None
        made_here = len(segments) == 1  # a fork was made later than its first event
        for step in scan(self._db, segments, row.revision):
            self._tick()
            if step.event is None:
                self._report(place, step.problem, step.seq)
                return  # what follows is not its log any more
            chain, updated = step.chain, step.event.timestamp
            if step.seq == 0 and made_here and step.event.timestamp != row.create_time:
                self._report(place, f"expected the create time {step.event.timestamp}, found {row.create_time}")
            try:
                log.take(step.event, tracked=True)
            except InvalidValueError as error:
                self._report(place, f"its state changes cannot be applied: {error}", step.seq)
                return
            for noted in invocations.pop(step.seq, ()):
                self._check_invocation(place, noted, step, row)
        for seq, unmatched in invocations.items():
            for noted in unmatched:
                name = noted.invocation_id
                self._report(place, f"invocation {name!r} begins at event {seq!r}, which there is not")
        if chain != row.chain:
            self._report(place, "the newest link of the hash chain is not the one in the session's row")
        compaction = log.compactions.seq
        if compaction != row.compaction:
            self._report(place, f"expected its newest compaction at event {compaction}, found {row.compaction}")
        if updated != row.update_time:
            self._report(place, f"expected the update time {updated}, found {row.update_time}")
        self._check_state(place, row.id, log.values)
        self._check_calls(place, row.id, log.calls.calls, paused)

    def _check_calls(self, place: str, session: int, expected: dict[str, OpenCall], paused: set[str]) -> None:
        found = read_open_calls(self._db, session)
        for call_id, call in found.items():
            wanted = expected.get(call_id)
            if wanted is None or attrs.evolve(call, pending=wanted.pending, pending_seq=wanted.pending_seq) != wanted:
                self._report(place, f"call {brief(call_id)} is noted as open, and is not open at event {call.seq!r}")
            elif call != wanted:
                pending = f"{wanted.pending.value!r} since event {wanted.pending_seq}"
                found_pending = f"{call.pending.value!r} since {call.pending_seq}"
                self._report(place, f"open call {brief(call_id)}: expected pending {pending}, found {found_pending}")
        newest = newest_no(self._db)
        query = "SELECT call_id, pending_no FROM open_calls WHERE session = ?"
        for call_id, number in self._db.execute(query, (session,)):
            call = found[call_id]
            # It may be newer than the event, as in a fork or after a rewind, but never newer than the file.
            if not is_number(number) or number > newest or (number == 0) != (not call.pending):
                self._report(place, f"open call {brief(call_id)} has the number {brief(number, 40)} of {newest}")
        for call_id, call in expected.items():
            if call_id not in found and call.pending is Pending.WAITS and call.invocation_id in paused:
                self._report(place, f"call {brief(call_id)} is what its paused invocation waits for, and is not noted")

    def _invocations(self, session: int) -> dict[Any, list[_Noted]]:
        """What is noted of the session's invocations, by the `seq` of their first events."""
        found: dict[Any, list[_Noted]] = {}
        query = "SELECT seq, invocation_id, status, epoch, commit_no, end_seq FROM invocations WHERE session = ?"
        for seq, *noted in self._db.execute(query, (session,)):
            found.setdefault(seq, []).append(_Noted(*noted))
        return found

    def _check_invocation(self, place: str, noted: _Noted, step: Step, row: Row) -> None:
        assert step.event is not None
        name = noted.invocation_id
        # In a fork the note may be newer than the event, but never newer than the file.
        newest = newest_no(self._db)
        if step.event.invocation_id != name or not step.commit_no <= noted.commit_no <= newest:
            self._report(place, f"invocation {name!r} is noted to begin here, and does not", step.seq)
        if noted.status not in InvocationStatus.__members__.values():
            self._report(place, f"invocation {name!r} has the status {brief(noted.status, 40)}", step.seq)
        if type(noted.epoch) is not int or noted.epoch > row.epoch:
            self._report(place, f"invocation {name!r} has the epoch {brief(noted.epoch, 40)} of {row.epoch}", step.seq)
        if not could_end(noted.status, step.seq, noted.end_seq, row.revision):
            ended = f"has ended at event {brief(noted.end_seq, 40)}"
            problem = f"invocation {name!r} is {brief(noted.status, 40)} and {ended}"
            self._report(place, problem, step.seq)

    def _check_state(self, place: str, session: int, values: Values) -> None:
        rows = self._db.execute("SELECT key, value FROM session_state WHERE session = ?", (session,))
        self._compare(place, dict(rows), values.session)

    def _compare(self, place: str, stored: dict[str, Any], expected: dict[str, JSON]) -> None:
        for key in sorted(stored.keys() | expected.keys(), key=str):
            wanted = dumps(expected[key]) if key in expected else None
            if stored.get(key) != wanted:
                shown = "no such key" if wanted is None else f"{wanted:.80}"
                self._report(place, f"state key {brief(key)}: expected {shown}, found {brief(stored.get(key))}")

    def _tick(self) -> None:
        self._done += 1
        if self._done % PROGRESS_EVERY == 0:
            self._progress(self._done, self._total)

    # --- shared state

    def _check_shared(self) -> None:
        stored: dict[tuple[str, str], dict[str, Any]] = {}
        numbers: dict[tuple[str, str], dict[str, Any]] = {}
        query = "SELECT app_name, user_id, key, value, commit_no FROM shared_state"
        for app, user, key, value, number in self._db.execute(query):
            numbers.setdefault((app, user), {})[key] = number
            if value is not None:
                stored.setdefault((app, user), {})[key] = value
        expected = fold_shared(self._db, self._report)
        for scope in sorted(numbers.keys() | expected.keys(), key=repr):
            wanted = expected.get(scope, SharedScope({}, 0))
            self._compare(scope_place(*scope), stored.get(scope, {}), wanted.values)
            for problem in wanted.number_problems(numbers.get(scope, {})):
                self._report(scope_place(*scope), problem)
        self._check_bases()

    def _check_bases(self) -> None:
        [newest] = self._db.execute("SELECT max(deleted_no) FROM store").fetchone()
        for app, user, number in self._db.execute("SELECT app_name, user_id, commit_no FROM shared_base"):
            if problem := base_problem(number, newest):
                self._report(scope_place(app, user), problem)

    def _check_unused(self) -> None:
        query = f"SELECT log, count(*), min(seq), max(seq) FROM events e WHERE NOT {USED} GROUP BY log"
        for log, count, first, last in self._db.execute(query):
            self._report("file", f"{count} events of log {log!r} ({first!r} to {last!r}), which no session shows")
        for log, seq, number, chain, data in self._db.execute(
            "SELECT log, seq, commit_no, chain, data FROM events WHERE log < 0 ORDER BY log, seq"
        ):
            if type(data) is not str or not is_number(seq) or link(CHAIN_START, seq, number, data) != chain:
                self._report("file", f"a message that waits for session row {-log}: it was changed")


# Whether a session shows the event `e`: as its own, beyond the past that it shares, or as a part of a shared past.
USED: Final = """(
    typeof(seq) = 'integer' AND (
        EXISTS (SELECT 1 FROM sessions s WHERE s.id = e.log AND e.seq BETWEEN
            (SELECT coalesce(max(last_seq) + 1, 0) FROM shared_pasts WHERE session = s.id) AND s.revision)
        OR EXISTS (SELECT 1 FROM shared_pasts p WHERE p.log = e.log AND e.seq BETWEEN p.first_seq AND p.last_seq)
        OR EXISTS (SELECT 1 FROM sessions s WHERE s.id = -e.log AND e.seq > 0)
    )
)"""


@attrs.frozen
class _Noted:
    """A row of `invocations`."""

    invocation_id: Any
    status: Any
    epoch: Any
    commit_no: Any
    end_seq: Any


def could_end(status: object, seq: int, end_seq: object, revision: int) -> bool:
    """Whether an invocation that begins at event *seq* can have this status and end."""
    if status == InvocationStatus.RUNNING:
        return end_seq is None
    return type(end_seq) is int and seq <= end_seq <= revision


def lease_problem(epoch: int, owner: object, expires: object) -> str:
    """What is wrong with these parts of a session's lease; nothing, if it can be one, or none."""
    if (owner is None) == (expires is None) and 0 <= epoch < NUMBER_MAX:
        return ""
    return f"expected a lease with an owner and an end, or none, found {epoch}, {brief(owner, 40)}, {expires}"


def scope_place(app_name: str, user: str) -> str:
    """How a shared scope is called in a report."""
    return f"the state of app {app_name!r}" if user == NO_USER else f"the state of user {user!r} in app {app_name!r}"


@attrs.frozen
class SharedScope:
    """A `user:` or `app:` scope: its values, and which events have changed or removed them since the base."""

    values: dict[str, JSON]
    base_no: int
    numbers: dict[str, int] = attrs.field(factory=dict)

    def apply(self, number: int, key: str, write: Any) -> None:
        """Let event *number* change *key*."""
        value = apply_write(key, self.values.get(key, MISSING), write)
        self.numbers[key] = number
        if value is MISSING:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def number_problems(self, stored: Mapping[str, Any]) -> Iterator[str]:
        """
        What is wrong with the numbers in the rows of the scope, which are *stored* by their keys.

        By these other processes learn what has changed, removals included.
        """
        for key, number in stored.items():
            if self.numbers.get(key, number) != number or not is_number(number):
                yield f"state key {brief(key)}: expected the number {self.numbers.get(key)}, found {brief(number, 40)}"
            elif key not in self.numbers and number > self.base_no:
                yield f"state key {brief(key)}: no event has the number {number}"
        for key in sorted(self.numbers.keys() - stored.keys() - self.values.keys()):
            yield f"state key {brief(key)}: its removal is not noted"


def base_problem(number: object, newest: object) -> str:
    """What is wrong with the number of a shared scope's base, given the *newest* one; nothing, if it can be one."""
    if is_number(number) and is_number(newest) and number <= newest:
        return ""
    return f"its base has the number {brief(number, 40)}, beyond {brief(newest, 40)}"


def base_values(user: str, number: object, value: object) -> dict[str, JSON]:
    """
    The values of a row of `shared_base`.

    Raises:
        ValueError, TypeError, RecursionError: It is not one that was written.
    """
    if type(value) is not str or not is_number(number):
        msg = f"expected a number and a text, found {brief(number, 40)} and {brief(value, 40)}"
        raise TypeError(msg)
    values = freeze(loads(value))
    kind = Scope.APP if user == NO_USER else Scope.USER
    if not isinstance(values, dict) or not all(scope_of(key) is kind for key in values):
        msg = f"expected an object with keys of the {kind.value}, found {brief(value)}"
        raise ValueError(msg)
    return dict(values)


def fold_shared(db: sqlite3.Connection, report: Callable[[str, str], None]) -> dict[tuple[str, str], SharedScope]:
    """
    What the events make of the shared scopes, in the order of their commits, from the base rows on (promise P4).

    By app and user (`NO_USER` for the app's own).
    """
    scopes: dict[tuple[str, str], SharedScope] = {}
    for app, user, number, value in db.execute("SELECT app_name, user_id, commit_no, value FROM shared_base"):
        try:
            scopes[app, user] = SharedScope(base_values(user, number, value), number)
        except (ValueError, TypeError, RecursionError) as error:
            report(scope_place(app, user), f"its base cannot be read: {error}")
    owners = {log: (app, user) for log, app, user in db.execute(_OWNERS)}
    for number, log, data in db.execute(_SHARED_EVENTS):
        if log not in owners:
            continue
        app, user_id = owners[log]
        try:
            writes = writes_of(from_json(Event, data).actions)
        except (InvalidValueError, TypeError):
            continue  # its session's log ends before it; that is reported there
        for key, write in writes.items():
            if scope_of(key) is Scope.SESSION:
                continue
            place = (app, shared_user(key, user_id))
            scope = scopes.setdefault(place, SharedScope({}, 0))
            if number <= scope.base_no:
                continue
            try:
                scope.apply(number, key, write)
            except InvalidValueError as error:
                report(scope_place(*place), f"event number {number} cannot be applied to it: {error}")
    return scopes


_OWNERS = (
    "SELECT id, app_name, user_id FROM sessions UNION"
    " SELECT p.log, s.app_name, s.user_id FROM shared_pasts p JOIN sessions s ON s.id = p.session"
)
# Keys stand in the text as they are; the others need not be decoded again.
_SHARED_EVENTS: Final = (
    "SELECT commit_no, log, data FROM events WHERE instr(data, '\"user:') OR instr(data, '\"app:') ORDER BY commit_no"
)
