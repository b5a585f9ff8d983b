"""
Memories in a SQLite file: what the file is made of, and what is left of it by faults, power cuts, cancellations and
other processes.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import Env, Event, SqliteSessionService
from minirun.errors import (
    ConfigurationError,
    NotSupportedError,
    ServiceClosedError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
)
from minirun.memory import InMemoryMemoryService, SqliteMemoryService
from minirun.sessions import verify
from minirun.sessions._sqlite._memories import BLOCK_BITS, PLACE_BITS, token
from minirun.simulation import CUTS, Disk, DiskEnv, Mark, RecordingVFS, why_unavailable, write_image

from ..disks import SmallDisk
from ..fork_server import program, start
from ..interruptions import CancelAtStep, enumerate_steps
from ..stores import HERE, append, failing, inject, sql

USER: dict[str, Any] = {"app_name": "app", "user_id": "u"}
needs_vfs = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


def said(number: int, text: str = "") -> Event:
    return Event(id=str(number), author="user", timestamp=float(number), message=text or f"tea {number} 東京")


async def hear(service: SqliteMemoryService | InMemoryMemoryService, *numbers: int, session: str = "s") -> None:
    events = [said(number) for number in numbers]
    await service.add_events_to_memory(**USER, session_id=session, events=events)


async def times(service: SqliteMemoryService | InMemoryMemoryService, query: str = "tea") -> set[float | None]:
    found = await service.search_memory(**USER, query=query, limit=500)
    return {memory.timestamp for memory in found.memories}


def tables(path: Path) -> set[str]:
    return {name for (name,) in sql(path, "SELECT name FROM sqlite_master")}


def check_index(db: sqlite3.Connection) -> int:
    """Raise AssertionError unless tables, totals and index say the same; return how many memories there are."""
    db.execute("INSERT INTO memory_index (memory_index) VALUES ('integrity-check')")
    db.execute("CREATE VIRTUAL TABLE temp.found USING fts5vocab(main, memory_index, 'instance')")
    indexed = set(db.execute("SELECT term, doc FROM temp.found"))
    db.execute("DROP TABLE temp.found")
    expected, totals = set(), Counter[tuple[int, str]]()
    for number, user, length, terms, marks in db.execute(
        "SELECT number, user, length, terms, marks FROM memory_entries"
    ).fetchall():
        assert number >> PLACE_BITS == user
        place = number & (1 << PLACE_BITS) - 1
        start = f"{user}x{place >> BLOCK_BITS}"
        expected |= {(token(start, part), number) for part in (*terms.split(), *marks.split())}
        totals[user, "count"] += 1
        totals[user, "length"] += length
        assert length == len(terms.split())
    assert indexed == expected
    for user, newest, count, length in db.execute("SELECT id, newest, count, length FROM memory_users").fetchall():
        assert (count, length) == (totals[user, "count"], totals[user, "length"])
        assert newest >= count
    assert db.execute("SELECT 1 FROM memory_deleted JOIN memory_entries USING (user, id)").fetchone() is None
    return sum(count for (_, what), count in totals.items() if what == "count")


def check_file(path: Path) -> int:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return check_index(db)
    finally:
        db.close()


# --- the file -------------------------------------------------------------------------------------------------------


async def test_a_session_file_stays_as_it_is_until_something_is_remembered(tmp_path: Path) -> None:
    """Searching and deleting make no tables; the first memory does, and sessions do not notice."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path) as sessions, SqliteMemoryService(sessions) as memories:
        session = await sessions.create_session(**HERE)
        before = tables(path)
        assert await times(memories) == set()
        await memories.delete_user_memories(**USER)
        await memories.delete_memory(**USER, memory_id="x")
        await memories.add_memory(**USER, memories=[])
        assert tables(path) == before
        await hear(memories, 1)
        assert {name for name in tables(path) - before if not name.startswith(("memory_", "sqlite_auto"))} == set()
        await append(sessions, session, "after all")
        assert await times(memories) == {1}
    assert list(verify(path)) == []
    assert check_file(path) == 1


async def test_a_file_of_its_own_can_become_that_of_sessions(tmp_path: Path) -> None:
    """A file made by either service can be opened by the other one, by its path."""
    path = tmp_path / "a.db"
    async with SqliteMemoryService(path) as memories:
        await hear(memories, 1)
    async with SqliteSessionService(path) as sessions, SqliteMemoryService(path) as memories:
        await sessions.create_session(**HERE)
        await hear(memories, 2)
        assert await times(memories) == {1, 2}


async def test_a_guest_does_not_close_the_session_service() -> None:
    """A shared file goes on when the memory service is closed, and memories are refused when the sessions are."""
    sessions = SqliteSessionService(":memory:")
    async with SqliteMemoryService(sessions) as memories:
        await hear(memories, 1)
    await sessions.create_session(**HERE)
    again = SqliteMemoryService(sessions)
    assert await times(again) == {1}
    await sessions.aclose()
    with pytest.raises(ServiceClosedError, match="session service"):
        await times(again)


def test_what_a_session_service_has_is_refused_beside_it() -> None:
    """Durability and Env are those of the session service; a durability that is none is refused."""
    sessions = SqliteSessionService(":memory:", env=Env())
    assert SqliteMemoryService(sessions).env is sessions.env
    with pytest.raises(ConfigurationError, match="durability"):
        SqliteMemoryService(sessions, durability="power")
    with pytest.raises(ConfigurationError, match="env"):
        SqliteMemoryService(sessions, env=Env())
    with pytest.raises(ConfigurationError, match="durability"):
        SqliteMemoryService(":memory:", durability="")  # type: ignore[arg-type]  # the point


async def test_sessions_and_memories_share_a_transaction(tmp_path: Path) -> None:
    """What is written at the same moment through one file waits for the disk once."""
    commits: list[None] = []

    @attrs.frozen(eq=False)
    class Counting(Env):
        async def run_sync(self, fn: Callable[[], Any], **options: Any) -> Any:
            commits.append(None)
            return await super().run_sync(fn, **options)

    async with SqliteSessionService(tmp_path / "a.db", env=Counting()) as sessions:
        memories = SqliteMemoryService(sessions)
        session = await sessions.create_session(**HERE)
        await hear(memories, 0)
        commits.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, sessions, session)
            for number in range(1, 4):
                nursery.start_soon(hear, memories, number)
        assert len(commits) < 4
        assert await times(memories) == {0, 1, 2, 3}


@attrs.frozen(eq=False)
class WithoutFts5(Env):
    """A SQLite that was built without full-text search."""

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
                if "fts5" in statement or "memory_index" in statement:
                    raise sqlite3.OperationalError("no such module: fts5")
                return super().execute(statement, *parameters)

        return sqlite3.connect(
            database, uri=uri, timeout=0, isolation_level=None, check_same_thread=False, factory=Connection
        )


async def test_a_sqlite_without_fts5_is_named(tmp_path: Path) -> None:
    """Adding and searching say what is missing, and sessions of the same file work on."""
    async with SqliteMemoryService(tmp_path / "a.db") as memories:
        await hear(memories, 1)
    async with SqliteSessionService(tmp_path / "a.db", env=WithoutFts5()) as sessions:
        memories = SqliteMemoryService(sessions)
        for act in (lambda: hear(memories, 2), lambda: times(memories)):
            with pytest.raises(NotSupportedError, match="FTS5"):
                await act()
        await sessions.create_session(**HERE)
    async with SqliteMemoryService(tmp_path / "b.db", env=WithoutFts5()) as memories:
        assert await times(memories) == set()
        with pytest.raises(NotSupportedError, match="FTS5"):
            await hear(memories, 1)
    assert not any(name.startswith("memory_") for name in tables(tmp_path / "b.db"))


async def test_memories_of_another_format_are_left_alone(tmp_path: Path) -> None:
    """A version of the tables that is not known is refused before anything is written; sessions work on."""
    path = tmp_path / "a.db"
    async with SqliteMemoryService(path) as memories:
        await hear(memories, 1)
    sql(path, "UPDATE memory_store SET version = 2")
    async with SqliteSessionService(path) as sessions:
        memories = SqliteMemoryService(sessions)
        for act in (lambda: hear(memories, 2), lambda: times(memories)):
            with pytest.raises(StorageFormatError, match="format 1"):
                await act()
        await sessions.create_session(**HERE)
    assert sql(path, "SELECT count(*) FROM memory_entries") == [(1,)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE memory_entries SET data = '{'",
        "UPDATE memory_entries SET data = '{}'",
        "UPDATE memory_entries SET data = x'ff'",
        "UPDATE memory_entries SET timestamp = 'now'",
        "UPDATE memory_entries SET length = 'x'",
        "UPDATE memory_entries SET terms = x'00'",
        "UPDATE memory_users SET count = 'x'",
        "DELETE FROM memory_entries",
        "UPDATE memory_index_data SET block = x'00' WHERE id > 10",
    ],
)
async def test_damage_is_told(damage: str, tmp_path: Path) -> None:
    """A row that was never written so, or that is gone, is damage and not an answer."""
    async with SqliteMemoryService(tmp_path / "a.db") as memories:
        await hear(memories, 1)
    sql(tmp_path / "a.db", damage)
    async with SqliteMemoryService(tmp_path / "a.db") as memories:
        with pytest.raises(StorageCorruptError):
            await times(memories)


async def test_many_blocks_are_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a user's memories fill several blocks of numbers, a search goes through all of them, from the newest on."""
    from minirun.memory import _sqlite_tables

    monkeypatch.setattr(_sqlite_tables, "BLOCK_BITS", 3)
    async with SqliteMemoryService(":memory:") as memories, InMemoryMemoryService() as other:
        for service in (memories, other):
            await hear(service, *range(50))
        for query in ("tea", "tea 7", "東京 49", "nothing"):
            for narrow in (None, {"author": "user"}, {"before": 20}, {"after": 40, "session_id": "s"}):
                found = [
                    await service.search_memory(**USER, query=query, filter=narrow) for service in (memories, other)
                ]
                assert found[0] == found[1]


# --- faults ---------------------------------------------------------------------------------------------------------


async def workload(service: SqliteMemoryService, done: Callable[[str], None]) -> None:
    """Some of everything; *done* is told what is acknowledged."""
    await hear(service, 1, 2, 3)
    done("heard 1 2 3")
    await service.delete_memory(**USER, memory_id=await id_of(service, "2"))
    done("deleted 2")
    await hear(service, 2, 4, session="s")
    done("heard 4")
    await hear(service, 5, session="t")
    done("heard 5")
    await service.delete_session_memories(**USER, session_id="t")
    done("deleted 5")


# What is there after each step.
STATES: dict[str, set[float]] = {
    "": set(),
    "heard 1 2 3": {1, 2, 3},
    "deleted 2": {1, 3},
    "heard 4": {1, 3, 4},
    "heard 5": {1, 3, 4, 5},
    "deleted 5": {1, 3, 4},
}


async def id_of(service: SqliteMemoryService, word: str) -> str:
    found = await service.search_memory(**USER, query=word)
    return found.memories[0].id or "" if found.memories else "none"


def allowed_after(last: str) -> list[set[float]]:
    """What may be there if *last* was the last that was acknowledged: that, or the next one."""
    steps = list(STATES)
    return [STATES[step] for step in steps[steps.index(last) : steps.index(last) + 2]]


async def test_a_full_disk_is_told_and_leaves_nothing_half(tmp_path: Path) -> None:
    """When the file cannot grow, adding raises StorageFullError, what was there is found, and it works on later."""
    async with SqliteMemoryService(tmp_path / "a.db", durability="process") as memories:
        await hear(memories, 1)
        connection = memories._file._connection
        assert connection is not None
        [[pages]] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count={pages}")
        text = " ".join(f"word{number}" for number in range(20_000))
        with pytest.raises(StorageFullError):
            await memories.add_events_to_memory(**USER, session_id="s", events=[said(2), said(3, text)])
        assert await times(memories) == {1}
        connection.execute(f"PRAGMA max_page_count={pages * 1000}")
        await memories.add_events_to_memory(**USER, session_id="s", events=[said(2), said(3, text)])
        assert await times(memories, "tea word9") == {1, 2, 3}
    assert check_file(tmp_path / "a.db") == 3


async def test_tables_that_were_undone_are_made_again(tmp_path: Path) -> None:
    """If the very first adding fails, its tables are gone with it, and the same service makes them when asked again."""
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as sessions:
        memories = SqliteMemoryService(sessions)
        await sessions.create_session(**HERE)
        connection = sessions._file._connection
        saved = "UPDATE memory_users SET newest = ?, count = ?, length = ? WHERE id = ?"
        inject(sessions, {saved: failing(sqlite3.SQLITE_FULL)})
        with pytest.raises(StorageFullError):
            await hear(memories, 1)
        sessions._file._connection = connection
        assert await times(memories) == set()
        await hear(memories, 1)
        assert await times(memories) == {1}


@needs_vfs
@pytest.mark.parametrize(
    ("operation", "stride"),
    [
        *(("write", 7), ("sync", 1), ("read", 7)),
        *(pytest.param(operation, 1, marks=pytest.mark.slow) for operation in ("write", "read")),
    ],
)
async def test_a_disk_that_fails_at_any_place_is_told_as_it_is(operation: str, stride: int, tmp_path: Path) -> None:
    """A failing operation gives a typed error; what is there then is what was acknowledged, or one step more."""
    failures = 0
    for number in range(1, 10_000, stride):
        folder = tmp_path / f"{operation}-{number}"
        folder.mkdir()
        with RecordingVFS() as vfs:
            count = [0]

            def fault(asked: Any, name: str, count: list[int] = count, number: int = number) -> int:
                count[0] += str(asked) == operation or getattr(asked, "value", asked) == operation
                return sqlite3.SQLITE_IOERR if count[0] == number else 0

            vfs.fault = fault
            done = [""]
            try:
                async with SqliteMemoryService(folder / "a.db", env=SmallDisk(vfs)) as memories:
                    await workload(memories, done.append)
            except StorageError:
                failures += 1
            vfs.fault = lambda *_: 0
            async with SqliteMemoryService(folder / "a.db", env=DiskEnv(vfs)) as memories:
                assert await times(memories) in allowed_after(done[-1])
                await hear(memories, 9)
                assert 9 in await times(memories)
                connection = memories._file._connection
                assert connection is not None
                check_index(connection)
        shutil.rmtree(folder)
        if count[0] < number:
            break
    print(f"\n{operation}: {failures} failures")
    assert failures


@needs_vfs
async def test_a_power_cut_takes_no_memory_that_was_acknowledged(tmp_path: Path) -> None:
    """After a cut at any operation the file has what was acknowledged, or one step more, and its index fits it."""
    with RecordingVFS() as vfs:
        async with SqliteMemoryService(tmp_path / "a.db", env=SmallDisk(vfs)) as memories:
            await workload(memories, vfs.mark)
        trace = list(vfs.trace)
    luck, disk, last, seen = random.Random(1), Disk(), "", set[tuple[int, str]]()
    for number, entry in enumerate(trace):
        disk.replay([entry])
        if isinstance(entry, Mark):
            last = entry.what
        for cut in ("nothing", CUTS[number % len(CUTS)]):
            image = disk.image(cut, luck)
            known = hash(tuple(sorted(image.items()))), last
            if known in seen:
                continue
            seen.add(known)
            write_image(image, tmp_path / "image")
            async with SqliteMemoryService(tmp_path / "image" / "a.db", durability="process") as memories:
                try:
                    assert await times(memories) in allowed_after(last), f"{cut} after operation {number}"
                    await hear(memories, 9)
                except StorageError:
                    assert not last
            if last:
                check_file(tmp_path / "image" / "a.db")
            shutil.rmtree(tmp_path / "image")
    print(f"\n{len(trace)} operations, {len(seen)} different images")
    assert len(seen) > 100


def test_cancelled_at_any_step_it_leaves_what_was_there_or_what_was_asked(tmp_path: Path) -> None:
    """Wherever a cancellation arrives, what is there is what was acknowledged, or one step more, and goes on."""

    async def interrupted(path: Path, step: int) -> int:
        done = [""]
        async with SqliteMemoryService(path) as memories:
            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await workload(memories, done.append)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            assert await times(memories) in allowed_after(done[-1])
            await workload(memories, lambda _: None)
            assert await times(memories) <= STATES["deleted 5"]
        return instrument.steps

    def attempt(step: int) -> int:
        path = tmp_path / f"{step}.db"
        steps = trio.run(interrupted, path, step)
        check_file(path)
        for file in tmp_path.glob(f"{path.name}*"):
            file.unlink()
        return steps

    count, uninterrupted = enumerate_steps(attempt)
    print(f"\n{count} steps interrupted, of {uninterrupted}")
    assert count >= uninterrupted // 2


async def test_a_commit_of_others_is_waited_for(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """While another process holds the lock, adding waits, can be cancelled, and is an error in the end."""
    async with SqliteMemoryService(tmp_path / "a.db") as memories:
        await hear(memories, 1)
        other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with trio.move_on_after(1) as scope:
            await hear(memories, 2)
        assert scope.cancelled_caught
        with pytest.raises(StorageBusyError):
            await hear(memories, 2)
        assert await times(memories) == {1}
        other.close()
        await hear(memories, 2)
        assert await times(memories) == {1, 2}


# --- other processes ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, trio
from minirun import Event
from minirun.memory import SqliteMemoryService
async def main(path, name):
    async with SqliteMemoryService(path, durability="process") as memories:
        for number in range(60):
            event = Event(id=str(number), author=name, timestamp=float(number), message=f"tea {name} {number}")
            both = Event(id="both", author="all", timestamp=0.0, message="tea of all")
            await memories.add_events_to_memory(app_name="app", user_id="u", session_id=name, events=[event])
            await memories.add_events_to_memory(app_name="app", user_id="u", session_id="all", events=[both])
            if number % 20 == 19:
                found = await memories.search_memory(app_name="app", user_id="u", query=f"{name} {number}")
                await memories.delete_memory(app_name="app", user_id="u", memory_id=found.memories[0].id)
trio.run(main, *sys.argv[1:])
"""


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    """Three processes that add and delete at once lose nothing, and remember once what all of them add."""
    path = tmp_path / "a.db"
    processes = [start(program(PROGRAM, path, name)) for name in ("one", "two", "three")]
    for process in processes:
        assert process.communicate() == ("", "")
        assert process.returncode == 0
    assert check_file(path) == 3 * 57 + 1

    async def check() -> None:
        async with SqliteMemoryService(path) as memories:
            found = await memories.search_memory(**USER, query="tea", limit=500)
            counts = Counter(memory.author for memory in found.memories)
            assert counts == {"one": 57, "two": 57, "three": 57, "all": 1}

    trio.run(check)


# --- verify ---------------------------------------------------------------------------------------------------------


DAMAGES = [
    "DELETE FROM memory_entries WHERE timestamp = 2",
    "INSERT INTO memory_index (memory_index) VALUES ('delete-all')",
    "UPDATE memory_users SET count = 99",
    "UPDATE memory_users SET newest = 1",
    "UPDATE memory_entries SET data = '{' WHERE timestamp = 2",
    "UPDATE memory_entries SET data = '{\"content\": {}, \"author\": 5}' WHERE timestamp = 2",
    "UPDATE memory_entries SET terms = replace(terms, 'tea', 'rum') WHERE timestamp = 2",
    "INSERT INTO memory_deleted SELECT user, id FROM memory_entries WHERE timestamp = 2",
]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_of_memories_is_found(damage: str, tmp_path: Path) -> None:
    """`verify` reports it."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path) as sessions:
        await sessions.create_session(**HERE)
        await hear(SqliteMemoryService(sessions), 1, 2, 3)
    assert verify(path) == []
    sql(path, damage)
    assert [each for each in verify(path) if "memor" in str(each)]
