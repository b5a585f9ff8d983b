"""A budget of several runs: one object counts what all of them do, while they do it, and nothing that is replayed."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest
import trio

from minirun import AgentTool, Budget, FunctionTool, LlmAgent, RunConfig, Runner
from minirun.errors import (
    ConfigurationError,
    FatalError,
    LlmCallsLimitExceededError,
    TokensLimitExceededError,
    ToolCallsLimitExceededError,
)
from minirun.models import LlmRequest, LlmResponse
from minirun.runtime import Run
from minirun.sessions import BaseSessionService, InMemorySessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content, Part, UsageMetadata

NOTED: list[str] = []
"""What was noted."""


@pytest.fixture(autouse=True)
def _nothing_noted() -> None:
    NOTED.clear()


async def note(text: str = "") -> str:
    """Note."""
    NOTED.append(text)
    return "noted"


async def order() -> None:
    """Order."""


def says(part: Part | str) -> LlmResponse:
    """An answer of six tokens."""
    parts = [Part(text=part) if isinstance(part, str) else part]
    return LlmResponse(content=Content(role="model", parts=parts), usage_metadata=UsageMetadata(total_token_count=6))


def agent(*answers: Part | str, **fields: Any) -> LlmAgent:
    """An agent whose model's every answer costs six tokens."""
    return LlmAgent(name="root", model=ScriptedLlm([says(answer) for answer in answers]), **fields)


async def run(
    root: LlmAgent, service: BaseSessionService, config: RunConfig, session_id: str = "s", **given: Any
) -> Run:
    """Run *root* to its end, in a runner of its own."""
    runner = Runner(app_name="app", agent=root, session_service=service, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id=session_id, run_config=config, **given) as running:
        await running.wait()
    return running


async def test_runs_share_what_one_budget_allows() -> None:
    """Three runs of two requests each: the third meets the limit in its middle, and that is in its log."""
    budget, service = Budget(max_llm_calls=5), InMemorySessionService()
    config = RunConfig(budget=budget)
    for number in range(2):
        root = agent(call("note"), "done", tools=[note])
        await run(root, service, config, f"s{number}", new_message="go")
    assert (budget.used, budget.remaining) == ((4, 24, 2), (1, None, None))
    with pytest.raises(LlmCallsLimitExceededError, match=r"asked models 5 times, of 5; raise Budget\.max_llm_calls"):
        await run(agent(call("note"), "done", tools=[note]), service, config, "s2", new_message="go")
    assert (budget.used.llm_calls, budget.remaining.llm_calls) == (5, 0)
    events = await service.read_events(app_name="app", user_id="u", session_id="s2")
    assert events[-1].error_code == "LlmCallsLimitExceededError"


async def test_runs_at_once_never_ask_more_often_than_is_left(autojump_clock: trio.abc.Clock) -> None:
    """A request is counted before it is made: of five runs whose models take long, three ask, and two fail."""
    asked: list[LlmRequest] = []

    async def answer(request: LlmRequest) -> Part:
        asked.append(request)
        await trio.sleep(1)
        return Part(text="done")

    budget = Budget(max_llm_calls=3)
    failed: list[LlmCallsLimitExceededError] = []

    async def one(number: int) -> None:
        root = LlmAgent(name="root", model=ScriptedLlm(answer))
        try:
            await run(root, service, RunConfig(budget=budget), f"s{number}", new_message="go")
        except LlmCallsLimitExceededError as error:
            failed.append(error)

    service = InMemorySessionService()
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(one, number)
    assert (len(asked), len(failed), budget.used.llm_calls) == (3, 2, 3)


async def test_calls_of_a_turn_that_do_not_all_fit_are_not_made() -> None:
    """One call is left and a turn makes two: none is made, and the one is still left."""
    budget = Budget(max_tool_calls=2)
    two = LlmResponse(content=Content(role="model", parts=[call("note", text="b"), call("note", text="c")]))
    model = ScriptedLlm([call("note", text="a"), two])
    with pytest.raises(ToolCallsLimitExceededError):
        root = LlmAgent(name="root", model=model, tools=[note])
        await run(root, InMemorySessionService(), RunConfig(budget=budget), new_message="go")
    assert (NOTED, budget.used.tool_calls, budget.remaining.tool_calls) == (["a"], 1, 1)


async def test_no_model_is_asked_once_the_tokens_are_used_up() -> None:
    """Twelve tokens are two answers; the last of them may be more than is left, the next request is not made."""
    budget, service = Budget(max_tokens=7), InMemorySessionService()
    await run(agent("done"), service, RunConfig(budget=budget), new_message="go")
    await run(agent("done"), service, RunConfig(budget=budget), new_message="go")
    assert (budget.used, budget.remaining) == ((2, 12, 0), (None, 0, None))
    with pytest.raises(TokensLimitExceededError):
        await run(agent("done"), service, RunConfig(budget=budget), new_message="go")
    assert budget.used.llm_calls == 2


async def test_what_a_resumed_invocation_has_recorded_costs_nothing() -> None:
    """It asked twice before it waited, under no budget; going on asks once more, and that alone counts."""
    tools: list[Any] = [note, LongRunningFunctionTool(order)]
    service = InMemorySessionService()
    waits = await run(agent(call("note"), call("order"), tools=tools), service, RunConfig(), new_message="go")
    budget = Budget(max_llm_calls=1, max_tokens=6, max_tool_calls=1)
    config = RunConfig(budget=budget)
    ends = await run(agent("done", tools=tools), service, config, new_message=waits.pending[0].reply("here"))
    assert (ends.status, ends.usage.total_token_count, budget.used) == ("completed", 18, (1, 6, 0))


@pytest.mark.parametrize("sequential", [False, True], ids=["beside", "in order"])
async def test_a_call_that_waits_for_permission_counts_when_it_is_made(sequential: bool) -> None:
    """Two calls are allowed: one waits, and one behind it; both are made when the invocation goes on, and counted."""
    asking = FunctionTool(note, require_confirmation=True, sequential=sequential)
    behind = FunctionTool(note, name="behind", require_confirmation=not sequential)
    budget, service = Budget(max_tool_calls=2), InMemorySessionService()
    config = RunConfig(budget=budget)
    both = LlmResponse(content=Content(role="model", parts=[call("note", text="a"), call("behind", text="b")]))

    def root(*answers: Any) -> LlmAgent:
        return LlmAgent(name="root", model=ScriptedLlm([*answers]), tools=[asking, behind])

    waits = await run(root(both), service, config, new_message="go")
    assert (waits.status, budget.used.tool_calls) == ("paused", 0)
    while waits.status == "paused":
        waits = await run(root("done"), service, config, new_message=waits.pending[0].reply(True))
    assert (waits.status, sorted(NOTED), budget.used.tool_calls) == ("completed", ["a", "b"], 2)


async def test_a_call_whose_result_comes_later_counts_when_it_is_made() -> None:
    """Its tool was called, and is not called again: it counts once, in the run that has called it."""
    budget, service = Budget(max_tool_calls=1), InMemorySessionService()
    tools = [LongRunningFunctionTool(order)]
    waits = await run(agent(call("order"), tools=tools), service, RunConfig(budget=budget), new_message="go")
    assert (waits.status, budget.used.tool_calls) == ("paused", 1)
    answer = waits.pending[0].reply("here")
    await run(agent("done", tools=tools), service, RunConfig(budget=budget), new_message=answer)
    assert budget.used.tool_calls == 1


async def test_agents_inside_of_calls_use_the_same_budget() -> None:
    """What is below a run is counted with it."""
    helper = LlmAgent(name="helper", model=ScriptedLlm([says(call("note")), says("so")]), tools=[note])
    budget = Budget()
    root = agent(call("helper", request="x"), "done", tools=[AgentTool(helper)])
    await run(root, InMemorySessionService(), RunConfig(budget=budget), new_message="go")
    assert (budget.used, budget.remaining) == ((4, 24, 2), (None, None, None))


@pytest.mark.parametrize("limits", [{"max_llm_calls": 1}, {"max_tokens": 6}], ids=["models", "tokens"])
async def test_what_the_limits_of_the_run_refuse_is_not_counted(limits: dict[str, Any]) -> None:
    """The second request is not made, by a limit of its run: the budget has one."""
    budget = Budget(max_llm_calls=9)
    with pytest.raises(FatalError, match="the invocation"):
        root = agent(call("note"), "done", tools=[note])
        await run(root, InMemorySessionService(), RunConfig(budget=budget, **limits), new_message="go")
    assert budget.used.llm_calls == 1


@pytest.mark.parametrize("name", ["max_llm_calls", "max_tokens", "max_tool_calls"])
@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3"])
def test_a_limit_is_an_integer_above_zero(name: str, limit: Any) -> None:
    """Zero would refuse everything, and is no limit in a RunConfig: a Budget without one has None."""
    with pytest.raises(ConfigurationError, match=f"Budget.{name}: expected an integer above 0"):
        Budget(**{name: limit})


def test_only_a_budget_is_one() -> None:
    """A RunConfig takes a Budget or None."""
    with pytest.raises(ConfigurationError, match=r"RunConfig\.budget: expected a Budget, or None, found 3"):
        RunConfig(budget=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_is_not_copied(copied: Any) -> None:
    """Two of them would allow twice as much."""
    with pytest.raises(TypeError, match="one process"):
        copied(Budget(max_tokens=3))


async def test_a_forked_process_refuses_the_budget_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it counts there, nobody here would know."""
    budget = Budget(max_llm_calls=3)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(ConfigurationError, match="another process"):
        await run(agent("done"), InMemorySessionService(), RunConfig(budget=budget), new_message="go")
