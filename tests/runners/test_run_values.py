"""
What a run tells its caller, while it goes on and after its end, and what it raises.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minirun import App, Event, InMemorySessionService, InvocationContext, LlmAgent, RunConfig, Runner
from minirun.artifacts import InMemoryArtifactService
from minirun.artifacts._run import RunArtifacts
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.errors import StorageBusyError
from minirun.plugins import BasePlugin
from minirun.sessions import GetSessionConfig
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from ..stores import append, get
from .test_meanwhile import two_processes

# --- the answer -------------------------------------------------------------------------------------------------------


async def test_the_answer_is_always_the_last_one_so_far() -> None:
    """Whoever looks after each event finds that event, and nothing before the first."""

    async def logic(ctx: InvocationContext) -> None:
        for text in ("one", "two", "three"):
            await ctx.emit(Event(message=text))

    async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
        seen = [run.answer]
        async for _ in run:
            seen.append(run.answer)
    assert [answer and answer.text for answer in seen] == [None, "one", "two", "three"]


async def test_the_answer_of_another_invocation_is_none_of_this_one() -> None:
    """One waits, another one answers meanwhile, and the first goes on and says nothing: it has no answer."""

    async def logic(ctx: InvocationContext) -> None:
        text = ctx.user_content.parts[0].text if ctx.user_content else ""
        if text == "ask":
            await ctx.request_input("?")
        else:
            await ctx.emit(Event(message="meanwhile"))

    runner = runner_for(logic)
    _, waiting = await run_to_end(runner, "ask")
    _, other = await run_to_end(runner, "say")
    _, run = await run_to_end(runner, waiting.pending[0].reply("yes"))
    assert (other.answer and other.answer.text, run.status, run.answer) == ("meanwhile", "completed", None)


async def test_the_answer_of_a_run_stays_what_it_was_at_its_end() -> None:
    """The invocation goes on in another run and says more: the first run's answer is its own."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first"))
        await ctx.request_input("?")
        await ctx.emit(Event(message="second"))

    runner = runner_for(logic)
    _, first = await run_to_end(runner)
    _, second = await run_to_end(runner, first.pending[0].reply("yes"))
    assert [run.answer and run.answer.text for run in (first, second)] == ["first", "second"]


async def test_what_a_run_tells_of_failed_calls_is_a_copy() -> None:
    """Whoever changes it changes nothing of the run."""

    def fail() -> None:
        """Fail."""
        raise OSError

    agent = LlmAgent(name="a", model=ScriptedLlm([call("fail"), "done"]), tools=[fail])
    _, run = await run_to_end(runner_for(agent))
    run.failed_calls.clear()
    assert len(run.failed_calls) == 1


# --- what is raised ---------------------------------------------------------------------------------------------------


async def test_a_failure_is_raised_by_one_ask() -> None:
    """The next one ends the iteration, and so does leaving: the caller knows it."""

    async def logic(ctx: InvocationContext) -> None:
        raise OSError("once")

    async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
        with pytest.raises(OSError, match="once") as raised:
            await run.wait()
        assert [event async for event in run] == []
    assert getattr(raised.value, "__notes__", []) == []


async def test_a_run_that_fails_as_it_begins_mentions_its_failure_once() -> None:
    """What is raised has no note that it has failed with itself; the invocation has failed, and no agent was run."""

    class Service(InMemorySessionService):
        @property
        def renew_every_s(self) -> float:  # type: ignore[override]  # it cannot say
            raise OSError("no clock")

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))

    runner = Runner(
        agent=Logic(name="a", logic=logic),
        app_name="app",
        session_service=Service(),
        auto_create_session=True,
    )
    with pytest.raises(OSError, match="no clock") as raised:
        await run_to_end(runner)
    assert getattr(raised.value, "__notes__", []) == []
    assert "said" not in [event.text for event in await stored_events(runner)]
    [invocation] = await runner.session_service.list_invocations(app_name="app")
    assert invocation.status == "failed"


async def test_what_fails_as_it_begins_to_go_on_stays_as_it_was() -> None:
    """Nothing was said yet, and a supervisor has left: the next run fails at once, and the one after it ends."""
    fails: list[Exception] = []

    class Service(InMemorySessionService):
        @property
        def renew_every_s(self) -> float:  # type: ignore[override]  # it cannot always say
            if fails:
                raise fails.pop()
            return 60.0

    async def logic(ctx: InvocationContext) -> None:
        await has_left.wait()

    has_left, service = trio.Event(), Service()
    runner = Runner(
        agent=Logic(name="a", logic=logic), app_name="app", session_service=service, auto_create_session=True
    )
    async with runner.run_async(**PLACE, new_message="go").supervised(None) as first:
        pass
    has_left.set()
    fails.append(OSError("no clock"))
    with pytest.raises(OSError, match="no clock"):
        async with runner.run_async(**PLACE, invocation_id=first.invocation_id) as second:
            await second.wait()
    assert [one.status for one in await service.list_invocations(app_name="app")] == ["interrupted"]
    async with runner.run_async(**PLACE, invocation_id=first.invocation_id) as third:
        await third.wait()
    assert third.status == "completed"


async def test_a_failing_hook_tells_no_secret() -> None:
    """An after_run hook fails with what a credential holds: what the caller is raised, and the log, have none of it."""
    config, secret = AuthConfig("own"), "sk-90210"
    credentials = InMemoryCredentialService()
    credential = AuthCredential("api_key", api_key=secret)
    await credentials.save_credential(app_name="app", user_id="u", credential_key="own", credential=credential)

    class Tells(BasePlugin):
        async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
            raise ValueError(f"failed with {secret}")

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(config)

    runner = Runner(
        app=App("app", Logic(name="a", logic=logic), [Tells(name="tells")]),
        session_service=InMemorySessionService(),
        credential_service=credentials,
        auto_create_session=True,
    )
    with pytest.raises(ValueError, match="failed with") as raised:
        await run_to_end(runner)
    assert secret not in str(raised.value)
    assert secret not in str(await stored_events(runner))


async def test_a_caller_that_has_heard_of_ctrl_c_may_go_on() -> None:
    """It has caught it in its block, which ends at its next checkpoint; what follows the block is run."""

    async def logic(ctx: InvocationContext) -> None:
        raise KeyboardInterrupt

    try:
        async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
            with trio.CancelScope(shield=True), pytest.raises(KeyboardInterrupt):
                await run.wait()
            await trio.lowlevel.checkpoint()
            raise AssertionError("the block goes on")
    except trio.Cancelled:  # a runner of tests may take it for its own
        raise AssertionError("the cancellation has left its block") from None
    assert run.status == "failed"


async def test_what_a_caller_raises_after_ctrl_c_is_raised() -> None:
    """It has caught it in its block, and fails itself: nobody swallows that."""

    async def logic(ctx: InvocationContext) -> None:
        raise KeyboardInterrupt

    with pytest.raises(ValueError, match="mine"):
        async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
            with trio.CancelScope(shield=True), pytest.raises(KeyboardInterrupt):
                await run.wait()
            raise ValueError("mine")


async def test_ctrl_c_in_a_clean_up_is_raised_rather_than_what_the_caller_has_raised() -> None:
    """The caller fails, and the agent is interrupted as it is cancelled for that."""

    async def logic(ctx: InvocationContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        async with runner_for(logic).run_async(**PLACE, new_message="go"):
            await trio.testing.wait_all_tasks_blocked()
            raise ValueError("mine")


async def test_a_caller_may_raise_the_very_object_that_the_agent_has_raised() -> None:
    """It is raised as it is, without a note that it has failed beside itself."""
    error = OSError("same")

    async def logic(ctx: InvocationContext) -> None:
        raise error

    with pytest.raises(OSError, match="same") as raised:
        async with runner_for(logic).run_async(**PLACE, new_message="go"):
            await trio.testing.wait_all_tasks_blocked()
            raise error
    assert raised.value is error
    assert getattr(error, "__notes__", []) == []


async def test_what_leaving_has_raised_is_not_raised_again() -> None:
    """Whoever asks a run that is over for more has none."""

    async def logic(ctx: InvocationContext) -> None:
        raise OSError("once")

    scope = runner_for(logic).run_async(**PLACE, new_message="go")
    with pytest.raises(OSError, match="once"):
        async with scope as run:
            await trio.testing.wait_all_tasks_blocked()
    assert [event async for event in run] == []


async def test_what_a_caller_raises_in_the_block_of_an_ended_invocation_is_raised() -> None:
    """There is nothing to run and nothing to clean up, and its exception is its own."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))

    runner = runner_for(logic)
    _, ended = await run_to_end(runner)
    with pytest.raises(ValueError, match="mine"):
        async with runner.run_async(**PLACE, invocation_id=ended.invocation_id):
            raise ValueError("mine")


async def test_a_cancellation_of_elsewhere_that_an_agent_raises_again_leaves_the_session_free() -> None:
    """An agent has kept the `Cancelled` of a scope that is over: the run fails with it, and the next one is let in."""
    texts: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        texts.append(ctx.user_content.parts[0].text or "" if ctx.user_content else "")
        kept: list[trio.Cancelled] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                kept.append(cancelled)
                raise
        if texts == ["go"]:
            raise kept[0]

    runner = runner_for(logic)
    with pytest.raises(trio.Cancelled):
        await run_to_end(runner)
    with trio.fail_after(5):
        _, run = await run_to_end(runner, "again")
    assert (run.status, texts) == ("completed", ["go", "again"])
    first, _ = await runner.session_service.list_invocations(app_name="app")
    assert first.status != "running"


# --- the deadline, and what it is not ---------------------------------------------------------------------------------


async def test_a_failure_of_its_own_is_no_missed_deadline(autojump_clock: MockClock) -> None:
    """An agent fails after the deadline, but not of it: it was shielded, and the cancellation had not come to it."""

    async def logic(ctx: InvocationContext) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        raise OSError("by itself")

    with pytest.raises(OSError, match="by itself") as raised:
        await run_to_end(runner_for(logic), run_config=RunConfig(deadline_s=1))
    assert getattr(raised.value, "__notes__", []) == []


async def test_a_time_limit_of_the_agent_is_no_missed_deadline(autojump_clock: MockClock) -> None:
    """An agent's own scope expires, and its clean-up fails: that is what the run fails with."""

    async def logic(ctx: InvocationContext) -> None:
        with trio.move_on_after(1):
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("while it was cleaning up")

    with pytest.raises(OSError, match="while it was cleaning up") as raised:
        await run_to_end(runner_for(logic), run_config=RunConfig(deadline_s=10))
    assert getattr(raised.value, "__notes__", []) == []


async def test_what_closes_a_run_has_no_deadline(autojump_clock: MockClock) -> None:
    """An agent fails in time, and its open call is answered by a slow store when the time is up: all is stored."""

    class Service(InMemorySessionService):
        async def commit_event(self, live: Any, event: Event, **options: Any) -> None:
            if event.get_function_responses():
                await trio.sleep(10)
            await super().commit_event(live, event, **options)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(parts=[Part(function_call=FunctionCall(id="c1", name="work"))])))
        raise OSError("in time")

    agent = Logic(name="a", logic=logic)
    runner = Runner(agent=agent, app_name="app", session_service=Service(), auto_create_session=True)
    with pytest.raises(OSError, match="in time") as raised:
        await run_to_end(runner, run_config=RunConfig(deadline_s=5))
    assert getattr(raised.value, "__notes__", []) == []
    assert [one.id for event in await stored_events(runner) for one in event.get_function_responses()] == ["c1"]


# --- entering ---------------------------------------------------------------------------------------------------------


async def test_a_store_that_refuses_an_answer_is_not_asked_again() -> None:
    """Going on fails with what the store has raised; the question stays open, and the answer can be given again."""
    fails: list[Exception] = []

    class Service(InMemorySessionService):
        async def commit_event(self, live: Any, event: Event, **options: Any) -> None:
            if fails:
                raise fails.pop()
            await super().commit_event(live, event, **options)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=str(await ctx.request_input("?"))))

    agent = Logic(name="a", logic=logic)
    runner = Runner(agent=agent, app_name="app", session_service=Service(), auto_create_session=True)
    _, first = await run_to_end(runner)
    [question] = first.pending
    fails.append(StorageBusyError("busy"))
    with pytest.raises(StorageBusyError):
        await run_to_end(runner, question.reply("yes"))
    assert await runner.session_service.list_pending() == [question]
    _, run = await run_to_end(runner, question.reply("yes"))
    assert run.answer is not None
    assert run.answer.text == "yes"


async def test_a_scope_is_entered_once() -> None:
    """A second `async with` over the same scope is refused, and nothing is stored of it."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))

    runner = runner_for(logic)
    scope = runner.run_async(**PLACE, new_message="go")
    async with scope as run:
        await run.wait()
    with pytest.raises(RuntimeError, match="entered already"):
        async with scope:
            raise AssertionError("it was entered")
    assert [event.text for event in await stored_events(runner)] == ["go", "said"]


async def test_who_was_overtaken_sees_as_much_as_was_asked_for(tmp_path: Path) -> None:
    """Another process writes just before the message is stored: the run loads the session again, in its window."""
    async with two_processes(tmp_path) as (mine, others, world, _):

        async def write() -> None:
            for text in ("by the way", "and another thing"):
                await append(others.session_service, await get(others.session_service), text)

        world.at["message"] = write
        config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=1))
        async with mine.run_async(**PLACE, new_message="next", run_config=config) as run:
            texts = [event.text for event in run.session.events]
            loaded = len(run._invocation.live.events) if run._invocation else 0
        assert texts == ["and another thing", "next"]
        assert loaded == 2


async def test_a_cancellation_from_outside_ends_the_invocation_in_order(autojump_clock: MockClock) -> None:
    """The block around a run is cancelled: its open call is answered, and the store knows that it was cancelled."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(parts=[Part(function_call=FunctionCall(id="c1", name="work"))])))
        await trio.sleep_forever()

    runner = runner_for(logic)
    with trio.move_on_after(1):
        await run_to_end(runner)
        raise AssertionError("it goes on behind the block of the run")
    [invocation] = await runner.session_service.list_invocations(app_name="app")
    assert invocation.status == "cancelled"
    assert [one.id for event in await stored_events(runner) for one in event.get_function_responses()] == ["c1"]


async def test_plugins_are_asked_about_new_messages_and_not_about_answers() -> None:
    """`on_user_message_callback` sees the message that begins an invocation, and none that goes on with it."""
    seen: list[str | None] = []

    class Looks(BasePlugin):
        async def on_user_message_callback(
            self, *, invocation_context: InvocationContext, user_message: Content
        ) -> None:
            seen.append(user_message.parts[0].text)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    runner = Runner(
        app=App("app", Logic(name="a", logic=logic), [Looks(name="looks")]),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    _, first = await run_to_end(runner)
    _, second = await run_to_end(runner, first.pending[0].reply("yes"))
    assert (second.status, seen) == ("completed", ["go"])


class Staging(InMemoryArtifactService):
    """Says that what it has belongs to the session's store, and notes what it is told to discard, which takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.discarded: list[str] = []

    def _shares(self, session_service: Any) -> bool:
        return True

    async def _save(self, *args: Any, staged: bool = False, **named: Any) -> int:
        return await super()._save(*args, **named)

    async def _discard(self, key: Any, versions: Any) -> None:
        await trio.sleep(1)
        self.discarded += [key.filename for _ in versions]


class Failing(Staging):
    """Cannot discard anything at first."""

    failures = 1

    async def _discard(self, key: Any, versions: Any) -> None:
        if self.failures and versions:
            self.failures -= 1
            raise StorageBusyError("busy")
        await super()._discard(key, versions)


@pytest.mark.parametrize("how", ["saved", "dropped", "deleted"])
async def test_what_could_not_be_discarded_is_discarded_the_next_time(how: str, autojump_clock: MockClock) -> None:
    """A run may end twice, if a message comes in that moment. What the first end could not discard the second does."""
    service = Failing()
    run = RunArtifacts(service, "app", "u", "s", staged=True, past=list)
    number = await run.to_save("a.txt", Part(text="saved"), None)()
    if how == "dropped":
        run.drop({"a.txt": [number]})
    elif how == "deleted":
        with pytest.raises(StorageBusyError):
            await run.delete("a.txt")
    if how != "deleted":
        await run.drop_unnamed()
    assert service.discarded == []
    await run.drop_unnamed()
    assert service.discarded == ["a.txt"]
    await run.drop_unnamed()
    assert service.discarded == ["a.txt"]


@pytest.mark.parametrize("message", ["stored", "refused", "cancelled"])
async def test_what_hooks_save_for_a_message_is_dropped_unless_that_is_stored(
    message: str, autojump_clock: MockClock
) -> None:
    """No event names a version that was saved for a message that was refused, or that somebody has cancelled."""

    class Service(InMemorySessionService):
        async def commit_event(self, live: Any, event: Event, **options: Any) -> None:
            if message == "cancelled":
                await trio.sleep(10)
            if message != "stored":
                raise StorageBusyError("busy")
            await super().commit_event(live, event, **options)

    class Saves(BasePlugin):
        async def on_user_message_callback(
            self, *, invocation_context: InvocationContext, user_message: Content
        ) -> None:
            await invocation_context.save_artifact("a.txt", Part(text="saved"))

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said"))

    artifacts = Staging()
    runner = Runner(
        app=App("app", Logic(name="a", logic=logic), [Saves(name="saves")]),
        session_service=Service(),
        artifact_service=artifacts,
        auto_create_session=True,
    )
    with trio.move_on_after(5):
        if message == "refused":
            with pytest.raises(StorageBusyError):
                await run_to_end(runner)
        else:
            await run_to_end(runner)
    assert artifacts.discarded == ([] if message == "stored" else ["a.txt"])
