"""What comes in another order than it was said or meant: late transcripts, and calls taken back too late."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from minirun import RunConfig
from minirun.models import LlmResponse
from minirun.testing import ScriptedLive, call, cancel_calls, hear, pause, say
from minirun.testing._live_dialects import DialectName
from minirun.types import Blob, Content, FunctionCall, Part, Transcription

from ..live_client import both, conversing, lines, new_runner, sent_of, stored


def spoken(*item_ids: str) -> list[LlmResponse]:
    """The user says these utterances, one after the other."""
    return [
        response
        for item_id in item_ids
        for response in (
            LlmResponse(item_id=item_id, speech_started=True),
            LlmResponse(item_id=item_id, speech_stopped=True),
        )
    ]


def understood(item_id: str) -> LlmResponse:
    """All of an utterance is understood, which says what it is called."""
    return LlmResponse(item_id=item_id, input_transcription=Transcription(text=f"{item_id}.", finished=True))


async def test_a_call_that_is_withdrawn_before_its_result_is_told_is_not_answered(autojump_clock: MockClock) -> None:
    """The result waits for a hook of what the model says; the server takes the call back: it hears no more."""

    async def work() -> str:
        """Work for a while."""
        await trio.sleep(0.5)
        return "done"

    async def slowly(*, callback_context: object, llm_response: object) -> None:
        await trio.sleep(2)

    model = ScriptedLive([[call("work")]], word_ms=100)
    async with new_runner(model, tools=[work], after_model_callback=slowly) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("do it")
            await client.until(lambda event: event.get_function_calls())
            model.play(say("One moment."))
            await client.until(lambda event: event.get_function_responses())
            await trio.sleep(0.5)
            model.play(cancel_calls())
            await trio.sleep(10)
        assert client.failure is None
        log = await stored(runner)
    assert lines(log) == ["user: do it", "root: work()", "root: work=done", "root: One moment."]
    assert not sent_of(model, "responses")


async def test_a_call_that_is_withdrawn_while_it_waits_behind_sound_is_not_made(autojump_clock: MockClock) -> None:
    """What a slow caller has not been given yet holds calls up; one that is taken back meanwhile is never begun."""
    made: list[str] = []

    async def pay() -> str:
        """Pay, without waiting for anything."""
        made.append("pay")
        return "paid"

    burst = [say("Let me see now"), call("pay"), call("pay"), say("No, I was wrong"), cancel_calls()]
    model = ScriptedLive([burst], word_ms=250)
    async with new_runner(model, tools=[pay]) as runner:
        async with runner.run_live(user_id="u", session_id="s", run_config=RunConfig(partial_buffer=1)) as live:
            await live.send_text("go")
            async for event in live:
                await trio.sleep(0.25)
                if event.get_function_responses():
                    await live.aclose(finish_turn_s=5)
        log = await stored(runner)
    assert not made
    assert [response.response["error"]["type"] for event in log for response in event.get_function_responses()] == [
        "cancelled"
    ] * 2
    assert not sent_of(model, "responses")


async def test_a_withdrawal_in_the_message_of_its_call_holds(autojump_clock: MockClock) -> None:
    """A server may make a call and take it back in one breath, as it may name one that nobody knows."""
    made: list[str] = []

    async def pay(what: str) -> str:
        """Pay."""
        made.append(what)
        return "paid"

    def asked(call_id: str, *withdrawn: str) -> LlmResponse:
        part = Part(function_call=FunctionCall(id=call_id, name="pay", args={"what": call_id}))
        return LlmResponse(content=Content(role="model", parts=[part]), cancelled_calls=withdrawn)

    model = ScriptedLive([[asked("one", "one", "nobody"), asked("two")], say("Done.")])
    async with new_runner(model, tools=[pay]) as runner, conversing(runner) as client:
        await client.ask("go")
    assert client.failure is None
    assert made == ["two"]


@both
async def test_what_was_said_last_is_answered_though_the_run_is_closed_at_once(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """Who says that the microphone is off, and closes, leaves the server the time to notice what was said."""
    model = ScriptedLive([[hear("bye"), say("Bye.")]], dialect=dialect, word_ms=10)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.live.send_audio(b"\1" * 3200)
            await client.live.send_audio_stream_end()
        log = await stored(runner)
    assert client.failure is None
    assert lines(log) == ["user: bye", "root: Bye."]


@pytest.mark.parametrize(
    ("deeds", "seconds"),
    [
        ([], 0.0),
        (["end"], 0.0),
        (["sound"], 0.0),  # without an end of it nobody knows when to stop to wait
        (["sound", "end"], 2.0),
        (["picture", "end"], 0.0),
        (["sound", "picture", "end"], 2.0),
        (["sound", "end", "pause", "end"], 1.5),  # of which the second one ends nothing
        (["sound", "end", "pause", "sound", "end"], 2.0),
    ],
)
async def test_closing_leaves_a_server_time_to_notice_sound(
    deeds: list[str], seconds: float, autojump_clock: MockClock
) -> None:
    """Two seconds from the end of sound, if there was any; a server that has noticed nothing by then is left."""
    model = ScriptedLive([[pause(100)], [pause(100)]], dialect="gemini")
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.until(lambda event: event.live)
        for deed in deeds:
            if deed == "sound":
                await client.live.send_audio(bytes(3200))
            elif deed == "picture":
                await client.live.send_realtime(Blob(data=b"jpeg", mime_type="image/jpeg"))
            elif deed == "end":
                await client.live.send_audio_stream_end()
            await trio.sleep(0.5 * (deed == "pause"))
        began = trio.current_time()
        await client.live.aclose()
        await client.hear_out()
        assert trio.current_time() - began == pytest.approx(seconds)
    assert client.failure is None
