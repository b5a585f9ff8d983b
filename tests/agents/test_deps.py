"""What an application hands to a run: found everywhere in it, stored nowhere, given again by who resumes."""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol, TypedDict

import attrs
import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    App,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    ToolContext,
)
from minirun.agents import CallbackContext, ReadonlyContext
from minirun.env import Env
from minirun.errors import MissingDepsError, NotSupportedError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events


class Database:
    """Something that nobody could store."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, who: str) -> str:
        self.asked.append(who)
        return f"rows for {who}"


@attrs.frozen
class Deps:
    database: Database


async def test_whatever_runs_in_a_run_finds_what_it_was_given() -> None:
    """
    Tools, callbacks, instructions, plugins, and agents that are tools get the very object, typed by `deps_as`.
    """

    def instruction(context: ReadonlyContext) -> str:
        return context.deps_as(Deps).database.ask("instruction")

    def before(callback_context: CallbackContext) -> None:
        callback_context.deps_as(Deps).database.ask("callback")

    def find(tool_context: ToolContext) -> str:
        return tool_context.deps_as(Deps).database.ask("tool in a thread")

    class Watching(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
            invocation_context.deps.database.ask("plugin")

    inner = LlmAgent(name="inner", model=ScriptedLlm(["ok"]), instruction=instruction)
    agent = LlmAgent(
        name="outer",
        model=ScriptedLlm([[call("find"), call("inner", request="go")], "done"]),
        tools=[find, AgentTool(inner)],
        before_agent_callback=before,
    )
    database = Database()
    app = App(name="app", root_agent=agent, plugins=[Watching(name="w")])
    runner = InMemoryRunner(app=app, auto_create_session=True)
    events, _ = await run_to_end(runner, deps=Deps(database))
    assert sorted(database.asked) == ["callback", "instruction", "plugin", "tool in a thread"]
    assert "Database" not in json.dumps([repr(event) for event in await stored_events(runner)])
    assert events[-1].text == "done"


@pytest.mark.parametrize("given", [None, Database()])
async def test_what_was_not_given_is_an_error_that_says_so(given: Any) -> None:
    """
    `ctx.deps` is None where nothing was given; `deps_as` names what it expected, what it found, and what to do.
    """
    found: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        found.append(ctx.deps)
        ctx.deps_as(Deps)

    kind = type(given).__name__
    with pytest.raises(MissingDepsError, match=f"^expected .* a Deps as deps, found {kind}; .* give `deps=`"):
        await run_to_end(runner_for(logic), deps=given)
    assert found == [given]


class Asks(Protocol):
    """What Python cannot recognise an instance of."""

    def ask(self, who: str) -> str: ...


class Shape(TypedDict):
    """A dict, and no class of its own."""

    rows: int


@pytest.mark.parametrize("given", [None, Database(), {"rows": 1}])
@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Deps | Database, r"Deps \| .*Database"),
        (Database | None, r"Database \| None"),
        (dict[str, int], r"dict\[str, int\]"),
        (Literal["a"], "Literal"),
        ("Database", "'Database'"),
        (None, "None"),
        (Any, "Any"),
        (Asks, "Asks"),
        (Shape, "Shape"),
    ],
)
async def test_a_kind_that_is_no_class_is_refused_by_name(kind: Any, named: str, given: Any) -> None:
    """
    `deps_as` takes a class. A union, a class with parameters and the like are refused, whatever the run was given.
    """

    async def logic(ctx: InvocationContext) -> None:
        ctx.deps_as(kind)

    with pytest.raises(NotSupportedError, match=f"^expected a class as the kind of deps, found .*{named}"):
        await run_to_end(runner_for(logic), deps=given)


def asker() -> Runner:
    async def logic(ctx: InvocationContext) -> None:
        who = await ctx.request_input("Who?")
        await ctx.sleep_until(0)
        ctx.state["found"] = ctx.deps_as(Deps).database.ask(who)

    return runner_for(logic)


async def test_who_resumes_gives_it_again() -> None:
    """
    Nothing of it is kept with a paused invocation: the run that answers its question brings its own.
    """
    first, second = Database(), Database()
    runner = asker()
    _, run = await run_to_end(runner, deps=Deps(first))
    _, run = await run_to_end(runner, run.pending[0].reply("ada"), deps=Deps(second))
    assert (first.asked, second.asked, run.session.state["found"]) == ([], ["ada"], "rows for ada")


class SettableClock(Env):
    """A wall clock that shows what it was set to."""

    shown = 0.0

    def now(self) -> float:
        return type(self).shown


@pytest.mark.parametrize("how", ["resume_due", "supervise"])
async def test_a_supervisor_brings_it(
    how: str, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    `resume_due` and `supervise` hand it to the runs that they begin.
    """
    database = Database()

    async def logic(ctx: InvocationContext) -> None:
        await ctx.sleep_until(10)
        ctx.deps_as(Deps).database.ask("sleeper")

    service = InMemorySessionService(env=SettableClock())
    agent = Logic(name="agent", logic=logic)
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    await run_to_end(runner)
    monkeypatch.setattr(SettableClock, "shown", 20.0)
    if how == "resume_due":
        await runner.resume_due(deps=Deps(database))
    else:
        with trio.move_on_after(3):
            await runner.supervise(deps=Deps(database))
    assert database.asked == ["sleeper"]


def test_the_synchronous_run_takes_it() -> None:
    """
    `run(deps=...)` hands it to the run in its thread.
    """
    database = Database()

    def find(tool_context: ToolContext) -> str:
        return tool_context.deps_as(Deps).database.ask("sync")

    runner = InMemoryRunner(
        agent=LlmAgent(name="a", model=ScriptedLlm([call("find"), "done"]), tools=[find]), auto_create_session=True
    )
    with runner.run(**PLACE, new_message="go", deps=Deps(database)) as events:
        assert [event.text for event in events][-1] == "done"
    assert database.asked == ["sync"]


async def test_a_debugging_run_takes_it() -> None:
    """
    `run_debug(deps=...)` does so for each of its messages.
    """
    database = Database()

    async def logic(ctx: InvocationContext) -> None:
        ctx.deps.database.ask("debug")

    await runner_for(logic).run_debug(["one", "two"], deps=Deps(database), quiet=True)
    assert database.asked == ["debug", "debug"]
