"""Where a bound of a live run stands exactly: errors in a row, a millisecond of sound, a caller that reads nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    BaseAgent,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
)
from minirun.errors import ModelError
from minirun.models import LlmResponse
from minirun.testing import ScriptedLive, error, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, converse, conversing, is_sound, lines, new_runner, sent_of, stored


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
    assert str(client.failure) == "the server has reported 100 errors in a row; the last was Y: worse"
    codes = [event.error_code for event in client.events if event.live is not None and event.error_code]
    assert codes == ["X"] * 99 + ["Y"]


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


OVER = LlmResponse(turn_complete=True)


@both
@pytest.mark.parametrize("failure", [[], [error("E429", "busy")]], ids=["empty", "failed"])
async def test_every_turn_that_was_asked_for_ends_for_the_caller(
    failure: list[Any], dialect: DialectName, autojump_clock: MockClock
) -> None:
    """A response that is empty, or has failed, has an event with `turn_complete`: a loop that waits for it ends."""
    async with new_runner(ScriptedLive([[*failure, OVER]], dialect=dialect)) as runner:
        with trio.fail_after(60):
            client = await converse(runner, "hi")
    assert client.failure is None
    assert [event.turn_complete for event in client.events if event.turn_complete] == [True]
