"""
Session files that another program has written into: its own tables, views and indexes, and rows that minirun never
writes.

The former change nothing. The latter raise an error that says what is wrong and what to do, and `verify` reports them.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from minirun import Event, SqliteSessionService
from minirun.artifacts import SqliteArtifactService
from minirun.errors import StorageCorruptError
from minirun.memory import SqliteMemoryService
from minirun.sessions import verify
from minirun.types import Part

from ..stores import HERE, append, begin, enter, get, sql, texts


async def make_file(path: Path) -> None:
    """A file with one session of two events, one of which was said by a run."""
    async with SqliteSessionService(path, durability="process") as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.append(Event(author="a", message="kept", invocation_id="e-1"))
        await writer.finish(None)


ADDED = {
    "a view": "CREATE VIEW talk AS SELECT s.session_id, e.seq, e.data FROM events e JOIN sessions s ON s.id = e.log",
    "a table": "CREATE TABLE my_orders (id INTEGER PRIMARY KEY, session_id TEXT)",
    "an index of an expression": "CREATE INDEX by_author ON events (json_extract(data, '$.author'))",
    "an index of some rows": "CREATE INDEX late ON events (seq) WHERE seq > 1",
    "an FTS5 table": "CREATE VIRTUAL TABLE notes USING fts5 (text)",
    "tables of Litestream": "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
    "statistics": "ANALYZE",
    "a missing index": "DROP INDEX sessions_of_users",
}


@pytest.mark.parametrize("statement", ADDED.values(), ids=ADDED)
async def test_an_application_can_add_to_its_own_file(statement: str, tmp_path: Path) -> None:
    """Sessions and memories are written and read as before, and `verify` reports nothing."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        session = await service.create_session(**HERE)
        await append(service, session, "remember the milk")
        await SqliteMemoryService(service).add_session_to_memory(session)
    sql(path, statement)
    async with SqliteSessionService(path, durability="process") as service:
        await append(service, await get(service), "again")
        found = await SqliteMemoryService(service).search_memory(app_name="app", user_id="u", query="milk")
        assert len(found.memories) == 1
        assert texts(await get(service)) == ["remember the milk", "again"]
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
        with pytest.raises(StorageCorruptError, match=r"\.recover") as caught:
            await use(service)
        assert caught.value.stored is False
    assert verify(path) != []


def modes_in(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
async def test_what_is_made_on_disk_is_for_this_user_alone(tmp_path: Path) -> None:
    """
    The database, the files that SQLite makes next to it, and locks have the mode 0600, under any umask.
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
