"""
Going on with an invocation keeps the order in which things were done, however long anybody takes.

What decides is what is recorded, and who is running; never time, nor how often tasks were scheduled. Each test runs
agents side by side, cuts their log as a dead process would, and goes on with agents of another pace: all that they do
between two events takes another time. The clock is a mocked one, so that waiting for ever is a failure at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import (
    AgentTool,
    BaseAgent,
    Event,
    EventActions,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import ReplayError
from minirun.models import LlmRequest
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call

from ..examples import examples
from ..helpers import Logic
from ..resuming import steps
from .test_resume import PLACE, cut_after, log_of, runner_of

Pause: TypeAlias = Callable[[], Awaitable[None]]
Act: TypeAlias = Callable[[InvocationContext], Awaitable[None]]

LONG_S = 100_000.0
"""On the mocked clock. Who waits longer waits for ever."""


async def at_once() -> None:
    """Take no time."""


async def a_second() -> None:
    """Take the time that agents take when they are run first."""
    await trio.sleep(1)


async def very_long() -> None:
    """Let everybody else come as far as they can."""
    await trio.sleep(1000)


async def many_checkpoints() -> None:
    """Let others run several hundred times."""
    for _ in range(300):
        await trio.lowlevel.checkpoint()


SLOW: Mapping[str, Pause] = {"a long time": very_long, "many checkpoints": many_checkpoints}
slowly = pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW.keys())


def one(name: str, logic: Act) -> BaseAgent:
    """An agent with this logic."""
    return Logic(name=name, logic=logic)


def speaker(name: str, lines: int, pause: Pause, diary: list[str] | None = None) -> BaseAgent:
    """An agent that pauses before each of its lines."""

    async def speak(ctx: InvocationContext) -> None:
        for line in range(lines):
            await pause()
            await ctx.emit(Event(message=f"{name} {line}"))
            if diary is not None:
                diary.append(f"{name} {line}")

    return one(name, speak)


NO_DEADLINE = RunConfig(deadline_s=None)


async def first_run(agent: BaseAgent) -> list[Event]:
    """Run it undisturbed; return the log."""
    runner = runner_of(agent)
    with trio.fail_after(LONG_S):
        async with runner.run_async(**PLACE, new_message="go", run_config=NO_DEADLINE) as run:
            await run.wait()
    return await log_of(runner)


async def go_on(
    agent: BaseAgent, log: Sequence[Event], count: int, config: RunConfig = NO_DEADLINE
) -> tuple[Run, list[Event]]:
    """Go on after the first events of *log*; return the run and the whole log."""
    service = await cut_after(log, count)
    runner = runner_of(agent, service)
    with trio.fail_after(LONG_S):
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id, run_config=config) as run:
            await run.wait()
    return run, await log_of(runner)


def texts(log: Sequence[Event]) -> list[str]:
    """What agents have said, in the order in which it is stored."""
    return [event.text for event in log if event.text and event.author != "user"]


def until(log: Sequence[Event], text: str) -> int:
    """How many events of *log* there are up to this one."""
    return next(number for number, event in enumerate(log, 1) if event.text == text)


# --- who is waited for ------------------------------------------------------------------------------------------------


@slowly
async def test_an_escalation_ends_nobody_before_it_is_as_far_as_it_was(slow: Pause, autojump_clock: MockClock) -> None:
    """Recorded after two lines of a branch beside it, it comes after those two and before a third, at any pace."""

    def agent(fast: Pause, other: Pause) -> BaseAgent:
        async def escalate(ctx: InvocationContext) -> None:
            await fast()
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

        sides = ParallelAgent(name="sides", sub_agents=[one("ends", escalate), speaker("speaks", 9, other)])
        return SequentialAgent(
            name="all", sub_agents=[LoopAgent(name="loop", sub_agents=[sides]), speaker("last", 1, at_once)]
        )

    log = await first_run(agent(partial(trio.sleep, 2.5), a_second))
    expected = ["speaks 0", "speaks 1", "over", "last 0"]
    assert texts(log) == expected
    for count in range(until(log, "over"), len(log) + 1):
        _, found = await go_on(agent(at_once, slow), log, count)
        assert texts(found) == expected


async def test_whom_an_escalation_ends_says_nothing_after_it(autojump_clock: MockClock) -> None:
    """Its siblings are ended when it is stored, before they can store anything more; so going on adds nothing."""
    for number in range(40):  # trio chooses which task goes first

        def agent(checkpoints: int = number % 8) -> BaseAgent:
            async def escalate(ctx: InvocationContext) -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))
                await ctx.emit(Event(message="who escalates goes on"))

            sides = ParallelAgent(name="sides", sub_agents=[one("ends", escalate), speaker("speaks", 5, at_once)])
            return LoopAgent(name="loop", sub_agents=[sides])

        log = await first_run(agent())
        assert texts(log)[-2:] == ["over", "who escalates goes on"]
        for count in range(until(log, "over"), len(log) + 1):
            _, found = await go_on(agent(), log, count)
            assert texts(found) == texts(log)


def side_by_side(kind: str, *agents: BaseAgent) -> BaseAgent:
    """Agents at once: in branches, in branches of branches, or as tools of one turn."""
    if kind == "branches":
        return ParallelAgent(name="sides", sub_agents=list(agents))
    if kind == "nested branches":
        inner = [ParallelAgent(name=f"in_{agent.name}", sub_agents=[agent]) for agent in agents]
        return ParallelAgent(name="sides", sub_agents=inner)
    if kind == "a branch and what runs in one after the other":
        first, *others = agents
        return ParallelAgent(name="sides", sub_agents=[first, SequentialAgent(name="others", sub_agents=others)])
    model = steps([call(agent.name, request="go") for agent in agents], "done")
    return LlmAgent(name="root", model=model, tools=[AgentTool(agent) for agent in agents])


KINDS = ("branches", "nested branches", "a branch and what runs in one after the other", "tools of one turn")
ACTS = ("a model", "a step", "a tool", "an event")


def acting(what: str, done: Callable[[], None]) -> BaseAgent:
    """An agent that says a line and does something then; it is *done* at the moment it is done."""

    async def act() -> str:
        done()
        return "acted"

    async def say(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="acts 0"))
        if what == "a step":
            await ctx.step("act", act)
        elif what == "an event":
            await ctx.emit(Event(message="acts 1"))
            done()

    def answer(request: LlmRequest) -> Any:
        if request.contents[-1].parts[-1].function_response is None:
            if what == "a model":
                done()
                return "asked"
            return call("act")
        return "called"

    if what in ("a step", "an event"):
        return one("acts", say)
    asks = LlmAgent(name="asks", model=ScriptedLlm(answer), tools=[act])
    return SequentialAgent(name="acts", sub_agents=[speaker("first", 1, at_once), asks])


@slowly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ACTS)
async def test_who_does_something_new_loses_nothing_of_those_beside_it(
    kind: str, what: str, slow: Pause, autojump_clock: MockClock
) -> None:
    """A model is asked, a step taken, an event stored, once, and those beside it come to all that is recorded."""
    at: list[int] = []
    diary: list[str] = []

    def agent(pause: Pause) -> BaseAgent:
        return side_by_side(
            kind, acting(what, lambda: at.append(len(diary))), speaker("speaks", 4, pause, diary)
        )

    log = await first_run(agent(a_second))
    # The others' lines are recorded; of the one who acts, only its first line.
    recorded = [event for event in log if event.author == "user" or not event.text or event.text.startswith("speaks")]
    recorded = [event for event in recorded if event.output is None and not _is_of_the_call(event)]
    first = next(event for event in log if event.text in ("acts 0", "first 0"))
    prefix = [*[e for e in recorded if (e.seq or 0) < (first.seq or 0)], first]
    prefix += [event for event in recorded if (event.seq or 0) > (first.seq or 0) and event.text]
    diary.clear()
    at.clear()
    run, found = await go_on(agent(slow), prefix, len(prefix))
    assert run.status == "completed"
    assert len(at) == 1
    assert len(diary) == 4
    assert texts(found)[:5] == texts(prefix)


def _is_of_the_call(event: Event) -> bool:
    names = [made.name for made in event.get_function_calls()] + [made.name for made in event.get_function_responses()]
    return "act" in names


@slowly
async def test_rounds_keep_their_order_although_they_have_the_same_branches(
    slow: Pause, autojump_clock: MockClock
) -> None:
    """A loop of branches: each round is as it was, and none takes what another has said, wherever it was cut off."""

    def agent(first: Pause, second: Pause) -> BaseAgent:
        async def judge(ctx: InvocationContext) -> None:
            round_number = ctx.state.get("round", 0) + 1
            enough = round_number == 3
            actions = EventActions(state_delta={"round": round_number}, escalate=enough or None)
            await ctx.emit(Event(message=f"round {round_number}", actions=actions))

        sides = ParallelAgent(name="sides", sub_agents=[speaker("x", 2, first), speaker("y", 1, second)])
        return LoopAgent(name="loop", sub_agents=[sides, one("judges", judge)])

    log = await first_run(agent(a_second, partial(trio.sleep, 1.5)))
    assert texts(log) == [text for number in (1, 2, 3) for text in ("x 0", "y 0", "x 1", f"round {number}")]
    for count in range(1, len(log) + 1):
        for paces in ((at_once, slow), (slow, at_once)):
            _, found = await go_on(agent(*paces), log, count)
            assert texts(found)[: count - 1] == texts(log)[: count - 1]
            rounds = [texts(found)[place : place + 4] for place in range(0, 12, 4)]
            assert [(sorted(each), each[-1]) for each in rounds] == [
                (["round " + str(number), "x 0", "x 1", "y 0"], f"round {number}") for number in (1, 2, 3)
            ]


@slowly
async def test_who_was_ended_before_it_said_anything_is_ended_again(slow: Pause, autojump_clock: MockClock) -> None:
    """Branches in rounds: who speaks in the second one only, says nothing in the first when it is faster now."""

    def agent(fast: Pause, others: Sequence[Pause]) -> BaseAgent:
        async def escalate(ctx: InvocationContext) -> None:
            await fast()
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

        async def speak(ctx: InvocationContext) -> None:
            await others[min(ctx.state.get("round", 0), 1)]()
            await ctx.emit(Event(message="speaks"))

        async def count(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="counts", state={"round": ctx.state.get("round", 0) + 1}))

        sides = ParallelAgent(name="sides", sub_agents=[one("ends", escalate), one("speaks", speak)])
        rounds = [LoopAgent(name="inner", sub_agents=[sides]), one("counts", count)]
        return LoopAgent(name="outer", sub_agents=rounds, max_iterations=2)

    log = await first_run(agent(partial(trio.sleep, 2), [partial(trio.sleep, 3), a_second]))
    expected = ["over", "counts", "speaks", "over", "counts"]
    assert texts(log) == expected
    for count in range(2, len(log) + 1):
        for paces in ((slow, [at_once, at_once]), (at_once, [slow, slow])):
            _, found = await go_on(agent(*paces), log, count)
            assert texts(found)[: count - 1] == expected[: count - 1]
            if count >= 5:
                assert texts(found) == expected


@slowly
async def test_a_later_round_of_branches_is_waited_for(slow: Pause, autojump_clock: MockClock) -> None:
    """An escalation beside a loop of branches is recorded in their second round: they come to that first."""

    def agent(fast: Pause, other: Pause) -> BaseAgent:
        async def escalate(ctx: InvocationContext) -> None:
            await fast()
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

        inner = ParallelAgent(name="inner", sub_agents=[speaker("y", 2, other)])
        rounds = LoopAgent(name="rounds", sub_agents=[inner], max_iterations=3)
        sides = ParallelAgent(name="sides", sub_agents=[one("ends", escalate), rounds])
        return LoopAgent(name="loop", sub_agents=[sides])

    log = await first_run(agent(partial(trio.sleep, 3.5), a_second))
    assert texts(log) == ["y 0", "y 1", "y 0", "over"]
    for first in (at_once, partial(trio.sleep, 1500)):
        _, found = await go_on(agent(first, slow), log, len(log))
        assert texts(found) == ["y 0", "y 1", "y 0", "over"]


@slowly
@pytest.mark.parametrize("has_ended", [False, True])
async def test_what_was_said_inside_of_a_call_is_behind_its_answer(
    has_ended: bool, slow: Pause, autojump_clock: MockClock
) -> None:
    """A branch calls an agent, beside one that speaks: an answered call is not made again, an open one is."""

    def agent(pause: Pause, other: Pause) -> BaseAgent:
        inner = AgentTool(speaker("inner", 2, pause))
        caller = LlmAgent(name="calls", model=steps(call("inner", request="go"), "called"), tools=[inner])
        return ParallelAgent(name="sides", sub_agents=[caller, speaker("speaks", 4, other)])

    expected = ["inner 0", "speaks 0", "inner 1", "called", "speaks 1", "speaks 2", "speaks 3"]
    log = await first_run(agent(a_second, partial(trio.sleep, 1.5)))
    assert sorted(texts(log)) == sorted(expected)
    answer = next(number for number, event in enumerate(log, 1) if event.get_function_responses())
    for count in range(answer, len(log)) if has_ended else range(2, answer):
        for paces in ((at_once, slow), (slow, at_once)):
            run, found = await go_on(agent(*paces), log, count)
            assert run.status == "completed"
            assert texts(found[:count]) == texts(log[:count])
            assert sorted(texts(found)) == sorted(expected)


@slowly
async def test_calls_that_go_on_are_behind_the_answers_of_their_turn(slow: Pause, autojump_clock: MockClock) -> None:
    """One call is answered, in the other an agent has spoken and asked: it is run again after that answer."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="asks 0"))
        await ctx.emit(Event(message=f"asks got {await ctx.request_input('?')}"))

    async def look() -> str:
        """Look."""
        await trio.sleep(3)
        return "seen"

    def agent(pause: Pause) -> BaseAgent:
        turn = [call("asks", request="go"), call("look")]
        tools = [AgentTool(one("asks", ask)), FunctionTool(look)]
        caller = LlmAgent(name="calls", model=steps(turn, "called"), tools=tools)
        return ParallelAgent(name="sides", sub_agents=[caller, speaker("speaks", 4, pause)])

    runner = runner_of(agent(a_second))
    run = await run_here(runner, new_message="go")
    assert (run.status, len(run.pending)) == ("paused", 1)
    before = texts(await log_of(runner))
    assert before == ["asks 0", "speaks 0", "speaks 1", "speaks 2", "speaks 3"]
    again = runner_of(agent(slow), runner.session_service)
    run = await run_here(again, invocation_id=run.invocation_id)
    assert (run.status, texts(await log_of(again))) == ("paused", before)
    run = await run_here(again, new_message=run.pending[0].reply("yes"))
    assert (run.status, texts(await log_of(again))) == ("completed", [*before, "asks got yes", "called"])


async def run_here(runner: Runner, **what: Any) -> Run:
    """A run to its end."""
    with trio.fail_after(LONG_S):
        async with runner.run_async(**PLACE, **what, run_config=NO_DEADLINE) as run:
            await run.wait()
    return run


# --- who is not waited for --------------------------------------------------------------------------------------------


def unlike_before(now: Act, first: Act, pause: Pause, **options: Any) -> tuple[BaseAgent, BaseAgent]:
    """The agents of a first run, and those who go on: one branch does *first*, and then *now* in its place."""

    def agent(act: Act, other: Pause) -> BaseAgent:
        return ParallelAgent(name="sides", sub_agents=[one("b", act), speaker("speaks", 3, other)], **options)

    return agent(first, a_second), agent(now, pause)


async def say_two(ctx: InvocationContext) -> None:
    """Two lines, half a second before those of the other one."""
    for line in range(2):
        await trio.sleep(0.5)
        await ctx.emit(Event(message=f"b {line}"))


async def test_who_has_ended_is_not_waited_for(autojump_clock: MockClock) -> None:
    """An agent that ends earlier than it did keeps nobody from going on."""

    async def end(ctx: InvocationContext) -> None:
        await trio.sleep(5)

    before, now = unlike_before(end, say_two, at_once)
    log = await first_run(before)
    run, found = await go_on(now, log, until(log, "speaks 1"))
    assert (run.status, texts(found)[-1]) == ("completed", "speaks 2")


async def test_who_was_cancelled_is_not_waited_for(autojump_clock: MockClock) -> None:
    """An agent whose time is up before it comes to what it has said keeps nobody from going on."""

    async def give_up(ctx: InvocationContext) -> None:
        with trio.move_on_after(2):
            await trio.sleep(3)
            await ctx.emit(Event(message="b 0"))

    before, now = unlike_before(give_up, say_two, at_once)
    log = await first_run(before)
    run, found = await go_on(now, log, until(log, "speaks 1"))
    assert (run.status, texts(found)[-1]) == ("completed", "speaks 2")


async def test_who_has_failed_is_not_waited_for(autojump_clock: MockClock) -> None:
    """A branch fails before it comes to what it has said; the others come to their end, and the run fails."""

    async def fail(ctx: InvocationContext) -> None:
        await trio.sleep(2)
        raise ValueError("not as before")

    diary: list[str] = []
    before, now = unlike_before(fail, say_two, at_once, on_failure="collect")
    log = await first_run(before)
    now = ParallelAgent(
        name="sides", sub_agents=[one("b", fail), speaker("speaks", 3, at_once, diary)], on_failure="collect"
    )
    with pytest.raises(ValueError, match="not as before"):
        await go_on(now, log, until(log, "speaks 1"))
    assert diary == ["speaks 0", "speaks 1", "speaks 2"]


@slowly
async def test_who_waits_for_an_answer_is_not_waited_for(slow: Pause, autojump_clock: MockClock) -> None:
    """A branch has asked and stays where it is; the other one comes to what it has said, and goes on."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="b 0"))
        await ctx.emit(Event(message=f"b got {await ctx.request_input('?')}"))

    def agent(pause: Pause) -> BaseAgent:
        return ParallelAgent(name="sides", sub_agents=[one("b", ask), speaker("speaks", 3, pause)])

    log = await first_run(agent(a_second))
    for count in range(until(log, "b 0"), len(log) + 1):
        run, found = await go_on(agent(slow), log, count)
        assert (run.status, len(run.pending)) == ("paused", 1)
        assert texts(found) == ["b 0", "speaks 0", "speaks 1", "speaks 2"]


async def test_calls_that_wait_and_are_not_made_again_are_not_waited_for(autojump_clock: MockClock) -> None:
    """Two agents as tools: one has spoken and asked, and is not run again; the other one goes on."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="asks 0"))
        await ctx.emit(Event(message=f"asks got {await ctx.request_input('?')}"))

    def agent(pause: Pause) -> BaseAgent:
        return side_by_side("tools of one turn", one("asks", ask), speaker("speaks", 3, pause))

    log = await first_run(agent(a_second))
    for count in range(until(log, "asks 0"), len(log) + 1):
        for pause in (at_once, very_long, many_checkpoints):
            run, found = await go_on(agent(pause), log, count)
            assert (run.status, len(run.pending)) == ("paused", 1)
            assert texts(found) == ["asks 0", "speaks 0", "speaks 1", "speaks 2"]


@pytest.mark.parametrize("late", ["one", "two"])
async def test_calls_that_stand_in_line_for_a_tool_are_not_waited_for(late: str, autojump_clock: MockClock) -> None:
    """Of two calls of an agent that runs once at a time, now the other has the slot first: nobody waits for ever."""

    def agent(held_up: str | None) -> BaseAgent:
        async def before(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
            if args["request"] == held_up:
                await trio.sleep(5)

        async def speak(ctx: InvocationContext) -> None:
            who = ctx.user_content.parts[0].text if ctx.user_content else ""
            for line in range(2):
                await trio.sleep(1)
                await ctx.emit(Event(message=f"{who} {line}"))

        model = steps([call("inner", request="one"), call("inner", request="two")], "done")
        tool = AgentTool(one("inner", speak), max_concurrency=1)
        return LlmAgent(name="root", model=model, tools=[tool], before_tool_callback=before)

    log = await first_run(agent(None))
    assert sorted(texts(log)) == ["done", "one 0", "one 1", "two 0", "two 1"]
    for count in range(2, len(log) + 1):
        run, found = await go_on(agent(late), log, count)
        assert run.status == "completed"
        assert sorted(texts(found)) == ["done", "one 0", "one 1", "two 0", "two 1"]
        assert texts(found)[-1] == "done"


@slowly
async def test_tools_that_wait_in_a_batch_with_an_agent_hold_nobody_up(slow: Pause, autojump_clock: MockClock) -> None:
    """A call that was answered is not made again, and one that failed is over: the agent beside them goes on."""
    made: list[str] = []

    async def quick(what: str) -> str:
        """Do something."""
        made.append(what)
        if what == "b":
            raise ValueError(what)
        return what

    def agent(pause: Pause) -> BaseAgent:
        inner = speaker("speaks", 3, pause)
        calls = [call("quick", what="a"), call("speaks", request="go"), call("quick", what="b")]
        tool = FunctionTool(quick, on_interrupted="rerun")
        return LlmAgent(name="root", model=steps(calls, "done"), tools=[tool, AgentTool(inner)])

    log = await first_run(agent(a_second))
    for count in range(2, len(log) + 1):
        run, found = await go_on(agent(slow), log, count)
        assert (run.status, texts(found)) == ("completed", ["speaks 0", "speaks 1", "speaks 2", "done"])


# --- who does otherwise -----------------------------------------------------------------------------------------------


@slowly
async def test_who_does_otherwise_is_told_and_hangs_nobody(slow: Pause, autojump_clock: MockClock) -> None:
    """A branch takes a step in the place of what it has said, which the other waits for: a ReplayError at once."""
    diary: list[str] = []

    async def say(ctx: InvocationContext) -> None:
        for line in range(3):
            await ctx.emit(Event(message=f"b {line}"))

    async def step(ctx: InvocationContext) -> None:
        async def work() -> None:
            diary.append("done")

        await ctx.emit(Event(message="b 0"))
        await ctx.step("work", work)

    def agent(act: Act, pause: Pause) -> BaseAgent:
        return ParallelAgent(name="sides", sub_agents=[one("b", act), speaker("speaks", 2, pause, diary)])

    log = await first_run(agent(say, a_second))
    assert texts(log)[:4] == ["b 0", "b 1", "b 2", "speaks 0"]
    with pytest.raises(ReplayError, match="expected the agents to come to what they have said before"):
        await go_on(agent(step, slow), log, until(log, "speaks 1"))
    assert "done" not in diary


@slowly
async def test_who_does_otherwise_is_told_when_an_escalation_has_not_reached_it(
    slow: Pause, autojump_clock: MockClock
) -> None:
    """It waits for what is recorded to end others beside it. That has ended a loop of its own; then it is told."""
    diary: list[str] = []

    async def say(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="b 0"))
        await trio.sleep(10)
        await ctx.emit(Event(message="b 1"))

    async def step(ctx: InvocationContext) -> None:
        async def work() -> None:
            diary.append("done")

        await ctx.emit(Event(message="b 0"))
        await ctx.step("work", work)

    def agent(act: Act, pause: Pause) -> BaseAgent:
        async def end(ctx: InvocationContext) -> None:
            await pause()
            await ctx.emit(Event(message="enough", actions=EventActions(escalate=True)))

        loop = LoopAgent(name="loop", sub_agents=[one("ends", end)])
        return ParallelAgent(name="sides", sub_agents=[one("b", act), loop])

    log = await first_run(agent(say, a_second))
    assert texts(log) == ["b 0", "enough", "b 1"]
    with pytest.raises(ReplayError, match="'b 1'"):
        await go_on(agent(step, slow), log, len(log))
    assert diary == []


async def test_branches_that_share_a_lock_may_get_it_in_another_order(autojump_clock: MockClock) -> None:
    """Nobody waits for what others have said where nobody was ended by it: so nobody waits for who waits for it."""

    def agent(first: str) -> BaseAgent:
        lock = trio.Lock()

        async def speak(ctx: InvocationContext) -> None:
            if ctx.agent_name != first:
                await trio.sleep(1)
            async with lock:
                await ctx.emit(Event(message=ctx.agent_name))
                await trio.sleep(10)

        return ParallelAgent(name="sides", sub_agents=[one(name, speak) for name in "ab"])

    log = await first_run(agent("a"))
    for first in "ab":
        run, found = await go_on(agent(first), log, 3, RunConfig(deadline_s=100))
        assert (run.status, texts(found)) == ("completed", ["a", "b"])


# --- any tree, any pace -----------------------------------------------------------------------------------------------

Tree: TypeAlias = Any
"""The name of a kind of leaf, or that of a node with its children."""
LEAVES = ("says", "counts", "escalates")
NODES = ("sequence", "parallel", "loop", "calls")


class Pace:
    """How long agents take between what they do: anything, and something else with each seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.steps: list[str] = []
        """The names of the steps that were taken."""

    async def pause(self) -> None:
        kind = self._random.randrange(4)
        if kind == 1:
            await trio.sleep(self._random.random())
        elif kind == 2:
            await trio.sleep(self._random.choice([1, 10, 1000]))
        elif kind == 3:
            for _ in range(self._random.choice([1, 5, 50])):
                await trio.lowlevel.checkpoint()


def leaf_of(kind: str, name: str, pace: Pace) -> BaseAgent:
    """Agents that do the same whenever they are run, if they read the same."""

    async def says(ctx: InvocationContext) -> None:
        for line in range(2):
            await pace.pause()
            await ctx.emit(Event(message=f"{name} {line}"))
        await pace.pause()

    async def counts(ctx: InvocationContext) -> None:
        async def same(seen: int) -> int:
            pace.steps.append(ctx.idempotency_key)
            await pace.pause()
            return seen

        for _ in range(2):
            await pace.pause()
            seen = await ctx.step("saw", same, ctx.state.get("count", 0))
            await pace.pause()
            await ctx.emit(Event(message=f"{name} saw it", state={"count": seen + 1}))

    async def escalates(ctx: InvocationContext) -> None:
        await pace.pause()
        await ctx.emit(Event(message=f"{name} escalates", actions=EventActions(escalate=True)))

    return one(name, {"says": says, "counts": counts, "escalates": escalates}[kind])


def tree_of(tree: Tree, pace: Pace, name: str = "a") -> BaseAgent:
    """The agents of a tree; each is named after its place."""
    if isinstance(tree, str):
        return leaf_of(tree, name, pace)
    node, children = tree
    agents = [tree_of(child, pace, f"{name}{number}") for number, child in enumerate(children)]
    if node == "sequence":
        return SequentialAgent(name=name, sub_agents=agents)
    if node == "parallel":
        return ParallelAgent(name=name, sub_agents=agents)
    if node == "loop":
        return LoopAgent(name=name, sub_agents=agents, max_iterations=2)

    def answer(request: LlmRequest) -> Any:
        was_called = request.contents[-1].parts[-1].function_response is not None
        return f"{name} is done" if was_called else [call(agent.name, request="go") for agent in agents]

    return LlmAgent(name=name, model=ScriptedLlm(answer), tools=[AgentTool(agent) for agent in agents])


def trees() -> st.SearchStrategy[Tree]:
    """Trees in which something runs beside something else."""
    inner = st.recursive(
        st.sampled_from(LEAVES),
        lambda children: st.tuples(st.sampled_from(NODES), st.lists(children, min_size=1, max_size=3)),
        max_leaves=4,
    )
    sides = st.lists(inner, min_size=2, max_size=3)
    beside = st.tuples(st.sampled_from(["parallel", "calls"]), sides)
    return st.one_of(beside, st.tuples(st.just("loop"), st.lists(beside, min_size=1, max_size=2)))


def after_escalations(log: Sequence[Event]) -> int:
    """How many events there are up to the last escalation; whom one meets where is luck, until it is recorded."""
    return max((number for number, event in enumerate(log, 1) if event.actions.escalate), default=0)


def by_branch(log: Sequence[Event]) -> dict[tuple[str | None, str | None], list[str]]:
    """What was said in each branch by each agent, in order; the values that it was said with aside."""
    found: dict[tuple[str | None, str | None], list[str]] = {}
    for event in log:
        if event.content is not None and event.author != "user":
            found.setdefault((event.branch, event.author), []).append(event.text or "a call or its answer")
    return found


async def check_any_pace(tree: Tree, seed: int, counts: Callable[[int], Sequence[int]]) -> None:
    """Cut the log of a tree, go on at another pace: what was recorded stays, and the rest is done once."""
    log = await first_run(tree_of(tree, Pace(seed)))
    for count in counts(len(log)):
        pace = Pace(seed + count)
        run, found = await go_on(tree_of(tree, pace), log, count)
        assert run.status == "completed"
        assert [event.id for event in found[:count]] == [event.id for event in log[:count]]
        ids = [event.id for event in found]
        assert len(set(ids)) == len(ids), "said twice"
        taken = [event.id for event in log[:count] if event.actions.replay.step is not None]
        assert len(pace.steps) == len(set(pace.steps)), "a step was taken twice"
        assert not {event.id for event in found[count:]}.intersection(taken)
        if count >= after_escalations(log):
            assert by_branch(found) == by_branch(log)


@given(tree=trees(), seed=st.integers(0, 10_000), data=st.data())
@settings(max_examples=examples(25))
def test_at_any_pace_a_tree_does_what_it_would_have_done(tree: Tree, seed: int, data: st.DataObject) -> None:
    """Agents in trees that nobody has thought of, cut off at a few places, and others that take other times."""
    run_on_mock_clock(tree, seed, lambda length: [data.draw(st.integers(1, length), label="cut") for _ in range(4)])


@pytest.mark.slow
@given(tree=trees(), seed=st.integers(0, 10_000))
@settings(max_examples=100)
def test_at_any_pace_many_trees_do_what_they_would_have_done(tree: Tree, seed: int) -> None:
    """The same, for many, and for every place."""
    run_on_mock_clock(tree, seed, lambda length: range(1, length + 1))


def run_on_mock_clock(tree: Tree, seed: int, counts: Callable[[int], Sequence[int]]) -> None:
    """Check a tree, with a clock that jumps."""
    trio.run(check_any_pace, tree, seed, counts, clock=MockClock(autojump_threshold=0))
