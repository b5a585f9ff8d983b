"""Workflows that are cut off, killed and gone on with, by whoever tests that: they come to the same in any case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from minirun import BaseAgent, Event, FunctionTool, InvocationContext, LlmAgent, LoopAgent, SequentialAgent
from minirun.testing import call
from minirun.tools import RetryConfig
from minirun.workflow import DEFAULT_ROUTE, FAILED, START, JoinNode, RequestInput, Workflow, node

from .resuming import says, steps

__all__ = ["EVERY", "WORKFLOWS"]

AT_ONCE = RetryConfig(max_attempts=3, initial_delay=0, jitter=0)
LATER = RetryConfig(max_attempts=3, initial_delay=1000, max_delay=1000, jitter=0)


async def first(node_input: str) -> str:
    """What it was given, and where it was."""
    return f"{node_input} first"


async def left(node_input: str, ctx: InvocationContext) -> str:
    """Writes, and says something before it ends."""
    ctx.state["left"] = 1
    await ctx.emit(Event(message="left speaks"))
    return f"{node_input} left"


async def same(number: int) -> int:
    """A step."""
    return number


async def right(node_input: str, ctx: InvocationContext) -> str:
    """Takes two steps."""
    return f"{node_input} right {await ctx.step('same', same, 1) + await ctx.step('same', same, 2)}"


async def last(node_input: Any) -> Any:
    """Hands on what it was given."""
    return {"last": node_input}


def lanes() -> Workflow:
    """A fan-out that is joined."""
    return Workflow(name="wf", edges=[(START, first, (left, right), JoinNode(name="both"), last)])


async def count(ctx: InvocationContext) -> Event:
    """Counts to three."""
    number = ctx.state.get("count", 0) + 1
    return Event(output=number, state={"count": number}, route="again" if number < 3 else "enough")


def rounds() -> Workflow:
    """A cycle of three rounds."""
    return Workflow(name="wf", edges=[(START, count, {"again": count, "enough": last})])


def routes() -> Workflow:
    """A route that is chosen, one that is not, and a join that leaves out what is not."""

    async def choose(node_input: str) -> Event:
        return Event(route=["left", "up"])

    return Workflow(
        name="wf",
        edges=[
            (START, choose, {"left": left, "right": right, DEFAULT_ROUTE: first}),
            ((left, right, first), JoinNode(name="some"), last),
        ],
    )


def nested() -> Workflow:
    """A workflow in a workflow, beside a lane of its own."""
    inner = Workflow(name="inner", edges=[(START, first, (left, right), JoinNode(name="both"))])
    return Workflow(name="wf", edges=[(START, (inner, count_once), JoinNode(name="all"), last)])


async def count_once(ctx: InvocationContext) -> int:
    """Counts."""
    ctx.state.add("counted", 1)
    return 1


def agents() -> Workflow:
    """Agents beside each other, one with a tool, one with a tool that is an agent."""
    note = FunctionTool(noted, run_in="loop", on_interrupted="rerun")
    with_tool = LlmAgent(name="with_tool", model=steps(call("noted", what="a"), "has noted"), tools=[note])
    plain = LlmAgent(name="plain", model=says("plainly"), output_key="plain")
    end = LlmAgent(name="end", model=says("the end"))
    return Workflow(name="wf", edges=[(START, (with_tool, plain), JoinNode(name="both"), end)])


def noted(what: str) -> str:
    """Note something."""
    return f"noted {what}"


def sequences() -> Workflow:
    """Agents that have others below them, as nodes."""
    sequence = SequentialAgent(
        name="sequence", sub_agents=[LlmAgent(name="one", model=says("one")), LlmAgent(name="two", model=says("two"))]
    )
    return Workflow(name="wf", edges=[(START, first, sequence, last)])


async def ask(node_input: Any, ctx: InvocationContext) -> str:
    """Asks somebody, after it has said something."""
    await ctx.emit(Event(message="I ask"))
    return f"heard {await ctx.request_input('What?')}"


async def ask_ported(node_input: Any) -> Any:
    """Asks as ported programs do."""
    yield Event(message="I ask, too")
    yield RequestInput(message="And what?")


def questions() -> Workflow:
    """Two lanes ask, a third does not."""
    return Workflow(name="wf", edges=[(START, (ask, ask_ported, first), JoinNode(name="all"), last)])


async def wait(ctx: InvocationContext) -> str:
    """Waits for a time."""
    await ctx.sleep_until(4e9)
    return "waited"


def times() -> Workflow:
    """A timer beside a lane, and a node whose next attempt is a long time away."""
    return Workflow(
        name="wf", edges=[(START, (wait, node(fails_twice, retry=LATER)), JoinNode(name="all"), last)]
    )


async def fails_twice(node_input: Any, ctx: InvocationContext) -> str:
    """Fails, after a step and some words, until its third attempt."""
    attempt = ctx.attempt_count
    ctx.state["attempt"] = attempt
    await ctx.step("same", same, 1)
    await ctx.emit(Event(message=f"attempt {attempt}"))
    if attempt < 3:
        raise ValueError(f"attempt {attempt}")
    return f"attempt {attempt}"


def attempts() -> Workflow:
    """Attempts of functions and of agents, and what follows when there are no more."""

    async def never(node_input: Any) -> None:
        raise ValueError("never")

    hopeless, often = node(never, retry=AT_ONCE), node(fails_twice, retry=AT_ONCE)
    return Workflow(
        name="wf",
        output=last,
        edges=[
            (START, (often, hopeless)),
            (hopeless, {FAILED: first_told}),
            ((often, first_told), JoinNode(name="all"), last),
        ],
    )


def goes_on() -> Workflow:
    """A workflow that is a node and fails once, below another one that is; and one that a function runs, as often."""

    def flaky(name: str) -> Workflow:
        async def fails(node_input: Any, ctx: InvocationContext) -> str:
            """Fails in the first attempt of the workflow, and says something in each."""
            number = ctx.state.get(name, 0) + 1
            await ctx.emit(Event(message=f"{name} {number}", state={name: number}))
            if number < 2:
                raise ValueError(number)
            return f"{name} is done"

        return Workflow(name=name, edges=[(START, right, fails)], retry=AT_ONCE)

    async def parent(node_input: Any, ctx: InvocationContext) -> Any:
        return await ctx.run_node(flaky("ran"), "x")

    inner = Workflow(name="outer", edges=[(START, first, flaky("inner"))])
    return Workflow(name="wf", edges=[(START, (inner, node(parent, retry=AT_ONCE)), JoinNode(name="all"), last)])


async def first_told(node_input: Mapping[str, Any]) -> str:
    """What has failed."""
    return f"{node_input['type']} {node_input['message']}"


def maps() -> Workflow:
    """Maps and runs of nodes, of functions, an agent and a workflow."""

    async def double(node_input: int, ctx: InvocationContext) -> int:
        ctx.state.add("sum", node_input)
        return 2 * node_input

    inner = Workflow(name="inner", edges=[(START, right)])

    async def parent(ctx: InvocationContext) -> Mapping[str, Any]:
        doubled = await ctx.map(double, [1, 2, 3])
        agent = await ctx.run_node(LlmAgent(name="helper", model=says("helped")), "help")
        more = [await ctx.run_node(inner, "x"), await ctx.run_node(inner, "x")]
        return {"doubled": doubled, "agent": agent, "more": more}

    return Workflow(name="wf", edges=[(START, parent, last)])


def items() -> Workflow:
    """A node that is run for each item, of which one asks."""

    async def three(node_input: Any) -> list[int]:
        return [1, 2, 3]

    async def work(node_input: int, ctx: InvocationContext) -> str:
        return f"heard {await ctx.request_input('Which?')}" if node_input == 2 else f"did {node_input}"

    return Workflow(name="wf", edges=[(START, three, node(work, parallel_worker=True), last)])


def looped() -> BaseAgent:
    """A workflow that is run twice, after an agent, before one."""
    return SequentialAgent(
        name="all",
        sub_agents=[
            LlmAgent(name="before", model=says("before")),
            LoopAgent(name="twice", sub_agents=[lanes()], max_iterations=2),
            LlmAgent(name="after", model=says("after")),
        ],
    )


def tasks() -> Workflow:
    """A conversation with the user, beside a lane of its own, and another one after it."""

    def clerk(name: str) -> LlmAgent:
        wrong, right = call("finish_task", what="x"), call("finish_task", result=f"{name} is done")
        model = steps("What?", call("noted", what="a"), wrong, "And what?", right)
        note = FunctionTool(noted, run_in="loop", on_interrupted="rerun")
        return LlmAgent(name=name, model=model, tools=[note], mode="task", output_key=name)

    return Workflow(
        name="wf", edges=[(START, (clerk("one"), right), JoinNode(name="both"), clerk("two"), last)]
    )


WORKFLOWS: Mapping[str, Callable[[], BaseAgent]] = {
    build.__name__: build
    for build in (
        *(lanes, rounds, routes, nested, agents, sequences, questions, times, attempts, maps, items, looped),
        *(tasks, goes_on),
    )
}

# For tests that do something to each workflow at every event: at every second one in a common run, and at every seventh
# of the largest, which has ten times the events of a small one.
LARGEST = "tasks"
EVERY = [
    *(pytest.param(name, 7 if name == LARGEST else 2, id=name) for name in WORKFLOWS),
    *(pytest.param(name, 1, id=f"{name}, all", marks=pytest.mark.slow) for name in WORKFLOWS),
]
