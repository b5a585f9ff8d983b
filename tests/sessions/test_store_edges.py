"""
What a store does at its edges: where somebody else was faster, where it is left before it has begun, where the place of
its file is not what it was, and where a service does not have all that a store may have.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import Env, Event, EventActions, InMemorySessionService, SqliteSessionService
from minirun.errors import (
    InvocationEndedError,
    InvocationNotFoundError,
    NotSupportedError,
    SessionNotFoundError,
    StaleSessionError,
    StorageFormatError,
    StorageMissingError,
)
from minirun.events import Replay
from minirun.sessions import (
    BaseSessionService,
    GetSessionConfig,
    InvocationStatus,
    Session,
    SessionKey,
)
from minirun.sessions._live import LiveSession
from minirun.sessions._sqlite._dead_owners import is_owner, owner_is_gone, remove_dead_locks
from minirun.sessions._sqlite._owner_lock import OwnerLock, lock_path
from minirun.sessions._store import SessionStore

from ..stores import HERE, KEY, Elsewhere, Faulty, append, begin, enter, failing, get, services, texts
from .test_places import asks

KINDS = ("memory", "sqlite in memory", "sqlite without cache", "postgres")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[BaseSessionService]:
    async with services(folder)[kind]() as service:
        yield service


# --- left before it has begun -----------------------------------------------------------------------------------------

Use = Callable[[BaseSessionService, Session, list[Event]], Any]
OTHER: Any = {"app_name": "app", "user_id": "u", "session_id": "other"}
USES: dict[str, Use] = {
    "create": lambda service, session, history: service.create_session(**OTHER, state={"user:n": 2}),
    "import": lambda service, session, history: service.import_session(**OTHER, events=history),
    "fork": lambda service, session, history: service.fork_session(**HERE, new_session_id="other"),
    "append": lambda service, session, history: append(service, session, "late", user_n=2),
    "delete": lambda service, session, history: service.delete_session(**HERE),
    "get": lambda service, session, history: service.get_session(**HERE),
    "list": lambda service, session, history: service.list_sessions(app_name=None),
    "read": lambda service, session, history: service.read_events(**HERE),
    "state": lambda service, session, history: service.get_user_state(app_name="app", user_id="u"),
    "invocations": lambda service, session, history: service.list_invocations(),
    "questions": lambda service, session, history: service.list_pending(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", USES)
async def test_what_is_asked_in_a_scope_that_was_cancelled_is_not_done(use: str, kind: str, tmp_path: Path) -> None:
    """Every use of a service is a checkpoint before it does anything, however little it has to do."""
    async with opened(kind, tmp_path) as service:
        session = await service.create_session(**HERE, state={"user:n": 1})
        await append(service, session, "one")
        history = await service.read_events(**HERE)
        with trio.CancelScope() as scope:
            scope.cancel()
            await USES[use](service, session, history)
        assert scope.cancelled_caught
        found = await get(service)
        assert (texts(found), found.state) == (["one"], {"user:n": 1})
        assert len((await service.list_sessions(app_name=None)).sessions) == 1
        await append(service, session, "two")


# --- somebody else was faster -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_a_run_whose_session_is_deleted_by_somebody_else_stores_nothing_more(kind: str, tmp_path: Path) -> None:
    """As another process does it, which does not wait for this one: the run is told what has happened."""
    name = "sqlite without cache" if kind == "sqlite" else kind
    async with opened(name, tmp_path) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await service.remove_session(KEY)
        with pytest.raises(SessionNotFoundError) as caught:
            await begin(writer)
        assert str(caught.value) == "session 's' of user 'u' in app 'app' was deleted"
        await writer.finish(None)
        assert await service.get_session(**HERE) is None
        await service.remove_session(KEY)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_to_a_run_that_has_ended_is_refused_by_its_end(kind: str, tmp_path: Path) -> None:
    """Also if other runs have begun since; a run that never began is not there."""
    async with opened(kind, tmp_path) as service:
        await service.create_session(**HERE)
        for name, status in (("e-1", "completed"), ("e-2", "failed"), ("e-3", "paused")):
            writer = await enter(service, name)
            await begin(writer)
            await writer.append(asks(name, f"c-{name}"))
            await writer.finish(InvocationStatus(status))
        sent = EventActions(replay=Replay(sent="next_model_call"))
        for number, (name, status) in enumerate((("e-1", "completed"), ("e-2", "failed"))):
            message = Event(id=f"m-{number}", author="user", message="x", actions=sent, invocation_id=name)
            with pytest.raises(InvocationEndedError, match=rf"the invocation {name} of .* has ended \({status}\)"):
                await service.insert_message(KEY, message)
        with pytest.raises(InvocationNotFoundError, match="has no invocation 'e-4'; leave invocation_id out"):
            await service.insert_message(KEY, Event(id="m-4", author="user", actions=sent, invocation_id="e-4"))
        named = Event(id="m-3", author="user", message="x", actions=sent, invocation_id="e-3")
        await service.insert_message(KEY, named)
        await service.insert_message(KEY, Event(id="m-5", author="user", message="y", actions=sent))
        live = await service.load_session(KEY, None)
        assert live is not None
        waiting = await service.load_messages(live)
        assert [(each.id, each.invocation_id, each.seq) for each in waiting] == [
            ("m-3", "e-3", None),
            ("m-5", "e-3", None),
        ]
        with pytest.raises(SessionNotFoundError):
            await service.insert_message(SessionKey("app", "u", "t"), message)


class Slow(Elsewhere):
    """A service that somebody overtakes between its look at a session and its write."""

    meanwhile: Callable[[], Any] | None = None

    async def load_free_session(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> LiveSession | None:
        live = await super().load_free_session(key, config, reject=reject)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return live


async def test_an_append_that_is_overtaken_looks_again(tmp_path: Path) -> None:
    """It is told what any append to a session that went on is: stale, gone, or stored already, if it is a retry."""
    path = tmp_path / "s.db"
    async with Slow(path, cache_bytes=0) as slow, Elsewhere(path) as other:
        session = await slow.create_session(**HERE)
        await other.create_session(**OTHER)
        theirs = await get(other)
        slow._cache.clear()
        slow.meanwhile = lambda: append(other, theirs, "faster")
        with pytest.raises(StaleSessionError) as caught:
            await append(slow, session, "slower")
        assert str(caught.value) == (
            "session 's' of user 'u' in app 'app' has changed since it was read at revision 0: it is at revision 1; "
            "get_session again and append to what it returns"
        )
        session = await get(slow)
        slow._cache.clear()
        retried = Event(id="retried", author="a", message="once")
        slow.meanwhile = lambda: other.append_event(theirs, retried)
        stored = await slow.append_event(session, retried)
        assert (stored.seq, session.revision, texts(await get(other))) == (2, 2, ["faster", "once"])
        slow._cache.clear()
        slow.meanwhile = lambda: other.delete_session(**HERE)
        with pytest.raises(SessionNotFoundError):
            await append(slow, session, "too late")


@attrs.frozen(eq=False)
class Noting(Env):
    """The real world, which notes for what it was asked for ids."""

    asked: list[str] = attrs.field(factory=list)

    def new_id(self, path: str) -> str:
        self.asked.append(path)
        return super().new_id(path)


async def test_ids_are_asked_for_by_what_they_are_of() -> None:
    """So that a simulation can give each kind its own; what brings an id keeps it."""
    env = Noting()
    async with InMemorySessionService(env=env) as service:
        session = await service.create_session(app_name="app", user_id="u")
        assert env.asked == ["session", "event"]
        await append(service, session)
        await service.append_event(session, Event(id="mine", author="a", message="x"))
        fork = await service.fork_session(app_name="app", user_id="u", session_id=session.id)
        assert env.asked == ["session", "event", "event", "session"]
        assert [event.id for event in fork.events] == [event.id for event in session.events]
        assert session.events[1].id == "mine"


# --- what a store need not have ---------------------------------------------------------------------------------------


class Plain(InMemorySessionService):
    """A store with what every store has, and no more."""

    insert_message = SessionStore.insert_message
    load_messages = SessionStore.load_messages
    load_user_state = SessionStore.load_user_state
    record_end = SessionStore.record_end
    apps_with_session = SessionStore.apps_with_session
    load_unfinished_invocations = SessionStore.load_unfinished_invocations


async def test_a_store_says_what_it_does_not_have() -> None:
    """Messages and the state of users are told by the name of the store; ends are left to the end of the run."""
    async with Plain() as service:
        await service.create_session(**HERE, state={"user:n": 1})
        await service.create_session(app_name="app-2", user_id="u", session_id="t")
        message = Event(author="user", message="x", actions=EventActions(replay=Replay(sent="next_model_call")))
        with pytest.raises(NotSupportedError) as caught:
            await service.insert_message(KEY, message)
        assert str(caught.value) == "Plain keeps no messages for runs; implement `insert_message`"
        with pytest.raises(NotSupportedError) as caught:
            await service.get_user_state(app_name="app", user_id="u")
        expected = "Plain does not tell the state of users; read that of one of the user's sessions"
        assert str(caught.value) == expected
        writer = await enter(service)
        await begin(writer)
        assert await service.load_messages(writer.live) == []
        assert await service.record_end(writer, InvocationStatus.COMPLETED) is False
        assert [run.invocation_id for run in await service.load_unfinished_invocations(KEY, 0)] == ["e-1"]
        assert await service.load_unfinished_invocations(KEY, 1) == []
        await writer.finish(InvocationStatus.COMPLETED)
        assert await service.load_unfinished_invocations(KEY, 0) == []
        assert await service.apps_with_session("u", "s") == {"app"}
        assert await service.apps_with_session("v", "s") == await service.apps_with_session("u", "x") == set()


async def test_the_end_of_a_run_is_recorded_once_and_over_nothing_newer() -> None:
    """What a later writer has begun again stays as it is; so does what was deleted meanwhile."""
    async with InMemorySessionService() as service:
        await service.create_session(**HERE)
        first = await enter(service)
        await begin(first)
        assert await service.record_end(first, InvocationStatus.COMPLETED)
        assert await service.record_end(first, InvocationStatus.FAILED)
        assert [(run.status, run.end_seq) for run in await service.list_invocations()] == [("completed", 1)]
        await first.finish(None)
        with pytest.raises(InvocationNotFoundError):
            await service.list_node_runs("e-2")


# --- the place of a file ----------------------------------------------------------------------------------------------


class WithoutLog(sqlite3.Connection):
    """A connection to a file that cannot have a write-ahead log, as on a disk of a network."""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute("SELECT 'delete'" if statement.endswith("journal_mode=WAL") else statement, *parameters)


@attrs.frozen(eq=False)
class OnANetwork(Env):
    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(
            database, uri=uri, timeout=0, isolation_level=None, check_same_thread=False, factory=WithoutLog
        )


async def test_a_place_without_a_log_is_refused(tmp_path: Path) -> None:
    """A file could lose what was acknowledged; in memory there is nothing to lose."""
    path = tmp_path / "s.db"
    with pytest.raises(StorageFormatError) as caught:
        await SqliteSessionService(path, env=OnANetwork()).create_session(**HERE)
    expected = "SQLite cannot keep a write-ahead log here, as on a network's disk; use another place"
    assert str(caught.value) == f"{path}: {expected}"
    async with SqliteSessionService(":memory:", env=OnANetwork()) as service:
        await service.create_session(**HERE)


@pytest.mark.parametrize("how", ["while it is open", "after a failure"])
async def test_a_file_that_is_gone_is_missed(how: str, tmp_path: Path) -> None:
    """It is not made anew under its name: that would be an empty one."""
    path = tmp_path / "s.db"
    async with SqliteSessionService(path) as service:
        await service.create_session(**HERE)
        if how == "after a failure":
            service._file._disconnect()
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            file.unlink(missing_ok=True)
        told = {
            "while it is open": "was deleted or replaced while it was open",
            "after a failure": "was deleted while it was in use",
        }
        with pytest.raises(StorageMissingError) as caught:
            await get(service)
        assert str(caught.value) == f"{path}: the file {told[how]}; put it back, or use another name"
        with pytest.raises(StorageMissingError) as again:
            await get(service)
        assert str(again.value) == f"{path}: the file was deleted while it was in use; put it back, or use another name"
        assert not path.exists()


async def test_a_database_in_memory_ends_with_its_connection() -> None:
    """A new one would be empty; a rollback that fails does not end it."""
    service = SqliteSessionService(":memory:")
    await service.create_session(**HERE)
    connection = service._file._connection
    assert connection is not None
    faulty: Any = Faulty(connection, {"ROLLBACK": failing(sqlite3.SQLITE_IOERR)})
    connection.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="planted"):
        service._file._roll_back(faulty)
    connection.execute("ROLLBACK")
    assert texts(await get(service)) == []
    await service._file.close()
    with pytest.raises(StorageMissingError) as caught:
        await get(service)
    assert str(caught.value) == (
        ":memory:: the database has ended with its connection or is another process's; make a new service"
    )


async def test_what_was_read_of_a_file_is_not_that_of_its_replacement(tmp_path: Path) -> None:
    """Nor is what sessions share, where a session of the first file is still held and all numbers are the same."""
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for path in paths:
        async with SqliteSessionService(path) as service:
            await service.create_session(**HERE, state={"user:n": path.name, "app:n": path.name, "n": path.name})
    async with SqliteSessionService(paths[0]) as service:
        assert (await get(service)).state["user:n"] == "a.db"
        held = service._cache.sessions[KEY]
        os.replace(paths[1], paths[0])
        with pytest.raises(StorageMissingError):
            await get(service)
        assert (await get(service)).state == {"user:n": "b.db", "app:n": "b.db", "n": "b.db"}
        assert held is not service._cache.sessions[KEY]


# --- owners of leases -------------------------------------------------------------------------------------------------


def test_an_owner_is_called_by_what_can_be_a_part_of_a_files_name() -> None:
    """Up to 64 letters, digits, `_`, `.` and `-`, and nothing else."""
    for name in ("a", "A-1_b.c", "x" * 64):
        assert is_owner(name)
    for odd in ("", "x" * 65, "a/b", "a b", "ä", "a\n", 5, None, b"a"):
        assert not is_owner(odd)


def test_an_owner_is_gone_once_nobody_holds_its_file(tmp_path: Path) -> None:
    """Without a file it is gone; with one that is held, or cannot be opened, it may live; a free one is swept up."""
    database = tmp_path / "s.db"
    assert owner_is_gone(database, "nobody")
    lock = OwnerLock(database, "living")
    lock_path(database, "dead").touch()
    lock_path(database, "folder").mkdir()
    assert not owner_is_gone(database, "living")
    assert not owner_is_gone(database, "folder")
    assert owner_is_gone(database, "dead")
    assert not lock_path(database, "dead").exists()
    lock_path(database, "dead too").touch()
    lock_path(database, "dead-2").touch()
    remove_dead_locks(database)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["s.db-owner-dead too", "s.db-owner-folder", "s.db-owner-living"]
    lock.release()
    lock.release()
    assert owner_is_gone(database, "living")
    with pytest.raises(sqlite3.DatabaseError) as caught:
        owner_is_gone(database, "a/b")
    assert str(caught.value) == "an owner is called 'a/b'"
