"""
A server of the protocol before 2026-07-28, which asks in the middle of a call.

`python -m tests.mcp_servers.older FILE` notes in FILE what it does. It is the official package's, which is kept from
telling that it knows the newer protocol.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from . import desk

__all__ = ["made", "main", "older", "transport"]

NIGHTS = {"type": "object", "properties": {"nights": {"type": "integer"}}, "required": ["nights"]}
KIND = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}


def made(note: Callable[[str], None]) -> Server[Any]:
    """The server; *note* hears what it does."""
    there = [0]
    both = anyio.Event()

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        names = ("book", "twice", "visit", "add", "together")
        return types.ListToolsResult(tools=[types.Tool(name=each, input_schema={"type": "object"}) for each in names])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments, session = params.arguments or {}, ctx.session
        note(f"called {params.name}")

        async def ask(message: str, schema: Any) -> Any:
            answer = await session.elicit_form(message, schema, ctx.request_id)
            return answer.content if answer.action == "accept" else None

        said = ""
        try:
            if params.name == "book":
                city = arguments["city"]
                first = await ask(f"How many nights in {city}?", NIGHTS)
                if first is None:
                    said = "declined"
                else:
                    second = await ask(f"Which room for {first['nights']} nights?", KIND)
                    said = f"{second['kind']} room in {city} for {first['nights']} nights"
                    note(f"booked {city} {first['nights']} {second['kind']}")
            elif params.name == "twice":
                said = f"{(await ask('The kind?', KIND))['kind']} {(await ask('The kind?', KIND))['kind']}"
            elif params.name == "visit":
                answer = await session.elicit_url("Sign in", "https://host/login", "1", ctx.request_id)
                said = answer.action
            elif params.name == "together":
                there[0] += 1
                if there[0] == arguments["of"]:
                    both.set()
                await both.wait()
                said = "alone" if not arguments["asks"] else (await ask("The kind?", KIND))["kind"]
            else:
                said = str(arguments["a"] + arguments["b"])
        except anyio.get_cancelled_exc_class():
            note(f"cancelled {params.name}")
            raise
        return types.CallToolResult(content=[types.TextContent(text=said)])

    async def discovered(ctx: Any, params: Any) -> Any:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")

    server: Server[Any] = Server("older", on_list_tools=listed, on_call_tool=called)
    server.add_request_handler("server/discover", types.RequestParams, discovered)
    return server


@asynccontextmanager
async def older(read: Any, write: Any) -> AsyncGenerator[Any, None]:
    """The stream that a server reads from, without what the newer protocol begins with."""
    passed, kept = anyio.create_memory_object_stream[Any](0)

    async def pass_on() -> None:
        async with passed:
            async for each in read:
                request = getattr(each, "message", None)
                if request is None or getattr(request, "method", None) != "server/discover":
                    await passed.send(each)
                    continue
                error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
                await write.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_on)
        yield kept
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def transport(server: Server[Any]) -> AsyncGenerator[Any, None]:
    """A connection to a server in this process."""
    to_server, read = anyio.create_memory_object_stream[Any](0)
    write, from_server = anyio.create_memory_object_stream[Any](0)

    async def live(kept: Any) -> None:
        await server.run(kept, write, server.create_initialization_options())

    try:
        async with older(read, write) as kept, anyio.create_task_group() as tasks:
            tasks.start_soon(live, kept)
            yield from_server, to_server
            tasks.cancel_scope.cancel()
    finally:
        for stream in (to_server, read, write, from_server):
            stream.close()


async def main(path: Path) -> None:
    """Serve over standard input and output."""
    server = made(desk.note_in(path))
    async with stdio_server() as (read, write), older(read, write) as kept:
        await server.run(kept, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), backend="trio")
