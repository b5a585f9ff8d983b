"""Calls of long-running tools: named by the event that makes them, and waiting once the tool has begun the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    App,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    ToolContext,
)
from minirun._values import changed
from minirun.plugins import BasePlugin
from minirun.runtime import StreamingMode
from minirun.sessions import InMemorySessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from ..resuming import steps
from .test_resume import cut_after, runner_of


def ask_for_approval(purpose: str) -> dict[str, Any]:
    """Ask the manager, and say under which ticket."""
    return {"status": "pending", "ticket": f"approval of {purpose}"}


def clerk(*answers: object) -> LlmAgent:
    """An agent that asks its manager."""
    model = steps(*answers or (call("ask_for_approval", purpose="a chair"), "It is on its way."))
    return LlmAgent(name="clerk", model=model, tools=[LongRunningFunctionTool(ask_for_approval)])


def waiting_call(event: Event) -> FunctionCall | None:
    """The call of an event that somebody outside is to answer, as the documents look for it."""
    if not event.long_running_tool_ids or not event.content or not event.content.parts:
        return None
    for part in event.content.parts:
        if part.function_call and part.function_call.id in event.long_running_tool_ids:
            return part.function_call
    return None


async def resume(runner: Runner, invocation_id: str | None) -> str:
    """Go on with an invocation by name; return how that ends."""
    async with runner.run_async(**PLACE, invocation_id=invocation_id) as run:
        await run.wait()
    return str(run.status)


async def test_the_event_that_makes_a_long_running_call_names_it() -> None:
    """A program looks for the call in the events of a run, and sends the result when it has it."""
    runner, found = runner_for(clerk()), None
    async with runner.run_async(**PLACE, new_message="Order a chair.") as run:
        async for event in run:
            if not found:
                found = waiting_call(event)
                assert found is None or event.is_final_response()
    assert found is not None
    assert (found.name, found.args, run.status) == ("ask_for_approval", {"purpose": "a chair"}, "paused")
    response = FunctionResponse(id=found.id, name=found.name, response={"status": "approved"})
    answer = Content(role="user", parts=[Part(function_response=response)])
    events, run = await run_to_end(runner, answer)
    assert (events[-1].text, run.status) == ("It is on its way.", "completed")


async def test_only_calls_of_long_running_tools_are_named() -> None:
    """Beside other calls, with the model's own ids or minirun's, and with text; also where answers are streamed."""

    def look() -> str:
        return "seen"

    parts = [
        Part(text="Let me ask."),
        Part(function_call=FunctionCall(name="look", args={})),
        Part(function_call=FunctionCall(name="ask_for_approval", args={"purpose": "x"})),
        Part(function_call=FunctionCall(id="own", name="ask_for_approval", args={"purpose": "y"})),
        Part(function_call=FunctionCall(name="made_up", args={})),
    ]
    for mode in StreamingMode.NONE, StreamingMode.SSE:
        tools = [FunctionTool(look), LongRunningFunctionTool(ask_for_approval)]
        agent = LlmAgent(name="clerk", model=ScriptedLlm([Content(role="model", parts=parts)]), tools=tools)
        events, run = await run_to_end(runner_for(agent), run_config=RunConfig(streaming_mode=mode))
        [made] = [event for event in events if event.get_function_calls() and not event.partial]
        ids = [each.id for each in made.get_function_calls()]
        assert sorted(made.long_running_tool_ids or ()) == sorted([ids[1] or "", "own"])
        assert [one.call_id for one in run.pending] == [ids[1], "own"]
        assert [one.hint for one in run.pending] == [ask_for_approval("x"), ask_for_approval("y")]


async def test_what_a_model_says_beside_a_call_that_waits_is_no_answer() -> None:
    """The event is final, as the documents have it; the run has no answer until the agent gives one."""
    said = Content(role="model", parts=[Part(text="Wait."), call("ask_for_approval", purpose="x")])
    runner = runner_for(clerk(said, "Done."))
    events, run = await run_to_end(runner)
    assert [event.text for event in events if event.is_final_response()] == ["Wait.", ""]
    assert run.answer is None
    _, run = await run_to_end(runner, run.pending[0].reply(1))
    assert run.answer is not None
    assert run.answer.text == "Done."


async def test_a_call_whose_tool_has_not_begun_waits_for_nobody() -> None:
    """A process that dies between the call and the tool's return leaves a call that may have been made, no question."""
    runner = runner_of(clerk())
    await run_to_end(runner)
    log = await stored_events(runner)
    assert [bool(event.long_running_tool_ids) for event in log] == [False, True, True]
    again = runner_of(clerk(), await cut_after(log, 2))
    assert await again.session_service.list_pending(app_name="app") == []
    [interrupted] = await again.session_service.list_invocations(app_name="app")
    assert interrupted.status == "interrupted"
    assert await resume(again, log[0].invocation_id) == "completed"
    [answer] = [one for event in await stored_events(again) for one in event.get_function_responses()]
    assert answer.response["error"]["type"] == "outcome_unknown"
    after = runner_of(clerk(), await cut_after(log, 3))
    [question] = await after.session_service.list_pending(app_name="app")
    assert question.hint == ask_for_approval("a chair")


async def test_a_new_message_closes_a_call_whose_tool_has_not_begun() -> None:
    """It is answered like every call of a dead process, before a model is asked."""
    runner = runner_of(clerk())
    await run_to_end(runner)
    other = LlmAgent(name="clerk", model=ScriptedLlm(["hello"]))
    again = runner_of(other, await cut_after(await stored_events(runner), 2))
    _, run = await run_to_end(again, "Hi.")
    answers = [one.response for event in await stored_events(again) for one in event.get_function_responses()]
    assert [answer["error"]["type"] for answer in answers] == ["outcome_unknown"]
    assert run.status == "completed"


def as_stored_before(log: Sequence[Event]) -> list[Event]:
    """The log as earlier versions have stored it: the event of the call does not say that it is long-running."""
    found = []
    for event in log:
        if event.actions.replay.at_work:
            replay = changed(event.actions.replay, at_work=None)
            event = changed(event, long_running_tool_ids=None, actions=changed(event.actions, replay=replay))
        found.append(event)
    return found


async def test_a_call_that_was_stored_by_an_earlier_version_goes_on() -> None:
    """Where only the event that says that it waits names the call, the call waits all the same."""
    runner = runner_of(clerk())
    await run_to_end(runner)
    log = as_stored_before(await stored_events(runner))
    assert [bool(event.long_running_tool_ids) for event in log] == [False, False, True]
    again = runner_of(clerk(), await cut_after(log, 3))
    [question] = await again.session_service.list_pending(app_name="app")
    assert (question.kind, question.hint) == ("long_running", ask_for_approval("a chair"))
    events, run = await run_to_end(again, question.reply("yes"))
    assert (events[-1].text, run.status) == ("It is on its way.", "completed")


async def test_a_call_around_an_agent_whose_call_has_not_begun_has_asked_nothing() -> None:
    """After a crash it is settled as `on_interrupted` says: what is inside of it has made a call, and no question."""

    def agent() -> LlmAgent:
        tools = [AgentTool(clerk(), on_interrupted="report")]
        return LlmAgent(name="boss", model=steps(call("clerk", request="chairs"), "well"), tools=tools)

    runner = runner_of(agent())
    await run_to_end(runner)
    log = await stored_events(runner)
    assert [bool(event.long_running_tool_ids) for event in log[:4]] == [False, False, True, True]
    for count, status in ((3, "completed"), (4, "paused")):
        again = runner_of(agent(), await cut_after(log, count))
        assert await resume(again, log[0].invocation_id) == status
        told = [one for event in await stored_events(again) for one in event.get_function_responses()]
        kinds = [(one.name, one.response["error"]["type"]) for one in told]
        closed = [("ask_for_approval", "cancelled"), ("clerk", "outcome_unknown")]
        assert kinds == (closed if status == "completed" else [])


async def test_a_long_running_tool_that_fails_is_answered_at_once() -> None:
    """Its call is named by its event, and the run goes on: nobody is waited for."""

    def broken() -> None:
        raise ValueError("no manager")

    agent = LlmAgent(name="x", model=steps(call("broken"), "sorry"), tools=[LongRunningFunctionTool(broken)])
    events, run = await run_to_end(runner_for(agent))
    assert waiting_call(events[0]) is not None
    assert (events[-1].text, run.status, run.pending) == ("sorry", "completed", [])


async def test_a_long_running_call_that_needs_permission_waits_twice() -> None:
    """First for the permission, during which it is no question of its own, then for its result."""
    tool = LongRunningFunctionTool(ask_for_approval, require_confirmation=True)
    model = steps(call("ask_for_approval", purpose="x"), "done")
    runner = runner_for(LlmAgent(name="x", model=model, tools=[tool]))
    _, run = await run_to_end(runner)
    assert [one.kind for one in run.pending] == ["confirmation"]
    _, run = await run_to_end(runner, run.pending[0].reply(True))
    assert [one.kind for one in run.pending] == ["long_running"]
    _, run = await run_to_end(runner, run.pending[0].reply(1))
    assert run.status == "completed"


async def test_calls_of_one_turn_are_posed_by_one_event() -> None:
    """Those that wait, with what their tools have returned, and those that are suspended by an agent inside."""
    model = steps(call("ask_for_approval", purpose="in"), "ok")
    inner = LlmAgent(name="inner", model=model, tools=[LongRunningFunctionTool(ask_for_approval)], description="d")
    calls = [call("ask_for_approval", purpose="a"), call("inner", request="?"), call("order")]

    def order(tool_context: ToolContext) -> None:
        tool_context.state["ordered"] = True

    def count() -> int:
        return 0

    calls.append(call("count"))
    tools = [LongRunningFunctionTool(ask_for_approval), AgentTool(inner), LongRunningFunctionTool(order)]
    tools.append(LongRunningFunctionTool(count))
    agent = LlmAgent(name="x", model=steps(calls, "done"), tools=tools)
    events, run = await run_to_end(runner_for(agent))
    ids = [each.id for each in events[0].get_function_calls()]
    posed = events[-1]
    assert posed.content is None
    assert sorted(posed.long_running_tool_ids or ()) == sorted([ids[0] or "", ids[2] or "", ids[3] or ""])
    assert posed.actions.suspended_calls == (ids[1],)
    assert posed.actions.state_delta == {"ordered": True}
    assert posed.custom_metadata == {"interim": {ids[0]: ask_for_approval("a"), ids[3]: 0}}
    assert sorted(one.call_id for one in run.pending if one.branch is None) == sorted(posed.long_running_tool_ids or ())


async def test_each_event_that_poses_calls_has_an_id_of_its_own() -> None:
    """An invocation may wait more than once, and for calls of one tool."""
    order = call("ask_for_approval", purpose="a chair")
    runner = runner_for(clerk(order, order, "done"))
    _, run = await run_to_end(runner)
    for _ in range(2):
        _, run = await run_to_end(runner, run.pending[0].reply(1))
    log = await stored_events(runner)
    assert run.status == "completed"
    posed = [event.id for event in log if event.long_running_tool_ids and event.content is None]
    assert len(set(posed)) == len(posed) == 2
    assert len({event.id for event in log}) == len(log)


# --- that are stopped -------------------------------------------------------------------------------------------------


async def asks(ctx: InvocationContext) -> None:
    """Ask, and wait."""
    await ctx.request_input("?")


async def sleeps(ctx: InvocationContext) -> None:
    """Never end."""
    await trio.sleep_forever()


async def asks_and_lingers(tool_context: ToolContext) -> None:
    """Ask, and be busy with something else when the answer has to be waited for."""
    try:
        await tool_context.request_input("?")
    finally:
        await trio.sleep_forever()


def inside(*logics: Any) -> AgentTool:
    """Agents side by side, as a tool."""
    agents = [Logic(name=logic.__name__, logic=logic) for logic in logics]
    return AgentTool(ParallelAgent(name="inside", description="d", sub_agents=agents))


@pytest.mark.parametrize(
    ("tool", "stays"),
    [(inside(asks, sleeps), True), (inside(sleeps), False), (FunctionTool(asks_and_lingers), True)],
)
async def test_only_a_call_that_has_asked_stays_open_when_it_is_stopped(
    tool: Any, stays: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """A caller that leaves does not take a question back, wherever in the call it was asked; else it is answered."""
    arguments = {} if isinstance(tool, FunctionTool) else {"request": "?"}
    runner = runner_for(LlmAgent(name="x", model=steps(call(tool.name, **arguments), "done"), tools=[tool]))
    with trio.move_on_after(5):
        await run_to_end(runner)
    answers = [one for event in await stored_events(runner) for one in event.get_function_responses()]
    pending = await runner.session_service.list_pending(app_name="app")
    assert (len(pending), answers == []) == ((1, True) if stays else (0, False))


async def test_what_waits_is_stored_whatever_stops_the_turn(autojump_clock: trio.testing.MockClock) -> None:
    """A caller leaves while another call of the turn is at work: a hook that refuses the event does not prevent it."""

    class Refuses(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            if event.long_running_tool_ids and event.content is None:
                raise ValueError("no")

    async def order() -> str:
        return "ordered"

    async def work() -> None:
        await trio.sleep_forever()

    tools = [LongRunningFunctionTool(order), FunctionTool(work)]
    agent = LlmAgent(name="x", model=steps([call("order"), call("work")], "done"), tools=tools)
    service = InMemorySessionService()
    app = App(name="app", root_agent=agent, plugins=[Refuses(name="refuses")])
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    with trio.move_on_after(5), pytest.raises(ValueError, match="no"):
        await run_to_end(runner)
    [question] = await service.list_pending(app_name="app")
    assert (question.tool, question.hint) == ("order", "ordered")
    answers = [one.name for event in await stored_events(runner) for one in event.get_function_responses()]
    assert answers == ["work"]


async def test_what_is_posed_is_not_posed_again_when_the_turn_fails_after_it() -> None:
    """One call waits, another one's writes do not fit, and a hook refuses its answer: one event poses the first."""

    class Refuses(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            if any("error" in one.response for one in event.get_function_responses()):
                raise ValueError("no")

    def number(tool_context: ToolContext) -> None:
        tool_context.state["k"] = 1

    def text(tool_context: ToolContext) -> None:
        tool_context.state.extend("k", [2])

    tools = [LongRunningFunctionTool(number), LongRunningFunctionTool(text)]
    agent = LlmAgent(name="x", model=steps([call("number"), call("text")], "done"), tools=tools)
    app = App(name="app", root_agent=agent, plugins=[Refuses(name="refuses")])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    with pytest.raises(ValueError, match="no"):
        await run_to_end(runner)
    log = await stored_events(runner)
    assert len([event for event in log if event.long_running_tool_ids and event.content is None]) == 1
