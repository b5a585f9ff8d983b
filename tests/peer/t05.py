"""An agent as a tool of another."""

from __future__ import annotations

import attrs

from minirun import AgentTool, ToolContext
from minirun.testing import call

from .play import Play, scenario


@scenario("t05", "AgentTool: child writes state/artifact; what reaches the parent event")
async def called(play: Play) -> None:
    async def save(tool_context: ToolContext) -> str:
        """Save something."""
        play.note("child saw", parent=tool_context.state["parent"])
        tool_context.state["child"] = "c"
        tool_context.state["user:u"] = 2
        return "saved"

    helper = play.agent("helper", call("save"), "helper answer", description="helps", tools=[save], output_key="hk")
    root = play.agent("root", call("helper", request="do it"), "root answer", tools=[AgentTool(helper)])
    await play.act(root, state={"parent": "p"})


@scenario("t05", "AgentTool skip_summarization")
async def called_and_shown(play: Play) -> None:
    helper = AgentTool(play.agent("helper", "helper answer"), skip_summarization=True)
    await play.act(play.agent("root", call("helper", request="do it"), tools=[helper]))


@scenario("t05", "AgentTool: child model raises")
async def called_and_failed(play: Play) -> None:
    helper = AgentTool(play.agent("helper", RuntimeError("child model down")))
    await play.act(play.agent("root", call("helper", request="do it"), "so it goes", tools=[helper]))


@attrs.frozen
class In:
    """Where, and for how long."""

    city: str
    days: int = 3


@attrs.frozen
class Out:
    """What to do there."""

    plan: str


@scenario("t05", "AgentTool with input_schema/output_schema")
async def called_with_forms(play: Play) -> None:
    helper = AgentTool(play.agent("helper", '{"plan": "walk"}', input_schema=In, output_schema=Out))
    await play.act(play.agent("root", call("helper", city="Oslo"), "ok", tools=[helper]))


@scenario("t05", "AgentTool with input_schema, invalid args")
async def called_wrongly(play: Play) -> None:
    helper = AgentTool(play.agent("helper", input_schema=In))
    await play.act(play.agent("root", call("helper", days=1), "so it goes", tools=[helper]))
