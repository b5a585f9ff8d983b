"""What a plugin can see of a run beside its hooks: how it ends, whether it goes on, and how its events are stored."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import App, Event, InMemoryRunner, InvocationContext, LlmAgent, ParallelAgent, RunConfig, Runner
from minirun.agents import BaseAgent
from minirun.errors import ConfigurationError, DeadlineExceededError
from minirun.plugins import BasePlugin
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm

from ..helpers import PLACE, Logic, run_to_end


class Watching(BasePlugin):
    """Notes how runs begin and end, and what is stored meanwhile."""

    def __init__(self) -> None:
        super().__init__("watching")
        self.resumed: list[bool] = []
        self.running: list[InvocationStatus] = []
        self.ended: list[InvocationStatus] = []
        self.commits: list[Event] = []

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self.resumed.append(invocation_context.is_resumed)
        self.running.append(invocation_context.status)
        invocation_context.watch_commits(self.commits.append)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self.ended.append(invocation_context.status)


def runner_with(agent: BaseAgent | Any, plugin: BasePlugin) -> Runner:
    """A runner over a fresh session."""
    agent = agent if isinstance(agent, BaseAgent) else Logic(name="agent", logic=agent)
    return InMemoryRunner(app=App("app", agent, plugins=[plugin]), auto_create_session=True)


async def nothing(ctx: InvocationContext) -> None:
    """Do nothing."""


async def fail(ctx: InvocationContext) -> None:
    """Fail."""
    raise OSError("cut")


async def fail_beside_others(ctx: InvocationContext) -> None:
    """Fail in a nursery, so that the failure comes in a group."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(fail, ctx)


async def hang(ctx: InvocationContext) -> None:
    """Never end."""
    await trio.sleep_forever()


async def ask(ctx: InvocationContext) -> None:
    """Ask somebody."""
    await ctx.request_input("go on?")


@pytest.mark.parametrize("logic", [nothing, fail, fail_beside_others, hang, ask])
@pytest.mark.parametrize("left", [False, True])
async def test_the_hooks_at_the_end_are_told_what_the_run_is_recorded_as(
    logic: Any, left: bool, autojump_clock: MockClock
) -> None:
    """Whether it ends by itself, by its deadline, or because its caller leaves."""
    plugin = Watching()
    runner = runner_with(logic, plugin)
    try:
        async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(deadline_s=5)) as run:
            if left:
                with trio.move_on_after(1):
                    await run.wait()
            else:
                await run.wait()
    except (OSError, DeadlineExceededError):
        pass
    assert plugin.ended == [run.status]
    assert plugin.running == [InvocationStatus.RUNNING]
    assert plugin.resumed == [False]


async def test_a_run_that_goes_on_says_so() -> None:
    """From its first hook on; what was said before is not told as stored again."""
    plugin = Watching()

    async def talk(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="one"))
        await ctx.request_input("go on?")
        await ctx.emit(Event(message="two"))

    runner = runner_with(talk, plugin)
    _, run = await run_to_end(runner)
    await run_to_end(runner, run.pending[0].reply("yes"))
    assert plugin.resumed == [False, True]
    assert plugin.ended == [InvocationStatus.PAUSED, InvocationStatus.COMPLETED]
    assert [event.text for event in plugin.commits if event.text] == ["one", "two"]


async def test_conflicts_are_seen_where_they_are_known() -> None:
    """When the event is stored, not when on_event is asked."""
    plugin = Watching()
    agents = [LlmAgent(name=name, model=ScriptedLlm([name]), output_key="said") for name in ("p", "q")]
    await run_to_end(runner_with(ParallelAgent(name="both", sub_agents=agents), plugin))
    assert [list(event.actions.state_conflicts) for event in plugin.commits] == [[], ["said"]]


async def test_a_watcher_that_raises_fails_the_run_at_its_end() -> None:
    """With its own exception; the event is stored, and `emit` has returned."""

    class Failing(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
            invocation_context.watch_commits(self.told)

        def told(self, event: Event) -> None:
            raise LookupError("watcher")

    said: list[str] = []

    async def talk(ctx: InvocationContext) -> None:
        for text in ("one", "two"):
            said.append((await ctx.emit(Event(message=text))).text)

    with pytest.raises(LookupError, match="watcher"):
        await run_to_end(runner_with(talk, Failing("failing")))
    assert said == ["one", "two"]


async def test_what_is_no_function_cannot_watch() -> None:
    """It is refused at once."""

    async def watch(ctx: InvocationContext) -> None:
        ctx.watch_commits("me")  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match="expected a function of an event, found 'me'"):
        await run_to_end(runner_with(watch, Watching()))
