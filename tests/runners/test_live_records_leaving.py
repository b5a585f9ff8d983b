"""What is stored when a run is left in the middle of things, as lines; see `live_records`."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

from minirun import LlmAgent, RunConfig, SequentialAgent
from minirun.models import LlmResponse
from minirun.testing import ScriptedLive, call, pause
from minirun.testing._live_dialects import DialectName
from minirun.types import Content, Part

from ..live_client import both, new_runner
from ..live_deeds import acting, doing, heard, over, playing, slow, sound, started, stopped
from ..live_records import left, records

SAVES = RunConfig(save_live_blob=True)


@both
async def test_who_leaves_an_answer_has_heard_what_was_shown(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Unless the client has said how much was played; what it was not given is counted."""
    found = []
    for said in ([], [doing("played", "a1", 1500)], [doing("played", "a1", 0)]):
        script = [[sound(2000, "a1", "one two "), sound(2000, "a1", "three four"), pause(9)]]
        model = ScriptedLive(script, dialect=dialect)
        async with new_runner(model) as runner:
            found.append(await left(runner, acting("go", 1, *said)))
    assert "\n".join(found) == records("""
        1 e1 user live(begins=True)
        2 e2 root live(connection=1, reason=start)
        3 e3 user user: 'go' live(after_seq=2)
        4 e4 root model: 'one two three four' out. cut live(item_id=a1)
        1 e1 user live(begins=True)
        2 e2 root live(connection=1, reason=start)
        3 e3 user user: 'go' live(after_seq=2)
        4 e4 root model: 'one two' out. cut live(item_id=a1) about(unheard=three four)
        1 e1 user live(begins=True)
        2 e2 root live(connection=1, reason=start)
        3 e3 user user: 'go' live(after_seq=2)
        4 e4 root out=''. cut live(item_id=a1) about(unheard=one two three four)
    """)


@both
async def test_who_leaves_while_answers_are_played(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Of those that are over it counts what the client says; of what waits behind one that is cut nothing was heard."""
    script: list[Any] = [
        [sound(2000, "a1", "one two"), over("a1")],
        [sound(2000, "a2", "three four"), over("a2")],
        [sound(1000, "a3", "five six"), pause(9)],
    ]
    found = []
    for item_id, ms in (("a1", 2000), ("a1", 1000), ("a2", 1000), ("a3", 500)):
        model = ScriptedLive(script, dialect=dialect)
        async with new_runner(model) as runner:
            deeds = ("go", 0.5, "on", 0.5, "on", 0.5, doing("played", item_id, ms))
            found.append(await left(runner, acting(*deeds)))
    expected = {
        "gemini": """
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root model: 'five six' out. cut live(item_id=a3)
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root model: 'five six' out. cut live(item_id=a3)
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root model: 'five six' out. cut live(item_id=a3)
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root model: 'five' out. cut live(item_id=a3) about(unheard=six)
        """,
        "openai": """
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root model: 'five six' out. cut live(item_id=a3)
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root cut live(cut_seq=4, item_id=a1) about(heard=one, unheard=two)
            9 e9 root cut live(cut_seq=6, item_id=a2) about(heard=, unheard=three four)
            10 e10 root out=''. cut live(item_id=a3) about(unheard=five six)
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root cut live(cut_seq=6, item_id=a2) about(heard=three, unheard=four)
            9 e9 root out=''. cut live(item_id=a3) about(unheard=five six)
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: 'one two' out. over live(item_id=a1)
            5 e5 user user: 'on' live(after_seq=4)
            6 e6 root model: 'three four' out. over live(item_id=a2)
            7 e7 user user: 'on' live(after_seq=6)
            8 e8 root model: 'five' out. cut live(item_id=a3) about(unheard=six)
        """,
    }
    assert "\n".join(found) == records(expected[dialect])


@both
async def test_words_that_are_not_finished_are_stored(dialect: DialectName, autojump_clock: MockClock) -> None:
    """In the order in which they were said, with the sound of each; an utterance without words is none."""
    speech = [
        started("u1"), heard("one ", "u1"), stopped("u1"), sound(500, "a1", "Yes"), started("u2"), heard("two", "u2"),
        stopped("u2"), started("u3"),
    ]  # fmt: skip
    model = ScriptedLive([], dialect=dialect)
    rate = 24000 if dialect == "openai" else 16000
    async with new_runner(model) as runner:
        deeds = (1, doing("send_audio", bytes(rate)), 0.5, playing(model, *speech), 1)
        found = await left(runner, acting(*deeds), run_config=SAVES)
    expected = {
        "gemini": """
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'one' in. live(item_id=u1) files(e3.wav=0)
            4 e4 user user: 'two' in. live(item_id=u2)
            5 e5 root model: 'Yes' out. over live(item_id=a1) files(e5.wav=0)
        """,
        "openai": """
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 root model: 'Yes' out. live(item_id=a1) files(e3.wav=0)
            4 e4 user user: 'one' in. live(before_seq=3, item_id=u1) files(e4.wav=0)
            5 e5 user user: 'two' in. live(item_id=u2)
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_who_leaves_calls_and_the_answer_beside_them(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The answer that the model gives while it waits is cut off, and the calls are answered as cancelled."""
    script: list[Any] = [[call("slow", n=9), call("slow", n=8), pause(1), sound(500, "b1", "Wait"), pause(9)]]
    model = ScriptedLive(script, dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        found = await left(runner, acting("go", 2))
    expected = {
        "gemini": """
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: slow({'n': 9}) slow({'n': 8}) live(item_id=answer-1, path=run/root)
            5 e5 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                    ended'}} slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                    ended'}}
            6 e6 root model: 'Wait' out. cut live(item_id=b1)
        """,
        "openai": """
            1 e1 user live(begins=True)
            2 e2 root live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 root model: slow({'n': 9}) live(item_id=answer-1, path=run/root)
            5 e5 root model: slow({'n': 8}) live(item_id=answer-1, path=run/root)
            6 e6 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                    ended'}}
            7 e7 root user: slow={'error': {'type': 'cancelled', 'message': 'the call was cancelled before it
                    ended'}}
            8 e8 root model: 'Wait' out. cut live(item_id=b1)
        """,
    }
    assert found == records(expected[dialect])


@both
async def test_a_written_answer_that_is_left(dialect: DialectName, autojump_clock: MockClock) -> None:
    """It is stored as far as it was shown."""
    piece = LlmResponse(content=Content(role="model", parts=[Part(text="one ")]), partial=True, item_id="a1")
    more = LlmResponse(content=Content(role="model", parts=[Part(text="two")]), partial=True, item_id="a1")
    model = ScriptedLive([[piece, pause(1), more, pause(9)]], dialect=dialect)
    async with new_runner(model) as runner:
        found = await left(runner, acting("go", 0.5))
    assert found == records("""
        1 e1 user live(begins=True)
        2 e2 root live(connection=1, reason=start)
        3 e3 user user: 'go' live(after_seq=2)
        4 e4 root model: 'one' cut live(item_id=a1)
    """)


@both
async def test_a_handover_keeps_what_is_played(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The first agent's answer is still played when the second one is left: then it counts what the client says."""
    first = ScriptedLive([[sound(3000, "a1", "one two three"), call("task_completed")]], dialect=dialect)
    second = ScriptedLive([[sound(1000, "b1", "four"), over("b1")]], dialect=dialect)
    agents = [LlmAgent(name="one", model=first), LlmAgent(name="two", model=second)]
    agent = SequentialAgent(name="both", sub_agents=agents)
    async with new_runner(first, agent=agent) as runner:
        found = await left(runner, acting("go", 1, doing("played", "a1", 1000)))
    expected = {
        "gemini": """
            1 e1 user live(begins=True)
            2 e2 one live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 one model: 'one two three' out. live(item_id=a1)
            5 e5 one model: task_completed({}) live(item_id=answer-1, path=run/both/one)
            6 e6 one user: task_completed={'result': 'done'}
            7 e7 two live(connection=2, reason=transfer)
            8 e8 two model: 'four' out. over live(item_id=b1)
        """,
        "openai": """
            1 e1 user live(begins=True)
            2 e2 one live(connection=1, reason=start)
            3 e3 user user: 'go' live(after_seq=2)
            4 e4 one model: 'one two three' out. live(item_id=a1)
            5 e5 one model: task_completed({}) live(item_id=answer-1, path=run/both/one)
            6 e6 one user: task_completed={'result': 'done'}
            7 e7 two live(connection=2, reason=transfer)
            8 e8 two model: 'four' out. over live(item_id=b1)
            9 e9 two cut live(cut_seq=4, item_id=a1) about(heard=one, unheard=two three)
            10 e10 two cut live(cut_seq=8, item_id=b1) about(heard=, unheard=four)
        """,
    }
    assert found == records(expected[dialect])
