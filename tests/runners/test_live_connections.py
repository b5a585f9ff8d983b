"""Which connections of a live run are followed by another one at once, and which are failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun.errors import ModelConnectionError
from minirun.models import BaseLlm, BaseLlmConnection, LlmRequest, LlmResponse
from minirun.tools import RetryConfig
from minirun.types import Content, Part, Transcription, UsageMetadata

from ..live_client import new_runner

Lasting = tuple[float, LlmResponse | None]
"""How many seconds a connection lasts, and what the server says at its beginning."""

SPOKEN = LlmResponse(content=Content(role="model", parts=[Part(text="so")]), partial=True)
HEARD = LlmResponse(input_transcription=Transcription(text="so"))
OVER = LlmResponse(turn_complete=True)
STARTED = LlmResponse(speech_started=True)
USED = LlmResponse(usage_metadata=UsageMetadata(prompt_token_count=1))


class Ending(BaseLlm):
    """A model whose connections end as planned; the one after them lasts."""

    name = "ending"

    def __init__(self, lines: Sequence[Lasting], *, breaks: bool) -> None:
        self.lines = lines
        self.breaks = breaks
        self.opened: list[float] = []

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        raise NotImplementedError

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[BaseLlmConnection]:
        await trio.lowlevel.checkpoint()
        self.opened.append(trio.current_time())
        yield EndingLine(self, len(self.opened) - 1)


class EndingLine(BaseLlmConnection):
    """A connection of such a model."""

    def __init__(self, model: Ending, number: int) -> None:
        self._model = model
        self._number = number

    async def send_history(self, contents: Any, *, answer: bool) -> None:
        await trio.lowlevel.checkpoint()

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        await trio.lowlevel.checkpoint()

    async def send_realtime(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        seconds, response = [*self._model.lines, (float("inf"), None)][self._number]
        if response is not None:
            yield response
        await trio.sleep(seconds)
        if self._model.breaks:
            raise ModelConnectionError("it broke")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def waits_of(model: Ending, **fields: Any) -> list[float]:
    """How long after the end of each connection another one was opened, in seconds; a run that fails has no more."""
    async with new_runner(model, **fields) as runner:
        with trio.move_on_after(200):
            try:
                async with runner.run_live(user_id="u", session_id="s") as live:
                    async for _ in live:
                        pass
            except ModelConnectionError:
                pass
    ends = [began + seconds for began, (seconds, _) in zip(model.opened, model.lines, strict=False)]
    return [round(began - end, 6) for began, end in zip(model.opened[1:], ends, strict=False)]


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
@pytest.mark.parametrize(
    ("lines", "followed"),
    [
        ([(2.0, None)], 0),
        ([(9.9, None)], 0),
        ([(10.0, None)], 1),  # so long is of use, even if nobody has said anything
        ([(2.0, SPOKEN)], 1),
        ([(2.0, HEARD)], 1),
        ([(2.0, OVER)], 1),
        ([(2.0, STARTED)], 0),  # it may be noise
        ([(2.0, USED)], 0),
        ([(2.0, SPOKEN), (2.0, None)], 1),  # what one was of use for says nothing of the next one
        ([(0.9, SPOKEN)] * 7, 5),
        ([(1.0, SPOKEN)] * 7, 7),
        ([(0.9, SPOKEN)] * 5 + [(1.0, SPOKEN)] + [(0.9, SPOKEN)] * 6, 11),
    ],
)
async def test_connections_of_use_are_followed_at_once(
    lines: list[Lasting], followed: int, breaks: bool, autojump_clock: MockClock
) -> None:
    """Over which something was said, or that were there for long, unless one after the other is gone in a moment."""
    assert await waits_of(Ending(lines, breaks=breaks), model_retry=None) == [0.0] * followed


async def test_attempts_are_counted_from_the_last_connection_of_use(autojump_clock: MockClock) -> None:
    """Two that are of none are waited for, longer each time; after one that is the waits begin anew."""
    retry = RetryConfig(max_attempts=3, initial_delay=1.0, backoff_factor=3.0, jitter=0)
    bad, good = (2.0, None), (2.0, SPOKEN)
    waits = await waits_of(Ending([bad, bad, good, bad, bad, bad, good], breaks=True), model_retry=retry)
    assert waits == [1.0, 3.0, 0.0, 1.0, 3.0]
