"""
A transient failure of the store interrupts an invocation, and a worker resumes it. A permanent one fails it.

The store fails as it does in production: another program holds the lock of the file, an administrator cancels the
statement or ends the connection. Which errors are transient is a table here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    BaseAgent,
    DatabaseSessionService,
    Event,
    FunctionTool,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    SqliteSessionService,
)
from minirun import errors as minirun_errors
from minirun.errors import (
    StorageBusyError,
    StorageConnectionError,
    StorageError,
    StorageUncertainError,
)
from minirun.runtime import Run
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call

from ..helpers import PLACE
from ..postgres import new_database
from ..postgres_sessions import sql
from .test_supervise import Watched

TRANSIENT = {StorageBusyError, StorageConnectionError, StorageUncertainError}
KINDS = [each for each in vars(minirun_errors).values() if isinstance(each, type) and issubclass(each, StorageError)]


class Steps(BaseAgent):
    """Takes two steps; between them it does what it is given, and then speaks."""

    between: Callable[[], None]
    done: list[str]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.step("one", lambda: self.done.append("one"))
        self.between()
        await ctx.emit(Event(message="spoken"))
        await ctx.step("two", lambda: self.done.append("two"))


def runner_of(agent: BaseAgent, service: BaseSessionService) -> Runner:
    return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)


async def fails(runner: Runner, error: type[Exception]) -> Run:
    """Run it, and see it raise this type of error."""
    with pytest.raises(error) as caught:
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert type(caught.value) is error
    return run


async def status_of(service: BaseSessionService) -> str:
    [invocation] = await service.list_invocations(app_name="app")
    return str(invocation.status)


async def codes(service: BaseSessionService) -> list[str]:
    """The failures that are stored."""
    events = await service.read_events(app_name="app", **PLACE)
    return [event.error_code for event in events if event.error_code]


async def completes(runner: Runner, within_s: float) -> None:
    """A worker completes the invocation in this time."""
    service = runner.session_service
    with trio.fail_after(within_s):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: runner.supervise(every_s=0.1, task_status=task_status))
            for _ in range(10_000):
                if await status_of(service) == "completed":
                    break
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert await status_of(service) == "completed"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_left_by_each_failure_of_the_store(kind: type[StorageError], autojump_clock: MockClock) -> None:
    """The run raises it; the invocation is interrupted by a transient error, and has failed by any other."""
    assert kind.is_transient is (kind in TRANSIENT)
    faults: list[StorageError] = [kind("the store failed")]

    def between() -> None:
        while faults:
            raise faults.pop()

    done: list[str] = []
    service = InMemorySessionService(env=Watched())
    runner = runner_of(Steps(name="steps", between=between, done=done), service)
    run = await fails(runner, kind)
    expected = "interrupted" if kind in TRANSIENT else "failed"
    assert (str(run.status), await status_of(service)) == (expected, expected)
    assert await codes(service) == ([] if kind in TRANSIENT else [kind.__name__])
    with trio.move_on_after(60):
        await runner.supervise()
    assert await status_of(service) == ("completed" if kind in TRANSIENT else "failed")
    assert done == (["one", "two"] if kind in TRANSIENT else ["one"])


async def test_a_lock_of_another_program_on_the_file_interrupts(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A write lock is held for longer than the store waits: the invocation is interrupted; a worker completes it."""
    path = tmp_path / "app.db"
    done: list[str] = []
    other = sqlite3.connect(path, isolation_level=None)
    is_first = True

    def lock() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            other.execute("BEGIN IMMEDIATE")

    async with SqliteSessionService(path, durability="process", env=Watched()) as service:
        runner = runner_of(Steps(name="steps", between=lock, done=done), service)
        async with trio.open_nursery() as nursery:

            async def unlock() -> None:
                await trio.sleep(10.5)  # the store gives up after 10 s, and can store the end of the run
                other.execute("ROLLBACK")

            nursery.start_soon(unlock)
            await fails(runner, StorageBusyError)
        assert (await status_of(service), await codes(service)) == ("interrupted", [])
        await completes(runner, 60)
    other.close()
    assert done == ["one", "two"]


@pytest.mark.parametrize(
    ("how", "error"),
    [("pg_cancel_backend", StorageBusyError), ("pg_terminate_backend", StorageUncertainError)],
)
async def test_an_administrator_of_the_database_interrupts(how: str, error: type[StorageError]) -> None:
    """A statement is cancelled, or its connection ended, as it waits for a lock: a worker completes the invocation."""
    from psycopg import pq

    url = new_database()
    done: list[str] = []
    other = pq.PGconn.connect(url.encode())
    has_lock = trio.Event()

    def lock() -> None:
        if not has_lock.is_set():
            other.exec_(b"BEGIN")
            other.exec_(b"LOCK TABLE minirun.events IN EXCLUSIVE MODE")
            has_lock.set()

    async def interfere() -> None:
        await has_lock.wait()
        waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        for _ in range(10_000):
            if sql(url, f"SELECT {how}(pid) {waiting}"):
                break
            await trio.sleep(0.01)
        other.exec_(b"ROLLBACK")

    async with DatabaseSessionService(url) as service:
        runner = runner_of(Steps(name="steps", between=lock, done=done), service)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interfere)
                await fails(runner, error)
        assert (await status_of(service), await codes(service)) == ("interrupted", [])
        await completes(runner, 60)
    other.finish()
    assert done == ["one", "two"]


async def test_calls_beside_the_failure_stay_open_and_are_made_again(autojump_clock: MockClock) -> None:
    """As after a crash: a call that was at work is not answered as cancelled, and its `on_interrupted` decides."""
    made: list[str] = []

    async def slow() -> str:
        made.append("slow")
        await trio.sleep(10)
        return "late"

    def fast() -> str:
        made.append("fast")
        return "soon"

    def after_tool(**named: object) -> None:
        if made.count("fast") == 1 and getattr(named["tool"], "name", "") == "fast" and "failed" not in made:
            made.append("failed")
            raise StorageBusyError("the store is locked")

    tools = [FunctionTool(slow, on_interrupted="rerun"), FunctionTool(fast, run_in="loop", on_interrupted="rerun")]
    agent = LlmAgent(
        name="asker", model=ScriptedLlm([[call("slow"), call("fast")], "done"]), tools=tools,
        after_tool_callback=after_tool,
    )  # fmt: skip
    service = InMemorySessionService(env=Watched())
    runner = runner_of(agent, service)
    await fails(runner, StorageBusyError)
    assert await status_of(service) == "interrupted"
    await completes(runner, 60)
    events = await service.read_events(app_name="app", **PLACE)
    responses = {each.name: each.response for event in events for each in event.get_function_responses()}
    assert responses == {"slow": {"result": "late"}, "fast": {"result": "soon"}}
    assert made.count("slow") == 2


async def test_a_worker_waits_longer_after_each_failure_up_to_five_minutes(autojump_clock: MockClock) -> None:
    """The store fails in each run after a step: the waits double up to 300 s, whatever else was done meanwhile."""
    times: list[float] = []

    def fail() -> None:
        times.append(trio.current_time())
        raise StorageConnectionError("the database is away")

    service = InMemorySessionService(env=Watched())
    runner = runner_of(Steps(name="steps", between=fail, done=[]), service)
    await fails(runner, StorageConnectionError)
    first, begun = times.pop(), trio.current_time()
    assert first == begun
    with trio.move_on_after(1700):
        await runner.supervise(every_s=10)
    waits = [round(later - earlier) for earlier, later in zip([begun, *times], times, strict=False)]
    assert waits == [0, 20, 40, 80, 160, 300, 300, 300, 300]
    assert (await status_of(service), await codes(service)) == ("interrupted", [])
