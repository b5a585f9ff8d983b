"""One connection to a real Postgres server: values, pipelines, refusals, cancellation, and its end."""

from __future__ import annotations

import os
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun._postgres._connection import Bounds, Connection, ConnectionLostError, ServerError
from minirun._postgres._pool import Pool
from minirun._postgres._values import Call, Result, Statement
from minirun.env import REAL_ENV

from ..examples import examples
from ..interruptions import CancelAtStep
from ..postgres import PostgresServer, mortal_server, new_database, shared_server
from ..postgres_tables import (
    ADD,
    CREATE,
    END,
    IS_ASLEEP,
    IS_AWAKE,
    LIST,
    PID,
    SAY,
    SLEEP,
    SLOWLY,
    TrioTime,
    ids,
    one_connection,
    prepared_pool,
    until,
    until_closed,
)
from ..postgres_wire import Wire, wire_to

__all__ = ["mortal_server"]  # a fixture


@pytest.fixture
def url() -> str:
    return new_database()


async def answer(connection: Connection, *calls: Call) -> list[list[tuple[Any, ...]]]:
    return [result.rows for result in await connection.run(calls, withdraw=True)]


# --- values

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
INT8 = st.integers(-(2**63), 2**63 - 1)
KINDS = {
    "bool": st.booleans(),
    "bytea": st.binary(),
    "float8": st.floats(allow_nan=False),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": INT8,
    "text": TEXTS,
    "bytea[]": st.lists(st.none() | st.binary()),
    "bool[]": st.lists(st.none() | st.booleans()),
    "int8[]": st.lists(st.none() | INT8),
    "text[]": st.lists(st.none() | TEXTS),
    "float8[]": st.lists(st.none() | st.floats(allow_nan=False)),
}
ECHO = Statement("echo", "SELECT " + ", ".join(f"${n + 1}" for n in range(len(KINDS))), " ".join(KINDS))


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(*(st.none() | values for values in KINDS.values())), min_size=1, max_size=5))
def test_values_come_back_as_they_were_sent(rows: list[tuple[Any, ...]]) -> None:
    """
    Every value of every type of a parameter, in an array or not, is what the server returns.
    """

    async def echo() -> None:
        connection = await one_connection(shared_server().url())
        results = await connection.run([ECHO(*row) for row in rows], withdraw=True)
        assert [result.rows for result in results] == [[row] for row in rows]
        connection.close()

    trio.run(echo)


async def test_types_that_only_results_have_are_read(url: str) -> None:
    """
    A point in time is seconds since 1970, `void` is None, an oid and a name are what they are.
    """
    connection = await one_connection(url)
    sql = "SELECT to_timestamp(1.5), pg_notify('a', 'b'), 7::oid, 'n'::name, 2.5::float4, NULL::int4, count(*)"
    assert await answer(connection, Statement("types", sql)()) == [[(1.5, None, 7, "n", 2.5, None, 1)]]


async def test_a_value_that_does_not_fit_is_refused_before_anything_is_sent(url: str) -> None:
    """
    A number beyond 64 bits raises, and the connection is idle as before.
    """
    connection = await one_connection(url)
    [_] = await connection.run([CREATE()], withdraw=False)
    with pytest.raises(Exception, match=r"too large|format requires"):
        await connection.run([ADD(1, "a"), ADD(2**63, "b")], withdraw=False)
    assert await answer(connection, LIST()) == [[]]


# --- pipelines


async def test_what_is_sent_together_is_one_transaction(url: str) -> None:
    """
    A statement that fails takes those before and after it with it, and says which one it was; the connection goes on.
    """
    connection = await one_connection(url)
    await connection.run([CREATE()], withdraw=False)
    results = await connection.run([ADD(1, "a"), ADD(2, None), LIST()], withdraw=False)
    assert results == [Result([], 1), Result([], 1), Result([(1,), (2,)], 2)]
    with pytest.raises(ServerError, match=r"duplicate key .* \(SQLSTATE 23505, statement add\)") as refused:
        await connection.run([ADD(3, "c"), ADD(2, "secret"), ADD(4, "d")], withdraw=False)
    assert (refused.value.sqlstate, refused.value.constraint) == ("23505", "notes_pkey")
    assert "secret" not in str(refused.value)
    assert connection.is_open
    assert not connection.in_transaction
    assert await answer(connection, LIST()) == [[(1,), (2,)]]


async def test_a_statement_is_prepared_once(url: str) -> None:
    """
    Ten executions leave one prepared statement; one that is refused as it is prepared leaves none.
    """
    connection = await one_connection(url)
    await connection.run([CREATE()], withdraw=False)
    for number in range(0, 10, 2):
        await connection.run([ADD(number, ""), ADD(number + 1, "")], withdraw=False)
    with pytest.raises(ServerError, match="42P01"):
        await connection.run([Statement("gone", "SELECT * FROM nothing")()], withdraw=True)
    names = Statement("names", "SELECT name FROM pg_prepared_statements", once=True)
    assert await answer(connection, names()) == [[("add_1",)]]


async def test_a_pipeline_may_be_larger_than_what_the_sockets_hold(url: str) -> None:
    """
    While 30 MB go out, as many come in: nobody waits for the other to read first.
    """
    connection = await one_connection(url)
    echo = Statement("echo_bytes", "SELECT $1", "bytea")
    pieces = [bytes([n]) * 1_000_000 for n in range(30)]
    with trio.fail_after(60):
        assert await answer(connection, *map(echo, pieces)) == [[(piece,)] for piece in pieces]


async def test_a_transaction_of_several_round_trips_is_seen(url: str) -> None:
    """
    From BEGIN to the end the connection is in a transaction, also in one that has failed.
    """
    connection = await one_connection(url)
    begin, end = Statement("begin", "BEGIN"), Statement("end", "ROLLBACK")
    await connection.run([begin(), CREATE()], withdraw=False)
    assert connection.in_transaction
    with pytest.raises(ServerError):
        await connection.run([CREATE()], withdraw=False)
    assert connection.in_transaction
    await connection.run([end()], withdraw=False)
    assert not connection.in_transaction


# --- cancellation


async def test_a_read_that_is_cancelled_stops_at_the_server(url: str) -> None:
    """
    The server gives up what was asked, soon, and the connection is used again.
    """
    connection, other = await one_connection(url), Pool(url, REAL_ENV)
    with trio.fail_after(60):
        with trio.move_on_after(0.1) as scope:
            await connection.run([SLEEP(60.0)], withdraw=True)
        assert scope.cancelled_caught
        assert connection.is_open
        await until(other, IS_AWAKE())
        assert await answer(connection, PID()) == [[(connection.backend_pid,)]]


async def test_a_write_that_is_cancelled_returns_its_answer(url: str) -> None:
    """
    What was sent is waited for, and what it has stored is known; the cancellation comes at the next checkpoint.
    """
    connection = await one_connection(url)
    await connection.run([CREATE()], withdraw=False)
    results: list[Result] = []
    with trio.move_on_after(0.05) as scope:
        results = await connection.run([SLOWLY(1, 0.3)], withdraw=False)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert [result.changed for result in results] == [1]
    assert await answer(connection, LIST()) == [[(1,)]]


async def test_a_write_that_is_cancelled_and_takes_too_long_is_lost(url: str) -> None:
    """
    After the grace the connection is closed, the caller is told that nobody knows, and soon the server has given up.
    """
    pool = await prepared_pool(url)
    connection = await pool.connect()
    connection._bounds = attrs.evolve(pool.bounds, grace_s=0.1)  # type: ignore[attr-defined]
    with trio.move_on_after(0.1), pytest.raises(ConnectionLostError, match="no answer within") as lost:
        await connection.run([SLOWLY(1, 60.0)], withdraw=False)
    assert lost.value.sent
    assert not connection.is_open
    await until(pool, IS_AWAKE())
    assert await ids(pool) == []


async def test_cancelled_before_it_is_sent_sends_nothing(url: str) -> None:
    """
    In a scope that is cancelled already nothing is written.
    """
    connection = await one_connection(url)
    await connection.run([CREATE()], withdraw=False)
    with trio.CancelScope() as scope:
        scope.cancel()
        await connection.run([ADD(1, "")], withdraw=False)
    assert scope.cancelled_caught
    assert await answer(connection, LIST()) == [[]]


@pytest.mark.parametrize("withdraw", [False, True])
async def test_cancelled_at_any_step_it_is_usable_or_gone(url: str, withdraw: bool) -> None:
    """
    Whatever step of any task a cancellation follows: the connection answers the next statement, or is closed, and a
    writer who got an answer has stored all, one who was cancelled has stored nothing.
    """
    server = shared_server()
    pool = await prepared_pool(url)
    quiet, step, outcomes = 0, 0, set()
    async with wire_to(server, url) as wire:
        connection = await one_connection(wire.url)
        while quiet < 5:
            step += 1
            if not connection.is_open:
                connection = await one_connection(wire.url)
            results = None
            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    calls = [ADD(2 * step, ""), SLEEP(0.002), ADD(2 * step + 1, "")]
                    results = await connection.run(calls, withdraw=withdraw)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            if connection.is_open:
                assert not connection.in_transaction
                assert await answer(connection, PID()) == [[(connection.backend_pid,)]]
            stored = {2 * step, 2 * step + 1} & {*await ids(pool)}
            if results is not None:
                assert len(stored) == 2
            elif not withdraw:
                assert not stored
            else:
                assert len(stored) in (0, 2)
            outcomes.add((results is not None, scope.cancelled_caught))
            quiet = quiet + 1 if instrument.steps < step else 0
        connection.close()
    assert step > 5
    assert (True, False) in outcomes
    if withdraw:
        assert (False, True) in outcomes


# --- the end of a connection


def requests(number: int) -> list[Call]:
    return [ADD(2 * number, ""), ADD(2 * number + 1, "")]


async def lost_after(wire: Wire, number: int) -> tuple[bool, int]:
    """Write on a new connection over a wire that may be cut; return whether an answer came, and its bytes."""
    client_max, server_max = wire.client_max, wire.server_max
    wire.reset()
    connection = await one_connection(wire.url)
    wire.reset()
    wire.client_max, wire.server_max = client_max, server_max
    try:
        await connection.run(requests(number), withdraw=False)
    except ConnectionLostError:
        assert not connection.is_open
        return False, wire.server_bytes
    connection.close()
    return True, wire.server_bytes


@pytest.mark.parametrize("direction", ["client", "server"])
async def test_a_wire_that_is_cut_anywhere_leaves_all_or_nothing_stored(url: str, direction: str) -> None:
    """
    After each number of bytes of the question, and of the answer: who got the answer has stored all, others may have;
    and nothing is stored of a question that did not arrive as a whole.
    """
    server = shared_server()
    pool = await prepared_pool(url)
    async with wire_to(server, url) as wire:
        answered, _ = await lost_after(wire, 0)
        assert answered
        whole = wire.client_bytes if direction == "client" else wire.server_bytes
        for number in range(1, whole, 7):
            setattr(wire, f"{direction}_max", number)
            answered, _ = await lost_after(wire, number)
            if direction == "client":
                assert not answered
        setattr(wire, f"{direction}_max", whole)
        answered, _ = await lost_after(wire, whole)
        assert answered
    stored = {*await ids(pool)}
    for number in range(1, whole, 7):
        pair = {2 * number, 2 * number + 1}
        assert pair & stored in ((set(),) if direction == "client" else (set(), pair))
    assert {2 * whole, 2 * whole + 1} <= stored


async def test_a_connection_that_the_server_ends_says_why(url: str) -> None:
    """
    Ended in the middle of a statement, or while nothing is going on: the next use raises, with the server's words.
    """
    connection, third, other = await one_connection(url), await one_connection(url), Pool(url, REAL_ENV)

    async def end() -> None:
        await until(other, IS_ASLEEP())
        await other.read(END(connection.backend_pid))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        with pytest.raises(ConnectionLostError, match="terminating connection due to administrator command") as lost:
            await connection.run([SLEEP(60.0)], withdraw=True)
        assert lost.value.sent
    assert third.is_alive()
    await other.read(END(third.backend_pid))
    await until_closed(third)
    with pytest.raises(ConnectionLostError, match="terminating connection") as lost:
        await third.run([PID()], withdraw=True)
    assert not lost.value.sent


async def test_an_idle_transaction_is_ended_by_the_server(url: str) -> None:
    """
    Who begins and does not go on loses the connection, with its locks, after the bound.
    """
    pool = await prepared_pool(url, bounds=Bounds(idle_transaction_s=0.1))
    connection = await pool.connect()
    await connection.run([Statement("begin", "BEGIN")(), ADD(1, "")], withdraw=False)
    await until_closed(connection)
    with pytest.raises(ConnectionLostError, match="idle-in-transaction timeout"):
        await connection.run([LIST()], withdraw=True)
    assert await ids(pool) == []


async def test_a_server_that_is_killed_loses_the_connection(mortal_server: PostgresServer) -> None:
    """
    kill -9 in the middle of a statement is a lost connection at once, and nobody knows what is stored.
    """
    connection = await one_connection(mortal_server.new_database())
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await trio.sleep(0.1)
            mortal_server.kill()

        nursery.start_soon(kill)
        with pytest.raises(ConnectionLostError) as lost:
            await connection.run([SLEEP(60.0)], withdraw=False)
    assert lost.value.sent
    assert not connection.is_open
    await trio.to_thread.run_sync(mortal_server.start)


@pytest.fixture
def jumping() -> MockClock:
    """Time that jumps when nothing has happened for 200 ms: a server that is not stopped answers before."""
    return MockClock(autojump_threshold=0.2)


async def test_a_server_that_is_stopped_is_given_up(mortal_server: PostgresServer, jumping: MockClock) -> None:
    """
    A statement that nobody answers is lost after the bound, and so is an attempt to connect.
    """
    url = mortal_server.new_database()
    connection = await one_connection(url, env=TrioTime())
    mortal_server.freeze()
    try:
        begun = trio.current_time()
        with pytest.raises(ConnectionLostError, match="no answer within 20 s") as lost:
            await connection.run([PID()], withdraw=True)
        assert lost.value.sent
        assert trio.current_time() - begun == pytest.approx(20, abs=0.5)
    finally:
        mortal_server.thaw()


async def test_a_clock_that_jumps_ends_no_waiting(url: str, autojump_clock: MockClock) -> None:
    """
    Under a clock that jumps to the next time-out whenever nothing is ready, statements of a real server are answered.
    """
    connection = await one_connection(url)
    assert await answer(connection, SLEEP(0.1), PID()) == [[(None,)], [(connection.backend_pid,)]]
    connection.close()


async def test_it_closes_under_one_who_waits(url: str) -> None:
    """
    Who waits for notifications on a connection that somebody closes is told so.
    """
    connection = await one_connection(url)
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(ConnectionLostError):
                await connection.notified()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        connection.close()


async def test_notifications_are_heard_and_none_is_lost_by_a_cancellation(url: str) -> None:
    """
    A task that waits is cancelled, and the next one has what came meanwhile, in order.
    """
    connection, other = await one_connection(url), await one_connection(url)
    await connection.run([Statement("listen", "LISTEN news", once=True)()], withdraw=True)
    with trio.move_on_after(0.05) as scope:
        await connection.notified()
    assert scope.cancelled_caught
    await other.run([SAY("news", "1"), SAY("news", "2"), SAY("other", "3")], withdraw=False)
    await other.run([SAY("news", "4")], withdraw=False)
    heard: list[str] = []
    while len(heard) < 3:
        heard += [each.payload for each in await connection.notified()]
    assert heard == ["1", "2", "4"]


def test_a_fork_leaves_the_connection_of_its_parent_alone(url: str) -> None:
    """
    The child gives its copy up without a word; the parent goes on. The child's copy is closed, so that the server sees
    the end of the parent.
    """
    connection = trio.run(one_connection, url)
    descriptor = connection._pg.socket  # type: ignore[attr-defined]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert not connection.is_open
            connection.abandon()
            try:
                os.fstat(descriptor)
            except OSError:
                code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert trio.run(answer, connection, PID()) == [[(connection.backend_pid,)]]
