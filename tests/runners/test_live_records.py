"""Conversations from their beginning to their end: all that the caller is given, and all that the server is sent."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from minirun import LiveRequestQueue, LlmAgent, RunConfig
from minirun.agents import LiveRequest
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.runners import LiveRun
from minirun.testing import ScriptedLive, call, drop, error, go_away, handle, hear, pause, say, usage
from minirun.testing._live_dialects import DialectName
from minirun.types import AutomaticActivityDetection, Content, Part, RealtimeInputConfig

from ..live_client import both, new_runner
from ..live_records import recorded, records

VOICE, SILENCE = b"\1\1" * 8_000, bytes(48_000)


async def speak(live: LiveRun) -> None:
    """Half a second of voice, or a third of one, and then silence."""
    await live.send_audio(VOICE)
    await live.send_audio(SILENCE)


async def look() -> str:
    """Look for a second."""
    await trio.sleep(1)
    return "seen"


@both
async def test_an_ordinary_conversation(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Words that were heard, a call, an interruption, a failure and an answer: each event with all that it says."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await speak(live)
        await trio.sleep(4)
        await live.send_text("look")
        await trio.sleep(5)
        await live.send_text("count")
        await trio.sleep(0.25)
        await live.interrupt()
        await trio.sleep(1)
        await live.send_text("fail")
        await trio.sleep(1)

    script: list[Any] = [
        [hear("hello there"), say("one two"), usage(prompt=3, candidates=4)],
        [say("I look."), call("look")],
        say("Seen."),
        say("three four five six"),
        [error("X", "broken"), say("Sorry.")],
    ]
    model = ScriptedLive(script, dialect=dialect, word_ms=500)
    async with new_runner(model, tools=[look]) as runner:
        found = await recorded(runner, model, act, pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 ~ e2 user user: 'hello ' in live(item_id=heard-1)
            1.00 ~ e3 user user: 'there' in live(item_id=heard-1)
            1.00 ~ e4 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-1)
            1.00 ~ e4 root out='one ' live(item_id=answer-1)
            1.00 ~ e4 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-1)
            1.00 ~ e4 root out='two' live(item_id=answer-1)
            2.00 3 e5 user user: 'hello there' in. live(item_id=heard-1)
            2.00 4 e4 root model: 'one two' out. over tokens=7 live(item_id=answer-1)
            5.00 5 e6 user user: 'look' live(after_seq=4)
            5.00 ~ e7 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-2)
            5.00 ~ e7 root out='I ' live(item_id=answer-2)
            5.00 ~ e7 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-2)
            5.00 ~ e7 root out='look.' live(item_id=answer-2)
            5.00 6 e7 root model: 'I look.' out. live(item_id=answer-2)
            5.00 7 e8 root model: look({}) live(item_id=answer-2, path=run/root)
            6.00 8 e9 root user: look={'result': 'seen'}
            6.00 ~ e10 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-2)
            6.00 ~ e10 root out='Seen.' live(item_id=answer-2)
            6.50 9 e10 root model: 'Seen.' out. over live(item_id=answer-2)
            10.00 10 e11 user user: 'count' live(after_seq=9)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-3)
            10.00 ~ e12 root out='three ' live(item_id=answer-3)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-3)
            10.00 ~ e12 root out='four ' live(item_id=answer-3)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-3)
            10.00 ~ e12 root out='five ' live(item_id=answer-3)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-3)
            10.00 ~ e12 root out='six' live(item_id=answer-3)
            10.25 ~ e12 root cut live(item_id=answer-3)
            10.25 11 e12 root model: 'three four five six' out. cut live(item_id=answer-3)
            11.25 12 e13 user user: 'fail' live(after_seq=11)
            11.25 13 e14 root X: broken live()
            11.25 ~ e15 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-4)
            11.25 ~ e15 root out='Sorry.' live(item_id=answer-4)
            11.75 14 e15 root model: 'Sorry.' out. over live(item_id=answer-4)
            0.00 > connect 1
            5.00 > content user: 'look' ? id=e6
            6.00 > responses user: look(call-1)={'result': 'seen'} ? id=e9
            10.00 > content user: 'count' ? id=e11
            10.25 > cancel
            11.25 > content user: 'fail' ? id=e13
            12.25 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 ~ e2 user user: 'hello ' in live(item_id=heard-1)
            1.00 ~ e3 user user: 'there' in live(item_id=heard-1)
            1.00 3 e4 user user: 'hello there' in. live(item_id=heard-1)
            1.00 ~ e5 root out='one ' live(item_id=answer-1)
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-1)
            1.00 ~ e5 root out='two' live(item_id=answer-1)
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-1)
            1.00 ~ e5 root out. live(item_id=answer-1)
            1.00 4 e5 root model: 'one two' out. over tokens=7 live(item_id=answer-1)
            5.00 5 e6 user user: 'look' live(after_seq=4)
            5.00 ~ e7 root out='I ' live(item_id=answer-2)
            5.00 ~ e7 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-2)
            5.00 ~ e7 root out='look.' live(item_id=answer-2)
            5.00 ~ e7 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-2)
            5.00 ~ e7 root out. live(item_id=answer-2)
            5.00 6 e7 root model: 'I look.' out. live(item_id=answer-2)
            5.00 7 e8 root model: look({}) live(item_id=answer-2, path=run/root)
            6.00 8 e9 root user: look={'result': 'seen'}
            6.00 ~ e10 root out='Seen.' live(item_id=answer-3)
            6.00 ~ e10 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-3)
            6.00 ~ e10 root out. live(item_id=answer-3)
            6.00 9 e10 root model: 'Seen.' out. over live(item_id=answer-3)
            10.00 10 e11 user user: 'count' live(after_seq=9)
            10.00 ~ e12 root out='three ' live(item_id=answer-4)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-4)
            10.00 ~ e12 root out='four ' live(item_id=answer-4)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-4)
            10.00 ~ e12 root out='five ' live(item_id=answer-4)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-4)
            10.00 ~ e12 root out='six' live(item_id=answer-4)
            10.00 ~ e12 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-4)
            10.00 ~ e12 root out. live(item_id=answer-4)
            10.00 11 e12 root model: 'three four five six' out. over live(item_id=answer-4)
            10.25 ~ e13 root cut live(item_id=answer-4)
            10.25 12 e13 root cut live(cut_seq=11, item_id=answer-4) about(heard=, unheard=three four five six)
            11.25 13 e14 user user: 'fail' live(after_seq=12)
            11.25 14 e15 root X: broken live()
            11.25 ~ e16 root out='Sorry.' live(item_id=answer-5)
            11.25 ~ e16 root model: <audio/pcm;rate=24000 24000> live(item_id=answer-5)
            11.25 ~ e16 root out. live(item_id=answer-5)
            11.25 15 e16 root model: 'Sorry.' out. over live(item_id=answer-5)
            0.00 > connect 1
            5.00 > content user: 'look' ? id=e6
            6.00 > responses user: look(call-1)={'result': 'seen'} ? id=e9
            10.00 > content user: 'count' ? id=e11
            10.25 > truncate answer-4 250 ms
            11.25 > content user: 'fail' ? id=e14
            12.25 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_sound_is_kept_in_files_of_the_events(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The words of both sides name their files; an answer that is cut off, too; sound without words is not kept."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await speak(live)
        await trio.sleep(4)
        await live.send_text("count")
        await trio.sleep(0.25)
        await live.interrupt()
        await trio.sleep(3)
        await live.send_audio(bytes(3_200))

    script = [[hear("hello there"), say("one two")], say("three four five six")]
    model = ScriptedLive(script, dialect=dialect, word_ms=500)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act, run_config=RunConfig(save_live_blob=True))
        assert runner.artifact_service is not None
        names = await runner.artifact_service.list_artifact_keys(app_name=runner.app_name, user_id="u", session_id="s")
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            2.00 3 e2 user user: 'hello there' in. live(item_id=heard-1) files(e2.wav=0)
            2.00 4 e3 root model: 'one two' out. over live(item_id=answer-1) files(e3.wav=0)
            5.00 5 e4 user user: 'count' live(after_seq=4)
            5.25 ~ e5 root cut live(item_id=answer-2)
            5.25 6 e5 root model: 'three four five six' out. cut live(item_id=answer-2) files(e5.wav=0)
            0.00 > connect 1
            5.00 > content user: 'count' ? id=e4
            5.25 > cancel
            8.25 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 3 e2 user user: 'hello there' in. live(item_id=heard-1) files(e2.wav=0)
            1.00 4 e3 root model: 'one two' out. over live(item_id=answer-1) files(e3.wav=0)
            5.00 5 e4 user user: 'count' live(after_seq=4)
            5.00 6 e5 root model: 'three four five six' out. over live(item_id=answer-2) files(e5.wav=0)
            5.25 ~ e6 root cut live(item_id=answer-2)
            5.25 7 e6 root cut live(cut_seq=6, item_id=answer-2) about(heard=, unheard=three four five six)
            0.00 > connect 1
            5.00 > content user: 'count' ? id=e4
            5.25 > truncate answer-2 250 ms
            8.25 > close
        """,
    }
    assert found == records(expected[dialect])
    assert len(names) == 3


@both
async def test_an_instruction_is_told_again_when_the_state_changes_it(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """With `refresh_instruction` the server is told it after the turn, with the tools, and only if it has changed."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await live.send_text("hi")
        await trio.sleep(2)
        queue.send(LiveRequest(content="again", state_delta={"mood": "bad"}))
        await trio.sleep(2)
        queue.send(LiveRequest(state_delta={"mood": "good"}))
        await trio.sleep(1)
        await live.send_text("more")
        await trio.sleep(2)

    queue = LiveRequestQueue()
    model = ScriptedLive(["One.", "Two.", "Three."], dialect=dialect)
    agent = LlmAgent(name="root", model=model, instruction="Mood: {mood?}.", tools=[look])
    async with new_runner(model, agent=agent) as runner:
        config = RunConfig(refresh_instruction=True)
        found = await recorded(runner, model, act, run_config=config, live_request_queue=queue)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 3 e2 user user: 'hi' live(after_seq=2)
            1.25 4 e3 root model: 'One.' out. over live(item_id=answer-1)
            3.00 5 e4 user user: 'again' live(after_seq=4) state(mood=bad)
            3.25 6 e5 root model: 'Two.' out. over live(item_id=answer-2)
            5.00 7 e6 user live(after_seq=6) state(mood=good)
            6.00 8 e7 user user: 'more' live(after_seq=7)
            6.25 9 e8 root model: 'Three.' out. over live(item_id=answer-3)
            0.00 > connect 1
            1.00 > content user: 'hi' ? id=e2
            3.00 > content user: 'again' ? id=e4
            3.25 > update 'Mood: bad.' tools=['look']
            6.00 > content user: 'more' ? id=e7
            6.25 > update 'Mood: good.' tools=['look']
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 3 e2 user user: 'hi' live(after_seq=2)
            1.00 4 e3 root model: 'One.' out. over live(item_id=answer-1)
            3.00 5 e4 user user: 'again' live(after_seq=4) state(mood=bad)
            3.00 6 e5 root model: 'Two.' out. over live(item_id=answer-2)
            5.00 7 e6 user live(after_seq=6) state(mood=good)
            6.00 8 e7 user user: 'more' live(after_seq=7)
            6.00 9 e8 root model: 'Three.' out. over live(item_id=answer-3)
            0.00 > connect 1
            1.00 > content user: 'hi' ? id=e2
            3.00 > content user: 'again' ? id=e4
            3.00 > update 'Mood: bad.' tools=['look']
            6.00 > content user: 'more' ? id=e7
            6.00 > update 'Mood: good.' tools=['look']
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_connection_that_is_lost_in_an_answer(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The answer is stored as far as it was given, the next session is told all of it, and goes on."""

    async def act(live: LiveRun) -> None:
        await live.send_text("count")
        await trio.sleep(5)
        await live.send_text("go on")
        await trio.sleep(5)

    model = ScriptedLive([[say("one two"), pause(1), drop(1006)], say("three")], dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'count' live(after_seq=2)
            1.00 ~ e3 root cut live(item_id=answer-1)
            1.00 4 e3 root model: 'one two' out. cut live(item_id=answer-1)
            1.00 5 e4 root live(connection=2, reason=lost)
            5.00 6 e5 user user: 'go on' live(after_seq=5)
            5.25 7 e6 root model: 'three' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'count' ? id=e2
            1.00 > close
            1.00 > connect 2
            1.00 > history
                user: 'count'
                model: 'one two'
            5.00 > content user: 'go on' ? id=e5
            10.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'count' live(after_seq=2)
            1.00 ~ e3 root cut live(item_id=answer-1)
            1.00 4 e3 root model: 'one two' out. cut live(item_id=answer-1)
            1.00 5 e4 root live(connection=2, reason=lost)
            5.00 6 e5 user user: 'go on' live(after_seq=5)
            5.00 7 e6 root model: 'three' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'count' ? id=e2
            1.00 > close
            1.00 > connect 2
            1.00 > history
                user: 'count'
                model: 'one two'
            5.00 > content user: 'go on' ? id=e5
            10.00 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_a_session_that_is_gone_on_with(autojump_clock: MockClock) -> None:
    """What the server has not taken up is sent again under its id, and a lost answer is asked for."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await live.send_text("a")
        await trio.sleep(5)
        await live.send_text("b")
        await trio.sleep(5)
        await live.send_text("c")
        await trio.sleep(5)

    script: list[Any] = [
        [handle("h1"), say("one"), pause(1)],
        [handle("h2"), pause(1), go_away(3), pause(1), drop(1001)],
        [say("two")],
        [say("three")],
        [say("four")],
    ]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act)
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        1.00 3 e2 user user: 'a' live(after_seq=2)
        2.00 4 e3 root model: 'one' out. over live(item_id=answer-1)
        6.00 5 e4 user user: 'b' live(after_seq=4)
        8.00 6 e5 root live(connection=2, reason=go_away)
        8.25 7 e6 root model: 'two' out. over live(item_id=answer-2)
        11.00 8 e7 user user: 'c' live(after_seq=7)
        11.25 9 e8 root model: 'three' out. over live(item_id=answer-3)
        0.00 > connect 1
        1.00 > content user: 'a' ? id=e2
        6.00 > content user: 'b' ? id=e4
        8.00 > close
        8.00 > connect 2 handle=h2
        8.00 > content user: 'Go on.' ?
        11.00 > content user: 'c' ? id=e7
        16.00 > close
    """)


@both
async def test_a_user_who_speaks_across_connections(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Where the client says when the user speaks, the next connection is told that this has begun."""

    async def act(live: LiveRun) -> None:
        await trio.sleep(1)
        await live.send_activity_start()
        await live.send_audio(bytes(3_200))
        await trio.sleep(14)
        await live.send_activity_end()
        await trio.sleep(3)

    detection = RealtimeInputConfig(automatic_activity_detection=AutomaticActivityDetection(disabled=True))
    begins: list[Any] = [[pause(12), drop(1006)]]
    model = ScriptedLive([[hear("hi"), say("One.")]], dialect=dialect, on_connect=begins)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act, run_config=RunConfig(realtime_input_config=detection))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            12.00 3 e2 root live(connection=2, reason=lost)
            15.25 4 e3 user user: 'hi' in. live(item_id=heard-1)
            15.25 5 e4 root model: 'One.' out. over live(item_id=answer-1)
            0.00 > connect 1
            1.00 > activity_start
            12.00 > close
            12.00 > connect 2
            12.00 > activity_start
            15.00 > activity_end
            18.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            12.00 3 e2 root live(connection=2, reason=lost)
            15.00 4 e3 user user: 'hi' in. live(item_id=heard-1)
            15.00 5 e4 root model: 'One.' out. over live(item_id=answer-1)
            0.00 > connect 1
            1.00 > activity_start
            12.00 > close
            12.00 > connect 2
            12.00 > activity_start
            15.00 > activity_end
            18.00 > close
        """,
    }
    assert found == records(expected[dialect])


class Shouting(BasePlugin):
    """Changes what users say in writing."""

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> Content:
        return Content(role="user", parts=[Part(text=user_message.text.upper())])


@both
async def test_hooks_change_what_is_said(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A plugin changes what is written; hooks around the model answer in its place, and change what it says."""

    def before(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        if "no" not in llm_request.contents[-1].text.lower():
            return None
        callback_context.state["refused"] = callback_context.state.get("refused", 0) + 1
        return LlmResponse(content=Content(role="model", parts=[Part(text="No.")]))

    def after(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        content = llm_response.content
        if content is None or content.text != "Two.":
            return None
        callback_context.state["changed"] = True
        return LlmResponse(content=Content(role="model", parts=[Part(text="2")]))

    async def act(live: LiveRun) -> None:
        await live.send_text("hi")
        await trio.sleep(2)
        await live.send_text("no")
        await trio.sleep(2)
        await speak(live)
        await trio.sleep(4)
        await live.send_text("well")
        await trio.sleep(2)

    model = ScriptedLive([say("One."), [hear("no no"), say("What?")], say("Two.")], dialect=dialect)
    hooks: dict[str, Any] = {"before_model_callback": before, "after_model_callback": after}
    async with new_runner(model, plugins=[Shouting("shouting")], **hooks) as runner:
        found = await recorded(runner, model, act)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'HI' live(after_seq=2)
            0.25 4 e3 root model: 'One.' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'NO' live(after_seq=4)
            2.00 6 e5 root model: 'No.' live() state(refused=1)
            4.00 7 e6 user user: 'no no' in. live(item_id=heard-1)
            4.00 8 e7 root model: 'No.' live() state(refused=2)
            8.00 9 e8 user user: 'WELL' live(after_seq=8)
            8.25 10 e9 root model: '2' out='Two.'. over live(item_id=answer-3) state(changed=True)
            0.00 > connect 1
            0.00 > content user: 'HI' ? id=e2
            4.00 > cancel
            8.00 > content user: 'WELL' ? id=e8
            10.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'HI' live(after_seq=2)
            0.00 4 e3 root model: 'One.' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'NO' live(after_seq=4)
            2.00 6 e5 root model: 'No.' live() state(refused=1)
            4.00 7 e6 user user: 'no no' in. live(item_id=heard-1)
            4.00 8 e7 root model: 'No.' live() state(refused=2)
            8.00 9 e8 user user: 'WELL' live(after_seq=8)
            8.00 10 e9 root model: '2' out='Two.'. over live(dropped_audio_ms=250, item_id=answer-3)
                    state(changed=True)
            0.00 > connect 1
            0.00 > content user: 'HI' ? id=e2
            4.00 > cancel
            8.00 > content user: 'WELL' ? id=e8
            10.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_call_goes_on_while_the_connection_is_lost(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The next session knows no such call: it is told the result in words, once the call is made."""

    async def act(live: LiveRun) -> None:
        await live.send_text("look")
        await trio.sleep(8)

    async def slow() -> str:
        """Take three seconds."""
        await trio.sleep(3)
        return "R"

    script: list[Any] = [[say("I look."), call("slow"), pause(1), drop(1006)], say("Seen.")]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        found = await recorded(runner, model, act)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'look' live(after_seq=2)
            0.00 4 e3 root model: 'I look.' out. live(item_id=answer-1)
            0.00 5 e4 root model: slow({}) live(item_id=answer-1, path=run/root)
            1.00 6 e5 root live(connection=2, reason=lost)
            3.00 7 e6 root user: slow={'result': 'R'}
            3.25 8 e7 root model: 'Seen.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'look' ? id=e2
            1.00 > close
            1.00 > connect 2
            1.00 > history
                user: 'look'
                model: 'I look.'
                model: slow({})
                user: slow={'status': 'the call is still running; its result will follow'}
            3.00 > content user: 'The call of slow has returned: {"result": "R"}' ? id=e6-told
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'look' live(after_seq=2)
            0.00 4 e3 root model: 'I look.' out. live(item_id=answer-1)
            0.00 5 e4 root model: slow({}) live(item_id=answer-1, path=run/root)
            1.00 6 e5 root live(connection=2, reason=lost)
            3.00 7 e6 root user: slow={'result': 'R'}
            3.00 8 e7 root model: 'Seen.' out. over live(item_id=answer-2)
            0.00 > connect 1
            0.00 > content user: 'look' ? id=e2
            1.00 > close
            1.00 > connect 2
            1.00 > history
                user: 'look'
                model: 'I look.'
                model: slow({})
                user: slow={'status': 'the call is still running; its result will follow'}
            3.00 > content user: 'The call of slow has returned: {"result": "R"}' ? id=e6-told
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_messages_of_others_wait_for_the_end_of_a_turn(dialect: DialectName, autojump_clock: MockClock) -> None:
    """`Runner.send` reaches the model when nobody has the word, and the answer follows it."""

    async def act(live: LiveRun) -> None:
        await live.send_text("count")
        await trio.sleep(0.1)
        await runner.send("by the way", user_id="u", session_id="s")
        await trio.sleep(5)
        await runner.send("and this", user_id="u", session_id="s")
        await trio.sleep(5)

    model = ScriptedLive([[say("one"), pause(2), say("two")], say("I see."), say("Yes.")], dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, act)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'count' live(after_seq=2)
            2.00 4 e3 root model: 'onetwo' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'by the way'
            2.50 6 e5 root model: 'I see.' out. over live(item_id=answer-2)
            5.50 7 e6 user user: 'and this'
            5.75 8 e7 root model: 'Yes.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'count' ? id=e2
            2.00 > content user: 'by the way' ? id=e4
            5.50 > content user: 'and this' ? id=e6
            10.10 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'count' live(after_seq=2)
            2.00 4 e3 root model: 'onetwo' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'by the way'
            2.00 6 e5 root model: 'I see.' out. over live(item_id=answer-2)
            5.50 7 e6 user user: 'and this'
            5.50 8 e7 root model: 'Yes.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'count' ? id=e2
            2.00 > content user: 'by the way' ? id=e4
            5.50 > content user: 'and this' ? id=e6
            10.10 > close
        """,
    }
    assert found == records(expected[dialect])
