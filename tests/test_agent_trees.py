"""
Trees of agents under every schedule: what a simulation draws, what hypothesis draws, and the small ones exhausted.

The worlds are in trees.py. What they have found in minirun stands at the end, each as the shortest program that
shows it.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    App,
    Content,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Part,
    RunConfig,
    ToolContext,
)
from minirun.errors import ToolCallsLimitExceededError
from minirun.events import EventActions
from minirun.plugins import BasePlugin
from minirun.sessions import SessionKey
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionCall

from .helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from .trees import HookError

# --- what was found ---------------------------------------------------------------------------------------------------


def form_agent(script: list[Any], **hooks: Any) -> LlmAgent:
    """An agent that has to answer by tool, for it has another one."""

    def look() -> str:
        """Look."""
        return "seen"

    return LlmAgent(name="root", model=ScriptedLlm(script), tools=[look], output_schema={"type": "integer"}, **hooks)


async def test_a_hook_that_answers_set_model_response_is_checked() -> None:
    """What a hook puts in the place of an answer counts if it has the form; else the model is asked again."""
    answers: list[Any] = [{"result": 5}]
    agent = form_agent([call("set_model_response", result=1)], before_tool_callback=lambda **_: answers.pop())
    events, _ = await run_to_end(runner_for(agent))
    assert events[-1].output == 5

    answers = [None, {"instead": True}]
    script = [call("set_model_response", result=1), call("set_model_response", result=2)]
    agent = form_agent(script, before_tool_callback=lambda **_: answers.pop())
    events, _ = await run_to_end(runner_for(agent))
    assert events[-1].output == 2


class Fussy(BasePlugin):
    """Refuses an event that says something."""

    def __init__(self, text: str) -> None:
        super().__init__("fussy")
        self._text = text

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        if event.text == self._text:
            raise HookError(self._text)
        return None


@pytest.mark.parametrize("where", ["a tool", "an agent tool"])
async def test_a_hook_that_fails_inside_of_a_tool_fails_the_run(where: str) -> None:
    """It is nothing that a model is told, nor a hook for the errors of tools."""

    async def tell(tool_context: ToolContext) -> str:
        """Tell."""
        await tool_context.emit(Event(message="words"))
        return "told"

    told: list[Exception] = []
    tool: Any = tell if where == "a tool" else AgentTool(LlmAgent(name="tell", model=ScriptedLlm(["words"])))
    args = {} if where == "a tool" else {"request": "go"}
    agent = LlmAgent(
        name="root",
        model=ScriptedLlm([call("tell", **args), "unreachable"]),
        tools=[tool],
        on_tool_error_callback=lambda tool, args, tool_context, error: told.append(error),
    )
    runner = InMemoryRunner(app=App("app", agent, [Fussy("words")]), auto_create_session=True)
    with pytest.raises(HookError, match="words"):
        await run_to_end(runner)
    assert told == []
    assert [event.error_code for event in await stored_events(runner) if event.error_code] == ["HookError"]


async def test_what_is_open_inside_of_a_call_is_answered_before_the_call() -> None:
    """A limit is hit by the calls of an agent that is a tool: they are answered, then its own call is."""

    def look() -> str:
        """Look."""
        return "seen"

    below = LlmAgent(name="below", model=ScriptedLlm([[call("look"), call("look")]]), tools=[look])
    agent = LlmAgent(name="root", model=ScriptedLlm([call("below", request="go")]), tools=[AgentTool(below)])
    runner = runner_for(agent)
    with pytest.raises(ToolCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_tool_calls=2))
    answered = [[one.name for one in event.get_function_responses()] for event in await stored_events(runner)]
    assert [names for names in answered if names] == [["look", "look"], ["below"]]


async def test_recovery_answers_what_is_inside_of_a_call_first() -> None:
    """A run that has died inside of an agent tool leaves two calls; the inner one is answered before the outer one."""

    async def nothing(ctx: InvocationContext) -> None:
        pass

    runner = runner_for(nothing)
    service = runner.session_service
    await service.create_session(app_name="app", **PLACE)
    writer = await service.open_writer(SessionKey("app", **PLACE), "e-1", None, reject=False)
    assert writer is not None
    await writer.append(Event(id="1", invocation_id="e-1", author="user", message="go"), begins=True)
    for call_id, branch in (("outer", None), ("inner", "below@outer")):
        content = Content(role="model", parts=[Part(function_call=FunctionCall(id=call_id, name=call_id))])
        await writer.append(Event(id=call_id, invocation_id="e-1", author="root", branch=branch, content=content))
    await writer.finish(None)
    await run_to_end(runner)
    answered = [one.name for event in await stored_events(runner) for one in event.get_function_responses()]
    assert answered == ["inner", "outer"]


async def test_a_conflict_is_named_by_what_is_stored() -> None:
    """Of two branches that write a key, the one whose event was withdrawn and stored at its end names the conflict."""

    def put(tool_context: ToolContext) -> str:
        """Put."""
        tool_context.state["k"] = 1
        return "put"

    async def fail(ctx: InvocationContext) -> None:
        while len([e for e in ctx.session.events if e.get_function_responses()]) < 1:
            await trio.lowlevel.checkpoint()
        raise ValueError("enough")

    def writer(name: str) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedLlm([call("put"), "done"]), tools=[put])

    agent = ParallelAgent(name="all", sub_agents=[writer("a"), writer("b"), Logic(name="c", logic=fail)])
    runner = runner_for(agent)
    with pytest.raises(ValueError, match="enough"):
        async with runner.run_async(**PLACE, new_message="go") as run:
            async for event in run:
                if event.get_function_responses():
                    await trio.testing.wait_all_tasks_blocked()
    written = [event for event in await stored_events(runner) if "k" in event.actions.state_delta]
    assert [list(event.actions.state_conflicts) for event in written] == [[], ["k"]]


async def test_an_escalation_does_not_hide_what_a_parallel_agent_has_collected() -> None:
    """One branch has failed, another is cancelled from outside: the failure is raised."""
    is_failed = trio.Event()

    async def fail(ctx: InvocationContext) -> None:
        is_failed.set()
        raise ValueError("the failure")

    async def wait(ctx: InvocationContext) -> None:
        await trio.sleep_forever()

    async def escalate(ctx: InvocationContext) -> None:
        await is_failed.wait()
        await ctx.emit(Event(message="enough", actions=EventActions(escalate=True)))

    inner = ParallelAgent(
        name="inner", on_failure="collect", sub_agents=[Logic(name="one", logic=fail), Logic(name="two", logic=wait)]
    )
    outer = ParallelAgent(name="outer", sub_agents=[inner, Logic(name="three", logic=escalate)])
    with pytest.raises(ValueError, match="the failure"):
        await run_to_end(runner_for(outer))
