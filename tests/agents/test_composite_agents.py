"""Agents made of agents: their order, their branches, and what ends them early."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    BaseAgent,
    Event,
    EventActions,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
)
from minirun.errors import ConfigurationError, StorageBusyError
from minirun.testing import ScriptedLlm

from ..interruptions import PLACE, failing_commit


class Says(BaseAgent):
    """Says its name after a while, so many times."""

    after_s: float = 0.0
    times: int = 1
    escalates_at: int = 0
    fails: bool = False
    ends: bool = False

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for number in range(1, self.times + 1):
            await trio.sleep(self.after_s)
            if self.fails:
                raise ValueError(self.name)
            ctx.state.extend("said", [self.name])
            escalate = number == self.escalates_at or None
            await ctx.emit(Event(message=f"{self.name}{number}", actions=EventActions(escalate=escalate)))
            ctx.end_invocation = ctx.end_invocation or self.ends


async def said(agent: BaseAgent) -> list[str]:
    """What a run of the agent says, in the order of the events."""
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        return [event.text async for event in run if event.text]


async def test_a_sequence_runs_its_agents_in_their_order() -> None:
    """One after the other, each through to its end; none of them where there are none."""
    agent = SequentialAgent(name="all", sub_agents=[Says(name="a", times=2), Says(name="b"), Says(name="c")])
    assert await said(agent) == ["a1", "a2", "b1", "c1"]
    assert await said(SequentialAgent(name="none")) == []


async def test_parallel_agents_speak_as_they_come(autojump_clock: trio.testing.MockClock) -> None:
    """Events are stored as they are said, each under the branch of its agent, and nothing of the state is lost."""
    slow, fast = Says(name="slow", after_s=3, times=2), Says(name="fast", after_s=2, times=2)
    runner = InMemoryRunner(agent=ParallelAgent(name="both", sub_agents=[slow, fast]), auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        events = [event async for event in run]
    assert [(event.text, event.branch) for event in events] == [
        ("fast1", "both.fast"),
        ("slow1", "both.slow"),
        ("fast2", "both.fast"),
        ("slow2", "both.slow"),
    ]
    assert run.session.state["said"] == ["fast", "slow", "fast", "slow"]


async def test_a_branch_does_not_see_what_is_said_beside_it(autojump_clock: trio.testing.MockClock) -> None:
    """Its model is shown what came before all branches and its own words; an agent after them sees everything."""

    def model(text: str) -> ScriptedLlm:
        return ScriptedLlm([text], latency_s=1)

    before, after = model("before"), model("after")
    one, two = model("one"), model("two")
    agents = [LlmAgent(name=name, model=m) for name, m in (("one", one), ("two", two))]
    chain = SequentialAgent(
        name="chain",
        sub_agents=[
            LlmAgent(name="first", model=before),
            ParallelAgent(name="both", sub_agents=[*agents, Says(name="quick")]),
            LlmAgent(name="last", model=after),
        ],
    )
    await said(chain)

    def shown(asked: ScriptedLlm) -> str:
        return " ".join(content.text for content in asked.requests[0].contents)

    for asked in (one, two):
        assert "before" in shown(asked)
        assert "quick" not in shown(asked)
    assert all(word in shown(after) for word in ("before", "one", "two", "quick1"))


async def test_a_loop_runs_until_somebody_escalates_or_its_rounds_are_over() -> None:
    """The agent that escalates finishes; those after it do not begin."""
    rounds = LoopAgent(name="loop", max_iterations=2, sub_agents=[Says(name="a"), Says(name="b")])
    assert await said(rounds) == ["a1", "b1", "a1", "b1"]
    stopping = LoopAgent(name="loop", sub_agents=[Says(name="a", times=2, escalates_at=1), Says(name="b")])
    assert await said(stopping) == ["a1", "a2"]
    assert await said(LoopAgent(name="none")) == []


async def test_an_escalation_ends_everything_up_to_the_innermost_loop(autojump_clock: trio.testing.MockClock) -> None:
    """The sequence around it starts nothing more, branches beside it are cancelled, the loop ends; nothing beyond."""
    branches = ParallelAgent(
        name="branches", sub_agents=[Says(name="stops", after_s=1, escalates_at=1), Says(name="slow", after_s=9)]
    )
    inner = LoopAgent(
        name="inner",
        sub_agents=[SequentialAgent(name="steps", sub_agents=[Says(name="a"), branches, Says(name="never")])],
    )
    outer = LoopAgent(name="outer", max_iterations=2, sub_agents=[inner, Says(name="on")])
    assert await said(outer) == ["a1", "stops1", "on1", "a1", "stops1", "on1"]


async def test_where_there_is_no_loop_an_escalation_ends_the_rest(autojump_clock: trio.testing.MockClock) -> None:
    """A sequence and parallel branches at the root end early as they would in a loop."""
    branches = ParallelAgent(
        name="branches", sub_agents=[Says(name="stops", after_s=1, times=2, escalates_at=1), Says(name="x", after_s=9)]
    )
    assert await said(SequentialAgent(name="all", sub_agents=[branches, Says(name="never")])) == ["stops1", "stops2"]


@pytest.mark.parametrize("kind", [SequentialAgent, LoopAgent, ParallelAgent])
async def test_the_end_of_the_invocation_is_one_for_all(kind: Any, autojump_clock: trio.testing.MockClock) -> None:
    """After `end_invocation` nothing is started, in no composite; branches that run come to their end."""
    first, second = Says(name="a", ends=True), Says(name="b", after_s=0 if kind is not ParallelAgent else 1)
    agent = SequentialAgent(name="root", sub_agents=[kind(name="part", sub_agents=[first, second]), Says(name="c")])
    assert await said(agent) == (["a1", "b1"] if kind is ParallelAgent else ["a1"])


@pytest.mark.parametrize("policy", ["cancel_others", "collect"])
async def test_what_a_failing_branch_means_for_the_others(policy: str, autojump_clock: trio.testing.MockClock) -> None:
    """It cancels them, or lets them come to their end; the run fails either way, and what was said is stored."""
    agents = [Says(name="bad", after_s=2, fails=True), Says(name="good", after_s=1, times=3)]
    runner = InMemoryRunner(
        agent=ParallelAgent(name="both", on_failure=policy, sub_agents=agents), auto_create_session=True
    )
    with pytest.raises(ValueError, match="bad"):
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            await run.wait()
    log = await runner.session_service.read_events(app_name="InMemoryRunner", user_id="u", session_id="s")
    texts = [event.text for event in log if event.author == "good"]
    assert texts in ([["good1"], ["good1", "good2"]] if policy == "cancel_others" else [["good1", "good2", "good3"]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoopAgent(name="x", max_iterations=0),
        lambda: LoopAgent(name="x", max_iterations=True),
        lambda: ParallelAgent(name="x", on_failure="ignore"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """A loop of no rounds, which peers take for none or for endless, and an unknown policy."""
    with pytest.raises(ConfigurationError):
        make()


async def test_who_ends_while_a_branch_asks_fails_if_the_store_refuses_to_take_the_question_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Otherwise the agent goes on, and at the next pause a question is open for which nobody waits."""

    class Asks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.request_input("Who?")

    class Catches(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                await self.sub_agents[0].run_async(ctx)
            except* ValueError:
                await ctx.request_input("What now?")

    def runner() -> Runner:
        branches = ParallelAgent(name="both", sub_agents=[Asks(name="asks"), Says(name="fails", after_s=1, fails=True)])
        agent = Catches(name="catches", sub_agents=[branches])
        return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)

    service = InMemorySessionService()
    async with runner().run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert [question.hint for question in run.pending] == ["What now?"]
    service = InMemorySessionService()
    failing_commit(service, 3, "refused")  # after the message and the question
    with pytest.raises(StorageBusyError):
        async with runner().run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert (run.status, run.pending) == ("failed", [])
