"""Callbacks around an agent whose run was paused: what they have said and written is not asked for again."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import Event, InMemoryRunner, InvocationContext, Runner, SequentialAgent
from minirun.plugins import BasePlugin
from minirun.runtime import Run
from minirun.types import Content, Part

from ..helpers import PLACE, Logic, runner_for, stored_events


async def run(runner: Runner, message: Any = "go") -> Run:
    """Run to the end, or to a question."""
    async with runner.run_async(**PLACE, new_message=message) as running:
        await running.wait()
    return running


async def ask(ctx: InvocationContext) -> None:
    """Ask, and tell the answer."""
    await ctx.emit(Event(message=f"{ctx.agent_name} got {await ctx.request_input('?')}"))


async def speak(ctx: InvocationContext) -> None:
    """Say something."""
    await ctx.emit(Event(message=f"{ctx.agent_name} ran"))


def said(text: str) -> Content:
    """What a callback answers."""
    return Content(role="model", parts=[Part(text=text)])


async def texts(runner: Runner) -> list[str]:
    """What the agents have said."""
    return [event.text for event in await stored_events(runner) if event.author != "user" and event.text]


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("first", [True, False])
async def test_an_agent_that_has_begun_goes_on(writes: bool, first: bool) -> None:
    """Its callback let it run, whether it wrote to the state then or not: it has not answered in its place."""
    asked: list[str] = []

    def before(callback_context: Any) -> None:
        asked.append(callback_context.agent_name)
        if writes:
            callback_context.state["seen"] = len(asked)

    agents = [Logic(name="a", logic=speak, before_agent_callback=before), Logic(name="b", logic=ask)]
    if first:
        agents = [Logic(name="a", logic=ask, before_agent_callback=before), Logic(name="b", logic=speak)]
    runner = runner_for(SequentialAgent(name="all", sub_agents=agents))
    paused = await run(runner)
    assert paused.status == "paused"
    ended = await run(runner, paused.pending[0].reply("x"))
    assert ended.status == "completed"
    assert await texts(runner) == (["a got x", "b ran"] if first else ["a ran", "b got x"])
    assert asked == ["a"]
    assert ended.session.state.get("seen") == (1 if writes else None)


async def test_an_agent_that_a_callback_has_answered_for_is_not_run_later_either() -> None:
    """The run goes on behind it, with what the callback has said in the log once."""
    asked: list[str] = []

    def before(callback_context: Any) -> Content:
        asked.append("before")
        return said("instead")

    def after(callback_context: Any) -> None:
        asked.append("after")

    first = Logic(name="a", logic=speak, before_agent_callback=before, after_agent_callback=after)
    runner = runner_for(SequentialAgent(name="all", sub_agents=[first, Logic(name="b", logic=ask)]))
    paused = await run(runner)
    assert (await run(runner, paused.pending[0].reply("x"))).status == "completed"
    assert await texts(runner) == ["instead", "b got x"]
    assert asked == ["before"]


async def test_callbacks_after_an_agent_that_waits_are_asked_when_it_is_over() -> None:
    """A pause is no end; an error in the later run is one, and each is told of once."""
    asked: list[str] = []

    async def fails(ctx: InvocationContext) -> None:
        await ask(ctx)
        raise ValueError("late")

    class Watcher(BasePlugin):
        async def after_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
            asked.append("after")

        async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
            asked.append(f"error {error}")

    runner = InMemoryRunner(
        Logic(name="a", logic=fails), app_name="app", auto_create_session=True, plugins=[Watcher("watcher")]
    )
    paused = await run(runner)
    assert asked == []
    with pytest.raises(ValueError, match="late"):
        await run(runner, paused.pending[0].reply("x"))
    assert asked == ["error late", "after"]
