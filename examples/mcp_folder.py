"""
An agent with the tools of an MCP server, which looks after a folder: `python examples/mcp_folder.py`.

Needs `pip install "minirun[mcp]"`. The server is this file, too, started as a process of its own. Before it removes a
file it asks a person. The invocation is paused until there is an answer, which may come days later; here at once.
"""

import sys
from pathlib import Path
from typing import Annotated

import trio
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel

from minirun import InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset, StdioServer


class Sure(BaseModel):
    sure: bool


async def ask(name: str) -> Elicit[Sure]:
    return Elicit(f"Remove {name} for good?", Sure)


def serve(folder: Path) -> None:
    server = MCPServer("folder", log_level="ERROR")

    @server.tool()
    async def remove(name: str, answer: Annotated[Sure, Resolve(ask)]) -> str:
        """Remove a file."""
        if answer.sure:
            (folder / Path(name).name).unlink()
        return "removed" if answer.sure else "kept"

    server.run("stdio")


async def main(folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    model = ScriptedLlm([call("disk_remove", name="old.txt"), "It is gone."])
    server = StdioServer(sys.executable, [__file__, "serve", str(folder)])
    async with McpToolset(server, tool_name_prefix="disk") as tools:
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
        async with runner.run_async(user_id="ada", session_id="s", new_message="Remove old.txt.") as run:
            await run.wait()
        print(run.status, run.pending[0].hint.splitlines()[0])
        answer = run.pending[0].reply({"sure": True})
        async with runner.run_async(user_id="ada", session_id="s", new_message=answer) as run:
            events = [event async for event in run]
        print(events[-1].text, (folder / "old.txt").exists())


if sys.argv[1:2] == ["serve"]:
    serve(Path(sys.argv[2]))
elif __name__ == "__main__":
    trio.run(main, Path.cwd())
