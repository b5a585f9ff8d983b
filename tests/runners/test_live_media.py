"""Sound and pictures that a model does not take: who sends them is told so there, and the conversation goes on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import LiveRequestQueue
from minirun.errors import InvalidMessageError
from minirun.models import BaseLlmConnection
from minirun.models._gemini_live import GeminiLiveConnection
from minirun.models._openai_realtime import OpenAIRealtimeConnection
from minirun.runners import LiveRun
from minirun.testing import ScriptedLive, pause, say
from minirun.types import Blob

from ..live_client import both, conversing, new_runner, sent_of

RATES = {"gemini": 16000, "openai": 24000}
OTHER = Blob(data=bytes(320), mime_type="audio/pcm;rate=8000")


async def by_run(live: LiveRun) -> None:
    await live.send_audio(OTHER.data, rate=8000)


async def by_realtime(live: LiveRun) -> None:
    await live.send_realtime(OTHER)


async def by_queue(live: LiveRun) -> None:
    live._shared.queue.send_realtime(OTHER)


@both
@pytest.mark.parametrize("send", [by_run, by_realtime, by_queue])
async def test_sound_of_another_rate_is_refused_where_it_is_sent(
    dialect: Any, send: Any, autojump_clock: MockClock
) -> None:
    """The error says what the model takes; nothing is sent, and the conversation goes on."""
    model = ScriptedLive([say("Yes?")], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.until(lambda event: event.live)
        with pytest.raises(InvalidMessageError, match=f"rate={RATES[dialect]}' .*found 'audio/pcm;rate=8000'"):
            await send(client.live)
        assert (await client.ask("hello")).text == "Yes?"
    assert client.failure is None
    assert not sent_of(model, "audio")


@both
async def test_sound_is_measured_by_the_line_that_it_goes_over(dialect: Any, autojump_clock: MockClock) -> None:
    """Sound that tells no rate, or the one that is wanted, is sent."""
    model = ScriptedLive([[pause(1)]], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.until(lambda event: event.live)
        for mime_type in ("audio/pcm", f"audio/pcm; rate={RATES[dialect]}"):
            await client.live.send_realtime(Blob(data=bytes(320), mime_type=mime_type))
        await trio.sleep(1)
    assert client.failure is None
    assert len(sent_of(model, "audio")) == 2


@pytest.mark.parametrize(
    ("connection", "mime_type", "found"),
    [
        (OpenAIRealtimeConnection, "audio/pcm;rate=16000", "rate=24000"),
        (OpenAIRealtimeConnection, "audio/pcm;rate=24000", ""),
        (OpenAIRealtimeConnection, "image/gif", "PNG or JPEG"),
        (OpenAIRealtimeConnection, "image/jpg", ""),
        (GeminiLiveConnection, "audio/pcm;rate=8000", ""),
        (GeminiLiveConnection, "image/webp", ""),
    ],
)
def test_adapters_say_what_they_take(connection: type[BaseLlmConnection], mime_type: str, found: str) -> None:
    """OpenAI takes one rate, PNG and JPEG; Google any rate and any picture."""
    line = object.__new__(connection)
    if not found:
        line.check_media(mime_type)
        return
    with pytest.raises(InvalidMessageError, match=found):
        line.check_media(mime_type)


@both
async def test_sound_that_names_two_rates_is_refused_where_it_is_sent(dialect: Any, autojump_clock: MockClock) -> None:
    """Nobody could know which is meant; the run goes on."""
    model = ScriptedLive([[pause(1)]], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner) as client:
        with pytest.raises(InvalidMessageError, match="convert the audio"):
            mime_type = f"audio/pcm;rate={RATES[dialect]};rate=8000"
            await client.live.send_realtime(Blob(data=bytes(320), mime_type=mime_type))
    assert client.failure is None


@both
async def test_audio_of_another_rate_before_the_first_connection_fails_the_run(
    dialect: Any, autojump_clock: MockClock
) -> None:
    """What the model takes is not known when it is sent, so the run raises the error that sending would raise."""
    queue = LiveRequestQueue()
    queue.send_realtime(OTHER)
    async with new_runner(ScriptedLive([], dialect=dialect)) as runner:
        with pytest.raises(InvalidMessageError, match="rate=8000"):
            async with runner.run_live(user_id="u", session_id="s", live_request_queue=queue) as live:
                async for _ in live:
                    pass
