"""
Sessions in Postgres beside the contract: one statement for a group, the fence, what is unknown, and who may open it.

What real processes do to each other is in test_postgres_processes.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from minirun import Event, EventActions, LlmAgent, Runner
from minirun._postgres import _pool
from minirun._postgres._connection import Bounds, ServerError
from minirun._postgres._values import Statement
from minirun.errors import (
    AlreadyExistsError,
    InvalidValueError,
    SessionBusyError,
    StaleSessionError,
    StorageBusyError,
    StorageConnectionError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageReadOnlyError,
    StorageUncertainError,
)
from minirun.sessions import BaseSessionService, DatabaseSessionService, InvocationStatus, Session
from minirun.sessions._postgres import _database, _leases
from minirun.sessions._postgres._leases import LEASE_S
from minirun.sessions._postgres._schema import MIGRATIONS
from minirun.testing import ScriptedLlm

from ..postgres import empty_database, new_database
from ..postgres_seam import Wired
from ..postgres_sessions import check_database, sql
from ..stores import HERE, ElsewhereInPostgres, append, begin, enter, get, texts


@asynccontextmanager
async def one_session(**options: Any) -> AsyncIterator[tuple[DatabaseSessionService, Session, str]]:
    """A service over a new database with one session in it."""
    url = new_database()
    async with DatabaseSessionService(url, **options) as service:
        yield service, await service.create_session(**HERE), url


# --- one statement for a group


async def test_appends_that_wait_at_the_same_moment_are_one_statement() -> None:
    """Sixteen sessions append at once: one round trip stores all, with numbers that adjoin."""
    url, env = new_database(), Wired()
    async with DatabaseSessionService(url, env=env) as service:
        sessions = [await service.create_session(app_name="app", user_id="u", session_id=f"s{n}") for n in range(16)]
        await append(service, sessions[0])
        env.trips.clear()
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(append, service, session)
        assert env.trips == [["append"]]
    assert sql(url, "SELECT min(commit_no), max(commit_no), count(*) FROM minirun.events WHERE commit_no > 17") == [
        ("18", "33", "16")
    ]
    check_database(url, is_whole=True)


async def test_what_others_have_committed_comes_with_the_answer() -> None:
    """Two workers add to one key: each sees the other's additions in what its own append returns, in one round trip."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as one, ElsewhereInPostgres(url) as other:
        sessions = [await each.create_session(app_name="app", user_id="u", session_id=str(n))
                    for n, each in enumerate((one, other))]  # fmt: skip
        for number in range(1, 4):
            actions = EventActions(state_ops={"app:n": {"add": 1}, "user:log": {"extend": [number]}})
            await other.append_event(sessions[1], Event(author="a", actions=actions))
            env.trips.clear()
            await one.append_event(sessions[0], Event(author="a", actions=actions))
            assert sessions[0].state["app:n"] == 2 * number
            assert env.trips[-1] == ["append", "news"]
        assert sessions[0].state["user:log"] == [1, 1, 2, 2, 3, 3]
    check_database(url, is_whole=True)


async def test_a_member_that_does_not_fit_fails_alone() -> None:
    """Of a group, one adds to a text, one extends a number in the same key as others: the rest is stored, in order."""
    url = new_database()
    async with DatabaseSessionService(url) as service:
        made = [await service.create_session(app_name="app", user_id="u", session_id=str(n)) for n in range(5)]
        await append(service, made[0], app_text="text", app_n=1)
        operations: list[dict[str, Any]] = [
            {"app:n": {"add": 1}}, {"app:text": {"add": 1}}, {"app:n": {"extend": [1]}}, {"app:n": {"add": 0.5}},
            {"app:new": {"extend": ["x"]}},
        ]  # fmt: skip
        outcomes: list[object] = [None] * 5

        async def add(number: int) -> None:
            try:
                outcomes[number] = await service.append_event(
                    made[number], Event(author="a", actions=EventActions(state_ops=operations[number]))
                )
            except InvalidValueError as error:
                outcomes[number] = str(error)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(add, number)
        assert [isinstance(one, Event) for one in outcomes] == [True, False, False, True, True]
        assert outcomes[1] == "state['app:text']: `add` expects a number, found 'text'"
        assert str(outcomes[2]).startswith("state['app:n']: `extend` expects a list, found ")
        assert (await get(service, "3")).state["app:n"] == 2.5
    check_database(url, is_whole=True)


async def test_a_stale_member_fails_alone() -> None:
    """Of two sessions that append at once, one was written by another worker: it is stale, the other is stored."""
    url = new_database()
    async with ElsewhereInPostgres(url) as service, ElsewhereInPostgres(url) as other:
        stale, fresh = [await service.create_session(app_name="app", user_id="u", session_id=n) for n in "ab"]
        await append(other, await get(other, "a"), "faster")
        outcomes: Counter[str] = Counter()

        async def add(session: Session) -> None:
            try:
                await append(service, session, app_x=session.id)
            except StaleSessionError:
                outcomes[f"{session.id} is stale"] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(add, stale)
            nursery.start_soon(add, fresh)
        assert outcomes == {"a is stale": 1}
        assert texts(await get(service, "a")) == ["faster"]
        assert (await get(service, "a")).state["app:x"] == "b"
    check_database(url, is_whole=True)


async def test_a_worker_that_stands_still_in_a_transaction_fails_nobody() -> None:
    """
    One that is stopped while it deletes, or sends a message, has locked a session or the counter: the server ends it
    before those who wait give up.
    """
    assert Bounds().idle_transaction_s < Bounds().lock_s
    url = new_database()
    async with DatabaseSessionService(url) as stopped, DatabaseSessionService(url) as other:
        stopped._database.pool.bounds = Bounds(idle_transaction_s=0.3)  # as long as the test takes
        session = await other.create_session(app_name="app", user_id="u", session_id="s")
        await stopped.list_sessions(app_name="app")
        connection = await stopped._database.connect()
        hold = Statement("hold", "SELECT 1 FROM minirun.sessions, minirun.store FOR UPDATE", once=True)
        await connection.run([Statement("begin", "BEGIN", once=True)(), hold()], withdraw=True)
        await other.append_event(session, Event(author="user", message="after"))
        assert not connection.is_alive()
        stopped._database.pool.release(connection)
    check_database(url, is_whole=True)


async def test_workers_that_append_to_one_session_at_once_take_turns() -> None:
    """Three workers append to the same session: who is overtaken is stale and reads again; nothing else goes wrong."""
    async with one_session() as (_, _, url):
        workers = [ElsewhereInPostgres(url) for _ in range(3)]
        stale: Counter[str] = Counter()

        async def work(service: BaseSessionService, name: str) -> None:
            for number in range(8):
                while True:
                    session = await get(service)
                    try:
                        await append(service, session, f"{name}{number}", app_last=name)
                    except StaleSessionError:
                        stale[name] += 1
                    else:
                        break

        async with trio.open_nursery() as nursery:
            for name, worker in zip("abc", workers, strict=True):
                nursery.start_soon(work, worker, name)
        session = await get(workers[0])
        assert sorted(texts(session)) == sorted(f"{name}{number}" for name in "abc" for number in range(8))
        assert stale, "they never met"
        for worker in workers:
            await worker.aclose()
    check_database(url, is_whole=True)


async def test_many_workers_give_numbers_without_a_gap_and_in_their_order() -> None:
    """Four workers and a reader: whoever sees a number sees all below it, and the shared sum is that of all appends."""
    url = new_database()
    workers = [ElsewhereInPostgres(url) for _ in range(4)]
    seen: list[tuple[str | None, ...]] = []

    async def work(service: BaseSessionService, name: str) -> None:
        sessions = [await service.create_session(app_name="app", user_id="u", session_id=f"{name}{n}") for n in "xyz"]

        async def add(session: Session) -> None:
            for _ in range(8):
                actions = EventActions(state_ops={"app:n": {"add": 1}})
                await service.append_event(session, Event(author="a", actions=actions))

        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(add, session)

    async with trio.open_nursery() as nursery:
        for number, worker in enumerate(workers):
            nursery.start_soon(work, worker, str(number))
        while len(nursery.child_tasks) > 0:
            await trio.sleep(0.01)
            query = "SELECT count(*), coalesce(max(commit_no), 0), (SELECT commit_no FROM minirun.store)"
            if sql(url, "SELECT to_regclass('minirun.events')") != [(None,)]:
                seen += sql(url, f"{query} FROM minirun.events")
    assert seen
    assert all(len(set(row)) == 1 for row in seen)
    for worker in workers:
        await worker.aclose()
    assert sql(url, "SELECT value FROM minirun.shared_state") == [("96",)]
    check_database(url, is_whole=True)


async def test_a_text_turn_costs_two_round_trips_for_an_event_and_two_more_at_most() -> None:
    """A turn on an idle session that ran before: one round trip to open it, one for each event, one to leave."""
    url, env = new_database(), Wired()
    async with DatabaseSessionService(url, env=env) as service:
        await service.create_session(app_name="app", user_id="u", session_id="s")
        agent = LlmAgent(name="a", model=ScriptedLlm(lambda _: "hi"))
        runner = Runner(agent=agent, app_name="app", session_service=service)
        for turn in range(3):
            env.trips.clear()
            async with runner.run_async(user_id="u", session_id="s", new_message="hello") as run:
                events = [event async for event in run]
            stored = 1 + len(events)
            print(turn, env.trips)
            if turn:
                assert len(env.trips) <= 2 * stored + 2
                assert sorted(names[0] for names in env.trips) == ["append", "append", "hurried_hold", "look"]


# --- what is refused, lost, or unknown


async def test_an_append_is_cancellable_until_it_is_sent_and_shielded_from_there() -> None:
    """Cancelled while it waits for its turn: not stored. Cancelled while the database works: stored, and returned."""
    async with one_session() as (service, session, url):
        await append(service, session, "first")
        with trio.CancelScope() as scope:
            scope.cancel()
            await append(service, session, "never")
        assert scope.cancelled_caught
        assert texts(await get(service)) == ["first"]
        async with held_counter(url) as let_go:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(append, service, session, "second")
                    await waits_for_lock(url)
                    scope.cancel()
                    with trio.CancelScope(shield=True):
                        await trio.sleep(0.05)
                        let_go()
        assert texts(await get(service)) == ["first", "second"]
    check_database(url, is_whole=True)


WAITING = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@asynccontextmanager
async def held_counter(url: str) -> AsyncIterator[Callable[[], None]]:
    """Another transaction holds the lock of the counter, until it is told to let go."""
    from psycopg import pq

    connection = pq.PGconn.connect(url.encode())
    connection.exec_(b"BEGIN")
    connection.exec_(b"SELECT FROM minirun.store FOR UPDATE")
    try:
        yield lambda: [connection.exec_(b"COMMIT")].clear()
    finally:
        connection.finish()


async def waits_for_lock(url: str) -> None:
    """Until an append waits for a lock."""
    query = f"SELECT count(*) {WAITING}"
    while sql(url, query) == [("0",)]:  # noqa: ASYNC110  # nobody tells
        await trio.sleep(0.01)


async def test_a_connection_that_ends_while_the_database_works_leaves_the_outcome_unknown() -> None:
    """The server ends the commit's connection: StorageUncertainError; a retry of the same event stores it once."""
    async with one_session() as (service, session, url):
        await append(service, session, "first")
        event = Event(id="x-1", author="a", message="second")
        async with held_counter(url), trio.open_nursery() as nursery:

            async def lose() -> None:
                with pytest.raises(StorageUncertainError):
                    await service.append_event(session, event)

            nursery.start_soon(lose)
            await waits_for_lock(url)
            sql(url, f"SELECT pg_terminate_backend(pid) {WAITING}")
        assert texts(await get(service)) == ["first"]
        stored = await service.append_event(session, event)
        assert (stored.seq, texts(await get(service))) == (2, ["first", "second"])
    check_database(url, is_whole=True)


@pytest.mark.parametrize("fault", ["lost", "stored"])
@pytest.mark.parametrize("with_id", [True, False])
async def test_an_unknown_outcome_is_settled_when_the_session_is_opened(fault: str, with_id: bool) -> None:
    """Lost before or after it was executed: the session reads as it is, and a retry stores the event once."""
    env = Wired()
    async with one_session(env=env) as (service, session, url):
        event = Event(id="x-1" if with_id else None, author="a", message="hi", state={"user:n": 1})
        env.faults["append"] = fault
        with pytest.raises(StorageUncertainError):
            await service.append_event(session, event)
        assert texts(await get(service)) == (["hi"] if fault == "stored" else [])
        stored = await service.append_event(session, event)
        assert stored.seq == session.revision == 1
        assert texts(await get(service)) == ["hi"]
        await append(service, session, "on")
    check_database(url, is_whole=True)


async def test_one_unknown_outcome_is_that_of_the_whole_group() -> None:
    """Three sessions of a group whose answer is lost: each append is unknown by an error of its own."""
    env = Wired()
    url = new_database()
    async with DatabaseSessionService(url, env=env) as service:
        made = [await service.create_session(app_name="app", user_id="u", session_id=n) for n in "abc"]
        env.faults["append"] = "stored"
        errors: list[StorageUncertainError] = []

        async def lose(session: Session) -> None:
            with pytest.raises(StorageUncertainError) as caught:
                await append(service, session)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for session in made:
                nursery.start_soon(lose, session)
        assert len({id(error) for error in errors}) == 3
        for session in made:
            assert texts(await get(service, session.id)) == ["x"]
    check_database(url, is_whole=True)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("not sent", None),
        (ServerError("40P01", "deadlock"), None),
        (ServerError("40001", "serialization"), None),
        (ServerError("26000", "prepared statement is gone"), None),
        (ServerError("55P03", "lock timeout"), StorageBusyError),
        (ServerError("25006", "read only"), StorageReadOnlyError),
    ],
)
async def test_what_the_server_has_rolled_back_is_tried_once_more_or_refused(
    fault: Any, kind: type[StorageError] | None
) -> None:
    """What is no fault of the statement is done once more; the rest raises an error that says: not stored."""
    env = Wired()
    async with one_session(env=env) as (service, session, url):
        env.faults["append"] = fault
        if kind is None:
            await append(service, session)
        else:
            with pytest.raises(kind) as caught:
                await append(service, session)
            assert caught.value.stored is False
            assert texts(await get(service)) == []
            await append(service, session)
        assert texts(await get(service)) == ["x"]
    check_database(url, is_whole=True)


async def test_a_server_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many appends wait while no connection can be made: all of them fail with the first, and none is stored."""
    monkeypatch.setattr(_pool, "RECONNECT_S", 0.3)
    env, url = Wired(), new_database()
    async with DatabaseSessionService(url, env=env) as service:
        made = [await service.create_session(app_name="app", user_id="u", session_id=str(n)) for n in range(8)]
        env.away.append(StorageConnectionError("planted"))
        began = trio.current_time()
        refused: list[StorageError] = []

        async def add(session: Session) -> None:
            with pytest.raises(StorageConnectionError) as caught:
                await append(service, session)
            refused.append(caught.value)

        async with trio.open_nursery() as nursery:
            for session in made:
                nursery.start_soon(add, session)
        assert trio.current_time() - began < 8 * 0.3
        assert len({id(error) for error in refused}) == 8
        env.away.clear()
        for session in made:
            await append(service, session)
    check_database(url, is_whole=True)


# --- leases


def expire(url: str) -> None:
    """Let all leases have ended by the database's clock."""
    sql(url, "UPDATE minirun.sessions SET lease_expires = now() - interval '1 s' WHERE lease_owner IS NOT NULL")


async def test_who_is_overtaken_writes_nothing() -> None:
    """A worker whose lease has expired, and was taken, is stale; what it has begun is interrupted."""
    async with one_session() as (_, _, url):
        async with ElsewhereInPostgres(url) as slow, ElsewhereInPostgres(url) as fast:
            writer = await enter(slow, "e-1")
            await begin(writer)
            with pytest.raises(SessionBusyError):
                await enter(fast, "e-2", reject=True)
            expire(url)
            other = await enter(fast, "e-2")
            await begin(other)
            for _ in range(2):
                with pytest.raises(StaleSessionError):
                    await writer.append(Event(author="a", message="late", state={"user:late": True}))
            await writer.renew()
            await writer.finish(None)
            await other.append(Event(author="a", message="on"))
            await other.finish(InvocationStatus.COMPLETED)
            session = await get(fast)
            assert texts(session) == ["hi", "hi", "on"]
            assert "user:late" not in session.state
            found = {one.invocation_id: one.status for one in await fast.list_invocations()}
            assert found == {"e-1": "interrupted", "e-2": "completed"}
        check_database(url, is_whole=True)


async def test_a_lease_that_is_renewed_is_not_over() -> None:
    """Another worker finds a lease expired, and the owner renews it before that one appends: it stays the owner."""
    async with one_session() as (_, _, url):
        async with ElsewhereInPostgres(url) as owner, ElsewhereInPostgres(url) as other:
            writer = await enter(owner, "e-1")
            await begin(writer)
            expire(url)
            hopeful = await enter(other, "e-2")
            await writer.renew()
            with pytest.raises(StaleSessionError):
                await begin(hopeful)
            await writer.append(Event(author="a", message="on"))
            await writer.finish(InvocationStatus.COMPLETED)
            await hopeful.finish(None)
        check_database(url, is_whole=True)


async def test_a_lease_lasts_by_the_clock_of_the_database() -> None:
    """Entering takes the lease for 30 s from then on, a renewal extends it, leaving gives it back."""
    left = "SELECT extract(epoch FROM lease_expires - now())::float8 FROM minirun.sessions"
    async with one_session() as (service, _, url):
        writer = await enter(service)
        await begin(writer)
        assert LEASE_S - 5 < float(sql(url, left)[0][0] or 0) <= LEASE_S
        sql(url, "UPDATE minirun.sessions SET lease_expires = now() + interval '3 s'")
        await writer.renew()
        assert LEASE_S - 5 < float(sql(url, left)[0][0] or 0) <= LEASE_S
        await writer.finish(InvocationStatus.COMPLETED)
        assert sql(url, "SELECT lease_owner, lease_expires, lease_epoch FROM minirun.sessions") == [(None, None, "1")]


async def test_who_waits_for_a_session_is_woken_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits hears that the session was left, long before it would look again."""
    monkeypatch.setattr(_leases, "LEASE_POLL_S", (60.0, 60.0))
    async with one_session() as (_, _, url):
        async with ElsewhereInPostgres(url) as owner, ElsewhereInPostgres(url) as other:
            writer = await enter(owner, "e-1")
            await begin(writer)

            async def wait() -> None:
                taken = await enter(other, "e-2")
                await taken.finish(None)

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait)
                    where = "query LIKE 'LISTEN%' AND datname = current_database()"
                    query = f"SELECT count(*) FROM pg_stat_activity WHERE {where}"
                    while sql(url, query) == [("0",)]:  # noqa: ASYNC110  # nobody tells
                        await trio.sleep(0.01)
                    await writer.finish(InvocationStatus.COMPLETED)


async def test_a_service_that_is_closed_gives_its_sessions_up() -> None:
    """A worker that closes its service without leaving a run has no sign of life: the session is free at once."""
    async with one_session() as (_, _, url):
        owner = ElsewhereInPostgres(url)
        writer = await enter(owner, "e-1")
        await begin(writer)
        owner._leases.close()
        async with ElsewhereInPostgres(url) as other:
            taken = await enter(other, "e-2", reject=True)
            await begin(taken)
            assert {one.invocation_id: one.status for one in await other.list_invocations()} == {
                "e-1": "interrupted", "e-2": "running",
            }  # fmt: skip
            await taken.finish(InvocationStatus.COMPLETED)
        with pytest.raises(StaleSessionError):
            await writer.append(Event(author="a", message="late"))
        await writer.finish(None)
        await owner.aclose()


# --- what can be stored


async def test_any_text_that_is_json_can_be_stored() -> None:
    """NUL and long keys, long lists, large numbers: what memory keeps, the database keeps."""
    keys = {"\0": "\0", "k" * 3000: ["\u0001", "ü" * 3000], "=x": 10**3999, "#": -0.0, 'q"\\': {"a\0": None}}
    state = {f"{prefix}{key}": value for key, value in keys.items() for prefix in ("", "user:", "app:")}
    async with one_session() as (service, session, url):
        await service.append_event(session, Event(author="a", message="\0\u2028", state=state))
        async with DatabaseSessionService(url) as other:
            found = await get(other)
            assert dict(found.state) == state
            assert repr(found.state["user:#"]) == "-0.0"
            assert texts(found) == ["\0\u2028"]
            assert await other.get_user_state(app_name="app", user_id="u") == keys
        await service.delete_session(**HERE)
    check_database(url)


@pytest.mark.parametrize("name", ["user_id", "session_id"])
async def test_ids_beyond_512_bytes_are_refused_for_new_sessions(name: str) -> None:
    """512 bytes of UTF-8 are an id, one more is too long, in a fork and an import as well; nothing is stored."""
    async with one_session() as (service, _, url):
        ids: dict[str, Any] = {**HERE, name: "ü" * 256}
        await service.create_session(**ids)
        ids[name] += "x"
        with pytest.raises(InvalidValueError, match=f"{name}: expected at most 512 bytes"):
            await service.create_session(**ids)
        with pytest.raises(InvalidValueError, match=f"{name}: expected at most 512 bytes"):
            await service.import_session(**ids, events=(await service.read_events(**HERE)))
        with pytest.raises(InvalidValueError, match="session_id: expected at most 512 bytes"):
            await service.fork_session(**HERE, new_session_id="x" * 513)
        assert sql(url, "SELECT count(*) FROM minirun.sessions") == [("2",)]


async def test_the_longest_ids_fit_into_the_index() -> None:
    """An app, a user and a session of 512 bytes each, which nothing can compress."""
    async with one_session() as (service, _, _):
        ids = ["".join(chr(33 + (n * n * 7 + n * seed) % 90) for n in range(512)) for seed in (11, 13)]
        app = "a" + "".join(chr(97 + (n * n * 3 + n) % 26) for n in range(511))
        await service.create_session(app_name=app, user_id=ids[0], session_id=ids[1])
        assert await service.get_session(app_name=app, user_id=ids[0], session_id=ids[1]) is not None


async def test_sessions_that_are_made_at_once_under_one_name_are_one() -> None:
    """Of eight that make the same session from two workers, one does; the numbers have no gap."""
    url = new_database()
    outcomes: Counter[str] = Counter()
    async with ElsewhereInPostgres(url) as one, ElsewhereInPostgres(url) as other:

        async def make(service: BaseSessionService) -> None:
            try:
                await service.create_session(**HERE, state={"app:n": 1})
                outcomes["made"] += 1
            except AlreadyExistsError:
                outcomes["refused"] += 1

        async with trio.open_nursery() as nursery:
            for service in (one, other) * 4:
                nursery.start_soon(make, service)
    assert outcomes == {"made": 1, "refused": 7}
    check_database(url, is_whole=True)


# --- the schema


async def test_many_open_a_new_database_at_once() -> None:
    """Six workers open an empty database at the same moment: the schema is made once, and all can write."""
    url = empty_database()

    async def work(number: int) -> None:
        async with ElsewhereInPostgres(url) as service:
            await service.create_session(app_name="app", user_id="u", session_id=str(number))

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(work, number)
    assert sql(url, "SELECT part, version FROM minirun.versions") == [("sessions", "1")]
    check_database(url, is_whole=True)


async def test_a_newer_format_is_refused() -> None:
    """What a newer minirun has written is refused, with what to do, and nothing is changed."""
    async with one_session() as (_, _, url):
        sql(url, "UPDATE minirun.versions SET version = 7")
        async with DatabaseSessionService(url) as service:
            with pytest.raises(StorageFormatError, match="expected sessions of format 1, found format 7"):
                await get(service)


async def test_an_older_format_is_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that a newer minirun brings is done once, and what is stored stays."""
    async with one_session() as (service, session, url):
        await append(service, session)
        step = ("ALTER TABLE minirun.sessions ADD COLUMN note text",)
        monkeypatch.setattr(_database, "MIGRATIONS", (*MIGRATIONS, step))
        for _ in range(2):
            async with DatabaseSessionService(url) as newer:
                assert texts(await get(newer)) == ["x"]
        assert sql(url, "SELECT version FROM minirun.versions") == [("2",)]


async def test_another_programs_schema_is_refused() -> None:
    """A schema of our name with another program's tables is left alone; ADK's own tables beside ours are no matter."""
    url = empty_database()
    sql(url, "CREATE SCHEMA minirun", "CREATE TABLE minirun.store (x int)", "CREATE TABLE events (id int)")
    async with DatabaseSessionService(url) as service:
        with pytest.raises(StorageFormatError, match="another program's"):
            await service.create_session(**HERE)
    assert sql(url, "SELECT to_regclass('minirun.versions')") == [(None,)]
    sql(url, "DROP SCHEMA minirun CASCADE")
    async with DatabaseSessionService(url) as service:
        await service.create_session(**HERE)


async def test_who_may_not_make_the_schema_is_told_so() -> None:
    """A user without the right to make a schema is refused with the GRANT that is missing."""
    async with DatabaseSessionService(empty_database().replace("minirun@", "guest@")) as service:
        with pytest.raises(StorageReadOnlyError, match="GRANT CREATE"):
            await service.create_session(**HERE)


@pytest.mark.parametrize("rights", [(), ("GRANT USAGE ON SCHEMA minirun TO guest",)])
async def test_who_may_not_use_the_schema_is_told_so(rights: tuple[str, ...]) -> None:
    """A second user is refused with the GRANT that lets both work; then both do."""
    async with one_session() as (_, _, url):
        sql(url, *rights or ("SELECT 1",))
        async with DatabaseSessionService(url.replace("minirun@", "guest@")) as other:
            with pytest.raises(StorageReadOnlyError, match=r"permission denied .* GRANT OWNER TO USER"):
                await get(other)
        sql(url, "CREATE ROLE helper LOGIN", "GRANT minirun TO helper")
        try:
            async with DatabaseSessionService(url.replace("minirun@", "helper@")) as other:
                await append(other, await get(other))
        finally:
            sql(url, "DROP ROLE helper")


async def test_the_schema_may_be_in_the_search_path() -> None:
    """With a user who is called as the schema, as Postgres sets the path, other programs' tables are no matter."""
    url = new_database(options="-csearch_path%3D%22$user%22%2Cpublic")
    sql(url, "CREATE TABLE public.sessions (id int)", "CREATE TABLE public.events (id int)")
    async with DatabaseSessionService(url) as service:
        session = await service.create_session(**HERE)
        await append(service, session, n=1, user_n=2, app_n=3)
        await service.fork_session(**HERE, new_session_id="fork")
    async with DatabaseSessionService(url) as service:
        state = (await get(service, "fork")).state
        assert [state[name] for name in ("n", "user:n", "app:n")] == [1, 2, 3]
        await append(service, await get(service, "fork"))
    check_database(url, is_whole=True)


async def test_the_chain_is_that_of_a_file() -> None:
    """A link hashes what that of a SQLite file hashes, in forks, imports and appends alike."""
    async with one_session() as (service, session, url):
        for number in range(3):
            await append(service, session, "ü" * number, n=number, user_n=number)
        await service.fork_session(**HERE, at_seq=2, new_session_id="fork")
        await append(service, await get(service, "fork"), "on")
        log = await service.read_events(**HERE)
        await service.import_session(app_name="app", user_id="u", session_id="imported", events=log)
        await append(service, await get(service, "imported"), "on")
    check_database(url, is_whole=True)


@pytest.mark.parametrize("damage", ["DELETE FROM minirun.store", "UPDATE minirun.store SET session_no = 0"])
async def test_a_database_that_cannot_number_a_session_does_not_say_that_it_is_there(damage: str) -> None:
    """Where what counts was deleted or put back by hand, creating and forking say that, of a name that is free."""
    async with one_session() as (service, _, url):
        sql(url, damage)
        with pytest.raises(StorageCorruptError, match=r"minirun\.store"):
            await service.create_session(app_name="app", user_id="u", session_id="new")
        with pytest.raises(StorageCorruptError, match=r"minirun\.store"):
            await service.fork_session(**HERE, new_session_id="new")


@pytest.mark.parametrize("fault", ["stored", "lost"])
async def test_a_lease_that_may_have_been_taken_is_given_back(fault: str) -> None:
    """If it is unknown whether the first event of a run was stored, the end of the run releases the lease."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        await service.create_session(**HERE)
        for name in ("e-1", "e-2"):
            writer = await enter(service, name)
            env.faults["append"] = fault
            with pytest.raises(StorageUncertainError):
                await begin(writer)
            await writer.finish(None)
            assert sql(url, "SELECT lease_owner, lease_expires FROM minirun.sessions") == [(None, None)]
        assert len((await get(service)).events) == (2 if fault == "stored" else 0)


async def test_a_service_that_is_closed_has_no_connection_left() -> None:
    """Neither the connection of appends, nor the connection that shows that it lives, nor one of the pool."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with one_session() as (service, _, url):
        writer = await enter(service)
        await begin(writer)
        await writer.finish(None)
        assert sql(url, f"SELECT count(*) >= 3 {others}") == [("t",)]
    with trio.fail_after(10):
        while sql(url, f"SELECT count(*) {others}") != [("0",)]:  # noqa: ASYNC110  # no event tells of it
            await trio.sleep(0.01)
    assert service.store_id() is not None  # it is not collected before


async def test_damage_to_a_session_is_none_to_a_fork_that_shows_only_its_past() -> None:
    """Later events of the original are lost, and its row names a summary that is not there: the fork can be used."""
    async with one_session() as (service, session, url):
        await append(service, session, "x")
        await append(service, session, "y")
        fork = await service.fork_session(**HERE, at_seq=1, new_session_id="fork")
    sql(url, "DELETE FROM minirun.events WHERE seq > 1", "UPDATE minirun.sessions SET compaction = 9 WHERE id = 1")
    async with DatabaseSessionService(url) as service:
        fork = await get(service, "fork")
        assert texts(fork) == ["x"]
        await append(service, fork, "on")
        assert texts(await get(service, "fork")) == ["x", "on"]
