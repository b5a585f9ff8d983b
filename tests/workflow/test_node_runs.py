"""How far the runs of nodes have come, as a log tells it: while they run, after a crash, and at the end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InvocationContext,
    ParallelAgent,
    RunConfig,
    SequentialAgent,
    StreamingMode,
)
from minirun.errors import InvocationNotFoundError
from minirun.runtime import Run
from minirun.sessions import InvocationStatus, NodeRunInfo
from minirun.sessions._node_runs import node_runs
from minirun.tools import RetryConfig
from minirun.workflow import FAILED, START, JoinNode, Workflow, node

from ..runtime.test_prefixes import cut, runner_of, store, whole_log
from ..workflows import WORKFLOWS

PLACE: Any = {"user_id": "u", "session_id": "s"}
RETRY = RetryConfig(max_attempts=3, initial_delay=5, jitter=0)


def shown(found: list[NodeRunInfo]) -> dict[str, str]:
    """By path: how far each has come."""
    return {run.path: run.status.value for run in found}


def runner_for(root: BaseAgent) -> InMemoryRunner:
    """A runner of an app with this root."""
    return InMemoryRunner(app=App("app", root), auto_create_session=True)


async def run_to_the_end(root: BaseAgent) -> Run:
    """Run it; what it fails with is not raised."""
    async with runner_for(root).run_async(**PLACE, new_message="go") as run:
        try:
            await run.wait()
        except ValueError:
            pass
    return run


async def ok(node_input: Any) -> int:
    """Ends."""
    return 1


async def bad(node_input: Any) -> None:
    """Fails."""
    raise ValueError("no")


async def slow(ctx: InvocationContext) -> int:
    """Speaks, and takes three seconds."""
    await ctx.emit(Event(message="slow"))
    await trio.sleep(3)
    return 1


async def asks(ctx: InvocationContext) -> Any:
    """Asks."""
    return await ctx.request_input("What?")


async def test_a_run_tells_what_has_ended_runs_and_waits(autojump_clock: trio.testing.MockClock) -> None:
    """While the caller holds an event, the runs before it have ended, and those that have spoken are running."""
    wf = Workflow(name="wf", edges=[(START, ok, (slow, asks), JoinNode(name="both"))])
    seen = []
    async with runner_for(wf).run_async(**PLACE, new_message="go") as run:
        assert shown(run.nodes) == {"wf@1/ok@1": "ready"}
        async for _ in run:
            seen.append(shown(run.nodes))
    assert seen[0] == {"wf@1/ok@1": "ended", "wf@1/slow@1": "ready", "wf@1/asks@1": "ready"}
    assert {"wf@1/ok@1": "ended", "wf@1/slow@1": "running", "wf@1/asks@1": "waiting"} in seen
    assert shown(run.nodes) == {"wf@1/ok@1": "ended", "wf@1/slow@1": "ended", "wf@1/asks@1": "waiting"}
    assert run.status == "paused"


async def test_a_run_tells_what_may_begin_and_what_never_comes() -> None:
    """Where a route leads elsewhere a node is skipped, once its workflow is over; before, what may run is ready."""

    async def choose(node_input: Any) -> Event:
        return Event(output=1, route="left")

    inner = Workflow(name="inner", edges=[(START, choose, {"left": ok, "right": bad})])
    wf = Workflow(name="wf", edges=[(START, inner, choose, {"left": asks, "right": slow})])
    async with runner_for(wf).run_async(**PLACE, new_message="go") as run:
        seen = [shown(run.nodes)] + [shown(run.nodes) async for _ in run]
    assert seen[:3] == [
        {"wf@1/inner@1": "ready"},
        {"wf@1/inner@1": "running", "wf@1/inner@1/choose@1": "ended", "wf@1/inner@1/ok@1": "ready"},
        {
            "wf@1/inner@1": "running",
            "wf@1/inner@1/choose@1": "ended",
            "wf@1/inner@1/ok@1": "ended",
            "wf@1/inner@1/bad@1": "skipped",
        },
    ]
    assert shown(run.nodes)["wf@1/asks@1"] == "waiting"
    assert "wf@1/slow@1" not in shown(run.nodes)
    async with runner_for(wf).run_async(**PLACE, new_message="go") as run:
        pass
    assert run.status == "cancelled"
    assert set(shown(run.nodes).values()) == {"skipped"}
    assert {each.attempts for each in run.nodes} == {0}


async def test_who_asks_for_partial_events_is_shown_each_attempt_that_begins(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With streaming, a partial event tells which run of a node begins; it is no answer, and is not stored."""
    wf = Workflow(name="wf", edges=[(START, ok, node(bad, retry=RETRY), {FAILED: asks})])
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    async with runner_for(wf).run_async(**PLACE, new_message="go", run_config=config) as run:
        events = [event async for event in run]
    begun = [event for event in events if event.partial]
    assert [(event.node_info.path, (event.custom_metadata or {})["node_run"]) for event in begun] == [
        ("wf@1/ok@1", {"status": "running", "attempt": 1}),
        *(("wf@1/bad@1", {"status": "running", "attempt": attempt}) for attempt in (1, 2, 3)),
        ("wf@1/asks@1", {"status": "running", "attempt": 1}),
    ]
    assert not any(event.is_final_response() for event in begun)
    assert not any(event.partial for event in run.session.events)
    async with runner_for(wf).run_async(**PLACE, new_message="go") as run:
        assert not any([event.partial async for event in run])


async def test_seconds_are_those_that_the_log_has(autojump_clock: trio.testing.MockClock) -> None:
    """Of a run that speaks first it is known how long it took; of one that only ends it is not."""
    async with runner_for(Workflow(name="wf", edges=[(START, ok, slow)])).run_async(**PLACE, new_message="go") as run:
        await run.wait()
    first, second = run.nodes
    assert first.seconds is None
    assert second.seconds is not None
    assert (second.name, second.run_id, second.attempts) == ("slow", "1", 1)


async def test_attempts_are_counted_from_the_log(autojump_clock: trio.testing.MockClock) -> None:
    """Each attempt that has failed counts; between two of them the run is ready, and at the end it has failed."""
    often = node(bad, retry=RETRY)
    handled = Workflow(name="wf", edges=[(START, often, {FAILED: ok})])
    seen = []
    async with runner_for(handled).run_async(**PLACE, new_message="go") as run:
        async for _ in run:
            first = run.nodes[0]
            seen.append((first.status.value, first.attempts))
    assert seen == [("ready", 1), ("ready", 2), ("failed", 3), ("failed", 3)]
    assert shown(run.nodes) == {"wf@1/bad@1": "failed", "wf@1/ok@1": "ended"}


async def test_a_failure_is_told_of_its_node_and_what_was_beside_it_is_left(autojump_clock: MockClock) -> None:
    """The error event names the run that has failed; so do those that it was in; one beside it was cancelled."""

    async def late(node_input: Any) -> None:
        await trio.sleep(1)
        raise ValueError("late")

    inner = Workflow(name="inner", edges=[(START, ok, late)])
    run = await run_to_the_end(Workflow(name="wf", edges=[(START, (inner, asks), JoinNode(name="both"))]))
    assert run.status == "failed"
    assert run.session.events[-1].node_info.path == "wf@1/inner@1/late@1"
    assert shown(run.nodes) == {
        "wf@1/asks@1": "skipped",
        "wf@1/inner@1": "failed",
        "wf@1/inner@1/ok@1": "ended",
        "wf@1/inner@1/late@1": "failed",
        "wf@1/both@1": "skipped",
    }


async def test_agents_around_a_workflow_are_no_runs_of_nodes() -> None:
    """Of what is said outside of nodes, in a parallel agent for example, nothing is told."""

    class Speaks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="hi"))

    wf = Workflow(name="wf", edges=[(START, ok, slow_free)])
    beside = ParallelAgent(name="beside", sub_agents=[wf, Speaks(name="speaks")])
    run = await run_to_the_end(SequentialAgent(name="all", sub_agents=[beside]))
    assert shown(run.nodes) == {
        "all@1/beside@1/wf@1/ok@1": "ended",
        "all@1/beside@1/wf@1/slow_free@1": "ended",
    }


async def test_workflows_on_all_levels_tell_what_never_came() -> None:
    """Inside of agents, and of agents that are nodes, the nodes that no route has led to are skipped at the end."""

    async def choose(node_input: Any) -> Event:
        return Event(output=1, route="left")

    def wf(name: str) -> Workflow:
        return Workflow(name=name, edges=[(START, choose, {"left": ok, "right": bad})])

    for root, expected in (
        (wf("wf"), {"wf@1/choose@1": "ended", "wf@1/ok@1": "ended", "wf@1/bad@1": "skipped"}),
        (
            SequentialAgent(name="all", sub_agents=[wf("one"), wf("two")]),
            {
                f"all@1/{name}@1/{run_id}": status
                for name in ("one", "two")
                for run_id, status in (("choose@1", "ended"), ("ok@1", "ended"), ("bad@1", "skipped"))
            },
        ),
        (
            Workflow(name="out", edges=[(START, SequentialAgent(name="all", sub_agents=[wf("one")]), ok)]),
            {
                "out@1/all@1": "ended",
                "out@1/all@1/one@1/choose@1": "ended",
                "out@1/all@1/one@1/ok@1": "ended",
                "out@1/all@1/one@1/bad@1": "skipped",
                "out@1/ok@1": "ended",
            },
        ),
    ):
        run = await run_to_the_end(root)
        assert shown(run.nodes) == expected
        assert {each.path: each.attempts for each in run.nodes} == {
            path: int(status != "skipped") for path, status in expected.items()
        }


async def slow_free(node_input: Any, ctx: InvocationContext) -> int:
    """Speaks, and ends."""
    await ctx.emit(Event(message="free"))
    return 2


@pytest.mark.parametrize("name", WORKFLOWS)
async def test_every_outcome_is_told_and_nothing_else_has_ended(name: str) -> None:
    """At every event of every workflow: who has ended is who has an outcome there, whatever else goes on."""
    log = await whole_log(WORKFLOWS[name])
    invocation_id = log[0].invocation_id or ""
    ended = []
    for count, event in enumerate(log, 1):
        if event.actions.replay.ended is not None:
            ended.append(event.node_info.path)
        found = node_runs(log[:count], invocation_id, InvocationStatus.RUNNING)
        assert sorted(run.path for run in found if run.status in ("ended", "failed")) == sorted(ended)
    assert {run.status for run in node_runs(log, invocation_id, InvocationStatus.COMPLETED)} <= {"ended", "failed"}


async def test_what_a_dead_process_leaves_is_ready_and_a_service_tells_so() -> None:
    """The service tells of an invocation by its id, wherever it is, as the run does that goes on with it."""
    build = WORKFLOWS["lanes"]
    log = await whole_log(build)
    async with store() as service:
        invocation_id = await cut(service, log[:3])
        found = await service.list_node_runs(invocation_id)
        begun = log[2].node_info.path  # trio has chosen which of the two lanes that is
        assert shown(found) == {"wf@1/first@1": "ended", begun: "ready"}
        runner = runner_of(build(), service)
        async with runner.run_async(**PLACE, invocation_id=invocation_id) as run:
            assert shown(run.nodes)[begun] == "running"
            await run.wait()
        assert shown(await service.list_node_runs(invocation_id)) == shown(run.nodes)
        assert set(shown(run.nodes).values()) == {"ended"}
        async with runner.run_async(**PLACE, invocation_id=invocation_id) as again:
            await again.wait()
        assert again.nodes == run.nodes
        with pytest.raises(InvocationNotFoundError, match="none called 'e-none'"):
            await service.list_node_runs("e-none")


async def test_a_place_that_asks_beside_others_is_found_by_its_ids() -> None:
    """The runs that a question is asked in wait, all of them, and none beside them."""
    log = await whole_log(WORKFLOWS["items"])
    asked = next(number for number, event in enumerate(log) if event.long_running_tool_ids)
    found = shown(node_runs(log[: asked + 1], log[0].invocation_id or "", InvocationStatus.PAUSED))
    assert [path for path, status in found.items() if status == "waiting"] == [
        "wf@1/work@1",
        "wf@1/work@1/work@2",
    ]
