"""When something happens in a live run, to the second, and how often it may: the limits at their bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from minirun import RunConfig
from minirun.errors import IdleTimeoutError, TurnsLimitExceededError
from minirun.events import Event
from minirun.runners import LiveRun
from minirun.testing import ScriptedLive, call, go_away, pause, say
from minirun.testing._live_dialects import DIALECTS, DialectName

from ..live_client import both, conversing, lines, new_runner, sent_of, stored

VOICE = b"\1\1" * 8_000

Act = Callable[[LiveRun], Awaitable[None]]


async def seconds_of(model: ScriptedLive, act: Act, tools: list[Any] = [], **settings: Any) -> tuple[float, Any]:  # noqa: B006 # not changed
    """How long the run takes in which *act* is done, and what it fails with."""
    began = trio.current_time()
    async with new_runner(model, tools=tools) as runner:
        try:
            async with runner.run_live(
                user_id="u", session_id="s", run_config=RunConfig(**settings)
            ) as live, trio.open_nursery() as nursery:  # fmt: skip
                nursery.start_soon(act, live)
                async for _ in live:
                    pass
        except BaseExceptionGroup as group:
            [error] = group.exceptions
            return round(trio.current_time() - began, 3), error
    return round(trio.current_time() - began, 3), None


# --- turns ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(("limit", "answers"), [(0, 3), (-1, 3), (1, 1), (2, 2), (3, 3), (4, 3)])
async def test_a_run_has_as_many_turns_as_it_may(
    limit: int, answers: int, dialect: DialectName, autojump_clock: MockClock
) -> None:
    """The turn after the last one is refused when it begins, before anything of it is shown; 0 is no limit."""
    model = ScriptedLive(["One.", "Two.", "Three."], dialect=dialect)
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(max_turns=limit)) as client:
            for _ in range(answers):
                await client.ask("go on")
            if answers < 3:
                await client.live.send_text("go on")
                await client.hear_out()
        said = [line for line in lines(await stored(runner)) if line.startswith("root: ")]
    expected = ["root: One.", "root: Two.", "root: Three."][:answers]
    if answers == 3:
        assert (client.failure, said) == (None, expected)
    else:
        assert isinstance(client.failure, TurnsLimitExceededError)
        assert str(client.failure) == f"the live run has had {limit} turns; raise RunConfig.max_turns"
        assert said == [*expected, "root: !TurnsLimitExceededError"]
        assert [each.kind for each in model.sent][-2:] == ["cancel", "close"]


# --- silence ----------------------------------------------------------------------------------------------------------


async def nothing(live: LiveRun) -> None:
    """Say nothing."""


async def write(live: LiveRun) -> None:
    """Write after ten seconds."""
    await trio.sleep(10)
    await live.send_text("hi")


async def speak(live: LiveRun) -> None:
    """Speak after ten seconds."""
    await trio.sleep(10)
    await live.send_audio(VOICE)


async def start(live: LiveRun) -> None:
    """Send sound without a voice after ten seconds, which is nobody's word."""
    await trio.sleep(10)
    await live.send_audio(bytes(9_600))


async def slow() -> str:
    """Take 100 seconds."""
    await trio.sleep(100)
    return "done"


@pytest.mark.parametrize(
    ("act", "script", "expected_s"),
    [
        (nothing, [], 60.0),
        (start, [], 60.0),
        (speak, [], 70.0),
        (write, [[]], 70.0),
        (write, ["Yes."], 90.0),  # it is played for 20 seconds
        (write, [[pause(30), say("Yes.")]], 120.0),
        (write, [[call("slow")], []], 170.0),
    ],
    ids=["nothing", "silence", "voice", "no answer", "answer", "late answer", "call"],
)
async def test_silence_counts_from_the_last_word(
    act: Act, script: list[Any], expected_s: float, autojump_clock: MockClock
) -> None:
    """Of either side; what is played, and a call, is no silence."""
    model = ScriptedLive(script, dialect="openai", word_ms=20_000)
    seconds, error = await seconds_of(model, act, [slow], idle_s=60)
    assert isinstance(error, IdleTimeoutError)
    assert str(error) == "nobody has said anything in the live run for RunConfig.idle_s=60 seconds"
    assert seconds == expected_s


# --- closing ----------------------------------------------------------------------------------------------------------


def closing_after(seconds: float, *, sound: bytes = b"", text: str = "", finish_turn_s: float | None = 30) -> Act:
    """What speaks or writes, and closes after so many seconds."""

    async def act(live: LiveRun) -> None:
        if sound:
            await live.send_audio(sound)
        if text:
            await live.send_text(text)
        await trio.sleep(seconds)
        await live.aclose(finish_turn_s=finish_turn_s)

    return act


@pytest.mark.parametrize(
    ("dialect", "act", "script", "expected_s"),
    [
        ("gemini", closing_after(1), [], 1.0),
        ("openai", closing_after(1), [], 1.0),
        ("gemini", closing_after(1, sound=VOICE), [], 1.0),
        ("openai", closing_after(1, sound=VOICE), [], 6.0),  # it still waits for the text
        ("openai", closing_after(1, sound=VOICE, finish_turn_s=3), [], 4.0),
        ("openai", closing_after(1, text="hi"), [[pause(7), say("Yes.")]], 7.0),
        ("gemini", closing_after(1, text="hi"), [[pause(7), say("Yes.")]], 8.0),  # the server reckons how long it plays
        ("openai", closing_after(1, text="hi"), [[]], 31.0),
        ("openai", closing_after(1, text="hi", finish_turn_s=0), [[pause(7), say("Yes.")]], 1.0),
        ("openai", closing_after(1, text="hi", finish_turn_s=None), [[pause(90), say("Yes.")]], 90.0),
    ],
)
async def test_closing_takes_as_long_as_the_answer_or_as_it_may(
    dialect: DialectName, act: Act, script: list[Any], expected_s: float, autojump_clock: MockClock
) -> None:
    """The run ends with the answer, five seconds after it waits for a text in vain, or when its time is over."""
    model = ScriptedLive(script, dialect=dialect, word_ms=1_000)
    seconds, error = await seconds_of(model, act)
    assert (seconds, error) == (expected_s, None)


@pytest.mark.parametrize(("told_after_s", "played_ms"), [(1.9, 700), (2.1, 1_500)])
async def test_a_caller_has_two_seconds_to_say_what_was_played(
    told_after_s: float, played_ms: int, autojump_clock: MockClock
) -> None:
    """One that does not ask for the next event is waited for that long; then what is known by the clock counts."""
    model = ScriptedLive(["one two three four", "Fine."], dialect="openai", word_ms=1_000)
    async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
        await live.send_text("count")
        async for event in live:
            if event.turn_complete:
                await trio.sleep(1.5)
                await live.interrupt()
            elif event.interrupted and event.partial:
                await trio.sleep(told_after_s)
                await live.played(event, 700)
                await trio.sleep(10)
            elif event.interrupted:
                await live.aclose()
    [truncation] = sent_of(model, "truncate")
    assert truncation.played_ms == played_ms


# --- connections ------------------------------------------------------------------------------------------------------


def connections(events: list[Event]) -> list[tuple[int, str]]:
    """The connections that the log tells of."""
    return [(each.live["connection"], each.live["reason"]) for each in events if each.live and "reason" in each.live]


@both
@pytest.mark.parametrize(
    ("asked_at_s", "moved_at_s"),
    [(1.0, 80.0), (79.0, 82.0), (79.9, 82.9), (80.5, 80.0)],
    ids=["at rest", "in an answer", "just begun", "after it"],
)
async def test_a_connection_is_left_at_four_fifths_of_its_lifetime(
    asked_at_s: float, moved_at_s: float, dialect: DialectName, autojump_clock: MockClock
) -> None:
    """At once if nobody has the word, else when the answer is over, which it does not interrupt."""
    capabilities = attrs.evolve(DIALECTS[dialect].capabilities, lifetime_s=100.0)
    model = ScriptedLive([[say("one"), pause(3)]], dialect=dialect, live_capabilities=capabilities)
    async with new_runner(model) as runner:
        began = trio.current_time()
        async with conversing(runner, run_config=RunConfig(idle_s=None)) as client:
            await trio.sleep(asked_at_s)
            await client.ask("go")
            await trio.sleep(90 - asked_at_s)
        assert connections(await stored(runner)) == [(1, "start"), (2, "lifetime")]
    assert [round(each.at - began, 3) for each in sent_of(model, "connect")] == [0.0, moved_at_s]


@pytest.mark.parametrize(("script", "moved_at_s"), [([go_away(9)], 5.0), ([say("one"), go_away(9), pause(3)], 8.0)])
async def test_a_connection_that_is_going_away_is_left(
    script: list[Any], moved_at_s: float, autojump_clock: MockClock
) -> None:
    """At once if nobody has the word, else when the answer is over; the reason is another one than a lifetime."""
    model = ScriptedLive([], dialect="gemini", on_connect=[[pause(5), *script]])
    async with new_runner(model) as runner:
        began = trio.current_time()
        async with conversing(runner):
            await trio.sleep(20)
        assert connections(await stored(runner)) == [(1, "start"), (2, "go_away")]
    assert [round(each.at - began, 3) for each in sent_of(model, "connect")] == [0.0, moved_at_s]
