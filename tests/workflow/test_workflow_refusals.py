"""What of workflows is refused by name, or bounded, before it does harm."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import ConfigurationError, NodeRunsLimitExceededError, SecretError
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm, call
from minirun.tools import AgentTool
from minirun.workflow import START, JoinNode, Node, NodeContext, Workflow, node

from ..helpers import PLACE, runner_for
from .test_workflow import run_of


def one(node_input: object) -> int:
    """Says 1."""
    return 1


def two(node_input: object) -> int:
    """Says 2."""
    return 2


def alone(logic: Any) -> Workflow:
    """A workflow of one node."""
    return Workflow(name="wf", edges=[(START, logic)])


async def itself(node_input: object, ctx: Any) -> Any:
    """Runs itself, without end."""
    return await ctx.run_node(itself, 1)


class Itself(BaseAgent):
    """Runs itself, without end."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.run_node(self, 1)


@pytest.mark.parametrize("root", [alone(itself), Itself(name="itself")], ids=["function", "agent"])
async def test_what_runs_itself_without_end_comes_to_the_limit(root: BaseAgent) -> None:
    """A node that runs itself ends by `max_node_runs`, and not by the end of Python's stack, where the run hung."""
    with trio.fail_after(60), pytest.raises(NodeRunsLimitExceededError):
        await run_of(root, max_node_runs=300)


async def test_nodes_that_run_each_other_in_many_levels_come_back() -> None:
    """The output, a question and a failure come through many levels, whichever task runs them."""

    async def level(node_input: int, ctx: Any) -> Any:
        if node_input == 0:
            return await ctx.request_input("Go?", response_schema=int)
        return 1 + await ctx.run_node(level, node_input - 1)

    async def top(node_input: object, ctx: Any) -> Any:
        return await ctx.run_node(level, 40)

    runner = runner_for(alone(top))
    place: Any = {"user_id": "u", "session_id": "s"}
    async with runner.run_async(**place, new_message="go") as run:
        await run.wait()
    [question] = run.pending
    async with runner.run_async(**place, new_message=question.reply(2)) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == 42

    async def fails(node_input: int, ctx: Any) -> Any:
        if node_input == 0:
            raise KeyError("deep")
        return await ctx.run_node(fails, node_input - 1)

    async def above(node_input: object, ctx: Any) -> Any:
        return await ctx.run_node(fails, 30)

    with pytest.raises(KeyError, match="deep"):
        await run_of(alone(above))


@pytest.mark.parametrize("items", [{"a": 1}, {1, 2}, frozenset("a"), bytearray(b"ab")], ids=repr)
async def test_a_map_is_over_what_has_an_order(items: Iterable[Any]) -> None:
    """A mapping, over whose keys it went, and a set, whose order differs between processes, are refused by name."""

    async def over(node_input: object, ctx: Any) -> Any:
        return await ctx.map(one, items)

    with pytest.raises(ConfigurationError, match="expected items to be a list"):
        await run_of(alone(over))


@pytest.mark.parametrize(
    ("items", "advice"), [({"a": 1}, r"write list\(items.items\(\)\)"), ({1}, "which has no order; sort it")]
)
async def test_what_has_no_order_is_not_mapped_and_says_what_to_do(items: Any, advice: str) -> None:
    """A dict and a set are refused with what to write instead."""

    async def over(node_input: object, ctx: Any) -> Any:
        return await ctx.map(len, items, name="one")

    with pytest.raises(ConfigurationError, match=f"expected items to be a list, found .*; {advice}"):
        await run_of(alone(over))


async def test_a_map_over_items_without_end_comes_to_the_limit() -> None:
    """More items than nodes that may run are refused before any of them runs, even if they never end."""
    ran = []

    async def note(node_input: int) -> None:
        ran.append(node_input)

    async def over(node_input: object, ctx: Any) -> Any:
        return await ctx.map(note, itertools.count())

    with pytest.raises(NodeRunsLimitExceededError, match="give fewer"):
        await run_of(alone(over), max_node_runs=20)
    assert ran == []


async def test_a_join_is_run_by_a_graph_alone() -> None:
    """`ctx.run_node` refuses a JoinNode by name."""

    async def joins(node_input: object, ctx: Any) -> Any:
        return await ctx.run_node(JoinNode(name="both"), [1, 2])

    with pytest.raises(ConfigurationError, match="the join 'both'"):
        await run_of(alone(joins))


async def never(value: Any, output: Any) -> Any:
    """No reducer: it has to be awaited."""


class Silent(Node):
    """A node without logic."""


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: JoinNode(name="j", initial=5), "no effect without reduce"),
        (lambda: JoinNode(name="j", reduce=max, initial=object()), "initial of 'j'"),
        (lambda: JoinNode(name="j", reduce=never), "async def"),
        (lambda: JoinNode(name="j", parallel_worker=True), "parallel_worker has no effect"),
        (lambda: JoinNode(name="j", require_all="yes"), "True or False"),  # type: ignore[arg-type]
        (lambda: node(one, parallel_worker=1), "True or False"),
        (lambda: node(one, description=5), "a string"),
        (lambda: node(None), "found None"),
        (lambda: Node(name="n"), "has no logic"),
        (lambda: Silent(name="n"), "Silent has no logic"),
        (lambda: Workflow(name="wf", edges=[(START, one)], sub_agents=[alone(two)]), "sub_agents have no effect"),
    ],
)
def test_what_has_no_effect_is_refused_when_it_is_made(make: Callable[[], object], found: str) -> None:
    """An argument that could do nothing, or could only fail later, is refused by name."""
    with pytest.raises((ConfigurationError, ValueError), match=found):
        make()


async def test_the_end_of_a_generator_tells_which_node_has_raised_it() -> None:
    """A GeneratorExit that a node raises is told as that of the node."""

    async def closes(node_input: object) -> None:
        raise GeneratorExit

    with pytest.raises(RuntimeError, match="raised GeneratorExit") as caught:
        await run_of(alone(closes))
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__notes__ == ["in the node wf@1/closes@1"]


async def test_a_node_that_a_question_ends_asks_for_no_credential() -> None:
    """`rerun_on_resume=False` refuses `ctx.request_credential`, too; a timer is waited for."""

    async def asks(node_input: object, ctx: Any) -> Any:
        return await ctx.request_credential(AuthConfig(credential_key="k", scheme="api_key"))

    with pytest.raises(ConfigurationError, match="a question ends it"):
        await run_of(alone(node(asks, rerun_on_resume=False)))

    async def sleeps(node_input: object, ctx: Any) -> str:
        await ctx.sleep_until(2_000_000_000.0)
        return "late"

    runner = runner_for(alone(node(sleeps, rerun_on_resume=False)))
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()
    assert run.status == InvocationStatus.PAUSED
    [ended] = await runner.resume_due(now=2_000_000_000.0)
    assert ended.status == InvocationStatus.COMPLETED


async def test_logic_that_calls_itself_without_end_fails() -> None:
    """An agent at the end of Python's stack gets its RecursionError where it emits; the run hung."""

    class Deep(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="x"))
            await self._run_async_impl(ctx)

    with trio.fail_after(60), pytest.raises(RecursionError):
        await run_of(Deep(name="deep"))


def test_an_agent_with_a_task_elsewhere_is_told_where_to_go() -> None:
    """The refusal of `mode="task"` below an agent says how it may stand there."""
    clerk = LlmAgent(name="clerk", mode="task", model=ScriptedLlm(["x"]))
    with pytest.raises(ConfigurationError, match=r"Workflow\(edges=\[\(START, clerk\)\]\)"):
        runner_for(LlmAgent(name="boss", model=ScriptedLlm(["x"]), sub_agents=[clerk]))


@pytest.mark.parametrize("as_tool", [False, True])
async def test_an_agent_with_a_task_stands_below_another_as_a_workflow(as_tool: bool) -> None:
    """A coordinator hands over to a workflow of one conversation, or calls it as a tool."""
    clerk = LlmAgent(name="clerk", mode="task", model=ScriptedLlm(["What?", call("finish_task", result="tea")]))
    orders = Workflow(name="orders", description="Takes orders.", edges=[(START, clerk)])
    first = call("orders", request="x") if as_tool else call("transfer_to_agent", agent_name="orders")
    below: Any = {"tools": [AgentTool(orders)]} if as_tool else {"sub_agents": [orders]}
    runner = runner_for(LlmAgent(name="boss", model=ScriptedLlm([first, "Done."]), **below))
    place: Any = {"user_id": "u", "session_id": "s"}
    async with runner.run_async(**place, new_message="an order") as run:
        await run.wait()
    assert [each.kind for each in run.pending] == ["message"]
    async with runner.run_async(**place, new_message="tea") as run:
        answer = await run.wait()
    assert run.status == InvocationStatus.COMPLETED
    assert answer is not None
    assert (answer.text, answer.output) == ("Done.", None) if as_tool else ("", {"result": "tea"})


async def test_a_secret_as_the_name_of_a_node_is_refused() -> None:
    """Names are in the log, so no credential may be one."""

    async def tells(ctx: NodeContext) -> Any:
        secret = AuthCredential("api_key", api_key="hidden_name_4711")
        await ctx.save_credential(AuthConfig("k", scheme="api_key"), secret)
        return await ctx.run_node(one, 1, name="hidden_name_4711")

    with pytest.raises(SecretError, match="name of the node"):
        await run_of(alone(tells))


async def test_a_node_gets_the_credential_that_it_requests() -> None:
    """The node runs again when the credential is there, and reads it."""

    async def asks(ctx: NodeContext) -> int:
        found = await ctx.request_credential(AuthConfig(credential_key="mail", scheme="bearer"))
        return len(found.reveal())

    runner = runner_for(alone(asks))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    reply = await runner.provide_credential(run.pending[0], AuthCredential("bearer", token="12345678"))
    async with runner.run_async(**PLACE, new_message=reply) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == 8
