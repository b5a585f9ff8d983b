"""What was played of answers that the server was done with long before: OpenAI makes them faster than they play."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from minirun import InMemoryRunner, LlmAgent
from minirun.events import Event
from minirun.testing import ScriptedLive, ScriptedLlm, call, hear, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, conversing, is_over, lines, new_runner, sent_of, stored

VOICE, SILENCE = b"\1\0" * 2_400, b"\0\0" * 14_400  # 0.1 and 0.6 s


def cuts(events: list[Event]) -> list[tuple[int, object]]:
    """What is told of answers that were stored before: of which event, and what."""
    return [
        (event.live["cut_seq"], event.custom_metadata) for event in events if event.live and "cut_seq" in event.live
    ]


def a_counter() -> ScriptedLive:
    """A model whose first answer is four seconds long."""
    script = ["one two three four", [hear("stop"), "Fine."]]
    return ScriptedLive(script, dialect="openai", word_ms=1_000, text=ScriptedLlm(["Two."]))


async def test_an_answer_that_is_over_may_still_be_interrupted(autojump_clock: MockClock) -> None:
    """An event of its own says what was heard of it, by the clock here; the server is told, and prompts show that."""
    model = a_counter()
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.ask("count")
            await trio.sleep(2.3)
            await client.live.send_audio(VOICE)
            notice = await client.until(lambda event: event.partial and event.interrupted)
            assert notice.live == {"item_id": "answer-1"}
            await client.live.send_audio(SILENCE)
            await client.until(lambda event: event.text == "Fine." and is_over(event))
        events = await stored(runner)
        [answer] = [event for event in events if event.text == "one two three four"]
        assert cuts(events) == [(answer.seq, {"heard": "one two", "unheard": "three four"})]
        [truncation] = sent_of(model, "truncate")
        assert truncation.item_id == "answer-1"
        assert 2_300 <= (truncation.played_ms or 0) < 2_500
        await runner.run_debug("what did you say?", user_id="u", session_id="s", quiet=True)
    assert isinstance(model._text, ScriptedLlm)
    shown = [content.text for content in model._text.requests[0].contents]
    assert shown == ["count", "one two", "stop", "Fine.", "what did you say?"]


async def test_an_answer_that_was_played_to_its_end_is_not_cut(autojump_clock: MockClock) -> None:
    """Who speaks when it has been played interrupts nothing."""
    model = a_counter()
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.ask("count")
            await trio.sleep(4)
            await client.live.send_audio(VOICE)
            await client.live.send_audio(SILENCE)
            await client.until(lambda event: event.text == "Fine." and is_over(event))
        events = await stored(runner)
    assert lines(events) == ["user: count", "root: one two three four", "user: stop", "root: Fine."]
    assert not any(event.interrupted for event in client.events)
    assert not sent_of(model, "truncate")


async def test_who_hangs_up_says_what_was_played(autojump_clock: MockClock) -> None:
    """What the client says before it leaves counts; if it says nothing, the sound may go on without the run."""
    for played_ms, expected in ((1_000, [{"heard": "one", "unheard": "two three four"}]), (4_000, []), (None, [])):
        async with new_runner(a_counter()) as runner:
            async with runner.run_live(user_id="u", session_id="s") as live:
                await live.send_text("count")
                async for event in live:
                    if event.turn_complete and event.live:
                        if played_ms is not None:
                            await live.played(event.live["item_id"], played_ms)
                        break
            told = [told for _, told in cuts(await stored(runner))]
        assert told == expected


async def test_the_program_interrupts_what_is_being_played(autojump_clock: MockClock) -> None:
    """`interrupt` stores what was heard of an answer that the server was done with; the next answer is whole."""
    model = ScriptedLive(["one two three four", "Fine."], dialect="openai", word_ms=1_000)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.ask("count")
            await trio.sleep(2.3)
            await client.live.interrupt()
            notice = await client.until(lambda event: event.partial and event.interrupted)
            assert notice.live == {"item_id": "answer-1"}
            await client.until(is_over)
            assert (await client.ask("stop")).text == "Fine."
        events = await stored(runner)
    assert lines(events) == ["user: count", "root: one two three four", "root: -", "user: stop", "root: Fine."]
    assert [told for _, told in cuts(events)] == [{"heard": "one two", "unheard": "three four"}]
    assert [each.kind for each in sent_of(model, "cancel", "truncate")] == ["truncate"]


@both
async def test_an_interruption_that_comes_with_the_end_costs_no_answer(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """While the end of an answer waits for its reader, the server has nothing to interrupt any more, nor to drop."""
    model = ScriptedLive(["One.", "Two."], dialect=dialect)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("count")
            async for event in live:
                if event.text == "One." and is_over(event):  # the run goes on at the next `anext`
                    await live.interrupt()
                    await live.send_text("go on")
                    await live.aclose()
        events = await stored(runner)
    said = [line for line in lines(events) if line != "root: -"]  # what was not played of the first
    assert said == ["user: count", "root: One.", "user: go on", "root: Two."]


async def quick() -> str:
    """Return at once."""
    return "done"


@pytest.mark.parametrize(
    ("at_s", "told", "truncated"),
    [
        (3, [("one two three", "four"), ("", "five six")], [("answer-1", 3_000), ("answer-2", 1)]),
        (5, [("five", "six")], [("answer-2", 1_000)]),
        (6, [], []),
    ],
)
async def test_answers_are_played_one_behind_the_other(
    at_s: float, told: list[tuple[str, str]], truncated: list[tuple[str, int]], autojump_clock: MockClock
) -> None:
    """An interruption cuts the answer that is heard at that moment; nothing was heard of what waits behind it."""
    script = [[say("one two three four"), call("quick")], "five six"]
    model = ScriptedLive(script, dialect="openai", word_ms=1_000)
    async with new_runner(model, tools=[quick]) as runner:
        async with conversing(runner) as client:
            await client.ask("count")
            await trio.sleep(at_s)
            await client.live.interrupt()
            await trio.sleep(1)
        events = await stored(runner)
    assert [told for _, told in cuts(events)] == [{"heard": heard, "unheard": rest} for heard, rest in told]
    assert [(each.item_id, each.played_ms) for each in sent_of(model, "truncate")] == truncated


async def test_what_an_agent_has_said_is_cut_when_another_has_the_word(autojump_clock: MockClock) -> None:
    """The client plays on across a handover; the next agent's server is told nothing, as it has not said it."""
    script = [[say("one two three four"), call("transfer_to_agent", agent_name="other")]]
    first = ScriptedLive(script, dialect="openai", word_ms=1_000)
    second = ScriptedLive([[], []], dialect="openai", name="second")
    other = LlmAgent(name="other", model=second, description="The other one.")
    agent = LlmAgent(name="root", model=first, sub_agents=[other])
    async with InMemoryRunner(agent=agent, app_name="app", auto_create_session=True) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("count")
            await client.until(lambda event: bool(event.live and event.live.get("reason") == "transfer"))
            await trio.sleep(2)
            await client.live.interrupt()
            await trio.sleep(1)
        events = await stored(runner)
    assert [told for _, told in cuts(events)] == [{"heard": "one two", "unheard": "three four"}]
    assert not sent_of(first, "truncate")
    assert not sent_of(second, "truncate")


async def test_what_was_cut_is_stored_when_the_client_leaves_at_once(autojump_clock: MockClock) -> None:
    """A client may leave with the notice that an answer which was over is interrupted."""
    async with new_runner(a_counter()) as runner:
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("count")
            async for event in live:
                if event.turn_complete:
                    await trio.sleep(2)
                    await live.interrupt()
                elif event.partial and event.interrupted:
                    break
        events = await stored(runner)
    assert [told for _, told in cuts(events)] == [{"heard": "one two", "unheard": "three four"}]
