"""Sound and pictures that a model does not take: who sends them is told so there, and the conversation goes on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import LiveRequestQueue, RunConfig
from minirun.errors import InvalidMessageError
from minirun.models import BaseLlmConnection, LlmResponse
from minirun.models._gemini_live import GeminiLiveConnection
from minirun.models._openai_realtime import OpenAIRealtimeConnection
from minirun.runners import LiveRun
from minirun.testing import ScriptedLive, pause, say
from minirun.types import Blob, Content, Part

from ..live_client import both, conversing, new_runner, sent_of

RATES = {"gemini": 16000, "openai": 24000}
OTHER = Blob(data=bytes(320), mime_type="audio/pcm;rate=8000")


async def by_run(live: LiveRun) -> None:
    await live.send_audio(OTHER.data, rate=8000)


async def by_realtime(live: LiveRun) -> None:
    await live.send_realtime(OTHER)


async def by_queue(live: LiveRun) -> None:
    live._line.queue.send_realtime(OTHER)


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
async def test_sound_of_another_rate_that_was_sent_before_there_was_a_line_is_dropped_and_told(
    dialect: Any, autojump_clock: MockClock
) -> None:
    """Nobody could know before: the caller hears of it by one event, and how much was dropped by the next one."""
    model = ScriptedLive([say("Yes?")], dialect=dialect)
    queue = LiveRequestQueue()
    for _ in range(3):
        queue.send_realtime(OTHER)
    queue.send_content("hello")
    async with new_runner(model) as runner, conversing(runner, live_request_queue=queue) as client:
        answer = await client.until(lambda event: event.turn_complete)
    assert client.failure is None
    told = [event for event in client.events if event.error_code]
    assert [(event.error_code, event.partial) for event in told] == [("INVALID_MESSAGE", True)]
    assert "rate=8000" in (told[0].error_message or "")
    assert (answer.live or {})["dropped_input_ms"] == 60
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
        with pytest.raises(InvalidMessageError, match="once"):
            mime_type = f"audio/pcm;rate={RATES[dialect]};rate=8000"
            await client.live.send_realtime(Blob(data=bytes(320), mime_type=mime_type))
    assert client.failure is None


async def test_an_answer_is_recorded_at_the_rate_that_its_sound_tells(autojump_clock: MockClock) -> None:
    """It may be another one than the connection usually sends; the header of the file has it."""
    sound = Part(inline_data=Blob(data=bytes(3200), mime_type="audio/pcm;rate=16000"))
    piece = LlmResponse(content=Content(role="model", parts=[sound]), partial=True)
    model = ScriptedLive([[piece, LlmResponse(turn_complete=True)]])
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(save_live_blob=True)) as client:
            answer = await client.ask("hi")
        (name,) = answer.actions.artifact_delta
        where: dict[str, Any] = {"app_name": runner.app_name, "user_id": "u", "session_id": "s"}
        assert runner.artifact_service is not None
        saved = await runner.artifact_service.load_artifact(filename=name, **where)
    assert saved is not None
    assert saved.inline_data is not None
    assert int.from_bytes(saved.inline_data.data[24:28], "little") == 16000
