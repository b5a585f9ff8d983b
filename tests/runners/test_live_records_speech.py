"""What is said by both sides, piece by piece, as lines: see `live_records`. The servers say what they like."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

from minirun import RunConfig
from minirun.models import LlmResponse
from minirun.testing import ScriptedLive, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, new_runner
from ..live_deeds import acting, doing, heard, over, playing, sound, started, stopped
from ..live_records import recorded, records

BY_HAND = RunConfig(realtime_input_config={"automatic_activity_detection": {"disabled": True}})


@both
async def test_words_of_both_sides_without_names(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A server that names no utterance: pieces are shown as they come, and are one event for each side."""
    script: list[Any] = [
        [heard("what "), heard("time?"), pause(1), sound(500, text="It is "), sound(500, text="noon."), over()],
        [heard(" "), heard("thanks", finished=True), pause(1), sound(100), over()],
        [pause(1), over()],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        deeds = ("a", 4, "b", 4, "c", 4)
        found = await recorded(runner, model, acting(*deeds), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 user user: 'what ' in
            0.00 ~ e4 user user: 'time?' in
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='It is ' live(item_id=e5)
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='noon.' live(item_id=e5)
            1.00 4 e6 user user: 'what time?' in. live()
            1.00 5 e5 root model: 'It is noon.' out. over live(item_id=e5)
            4.00 6 e7 user user: 'b' live(after_seq=5)
            4.00 ~ e8 user user: ' ' in
            4.00 ~ e9 user user: 'thanks' in.
            4.00 7 e10 user user: 'thanks' in. live()
            5.00 ~ e11 root model: <audio/pcm;rate=24000 4800> live(item_id=e11)
            5.00 8 e11 root out=''. over live(item_id=e11)
            8.00 9 e12 user user: 'c' live(after_seq=8)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            4.00 > content user: 'b' ? id=e7
            8.00 > content user: 'c' ? id=e12
            12.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 user user: 'what ' in
            0.00 ~ e4 user user: 'time?' in
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='It is ' live(item_id=e5)
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='noon.' live(item_id=e5)
            1.00 4 e5 root model: 'It is noon.' out. over live(item_id=e5)
            4.00 5 e6 user user: 'b' live(after_seq=4)
            4.00 ~ e7 user user: ' ' in
            4.00 ~ e8 user user: 'thanks' in.
            4.00 6 e9 user user: 'what time? thanks' in. live(before_seq=4)
            5.00 ~ e10 root model: <audio/pcm;rate=24000 4800> live(item_id=e10)
            5.00 7 e10 root out=''. over live(item_id=e10)
            8.00 8 e11 user user: 'c' live(after_seq=7)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            4.00 > content user: 'b' ? id=e6
            8.00 > content user: 'c' ? id=e11
            12.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_utterances_with_names_that_overlap(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Words belong to the utterance that they name, whichever began last; one without words is none."""
    script: list[Any] = [
        [
            started("u1"), stopped("u1"), started("u2"), stopped("u2"), started("u3"), stopped("u3"), pause(1),
            heard("second", "u2", finished=True), sound(500, "a1", "Yes"), pause(1),
            heard("first ", "u1"), heard("one", "u1", finished=True), heard("", "u3", finished=True),
            heard("", "u3", finished=True), heard("late", "u1", finished=True), sound(500, "a1", " sir."), over("a1"),
        ],
    ]  # fmt: skip
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting("a", 6), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            1.00 ~ e3 user user: 'second' in. live(item_id=u2)
            1.00 4 e4 user user: 'second' in. live(item_id=u2)
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='Yes' live(item_id=a1)
            2.00 ~ e6 user user: 'first ' in live(item_id=u1)
            2.00 ~ e7 user user: 'one' in. live(item_id=u1)
            2.00 5 e8 user user: 'first one' in. live(before_seq=4, item_id=u1)
            2.00 ~ e9 user user: 'late' in. live(item_id=u1)
            2.00 6 e10 user user: 'late' in. live(item_id=u1)
            2.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out=' sir.' live(item_id=a1)
            2.00 7 e5 root model: 'Yes sir.' out. over live(item_id=a1)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            36.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            1.00 ~ e3 user user: 'second' in. live(item_id=u2)
            1.00 4 e4 user user: 'second' in. live(item_id=u2)
            1.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='Yes' live(item_id=a1)
            2.00 ~ e6 user user: 'first ' in live(item_id=u1)
            2.00 ~ e7 user user: 'one' in. live(item_id=u1)
            2.00 5 e8 user user: 'first one' in. live(before_seq=4, item_id=u1)
            2.00 ~ e9 user user: 'late' in. live(item_id=u1)
            2.00 6 e10 user user: 'late' in. live(item_id=u1)
            2.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out=' sir.' live(item_id=a1)
            2.00 7 e5 root model: 'Yes sir.' out. over live(item_id=a1)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            6.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_pieces_of_an_answer_that_the_program_has_cut_off(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """They may still come, and are not shown, but counted; what the model says next is."""
    script: list[Any] = [
        [sound(2000, "a1", "one "), pause(1), say("x")],
        [sound(500, "a1", "two "), sound(1000, "a2", "three"), over("a2")],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        deeds = ("a", 0.5, doing("interrupt"), 1, playing(model, sound(250, "a1", "late")), 1, "b", 4)
        found = await recorded(runner, model, acting(*deeds), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
            0.50 ~ e3 root cut live(item_id=a1)
            0.50 4 e3 root model: 'one' out. cut live(item_id=a1)
            2.50 5 e4 user user: 'b' live(after_seq=4)
            2.50 ~ e5 root model: <audio/pcm;rate=24000 48000> out='three' live(item_id=a2)
            2.50 6 e5 root model: 'three' out. over live(dropped_audio_ms=750, item_id=a2)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            0.50 > cancel
            2.50 > content user: 'b' ? id=e4
            6.50 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
            0.50 ~ e3 root cut live(item_id=a1)
            0.50 4 e3 root model: 'one' out. cut live(item_id=a1)
            1.50 ~ e4 root out. live(item_id=answer-2)
            2.50 5 e5 user user: 'b' live(after_seq=4)
            2.50 ~ e6 root model: <audio/pcm;rate=24000 48000> out='three' live(item_id=a2)
            2.50 6 e6 root model: 'three' out. over live(dropped_audio_ms=750, item_id=a2)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            0.50 > cancel
            2.50 > content user: 'b' ? id=e5
            6.50 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_pieces_of_answers_that_the_server_has_cut_off_or_ended(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """What still comes of them is dropped and counted, until there is another connection."""
    script: list[Any] = [
        [sound(2000, "a1", "one "), pause(1), LlmResponse(interrupted=True), sound(500, "a1", "late"), over("a1")],
        [sound(500, "a2", "two"), over("a2"), sound(250, "a2", "later")],
        [sound(500, "a1", "one"), sound(500, "a2", "two"), over("a2")],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting("a", 4, "b", 4, "c", 4), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
            1.00 ~ e3 root cut live(item_id=a1)
            1.00 4 e3 root model: 'one' out. cut live(item_id=a1)
            4.00 5 e4 user user: 'b' live(after_seq=4)
            4.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='two' live(item_id=a2)
            4.00 6 e5 root model: 'two' out. over live(dropped_audio_ms=500, item_id=a2)
            8.00 7 e6 user user: 'c' live(after_seq=6)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            4.00 > content user: 'b' ? id=e4
            8.00 > content user: 'c' ? id=e6
            12.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
            1.00 ~ e3 root cut live(item_id=a1)
            1.00 4 e3 root model: 'one' out. cut live(item_id=a1)
            4.00 5 e4 user user: 'b' live(after_seq=4)
            4.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='two' live(item_id=a2)
            4.00 6 e5 root model: 'two' out. over live(dropped_audio_ms=500, item_id=a2)
            4.00 ~ e6 root out. live(item_id=answer-3)
            8.00 7 e7 user user: 'c' live(after_seq=6)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            4.00 > content user: 'b' ? id=e4
            8.00 > content user: 'c' ? id=e7
            12.00 > close
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_the_program_interrupts_and_the_server_says_so_late(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The server's word on it ends nothing else, though the next question was asked by then."""
    script: list[Any] = [
        [sound(2000, "a1", "one "), pause(9)],
        [pause(1), over("a1", interrupted=True), pause(1), sound(500, "a2", "two"), over("a2")],
        [pause(1), over("a2"), pause(1), sound(500, "a3", "three"), over("a3")],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        deeds = ("a", 0.5, doing("interrupt"), 1, "b", 5, "c", 5)
        found = await recorded(runner, model, acting(*deeds), pieces=True)
    expected = """
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
        0.50 ~ e3 root cut live(item_id=a1)
        0.50 4 e3 root model: 'one' out. cut live(item_id=a1)
        1.50 5 e4 user user: 'b' live(after_seq=4)
        3.50 ~ e5 root model: <audio/pcm;rate=24000 24000> out='two' live(item_id=a2)
        3.50 6 e5 root model: 'two' out. over live(item_id=a2)
        6.50 7 e6 user user: 'c' live(after_seq=6)
        8.50 ~ e7 root model: <audio/pcm;rate=24000 24000> out='three' live(item_id=a3)
        8.50 8 e7 root model: 'three' out. over live(item_id=a3)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        0.50 > cancel
        1.50 > content user: 'b' ? id=e4
        6.50 > content user: 'c' ? id=e6
        11.50 > close
    """
    assert found == records(expected)


@both
async def test_a_user_who_speaks_while_answers_are_played(dialect: DialectName, autojump_clock: MockClock) -> None:
    """What is heard of both is stored, and the words of the user say what they came before."""
    script: list[Any] = [
        [sound(3000, "a1", "one two three"), over("a1")],
        [sound(1000, "a2", "four"), over("a2")],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        speech = (started("u1"), stopped("u1"), sound(500, "a3", "five"), over("a3"))
        deeds = ("a", 0.5, "b", 0.5, playing(model, *speech), 1, playing(model, heard("stop", "u1", finished=True)), 3)
        found = await recorded(runner, model, acting(*deeds), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 root model: <audio/pcm;rate=24000 144000> out='one two three' live(item_id=a1)
            0.00 4 e3 root model: 'one two three' out. over live(item_id=a1)
            0.50 5 e4 user user: 'b' live(after_seq=4)
            0.50 ~ e5 root model: <audio/pcm;rate=24000 48000> out='four' live(item_id=a2)
            0.50 6 e5 root model: 'four' out. over live(item_id=a2)
            1.00 ~ e6 root model: <audio/pcm;rate=24000 24000> out='five' live(item_id=a3)
            1.00 7 e6 root model: 'five' out. over live(item_id=a3)
            2.00 ~ e7 user user: 'stop' in. live(item_id=u1)
            2.00 8 e8 user user: 'stop' in. live(item_id=u1)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            0.50 > content user: 'b' ? id=e4
            35.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 ~ e3 root model: <audio/pcm;rate=24000 144000> out='one two three' live(item_id=a1)
            0.00 4 e3 root model: 'one two three' out. over live(item_id=a1)
            0.50 5 e4 user user: 'b' live(after_seq=4)
            0.50 ~ e5 root model: <audio/pcm;rate=24000 48000> out='four' live(item_id=a2)
            0.50 6 e5 root model: 'four' out. over live(item_id=a2)
            1.00 ~ e6 root cut live(item_id=a1)
            1.00 7 e6 root cut live(cut_seq=4, item_id=a1) about(heard=one, unheard=two three)
            1.00 ~ e7 root cut live(item_id=a2)
            1.00 8 e7 root cut live(cut_seq=6, item_id=a2) about(heard=, unheard=four)
            1.00 ~ e8 root model: <audio/pcm;rate=24000 24000> out='five' live(item_id=a3)
            1.00 9 e8 root model: 'five' out. over live(item_id=a3)
            2.00 ~ e9 user user: 'stop' in. live(item_id=u1)
            2.00 10 e10 user user: 'stop' in. live(before_seq=9, item_id=u1)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            0.50 > content user: 'b' ? id=e4
            1.00 > truncate a1 1000 ms
            1.00 > truncate a2 1 ms
            5.00 > close
        """,
    }
    assert found == records(expected[dialect])


async def test_a_client_that_says_when_the_user_speaks(autojump_clock: MockClock) -> None:
    """Its signals interrupt what is played, and ask for an answer, also while nothing was understood."""

    script: list[Any] = [
        [heard("one"), sound(4000, text="a b c d"), pause(3), over()],
        [heard("two"), sound(500, text="Yes."), over()],
    ]
    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model) as runner:
        speak = (doing("send_activity_start"), 0.5, doing("send_activity_end"))
        found = await recorded(
            runner, model, acting(1, *speak, 2, *speak, 3), pieces=True, run_config=BY_HAND
        )  # fmt: skip
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        1.50 ~ e2 user user: 'one' in
        1.50 ~ e3 root model: <audio/pcm;rate=24000 192000> out='a b c d' live(item_id=e3)
        3.50 3 e4 user user: 'one' in. live()
        3.50 ~ e3 root cut live(item_id=e3)
        3.50 4 e3 root model: 'a b c d' out. cut live(item_id=e3)
        4.00 ~ e5 user user: 'two' in
        4.00 ~ e6 root model: <audio/pcm;rate=24000 24000> out='Yes.' live(item_id=e6)
        4.00 5 e7 user user: 'two' in. live()
        4.00 6 e6 root model: 'Yes.' out. over live(item_id=e6)
        0.00 > connect 1
        1.00 > activity_start
        1.50 > activity_end
        3.50 > activity_start
        4.00 > activity_end
        7.00 > close
    """)


@both
async def test_what_errors_leave_of_an_answer(dialect: DialectName, autojump_clock: MockClock) -> None:
    """An error is an event with what was dropped; what was said before it is kept, and what comes after it, too."""
    failed = LlmResponse(error_code="RATE", error_message="too much", turn_complete=True, item_id="a1")
    script: list[Any] = [
        [sound(500, "a1", "one"), pause(1), failed],
        [sound(250, "a1", "late"), LlmResponse(error_code="ODD"), sound(500, "a2", "two"), over("a2")],
    ]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting("a", 3, "b", 3), pieces=True)
    expected = """
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 ~ e3 root model: <audio/pcm;rate=24000 24000> out='one' live(item_id=a1)
        1.00 4 e4 root RATE: too much live()
        1.00 5 e3 root model: 'one' out. over live(item_id=a1)
        3.00 6 e5 user user: 'b' live(after_seq=5)
        3.00 7 e6 root ODD: None live(dropped_audio_ms=250)
        3.00 ~ e7 root model: <audio/pcm;rate=24000 24000> out='two' live(item_id=a2)
        3.00 8 e7 root model: 'two' out. over live(item_id=a2)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        3.00 > content user: 'b' ? id=e5
        6.00 > close
    """
    assert found == records(expected)
