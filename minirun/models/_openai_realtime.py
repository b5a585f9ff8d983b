"""
OpenAI's realtime API as a model that converses. Needs `minirun[live]`.

Not yet tried against the live service: no provider could be reached from where the tests run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import trio

from .._json import brief, dumps
from ..errors import (
    ConfigurationError,
    InvalidMessageError,
    ModelConnectionError,
    ModelError,
    ModelTimeoutError,
    NotSupportedError,
)
from ..types import Content
from ._adapter import Key, Redactor, check_access, checked_headers, checked_url, current_key
from ._base import BaseLlm, LlmRequest, LlmResponse
from ._live import BaseLlmConnection, LiveCapabilities, LiveConnectConfig, Realtime
from ._reading import object_in, object_of
from ._wire import error_of
from ._wire_openai_chat import fault_in
from ._wire_openai_realtime import ClientEvent, Conversation
from ._wire_openai_session import RATE, RealtimeApi, is_image

if TYPE_CHECKING:
    from ._websocket import WebSocket

__all__ = ["OpenAIRealtime", "OpenAIRealtimeConnection"]

BASE_URL = "https://api.openai.com/v1"

# A session lasts an hour, says OpenAI.
LIFETIME_S = 3600.0
# From the first packet to a session that is set up as it was asked for.
CONNECT_TIMEOUT_S = 10.0
# What transcribes the user's speech unless the program says otherwise: OpenAI withdraws the older ones early in 2027.
TRANSCRIPTION_MODEL = "gpt-transcribe"


class OpenAIRealtime(BaseLlm):
    """
    A model that converses by voice, or by text, over OpenAI's realtime API.

        OpenAIRealtime("gpt-realtime-2", api_key=key)

    Use it in live runs; it answers no single question. Sound is PCM16 at 24 000 samples a second, both ways; sound of
    another rate is refused. A session ends with its connection, after an hour at the latest: a new connection is told
    the history, without its sound. Not yet tried against the live service.

    The API tells nobody that the microphone is off: then it is sent as much silence as it waits for. While the server
    detects the user's voice, `ActivityStart` and `ActivityEnd` are refused.

    Args:
        name: The provider's name of the model.
        base_url: Where the API is, with `/v1`; Azure's is `https://NAME.openai.azure.com/openai/v1`.
        api_key: The key, or a function, sync or async, that returns the one to use now. It is asked for each
            connection.
        ignore: Names of settings (`{"temperature"}`), also of `RunConfig`, to leave out where the API does not have
            them. Without it, a connection with such a setting is refused.
        transcription: What transcribes the user's speech, in the API's own words: `{"model": "gpt-transcribe",
            "prompt": ...}`.
        turn_detection: How the server detects the user's voice, in the API's own words: `{"type": "semantic_vad",
            "eagerness": "low"}`. None: as `RunConfig.realtime_input_config` says.
        headers: More headers for every connection.
        timeout_s: How long it may take until the session is set up, in seconds.

    Raises:
        ConfigurationError: One of them cannot be what it has to be; or there is no key for OpenAI's own API.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str = BASE_URL,
        api_key: Key = None,
        ignore: Collection[str] = (),
        transcription: Mapping[str, Any] | None = None,
        turn_detection: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        from ._websocket import connected  # a missing library is told here, and not by the first run

        check_access(name, api_key, timeout_s, needs_key=base_url == BASE_URL)
        super().__init__(model=name)
        heard_by = {"model": TRANSCRIPTION_MODEL} if transcription is None else _checked("transcription", transcription)
        turns = None if turn_detection is None else _checked("turn_detection", turn_detection)
        self._api = RealtimeApi(ignore, heard_by, turns)
        self._key = api_key
        self._headers = checked_headers(headers)
        self._url = "ws" + checked_url(base_url).removeprefix("http") + "/realtime"
        self._timeout_s = timeout_s
        self._connected = connected

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """
        Refuse: a single question is not what it is for.

        Raises:
            NotSupportedError: Always.
        """
        msg = f"the model {self.name!r} converses, and answers no single question"
        raise NotSupportedError(f"{msg}; use OpenAIResponses or OpenAIChat for those, and this one in live runs")
        yield  # so that it is what the interface says: an async generator

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[OpenAIRealtimeConnection]:
        """
        Converse; the block has the connection.

        Raises:
            NotSupportedError: The request asks for what the API does not have; nothing was sent.
            ModelError: There is no connection; its subclasses say how.
        """
        live = request.live if request.live is not None else LiveConnectConfig()
        session = self._api.session(request.config, live)
        key = None if self._key is None else await current_key(self._key)
        headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        url = f"{self._url}?model={quote(request.model or self.name, safe='')}"
        redactor = Redactor(key, self._headers)
        with redactor:
            told = {**headers, **self._headers}
            async with self._connected(url, headers=told, timeout_s=self._timeout_s) as socket:
                connection = OpenAIRealtimeConnection(socket, Conversation(session), redactor)
                try:
                    with trio.fail_after(self._timeout_s):
                        await connection.begin(session.body)
                except trio.TooSlowError:
                    expected = f"expected a session within {self._timeout_s:g} seconds"
                    raise ModelTimeoutError(f"{expected}, found a connection without one") from None
                yield connection


class OpenAIRealtimeConnection(BaseLlmConnection):
    """
    A session of OpenAI's. See `BaseLlmConnection`, and `OpenAIRealtime.connect`.

    Args:
        socket: The connection.
        conversation: What is said on it.
        redactor: Removes the key from the server's errors.
    """

    capabilities = LiveCapabilities(
        finishes_transcripts=True,
        lifetime_s=LIFETIME_S,
        input_rate=RATE,
        output_rate=RATE,
    )

    def __init__(self, socket: WebSocket, conversation: Conversation, redactor: Redactor) -> None:
        self._socket = socket
        self._conversation = conversation
        self._redactor = redactor

    async def begin(self, session: Mapping[str, Any]) -> None:
        """
        Set the session up.

        Raises:
            ModelError: The server refuses it.
        """
        await self._await_event("session.created")
        await self._send([self._conversation.update(session)])
        await self._await_event("session.updated")

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await self._send(self._conversation.history(contents))
        if answer:
            await self._send(self._conversation.want())

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await self._send(self._conversation.items_of(content, id))
        if turn_complete:
            await self._send(self._conversation.want(answers_calls=bool(content.responses)))

    async def send_realtime(self, data: Realtime) -> None:
        ends = self._conversation.ends_utterance(data)
        await self._send(self._conversation.realtime(data))
        if ends:
            await self._send(self._conversation.want())

    def check_media(self, mime_type: str) -> None:
        """
        Refuse sound of another rate, and other pictures than PNG and JPEG.

        Raises:
            InvalidMessageError: It is such a type.
        """
        super().check_media(mime_type)
        if mime_type.lower().startswith("image/") and not is_image(mime_type):
            raise InvalidMessageError(f"expected a PNG or JPEG picture, found {brief(mime_type)}; convert it")

    async def cancel(self) -> None:
        await self._send(self._conversation.cancel())

    async def truncate(self, item_id: str, played_ms: int) -> None:
        await self._send(self._conversation.truncate(item_id, played_ms))

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        with self._redactor:
            while (data := await self._socket.next_message()) is not None:
                responses, events = self._conversation.take(_event_of(data))
                for event in events:
                    self._socket.post(dumps(event))  # a receiver does not wait for the line
                for response in responses:
                    yield self._redactor.response(response)

    async def aclose(self) -> None:
        await self._socket.aclose()

    async def _send(self, events: Iterable[ClientEvent]) -> None:
        with self._redactor:
            self._socket.check_open()
            for event in events:
                await self._socket.send(dumps(event))

    async def _await_event(self, kind: str) -> None:
        """Receive until such an event comes."""
        while (data := await self._socket.next_message()) is not None:
            event = _event_of(data)
            if event.get("type") == "error":
                error = fault_in(object_in(event.get("error")))
                raise error_of(error, error.status or 400, {}, "x-request-id")
            self._conversation.take(event)
            if event.get("type") == kind:
                return
        raise ModelConnectionError(f"expected {kind} from the provider, found the connection closed")


def _event_of(data: bytes) -> Mapping[str, Any]:
    event = object_of(data)
    if not event:
        raise ModelError(f"expected the provider's events to be JSON objects, found {brief(data)}")
    return event


def _checked(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigurationError(f"expected {name} to be an object as the API has it, found {brief(value)}")
    return dict(value)
