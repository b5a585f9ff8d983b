"""
A server behind a URL: the official package's streamable HTTP, over a client of ours.

What the client adds: the headers of the call that a request is made for, which a context variable carries; a bound on
what a response may hold; and that a request which finds no server fails alone, instead of ending the whole connection.
Nothing is read from the environment. The package follows redirects within the server's origin only.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import httpx2
from mcp.client.streamable_http import streamable_http_client

from ..._connections import trusted
from ._text import line
from ._values import VALUES_MAX, TooManyValuesError, Values

__all__ = ["REFUSALS", "REQUEST", "Request", "http_streams"]

# To find and greet the server. How long an answer may take is the call's own limit.
CONNECT_TIMEOUT_S = 10.0

# The statuses that speak of the headers of a request, not of the server.
REFUSALS = (401, 403)


@attrs.define(eq=False)
class Request:
    """What is known of one request to a server, on both sides of the official package."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    status: int | None = None
    """Of the last response that said no, to this request or to one with the same headers."""
    failure: str = ""
    """Why there was no response, or why it was broken off."""


REQUEST: ContextVar[Request | None] = ContextVar("minirun request to an MCP server", default=None)


@asynccontextmanager
async def http_streams(url: str, message_bytes_max: int) -> AsyncGenerator[Any, None]:
    """Give the streams of a transport to *url*."""
    # How many calls go on at once is no business of the pool: what is full would wait behind calls that take long.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    guard = _Guard(httpx2.AsyncHTTPTransport(verify=trusted(), trust_env=False, limits=limits), message_bytes_max)
    timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=None)
    async with httpx2.AsyncClient(transport=guard, timeout=timeout, trust_env=False) as client:
        async with streamable_http_client(url, http_client=client, max_sse_event_size=message_bytes_max) as streams:
            yield streams


class _Guard(httpx2.AsyncBaseTransport):
    """See the module."""

    def __init__(self, transport: httpx2.AsyncHTTPTransport, bytes_max: int) -> None:
        self._transport = transport
        self._bytes_max = bytes_max

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        known = REQUEST.get() or Request()
        request.headers.update(known.headers)
        request.headers["accept-encoding"] = "identity"  # some bytes that unpack to gigabytes cannot be bounded
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.TransportError as error:
            known.failure = line(f"{type(error).__name__}: {error}")
            return httpx2.Response(503, request=request)  # which the package takes as the answer to this request alone
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            known.failure = "its answer is packed, which was not asked for"
            return httpx2.Response(503, request=request)
        if response.status_code >= 400:
            known.status = response.status_code
        are_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if are_events:  # which are UTF-8 by their standard; in another encoding their values could not be counted
            response.headers["content-type"] = "text/event-stream"
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream, self._bytes_max, known, are_events=are_events)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """
    A body that ends with an error if it is too long, has too many values, or breaks off.

    An event stream may have any length: the package bounds its events.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, bytes_max: int, known: Request, *, are_events: bool) -> None:
        self._stream = stream
        self._left = math.inf if are_events else bytes_max
        self._are_events = are_events
        self._values = Values(are_events=are_events)
        self._bytes_max = bytes_max
        self._known = known

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                self._left -= len(chunk)
                if self._left < 0:
                    self._known.failure = f"its answer has more than {self._bytes_max} bytes (message_bytes_max)"
                    raise httpx2.StreamError(self._known.failure)
                try:
                    self._values.fed(chunk)
                except TooManyValuesError:
                    self._known.failure = f"its answer has more than {VALUES_MAX} values"
                    failed = httpx2.SSEError if self._are_events else httpx2.StreamError
                    raise failed(self._known.failure) from None
                yield chunk
        except httpx2.TransportError as error:
            if self._are_events:  # the package resumes a stream that breaks off, but not after an SSEError
                raise
            self._known.failure = line(f"{type(error).__name__}: {error}")
            raise httpx2.StreamError(self._known.failure) from error

    async def aclose(self) -> None:
        await self._stream.aclose()
