"""
The weaknesses that were found in the peer, one after the other: each is shown not to be here, or is out of scope.

`WEAKNESSES` has them by their number in the list; a test of another file stands there as `file::test`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    FunctionTool,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    ReadonlyContext,
    RunConfig,
    SequentialAgent,
    StreamingMode,
    ToolContext,
)
from minirun.apps import Prompts
from minirun.errors import ConfigurationError, LlmCallsLimitExceededError
from minirun.flows._words import check_words
from minirun.models import LlmRequest
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset, LongRunningFunctionTool, RetryConfig

from ..helpers import PLACE, run_to_end, runner_for, stored_events

WEAKNESSES: Mapping[int, str | tuple[str, ...]] = {
    1: "test_the_end_of_the_invocation_reaches_every_agent",
    2: "test_parallel_writes_are_what_they_look_like",
    3: (
        "tests/runners/test_runs.py::test_unread_partial_events_hold_their_emitter_back",
        "test_hooks_do_not_run_ahead_of_a_slow_caller",
    ),
    4: "test_fragments_carry_no_actions",
    5: "test_one_event_is_the_answer",
    6: "test_who_follows_an_agent_that_waits_runs_after_the_answer",
    7: "tests/runners/test_bad_input.py::test_a_tools_value_that_is_no_json_is_told_to_the_model",
    8: "test_the_form_of_an_answer_is_enforced_by_asking_again",
    9: "test_a_bad_transfer_target_is_told_to_the_model",
    10: "tests/tools/test_tools.py::test_arguments_are_checked_and_converted",
    11: (
        "test_two_tools_of_one_name_are_refused",
        "tests/runners/test_bad_input.py::test_two_agents_of_one_name_are_refused",
    ),
    12: "tests/agents/test_llm_agent.py::test_call_ids_are_unique_in_a_session_whatever_the_model_says",
    13: "test_a_branch_is_kept_by_agents_that_do_not_know_of_it",
    14: "test_without_contents_the_request_of_the_user_is_kept",
    15: "test_no_model_is_asked_before_the_human_has_answered",
    16: "test_tools_are_filtered_for_each_agent",
    17: "tests/workflow/test_workflow.py::test_a_join_has_the_order_of_its_edges",
    18: "tests/workflow/test_workflow_weaknesses.py::test_an_answer_that_does_not_fit_poisons_nothing",
    19: "test_a_called_agent_shares_the_run_of_its_caller",
    20: "test_the_failure_of_a_called_agent_reaches_the_hooks",
    21: (
        "tests/tools/test_tools.py::test_sync_functions_run_in_threads_unless_told_otherwise",
        "test_a_tool_has_its_time_and_its_turn",
    ),
    22: "test_a_failure_is_told_once_by_whoever_failed",
    23: (
        "tests/workflow/test_workflow.py::test_a_second_output_is_refused_before_it_is_stored",
        "tests/workflow/test_workflow.py::test_a_route_that_matches_nothing_is_an_error",
        "tests/workflow/test_workflow_weaknesses.py::test_none_is_an_output",
    ),
    24: "tests/workflow/test_workflow_weaknesses.py::test_an_attempt_that_fails_late_leaves_no_output",
    25: "test_the_state_has_no_secret_switches",
    26: "test_agents_are_not_changed_by_others",
    27: "test_what_agents_are_asked_at_once_does_not_mix",
    28: (
        "tests/agents/test_llm_agent.py::test_prompts_share_one_growing_list",
        "tests/project/test_benchmark.py::test_every_figure_stands_beside_its_floor",
        "tests/project/test_good_guest.py::test_importing_the_package_alone_imports_no_dependency",
    ),
    29: "test_tools_that_cannot_be_listed_fail_the_run",
    30: "test_every_word_of_the_framework_can_be_replaced",
    31: "test_a_call_that_was_cut_off_is_answered_and_remembered",
    # 32 was about PlanReActPlanner, which is removed.
    33: "test_a_failing_hook_does_not_lose_what_has_happened",
    34: "test_every_agent_can_be_called_and_handed_over_to",
    35: "test_a_retry_waits_and_begins_afresh",
    36: (
        "tests/credentials/test_credential_leaks.py::test_no_byte_of_a_run_has_its_secrets",
        "tests/credentials/test_credential_requests.py::test_the_question_stands_in_the_log_as_adk_has_it",
    ),
}
"""Where each is shown to be fixed."""

ROOT = Path(__file__).parents[2]


def test_every_weakness_has_its_test() -> None:
    """All 36 but the removed one are in the table, and the tests it names exist."""
    assert list(WEAKNESSES) == [number for number in range(1, 37) if number != 32]
    for where in WEAKNESSES.values():
        for each in (where,) if isinstance(where, str) else where:
            file, _, name = each.rpartition("::")
            assert name in _functions(file or "tests/project/test_weaknesses.py"), each


@cache
def _functions(file: str) -> list[str]:
    return re.findall(r"^(?:async )?def (\w+)\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def shown(request: LlmRequest) -> str:
    """All text of a request's contents."""
    return " | ".join(content.text for content in request.contents)


# --- state and events -------------------------------------------------------------------------------------------------


async def test_the_end_of_the_invocation_reaches_every_agent() -> None:
    """A guard that ends the invocation in one agent of a sequence, a loop or a branch, starts no agent after it."""

    def guard(callback_context: Any) -> None:
        callback_context.end_invocation = True

    for kind in (SequentialAgent, LoopAgent, ParallelAgent):
        guarded = LlmAgent(name="guarded", model=ScriptedLlm([]), before_agent_callback=guard)
        inner = kind(name="inner", sub_agents=[guarded])
        after = LlmAgent(name="after", model=ScriptedLlm([]))
        events, run = await run_to_end(runner_for(SequentialAgent(name="all", sub_agents=[inner, after])))
        assert [event for event in events if event.text] == []
        assert run.status == "completed"


async def test_parallel_writes_are_what_they_look_like(autojump_clock: trio.testing.MockClock) -> None:
    """Of tools that write one key at once the last in call order wins, while they run and when it is stored; the event
    names the key, and additions lose nothing."""

    async def writes(value: str, after_s: float, tool_context: ToolContext) -> None:
        await trio.sleep(after_s)
        tool_context.state["key"] = value
        tool_context.state.add("count", 1)

    calls = [call("writes", value="one", after_s=2), call("writes", value="two", after_s=1)]
    model = ScriptedLlm([calls, "done"])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[writes], instruction="{key?}")))
    assert model.requests[1].config.system_instruction == "two"
    assert events[1].actions.state_delta["key"] == "two"
    assert list(events[1].actions.state_conflicts) == ["key"]
    assert run.session.state["key"] == "two"
    assert run.session.state["count"] == 2


async def test_hooks_do_not_run_ahead_of_a_slow_caller(autojump_clock: trio.testing.MockClock) -> None:
    """While fragments are unread the model waits, and so do the hooks that would see what it says next."""
    seen = 0

    def hook(callback_context: Any, llm_response: Any) -> None:
        nonlocal seen
        seen += 1

    agent = LlmAgent(name="a", model=ScriptedLlm([["x"] * 50]), after_model_callback=hook)
    config = RunConfig(streaming_mode=StreamingMode.SSE, partial_buffer=2)
    async with runner_for(agent).run_async(**PLACE, new_message="go", run_config=config) as run:
        for received in range(1, 20):
            assert (await anext(run)).partial
            await trio.sleep(1)
            assert seen <= received + 3


async def test_fragments_carry_no_actions() -> None:
    """A fragment does not change after it was handed out, and only the complete answer carries what hooks wrote."""
    after = 0

    def hook(callback_context: Any, llm_response: Any) -> None:
        nonlocal after
        after += 1
        callback_context.state["after"] = after

    agent = LlmAgent(name="a", model=ScriptedLlm([["a", "b", "c"]]), output_key="answer", after_model_callback=hook)
    events, run = await run_to_end(runner_for(agent), run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert [bool(event.partial) for event in events] == [True, True, True, False]
    assert [dict(event.actions.state_delta) for event in events[:3]] == [{}, {}, {}]
    assert dict(events[3].actions.state_delta) == {"answer": "abc", "after": after}
    assert run.session.state["after"] == after


async def test_one_event_is_the_answer() -> None:
    """Events that only change the state are final by the documented rule; the run says which one is the answer."""

    def hook(callback_context: Any) -> None:
        callback_context.state["seen"] = callback_context.state.get("seen", 0) + 1

    agent = LlmAgent(name="a", model=ScriptedLlm(["the answer"]), before_agent_callback=hook, after_agent_callback=hook)
    events, run = await run_to_end(runner_for(agent))
    assert [event.is_final_response() for event in events] == [True, True, True]
    assert run.answer is not None
    assert run.answer.text == "the answer"


# --- what models answer -----------------------------------------------------------------------------------------------


@attrs.frozen
class Place:
    """Where."""

    city: str


async def test_the_form_of_an_answer_is_enforced_by_asking_again() -> None:
    """An answer without the required form is kept, told to the model, and asked for again, with or without a key to
    put it under."""
    for key in (None, "place"):
        model = ScriptedLlm(["no place", '{"city": "Oslo"}'])
        runner = runner_for(LlmAgent(name="a", model=model, output_schema=Place, output_key=key))
        _, run = await run_to_end(runner)
        assert run.answer is not None
        assert run.answer.text == '{"city": "Oslo"}'
        assert run.session.state.get("place") == ({"city": "Oslo"} if key else None)
        assert "no place" in [event.text for event in await stored_events(runner)]


async def test_a_bad_transfer_target_is_told_to_the_model() -> None:
    """A name that is no agent, or not one that may be handed over to, is an error response; the run goes on."""
    for name in ("ghost", "root"):
        model = ScriptedLlm([call("transfer_to_agent", agent_name=name), "then myself"])
        root = LlmAgent(name="root", model=model, sub_agents=[LlmAgent(name="sub")])
        events, run = await run_to_end(runner_for(root))
        assert "error" in events[1].get_function_responses()[0].response
        assert events[1].actions.transfer_to_agent is None
        assert run.answer is not None
        assert run.answer.text == "then myself"


def test_two_tools_of_one_name_are_refused() -> None:
    """No tool is advertised that cannot be called; agents of one name are refused, too."""

    def dup() -> None:
        """Do nothing."""

    with pytest.raises(ConfigurationError, match="'dup'"):
        LlmAgent(name="a", model=ScriptedLlm([]), tools=[dup, FunctionTool(lambda: None, name="dup")])
    with pytest.raises(ConfigurationError, match="'b'"):
        App("app", SequentialAgent(name="a", sub_agents=[SequentialAgent(name="b"), SequentialAgent(name="b")]))


# --- what models are shown --------------------------------------------------------------------------------------------


class Forgetful(BaseAgent):
    """An agent that says nothing about branches."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(author=self.name, message="a secret"))


async def test_a_branch_is_kept_by_agents_that_do_not_know_of_it(autojump_clock: trio.testing.MockClock) -> None:
    """An event of a custom agent gets the branch it runs in, so that nothing leaks to the branches beside it."""
    model = ScriptedLlm([call("wait"), "done"])
    other = LlmAgent(name="other", model=model, tools=[wait])
    events, _ = await run_to_end(runner_for(ParallelAgent(name="both", sub_agents=[Forgetful(name="custom"), other])))
    assert [event.branch for event in events if event.author == "custom"] == ["both.custom"]
    assert all("a secret" not in shown(request) for request in model.requests)


async def wait() -> None:
    """Wait a second."""
    await trio.sleep(1)


async def test_without_contents_the_request_of_the_user_is_kept() -> None:
    """An agent without the history sees what the user wants now, although another agent has spoken before it."""
    model = ScriptedLlm(["done", "done"])
    second = LlmAgent(name="second", model=model, include_contents="none")
    first = LlmAgent(name="first", model=ScriptedLlm(["draft", "draft"]))
    runner = runner_for(SequentialAgent(name="all", sub_agents=[first, second]))
    await run_to_end(runner, "write about cats")
    await run_to_end(runner, "write about dogs")
    assert "write about dogs" in shown(model.requests[1])
    assert "draft" in shown(model.requests[1])
    assert "cats" not in shown(model.requests[1])


class Tools(BaseToolset):
    """Two tools, one of them for an agent named admin."""

    closed = False

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return both."""
        return [FunctionTool(wait, name="look"), FunctionTool(wait, name="delete")]

    async def close(self) -> None:
        """Remember it."""
        self.closed = True


async def test_tools_are_filtered_for_each_agent() -> None:
    """A filter that asks who is running is asked for each agent, though they share the toolset and the run."""

    def allowed(tool: BaseTool, context: ReadonlyContext | None) -> bool:
        return tool.name == "look" or (context is not None and context.agent_name == "admin")

    tools = Tools(tool_filter=allowed)
    models = [ScriptedLlm(["x"]), ScriptedLlm(["x"])]
    agents = [LlmAgent(name=name, model=m, tools=[tools]) for name, m in zip(("admin", "guest"), models, strict=True)]
    await run_to_end(runner_for(SequentialAgent(name="all", sub_agents=agents)))
    names = [[tool.name for tool in model.requests[0].config.tools] for model in models]
    assert names == [["look", "delete"], ["look"]]


async def test_tools_that_cannot_be_listed_fail_the_run() -> None:
    """An agent does not go on without tools that it was promised."""

    class Broken(BaseToolset):
        async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
            msg = "no connection"
            raise OSError(msg)

    model = ScriptedLlm(["x"])
    with pytest.raises(OSError, match="no connection"):
        await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[Broken()])))
    assert model.requests == []


async def test_the_state_has_no_secret_switches() -> None:
    """No key of the state chooses another model: what a state says is data."""
    model = ScriptedLlm(["mine"])
    runner = runner_for(LlmAgent(name="a", model=model))
    _, run = await run_to_end(runner, state_delta={"_adk_replay_config": {"dir": "x"}, "model": "y"})
    assert run.answer is not None
    assert run.answer.text == "mine"


@pytest.mark.parametrize("field", attrs.fields(Prompts), ids=lambda field: field.name)
def test_the_words_that_the_framework_has_of_itself_would_be_taken_from_an_app(field: attrs.Attribute[str]) -> None:
    """
    Each default of Prompts, which is not checked again, names only what is filled in there.
    """
    assert field.default is not None
    check_words(field.default, field.metadata["names"], field.name)


async def test_every_word_of_the_framework_can_be_replaced() -> None:
    """An app may say each of the framework's prompts otherwise; what it empties is not said."""
    fields = {field.name: "" for field in attrs.fields(Prompts)}
    names = dict.fromkeys(("other_said", "transferred", "go_on", "output_invalid", "still_running"), "ok")
    model = ScriptedLlm(["hello"])
    root = LlmAgent(name="root", model=model, sub_agents=[LlmAgent(name="sub", description="Sub.")])
    app = App("app", root, prompts=Prompts(**{**fields, **names}))
    runner = InMemoryRunner(app=app, auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="hi") as run:
        await run.wait()
    assert model.requests[0].config.system_instruction is None
    assert [tool.description for tool in model.requests[0].config.tools] == [""]


# --- agents and agents ------------------------------------------------------------------------------------------------


async def test_a_called_agent_shares_the_run_of_its_caller() -> None:
    """What a called agent says is seen and stored, its failure is an error response, its questions count in the one
    budget, and its tools are closed with the runner."""
    tools = Tools()
    helper = LlmAgent(name="helper", model=ScriptedLlm([RuntimeError("down"), "help"]), tools=[tools])
    calls = [call("helper", request="1"), call("helper", nonsense=1), call("helper", request="2")]
    root = LlmAgent(name="root", model=ScriptedLlm([*calls, call("helper", request="3")]), tools=[AgentTool(helper)])
    runner = runner_for(root)
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_llm_calls=6))
    events = await stored_events(runner)
    responses = [event.get_function_responses()[0].response for event in events if event.get_function_responses()]
    assert ["error" in response for response in responses[:3]] == [True, True, False]
    assert [event.text for event in events if event.author == "helper" and event.text] == ["help"]
    await runner.close()
    assert tools.closed


async def test_the_failure_of_a_called_agent_reaches_the_hooks() -> None:
    """It is the failure of a tool, with its own type; no result says in words what an exception is for."""
    seen: list[Exception] = []

    def hook(tool: Any, args: Any, tool_context: Any, error: Exception) -> None:
        seen.append(error)

    helper = LlmAgent(name="helper", model=ScriptedLlm([RuntimeError("down")]))
    model = ScriptedLlm([call("helper", request="x"), "done"])
    root = LlmAgent(name="root", model=model, tools=[AgentTool(helper)], on_tool_error_callback=hook)
    events, _ = await run_to_end(runner_for(root))
    assert [type(error) for error in seen] == [RuntimeError]
    assert any("error" in r.response for event in events for r in event.get_function_responses())


async def test_a_failure_is_told_once_by_whoever_failed(autojump_clock: trio.testing.MockClock) -> None:
    """Every kind of root has its one error event; attempts that are made again leave none."""
    attempts = 0

    async def flaky() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            msg = "not yet"
            raise OSError(msg)
        return "at last"

    for kind in (SequentialAgent, LoopAgent, ParallelAgent, None):
        attempts = 0
        model = ScriptedLlm([call("flaky"), RuntimeError("down")])
        agent: BaseAgent = LlmAgent(name="a", model=model, tools=[FunctionTool(flaky, retry=RetryConfig())])
        runner = runner_for(agent if kind is None else kind(name="root", sub_agents=[agent]))
        with pytest.raises(RuntimeError, match="down"):
            await run_to_end(runner)
        events = await stored_events(runner)
        assert [(event.author, event.error_code) for event in events if event.error_code] == [("a", "RuntimeError")]
        assert not any("error" in r.response for event in events for r in event.get_function_responses())


async def test_agents_are_not_changed_by_others() -> None:
    """Neither standing below another agent nor running changes what an agent is."""
    sub = LlmAgent(name="sub", model=ScriptedLlm(["x"]), instruction="Say x.")
    fields = [field.name for field in attrs.fields(cast(Any, LlmAgent))]
    before = {name: getattr(sub, name) for name in fields}
    root = SequentialAgent(name="root", sub_agents=[LoopAgent(name="loop", max_iterations=1, sub_agents=[sub])])
    await run_to_end(runner_for(root))
    assert {name: getattr(sub, name) for name in fields} == before


async def test_what_agents_are_asked_at_once_does_not_mix(autojump_clock: trio.testing.MockClock) -> None:
    """Two calls of one agent in the same turn each see their own request, and the history has both, in one order."""
    helper_model = ScriptedLlm(lambda request: f"about {request.contents[-1].text}", latency_s=1)
    helper = LlmAgent(name="helper", model=helper_model)
    model = ScriptedLlm([[call("helper", request="cats"), call("helper", request="dogs")], "done"])
    runner = runner_for(LlmAgent(name="root", model=model, tools=[AgentTool(helper)]))
    await run_to_end(runner)
    assert sorted(shown(request) for request in helper_model.requests) == ["cats", "dogs"]
    events = await stored_events(runner)
    (answers,) = [event.get_function_responses() for event in events if event.get_function_responses()]
    assert [answer.response["result"] for answer in answers] == ["about cats", "about dogs"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_every_agent_can_be_called_and_handed_over_to() -> None:
    """A composite agent below an LlmAgent is a target of transfers, and may be called as a tool: its parts say the same
    either way."""

    def composite() -> BaseAgent:
        return SequentialAgent(name="both", sub_agents=[LlmAgent(name=n, model=ScriptedLlm([n])) for n in ("x", "y")])

    handed = LlmAgent(
        name="root", model=ScriptedLlm([call("transfer_to_agent", agent_name="both")]), sub_agents=[composite()]
    )
    called = LlmAgent(
        name="root", model=ScriptedLlm([call("both", request="go"), "done"]), tools=[AgentTool(composite())]
    )
    for root in (handed, called):
        events, _ = await run_to_end(runner_for(root))
        assert [event.text for event in events if event.author in ("x", "y")] == ["x", "y"]


async def test_a_tool_has_its_time_and_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    """A tool may have a timeout, which is an error response, and a limit to how many of its calls run at once."""
    running = most = 0

    async def busy(seconds: float) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await trio.sleep(seconds)
        finally:
            running -= 1
        return "done"

    calls = [call("busy", seconds=seconds) for seconds in (1, 1, 60, 1)]
    tool = FunctionTool(busy, timeout_s=5, max_concurrency=2)
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=ScriptedLlm([calls, "ok"]), tools=[tool])))
    responses = [each.response for each in events[1].get_function_responses()]
    assert ["error" in response for response in responses] == [False, False, True, False]
    assert most == 2


# --- failures and ends ------------------------------------------------------------------------------------------------


async def test_a_call_that_was_cut_off_is_answered_and_remembered() -> None:
    """When the caller leaves between a call and its result, the log has an answer to it, and the model sees both."""
    model = ScriptedLlm([call("wait"), "hello again"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[wait]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await anext(run)
    await run_to_end(runner, "and now?")
    parts = [part for content in model.requests[1].contents for part in content.parts]
    assert [part.function_call.name for part in parts if part.function_call] == ["wait"]
    answers = [part.function_response.response for part in parts if part.function_response]
    assert len(answers) == 1
    assert "error" in answers[0]


async def test_a_failing_hook_does_not_lose_what_has_happened() -> None:
    """A hook that fails after a tool fails the run with its own exception, of an agent as of a plugin; the call stays
    answered with what the tool gave."""

    def fails(**arguments: Any) -> None:
        msg = "the hook"
        raise LookupError(msg)

    class Plugin(BasePlugin):
        async def after_tool_callback(self, **arguments: Any) -> None:
            fails()

    def paid() -> str:
        """Pay."""
        return "paid"

    for in_plugin in (False, True):
        tools = [FunctionTool(paid, run_in="loop")]
        agent = LlmAgent(
            name="a", model=ScriptedLlm([call("paid")]), tools=tools, after_tool_callback=None if in_plugin else fails
        )
        app = App("app", agent, plugins=[Plugin(name="p")] if in_plugin else [])
        runner = InMemoryRunner(app=app, auto_create_session=True)
        with pytest.raises(LookupError, match="the hook"):
            await run_to_end(runner)
        (answer,) = [r.response for event in await stored_events(runner) for r in event.get_function_responses()]
        assert answer == {"result": "paid"}


async def test_a_retry_waits_and_begins_afresh(autojump_clock: trio.testing.MockClock) -> None:
    """By default the pauses between attempts are near to what is configured; what a failed attempt wrote is gone."""
    times: list[float] = []

    async def flaky(tool_context: ToolContext) -> str:
        times.append(trio.current_time())
        tool_context.state.add("attempts", 1)
        if len(times) < 4:
            msg = "not yet"
            raise OSError(msg)
        return "at last"

    model = ScriptedLlm([call("flaky"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(flaky, retry=RetryConfig())])
    _, run = await run_to_end(runner_for(agent))
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == [pytest.approx(seconds, rel=0.11) for seconds in (1, 2, 4)]
    assert run.session.state["attempts"] == 1


# --- waiting for a human ----------------------------------------------------------------------------------------------


async def test_who_follows_an_agent_that_waits_runs_after_the_answer() -> None:
    """A long-running tool of the first agent of a sequence pauses all; after the answer, the next agent has its turn,
    though the app says nothing of resumability."""

    def ask_boss(what: str) -> dict[str, str]:
        """Ask the boss."""
        return {"status": "pending"}

    clerk_model = ScriptedLlm([call("ask_boss", what="raise"), "The boss said yes."])
    clerk = LlmAgent(name="clerk", model=clerk_model, tools=[LongRunningFunctionTool(ask_boss)])
    after = LlmAgent(name="after", model=ScriptedLlm(["And I have heard it."]))
    runner = runner_for(SequentialAgent(name="all", sub_agents=[clerk, after]))
    _, run = await run_to_end(runner)
    assert run.status == "paused"
    [question] = run.pending
    async with runner.run_async(**PLACE, new_message=question.reply({"answer": "yes"})) as run:
        said = [(event.author, event.text) async for event in run if event.text]
    assert run.status == "completed"
    assert said[-2:] == [("clerk", "The boss said yes."), ("after", "And I have heard it.")]


async def test_no_model_is_asked_before_the_human_has_answered() -> None:
    """A tool that asks for confirmation while it runs pauses the run; the model is next asked when it is answered."""

    def pay(amount: int, tool_context: ToolContext) -> str:
        """Pay."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Pay?")
            return "asked"
        return "paid" if tool_context.tool_confirmation.confirmed else "refused"

    model = ScriptedLlm([call("pay", amount=1), "Done."])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[pay]))
    _, run = await run_to_end(runner)
    assert (run.status, len(model.requests)) == ("paused", 1)
    [question] = run.pending
    async with runner.run_async(**PLACE, new_message=question.reply(True)) as run:
        await run.wait()
    [response] = model.requests[1].contents[-1].responses
    assert dict(response.response) == {"result": "paid"}
