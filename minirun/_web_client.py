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
from typing import Any

import trio

from ._web import WebAnswer, WebFailedError

try:
    import httpx2

    from ._connections import CONNECT_TIMEOUT_S, Connections, response_to, trusted, used_up
except ModuleNotFoundError as _error:
    _msg = f'signing in, and tools of OpenAPI documents, need {_error.name}; run: pip install "minirun[models]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

__all__ = ["HttpxWeb"]

# What may be sent once more on a connection that the server has closed under it: doing it twice is doing it once
# (RFC 9110, section 9.2.2).
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class HttpxWeb:
    """See `Web`."""

    def __init__(self) -> None:
        self._connections = Connections(_transport)

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
        try:
            async with self._connections.used() as transport:
                with trio.fail_after(timeout_s):
                    return await _answer_to(transport, method, url, dict(headers), content, bytes_max)
        except trio.TooSlowError:
            raise WebFailedError(f"there was no whole answer within {timeout_s:g} s", is_timeout=True) from None
        except httpx2.TimeoutException as error:
            raise WebFailedError(f"time was up ({type(error).__name__})", is_timeout=True) from None
        except httpx2.HTTPError as error:
            raise WebFailedError(f"the connection could not be made, or was lost ({type(error).__name__})") from None
        except (httpx2.InvalidURL, UnicodeError):
            raise WebFailedError("the address is none that can be asked") from None

    async def aclose(self) -> None:
        """See `Web.aclose`."""
        await self._connections.aclose()


def _transport() -> httpx2.AsyncHTTPTransport:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    return httpx2.AsyncHTTPTransport(verify=trusted(), trust_env=False, http2=False, limits=limits)


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

    def request(extensions: Mapping[str, Any]) -> httpx2.Request:
        told = {**extensions, "timeout": timeout}
        return httpx2.Request(method, url, headers=headers, content=content, extensions=told)

    may_repeat = method in _IDEMPOTENT
    response = await response_to(request, transport.handle_async_request, may_repeat=may_repeat)
    pieces = response.aiter_raw()
    try:
        return await _read(response, pieces, bytes_max)
    finally:
        with trio.CancelScope(shield=True):  # closing waits for nobody
            await response.aclose()
            await used_up(pieces)


async def _read(response: httpx2.Response, pieces: AsyncIterator[bytes], bytes_max: int) -> WebAnswer:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise WebFailedError("the answer is in an encoding that nobody has asked for")
    headers = {name.lower(): value for name, value in response.headers.items()}
    read = bytearray()
    async for piece in pieces:
        read += piece
        if len(read) > bytes_max:
            return WebAnswer(response.status_code, headers, bytes(read[:bytes_max]), is_cut=True)
    return WebAnswer(response.status_code, headers, bytes(read))
