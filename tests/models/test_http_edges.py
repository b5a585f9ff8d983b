"""
The transport against servers that behave oddly on the socket: when they close, how early they answer, and who leaves.
"""

from __future__ import annotations

import gzip
import logging
import socket
import struct
import threading
import traceback
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from minirun.errors import (
    ContextTooLongError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRequestError,
)
from minirun.models import LlmResponse
from minirun.models.openai import OpenAIChat

from ..wire_models import request

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
KEY = "sk-VERYSECRET"
PACKED = [b"?", gzip.compress(bytes(2**24)), gzip.compress(gzip.compress(bytes(2**24)))]  # the last has 100 bytes


def response(body: bytes, status: str = "200 OK", kind: str = "text/event-stream", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def has_request(stream: trio.SocketStream) -> bool:
    """Read one request to its end; False: the client has left."""
    read = b""
    while b"\r\n\r\n" not in read:
        if not (piece := await stream.receive_some()):
            return False
        read += piece
    head, _, body = read.partition(b"\r\n\r\n")
    [length] = [int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length")]
    missing = length - len(body)
    while missing > 0:
        if not (piece := await stream.receive_some()):
            return False
        missing -= len(piece)
    return True


class Server:
    """Handles each connection by a function of its stream and of its number, from 1 on."""

    def __init__(self, handle: Callable[[trio.SocketStream, int], Awaitable[None]]) -> None:
        self.connections = 0
        self._handle = handle

    async def __call__(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            await self._handle(stream, self.connections)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has left


@asynccontextmanager
async def serving(
    handle: Callable[[trio.SocketStream, int], Awaitable[None]], **options: Any
) -> AsyncGenerator[tuple[OpenAIChat, Server], None]:
    """A model and the server that it asks."""
    server = Server(handle)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, server, 0)
        port = listeners[0].socket.getsockname()[1]
        model = OpenAIChat("m", **{"base_url": f"http://localhost:{port}/v1", "api_key": KEY, **options})
        try:
            yield model, server
        finally:
            await model.aclose()
            nursery.cancel_scope.cancel()


async def ask(model: OpenAIChat, text: str = "hi") -> LlmResponse:
    async with aclosing(model.generate_content_async(request(text), True)) as responses:
        return [each async for each in responses][-1]


async def test_a_kept_connection_that_the_server_has_closed_is_not_used() -> None:
    """
    Servers close connections that are silent for long; the next request finds a new one, and nobody notices.
    """
    closed = trio.Event()

    async def handle(stream: trio.SocketStream, number: int) -> None:
        await has_request(stream)
        await stream.send_all(response(STREAM))
        await stream.aclose()
        closed.set()

    async with serving(handle) as (model, server):
        for _ in range(3):
            await ask(model)
            await closed.wait()
            closed = trio.Event()
    assert server.connections == 3


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_kept_connection_that_closes_under_a_request_is_replaced(is_reset: bool) -> None:
    """
    Where the server closes a kept connection under a request, and has sent nothing back, it gets the request once more.
    """

    async def handle(stream: trio.SocketStream, number: int) -> None:
        await has_request(stream)
        await stream.send_all(response(STREAM))
        await has_request(stream)
        if number > 1:
            await stream.send_all(response(STREAM))
            return
        if is_reset:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()

    async with serving(handle) as (model, server):
        await ask(model)
        await ask(model)
        assert server.connections == 2


async def test_a_request_is_sent_again_once() -> None:
    """
    A server that closes its kept connections again and again under requests is a lost connection at the second time.
    """
    read: list[int] = []

    async def handle(stream: trio.SocketStream, number: int) -> None:
        await has_request(stream)
        await stream.send_all(response(STREAM))
        await both.wait()
        await has_request(stream)
        read.append(number)

    async with serving(handle) as (model, _):
        both = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, model)
        both.set()
        with pytest.raises(ModelConnectionError) as caught:
            await ask(model)
        assert not caught.value.has_begun
        assert len(read) == 2


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"])
async def test_other_lost_requests_are_not_sent_again(head: bytes) -> None:
    """
    A request on a connection of its own that is closed before the head, or on a kept one after it, is sent once.
    """
    requests = 0

    async def handle(stream: trio.SocketStream, number: int) -> None:
        nonlocal requests
        await has_request(stream)
        if head:
            await stream.send_all(response(STREAM))
            await has_request(stream)
        requests += 1
        if head:
            await stream.send_all(head)

    async with serving(handle) as (model, _):
        if head:
            await ask(model)
        with pytest.raises(ModelConnectionError):
            await ask(model)
    assert requests == 1


async def test_requests_do_not_wait_for_each_other_s_connections() -> None:
    """
    However many requests are under way, the next one gets a connection of its own: there is no time-out of a pool.
    """
    count, read, all_read = 110, 0, trio.Event()  # more than are kept when they are done

    async def handle(stream: trio.SocketStream, number: int) -> None:
        nonlocal read
        await has_request(stream)
        read += 1
        if read == count:
            all_read.set()
        await all_read.wait()
        await stream.send_all(response(STREAM))

    async with serving(handle) as (model, server):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(ask, model)
    assert server.connections == count


async def test_an_answer_that_comes_before_the_request_was_read_counts() -> None:
    """
    A server may refuse a long request at its first bytes and read no more of it.
    """

    async def handle(stream: trio.SocketStream, number: int) -> None:
        await stream.receive_some(1000)
        body = b'{"error":{"message":"too large"}}'
        await stream.send_all(response(body, "413 Too Large", "application/json", "connection: close\r\n"))
        while await stream.receive_some():  # it hangs up when the client does
            pass

    async with serving(handle) as (model, _):
        with pytest.raises(ContextTooLongError, match="too large"):
            await ask(model, "x" * 3_000_000)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_bounded(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    """
    A server that never comes to an end is given up when its response is too long, streamed or not.
    """
    monkeypatch.setattr("minirun.models._http.BODY_BYTES_MAX", 2**20)
    sent = 0

    async def handle(connection: trio.SocketStream, number: int) -> None:
        nonlocal sent
        await has_request(connection)
        kind = b"text/event-stream" if stream else b"application/json"
        await connection.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n\r\n")
        while True:
            await connection.send_all(b": nothing yet\n\n" * 4096)
            sent += 15 * 4096

    async with serving(handle) as (model, _):
        with pytest.raises(ModelError, match="at most 1048576 bytes"):
            async with aclosing(model.generate_content_async(request("hi"), stream)) as responses:
                async for _ in responses:
                    pass
    assert sent < 2**24


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "deflate", "br", "GZIP"])
@pytest.mark.parametrize("status", ["200 OK", "500 No", "429 Slow"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_packed_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch, encoding: str, status: str, stream: bool
) -> None:
    """
    A body in an encoding, which no request asks for, is a ModelError; an error keeps the type of its status.
    """
    unpacked: list[object] = []
    monkeypatch.setattr(zlib, "decompressobj", lambda *args: unpacked.append(args))
    body = PACKED[encoding.count("gzip")]

    async def handle(connection: trio.SocketStream, number: int) -> None:
        await has_request(connection)
        kind = "text/event-stream" if stream else "application/json"
        await connection.send_all(response(body, status, kind, f"content-encoding: {encoding}\r\n"))

    kinds = {"200": ModelError, "500": ModelOverloadedError, "429": ModelRateLimitedError}
    async with serving(handle) as (model, _):
        with pytest.raises(ModelError, match="in the encoding") as caught:
            async with aclosing(model.generate_content_async(request("hi"), stream)) as responses:
                async for _ in responses:
                    pass
    assert type(caught.value) is kinds[status[:3]]
    assert not unpacked


async def test_the_encoding_identity_is_none() -> None:
    """
    A response that names the encoding that was asked for is read.
    """

    async def handle(connection: trio.SocketStream, number: int) -> None:
        await has_request(connection)
        await connection.send_all(response(STREAM, more="content-encoding: identity\r\n"))

    async with serving(handle) as (model, _):
        assert (await ask(model)).finish_reason == "STOP"


async def test_the_key_goes_nowhere_else(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Redirects are not followed, proxies in the environment are not used, and no log at any level has the key.
    """
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    caplog.set_level(logging.DEBUG)
    elsewhere: list[int] = []

    async def other(stream: trio.SocketStream, number: int) -> None:
        elsewhere.append(number)

    async def handle(stream: trio.SocketStream, number: int) -> None:
        await has_request(stream)
        await stream.send_all(response(b"", "307 Elsewhere", more=f"location: {there._transport._base_url}\r\n"))  # type: ignore[attr-defined]  # an HttpTransport
        await has_request(stream)
        await stream.send_all(response(b'{"error":{"message":"no"}}', "401 No", "application/json"))

    async with serving(other) as (there, _), serving(handle) as (model, _):
        with pytest.raises(ModelRequestError, match="307"):
            await ask(model)
        with pytest.raises(ModelAuthenticationError) as caught:
            await ask(model)
        assert KEY not in f"{model!r}{caught.value!r}{caught.value}"
    assert elsewhere == []
    assert KEY not in caplog.text


async def test_a_key_in_a_status_line_is_in_no_traceback() -> None:
    """
    An error of the HTTP client, which repeats what it could not read, is no cause of the model's error.
    """

    async def handle(stream: trio.SocketStream, number: int) -> None:
        await has_request(stream)
        await stream.send_all(f"HTTQ {KEY}\r\n\r\n".encode())

    async with serving(handle) as (model, _):
        with pytest.raises(ModelConnectionError) as caught:
            await ask(model)
    assert KEY not in "".join(traceback.format_exception(caught.value))


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when its task is about to do its nth step."""

    def __init__(self, scope: trio.CancelScope, count: int) -> None:
        self._scope, self._left, self._task = scope, count, trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def test_a_cancellation_at_any_step_leaves_nothing_behind() -> None:
    """
    Wherever a request is cancelled, no connection stays taken, and the next request is answered.
    """

    async def handle(stream: trio.SocketStream, number: int) -> None:
        while await has_request(stream):
            whole = response(STREAM)
            for start in range(0, len(whole), 40):
                await stream.send_all(whole[start : start + 40])
                await trio.testing.wait_all_tasks_blocked()  # so that every piece is a step of its own

    async with serving(handle) as (model, _):
        for count in range(1, 200):
            with trio.CancelScope() as scope:
                instrument = CancelAt(scope, count)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await ask(model)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            for opened in model._transport._connections._open.values():  # type: ignore[attr-defined]  # an HttpTransport
                assert opened.users == 0
                assert all(kept.is_idle() for kept in opened.pool._transport._pool.connections)
            await ask(model)
            if not scope.cancelled_caught:
                break
    assert 3 < count < 199


def test_two_threads_may_share_a_model() -> None:
    """
    Each `trio.run` has its own connections, which stay open until it closes them.
    """
    found: list[int] = []
    models: list[OpenAIChat] = []
    barrier = threading.Barrier(2)

    async def handle(stream: trio.SocketStream, number: int) -> None:
        while await has_request(stream):
            await stream.send_all(response(STREAM))

    async def use() -> None:
        for _ in range(5):
            barrier.wait()
            await ask(models[0])
        found.append(len(models[0]._transport._connections._open))  # type: ignore[attr-defined]  # an HttpTransport
        barrier.wait()
        await models[0].aclose()
        await models[0].aclose()

    async def main() -> int:
        async with serving(handle) as (model, server):
            models.append(model)
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(trio.to_thread.run_sync, trio.run, use)
        return server.connections

    assert trio.run(main) == 2
    assert found == [2, 2]
