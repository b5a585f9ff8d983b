"""What is sent again, and what is not, as lines; see `live_records`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from trio.testing import MockClock

from minirun.models import LlmRequest, LlmResponse
from minirun.testing import LiveSent, ScriptedLive, call, cancel_calls, drop, handle, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, new_runner
from ..live_deeds import Deaf, acting, doing, heard, over, playing, slow, sound
from ..live_records import recorded, records


async def test_what_a_server_has_answered_is_not_sent_again(autojump_clock: MockClock) -> None:
    """One that does not tell what it has taken up has all that came before an answer; the rest is sent once more."""

    def script(sent: LiveSent) -> Any:
        known = {"a": [handle("h", taken_up=False), say("A.")], "b": say("B.")}
        return None if sent.text == "c" and sent.connection == 1 else known.get(sent.text, say("C."))

    model = ScriptedLive(script, dialect="gemini")
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting("a", 1, "b", 1, "c", 1, playing(model, drop()), 2))
    assert found == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.25 4 e3 root model: 'A.' out. over live(item_id=answer-1)
        1.00 5 e4 user user: 'b' live(after_seq=4)
        1.25 6 e5 root model: 'B.' out. over live(item_id=answer-2)
        2.00 7 e6 user user: 'c' live(after_seq=6)
        3.00 8 e7 root live(connection=2, reason=lost)
        3.25 9 e8 root model: 'C.' out. over live(item_id=answer-3)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        1.00 > content user: 'b' ? id=e4
        2.00 > content user: 'c' ? id=e6
        3.00 > close
        3.00 > connect 2 handle=h
        3.00 > content user: 'c' ? id=e6
        5.00 > close
    """)


async def test_results_that_are_taken_back_are_not_sent_again(autojump_clock: MockClock) -> None:
    """Of a content with several results those are left that the server still wants; of the others it hears nothing."""

    def script(sent: LiveSent) -> Any:
        if sent.text == "a":
            return [handle("h", taken_up=False), call("slow", n=1), call("slow", n=1)]
        return None if sent.connection == 1 else say("Well.")

    found = []
    for call_ids in (("call-1",), ("call-1", "call-2"), ("call-3",)):
        model = ScriptedLive(script, dialect="gemini")
        async with new_runner(model, tools=[slow]) as runner:
            deeds = ("a", 2, playing(model, cancel_calls(*call_ids)), 1, playing(model, drop()), 2)
            found.append(await recorded(runner, model, acting(*deeds)))
    assert "\n".join(found) == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 4 e3 root model: slow({'n': 1}) slow({'n': 1}) live(item_id=answer-1, path=run/root)
        1.00 5 e4 root user: slow={'result': 'after 1'} slow={'result': 'after 1'}
        3.00 6 e5 root live(connection=2, reason=lost)
        3.25 7 e6 root model: 'Well.' out. over live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        1.00 > responses user: slow(call-1)={'result': 'after 1'} slow(call-2)={'result': 'after 1'} ? id=e4
        3.00 > close
        3.00 > connect 2 handle=h
        3.00 > responses user: slow(call-2)={'result': 'after 1'} ? id=e4
        5.00 > close
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 4 e3 root model: slow({'n': 1}) slow({'n': 1}) live(item_id=answer-1, path=run/root)
        1.00 5 e4 root user: slow={'result': 'after 1'} slow={'result': 'after 1'}
        3.00 6 e5 root live(connection=2, reason=lost)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        1.00 > responses user: slow(call-1)={'result': 'after 1'} slow(call-2)={'result': 'after 1'} ? id=e4
        3.00 > close
        3.00 > connect 2 handle=h
        5.00 > close
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 4 e3 root model: slow({'n': 1}) slow({'n': 1}) live(item_id=answer-1, path=run/root)
        1.00 5 e4 root user: slow={'result': 'after 1'} slow={'result': 'after 1'}
        3.00 6 e5 root live(connection=2, reason=lost)
        3.25 7 e6 root model: 'Well.' out. over live(item_id=answer-2)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        1.00 > responses user: slow(call-1)={'result': 'after 1'} slow(call-2)={'result': 'after 1'} ? id=e4
        3.00 > close
        3.00 > connect 2 handle=h
        3.00 > responses user: slow(call-1)={'result': 'after 1'} slow(call-2)={'result': 'after 1'} ? id=e4
        5.00 > close
    """)


@both
async def test_words_that_get_lost(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Where the line fails for what the user says, there is another one, which hears of it."""
    model = Deaf(lambda sent: say("Yes."), dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting("a", 2, "too loud", 2, "b", 2))
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.25 4 e3 root model: 'Yes.' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'too loud' live(after_seq=4)
            2.00 6 e5 root live(connection=2, reason=lost)
            2.25 7 e6 root model: 'Yes.' out. over live(item_id=answer-2)
            4.00 8 e7 user user: 'b' live(after_seq=7)
            4.25 9 e8 root model: 'Yes.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            2.00 > close
            2.00 > connect 2
            2.00 > history ?
                user: 'a'
                model: 'Yes.'
                user: 'too loud'
            4.00 > content user: 'b' ? id=e7
            6.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            0.00 3 e2 user user: 'a' live(after_seq=2)
            0.00 4 e3 root model: 'Yes.' out. over live(item_id=answer-1)
            2.00 5 e4 user user: 'too loud' live(after_seq=4)
            2.00 6 e5 root live(connection=2, reason=lost)
            2.00 7 e6 root model: 'Yes.' out. over live(item_id=answer-2)
            4.00 8 e7 user user: 'b' live(after_seq=7)
            4.00 9 e8 root model: 'Yes.' out. over live(item_id=answer-3)
            0.00 > connect 1
            0.00 > content user: 'a' ? id=e2
            2.00 > close
            2.00 > connect 2
            2.00 > history ?
                user: 'a'
                model: 'Yes.'
                user: 'too loud'
            4.00 > content user: 'b' ? id=e7
            6.00 > close
        """,
    }
    assert found == records(expected[dialect])


class Calm(ScriptedLive):
    """A server that takes its time to say that an answer is interrupted."""

    @asynccontextmanager
    async def connect(self, request: LlmRequest) -> AsyncIterator[Any]:
        """Connect."""

        async def cancel() -> None:
            pass

        async with super().connect(request) as connection:
            connection.cancel = cancel  # type: ignore[method-assign]
            yield connection


def answered(first: list[Any], sent: LiveSent) -> list[Any] | None:
    """All that the server says, if this was what begins it."""
    return first if sent.text == "a" else None


async def test_closing_waits_for_the_answer_after_one_that_was_cut_off(autojump_clock: MockClock) -> None:
    """The server says late that the first one is interrupted, and then that it is over: the second one is owed."""
    found = []
    ends: list[list[Any]] = [
        [over("a1", interrupted=True), pause(1)],
        [LlmResponse(interrupted=True, item_id="a1"), pause(1), over("a1")],
    ]
    for end in ends:
        first: list[Any] = [sound(2000, "a1", "one "), pause(2), *end, pause(2), sound(500, "a2", "two"), over("a2")]
        model = Calm(partial(answered, first), dialect="openai")
        async with new_runner(model) as runner:
            found.append(await recorded(runner, model, acting("a", 0.5, doing("interrupt"), 1, "b", 2.5), pieces=True))
    assert "\n".join(found) == records("""
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
        0.50 ~ e3 root cut live(item_id=a1)
        0.50 4 e3 root model: 'one' out. cut live(item_id=a1)
        1.50 5 e4 user user: 'b' live(after_seq=4)
        5.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='two' live(item_id=a2)
        5.00 6 e5 root model: 'two' out. over live(item_id=a2)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        1.50 > content user: 'b' ? id=e4
        5.00 > close
        0.00 2 e1 root live(connection=1, reason=start)
        0.00 3 e2 user user: 'a' live(after_seq=2)
        0.00 ~ e3 root model: <audio/pcm;rate=24000 96000> out='one ' live(item_id=a1)
        0.50 ~ e3 root cut live(item_id=a1)
        0.50 4 e3 root model: 'one' out. cut live(item_id=a1)
        1.50 5 e4 user user: 'b' live(after_seq=4)
        5.00 ~ e5 root model: <audio/pcm;rate=24000 24000> out='two' live(item_id=a2)
        5.00 6 e5 root model: 'two' out. over live(item_id=a2)
        0.00 > connect 1
        0.00 > content user: 'a' ? id=e2
        1.50 > content user: 'b' ? id=e4
        5.00 > close
    """)


@both
async def test_closing_waits_for_words_only_where_the_server_says_their_end(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """Where it does, it is given a while; where it does not, what was heard by then is all."""
    model = ScriptedLive([], dialect=dialect)
    async with new_runner(model) as runner:
        found = await recorded(runner, model, acting(1, playing(model, heard("one", "u1")), 1), pieces=True)
    expected = {
        "gemini": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 ~ e2 user user: 'one' in live(item_id=u1)
            2.00 3 e3 user user: 'one' in. live(item_id=u1)
            0.00 > connect 1
            2.00 > close
        """,
        "openai": """
            0.00 2 e1 root live(connection=1, reason=start)
            1.00 ~ e2 user user: 'one' in live(item_id=u1)
            7.00 3 e3 user user: 'one' in. live(item_id=u1)
            0.00 > connect 1
            7.00 > close
        """,
    }
    assert found == records(expected[dialect])
