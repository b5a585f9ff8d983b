"""
A server as a process: messages as lines over its standard input and output.

The official package has such a transport; this one bounds what it keeps. A line that never ends, and a server that
floods its standard error, cost no more memory than `message_bytes_max` and `LAST_WORDS_BYTES`. A message of more than
`VALUES_MAX` values is not parsed. What the server writes to its standard error goes to nobody's terminal: the end of it
is told where the server is lost.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
import trio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from ..._lines import Lines, LineTooLongError, with_whole_characters
from ._servers import StdioServer
from ._text import LABEL_CHARS_MAX, line
from ._values import VALUES_MAX, TooManyValuesError, Values

__all__ = ["stdio_streams"]

# Between closing its input and asking it to end, and between that and killing it; the protocol's document names the
# order, the times are those of the official package.
GRACE_S = 2.0

LAST_WORDS_BYTES = 2_000

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@asynccontextmanager
async def stdio_streams(
    server: StdioServer, message_bytes_max: int, tell: Callable[[str], None]
) -> AsyncGenerator[tuple[Any, Any], None]:
    """
    Start the server and give the two streams of a transport; end it afterwards, however this is left.

    *tell* hears why the streams have ended, if it was not this side that has ended them.

    Raises:
        OSError: It cannot be started.
    """
    process = await trio.lowlevel.open_process(
        [server.command, *server.args],
        stdin=-1,  # PIPE
        stdout=-1,
        stderr=-1,
        cwd=server.cwd,
        env={**get_default_environment(), **(server.env or {})},
        start_new_session=True,
    )
    to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    pipes = _Pipes(process, message_bytes_max, tell)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pipes.read, to_client, name=f"output of {server.command}")
            nursery.start_soon(pipes.write, from_client, name=f"input of {server.command}")
            nursery.start_soon(pipes.listen, name=f"errors of {server.command}")
            try:
                yield read, write
            finally:
                pipes.is_leaving = True
                with trio.CancelScope(shield=True):
                    await _end(process)
                nursery.cancel_scope.cancel()
    finally:
        for stream in (to_client, read, write, from_client):
            stream.close()


class _Pipes:
    """The tasks between the process and the streams."""

    def __init__(self, process: trio.Process, message_bytes_max: int, tell: Callable[[str], None]) -> None:
        self._process = process
        self._bytes_max = message_bytes_max
        self._tell = tell
        self._last_words = bytearray()
        self.is_leaving = False

    async def read(self, to_client: anyio.abc.ObjectSendStream[Any]) -> None:
        """Pass messages on to the client, until either side ends; then say why."""
        async with to_client:
            why = await self._pass_on(to_client)
            await self._say_why(why)
        if why:
            await self._drain()

    async def _pass_on(self, to_client: anyio.abc.ObjectSendStream[Any]) -> str:
        """Pass on each line that is a message, and not those that some programs print; return what is wrong with it."""
        stdout = self._process.stdout
        assert stdout is not None
        lines = Lines(self._bytes_max)
        try:
            while chunk := await stdout.receive_some():
                for each in lines.fed(chunk):
                    if len(each) > VALUES_MAX:  # a shorter line cannot have more values
                        Values().fed(each)
                    message = _message_or_error(each)
                    if message is not None:
                        await to_client.send(message)
        except TooManyValuesError:
            return f"it has sent a message of more than {VALUES_MAX} values"
        except LineTooLongError:
            return f"it has sent a message of more than {self._bytes_max} bytes (message_bytes_max)"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, *_GONE):
            pass
        return ""

    async def _drain(self) -> None:
        """Let it write what it has to, so that it is able to end."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while not self.is_leaving and await stdout.receive_some():
                pass
        except _GONE:
            pass

    async def _say_why(self, why: str) -> None:
        if self.is_leaving:
            return
        if not why:
            with trio.move_on_after(0.5):  # its last words, and the status, come at about the same time
                await self._process.wait()
            status = self._process.returncode
            why = "it has closed its output" if status is None else f"its process has ended with status {status}"
            if self._last_words:
                why += f"; its last words: {line(self._last_words.decode('utf-8', 'replace')[-LABEL_CHARS_MAX:])}"
        self._tell(why)

    async def write(self, from_client: anyio.abc.ObjectReceiveStream[SessionMessage]) -> None:
        """Pass messages on to the process, until either side ends."""
        stdin = self._process.stdin
        assert stdin is not None
        async with from_client:
            try:
                async for each in from_client:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stdin.send_all(text.encode("utf-8", "replace") + b"\n")
            except _GONE:
                pass  # it has ended; who reads its output finds out

    async def listen(self) -> None:
        """Read its standard error, and keep the end of it."""
        stderr = self._process.stderr
        assert stderr is not None
        try:
            while chunk := await stderr.receive_some():
                self._last_words += chunk
                del self._last_words[:-LAST_WORDS_BYTES]
        except _GONE:
            pass


def _message(text: bytes | str) -> SessionMessage | None:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        return None


def _message_or_error(text: bytes) -> SessionMessage | None:
    """
    The message in a line; None if there is none.

    A text that was cut in the middle of a character is repaired. An answer that is none of the protocol is an error for
    its request, which would wait for another one else. A request that is none goes on without its parameters, so that
    the client refuses it: the server waits, too.
    """
    message = _message(text)
    repaired = None if message is not None else with_whole_characters(text)
    if repaired is None:
        return message
    message, found = _message(repaired), json.loads(repaired)
    asked = found.get("id")
    if message is not None or "jsonrpc" not in found or not isinstance(asked, (int, str)):
        return message
    if "method" in found:
        return _message(json.dumps({key: each for key, each in found.items() if key != "params"}))
    error = mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message="its answer is none of the protocol")
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=asked, error=error))


async def _end(process: trio.Process) -> None:
    """End the process and what it has started: ask, then force. It takes no longer than three times `GRACE_S`."""
    assert process.stdin is not None
    await trio.aclose_forcefully(process.stdin)
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with trio.move_on_after(GRACE_S):
            await process.wait()
        if process.returncode is not None:
            break
        _signal_group(process, number)
    with trio.move_on_after(GRACE_S):
        await process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        await trio.aclose_forcefully(stream)


def _signal_group(process: trio.Process, number: int) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)  # it leads a group of its own
        else:
            process.kill()
    except OSError:
        pass  # it has just ended
