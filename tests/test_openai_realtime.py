"""
Conversations over OpenAI's realtime API, with a server that refuses what the real one refuses.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from minirun.errors import (
    ConfigurationError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
    ModelTimeoutError,
    NotSupportedError,
)
from minirun.models import (
    ActivityEnd,
    ActivityStart,
    AudioStreamEnd,
    BaseLlmConnection,
    LiveConnectConfig,
    LlmRequest,
    LlmResponse,
)
from minirun.models.openai import OpenAIRealtime
from minirun.testing import LiveBench, live_connection_checks
from minirun.types import Blob, Content, FunctionCall, FunctionDeclaration, FunctionResponse, GenerateContentConfig, Part

from .provider_servers.openai_realtime import (
    KEY, Call, Close, End, Hold, RealtimeServer, Reset, Say, Send, Step, refusal,
)
from .provider_servers.sockets import websockets_at
from .test_websocket import cancelled_everywhere

PATIENCE_S = 30  # for what takes milliseconds
MANUAL = {"automatic_activity_detection": {"disabled": True}}
VOICE = b"\1\0" * 2400  # 100 ms
SILENCE = b"\0\0" * 2400


class Chat:
    """A connection, and what has come on it."""

    def __init__(self, connection: BaseLlmConnection) -> None:
        self.connection = connection
        self.responses: list[LlmResponse] = []
        self._incoming = connection.receive()

    async def until(self, found: Callable[[LlmResponse], Any]) -> LlmResponse:
        """Receive up to a response of this kind."""
        with trio.fail_after(PATIENCE_S):
            async for response in self._incoming:
                self.responses.append(response)
                if found(response):
                    return response
        raise AssertionError("the connection has ended before that")

    async def turn(self) -> LlmResponse:
        """Receive up to the end of a turn."""
        return await self.until(lambda response: response.turn_complete)

    async def say(self, text: str, **options: Any) -> None:
        await self.connection.send_content(Content(role="user", parts=[Part(text=text)]), **options)

    async def speak(self, data: bytes = VOICE) -> None:
        await self.connection.send_realtime(Blob(data=data, mime_type="audio/pcm;rate=24000"))

    def told(self, field: str) -> list[Any]:
        """What of this field came."""
        found = [getattr(response, field) for response in self.responses]
        return [value for value in found if value not in (None, (), [])]

    @property
    def said(self) -> str:
        return "".join(each.text or "" for each in self.told("output_transcription"))


def model_at(url: str, **options: Any) -> OpenAIRealtime:
    given = {"base_url": url.replace("ws://", "http://") + "/v1", "api_key": KEY} | options
    return OpenAIRealtime("gpt-realtime-2", **given)


def asked(config: GenerateContentConfig | None = None, **live: Any) -> LlmRequest:
    return LlmRequest(contents=(), config=config or GenerateContentConfig(), live=LiveConnectConfig(**live))


@asynccontextmanager
async def chatting(
    server: RealtimeServer, config: GenerateContentConfig | None = None, *, model: Any = None, **live: Any
) -> AsyncIterator[Chat]:
    """A connection to the server; nothing may be refused but what the test expects."""
    async with websockets_at(server.handle, refusal) as url:
        async with model_at(url, **(model or {})).connect(asked(config, **live)) as connection:
            yield Chat(connection)


# --- the contract -----------------------------------------------------------------------------------------------------


class Bench(LiveBench):
    """The fake server, as the contract's checks bring it to do something."""

    def __init__(self, url: str, server: RealtimeServer) -> None:
        super().__init__(model_at(url))
        self.server = server

    def says(self, text: str) -> None:
        self.server.script.append([Say(text)])

    def calls(self, *ids: str) -> None:
        self.server.script.append([Call("look", f'{{"where": "{id}"}}', id) for id in ids])

    def goes_on(self) -> None:
        self.server.script.append([Say("well let me see"), Hold()])

    def hangs_up(self, *, in_order: bool) -> None:
        self.server.script.append([Close(1000) if in_order else Reset()])


@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_the_contract_is_kept(check: Callable[[Any], Awaitable[None]]) -> None:
    """
    A realtime connection keeps the contract of all live connections, and the server has nothing to refuse.
    """
    server = RealtimeServer(heard=["hm"] * 9)

    @asynccontextmanager
    async def bench() -> AsyncIterator[Bench]:
        async with websockets_at(server.handle, refusal) as url:
            yield Bench(url, server)

    await check(bench)
    races = {"response_cancel_not_active"}  # an answer may end on its own while it is being cancelled
    assert [error for error in server.errors if error["code"] not in races] == []
