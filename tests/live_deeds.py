"""What records of live conversations are made of: tools, and what clients and servers do, one deed after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import trio

from minirun import ToolContext
from minirun.errors import ModelConnectionError
from minirun.models import LlmRequest, LlmResponse
from minirun.runners import LiveRun
from minirun.testing import ScriptedLive, drop
from minirun.types import Blob, Content, Part, Transcription

__all__ = [
    "Deaf", "Deed", "Slow", "acting", "answering", "doing", "heard", "name_of", "over", "playing", "prices", "slow",
    "sound", "started", "stopped",
]  # fmt: skip

Deed: TypeAlias = Callable[[LiveRun], Awaitable[None]]


async def slow(n: int = 3) -> str:
    """Take so many seconds."""
    await trio.sleep(n)
    return f"after {n}"


async def prices(every: int = 1) -> AsyncGenerator[int, None]:
    """Tell three prices."""
    for price in (1, 2, 3):
        await trio.sleep(every)
        yield price


async def name_of(tool_context: ToolContext) -> str:
    """Find out a name."""
    return f"it is {await tool_context.request_input('Whose?')}"


class Slow(ScriptedLive):
    """A server for which further connections take five seconds to begin."""

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[Any]:
        """Connect."""
        await trio.sleep(5 if self.requests else 0)
        async with super().connect(request) as connection:
            yield connection


class Deaf(ScriptedLive):
    """A server whose first connection takes no items, nor what is too loud: sending that fails."""

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[Any]:
        """Connect."""
        async with super().connect(request) as connection:
            take = connection.send_content

            async def send_content(content: Content, **more: Any) -> None:
                is_item = any(each.scheduling for each in content.responses)
                if connection.number == 1 and (is_item or content.text == "too loud"):
                    if is_item:
                        self.play(drop())
                    raise ModelConnectionError("the line is bad")
                await take(content, **more)

            connection.send_content = send_content  # type: ignore[method-assign]
            yield connection


def acting(*deeds: Any) -> Deed:
    """A client that says the texts, waits for the seconds, and gives the run to the functions among *deeds*."""

    async def act(live: LiveRun) -> None:
        for deed in deeds:
            if isinstance(deed, str):
                await live.send_text(deed)
            elif callable(deed):
                await deed(live)
            else:
                await trio.sleep(deed)

    return act


def answering(value: Any, which: int = 0) -> Deed:
    """Answer what is asked."""

    async def answer(live: LiveRun) -> None:
        await live.send(live.pending[which].reply(value))

    return answer


def doing(name: str, *args: Any) -> Deed:
    """Call a method of the run."""

    async def do(live: LiveRun) -> None:
        await getattr(live, name)(*args)

    return do


def playing(model: ScriptedLive, *steps: Any) -> Deed:
    """The server says something unasked."""

    async def play(live: LiveRun) -> None:
        model.play(*steps)

    return play


def started(item_id: str | None = None) -> LlmResponse:
    """The server hears the user's voice."""
    return LlmResponse(speech_started=True, item_id=item_id)


def stopped(item_id: str | None = None) -> LlmResponse:
    """The server hears it no more."""
    return LlmResponse(speech_stopped=True, item_id=item_id)


def heard(text: str, item_id: str | None = None, *, finished: bool = False) -> LlmResponse:
    """The server has understood so much of the user."""
    return LlmResponse(input_transcription=Transcription(text=text, finished=finished or None), item_id=item_id)


def sound(ms: int, item_id: str | None = None, text: str | None = None) -> LlmResponse:
    """So much sound of an answer, and what is said in it."""
    part = Part(inline_data=Blob(data=bytes(48 * ms), mime_type="audio/pcm;rate=24000"))
    spoken = None if text is None else Transcription(text=text)
    content = Content(role="model", parts=[part])
    return LlmResponse(content=content, partial=True, output_transcription=spoken, item_id=item_id)


def over(item_id: str | None = None, *, interrupted: bool = False) -> LlmResponse:
    """The answer is over."""
    return LlmResponse(turn_complete=True, interrupted=interrupted or None, item_id=item_id)
