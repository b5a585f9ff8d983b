"""Tools: what a function becomes, what its calls are answered with, and what happens to threads and state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Literal

import attrs
import pytest
import trio
import trio.testing

from minirun import Event, FunctionTool, LlmAgent, RunConfig, ToolContext
from minirun.errors import ConfigurationError, InvalidValueError, InvocationEndedError, LlmCallsLimitExceededError
from minirun.testing import ScriptedLlm, call
from minirun.types import Part

from ..helpers import PLACE, run_to_end, runner_for, stored_events


async def answers(tools: list[Any], *calls: Part) -> list[dict[str, Any]]:
    """What a turn with these calls is answered with, in call order."""
    model = ScriptedLlm([list(calls), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="agent", model=model, tools=tools)))
    model.assert_done()
    return [dict(response.response) for response in events[1].get_function_responses()]


class Color(Enum):
    RED = "red"


@attrs.frozen
class Order:
    item: str
    count: int = 1


async def test_arguments_are_checked_and_converted() -> None:
    """A function gets enums, instances and defaults as its annotations say; a misfit is told to the model."""
    got: list[Any] = []

    def buy(order: Order, color: Color, how: Literal["fast", "slow"] = "fast") -> str:
        got.append((order, color, how))
        return "bought"

    good = call("buy", order={"item": "pen", "count": 2.0}, color="red")
    bad = call("buy", order={"item": 5}, color="green", how="never", more=1)
    first, second = await answers([buy], good, bad)
    assert first == {"result": "bought"}
    assert got == [(Order("pen", 2), Color.RED, "fast")]
    assert second["error"]["type"] == "ArgumentError"
    for name in ("order.item", "color", "how", "more"):
        assert name in second["error"]["message"]


async def test_every_call_has_one_answer_in_call_order() -> None:
    """Results, errors and unknown tools are answered by one event, in the order of the calls, whatever ends first."""

    async def slow() -> str:
        await trio.testing.wait_all_tasks_blocked()
        return "slow"

    async def fails() -> None:
        msg = "no luck"
        raise ValueError(msg)

    def sync(x: int) -> dict[str, int]:
        return {"x": x}

    found = await answers([slow, fails, sync], call("slow"), call("nix"), call("fails"), call("sync", x=1))
    assert found[0] == {"result": "slow"}
    assert found[1]["error"]["type"] == "UnknownToolError"
    assert "slow, fails, sync" in found[1]["error"]["message"]
    assert found[2] == {"error": {"type": "ValueError", "message": "no luck"}}
    assert found[3] == {"x": 1}


@pytest.mark.parametrize("value", [object(), {b"x"}, float("nan"), b"x", {"a": {1: 2}}])
async def test_a_result_that_is_not_json_is_an_error_response(value: object) -> None:
    """What could not be stored is told to the model with its path, and the run goes on."""

    async def odd() -> object:
        return value

    [found] = await answers([odd], call("odd"))
    assert found["error"]["type"] == "InvalidValueError"


async def test_the_context_is_found_by_annotation_or_name() -> None:
    """A parameter annotated ToolContext, or named tool_context, gets the context; models do not see it."""

    async def by_type(x: int, where: ToolContext) -> str:
        return f"{where.agent_name} {where.function_call_id}"

    async def by_name(tool_context: Any) -> str:
        return str(tool_context.user_id)

    model = ScriptedLlm([[call("by_type", x=1), call("by_name")], "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="agent", model=model, tools=[by_type, by_name])))
    first, second = events[1].get_function_responses()
    assert first.response == {"result": f"agent {first.id}"}
    assert second.response == {"result": "u"}
    declared = model.requests[0].config.tools
    assert [list(tool.parameters["properties"]) for tool in declared] == [["x"], []]


def _plain() -> str:
    """Say it."""
    return "said"


class _Callable:
    """Calls itself."""

    def __call__(self, x: int) -> int:
        return x

    def method(self) -> str:
        """A method."""
        return "method"


@pytest.mark.parametrize(
    ("func", "name", "description"),
    [
        (_plain, "_plain", "Say it."),
        (partial(_plain), "_plain", "Say it."),
        (_Callable(), "_Callable", "Calls itself."),
        (_Callable().method, "method", "A method."),
    ],
)
def test_a_tool_is_named_and_described_by_its_function(func: Callable[..., Any], name: str, description: str) -> None:
    """Functions, partials, callable objects and methods become tools with the name and docstring they have."""
    declaration = FunctionTool(func).declaration
    assert (declaration.name, declaration.description) == (name, description)


def test_tools_that_cannot_work_are_refused() -> None:
    """A lambda has no name, an async function no thread, nothing a process; two tools of one name are one too many."""
    with pytest.raises(ConfigurationError, match="name"):
        FunctionTool(lambda: 1)
    FunctionTool(lambda: 1, name="one")

    async def a() -> None: ...

    with pytest.raises(ConfigurationError, match="run_in"):
        FunctionTool(a, run_in="thread")
    with pytest.raises(ConfigurationError, match="expected run_in='thread' or 'loop', found 'process'"):
        FunctionTool(_plain, run_in="process")  # type: ignore[arg-type]  # found at runtime
    with pytest.raises(ConfigurationError, match="two named '_plain'"):
        LlmAgent(name="x", model=ScriptedLlm([]), tools=[_plain, partial(_plain)])
    with pytest.raises(ConfigurationError, match="function"):
        FunctionTool(5)  # type: ignore[arg-type]  # the point of the test


# --- state ------------------------------------------------------------------------------------------------------------


async def test_tools_of_one_turn_merge_their_state_in_call_order() -> None:
    """All start from one snapshot; the later call wins, whatever ended first; a failed one leaves nothing."""
    seen: list[Any] = []

    async def late(tool_context: ToolContext) -> None:
        await trio.testing.wait_all_tasks_blocked()
        seen.append(tool_context.state.get("k"))
        tool_context.state["k"] = "first call, last to end"

    async def early(tool_context: ToolContext) -> None:
        seen.append(tool_context.state.get("k"))
        tool_context.state["k"] = "second call"
        tool_context.state.add("n")

    async def fails(tool_context: ToolContext) -> None:
        tool_context.state["dropped"] = 1
        raise ValueError

    model = ScriptedLlm([[call("late"), call("early"), call("fails")], "done"])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[late, early, fails])))
    assert seen == [None, None]
    assert events[1].actions.state_delta == {"k": "second call"}
    assert events[1].actions.state_ops == {"n": {"add": 1}}
    assert dict(run.session.state) == {"k": "second call", "n": 1}


async def test_what_the_refusal_of_append_advises_keeps_both_of_two_parallel_writes() -> None:
    """A tool that appends in place is told `state.extend`: two calls at once that do so both count; += loses one."""

    async def put(item: str, how: str, tool_context: ToolContext) -> None:
        await trio.testing.wait_all_tasks_blocked()
        if how == "append":
            tool_context.state["cart"].append(item)
        elif how == "extend":
            tool_context.state.extend("cart", [item])
        else:
            tool_context.state["cart"] += [item]

    carts = []
    for how in ("append", "extend", "+="):
        model = ScriptedLlm([[call("put", item="pen", how=how), call("put", item="ink", how=how)], "done"])
        runner = runner_for(LlmAgent(name="a", model=model, tools=[put]))
        events, run = await run_to_end(runner, state_delta={"cart": []})
        carts.append(run.session.state["cart"])
        if how == "append":
            [told, _] = [answer.response["error"]["message"] for answer in events[1].get_function_responses()]
            assert 'write `state.extend("key", [item])`' in told
    assert carts == [[], ["pen", "ink"], ["ink"]]


async def test_a_tool_may_emit_events_of_its_own() -> None:
    """What a tool emits is stored before its answer, and the prompt stays valid."""

    async def talks(tool_context: ToolContext) -> str:
        await tool_context.emit(Event(message="working"))
        return "ok"

    model = ScriptedLlm([call("talks"), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[talks])))
    assert [event.text for event in events] == ["", "working", "", "done"]
    assert [content.text for content in model.requests[1].contents] == ["go", "working", "", ""]


async def test_a_context_is_closed_when_its_call_has_ended() -> None:
    """A tool that keeps its context can neither write nor emit afterwards."""
    kept: list[ToolContext] = []

    async def keep(tool_context: ToolContext) -> None:
        kept.append(tool_context)

    await answers([keep], call("keep"))
    with pytest.raises(InvocationEndedError):
        kept[0].state["k"] = 1
    with pytest.raises(InvocationEndedError):
        await kept[0].emit(Event(message="x"))


async def test_skip_summarization_makes_the_answer_final() -> None:
    """A tool may say that its answer is the answer: the model is not asked again."""

    async def final(tool_context: ToolContext) -> str:
        tool_context.actions.skip_summarization = True
        return "that is all"

    model = ScriptedLlm([call("final")])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[final])))
    model.assert_done()
    assert events[-1].is_final_response()
    assert run.answer == events[-1]


async def test_a_fatal_error_in_a_tool_ends_the_run_and_every_call_is_answered() -> None:
    """What no policy may swallow leaves a tool as it is; the other calls are cancelled and answered."""

    async def fatal() -> None:
        msg = "enough"
        raise LlmCallsLimitExceededError(msg)

    async def waits() -> None:
        await trio.sleep_forever()

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([[call("waits"), call("fatal")]]), tools=[fatal, waits]))
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner)
    answered = [r.response["error"]["type"] for e in await stored_events(runner) for r in e.get_function_responses()]
    assert answered == ["cancelled", "cancelled"]


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_sync_functions_run_in_threads_unless_told_otherwise() -> None:
    """A sync function runs in a worker thread and may write state there; with run_in="loop" on the loop."""
    main = threading.current_thread()
    where: list[bool] = []

    def sync(tool_context: ToolContext) -> None:
        where.append(threading.current_thread() is main)
        tool_context.state["from"] = "a thread"

    def here() -> None:
        where.append(threading.current_thread() is main)

    await answers([sync, FunctionTool(here, run_in="loop")], call("sync"), call("here"))
    assert sorted(where) == [False, True]


async def test_sync_calls_of_one_turn_run_at_once() -> None:
    """Two sync tools that wait for each other both end."""
    barrier = threading.Barrier(2, timeout=120)

    def meet() -> int:
        return barrier.wait()

    found = await answers([meet], call("meet"), call("meet"))
    assert sorted(item["result"] for item in found) == [0, 1]


async def test_a_thread_that_ends_in_time_keeps_its_result() -> None:
    """The caller leaves while a sync tool runs: the thread is waited for, and its result and state are stored."""
    started, go_on = trio.Event(), threading.Event()

    def work(tool_context: ToolContext) -> str:
        trio.from_thread.run_sync(started.set)
        go_on.wait(120)
        tool_context.state["worked"] = True
        return "worked"

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([call("work")]), tools=[work]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await anext(run)
        with trio.move_on_after(0):
            await anext(run)
        await started.wait()
        go_on.set()
    [answer] = (await stored_events(runner))[-1].get_function_responses()
    assert answer.response == {"result": "worked"}
    assert run.session.state["worked"] is True


async def test_a_thread_that_does_not_end_in_time_is_abandoned() -> None:
    """After thread_grace_s the call is answered as outcome unknown, and what its context writes later raises."""
    started, go_on, ended = trio.Event(), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    late: list[type] = []

    def work(tool_context: ToolContext) -> None:
        token.run_sync_soon(started.set)
        go_on.wait(120)
        try:
            tool_context.state["late"] = True
        except InvocationEndedError as error:
            late.append(type(error))
        token.run_sync_soon(ended.set)

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([call("work")]), tools=[work]))
    config = RunConfig(thread_grace_s=0.01)
    async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
        await anext(run)
        with trio.move_on_after(0):
            await anext(run)
        await started.wait()
    [answer] = (await stored_events(runner))[-1].get_function_responses()
    assert answer.response["error"]["type"] == "outcome_unknown"
    go_on.set()
    await ended.wait()
    assert late == [InvocationEndedError]


def test_a_generator_is_no_tool() -> None:
    """A function that yields is refused when the tool is made: a call has one result."""

    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigurationError, match="generator 'numbers'"):
        FunctionTool(numbers)


async def test_progress_is_a_text_and_a_fraction() -> None:
    """Anything else is refused, where it is said."""
    problems: list[str] = []

    async def work(tool_context: ToolContext) -> str:
        """Work."""
        strange: list[Any] = [(5, None), ("x", True), ("x", 1.5), ("x", "half")]
        for message, fraction in strange:
            with pytest.raises(InvalidValueError) as caught:
                await tool_context.progress(message, fraction=fraction)
            problems.append(caught.value.path)
        await tool_context.progress("done", fraction=1)
        return "ok"

    model = ScriptedLlm([call("work"), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[work])))
    assert problems == ["message", "fraction", "fraction", "fraction"]
    [metadata] = [event.custom_metadata for event in events if event.partial]
    assert metadata is not None
    assert metadata["progress"]["fraction"] == 1


@pytest.mark.parametrize("name", ["", "-a", "9a", "a b", "a.b", "ä", "a" * 65, "a\n", 3])
def test_a_name_that_some_provider_refuses(name: Any) -> None:
    """It is refused when the tool is made."""
    with pytest.raises(ConfigurationError, match=r"^expected a tool name of up to 64 letters.*; name it$"):
        FunctionTool(answers, name=name)
