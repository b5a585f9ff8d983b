"""
What a call of a tool of an MCP server costs this process, beside the official client's own call of it.

Processor time of this process alone: over stdio the server has its own. The call is one of `CALLS` in a turn of an
agent, so that the turn, its two questions to a scripted model and its events are in the figure, too.
"""

from __future__ import annotations

import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from minirun import InMemoryRunner, LlmAgent
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset, StdioServer
from tests.mcp_servers import kinds

from .measuring import Row, Work, measure
from .scale import Scale

__all__ = ["mcp_calls"]

CALLS = 20
ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.mcp_servers.kinds"]


def _script(request: LlmRequest) -> Any:
    last = request.contents[-1].parts[-1]
    return [call("add", a=1, b=number) for number in range(CALLS)] if last.function_response is None else "Added."


async def mcp_calls(scale: Scale, folder: Path) -> list[Row]:
    """Rows for a server in this process, and one over stdio."""
    rows = []
    for way in ("in process", "over stdio"):
        ours: Any = kinds.made()
        theirs: Any = kinds.made()
        if way != "in process":
            command, *rest = COMMAND
            ours = StdioServer(command, rest, cwd=ROOT)
            theirs = StdioServerParameters(command=command, args=rest, cwd=ROOT)
        async with AsyncExitStack() as stack:
            tools = await stack.enter_async_context(McpToolset(ours, tool_filter=["add"], timeout_s=None))
            client = await stack.enter_async_context(Client(theirs))
            runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=ScriptedLlm(_script), tools=[tools]))

            async def turn(runner: InMemoryRunner = runner) -> None:
                await runner.run_debug("go", quiet=True)

            async def bare(client: Client = client) -> None:
                await client.session.call_tool("add", {"a": 1, "b": 2})

            works = (Work("mcp", turn, 2, CALLS), Work("client", bare, 2 * CALLS))
            times = await measure(scale.rounds, *works, clock=time.process_time)
        rows.append(Row(f"CPU of an MCP call {way}", times["mcp"], "the official client", times["client"]))
    return rows
