"""The line of a live run: connections that end or are left, what is sent again, and what is held in memory."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from minirun import LiveRequestQueue, RunConfig
from minirun.errors import ModelConnectionError, ModelRequestError
from minirun.testing import LiveSent, ScriptedLive, call, drop, handle, pause, say
from minirun.testing._live_dialects import DIALECTS, DialectName
from minirun.types import Blob, SessionResumptionConfig

from ..live_client import both, conversing, is_sound, lines, new_runner, sent_of, stored


async def slow() -> str:
    """Take a second."""
    await trio.sleep(1)
    return "R"


def answers(sent: LiveSent) -> Any:
    """A model that calls when it is told to, and else repeats what it is told last."""
    if sent.kind == "responses" or "has returned" in sent.text or "R" in sent.text:
        return say("done")
    return call("slow") if sent.text == "call" else [say(f"yes, {sent.text}"), pause(0.5)]


@both
async def test_quiet_connections_are_renewed_for_ever(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A connection is left after 80 % of its lifetime, also where nobody has said a word on it or the one before."""
    capabilities = attrs.evolve(DIALECTS[dialect].capabilities, lifetime_s=100.0)
    model = ScriptedLive([say("still here")], dialect=dialect, live_capabilities=capabilities)
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(idle_s=None)) as client:
            await trio.sleep(1000)
            await client.ask("hello?")
        log = lines(await stored(runner), connections=True)
    assert client.failure is None
    assert log == ["[start]", *["[lifetime]"] * 12, "user: hello?", "root: still here"]


@both
@pytest.mark.parametrize("has_handle", [True, False], ids=["handle", "no handle"])
@pytest.mark.parametrize("place", ["listening", "thinking", "speaking", "calling"])
async def test_a_drop_loses_nothing_wherever_it_happens(
    dialect: DialectName, place: str, has_handle: bool, autojump_clock: MockClock
) -> None:
    """
    A content is told to the server's new connection exactly once: as history, or again, unless the server has it.

    The conversation goes on, and each call has one response.
    """
    if has_handle and dialect == "openai":
        pytest.skip("this server has no handles")
    first: list[Any] = [[handle("h1")]] if has_handle else []
    model = ScriptedLive(answers, dialect=dialect, on_connect=first)
    async with new_runner(model, tools=[slow]) as runner:
        async with conversing(runner) as client:
            await client.until(lambda event: event.live and "connection" in event.live)
            if place == "listening":
                await client.ask("a")
                await trio.sleep(5)
                model.play(drop(1006))
            elif place == "calling":
                await client.live.send_text("call")
                await client.until(lambda event: event.get_function_calls())
                model.play(drop(1006))
            else:
                await client.live.send_text("a")
                if place == "speaking":
                    await client.until(is_sound)
                else:
                    await client.until(lambda event: event.text == "a")
                model.connections[-1]._lose(1006)
                model.connections[-1]._wake_up()
            await client.until(lambda event: event.live and event.live.get("reason") == "lost")
            await trio.sleep(10)
            await client.ask("b")
        log = lines(await stored(runner))
    assert client.failure is None
    assert log[-2:] == ["user: b", "root: yes, b"]
    told = [each for each in sent_of(model, "content", "history") if each.connection == 2]
    texts = [text for each in told for text in ([one.text for one in each.contents] or [each.text])]
    assert texts.count("a") <= 1
    assert texts.count("b") == 1
    assert len(model.connections) == 2
    if place == "calling":
        assert log[:4] == ["user: call", "root: slow()", "root: slow=R", "root: done"]


async def test_a_run_may_begin_with_a_handle(autojump_clock: MockClock) -> None:
    """`session_resumption` names the server's session to begin with: it is told no history."""
    model = ScriptedLive([say("again")], handles=["h0"])
    config = RunConfig(session_resumption=SessionResumptionConfig(handle="h0"))
    async with new_runner(model) as runner, conversing(runner, run_config=config) as client:
        await client.ask("hi")
    assert model.requests[0].live is not None
    assert model.requests[0].live.handle == "h0"
    assert not sent_of(model, "history")


@both
async def test_a_first_connection_that_fails_is_tried_again(dialect: DialectName, autojump_clock: MockClock) -> None:
    """With `model_retry` the first connection is tried again with what it was asked for; what is no drop is raised."""
    begins: list[Any] = [[ModelConnectionError("busy")]]
    handles = ["h0"] if dialect == "gemini" else []
    model = ScriptedLive([say("hello")], dialect=dialect, on_connect=begins, handles=handles)
    config = RunConfig(session_resumption=SessionResumptionConfig(handle="h0")) if handles else None
    async with new_runner(model, model_retry="standard") as runner, conversing(runner, run_config=config) as client:
        await client.ask("hi")
    assert [request.live.handle for request in model.requests if request.live] == [handles[0] if handles else None] * 2
    refused = ScriptedLive([], dialect=dialect, on_connect=[[ModelRequestError("no such model", status=404)]])
    async with new_runner(refused, model_retry="standard") as runner, conversing(runner) as client:
        await client.hear_out()
    assert isinstance(client.failure, ModelRequestError)
    assert len(refused.requests) == 1


@both
async def test_old_sound_is_dropped_and_counted_while_there_is_no_connection(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """Of the user's sound meanwhile the newest two seconds are sent, and the rest is counted."""
    begins: list[Any] = [[], [ModelConnectionError("busy")], [ModelConnectionError("busy")]]
    model = ScriptedLive([say("hi")], dialect=dialect, on_connect=begins)
    queue = LiveRequestQueue()
    async with new_runner(model, model_retry="standard") as runner:
        async with conversing(runner, live_request_queue=queue) as client:
            await client.ask("hello")
            await trio.sleep(5)
            model.play(drop(1006))
            await client.until(lambda event: event.partial and event.custom_metadata)
            rate = model.live_capabilities.input_rate
            for _ in range(50):
                queue.send_realtime(Blob(data=bytes(rate // 5), mime_type=f"audio/pcm;rate={rate}"))
            await client.until(lambda event: event.live and event.live.get("reason") == "lost")
            await trio.sleep(1)
    assert len(sent_of(model, "audio")) == 20
    assert queue.dropped_audio_ms == 3000


@both
@pytest.mark.parametrize("audio", [True, False], ids=["sound", "text"])
async def test_a_client_that_never_reads_holds_the_server_back(
    dialect: DialectName, audio: bool, autojump_clock: MockClock
) -> None:
    """However much a model says, what waits for a client that does not read is bounded; the server is not read."""
    model = ScriptedLive([[say("word " * 20_000)]], dialect=dialect, word_ms=10)
    config = RunConfig(response_modalities=["AUDIO" if audio else "TEXT"], partial_buffer=16, idle_s=None)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s", run_config=config) as live:
            await live.send_text("speak")
            async for event in live:
                if event.partial:
                    break_at = trio.current_time() + 1000
                    await trio.sleep_until(break_at)
                    assert live._line.talk is not None
                    held = len(live._line.talk.inbox._items)
                    assert held <= 1000
                    assert live._invocation is not None
                    assert len(live._invocation.committer._queue) < 40
                    break


@both
async def test_a_microphone_that_never_stops_is_bounded(dialect: DialectName, autojump_clock: MockClock) -> None:
    """While a slow line takes nothing, sound piles up to the bound of the queue and no further, and is counted."""
    queue = LiveRequestQueue(audio_s_max=2.0)
    model = ScriptedLive([say("hi")], dialect=dialect, on_connect=[[ModelConnectionError("busy")]] * 2)
    rate = model.live_capabilities.input_rate
    async with new_runner(model, model_retry="standard") as runner:
        async with conversing(runner, live_request_queue=queue) as client:
            for _ in range(1000):
                queue.send_realtime(Blob(data=bytes(rate // 5), mime_type=f"audio/pcm;rate={rate}"))
                assert queue.audio_ms <= 2000
            await client.until(lambda event: event.live and "connection" in event.live)
            await client.ask("hello")
    told = sum(event.live.get("dropped_input_ms", 0) for event in client.events if event.live)
    assert told == queue.dropped_audio_ms == 98_000
    assert sum(len(each.data.data) for each in sent_of(model, "audio") if each.data) == rate * 2 * 2
