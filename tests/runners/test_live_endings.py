"""However a live run ends: what was heard is stored, every call is answered, and the next run goes on from there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import InMemorySessionService, LlmAgent, Runner
from minirun.errors import StorageError, StorageUncertainError
from minirun.events import Event
from minirun.plugins import BasePlugin
from minirun.sessions import InvocationStatus, LiveSession, SessionWriter
from minirun.testing import LiveSent, ScriptedLive, ScriptedLlm, call, hear, pause, say
from minirun.testing._live_dialects import DialectName

from ..live_client import both, is_over, new_runner, stored

STEPS_MAX = 3000


async def look(q: str = "") -> str:
    """Look for a second."""
    await trio.sleep(1)
    return "seen"


def replies(sent: LiveSent) -> Any:
    """A model that calls, speaks, is interrupted by voice, and answers a last word."""
    if sent.kind == "responses":
        return [say("one two "), pause(0.5), hear("wait"), say("three")]
    if sent.text == "bye":
        return say("Bye.")
    return [call("look", q=sent.text)] if sent.kind in ("content", "history") else None


async def check(runner: Runner, seen: Sequence[Event], *, may_write: bool = True) -> None:
    """
    What must hold after every end.

    Each stored call has one response, if the run *may_write*, and after the next run at the latest; what was seen as
    whole is stored, and nothing that was partial; each event is there once; a run in writing can follow.
    """
    service = runner.session_service
    if await service.get_session(app_name=runner.app_name, user_id="u", session_id="s") is None:
        assert not seen
        return
    if may_write:
        check_calls(await stored(runner))
    async with runner.run_async(user_id="u", session_id="s", new_message="in writing") as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.text == "written"
    log = await stored(runner)
    check_calls(log)
    ids = [event.id for event in log]
    assert len(set(ids)) == len(ids)
    assert {event.id for event in seen if not event.partial} <= set(ids)
    assert not [event for event in log if event.partial or event.audio]


def check_calls(log: Sequence[Event]) -> None:
    """Each call has one response, which comes later."""
    open_calls: set[str | None] = set()
    for event in log:
        for response in event.get_function_responses():
            open_calls.remove(response.id)
        open_calls |= {each.id for each in event.get_function_calls()}
    assert not open_calls


class CancelAt(trio.abc.Instrument):
    """Cancels a scope at the n-th step of any task."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope, self.left = scope, number

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count it."""
        self.left -= 1
        if self.left == 0:
            self._scope.cancel()


def two_models(dialect: DialectName) -> ScriptedLive:
    """One that converses, and is asked in writing afterwards."""
    return ScriptedLive(replies, dialect=dialect, text=ScriptedLlm(lambda request: "written"))


async def talk(runner: Runner, seen: list[Event]) -> None:
    """A conversation with a call, an interruption and an end."""
    async with runner.run_live(user_id="u", session_id="s") as live:
        await live.send_text("do it")
        async for event in live:
            seen.append(event)
            if is_over(event) and event.text == "three":
                await live.send_text("bye")
            elif is_over(event) and event.text == "Bye.":
                await live.aclose()


async def at_each_step(
    run: Callable[[Runner, list[Event]], Awaitable[None]], dialect: DialectName, *, every: int = 1
) -> int:
    """Run, cancelled at each step in turn, and check; return how many steps there were."""
    for number in range(1, STEPS_MAX, every):
        seen: list[Event] = []
        async with new_runner(two_models(dialect), tools=[look]) as runner:
            with trio.fail_after(600), trio.CancelScope() as scope:
                instrument = CancelAt(scope, number)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await run(runner, seen)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            await check(runner, seen)
        if instrument.left > 0:
            return number - 1
    raise AssertionError("it never gets through")


@both
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_conversation_may_be_cancelled_at_every_step(
    dialect: DialectName, every: int, autojump_clock: MockClock
) -> None:
    """Wherever its caller is cancelled, calls are answered, what was seen is stored, and the session is let go."""
    assert await at_each_step(talk, dialect, every=every) > 100


@both
async def test_a_client_may_leave_after_every_event(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A caller that leaves the loop after any event leaves a session that goes on."""
    for number in range(1, 100):
        seen: list[Event] = []
        async with new_runner(two_models(dialect), tools=[look]) as runner:
            async with runner.run_live(user_id="u", session_id="s") as live:
                await live.send_text("do it")
                async for event in live:
                    seen.append(event)
                    if len(seen) == number:
                        break
                    if is_over(event) and event.text == "three":
                        await live.aclose()
            await check(runner, seen)
            if live.status is InvocationStatus.COMPLETED:
                break
    assert number > 8


class Failing(InMemorySessionService):
    """
    Fails once, at the n-th commit.

    Args:
        number: Which one; later ones go well.
        error: What it raises.
        is_stored: Whether the event is stored all the same.
    """

    def __init__(self, number: int, error: Exception, *, is_stored: bool) -> None:
        super().__init__()
        self.left, self.error, self.is_stored = number, error, is_stored

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        self.left -= 1
        if self.left or self.is_stored:
            await super().commit_event(live, event, writer=writer, begins=begins)
        if not self.left:
            raise self.error


@both
@pytest.mark.parametrize("is_stored", [False, True], ids=["refused", "uncertain"])
async def test_a_store_may_fail_at_each_append(
    dialect: DialectName, is_stored: bool, autojump_clock: MockClock
) -> None:
    """The run ends with the store's error, nobody waits for ever, and the next run goes on with what is stored."""
    for number in range(1, 40):
        error = StorageUncertainError("planted") if is_stored else StorageError("planted")
        service = Failing(number, error, is_stored=is_stored)
        agent = LlmAgent(name="root", model=two_models(dialect), tools=[look])
        seen: list[Event] = []
        async with Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True) as runner:
            with trio.fail_after(600):
                try:
                    await talk(runner, seen)
                except StorageError:
                    assert service.left <= 0
                else:
                    assert service.left > 0
            if service.left > 0:
                break
            await check(runner, seen, may_write=False)
    assert number > 8


class Guarded(BasePlugin):
    """A plugin whose hook fails at the n-th event."""

    def __init__(self, number: int) -> None:
        super().__init__(name="guarded")
        self.left = number

    async def on_event_callback(self, *, event: Event, **_: Any) -> None:
        """Fail at one of them."""
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the hook has failed")


@both
async def test_a_hook_may_fail_at_each_event(dialect: DialectName, autojump_clock: MockClock) -> None:
    """A failing hook ends the run with its error; what was stored is answered, and the session goes on."""
    for number in range(1, 60):
        seen: list[Event] = []
        plugin = Guarded(number)
        async with new_runner(two_models(dialect), tools=[look], plugins=[plugin]) as runner:
            failed = False
            try:
                with trio.fail_after(600):
                    await talk(runner, seen)
            except RuntimeError as error:
                failed = "the hook has failed" in str(error)
            assert failed is (plugin.left <= 0), (number, plugin.left)
            plugin.left = -1
            await check(runner, seen)
        if not failed:
            break
    assert number > 8
