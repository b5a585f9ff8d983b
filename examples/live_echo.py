"""
A conversation by sound and text with a page in the browser, over a websocket: a parrot gives everything back.

Sound goes both ways in binary messages, all else is JSON: events to the page and, from it, what the user does. Whoever
presses the page's button while the parrot speaks interrupts it: the page falls silent and says how much it has played,
and so much of the answer is stored. The parrot's transcripts have a "chirp" for each quarter of a second.

The page is live_echo.html. Needs hypercorn and starlette; the argument is the port.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from minirun import InMemoryRunner, LlmAgent, RunConfig, Runner
from minirun.errors import MinirunError
from minirun.models import LiveCapabilities, LlmResponse
from minirun.runners import LiveRun
from minirun.testing import LiveSent, ScriptedLive, hear
from minirun.types import Blob, Content, Part, Transcription

RATE = 24_000  # samples a second, both ways
CHIRP_BYTES = RATE // 4 * 2  # 16 bits a sample
BUTTON = {"automatic_activity_detection": {"disabled": True}}  # the page says when the user speaks


async def converse(runner: Runner, websocket: WebSocket) -> None:
    """Serve one page until it goes."""
    await websocket.accept()
    user_id, config = websocket.query_params.get("user", "ada"), RunConfig(realtime_input_config=BUTTON)
    tell_played, played = trio.open_memory_channel[float](1)

    async def listen(live: LiveRun, scope: trio.CancelScope) -> None:
        while (message := await websocket.receive())["type"] == "websocket.receive":
            if message.get("bytes"):
                await live.send_audio(message["bytes"])
                continue
            match json.loads(message["text"]):
                case {"text": str(text)}:
                    await live.send_text(text)
                case {"speaks": True}:
                    await live.send_activity_start()
                case {"speaks": False}:
                    await live.send_activity_end()
                case {"played": ms}:
                    await tell_played.send(ms)
        scope.cancel()

    try:
        async with runner.run_live(user_id=user_id, session_id="echo", run_config=config) as live:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen, live, nursery.cancel_scope)
                async for event in live:
                    if event.partial and event.audio:
                        await websocket.send_bytes(event.audio)
                        continue
                    await websocket.send_text(event.to_json())
                    if event.partial and event.interrupted:
                        await live.played(event, await played.receive())
    except* MinirunError as errors:
        await websocket.send_json({"author": "error", "error": str(errors.exceptions[0])})


def parrot() -> ScriptedLive:
    """A live model that says what it was told."""

    def answer(sent: LiveSent) -> list[Any]:
        if sent.kind == "content":
            return [Part(text=sent.text)]
        mine = [each for each in model.sent if each.connection == sent.connection]
        model.sent[:] = [each for each in model.sent if each.connection != sent.connection]
        sound = b"".join(each.data.data for each in mine if each.kind == "audio" and each.data is not None)
        chirps = [sound[at : at + CHIRP_BYTES] for at in range(0, len(sound), CHIRP_BYTES)]
        return [hear("chirp " * len(chirps)), *map(said, chirps)]

    model = ScriptedLive(answer, live_capabilities=LiveCapabilities(knows_playback=True, input_rate=RATE))
    return model


def said(sound: bytes) -> LlmResponse:
    """A piece of an answer."""
    part = Part(inline_data=Blob(data=sound, mime_type=f"audio/pcm;rate={RATE}"))
    words = Transcription(text="chirp ")
    return LlmResponse(content=Content(role="model", parts=[part]), partial=True, output_transcription=words)


def application(runner: Runner) -> Starlette:
    """The page, and what it talks to."""
    page = FileResponse(Path(__file__).with_suffix(".html"))
    return Starlette(routes=[Route("/", page), WebSocketRoute("/live", partial(converse, runner))])


if __name__ == "__main__":
    parrots = InMemoryRunner(agent=LlmAgent(name="parrot", model=parrot()), app_name="web", auto_create_session=True)
    app: Any = application(parrots)  # their types of an app differ
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    trio.run(serve, app, config)
