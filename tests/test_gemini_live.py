"""
The adapter of Gemini's Live API, against a server that refuses what the real one refuses.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from minirun.models.gemini import GeminiLive
from minirun.testing import LiveBench
from minirun.testing._live_contract import live_connection_checks

from .provider_servers.gemini_live import KEY, PROJECT, GeminiLiveServer, Line
from .provider_servers.sockets import websockets_at

OLD, NEW = "gemini-2.5-flash-native-audio-preview-12-2025", "gemini-3.1-flash-live-preview"
SOUND = base64.b64encode(b"\1\2" * 240).decode()  # 10 ms


@asynccontextmanager
async def served(server: GeminiLiveServer, name: str = OLD, **options: Any) -> AsyncIterator[GeminiLive]:
    """A model whose server this is."""
    async with websockets_at(server) as url:
        path = f"v1/{PROJECT}" if server.is_vertex else "v1beta"
        options = {"base_url": f"{url.replace('ws', 'http', 1)}/{path}", "api_key": KEY, **options}
        yield GeminiLive(name, **options)


# --- the contract -----------------------------------------------------------------------------------------------------


class Bench(LiveBench):
    """The server's side of the contract: it answers what is owed an answer with the next of its entries."""

    def __init__(self, model: GeminiLive) -> None:
        super().__init__(model)
        self._entries: list[tuple[str, Any]] = []

    def says(self, text: str) -> None:
        self._entries.append(("says", text))

    def calls(self, *ids: str) -> None:
        self._entries.append(("calls", ids))

    def goes_on(self) -> None:
        self._entries.append(("goes on", None))

    def hangs_up(self, *, in_order: bool) -> None:
        self._entries.append(("hangs up", in_order))

    async def play(self, line: Line) -> None:
        """Play one connection."""
        answering: trio.CancelScope | None = None
        async with trio.open_nursery() as nursery:
            while True:
                message = await line.hear()
                if _interrupts(line, message) and answering is not None and not answering.cancel_called:
                    answering.cancel()
                    await line.content(interrupted=True)
                    await line.content(turnComplete=True)
                if _asks(line, message) and self._entries:
                    answering = trio.CancelScope()
                    nursery.start_soon(self._answer, line, answering, *self._entries.pop(0))

    async def _answer(self, line: Line, scope: trio.CancelScope, kind: str, what: Any) -> None:
        with scope:
            match kind:
                case "says":
                    await _say(line, what)
                    await line.content(generationComplete=True)
                    await line.content(turnComplete=True)
                case "goes on":
                    while True:
                        await _say(line, "and on")
                        await trio.sleep(0.01)
                case "calls":
                    line.session.calls |= dict.fromkeys(what, "look")
                    calls = [{"id": call_id, "name": "look", "args": {"where": call_id}} for call_id in what]
                    await line.say(toolCall={"functionCalls": calls})
                    return
                case "hangs up" if what:
                    await line.peer.close(1000)
                case _:
                    line.peer.reset()
        scope.cancel()  # it is over


def _interrupts(line: Line, message: dict[str, Any]) -> bool:
    return "clientContent" in message or bool({"text", "activityStart"} & message.get("realtimeInput", {}).keys())


def _asks(line: Line, message: dict[str, Any]) -> bool:
    if "toolResponse" in message:
        return not line.session.calls
    if "clientContent" in message:
        return not line.is_new and bool(message["clientContent"]["turnComplete"])
    told = message.get("realtimeInput", {})
    return ("text" in told and line.detects) or "activityEnd" in told


async def _say(line: Line, text: str) -> None:
    for index, word in enumerate(text.split()):
        parts = [{"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": SOUND}}]
        spoken = {"text": word if index == 0 else f" {word}"}
        await line.content(modelTurn={"parts": parts}, outputTranscription=spoken)


@asynccontextmanager
async def bench(name: str) -> AsyncIterator[Bench]:
    made: list[Bench] = []

    async def play(line: Line) -> None:
        await made[0].play(line)

    server = GeminiLiveServer(*[play] * 100)
    async with served(server, name) as model:
        made.append(Bench(model))
        yield made[0]
    assert not server.problems


@pytest.mark.parametrize("name", [OLD, NEW])
@pytest.mark.parametrize("check", live_connection_checks().values(), ids=live_connection_checks())
async def test_it_keeps_the_contract(check: Any, name: str) -> None:
    """A connection to Gemini, before version 3 and since, promises what every live connection does."""
    await check(lambda: bench(name))
