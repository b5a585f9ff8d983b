"""
What other tasks and other people do while a statement is under way: the cache takes over nothing that is not so any
more, and a connection that has ended costs no attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from minirun import Env, Event
from minirun._postgres._connection import Bounds, Connect, Connection
from minirun._postgres._values import Call, Result
from minirun.errors import SessionNotFoundError, StaleSessionError, StorageConnectionError, StorageUncertainError
from minirun.events import EventActions, Replay
from minirun.sessions import InvocationStatus, Session
from minirun.sessions._postgres import _leases
from minirun.sessions._postgres._session import DatabaseSession, Row

from ..postgres import new_database
from ..postgres_seam import Wired
from ..postgres_sessions import check_database, sql
from ..stores import HERE, KEY, ElsewhereInPostgres, append, begin, enter, get, texts

TABLES = ("session_state", "open_calls", "invocations")


class Wire:
    """A connection on which something happens before the answer to a statement comes."""

    def __init__(self, connection: Connection, env: Meddled) -> None:
        self._connection = connection
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def run(self, calls: Sequence[Call], **options: Any) -> list[Result]:
        results = await self._connection.run(calls, **options)
        for call in calls:
            self._env.meanwhile.pop(call.statement.name, lambda: None)()
        return results


@attrs.frozen(eq=False)
class Meddled(Env):
    """The real world, in which something happens while a statement is under way: once, by its name."""

    meanwhile: dict[str, Callable[[], object]] = attrs.field(factory=dict)

    def postgres(self) -> Connect:
        real = super().postgres()

        async def connect(url: str, bounds: Bounds) -> Connection:
            wire: Any = Wire(await real(url, bounds), self)
            return wire  # type: ignore[no-any-return]  # it behaves as one

        return connect


@pytest.mark.parametrize("how", ["dropped", "replaced"])
@pytest.mark.parametrize("statement", ["look", "news", "later"])
async def test_what_is_no_longer_kept_is_not_brought_up_to_date(statement: str, how: str) -> None:
    """Another task has dropped the session, or loaded it anew: the one that is kept is returned, and it is current."""
    url, env = new_database(), Meddled()
    async with ElsewhereInPostgres(url, env=env) as service, ElsewhereInPostgres(url) as other:
        await service.create_session(**HERE, state={"user:n": 0})
        beside = await other.create_session(app_name="app", user_id="u", session_id="beside")
        await get(service)
        if statement == "later":
            await append(other, await get(other), "new")
        await append(other, beside, user_n=1)
        cache = service._cache
        before = cache.sessions[KEY]

        def meddle() -> None:
            cache.drop(KEY)
            if how == "replaced":
                scopes = (before.app, before.user)
                cache.keep(DatabaseSession(KEY, _row_of(before), {}, scopes, before.segments, {}, 9))

        env.meanwhile[statement] = meddle
        live = await service.load_session(KEY, None)
        assert env.meanwhile == {}
        assert live is cache.sessions[KEY]
        assert live is not before
        assert cache.bytes == sum(each.size for each in cache.sessions.values())
        session = await get(service)
        assert (texts(session), session.state["user:n"]) == (["new"] if statement == "later" else [], 1)
    check_database(url, is_whole=True)


def _row_of(live: Any) -> Any:
    """A row of a session that nobody has, so that it is read again."""
    return Row(live.incarnation, live.revision, 0.0, 0.0, 0, None, None, True, True, b"other", 0, False)


async def test_what_is_in_doubt_stays_so_until_it_is_settled() -> None:
    """A server that is away when the session is opened: the next one who opens it waits for the statement again."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        session = await service.create_session(**HERE)
        env.faults["append"] = "stored"
        with pytest.raises(StorageUncertainError):
            await append(service, session, "perhaps")
        env.faults["settle"] = "lost"
        with pytest.raises((StorageConnectionError, StorageUncertainError)):
            await get(service)
        env.trips.clear()
        assert texts(await get(service)) == ["perhaps"]
        assert ["settle"] in env.trips
        env.trips.clear()
        await get(service)
        assert ["settle"] not in env.trips


async def test_a_connection_that_has_ended_costs_an_append_no_attempt() -> None:
    """The server has ended it while nothing was asked: the next append goes over a new one at once."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        session = await service.create_session(**HERE)
        await append(service, session, "one")
        ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        sql(url, f"{ends} AND datname = current_database()")
        connection = service._commits._connection
        assert connection is not None
        with trio.fail_after(10):
            while connection.is_alive():  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.001)
        env.trips.clear()
        await append(service, session, "two")
        assert [names for names in env.trips if "append" in names] == [["append"]]
        assert service._commits._connection is not connection
        assert texts(await get(service)) == ["one", "two"]


async def test_a_message_is_seen_by_who_looks_for_the_news_of_a_scope() -> None:
    """Another worker has sent a message and changed what sessions share: both are known after one look."""
    url = new_database()
    async with ElsewhereInPostgres(url) as service, ElsewhereInPostgres(url) as other:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await writer.finish(None)
        session = await get(other)
        beside = await service.create_session(app_name="app", user_id="u", session_id="beside")
        message = Event(id="m", author="user", message="x", actions=EventActions(replay=Replay(sent="next_model_call")))
        await service.insert_message(KEY, message)
        await append(service, beside, user_n=5)
        live = await other.load_session(KEY, None)
        assert live is not None
        assert (live.has_messages, live.values.get("user:n"), live.revision) == (True, 5, session.revision)


# --- another worker deletes the session


def deleting(url: str, session_id: str = "s") -> Callable[[], object]:
    """What deletes a session, with its log, as another worker does."""
    gone = f"(SELECT id FROM minirun.sessions WHERE session_id = '{session_id}')"
    logs = [
        f"DELETE FROM minirun.events WHERE log = {gone}",
        f"DELETE FROM minirun.session_state WHERE session = {gone}",
    ]
    return lambda: sql(url, *logs, f"DELETE FROM minirun.sessions WHERE session_id = '{session_id}'")


def making_anew(url: str, length: int) -> Callable[[], object]:
    """What lets the session be another one of its name, and of the same log up to an event."""
    short = f"revision = {length}, chain = (SELECT chain FROM minirun.events WHERE seq = {length})"
    moved = [f"UPDATE minirun.{table} SET session = 9" for table in TABLES]
    moved += ["UPDATE minirun.events SET log = 9", f"UPDATE minirun.sessions SET id = 9, {short}"]
    moved += [f"DELETE FROM minirun.events WHERE seq > {length}"]
    return lambda: sql(url, "UPDATE minirun.store SET session_no = 9", *moved)


async def open_it(service: ElsewhereInPostgres) -> Session | None:
    return await service.get_session(**HERE)


async def read_it(service: ElsewhereInPostgres) -> object:
    try:
        return await service.read_events(**HERE)
    except SessionNotFoundError:
        return None


async def fork_it(service: ElsewhereInPostgres) -> object:
    try:
        return await service.fork_session(**HERE, new_session_id="new")
    except SessionNotFoundError:
        return None


async def fork_its_past(service: ElsewhereInPostgres) -> object:
    try:
        return await service.fork_session(**HERE, at_seq=1, new_session_id="new")
    except SessionNotFoundError:
        return None


Use = Callable[[ElsewhereInPostgres], Any]


@pytest.mark.parametrize(
    ("use", "kind", "statement"),
    [
        (open_it, "cached", None),
        (open_it, "cached and outdated", "look"),
        (open_it, "", "pasts"),
        (open_it, "", "lines"),
        (read_it, "", "pasts"),
        (read_it, "", "lines"),
        (fork_it, "", "runs"),
        (fork_it, "", "link"),
        (fork_its_past, "", "runs"),
        (fork_its_past, "", "pasts"),
        (fork_its_past, "", "lines"),
    ],
)
async def test_a_session_that_is_deleted_meanwhile_is_not_there(use: Use, kind: str, statement: str | None) -> None:
    """Whatever was being read of it: that is no damage, and nothing of it is returned in part, or stays cached."""
    url, env = new_database(), Meddled()
    async with ElsewhereInPostgres(url, env=env) as service, ElsewhereInPostgres(url) as other:
        session = await other.create_session(**HERE, state={"k": 1})
        for text in ("one", "two"):
            await append(other, session, text)
        if kind:
            await get(service)
        if kind == "cached and outdated":
            await append(other, session, "three")
        if statement is None:
            await other.delete_session(**HERE)
        else:
            env.meanwhile[statement] = deleting(url)
        found = await use(service)
        assert env.meanwhile == {}
        if found is not None:  # it was read before
            assert statement == "lines" or (use, statement) == (fork_it, "link")
        assert await service.get_session(**HERE) is None
        assert service._cache.bytes == sum(each.size for each in service._cache.sessions.values())
        assert KEY not in service._cache.sessions


@pytest.mark.parametrize("length", [2, 1])
@pytest.mark.parametrize("statement", [None, "look"])
async def test_a_session_that_was_made_again_meanwhile_is_another_one(statement: str | None, length: int) -> None:
    """What is cached is forgotten, and what was read before is stale."""
    url, env = new_database(), Meddled()
    async with ElsewhereInPostgres(url, env=env) as service, ElsewhereInPostgres(url) as other:
        session = await other.create_session(**HERE, state={"k": 1})
        await append(other, session, "one")
        before = await get(service)
        await append(other, session, "two")
        if statement is None:
            making_anew(url, length)()
        else:
            env.meanwhile[statement] = making_anew(url, length)
        live = await service.load_session(KEY, None)
        assert env.meanwhile == {}
        assert live is not None
        found = (live.incarnation, live.revision, [event.text for event in live.events])
        assert found == (9, length, ["one", "two"][:length])
        with pytest.raises(StaleSessionError, match="it was deleted and made again"):
            await append(service, before, "more")


async def test_a_run_whose_session_is_deleted_before_it_begins_stores_nothing() -> None:
    """Its first append finds no session."""
    url = new_database()
    async with ElsewhereInPostgres(url) as service, ElsewhereInPostgres(url) as other:
        await service.create_session(**HERE)
        writer = await enter(service)
        await other.delete_session(**HERE)
        with pytest.raises(SessionNotFoundError, match="session 's' of user 'u' in app 'app' was deleted"):
            await begin(writer)
        await writer.finish(None)
    check_database(url)


async def test_a_fork_that_is_deleted_as_soon_as_it_is_made_is_not_there() -> None:
    """Another worker has found it at once."""
    url, env = new_database(), Meddled()
    async with ElsewhereInPostgres(url, env=env) as service:
        session = await service.create_session(**HERE)
        await append(service, session, "one")
        service._cache.drop(KEY)
        env.meanwhile["fork"] = deleting(url, "new")
        with pytest.raises(SessionNotFoundError, match="new"):
            await service.fork_session(**HERE, new_session_id="new")
        assert env.meanwhile == {}


# --- another worker runs the session


async def test_a_session_that_another_worker_runs_is_deleted_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting waits until the run has left, and is woken then."""
    monkeypatch.setattr(_leases, "LEASE_POLL_S", (60.0, 60.0))
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url) as owner, ElsewhereInPostgres(url, env=env) as other:
        await owner.create_session(**HERE)
        writer = await enter(owner)
        await begin(writer)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.remove_session, KEY)
                while not [names for names in env.trips if "hold" in names]:  # noqa: ASYNC110  # nobody tells
                    await trio.sleep(0.001)
                await writer.append(Event(author="a", message="on", invocation_id="e-1"))
                await writer.finish(InvocationStatus.COMPLETED)
        assert await other.get_session(**HERE) is None
        assert await owner.get_session(**HERE) is None


@pytest.mark.parametrize("use", ["entered", "deleted"])
async def test_a_lease_that_stands_still_for_as_long_as_one_lasts_is_over(
    use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock of the database says of its end: who takes the session then fences its owner."""
    monkeypatch.setattr(_leases, "LEASE_S", 0.0)
    url = new_database()
    async with ElsewhereInPostgres(url) as owner, ElsewhereInPostgres(url) as other:
        await owner.create_session(**HERE)
        writer = await enter(owner)
        await begin(writer)
        sql(url, "UPDATE minirun.sessions SET lease_expires = now() + interval '9 h'")
        if use == "entered":
            taken = await enter(other, "e-2")
            await begin(taken)
            await taken.finish(InvocationStatus.COMPLETED)
            assert texts(await get(other)) == ["hi", "hi"]
        else:
            await other.remove_session(KEY)
            assert await other.get_session(**HERE) is None
        with pytest.raises(StaleSessionError if use == "entered" else SessionNotFoundError):
            await writer.append(Event(author="a", message="late", invocation_id="e-1"))
        await writer.finish(None)
