"""Runs of several agents, with callbacks, retries and calls in order: every event and every request, as they are."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import ModelConnectionError, ModelRateLimitedError
from minirun.events import EventActions
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool, RetryConfig
from minirun.types import Content, FunctionCall, Part

from ..helpers import look
from ..run_records import recorded, records


def runner_of(agent: Any, **options: Any) -> Runner:
    """A runner over a fresh in-memory session."""
    return InMemoryRunner(app=App("app", agent, **options), auto_create_session=True)


class Speaker(BaseAgent):
    """An agent that says its name, with actions, and fails then if it is told to."""

    escalates: bool = False
    fails: bool = False

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        rounds = ctx.state.get(f"{self.name}_rounds", 0) + 1
        actions = EventActions(state_delta={f"{self.name}_rounds": rounds}, escalate=self.escalates and rounds > 1)
        await ctx.emit(Event(message=f"{self.name}{rounds}", actions=actions))
        if self.fails:
            raise ValueError(f"{self.name} failed")


# --- composite agents -------------------------------------------------------------------------------------------------


async def test_a_loop_ends_with_an_escalation() -> None:
    """What follows in the round is not run, and what follows the loop is."""
    inner = [Speaker(name="x"), Speaker(name="y", escalates=True), Speaker(name="z")]
    loop = LoopAgent(name="loop", sub_agents=inner, max_iterations=5)
    agent = SequentialAgent(name="all", sub_agents=[loop, Speaker(name="after")])
    found = await recorded(runner_of(agent))
    assert found == records("""
        2 x None: 'x1'
            escalate: False
            replay: {'reads': {'run/all/loop/x': {'x_rounds': [1, [0]]}}}
            state_delta: {'x_rounds': 1}
        3 y None: 'y1'
            escalate: False
            replay: {'reads': {'run/all/loop/y': {'y_rounds': [1, [0]]}}}
            state_delta: {'y_rounds': 1}
        4 z None: 'z1'
            escalate: False
            replay: {'reads': {'run/all/loop/z': {'z_rounds': [1, [0]]}}}
            state_delta: {'z_rounds': 1}
        5 x None: 'x2'
            escalate: False
            replay: {'reads': {'run/all/loop/x*2': {'x_rounds': [1, [0, 1]]}}}
            state_delta: {'x_rounds': 2}
        6 y None: 'y2'
            escalate: True
            replay: {'reads': {'run/all/loop/y*2': {'y_rounds': [1, [0, 1]]}}}
            state_delta: {'y_rounds': 2}
        7 after None: 'after1'
            escalate: False
            replay: {'reads': {'run/all/after': {'after_rounds': [1, [0]]}}}
            state_delta: {'after_rounds': 1}
    """)


# --- callbacks --------------------------------------------------------------------------------------------------------


def content(text: str) -> Content:
    """What a callback says."""
    return Content(role="user", parts=[Part(text=text)])


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "run"])
async def test_callbacks_around_an_agent(answers: bool) -> None:
    """One before it may answer in its place; one after it adds a word; what both write is stored."""

    def before(callback_context: Any) -> Content | None:
        callback_context.state["before"] = True
        return content("mine") if answers else None

    def after(callback_context: Any) -> Content:
        callback_context.state["after"] = True
        return content("more")

    model = ScriptedLlm(["said"])
    agent = LlmAgent(name="a", model=model, before_agent_callback=before, after_agent_callback=[after, before])
    found = await recorded(runner_of(agent), model)
    expected = {
        True: """
            2 a model: 'mine'
                replay: {'aside': True}
                state_delta: {'before': True}
        """,
        False: """
            2 a
                replay: {'aside': True}
                state_delta: {'before': True}
            3 a model: 'said'
            4 a model: 'more'
                replay: {'aside': True}
                state_delta: {'after': True}
            ?
                user: 'go'
        """,
    }
    assert found == records(expected[answers])


async def test_a_callback_after_a_failure_cannot_answer() -> None:
    """It is asked, and what it writes is stored; the failure is that of the agent."""

    def after(callback_context: Any) -> Content:
        callback_context.state["seen"] = True
        return content("all is well")

    found = await recorded(runner_of(Speaker(name="a", fails=True, after_agent_callback=after)))
    assert found == records("""
        2 a None: 'a1'
            escalate: False
            replay: {'reads': {'run/a': {'a_rounds': [1, [0]]}}}
            state_delta: {'a_rounds': 1}
        3 a
            replay: {'aside': True}
            state_delta: {'seen': True}
        4 a
            error_code: ValueError
            error_message: a failed
            replay: {'aside': True}
        ! ValueError: a failed
    """)


async def test_callbacks_around_tools() -> None:
    """One before a tool answers in its place, and one after it changes its result."""

    def before(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return {"result": "mine"} if args.get("n") == 1 else None

    def after(tool: Any, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> Any:
        return {"result": f"{tool_response}!"} if args.get("n") == 2 else None

    model = ScriptedLlm([[call("look", n=1), call("look", n=2), call("look", n=3)], "done"])
    agent = LlmAgent(name="a", model=model, tools=[look], before_tool_callback=before, after_tool_callback=after)
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: look({'n': 1}) look({'n': 2}) look({'n': 3})
        3 a user: look={'result': 'mine'} look={'result': 'seen 2!'} look={'result': 'seen 3'}
        4 a model: 'done'
        ?
            user: 'go'
            tools: ['look']
        ?
            user: 'go'
            model: look({'n': 1}) look({'n': 2}) look({'n': 3})
            user: look={'result': 'mine'} look={'result': 'seen 2!'} look={'result': 'seen 3'}
            tools: ['look']
    """)


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_calls_of_a_turn_that_are_made_in_order() -> None:
    """Each has a response event of its own, and the model is shown all of them."""

    def note(tool_context: ToolContext, n: int) -> int:
        """Note a number."""
        tool_context.state["notes"] = [*tool_context.state.get("notes", []), n]
        return n

    turns = [[call("note", n=1), call("note", n=2)], [call("note", n=3), call("look")], [call("note", n=4)]]
    model = ScriptedLlm([*turns, "done"])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(note, sequential=True), look])
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: note({'n': 1}) note({'n': 2})
            replay: {'alone': ['call-id1', 'call-id2']}
        3 a user: note={'result': 1}
            state_delta: {'notes': [1]}
        4 a user: note={'result': 2}
            state_delta: {'notes': [1, 2]}
        5 a model: note({'n': 3}) look({})
            replay: {'alone': ['call-id3']}
        6 a user: note={'result': 3}
            state_delta: {'notes': [1, 2, 3]}
        7 a user: look={'result': 'seen 0'}
        8 a model: note({'n': 4})
        9 a user: note={'result': 4}
            state_delta: {'notes': [1, 2, 3, 4]}
        10 a model: 'done'
        ?
            user: 'go'
            tools: ['note', 'look']
        ?
            user: 'go'
            model: note({'n': 1}) note({'n': 2})
            user: note={'result': 1} note={'result': 2}
            tools: ['note', 'look']
        ?
            user: 'go'
            model: note({'n': 1}) note({'n': 2})
            user: note={'result': 1} note={'result': 2}
            model: note({'n': 3}) look({})
            user: note={'result': 3} look={'result': 'seen 0'}
            tools: ['note', 'look']
        ?
            user: 'go'
            model: note({'n': 1}) note({'n': 2})
            user: note={'result': 1} note={'result': 2}
            model: note({'n': 3}) look({})
            user: note={'result': 3} look={'result': 'seen 0'}
            model: note({'n': 4})
            user: note={'result': 4}
            tools: ['note', 'look']
    """)


async def test_a_model_that_makes_one_call_after_the_other() -> None:
    """Without `parallel_tool_calls` every call of a turn is made alone."""
    model = ScriptedLlm([[call("look", n=1), call("look", n=2)], "done"])
    agent = LlmAgent(name="a", model=model, tools=[look], parallel_tool_calls=False)
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: look({'n': 1}) look({'n': 2})
            replay: {'alone': ['call-id1', 'call-id2']}
        3 a user: look={'result': 'seen 1'}
        4 a user: look={'result': 'seen 2'}
        5 a model: 'done'
        ?
            user: 'go'
            tools: ['look']
        ?
            user: 'go'
            model: look({'n': 1}) look({'n': 2})
            user: look={'result': 'seen 1'} look={'result': 'seen 2'}
            tools: ['look']
    """)


async def test_a_call_that_takes_long() -> None:
    """Its first result is a response, the invocation waits, and what comes later is the answer to it."""

    def order(item: str) -> dict[str, str]:
        """Order something."""
        return {"status": "ordered", "item": item}

    model = ScriptedLlm([[call("order", item="hat"), call("look", n=1)], "It is ordered."])
    agent = LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(order), look])
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: order({'item': 'hat'}) look({'n': 1})
            long_running_tool_ids: ['call-id1']
            replay: {'at_work': True}
        3 a user: look={'result': 'seen 1'}
        4 a
            custom_metadata: {'interim': {'call-id1': {'status': 'ordered', 'item': 'hat'}}}
            long_running_tool_ids: ['call-id1']
        ?
            user: 'go'
            tools: ['order', 'look']
    """)


async def test_calls_that_nobody_can_make() -> None:
    """An unknown tool, wrong arguments, and an answer that was cut off are told to the model; ids are its own."""

    def said(*calls: FunctionCall, **fields: Any) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(function_call=each) for each in calls]), **fields)

    script: list[Any] = [
        said(FunctionCall(name="nobody", args={}, id="c-1"), FunctionCall(name="look", args={"n": "x"}, id="c-1")),
        said(FunctionCall(name="look", args={"n": 1}, id="c-2"), finish_reason="MAX_TOKENS"),
        said(FunctionCall(name="look", args={"n": 2}, id="c-2")),
        "done",
    ]
    model = ScriptedLlm(script)
    found = await recorded(runner_of(LlmAgent(name="a", model=model, tools=[look])), model)
    assert found == records("""
        2 a model: nobody({}) look({'n': 'x'})
        3 a user: nobody={'error': {'type': 'UnknownToolError', 'message': "there is no tool 'nobody'; the tools
                are: look"}} look={'error': {'type': 'ArgumentError', 'message': "n: expected integer, found
                string 'x'"}}
        4 a model: look({'n': 1})
            finish_reason: MAX_TOKENS
        5 a user: look={'error': {'type': 'ArgumentError', 'message': 'the call was not made, because your
                answer was cut off by the limit of its length; call again with less, or with less before it'}}
        6 a model: look({'n': 2})
        7 a user: look={'result': 'seen 2'}
        8 a model: 'done'
        ?
            user: 'go'
            tools: ['look']
        ?
            user: 'go'
            model: nobody({}) look({'n': 'x'})
            user: nobody={'error': {'type': 'UnknownToolError', 'message': "there is no tool 'nobody'; the tools
                are: look"}} look={'error': {'type': 'ArgumentError', 'message': "n: expected integer, found
                string 'x'"}}
            tools: ['look']
        ?
            user: 'go'
            model: nobody({}) look({'n': 'x'})
            user: nobody={'error': {'type': 'UnknownToolError', 'message': "there is no tool 'nobody'; the tools
                are: look"}} look={'error': {'type': 'ArgumentError', 'message': "n: expected integer, found
                string 'x'"}}
            model: look({'n': 1})
            user: look={'error': {'type': 'ArgumentError', 'message': 'the call was not made, because your
                answer was cut off by the limit of its length; call again with less, or with less before it'}}
            tools: ['look']
        ?
            user: 'go'
            model: nobody({}) look({'n': 'x'})
            user: nobody={'error': {'type': 'UnknownToolError', 'message': "there is no tool 'nobody'; the tools
                are: look"}} look={'error': {'type': 'ArgumentError', 'message': "n: expected integer, found
                string 'x'"}}
            model: look({'n': 1})
            user: look={'error': {'type': 'ArgumentError', 'message': 'the call was not made, because your
                answer was cut off by the limit of its length; call again with less, or with less before it'}}
            model: look({'n': 2})
            user: look={'result': 'seen 2'}
            tools: ['look']
    """)


# --- models that fail -------------------------------------------------------------------------------------------------

STEADY: dict[str, Any] = {"initial_delay": 1.0, "backoff_factor": 3.0, "jitter": 0}
LOST, BUSY = ModelConnectionError("x"), ModelRateLimitedError


@pytest.mark.parametrize(
    ("retry", "errors", "delays", "end"),
    [
        (None, [LOST], [], "ModelConnectionError"),
        (RetryConfig(max_attempts=1, **STEADY), [LOST], [], "ModelConnectionError"),
        (RetryConfig(max_attempts=2, **STEADY), [LOST], [1.0], "done"),
        (RetryConfig(max_attempts=2, **STEADY), [LOST] * 2, [1.0], "ModelConnectionError"),
        (RetryConfig(max_attempts=3, **STEADY), [LOST] * 2, [1.0, 3.0], "done"),
        (RetryConfig(max_attempts=3, **STEADY), [ValueError("x")], [], "ValueError"),
        (RetryConfig(max_attempts=3, exceptions=[ValueError], **STEADY), [ValueError("x")], [1.0], "done"),
        (RetryConfig(max_attempts=3, exceptions=[ValueError], **STEADY), [LOST], [], "ModelConnectionError"),
        (RetryConfig(max_attempts=3, **STEADY), [BUSY("x", retry_after_s=0.5)], [1.0], "done"),
        (RetryConfig(max_attempts=3, **STEADY), [BUSY("x", retry_after_s=120)], [120.0], "done"),
        (RetryConfig(max_attempts=3, **STEADY), [BUSY("x", retry_after_s=121)], [], "ModelRateLimitedError"),
        (RetryConfig(max_attempts=2, initial_delay=499.0, max_delay=1e3, jitter=0), [LOST], [499.0], "done"),
        (RetryConfig(max_attempts=2, initial_delay=501.0, max_delay=1e3, jitter=0), [LOST], [], "ModelConnectionError"),
    ],
)
async def test_a_model_is_asked_again(
    retry: Any, errors: list[Exception], delays: list[float], end: str, autojump_clock: MockClock
) -> None:
    """So often, for errors that may be gone in a moment or that were named, if there is time; the caller is told."""
    model = ScriptedLlm([*errors, "done"])
    runner = runner_of(LlmAgent(name="a", model=model, model_retry=retry))
    notices: list[Any] = []
    text, began = "", trio.current_time()
    try:
        async with runner.run_async(
            user_id="u", session_id="s", new_message="go", run_config=RunConfig(deadline_s=500)
        ) as run:
            async for event in run:
                notices += [event.custom_metadata["model_retry"]] if event.partial and event.custom_metadata else []
                text = event.text or text
    except Exception as error:
        text = type(error).__name__
    assert (len(model.requests), text) == (len(delays) + 1, end)
    name = type(errors[0]).__name__
    assert notices == [
        {"attempt": number, "error": name, "delay_s": delay, "message": "x"} for number, delay in enumerate(delays, 1)
    ]
    assert trio.current_time() - began == pytest.approx(sum(delays))


async def test_attempts_are_one_question_for_the_limit(autojump_clock: MockClock) -> None:
    """The limit counts questions, and the log has one event of the answer."""
    model = ScriptedLlm([LOST, "done"])
    agent = LlmAgent(name="a", model=model, model_retry=RetryConfig(max_attempts=2, **STEADY))
    found = await recorded(runner_of(agent), model, run_config=RunConfig(max_llm_calls=1))
    assert [line for line in found.split("\n") if line[0] in "0123456789!?"] == ["2 a model: 'done'", "?", "?"]
