"""
Entering a run, and what is kept of its failures: where another process, a cancellation or a bug comes in between.

The stores here are those of the package, with one thing more that the world may do to them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from minirun import (
    App,
    Event,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    RunConfig,
    Runner,
)
from minirun.apps import EventsCompactionConfig, FirstLinesSummarizer
from minirun.errors import InvocationEndedError, SessionBusyError, StaleSessionError
from minirun.plugins import BasePlugin
from minirun.sessions import GetSessionConfig, InvocationStatus, LiveSession, SessionKey, SessionWriter
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events


def runner_over(service: InMemorySessionService, *plugins: BasePlugin) -> Runner:
    """A runner of an agent that says one thing."""

    async def speak(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))

    app = App(name="app", root_agent=Logic(name="agent", logic=speak), plugins=plugins)
    return Runner(app=app, session_service=service, auto_create_session=True)


# --- entering ---------------------------------------------------------------------------------------------------------


class LeasedStore(InMemorySessionService):
    """Takes its time to give a lease back."""

    def __init__(self) -> None:
        super().__init__()
        self.given_back: list[str] = []

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        await trio.sleep(1)
        is_left = await super().finish_invocation(writer, status)
        self.given_back.append(writer.invocation_id)
        return is_left


class SlowHook(BasePlugin):
    """Looks at each message for long."""

    async def on_user_message_callback(self, **_: Any) -> None:
        await trio.sleep(1000)


async def test_a_run_that_is_cancelled_while_it_enters_gives_the_lease_back(autojump_clock: MockClock) -> None:
    """It had the lease, as it has answered the call of a dead run: other processes need not wait until that expires."""
    service = LeasedStore()
    await service.create_session(app_name="app", **PLACE)
    dead = await service.open_writer(SessionKey("app", "u", "s"), "dead", None, reject=False)
    assert dead is not None
    await dead.append(Event(author="user", message="go", invocation_id="dead"), begins=True)
    asked = Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name="work", args={}))])
    await dead.append(Event(author="agent", content=asked, invocation_id="dead"))
    await dead.finish(None)
    service.given_back.clear()
    with trio.move_on_after(5) as scope:
        await run_to_end(runner_over(service, SlowHook("slow")))
    assert scope.cancelled_caught
    assert len(service.given_back) == 1
    events, run = await run_to_end(runner_over(service))
    assert ([event.text for event in events], run.status) == (["said"], "completed")


class OvertakenStore(InMemorySessionService):
    """Another process is faster with the first message, and then has the session for ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.is_overtaken = False

    async def commit_event(self, live: LiveSession, event: Event, **options: Any) -> None:
        if not self.is_overtaken:
            self.is_overtaken = True
            raise StaleSessionError("another process has written")
        await super().commit_event(live, event, **options)

    async def load_free_session(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> LiveSession | None:
        if self.is_overtaken and reject:
            raise SessionBusyError("another process has it")
        if self.is_overtaken:
            await trio.sleep(10)
        return await super().load_free_session(key, config, reject=reject)


async def test_a_run_that_another_process_has_overtaken_waits_for_it(autojump_clock: MockClock) -> None:
    """Its message comes after what the other one does."""
    start, service = trio.current_time(), OvertakenStore()
    events, _ = await run_to_end(runner_over(service))
    assert ([event.text for event in events], trio.current_time() - start) == (["said"], 10)


async def test_a_run_that_does_not_wait_does_not_wait_for_who_has_overtaken_it(autojump_clock: MockClock) -> None:
    """With on_busy="reject" it raises at once, and its message is not stored."""
    start, service = trio.current_time(), OvertakenStore()
    runner = runner_over(service)
    with pytest.raises(SessionBusyError):
        await run_to_end(runner, run_config=RunConfig(on_busy="reject"))
    assert (await stored_events(runner), trio.current_time() - start) == ([], 0)


@pytest.mark.parametrize("rejects", [True, False])
async def test_a_rewind_that_another_process_has_overtaken(rejects: bool, autojump_clock: MockClock) -> None:
    """It waits as a run does, and with on_busy="reject" raises at once; then nothing is undone."""
    service = OvertakenStore()
    service.is_overtaken = True  # nobody overtakes the message that is to be undone
    runner = runner_over(service)
    _, run = await run_to_end(runner)
    start, service.is_overtaken = trio.current_time(), False
    config = RunConfig(on_busy="reject" if rejects else "wait")
    undo = partial(runner.rewind_async, **PLACE, rewind_before_invocation_id=run.invocation_id, run_config=config)
    if rejects:
        with pytest.raises(SessionBusyError):
            await undo()
    else:
        await undo()
    undone = [event.actions.rewind_before_seq for event in await service.read_events(app_name="app", **PLACE)]
    assert (any(undone), trio.current_time() - start) == (not rejects, 0 if rejects else 10)


def summed_up(agent: LlmAgent) -> App:
    """An app that makes summaries, but not so soon."""
    compaction = EventsCompactionConfig(compaction_interval=9, overlap_size=0, summarizer=FirstLinesSummarizer())
    return App(name="app", root_agent=agent, events_compaction_config=compaction)


async def test_a_run_shows_the_past_that_it_asks_for_whatever_its_prompts_show() -> None:
    """Where summaries are made, prompts show all that none covers; `session.events` begins with the run's window."""
    agent = LlmAgent(name="agent", model=ScriptedLlm(["one", "two", "three"]))
    runner = Runner(app=summed_up(agent), session_service=InMemorySessionService(), auto_create_session=True)
    for message in ("first", "second"):
        await run_to_end(runner, message)
    config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=1))
    _, run = await run_to_end(runner, "third", run_config=config)
    assert [event.text for event in run.session.events] == ["two", "third", "three"]


async def test_who_answers_follows_from_what_prompts_show_whatever_the_window_of_the_run() -> None:
    """Where summaries are made: an agent that was handed the conversation goes on, in a run that asks for no past."""
    script = [call("transfer_to_agent", agent_name="second")]
    second = LlmAgent(name="second", model=ScriptedLlm(["one", "two"]))
    root = LlmAgent(name="root", model=ScriptedLlm(script), sub_agents=[second])
    runner = Runner(app=summed_up(root), session_service=InMemorySessionService(), auto_create_session=True)
    await run_to_end(runner, "first")
    config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=0))
    events, _ = await run_to_end(runner, "second", run_config=config)
    assert [(event.author, event.text) for event in events] == [("second", "two")]


# --- failures ---------------------------------------------------------------------------------------------------------


class UnreadyStore(InMemorySessionService):
    """Cannot keep leases, and fails where it is asked how often they are renewed."""

    def __getattribute__(self, name: str) -> Any:
        if name == "renew_every_s":
            raise ConnectionError("no leases today")
        return super().__getattribute__(name)


async def test_what_fails_between_the_message_and_the_agents_is_what_the_run_fails_with() -> None:
    """The message is stored, no agent runs, and the exception is raised as it is: it is no note on itself."""
    runner = runner_over(UnreadyStore())
    with pytest.raises(ConnectionError, match="no leases today") as info:
        await run_to_end(runner)
    assert getattr(info.value, "__notes__", []) == []
    log = await stored_events(runner)
    assert [(event.text, event.error_code) for event in log] == [("go", None), ("", "ConnectionError")]


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends_by", ["deadline", "leaving"])
async def test_agents_that_come_to_their_end_although_they_are_cancelled_have_ended(
    ends_by: str, autojump_clock: MockClock
) -> None:
    """What they do last is shielded, and no cancellation comes to them: the invocation is completed."""

    async def work(ctx: InvocationContext) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    runner = runner_for(work)
    config = RunConfig(deadline_s=5 if ends_by == "deadline" else None)
    async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
        if ends_by == "deadline":
            await run.wait()
        else:
            await trio.sleep(1)
    assert run.status == "completed"
    assert [event.error_code for event in await stored_events(runner)] == [None]


async def test_asking_a_run_that_had_ended_before_is_a_checkpoint() -> None:
    """It yields nothing, as it did nothing: a cancellation arrives there as in any other run."""
    runner = runner_for(Logic(name="agent", logic=nothing))
    _, ended = await run_to_end(runner)
    async with runner.run_async(**PLACE, invocation_id=ended.invocation_id) as run:
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(run, None)
    assert scope.cancelled_caught
    assert (run.abandoned_threads, run.failed_calls, run.pending) == (0, {}, [])


async def test_asking_for_an_event_that_is_there_already_is_a_checkpoint() -> None:
    """Whoever reads a run in a loop lets others run, and can be cancelled, at every event."""

    async def speak(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="one"))

    async with runner_for(Logic(name="agent", logic=speak)).run_async(**PLACE, new_message="go") as run:
        await wait_all_tasks_blocked()
        with assert_checkpoints():
            assert (await anext(run)).text == "one"


async def test_the_answer_so_far_can_be_asked_for_after_every_event() -> None:
    """Each look goes on where the last one ended, and misses none."""

    async def speak(ctx: InvocationContext) -> None:
        for text in ("one", "two", "three"):
            await ctx.emit(Event(message=text))

    seen: list[tuple[str, str | None]] = []
    async with runner_for(Logic(name="agent", logic=speak)).run_async(**PLACE, new_message="go") as run:
        assert run.answer is None
        async for event in run:
            seen.append((event.text, run.answer and run.answer.text))
    assert seen == [("one", "one"), ("two", "two"), ("three", "three")]


async def test_who_has_heard_of_an_interrupt_is_cancelled_to_the_end_of_the_block_and_no_further() -> None:
    """A shielded reader was raised what has hit the agent; what it does next in the block ends, without an error."""

    async def interrupt(ctx: InvocationContext) -> None:
        raise SystemExit(3)

    heard: list[object] = []
    left_by: list[BaseException] = []
    try:
        async with runner_for(Logic(name="agent", logic=interrupt)).run_async(**PLACE, new_message="go") as run:
            with trio.CancelScope(shield=True):
                try:
                    await run.wait()
                except SystemExit as interrupted:
                    heard.append(interrupted.code)
            await trio.sleep_forever()
    except BaseException as error:  # a cancellation of nobody would end this test without a failure
        left_by.append(error)
    assert (heard, run.status, left_by) == ([3], "failed", [])


async def test_an_interrupt_in_the_block_wins_over_what_the_run_had_failed_with() -> None:
    """The failure, which nobody has seen, is a note on it."""

    async def fail(ctx: InvocationContext) -> None:
        raise OSError("before")

    with pytest.raises(SystemExit) as info:
        async with runner_for(Logic(name="agent", logic=fail)).run_async(**PLACE, new_message="go") as run:
            await wait_all_tasks_blocked()
            raise SystemExit(3)
    assert run.status == "failed"
    assert [note for note in info.value.__notes__ if "before" in note] != []


async def test_the_failed_calls_of_a_run_are_a_copy() -> None:
    """What a program does with them changes nothing."""
    _, run = await run_to_end(runner_for(Logic(name="agent", logic=nothing)))
    run.failed_calls["c"] = "here"
    assert run.failed_calls == {}


async def nothing(ctx: InvocationContext) -> None:
    """Come to the end at once."""


async def test_the_run_of_an_invocation_that_had_ended_tells_what_that_has_said() -> None:
    """Its answer is the one of then, with its output as JSON; it counts nothing, and takes no message."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said", output={"n": 1}))

    runner = runner_for(Logic(name="agent", logic=logic))
    _, ended = await run_to_end(runner)
    async with runner.run_async(**PLACE, invocation_id=ended.invocation_id) as run:
        answer = await run.wait()
        with pytest.raises(InvocationEndedError, match=r"has ended; send a new message"):
            await run.send("more")
    assert (answer and answer.text, run.output, run.usage.total_token_count, run.status) == (
        "said", {"n": 1}, None, "completed",
    )  # fmt: skip
    with pytest.raises(InvocationEndedError, match=r"has ended; send a new message"):
        await ended.send("more")
    assert len(await stored_events(runner)) == 2
