"""
The way over standard input and output: messages as lines.

While it is open, nothing but messages gets to the standard output. What the agents, their tools and the programs that
these start print goes to standard error, and who reads standard input finds it empty. That is done to the descriptors,
so it holds for C code and child processes as well.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types
import trio
from mcp.shared.message import SessionMessage

from .._lines import Lines, LineTooLongError, with_whole_characters
from ..env import Env

__all__ = ["diverted", "stdio_streams"]

CHUNK_BYTES = 65_536


@contextmanager
def diverted() -> Iterator[tuple[int, int]]:
    """
    Give descriptors of the standard input and output, which nobody else has until the block ends.

    Raises:
        OSError: There is no standard input or output.
    """
    if sys.stdin is None or sys.stdout is None:  # closed when this began: their numbers may be those of other files now
        raise OSError(errno.EBADF, "expected a standard input and output to speak over, found one that is closed")
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield wire_in, wire_out
    finally:
        sys.stdout.flush()
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        os.close(nothing)
        os.close(wire_out)  # the other one may still be read by a thread that nobody could stop


@asynccontextmanager
async def stdio_streams(
    wire: tuple[int, int], message_bytes_max: int, env: Env
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Give the streams of a transport over these two descriptors. A message that is too long ends the input."""
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read, wire[0], to_server, message_bytes_max, env, name="messages of an MCP client")
            nursery.start_soon(_write, wire[1], from_server, env, name="messages to an MCP client")
            yield read, write
            nursery.cancel_scope.cancel()
    finally:
        for stream in (to_server, read, write, from_server):
            stream.close()


async def _read(wire: int, to_server: Any, bytes_max: int, env: Env) -> None:
    lines = Lines(bytes_max)
    async with to_server:
        try:
            # A thread may be left waiting for what never comes: it holds nothing but the descriptor.
            while chunk := await env.run_sync(partial(os.read, wire, CHUNK_BYTES), abandon_on_cancel=True):
                for line in lines.fed(chunk):
                    await to_server.send(_message(line))
        except LineTooLongError:
            sys.stderr.write(f"minirun: a message of more than {bytes_max} bytes has ended the connection\n")
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client is gone, or the server has ended


def _message(line: bytes | str) -> SessionMessage | Exception:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        repaired = with_whole_characters(line) if isinstance(line, bytes) else None
        return error if repaired is None else _message(repaired)


async def _write(wire: int, from_server: Any, env: Env) -> None:
    async with from_server:
        try:
            async for each in from_server:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await env.run_sync(partial(_write_all, wire, text.encode() + b"\n"), abandon_on_cancel=True)
        except OSError:
            pass  # the client is gone; its end of the input says so


def _write_all(wire: int, data: bytes) -> None:
    while data:
        data = data[os.write(wire, data) :]
