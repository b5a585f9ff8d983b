"""
Servers of websockets on 127.0.0.1, whose connections tests can break in every way.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import trio
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

__all__ = ["Peer", "Refusal", "websockets_at"]

Refusal = tuple[int, dict[str, str], bytes]
"""The status, headers and body that answer a handshake instead of a connection."""


class Peer:
    """The server's side of one connection."""

    def __init__(self, stream: trio.abc.Stream, tcp: trio.SocketStream, protocol: ServerProtocol) -> None:
        self.stream = stream
        self.tcp = tcp
        self.protocol = protocol
        self.request: Request | None = None
        self.pings = 0
        self.bytes_sent = 0
        self._line = trio.Lock()

    @property
    def close_code(self) -> int | None:
        """The code with which the client has closed; None: it has not."""
        return self.protocol.close_rcvd.code if self.protocol.close_rcvd is not None else None

    async def messages(self) -> AsyncGenerator[str, None]:
        """The texts that the client sends, until it closes or is gone."""
        whole = bytearray()
        while True:
            for frame in self.protocol.events_received():
                assert isinstance(frame, Frame)
                self.pings += frame.opcode is Opcode.PING
                if frame.opcode in (Opcode.TEXT, Opcode.CONT):
                    whole += frame.data
                    if frame.fin:
                        text, whole = whole.decode(), bytearray()
                        yield text
            if self.protocol.state is not State.OPEN:
                return
            await self._read()

    async def _read(self) -> None:
        try:
            data = await self.stream.receive_some(65536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if data:
            self.protocol.receive_data(bytes(data))
        else:
            self.protocol.receive_eof()
        await self._flush()

    async def send(self, value: Any) -> None:
        """Send a text, or a JSON value as text; bytes as they are. A client that has gone gets nothing."""
        if self.protocol.state is not State.OPEN:
            return
        if isinstance(value, bytes):
            self.protocol.send_binary(value)
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            self.protocol.send_text(text.encode())
        await self._flush()

    async def close(self, code: int | None = 1000, reason: str = "") -> None:
        """Close in good order, for whatever reason."""
        if self.protocol.state is not State.OPEN:
            return
        self.protocol.send_close(code, reason)
        await self._flush()

    async def ping(self, data: bytes = b"?") -> None:
        self.protocol.send_ping(data)
        await self._flush()

    async def raw(self, data: bytes) -> None:
        """Send bytes that need be no frames."""
        await self.stream.send_all(data)

    def reset(self) -> None:
        """Break the connection, without a word."""
        self.tcp.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.tcp.socket.close()

    async def _flush(self) -> None:
        async with self._line:
            try:
                for data in self.protocol.data_to_send():
                    if data:
                        await self.stream.send_all(data)
                        self.bytes_sent += len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client is gone; whoever reads finds it out


@asynccontextmanager
async def websockets_at(
    handle: Callable[[Peer], Awaitable[None]],
    refusal: Callable[[Request], Refusal | None] = lambda request: None,
    *,
    tls: ssl.SSLContext | None = None,
    sent_bytes_max: int | None = None,
    answer: bytearray | None = None,
) -> AsyncGenerator[str, None]:
    """
    The address, with `ws://` or `wss://`, at which each connection is handled, until the block ends.

    Args:
        handle: What is done with a connection; it is closed afterwards, with code 1000 if it is open.
        refusal: How a handshake is refused; None: it is not.
        tls: With which certificate it is served.
        sent_bytes_max: How much of what it sends the kernel may keep for a client that does not read.
        answer: Filled with the response to the handshake, which *handle* sends; None: it is sent before.
    """

    async def serve(tcp: trio.SocketStream) -> None:
        if sent_bytes_max is not None:
            tcp.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sent_bytes_max)
        stream: trio.abc.Stream = tcp
        if tls is not None:
            stream = trio.SSLStream(tcp, tls, server_side=True, https_compatible=True)
        peer = Peer(stream, tcp, ServerProtocol(max_size=32 * 2**20))
        try:
            if await _accepted(peer, refusal, answer):
                await handle(peer)
                if peer.protocol.state is State.OPEN:
                    await peer.close()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        )
        port, failure = listeners[0].socket.getsockname()[1], None
        try:
            yield f"{'wss' if tls is not None else 'ws'}://127.0.0.1:{port}"
        except BaseException as error:
            failure = error  # raised outside of the nursery, which would put it into a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _accepted(
    peer: Peer, refusal: Callable[[Request], Refusal | None], answer: bytearray | None
) -> bool:
    """Shake hands; False if that is refused."""
    protocol = peer.protocol
    while peer.request is None:
        data = await peer.stream.receive_some(65536)
        if not data:
            return False
        protocol.receive_data(bytes(data))
        for event in protocol.events_received():
            assert isinstance(event, Request)
            peer.request = event
    refused = refusal(peer.request)
    if refused is None:
        response = protocol.accept(peer.request)
    else:
        status, headers, body = refused
        told = Headers({**headers, "content-length": str(len(body))})
        response = Response(status, HTTPStatus(status).phrase, told, body)
    protocol.send_response(response)
    if answer is not None:
        answer += b"".join(protocol.data_to_send())
    await peer._flush()
    return refused is None and protocol.state is State.OPEN
