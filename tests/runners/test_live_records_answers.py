"""What becomes of answers: beside calls, after errors, and where a hook answers, as lines; see `live_records`."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

from minirun.models import LlmResponse
from minirun.testing import ScriptedLive, call, pause
from minirun.testing._live_dialects import DialectName
from minirun.types import Blob, Content, Part

from ..live_client import both, new_runner
from ..live_deeds import acting, heard, over, playing, slow, sound, started, stopped
from ..live_records import recorded, records


@both
async def test_what_the_model_says_while_it_waits_for_a_call(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Each answer that is given meanwhile is an event of its own, where the server names another one."""
    script: list[Any] = [
        [
            call("slow", n=4), pause(1), sound(500, "b1", "Wait "), sound(500, "b1", "a bit."), pause(1),
            sound(500, "b2", "Nearly."), over("b2"), pause(1), sound(500, "b3", "Now"),
        ],
        [sound(500, "b4", "Done."), over("b4")],
    ]  # fmt: skip
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        found = await recorded(runner, model, acting("a", 8), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 4}) live(item_id=answer-1, path=run/root)
            1.00 ~ e4 root model: <audio/pcm;rate=24000 24000> out='Wait ' live(item_id=b1)
            1.00 ~ e4 root model: <audio/pcm;rate=24000 24000> out='a bit.' live(item_id=b1)
            2.00 5 e4 root model: 'Wait a bit.' out. live(item_id=b1)
            2.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='Nearly.' live(item_id=b2)
            2.00 6 e5 root model: 'Nearly.' out. over live(item_id=b2)
            3.00 ~ e6 root model: <audio/pcm;rate=24000 24000> out='Now' live(item_id=b3)
            3.50 7 e6 root model: 'Now' out. over live(item_id=b3)
            4.00 8 e7 root user: slow={'result': 'after 4'}
            4.00 ~ e8 root model: <audio/pcm;rate=24000 24000> out='Done.' live(item_id=b4)
            4.00 9 e8 root model: 'Done.' out. over live(item_id=b4)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            4.00 > responses user: slow(call-1)={'result': 'after 4'} ? id=e7
            8.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 4 e3 root model: slow({'n': 4}) live(item_id=answer-1, path=run/root)
            1.00 ~ e4 root model: <audio/pcm;rate=24000 24000> out='Wait ' live(item_id=b1)
            1.00 ~ e4 root model: <audio/pcm;rate=24000 24000> out='a bit.' live(item_id=b1)
            2.00 5 e4 root model: 'Wait a bit.' out. live(item_id=b1)
            2.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='Nearly.' live(item_id=b2)
            2.00 6 e5 root model: 'Nearly.' out. over live(item_id=b2)
            3.00 ~ e6 root model: <audio/pcm;rate=24000 24000> out='Now' live(item_id=b3)
            3.00 7 e6 root model: 'Now' out. live(item_id=b3)
            3.00 ~ e7 root out. live(item_id=answer-2)
            4.00 8 e8 root user: slow={'result': 'after 4'}
            4.00 ~ e9 root model: <audio/pcm;rate=24000 24000> out='Done.' live(item_id=b4)
            4.00 9 e9 root model: 'Done.' out. over live(item_id=b4)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            4.00 > responses user: slow(call-1)={'result': 'after 4'} ? id=e8
            8.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_answers_with_pictures_and_thoughts(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Their kinds are stored, in order; an answer with nothing to store is none."""
    picture = Part(inline_data=Blob(data=b"png", mime_type="image/png;x=1"))
    thought = Part(text="Hm.", thought=True)

    def piece(*parts: Part) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=parts), partial=True, item_id="a")

    script: list[Any] = [[piece(picture), piece(thought), over("a")], [piece(thought), over("a")], [piece(), over("a")]]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting("a", 2, "b", 2, "c", 2), pieces=True)
    expected = """
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 ~ e3 root model: <image/png;x=1 3> live(item_id=a)
        0.00 ~ e3 root model: 'Hm.' live(item_id=a)
        0.00 4 e3 root over live(item_id=a, media=['image/png'])
        2.00 5 e4 user user: 'b' live(after_seq=4)
        4.00 6 e5 user user: 'c' live(after_seq=5)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        2.00 > content user: 'b' ? id=e4
        4.00 > content user: 'c' ? id=e5
        6.00 > close
    """
    assert found == records(expected)


@both
async def test_a_blocked_utterance_ends_the_answer_to_it(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A hook answers words in the model's place; what the model says of them is cut off, if it has not ended."""

    async def blocks(*, callback_context: object, llm_request: Any) -> LlmResponse | None:
        text = llm_request.contents[-1].text
        return LlmResponse(content=Content(role="model", parts=[Part(text=f"no {text}")])) if "bad" in text else None

    script: list[Any] = [
        [heard("bad one", "u1", finished=True), pause(1), sound(500, "a1", "Well"), over("a1")],
        [started("u2"), stopped("u2"), sound(500, "a2", "Hm"), over("a2"), heard("bad two", "u2", finished=True)],
        [heard("good", "u3", finished=True), pause(1), sound(500, "a3", "Yes"), over("a3")],
        [started("u4"), stopped("u4"), sound(500, "a4", "So"), heard("bad", "u4", finished=True), sound(500, "a4")],
        [sound(500, "a5", "Bye"), over("a5")],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, before_model_callback=blocks) as runner:
        deeds = ("a", 3, "b", 3, "c", 3, "d", 3, "bad e", 3, "f", 3)
        found = await recorded(runner, model, acting(*deeds), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 user user: 'bad one' in. live(item_id=u1)
            0.00 4 e4 user user: 'bad one' in. live(item_id=u1)
            0.00 5 e5 root model: 'no bad one' live()
            3.00 6 e6 user user: 'b' live(after_seq=5)
            3.00 ~ e7 root model: <audio/pcm;rate=24000 24000> out='Hm' live(item_id=a2)
            3.00 7 e7 root model: 'Hm' out. over live(item_id=a2)
            3.00 ~ e8 user user: 'bad two' in. live(item_id=u2)
            3.00 8 e9 user user: 'bad two' in. live(item_id=u2)
            3.00 9 e10 root model: 'no bad two' live()
            6.00 10 e11 user user: 'c' live(after_seq=9)
            6.00 ~ e12 user user: 'good' in. live(item_id=u3)
            6.00 11 e13 user user: 'good' in. live(item_id=u3)
            9.00 12 e14 user user: 'd' live(after_seq=11)
            9.00 ~ e15 root model: <audio/pcm;rate=24000 24000> out='So' live(item_id=a4)
            9.00 ~ e16 user user: 'bad' in. live(item_id=u4)
            9.00 13 e17 user user: 'bad' in. live(item_id=u4)
            9.00 14 e18 root model: 'no bad' live()
            9.00 ~ e15 root cut live(item_id=a4)
            9.00 15 e15 root model: 'So' out. cut live(dropped_audio_ms=1000, item_id=a4)
            12.00 16 e19 user user: 'bad e' live(after_seq=15)
            12.00 17 e20 root model: 'no bad e' live()
            15.00 18 e21 user user: 'f' live(after_seq=17)
            15.00 ~ e22 root model: <audio/pcm;rate=24000 24000> out='Bye' live(item_id=a5)
            15.00 19 e22 root model: 'Bye' out. over live(item_id=a5)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            0.00 > cancel
            3.00 > content user: 'b' ? id=e6
            3.00 > cancel
            6.00 > content user: 'c' ? id=e11
            9.00 > content user: 'd' ? id=e14
            9.00 > cancel
            15.00 > content user: 'f' ? id=e21
            18.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 user user: 'bad one' in. live(item_id=u1)
            0.00 4 e4 user user: 'bad one' in. live(item_id=u1)
            0.00 5 e5 root model: 'no bad one' live()
            3.00 6 e6 user user: 'b' live(after_seq=5)
            3.00 ~ e7 root model: <audio/pcm;rate=24000 24000> out='Hm' live(item_id=a2)
            3.00 7 e7 root model: 'Hm' out. over live(item_id=a2)
            3.00 ~ e8 user user: 'bad two' in. live(item_id=u2)
            3.00 8 e9 user user: 'bad two' in. live(before_seq=7, item_id=u2)
            3.00 9 e10 root model: 'no bad two' live()
            6.00 10 e11 user user: 'c' live(after_seq=9)
            6.00 ~ e12 user user: 'good' in. live(item_id=u3)
            6.00 11 e13 user user: 'good' in. live(item_id=u3)
            7.00 ~ e14 root model: <audio/pcm;rate=24000 24000> out='Yes' live(item_id=a3)
            7.00 12 e14 root model: 'Yes' out. over live(item_id=a3)
            9.00 13 e15 user user: 'd' live(after_seq=12)
            9.00 ~ e16 root model: <audio/pcm;rate=24000 24000> out='So' live(item_id=a4)
            9.00 ~ e17 user user: 'bad' in. live(item_id=u4)
            9.00 14 e18 user user: 'bad' in. live(item_id=u4)
            9.00 15 e19 root model: 'no bad' live()
            9.00 16 e16 root model: 'So' out. over live(dropped_audio_ms=500, item_id=a4)
            12.00 17 e20 user user: 'bad e' live(after_seq=16)
            12.00 18 e21 root model: 'no bad e' live()
            15.00 19 e22 user user: 'f' live(after_seq=18)
            15.00 ~ e23 root model: <audio/pcm;rate=24000 24000> out='Bye' live(item_id=a5)
            15.00 20 e23 root model: 'Bye' out. over live(item_id=a5)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            0.00 > cancel
            3.00 > content user: 'b' ? id=e6
            6.00 > content user: 'c' ? id=e11
            9.00 > content user: 'd' ? id=e15
            9.00 > cancel
            15.00 > content user: 'f' ? id=e22
            18.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_what_was_said_and_is_not_understood_yet_is_waited_for(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """A line that is closed when the user has said something waits for the answer; not if it is there by then."""
    model = ScriptedLive([], dialect=dialect)
    speech = (started("u1"), stopped("u1"), pause(3), sound(500, "a1", "Yes."), over("a1"))
    async with new_runner(model) as runner:
        found = [await recorded(runner, model, acting(1, playing(model, *speech), 0.5), pieces=True)]
    model = ScriptedLive([], dialect=dialect)
    speech = (started("u1"), sound(500, "a1", "Yes."), over("a1"), stopped("u1"), heard("no", "u1", finished=True))
    async with new_runner(model) as runner:
        found.append(await recorded(runner, model, acting(1, playing(model, *speech), 0.5), pieces=True))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            4.00 ~ e2 root model: <audio/pcm;rate=24000 24000> out='Yes.' live(item_id=a1)
            4.00 3 e2 root model: 'Yes.' out. over live(item_id=a1)
            0.00 > connect 1
            4.00 > close
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 ~ e2 root model: <audio/pcm;rate=24000 24000> out='Yes.' live(item_id=a1)
            1.00 3 e2 root model: 'Yes.' out. over live(item_id=a1)
            1.00 ~ e3 user user: 'no' in. live(item_id=u1)
            1.00 4 e4 user user: 'no' in. live(item_id=u1)
            0.00 > connect 1
            31.50 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            4.00 ~ e2 root model: <audio/pcm;rate=24000 24000> out='Yes.' live(item_id=a1)
            4.00 3 e2 root model: 'Yes.' out. over live(item_id=a1)
            0.00 > connect 1
            9.00 > close
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 ~ e2 root model: <audio/pcm;rate=24000 24000> out='Yes.' live(item_id=a1)
            1.00 3 e2 root model: 'Yes.' out. over live(item_id=a1)
            1.00 ~ e3 user user: 'no' in. live(item_id=u1)
            1.00 4 e4 user user: 'no' in. live(before_seq=3, item_id=u1)
            0.00 > connect 1
            1.50 > close
        """,
    }
    assert "\n".join(found) == records(expected[dialect])
