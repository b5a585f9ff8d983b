"""What a user relies on in a live run: what is stored, what later prompts show, hooks, limits and closing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from minirun import LlmAgent, RunConfig, Runner, SqliteSessionService
from minirun.errors import DeadlineExceededError, IdleTimeoutError, TokensLimitExceededError
from minirun.events import Event
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLive, ScriptedLlm, call, hear, pause, say, usage
from minirun.testing._live_dialects import DialectName
from minirun.types import Content, Part

from ..live_client import both, converse, conversing, is_over, is_sound, lines, new_runner, sent_of, sound_of, stored

# --- what is stored ---------------------------------------------------------------------------------------------------


@both
async def test_neither_sound_nor_unfinished_words_reach_the_store(dialect: DialectName, tmp_path: Path) -> None:
    """The file of the sessions has what was said as text, and nothing of its sound or of its pieces."""
    model = ScriptedLive([[hear("who is there?"), say("It is only me.")]], dialect=dialect, word_ms=40)
    agent = LlmAgent(name="root", model=model)
    async with SqliteSessionService(tmp_path / "sessions.db") as service:
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner, conversing(runner) as client:
            for chunk in (b"\x2a\x51" * 8000, bytes(32000)):
                await client.live.send_audio(chunk)
            await client.until(is_over)
        log = await stored(runner)
    assert lines(log) == ["user: who is there?", "root: It is only me."]
    kept = await trio.to_thread.run_sync(lambda: b"".join(path.read_bytes() for path in tmp_path.iterdir()))
    assert b"It is only me." in kept
    said = (len("only ")).to_bytes(2, "little")  # the samples of a word
    for piece in (said * 8, b"\x2a\x51" * 8, b'"only "', b'"is "', b"audio/pcm"):
        assert piece not in kept


@both
async def test_an_interruption_stores_what_a_slow_client_was_given(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """
    Of sound that has come and that nobody was given, nothing counts as heard.

    The client reads two words of ten and sleeps; meanwhile the user interrupts, and the rest is dropped.
    """
    words = "one two three four five six seven eight nine ten"
    script = [[say(words), pause(6), hear("stop"), say("Yes?")]]
    model = ScriptedLive(script, dialect=dialect, word_ms=1000)
    async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
        await live.send_text("count")
        seen: list[Event] = []
        async for event in live:
            seen.append(event)
            if sound_of(seen) == 2000 and is_sound(event):
                await trio.sleep(20)
            elif event.text == "Yes?" and is_over(event):
                await live.aclose()
        (cut,) = [event for event in await stored(runner) if event.interrupted]
    assert cut.custom_metadata is not None
    told = [each.played_ms for each in sent_of(model, "truncate")]
    assert (cut.text, told) == ("one two", [2000] if dialect == "openai" else [])
    assert f"one two {cut.custom_metadata['unheard']}" in words


@both
async def test_text_that_nobody_was_given_is_not_stored_as_seen(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """An answer in text that is cut off is stored as far as the caller was given it."""
    model = ScriptedLive([[say("one two three four"), pause(60)]], dialect=dialect)
    config = RunConfig(response_modalities=["TEXT"])
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s", run_config=config) as live:
            await live.send_text("count")
            async for event in live:
                if event.partial and event.text == "two ":
                    await trio.sleep(1)
                    await live.interrupt()
                elif is_over(event):
                    await live.aclose()
        (cut,) = [event for event in await stored(runner) if event.interrupted]
    assert cut.text == "one two"
    assert cut.custom_metadata == {"unheard": "three four"}


@both
async def test_what_is_played_is_held_to_what_there_is(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A client that claims to have played nothing, or more than there is, has no server told 0 or more than that."""
    for claimed, text, told in ((0, "", 1), (99_999, "one two three", None)):
        model = ScriptedLive([[say("one two three"), pause(60)]], dialect=dialect, word_ms=100)
        async with new_runner(model) as runner, runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("count")
            async for event in live:
                if event.output_transcription and event.output_transcription.text == "three":
                    await trio.sleep(0.01)
                    await live.interrupt()
                elif event.interrupted and event.partial:
                    await live.played(event, claimed)
                elif is_over(event):
                    await live.aclose()
            (cut,) = [event for event in await stored(runner) if event.interrupted]
        assert (cut.text if cut.content is not None else "") == text
        assert [each.played_ms for each in sent_of(model, "truncate")] in ([], [told])


# --- what is seen of it later -----------------------------------------------------------------------------------------


@both
async def test_words_that_were_understood_late_stand_in_their_place(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """A transcript that comes after the answer stands before it in what the next run shows its model."""
    text = ScriptedLlm(["written"])
    model = ScriptedLive([], dialect=dialect, text=text)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.until(lambda event: event.live)
            model.play(hear("what time is it?", late=True), say("It is noon."))
            await client.until(is_over)
            await trio.sleep(5)
            model.play(hear("thanks"), say("Bye."))
            await client.until(is_over)
        async with runner.run_async(user_id="u", session_id="s", new_message="and now?") as run:
            await run.wait()
    (request,) = text.requests
    shown = [content.text for content in request.contents]
    if dialect == "openai":
        assert shown == ["what time is it?", "It is noon.", "thanks", "Bye.", "and now?"]
    else:  # it says nothing of where a late transcript belongs
        assert shown[1:] == ["It is noon.", "what time is it?", "thanks", "Bye.", "and now?"]


@both
async def test_a_run_in_writing_goes_on_with_the_conversation(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Written and spoken runs of a session see each other's words, by their roles."""
    text = ScriptedLlm(["in writing", "again"])
    model = ScriptedLive([say("I remember.")], dialect=dialect, text=text)
    async with new_runner(model) as runner:
        async with runner.run_async(user_id="u", session_id="s", new_message="hello") as run:
            await run.wait()
        await converse(runner, "what did I say?")
        async with runner.run_async(user_id="u", session_id="s", new_message="bye") as run:
            await run.wait()
    (history,) = sent_of(model, "history")
    assert [(each.role, each.text) for each in history.contents] == [("user", "hello"), ("model", "in writing")]
    assert not history.turn_complete
    assert [(each.role, each.text) for each in text.requests[-1].contents][2:] == [
        ("user", "what did I say?"),
        ("model", "I remember."),
        ("user", "bye"),
    ]


# --- hooks and settings -----------------------------------------------------------------------------------------------


@both
async def test_hooks_around_the_model_see_whole_utterances(dialect: DialectName, autojump_clock: MockClock) -> None:
    """before_model is asked about each utterance of the user; after_model changes an answer before it is stored."""
    asked: list[str] = []

    def before(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        asked.append(llm_request.contents[-1].text)
        if "blocked" in asked[-1]:
            return LlmResponse(content=Content(role="model", parts=[Part(text="No.")]))
        return None

    def after(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        assert llm_response.content is not None
        return LlmResponse(content=Content(role="model", parts=[Part(text=llm_response.content.text.upper())]))

    model = ScriptedLive([say("one two")], dialect=dialect)
    fields = {"before_model_callback": before, "after_model_callback": after}
    async with new_runner(model, **fields) as runner:
        async with conversing(runner) as client:
            await client.ask("hi")
            await client.live.send_text("blocked")
            await client.until(lambda event: event.text == "No.")
        log = lines(await stored(runner))
    assert asked == ["hi", "blocked"]
    assert log == ["user: hi", "root: ONE TWO", "user: blocked", "root: No."]
    assert [each.text for each in sent_of(model, "content")] == ["hi"]


class Shouting(BasePlugin):
    """Changes what users say."""

    def __init__(self) -> None:
        super().__init__(name="shouting")

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> Content:
        """Say it louder."""
        return Content(role="user", parts=[Part(text=user_message.text.upper())])


@both
async def test_a_plugin_changes_what_the_user_writes(dialect: DialectName, autojump_clock: MockClock) -> None:
    """on_user_message is asked about each content: what it returns is stored, and sent to the model."""
    model = ScriptedLive([say("Yes?")], dialect=dialect)
    async with new_runner(model, plugins=[Shouting()]) as runner:
        await converse(runner, "hello")
        assert lines(await stored(runner)) == ["user: HELLO", "root: Yes?"]
    assert [each.text for each in sent_of(model, "content")] == ["HELLO"]


@both
async def test_instructions_and_state_are_those_of_the_agent(dialect: DialectName, autojump_clock: MockClock) -> None:
    """The connection is asked for with the static instruction and the one made from the state, and its tools."""

    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedLive([say("Yes?")], dialect=dialect)
    fields = {"static_instruction": "You are calm.", "instruction": "The mood is {mood}.", "tools": [look]}
    async with new_runner(model, **fields) as runner:
        await converse(runner, "hello", state_delta={"mood": "good"})
        session = await runner.session_service.get_session(app_name=runner.app_name, user_id="u", session_id="s")
    assert session is not None
    assert session.state["mood"] == "good"
    (request,) = model.requests
    assert request.config.system_instruction == "You are calm.\n\nThe mood is good."
    assert [tool.name for tool in request.config.tools] == ["look"]


@both
async def test_others_send_into_a_live_run(dialect: DialectName, autojump_clock: MockClock) -> None:
    """`Runner.send` reaches the conversation when nobody has the word: it is an event, and the model answers."""
    model = ScriptedLive([say("one"), say("two"), say("three")], dialect=dialect)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.ask("a")
            await runner.send("from beside", user_id="u", session_id="s")
            await client.until(lambda event: event.text == "two" and is_over(event))
            await client.ask("b")
        log = lines(await stored(runner))
    assert log == ["user: a", "root: one", "user: from beside", "root: two", "user: b", "root: three"]


# --- limits -----------------------------------------------------------------------------------------------------------


@both
async def test_a_limit_is_met_after_the_sentence(dialect: DialectName, autojump_clock: MockClock) -> None:
    """Tokens are counted as they are told; the answer that has used them up is stored whole before the run ends."""
    model = ScriptedLive([[say("one two"), usage(50, 60)], say("three")], dialect=dialect)
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(max_tokens=100)) as client:
            await client.ask("a")
            await client.live.send_text("b")
            await client.hear_out()
        log = await stored(runner)
    assert isinstance(client.failure, TokensLimitExceededError)
    assert lines(log)[:2] == ["user: a", "root: one two"]
    assert log[-1].error_code == "TokensLimitExceededError"
    assert "root: three" not in lines(log)


@both
async def test_the_deadline_cuts_off_what_is_being_said(dialect: DialectName, autojump_clock: MockClock) -> None:
    """`deadline_s` ends the run in the middle of a sentence, of which what was heard is stored."""
    model = ScriptedLive([[say("one two "), pause(60), say("three")]], dialect=dialect, word_ms=100)
    async with new_runner(model) as runner:
        async with conversing(runner, run_config=RunConfig(deadline_s=30)) as client:
            await client.live.send_text("a")
            await client.hear_out()
        log = await stored(runner)
    assert isinstance(client.failure, DeadlineExceededError)
    assert lines(log)[:2] == ["user: a", "root: one two -"]
    assert client.live.status is InvocationStatus.FAILED


# --- closing ----------------------------------------------------------------------------------------------------------


@both
async def test_what_was_sent_before_closing_is_answered(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A word that is sent while the model speaks, right before closing, still has its answer."""
    model = ScriptedLive([[say("one two"), pause(1)], say("Bye.")], dialect=dialect)
    async with new_runner(model) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("count")
            await client.until(is_sound)
            await client.live.send_text("bye")
            await client.live.aclose()
        log = lines(await stored(runner))
    assert client.failure is None
    assert log[-1] == "root: Bye."
    model.assert_done()


@both
async def test_closing_waits_for_calls(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A call that is made when the run is closed is answered, and the model has the last word."""

    async def slow() -> str:
        """Take a second."""
        await trio.sleep(1)
        return "R"

    model = ScriptedLive([[call("slow")], say("done")], dialect=dialect)
    async with new_runner(model, tools=[slow]) as runner:
        async with conversing(runner) as client:
            await client.live.send_text("do it")
            await client.until(lambda event: event.get_function_calls())
        log = lines(await stored(runner))
    assert log == ["user: do it", "root: slow()", "root: slow=R", "root: done"]
    assert client.live.status is InvocationStatus.COMPLETED


@both
async def test_a_model_that_never_answers_is_waited_for_in_vain(
    dialect: DialectName, autojump_clock: MockClock
) -> None:
    """A server that is silent though it owes an answer ends the run after `idle_s`; nothing waits for ever."""
    model = ScriptedLive([[]], dialect=dialect)
    async with new_runner(model) as runner, conversing(runner, run_config=RunConfig(idle_s=60)) as client:
        await client.live.send_text("hello?")
        await client.hear_out()
    assert isinstance(client.failure, IdleTimeoutError)
    assert trio.current_time() < 200


@both
async def test_what_an_earlier_run_left_unanswered_is_answered(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A session that ends with the user's word begins with the answer to it, also if the run is closed at once."""
    model = ScriptedLive(lambda sent: say("Here I am.") if sent.kind == "history" else None, dialect=dialect)
    async with new_runner(model) as runner:
        async with runner.run_live(user_id="u", session_id="s") as live:
            await live.send_text("hello?")
            async for event in live:
                if event.text == "hello?":
                    break
        async with conversing(runner):
            pass
        assert lines(await stored(runner)) == ["user: hello?", "root: Here I am."]
