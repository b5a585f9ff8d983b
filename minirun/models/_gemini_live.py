"""
Gemini's Live API over a websocket: what the wire module says, sent and received. Needs `minirun[live]`.

    messages of the writer ─► socket ─► server
    server ─► socket ─► reader ─► LlmResponses

Only `receive` reads from the socket, so a slow reader holds the server back. Nothing is retried here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import trio

from .._json import brief, dumps, loads
from ..errors import ConfigurationError, ModelConnectionError, ModelError, ModelTimeoutError, NotSupportedError
from ..types import Content
from ._adapter import Key, Redactor, check_access, checked_headers, checked_url, current_key
from ._base import BaseLlm, LlmRequest, LlmResponse
from ._live import BaseLlmConnection, LiveCapabilities, Realtime
from ._reading_gemini_live import GeminiLiveReader, GeminiLiveState, closed_error
from ._wire_gemini_live import GeminiLiveWire, GeminiLiveWriter, Message

if TYPE_CHECKING:
    from ._websocket import WebSocket

__all__ = ["GeminiLive", "GeminiLiveConnection"]

# The version that has all of what is generally there; some models want `v1alpha` for what they have in preview.
BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

# About ten minutes (ai.google.dev/gemini-api/docs/live-session); the server says `go_away` before.
LIFETIME_S = 600.0
# From the first packet to a session that is set up as it was asked for.
CONNECT_TIMEOUT_S = 10.0

_BEFORE_3 = re.compile(r"gemini-(live-)?[12](\D|$)")
_BASE_URL = re.compile(r"http(s?://.+)/(v[0-9][0-9a-z]*)(?:/(projects/.+))?")


class GeminiLive(BaseLlm):
    """
    A model of Google that converses, by its Live API.

        GeminiLive("gemini-2.5-flash-native-audio-preview-12-2025", api_key=key)
        GeminiLive("gemini-live-2.5-flash-native-audio", api_key=access_token,
                   base_url="https://…-aiplatform.googleapis.com/v1/projects/…/locations/…/publishers/google")

    Use it in live runs; it answers no single question. Not yet tried against the live service: no provider could be
    reached from where the tests run.

    It takes sound as PCM16 of 16 kHz and gives it in 24 kHz. What is typed to models from Gemini 3 on is answered at
    once; so a content that is not complete is held back until the one that completes it. There is no message that
    stops an answer of these models: `cancel` silences it, and the model believes that it was heard.

    Args:
        name: The provider's name of the model; one with a slash is the whole path.
        base_url: Where the API is, with its version, as for `Gemini`. Some of what models have in preview is only in
            `.../v1alpha`.
        api_key: The key, or a function, sync or async, that returns the one to use now. For Vertex AI it is an access
            token, which expires: write a function.
        ignore: Names of settings (`{"labels"}`), also of `RunConfig`, to leave out where the API does not have them.
            Without it, a connection with such a setting is refused.
        headers: More headers for every connection.
        timeout_s: How long it may take until the session is set up, in seconds; a request's `http_options.timeout`
            counts instead.
        types_in_real_time: Whether what is typed goes as real-time input; None: by the name, from Gemini 3 on.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for Google's own API.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str = BASE_URL,
        api_key: Key = None,
        ignore: Collection[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        types_in_real_time: bool | None = None,
    ) -> None:
        from . import _websocket  # noqa: F401  # so that a missing library is told here, and not by the first run

        check_access(name, api_key, timeout_s, needs_key=base_url == BASE_URL)
        super().__init__(model=name)
        if types_in_real_time not in (None, True, False):
            found = brief(types_in_real_time)
            raise ConfigurationError(f"expected types_in_real_time to be True, False or None, found {found}")
        self._url, self._project = _address_of(checked_url(base_url))
        self._key = api_key
        self._headers = checked_headers(headers)
        self._timeout_s = timeout_s
        self._types_in_real_time = types_in_real_time
        self._wire = GeminiLiveWire(ignore, is_vertex=self._project is not None)
        self._connections = count(1)

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        """
        Refuse: this model converses only.

        Raises:
            NotSupportedError: Always.
        """
        todo = "use minirun.models.gemini.Gemini for runs in text, and this one with Runner.run_live"
        raise NotSupportedError(f"the model {self.name!r} (GeminiLive) has live connections only; {todo}")

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[BaseLlmConnection]:
        """
        Converse; the block has the connection.

        Raises:
            NotSupportedError: The request asks for what the API does not have; nothing was sent.
            ModelError: There is no connection; the subclass says why. No message has the key.
        """
        from ._websocket import connected

        model = request.model or self.name
        types_in_real_time = self._types_in_real_time
        if types_in_real_time is None:
            types_in_real_time = _BEFORE_3.search(model) is None
        setup = self._wire.setup(request, self._path_of(model), types_in_real_time)
        state = GeminiLiveState(is_resumed=request.live is not None and request.live.handle is not None)
        reader = GeminiLiveReader(state, f"{next(self._connections)}")
        writer = self._wire.writer(request, state, types_in_real_time)
        options = request.config.http_options
        timeout_s = self._timeout_s if options is None or options.timeout is None else options.timeout / 1000
        key = None if self._key is None else await current_key(self._key)
        headers = {**self._wire.headers(key), **self._headers}
        redactor = Redactor(key, self._headers)
        with redactor:
            async with connected(self._url, headers=headers, timeout_s=timeout_s, closed_error=closed_error) as socket:
                connection = GeminiLiveConnection(socket, reader, writer, redactor)
                try:
                    with trio.fail_after(timeout_s):
                        await connection.begin(setup)
                except trio.TooSlowError:
                    expected = f"expected a session within {timeout_s:g} seconds"
                    raise ModelTimeoutError(f"{expected}, found a connection without one") from None
                yield connection

    def _path_of(self, model: str) -> str:
        path = model if "/" in model else f"models/{model}"
        return path if self._project is None or path.startswith("projects/") else f"{self._project}/{path}"


class GeminiLiveConnection(BaseLlmConnection):
    """
    A session of Google's. See `BaseLlmConnection`, and `GeminiLive.connect`.

    Args:
        socket: The connection.
        reader: What the server says on it.
        writer: What is said to the server.
        redactor: Removes the key from the server's errors.
    """

    capabilities = LiveCapabilities(knows_playback=True, lifetime_s=LIFETIME_S)

    def __init__(
        self, socket: WebSocket, reader: GeminiLiveReader, writer: GeminiLiveWriter, redactor: Redactor
    ) -> None:
        self._socket = socket
        self._reader = reader
        self._writer = writer
        self._redactor = redactor
        self._ready: deque[LlmResponse] = deque()  # read, or made here, and not received yet
        self._waiting = trio.CancelScope()  # around the waiting of who receives

    async def begin(self, setup: Message) -> None:
        """
        Send the setup, and wait until the server has accepted it.

        Raises:
            ModelError: It has not.
        """
        await self._socket.send(dumps(setup))
        while (data := await self._socket.next_message()) is not None:
            self._ready += self._reader.read(_object(data))
            if self._reader.is_set_up:
                return
        raise ModelConnectionError("expected setupComplete from the provider, found the connection closed")

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await self._send(self._writer.history(contents, answer))

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await self._send(self._writer.content(content, turn_complete, id))

    async def send_realtime(self, data: Realtime) -> None:
        await self._send(self._writer.realtime(data))

    def check_media(self, mime_type: str) -> None:
        """Refuse nothing: Google takes sound of any rate, and any picture."""

    async def cancel(self) -> None:
        end = self._reader.stop()
        if end:
            self._ready += end
            self._waiting.cancel()  # the end is told at once, whatever the server says
        await self._send(self._writer.cancel() if end else [])

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        with self._redactor:
            while True:
                while self._ready:
                    yield self._redactor.response(self._ready.popleft())
                with trio.CancelScope() as self._waiting:
                    data = await self._socket.next_message()
                    if data is None:
                        return
                    self._ready += self._reader.read(_object(data))

    async def aclose(self) -> None:
        self._ready.clear()
        await self._socket.aclose()

    async def _send(self, messages: list[Message]) -> None:
        if not messages:
            await trio.lowlevel.checkpoint()
        with self._redactor:
            for message in messages:
                await self._socket.send(dumps(message))


def _address_of(base_url: str) -> tuple[str, str | None]:
    """Where live connections are made, and in which project of Vertex AI."""
    parts = _BASE_URL.fullmatch(base_url)
    if parts is None:
        expected = f"expected base_url to end with a version ({BASE_URL!r}), or with a project and the publisher"
        raise ConfigurationError(f"{expected}, found {brief(base_url)}")
    host, version, project = parts.groups()
    if project is None:
        return f"ws{host}/ws/google.ai.generativelanguage.{version}.GenerativeService.BidiGenerateContent", None
    return f"ws{host}/ws/google.cloud.aiplatform.{version}.LlmBidiService/BidiGenerateContent", project


def _object(data: bytes) -> Mapping[str, object]:
    """
    The object that a message is; Google sends JSON in binary messages.

    Raises:
        ModelError: It is none.
    """
    try:
        found = loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"expected the server's messages to be JSON objects, found {brief(data)}; look at base_url")
    return found
