"""Where things are said in a workflow: the branch and the path of every event, in rounds, attempts and levels."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import pytest
import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent, LoopAgent
from minirun.errors import ConfigurationError
from minirun.testing import ScriptedLlm, call
from minirun.workflow import START, JoinNode, NodeContext, Workflow, node

from .test_workflow import AT_ONCE, ends, flow, run_of


async def talks(node_input: Any, ctx: InvocationContext) -> int:
    """Says one thing, and ends."""
    await ctx.emit(Event(message="hi"))
    return 1


async def fails_twice(ctx: NodeContext) -> int:
    """Says one thing, and ends in the third attempt."""
    await ctx.emit(Event(message="hi"))
    tries.append(1)
    if len(tries) < 3:
        raise ValueError("no")
    return 2


tries: list[int] = []


class Twice(BaseAgent):
    """Runs those below it two times."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for _ in range(2):
            for agent in self.sub_agents:
                await agent.run_async(ctx)


async def runs_workflows(ctx: NodeContext) -> Any:
    """Runs a workflow twice."""
    return [await ctx.run_node(flow((START, talks)), 1) for _ in range(2)]


async def runs_nodes(ctx: NodeContext) -> Any:
    """Runs nodes, one of them by another name."""
    return [await ctx.run_node(talks, 1), await ctx.run_node(talks, 2, name="other"), await ctx.run_node(talks, 1)]


async def runs_deep(ctx: NodeContext) -> Any:
    """Runs a node that runs nodes."""
    return await ctx.run_node(runs_nodes, None)


def outer(*edges: Any) -> Workflow:
    """A workflow around others."""
    return Workflow(name="out", edges=edges)


@pytest.mark.parametrize(
    ("root", "places"),
    [
        (
            flow((START, talks, ends)),
            [("wf.talks", "wf@1/talks@1"), ("wf.talks", "wf@1/talks@1"), ("wf.ends", "wf@1/ends@1")],
        ),
        (
            flow((START, (node(talks, name="a"), node(talks, name="b")), talks), output=talks, max_concurrency=1),
            [
                *[("wf.a", "wf@1/a@1")] * 2,
                *[("wf.b", "wf@1/b@1")] * 2,
                *[("wf.talks", "wf@1/talks@1")] * 2,
                *[("wf.talks#2", "wf@1/talks@2")] * 2,
            ],
        ),
        (
            LoopAgent(name="loop", sub_agents=[flow((START, talks))], max_iterations=2),
            [*[("wf.talks", "loop@1/wf@1/talks@1")] * 2, *[("wf#2.talks", "loop@1/wf@2/talks@1")] * 2],
        ),
        (
            Twice(name="twice", sub_agents=[flow((START, talks))]),
            [*[("wf.talks", "twice@1/wf@1/talks@1")] * 2, *[("wf#2.talks", "twice@1/wf@2/talks@1")] * 2],
        ),
        (
            outer((START, LoopAgent(name="loop", sub_agents=[flow((START, talks))], max_iterations=2))),
            [
                *[("out.loop.wf.talks", "out@1/loop@1/wf@1/talks@1")] * 2,
                *[("out.loop.wf#2.talks", "out@1/loop@1/wf@2/talks@1")] * 2,
                ("out.loop", "out@1/loop@1"),
            ],
        ),
        (
            outer((START, node(flow((START, talks, fails_twice)), retry=AT_ONCE), ends)),
            [
                *[("out.wf.wf.talks", "out@1/wf@1/talks@1")] * 2,
                ("out.wf.wf.fails_twice", "out@1/wf@1/fails_twice@1"),
                ("out.wf", "out@1/wf@1"),
                ("out.wf.wf#2.fails_twice", "out@1/wf@1/fails_twice@1"),
                ("out.wf", "out@1/wf@1"),
                *[("out.wf.wf#3.fails_twice", "out@1/wf@1/fails_twice@1")] * 2,
                ("out.wf", "out@1/wf@1"),
                ("out.ends", "out@1/ends@1"),
            ],
        ),
        (
            flow((START, runs_workflows)),
            [
                *[("wf.runs_workflows.wf~1.wf.talks", "wf@1/runs_workflows@1/wf@1/talks@1")] * 2,
                ("wf.runs_workflows.wf~1", "wf@1/runs_workflows@1/wf@1"),
                *[("wf.runs_workflows.wf~2.wf.talks", "wf@1/runs_workflows@1/wf@2/talks@1")] * 2,
                ("wf.runs_workflows.wf~2", "wf@1/runs_workflows@1/wf@2"),
                ("wf.runs_workflows", "wf@1/runs_workflows@1"),
            ],
        ),
        (
            flow((START, runs_deep)),
            [
                *[("wf.runs_deep.runs_nodes~1.talks~1", "wf@1/runs_deep@1/runs_nodes@1/talks@1")] * 2,
                *[("wf.runs_deep.runs_nodes~1.other~1", "wf@1/runs_deep@1/runs_nodes@1/other@1")] * 2,
                *[("wf.runs_deep.runs_nodes~1.talks~2", "wf@1/runs_deep@1/runs_nodes@1/talks@2")] * 2,
                ("wf.runs_deep.runs_nodes~1", "wf@1/runs_deep@1/runs_nodes@1"),
                ("wf.runs_deep", "wf@1/runs_deep@1"),
            ],
        ),
    ],
    ids=["chain", "two triggers", "loop", "twice", "loop as a node", "attempts", "workflows in a node", "levels"],
)
async def test_each_event_has_its_place(root: BaseAgent, places: list[tuple[str, str]]) -> None:
    """The branch and the path of all events, words and ends, in the order of the log."""
    tries.clear()
    events, _ = await run_of(root)
    assert [(event.branch, event.node_info.path) for event in events] == places


async def test_what_fails_in_a_node_is_recorded_with_its_place() -> None:
    """A failure that is caught is one event of the run that has failed; the items of a map are named together."""

    async def fails(node_input: Any) -> None:
        raise ValueError(f"no {node_input}")

    async def catches(ctx: NodeContext) -> str:
        for run in (
            lambda: ctx.run_node(fails, 1),
            lambda: ctx.run_node(fails, 1, name="other"),
            lambda: ctx.map(fails, [7], on_failure="collect"),
            lambda: ctx.map(fails, [8, 9], on_failure="collect"),
        ):
            with pytest.raises((ValueError, ExceptionGroup)):
                await run()
        return "caught"

    events, _ = await run_of(flow((START, catches)))
    assert events[-1].output == "caught"
    found = []
    for event in events[:-1]:
        step, failed = event.actions.replay.step, event.actions.replay.failed
        assert step is not None
        assert failed is not None
        assert (event.author, event.branch, event.error_code) == ("wf", "wf.catches", "ValueError")
        assert (failed.type, failed.args) == ("builtins:ValueError", [event.error_message])
        found.append((event.node_info.path, event.error_message, step.name, step.path.partition("/wf/")[2]))
    assert sorted(found) == [
        ("wf@1/catches@1/fails@1", "no 1", "fails", "catches@1/fails"),
        ("wf@1/catches@1/fails@2", "no 7", "fails", "catches@1/fails[2:2]"),
        ("wf@1/catches@1/fails@3", "no 8", "fails", "catches@1/fails[3:4]"),
        ("wf@1/catches@1/fails@4", "no 9", "fails", "catches@1/fails[3:4]"),
        ("wf@1/catches@1/other@1", "no 1", "other", "catches@1/other"),
    ]


async def test_in_a_tools_call_a_node_speaks_below_the_call() -> None:
    """The branch is inside of the call, which no prompt outside shows."""

    async def tool(tool_context: Any) -> Any:
        """Run a node."""
        return await tool_context.run_node(talks, "x")

    model = ScriptedLlm([call("tool"), "done"])
    events, _ = await run_of(flow((START, LlmAgent(name="llm", model=model, tools=[tool]))))
    [call_id] = [each.id for event in events for each in event.get_function_calls()]
    [said] = [event for event in events if event.text == "hi"]
    assert (said.branch, said.node_info.path) == (f"wf.llm.tool@{call_id}.talks~1", "wf@1/llm@1/talks@1")


async def test_side_by_side_the_place_follows_from_what_is_run() -> None:
    """Where trio chooses which of two is first, each has the same place in every run, by its node and its input."""

    async def both(ctx: NodeContext) -> None:
        async with trio.open_nursery() as nursery:
            for number in (1, 2):
                nursery.start_soon(ctx.run_node, talks, number)

    for _ in range(2):
        events, _ = await run_of(flow((START, both)))
        places = {(event.branch or "", event.node_info.path) for event in events[:-1]}
        found = [re.fullmatch(r"wf\.both\.talks~([0-9a-f]{16})", branch) for branch, _ in places]
        assert len(places) == 2
        assert [path for _, path in places] == [f"wf@1/both@1/talks@{each[1]}" for each in found if each]


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_join_alone_is_refused_with_the_reason(mapped: bool) -> None:
    """`ctx.run_node` and `ctx.map` say what is expected, what was found, and why."""

    async def joins(ctx: NodeContext) -> Any:
        return await (ctx.map(JoinNode(name="j"), [1]) if mapped else ctx.run_node(JoinNode(name="j"), 1))

    with pytest.raises(ConfigurationError, match=r"^expected a node that runs alone, found the join 'j'; it needs"):
        await run_of(flow((START, joins)))


async def test_nodes_that_are_made_anew_do_not_stay() -> None:
    """A loop that makes a function for each run keeps some dozens of them, and not all."""
    made: list[weakref.ref[Any]] = []

    async def loops(ctx: NodeContext) -> int:
        for number in range(70):

            async def once(node_input: int) -> int:
                return node_input

            made.append(weakref.ref(once))
            assert await ctx.run_node(once, number) == number
        del once
        gc.collect()
        return sum(each() is not None for each in made)

    events, _ = await run_of(flow((START, loops)))
    assert events[-1].output == 64
