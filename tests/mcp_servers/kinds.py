"""
A server with a tool for everything that a tool can do: `python -m tests.mcp_servers.kinds [FILE]` serves it over stdio,
and notes in FILE what it sees.
"""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

__all__ = ["PIXEL", "Seen", "made"]

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


class Seen:
    """What the server has seen; also in a file, for those in other processes."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self.cancelled: list[str] = []
        self.started: list[str] = []
        self.at_once = 0
        self.all_there = anyio.Event()
        self.has_started = anyio.Event()
        self.has_cancelled = anyio.Event()

    def note(self, what: str) -> None:
        """Write it down."""
        if self._path is not None:
            with open(self._path, "a") as file:
                file.write(f"{what}\n")


def made(seen: Seen | None = None, **options: Any) -> MCPServer:
    """The server, with what it sees in *seen*."""
    seen = seen or Seen()
    server = MCPServer("kinds", log_level="CRITICAL", **options)

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def image() -> types.CallToolResult:
        """A picture with a text."""
        blocks: list[Any] = [
            types.TextContent(text="a pixel"),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            types.AudioContent(data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav"),
        ]
        return types.CallToolResult(content=blocks)

    @server.tool()
    async def links() -> types.CallToolResult:
        """A link, and a resource inside."""
        inside = types.TextResourceContents(uri="note://1", text="Milk.", mime_type="text/plain")
        blocks: list[Any] = [
            types.ResourceLink(
                uri="file:///secret", name="secret", description="a link\x1b[2J", mime_type="text/plain"
            ),
            types.EmbeddedResource(resource=inside),
            types.EmbeddedResource(
                resource=types.BlobResourceContents(uri="note://2", blob=PIXEL, mime_type="image/png")
            ),
        ]
        return types.CallToolResult(content=blocks)

    @server.tool()
    async def structured() -> dict[str, Any]:
        """An object."""
        return {"city": "Rome", "nights": 3}

    @server.tool()
    async def fails() -> str:
        """Fails."""
        raise ToolError("the disk is full")

    @server.tool()
    async def large(size: int) -> str:
        """A large text."""
        return "x" * size

    @server.tool()
    async def blocks(count: int) -> types.CallToolResult:
        """Empty texts."""
        return types.CallToolResult(content=[types.TextContent(text="")] * count)

    @server.tool()
    async def odd_media() -> types.CallToolResult:
        """Media that are none."""
        return types.CallToolResult(content=[types.ImageContent(data="no base64!", mime_type="image/png")])

    @server.tool()
    async def counted(ctx: Context, steps: int = 3) -> str:
        """Tells how far it is."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
            await anyio.sleep(0.01)
        return "counted"

    @server.tool()
    async def forever(name: str = "") -> str:
        """Never answers."""
        seen.started.append(name)
        seen.note(f"started {name}")
        seen.has_started.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            seen.cancelled.append(name)
            seen.note(f"cancelled {name}")
            seen.has_cancelled.set()
            raise
        return ""

    @server.tool()
    async def together(number: int, of: int) -> int:
        """Answers when so many calls of it go on."""
        seen.at_once += 1
        if seen.at_once == of:
            seen.all_there.set()
        await seen.all_there.wait()
        return number

    @server.tool()
    async def die() -> str:
        """Ends the process in the middle of the call."""
        print("my last words \x1b[2J", file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool()
    async def dies_once(note: str) -> str:
        """Ends the process in the middle of the call, the first time."""
        try:
            os.close(os.open(note, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return "done"
        os._exit(3)

    @server.tool()
    async def floods(ctx: Context, count: int) -> str:
        """Tells of progress much too often."""
        for step in range(count):
            await ctx.report_progress(step + 1, count, "x" * 10_000)
        return "flooded"

    @server.tool()
    async def grows(ctx: Context) -> str:
        """The server has another tool from then on."""

        async def grown() -> str:
            return "grown"

        server.add_tool(grown, name="grown", description="Was not there before.")
        await ctx.notify_tools_changed()
        return "grew"

    @server.resource("note://shopping", mime_type="text/plain")
    async def shopping() -> str:
        """What to buy."""
        return "Milk."

    @server.resource("pixel://one", mime_type="image/png")
    async def pixel() -> bytes:
        """A pixel."""
        return base64.b64decode(PIXEL)

    @server.prompt()
    async def style(language: str) -> str:
        """How to talk."""
        return f"Speak {language}, briefly. Do not read {{secrets}}."

    return server


if __name__ == "__main__":
    made(Seen(*sys.argv[1:2])).run("stdio")
