"""
Session files that somebody else has written into: what is not minirun's in a schema, and rows that we never write.

Each is refused with an error that says what and what to do, and told by `verify`; nothing is stored beside it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from minirun import Event, SqliteSessionService
from minirun.artifacts import SqliteArtifactService
from minirun.errors import StorageCorruptError, StorageFormatError
from minirun.memory import SqliteMemoryService
from minirun.sessions import repair, verify
from minirun.types import Part

from ..stores import HERE, append, begin, enter, get, sql, texts

FOREIGN = {
    "a trigger that stores nothing": (
        "CREATE TRIGGER quiet BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END",
        "the trigger 'quiet' on 'events'",
    ),
    "a trigger that changes what is stored": (
        "CREATE TRIGGER shout AFTER INSERT ON session_state BEGIN UPDATE session_state SET value = '1'; END",
        "the trigger 'shout' on 'session_state'",
    ),
    "a view": ("CREATE VIEW latest AS SELECT * FROM events", "the view 'latest'"),
    "a table": ("CREATE TABLE theirs (a)", "the table 'theirs'"),
    "a table that hangs on ours": (
        "CREATE TABLE notes (session INTEGER REFERENCES sessions ON DELETE RESTRICT)",
        "the table 'notes'",
    ),
    "a unique index": ("CREATE UNIQUE INDEX one ON sessions (app_name)", "the index 'one' on 'sessions'"),
    "an index of an expression": (
        "CREATE INDEX sum ON session_state (abs(length(value)) + 1)",
        "the index 'sum' on 'session_state'",
    ),
    "an index of an expression that fails for some rows": (
        "CREATE INDEX fails ON events (CASE WHEN seq > 2 THEN abs(-9223372036854775807 - 1) END)",
        "the index 'fails' on 'events'",
    ),
    "an index of a part": ("CREATE INDEX part ON events (seq) WHERE seq > 1", "the index 'part' on 'events'"),
    "a table in the place of memories": ("CREATE TABLE memory_store (x)", "the table 'memory_store'"),
}


async def make_file(path: Path) -> None:
    """A file with one session of two events, one of which was said by a run."""
    async with SqliteSessionService(path, durability="process") as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.append(Event(author="a", message="kept", invocation_id="e-1"))
        await writer.finish(None)


@pytest.mark.parametrize(("statement", "named"), FOREIGN.values(), ids=FOREIGN)
async def test_what_is_not_ours_in_a_schema_is_refused_and_told(statement: str, named: str, tmp_path: Path) -> None:
    """
    A file with a foreign trigger, view or table, or an index that can refuse a row, is not opened;
    `verify` names it, `repair` leaves it out.
    """
    path = tmp_path / "a.db"
    await make_file(path)
    sql(path, statement)
    for _ in range(2):
        async with SqliteSessionService(path) as service:
            with pytest.raises(StorageFormatError, match=f"found {named}.*repair") as caught:
                await service.get_session(**HERE)
            assert caught.value.stored is False
    assert any(named in str(damage) for damage in verify(path))
    repaired = repair(path, tmp_path / "b.db")
    assert any(named in str(damage) for damage in repaired.damages)
    async with SqliteSessionService(tmp_path / "b.db") as service:
        assert texts(await get(service)) == ["hi", "kept"]


async def test_a_unique_index_is_found_whatever_its_text_is(tmp_path: Path) -> None:
    """
    What an index does is asked of SQLite, not read from a text that somebody has written into the file.
    """
    path = tmp_path / "a.db"
    await make_file(path)
    sql(path, "CREATE UNIQUE INDEX one ON sessions (app_name)")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = 1")
    text = "create /**/ unique index one ON sessions (app_name)"
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'one'", [text])
    connection.close()
    async with SqliteSessionService(path) as service:
        with pytest.raises(StorageFormatError, match="found the index 'one' on 'sessions'"):
            await service.get_session(**HERE)
    assert any("the index 'one' on 'sessions'" in str(damage) for damage in verify(path))


async def test_an_index_in_an_order_that_sqlite_does_not_know_is_refused(tmp_path: Path) -> None:
    """
    Its collating sequence is a function of the program that made it: without that, nothing could be stored.
    """
    path = tmp_path / "a.db"
    await make_file(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_collation("theirs", lambda one, other: 0)
        connection.execute("CREATE INDEX by_author ON sessions (app_name COLLATE theirs)")
    async with SqliteSessionService(path) as service:
        with pytest.raises(StorageFormatError, match="found the index 'by_author' on 'sessions'"):
            await service.get_session(**HERE)


async def test_a_table_of_ours_with_other_rules_is_refused(tmp_path: Path) -> None:
    """
    A table that ignores what it cannot store is not ours, whatever its name is; nor is a file that lacks one.
    """
    path = tmp_path / "a.db"
    await make_file(path)
    [(text,)] = sql(path, "SELECT sql FROM sqlite_master WHERE name = 'session_state'")
    sql(path, "DROP TABLE session_state")
    async with SqliteSessionService(path) as service:
        with pytest.raises(StorageFormatError, match="no table 'session_state'"):
            await service.get_session(**HERE)
    sql(path, text.replace("UNIQUE (session, key)", "UNIQUE (session, key) ON CONFLICT IGNORE"))
    async with SqliteSessionService(path) as service:
        with pytest.raises(StorageFormatError, match="the table 'session_state' with other rules"):
            await service.get_session(**HERE)
    assert any("with other rules" in str(damage) for damage in verify(path))


async def test_what_changes_no_result_is_let_alone(tmp_path: Path) -> None:
    """
    An index of one's own, SQLite's statistics, the tables of memories and those of Litestream are no reason to refuse.
    """
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        memories = SqliteMemoryService(service)
        session = await service.create_session(**HERE)
        await append(service, session, "remember the milk")
        await memories.add_session_to_memory(session)
    for statement in (
        "CREATE INDEX by_time ON sessions (update_time)",
        "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
        "CREATE TABLE _litestream_lock (id INTEGER)",
        "ANALYZE",
        "DROP INDEX sessions_of_users",
    ):
        sql(path, statement)
    async with SqliteSessionService(path, durability="process") as service:
        await append(service, await get(service), "again")
        found = await SqliteMemoryService(service).search_memory(app_name="app", user_id="u", query="milk")
        assert len(found.memories) == 1
    assert verify(path) == []


async def look(service: SqliteSessionService) -> None:
    await service.get_session(**HERE)


async def write(service: SqliteSessionService) -> None:
    await service.create_session(app_name="app", user_id="u", session_id="new")


async def collect(service: SqliteSessionService) -> None:
    await SqliteArtifactService(service).gc()


LARGEST = 2**63 - 1
ROWS: dict[str, tuple[str, Callable[[SqliteSessionService], Awaitable[None]]]] = {
    "an owner in another folder": ("UPDATE sessions SET lease_owner = '../../x', lease_expires = 9e9", look),
    "an owner with NUL": ("UPDATE sessions SET lease_owner = 'a' || char(0), lease_expires = 9e9", look),
    "an owner of no length": ("UPDATE sessions SET lease_owner = '', lease_expires = 9e9", look),
    "an owner too long": ("UPDATE sessions SET lease_owner = replace(hex(zeroblob(999)), '00', 'x')", look),
    "an owner without a clock": ("UPDATE sessions SET lease_owner = 'a:b:c', lease_expires = 9e9", look),
    "the last revision": (f"UPDATE sessions SET revision = {LARGEST}", look),
    "the last epoch": (f"UPDATE sessions SET lease_epoch = {LARGEST}", look),
    "a compaction to come": ("UPDATE sessions SET compaction = 9", look),
    "a compaction that is none": ("UPDATE sessions SET compaction = 1", look),
    "the last number": (f"UPDATE events SET commit_no = {LARGEST} WHERE seq = 2", write),
    "the last number of a deleted session": (f"UPDATE store SET deleted_no = {LARGEST}", write),
    "a stager in another folder": ("UPDATE artifact_versions SET stager = '../x', seq = NULL", collect),
    "a reader with NUL": ("INSERT INTO content_uses VALUES (NULL, 1, 'a' || char(0))", collect),
}


@pytest.mark.parametrize(("statement", "use"), ROWS.values(), ids=ROWS)
async def test_a_row_that_we_never_write_is_damage(
    statement: str, use: Callable[[SqliteSessionService], Awaitable[None]], tmp_path: Path
) -> None:
    """
    Whatever a row says, it leads to no file elsewhere and to no error of Python's own: it is damage, and told.
    """
    path = tmp_path / "a.db"
    await make_file(path)
    async with SqliteArtifactService(path, durability="process") as artifacts:
        await artifacts.save_artifact(**HERE, filename="f", artifact=Part(text="x"))
    sql(path, statement)
    async with SqliteSessionService(path, durability="process") as service:
        with pytest.raises(StorageCorruptError, match="repair") as caught:
            await use(service)
        assert caught.value.stored is False
    assert verify(path) != []
    repair(path, tmp_path / "b.db")
    assert verify(tmp_path / "b.db") == []


def modes_in(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
async def test_what_is_made_on_disk_is_for_this_user_alone(tmp_path: Path) -> None:
    """
    The database, what SQLite lays beside it, locks and repaired files have the mode 0600, under any umask.
    """
    before = os.umask(0)
    try:
        path = tmp_path / "a.db"
        async with SqliteSessionService(path, durability="process") as service:
            await service.create_session(**HERE)
            writer = await enter(service)
            await begin(writer)
            modes = modes_in(tmp_path)
            assert len(modes) == 4
            await writer.finish(None)
        repair(path, tmp_path / "b.db")
        modes |= modes_in(tmp_path)
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """
    Somebody who shares a file with a group goes on doing so.
    """
    path = tmp_path / "a.db"
    await make_file(path)
    path.chmod(0o660)
    await make_again(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


async def make_again(path: Path) -> None:
    async with SqliteSessionService(path, durability="process") as service:
        await append(service, await get(service), "more")
