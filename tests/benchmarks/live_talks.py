"""
What a piece of sound costs in a live run, beside the floor: the same tasks and pieces, over memory channels alone.

Of each conversation a microphone sends so many pieces and, at the same time, an answer comes in as many, which the
caller reads; a piece is 10 ms. The model does nothing but count them. Processor time of this process, for a pair: one
piece in and one out. A session is opened and closed, and four events of each are stored, in that time, too.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import trio

from minirun import InMemoryRunner, LlmAgent
from minirun.models import BaseLlm, BaseLlmConnection, LlmRequest, LlmResponse
from minirun.types import Blob, Content, Part

from .measuring import Row, Work, measure
from .scale import Scale

__all__ = ["live_talks"]

SESSIONS, PIECES = 100, 300
WANTED = 10_000  # pairs a second on one core: 100 conversations, with a piece every 10 ms in and out
PIECE = b"\1\0" * 240
WAITING_MAX = 16  # pieces in a channel of the floor


class Line(BaseLlmConnection):
    """A connection over which so many pieces come, as fast as they are read."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.sent = 0

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        await trio.lowlevel.checkpoint()

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await trio.lowlevel.checkpoint()

    async def send_realtime(self, data: object) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += 1

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        for _ in range(self.pieces):
            await trio.lowlevel.checkpoint()
            part = Part(inline_data=Blob(data=PIECE, mime_type="audio/pcm;rate=24000"))
            yield LlmResponse(content=Content(role="model", parts=[part]), partial=True)
        yield LlmResponse(turn_complete=True)
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Counting(BaseLlm):
    """A model of such connections."""

    name = "counting"

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[Line]:
        await trio.lowlevel.checkpoint()
        yield Line(self.pieces)

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        raise NotImplementedError


async def talk(runner: InMemoryRunner, pieces: int, number: int) -> None:
    """A conversation."""
    heard = 0
    async with runner.run_live(user_id="u", session_id=f"s{number}") as live, trio.open_nursery() as nursery:

        async def microphone() -> None:
            for _ in range(pieces):
                await live.send_audio(PIECE, rate=16000)
            await live.aclose()

        nursery.start_soon(microphone)
        async for event in live:
            heard += bool(event.audio)
    assert heard == pieces, f"expected {pieces} pieces, found {heard}"


async def floor_talk(pieces: int, number: int) -> None:
    """The same tasks, and what they hand on, without minirun."""
    line = Line(pieces)
    to_caller, of_line = trio.open_memory_channel[LlmResponse](WAITING_MAX)
    to_line, of_microphone = trio.open_memory_channel[bytes](WAITING_MAX)

    async def reader() -> None:
        async with to_caller, aclosing(line.receive()) as responses:
            async for response in responses:
                await to_caller.send(response)
                if response.turn_complete:
                    break

    async def sender() -> None:
        async for piece in of_microphone:
            await line.send_realtime(piece)

    async def microphone() -> None:
        async with to_line:
            for _ in range(pieces):
                await to_line.send(PIECE)

    heard = 0
    async with trio.open_nursery() as nursery:
        for task in (reader, sender, microphone):
            nursery.start_soon(task)
        async for response in of_line:
            heard += response.content is not None
    assert heard == line.sent == pieces, f"expected {pieces} pieces, found {heard} and {line.sent}"


async def at_once(sessions: int, conversation: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """So many conversations."""
    async with trio.open_nursery() as nursery:
        for number in range(sessions):
            nursery.start_soon(conversation, number)


async def live_talks(scale: Scale) -> list[Row]:
    """Rows for the cost of a pair, and for how many pairs a second there are."""
    sessions, pieces = min(SESSIONS, scale.crowd), min(PIECES, scale.chunks)

    async def ours() -> None:
        agent = LlmAgent(name="listener", model=Counting(pieces))
        runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
        await at_once(sessions, partial(talk, runner, pieces))

    floor = partial(at_once, sessions, partial(floor_talk, pieces))
    works = (Work("ours", ours, 1, sessions * pieces), Work("floor", floor, 1, sessions * pieces))
    times = await measure(scale.rounds, *works, clock=time.process_time)
    rates = {name: [1e6 / taken for taken in rounds] for name, rounds in times.items()}
    beside, wanted = "tasks and memory channels", f"(wanted: {WANTED})"
    return [
        Row(f"a piece in and one out, {sessions} live runs", times["ours"], beside, times["floor"]),
        Row("    such pairs a second, one core", rates["ours"], beside, rates["floor"], unit="/s", note=wanted),
    ]
