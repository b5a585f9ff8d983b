"""Where a bound of a live run stands exactly: errors in a row, a millisecond of sound, a caller that reads nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    BaseAgent,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    SequentialAgent,
)
from minirun.errors import ModelError
from minirun.testing import ScriptedLive, call, error, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, conversing, is_sound, lines, new_runner, sent_of, stored


@both
async def test_a_server_that_fails_99_times_in_a_row_is_heard_again(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """An answer ends the row: as many errors may follow it, and the conversation goes on."""
    entry = [*[error("X", "broken")] * 99, say("Here I am.")]
    model = ScriptedLive([entry, entry], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner) as client:
        assert [(await client.ask("hello")).text for _ in range(2)] == ["Here I am."] * 2
    assert client.failure is None
    assert [event.error_code for event in client.events if event.error_code] == ["X"] * 198


@both
async def test_a_server_that_fails_100_times_in_a_row_ends_the_run(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """Each error is an event of its own, and the run's error says what the last one was."""
    model = ScriptedLive([[*[error("X", "broken")] * 99, error("Y", "worse"), say("Never.")]], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.live.send_text("hello")
        await client.hear_out()
    assert isinstance(client.failure, ModelError)
    assert str(client.failure) == "the server has failed 100 times in a row; the last was Y: worse"
    codes = [event.error_code for event in client.events if event.live is not None and event.error_code]
    assert codes == ["X"] * 99 + ["Y"]


@pytest.mark.parametrize(
    ("played_ms", "told"), [(0.5, ["", "one two"]), (1, ["one", "two"]), (1.1, None), (1.5, None), (2, None), (3, None)]
)
async def test_of_an_answer_of_which_less_than_a_millisecond_is_left_nothing_is_cut(
    played_ms: float, told: list[str] | None, autojump_clock: MockClock
) -> None:
    """It was played to its end: the clock and the sound are counted in fractions."""
    async with new_runner(ScriptedLive(["one two"], dialect="openai", word_ms=1)) as runner:
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("count")
            async for event in live:
                if event.turn_complete and event.live:
                    await live.played(event, played_ms)
                    break
        found = [event.custom_metadata for event in await stored(runner) if event.live and "cut_seq" in event.live]
    assert found == ([] if told is None else [{"heard": told[0], "unheard": told[1]}])


@pytest.mark.parametrize(("word_ms", "played_ms", "truncated"), [(1, 0, [1]), (2, 0, [1]), (2, 1.9, [1]), (2, 2, [])])
async def test_a_server_is_told_at_least_a_millisecond_of_what_was_heard(
    word_ms: int, played_ms: float, truncated: list[int], autojump_clock: MockClock
) -> None:
    """It takes whole ones, from one up; it is told nothing where all that has come was heard."""
    model = ScriptedLive([[say("one"), pause(60)]], dialect="openai", word_ms=word_ms)
    async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
        await live.send_text("count")
        async for event in live:
            if is_sound(event):
                await live.interrupt()
            elif event.interrupted and event.partial:
                await live.played(event, played_ms)
            elif event.interrupted:
                await live.aclose()
    assert [each.played_ms for each in sent_of(model, "truncate")] == truncated


@both
async def test_what_is_cut_off_is_stored_although_the_caller_reads_nothing(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """A caller that is stuck holds up nothing but what it is shown: at the end of its time the answer is in the log."""
    model = ScriptedLive([[say("one two"), pause(60)]], dialect=dialect, word_ms=100)
    async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
        await live.send_text("count")
        async for event in live:
            if is_sound(event):
                break
        await live.aclose(finish_turn_s=1)
        await trio.sleep(10)
        assert lines(await stored(runner))[-1].startswith("root: one")


class Waiter(BaseAgent):
    """An agent that waits for three seconds, in which nobody converses."""

    async def _run_live_impl(self, ctx: InvocationContext) -> None:
        await trio.sleep(3)


async def test_the_program_interrupts_what_is_played_while_nobody_converses(autojump_clock: MockClock) -> None:
    """The next agent that converses says how much was heard of the answer of the one before."""
    script = [[say("one two three four"), call("task_completed")]]
    first = ScriptedLive(script, dialect="openai", word_ms=1_000)
    last = ScriptedLive([[], "Yes?"], dialect="openai", name="last")
    agents = [LlmAgent(name="first", model=first), Waiter(name="waiter"), LlmAgent(name="last", model=last)]
    runner = InMemoryRunner(SequentialAgent(name="all", sub_agents=agents), auto_create_session=True)
    async with runner, conversing(runner) as client:
        await client.live.send_text("count")
        await client.until(lambda event: event.get_function_responses())
        await trio.sleep(1)
        await client.live.interrupt()
        cut = await client.until(lambda event: event.live and "cut_seq" in event.live)
        assert cut.author == "last"
    assert set(cut.custom_metadata or {}) == {"heard", "unheard"}


class Shared(InMemorySessionService):
    """A store that says that other processes have it, too, and counts how often it is asked for their messages."""

    renew_every_s = 1000.0

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[float] = []

    async def load_messages(self, *args: Any) -> Any:
        self.looks.append(trio.current_time())
        return await super().load_messages(*args)


async def test_a_run_at_rest_looks_into_a_shared_store_every_two_seconds(autojump_clock: MockClock) -> None:
    """And no more often, although it looks twice a second whether others here have sent something."""
    service = Shared()
    agent = LlmAgent(name="root", model=ScriptedLive(["Yes?"]))
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    async with runner, conversing(runner) as client:
        await client.ask("hello")
        await trio.sleep(5)
        service.looks.clear()
        await trio.sleep(60)
        assert [round(after - before, 3) for before, after in pairwise(service.looks)] == [2.0] * 29
