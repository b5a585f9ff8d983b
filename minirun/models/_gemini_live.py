"""
Gemini's Live API over a websocket: what the wire module says, sent and received. Needs `minirun[live]`.

    messages of the writer ─► socket ─► server
    server ─► socket ─► reader ─► LlmResponses

Nothing is read from the socket but by whoever receives: a slow reader holds the server back. Nothing is retried here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import trio

from .._json import brief, dumps, is_seconds, loads
from ..errors import ConfigurationError, ModelConnectionError, ModelError, ModelTimeoutError, NotSupportedError
from ..types import Content, FunctionDeclaration
from ._adapter import Key, checked_headers, checked_key, checked_url, current_key, hide, host_of
from ._base import BaseLlm, LlmRequest, LlmResponse
from ._live import BaseLlmConnection, LiveCapabilities, Realtime
from ._reading_gemini_live import GeminiLiveReader, GeminiLiveState, closed_error
from ._websocket import CONNECT_TIMEOUT_S, WebSocket, connected
from ._wire_gemini_live import GeminiLiveWire, GeminiLiveWriter, Message

__all__ = ["LIVE_URL", "GeminiLive"]

LIVE_URL = "wss://generativelanguage.googleapis.com/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"

# About ten minutes (ai.google.dev/gemini-api/docs/live-session); the server says `go_away` before.
LIFETIME_S = 600.0

_BEFORE_3 = re.compile(r"gemini-(live-)?[12](\D|$)")
_VERTEX_HOST = "aiplatform.googleapis.com"


class GeminiLive(BaseLlm):
    """
    A model of Google that converses, by its Live API.

        GeminiLive("gemini-2.5-flash-native-audio-preview-12-2025", api_key=key)
        GeminiLive("projects/…/locations/…/publishers/google/models/gemini-live-2.5-flash-native-audio",
                   base_url="wss://…-aiplatform.googleapis.com/ws/google.cloud.aiplatform.v1.LlmBidiService/"
                            "BidiGenerateContent",
                   api_key=access_token)

    Not yet tried against the live service: no provider could be reached from where the tests run.

    It takes sound as PCM16 of 16 kHz and gives it in 24 kHz. What is typed to models from Gemini 3 on is answered at
    once; so a content that is not complete is held back until the one that completes it. There is no message that
    stops an answer of these models: `cancel` silences it, and the model believes that it was heard.

    Args:
        name: The provider's name of the model; one with a slash is the whole path.
        base_url: Where the API is, with its version; some models want `v1alpha` for what they have in preview.
        api_key: The key, or a function, sync or async, that returns the one to use now. For Vertex AI it is an access
            token, which expires: write a function.
        ignore: Names of settings (`{"labels"}`) to leave out where the API does not have them. Without it, a request
            with such a setting is refused.
        headers: More headers for every connection.
        timeout_s: How long the server may take until it has accepted the setup, in seconds; a request's
            `http_options.timeout` counts instead.
        types_in_real_time: Whether what is typed goes as real-time input; None: by the name, from Gemini 3 on.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for Google's own API.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str = LIVE_URL,
        api_key: Key = None,
        ignore: Collection[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        types_in_real_time: bool | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ConfigurationError(f"expected the provider's name of a model, found {brief(name)}")
        super().__init__(model=name)
        if not is_seconds(timeout_s, above=0):
            raise ConfigurationError(f"expected timeout_s to be a number of seconds above 0, found {brief(timeout_s)}")
        if types_in_real_time not in (None, True, False):
            found = brief(types_in_real_time)
            raise ConfigurationError(f"expected types_in_real_time to be True, False or None, found {found}")
        if api_key is not None and not callable(api_key):
            checked_key(api_key)
        if api_key is None and base_url == LIVE_URL:
            msg = "expected api_key, found none; write api_key=..., which may be a function; no variable is read"
            raise ConfigurationError(msg)
        self._url = checked_url(base_url, LIVE_URL, ("ws", "wss"))
        self._key = api_key
        self._headers = checked_headers(headers)
        self._timeout_s = timeout_s
        self._types_in_real_time = types_in_real_time
        self._is_vertex = host_of(base_url).endswith(_VERTEX_HOST)
        self._wire = GeminiLiveWire(ignore, self._is_vertex)

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
        Converse; the server has accepted the setup when the block begins, and the connection is closed at its end.

        Of the request's `contents` only counts whether there are any: a server that is to be told a history has to
        know it from the start.

        Raises:
            NotSupportedError: The request asks for what the API does not have; nothing was sent.
            ModelError: There is no connection; the subclass says why. No message has the key.
        """
        model = (request.model if request.model not in (None, self.name) else self.model) or self.name
        types_in_real_time = self._types_in_real_time
        if types_in_real_time is None:
            types_in_real_time = _BEFORE_3.search(model) is None
        setup = self._wire.setup(request, model, types_in_real_time)
        state = GeminiLiveState(is_resumed=request.live is not None and request.live.handle is not None)
        writer = self._wire.writer(request, state, types_in_real_time)
        options = request.config.http_options
        timeout_s = self._timeout_s if options is None or options.timeout is None else options.timeout / 1000
        key = None if self._key is None else await current_key(self._key)
        headers = {**self._wire.headers(key), **self._headers}
        try:
            async with connected(self._url, headers=headers, timeout_s=timeout_s, closed_error=closed_error) as socket:
                takes_interim_results = not self._is_vertex and not types_in_real_time
                connection = _Connection(socket, GeminiLiveReader(state), writer, takes_interim_results)
                await connection.set_up(setup, timeout_s)
                yield connection
        except ModelError as error:
            hide(error, key)
            raise


class _Connection(BaseLlmConnection):
    """A connection whose socket is open. A message goes out whole, or the connection is of no more use."""

    def __init__(
        self, socket: WebSocket, reader: GeminiLiveReader, writer: GeminiLiveWriter, takes_interim_results: bool
    ) -> None:
        self.capabilities = LiveCapabilities(
            resumes=True,
            cancels_calls=True,
            knows_playback=True,
            answers_by_itself=True,
            takes_interim_results=takes_interim_results,
            lifetime_s=LIFETIME_S,
        )
        self._socket = socket
        self._messages = socket.receive()
        self._reader = reader
        self._writer = writer
        self._early: list[LlmResponse] = []  # what has come before, or with, the word that the setup is accepted

    async def set_up(self, setup: Message, timeout_s: float) -> None:
        """Send the setup, and wait until the server has accepted it."""
        try:
            with trio.fail_after(timeout_s):
                await self._socket.send(dumps(setup))
                async for data in self._messages:
                    self._early += self._reader.read(_object(data))
                    if self._reader.is_set_up:
                        return
        except trio.TooSlowError:
            msg = f"expected the provider to accept the setup within {timeout_s:g} seconds, found no answer"
            raise ModelTimeoutError(msg) from None
        raise ModelConnectionError("expected the provider to accept the setup, found the connection closed")

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await self._send(self._writer.history(contents, answer))

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await self._send(self._writer.content(content, turn_complete, id))

    async def send_realtime(self, data: Realtime) -> None:
        await self._send(self._writer.realtime(data))

    async def cancel(self) -> None:
        await self._send(self._writer.cancel())

    async def update(self, system_instruction: str | None, tools: Sequence[FunctionDeclaration]) -> None:
        await self._send(self._writer.update(system_instruction, tools))

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        async with aclosing(self._messages) as messages:
            early, self._early = self._early, []
            for response in early:
                yield response
            async for data in messages:
                for response in self._reader.read(_object(data)):
                    yield response

    async def aclose(self) -> None:
        await self._socket.aclose()

    async def _send(self, messages: list[Message]) -> None:
        if not messages:
            await trio.lowlevel.checkpoint()
        for message in messages:
            await self._socket.send(dumps(message))


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
