"""The long connection: who hears what, who reads for whom, what happens while it is away, and the sign of life."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from minirun._postgres._listener import PAYLOADS_MAX, Bell, Listener
from minirun._postgres._pool import Pool
from minirun._postgres._values import Statement
from minirun.env import REAL_ENV

from ..postgres import PostgresServer, mortal_server, new_database
from ..postgres_tables import END, SAY, until
from .test_postgres_pool import in_child

__all__ = ["mortal_server"]  # a fixture

ALIVE = Statement("alive", "SELECT pg_advisory_lock(4711)", once=True)
IS_DEAD = Statement("is_dead", "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE objid = 4711 AND granted)")
# Of this database: tests share a server.
LISTENERS = Statement(
    "listeners",
    "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database() ORDER BY pid",
)
LONG_S = 60.0  # which no test waits


@pytest.fixture
def url() -> str:
    return new_database()


async def settle(*bells: Bell) -> None:
    """Go through the first looks, of those who have just come and of a new connection, until all is quiet."""
    for bell in bells:
        await bell._listener.ensure()  # however long that takes: then all looks are due
        await bell.wait(0.05)
        await bell.wait(0.05)


async def test_who_listens_hears_what_is_said_on_the_channel(url: str) -> None:
    """
    Each listener hears its channel, the payloads together; the first look is always due.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool)
    async with listener.hearing("one") as first, listener.hearing("two") as second:
        assert await first.wait(LONG_S) is None
        await settle(first, second)
        heard: dict[str, object] = {}

        async def wait(name: str, bell: Bell) -> None:
            heard[name] = await bell.wait(LONG_S)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "first", first)
            nursery.start_soon(wait, "second", second)
            await wait_all_tasks_blocked()
            await pool.write(SAY("one", "a"), SAY("one", "b"), SAY("three", "c"), SAY("two", "d"))
        assert heard == {"first": {"a", "b"}, "second": {"d"}}
    listener.close()


async def test_what_is_said_between_two_looks_is_heard(url: str) -> None:
    """
    Nobody waits at the time; the next wait returns at once.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool)
    async with listener.hearing("news") as bell:
        await settle(bell)
        await pool.write(SAY("news", "early"))
        assert await bell.wait(LONG_S) == frozenset({"early"})
        assert await bell.wait(0.01) is None
    listener.close()


async def test_when_the_reader_leaves_another_one_reads(url: str) -> None:
    """
    One of three who wait reads for all. Whichever is cancelled, the others hear.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool)
    for leaver in range(3):
        heard: list[object] = []
        scopes = [trio.CancelScope() for _ in range(3)]
        settled = [trio.Event() for _ in range(3)]

        async def wait(
            number: int,
            scopes: list[trio.CancelScope] = scopes,
            settled: list[trio.Event] = settled,
            heard: list[object] = heard,
        ) -> None:
            async with listener.hearing("news") as bell:
                await settle(bell)
                settled[number].set()
                with scopes[number]:
                    heard.append(await bell.wait(LONG_S))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(wait, number)
            for each in settled:
                await each.wait()
            await wait_all_tasks_blocked()
            scopes[leaver].cancel()
            await wait_all_tasks_blocked()
            await pool.write(SAY("news", "x"))
        assert heard == [{"x"}, {"x"}]
    listener.close()


async def test_a_new_channel_interrupts_the_one_who_reads(url: str) -> None:
    """
    While one waits, another comes with a channel of its own: both hear.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool)
    heard: list[object] = []

    async def wait(channel: str) -> None:
        async with listener.hearing(channel) as bell:
            await settle(bell)
            heard.append(await bell.wait(LONG_S))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "one")
        await trio.sleep(0.2)
        nursery.start_soon(wait, "two")
        await trio.sleep(0.2)
        await pool.write(SAY("one", "1"))
        await pool.write(SAY("two", "2"))
    assert heard == [{"1"}, {"2"}]
    listener.close()


async def test_a_lost_connection_is_made_again_and_everybody_looks(url: str) -> None:
    """
    What was said meanwhile nobody has heard, so those who wait return None, which says to look at everything.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool)
    async with listener.hearing("news") as bell:
        await settle(bell)
        generation = await listener.ensure()
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await wait_all_tasks_blocked()
                [result] = await pool.read(LISTENERS())
                await pool.write(END(result.rows[0][0]))

            nursery.start_soon(end)
            with trio.fail_after(60):
                assert await bell.wait(LONG_S) is None
        await settle(bell)
        assert await listener.ensure() == generation + 1
        await pool.write(SAY("news", "again"))
        assert await bell.wait(LONG_S) == frozenset({"again"})
    listener.close()


async def test_a_server_that_is_away_fails_nobody_who_waits(mortal_server: PostgresServer) -> None:
    """
    Who waits returns when the time is over. When the server is back, notifications are heard again.
    """
    pool = Pool(mortal_server.new_database(), REAL_ENV)
    listener = Listener(pool)
    async with listener.hearing("news") as bell:
        await settle(bell)
        mortal_server.kill()
        for _ in range(3):
            assert await bell.wait(0.1) is None
        await trio.to_thread.run_sync(mortal_server.start)
        await settle(bell)
        await settle(bell)
        await pool.write(SAY("news", "back"))
        assert await bell.wait(LONG_S) == frozenset({"back"})
    listener.close()


async def test_who_hears_too_much_looks_at_everything(url: str) -> None:
    """
    Payloads that nobody has fetched do not pile up.
    """
    listener = Listener(Pool(url, REAL_ENV))
    async with listener.hearing("news") as bell:
        await settle(bell)
        for number in range(PAYLOADS_MAX + 1):
            bell.ring(str(number))
        assert await bell.wait(LONG_S) is None
    listener.close()


async def test_the_sign_of_life_lasts_as_long_as_the_connection(url: str) -> None:
    """
    The hello is executed on every new connection; closing it, or a new generation, ends what it held.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool, [ALIVE()])
    assert await listener.ensure() == 1
    assert await listener.ensure() == 1
    assert (await pool.read(IS_DEAD()))[0].rows == [(False,)]
    holder = Statement("holder", "SELECT pid FROM pg_locks WHERE objid = 4711 AND granted")
    [result] = await pool.read(holder())
    await pool.write(END(result.rows[0][0]))
    await until(pool, IS_DEAD())
    assert await listener.ensure() == 2
    assert (await pool.read(IS_DEAD()))[0].rows == [(False,)]
    listener.close()
    await until(pool, IS_DEAD())


def test_a_fork_has_a_sign_of_life_of_its_own(url: str) -> None:
    """
    The child's end does not end its parent's, and a fork that does nothing does not keep it alive.
    """
    pool = Pool(url, REAL_ENV)
    listener = Listener(pool, [ALIVE()])
    trio.run(listener.ensure)

    async def child() -> None:
        pool.begin_here()
        listener.begin_here()
        assert (await pool.read(IS_DEAD()))[0].rows == [(False,)]
        assert listener._connection is None

    async def is_dead() -> bool:
        [result] = await pool.read(IS_DEAD())
        return bool(result.rows[0][0])

    assert in_child(child) == 0
    assert trio.run(is_dead) is False
    assert trio.run(listener.ensure) == 1
