"""Details of runs of nodes: where an error came from, what passes through many levels, and the names of tasks."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from minirun import App, Event, InMemoryRunner, LlmAgent
from minirun.errors import ConfigurationError, RouteError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm
from minirun.types import Content, Part
from minirun.workflow import END, FAILED, START, NodeContext, node

from .test_workflow import flow, output_of


async def test_an_end_that_is_refused_says_where_it_came_from() -> None:
    """The error has a note with the node's path, and so has the event that is stored of it."""

    async def lost(node_input: Any) -> Event:
        return Event(output=1, route="nowhere")

    runner = InMemoryRunner(app=App("app", flow((START, lost, {"somewhere": END}))), auto_create_session=True)
    with pytest.raises(RouteError) as caught:
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            await run.wait()
    assert "in the node wf@1/lost@1" in caught.value.__notes__
    events = await runner.session_service.read_events(app_name="app", user_id="u", session_id="s", after_seq=0)
    assert (events[-1].error_code, events[-1].node_info.path) == ("RouteError", "wf@1/lost@1")


@pytest.mark.parametrize("levels", [1, 11, 12, 13, 25])
async def test_an_error_passes_through_many_levels_as_it_is(levels: int) -> None:
    """Each run of a node gets it from the one below and may deal with it, however deep that is: it is in no group."""
    seen: list[str] = []

    async def deep(ctx: NodeContext, node_input: Any) -> Any:
        if node_input == 0:
            raise ValueError("deep")
        try:
            return await ctx.run_node(deep, node_input - 1)
        except Exception as error:
            seen.append(f"{type(error).__name__} {error}")
            raise

    async def top(ctx: NodeContext) -> str:
        try:
            await ctx.run_node(deep, levels)
        except ValueError as error:
            return str(error)
        return "nothing"

    assert await output_of(flow((START, top))) == "deep"
    assert seen == ["ValueError deep"] * levels


@pytest.mark.parametrize("levels", [1, 11, 12, 25])
async def test_a_cancellation_passes_through_many_levels(levels: int, autojump_clock: trio.testing.MockClock) -> None:
    """Who has set the time goes on at its end, and what was run below is over."""

    async def deep(ctx: NodeContext, node_input: Any) -> Any:
        if node_input:
            return await ctx.run_node(deep, node_input - 1)
        return await trio.sleep_forever()

    async def top(ctx: NodeContext) -> Any:
        with trio.move_on_after(5) as scope:
            await ctx.run_node(deep, levels)
        return scope.cancelled_caught

    began = trio.current_time()
    assert await output_of(flow((START, top))) is True
    assert trio.current_time() - began == 5


async def test_a_task_has_the_name_of_the_node_that_runs_in_it() -> None:
    """A chain of nodes takes one task, which says where it is: tools that show tasks show the node."""
    names: list[str] = []

    async def note(node_input: Any) -> int:
        names.append(trio.lowlevel.current_task().name)
        return 1

    await output_of(flow((START, node(note, name="first"), node(note, name="second"), node(note, name="third"))))
    assert names == ["node first@1", "node second@1", "node third@1"]


@pytest.mark.parametrize(
    "annotation",
    [AsyncGenerator, AsyncIterator, Generator, Iterator, AsyncGenerator[int, None], AsyncIterator[int], int, None],
)
async def test_a_node_that_yields_may_leave_open_what(annotation: Any) -> None:
    """Only what an annotation says of the items is checked; one that says nothing of them is as good as none."""

    async def gives(node_input: Any) -> Any:
        yield 7

    gives.__annotations__["return"] = annotation
    assert await output_of(flow((START, gives))) == 7


@pytest.mark.parametrize("hook", ["after", "error", "both"])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_plugin_follows_the_agent_that_is_a_node(hook: str, fails: bool) -> None:
    """Where it says something after the agent, that is the output of the node; its hook for errors is asked once."""
    asked: list[str] = []

    class After(BasePlugin):
        async def after_agent_callback(self, *, agent: Any, callback_context: Any) -> Content | None:
            asked.append(f"after {agent.name}")
            if fails or agent.name != "speaker":
                return None
            return Content(role="model", parts=[Part(text="and this")])

    class Errors(BasePlugin):
        async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
            asked.append(f"error {agent.name}")

    class Both(After, Errors):
        pass

    model = ScriptedLlm([ValueError("broken") if fails else "said"])
    agent = LlmAgent(name="speaker", model=model)
    plugin = {"after": After, "error": Errors, "both": Both}[hook]("plugin")
    app = App("app", flow((START, agent, {FAILED: failed}) if fails else (START, agent)), plugins=[plugin])
    async with InMemoryRunner(app=app, auto_create_session=True).run_async(
        user_id="u", session_id="s", new_message="go"
    ) as run:
        await run.wait()
    assert run.answer is not None
    said = "said" if hook == "error" else "and this"
    assert run.answer.output == ("ValueError" if fails else said)
    told = [each for each in ("error speaker", "after speaker") if fails or each.startswith("after")]
    assert [each for each in asked if each.endswith("speaker")] == [
        each for each in told if hook == "both" or each.startswith(hook)
    ]


async def failed(node_input: Any) -> str:
    """What has failed."""
    return str(node_input["type"])


@pytest.mark.parametrize("name", ["input_schema", "output_schema"])
def test_a_form_of_a_workflow_that_is_none_is_refused_by_name(name: str) -> None:
    """When it is made; the error begins with what was expected of that field."""
    with pytest.raises(ConfigurationError) as caught:
        flow((START, failed), **{name: 5})
    assert name in re.findall(r"[\w~]+", str(caught.value))
