"""
Steps and timers: what is told apart, what is taken anew, and what is recorded although it comes too late.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    App,
    Event,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Runner,
    ToolContext,
)
from minirun.errors import InvalidValueError, NotSupportedError, TokensLimitExceededError
from minirun.plugins import BasePlugin
from minirun.testing import call
from minirun.tools import FunctionTool, RetryConfig

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from ..resuming import steps


async def test_a_step_inside_of_another_is_not_taken_for_one_that_follows() -> None:
    """Two steps of one name, the first inside of another step: each gets its own result again."""
    drawn: list[int] = []

    async def draw() -> int:
        drawn.append(len(drawn) + 1)
        return drawn[-1]

    async def act(ctx: InvocationContext) -> None:
        async def outer() -> Any:
            return await ctx.step("draw", draw)

        first = await ctx.step("outer", outer)
        second = await ctx.step("draw", draw)
        await ctx.request_input("?")
        await ctx.emit(Event(message=f"{first} {second}"))

    runner = runner_for(act)
    _, run = await run_to_end(runner)
    _, run = await run_to_end(runner, run.pending[0].reply("go on"))
    assert (run.answer and run.answer.text, drawn) == ("1 2", [1, 2])


async def test_another_attempt_of_a_tool_takes_a_step_again_that_has_failed(autojump_clock: object) -> None:
    """The step fails twice, each time with its attempt; the third attempt takes it once more."""
    taken: list[int] = []

    async def charge() -> str:
        taken.append(len(taken))
        if len(taken) < 3:
            raise OSError("the bank is closed")
        return "paid"

    async def buy(tool_context: ToolContext) -> str:
        """Buy."""
        return str(await tool_context.step("charge", charge))

    tool = FunctionTool(buy, retry=RetryConfig(max_attempts=3))
    runner = runner_for(LlmAgent(name="a", model=steps(call("buy"), "done"), tools=[tool]))
    await run_to_end(runner)
    [answer] = [one for event in await stored_events(runner) for one in event.get_function_responses()]
    assert (answer.response, len(taken)) == ({"result": "paid"}, 3)


@pytest.mark.parametrize("in_nursery", [False, True])
async def test_a_limit_that_a_step_meets_is_no_outcome_of_it(in_nursery: bool) -> None:
    """A FatalError, also in a group, is not recorded: who catches it takes the same step again, under the same key."""
    keys: list[str] = []

    async def act(ctx: InvocationContext) -> None:
        async def work() -> int:
            keys.append(ctx.idempotency_key)
            if len(keys) == 1:
                error = TokensLimitExceededError("enough")
                raise ExceptionGroup("of a nursery", [error]) if in_nursery else error
            return len(keys)

        with pytest.raises(ExceptionGroup if in_nursery else TokensLimitExceededError):
            await ctx.step("work", work)
        await ctx.emit(Event(message=str(await ctx.step("work", work))))

    runner = runner_for(act)
    _, run = await run_to_end(runner)
    assert (run.answer and run.answer.text, len(keys), len(set(keys))) == ("2", 2, 1)
    assert [event.error_code for event in await stored_events(runner)] == [None, None, None]


async def test_a_step_may_fail_with_what_cannot_say_what_it_is() -> None:
    """The exception leaves, and is recorded by the name of its class."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    async def work() -> None:
        raise MuteError

    async def act(ctx: InvocationContext) -> None:
        with pytest.raises(MuteError):
            await ctx.step("work", work)

    runner = runner_for(act)
    _, run = await run_to_end(runner)
    assert (run.status, (await stored_events(runner))[-1].error_message) == ("completed", "MuteError")


async def test_a_step_gives_the_same_kind_of_value_each_time() -> None:
    """What a step returns is what is recorded of it, from the first time on: a list is a tuple."""
    kinds: list[type] = []

    async def work() -> list[int]:
        return [1, 2]

    async def act(ctx: InvocationContext) -> None:
        kinds.append(type(await ctx.step("work", work)))
        await ctx.request_input("?")

    runner = runner_for(act)
    _, run = await run_to_end(runner)
    await run_to_end(runner, run.pending[0].reply("go on"))
    assert len(kinds) == 2
    assert kinds[0] is kinds[1]


async def test_a_step_that_a_hook_refuses_is_not_recorded() -> None:
    """Its event fails in a plugin, and nothing is cancelled: `step` raises what the hook has raised."""

    class Refuses(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            if event.actions.replay.step is not None:
                raise ValueError("refused")

    async def work() -> int:
        return 1

    async def act(ctx: InvocationContext) -> None:
        await ctx.step("work", work)

    app = App("app", Logic(name="a", logic=act), [Refuses(name="refuses")])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    with pytest.raises(ValueError, match="refused"):
        await run_to_end(runner)
    assert [event for event in await stored_events(runner) if event.actions.replay.step is not None] == []


async def test_a_late_step_is_recorded_although_the_caller_holds_another_event(autojump_clock: MockClock) -> None:
    """Its time is up while its record waits for a turn: the record waits no longer, and the agent goes on."""
    over: list[float] = []

    async def speak(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="held"))

    async def act(ctx: InvocationContext) -> None:
        async def work() -> int:
            return 1

        await trio.sleep(1)
        with trio.move_on_after(1):
            await ctx.step("work", work)
        over.append(trio.current_time() - start)

    start = trio.current_time()
    sides = [Logic(name="speaks", logic=speak), Logic(name="acts", logic=act)]
    runner = runner_for(ParallelAgent(name="both", sub_agents=sides))
    async with runner.run_async(**PLACE, new_message="go") as run:
        assert (await anext(run)).text == "held"
        await trio.sleep(100)
        await run.wait()
    assert over == [2]
    assert [event.output for event in await stored_events(runner) if event.output is not None] == [1]


async def test_what_work_may_be() -> None:
    """A wrapped async function runs in the run's own thread, and a coroutine that a function returns is awaited."""
    threads: list[threading.Thread] = []

    async def work(number: int) -> int:
        threads.append(threading.current_thread())
        return number

    @functools.wraps(work)
    def wrapped(number: int) -> Any:
        threads.append(threading.current_thread())
        return work(number)

    async def act(ctx: InvocationContext) -> None:
        results = [await ctx.step("a", wrapped, 1), await ctx.step("b", functools.partial(work, 2))]
        assert {*threads} == {threading.current_thread()}
        results += [await ctx.step("c", lambda: work(3)), await ctx.step("d", lambda: 4)]
        await ctx.emit(Event(message=str(results)))

    _, run = await run_to_end(runner_for(act))
    assert run.answer is not None
    assert run.answer.text == "[1, 2, 3, 4]"


# --- timers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [float("nan"), float("inf"), "soon", None, 10**400])
async def test_a_time_that_is_none_is_refused(when: Any) -> None:
    """Nothing waits for it, and nothing is stored of it."""

    async def act(ctx: InvocationContext) -> None:
        with pytest.raises(InvalidValueError, match="seconds since the epoch"):
            await ctx.sleep_until(when)

    runner = runner_for(act)
    _, run = await run_to_end(runner)
    assert (run.status, len(await stored_events(runner))) == ("completed", 1)


async def test_nobody_sleeps_after_a_call() -> None:
    """A callback after a tool that sleeps would have the tool called twice; it is refused, and the result is stored."""

    async def sleep(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> None:
        await tool_context.sleep_until(time.time() + 60)

    def look() -> str:
        """Look."""
        return "seen"

    runner = runner_for(LlmAgent(name="a", model=steps(call("look"), "done"), tools=[look], after_tool_callback=sleep))
    with pytest.raises(NotSupportedError, match="after a tool has been called"):
        await run_to_end(runner)
    answers = [one.response for event in await stored_events(runner) for one in event.get_function_responses()]
    assert answers == [{"result": "seen"}]


async def test_a_time_that_was_over_once_is_over() -> None:
    """A supervisor whose clock is ahead goes on; after it, the clock is behind again, and nobody waits once more."""
    when = time.time() + 60

    async def act(ctx: InvocationContext) -> None:
        await ctx.sleep_until(when)
        await ctx.emit(Event(message=str(await ctx.request_input("?"))))

    runner = runner_for(act)
    _, first = await run_to_end(runner)
    async with runner.run_async(**PLACE, invocation_id=first.invocation_id).supervised(when) as second:
        await second.wait()
    _, third = await run_to_end(runner, second.pending[0].reply("yes"))
    assert (first.status, second.status, third.status) == ("paused", "paused", "completed")
    answered = [one.name for event in await stored_events(runner) for one in event.get_function_responses()]
    assert answered == ["minirun_sleep_until", "adk_request_input"]


async def test_a_time_that_has_come_is_no_pause(autojump_clock: MockClock) -> None:
    """At the very second nobody waits any more."""
    now = time.time()

    async def act(ctx: InvocationContext) -> None:
        await ctx.sleep_until(now)

    _, run = await run_to_end(runner_for(act))
    assert run.status == "completed"
