"""
What all who ask servers over HTTP have in common, on httpx2: connections that are kept, and requests on them.

Each `trio.run` has connections of its own: several threads may run one each.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import httpx2
import trio

__all__ = ["CONNECT_TIMEOUT_S", "Connections", "response_to", "trusted", "used_up"]

# A connection that cannot be made soon will not be made.
CONNECT_TIMEOUT_S = 10.0

# What a connection fails with whose other end was closed.
_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)

_Pool = TypeVar("_Pool", httpx2.AsyncClient, httpx2.AsyncHTTPTransport)


@cache
def trusted() -> ssl.SSLContext:
    """The certificates that the system trusts, for all pools: reading them takes 25 ms, in which nothing else runs."""
    return httpx2.create_ssl_context(trust_env=False)


class _Open(Generic[_Pool]):
    """A pool of connections, and how many requests it serves."""

    def __init__(self, pool: _Pool) -> None:
        self.pool: _Pool = pool
        self.users = 0
        self.is_retired = False

    async def close_if_unused(self) -> None:
        if self.is_retired and not self.users:
            with trio.CancelScope(shield=True):  # closing sockets does not wait for anybody
                await self.pool.aclose()


class Connections(Generic[_Pool]):
    """
    A pool for each `trio.run`: opened by its first request, and by the first after `aclose`.

    Args:
        opened: Opens a pool.
    """

    def __init__(self, opened: Callable[[], _Pool]) -> None:
        self._opened: Callable[[], _Pool] = opened
        self._open: WeakKeyDictionary[trio.lowlevel.TrioToken, _Open[_Pool]] = WeakKeyDictionary()

    @asynccontextmanager
    async def used(self) -> AsyncIterator[_Pool]:
        """The pool of this `trio.run`; it stays open as long as the block runs."""
        token = trio.lowlevel.current_trio_token()
        opened = self._open.get(token)
        if opened is None:
            opened = self._open[token] = _Open(self._opened())
        opened.users += 1
        try:
            yield opened.pool
        finally:
            opened.users -= 1
            await opened.close_if_unused()

    async def aclose(self) -> None:
        """Close the pool when the requests that are going on have ended; the next request opens another."""
        opened = self._open.pop(trio.lowlevel.current_trio_token(), None)
        if opened is not None:
            opened.is_retired = True
            await opened.close_if_unused()


class _Watch:
    """Sees whether a request has made a connection of its own; else it went out on one that was kept."""

    def __init__(self) -> None:
        self.has_connected = False

    async def __call__(self, step: str, about: Mapping[str, Any]) -> None:
        if step == "connection.connect_tcp.started":
            self.has_connected = True


async def response_to(
    request: Callable[[Mapping[str, Any]], httpx2.Request],
    send: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
    *,
    may_repeat: bool,
) -> httpx2.Response:
    """
    Send a request; return the response when its head has come.

    Servers close connections that were silent for long. Where one does so while a request goes out on it, and no head
    comes back, a request that may be repeated is sent once more, as HTTP clients do: it was most likely never read.

    Args:
        request: Makes the request, with these `extensions`.
        send: Sends it.
        may_repeat: Whether doing it twice does no harm.

    Raises:
        httpx2.HTTPError: There is no response.
    """
    for is_last in (False, True):
        watch = _Watch()
        try:
            return await send(request({"trace": watch}))
        except _BROKEN:
            if is_last or watch.has_connected or not may_repeat:
                raise
    raise AssertionError("the last attempt returns or raises")


async def used_up(pieces: AsyncIterator[bytes]) -> None:
    """
    Bring the generators of a response that was closed to their end.

    httpx2's do not all close those that they iterate over, which would leave one to the garbage collector. They end
    when reading fails, as it does on a closed connection once the bytes that had come are used up.
    """
    try:
        async for _ in pieces:
            pass
    except (httpx2.HTTPError, httpx2.StreamError):
        pass
