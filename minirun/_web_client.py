"""
What sends the requests of `_web`, on httpx2.

Rules of this file:

1.  A request has one end in time and one in size, whatever the server does. A longer body is read as far as it may be,
    and its connection closed.
2.  Nothing is followed and nothing is guessed: no redirects, no proxies, no settings of the environment, no encodings.
3.  What is raised says what kind of failure it was, and holds no address, header or body: there are secrets in these.
4.  Nothing is logged of an address: some APIs have their keys in it, and httpx2's client logs each that it asks. So
    what is used here is the transport below that.

Leaving a request early, as a cancellation does, closes its connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import trio

from ._web import WebAnswer, WebFailedError

try:
    import httpx2
except ModuleNotFoundError as _error:
    _msg = f'signing in, and tools of OpenAPI documents, need {_error.name}; run: pip install "minirun[models]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

__all__ = ["HttpxWeb"]

# A connection that cannot be made soon will not be made.
CONNECT_TIMEOUT_S = 10.0

# What may be sent once more on a connection that the server has closed under it: doing it twice is doing it once
# (RFC 9110, section 9.2.2).
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)


class _Open:
    """A pool of connections, and how many requests it serves."""

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self.transport = httpx2.AsyncHTTPTransport(trust_env=False, http2=False, limits=limits)
        self.users = 0
        self.is_retired = False

    async def close_if_unused(self) -> None:
        if self.is_retired and not self.users:
            with trio.CancelScope(shield=True):  # closing sockets does not wait for anybody
                await self.transport.aclose()


class HttpxWeb:
    """See `Web`."""

    def __init__(self) -> None:
        self._open: WeakKeyDictionary[trio.lowlevel.TrioToken, _Open] = WeakKeyDictionary()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        timeout_s: float,
        bytes_max: int,
    ) -> WebAnswer:
        """See `Web.request`."""
        opened = self._opened()
        opened.users += 1
        try:
            with trio.fail_after(timeout_s):
                return await _answer_to(opened.transport, method, url, dict(headers), content, bytes_max)
        except trio.TooSlowError:
            raise WebFailedError(f"there was no whole answer within {timeout_s:g} s", is_timeout=True) from None
        except httpx2.TimeoutException as error:
            raise WebFailedError(f"time was up ({type(error).__name__})", is_timeout=True) from None
        except httpx2.HTTPError as error:
            raise WebFailedError(f"the connection could not be made, or was lost ({type(error).__name__})") from None
        except (httpx2.InvalidURL, UnicodeError):
            raise WebFailedError("the address is none that can be asked") from None
        finally:
            opened.users -= 1
            await opened.close_if_unused()

    async def aclose(self) -> None:
        """See `Web.aclose`."""
        opened = self._open.pop(trio.lowlevel.current_trio_token(), None)
        if opened is not None:
            opened.is_retired = True
            await opened.close_if_unused()

    def _opened(self) -> _Open:
        token = trio.lowlevel.current_trio_token()
        opened = self._open.get(token)
        if opened is None:
            opened = self._open[token] = _Open()
        return opened


class _Watch:
    """Sees whether a request has made a connection of its own; else it went out on one that was kept."""

    def __init__(self) -> None:
        self.has_connected = False

    async def __call__(self, step: str, about: Mapping[str, Any]) -> None:
        if step == "connection.connect_tcp.started":
            self.has_connected = True


async def _answer_to(
    transport: httpx2.AsyncHTTPTransport,
    method: str,
    url: str,
    headers: dict[str, str],
    content: bytes | None,
    bytes_max: int,
) -> WebAnswer:
    headers = {"accept-encoding": "identity", **headers}
    timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S).as_dict()  # `fail_after` bounds the rest
    for is_last in (False, True):
        watch = _Watch()
        extensions = {"trace": watch, "timeout": timeout}
        request = httpx2.Request(method, url, headers=headers, content=content, extensions=extensions)
        try:
            async with _sent(transport, request) as response:
                return await _read(response, bytes_max)
        except _BROKEN:
            if is_last or watch.has_connected or method not in _IDEMPOTENT:
                raise
    raise AssertionError("the last attempt returns or raises")


@asynccontextmanager
async def _sent(transport: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> AsyncIterator[httpx2.Response]:
    response = await transport.handle_async_request(request)
    try:
        yield response
    finally:
        with trio.CancelScope(shield=True):  # closing waits for nobody
            await response.aclose()


async def _read(response: httpx2.Response, bytes_max: int) -> WebAnswer:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise WebFailedError("the answer is in an encoding that nobody has asked for")
    headers = {name.lower(): value for name, value in response.headers.items()}
    read = bytearray()
    pieces = response.aiter_raw()
    try:
        async for piece in pieces:
            read += piece
            if len(read) > bytes_max:
                return WebAnswer(response.status_code, headers, bytes(read[:bytes_max]), is_cut=True)
    finally:
        with trio.CancelScope(shield=True):
            await response.aclose()
            await _used_up(pieces)
    return WebAnswer(response.status_code, headers, bytes(read))


async def _used_up(pieces: AsyncIterator[bytes]) -> None:
    """Bring httpx2's generators to their end, which leave those that they iterate over to the garbage collector."""
    try:
        async for _ in pieces:
            pass
    except (httpx2.HTTPError, httpx2.StreamError):
        pass
