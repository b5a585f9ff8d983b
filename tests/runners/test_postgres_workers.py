"""Workers on one Postgres: each job is claimed by one of them, and what one leaves wakes the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio

from minirun import App, BaseAgent, DatabaseSessionService, Event, InvocationContext, Runner
from minirun.sessions import BaseSessionService, InvocationStatus
from minirun.sessions._postgres._work import CLAIM_S, DatabaseWork
from minirun.sessions._work import Job, work_in

from ..postgres import new_database
from ..postgres_sessions import name_of, sql
from .test_supervise import OverBudget, interrupt, statuses, texts

PATIENCE_S = 120


class Slow(BaseAgent):
    """Says who has worked in which session, and takes as long as it is told."""

    seconds: float
    worker: str
    done: list[tuple[str, str]]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="begun"))

        async def work() -> str:
            self.done.append((ctx.session.id, self.worker))
            await trio.sleep(self.seconds)
            return self.worker

        await ctx.step("work", work)


class Timed(BaseAgent):
    """Waits for a time."""

    until: float

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.sleep_until(self.until)
        await ctx.emit(Event(message="it is time"))


def runner_of(service: BaseSessionService, agent: BaseAgent) -> Runner:
    """A runner as each worker makes one."""
    return Runner(agent=agent, app_name="app", session_service=service)


@asynccontextmanager
async def workers(url: str, number: int) -> AsyncIterator[list[DatabaseSessionService]]:
    """Services as so many workers have them."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(DatabaseSessionService(url)) for _ in range(number)]


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something to be so."""
    with trio.fail_after(PATIENCE_S):
        while not await found():  # noqa: ASYNC110  # it is in a database
            await trio.sleep(0.02)


def work_of(service: DatabaseSessionService) -> DatabaseWork:
    """The work of the app, as a worker with this service sees it."""
    work = work_in(service, "app")
    assert isinstance(work, DatabaseWork)
    return work


async def test_each_job_is_claimed_by_one_worker() -> None:
    """Workers that claim at the same moment get different jobs, each as many as it asks for, until none is left."""
    names = [f"s{number:02}" for number in range(24)]
    async with workers(new_database(), 4) as services:
        await interrupt(services[0], *names)
        claimed: list[Job] = []

        async def claim_all(service: DatabaseSessionService) -> None:
            work = work_of(service)
            found = await work.look(0)
            while mine := await work.claim([*found], 2):
                assert len(mine) <= 2
                claimed.extend(mine)
                for job in mine:
                    del found[job]

        async with trio.open_nursery() as nursery:
            for service in services:
                nursery.start_soon(claim_all, service)
        assert sorted(key.session_id for key, _ in claimed) == names


async def test_what_a_living_worker_has_claimed_is_nobody_elses() -> None:
    """Others neither see it nor get it; they do when its time is over."""
    url = new_database()
    async with workers(url, 2) as (mine, theirs):
        await interrupt(mine, "s")
        first, second = work_of(mine), work_of(theirs)
        found = [*await first.look(0)]
        seen = [*await second.look(0)]
        assert found == seen
        assert await first.claim(found, 1) == found
        assert await second.claim(seen, 1) == []
        assert await second.look(0) == {}
        assert [*await first.look(0)] == found, "its own claim keeps nobody from trying again"
        await execute(mine, "UPDATE minirun.claims SET until = now()")
        assert [*await second.look(0)] == found
        assert await second.claim(found, 1) == found
        assert await first.claim(found, 1) == []


async def test_the_claims_of_a_worker_that_is_gone_are_free_at_once() -> None:
    """Its connection was its sign of life; nobody waits for the time of the claim."""
    url = new_database()
    async with workers(url, 1) as (mine,):
        await interrupt(mine, "s")
        async with DatabaseSessionService(url) as other:
            work = work_of(other)
            found = [*await work.look(0)]
            assert await work.claim(found, 1) == found
            assert await work_of(mine).look(0) == {}
        work = work_of(mine)

        async def free() -> bool:
            return [*await work.look(0)] == found

        with trio.fail_after(CLAIM_S / 2):
            await until(free)  # when the server has seen that the connection has ended
        assert await work.claim(found, 1) == found


async def test_who_hears_nothing_waits_as_long_as_it_has_said() -> None:
    """But at first, when it may have missed something, and when the connection is new."""
    async with workers(new_database(), 1) as (service,):
        work = work_of(service)
        async with work.watching():
            began = trio.current_time()
            for _ in range(3):
                await work.wait(0.02)
            assert trio.current_time() - began >= 0.02


async def test_claims_that_are_long_over_are_swept() -> None:
    """Rows of work that was done do not pile up."""
    async with workers(new_database(), 1) as (service,):
        await interrupt(service, "a", "b")
        work = work_of(service)
        found = [*await work.look(0)]
        assert await work.claim(found[:1], 1) == found[:1]
        await execute(service, "UPDATE minirun.claims SET until = now() - interval '1 hour'")
        assert await work.claim(found[1:], 1) == found[1:]
        assert await count(service, "minirun.claims") == 1


async def test_supervisors_share_the_work() -> None:
    """Each invocation comes to its end once, and more than one worker takes part."""
    names = [f"s{number:02}" for number in range(12)]
    async with workers(new_database(), 3) as services, trio.open_nursery() as nursery:
        await interrupt(services[0], *names)
        done: list[tuple[str, str]] = []
        for number, service in enumerate(services):
            runner = runner_of(service, Slow(name="w", seconds=0.3, worker=f"w{number}", done=done))
            nursery.start_soon(partial(runner.supervise, max_concurrent=2, every_s=0.2))

        async def all_done() -> bool:
            return set((await statuses(services[0])).values()) == {"completed"}

        await until(all_done)
        nursery.cancel_scope.cancel()
    assert sorted(session for session, _ in done) == names
    assert len({worker for _, worker in done}) > 1


async def test_what_a_worker_leaves_wakes_the_others() -> None:
    """A worker that would look again in an hour goes on at once with the run that another one leaves."""
    async with workers(new_database(), 2) as (leaving, waiting):
        await interrupt(leaving, "s")
        done: list[tuple[str, str]] = []
        async with trio.open_nursery() as nursery:
            left = trio.CancelScope()

            async def leave() -> None:
                with left:
                    await runner_of(leaving, Slow(name="w", seconds=60, worker="one", done=done)).supervise()

            nursery.start_soon(leave)

            async def begun() -> bool:
                return bool(done)

            await until(begun)
            other = runner_of(waiting, Slow(name="w", seconds=0, worker="two", done=done))
            await nursery.start(partial(other.supervise, every_s=3600))
            await trio.sleep(0.3)  # its first look is over: from here on only the channel tells
            left.cancel()

            async def completed() -> bool:
                return (await statuses(waiting))["s"] == "completed"

            with trio.fail_after(CLAIM_S / 2):
                await until(completed)
            nursery.cancel_scope.cancel()
        assert done == [("s", "one"), ("s", "two")]


async def test_workers_store_once_what_a_plugin_answers_instead() -> None:
    """Two workers try an invocation again that a plugin does not let go on: the log grows once, and then it goes on."""
    async with workers(new_database(), 2) as services, trio.open_nursery() as nursery:
        await interrupt(services[0], "s")
        plugin, done = OverBudget(), list[tuple[str, str]]()
        for service in services:
            app = App("app", Slow(name="w", seconds=0, worker="w", done=done), plugins=[plugin])
            runner = Runner(app=app, session_service=service)
            nursery.start_soon(partial(runner.supervise, every_s=0.02))

        async def tried() -> bool:
            return len(plugin.asked) >= 4

        await until(tried)
        assert await texts(services[0], "s") == ["go", "", "over budget"]
        assert await statuses(services[0]) == {"s": "interrupted"}
        plugin.has_budget = True

        async def completed() -> bool:
            return await statuses(services[0]) == {"s": "completed"}

        await until(completed)
        nursery.cancel_scope.cancel()
    assert len(done) == 1


async def test_a_database_that_takes_no_claims_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """One that can be read alone, say: what is found at each look is claimed in vain, and told once."""
    url = new_database()
    async with workers(url, 1) as [writing]:
        await interrupt(writing, "s")
    sql(url, f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    async with workers(url, 1) as [reading]:
        with trio.move_on_after(1):
            await runner_of(reading, Slow(name="w", seconds=0, worker="w", done=[])).supervise(every_s=0.05)
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("cannot claim work of 'app': StorageReadOnlyError: ")


async def test_timers_are_read_once_and_found_when_they_are_due() -> None:
    """Also those that a fork has from its past; questions are no work."""
    async with workers(new_database(), 1) as (service,):
        await service.create_session(app_name="app", user_id="u", session_id="s")
        async with runner_of(service, Timed(name="t", until=1e9)).run_async(
            user_id="u", session_id="s", new_message="go"
        ) as run:
            await run.wait()
        assert run.status == "completed", "that time is over"
        async with runner_of(service, Timed(name="t", until=1e10)).run_async(
            user_id="u", session_id="s", new_message="go"
        ) as run:
            await run.wait()
        assert run.status == "paused"
        await service.fork_session(app_name="app", user_id="u", session_id="s", new_session_id="fork")
        work = work_of(service)
        assert await work.look(1e10 - 1) == {}
        assert len(work._dues) == 2
        await execute(service, "ALTER TABLE minirun.events RENAME TO not_needed")
        found = await work.look(1e10)
        assert {key.session_id: str(status) for (key, _), status in found.items()} == {"s": "paused", "fork": "paused"}
        assert len(await work.claim([*found], 5)) == 2


@pytest.mark.parametrize("status", [InvocationStatus.COMPLETED, InvocationStatus.FAILED])
async def test_what_has_ended_is_not_claimed(status: InvocationStatus) -> None:
    """A list that was made before is checked again where the claim is made."""
    async with workers(new_database(), 1) as (service,):
        await interrupt(service, "s")
        work = work_of(service)
        found = [*await work.look(0)]
        await execute(service, f"UPDATE minirun.invocations SET status = '{status}'")
        assert await work.claim(found, 1) == []


async def execute(service: DatabaseSessionService, sql: str) -> None:
    """Do this in the database."""
    from minirun._postgres._values import Statement

    await service._database.pool.write(Statement("test", sql, once=True)())


async def count(service: DatabaseSessionService, table: str) -> int:
    """How many rows a table has."""
    from minirun._postgres._values import Statement

    [result] = await service._database.pool.read(Statement("count", f"SELECT count(*) FROM {table}", once=True)())
    return int(result.rows[0][0])
