"""
Group commit: what waits at the same moment shares one transaction, and nobody pays for another one's failure.

Groups are counted from outside: by the COMMITs that the connection is asked for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from minirun import Event, EventActions
from minirun.env import Env
from minirun.errors import (
    InvalidValueError,
    StaleSessionError,
    StorageBusyError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageMissingError,
    StorageUncertainError,
)
from minirun.sessions import Session, SqliteSessionService
from minirun.sessions._sqlite._file import BUSY_WAIT_S, SqliteFile, Transaction
from minirun.sessions._sqlite._format import Format

from ..interruptions import CancelAtStep
from ..stores import Elsewhere, append, failing, get, inject, sql, texts

SESSIONS = 8
DURABILITIES = pytest.mark.parametrize("durability", ["power", "process"])


async def sessions_of(service: SqliteSessionService, count: int = SESSIONS) -> list[Session]:
    """New sessions `0` to `count - 1` of one user."""
    return [
        await service.create_session(app_name="app", user_id="u", session_id=str(number)) for number in range(count)
    ]


@contextmanager
def commits(service: SqliteSessionService) -> Iterator[list[str]]:
    """The COMMITs that happen in the block."""
    connection = service._file._connection
    assert connection is not None
    seen: list[str] = []
    connection.set_trace_callback(lambda statement: seen.append(statement) if statement == "COMMIT" else None)
    try:
        yield seen
    finally:
        connection.set_trace_callback(None)


async def all_at_once(*works: Callable[[], Any]) -> list[BaseException | None]:
    """Start all of them in one tick; return what each has raised."""
    outcomes: list[BaseException | None] = [None] * len(works)

    async def do(number: int) -> None:
        try:
            await works[number]()
        except (StorageError, ValueError, StaleSessionError) as error:
            outcomes[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(works)):
            nursery.start_soon(do, number)
    return outcomes


# --- groups ---------------------------------------------------------------------------------------------------------


@DURABILITIES
async def test_what_waits_at_the_same_moment_is_one_transaction(durability: Any, tmp_path: Path) -> None:
    """Appends of eight sessions that start together are committed together, and all of them are stored."""
    async with SqliteSessionService(tmp_path / "a.db", durability=durability) as service:
        sessions = await sessions_of(service)
        with commits(service) as seen:
            assert await all_at_once(*(partial(append, service, session) for session in sessions)) == [None] * SESSIONS
        assert len(seen) == 1
        numbers = sql(tmp_path / "a.db", "SELECT commit_no FROM events WHERE seq = 1")
        assert len(set(numbers)) == SESSIONS


async def test_what_comes_while_the_disk_is_busy_is_the_next_group(tmp_path: Path) -> None:
    """Sixteen writers of twenty events each make far fewer commits than events: groups of nine and more."""
    async with SqliteSessionService(tmp_path / "a.db", durability="power") as service:
        sessions = await sessions_of(service, 16)

        async def write(session: Session) -> None:
            for _ in range(20):
                await append(service, session)

        with commits(service) as seen:
            assert set(await all_at_once(*(partial(write, session) for session in sessions))) == {None}
        assert 16 * 20 / len(seen) >= 9


async def test_shared_values_are_right_within_a_group(tmp_path: Path) -> None:
    """Operations and plain writes on the same shared keys in one transaction: all count, and the last one wins."""
    async with SqliteSessionService(tmp_path / "a.db", durability="power") as service:
        sessions = await sessions_of(service)

        def work(number: int) -> Callable[[], Any]:
            ops = {"user:n": {"add": 1}, "app:log": {"extend": [number]}}
            actions = EventActions(state_ops=ops, state_delta={"user:last": number})
            return partial(service.append_event, sessions[number], Event(author="a", actions=actions))

        with commits(service) as seen:
            await all_at_once(*(work(number) for number in range(SESSIONS)))
        assert len(seen) == 1
        state = (await get(service, "0")).state
        order = [
            int(json_last)
            for (json_last,) in sql(tmp_path / "a.db", "SELECT log - 1 FROM events WHERE seq = 1 ORDER BY commit_no")
        ]
        assert (state["user:n"], state["app:log"], state["user:last"]) == (SESSIONS, order, order[-1])
        async with SqliteSessionService(tmp_path / "a.db") as other:
            assert dict((await get(other, "0")).state) == dict(state)


async def test_a_history_is_imported_among_appends(tmp_path: Path) -> None:
    """Sessions made, imported and appended to in one transaction: every operation on their shared keys counts."""
    add = EventActions(state_ops={"user:n": {"add": 1}, "app:n": {"add": 1}, "n": {"add": 1}})
    history = [Event(id=str(seq), seq=seq, timestamp=1.0, author="a", actions=add) for seq in range(4)]
    async with SqliteSessionService(tmp_path / "a.db", durability="power") as service:
        sessions = await sessions_of(service, 2)
        importing = partial(service.import_session, app_name="app", user_id="u", events=history)
        with commits(service) as seen:
            await all_at_once(
                partial(service.append_event, sessions[0], Event(author="a", actions=add)),
                partial(importing, session_id="x"),
                partial(service.append_event, sessions[1], Event(author="a", actions=add)),
                partial(importing, session_id="y"),
                partial(service.create_session, app_name="app", user_id="u", session_id="z", state={"user:z": 1}),
            )
        assert len(seen) == 1
        state = {"n": 4, "user:n": 10, "app:n": 10, "user:z": 1}
        assert dict((await get(service, "x")).state) == dict((await get(service, "y")).state) == state
        async with SqliteSessionService(tmp_path / "a.db") as other:
            assert dict((await get(other, "y")).state) == state


async def test_nothing_is_seen_before_it_is_stored(tmp_path: Path) -> None:
    """While the COMMIT of a group is under way, its shared writes are not in anybody's state."""

    class SlowDisk(Env):
        async def run_sync(self, fn: Callable[[], Any], **options: Any) -> Any:
            if slow:
                waiting.set()
                await go_on.wait()
            return await super().run_sync(fn, **options)

    slow, waiting, go_on = False, trio.Event(), trio.Event()
    async with SqliteSessionService(tmp_path / "a.db", env=SlowDisk()) as service:
        one, two = await sessions_of(service, 2)
        values = service._cache.sessions[next(iter(service._cache.sessions))].values
        slow = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, service, one, "x")
            nursery.start_soon(partial(append, service, two, "x", user_n=1))
            await waiting.wait()
            assert values.get("user:n") is not None
            assert "user:n" not in values.user
            slow = False
            go_on.set()
        assert values.user["user:n"] == 1


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_one_that_fails_fails_alone(tmp_path: Path) -> None:
    """A stale append, a misfit operation and a value that is too large fail; the others of their group are stored."""
    async with SqliteSessionService(tmp_path / "a.db", durability="power") as service:
        sessions = await sessions_of(service)
        await append(service, sessions[0], name="text")
        stale = await get(service, "1")
        await append(service, await get(service, "1"))
        connection = service._file._connection
        assert connection is not None
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        misfit = Event(author="a", actions=EventActions(state_ops={"name": {"add": 1}, "user:n": {"add": 1}}))
        with commits(service) as seen:
            outcomes = await all_at_once(
                partial(append, service, sessions[2], "before", user_m=1),
                partial(service.append_event, sessions[0], misfit),
                partial(append, service, stale),
                partial(append, service, sessions[3], "x" * 60_000, user_n=1),
                partial(append, service, sessions[4], "after", user_k=1),
            )
        assert [type(error) for error in outcomes] == [
            type(None),
            InvalidValueError,
            StaleSessionError,
            StorageFullError,
            type(None),
        ]
        assert len(seen) == 1
        assert texts(await get(service, "2")) == ["before"]
        assert texts(await get(service, "3")) == []
        state = dict((await get(service, "4")).state)
        assert state == {"user:m": 1, "user:k": 1}
        async with SqliteSessionService(tmp_path / "a.db") as other:
            assert dict((await get(other, "4")).state) == state


async def test_a_disk_that_is_full_fails_the_group(tmp_path: Path) -> None:
    """When SQLite undoes the whole transaction for one of its jobs, every one of them hears that nothing is stored."""
    async with SqliteSessionService(tmp_path / "a.db", durability="power") as service:
        sessions = await sessions_of(service, 3)
        real = service._file._connection
        assert real is not None
        statement = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
        count = 0

        def second_fails() -> None:
            nonlocal count
            count += 1
            if count == 2:
                real.execute("ROLLBACK")  # as SQLite does for SQLITE_FULL
                failing(sqlite3.SQLITE_FULL)()

        faults = {statement: second_fails}
        inject(service, faults)
        outcomes = await all_at_once(*(partial(append, service, session, user_n=1) for session in sessions))
        assert [(type(error), getattr(error, "stored", None)) for error in outcomes] == [(StorageFullError, False)] * 3
        faults.clear()
        assert "user:n" not in (await get(service, "0")).state
        assert await all_at_once(*(partial(append, service, session) for session in sessions)) == [None] * 3


@DURABILITIES
@pytest.mark.parametrize("stored", [True, False])
async def test_a_commit_that_fails_is_uncertain_for_all_of_its_group(
    durability: Any, stored: bool, tmp_path: Path
) -> None:
    """Everyone in the group is told that nobody knows; a retry of the same event stores it exactly once."""
    async with SqliteSessionService(tmp_path / "a.db", durability=durability) as service:
        sessions = await sessions_of(service)
        real = service._file._connection
        assert real is not None

        def fail() -> None:
            if stored:
                real.execute("COMMIT")
            failing(sqlite3.SQLITE_IOERR)()

        inject(service, {"COMMIT": fail})
        events = [
            Event(author="a", message=str(n), actions=EventActions(state_ops={"user:n": {"add": 1}}))
            for n in range(SESSIONS)
        ]
        works = [partial(service.append_event, session, event) for session, event in zip(sessions, events, strict=True)]
        outcomes = await all_at_once(*works)
        assert {type(error) for error in outcomes} == {StorageUncertainError}
        assert len({id(error) for error in outcomes}) == SESSIONS
        assert await all_at_once(*works) == [None] * SESSIONS
        for number, session in enumerate(sessions):
            found = await get(service, str(number))
            assert (texts(found), found.revision, session.revision) == ([str(number)], 1, 1)
        assert (await get(service, "0")).state["user:n"] == SESSIONS


async def test_a_retry_after_an_uncertain_commit_needs_no_id(tmp_path: Path) -> None:
    """An equal event appended again through the same session is the same event, once; the next one is another."""
    async with SqliteSessionService(tmp_path / "a.db") as service:
        [session] = await sessions_of(service, 1)
        for stored in (True, False):
            real = service._file._connection
            assert real is not None

            def fail(real: sqlite3.Connection = real, stored: bool = stored) -> None:
                if stored:
                    real.execute("COMMIT")
                failing(sqlite3.SQLITE_IOERR)()

            inject(service, {"COMMIT": fail})
            before = session.revision
            with pytest.raises(StorageUncertainError):
                await append(service, session, "hello")
            first = await append(service, session, "hello")
            second = await append(service, session, "hello")
            assert (first.seq, second.seq) == (before + 1, before + 2)
            assert first.id != second.id
        assert texts(await get(service, "0")) == ["hello"] * 4


# --- cancellation -----------------------------------------------------------------------------------------------------


@DURABILITIES
async def test_any_member_can_be_cancelled_at_any_step(durability: Any, tmp_path: Path) -> None:
    """Whoever is cancelled, after any step of any task: it is stored or not as it was told; the others always are."""
    withdrawn = 0
    for victim in (0, 1, 3):  # who leads, one in the middle, and the last
        step, late = 0, 0
        while late < 8:  # how many steps there are depends on the thread
            step += 1
            async with SqliteSessionService(tmp_path / f"{victim}-{step}.db", durability=durability) as service:
                sessions = await sessions_of(service, 4)
                cancelled, steps = await one_cancelled(service, sessions, victim, step)
                withdrawn += cancelled
                late = late + 1 if steps < step else 0
                for number in range(4):
                    found = texts(await get(service, str(number)))
                    assert found == ([] if number == victim and cancelled else ["x"])
                    assert sessions[number].revision == len(found)
                assert await all_at_once(*(partial(append, service, session) for session in sessions)) == [None] * 4
    assert withdrawn >= 3


async def one_cancelled(
    service: SqliteSessionService, sessions: list[Session], victim: int, step: int
) -> tuple[bool, int]:
    """Append to all at once and cancel one after the *step*; return whether it was cancelled, and the steps taken."""
    scope = trio.CancelScope()
    instrument = CancelAtStep(scope, step)
    caught = False

    async def append_one(number: int) -> None:
        nonlocal caught
        if number != victim:
            await append(service, sessions[number])
            return
        with scope:
            await append(service, sessions[number])
        caught = scope.cancelled_caught

    trio.lowlevel.add_instrument(instrument)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(len(sessions)):
                nursery.start_soon(append_one, number)
    finally:
        trio.lowlevel.remove_instrument(instrument)
    return caught, instrument.steps


async def test_who_waits_for_another_process_can_leave_and_others_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """While another process holds the write lock: reading goes on, one waiter leaves, the rest fail at the bound."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        sessions = await sessions_of(service, 3)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        errors: list[BaseException | None] = []
        async with trio.open_nursery() as nursery:

            async def wait_for_it() -> None:
                errors.extend(await all_at_once(*(partial(append, service, session) for session in sessions[1:])))

            nursery.start_soon(wait_for_it)
            with trio.move_on_after(1) as scope:
                await append(service, sessions[0])
            assert scope.cancelled_caught
            for _ in range(20):
                await trio.sleep(0.1)
                with trio.fail_after(0.05):
                    assert texts(await get(service, "0")) == []
        assert [type(error) for error in errors] == [StorageBusyError] * 2
        assert trio.current_time() == pytest.approx(BUSY_WAIT_S, abs=0.2)
        other.execute("ROLLBACK")
        other.close()
        assert await all_at_once(*(partial(append, service, session) for session in sessions)) == [None] * 3


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["deleted", "replaced", "moved", "its log deleted"])
async def test_a_file_that_disappears_is_noticed_before_anything_is_acknowledged(what: str, tmp_path: Path) -> None:
    """Nothing is written into a file without a name, no new one is made, and it works again when the file is back."""
    path, kept = tmp_path / "a.db", tmp_path / "kept"
    kept.mkdir()
    async with SqliteSessionService(path, durability="process") as service:
        [session] = await sessions_of(service, 1)
        await append(service, session, "before")
        for name in ("a.db", "a.db-wal", "a.db-shm"):
            if what != "its log deleted" or name == "a.db-wal":
                (tmp_path / name).rename(kept / name)
        if what == "replaced":
            async with SqliteSessionService(path, durability="process") as new:
                await sessions_of(new, 1)
                await append(new, await get(new, "0"), "in the new one")
        with pytest.raises(StorageMissingError):
            await append(service, session, "lost?")
        if what in ("deleted", "moved"):
            for _ in range(2):
                with pytest.raises(StorageMissingError):
                    await get(service, "0")
            assert not path.exists()
        if what == "replaced":
            assert texts(await get(service, "0")) == ["in the new one"]
            with pytest.raises(StaleSessionError):
                await append(service, session, "onto another history")
            return
        for name in ("a.db", "a.db-wal", "a.db-shm"):
            if (kept / name).exists():
                (kept / name).rename(tmp_path / name)
        found = await get(service, "0")
        assert texts(found) == ["before"]
        await append(service, found, "after")
        async with Elsewhere(path, durability="process") as other:
            assert texts(await get(other, "0")) == ["before", "after"]


# --- formats ----------------------------------------------------------------------------------------------------------

OLD = Format(version=1, schema="CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('old')")


def add_column(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE notes ADD COLUMN size INTEGER")


def fill_column(db: sqlite3.Connection) -> None:
    db.execute("UPDATE notes SET size = length(text)")


def fail_halfway(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM notes")
    raise sqlite3.OperationalError("planted")


async def notes(path: Path, wanted: Format) -> list[Any]:
    file = SqliteFile(path, wanted, "process", Env())
    try:
        async with file.reading() as db:
            return db.execute("SELECT * FROM notes").fetchall()
    finally:
        await file.close()


async def test_an_older_format_is_brought_up_to_date_in_one_transaction(tmp_path: Path) -> None:
    """Two steps at once, once; a step that fails leaves the file as it was; newer and too old files are refused."""
    path = tmp_path / "a.db"
    assert await notes(path, OLD) == [("old",)]
    broken = Format(version=3, schema="", migrations={1: add_column, 2: fail_halfway})
    with pytest.raises(StorageError, match="planted"):
        await notes(path, broken)
    assert await notes(path, OLD) == [("old",)]
    new = Format(
        version=3, schema="CREATE TABLE notes (text TEXT, size INTEGER)", migrations={1: add_column, 2: fill_column}
    )
    for _ in range(2):
        assert await notes(path, new) == [("old", 3)]
    assert sql(path, "PRAGMA user_version") == [(3,)]
    with pytest.raises(StorageFormatError, match="a newer minirun"):
        await notes(path, OLD)
    with pytest.raises(StorageFormatError, match="an older minirun"):
        await notes(path, Format(version=5, schema="", migrations={4: add_column}))
    assert await notes(tmp_path / "fresh.db", new) == []
    assert sql(tmp_path / "fresh.db", "PRAGMA user_version") == [(3,)]


async def test_an_index_that_was_deleted_is_noticed(tmp_path: Path) -> None:
    """Without the file through which processes tell each other what is in the log, nothing is acknowledged."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        [session] = await sessions_of(service, 1)
        await append(service, session, "1")
        (tmp_path / "a.db-shm").unlink()
        async with Elsewhere(path, durability="process") as other:
            await append(other, await get(other, "0"), "2")
        with pytest.raises(StorageMissingError):
            await append(service, session, "3")
        found = await get(service, "0")
        assert texts(found) == ["1", "2"]
        await append(service, found, "3")
    async with SqliteSessionService(path, durability="process") as service:
        assert texts(await get(service, "0")) == ["1", "2", "3"]


async def test_the_sign_of_life_belongs_to_its_process(tmp_path: Path) -> None:
    """A fork that ends takes nothing along; what killed processes have left is swept up by the next one."""
    left = tmp_path / "a.db-owner-0123456789abcdef"
    left.touch()
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await sessions_of(service, 1)
        service._leases.lock_owner()
        assert not left.exists()
        lock = service._leases.lock
        assert lock is not None
        lock._process += 1  # as a forked child has it
        lock.release()
        assert lock._path.exists()
        lock._process -= 1


async def test_a_log_that_was_deleted_is_saved(tmp_path: Path) -> None:
    """Where only the log lost its name, what is in it is written into the file before it is given up."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        [session] = await sessions_of(service, 1)
        for number in range(5):
            await append(service, session, str(number))
        (tmp_path / "a.db-wal").unlink()
        with pytest.raises(StorageMissingError):
            await append(service, session, "refused")
        assert texts(await get(service, "0")) == ["0", "1", "2", "3", "4"]
        await append(service, session, "5")
    async with SqliteSessionService(path, durability="process") as service:
        assert len(texts(await get(service, "0"))) == 6


async def test_a_job_of_the_file_returns_what_its_work_returns_and_is_undone_if_it_raises(tmp_path: Path) -> None:
    """The work's value comes back; what it raises, too, and then nothing of it is stored, nor applied."""
    file = SqliteFile(tmp_path / "a.db", OLD, "process", Env())
    applied: list[str] = []

    def write(text: str, transaction: Transaction) -> str:
        transaction.db.execute("INSERT INTO notes VALUES (?)", (text,))
        transaction.after_commit(partial(applied.append, text))
        if text == "bad":
            raise KeyError(text)
        return text.upper()

    results = []

    async def do(text: str) -> None:
        try:
            results.append(await file.write(partial(write, text)))
        except KeyError:
            results.append("failed")

    async with trio.open_nursery() as nursery:
        for text in ("a", "bad", "b"):
            nursery.start_soon(do, text)
    await do("bad")
    assert sorted(results) == ["A", "B", "failed", "failed"]
    assert sorted(applied) == ["a", "b"]
    await file.close()
    assert sorted(sql(tmp_path / "a.db", "SELECT text FROM notes")) == [("a",), ("b",), ("old",)]
