"""
A model behind an HTTP API: what its wire module says, sent by a transport.

    WireLlm ─ the wire says what to send ─► transport (HTTP, or an SDK's client) ─ events ─► the wire's assembler ─►
    fragments, then the one complete response

A class of models is a few lines below `WireLlm`: it makes its wire and hands it over. Nothing is retried here, no clock
is read, and nothing is kept between two requests but open connections.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias
from urllib.parse import quote, urlsplit

import attrs

from .._json import FrozenTuple, brief, is_seconds
from .._values import MAKE
from ..errors import ConfigurationError, ModelConnectionError, ModelError, ModelTimeoutError
from ..types import Content, GenerateContentConfig, Part
from ._assembler import Assembler
from ._base import BaseLlm, LlmRequest, LlmResponse
from ._reading import object_of
from ._sdk import SdkTransport
from ._wire import Outgoing, Wire, cut_off, thinking_of

__all__ = [
    "TIMEOUT_S", "Key", "Redactor", "WireLlm", "checked_headers", "checked_key", "checked_url", "current_key",
    "host_of",
]

Key: TypeAlias = str | Callable[[], str | Awaitable[str]] | None
"""A key, or a function, sync or async, that returns the one to use now; None: no key is sent."""

# What answers may take long to think before they say anything; the same as the official SDKs' own.
TIMEOUT_S = 600.0


# What HTTP takes as the name of a header (RFC 9110, section 5.1).
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
SECRET_CHARS_MIN = 8
# A query or a fragment cannot stand before the path that is added; the others are no part of an address.
_NOT_IN_URLS = re.compile(r"[?#\s\x00-\x1f\x7f]")


class Answer(Protocol):
    """A response whose head has come."""

    status: int
    headers: Mapping[str, str]

    async def body(self) -> bytes: ...
    def events(self) -> AsyncGenerator[Mapping[str, Any], None]: ...
    async def drain(self) -> None: ...


class Transport(Protocol):
    """The way to a provider."""

    def ask(self, outgoing: Outgoing, stream: bool, timeout_s: float | None) -> AbstractAsyncContextManager[Answer]: ...
    async def aclose(self) -> None: ...


def check_access(name: object, api_key: Key, timeout_s: object, *, needs_key: bool) -> None:
    """Refuse a name of a model, a key and a time-out that cannot be one; and none, where the address *needs_key*."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigurationError(f"expected the provider's name of a model, found {brief(name)}")
    if not is_seconds(timeout_s, above=0):
        raise ConfigurationError(f"expected timeout_s to be a number of seconds above 0, found {brief(timeout_s)}")
    if api_key is not None and not callable(api_key):
        checked_key(api_key)
    if api_key is None and needs_key:
        msg = "expected api_key, found none; write api_key=..., which may be a function; no variable is read"
        raise ConfigurationError(msg)


class WireLlm(BaseLlm):
    """
    A model that is asked over HTTP.

    Args:
        name: The provider's name of the model.
        wire: What is said to the provider, and how its answers are read.
        base_url: Where the API is.
        api_key: The key, or a function that returns it (sync or async; it is asked for every request); None: none is
            sent. Nothing is read from the environment.
        headers: More headers for every request.
        timeout_s: How long the provider may take until its answer begins, and between two pieces of it, in seconds; a
            request's `http_options.timeout` counts instead.
        client: An async client of the provider's SDK that sends the requests, instead of `base_url`, `api_key`,
            `headers` and `timeout_s`, which are the client's own then.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for the provider's own API.
    """

    default_url: ClassVar[str]  # of the provider's own API, which wants a key

    def __init__(
        self,
        name: str,
        wire: Wire,
        *,
        base_url: str,
        api_key: Key,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        client: Any,
    ) -> None:
        check_access(name, api_key, timeout_s, needs_key=client is None and base_url == self.default_url)
        super().__init__(model=name)
        self._wire = wire
        self._key = api_key
        self._headers = checked_headers(headers)
        self._transport: Transport
        if client is not None:
            if api_key is not None or self._headers or base_url != self.default_url or timeout_s != TIMEOUT_S:
                own = "base_url, api_key, headers or timeout_s"
                msg = f"expected no {own} beside client, which has its own; leave them out"
                raise ConfigurationError(msg)
            self._transport = SdkTransport(client)
        else:
            from ._http import HttpTransport  # a model that has a client needs no httpx2

            self._transport = HttpTransport(checked_url(base_url), timeout_s)
        self._has_client = client is not None

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """
        Answer *request*.

        Raises:
            NotSupportedError: It asks for what the provider does not have; nothing was sent.
            ModelError: The provider has failed; its subclasses say how.
        """
        wire, config = self._wire, request.config
        outgoing = wire.outgoing(request, self._model_of(request), stream)
        has_begun, request_id = False, None
        try:
            async with self._ask(outgoing, config, stream) as (answer, request_id):
                assembler = wire.assembler(thinking_of(config).is_shown is not False)
                if not stream or _is_json(answer.headers):
                    assembler.feed_whole(await _whole_body(answer))
                    yield assembler.response(request_id)
                    return
                async with _events_of(answer, assembler) as events:
                    async for event in events:
                        parts = assembler.feed(event)
                        if parts:
                            has_begun = True
                            yield _fragment(parts)
                        if assembler.is_through:
                            break
                if not assembler.is_done:
                    raise cut_off()
                parts = assembler.end()
                if parts:
                    yield _fragment(parts)
                await answer.drain()
                yield assembler.response(request_id)
        except ModelError as error:
            error.has_begun = has_begun
            error.request_id = error.request_id or request_id
            raise

    async def aclose(self) -> None:
        """Close the connections, when the requests that are going on have ended; the next request opens new ones."""
        await self._transport.aclose()

    def _model_of(self, request: LlmRequest) -> str:
        return (request.model if request.model not in (None, self.name) else self.model) or self.name

    @asynccontextmanager
    async def _ask(
        self, outgoing: Outgoing, config: GenerateContentConfig, stream: bool = False
    ) -> AsyncIterator[tuple[Answer, str | None]]:
        """
        Send a request, with the key; the block has the response, whose status is one of success, and its request id.

        Raises:
            ModelError: The provider has failed, or the block has raised this; its message does not have the key.
        """
        key = None if self._key is None else await current_key(self._key)
        headers = {} if self._has_client else {**self._wire.headers(key), **self._headers}
        outgoing = outgoing._replace(headers={**headers, **outgoing.headers})
        milliseconds = config.http_options.timeout if config.http_options is not None else None
        timeout_s = milliseconds / 1000 if milliseconds is not None else None
        redactor = Redactor(key, self._headers)
        with redactor:
            async with self._transport.ask(outgoing, stream, timeout_s) as answer:
                if not 200 <= answer.status < 300:
                    raise self._wire.failure(answer.status, answer.headers, await answer.body())
                yield answer, redactor.value(answer.headers.get(self._wire.request_id_header))

    async def _posted(self, outgoing: Outgoing, request: LlmRequest) -> Mapping[str, Any]:
        """
        What the provider answers to another request than for an answer of the model: a JSON object.

        Raises:
            ModelError: The provider has failed; its subclasses say how.
        """
        async with self._ask(outgoing, request.config) as (answer, _):
            return await _whole_body(answer)


@asynccontextmanager
async def _events_of(answer: Answer, assembler: Assembler) -> AsyncIterator[AsyncGenerator[Mapping[str, Any], None]]:
    """The events of a stream, closed at the end. What is lost once the answer has ended by its own sign is no loss."""
    try:
        async with aclosing(answer.events()) as events:
            yield events
    except (ModelConnectionError, ModelTimeoutError):
        if not assembler.is_done:
            raise


def _fragment(parts: list[Part]) -> LlmResponse:
    """The fragment that shows these parts, which the assembler has made: nothing in it is to be checked."""
    content: Content = MAKE[Content](role="model", parts=FrozenTuple(parts))
    fragment: LlmResponse = MAKE[LlmResponse](content=content, partial=True)
    return fragment


def _is_json(headers: Mapping[str, str]) -> bool:
    """Whether a response is no stream, though one was asked for: some servers have none, or not for everything."""
    return headers.get("content-type", "").startswith("application/json")


class Redactor:
    """
    Removes the secrets of a request from the provider's error texts.

    Some servers repeat what they received, and errors are logged and stored. `with redactor:` removes the secrets from
    each ModelError that leaves the block, also where they are percent-encoded or within base64.

    Args:
        key: The key; None if the request has none.
        headers: The program's own headers. A header with a name such as `api-key` or `authorization` holds a secret.
    """

    def __init__(self, key: str | None, headers: Mapping[str, str]) -> None:
        # A server can repeat only the second word of `Bearer abc`. A short word can be a part of an ordinary one.
        found = {
            word
            for name, value in headers.items()
            if _SECRET_HEADER.search(name)
            for word in (value, *value.split())
            if len(word) >= SECRET_CHARS_MIN
        }
        self._secrets = found | ({key} if key else set())

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        for form in self._forms:
            text = text.replace(form, "[the key]")
        return text

    @cached_property
    def _forms(self) -> list[str]:
        """The secrets as texts can have them, the longest first."""
        found = {form for secret in self._secrets for form in (secret, *_forms_of(secret))}
        return sorted(found, key=len, reverse=True)

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.value(item) for name, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, (list, tuple)) else value

    def response(self, response: LlmResponse) -> LlmResponse:
        """Return a live response without the secrets in its error and its metadata; most responses have neither."""
        if response.error_code is None and response.custom_metadata is None:
            return response
        names = ("error_code", "error_message", "custom_metadata")
        return attrs.evolve(response, **{name: self.value(getattr(response, name)) for name in names})

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModelError):
            error.args = tuple(self.value(arg) for arg in error.args)
            error.request_id = self.value(error.request_id)


def _forms_of(secret: str) -> Iterator[str]:
    """Yield a secret in percent-encoding, and what each base64 text that it is in has of it; none of a short one."""
    if len(secret) < SECRET_CHARS_MIN:
        return
    for encoded in (quote(secret), quote(secret, safe="")):
        yield encoded
        yield re.sub("%..", lambda found: found[0].lower(), encoded)
    for before in range(3):  # bytes before it, of the three that four letters stand for
        encoded = base64.b64encode(bytes(before) + secret.encode()).decode()
        end = (before + len(secret)) * 8 // 6  # the next letter has bits of what follows
        inner = encoded[-(-before * 8 // 6) : end]
        yield inner
        yield inner.translate(str.maketrans("+/", "-_"))


async def _whole_body(answer: Answer) -> Mapping[str, Any]:
    body = await answer.body()
    found = object_of(body)
    if not found:
        raise ModelConnectionError(f"expected a JSON object as the answer, found {brief(body)}; look at base_url")
    return found


def checked_key(key: object) -> str:
    """Return a key that can stand in a header; the message of the error does not have it."""
    if isinstance(key, str) and key.isascii() and key.isprintable() and key.strip():
        return key.strip()
    found = "a text that no header can hold, or that is blank" if isinstance(key, str) else type(key).__name__
    raise ConfigurationError(f"expected api_key to be a key, or a function that returns one, found {found}")


async def current_key(key: Key) -> str:
    """Return the key to use now: the given one, or what the function returns."""
    given = key() if callable(key) else key
    return checked_key(await given if inspect.isawaitable(given) else given)


def checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    given = {} if headers is None else headers
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"expected headers to be a mapping of texts, found {brief(headers)}")
    for name, value in given.items():
        is_fine = isinstance(name, str) and isinstance(value, str) and _HEADER_NAME.fullmatch(name) is not None
        if not is_fine or not value.isascii() or not value.isprintable():
            raise ConfigurationError(f"expected headers to be texts by text, found another for {brief(name)}")
    return {name.lower(): value for name, value in given.items()}


def host_of(base_url: object) -> str:
    """Return the host in a base URL; an empty text if there is none."""
    try:
        return (urlsplit(base_url).hostname if isinstance(base_url, str) else None) or ""
    except ValueError:
        return ""


def checked_url(base_url: object) -> str:
    expected = "expected base_url to be an address such as 'http://localhost:11434/v1'"
    if not isinstance(base_url, str):
        raise ConfigurationError(f"{expected}, found {brief(base_url)}")
    try:
        url = urlsplit(base_url)
        is_fine = url.scheme in ("http", "https") and bool(url.hostname) and not _NOT_IN_URLS.search(base_url)
        is_fine = is_fine and (url.port is None or url.port > 0)
        has_key = url.username is not None or url.password is not None
    except ValueError:
        is_fine = has_key = False
    if has_key:
        raise ConfigurationError(f"{expected}, found one with a name or a password in it; write api_key=...")
    if not is_fine:
        raise ConfigurationError(f"{expected}, found {brief(base_url)}")
    return base_url.rstrip("/")
