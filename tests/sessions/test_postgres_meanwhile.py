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
from minirun.errors import StorageConnectionError, StorageUncertainError
from minirun.events import EventActions, Replay
from minirun.sessions._postgres._session import DatabaseSession, Row

from ..postgres import new_database
from ..postgres_seam import Wired
from ..postgres_sessions import check_database, sql
from ..stores import HERE, KEY, ElsewhereInPostgres, append, begin, enter, get, texts


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

    meanwhile: dict[str, Callable[[], None]] = attrs.field(factory=dict)

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
        live = await service._open(KEY, None)
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
        await service._put_message(KEY, message)
        await append(service, beside, user_n=5)
        live = await other._open(KEY, None)
        assert live is not None
        assert (live.has_messages, live.values.get("user:n"), live.revision) == (True, 5, session.revision)
