"""
The way to a provider over HTTP, on httpx2. The only module that imports it.

One client serves one adapter object in one `trio.run`: it is opened by the first request, keeps connections alive, and
is closed by `aclose`, which lets requests that are going on finish. After that, and in another `trio.run`, the next
request opens a new one.

Nothing is read from the environment (no proxies, no certificates), redirects are not followed, HTTP/2 is off, bodies
are not decoded, and what a response may hold is bounded. Time-outs go by trio's clock. Leaving a request early closes
its connection.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import trio

from .._json import brief, dumps
from ..errors import ConfigurationError, ModelConnectionError, ModelError, ModelTimeoutError
from ._reading import object_of
from ._sse import EventTooLongError, SseReader
from ._wire import Outgoing

try:
    import httpx2

    from .._connections import CONNECT_TIMEOUT_S, Connections, response_to, trusted, used_up
except ModuleNotFoundError as _error:
    _msg = f'the adapters for model providers need {_error.name}; run: pip install "minirun[models]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

__all__ = ["HttpTransport"]

# Of one response. The longest answers of today's models have less than 1 MiB of text; a stream repeats some 200 bytes
# around each token, and pictures come as base64.
BODY_BYTES_MAX = 128 * 2**20
# Of a response that says what is wrong: its message is somewhere at the beginning.
ERROR_BYTES_MAX = 64 * 2**10

# What comes after the end of an answer is some bytes that the server has sent already; a connection whose end does not
# come so soon is closed instead of kept.
DRAIN_S = 0.5

_Pieces: TypeAlias = AsyncIterator[bytes]
_decoded = json.JSONDecoder().raw_decode


class HttpAnswer:
    """A response whose head has come."""

    def __init__(self, status: int, headers: Mapping[str, str], pieces: _Pieces) -> None:
        self.status = status
        self.headers = headers
        self._pieces = pieces
        self._left = BODY_BYTES_MAX
        encoding = headers.get("content-encoding", "").strip().lower()
        self._packed = "" if encoding in ("", "identity") else f"a body in the encoding {brief(encoding)}"

    async def body(self) -> bytes:
        """
        Read the whole body; of an error, the beginning, as far as it comes.

        Raises:
            ModelError: The body is compressed. A compressed error is not read: its status is enough.
        """
        if self._packed and self.status >= 300:
            return self._packed.encode()
        self._check_encoding()
        read = bytearray()
        try:
            while (piece := await self._piece()) is not None:
                read += piece
                if self.status >= 300 and len(read) >= ERROR_BYTES_MAX:
                    break
        except (ModelConnectionError, ModelTimeoutError):
            if self.status < 300:
                raise  # else the status has said what is to be known
        return bytes(read)

    async def events(self) -> AsyncGenerator[Mapping[str, Any], None]:
        """
        Read the events of a stream, each as the JSON object that its data is, to its end or to `[DONE]`.

        Raises:
            ModelError: The stream is compressed, or is not a stream of events.
        """
        self._check_encoding()
        reader = SseReader()
        try:
            async for piece in self._pieces:
                self._count(piece)
                for event in reader.feed(piece):
                    if event.data == "[DONE]":
                        return
                    if event.name == "error":
                        yield _failure_in(event.data)
                    elif event.data.strip():  # some servers keep a silent stream alive with blank ones
                        yield _json_object(event.data)
            if left := object_of(reader.left()):
                yield left
        except EventTooLongError as error:
            raise ModelError(f"the provider's stream is no stream of events: {error}") from None
        except httpx2.HTTPError as error:
            raise lost(error) from None

    def _check_encoding(self) -> None:
        if self._packed:
            raise ModelError(f"expected a response without content-encoding, as asked for, found {self._packed}")

    async def drain(self) -> None:
        """Read what is left when the answer has ended, if it comes at once, so that the connection can be kept."""
        with trio.move_on_after(DRAIN_S):
            try:
                while await self._piece() is not None:
                    pass
            except ModelError:
                pass  # the answer is complete; it is the connection that is of no more use

    async def _piece(self) -> bytes | None:
        try:
            piece = await anext(self._pieces, None)
        except httpx2.HTTPError as error:
            raise lost(error) from None
        if piece is not None:
            self._count(piece)
        return piece

    def _count(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise ModelError(f"expected a response of at most {BODY_BYTES_MAX} bytes, found a longer one")


class HttpTransport:
    """
    Sends requests to one base URL.

    Args:
        base_url: Where the API is, without a slash at its end.
        timeout_s: How long to wait for the response to begin, and for each piece of it.

    Raises:
        ConfigurationError: The base URL is no address.
    """

    def __init__(self, base_url: str, timeout_s: float) -> None:
        try:
            httpx2.URL(base_url).raw_host.decode("ascii").encode("idna")  # as it will be looked up
        except (httpx2.InvalidURL, UnicodeError) as error:
            msg = f"expected base_url to be an address such as 'http://localhost:11434/v1', found another: {error}"
            raise ConfigurationError(msg) from None
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._connections = Connections(_client)

    @asynccontextmanager
    async def ask(self, outgoing: Outgoing, stream: bool, timeout_s: float | None) -> AsyncIterator[HttpAnswer]:
        """
        Send a request; the block has the response. Leaving the block early closes the connection.

        On a connection that was kept, and that the server closes before the head of the response, it is sent once more.

        Raises:
            ModelTimeoutError: Nothing came in time.
            ModelConnectionError: The connection could not be made, or was lost.
        """
        seconds = self._timeout_s if timeout_s is None else timeout_s
        timeout = httpx2.Timeout(seconds, connect=min(CONNECT_TIMEOUT_S, seconds))
        headers = {"content-type": "application/json", "accept-encoding": "identity", **outgoing.headers}
        content = dumps(outgoing.body).encode()
        url = f"{self._base_url}{outgoing.path}"
        async with self._connections.used() as client:
            response = await _sent(client, url, content=content, headers=headers, timeout=timeout)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            # Not `aiter_bytes`, which decodes: 7 KB of nested gzip become 4 GiB, and stop the loop for 11 s.
            pieces = aiter(response.stream)
            try:
                yield HttpAnswer(response.status_code, response.headers, pieces)
            finally:
                with trio.CancelScope(shield=True):  # closing waits for nobody
                    await response.aclose()
                    await used_up(pieces)

    async def aclose(self) -> None:
        """Close the client when the requests that are going on have ended; the next request opens another."""
        await self._connections.aclose()


def _client() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    return httpx2.AsyncClient(verify=trusted(), trust_env=False, http2=False, limits=limits)


async def _sent(client: httpx2.AsyncClient, url: str, **options: Any) -> httpx2.Response:
    """
    Send a request; return the response when its head has come.

    It is sent once more where that can be needed: a model that was asked twice costs twice and does no other harm.
    """

    def request(extensions: Mapping[str, Any]) -> httpx2.Request:
        return client.build_request("POST", url, **options, extensions=dict(extensions))

    try:
        return await response_to(request, partial(client.send, stream=True), may_repeat=True)
    except httpx2.HTTPError as error:
        raise lost(error) from None


def lost(error: httpx2.HTTPError) -> ModelError:
    """
    The error for a request that found no answer, or lost it.

    It is raised without its cause, which can repeat what the server sent, such as the key.
    """
    said = str(error) or type(error).__name__
    if isinstance(error, httpx2.TimeoutException):
        return ModelTimeoutError(f"expected the provider to go on in time, found nothing ({said})")
    return ModelConnectionError(f"expected a connection to the provider, found none ({said})")


def _json_object(data: str) -> Mapping[str, Any]:
    text = data.strip()
    try:
        found, end = _decoded(text)  # half as dear as json.loads
        found = found if end == len(text) else None
    except (ValueError, RecursionError):
        if text[:5].lower() == "error":  # some gateways say so in plain text
            return {"error": text}
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"expected the events of the provider's stream to be JSON objects, found {brief(data)}")
    return found


def _failure_in(data: str) -> Mapping[str, Any]:
    """Return the data of an event named `error` under the key `error`; some servers send only fields, or plain text."""
    found = object_of(data)
    return found if found.get("error") else {"error": found or {"message": data.strip()}}
