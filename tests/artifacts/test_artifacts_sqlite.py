"""
Facts about artifacts in a SQLite file: what they owe to the sessions there, contents in chunks, collections, damage.

What every artifact service promises is in test_artifacts.py; crashes and failing disks are in test_artifact_disks.py.
"""

from __future__ import annotations

import gc
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import Env, Event, EventActions
from minirun.artifacts import ArtifactKey, BaseArtifactService, Collected, SqliteArtifactService, _sqlite
from minirun.artifacts._values import described, taken_apart
from minirun.errors import (
    AlreadyExistsError,
    ConfigurationError,
    ServiceClosedError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageUncertainError,
)
from minirun.sessions import InMemorySessionService, Session, SqliteSessionService, verify
from minirun.types import Blob, Part

from ..fork_server import program, start
from ..stores import HERE as SESSION
from ..stores import Where, failing, inject, sql

HERE: dict[str, Any] = {**SESSION, "filename": "a.txt"}
KEY = ArtifactKey("app", "u", "s", "a.txt")
USERS = ArtifactKey("app", "u", None, "user:a")
CHUNK = 256 * 1024
LARGE = bytes(range(256)) * 1024 * 3 + b"the end"  # four chunks


async def save(service: BaseArtifactService, text: str = "x", *, staged: bool = False, key: ArtifactKey = KEY) -> int:
    data = text.encode()
    _, mime_type, part = taken_apart(Part(text=text))
    return await service._save_chunks(key, (data,), described(mime_type, part, None), staged=staged)


async def save_large(service: BaseArtifactService, data: bytes = LARGE, **where: Any) -> int:
    return await service.save_artifact_stream(**(HERE | where), chunks=[data])


async def text_of(service: BaseArtifactService, version: int | None = None, **where: Any) -> str | None:
    part = await service.load_artifact(**(HERE | where), version=version)
    return None if part is None else part.text


async def read(service: BaseArtifactService, version: int | None = None, **where: Any) -> bytes | None:
    async with service.open_artifact(**(HERE | where), version=version) as reader:
        return None if reader is None else b"".join([chunk async for chunk in reader])


def naming(**delta: int) -> Event:
    names = {name.replace("user_", "user:").replace("_txt", ".txt"): number for name, number in delta.items()}
    return Event(author="a", actions=EventActions(artifact_delta=names))


def count(path: Path, table: str) -> int:
    [[found]] = sql(path, f"SELECT count(*) FROM {table}")
    return int(found)


class Store:
    """Sessions and artifacts in one file, with one session."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions = SqliteSessionService(path, durability="process")
        self.artifacts = SqliteArtifactService(self.sessions)
        self.session: Session

    async def __aenter__(self) -> Store:
        self.session = await self.sessions.create_session(**SESSION)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sessions.aclose()

    async def append(self, **delta: int) -> Event:
        return await self.sessions.append_event(self.session, naming(**delta))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(tmp_path / "chat.db") as opened:
        yield opened


# --- one file for both ------------------------------------------------------------------------------------------------


async def test_a_guest_leaves_the_file_open(store: Store) -> None:
    """An artifact service that shares a session service closes nothing of it, and knows when it was closed."""
    async with SqliteArtifactService(store.sessions) as other:
        await save(other, "a")
    with pytest.raises(ServiceClosedError):
        await text_of(other)
    await store.append()
    assert await text_of(store.artifacts) == "a"
    await store.sessions.aclose()
    with pytest.raises(ServiceClosedError, match="session service"):
        await text_of(store.artifacts)


async def test_a_file_of_artifacts_is_one_for_sessions(tmp_path: Path) -> None:
    """A file that one service has made is read and written by the other, also at the same time."""
    path = tmp_path / "a.db"
    async with SqliteArtifactService(f"sqlite:///{path}", durability="process") as artifacts:
        await save(artifacts, "a")
        async with SqliteSessionService(path, durability="process") as sessions:
            await sessions.create_session(**SESSION)
            assert await text_of(SqliteArtifactService(sessions)) == "a"
    assert verify(path) == []


def test_a_guest_has_no_settings_of_its_own() -> None:
    """Durability and Env beside a session service are refused, and wrong values are refused as there."""
    sessions = SqliteSessionService(":memory:")
    assert SqliteArtifactService(sessions).env is sessions.env
    for wrong in ({"durability": "power"}, {"env": Env()}):
        with pytest.raises(ConfigurationError, match="session service"):
            SqliteArtifactService(sessions, **wrong)
    with pytest.raises(ConfigurationError, match="durability"):
        SqliteArtifactService(":memory:", durability="often")  # type: ignore[arg-type]  # on purpose


def test_it_shares_with_the_one_that_has_its_file(tmp_path: Path) -> None:
    """Only the session service whose very connection it uses can make its versions visible."""
    sessions = SqliteSessionService(tmp_path / "a.db")
    shared = SqliteArtifactService(sessions)
    assert shared._shares(sessions)
    for other in (SqliteSessionService(tmp_path / "a.db"), InMemorySessionService()):
        assert not shared._shares(other)
    assert not SqliteArtifactService(tmp_path / "a.db")._shares(sessions)


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """A file that is no store of minirun is left alone."""
    db = sqlite3.connect(tmp_path / "other.db")
    db.execute("CREATE TABLE t (a)")
    db.close()
    with pytest.raises(StorageFormatError):
        await save(SqliteArtifactService(tmp_path / "other.db"))


# --- staged versions --------------------------------------------------------------------------------------------------


async def test_a_staged_version_is_seen_by_who_names_its_number(store: Store) -> None:
    """Until an event names it, a staged version is in no list and no load, and is read by who knows of it."""
    service = store.artifacts
    assert await save(service, "a") == 0
    assert await save(service, "b", staged=True) == 1
    assert await save(service, "c") == 2
    assert await save(service, "d", staged=True) == 3
    assert await service.list_versions(**HERE) == [0, 2]
    assert (await text_of(service), await text_of(service, 1), await read(service, 3)) == ("c", None, None)
    for own, newest, first in (((), 2, None), ((1,), 2, 1), ((1, 3), 3, 1), ((3, 99), 3, None)):
        found = [await service._find(KEY, version, staged=own) for version in (None, 1)]
        assert [one and one.version.version for one in found] == [newest, first]
    async with service._open(KEY, None, staged={1, 3}) as opened:
        assert opened is not None
        assert b"".join([chunk async for chunk in opened[1]]) == b"d"
    assert await save(service, "u", staged=True, key=USERS) == 0
    assert await service.list_artifact_keys(app_name="app", user_id="u") == []


async def test_an_event_makes_what_it_names_visible(store: Store) -> None:
    """Exactly the versions that a stored event names become visible, those of the user too; the rest stays staged."""
    service = store.artifacts
    for text in "abc":
        await save(service, text, staged=True)
    await save(service, "u", staged=True, key=USERS)
    await store.append(a_txt=1, user_a=0, b_txt=7)
    assert await service.list_versions(**HERE) == [1]
    assert await text_of(service, filename="user:a") == "u"
    assert await text_of(service) == "b"
    await store.append(a_txt=0)
    assert await service.list_versions(**HERE) == [0, 1]
    assert await text_of(service) == "b"
    await store.append(a_txt=0)
    assert verify(store.path) == []


async def test_an_event_that_is_refused_shows_nothing(store: Store) -> None:
    """In a transaction that is undone for one event, its versions stay staged, and those of others are shown."""
    service, sessions = store.artifacts, store.sessions
    await save(service, "a", staged=True)
    other = await sessions.create_session(app_name="app", user_id="u", session_id="t")
    await sessions.append_event(other, Event(author="a", state={"app:n": "text"}))
    key = ArtifactKey("app", "u", "t", "a.txt")
    await save(service, "t", staged=True, key=key)
    failing = EventActions(artifact_delta={"a.txt": 0}, state_ops={"app:n": {"add": 1}})
    errors = []

    async def refused() -> None:
        try:
            await sessions.append_event(store.session, Event(author="a", actions=failing))
        except ValueError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused)
        nursery.start_soon(sessions.append_event, other, naming(a_txt=0))
    assert len(errors) == 1
    assert await service.list_versions(**HERE) == []
    assert await text_of(service, session_id="t") == "t"


async def test_what_is_discarded_leaves_its_number_used(store: Store) -> None:
    """Discarded versions are gone, no event shows them any more, and visible ones stay."""
    service = store.artifacts
    await save(service, "a")
    await save(service, "b", staged=True)
    await service._discard(KEY, {0, 1, 99})
    await service._discard(USERS, {0})
    assert await service._find(KEY, 1, staged={1}) is None
    await store.append(a_txt=1)
    assert await service.list_versions(**HERE) == [0]
    assert await save(service, "c") == 2
    assert await service.gc() == Collected(contents=1, size=1)


async def test_a_restored_version_can_be_staged(store: Store) -> None:
    """A rewind's versions, hidden ones included, take effect with its event."""
    service = store.artifacts
    await save(service, "a")
    await save(service, "b")
    assert await service._restore(KEY, 0, staged=True) == 2
    assert await text_of(service) == "b"
    await store.append(a_txt=2)
    assert await text_of(service) == "a"
    assert await service._restore(KEY, None, staged=True) == 3
    assert await service._find(KEY, None, staged={3}) is None
    assert await text_of(service) == "a"
    await store.append(a_txt=3)
    assert await text_of(service) is None
    assert await service.list_artifact_keys(**SESSION) == []
    assert await service.list_versions(**HERE) == [0, 1, 2]


async def test_an_import_shows_nothing(store: Store) -> None:
    """Events that are imported name versions of another store; what is staged here stays so."""
    events = [*await store.sessions.read_events(**SESSION)]
    await store.append(a_txt=0)
    events = await store.sessions.read_events(**SESSION)
    key = ArtifactKey("app", "u", "new", "a.txt")
    await save(store.artifacts, "a", staged=True, key=key)
    await store.sessions.import_session(app_name="app", user_id="u", session_id="new", events=events)
    assert await store.artifacts.list_versions(**(HERE | {"session_id": "new"})) == []


async def test_deleting_leaves_what_a_run_is_about_to_show(store: Store) -> None:
    """Deleting an artifact takes what is visible; what is staged is shown by its event after that."""
    service = store.artifacts
    await save(service, "a")
    await save(service, "b", staged=True)
    await service.delete_artifact(**HERE)
    await service.delete_session_artifacts(**SESSION)
    await store.append(a_txt=1)
    assert await service.list_versions(**HERE) == [1]


# --- commits that find no room ----------------------------------------------------------------------------------------


async def test_a_chunk_that_finds_no_room_is_not_stored(store: Store) -> None:
    """COMMIT of a chunk on a full disk was rolled back, and says so; the next save goes on, in the same file."""
    await save(store.artifacts, "a")
    generation = store.sessions._file.generation
    faults = {"COMMIT": failing(sqlite3.SQLITE_FULL)}
    inject(store.sessions, faults)
    with pytest.raises(StorageFullError, match="COMMIT failed: planted; make room on the disk"):
        await save_large(store.artifacts)
    faults.clear()
    assert store.sessions._file.generation == generation
    assert await store.artifacts.list_versions(**HERE) == [0]
    assert await save_large(store.artifacts) == 1
    assert await read(store.artifacts) == LARGE


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
async def test_what_waits_for_the_disk_stays_uncertain(code: int, store: Store) -> None:
    """COMMIT of a version, and of what shares it, leaves open whether it happened, and says where to look."""
    await save(store.artifacts, "a")
    inject(store.sessions, {"COMMIT": failing(code)})
    with pytest.raises(StorageUncertainError, match="for an artifact list its versions"):
        await save(store.artifacts, "b")
    assert await save(store.artifacts, "c") == 1
    inject(store.sessions, {"COMMIT": failing(code)})
    outcomes: list[type] = []

    async def write(durable: bool) -> None:
        try:
            await store.sessions._file.write(lambda transaction: None, durable=durable)
        except StorageError as error:
            outcomes.append(type(error))

    async with trio.open_nursery() as nursery:
        for durable in (False, True, False):
            nursery.start_soon(write, durable)
    assert outcomes == [StorageUncertainError] * 3


# --- sessions that go, and sessions that fork -------------------------------------------------------------------------


async def test_a_session_takes_its_artifacts_along(store: Store) -> None:
    """Deleting a session deletes its artifacts, staged ones too, and none of the user's; numbers stay used."""
    service, sessions = store.artifacts, store.sessions
    await save(service, "a")
    await save(service, "b", staged=True)
    await save(service, "u", key=USERS)
    other = ArtifactKey("app", "u", "t", "a.txt")
    await save(service, "t", key=other)
    await sessions.delete_session(**SESSION)
    assert await service.list_artifact_keys(**SESSION) == ["user:a"]
    assert await service._find(KEY, 1, staged={1}) is None
    store.session = await sessions.create_session(**SESSION)
    await store.append(a_txt=1)
    assert await service.list_versions(**HERE) == []
    assert await save(service, "new") == 2
    assert await text_of(service, session_id="t") == "t"
    assert await service.gc() == Collected(contents=2, size=2)
    assert verify(store.path) == []


async def test_a_fork_begins_with_the_artifacts_of_its_past(store: Store) -> None:
    """A fork has, with their numbers, the versions that its events have shown and those saved directly; no bytes."""
    service, sessions = store.artifacts, store.sessions
    await save(service, "0", staged=True)
    await store.append(a_txt=0)
    await save(service, "1", staged=True)
    await store.append(a_txt=1)
    await save(service, "2")
    await save(service, "3", staged=True)
    before = count(store.path, "contents")
    await sessions.fork_session(**SESSION, at_seq=1, new_session_id="past")
    await sessions.fork_session(**SESSION, new_session_id="now")
    assert count(store.path, "contents") == before
    assert await service.list_versions(**(HERE | {"session_id": "past"})) == [0, 2]
    assert await service.list_versions(**(HERE | {"session_id": "now"})) == [0, 1, 2]
    assert await text_of(service, 0, session_id="past") == "0"
    await sessions.delete_session(**SESSION)
    await service.gc()
    assert await text_of(service, 1, session_id="now") == "1"
    again = await sessions.fork_session(app_name="app", user_id="u", session_id="now", at_seq=1, new_session_id="third")
    assert again.revision == 1
    assert await service.list_versions(**(HERE | {"session_id": "third"})) == [0, 2]
    assert verify(store.path) == []


async def test_a_fork_writes_over_no_number(store: Store) -> None:
    """An id under which there are artifacts of the same names is refused, and no fork is made."""
    await save(store.artifacts, "a")
    await save(store.artifacts, "b", key=ArtifactKey("app", "u", "old", "a.txt"))
    with pytest.raises(AlreadyExistsError, match="another id"):
        await store.sessions.fork_session(**SESSION, new_session_id="old")
    assert await store.sessions.get_session(app_name="app", user_id="u", session_id="old") is None


async def test_a_fork_may_have_the_id_of_a_deleted_session(store: Store) -> None:
    """It begins with the artifacts of its own past, and the numbers of the deleted session stay used."""
    await save(store.artifacts, "a")
    await store.append(a_txt=0)
    old: Where = {"app_name": "app", "user_id": "u", "session_id": "old"}
    await store.sessions.create_session(**old)
    for text in "bcd":
        await save(store.artifacts, text, key=ArtifactKey("app", "u", "old", "a.txt"))
    await store.sessions.delete_session(**old)
    await store.sessions.fork_session(**SESSION, new_session_id="old")
    assert await store.artifacts.list_versions(**(HERE | {"session_id": "old"})) == [0]
    assert await text_of(store.artifacts, **old) == "a"
    assert await save(store.artifacts, "e", key=ArtifactKey("app", "u", "old", "a.txt")) == 3
    assert verify(store.path) == []


async def test_a_copy_has_no_events(store: Store) -> None:
    """What is copied into a session belongs to none of its events, whatever event it had where it comes from."""
    await save(store.artifacts, "a", staged=True)
    await store.append(a_txt=0)
    await store.sessions.create_session(app_name="app", user_id="u", session_id="t")
    await store.artifacts.copy_session_artifacts(**SESSION, new_session_id="t")
    assert await text_of(store.artifacts, session_id="t") == "a"
    assert verify(store.path) == []


@pytest.mark.parametrize("at_seq", [None, 1])
async def test_what_an_event_names_is_never_other_content(at_seq: int | None, store: Store) -> None:
    """In a fork and in an import, saves have numbers above those that the past names, also of what was deleted."""
    for text in "abc":
        await save(store.artifacts, text, staged=True)
    await store.append(a_txt=2)
    await store.append()
    await store.artifacts.delete_artifact(**HERE)
    await store.sessions.fork_session(**SESSION, at_seq=at_seq, new_session_id="fork")
    events = await store.sessions.read_events(**SESSION)
    named = {"a.txt": 2**60, "user:a": 7}
    more = Event(author="a", id="more", actions=EventActions(artifact_delta=named))
    session = await store.sessions.get_session(**SESSION)
    assert session is not None
    await store.sessions.append_event(session, more)
    events = await store.sessions.read_events(**SESSION)
    await store.sessions.import_session(app_name="app", user_id="u", session_id="import", events=events)
    for other in ("fork", "import"):
        assert await save(store.artifacts, other, key=ArtifactKey("app", "u", other, "a.txt")) == 3
    assert await save(store.artifacts, "of the user", key=USERS) == 8
    assert verify(store.path) == []


# --- contents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1])
async def test_content_of_any_size_comes_back(size: int, tmp_path: Path) -> None:
    """Content at and around the size of a chunk is stored in as few chunks as it fills, and read back the same."""
    data = (b"0123456789" * (size // 10 + 1))[:size]
    async with SqliteArtifactService(tmp_path / "a.db", durability="process") as service:
        await save_large(service, data)
        assert await read(service) == data
        part = await service.load_artifact(**HERE)
        assert part == Part(inline_data=Blob(data=data, mime_type="application/octet-stream"))
    assert count(tmp_path / "a.db", "chunks") == -(-size // CHUNK)
    assert count(tmp_path / "a.db", "content_uses") == 0
    assert verify(tmp_path / "a.db") == []


@pytest.mark.parametrize("data", [b"small", LARGE])
async def test_equal_content_is_stored_once(data: bytes, tmp_path: Path) -> None:
    """Equal content of any versions, names and users is there once, and goes with the last of them."""
    path = tmp_path / "a.db"
    async with SqliteArtifactService(path, durability="process") as service:
        for where in ({}, {}, {"filename": "b"}, {"session_id": "t"}, {"user_id": "v"}, {"filename": "user:a"}):
            await save_large(service, data, **where)
        assert count(path, "contents") == 1
        assert count(path, "chunks") == -(-len(data) // CHUNK)
        for where in ({}, {"filename": "b"}, {"session_id": "t"}, {"filename": "user:a"}):
            await service.delete_artifact(**(HERE | where))
        assert await service.gc() == Collected(contents=0, size=0)
        await service.delete_artifact(**(HERE | {"user_id": "v"}))
        assert await service.gc() == Collected(contents=1, size=len(data))
    assert count(path, "contents") == count(path, "chunks") == 0


async def test_what_an_earlier_collection_has_begun_is_counted_by_the_one_that_deletes_it(tmp_path: Path) -> None:
    """A content that has lost its hash already, and some of its chunks, counts with the bytes that are there."""
    path = tmp_path / "a.db"
    async with SqliteArtifactService(path, durability="process") as service:
        await save_large(service, LARGE)
        await service.delete_artifact(**HERE)
        sql(path, "UPDATE contents SET sha256 = NULL")
        sql(path, "DELETE FROM chunks WHERE rowid = (SELECT min(rowid) FROM chunks)")
        [[left]] = sql(path, "SELECT sum(length(data)) FROM chunks")
        assert await service.gc() == Collected(contents=1, size=left)
    assert count(path, "contents") == count(path, "chunks") == 0


async def test_a_save_that_fails_leaves_no_row_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks that were written are deleted in steps, and the content with them."""
    monkeypatch.setattr(_sqlite, "DROPPED_CHUNKS", 2)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * (5 * CHUNK + 1)
        raise OSError("the source is gone")

    async with SqliteArtifactService(tmp_path / "a.db", durability="process") as service:
        with pytest.raises(OSError, match="gone"):
            await service.save_artifact_stream(**HERE, chunks=chunks())
    assert [count(tmp_path / "a.db", table) for table in ("contents", "chunks", "content_uses")] == [0, 0, 0]


@pytest.mark.parametrize("megabytes", [14, pytest.param(1024, marks=pytest.mark.slow)])
async def test_large_content_does_not_pass_through_memory(megabytes: int, tmp_path: Path) -> None:
    """Writing, writing again and reading hold a few chunks in memory, however large the whole is."""
    chunk = bytes(range(256)) * 4096

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(megabytes):
            yield chunk

    async with SqliteArtifactService(tmp_path / "a.db", durability="process") as service:
        await save(service, "warm")
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(2):
                async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
                    await service.save_artifact_stream(**HERE, chunks=given)
            size = 0
            async with service.open_artifact(**HERE) as reader:
                assert reader is not None
                async for data in reader:
                    size += len(data)
            await service.delete_artifact(**HERE)
            assert await service.gc() == Collected(contents=2, size=size + 4)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    print(f"peak of {megabytes} MB: {peak / 1e6:.1f} MB")
    assert size == megabytes * len(chunk)
    assert peak < 8e6


async def test_others_take_turns_while_large_content_is_written(tmp_path: Path) -> None:
    """Between two chunks of a stream other tasks store their events: no transaction writes more than one chunk."""
    async with Store(tmp_path / "a.db") as store:
        lengths: list[int] = []
        real = store.sessions._file.write

        async def write(work: Callable[..., Any], **options: Any) -> Any:
            def counted(transaction: Any) -> Any:
                before = transaction.db.execute("SELECT coalesce(sum(length(data)), 0) FROM chunks").fetchone()[0]
                result = work(transaction)
                after = transaction.db.execute("SELECT coalesce(sum(length(data)), 0) FROM chunks").fetchone()[0]
                lengths.append(abs(after - before))
                return result

            return await real(counted, **options)

        store.sessions._file.write = write  # type: ignore[method-assign]  # counts, and does the same
        stored = []

        async def chunks() -> AsyncIterator[bytes]:
            for number in range(8):
                yield bytes([number]) * CHUNK
                stored.append(await store.append())

        async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
            await store.artifacts.save_artifact_stream(**HERE, chunks=given)
        assert [event.seq for event in stored] == list(range(1, 9))
        assert max(lengths) == CHUNK


# --- collecting, and other processes ----------------------------------------------------------------------------------


async def test_a_collection_spares_what_is_on_its_way(store: Store) -> None:
    """What another service of the file is writing, reading or staging is not collected."""
    other_sessions = SqliteSessionService(store.path, durability="process")
    other = SqliteArtifactService(other_sessions)
    await save_large(store.artifacts)
    await save(store.artifacts, "staged", staged=True, key=USERS)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * CHUNK
        assert await other.gc() == Collected(contents=0, size=0)
        yield b"y" * CHUNK

    async with store.artifacts.open_artifact(**HERE) as reader:
        assert reader is not None
        data = await anext(reader)
        await store.artifacts.delete_artifact(**HERE)
        async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
            await store.artifacts.save_artifact_stream(**HERE, chunks=given)
        assert await other.gc() == Collected(contents=0, size=0)
        data += b"".join([chunk async for chunk in reader])
    assert data == LARGE
    assert await other.gc() == Collected(contents=1, size=len(LARGE))
    await store.append(user_a=0)
    assert await text_of(other, filename="user:a") == "staged"
    await other_sessions.aclose()


WRITER = """
import sys, trio
from minirun.artifacts import *
from minirun.artifacts._values import described
from minirun.sessions import SqliteSessionService
key = ArtifactKey("app", "u", "s", "a.txt")
async def chunks():
    for number in range(3):
        yield bytes([number]) * 256 * 1024
    print("written", flush=True)
    await trio.sleep_forever()
async def main(path):
    service = SqliteArtifactService(SqliteSessionService(path))
    await service._save_chunks(key, [b"staged"], described("a/b", {}, None), staged=True)
    async with service.open_artifact(app_name="app", user_id="u", session_id="s", filename="read") as reader:
        await anext(reader)
        where = dict(app_name="app", user_id="u", session_id="s", filename="a.txt")
        await service.save_artifact_stream(**where, chunks=chunks())
trio.run(main, sys.argv[1])
"""


def test_what_a_killed_process_left_is_collected(tmp_path: Path) -> None:
    """While a process lives, others collect nothing it stages, writes or reads; once it was killed, all of it."""
    path = tmp_path / "a.db"

    async def alone(body: Callable[[SqliteArtifactService], Any]) -> Any:
        async with SqliteArtifactService(path, durability="process") as service:
            return await body(service)

    async def prepare(service: SqliteArtifactService) -> None:
        await save_large(service, filename="read")

    async def collect(service: SqliteArtifactService) -> Collected:
        await service.delete_artifact(**(HERE | {"filename": "read"}))
        return await service.gc()

    trio.run(alone, prepare)
    with start(program(WRITER, path)) as process:
        assert process.stdout.readline() == "written\n"
        assert trio.run(alone, collect) == Collected(contents=0, size=0)
        assert count(path, "contents") == 3
        assert count(path, "artifact_versions") == 1
        process.kill()
    assert trio.run(alone, collect) == Collected(contents=3, size=len(LARGE) + 6 + 2 * CHUNK)
    for table in ("contents", "chunks", "content_uses", "artifact_versions"):
        assert count(path, table) == 0
    assert verify(path) == []
    assert trio.run(alone, lambda service: save(service, "next")) == 1


SAVER = """
import sys, trio
from minirun.artifacts import SqliteArtifactService
from minirun.types import Part
async def main(path, name):
    async with SqliteArtifactService(path) as service:
        where = dict(app_name="app", user_id="u", session_id="s", filename="a.txt")
        for number in range(15):
            text = f"{name} {number} " + "." * (600_000 if number % 5 == 0 else 0)
            print(await service.save_artifact(**where, artifact=Part(text=text)), text[:20].strip("."), sep=":")
            if number % 4 == 3:
                await service.gc()
trio.run(main, *sys.argv[1:])
"""


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    """Two processes that save one name and collect at once get each number once, and nothing is lost."""
    path = tmp_path / "a.db"
    processes = [start(program(SAVER, path, name)) for name in ("one", "two")]
    answers: dict[int, str] = {}
    for process in processes:
        out, _ = process.communicate()
        assert process.returncode == 0
        answers.update((int(number), text) for number, text in (line.split(":") for line in out.splitlines()))
    assert sorted(answers) == list(range(30))

    async def check() -> None:
        async with SqliteArtifactService(path) as service:
            for number in await service.list_versions(**HERE):
                text = await text_of(service, number)
                assert text is not None
                assert text[:20].strip(".") == answers.pop(number)

    trio.run(check)
    assert answers == {}
    assert verify(path) == []


# --- damage -----------------------------------------------------------------------------------------------------------


def spoil(path: Path, statement: str) -> None:
    sql(path, statement)


@pytest.mark.parametrize("data", [b"small", LARGE])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chunks SET data = zeroblob(length(data)) WHERE number = 0",
        "DELETE FROM chunks WHERE number = (SELECT max(number) FROM chunks)",
        "UPDATE chunks SET data = data || 'x' WHERE number = 0",
    ],
)
async def test_damaged_content_is_told_and_healed(statement: str, data: bytes, tmp_path: Path) -> None:
    """Content that is not what was saved is damage and no answer; verify finds it, and saving it again heals it."""
    path = tmp_path / "a.db"
    async with SqliteArtifactService(path, durability="process") as service:
        await save_large(service, data)
        spoil(path, statement)
        for act in (service.load_artifact(**HERE), read(service)):
            with pytest.raises(StorageCorruptError, match="damaged"):
                await act
        assert [damage.problem.partition(":")[0] for damage in verify(path)] == ["content 1 of artifacts"]
        await save_large(service, data, filename="again")
        assert await read(service) == data
        await service.gc()
        assert await read(service) == data
    assert verify(path) == []


async def test_a_version_without_its_content_is_told(tmp_path: Path) -> None:
    """A content that is not there is damage; gc then deletes nothing, because nobody knows what is named."""
    path = tmp_path / "a.db"
    async with SqliteArtifactService(path, durability="process") as service:
        await save(service, "a")
        await save(service, "b")
        await save(service, "c", key=USERS)
        await service.delete_artifact(**(HERE | {"filename": "user:a"}))
        spoil(path, "UPDATE artifact_versions SET sha256 = replace(sha256, 'a', 'b') WHERE version = 0")
        with pytest.raises(StorageCorruptError, match="is not there"):
            await text_of(service, 0)
        with pytest.raises(StorageCorruptError, match="is not there"):
            await service.gc()
        assert count(path, "contents") == 3
    assert len(verify(path)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE artifact_versions SET about = '{'",
        "UPDATE artifact_versions SET about = '{}'",
        "UPDATE artifact_versions SET about = x'00'",
        "UPDATE artifact_versions SET size = 'x'",
        "UPDATE artifact_versions SET create_time = 'x'",
        "UPDATE artifact_versions SET sha256 = x'00'",
        "UPDATE artifact_versions SET version = 'x'",
        "UPDATE artifacts SET next_version = -1",
        "UPDATE chunks SET data = 'text'",
    ],
)
async def test_a_row_that_makes_no_sense_is_damage(statement: str, tmp_path: Path) -> None:
    """A value that was never written is StorageCorruptError for who reads it, and is found by verify."""
    path = tmp_path / "a.db"
    async with SqliteArtifactService(path, durability="process") as service:
        await save(service, "a")
        spoil(path, statement)
        with pytest.raises(StorageCorruptError):
            await text_of(service)
    assert verify(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE artifact_versions SET seq = 9",
        "UPDATE artifact_versions SET seq = 0, stager = 'x'",
        "UPDATE artifacts SET next_version = 0",
        "UPDATE contents SET size = 9",
        "DELETE FROM artifacts",
        "DELETE FROM contents",
    ],
)
async def test_verify_finds_what_does_not_agree(statement: str, tmp_path: Path) -> None:
    """Rows that contradict each other are found, where nobody who reads one of them could tell."""
    async with Store(tmp_path / "a.db") as store:
        await save(store.artifacts, "a", staged=True)
        await store.append(a_txt=0)
    assert verify(tmp_path / "a.db") == []
    spoil(tmp_path / "a.db", statement)
    assert verify(tmp_path / "a.db")


# --- cost -------------------------------------------------------------------------------------------------------------


class Planner:
    """A connection that asks SQLite how it goes about each statement."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.plans: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT"):
            for row in self._connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters):
                self.plans.append((statement, row[3]))
        return self._connection.execute(statement, parameters)


async def test_no_operation_goes_through_a_table(store: Store) -> None:
    """Saving, loading, showing, restoring, listing and deleting find their rows by index, whatever else is there."""
    service = store.artifacts
    await save_large(service)
    connection = store.sessions._file._connection
    assert connection is not None
    planner = Planner(connection)
    store.sessions._file._connection = planner  # type: ignore[assignment]  # behaves as one
    await save(service, "a")
    await save(service, "b", staged=True)
    await store.append(a_txt=2)
    await service._find(KEY, None, staged={2, 3})
    await text_of(service, 1)
    await save_large(service)
    await save_large(service, LARGE[1:])
    await read(service)
    await service._restore(KEY, 0)
    await service.list_versions(**HERE)
    await service.list_artifact_keys(**SESSION)
    await service._discard(KEY, {7})
    await store.sessions.fork_session(**SESSION, new_session_id="fork")
    await service.delete_artifact(**HERE)
    await store.sessions.delete_session(**SESSION)
    store.sessions._file._connection = connection
    tables = ("artifact", "contents", "chunks", "content_uses")
    scans = {
        statement
        for statement, plan in planner.plans
        if plan.startswith("SCAN") and any(name in statement for name in tables)
    }
    assert {scan for scan in scans if "SCAN CONSTANT" not in scan} == set()
    assert len(planner.plans) > 40


async def test_reading_one_of_many_reads_few_pages(tmp_path: Path) -> None:
    """With 3 000 versions of a name the newest is loaded, and followed by another, as with 3."""

    async def steps(versions: int) -> int:
        async with SqliteArtifactService(tmp_path / f"{versions}.db", durability="process") as service:
            await save(service, "a")
            connection = service._file._connection
            assert connection is not None
            connection.execute(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO"
                " artifact_versions SELECT artifact, i, sha256, size, create_time, about, NULL, NULL"
                " FROM n, artifact_versions",
                (versions,),
            )
            connection.execute("UPDATE artifacts SET next_version = ?", (versions + 1,))
            ticks: list[None] = []
            connection.set_progress_handler(lambda: ticks.append(None), 1)
            assert await text_of(service) == "a"
            assert await save(service, "b") == versions + 1
            assert await text_of(service) == "b"
            connection.set_progress_handler(None, 0)
            return len(ticks)

    few, many = await steps(3), await steps(3_000)
    print(f"virtual machine steps: {few} with 3 versions, {many} with 3 000")
    assert many <= few + 20
