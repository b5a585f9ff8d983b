"""
A Runner behind the bridge: what an asyncio program and the threads of a synchronous one see of runs that live in trio.

These tests run `asyncio.run` themselves. Nothing here waits for real time: each waits for something that will happen.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from minirun import (
    BaseAgent,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
    StreamingMode,
)
from minirun.bridge import AsyncioBridge
from minirun.errors import (
    ConfigurationError,
    InvalidMessageError,
    LlmCallsLimitExceededError,
    ServiceClosedError,
    ServiceInUseError,
    SessionBusyError,
    SessionNotFoundError,
)
from minirun.models import LlmResponse
from minirun.simulation._watchdog import NAME as WATCHDOG
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, Part, UsageMetadata

from ..benchmarks.hosts import measure
from ..helpers import PLACE, runner_for, stored_events

# As long as nothing is wrong, nothing here takes longer.
PATIENCE_S = 120


def minirun_threads() -> list[str]:
    """Those of this process, but for the one that watches simulations: after a test with one it stays for a while."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("minirun") and name != WATCHDOG]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Every test of this file ends without a thread of minirun's."""
    yield
    assert minirun_threads() == []


def in_asyncio(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run *main* under asyncio, which tells of tasks and futures that nobody has looked after."""
    complaints: list[Any] = []

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        async with asyncio.timeout(PATIENCE_S):
            return await main()

    result = asyncio.run(watched())
    gc.collect()
    assert complaints == []
    return result


progress: list[str] = []


async def three(ctx: InvocationContext) -> None:
    """Emits three events and notes how far it has come."""
    progress.clear()
    try:
        for number in range(3):
            await ctx.emit(Event(message=str(number)))
            progress.append(f"after {number}")
        progress.append("end")
    finally:
        progress.append("cleaned up")


class Hangs(BaseAgent):
    """Says one thing, then waits for ever; its clean-up takes a few steps, and is noted."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        progress.clear()
        await ctx.emit(Event(message="first"))
        try:
            progress.append("waiting")
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for _ in range(5):
                    await trio.sleep(0.001)
                await ctx.emit(Event(message="cleaned"))
            progress.append("cleaned up")


async def statuses(chat: AsyncioBridge) -> list[str]:
    found = await chat.call(chat.runner.session_service.list_invocations)
    return [str(each.status) for each in found]


# --- running ----------------------------------------------------------------------------------------------------------


def test_events_come_one_by_one_and_the_agent_waits() -> None:
    """The agent has not gone on while the asyncio side holds an event, however long the loop does something else."""

    async def main() -> None:
        async with AsyncioBridge(runner_for(three)) as chat:
            seen: list[str] = []
            async for event in chat.run_async(**PLACE, new_message="go"):
                for _ in range(100):
                    await asyncio.sleep(0)
                await chat.call(trio.testing.wait_all_tasks_blocked)
                assert progress == [f"after {number}" for number in range(len(seen))]
                seen.append(event.text)
            assert seen == ["0", "1", "2"]
            assert progress[-2:] == ["end", "cleaned up"]

    in_asyncio(main)


def test_a_run_tells_what_a_run_tells() -> None:
    """Entered as a block it has its id at once; after it the answer, the usage, how it ended, and what it waits for."""

    class Asks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message=f"got {await ctx.request_input('what?')}"))

    async def main() -> None:
        async with AsyncioBridge(InMemoryRunner(agent=Asks(name="asks"), auto_create_session=True)) as chat:
            first = chat.run_async(**PLACE, new_message="go")
            assert (first.invocation_id, first.status, first.answer, first.output) == (None, None, None, None)
            async with first:
                assert first.invocation_id is not None
                assert await first.wait() is None
            assert (first.status, first.usage) == ("paused", UsageMetadata())
            [question] = first.pending
            async with chat.run_async(**PLACE, new_message=question.reply("it")) as second:
                answer = await second.wait()
            assert answer is not None
            assert (answer.text, second.answer, second.pending) == ("got it", answer, [])

    in_asyncio(main)


def test_runs_of_many_tasks_go_on_side_by_side(tmp_path: Path) -> None:
    """Each task has its own run; those on one session wait for each other; one thread serves them all."""

    async def main() -> None:
        sessions = SqliteSessionService(tmp_path / "s.db")
        agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: f"{request.contents[-1].text}!"))
        runner = Runner(agent=agent, app_name="app", session_service=sessions, auto_create_session=True)
        async with AsyncioBridge(runner) as chat:

            async def ask(number: int) -> str:
                async with chat.run_async(user_id="u", session_id=str(number % 5), new_message=str(number)) as run:
                    answer = await run.wait()
                assert answer is not None
                return answer.text

            answers = await asyncio.gather(*map(ask, range(20)))
            assert answers == [f"{number}!" for number in range(20)]
            assert minirun_threads() == ["minirun bridge"]
            assert await statuses(chat) == ["completed"] * 20
            await chat.call(sessions.aclose)

    in_asyncio(main)


def test_a_slow_reader_slows_its_own_run_only() -> None:
    """Partial events wait for their reader, at most `partial_buffer` of them; another run goes on meanwhile."""
    made: list[int] = []

    class Talks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for number in range(100):
                await ctx.emit(Event(message=str(number), partial=True))
                made.append(number)

    async def main() -> None:
        runner = InMemoryRunner(agent=Talks(name="talks"), auto_create_session=True)
        config = RunConfig(streaming_mode=StreamingMode.SSE, partial_buffer=4)
        async with AsyncioBridge(runner) as chat:
            async with chat.run_async(**PLACE, new_message="go", run_config=config) as slow:
                assert (await anext(slow)).text == "0"
                await chat.call(trio.testing.wait_all_tasks_blocked)
                assert len(made) <= 6
                async with chat.run_async(user_id="u", session_id="other", new_message="go") as fast:
                    assert len([event async for event in fast]) == 100
                assert len(made) <= 106

    in_asyncio(main)


def test_context_variables_are_those_of_the_caller() -> None:
    """The agent sees what the asyncio task, or the thread, that called had set; what it sets stays there."""
    who: ContextVar[str] = ContextVar("who", default="nobody")

    async def say(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=who.get()))
        who.set("the agent")

    async def main() -> None:
        async with AsyncioBridge(runner_for(say)) as chat:

            async def ask(name: str) -> str:
                who.set(name)
                async with chat.run_async(user_id=name, session_id="s", new_message="go") as run:
                    await run.wait()
                assert run.answer is not None
                return run.answer.text

            assert [*await asyncio.gather(ask("ada"), ask("bob"))] == ["ada", "bob"]
            assert who.get() == "nobody"
            who.set("main")
            assert [event.text for event in chat.run(**PLACE, new_message="go")] == ["main"]

            async def told() -> str:
                return who.get()

            assert (await chat.call(told), chat.call_sync(told)) == ("main", "main")

    in_asyncio(main)


# --- failing ----------------------------------------------------------------------------------------------------------


def test_errors_come_through_as_themselves() -> None:
    """What entering, the run or a call fails with has its own type, and is raised once."""

    async def main() -> None:
        busy = LlmAgent(name="busy", model=ScriptedLlm(lambda request: (_ for _ in ()).throw(ZeroDivisionError("x"))))
        runner = InMemoryRunner(agent=busy)
        async with AsyncioBridge(runner) as chat:
            with pytest.raises(InvalidMessageError):
                chat.run_async(**PLACE, new_message="")
            with pytest.raises(SessionNotFoundError):
                async for _ in chat.run_async(**PLACE, new_message="go"):
                    pass
            with pytest.raises(SessionNotFoundError):
                async with chat.run_async(**PLACE, new_message="go"):
                    raise AssertionError
            await chat.call(runner.session_service.create_session, app_name=runner.app_name, **PLACE)
            run = chat.run_async(**PLACE, new_message="go")
            with pytest.raises(ZeroDivisionError):
                async with run:
                    await run.wait()
            await run.aclose()
            with pytest.raises(LlmCallsLimitExceededError):
                async for _ in chat.run_async(**PLACE, new_message="go", run_config=RunConfig(max_llm_calls=-1)):
                    raise LlmCallsLimitExceededError("of the body")
            with pytest.raises(TypeError):
                await chat.call(runner.session_service.get_session)
            with pytest.raises(KeyError, match="of the block"):
                async with chat.run_async(**PLACE, new_message="go"):
                    raise KeyError("of the block")

    in_asyncio(main)


def test_ctrl_c_in_an_agent_is_the_callers() -> None:
    """Even what is no Exception reaches the caller alone, and the bridge goes on."""

    async def rude(ctx: InvocationContext) -> None:
        if ctx.user_content is not None and ctx.user_content.text == "exit":
            raise SystemExit(3)
        await ctx.emit(Event(message="fine"))

    async def main() -> None:
        async with AsyncioBridge(runner_for(rude)) as chat:
            run = chat.run_async(**PLACE, new_message="exit")
            with pytest.raises(SystemExit):
                await run.wait()
            assert (await chat.run_async(**PLACE, new_message="go").wait()).text == "fine"  # type: ignore[union-attr]

    in_asyncio(main)


# --- leaving early ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timeout", "task", "twice", "aclose", "block", "generator"])
def test_whoever_leaves_waits_for_the_clean_up(how: str) -> None:
    """A cancelled task, and whoever closes the run, goes on when the run is cancelled, cleaned up and recorded."""

    async def main() -> None:
        async with AsyncioBridge(runner_for(Hangs(name="hangs"))) as chat:
            run = chat.run_async(**PLACE, new_message="go")
            hangs = asyncio.Event()

            async def read() -> None:
                async for _ in run:
                    hangs.set()

            async def stream() -> AsyncGenerator[str, None]:
                async with chat.run_async(**PLACE, new_message="go") as inner:
                    async for event in inner:
                        yield event.text

            if how == "timeout":
                assert (await anext(run)).text == "first"
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await anext(run)
            elif how in ("task", "twice"):
                task = asyncio.create_task(read())
                await hangs.wait()
                task.cancel()
                if how == "twice":
                    for _ in range(3):
                        await asyncio.sleep(0)
                        task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            elif how == "aclose":
                await anext(run)
                await run.aclose()
                await run.aclose()
            elif how == "block":
                async with run:
                    async for _ in run:
                        break
            else:
                async with aclosing(stream()) as texts:
                    assert await anext(texts) == "first"
            assert progress == ["waiting", "cleaned up"]
            assert await statuses(chat) == ["cancelled"]
            async for event in chat.run_async(**PLACE, new_message="again"):
                assert event.text == "first"
                break

    in_asyncio(main)


def test_an_abandoned_iteration_cancels_its_run() -> None:
    """A `break`, or a task that dies in its body, lets the iterator go: the run ends, and the session is free."""

    async def main() -> None:
        async with AsyncioBridge(runner_for(Hangs(name="hangs"))) as chat:
            async for _ in chat.run_async(**PLACE, new_message="go"):
                break
            async for event in chat.run_async(**PLACE, new_message="next"):  # waits for the other one's clean-up
                assert event.text == "first"
                assert (await statuses(chat))[0] == "cancelled"
                break

            async def dies() -> None:
                async for _ in chat.run_async(**PLACE, new_message="go"):
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await asyncio.create_task(dies())
            gc.collect()
            async for _ in chat.run_async(**PLACE, new_message="next"):
                break
        assert progress[-1] == "cleaned up", "leaving the bridge has waited"

    in_asyncio(main)


def test_a_run_that_nobody_has_asked_runs_nothing() -> None:
    """Making a run stores nothing; neither does closing it."""

    async def main() -> None:
        runner = runner_for(three)
        async with AsyncioBridge(runner) as chat:
            chat.run_async(**PLACE, new_message="go")
            await chat.run_async(**PLACE, new_message="go").aclose()
            with pytest.raises(SessionNotFoundError):
                await chat.call(stored_events, runner)

    in_asyncio(main)


def test_cancelling_while_it_waits_for_the_session_stores_nothing() -> None:
    """A run that has not entered yet is cancelled as if it had never been asked for."""

    async def main() -> None:
        runner = runner_for(Hangs(name="hangs"))
        async with AsyncioBridge(runner) as chat:
            async with chat.run_async(**PLACE, new_message="first") as first:
                await anext(first)
                second = asyncio.create_task(chat.run_async(**PLACE, new_message="second").wait())
                await chat.call(trio.testing.wait_all_tasks_blocked)
                second.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await second
            texts = [event.text for event in await chat.call(stored_events, runner)]
            assert texts == ["first", "first", "cleaned"]

    in_asyncio(main)


def test_a_cancelled_call_is_waited_for() -> None:
    """`call` gives up when its task is cancelled, after what it called has cleaned up."""
    ended: list[str] = []

    async def slow(begun: Callable[[], object]) -> None:
        begun()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.001)
            ended.append("slow")

    async def main() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncioBridge(runner_for(three)) as chat:
            task = asyncio.create_task(chat.call(slow, lambda: loop.call_soon_threadsafe(begun.set)))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended == ["slow"]

    in_asyncio(main)


# --- the bridge itself ------------------------------------------------------------------------------------------------


def test_leaving_the_bridge_ends_what_is_going_on() -> None:
    """A task that waits for a run or a call gets ServiceClosedError, also if the function has opened a nursery."""

    async def sleep_in_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)

    async def main() -> None:
        runner = runner_for(Hangs(name="hangs"))
        async with AsyncioBridge(runner) as chat:
            run = chat.run_async(**PLACE, new_message="go")
            await anext(run)
            waiting = asyncio.create_task(run.wait())
            calling = asyncio.create_task(chat.call(trio.sleep_forever))
            in_nursery = asyncio.create_task(chat.call(sleep_in_nursery))
            await asyncio.sleep(0)
        for task in (waiting, calling, in_nursery):
            with pytest.raises(ServiceClosedError, match="was left"):
                await task
        assert progress[-1] == "cleaned up"
        for use in (lambda: chat.run_async(**PLACE, new_message="x"), lambda: chat.run(**PLACE, new_message="x")):
            with pytest.raises(ServiceClosedError, match="was left"):
                use()
        with pytest.raises(ServiceClosedError, match="was left"):
            await chat.call(trio.sleep, 0)
        with pytest.raises(ServiceInUseError, match="entered already"):
            await chat.__aenter__()

    in_asyncio(main)


def test_a_bridge_says_what_is_wrong_with_its_use() -> None:
    """Not entered, entered twice, another loop, no loop, no runner, inside trio: each is a typed error."""
    with pytest.raises(ConfigurationError, match="expected a Runner"):
        AsyncioBridge("runner")  # type: ignore[arg-type] # that is the point
    chat = AsyncioBridge(runner_for(three))
    with pytest.raises(ServiceClosedError, match="not entered"):
        chat.run_async(**PLACE, new_message="go")

    async def main() -> None:
        async with chat:
            with pytest.raises(ServiceInUseError, match="entered already"):
                async with chat:
                    pass
            run = chat.run_async(**PLACE, new_message="go")
            assert (await anext(run)).text == "0"

            async def elsewhere() -> None:
                with pytest.raises(ServiceInUseError, match="another event loop"):
                    chat.run_async(**PLACE, new_message="go")
                with pytest.raises(ServiceInUseError, match="another event loop"):
                    await chat.call(trio.sleep, 0)
                with pytest.raises(ServiceInUseError, match="another event loop"):
                    await anext(run)

            def without_loop() -> None:
                with pytest.raises(ServiceInUseError, match="`call_sync`"):
                    chat.run_async(**PLACE, new_message="go")

            async def in_trio() -> None:
                with pytest.raises(RuntimeError, match="trio"):
                    chat.run(**PLACE, new_message="go")
                with pytest.raises(RuntimeError, match="trio"):
                    chat.call_sync(trio.sleep, 0)

            for wrong in (lambda: asyncio.run(elsewhere()), without_loop, lambda: trio.run(in_trio)):
                await asyncio.to_thread(wrong)
            task = asyncio.create_task(anext(run))
            with pytest.raises(RuntimeError, match="another task"):
                await asyncio.gather(task, anext(run))
            assert (await task).text == "1"
            assert (await run.wait()) is not None

    in_asyncio(main)


def test_a_wrong_use_of_a_run_says_what_to_write() -> None:
    """Awaiting, plainly iterating over and plainly entering a run of a bridge fails, and runs nothing."""
    progress.clear()

    async def main() -> None:
        with pytest.raises(TypeError, match=r"write `async with AsyncioBridge\(runner\) as chat:`"):
            await AsyncioBridge(runner_for(three))  # type: ignore[misc]  # that is the point
        async with AsyncioBridge(runner_for(three)) as chat:
            how = r"write `async for event in chat\.run_async.*`await chat\..*\.wait\(\)`.*`for event in chat\.run"
            with pytest.raises(TypeError, match=how):
                await chat.run_async(**PLACE, new_message="go")  # type: ignore[misc]  # that is the point
            with pytest.raises(TypeError, match=how):
                list(chat.run_async(**PLACE, new_message="go"))  # type: ignore[call-overload]  # that is the point
            with pytest.raises(TypeError, match=how), chat.run_async(**PLACE, new_message="go"):  # type: ignore[attr-defined]  # that is the point
                pass
            assert progress == []
            async with chat.run_async(**PLACE, new_message="go") as run:
                await anext(run)
            with pytest.raises(RuntimeError, match=r"left before its end, and cancelled; ask it inside of its block"):
                await anext(run)
            assert str(run.status) == "cancelled"

    in_asyncio(main)


def test_what_is_called_has_to_be_async() -> None:
    """A function that is not async, its result and a coroutine instead of a function are told what to write."""

    async def main() -> None:
        async with AsyncioBridge(runner_for(three)) as chat:

            async def later() -> None:
                await trio.lowlevel.checkpoint()

            in_thread: Any = asyncio.to_thread
            calls: list[Any] = [chat.call, partial(in_thread, chat.call_sync)]
            for bridged in calls:
                with pytest.raises(
                    TypeError, match=r"expected an async function, found that len returned 2; .*call it your"
                ):
                    await bridged(len, "ab")
                with pytest.raises(
                    TypeError, match=r"and its arguments apart, found .*; write `call\(function, \.\.\.\)`"
                ):
                    await bridged(later())
                assert await bridged(lambda: later()) is None

    in_asyncio(main)


def test_bridges_over_one_service_share_a_thread(tmp_path: Path) -> None:
    """Two apps on one SQLite file have a bridge each and one thread, which ends with the last of them."""

    async def main() -> None:
        sessions = SqliteSessionService(tmp_path / "s.db")

        def runner(name: str) -> Runner:
            agent = LlmAgent(name=name, model=ScriptedLlm(["hi"]))
            return Runner(agent=agent, app_name=name, session_service=sessions, auto_create_session=True)

        async with AsyncioBridge(runner("one")) as one:
            async with AsyncioBridge(runner("two")) as two:
                assert minirun_threads() == ["minirun bridge"]
                await asyncio.gather(*(each.run_async(**PLACE, new_message="go").wait() for each in (one, two)))
                running = two.run_async(**PLACE, new_message="again")
                one_calls = asyncio.create_task(one.call(trio.sleep_forever))
                await asyncio.sleep(0)
            assert minirun_threads() == ["minirun bridge"]
            assert not one_calls.done()
            one_calls.cancel()
            await running.aclose()
            await one.call(sessions.aclose)
        assert minirun_threads() == []

    in_asyncio(main)


def test_an_exception_in_the_block_leaves_it_as_itself() -> None:
    """The block's own exception leaves the bridge, which cleans up first."""

    async def main() -> None:
        async with AsyncioBridge(runner_for(Hangs(name="hangs"))) as chat:
            run = chat.run_async(**PLACE, new_message="go")
            await anext(run)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_asyncio(main)
    assert progress[-1] == "cleaned up"


def test_a_bridge_that_was_never_left_ends_with_its_loop() -> None:
    """A loop that was closed with runs open takes them along: they are cancelled, and so is the thread at its end."""
    runner = runner_for(Hangs(name="hangs"))

    async def main() -> None:
        chat = AsyncioBridge(runner)
        await chat.__aenter__()
        run = chat.run_async(**PLACE, new_message="go")
        await anext(run)
        kept.extend([chat, run])

    kept: list[Any] = []
    asyncio.run(main())

    async def other_loop() -> None:
        with pytest.raises(ServiceInUseError, match="another event loop"):
            await anext(kept[1])

    asyncio.run(other_loop())
    kept.clear()
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "minirun bridge":
            thread.join(PATIENCE_S)
    assert progress[-1] == "cleaned up"


def test_the_end_of_the_interpreter_ends_the_bridge(tmp_path: Path) -> None:
    """A program that ends with a bridge open ends at once, after the clean-up of its runs."""
    program = """
        import asyncio, sys, trio
        from minirun import BaseAgent, Event, InMemoryRunner
        from minirun.bridge import AsyncioBridge

        class Slow(BaseAgent):
            async def _run_async_impl(self, ctx):
                try:
                    await ctx.emit(Event(message="first"))
                    await trio.sleep_forever()
                finally:
                    print("cleaned up", flush=True)

        chat = AsyncioBridge(InMemoryRunner(agent=Slow(name="slow"), auto_create_session=True))

        async def main():
            global run
            await chat.__aenter__()
            run = chat.run_async(user_id="u", session_id="s", new_message="go")
            print((await anext(run)).text, flush=True)

        asyncio.run(main())
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "first\ncleaned up\n", "")


# --- threads ----------------------------------------------------------------------------------------------------------


def test_synchronous_runs_of_many_threads_share_one_service(tmp_path: Path) -> None:
    """With plain `with`, threads run at the same time on one SQLite service, each as with `Runner.run`."""
    sessions = SqliteSessionService(tmp_path / "s.db")
    everybody = threading.Barrier(8)

    async def together(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first"))
        await trio.to_thread.run_sync(everybody.wait, PATIENCE_S)
        await ctx.emit(Event(message="last"))

    agent = runner_for(together).agent
    runner = Runner(agent=agent, app_name="app", session_service=sessions, auto_create_session=True)

    def client(number: int) -> list[str]:
        with chat.run(user_id="u", session_id=str(number), new_message="go") as events:
            return [event.text for event in events]

    with AsyncioBridge(runner) as chat:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(client, range(8))) == [["first", "last"]] * 8
        assert minirun_threads() == ["minirun bridge"]
        listed = chat.call_sync(sessions.list_sessions, app_name="app")
        assert len(listed.sessions) == 8
        with pytest.raises(ServiceInUseError, match="plain `with`"):
            asyncio.run(outside(chat))
        chat.call_sync(sessions.aclose)


async def outside(chat: AsyncioBridge) -> None:
    chat.run_async(**PLACE, new_message="go")


@pytest.mark.parametrize("how", ["close", "with", "del"])
def test_a_synchronous_run_that_is_left_is_cancelled_and_waited_for(how: str) -> None:
    """As with `Runner.run`, losing interest ends the run, and waits for it."""
    with AsyncioBridge(runner_for(Hangs(name="hangs"))) as chat:
        events = chat.run(**PLACE, new_message="go")
        if how == "with":
            with events:
                next(events)
        else:
            next(events)
            if how == "close":
                events.close()
        del events
        gc.collect()
        assert progress == ["waiting", "cleaned up"]


def in_a_cycle(events: Any) -> None:
    """Read one event, and leave the run to the garbage collector."""
    next(events)
    events.me = events


async def collect() -> None:
    gc.collect()


def test_the_bridges_thread_collects_a_run_without_waiting_for_it() -> None:
    """A run that the collector finds in the thread that it lives in is cancelled, and cleaned up by that thread."""
    gc.collect()
    with AsyncioBridge(runner_for(Hangs(name="hangs"))) as chat:
        in_a_cycle(chat.run(**PLACE, new_message="go"))
        chat.call_sync(collect)
        chat.call_sync(chat.runner.session_service.list_invocations)
        chat.call_sync(trio.testing.wait_all_tasks_blocked, 0.01)
        assert progress == ["waiting", "cleaned up"]


def test_the_bridges_thread_collects_a_run_of_another_thread() -> None:
    """A run in a thread of its own is not waited for either, where the collector comes to it in another trio thread."""
    gc.collect()
    finished = threading.Event()

    class Waits(Hangs):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                await super()._run_async_impl(ctx)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(bridged.call_sync, trio.sleep, 0)
                finished.set()

    with AsyncioBridge(runner_for(three)) as bridged:
        in_a_cycle(runner_for(Waits(name="waits")).run(**PLACE, new_message="go"))
        bridged.call_sync(collect)
        assert finished.wait(PATIENCE_S)
        for thread in threading.enumerate():
            if thread.name == "minirun sync run":
                thread.join(PATIENCE_S)


def test_a_loop_collects_a_run_without_waiting_for_it() -> None:
    """A run that an event loop lets go does not hold the loop until it is cleaned up; leaving the bridge waits."""

    async def main() -> None:
        here = asyncio.get_running_loop()
        went_on = threading.Event()

        class Asks(Hangs):
            async def _run_async_impl(self, ctx: InvocationContext) -> None:
                try:
                    await super()._run_async_impl(ctx)
                finally:
                    here.call_soon_threadsafe(went_on.set)
                    with trio.CancelScope(shield=True):
                        assert await trio.to_thread.run_sync(went_on.wait, PATIENCE_S)
                    progress.append("the loop went on")

        async with AsyncioBridge(runner_for(Asks(name="asks"))) as chat:
            for _ in chat.run(**PLACE, new_message="go"):
                break
        assert progress == ["waiting", "cleaned up", "the loop went on"]

    in_asyncio(main)


def test_a_tool_that_runs_an_agent_on_its_own_session_is_refused_at_once() -> None:
    """A tool's thread that asks the bridge for the session of its run would wait for ever, and is told so."""
    found: list[str] = []

    def ask() -> str:
        """Asks an agent."""
        with pytest.raises(SessionBusyError, match="cannot end before this call returns"):
            list(chat.run(**PLACE, new_message="again", run_config=RunConfig(deadline_s=5)))
        found.append("refused")
        return "done"

    model = ScriptedLlm([call("ask"), "bye"])
    with AsyncioBridge(runner_for(LlmAgent(name="a", model=model, tools=[ask]))) as chat:
        list(chat.run(**PLACE, new_message="go", run_config=RunConfig(deadline_s=5)))
    assert found == ["refused"]


def test_synchronous_failures_come_through() -> None:
    """Failures of runs and of calls have their own types."""
    with AsyncioBridge(InMemoryRunner(agent=Hangs(name="hangs"))) as chat:
        with pytest.raises(SessionNotFoundError):
            next(chat.run(**PLACE, new_message="go"))
        with pytest.raises(TypeError):
            chat.call_sync(chat.runner.session_service.get_session)
    with pytest.raises(ServiceClosedError, match="was left"):
        chat.call_sync(trio.sleep, 0)


def test_fragments_and_answers_come_in_order() -> None:
    """A streamed answer is its fragments, then the whole, as without a bridge."""

    async def main() -> None:
        model = ScriptedLlm([["one ", "two"], LlmResponse(content=Content(role="model", parts=[Part(text="x")]))])
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), auto_create_session=True)
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        async with AsyncioBridge(runner) as chat:
            run = chat.run_async(**PLACE, new_message="go", run_config=config, yield_user_message=True)
            found = [(event.text, bool(event.partial)) async for event in run]
        assert found == [("go", False), ("one ", True), ("two", True), ("one two", False)]

    in_asyncio(main)


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_bridge_is_measured_beside_guest_mode() -> None:
    """The benchmark reads every event on each of its ways, and says what the bridge takes of guest mode's time."""
    found = measure(events=50, rounds=1)
    print(found, f"{found['bridge'] / found['guest']:.2f} of guest mode")
    assert list(found) == ["trio", "guest", "bridge"]
    assert all(took > 0 for took in found.values())
