"""
What is weak in the peer's live runs, by the numbers of the comparison (L1 to L28), and how it is here.

One test each at least; those of requests and transfers are in files of their own, see ELSEWHERE.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
import trio
from pydantic import BaseModel
from trio.testing import MockClock

from minirun import (
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
)
from minirun.agents import LiveRequestQueue
from minirun.errors import (
    IdleTimeoutError,
    InvocationEndedError,
    LiveQueueFullError,
    LlmCallsLimitExceededError,
    ModelConnectionError,
    NotSupportedError,
    SessionBusyError,
)
from minirun.events import Event
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.testing import (
    ScriptedLive,
    ScriptedLlm,
    call,
    cancel_calls,
    drop,
    go_away,
    handle,
    hear,
    interrupted,
    pause,
    say,
    usage,
)
from minirun.testing._live_dialects import DialectName
from minirun.types import Blob, Content, Part

from ..live_client import both, converse, conversing, is_over, is_sound, lines, new_runner, sent_of, sound_of, stored


async def slow(q: str = "") -> str:
    """Take ten seconds."""
    await trio.sleep(10)
    return f"R{q}"


async def bad() -> str:
    """Fail."""
    raise ValueError("tool is bad")


# --- calls ------------------------------------------------------------------------------------------------------------


@both
async def test_l1_what_is_said_while_a_tool_runs_is_heard_at_once(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L1: sound that comes while a call runs reaches the caller then, and an interruption as well."""
    model = ScriptedLive([[call("slow")], say("done")], dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner, conversing(runner) as client:
        await client.live.send_text("do it")
        await client.until(lambda event: event.get_function_calls())
        began = trio.current_time()
        model.play(say("one moment please"), interrupted())
        await client.until(is_sound)
        cut = await client.until(is_over)
        assert cut.interrupted
        assert trio.current_time() - began < 10
        await client.until(lambda event: event.get_function_responses())
        assert trio.current_time() - began == 10
        await client.until(is_over)
    assert lines(client.events)[-1] == "root: done"
    model.assert_done()


@both
async def test_l2_a_tool_that_raises_is_told_to_the_model(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L2: a failing tool answers its call with its error, and the conversation goes on."""
    model = ScriptedLive([[call("bad")], say("It is broken."), say("Yes?")], dialect=dialect)
    async with new_runner(model, tools=[bad]) as runner:
        client = await converse(runner, "do it", "go on")
        log = lines(await stored(runner))
    assert client.failure is None
    assert log[:2] == ["user: do it", "root: bad()"]
    assert log[2].startswith("root: bad=")
    assert "ValueError" in log[2]
    assert log[3:] == ["root: It is broken.", "user: go on", "root: Yes?"]


async def test_l3_a_call_that_is_withdrawn_is_cancelled_and_closed(autojump_clock: MockClock) -> None:
    """L3: the tool is cancelled, its call is closed in the log, and the server is sent nothing about it."""
    model = ScriptedLive([[call("slow")], say("Fine.")])
    async with new_runner(model, tools=[slow]) as runner, conversing(runner) as client:
        await client.live.send_text("do it")
        await client.until(lambda event: event.get_function_calls())
        began = trio.current_time()
        model.play(cancel_calls())
        closed = await client.until(lambda event: event.get_function_responses())
        assert trio.current_time() == began
        await client.ask("never mind")
    assert "cancelled" in str(closed.get_function_responses()[0].response)
    assert lines(client.events)[-2:] == ["user: never mind", "root: Fine."]
    assert not sent_of(model, "responses")


async def test_l3_a_conversation_whose_calls_were_withdrawn_can_be_closed(autojump_clock: MockClock) -> None:
    """L3: nobody waits for a model that owes nothing any more: closing ends the run at once."""
    model = ScriptedLive([[call("slow")]])
    async with new_runner(model, tools=[slow]) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("do it")
            await client.until(lambda event: event.get_function_calls())
            began = trio.current_time()
            model.play(cancel_calls(), interrupted())
            await client.until(lambda event: event.get_function_responses())
        assert trio.current_time() - began < 1
    assert client.failure is None


# --- what is said -----------------------------------------------------------------------------------------------------


@both
async def test_l7_an_interrupted_answer_is_stored_as_far_as_it_was_played(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L7: what the client says that it has played is the content; the rest is `unheard`; a server that asks is told."""
    model = ScriptedLive([[say("one two three four"), pause(60)], say("Yes?")], dialect=dialect, word_ms=100)
    async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
        await live.send_text("count")
        heard_ms = 0
        async for event in live:
            heard_ms += sound_of([event])
            if event.output_transcription and event.output_transcription.text == "four":
                await live.interrupt()
            elif event.interrupted and event.partial:
                await live.played(event, 200)
            elif event.interrupted:
                await live.aclose()
        cut = [event for event in await stored(runner) if event.interrupted]
    assert lines(cut) == ["root: one two -"]
    assert [event.custom_metadata for event in cut] == [{"unheard": "three four"}]
    assert [each.played_ms for each in sent_of(model, "truncate")] == ([200] if dialect == "openai" else [])


class Listener(BasePlugin):
    """Notes the events that it is shown."""

    def __init__(self) -> None:
        super().__init__(name="listener")
        self.lines: list[str] = []

    async def on_event_callback(self, *, event: Event, **_: Any) -> None:
        """Note it."""
        self.lines += lines([event])


@both
async def test_l9_what_the_user_says_is_yielded_and_shown_to_hooks(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L9: a second listener follows both sides: typed and spoken words of the user are events as all are."""
    model = ScriptedLive([say("Hello.")], dialect=dialect)
    listener = Listener()
    async with new_runner(model, plugins=[listener]) as runner, conversing(runner) as client:
        await client.ask("hi")
        await trio.sleep(1)  # it is played
        model.play(hear("what is it?"), say("Noon."))
        await client.until(is_over)
    assert lines(client.events) == ["user: hi", "root: Hello.", "user: what is it?", "root: Noon."]
    assert listener.lines == lines(client.events)


@both
async def test_l10_what_was_said_is_content(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L10: an utterance is one event with its text as content, and as transcription; memory and prompts read that."""
    model = ScriptedLive([], dialect=dialect)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.until(lambda event: event.live)
            model.play(hear("who is there?"), say("It is me."))
            await client.until(is_over)
        user, root = [event for event in await stored(runner) if event.content is not None]
    assert (user.content, root.content) == (
        Content(role="user", parts=[Part(text="who is there?")]),
        Content(role="model", parts=[Part(text="It is me.")]),
    )
    assert user.input_transcription is not None
    assert root.output_transcription is not None
    assert (user.input_transcription.text, user.input_transcription.finished) == ("who is there?", True)
    assert (root.output_transcription.text, root.output_transcription.finished) == ("It is me.", True)


@both
async def test_l11_only_whole_answers_are_final(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L11: neither a piece of sound nor a connection or what it has cost is a final response; usage is the answer's."""
    model = ScriptedLive([[say("Hello there."), usage(5, 7)]], dialect=dialect)
    async with new_runner(model) as runner:
        client = await converse(runner, "hi")
    final = [event for event in client.events if event.is_final_response() and event.author != "user"]
    assert lines(final) == ["root: Hello there."]
    assert client.live.answer == final[0]
    assert client.live.usage.total_token_count == 12


# --- connections ------------------------------------------------------------------------------------------------------


@both
async def test_l12_a_message_before_a_drop_is_sent_again(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L12: what the server may not have heard is told to it by the next connection, once, and is answered."""
    script: list[Any] = [[drop(1006)], say("I am back.")]
    first: list[Any] = [[handle("h1")]] if dialect == "gemini" else []
    model = ScriptedLive(script, dialect=dialect, on_connect=first)
    async with new_runner(model) as runner:
        client = await converse(runner, "are you there?")
        log = lines(await stored(runner), connections=True)
    assert client.failure is None
    assert log == ["[start]", "user: are you there?", "[lost]", "root: I am back."] or log == [
        "user: are you there?", "[start]", "[lost]", "root: I am back."
    ]  # fmt: skip
    told = [each for each in sent_of(model, "content", "history") if each.connection == 2]
    assert [(each.kind, each.text) for each in told] == [
        ("content" if dialect == "gemini" else "history", "are you there?")
    ]


@both
async def test_l13_a_new_session_is_told_what_was_said(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L13: without a handle the next connection begins with the log as it is now, this run's words included."""
    model = ScriptedLive([say("one"), say("two")], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.ask("hi")
        model.play(drop(1011))
        await client.until(lambda event: event.live and event.live.get("reason") == "lost")
        await client.ask("again")
    (history,) = sent_of(model, "history")
    assert [content.text for content in history.contents] == ["hi", "one"]
    assert lines(client.events) == ["user: hi", "root: one", "user: again", "root: two"]


async def test_l14_a_session_that_cannot_be_resumed_now_keeps_its_handle(autojump_clock: MockClock) -> None:
    """L14: `resumable=False` says that there is no new handle; the last one still leads back."""
    model = ScriptedLive([[handle("h1"), say("one"), handle("", resumable=False)], say("two")])
    async with new_runner(model) as runner, conversing(runner) as client:
        await client.ask("hi")
        model.play(drop(1006))
        await client.until(lambda event: event.live and event.live.get("reason") == "lost")
        await client.ask("again")
    assert [each.request.live.handle for each in sent_of(model, "connect") if each.request and each.request.live] == [
        None, "h1"
    ]  # fmt: skip
    assert not sent_of(model, "history")


@both
async def test_l15_attempts_to_connect_are_made_at_growing_intervals(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L15: the first attempt after a drop is made at once; the further ones wait, as the retries of all models do."""
    refused = ModelConnectionError("refused")
    begins: list[Any] = [[], [refused], [refused], []]
    model = ScriptedLive([say("one"), say("two")], dialect=dialect, on_connect=begins)
    async with new_runner(model, model_retry="standard") as runner, conversing(runner) as client:
        await client.ask("hi")
        model.play(drop(1006))
        await client.until(lambda event: event.live and event.live.get("reason") == "lost")
        await client.ask("again")
    at = [each.at for each in sent_of(model, "connect")]
    waits = [after - before for before, after in pairwise(at[1:])]
    assert len(at) == 4
    assert 0 < waits[0] < waits[1]


@both
async def test_l17_after_a_handover_nothing_of_the_parent_is_stored(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L17: what the parent's model says after it has handed over is neither shown nor stored."""
    parent = ScriptedLive(
        [[call("transfer_to_agent", agent_name="sub"), pause(0.5), say("late root")]], dialect=dialect
    )
    child = ScriptedLive([say("sub here"), say("sub again")], dialect=dialect)
    sub = LlmAgent(name="sub", model=child)
    async with new_runner(parent, sub_agents=[sub]) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("give me sub")
            await client.until(lambda event: event.author == "sub" and is_over(event))
            await client.ask("and you?")
            await trio.sleep(5)
        log = lines(await stored(runner))
    assert log[-3:] == ["sub: sub here", "user: and you?", "sub: sub again"]
    assert "late" not in str(client.events)


# --- the end ----------------------------------------------------------------------------------------------------------


@both
async def test_l18_closing_lets_the_answer_come_to_its_end(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L18: after `aclose` the present answer is heard out; with a limit it is cut off, and the log says so."""
    for finish_turn_s, expected in ((30.0, "root: one two three"), (1.0, "root: one two -")):
        model = ScriptedLive([[say("one two "), pause(5), say("three")]], dialect=dialect)
        async with new_runner(model) as runner, conversing(runner) as client:
            await client.live.send_text("count")
            await client.until(is_sound)
            await client.live.aclose(finish_turn_s=finish_turn_s)
            with pytest.raises(InvocationEndedError):
                await client.live.send_text("more")
            await client.hear_out()
        assert client.failure is None
        assert lines(client.events)[-1] == expected or not expected.endswith("three")
        assert lines(await stored_of(client))[-1] == expected


async def stored_of(client: Any) -> list[Event]:
    """The session of a client's run."""
    return list(client.live.session.events)


@both
async def test_l19_leaving_stores_nothing_that_the_caller_has_not_seen(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L19: a caller that leaves in the middle of an answer finds of it what it was given, marked as cut off."""
    model = ScriptedLive([[say("one two three four"), pause(1)], say("never")], dialect=dialect, word_ms=100)
    async with new_runner(model) as runner:
        seen: list[Event] = []
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("count")
            async for event in live:
                if sound_of(seen) == 100:
                    await trio.sleep(0.5)  # all of the answer has come, and waits to be read
                seen.append(event)
                if sound_of(seen) == 200:
                    break
        log = await stored(runner)
    assert lines(log) == ["user: count", "root: one two -"]
    assert live.status.value == "cancelled"


# --- limits -----------------------------------------------------------------------------------------------------------


@both
async def test_l20_the_limits_of_a_run_hold(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L20: responses and time without a word are limited; a limit is a stored event and a typed error."""
    for config, error, texts in (
        (RunConfig(max_llm_calls=1), LlmCallsLimitExceededError, ["a", "b"]),
        (RunConfig(idle_s=20), IdleTimeoutError, ["a"]),
    ):
        model = ScriptedLive([say("A"), say("B")], dialect=dialect)
        async with new_runner(model) as runner:
            with pytest.raises(error):
                async with runner.run_live(user_id="u", session_id="s", run_config=config) as live:
                    for text in texts:
                        await live.send_text(text)
                        async for event in live:
                            if is_over(event) and text != texts[-1]:
                                break
            log = await stored(runner)
        assert lines(log)[:2] == ["user: a", "root: A"]
        assert log[-1].error_code == error.__name__
        assert "root: B" not in lines(log)


@both
async def test_l21_a_session_has_one_run_at_a_time(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L21: beside a live run another one is refused, whatever its kind; the live run goes on."""
    model = ScriptedLive([say("A"), say("B")], dialect=dialect, text=ScriptedLlm(["in writing"]))
    config = RunConfig(on_busy="reject")
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.ask("a")
            with pytest.raises(SessionBusyError):
                async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config):
                    pass
            with pytest.raises(SessionBusyError):
                async with runner.run_live(user_id="u", session_id="s", run_config=config):
                    pass
            await client.ask("b")
        assert lines(await stored(runner)) == ["user: a", "root: A", "user: b", "root: B"]


async def test_l22_the_queue_is_bounded_and_says_what_was_dropped(autojump_clock: MockClock) -> None:
    """L22: content that does not fit is refused; the oldest sound is dropped, and counted."""
    queue = LiveRequestQueue(max_contents=1, audio_s_max=1.0)
    queue.send_content("one")
    with pytest.raises(LiveQueueFullError):
        queue.send_content("two")
    for _ in range(3):
        queue.send_realtime(Blob(data=bytes(32000), mime_type="audio/pcm;rate=16000"))
    model = ScriptedLive([say("A")])
    async with new_runner(model) as runner, conversing(runner, live_request_queue=queue) as client:
        await client.until(is_over)
    assert queue.dropped_audio_ms == 2000
    assert len(sent_of(model, "audio")) == 1


class Answer(BaseModel):
    """A structured answer."""

    text: str


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda model: LlmAgent(name="root", model=model, output_schema=Answer), "output_schema"),
        (lambda model: ParallelAgent(name="root", sub_agents=[LlmAgent(name="a", model=model)]), "ParallelAgent"),
        (
            lambda model: LoopAgent(name="root", sub_agents=[LlmAgent(name="a", model=model)], max_iterations=2),
            "LoopAgent",
        ),
    ],
)
async def test_l24_what_would_have_no_effect_is_refused_by_name(
    make: Callable[[Any], Any], named: str, autojump_clock: MockClock
) -> None:
    """L24: an agent with a field that live answers cannot honour, or that cannot speak, is refused before anything."""
    async with new_runner(None, agent=make(ScriptedLive([]))) as runner:
        with pytest.raises(NotSupportedError, match=named):
            runner.run_live(user_id="u", session_id="s")


async def test_l26_a_closed_queue_is_refused(autojump_clock: MockClock) -> None:
    """L26: a run with a queue that is closed would be over before it begins: it is refused, and nothing is stored."""
    queue = LiveRequestQueue()
    queue.close()
    async with new_runner(ScriptedLive([])) as runner:
        with pytest.raises(InvocationEndedError):
            async with runner.run_live(user_id="u", session_id="s", live_request_queue=queue):
                pass
        service = runner.session_service
        assert await service.get_session(app_name=runner.app_name, user_id="u", session_id="s") is None


@both
async def test_l27_a_block_of_spoken_words_keeps_the_session(dialect: DialectName, autojump_clock: MockClock) -> None:
    """L27: when before_model answers spoken words itself, the answer is cut off, and the session stays."""

    def guard(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        if "secret" in llm_request.contents[-1].text:
            return LlmResponse(content=Content(role="model", parts=[Part(text="No.")]))
        return None

    model = ScriptedLive([say("Hello."), say("Bye.")], dialect=dialect)
    async with new_runner(model, before_model_callback=guard) as runner, conversing(runner) as client:
        await client.ask("hi")
        model.play(hear("tell the secret"), pause(0.01), say("It is 42"), pause(5))
        await client.until(lambda event: event.text == "No.")
        await client.ask("bye")
    assert "42" not in str(lines(client.events))
    assert lines(client.events)[-2:] == ["user: bye", "root: Bye."]
    assert len(sent_of(model, "connect")) == 1
    assert sent_of(model, "cancel")


@both
async def test_l27_a_block_that_comes_after_the_answer_costs_nothing_more(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """L27: where words are understood only after the answer to them, a block adds its own, and cuts off no other."""

    def guard(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        if "secret" in llm_request.contents[-1].text:
            return LlmResponse(content=Content(role="model", parts=[Part(text="No.")]))
        return None

    model = ScriptedLive([say("Hello."), say("Bye.")], dialect=dialect)
    async with new_runner(model, before_model_callback=guard) as runner, conversing(runner) as client:
        await client.ask("hi")
        model.play(hear("tell the secret", late=True), say("It is 42"))
        await client.until(lambda event: event.text == "It is 42")
        await trio.sleep(1)
        await client.ask("bye")
    assert "root: No." in lines(client.events)
    assert lines(client.events)[-1] == "root: Bye."


async def test_l_go_away_is_followed_between_turns(autojump_clock: MockClock) -> None:
    """A server that goes away is left when its answer is over, by the handle; nothing is said twice or lost."""
    model = ScriptedLive([[handle("h1"), go_away(20), say("one two")], say("three")])
    async with new_runner(model) as runner:
        client = await converse(runner, "hi", "again")
        log = lines(await stored(runner), connections=True)
    assert client.failure is None
    assert log == ["[start]", "user: hi", "root: one two", "[go_away]", "user: again", "root: three"]


ELSEWHERE = {
    "L5": ("flows.test_live_questions", "test_a_call_is_made_once_somebody_has_allowed_it"),
    "L6": ("flows.test_live_questions", "test_the_result_of_a_long_running_call_comes_later"),
    "L16": ("flows.test_live_tools", "test_what_is_said_during_a_handover_goes_to_the_new_agent"),
    "L28": ("runners.test_live_endings", "test_a_store_may_fail_at_each_append"),
}
"""Weaknesses that tests of other files show to be none, by their numbers."""


def test_every_weakness_has_a_test() -> None:
    """Each of L1 to L28 is given up, or named by a test of this file, or of another one that has it."""
    own = {name.split("_")[1].upper() for name in globals() if name.startswith("test_l")}
    given_up = {"L4", "L8", "L23", "L25"}  # streaming tools, positions in quick input, new instructions, recordings
    assert {f"L{number}" for number in range(1, 29)} == (own | set(ELSEWHERE)) - {"L"} | given_up
    for module, name in ELSEWHERE.values():
        assert callable(getattr(import_module(f"tests.{module}"), name))
