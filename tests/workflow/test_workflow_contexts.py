"""What is set on contexts: the output and the route of a node; and nothing that contexts do not have."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import BaseAgent, Event, InvocationContext, LlmAgent, ToolContext
from minirun.errors import InvalidValueError, WorkflowError
from minirun.testing import ScriptedLlm, call
from minirun.workflow import START, NodeContext, node

from .test_workflow import AT_ONCE, ends, flow, output_of, run_of


async def test_a_node_may_set_its_output_and_route() -> None:
    """They count as returned ones; the route that is said last stands, and both can be read."""

    async def choose(node_input: str, ctx: NodeContext) -> Any:
        ctx.output = {"said": node_input}
        ctx.route = "left"
        assert (ctx.output, ctx.route) == ({"said": "go"}, "left")
        await ctx.emit(Event(message="on the way"))
        yield Event(route="right")

    async def left(node_input: Any) -> None:
        raise AssertionError

    events, run = await run_of(flow((START, choose, {"left": left, "right": ends})))
    assert run.answer is not None
    assert run.answer.output == {"said": "go"}
    assert [event.actions.route for event in events] == [None, "right", None]


async def test_a_route_alone_hands_the_input_on() -> None:
    """As `Event(route=...)` does."""

    def choose(ctx: NodeContext) -> None:
        ctx.route = ["x", "b"]

    assert await output_of(flow((START, choose, {"b": ends}))) == "go"


async def test_an_output_is_set_once() -> None:
    """A second one is refused, set or returned; so is what is no JSON, and what is no route."""

    async def twice(ctx: NodeContext) -> None:
        ctx.output = 1
        ctx.output = 2

    async def returned(ctx: NodeContext) -> int:
        ctx.output = 1
        return 2

    async def wrong(ctx: NodeContext) -> None:
        with pytest.raises(InvalidValueError, match="output of 'wrong'"):
            ctx.output = object()
        with pytest.raises(InvalidValueError, match="route"):
            ctx.route = {}
        ctx.output = "right"

    for each in (twice, returned):
        with pytest.raises(WorkflowError, match="expected one output at most, found a second, 2 after 1"):
            await run_of(flow((START, each)))
    assert await output_of(flow((START, wrong))) == "right"


async def test_a_failed_attempt_has_set_nothing() -> None:
    """The next attempt sets its own output."""
    async def often(ctx: NodeContext) -> None:
        ctx.output = ctx.attempt_count
        if ctx.attempt_count == 1:
            raise ValueError

    assert await output_of(flow((START, node(often, retry=AT_ONCE)))) == 2


async def test_outside_of_a_nodes_logic_they_are_refused_by_name() -> None:
    """In agents, also as nodes or run by a node, in tools and in callbacks: nothing is silently without effect."""
    seen = []

    def refused(ctx: Any) -> None:
        for name in ("output", "route"):
            with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
                setattr(ctx, name, 1)
            with pytest.raises(AttributeError, match=rf"has no {name}: only"):
                getattr(ctx, name)
        with pytest.raises(AttributeError, match="no attribute 'rout'"):
            ctx.rout = 1
        seen.append(type(ctx).__name__)

    def told(ctx: Any) -> str:
        refused(ctx)
        return ""

    class Plain(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            refused(ctx)
            await ctx.emit(Event(message="done"))

    async def tool(tool_context: ToolContext) -> str:
        """A tool."""
        refused(tool_context)
        return "x"

    async def around(ctx: NodeContext) -> None:
        await Plain(name="inside").run_async(ctx)
        ctx.output = "around"

    await run_of(Plain(name="plain"))
    llm = LlmAgent(
        name="llm",
        model=ScriptedLlm([call("tool"), "done"]),
        tools=[tool],
        instruction=told,
        before_agent_callback=lambda callback_context: refused(callback_context),
    )
    assert await output_of(flow((START, Plain(name="plain"), llm, around))) == "around"
    assert set(seen) == {"InvocationContext", "ReadonlyContext", "ToolContext"}
