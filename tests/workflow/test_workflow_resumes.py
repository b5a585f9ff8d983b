"""What a workflow that is gone on with takes from the log: ends, escalations, attempts, and what others had run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import (
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    Runner,
)
from minirun.errors import ReplayError
from minirun.runtime import Run
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, RetryConfig
from minirun.workflow import FAILED, START, Edge, FunctionNode, JoinNode, NodeContext, Workflow, node

from ..resuming import says
from ..runtime.test_prefixes import bring_to_its_end, cut, runner_of, status_of, store, whole_log
from .test_workflow import ends, flow, given, output_of

PLACE: Any = {"user_id": "u", "session_id": "s"}


def runner_for(root: BaseAgent, service: BaseSessionService | None = None) -> Runner:
    """A runner of an app with this root."""
    if service is None:
        return InMemoryRunner(app=App("app", root), auto_create_session=True)
    return Runner(app=App("app", root), session_service=service, auto_create_session=True)


async def until_it_stops(runner: Runner, message: Any = "go", **options: Any) -> Run:
    """Run to the end, or to a question."""
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        await run.wait()
    return run


async def asks(ctx: InvocationContext) -> Any:
    """Asks."""
    return await ctx.request_input("What?")


# --- ends -------------------------------------------------------------------------------------------------------------


def stops(ctx: NodeContext) -> None:
    """Ends the invocation."""
    ctx.end_invocation = True


def leaves(ctx: NodeContext) -> None:
    """Leaves the loop, or whatever it is in."""
    ctx.actions.escalate = True


@pytest.mark.parametrize("how", [stops, leaves])
@pytest.mark.parametrize("in_loop", [False, True])
async def test_an_end_counts_after_a_crash_too(how: Callable[[NodeContext], None], in_loop: bool) -> None:
    """A process that dies behind a node that has ended what it is in leaves nothing there to be begun."""
    began: list[str] = []

    async def first(ctx: NodeContext) -> int:
        began.append("first")
        how(ctx)
        return 1

    async def after(node_input: Any) -> None:
        began.append("after")

    wf = flow((START, first, after))
    root = LoopAgent(name="loop", sub_agents=[wf], max_iterations=3) if in_loop else wf
    log = await whole_log(lambda: root)
    assert [event.node_info.path.rpartition("/")[2] for event in log] == ["", "first@1"]
    began.clear()
    async with store() as service:
        invocation_id = await cut(service, log)
        again = await until_it_stops(runner_of(root, service), None, invocation_id=invocation_id)
    assert (again.status, began) == ("completed", [])


async def test_a_task_may_be_ended_from_outside() -> None:
    """An invocation that a tool ends is over; the agent is not asked for its result, and the user for nothing."""

    def stop(tool_context: Any) -> str:
        """Stop."""
        tool_context.end_invocation = True
        return "stopped"

    clerk = LlmAgent(
        name="clerk", mode="task", model=ScriptedLlm([call("stop"), "never"]), tools=[FunctionTool(stop, run_in="loop")]
    )
    run = await until_it_stops(runner_for(flow((START, clerk, ends))))
    assert (run.status, run.pending) == ("completed", [])


# --- another program --------------------------------------------------------------------------------------------------


async def test_runs_that_another_graph_has_made_are_told_as_they_are() -> None:
    """A program whose graph does not know a recorded run tells what is recorded, and nothing of its own nodes."""

    async def one(node_input: Any) -> int:
        return 1

    first = runner_for(flow((START, one, asks)))
    run = await until_it_stops(first)
    other = runner_for(flow((START, given, asks)), first.session_service)
    with pytest.raises(ReplayError, match="the outcome of 'one@1' is recorded, but its graph expects one of: given@1"):
        async with other.run_async(**PLACE, invocation_id=run.invocation_id) as again:
            assert {each.path: each.status.value for each in again.nodes} == {
                "wf@1/one@1": "ended",
                "wf@1/asks@1": "waiting",
            }


# --- attempts ---------------------------------------------------------------------------------------------------------


class Speaks(BaseAgent):
    """Fails in some attempts before it says anything, and says one thing in the others."""

    fails: int = 1

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        tries.append(1)
        if len(tries) <= self.fails:
            raise ValueError("no")
        await ctx.emit(Event(message=f"try {len(tries)}"))


tries: list[int] = []


@pytest.mark.parametrize("fails", [0, 1, 2])
async def test_an_agent_answers_with_the_first_that_it_says(fails: int) -> None:
    """The history of an attempt begins right behind the one that has failed."""
    tries.clear()
    agent = node(Speaks(name="speaks", fails=fails), retry=RetryConfig(max_attempts=3, initial_delay=0, jitter=0))
    assert await output_of(flow((START, agent, given))) == {"given": f"try {fails + 1}"}


@pytest.mark.parametrize(("delay_s", "pauses"), [(59.5, False), (60.0, False), (60.5, True)])
async def test_a_long_delay_pauses(delay_s: float, pauses: bool, autojump_clock: trio.testing.MockClock) -> None:
    """Up to a minute is waited for here; for longer the invocation pauses, and goes on where it was when it is due."""
    tries.clear()
    retry = RetryConfig(max_attempts=2, initial_delay=delay_s, max_delay=99, jitter=0)
    runner = runner_for(flow((START, node(Speaks(name="speaks"), retry=retry), given)))
    run = await until_it_stops(runner)
    if not pauses:
        assert (run.status, len(tries)) == ("completed", 2)
        return
    assert (run.status, len(tries)) == ("paused", 1)
    [note] = [event for event in run.session.events if event.custom_metadata]
    due = (note.timestamp or 0) + delay_s
    assert await runner.resume_due(now=due - 1) == []
    [again] = await runner.resume_due(now=due + 1)
    assert again.status == "completed"
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    assert session.events[-1].output == {"given": "try 2"}


async def test_what_failed_for_good_is_told_at_the_first_attempt() -> None:
    """Errors that the retry does not cover, and the last attempt that there is, go the way of failures at once."""
    tries.clear()
    once = RetryConfig(max_attempts=3, initial_delay=0, exceptions=[KeyError])
    wf = flow((START, node(Speaks(name="speaks", fails=9), retry=once), {FAILED: ends}))
    assert await output_of(wf) == {"type": "ValueError", "message": "no", "input": "go"}
    assert len(tries) == 1


# --- what stands there if nothing is said -----------------------------------------------------------------------------


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a node or an agent, without those that stand for itself."""
    return {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}


def test_a_node_has_no_limits_of_its_own() -> None:
    """Of a plain function it is a node with its name, and everything else as if nothing was said."""
    made = node(ends)
    assert isinstance(made, FunctionNode)
    assert fields_of(made) == {
        "name": "ends",
        "description": "",
        "retry": None,
        "timeout_s": None,
        "require_confirmation": False,
        "parallel_worker": False,
        "max_parallel_workers": None,
        "rerun_on_resume": True,
        "retry_config": None,
        "timeout": None,
        "func": ends,
        "parameter_binding": "state",
        "input_schema": None,
        "output_schema": None,
    }


def test_a_changed_node_keeps_the_rest() -> None:
    """`node` of a node is a copy with the options changed; ADK's names of them are read once."""
    first = node(ends, name="a", description="d", timeout=3, retry_config=RetryConfig(max_attempts=2))
    second = node(first, name="b", timeout_s=4)
    changed = {**fields_of(first), "name": "b", "timeout_s": 4, "retry_config": None, "timeout": None}
    assert fields_of(second) == changed
    assert (first.name, first.timeout_s) == ("a", 3)


def test_a_workflow_has_no_limits_of_its_own() -> None:
    """Without a word it has no limit, no schema, and ends with its first failure."""
    made = Workflow(name="wf", edges=[Edge(START, ends)])
    own = fields_of(made)
    assert {name: own[name] for name in vars(Workflow)["__annotations__"] if name in own and name != "edges"} == {
        "max_concurrency": None,
        "output": None,
        "on_failure": "cancel_others",
        "input_schema": None,
        "output_schema": None,
        "state_schema": None,
        "retry": None,
        "timeout_s": None,
        "retry_config": None,
        "timeout": None,
    }
    join = JoinNode(name="j")
    assert (join.require_all, join.reduce, join.initial) == (False, None, None)


def test_an_agent_has_the_attempts_that_it_says() -> None:
    """A workflow as a node has its own `retry` and `timeout_s`, unless the node is given others."""
    retry = RetryConfig(max_attempts=2)
    inner = Workflow(name="inner", edges=[(START, ends)], retry=retry, timeout_s=5)
    assert (node(inner).retry, node(inner).timeout_s) == (retry, 5)
    assert (node(inner, timeout_s=6).retry, node(inner, timeout_s=6).timeout_s) == (retry, 6)
    assert node(LlmAgent(name="a", model=says("x"))).retry is None


# --- questions of a run that fails ------------------------------------------------------------------------------------


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
