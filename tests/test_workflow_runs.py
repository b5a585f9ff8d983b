"""Workflows at work: what comes of them, and that it comes of them whatever was cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from minirun import BaseAgent, Event, FunctionTool, InvocationContext, LlmAgent, SqliteSessionService
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.workflow import START, Workflow, node

from .stores import Clock
from .test_prefixes import bring_to_its_end, cut, open_calls, runner_of, store, whole_log
from .test_resume import PLACE, log_of
from .workflows import WORKFLOWS, noted


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


@pytest.mark.parametrize("name", WORKFLOWS)
async def test_whatever_is_cut_off_comes_to_the_same(name: str) -> None:
    """After each event that was stored the process may die: outcomes, words and state are those of nobody disturbed."""
    build = WORKFLOWS[name]
    log = await whole_log(build)
    for count in range(1, len(log)):
        async with store() as service:
            invocation_id = await cut(service, log[:count])
            assert await bring_to_its_end(build, service, invocation_id) == "completed"
            found = await log_of(runner_of(build(), service))
        assert outcomes(found) == outcomes(log), count
        assert words(found) == words(log), count
        assert open_calls(found) == set()


async def test_an_agent_in_a_node_sees_its_own_run_alone() -> None:
    """Another invocation of the session runs the same node meanwhile: no agent is shown what the other one says."""
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
