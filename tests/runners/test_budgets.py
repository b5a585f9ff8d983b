"""
Budgets are counted from the log, wherever in the invocation something was used, and once (promise P12).

An invocation is let wait, and gone on with by a runner of its own; what it used before is found whole by then, however
far its agents have come to it again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import attrs
import pytest
import trio

from minirun import (
    AgentTool,
    BaseAgent,
    Event,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    RunConfig,
    Runner,
)
from minirun.errors import (
    FatalError,
    LlmCallsLimitExceededError,
    NodeRunsLimitExceededError,
    TokensLimitExceededError,
    ToolCallsLimitExceededError,
    TransfersLimitExceededError,
)
from minirun.events import EventActions
from minirun.flows._budgets import BUDGETS, BudgetName
from minirun.models import LlmRequest, LlmResponse
from minirun.plugins import BasePlugin
from minirun.runtime import Run
from minirun.sessions import BaseSessionService, InMemorySessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from minirun.types import Content, Part, UsageMetadata
from minirun.workflow import START, Workflow

PLACE: Any = {"user_id": "u", "session_id": "s"}


async def note() -> str:
    """Note."""
    return "noted"


async def order() -> None:
    """Order."""


def says(part: Part | str) -> LlmResponse:
    """An answer of six tokens."""
    parts = [Part(text=part) if isinstance(part, str) else part]
    return LlmResponse(content=Content(role="model", parts=parts), usage_metadata=UsageMetadata(total_token_count=6))


def model(*answers: Part | str) -> ScriptedLlm:
    """A model whose every answer costs six tokens."""
    return ScriptedLlm([says(answer) for answer in answers])


async def run(agent: BaseAgent, service: BaseSessionService, config: RunConfig | None = None, **given: Any) -> Run:
    """Run *agent* to its end, in a runner of its own."""
    runner = Runner(app_name="app", agent=agent, session_service=service, auto_create_session=True)
    async with runner.run_async(**PLACE, run_config=config, **given) as run:
        await run.wait()
    return run


def asks_a_helper(*, hands_over: bool = False) -> tuple[LlmAgent, ...]:
    """The same agents as two programs have them: before they wait for an order, and after."""
    order_tool = LongRunningFunctionTool(order)

    class Leads(BaseAgent):
        """Hands over to its only sub-agent."""

        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            target = self.sub_agents[0].name
            await ctx.emit(Event(message="over", actions=EventActions(transfer_to_agent=target)))

    def helper() -> BaseAgent:
        inner = LlmAgent(name="helper", model=model(call("note"), call("note"), "it is so"), tools=[note])
        return Leads(name="lead", sub_agents=[inner]) if hands_over else inner

    def root(*answers: Part | str) -> LlmAgent:
        return LlmAgent(name="root", model=model(*answers), tools=[AgentTool(helper()), order_tool])

    name = "lead" if hands_over else "helper"
    return root(call(name, request="x"), call("order")), root("done"), root(call("order"), "done")


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"max_llm_calls": 5}, LlmCallsLimitExceededError),
        ({"max_tokens": 30}, TokensLimitExceededError),
    ],
    ids=["models", "tokens"],
)
async def test_what_an_answered_call_has_used_inside_counts_after_resume(
    limits: dict[str, Any], error: type[FatalError]
) -> None:
    """Nobody comes again to what an agent has asked inside of a call that is answered; it counts all the same."""
    before, after, _ = asks_a_helper()
    service = InMemorySessionService()
    waits = await run(before, service, RunConfig(**limits), new_message="go")
    assert (waits.status, waits.usage.total_token_count) == ("paused", 30)
    with pytest.raises(error):
        await run(after, service, RunConfig(**limits), new_message=waits.pending[0].reply("here"))


async def test_the_last_request_that_is_left_can_be_made_after_resume() -> None:
    """What is recorded counts once: with one request, and its tokens, left, it is made; the usage is that of all."""
    before, after, _ = asks_a_helper()
    service, config = InMemorySessionService(), RunConfig(max_llm_calls=6, max_tokens=31, max_tool_calls=4)
    waits = await run(before, service, config, new_message="go")
    ends = await run(after, service, config, new_message=waits.pending[0].reply("here"))
    assert (ends.status, ends.answer and ends.answer.text, ends.usage.total_token_count) == ("completed", "done", 36)


async def test_calls_of_tools_inside_of_an_answered_call_count_after_resume() -> None:
    """Two calls inside, the one around them and the one that waited are four; a fifth is refused."""
    before, _, after = asks_a_helper()
    service, config = InMemorySessionService(), RunConfig(max_tool_calls=4)
    waits = await run(before, service, config, new_message="go")
    assert waits.status == "paused"
    with pytest.raises(ToolCallsLimitExceededError):
        await run(after, service, config, new_message=waits.pending[0].reply("here"))


async def test_a_transfer_inside_of_an_answered_call_counts_after_resume() -> None:
    """Who has handed over inside of a call has used one of the invocation's transfers."""
    before, _, after = asks_a_helper(hands_over=True)
    service, config = InMemorySessionService(), RunConfig(max_transfers=1)
    waits = await run(before, service, config, new_message="go")
    assert waits.status == "paused"

    hands_over = LlmAgent(
        name="root",
        model=model(call("transfer_to_agent", agent_name="last"), "unreached"),
        tools=after.tools,
        sub_agents=[LlmAgent(name="last", model=model("here"))],
    )
    with pytest.raises(TransfersLimitExceededError):
        await run(hands_over, service, config, new_message=waits.pending[0].reply("here"))


async def test_a_call_that_is_made_again_counts_what_is_inside_once() -> None:
    """An agent in a call waits; its call is made again, and what it asked before is not counted a second time."""

    def root(*answers: Part | str) -> LlmAgent:
        helper = LlmAgent(name="helper", model=model(*answers), tools=[note, LongRunningFunctionTool(order)])
        return LlmAgent(name="root", model=model(*last), tools=[AgentTool(helper)])

    service, config = InMemorySessionService(), RunConfig(max_llm_calls=5, max_tokens=25, max_tool_calls=3)
    last: list[Part | str] = [call("helper", request="x")]
    waits = await run(root(call("note"), call("order")), service, config, new_message="go")
    assert waits.status == "paused"
    last = ["done"]
    ends = await run(root("it is here"), service, config, new_message=waits.pending[0].reply("here"))
    assert (ends.status, ends.usage.total_token_count) == ("completed", 30)
    with pytest.raises(LlmCallsLimitExceededError):
        again = RunConfig(max_llm_calls=2)
        last = [call("helper", request="x")]
        waits = await run(root(call("note"), call("order")), service, config, new_message="and again")
        last = ["done"]
        await run(root("it is here"), service, again, new_message=waits.pending[0].reply("here"))


@pytest.mark.parametrize("eager", ["left", "right"])
async def test_agents_side_by_side_find_what_the_others_have_used(eager: str, autojump_clock: trio.abc.Clock) -> None:
    """Who is first to come to something new in a resumed invocation does not get what the others have used already."""

    class Late(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await trio.sleep(1 if self.name != eager else 0)
            await self.sub_agents[0].run_async(ctx)

    def both(make: Callable[[], ScriptedLlm]) -> ParallelAgent:
        tools: list[Any] = [note, LongRunningFunctionTool(order)]
        inner = {name: LlmAgent(name=f"{name}_one", model=make(), tools=tools) for name in ("left", "right")}
        return ParallelAgent(name="both", sub_agents=[Late(name=name, sub_agents=[inner[name]]) for name in inner])

    def answer(request: LlmRequest) -> Part:
        asked.append(request)
        return call("note")

    asked: list[LlmRequest] = []
    service, config = InMemorySessionService(), RunConfig(max_llm_calls=7)
    agent = both(lambda: model(call("note"), call("note"), call("order")))
    waits = await run(agent, service, config, new_message="go")
    [question] = [each for each in waits.pending if each.author == f"{eager}_one"]
    with pytest.raises(LlmCallsLimitExceededError):
        await run(both(lambda: ScriptedLlm(answer)), service, config, new_message=question.reply("here"))
    assert len(asked) == 1


async def test_what_a_callback_has_answered_in_a_branch_is_not_counted() -> None:
    """Beside others, and inside of a call: what no model was asked for uses no budget, before and after a pause."""

    def answer(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        return None if any(part.function_response for c in llm_request.contents for part in c.parts) else first

    first = says(call("order"))
    service, config = InMemorySessionService(), RunConfig(max_llm_calls=1, max_tokens=1)

    def agent() -> ParallelAgent:
        tools = [LongRunningFunctionTool(order)]
        inner = LlmAgent(name="a", model=model("done"), tools=tools, before_model_callback=answer)
        return ParallelAgent(name="both", sub_agents=[inner])

    waits = await run(agent(), service, config, new_message="go")
    ends = await run(agent(), service, config, new_message=waits.pending[0].reply("here"))
    assert (ends.status, ends.usage.total_token_count) == ("completed", 6)


async def test_an_answer_inside_of_a_call_that_was_not_accepted_counts_after_resume() -> None:
    """A hook has the model asked again: that makes two requests and twelve tokens, also when nobody comes to them."""

    said_no = says("no")

    def again(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        return attrs.evolve(llm_response, ask_again="once more") if llm_response.content == said_no.content else None

    def root(*answers: Part | str) -> LlmAgent:
        helper = LlmAgent(name="helper", model=model("no", "yes"), after_model_callback=again)
        tools: list[Any] = [AgentTool(helper), LongRunningFunctionTool(order)]
        return LlmAgent(name="root", model=model(*answers), tools=tools)

    service, config = InMemorySessionService(), RunConfig(max_llm_calls=5)
    waits = await run(root(call("helper", request="x"), call("order")), service, config, new_message="go")
    ends = await run(root("done"), service, config, new_message=waits.pending[0].reply("here"))
    assert (ends.status, ends.usage.total_token_count) == ("completed", 30)
    waits = await run(root(call("helper", request="x"), call("order")), service, config, new_message="go")
    with pytest.raises(LlmCallsLimitExceededError):
        again_less = RunConfig(max_llm_calls=4)
        await run(root("done"), service, again_less, new_message=waits.pending[0].reply("here"))


class Asks(BaseAgent):
    """Runs its sub-agents, then asks."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for agent in self.sub_agents:
            await agent.run_async(ctx)
        await ctx.request_input("?")


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"max_llm_calls": 3}, LlmCallsLimitExceededError),
        ({"max_tokens": 12}, TokensLimitExceededError),
        ({"max_tool_calls": 1}, ToolCallsLimitExceededError),
    ],
    ids=["models", "tokens", "tools"],
)
async def test_a_run_with_less_left_than_was_used_ends_where_that_is_found(
    limits: dict[str, Any], error: type[FatalError]
) -> None:
    """Nothing new is asked or called, yet the agents come to more than this run allows; the invocation waits on."""

    def agent() -> BaseAgent:
        first = LlmAgent(name="first", model=model(call("note"), call("note"), "noted"), tools=[note])
        return Asks(name="asks", sub_agents=[first, LlmAgent(name="second", model=model("said"))])

    service = InMemorySessionService()
    waits = await run(agent(), service, new_message="go")
    assert (waits.status, waits.usage.total_token_count) == ("paused", 24)
    again = Runner(app_name="app", agent=agent(), session_service=service)
    with pytest.raises(error):
        async with again.run_async(**PLACE, invocation_id=waits.invocation_id, run_config=RunConfig(**limits)) as less:
            await less.wait()
    assert less.status == "paused"
    config = RunConfig(max_llm_calls=4, max_tool_calls=2)
    enough = await run(agent(), service, config, invocation_id=waits.invocation_id)
    assert enough.status == "paused"


async def test_what_a_callback_has_answered_asks_no_budget_of_tokens_when_it_is_replayed() -> None:
    """All tokens are used; what follows was said without a model, and is found again."""

    def agent() -> BaseAgent:
        second = LlmAgent(
            name="second", model=model(), before_model_callback=lambda callback_context, llm_request: says("for it")
        )
        return Asks(name="asks", sub_agents=[LlmAgent(name="first", model=model("said")), second])

    service, config = InMemorySessionService(), RunConfig(max_tokens=6)
    waits = await run(agent(), service, config, new_message="go")
    assert (waits.status, waits.usage.total_token_count) == ("paused", 6)
    again = await run(agent(), service, config, invocation_id=waits.invocation_id)
    assert again.status == "paused"


async def test_what_hands_nothing_over_uses_no_transfer_when_it_is_counted_again() -> None:
    """Several answers and questions were stored; the one transfer that is left can be made."""

    def agent(*answers: Part | str) -> BaseAgent:
        last = LlmAgent(name="last", model=model("here"))
        tools: list[Any] = [note, LongRunningFunctionTool(order)]
        return LlmAgent(name="root", model=model(*answers), tools=tools, sub_agents=[last])

    service, config = InMemorySessionService(), RunConfig(max_transfers=1)
    waits = await run(agent(call("note"), call("order")), service, config, new_message="go")
    ends = await run(
        agent(call("transfer_to_agent", agent_name="last")),
        service,
        config,
        new_message=waits.pending[0].reply("here"),
    )
    assert (ends.status, ends.answer and ends.answer.text) == ("completed", "here")


async def test_runs_of_nodes_count_after_resume_as_often_as_they_have_ended() -> None:
    """One has ended, one waits and is run again, one follows: with two allowed the last is refused, with three not."""

    async def first(node_input: Any) -> int:
        return 1

    async def ask(ctx: InvocationContext, node_input: Any) -> Any:
        return await ctx.request_input("?")

    async def last(node_input: Any) -> str:
        return "done"

    def flow() -> Workflow:
        return Workflow(name="wf", edges=[(START, first, ask, last)])

    for limit, status in ((2, "failed"), (3, "completed")):
        service, config = InMemorySessionService(), RunConfig(max_node_runs=limit)
        waits = await run(flow(), service, config, new_message="go")
        assert waits.status == "paused"
        runner = Runner(app_name="app", agent=flow(), session_service=service)
        with pytest.raises(NodeRunsLimitExceededError) if status == "failed" else nullcontext():
            async with runner.run_async(
                **PLACE, new_message=waits.pending[0].reply("here"), run_config=config
            ) as ends:
                await ends.wait()
        assert ends.status == status


# --- all of them ------------------------------------------------------------------------------------------------------


async def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


async def calculate(tool_context: ToolContext) -> int:
    """Calculate."""
    return cast(int, await tool_context.run_node(double, 21))


async def used_by(*, waits: bool) -> dict[BudgetName, int]:
    """What an invocation has used by its end that spends every budget, after a pause or without one."""
    found: dict[BudgetName, int] = {}

    class Looks(BasePlugin):
        async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
            found.update(invocation_context._invocation.budgets.used)

    answers: list[Part | str] = [call("calculate"), call("note"), "done"]
    below = LlmAgent(
        name="below", model=model(*answers), tools=[calculate, FunctionTool(note, require_confirmation=waits)]
    )
    above = LlmAgent(name="above", model=model(call("transfer_to_agent", agent_name="below")), sub_agents=[below])
    service = InMemorySessionService()
    runner = Runner(
        app_name="app", agent=above, session_service=service, auto_create_session=True, plugins=[Looks(name="looks")]
    )
    message: Content | str = "go"
    for _ in range(1 + waits):
        async with runner.run_async(**PLACE, new_message=message) as run:
            await run.wait()
        if run.pending:
            message = run.pending[0].reply(True)
    assert run.status == "completed"
    return found


async def test_every_budget_is_counted_over_a_pause_as_without_one() -> None:
    """What is spent is spent once, whether it is done in one run or in two, of each name in the list."""
    whole = await used_by(waits=False)
    assert whole.keys() == BUDGETS.keys()
    assert all(count > 0 for count in whole.values()), whole
    assert await used_by(waits=True) == whole
