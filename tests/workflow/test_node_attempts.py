"""Attempts of nodes in detail: what ends them, what another one comes to, and what fails for good."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import App, BaseAgent, Env, Event, InMemoryRunner, InvocationContext, LlmAgent
from minirun.errors import FatalError
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm
from minirun.tools import RetryConfig
from minirun.types import Content, Part
from minirun.workflow import FAILED, START, JoinNode, NodeContext, node
from minirun.workflow._wrap import as_node

from ..helpers import PLACE, runner_for, stored_events
from .test_workflow import AT_ONCE, flow, output_of, run_of

LATER = RetryConfig(max_attempts=3, initial_delay=1000, max_delay=1000, jitter=0)


class BrokenError(FatalError):
    """What no attempt mends."""


async def told(node_input: Any) -> Any:
    """What has failed."""
    return node_input["type"]


@pytest.mark.parametrize("has_edge", [False, True])
async def test_what_is_fatal_is_neither_tried_again_nor_led_on(has_edge: bool) -> None:
    """A FatalError ends the run in the first attempt, whatever edges and attempts there are."""
    attempts: list[int] = []

    async def breaks(ctx: NodeContext) -> None:
        attempts.append(ctx.attempt_count)
        raise BrokenError("broken")

    broken = node(breaks, retry=AT_ONCE)
    with pytest.raises(BrokenError):
        await run_of(flow((START, broken, {FAILED: told}) if has_edge else (START, broken)))
    assert attempts == [1]


async def test_who_has_ended_the_invocation_is_not_tried_again() -> None:
    """A node that says that all is over, and fails then, has no other attempt."""
    attempts: list[int] = []

    async def ends(ctx: NodeContext) -> None:
        attempts.append(ctx.attempt_count)
        ctx.end_invocation = True
        raise ValueError("over")

    with pytest.raises(ValueError, match="over"):
        await run_of(flow((START, node(ends, retry=AT_ONCE))))
    assert attempts == [1]


async def test_a_step_that_has_failed_is_taken_again_by_an_attempt_of_another_process() -> None:
    """The note of the failed attempt says which steps have failed, so the next one does not come to their failure."""
    taken: list[int] = []

    async def take() -> int:
        taken.append(1)
        if len(taken) == 1:
            raise ValueError("once")
        return 7

    async def uses(ctx: NodeContext) -> Any:
        return await ctx.step("take", take)

    root = flow((START, node(uses, retry=LATER)))
    runner = runner_for(root)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert (run.status, len(taken)) == ("paused", 1)
    [ended] = await runner.resume_due(now=9e9)
    assert (ended.status, len(taken)) == (InvocationStatus.COMPLETED, 2)
    assert [event.output for event in await stored_events(runner) if event.output is not None] == [7, 7]


@attrs.frozen(eq=False)
class Stepping(Env):
    """Notes the places where a run may be interrupted."""

    labels: list[str] = attrs.field(factory=list)

    async def point(self, label: str) -> None:
        """Note it."""
        self.labels.append(label)


async def test_a_run_of_a_node_may_be_interrupted_at_its_start_and_at_its_end() -> None:
    """Both places are named by the path of the run."""
    env = Stepping()

    async def ok(node_input: Any) -> int:
        return 1

    runner = InMemoryRunner(app=App("app", flow((START, ok))), auto_create_session=True, env=env)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert [each for each in env.labels if "node" in each] == ["node run/wf/ok@1", "end of node run/wf/ok@1"]


async def test_who_swallows_its_cancellation_ends_with_nothing() -> None:
    """A node that goes on although the one beside it has failed leaves no output in the log."""

    async def swallows(node_input: Any) -> int:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            pass
        return 1

    async def fails(node_input: Any) -> None:
        await trio.testing.wait_all_tasks_blocked()
        raise ValueError("no")

    runner = runner_for(flow((START, (swallows, fails), JoinNode(name="both"))))
    async with runner.run_async(**PLACE, new_message="go") as run:
        with pytest.raises(ValueError, match="no"):
            await run.wait()
    assert [event for event in await stored_events(runner) if event.output is not None] == []


@attrs.frozen(eq=False)
class Steps(Env):
    """The real world, whose clock is where somebody sets it."""

    at: list[float] = attrs.field(factory=lambda: [1e9])

    def now(self) -> float:
        """The time that was set."""
        return self.at[0]


@pytest.mark.parametrize(("later", "waits"), [(0, 50), (20, 30), (50, 0), (90, 0)])
async def test_an_attempt_waits_for_what_is_left_of_its_delay(
    later: float, waits: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A process that goes on with another's counts the time that has gone by since the failure; it never waits less."""
    env = Steps()
    begun: list[float] = []

    async def fails_once(ctx: NodeContext) -> str:
        if ctx.attempt_count == 1:
            raise ValueError("once")
        begun.append(trio.current_time())
        return "done"

    retry = RetryConfig(max_attempts=2, initial_delay=50, jitter=0)
    root = flow((START, node(fails_once, retry=retry)))
    runner = InMemoryRunner(app=App("app", root), auto_create_session=True, env=env)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            assert event.custom_metadata is not None
            break  # the note of the failure
    env.at[0] += later
    from_here = trio.current_time()
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as run:
        await run.wait()
    assert [when - from_here for when in begun] == [waits]


async def says_more(callback_context: Any) -> Content:
    """What a callback says after an agent."""
    return Content(role="model", parts=[Part(text="and this")])


async def test_a_callback_after_an_agent_says_the_output_of_the_node() -> None:
    """The answer of the model is not the end of the run where a callback of the agent follows it."""
    agent = LlmAgent(name="speaker", model=ScriptedLlm(["said"]), after_agent_callback=says_more)
    assert await output_of(flow((START, agent))) == "and this"


async def test_an_agent_that_somebody_has_to_allow_is_asked_for_first() -> None:
    """Its answer ends the node as without the question, once."""
    agent = LlmAgent(name="speaker", model=ScriptedLlm(["said"]))
    runner = runner_for(flow((START, node(agent, require_confirmation=True))))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    [question] = run.pending
    async with runner.run_async(**PLACE, new_message=question.reply(True)) as run:
        answer = await run.wait()
    assert answer is not None
    assert (run.status, answer.output) == ("completed", "said")


async def test_an_agent_for_many_items_gives_all_its_answers() -> None:
    """With `parallel_worker` no answer alone is the end of the run."""

    async def gives(node_input: Any) -> list[str]:
        return ["a", "b", "c"]

    agent = LlmAgent(name="speaker", model=ScriptedLlm(lambda request: "said"))
    assert await output_of(flow((START, gives, node(agent, parallel_worker=True)))) == ["said"] * 3


class Plain(BaseAgent):
    """Says nothing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        return None


def test_attempts_are_told_apart_by_the_mark_of_their_kind() -> None:
    """In paths the number of an attempt stands behind a star, and behind a plus where a workflow goes on."""

    async def ok(node_input: Any) -> int:
        return 1

    assert as_node(Plain(name="plain")).attempt_marker == "*"
    assert as_node(LlmAgent(name="a", model=ScriptedLlm([]))).attempt_marker == "*"
    assert as_node(flow((START, ok))).attempt_marker == "+"
    assert as_node(ok).attempt_marker == "*"


async def test_an_agent_without_words_gives_nothing() -> None:
    """The output of a node whose agent has said nothing is None."""

    async def ends(node_input: Any) -> Any:
        return {"given": node_input}

    assert await output_of(flow((START, Plain(name="plain"), ends))) == {"given": None}


async def test_words_beside_a_route_are_no_output() -> None:
    """What a function says with a route is said; what it was given is what the next node gets."""

    async def leads(node_input: Any) -> Event:
        return Event(message="words", route="on")

    async def ends(node_input: Any) -> Any:
        return {"given": node_input.text}

    events, run = await run_of(flow((START, leads, {"on": ends})))
    assert [event.text for event in events if event.text] == ["words"]
    assert run.answer is not None
    assert run.answer.output == {"given": "go"}


@attrs.frozen(eq=False)
class Breaks(Env):
    """Fails where the run of a node is about to end."""

    async def point(self, label: str) -> None:
        """Fail there."""
        if label.startswith("end of node "):
            raise OSError("no room")


async def test_an_end_of_a_failure_that_cannot_be_stored_says_where_it_was() -> None:
    """What fails in the place of a failure that leads on has the path of the run in a note."""

    async def fails(node_input: Any) -> None:
        raise ValueError("no")

    app = App("app", flow((START, fails, {FAILED: told})))
    runner = InMemoryRunner(app=app, auto_create_session=True, env=Breaks())
    async with runner.run_async(**PLACE, new_message="go") as run:
        with pytest.raises(OSError, match="no room") as caught:
            await run.wait()
    assert caught.value.__notes__ == ["in the node wf@1/fails@1"]
