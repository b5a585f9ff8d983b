"""
What stands between the official package and an MCP server behind a URL: bounds, headers, and failures of one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import trio
import trio.testing

from minirun._json import dumps
from minirun.tools.mcp._http import REQUEST, Request, _Guard, http_streams
from minirun.tools.mcp._stdio import LAST_WORDS_BYTES, _Pipes
from minirun.tools.mcp._tool import ResourceTool


class Body(httpx2.AsyncByteStream, AsyncIterator[bytes]):
    """Pieces, and maybe a failure."""

    def __init__(self, *pieces: bytes, breaks: bool = False) -> None:
        self.pieces = list(pieces)
        self.breaks = breaks
        self.is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.pieces:
            return self.pieces.pop(0)
        if self.breaks:
            raise httpx2.ReadError("gone\x1b")
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.is_closed = True


class Server(httpx2.AsyncBaseTransport):
    """Answers each request with the next response, or fails."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, httpx2.Response)
        return answer


async def ask(answer: Any, bytes_max: int = 4, **headers: str) -> tuple[httpx2.Response, Request, Server]:
    """One request through the guard: the response, what is known of it, and the server."""
    server, known = Server(answer), Request(headers)
    guard = _Guard(server, bytes_max)  # type: ignore[arg-type]  # a transport
    token = REQUEST.set(known)
    try:
        return await guard.handle_async_request(httpx2.Request("POST", "http://h/")), known, server
    finally:
        REQUEST.reset(token)


async def read(response: httpx2.Response) -> bytes:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    chunks = aiter(response.stream)
    try:
        return b"".join([chunk async for chunk in chunks])
    finally:
        await chunks.aclose()  # type: ignore[attr-defined]  # a generator


async def test_a_request_has_the_headers_of_its_call_and_asks_for_nothing_packed() -> None:
    """The headers of the call are added, and the encoding is the identity; an answer up to the bound is read."""
    response, known, server = await ask(httpx2.Response(200, stream=Body(b"ab", b"cd")), authorization="key")
    assert {name: server.asked[0].headers[name] for name in ("authorization", "accept-encoding")} == {
        "authorization": "key", "accept-encoding": "identity",
    }  # fmt: skip
    assert await read(response) == b"abcd"
    assert (response.status_code, known.status, known.failure) == (200, None, "")


@pytest.mark.parametrize(("encoding", "is_packed"), [("identity", False), ("gzip", True)])
async def test_a_packed_answer_is_none(encoding: str, is_packed: bool) -> None:
    """Packed bytes cannot be bounded: the answer is closed, and its request fails alone."""
    body = Body(b"ab")
    response, known, _ = await ask(httpx2.Response(200, headers={"content-encoding": encoding}, stream=body))
    assert response.status_code == (503 if is_packed else 200)
    assert known.failure == ("its answer is packed, which was not asked for" if is_packed else "")
    assert body.is_closed is is_packed


@pytest.mark.parametrize(("status", "known_status"), [(200, None), (399, None), (400, 400), (503, 503)])
async def test_a_status_that_says_no_is_known(status: int, known_status: int | None) -> None:
    """From 400 up it is kept, for the message of the call."""
    response, known, _ = await ask(httpx2.Response(status, stream=Body()))
    assert (response.status_code, known.status) == (status, known_status)


async def test_a_server_that_is_not_there_fails_one_request() -> None:
    """What the transport says is kept in one line, and the package is given an answer for this request alone."""
    response, known, _ = await ask(httpx2.ConnectError("no\nroute"))
    assert (response.status_code, known.failure) == (503, "ConnectError: no route")


async def test_a_body_that_is_too_long_or_breaks_off_says_so() -> None:
    """A byte more than the bound is an error, and so is a connection that breaks; a stream of events is not bounded."""
    for body, failure in (
        (Body(b"abcd", b"e"), "its answer has more than 4 bytes (message_bytes_max)"),
        (Body(b"a", breaks=True), "ReadError: gone\\x1b"),
    ):
        response, known, _ = await ask(httpx2.Response(200, stream=body))
        with pytest.raises(httpx2.StreamError):
            await read(response)
        assert known.failure == failure
        await response.aclose()
        assert body.is_closed
    events = {"content-type": "Text/Event-Stream; charset=utf-8"}
    response, known, _ = await ask(httpx2.Response(200, headers=events, stream=Body(b"abcdef")))
    assert (await read(response), known.failure) == (b"abcdef", "")
    broken = httpx2.Response(200, headers=events, stream=Body(b"a", breaks=True))
    response, known, _ = await ask(broken)
    with pytest.raises(httpx2.ReadError):  # the package resumes such a stream
        await read(response)
    assert known.failure == ""


@pytest.mark.parametrize(
    ("kind", "error"),
    [("application/json", httpx2.StreamError), ("text/event-stream; charset=utf-16", httpx2.SSEError)],
)
async def test_a_body_of_too_many_values_says_so(kind: str, error: type[Exception]) -> None:
    """Each message of a stream of events is counted, in the encoding that such streams have by their standard."""
    body = Body(b"data: [", b"[]," * 99_999, b"[],", b"[]]")
    headers = {"content-type": kind}
    response, known, _ = await ask(httpx2.Response(200, headers=headers, stream=body), bytes_max=1_000_000)
    assert "utf-16" not in response.headers["content-type"]
    with pytest.raises(error):
        await read(response)
    assert (known.failure, body.pieces) == ("its answer has more than 200000 values", [b"[]]"])


async def test_a_list_of_resources_says_what_the_server_says_of_each() -> None:
    """Address, name, description and type of each, without those that it does not tell; half of a list that is long."""
    told = [
        SimpleNamespace(uri="a:b", name="n\x1b", description="d", mime_type="a/b"),
        SimpleNamespace(uri="a:c", name="m", description=None, mime_type=None),
    ]
    patterns = [SimpleNamespace(uri_template="a:{x}", name="t", description="", mime_type="c/d")]

    async def listed(context: object, kind: str) -> list[Any]:
        return {"resources": told, "resource_templates": patterns}[kind]

    server: Any = SimpleNamespace(label="desk", list=listed)
    context: Any = None
    whole = [
        {"uri": "a:b", "name": "n\\x1b", "description": "d", "mime_type": "a/b"},
        {"uri": "a:c", "name": "m"},
        {"uri_template": "a:{x}", "name": "t", "mime_type": "c/d"},
    ]
    for size, count in ((len(dumps(whole)), 3), (len(dumps(whole)) - 1, 1), (len(dumps(whole[:1])) - 1, 0)):
        assert await ResourceTool(server, size)._listed(context) == whole[:count]


async def test_of_last_words_the_end_is_kept() -> None:
    """A server that floods its standard error costs no more memory than the last words that messages show."""
    send, receive = trio.testing.memory_stream_one_way_pair()
    pipes = _Pipes(SimpleNamespace(stderr=receive), 10, print)  # type: ignore[arg-type]  # all that is asked of it
    for _ in range(3):
        await send.send_all(b"a" * LAST_WORDS_BYTES)
    await send.send_all(b"the end")
    await send.aclose()
    await pipes.listen()
    assert pipes._last_words == b"a" * (LAST_WORDS_BYTES - 7) + b"the end"


async def test_no_proxy_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a toolset uses no proxy that the environment names (P11)."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    made: list[httpx2.AsyncClient] = []

    class Noted(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(httpx2, "AsyncClient", Noted)
    async with http_streams("http://127.0.0.1:1/mcp", 100):
        [client] = made
    assert not [mount for mount in client._mounts.values() if mount is not None]
