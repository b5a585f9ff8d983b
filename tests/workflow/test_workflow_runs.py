"""Workflows at work: what comes of them, and that it comes of them whatever was cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from minirun import BaseAgent, Event, FunctionTool, InvocationContext, LlmAgent, LoopAgent, SqliteSessionService
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.workflow import START, NodeContext, Workflow, node

from ..runtime.test_prefixes import Build, bring_to_its_end, cut, open_calls, runner_of, store, whole_log
from ..runtime.test_resume import PLACE, log_of
from ..stores import Clock
from ..workflows import EVERY, WORKFLOWS, noted


def outcomes(log: Sequence[Event]) -> dict[str, Any]:
    """What the runs of nodes have ended with, by their paths."""
    found: dict[str, Any] = {}
    for event in log:
        path = event.actions.replay.ended
        if path is not None:
            assert path not in found, "a run ends once"
            output = event.text if event.node_info.message_as_output else event.output
            found[path] = (output, event.actions.route, dict(event.actions.state_delta), event.error_code)
    return found


def words(log: Sequence[Event]) -> list[str]:
    """What was said, and the steps, in no order."""
    said = (event for event in log if event.author != "user")
    return sorted(f"{event.branch} {event.text} {event.output} {event.error_code}" for event in said)


@pytest.mark.parametrize(("name", "every"), EVERY)
async def test_whatever_is_cut_off_comes_to_the_same(name: str, every: int) -> None:
    """After each event that was stored the process may die: outcomes, words and state are those of nobody disturbed."""
    build = WORKFLOWS[name]
    log = await whole_log(build)
    for count in range(1, len(log), every):
        async with store() as service:
            invocation_id = await cut(service, log[:count])
            assert await bring_to_its_end(build, service, invocation_id) == "completed"
            found = await log_of(runner_of(build(), service))
        assert outcomes(found) == outcomes(log), count
        assert words(found) == words(log), count
        assert open_calls(found) == set()


async def test_an_agent_in_a_node_sees_its_own_run_alone() -> None:
    """Another invocation of the session runs the same node meanwhile: no agent is shown what the other says."""
    shown: list[list[str]] = []

    def answer(request: LlmRequest) -> Any:
        shown.append([content.parts[0].text or "" for content in request.contents])
        said = sum(content.role == "model" for content in request.contents)
        return call("noted", what="a") if said == 0 else "has noted"

    def build() -> BaseAgent:
        tools = [FunctionTool(noted, run_in="loop", on_interrupted="rerun")]
        return Workflow(name="wf", edges=[(START, LlmAgent(name="agent", model=ScriptedLlm(answer), tools=tools))])

    log = await whole_log(build)
    undisturbed = [*shown]
    for count in range(1, len(log)):
        async with store() as service:
            invocation_id = await cut(service, log[:count])
            async with runner_of(build(), service).run_async(**PLACE, new_message="go") as run:
                await run.wait()
            shown.clear()
            assert await bring_to_its_end(build, service, invocation_id) == "completed"
            found = await log_of(runner_of(build(), service))
        assert shown in (undisturbed, undisturbed[1:], [])
        assert [event.output or event.text for event in found if event.actions.replay.ended] == ["has noted"] * 2


async def test_a_clock_that_is_set_back_delays_no_attempt(autojump_clock: trio.testing.MockClock) -> None:
    """The next attempt comes after its delay, however far the clock of the machine goes back meanwhile."""

    async def fails_once(ctx: InvocationContext) -> str:
        if ctx.attempt_count == 1:
            raise ValueError("once")
        return "done"

    steps = [0.0]
    retry = RetryConfig(max_attempts=2, initial_delay=5, jitter=0)
    async with SqliteSessionService(":memory:", durability="process", env=Clock([1e9], steps)) as service:
        workflow = Workflow(name="wf", edges=[(START, node(fails_once, retry=retry))])
        begun = trio.current_time()
        async with runner_of(workflow, service).run_async(**PLACE, new_message="go") as run:
            async for _ in run:
                steps[0] = -3600
    assert (run.status, trio.current_time() - begun) == ("completed", 5)


class CancelsAt(trio.abc.Instrument):
    """Cancels a scope at a step of any task, counted from 1."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left = step
        self._scope = scope

    @property
    def has_cancelled(self) -> bool:
        """Whether there were as many steps."""
        return self._left <= 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


async def is_cancelled_at(build: Build, log: Sequence[Event], step: int) -> bool:
    """Cancel a run at a step, go on with it, and compare; return whether it has had as many steps."""
    async with store() as service:
        with trio.CancelScope() as scope:
            cancels = CancelsAt(step, scope)
            trio.lowlevel.add_instrument(cancels)
            try:
                async with runner_of(build(), service).run_async(**PLACE, new_message="go") as run:
                    await run.wait()
            finally:
                trio.lowlevel.remove_instrument(cancels)
        for one in await service.list_invocations():  # none, if it was cancelled before the message was stored
            runner = runner_of(build(), service)
            if one.status == "cancelled":
                async with runner.run_async(**PLACE, invocation_id=one.invocation_id) as again:
                    await again.wait()
            assert await bring_to_its_end(build, service, one.invocation_id) == "completed"
            found = await log_of(runner)
            assert open_calls(found) == set()
            assert without_hashes(found) == without_hashes(log), step
    return cancels.has_cancelled


def without_hashes(log: Sequence[Event]) -> list[str]:
    """The outcomes, whatever the id of the invocation is, from which some paths follow."""
    hashed = re.compile(r"(@[0-9a-f]{16})?~[0-9a-f]{8}|#call-[0-9a-f]{24}")
    return sorted(f"{hashed.sub('', path)}: {outcome}" for path, outcome in outcomes(log).items())


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["lanes", "agents", "attempts", "maps", "tasks"])
async def test_what_was_cancelled_at_any_step_is_gone_on_with(name: str, every: int) -> None:
    """Wherever a cancellation meets a workflow, who goes on comes to the outcomes of nobody disturbed."""
    build, step = WORKFLOWS[name], 1
    log = await whole_log(build)
    while await is_cancelled_at(build, log, step):
        step += every
    assert step > 20


@pytest.mark.parametrize("escalates", [True, False])
@pytest.mark.parametrize("in_loop", [False, True])
async def test_an_end_of_the_invocation_counts_after_a_crash(escalates: bool, in_loop: bool) -> None:
    """A process that dies behind a node that ended the invocation, or escalated, leaves nothing to be begun."""
    began: list[str] = []

    async def first(ctx: NodeContext) -> int:
        if escalates:
            ctx.actions.escalate = True
        else:
            ctx.end_invocation = True
        return 1

    async def after(node_input: Any) -> None:
        began.append("after")

    wf = Workflow(name="wf", edges=[(START, first, after)])
    root = LoopAgent(name="loop", sub_agents=[wf], max_iterations=3) if in_loop else wf
    log = await whole_log(lambda: root)
    async with store() as service:
        invocation_id = await cut(service, log)
        async with runner_of(root, service).run_async(**PLACE, invocation_id=invocation_id) as run:
            await run.wait()
    assert (run.status, began) == ("completed", [])
