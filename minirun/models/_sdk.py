"""
The way to a provider through an official SDK's client that somebody hands over.

The client signs requests in its cloud's way and knows its cloud's addresses and streams; what is said is ours, and so
is when to retry: the SDK is told not to. It belongs to whoever made it, and is not closed here.

Used of the client is its documented `post(path, cast_to=, body=, options=, stream=)`, by name only, so that no SDK is
imported. openai's and anthropic's have the same one. `X-Stainless-Raw-Response` is what `with_raw_response` sends: it
gives the response with its headers.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from .._json import brief, dumps
from ..errors import ConfigurationError, ModelConnectionError, ModelError, ModelTimeoutError
from ._wire import Outgoing

__all__ = ["SdkTransport"]

_RAW = {"X-Stainless-Raw-Response": "true"}


class SdkAnswer:
    """A response whose head has come, of a body or of a stream of events."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes = b"", stream: Any = None) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._stream = stream

    async def body(self) -> bytes:
        """Return the body."""
        return self._body

    async def events(self) -> AsyncGenerator[Mapping[str, Any], None]:
        """Read the events of the stream; a failure that comes as an event is one with the key `error`."""
        events = aiter(self._stream)
        while True:
            try:
                event = await anext(events, None)
            except Exception as error:
                said = getattr(error, "body", None)
                if not isinstance(said, (Mapping, str)):
                    raise lost(error) from error
                event = said if isinstance(said, Mapping) and "error" in said else {"error": said or {}}
            if event is None:
                return
            if isinstance(event, Mapping):
                yield event

    async def drain(self) -> None:
        """The SDK reads to the end by itself."""


class SdkTransport:
    """
    Sends requests through the client of an SDK.

    Raises:
        ConfigurationError: It is no async client.
    """

    def __init__(self, client: Any) -> None:
        if not inspect.iscoroutinefunction(getattr(client, "post", None)):
            expected = "expected an async client of the provider's SDK, such as AsyncOpenAI or AsyncAnthropic"
            raise ConfigurationError(f"{expected}, found {brief(client)}")
        self._client = client

    @asynccontextmanager
    async def ask(self, outgoing: Outgoing, stream: bool, timeout_s: float | None) -> AsyncIterator[SdkAnswer]:
        """
        Send a request; the block has the response. Leaving the block early closes the connection.

        Raises:
            ModelTimeoutError: Nothing came in time.
            ModelConnectionError: The connection could not be made, or was lost.
        """
        options: dict[str, Any] = {"headers": {**outgoing.headers, **_RAW}, "max_retries": 0}
        if timeout_s is not None:
            options["timeout"] = timeout_s
        try:
            raw = await self._client.post(
                outgoing.path, cast_to=object, body=outgoing.body, options=options, stream=stream
            )
        except Exception as error:
            answer = _refusal(error)
            if answer is None:
                raise lost(error) from error
            yield answer
            return
        response = raw.http_response
        if not stream:
            yield SdkAnswer(response.status_code, response.headers, body=response.content)
            return
        parsed = raw.parse()
        events = await parsed if inspect.isawaitable(parsed) else parsed
        try:
            yield SdkAnswer(response.status_code, response.headers, stream=events)
        finally:
            with trio.CancelScope(shield=True):  # closing a connection waits for nobody
                await response.aclose()

    async def aclose(self) -> None:
        """Leave the client to whoever made it."""


def _refusal(error: Exception) -> SdkAnswer | None:
    """The response that an SDK's error is about; None: there was none."""
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if response is None or not isinstance(status, int):
        return None
    body = getattr(error, "body", None)
    whole = body if isinstance(body, Mapping) and "error" in body else {"error": body}
    try:
        said = bytes(response.content)
    except Exception:  # httpx's ResponseNotRead, of whichever version
        said = dumps(whole).encode() if isinstance(body, Mapping) else b""
    return SdkAnswer(status, response.headers, body=said)


def lost(error: Exception) -> ModelError:
    """The error for a request that found no answer, or lost it, by the names that the SDKs and their clients have."""
    names = {each.__name__ for each in type(error).__mro__}
    said = str(error) or type(error).__name__
    if names & {"APITimeoutError", "TimeoutException"}:
        return ModelTimeoutError(f"expected the provider to go on in time, found nothing ({said})")
    if names & {"APIConnectionError", "TransportError"}:
        return ModelConnectionError(f"expected a connection to the provider, found none ({said})")
    return ModelError(f"the provider's SDK has failed: {type(error).__name__}: {said}")
