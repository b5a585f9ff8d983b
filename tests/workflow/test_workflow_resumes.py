"""Resumed workflows: timers and questions of nodes whose run fails again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minirun import Event, InvocationContext, Runner
from minirun.errors import ReplayError
from minirun.runtime import Run
from minirun.tools import RetryConfig
from minirun.workflow import FAILED, START, Edge, JoinNode, Workflow, node

from ..runtime.test_prefixes import bring_to_its_end, runner_of, status_of, store
from .test_workflow import flow

PLACE: Any = {"user_id": "u", "session_id": "s"}


async def until_it_stops(runner: Runner, message: Any = "go", **options: Any) -> Run:
    """Run to the end, or to a question."""
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        await run.wait()
    return run


async def asks(ctx: InvocationContext) -> Any:
    """Asks."""
    return await ctx.request_input("What?")


@pytest.mark.parametrize("how", ["plain", "retry", "handler", "inner"])
async def test_a_node_that_fails_before_its_recorded_timer_keeps_the_timer(how: str) -> None:
    """A failure before the recorded events of a node are replayed stores nothing: the timer stays open, and is due."""
    runs: list[str] = []

    async def waits(ctx: InvocationContext) -> str:
        runs.append("begun")
        if len(runs) == 2:
            raise ValueError("flaky")
        await ctx.sleep_until(4e9)
        return "waited"

    async def handles(node_input: Any) -> str:
        return "handled"

    waiting = node(waits, retry=RetryConfig(max_attempts=2, initial_delay=0) if how == "retry" else None)
    edges: list[Any] = [Edge(waiting, node(handles), FAILED)] if how == "handler" else []
    root = flow((START, waiting), *edges)
    if how == "inner":
        root = Workflow(name="outer", edges=[(START, root)])
    async with store() as service:
        runner = runner_of(root, service)
        run = await until_it_stops(runner)
        [timer] = await service.list_pending(include_timers=True)
        assert await runner.resume_due(5e9) == []
        assert await service.list_pending(include_timers=True) == [timer]
        assert await status_of(service, run.invocation_id) == "paused"
        [resumed] = await runner.resume_due(5e9)
        assert str(resumed.status) == "completed"
        events = await service.read_events(app_name="app", **PLACE, after_seq=0)
        assert [event.error_code for event in events if event.error_code] == []


async def interrupted(runner: Runner) -> str:
    """Leave a run as a worker that is stopped does, when all of its tasks wait; return the invocation's id."""
    with trio.move_on_after(1):
        async with runner.run_async(**PLACE, new_message="go").supervised(None) as run:
            await run.wait()
    assert str(run.status) == "interrupted"
    return run.invocation_id


async def resumed_error(runner: Runner, invocation_id: str) -> Exception:
    """Resume the invocation, and return what the run fails with."""
    with pytest.raises((ReplayError, ValueError)) as caught:
        async with runner.run_async(**PLACE, invocation_id=invocation_id) as run:
            await run.wait()
    return caught.value


async def test_a_replay_error_keeps_the_questions_of_other_nodes(autojump_clock: trio.testing.MockClock) -> None:
    """A node whose logic was changed ends the run with ReplayError; the question of a concurrent node stays open."""
    given_to_child, hangs = "x", True

    async def child(node_input: str) -> str:
        return node_input

    async def parent(ctx: InvocationContext) -> str:
        if not hangs:
            await trio.sleep(1)  # the question is replayed before
        await ctx.run_node(node(child), given_to_child)
        if hangs:
            await trio.sleep_forever()
        return "parent"

    async with store() as service:
        runner = runner_of(flow((START, (asks, parent), JoinNode(name="both"))), service)
        invocation_id = await interrupted(runner)
        before = await service.list_pending()
        given_to_child, hangs = "y", False
        assert isinstance(await resumed_error(runner, invocation_id), ReplayError)
        assert await service.list_pending() == before != []
        assert await status_of(service, invocation_id) == "paused"
        given_to_child = "x"
        assert await bring_to_its_end(lambda: runner.app.root_agent, service, invocation_id) == "completed"


async def test_a_failure_that_withdraws_a_question_fails_the_invocation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A resumed run that has withdrawn a question is failed, even while another branch replays: it asks again later."""
    hangs, fails = True, False

    async def other() -> str:
        await trio.sleep(0 if hangs else 1)  # the question is replayed before
        if hangs:
            await trio.sleep_forever()
        if fails:
            raise ValueError("flaky")
        return "other"

    async def slow(ctx: InvocationContext) -> str:
        await trio.sleep(2 if fails else 0.1)  # it has its event after the question
        await ctx.emit(Event(message="slow"))
        if hangs:
            await trio.sleep_forever()
        return "slow"

    inner = Workflow(name="inner", edges=[(START, (asks, other), JoinNode(name="both"))])
    async with store() as service:
        runner = runner_of(flow((START, (inner, slow), JoinNode(name="all"))), service)
        invocation_id = await interrupted(runner)
        hangs, fails = False, True
        assert isinstance(await resumed_error(runner, invocation_id), ValueError)
        assert await status_of(service, invocation_id) == "failed"
        assert await service.list_pending() == []
        fails = False
        async with runner.run_async(**PLACE, invocation_id=invocation_id) as run:
            await run.wait()
        assert [question.hint for question in run.pending] == ["What?"]
        assert await bring_to_its_end(lambda: runner.app.root_agent, service, invocation_id) == "completed"
