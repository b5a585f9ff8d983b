"""What is read of a file's rows: where each bound lies, what is damage, and what becomes of SQLite's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from minirun import Event, EventActions, SqliteSessionService
from minirun.errors import (
    SessionNotFoundError,
    StaleSessionError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageReadOnlyError,
    StorageRolledBackError,
)
from minirun.sessions import InvocationStatus, SessionKey
from minirun.sessions._calls import Pending
from minirun.sessions._kept import SESSION_BYTES, memory_of
from minirun.sessions._scoped import SEQ_MAX, Segment
from minirun.sessions._sqlite._errors import ADVICE, damage, is_busy, result_code, storage_error
from minirun.sessions._sqlite._file import Transaction
from minirun.sessions._sqlite._leases import Leases
from minirun.sessions._sqlite._logs import NUMBER_MAX, base_no, link, may_be_called, newest_no, next_no, read_lines
from minirun.sessions._sqlite._owner_lock import OwnerLock
from minirun.sessions._sqlite._rows import call_of, read_open_calls, row_of, stored_status, write_call
from minirun.sessions._sqlite._state import read_key, read_state, read_value, stays_within
from minirun.sessions._sqlite._turn import check_writer
from minirun.sessions._state import Scope
from minirun.sessions._store import ChangedMeanwhileError

from ..stores import HERE, KEY, Clock, get, sql
from .test_changed_cells import opened

# --- rows -------------------------------------------------------------------------------------------------------------

ROW = (1, 7, 1.0, 2.0, 3, None, None, bytes(32), 2, 0)
"""The columns of a session: id, revision, two times, epoch, owner, expiry, chain, compaction, messages."""


def row(**others: Any) -> tuple[Any, ...]:
    names = ("id", "revision", "created", "updated", "epoch", "owner", "expires", "chain", "compaction", "messages")
    return tuple(others.get(name, value) for name, value in zip(names, ROW, strict=True))


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"revision": 0, "compaction": 0, "epoch": 0},
        {"revision": NUMBER_MAX - 1, "compaction": NUMBER_MAX - 1, "epoch": NUMBER_MAX - 1},
        {"owner": "owner", "expires": 5.0},
        {"owner": "o" * 64, "expires": 5.0},
        {"owner": "o:boot.1-x:123.5", "expires": 5.0},
        {"owner": "o:b:1.5e-07", "expires": 5.0},
        {"owner": "o:b:1e+22", "expires": 5.0},
        {"messages": 1},
    ],
)
def test_a_row_of_a_session_is_read_within_its_bounds(others: dict[str, Any]) -> None:
    """As it is."""
    assert tuple(row_of(row(**others))) == row(**others)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"revision": -1, "compaction": -1}, "a session's row has the numbers -1, 3 and -1"),
        ({"revision": NUMBER_MAX}, f"a session's row has the numbers {NUMBER_MAX}, 3 and 2"),
        ({"epoch": -1}, "a session's row has the numbers 7, -1 and 2"),
        ({"epoch": NUMBER_MAX}, f"a session's row has the numbers 7, {NUMBER_MAX} and 2"),
        ({"compaction": -1}, "a session's row has the numbers 7, 3 and -1"),
        ({"compaction": 8}, "a session's row has the numbers 7, 3 and 8"),
        ({"owner": ""}, "a session's row has a lease of ''"),
        ({"owner": "o" * 65}, "a session's row has a lease of "),
        ({"owner": "o:b"}, "a session's row has a lease of 'o:b'"),
        ({"owner": "o:b:soon"}, "a session's row has a lease of 'o:b:soon'"),
        ({"owner": "ö"}, "a session's row has a lease of 'ö'"),
        ({"revision": "x"}, "a session's row has 'x' where int was written"),
        ({"created": 1}, "a session's row has 1 where float was written"),
        ({"owner": 5}, "a session's row has 5 where str was written"),
        ({"expires": "x"}, "a session's row has 'x' where float was written"),
        ({"chain": "x"}, "a session's row has 'x' where bytes was written"),
    ],
)
def test_a_row_of_a_session_beyond_them_is_damage(others: dict[str, Any], words: str) -> None:
    """With what was found."""
    with pytest.raises(sqlite3.DatabaseError) as caught:
        row_of(row(**others))
    assert str(caught.value).startswith(words)
    assert result_code(caught.value) == sqlite3.SQLITE_CORRUPT


CALL = ("c-1", "f", 3, "e-1", "agent", None, 0, "waits", 3)


def test_an_open_call_is_read_as_it_was_written() -> None:
    """Each column has its type; what it is pending for is one of a few."""
    call = call_of(CALL)
    assert call.pending is Pending.WAITS
    assert attrs.astuple(call)[:3] == CALL[:3]
    for at in range(len(CALL)):
        odd = (*CALL[:at], b"x", *CALL[at + 1 :])
        with pytest.raises(sqlite3.DatabaseError, match="the row of an open call has b'x' where "):
            call_of(odd)
    with pytest.raises(sqlite3.DatabaseError, match="the row of the open call 'c-1' says it is pending for 'soon'"):
        call_of((*CALL[:7], "soon", 3))


def test_the_number_of_a_call_is_that_of_the_event_since_which_it_is_pending() -> None:
    """None while it is not; the same as long as it is pending for the same."""
    with opened() as db:
        call = read_open_calls(db, 1)["c-8"]

        def number() -> int:
            [(found,)] = db.execute("SELECT pending_no FROM open_calls WHERE session = 1 AND call_id = 'c-8'")
            return int(found)

        before = number()
        write_call(db, 1, call, 70)
        assert number() == before
        write_call(db, 1, attrs.evolve(call, pending=Pending.SUSPENDED), 71)
        assert number() == 71
        write_call(db, 1, attrs.evolve(call, pending=Pending("")), 72)
        assert number() == 0


def test_an_interrupted_invocation_is_written_as_one_that_runs() -> None:
    """Every other as what it is."""
    for status in InvocationStatus:
        is_interrupted = status is InvocationStatus.INTERRUPTED
        assert stored_status(status) is (InvocationStatus.RUNNING if is_interrupted else status)


# --- logs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with opened() as found:
        found.execute("PRAGMA ignore_check_constraints=ON")
        yield found


PAST = (Segment(0, 2, 1), Segment(3, SEQ_MAX, 7))
"""Of a log that goes on in another one, which has earlier events, too."""


def test_a_link_is_a_hash_of_all_that_an_event_is() -> None:
    """Of the link before it, its place, its number and its text."""
    events = [(bytes(32), 1, 2, "a"), (b"x" * 32, 1, 2, "a"), (bytes(32), 2, 2, "a"), (bytes(32), 1, 3, "a")]
    assert len({link(*event) for event in (*events, (bytes(32), 1, 2, "ä"), (bytes(32), 12, 2, "a"))}) == 6
    assert link(bytes(32), 1, 2, "a").hex() == "ddc283b0f0f6b18bb5866985168c2b2c1e3315a0db5e577885695ac71d86b02b"


def test_the_events_of_a_log_are_read_from_where_they_are(db: sqlite3.Connection) -> None:
    """Each part of it, and no more."""
    for first in range(17):
        for until in range(first, 18):
            found = [event.seq for event, size in read_lines(db, "a.db", PAST, first, until) if size > 0]
            assert found == [*range(first, until)]
    with pytest.raises(StorageCorruptError, match="the events 15 to 17 of log 7 are not all there"):
        read_lines(db, "a.db", PAST, 15, 18)
    db.execute("UPDATE events SET data = '[]' WHERE log = 7 AND seq = 4")
    with pytest.raises(StorageCorruptError, match="an event of log 7: Event: expected a JSON object, found list"):
        read_lines(db, "a.db", PAST, 2, 6)


def test_the_newest_number_is_that_of_an_event_or_of_one_that_was_deleted(db: sqlite3.Connection) -> None:
    """Whichever is higher."""
    assert newest_no(db) == 67
    for deleted, newest in ((68, 68), (0, 67), (NUMBER_MAX - 1, NUMBER_MAX - 1)):
        db.execute("UPDATE store SET deleted_no = ?", (deleted,))
        assert newest_no(db) == newest
    db.execute("DELETE FROM events")
    db.execute("UPDATE store SET deleted_no = 0")
    assert newest_no(db) == 0


@pytest.mark.parametrize("found", [NUMBER_MAX, "x", 5.5, b"x", None])
def test_a_newest_number_that_is_none_is_damage(found: object, db: sqlite3.Connection) -> None:
    """As is a store without one."""
    for statement in ("CREATE TABLE loose AS SELECT * FROM store", "DROP TABLE store", "DELETE FROM events"):
        db.execute(statement)
    db.execute("ALTER TABLE loose RENAME TO store")
    db.execute("UPDATE store SET deleted_no = ?", (found,))
    with pytest.raises(sqlite3.DatabaseError, match="the number of the newest event is missing, found "):
        newest_no(db)
    db.execute("DELETE FROM store")
    with pytest.raises(sqlite3.DatabaseError, match="the number of the newest event is missing, found None"):
        newest_no(db)


def test_the_numbers_of_a_transaction_go_on_from_the_newest(db: sqlite3.Connection) -> None:
    """One after the other, of all of its jobs; the number before the first one stays."""
    shared: dict[Any, Any] = {}
    assert [next_no(Transaction(db, shared)) for _ in range(3)] == [68, 69, 70]
    assert base_no(Transaction(db, shared)) == 67
    assert shared["has_messages"] is True
    db.execute("DELETE FROM events WHERE log < 0")
    again: dict[Any, Any] = {}
    assert base_no(Transaction(db, again)) == 67
    assert again["has_messages"] is False


def test_a_run_may_be_called_by_a_message_or_as_another_has_its_session(db: sqlite3.Connection) -> None:
    """Not where nothing waits in a session that is still its own."""
    assert may_be_called(db, 1, 6) is True
    assert may_be_called(db, 2, 0) is False
    assert may_be_called(db, 2, 1) is True
    assert may_be_called(db, 99, 1) is False


# --- whose turn it is -------------------------------------------------------------------------------------------------


@attrs.frozen
class Live:
    """What is asked of a live session."""

    incarnation: int
    key: SessionKey = KEY


@attrs.frozen
class Writer:
    """What is asked of a writer."""

    epoch: int | None


NOBODY, ENTERING = None, Writer(None)
TURNS: dict[str, tuple[str, Writer | None, int | None]] = {
    "from outside": ("", NOBODY, 3),
    "from outside, where a lease is over": ("lease_owner = 'other', lease_expires = 1.0", NOBODY, 4),
    "from outside, where another has it": ("lease_owner = 'other', lease_expires = 9e9", NOBODY, None),
    "a run that enters": ("", ENTERING, 4),
    "a run that enters where a lease is over": ("lease_owner = 'other', lease_expires = 1.0", ENTERING, 4),
    "a run that enters where another has it": ("lease_owner = 'other', lease_expires = 9e9", ENTERING, None),
    "a run that has it": ("lease_owner = 'mine', lease_expires = 9e9", Writer(3), 3),
    "a run that has it no more": ("lease_owner = 'other', lease_expires = 9e9", Writer(2), None),
    "from outside, on top of another event": ("revision = 0", NOBODY, None),
    "a run on top of another event": ("revision = 0", Writer(3), None),
    "from outside, on top of another history": ("chain = zeroblob(32)", NOBODY, None),
    "a run on top of another history": ("chain = zeroblob(32)", Writer(3), None),
}


@pytest.mark.parametrize("case", TURNS)
def test_who_may_write_goes_on_under_an_epoch(case: str, db: sqlite3.Connection, tmp_path: Path) -> None:
    """The lease's own; the next one for who enters, and for who ends the lease of another."""
    change, writer, epoch = TURNS[case]
    lock = OwnerLock(tmp_path / "a.db", "other")
    db.execute("UPDATE sessions SET lease_epoch = 3 WHERE id = 2")
    [(mark,)] = db.execute("SELECT chain FROM sessions WHERE id = 2").fetchall()
    if change:
        db.execute(f"UPDATE sessions SET {change} WHERE id = 2")
    asked: Any = (db, Leases(tmp_path / "a.db", Clock([1e9])), Live(2), writer, 1, mark)
    if epoch is not None:
        row, found = check_writer(*asked)
        assert (row.id, found) == (2, epoch)
    elif writer is None:
        with pytest.raises(ChangedMeanwhileError):
            check_writer(*asked)
    else:
        words = "taken the session over" if writer.epoch else "entered it first"
        with pytest.raises(StaleSessionError, match=f"was read at revision 1 and is at .: another process has {words}"):
            check_writer(*asked)
    lock.release()


def test_a_session_that_was_deleted_is_nobodys_turn(db: sqlite3.Connection) -> None:
    """It is told by its name."""
    asked: Any = (db, Leases(None, Clock([1e9])), Live(99), None, 1, b"")
    with pytest.raises(SessionNotFoundError, match=f"{KEY} was deleted"):
        check_writer(*asked)


# --- state ------------------------------------------------------------------------------------------------------------


def test_the_keys_of_a_scope_are_its_own() -> None:
    """Whatever else stands there is damage, as is a value that is no JSON."""
    for scope, key in ((Scope.SESSION, "n"), (Scope.USER, "user:n"), (Scope.APP, "app:n")):
        assert read_key("a.db", key, scope) == key
        for other in {"n", "user:n", "app:n"} - {key}:
            with pytest.raises(StorageCorruptError, match=f"a state key of the {scope.value} is '{other}'"):
                read_key("a.db", other, scope)
        with pytest.raises(StorageCorruptError, match=f"a state key of the {scope.value} is b'n'"):
            read_key("a.db", b"n", scope)
    assert read_value("a.db", "n", '{"a":[1]}') == {"a": [1]}
    deep = "[" * 100_000
    for data in ("{", 5, b"\xff", deep):
        with pytest.raises(StorageCorruptError, match="the value of state key 'n': "):
            read_value("a.db", "n", data)  # type: ignore[arg-type]  # of a damaged row


def test_a_state_is_read_with_about_what_it_takes_in_memory(db: sqlite3.Connection) -> None:
    """For each key a fixed part, and twice its text."""
    values, size = read_state(db, "a.db", 1)
    assert values == {"n": 1.5, **{f"told e-{number}": "hi" for number in range(1, 5)}}
    assert size == 5 * 100 + 2 * (len("1.5") + 4 * len('"hi"'))
    assert read_state(db, "a.db", 99) == ({}, 0)


def test_an_event_stays_within_its_session_if_all_of_its_keys_do() -> None:
    """Also one that has none."""
    for actions, stays in (
        (EventActions(), True),
        (EventActions(state_delta={"a": 1, "b": 2}), True),
        (EventActions(state_delta={"a": 1, "user:b": 2}), False),
        (EventActions(state_delta={"app:a": 1}, state_removed=["b"]), False),
        (EventActions(state_delta={"a": 1}, state_removed=["user:b"]), False),
    ):
        assert stays_within(Event(author="a", actions=actions)) is stays


async def test_a_session_that_was_made_counts_what_it_keeps_in_memory(tmp_path: Path) -> None:
    """Its first event, and its keys; one that is read counts the values that it has read."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        await service.create_session(**HERE, state={"a": "x" * 50, "b": 2, "user:c": 3})
        [(line,)] = sql(path, "SELECT data FROM events")
        assert service._cache.sessions[KEY].size == SESSION_BYTES + memory_of(line) + 3 * 100
    async with SqliteSessionService(path, durability="process") as service:
        await get(service, num_recent_events=0)
        assert service._cache.sessions[KEY].size == SESSION_BYTES + 2 * 100 + 2 * (52 + 1)


# --- errors -----------------------------------------------------------------------------------------------------------


def error_of(
    code: int | None, text: str = "words", kind: type[sqlite3.Error] = sqlite3.OperationalError
) -> sqlite3.Error:
    error = kind(text)
    if code is not None:
        error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (error_of(sqlite3.SQLITE_BUSY), StorageBusyError),
        (error_of(sqlite3.SQLITE_BUSY_SNAPSHOT), StorageBusyError),
        (error_of(sqlite3.SQLITE_LOCKED), StorageBusyError),
        (error_of(sqlite3.SQLITE_FULL), StorageFullError),
        (error_of(sqlite3.SQLITE_TOOBIG), StorageFullError),
        (error_of(sqlite3.SQLITE_READONLY), StorageReadOnlyError),
        (error_of(sqlite3.SQLITE_PERM), StorageReadOnlyError),
        (error_of(sqlite3.SQLITE_CANTOPEN), StorageFormatError),
        (error_of(sqlite3.SQLITE_NOTADB), StorageFormatError),
        (error_of(sqlite3.SQLITE_CORRUPT), StorageCorruptError),
        (damage("words"), StorageCorruptError),
        (error_of(sqlite3.SQLITE_IOERR), StorageRolledBackError),
        (error_of(sqlite3.SQLITE_IOERR, "could not decode"), StorageRolledBackError),
        (error_of(None), StorageRolledBackError),
        (error_of(None, "Could not decode to UTF-8 column"), StorageCorruptError),
        (error_of(None, "string or blob too big", sqlite3.DataError), StorageFullError),
        (error_of(None, "could not decode", sqlite3.DataError), StorageFullError),
        (OverflowError("words"), StorageCorruptError),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "words"), StorageCorruptError),
    ],
)
def test_each_error_of_sqlite_becomes_one_of_ours(error: Any, kind: type[StorageError]) -> None:
    """With what was done to which file, and with advice."""
    found = storage_error(error, "a.db", "reading")
    assert type(found) is kind
    assert str(found) == f"a.db: reading failed: {error}; {ADVICE[kind]}"
    assert is_busy(error) is (kind is StorageBusyError)


def test_pythons_own_errors_have_no_code() -> None:
    """Nor one that SQLite has given none; the code is the primary one."""
    assert result_code(ValueError("x")) == result_code(error_of(None)) == 0
    assert result_code(error_of(sqlite3.SQLITE_BUSY_SNAPSHOT)) == sqlite3.SQLITE_BUSY
    assert result_code(error_of(255)) == 255
    nothing = ValueError("x")
    nothing.sqlite_errorcode = None  # type: ignore[attr-defined]  # as some wrappers of SQLite have it
    assert result_code(nothing) == 0
