"""Details of functions, joins and tasks as nodes: when they are refused, where they run, and how they end."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from minirun import LlmAgent, ToolContext
from minirun.errors import ConfigurationError, ModelRetry, NodeInputError, OutputSchemaError, WorkflowConfigurationError
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool
from minirun.workflow import START, FunctionNode, JoinNode, RequestInput, Workflow, node

from ..helpers import PLACE, runner_for
from .test_workflow import ends, flow, output_of, run_of


async def test_what_is_synchronous_runs_in_a_thread_of_its_own() -> None:
    """A function and each step of a generator block nobody else; a coroutine runs where everything runs."""
    here = threading.current_thread()

    def blocks(node_input: Any) -> bool:
        return threading.current_thread() is here

    def steps(node_input: Any) -> Iterator[bool]:
        yield threading.current_thread() is here

    async def does_not(node_input: Any) -> bool:
        return threading.current_thread() is here

    for logic, expected in ((blocks, False), (steps, False), (does_not, True)):
        assert await output_of(flow((START, logic))) is expected


def positional(a: int, /) -> None:
    """Takes what has no name."""


def test_a_function_that_can_be_no_node_is_refused_when_it_is_made() -> None:
    """And not when it first runs."""
    with pytest.raises(WorkflowConfigurationError, match="positional-only"):
        FunctionNode(positional)
    with pytest.raises(WorkflowConfigurationError, match="positional-only"):
        node(positional)


class Caller:
    """A function that is an object."""

    def __call__(self, node_input: Any) -> int:
        return 1


@pytest.mark.parametrize("wrapped", [Caller(), functools.partial(Caller())])
def test_an_object_is_called_as_its_class_is(wrapped: Callable[..., Any]) -> None:
    """A node of what has no name has the name of the class, also behind a partial."""
    assert FunctionNode(wrapped).name == "Caller"


def test_a_function_without_a_name_needs_one() -> None:
    """A lambda is refused with what to write."""
    with pytest.raises(ConfigurationError, match=r"expected a node to have a name, found .*; write node\(f, n"):
        FunctionNode(lambda node_input: 1)
    assert FunctionNode(lambda node_input: 1, "one").name == "one"


@attrs.frozen
class Kept:
    """What the state has."""

    city: str = ""


async def test_a_field_of_the_schema_is_never_the_input() -> None:
    """In a workflow whose state has a schema, a function's parameter of that name waits for a value there."""

    async def reads(city: str) -> str:
        return city

    with pytest.raises(NodeInputError, match=r"state\['city'\]: missing; write the key before this node runs"):
        await output_of(Workflow(name="wf", state_schema=Kept, edges=[(START, reads)]))
    assert await output_of(flow((START, reads))) == "go"


def test_what_nodes_are_by_default() -> None:
    """No attempts, no limits, nobody is asked, and a join takes what there is."""
    join = JoinNode(name="both")
    made = node(ends)
    assert (join.require_all, join.reduce, join.initial) == (False, None, None)
    for each in (join, made):
        assert (each.retry, each.timeout_s, each.retry_config, each.timeout) == (None, None, None, None)
        assert (each.require_confirmation, each.parallel_worker, each.max_parallel_workers) == (False, False, None)
        assert (each.description, each.rerun_on_resume) == ("", True)


async def test_a_question_without_words_is_asked_in_the_name_of_the_node() -> None:
    """A RequestInput without a message tells which node asks; one with a message says that."""

    async def asks(node_input: Any) -> RequestInput:
        return RequestInput()

    async def says(node_input: Any) -> RequestInput:
        return RequestInput(message="Well?")

    for logic, hint in ((asks, "The node 'asks' asks for input."), (says, "Well?")):
        runner = runner_for(flow((START, logic)))
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert [each.hint for each in run.pending] == [hint]


def task(*answers: Any, **fields: Any) -> LlmAgent:
    """An agent of mode task whose model says these one after the other."""
    return LlmAgent(name="clerk", model=ScriptedLlm(answers), mode="task", **fields)


@attrs.frozen
class Order:
    """What a task comes to."""

    what: str
    number: int = 1


async def test_a_validator_may_send_the_outcome_of_a_task_back() -> None:
    """What it raises as ModelRetry is told to the model, which tries again."""
    seen: list[Any] = []

    def checks(ctx: Any, value: Order) -> Order:
        seen.append(value.number)
        if value.number > 5:
            raise ModelRetry("at most five")
        return value

    told: list[Any] = []

    def answer(request: Any) -> Any:
        said = [each.function_response for each in request.contents[-1].parts if each.function_response is not None]
        told.extend(each.response for each in said)
        return call("finish_task", what="tea", number=9 if len(seen) == 0 else 5)

    agent = LlmAgent(
        name="clerk", model=ScriptedLlm(answer), mode="task", output_schema=Order, output_validator=checks
    )
    assert await output_of(flow((START, agent, ends))) == {"what": "tea", "number": 5}
    assert seen == [9, 5]
    assert told == [{"error": {"type": "ModelRetry", "message": "at most five"}}]


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_a_task_fails_behind_as_many_forms_as_it_may_miss(retries: int) -> None:
    """With `output_retries` more than the first; the error says what was wrong at last."""
    wrong = [call("finish_task", what=number) for number in range(5)]
    agent = task(*wrong, output_schema=Order, output_retries=retries)
    with pytest.raises(OutputSchemaError, match=f"found another form each time; at last: .*found integer {retries}"):
        await run_of(flow((START, agent)))


async def test_a_task_without_a_schema_is_a_text() -> None:
    """Its outcome is `{"result": text}`, and other arguments are told as errors."""
    agent = task(call("finish_task", result=3), call("finish_task", result="tea"))
    assert await output_of(flow((START, agent, ends))) == {"result": "tea"}


async def test_other_tools_of_a_task_are_called_on_the_way() -> None:
    """The outcome follows them, and only finish_task ends the task."""

    def look(tool_context: ToolContext) -> dict[str, Any]:
        """Look."""
        return {"result": "seen"}

    agent = task(call("look"), call("finish_task", result="tea"), tools=[FunctionTool(look)])
    assert await output_of(flow((START, agent, ends))) == {"result": "tea"}


@pytest.mark.parametrize("how", ["escalate", "end"])
async def test_a_task_ends_without_an_outcome_where_all_is_over(how: str) -> None:
    """A tool that escalates, or ends the invocation, ends the conversation: nobody is asked for more."""

    def stop(tool_context: ToolContext) -> str:
        """Stop."""
        if how == "escalate":
            tool_context.actions.escalate = True
        else:
            tool_context.end_invocation = True
        return "stopped"

    runner = runner_for(flow((START, task(call("stop"), "Anything else?", tools=[FunctionTool(stop)]), ends)))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert (run.status, list(run.pending)) == ("completed", [])
