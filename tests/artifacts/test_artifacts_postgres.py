"""
Artifacts in the database of the sessions: what the SQLite ones do by one transaction at a time, with many workers.

The contract of all services is in test_artifacts.py; here are the transactions of events, forks and deletions, several
workers at once, and those that are gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from minirun import Env, Event, EventActions
from minirun.artifacts import ArtifactKey, Collected, DatabaseArtifactService, _database
from minirun.errors import (
    AlreadyExistsError,
    ConfigurationError,
    InvalidValueError,
    ServiceClosedError,
    StaleSessionError,
    StorageCorruptError,
    StorageError,
    StorageRolledBackError,
)
from minirun.sessions import DatabaseSessionService, InMemorySessionService
from minirun.types import Part

from ..postgres import new_database, shared_server
from ..postgres_sessions import name_of, sql

SESSION: dict[str, Any] = {"app_name": "app", "user_id": "u", "session_id": "s"}
HERE: dict[str, Any] = {**SESSION, "filename": "a.txt"}
KEY = ArtifactKey("app", "u", "s", "a.txt")
USERS = ArtifactKey("app", "u", None, "user:a")
LARGE = 3 * _database.CHUNK_BYTES + 5
PIECE = bytes(range(256)) * 1024


class Worker:
    """Sessions and artifacts of one worker, with a session."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sessions = DatabaseSessionService(url)
        self.artifacts = DatabaseArtifactService(self.sessions)

    async def append(self, **delta: int) -> Event:
        session = await self.sessions.get_session(**SESSION)
        assert session is not None
        names = {name.replace("user_", "user:").replace("_txt", ".txt"): number for name, number in delta.items()}
        event = Event(author="a", actions=EventActions(artifact_delta=names))
        return await self.sessions.append_event(session, event)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    one = Worker(new_database())
    await one.sessions.create_session(**SESSION)
    yield one
    await one.sessions.aclose()


@pytest.fixture
async def other(worker: Worker) -> AsyncIterator[Worker]:
    """Another worker on the same database."""
    another = Worker(worker.url)
    yield another
    await another.sessions.aclose()


async def save(service: DatabaseArtifactService, text: str, *, staged: bool = False, key: ArtifactKey = KEY) -> int:
    """Save a text as a version, perhaps a staged one."""
    return await save_bytes(service, text.encode(), staged=staged, key=key)


async def save_bytes(
    service: DatabaseArtifactService, data: bytes, *, staged: bool = False, key: ArtifactKey = KEY
) -> int:
    from minirun.artifacts._values import described

    pieces = [data[at : at + len(PIECE)] for at in range(0, len(data), len(PIECE))] or [b""]
    return await service._save_chunks(key, pieces, described("text/plain", {"text": ""}, None), staged=staged)


async def text_of(service: DatabaseArtifactService, version: int | None = None, **where: Any) -> str | None:
    async with service.open_artifact(**(HERE | where), version=version) as reader:
        return None if reader is None else b"".join([chunk async for chunk in reader]).decode("latin-1")


def count(url: str, table: str) -> int:
    [[found]] = sql(url, f"SELECT count(*) FROM minirun.{table}")
    assert found is not None
    return int(found)


# --- one database for both


async def test_a_guest_leaves_the_database_open(worker: Worker) -> None:
    """A service that shares a session service closes nothing of it, and knows when that was closed."""
    async with DatabaseArtifactService(worker.sessions) as guest:
        await save(guest, "a")
    with pytest.raises(ServiceClosedError):
        await text_of(guest)
    assert await text_of(worker.artifacts) == "a"
    await worker.sessions.aclose()
    with pytest.raises(ServiceClosedError, match="session service"):
        await text_of(worker.artifacts)


def test_a_guest_has_no_settings_of_its_own() -> None:
    """An Env beside a session service is refused, and so is a URL that is none."""
    sessions = DatabaseSessionService("postgresql://h/db")
    assert DatabaseArtifactService(sessions).env is sessions.env
    assert DatabaseArtifactService(sessions)._shares(sessions)
    assert not DatabaseArtifactService(sessions)._shares(InMemorySessionService())
    assert not DatabaseArtifactService("postgresql://h/db")._shares(sessions)
    with pytest.raises(ConfigurationError, match="session service"):
        DatabaseArtifactService(sessions, env=Env())
    with pytest.raises(ConfigurationError, match="postgresql://"):
        DatabaseArtifactService("chat.db")


async def test_a_name_that_the_index_has_no_room_for_is_refused(worker: Worker) -> None:
    """An id of more than 512 bytes is refused before anything is stored; a file name may have its 1 024 characters."""
    long = ArtifactKey("app", "u", "s", "ä" * 1000)
    assert await save(worker.artifacts, "a", key=long) == 0
    assert await worker.artifacts.list_artifact_keys(**SESSION) == ["ä" * 1000]
    for key in (ArtifactKey("ä" * 257, "u", "s", "a"), ArtifactKey("app", "u", "s" * 513, "a")):
        with pytest.raises(InvalidValueError, match="at most 512 bytes"):
            await save(worker.artifacts, "a", key=key)


# --- staged versions


async def test_an_event_makes_what_it_names_visible(worker: Worker, other: Worker) -> None:
    """Exactly the versions that a stored event names become visible, for all; who knows a number sees it before."""
    for text in "abc":
        await save(worker.artifacts, text, staged=True)
    await save(worker.artifacts, "u", staged=True, key=USERS)
    assert await other.artifacts.list_versions(**HERE) == []
    found = await worker.artifacts._find(KEY, None, staged=(0, 2))
    assert found is not None
    assert found.version.version == 2
    await worker.append(a_txt=1, user_a=0, b_txt=7)
    assert await other.artifacts.list_versions(**HERE) == [1]
    assert await text_of(other.artifacts, filename="user:a", session_id=None) == "u"
    await worker.artifacts._discard(KEY, [1, 2])
    await worker.append(a_txt=0)
    assert await other.artifacts.list_versions(**HERE) == [0, 1]
    assert await text_of(other.artifacts) == "b"


async def test_an_event_that_is_refused_makes_nothing_visible(worker: Worker, other: Worker) -> None:
    """The versions that a stale append names stay staged, and are dropped by who staged them."""
    await save(worker.artifacts, "a", staged=True)
    session = await other.sessions.get_session(**SESSION)
    assert session is not None
    await worker.append()
    with pytest.raises(StaleSessionError):
        await other.sessions.append_event(session, Event(author="a", actions=EventActions(artifact_delta={"a.txt": 0})))
    assert await worker.artifacts.list_versions(**HERE) == []
    await worker.artifacts._discard(KEY, [0])
    assert await save(worker.artifacts, "b") == 1


async def test_a_session_that_is_deleted_takes_its_artifacts_with_it(worker: Worker) -> None:
    """Staged or not; those of the user stay, and numbers stay used."""
    await save(worker.artifacts, "a")
    await save(worker.artifacts, "b", staged=True)
    await save(worker.artifacts, "u", key=USERS)
    await worker.sessions.delete_session(**SESSION)
    assert count(worker.url, "artifact_versions") == 1
    assert await text_of(worker.artifacts, filename="user:a", session_id=None) == "u"
    await worker.sessions.create_session(**SESSION)
    assert await save(worker.artifacts, "c") == 2


async def test_a_fork_begins_with_the_artifacts_of_its_past(worker: Worker) -> None:
    """A fork at an earlier event has what was visible then; numbers that were used in the past are not used again."""
    await save(worker.artifacts, "a", staged=True)
    event = await worker.append(a_txt=0)
    await save(worker.artifacts, "b", staged=True)
    await worker.append(a_txt=1)
    await worker.sessions.fork_session(**SESSION, at_seq=event.seq, new_session_id="early")
    await worker.sessions.fork_session(**SESSION, new_session_id="late")
    for session_id, versions, newest in (("early", [0], "a"), ("late", [0, 1], "b")):
        assert await worker.artifacts.list_versions(**(HERE | {"session_id": session_id})) == versions
        assert await text_of(worker.artifacts, session_id=session_id) == newest
        assert await save(worker.artifacts, "c", key=ArtifactKey("app", "u", session_id, "a.txt")) == 2


async def test_a_fork_is_refused_where_somebody_has_saved_already(worker: Worker) -> None:
    """Nothing is written under numbers that name something else, and no session is made."""
    await save(worker.artifacts, "a", staged=True)
    await worker.append(a_txt=0)
    await save(worker.artifacts, "mine", key=ArtifactKey("app", "u", "new", "a.txt"))
    with pytest.raises(AlreadyExistsError, match=r"no artifact 'a\.txt' in session 'new'"):
        await worker.sessions.fork_session(**SESSION, new_session_id="new")
    assert await worker.sessions.get_session(app_name="app", user_id="u", session_id="new") is None
    assert await text_of(worker.artifacts, session_id="new") == "mine"


# --- many workers


async def test_workers_that_save_at_once_get_different_numbers(worker: Worker, other: Worker) -> None:
    """Twenty saves by two workers are the versions 0 to 19, each with its own content."""
    saved: dict[int, str] = {}

    async def one(service: DatabaseArtifactService, text: str) -> None:
        saved[await save(service, text)] = text

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(one, worker.artifacts, f"w{number}")
            nursery.start_soon(one, other.artifacts, f"o{number}")
    assert sorted(saved) == list(range(20))
    assert {number: await text_of(worker.artifacts, number) for number in saved} == saved


async def test_equal_content_is_stored_once_also_if_it_comes_twice_at_once(worker: Worker, other: Worker) -> None:
    """Small or large, from two workers at the same moment: one content, and all versions read whole."""
    large = (PIECE * 13)[:LARGE]
    async with trio.open_nursery() as nursery:
        for service in (worker.artifacts, other.artifacts):
            nursery.start_soon(save, service, "small")
            nursery.start_soon(save_bytes, service, large)
    await worker.artifacts.gc()
    assert count(worker.url, "contents") == 2
    assert count(worker.url, "content_uses") == 0
    texts = [await text_of(other.artifacts, number) for number in range(4)]
    assert sorted(texts, key=str) == sorted(["small", "small", large.decode("latin-1"), large.decode("latin-1")])


async def test_a_collection_takes_nothing_that_somebody_is_about_to_name(worker: Worker, other: Worker) -> None:
    """Saves of content that nobody names at that moment, and collections, for a while: every version is readable."""
    stop = trio.Event()

    async def collect() -> None:
        while not stop.is_set():
            await other.artifacts.gc()

    async def saves() -> None:
        for _ in range(40):
            number = await save(worker.artifacts, "again")
            assert await text_of(worker.artifacts, number) == "again"
            await worker.artifacts.delete_artifact(**HERE)
        stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect)
        nursery.start_soon(saves)


async def test_what_a_living_worker_uses_is_not_collected(
    worker: Worker, other: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An upload that takes long, a reader of a large version that is deleted meanwhile, and staged versions stay, also
    when the time for those of dead workers is over; what a dead worker has left goes.
    """
    monkeypatch.setattr(_database, "GONE_S", -1.0)
    large = (PIECE * 13)[:LARGE]
    await save_bytes(worker.artifacts, large)
    await save(worker.artifacts, "staged", staged=True)
    async with worker.artifacts.open_artifact(**HERE, version=0) as reader:
        assert reader is not None
        first = await anext(reader)
        await other.artifacts.delete_artifact(**HERE)
        assert await other.artifacts.gc() == Collected(contents=0, size=0)
        assert first + b"".join([chunk async for chunk in reader]) == large
    assert await other.artifacts.gc() == Collected(contents=1, size=LARGE)
    assert count(worker.url, "artifact_versions") == 1
    await worker.sessions.aclose()
    with trio.fail_after(60):
        while count(worker.url, "artifact_versions"):  # the server sees the end of a connection late
            await other.artifacts.gc()
            await trio.sleep(0.05)
    assert count(worker.url, "contents") == 0


async def test_what_an_earlier_collection_has_begun_is_counted_by_the_one_that_deletes_it(worker: Worker) -> None:
    """A content that has lost its hash already, and some of its chunks, counts with the bytes that are there."""
    await save_bytes(worker.artifacts, (PIECE * 13)[:LARGE])
    await worker.artifacts.delete_artifact(**HERE)
    sql(worker.url, "UPDATE minirun.contents SET sha256 = NULL")
    [(first,)] = sql(worker.url, "DELETE FROM minirun.chunks WHERE number = 0 RETURNING length(data)")
    assert await worker.artifacts.gc() == Collected(contents=1, size=LARGE - int(first or 0))
    assert [count(worker.url, table) for table in ("contents", "chunks")] == [0, 0]


async def test_an_upload_that_was_taken_for_dead_is_refused(worker: Worker, other: Worker) -> None:
    """Its use was ended, so nothing of it may be named: the save says so, and no version is there."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(14):
            if number == 13:
                sql(worker.url, "DELETE FROM minirun.content_uses")
                await other.artifacts.gc()
            yield PIECE

    with pytest.raises(StorageRolledBackError, match="save it again"):
        await worker.artifacts.save_artifact_stream(**HERE, chunks=pieces())
    assert await worker.artifacts.list_versions(**HERE) == []
    assert await save(worker.artifacts, "a") >= 0


async def test_an_upload_whose_connection_ends_leaves_nothing_that_has_a_name(worker: Worker) -> None:
    """Chunks that are there already are collected later."""
    database = name_of(worker.url)
    ending = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{database}'"

    async def pieces() -> AsyncIterator[bytes]:
        yield PIECE * 4
        yield PIECE * 4
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="gone"):
        await worker.artifacts.save_artifact_stream(**HERE, chunks=pieces())
    shared_server().execute(ending)
    assert await save(worker.artifacts, "a") == 0
    await worker.artifacts.gc()
    assert [count(worker.url, table) for table in ("contents", "chunks", "content_uses")] == [1, 1, 0]


async def test_content_that_somebody_has_changed_is_noticed(worker: Worker) -> None:
    """A read raises at the end, a missing content at once, and the next save of the same puts it right."""
    await save(worker.artifacts, "whole")
    sql(worker.url, "UPDATE minirun.chunks SET data = 'other'")
    with pytest.raises(StorageCorruptError, match="found 5 others"):
        await text_of(worker.artifacts)
    assert await save(worker.artifacts, "whole") == 1
    assert await text_of(worker.artifacts, 0) == "whole"
    sql(worker.url, "UPDATE minirun.contents SET sha256 = 'x'")
    for doing in (text_of(worker.artifacts), worker.artifacts.gc()):
        with pytest.raises(StorageCorruptError, match="not there"):
            await doing
    sql(worker.url, "UPDATE minirun.artifact_versions SET about = '[]'")
    with pytest.raises(StorageError, match="what is said of version"):
        await text_of(worker.artifacts)


async def test_a_part_is_loaded_as_it_was_saved(worker: Worker, other: Worker) -> None:
    """By another worker, with its metadata."""
    part = Part(text="Grüße\n")
    await worker.artifacts.save_artifact(**HERE, artifact=part, custom_metadata={"a": [1, None]})
    assert await other.artifacts.load_artifact(**HERE) == part
    version = await other.artifacts.get_artifact_version(**HERE)
    assert version is not None
    assert version.custom_metadata == {"a": [1, None]}
