"""The pool over a real Postgres server: order, reconnecting, transactions, what is done again, forks, and errors."""

from __future__ import annotations

import os
import sys

import pytest
import trio

from minirun import DatabaseSessionService, Event
from minirun._postgres._connection import Bounds
from minirun._postgres._errors import sqlstate
from minirun._postgres._pool import Pool
from minirun._postgres._values import Result, Statement
from minirun.env import REAL_ENV
from minirun.errors import (
    ServiceClosedError,
    StorageBusyError,
    StorageConnectionError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageMissingError,
    StorageReadOnlyError,
    StorageRolledBackError,
    StorageUncertainError,
)

from ..postgres import PostgresServer, mortal_server, new_database, shared_server
from ..postgres_tables import ADD, END, LIST, LOCK, PID, SLEEP, SLOWLY, ids, prepared_pool, until
from ..postgres_wire import wire_to

__all__ = ["mortal_server"]  # a fixture

SET_NOTE = Statement("set_note", "UPDATE notes SET note = $2 WHERE id = $1", "int8 text")
IS_GONE = Statement("is_gone", "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", "int4")
SETTING = Statement("setting", "SELECT current_setting($1)", "text")


@pytest.fixture
def url() -> str:
    return new_database()


async def pid_of(pool: Pool) -> int:
    [result] = await pool.read(PID())
    pid: int = result.rows[0][0]
    return pid


# --- connections


async def test_there_are_no_more_connections_than_the_size_and_who_waits_is_served_in_order(url: str) -> None:
    """
    Ten tasks share one connection, and come to their turns in the order in which they asked; of two they use two.
    """
    pool = await prepared_pool(url, size=1)
    done: list[int] = []

    async def use(number: int) -> None:
        await pool.write(SLOWLY(number, 0.02))
        done.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(use, number)
            await trio.lowlevel.checkpoint()
    assert len(pool._all) == 1
    assert done == [*range(10)]
    wider = Pool(url, REAL_ENV, size=2)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(wider.read, SLEEP(0.02))
    assert len(wider._all) == 2


async def test_who_gives_up_waiting_loses_no_connection(url: str) -> None:
    """
    A task that is cancelled while it waits for a connection leaves the line, and the others get theirs.
    """
    pool = await prepared_pool(url, size=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.read, SLEEP(0.1))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.01) as scope:
            await pool.read(PID())
        assert scope.cancelled_caught
    assert await ids(pool) == []


async def test_a_pool_is_used_in_one_run_after_another(url: str) -> None:
    """
    The connections of one `trio.run` serve the next one.
    """
    pool = await prepared_pool(url)
    pid = await pid_of(pool)

    def again() -> int:
        return trio.run(pid_of, pool)

    assert await trio.to_thread.run_sync(again) == pid


async def test_a_closed_pool_refuses(url: str) -> None:
    """
    After `close` nothing is read, and a connection in use at that time is closed when it is given back.
    """
    pool = await prepared_pool(url)
    async with pool.transaction() as transaction:
        await transaction.run(ADD(1, ""))
        pool.close()
    assert not pool._all
    with pytest.raises(ServiceClosedError, match="the connections were closed"):
        await pool.read(PID())


async def test_a_connection_that_was_ended_meanwhile_is_replaced_before_anything_is_sent(url: str) -> None:
    """
    A write after the server has ended the idle connection goes out on a new one, once.
    """
    pool, other = await prepared_pool(url), Pool(url, REAL_ENV)
    pid = await pid_of(pool)
    await other.write(END(pid))
    await until(other, IS_GONE(pid))
    await pool.write(ADD(1, ""))
    assert await pid_of(pool) != pid
    assert await ids(pool) == [1]


async def test_a_server_that_restarts_is_waited_for(mortal_server: PostgresServer) -> None:
    """
    While the server is down a statement waits, and is executed when it is back; a read that was lost is done again.
    """
    pool = await prepared_pool(mortal_server.new_database())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.read, SLEEP(0.5))
        await trio.sleep(0.1)
        nursery.start_soon(trio.to_thread.run_sync, mortal_server.restart)
        await trio.sleep(0.1)
        await pool.write(ADD(1, ""))
    assert await ids(pool) == [1]


async def test_a_write_that_is_lost_is_not_done_again(url: str) -> None:
    """
    The connection ends while a write waits for its answer: its outcome is unknown, and it is not sent once more.
    """
    pool, other = await prepared_pool(url), Pool(url, REAL_ENV)
    pid = await pid_of(pool)
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await trio.sleep(0.1)
            await other.write(END(pid))

        nursery.start_soon(end)
        with pytest.raises(StorageUncertainError, match=r"lost while writing: .*terminating connection") as lost:
            await pool.write(SLOWLY(1, 60.0))
    assert lost.value.stored is None
    assert await ids(pool) == []


async def test_a_write_whose_answer_is_lost_may_be_stored(url: str) -> None:
    """
    The wire is cut after the server has committed: unknown, and another look finds it.
    """
    async with wire_to(shared_server(), url) as wire:
        pool = await prepared_pool(wire.url)
        await pool.write(ADD(1, ""))
        wire.server_bytes, wire.server_max = 0, 0
        with pytest.raises(StorageUncertainError, match="what was written may or may not be stored: read it again"):
            await pool.write(ADD(2, ""))
        wire.reset()
        assert await ids(pool) == [1, 2]
        pool.close()


async def test_prepared_statements_that_are_gone_are_prepared_again(url: str) -> None:
    """
    A connection that somebody has told to forget all is given up, and the statement is executed on another one.
    """
    pool = await prepared_pool(url)
    await pool.write(ADD(1, ""))
    await pool.read(Statement("forget", "DEALLOCATE ALL", once=True)())
    await pool.write(ADD(2, ""))
    assert await ids(pool) == [1, 2]


# --- transactions


async def test_a_transaction_is_stored_as_a_whole_or_not_at_all(url: str) -> None:
    """
    A block that ends has stored what it ran; one that raises, is cancelled or fails has stored nothing.
    """
    pool = await prepared_pool(url)
    async with pool.transaction() as transaction:
        assert await transaction.run(ADD(1, "")) == [Result([], 1)]
        assert [result.rows for result in await transaction.run(ADD(2, ""), LIST())] == [[], [(1,), (2,)]]
    with pytest.raises(ZeroDivisionError):
        async with pool.transaction() as transaction:
            await transaction.run(ADD(3, ""))
            raise ZeroDivisionError
    with trio.move_on_after(0.1) as scope:
        async with pool.transaction() as transaction:
            await transaction.run(ADD(4, ""))
            await transaction.run(SLEEP(60.0))
    assert scope.cancelled_caught
    with pytest.raises(StorageRolledBackError):
        async with pool.transaction() as transaction:
            await transaction.run(ADD(5, ""))
            await transaction.run(ADD(1, ""))
    async with pool.transaction():
        pass
    assert await ids(pool) == [1, 2]
    assert len(pool._all) == 1


async def test_a_snapshot_sees_one_state_and_writes_nothing(url: str) -> None:
    """
    What others store meanwhile is not seen; a statement that writes is refused.
    """
    pool = await prepared_pool(url)
    async with pool.transaction(snapshot=True) as view:
        assert [result.rows for result in await view.run(LIST())] == [[]]
        await pool.write(ADD(1, ""))
        assert [result.rows for result in await view.run(LIST())] == [[]]
    with pytest.raises(StorageReadOnlyError):
        async with pool.transaction(snapshot=True) as view:
            await view.run(ADD(2, ""))
    assert await ids(pool) == [1]


async def test_a_slow_statement_may_be_given_more_time(url: str) -> None:
    """
    The time-out of the server is another one for these statements alone.
    """
    pool = await prepared_pool(url)
    [usual] = await pool.read(SETTING("statement_timeout"))
    [slow] = await pool.read(SETTING("statement_timeout"), slow_s=77)
    async with pool.transaction(slow_s=78) as transaction:
        [slower] = await transaction.run(SETTING("statement_timeout"))
    [after] = await pool.read(SETTING("statement_timeout"))
    assert [each.rows[0][0] for each in (usual, slow, slower, after)] == ["15s", "77s", "78s", "15s"]


async def test_who_reads_for_long_may_be_idle_for_long(url: str) -> None:
    """
    A snapshot that is given more time may spend it between its statements: what it has read is written elsewhere, say.
    One that writes, and may hold locks, may not.
    """
    pool = await prepared_pool(url)
    async with pool.transaction(slow_s=78, snapshot=True) as transaction:
        [reading] = await transaction.run(SETTING("idle_in_transaction_session_timeout"))
    async with pool.transaction(slow_s=78) as transaction:
        [writing] = await transaction.run(SETTING("idle_in_transaction_session_timeout"))
    assert [each.rows[0][0] for each in (reading, writing)] == ["78s", "4s"]


# --- errors


@pytest.mark.parametrize(
    ("sql", "kind", "code"),
    [
        ("SELECT * FROM nothing", StorageMissingError, "42P01"),
        ("SELECT * FROM nowhere.nothing", StorageMissingError, "42P01"),
        ("CREATE TABLE nowhere.notes ()", StorageMissingError, "3F000"),
        ("SELECT nobody FROM notes", StorageMissingError, "42703"),
        ("SELECT nothing(1)", StorageMissingError, "42883"),
        ("SELECT 1 / 0", StorageRolledBackError, "22012"),
        ("SELECT repeat('x', 2000000000)", StorageFullError, "54000"),
        ("DO $$BEGIN RAISE 'no room' USING ERRCODE = '53100'; END$$", StorageFullError, "53100"),
        ("DO $$BEGIN RAISE 'bad page' USING ERRCODE = 'XX001'; END$$", StorageCorruptError, "XX001"),
        ("DO $$BEGIN RAISE 'who knows' USING ERRCODE = '40003'; END$$", StorageUncertainError, "40003"),
        ("SET TRANSACTION READ ONLY; INSERT INTO notes VALUES (1, '')", StorageRolledBackError, "42601"),
        ("DO $$BEGIN RAISE 'again' USING ERRCODE = '40001'; END$$", StorageBusyError, "40001"),
        ("EXECUTE forgotten", StorageFormatError, "26000"),
    ],
)
async def test_what_the_server_refuses_has_a_type(url: str, sql: str, kind: type[StorageError], code: str) -> None:
    """
    By its SQLSTATE; the message names the database, what was done, and what to do, and the code is found again.
    """
    pool = await prepared_pool(url)
    with pytest.raises(kind, match=rf"^{pool.name}: writing failed: .*\(SQLSTATE {code}, .*\); \w+") as refused:
        await pool.write(Statement("refused", sql, once=True)())
    assert type(refused.value) is kind
    assert sqlstate(refused.value) == code
    assert sqlstate(ValueError()) == ""
    assert await ids(pool) == []


async def test_who_may_not_write_is_told_which_right_is_missing(url: str) -> None:
    """
    A user without rights is refused with the GRANT that helps; nothing is stored.
    """
    await prepared_pool(url)
    guest = Pool(url.replace("minirun@", "guest@"), REAL_ENV)
    with pytest.raises(StorageReadOnlyError, match=r"permission denied .*GRANT CREATE, CONNECT ON DATABASE"):
        await guest.write(ADD(1, ""))
    with pytest.raises(StorageReadOnlyError):
        await guest.write(Statement("make", "CREATE SCHEMA minirun", once=True)())


async def test_a_lock_is_waited_for_up_to_the_bound(url: str) -> None:
    """
    Then the store is busy, and nothing is stored; so is a statement that takes longer than the bound.
    """
    pool = await prepared_pool(url, bounds=Bounds(lock_s=0.1, statement_s=0.3))
    await pool.write(ADD(1, ""))
    async with pool.transaction() as transaction:
        await transaction.run(LOCK(1))
        with pytest.raises(StorageBusyError, match=r"lock timeout.*try again later") as busy:
            await pool.write(SET_NOTE(1, "x"))
        assert busy.value.stored is False
    with pytest.raises(StorageBusyError, match="statement timeout"):
        await pool.write(SLOWLY(2, 60.0))
    assert await ids(pool) == [1]


async def test_a_deadlock_is_done_once_more(url: str) -> None:
    """
    Two that lock each other out are both stored: the server rolls one of them back, and it is executed again.
    """
    pool = await prepared_pool(url)
    await pool.write(ADD(1, ""), ADD(2, ""))
    pause = Statement("pause", "SELECT pg_sleep(0.1)")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.write, SET_NOTE(1, "a"), pause(), SET_NOTE(2, "a"))
        nursery.start_soon(pool.write, SET_NOTE(2, "b"), pause(), SET_NOTE(1, "b"))
    [result] = await pool.read(Statement("notes", "SELECT note FROM notes ORDER BY id")())
    assert result.rows in ([("a",), ("a",)], [("b",), ("b",)])


async def test_every_connection_has_its_bounds(url: str) -> None:
    """
    Statement, lock, idle transaction and a client that is gone: the server is told a time for each; commits are durable
    even where the database's default says otherwise.
    """
    database = url.partition("@/")[2].partition("?")[0]
    shared_server().execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    pool = await prepared_pool(url)
    times = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    others = ("client_connection_check_interval", "synchronous_commit", "client_encoding")
    results = await pool.read(*[SETTING(name) for name in (*times, *others)])
    expected = ["15s", "5s", "4s", "1s" if sys.platform == "linux" else "0", "on", "UTF8"]
    assert [result.rows[0][0] for result in results] == expected


async def test_what_the_work_depends_on_is_set_whatever_is_the_default() -> None:
    """
    Isolation, the end of what is idle for long, and backslashes in SQL are ours, not those of the database: workers
    make sessions and append at once in one where all three are otherwise.
    """
    url = shared_server().new_database()
    database = url.partition("@/")[2].partition("?")[0]
    unusual = (
        "default_transaction_isolation = serializable",
        "idle_session_timeout = 200",
        "standard_conforming_strings = off",
    )
    shared_server().execute(*(f"ALTER DATABASE {database} SET {each}" for each in unusual))
    async with DatabaseSessionService(url) as one, DatabaseSessionService(url) as other, trio.open_nursery() as nursery:

        async def use(service: DatabaseSessionService, name: str) -> None:
            session = await service.create_session(app_name="app", user_id="u", session_id=name)
            for number in range(5):
                await service.append_event(session, Event(author="user", state={"app:n": number}))

        for name in "abcdef":
            nursery.start_soon(use, one if name in "ace" else other, name)
    pool = Pool(url, REAL_ENV)
    names = [each.partition(" ")[0] for each in unusual]
    results = await pool.read(*[SETTING(name) for name in names])
    assert [result.rows[0][0] for result in results] == ["read committed", "0", "on"]
    pool.close()


# --- forks


def in_child(body: object) -> int:
    """Fork, call *body* there in a `trio.run` of its own, and return the child's exit code: 0 if it was well."""
    assert callable(body)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            trio.run(body)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_has_connections_of_its_own(url: str) -> None:
    """
    The child works with others than its parent, whose connections are alive when the child has ended.
    """
    pool = trio.run(prepared_pool, url)
    pid = trio.run(pid_of, pool)

    async def child() -> None:
        pool.begin_here()
        assert await pid_of(pool) != pid
        await pool.write(ADD(1, "child"))
        pool.close()

    assert in_child(child) == 0
    assert trio.run(pid_of, pool) == pid
    assert trio.run(ids, pool) == [1]


async def test_an_unreachable_server_is_said_at_once(url: str) -> None:
    """
    A pool that was never connected does not wait for a server that may come.
    """
    pool = Pool(url.replace("host=", "host=/nowhere"), REAL_ENV)
    with trio.fail_after(60), pytest.raises(StorageConnectionError, match="cannot connect"):
        await pool.read(PID())
