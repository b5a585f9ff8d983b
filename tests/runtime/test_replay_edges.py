"""
What is said beside the order of an agent's logic, and whom a replay waits for: one small program for each rule.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    EventActions,
    FunctionTool,
    InMemorySessionService,
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
from minirun.plugins import BasePlugin
from minirun.runtime import CallbackContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.types import Content, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for
from ..resuming import steps
from .test_replay_order import (
    Pause,
    a_second,
    at_once,
    first_run,
    go_on,
    one,
    side_by_side,
    speaker,
    texts,
    until,
    very_long,
)
from .test_resume import cut_after, log_of, runner_of


async def test_what_is_said_on_the_way_to_a_pause_is_not_missed_when_somebody_looks() -> None:
    """A `finally` around a question emits; going on without an answer pauses again, as often as it is tried."""

    async def ask(ctx: InvocationContext) -> None:
        try:
            await ctx.request_input("?")
        finally:
            await ctx.emit(Event(message="bye"))

    runner = runner_for(ask)
    _, run = await run_to_end(runner)
    for _ in range(2):
        async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
            await again.wait()
        assert again.status == "paused"


async def test_what_the_runtime_has_answered_is_not_expected_of_an_agent(autojump_clock: MockClock) -> None:
    """A turn whose time was up is answered by the runtime: nobody who goes on has to come to that."""

    async def work() -> None:
        """Work."""
        await trio.sleep(1000)

    def agent(pause: Pause) -> BaseAgent:
        model = LlmAgent(name="model", model=steps(call("work")), tools=[work])

        async def give_up(ctx: InvocationContext) -> None:
            with trio.move_on_after(2):
                await pause()
                await model.run_async(ctx)

        works = Logic(name="works", logic=give_up, sub_agents=[model])
        sides = ParallelAgent(name="sides", sub_agents=[works, speaker("speaks", 1, a_second)])
        return SequentialAgent(name="all", sub_agents=[sides, speaker("last", 1, at_once)])

    log = await first_run(agent(at_once))
    answer = next(number for number, event in enumerate(log, 1) if event.get_function_responses())
    assert texts(log[:answer]) == ["speaks 0"]
    run, found = await go_on(agent(very_long), log, answer)
    assert (run.status, texts(found)) == ("completed", ["speaks 0", "last 0"])


async def test_whom_an_escalation_has_ended_does_all_that_it_had_done_then(autojump_clock: MockClock) -> None:
    """What it has left for the others in `temp:` keys, which are in no log, is there again at any pace."""

    def agent(fast: Pause, other: Pause) -> BaseAgent:
        async def escalate(ctx: InvocationContext) -> None:
            await fast()
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

        async def speak(ctx: InvocationContext) -> None:
            for number in range(9):
                await other()
                await ctx.emit(Event(message=f"speaks {number}", state={"temp:said": number + 1}))

        async def tell(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message=f"said {ctx.state.get('temp:said')}"))

        sides = ParallelAgent(name="sides", sub_agents=[one("ends", escalate), one("speaks", speak)])
        return SequentialAgent(name="all", sub_agents=[LoopAgent(name="loop", sub_agents=[sides]), one("tells", tell)])

    log = await first_run(agent(partial(trio.sleep, 2.5), a_second))
    assert texts(log) == ["speaks 0", "speaks 1", "over", "said 2"]
    _, found = await go_on(agent(at_once, very_long), log, until(log, "over"))
    assert texts(found) == texts(log)


@pytest.mark.parametrize("instead", ["a step", "an agent below", "its end"])
async def test_who_does_not_escalate_any_more_is_not_waited_for(instead: str, autojump_clock: MockClock) -> None:
    """Another agent waits for an escalation that is recorded: it goes on as soon as something else is done instead."""

    def agent(now: bool) -> BaseAgent:
        has_gone_on = trio.Event()

        async def work() -> None:
            pass

        async def below(ctx: InvocationContext) -> None:
            if now and instead == "an agent below":
                await trio.sleep(10)
                await ctx.emit(Event(message="instead"))

        async def escalate(ctx: InvocationContext) -> None:
            await trio.sleep(10)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1)
                if not now:
                    await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))
                elif instead == "a step":
                    await ctx.step("work", work)
            if now and instead != "its end":
                await has_gone_on.wait()

        async def speak(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="speaks 0"))
            await trio.sleep(0 if now else 1000)
            await ctx.emit(Event(message="speaks 1"))
            has_gone_on.set()

        inner = ParallelAgent(name="inner", sub_agents=[one("below", below)])
        ends = SequentialAgent(name="ends", sub_agents=[inner, one("escalates", escalate)])
        sides = ParallelAgent(name="sides", sub_agents=[ends, one("speaks", speak)])
        return LoopAgent(name="loop", sub_agents=[sides], max_iterations=1)

    log = await first_run(agent(now=False))
    assert texts(log) == ["speaks 0", "over"]
    run, found = await go_on(agent(now=True), log, len(log), RunConfig(deadline_s=100))
    assert (run.status, texts(found)[-1]) == ("completed", "speaks 1")


async def test_who_does_not_what_it_did_is_told_so_before_others_have_said_again_what_they_had(
    autojump_clock: MockClock,
) -> None:
    """An escalation alone could have ended it first; who has only spoken may be waiting for it."""

    def agent(now: bool) -> BaseAgent:
        has_gone_on = trio.Event()

        async def stray(ctx: InvocationContext) -> None:
            await trio.sleep(1)
            if now:
                await ctx.step("work", at_once)
            await ctx.emit(Event(message="second"))
            has_gone_on.set()

        async def speak(ctx: InvocationContext) -> None:
            if now:
                await has_gone_on.wait()
            await ctx.emit(Event(message="first"))

        return ParallelAgent(name="sides", sub_agents=[one("strays", stray), one("speaks", speak)])

    log = await first_run(agent(now=False))
    assert texts(log) == ["first", "second"]
    with pytest.raises(ReplayError, match="'second'"):
        await go_on(agent(now=True), log, len(log), RunConfig(deadline_s=100))


async def test_what_is_said_while_a_failure_is_handled_has_its_place_only_by_an_id() -> None:
    """What has failed may go well another time, so it is beside the order of what is said; a name finds it again."""

    async def fail(ctx: InvocationContext) -> None:
        try:
            raise ValueError("failed")
        except ValueError:
            await ctx.emit(Event(message="one"))
            await ctx.emit(Event(id="two", message="two"))

    events, _ = await run_to_end(runner_for(fail))
    assert [event.actions.replay.aside for event in events] == [True, None]


async def test_what_is_said_on_the_way_to_a_pause_has_no_place_even_with_an_id() -> None:
    """Every run that pauses there says it once more."""

    async def ask(ctx: InvocationContext) -> None:
        try:
            await ctx.request_input("?")
        finally:
            await ctx.emit(Event(id="bye", message="bye"))

    events, _ = await run_to_end(runner_for(ask))
    assert [event.actions.replay.aside for event in events] == [None, True]


async def test_what_an_agent_of_the_package_says_has_its_place_also_while_another_handles_a_failure() -> None:
    """What it does follows from the log: the same in every run that comes to it."""
    model = ScriptedLlm(["no number", "7"])
    inner = LlmAgent(name="inner", model=model, output_schema=int)

    async def fail(ctx: InvocationContext) -> None:
        try:
            raise ValueError("failed")
        except ValueError:
            await inner.run_async(ctx)

    events, run = await run_to_end(runner_for(Logic(name="outer", logic=fail, sub_agents=[inner])))
    assert run.output == 7
    assert {event.actions.replay.aside for event in events} == {None}


async def test_what_a_recorded_event_has_carried_goes_with_no_later_one() -> None:
    """The agent sets it again on its way through the record, where it belongs to the event that is there."""

    async def ask(ctx: InvocationContext) -> None:
        ctx.actions.skip_summarization = True
        await ctx.emit(Event(message="one"))
        await ctx.request_input("?")
        await ctx.emit(Event(message="two"))

    runner = runner_for(ask)
    [first, _], run = await run_to_end(runner)
    [second], _ = await run_to_end(runner, run.pending[0].reply("yes"))
    assert [each.actions.skip_summarization for each in (first, second)] == [True, None]


async def test_what_was_read_is_stored_once() -> None:
    """The next event carries it, and those after it carry nothing."""

    async def read(ctx: InvocationContext) -> None:
        ctx.state.get("order")
        for text in ("one", "two"):
            await ctx.emit(Event(message=text))

    events, _ = await run_to_end(runner_for(read))
    assert [event.actions.replay.reads for event in events] == [{"run/agent": {"order": [1, [0]]}}, {}]


async def test_what_was_written_before_a_question_is_known_after_its_answer() -> None:
    """The question has stored it, so it is not recorded as something that was read."""

    async def ask(ctx: InvocationContext) -> None:
        before = ctx.state.get("order")
        ctx.state["order"] = "tea"
        await ctx.request_input("Is that all?")
        await ctx.emit(Event(message=f"{before}, {ctx.state['order']}"))

    runner = runner_for(ask)
    _, run = await run_to_end(runner)
    [said], _ = await run_to_end(runner, run.pending[0].reply("yes"))
    assert said.text == "None, tea"
    assert said.actions.replay.reads == {"run/agent": {"order": [2]}}


async def test_a_call_that_has_ended_is_not_waited_for(autojump_clock: MockClock) -> None:
    """Inside of a call an agent had escalated, and does not any more: another call of the turn goes on at its end."""

    def agent(now: bool) -> BaseAgent:
        async def escalate(ctx: InvocationContext) -> None:
            await trio.sleep(10)
            if not now:
                await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

        async def speak(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="speaks 0"))
            await trio.sleep(0 if now else 1000)
            await ctx.emit(Event(message="speaks 1"))

        return side_by_side("tools of one turn", one("escalates", escalate), one("speaks", speak))

    log = await first_run(agent(now=False))
    run, found = await go_on(agent(now=True), log, until(log, "over"), RunConfig(deadline_s=100))
    assert (run.status, texts(found)[:3]) == ("completed", ["speaks 0", "over", "speaks 1"])



async def test_an_agent_inside_of_a_call_that_has_only_spoken_has_asked_nothing() -> None:
    """After a crash its call is settled as `on_interrupted` says; it is not gone on with."""

    def agent() -> BaseAgent:
        tool = AgentTool(speaker("inner", 2, at_once), on_interrupted="report")
        return LlmAgent(name="root", model=steps(call("inner", request="go"), "done"), tools=[tool])

    log = await first_run(agent())
    run, found = await go_on(agent(), log, until(log, "inner 0"))
    assert (run.status, texts(found)) == ("completed", ["inner 0", "done"])
    [answer] = [one for event in found for one in event.get_function_responses()]
    assert answer.response["error"]["type"] == "outcome_unknown"


async def test_who_had_time_for_something_new_is_not_missed_where_others_were_stopped(
    autojump_clock: MockClock,
) -> None:
    """One branch goes on, and a time limit ends both before the other comes to what it had said: the run is over."""

    def agent(pause: Pause, lines: int) -> BaseAgent:
        sides = ParallelAgent(name="sides", sub_agents=[speaker("quick", lines, at_once), speaker("slow", 1, pause)])

        async def in_time(ctx: InvocationContext) -> None:
            with trio.move_on_after(5):
                await sides.run_async(ctx)

        return Logic(name="limits", logic=in_time, sub_agents=[sides])

    log = await first_run(agent(at_once, 1))
    run, found = await go_on(agent(very_long, 2), log, len(log))
    assert (run.status, texts(found)[-1]) == ("completed", "quick 1")


async def test_hooks_of_an_agent_that_was_cut_off_behind_its_last_event_run() -> None:
    """It had said everything, but had not come to its end: what follows is not taken for done."""

    async def say(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))

    async def after(callback_context: InvocationContext) -> Content:
        return Content(role="model", parts=[Part(text="after")])

    def agent() -> BaseAgent:
        return Logic(name="a", logic=say, after_agent_callback=after)

    log = await first_run(agent())
    assert texts(log) == ["said", "after"]
    _, found = await go_on(agent(), log, until(log, "said"))
    assert texts(found) == ["said", "after"]


async def test_whom_an_escalation_ends_before_it_does_something_new_has_done_nothing_new(
    autojump_clock: MockClock,
) -> None:
    """It was about to go on, and is ended at once: of those who follow it is expected what they had done."""

    def agent(now: bool) -> BaseAgent:
        over = trio.Event()

        async def nothing() -> None:
            pass

        async def escalate(ctx: InvocationContext) -> None:
            await trio.sleep(0.5)
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))
            over.set()

        async def speak(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="speaks 0"))
            with trio.CancelScope(shield=True):
                await over.wait()
            await ctx.emit(Event(message="speaks 1"))

        async def follow(ctx: InvocationContext) -> None:
            if now:
                await ctx.step("another", nothing)
            await ctx.emit(Event(message="last 0"))

        sides = ParallelAgent(name="sides", sub_agents=[one("ends", escalate), one("speaks", speak)])
        loop = LoopAgent(name="loop", sub_agents=[sides])
        return SequentialAgent(name="all", sub_agents=[loop, one("follows", follow)])

    log = await first_run(agent(now=False))
    assert texts(log) == ["speaks 0", "over", "last 0"]
    with pytest.raises(ReplayError, match="step 'another'"):
        await go_on(agent(now=True), log, len(log))


async def test_what_a_hook_of_the_run_does_anew_says_nothing_about_the_agents() -> None:
    """Each run takes a step of its own before the agents: they are replayed all the same, and expected to be."""

    async def nothing() -> None:
        pass

    class Greeter(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
            await invocation_context.step("greet", nothing)

    asked: list[str] = []

    def agent(now: bool) -> BaseAgent:
        async def speak(ctx: InvocationContext) -> None:
            if now:
                await ctx.step("another", nothing)
            await ctx.emit(Event(message="speaks 0"))
            await ctx.request_input("?")

        return Logic(name="speaks", logic=speak, before_agent_callback=lambda callback_context: asked.append("before"))

    def app(now: bool) -> App:
        return App(name="app", root_agent=agent(now), plugins=[Greeter("greeter")])

    runner = Runner(app=app(now=False), session_service=InMemorySessionService(), auto_create_session=True)
    _, run = await run_to_end(runner)
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        await again.wait()
    assert (again.status, asked) == ("paused", ["before"])
    other = Runner(app=app(now=True), session_service=runner.session_service)
    with pytest.raises(ReplayError, match="step 'another'"):
        async with other.run_async(**PLACE, invocation_id=run.invocation_id) as again:
            await again.wait()
    assert again.status == "paused"


async def test_a_partial_event_that_is_not_shown_again_is_a_checkpoint() -> None:
    """While an agent is replayed, what it streams goes nowhere; a cancellation arrives there all the same."""
    cancelled: list[bool] = []

    async def stream(ctx: InvocationContext) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await ctx.emit(Event(message="sa", partial=True))
        cancelled.append(scope.cancelled_caught)
        await ctx.emit(Event(message="said"))

    log = await first_run(one("streams", stream))
    await go_on(one("streams", stream), log, len(log))
    assert cancelled == [True, True]


async def test_a_hook_that_fails_after_something_new_fails_the_invocation_although_nothing_was_replayed() -> None:
    """It has taken a step before the agents: that was done, so the invocation is not left as it was."""

    async def nothing() -> None:
        pass

    class Greeter(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
            await invocation_context.step("greet", nothing)
            raise OSError("after that")

    log = await first_run(speaker("speaks", 2, at_once))
    app = App(name="app", root_agent=speaker("speaks", 2, at_once), plugins=[Greeter("greeter")])
    runner = Runner(app=app, session_service=await cut_after(log, until(log, "speaks 0")))
    with pytest.raises(OSError, match="after that"):
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
    assert run.status == "failed"
    assert (await log_of(runner))[-1].error_code == "OSError"


async def test_another_attempt_in_a_later_run_does_again_nothing_that_the_one_before_has_done(
    autojump_clock: MockClock,
) -> None:
    """What a call has said, and the steps that it has taken, are there for its next attempt, in whatever run."""
    taken: list[str] = []

    def agent() -> BaseAgent:
        attempts: list[int] = []

        async def take() -> None:
            taken.append("step")

        async def work(tool_context: ToolContext) -> str:
            """Work."""
            with assert_checkpoints():
                await tool_context.emit(Event(message="at it"))
            await tool_context.step("take", take)
            attempts.append(1)
            if len(attempts) == 1:
                raise OSError("once")
            return "worked"

        tool = FunctionTool(work, retry=RetryConfig(initial_delay=0), on_interrupted="rerun")
        return LlmAgent(name="a", model=steps(call("work"), "done", "done"), tools=[tool])

    log = await first_run(agent())
    assert [answer.response for event in log for answer in event.get_function_responses()] == [{"result": "worked"}]
    taken.clear()
    made = next(number for number, event in enumerate(log, 1) if event.get_function_calls())
    run, found = await go_on(agent(), log, made)
    assert (run.status, texts(found), taken) == ("completed", ["at it", "done"], ["step"])


async def test_an_agent_that_a_hook_has_answered_for_does_not_run_in_a_later_run_either() -> None:
    """What the hook has said is there again, and the hook is not asked again."""
    done: list[str] = []

    async def instead(callback_context: InvocationContext) -> Content:
        done.append("asked")
        return Content(role="model", parts=[Part(text="instead")])

    async def work(ctx: InvocationContext) -> None:
        done.append("ran")

    async def ask(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    first = Logic(name="first", logic=work, before_agent_callback=instead)
    runner = runner_of(SequentialAgent(name="all", sub_agents=[first, one("asks", ask)]))
    _, run = await run_to_end(runner)
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        await again.wait()
    assert (again.status, done) == ("paused", ["asked"])


async def test_to_say_again_what_was_said_is_a_checkpoint() -> None:
    """Replayed or not, `emit` lets others run, and a cancellation arrives there."""

    async def speak(ctx: InvocationContext) -> None:
        with assert_checkpoints():
            await ctx.emit(Event(message="said"))

    log = await first_run(one("speaks", speak))
    run, found = await go_on(one("speaks", speak), log, len(log))
    assert (run.status, texts(found)) == ("completed", ["said"])


async def test_whom_an_escalation_ends_before_it_does_something_new_leaves_the_invocation_as_it_was(
    autojump_clock: MockClock,
) -> None:
    """Nothing new was done, so what fails afterwards, before the rest was replayed, fails this run and no more."""

    def agent(now: bool) -> BaseAgent:
        over = trio.Event()

        async def escalate(ctx: InvocationContext) -> None:
            await trio.sleep(0.5)
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))
            over.set()

        async def speak(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="speaks 0"))
            with trio.CancelScope(shield=True):
                await over.wait()
            await ctx.emit(Event(message="speaks 1"))

        async def eager(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="eager 0"))
            await (at_once if now else very_long)()
            await ctx.emit(Event(message="eager 1"))

        async def follow(ctx: InvocationContext) -> None:
            if now:
                raise OSError("before it")
            await ctx.emit(Event(message="last 0"))

        three = [one("ends", escalate), one("speaks", speak), one("eager", eager)]
        sides = ParallelAgent(name="sides", sub_agents=three)
        loop = LoopAgent(name="loop", sub_agents=[sides])
        return SequentialAgent(name="all", sub_agents=[loop, one("follows", follow)])

    log = await first_run(agent(now=False))
    assert texts(log)[-2:] == ["over", "last 0"]
    service = await cut_after(log, len(log))
    runner = runner_of(agent(now=True), service)
    with pytest.raises(OSError, match="before it"):
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
    assert (run.status, texts(await log_of(runner))) == ("interrupted", texts(log))


async def test_a_call_that_is_made_again_waits_for_no_escalation_after_what_was_said_inside_of_it(
    autojump_clock: MockClock,
) -> None:
    """It was made before that: the agent that escalates waits for what was said inside, which is said in the call."""

    def agent(pause: Pause) -> BaseAgent:
        async def inside(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="inside"))
            await trio.sleep(1000)

        async def escalate(ctx: InvocationContext) -> None:
            await pause()
            await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

        tool = AgentTool(one("inner", inside))
        calls = LlmAgent(name="calls", model=steps(call("inner", request="go")), tools=[tool])
        sides = ParallelAgent(name="sides", sub_agents=[calls, one("ends", escalate)])
        return LoopAgent(name="loop", sub_agents=[sides])

    log = await first_run(agent(a_second))
    assert texts(log) == ["inside", "over"]
    for count in (until(log, "over"), len(log)):
        run, found = await go_on(agent(at_once), log, count)
        assert (run.status, texts(found)) == ("completed", ["inside", "over"])


async def test_what_a_hook_of_the_run_says_comes_before_all_that_is_replayed() -> None:
    """Each run greets anew: that is beside the agents' logic, which is found again behind it."""

    class Greeter(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
            await invocation_context.emit(Event(message="hello"))

    log = await first_run(speaker("speaks", 2, at_once))
    app = App(name="app", root_agent=speaker("speaks", 2, at_once), plugins=[Greeter("greeter")])
    runner = Runner(app=app, session_service=await cut_after(log, until(log, "speaks 0")))
    async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
        await run.wait()
    assert (run.status, texts(await log_of(runner))) == ("completed", ["speaks 0", "hello", "speaks 1"])


@pytest.mark.parametrize("where", ["step", "hook", "logic"])
async def test_what_is_asked_side_by_side_in_a_later_round_waits_for_its_own_answer(where: str) -> None:
    """Whoever has said nothing in its round before it asked: the answer to one question withdraws no other."""

    async def ask(context: Any) -> Any:
        return await context.request_input(f"{context.agent_name}?")

    async def hook(callback_context: CallbackContext) -> None:
        if callback_context.state["round"] == 2:
            callback_context.state[callback_context.agent_name] = await ask(callback_context)

    async def logic(ctx: InvocationContext) -> None:
        if ctx.state["round"] == 2 and where != "hook":
            answer = await (ctx.step("ask", partial(ask, ctx)) if where == "step" else ask(ctx))
            ctx.state[ctx.agent_name] = answer

    async def count(ctx: InvocationContext) -> None:
        await ctx.emit(Event(state={"round": ctx.state.get("round", 0) + 1}))

    both = [Logic(name=name, logic=logic, before_agent_callback=hook if where == "hook" else None) for name in "xy"]
    agents = [Logic(name="count", logic=count), ParallelAgent(name="both", sub_agents=both)]
    runner = runner_for(LoopAgent(name="rounds", sub_agents=agents, max_iterations=2))
    _, run = await run_to_end(runner)
    waiting = []
    while run.pending:
        waiting.append(len(run.pending))
        _, run = await run_to_end(runner, run.pending[-1].reply("yes"))
    assert (run.status, waiting) == ("completed", [2, 1])
    assert run.session.state == {"round": 2, "x": "yes", "y": "yes"}


async def looks(ctx: InvocationContext) -> None:
    """Ask somebody if there is a need, and say nothing if there is none."""
    if ctx.state.get("user:need"):
        await ctx.request_input("What is needed?")


async def needs(ctx: InvocationContext) -> None:
    """Say that there is a need."""
    await ctx.emit(Event(message="There is a need.", state={"user:need": True}))


async def asks(ctx: InvocationContext) -> None:
    """Ask, and tell the answer."""
    await ctx.emit(Event(message=await ctx.request_input("And now?")))


async def test_who_has_read_and_said_nothing_says_nothing_again() -> None:
    """Although what it has decided by was changed since, by an agent after it; a crash anywhere changes nothing."""

    def agent() -> BaseAgent:
        agents = [one("looks", looks), one("needs", needs), one("asks", asks)]
        return SequentialAgent(name="all", sub_agents=agents)

    runner = runner_of(agent())
    _, run = await run_to_end(runner)
    _, run = await run_to_end(runner, run.pending[0].reply("Rest."))
    assert run.status == "completed"
    log = await log_of(runner)
    assert texts(log) == ["There is a need.", "Rest."]
    for count in (2, 4):
        run, found = await go_on(agent(), log, count)
        assert run.status == ("paused" if count == 2 else "completed")
        assert texts(found) == texts(log)[: count // 2]


@pytest.mark.parametrize("first", ["looks", "asks"])
async def test_what_the_last_before_a_pause_has_read_is_recorded(first: str, autojump_clock: MockClock) -> None:
    """Who says nothing beside one that asks decides the same when the answer comes, whatever was written since."""

    async def slowly_looks(ctx: InvocationContext) -> None:
        await trio.sleep(first != "looks")
        await looks(ctx)

    async def slowly_asks(ctx: InvocationContext) -> None:
        await trio.sleep(first != "asks")
        await asks(ctx)

    both = [one("looks", slowly_looks), one("asks", slowly_asks)]
    runner = runner_for(ParallelAgent(name="both", sub_agents=both))
    _, run = await run_to_end(runner)
    (question,) = run.pending
    assert len(await log_of(runner)) == (2 if first == "looks" else 3)
    _, run = await run_to_end(runner, question.reply("Rest."), state_delta={"user:need": True})
    assert (run.status, run.pending) == ("completed", [])
    assert texts(await log_of(runner)) == ["Rest."]
