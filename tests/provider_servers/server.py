"""
What the servers have in common: a script of replies, and a log of what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from ..asgi import serving as served

__all__ = ["FIXTURES", "FakeProvider", "Reply", "fixture", "in_pieces", "served"]

FIXTURES = Path(__file__).parent.parent / "fixtures" / "wire"


def fixture(name: str) -> bytes:
    """The bytes of a file of the wire."""
    return (FIXTURES / name).read_bytes()


def in_pieces(data: bytes, size: int) -> list[bytes]:
    """The bytes in pieces of that size."""
    return [data[start : start + size] for start in range(0, len(data), size)]


@attrs.frozen
class Reply:
    """What is answered: the pieces are sent one by one; then the connection ends well, breaks, or stays silent."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=dict)
    content_type: str = "text/event-stream"
    breaks: bool = False  # before the body has ended
    stalls: bool = False  # before the body has ended, until the client leaves
    stalls_first: bool = False  # before the head, until the client leaves
    endless: bytes = b""  # is sent over and over, until the client leaves


@attrs.define
class Asked:
    """One request."""

    path: str
    query: str
    headers: dict[str, str]
    body: Any
    port: int  # of the client: one for each connection

    @property
    def is_stream(self) -> bool:
        """Whether a stream is asked for, in the body or, as Google has it, in the path."""
        return bool(self.body.get("stream")) or self.path.endswith(":streamGenerateContent")


class FakeProvider:
    """
    An ASGI application with a script. It refuses what the real API refuses, and then the script does not go on.

    Args:
        refusal: Given a request, what is wrong with it: a status and an error's body; None: nothing.
        made: Given a request, the body that answers it where it asks for no model's answer; None: the script goes on.
    """

    def __init__(
        self,
        refusal: Callable[[Asked], tuple[int, Any] | None],
        made: Callable[[Asked], Any | None] = lambda asked: None,
    ) -> None:
        self.script: list[Reply] = []
        self.asked: list[Asked] = []
        self.came = trio.Event()  # a request has come
        self.left = trio.Event()  # a client has left before its response had ended
        self.bytes_sent = 0
        self._refusal = refusal
        self._made = made

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        asked = Asked(scope["path"], scope["query_string"].decode(), headers, json.loads(body), scope["client"][1])
        self.asked.append(asked)
        self.came.set()
        refusal = self._refusal(asked)
        if refusal is not None:
            status, error = refusal
            reply = Reply([json.dumps(error).encode()], status, content_type="application/json")
        elif (body_made := self._made(asked)) is not None:
            reply = Reply([json.dumps(body_made).encode()], content_type="application/json")
        else:
            reply = self.script.pop(0)
        await self._reply(reply, receive, send)

    async def _reply(
        self, reply: Reply, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if reply.stalls_first:
            await self._wait_for_leaving(receive)
            return
        headers = {"content-type": reply.content_type, **reply.headers}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": raw})
        for piece in reply.pieces:
            await self._send(send, piece)
            await trio.lowlevel.checkpoint()
        if reply.endless:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_endlessly, send, reply.endless)
                await self._wait_for_leaving(receive)
                nursery.cancel_scope.cancel()
            return
        if reply.stalls:
            await self._wait_for_leaving(receive)
            return
        if reply.breaks:
            raise ConnectionAbortedError("the script breaks the connection here")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Callable[[Any], Awaitable[None]], piece: bytes) -> None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        self.bytes_sent += len(piece)

    async def _send_endlessly(self, send: Callable[[Any], Awaitable[None]], piece: bytes) -> None:
        while True:
            await self._send(send, piece)
            await trio.lowlevel.checkpoint()

    async def _wait_for_leaving(self, receive: Callable[[], Awaitable[Any]]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()
