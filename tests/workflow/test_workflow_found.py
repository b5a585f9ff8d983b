"""What the machine of test_workflow_machine.py has found, and who tried to break workflows: each once, plainly."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun import Event, InMemoryRunner, InvocationContext, LlmAgent
from minirun.errors import ConfigurationError, MinirunError, WorkflowError
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, RetryConfig
from minirun.workflow import FAILED, START, JoinNode, Workflow, node

PLACE: Any = {"user_id": "u", "session_id": "s"}


def runner_for(*edges: Any, **fields: Any) -> InMemoryRunner:
    """A runner of a workflow with these edges."""
    return InMemoryRunner(agent=Workflow(name="wf", edges=edges, **fields), auto_create_session=True)


async def run_of(runner: InMemoryRunner, message: Any = "go") -> Run:
    """Run to the end, or to the question."""
    async with runner.run_async(**PLACE, new_message=message) as run:
        await run.wait()
    return run


async def gone_on(runner: InMemoryRunner, run: Run) -> Run:
    """Go on with an invocation that has failed."""
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        await again.wait()
    return again


async def failed_run(runner: InMemoryRunner, kind: type[Exception]) -> Run:
    """A run that fails so."""
    with pytest.raises(kind):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    return run


async def choose(node_input: str) -> Event:
    """Choose the left."""
    return Event(output=node_input, route="left")


async def left(node_input: str) -> str:
    """Go left."""
    return "left"


async def right(node_input: str) -> str:
    """Go right."""
    return "right"


async def told(node_input: Any) -> Any:
    """What has come."""
    return {"told": node_input}


async def test_a_join_that_lacks_one_takes_its_route_for_failures() -> None:
    """With `require_all` and FAILED, what is behind that is told; the failure is that of the node."""
    join = JoinNode(name="both", require_all=True)
    edges = [(START, choose, {"left": left, "right": right}), ((left, right), join, {FAILED: told})]
    run = await run_of(runner_for(*edges))
    assert run.answer is not None
    failure = run.answer.output["told"]
    assert failure["type"] == "WorkflowError"
    assert "requires all of its predecessors, and 'right' can come no more" in failure["message"]
    assert failure["input"] == {"left": "left"}
    found = {node.name: node.status.value for node in run.nodes}
    assert (found["both"], found["told"]) == ("failed", "ended")


async def test_a_join_that_lacks_one_fails_as_a_node() -> None:
    """Without FAILED, the error event is its own, and whoever goes on tries it again."""
    join = JoinNode(name="both", require_all=True)
    runner = runner_for((START, choose, {"left": left, "right": right}), ((left, right), join, told))
    run = await failed_run(runner, WorkflowError)
    assert {node.name: node.status.value for node in run.nodes}["both"] == "failed"


async def test_a_join_behind_start_tells_of_the_message_in_words() -> None:
    """What a join was given that has failed is JSON: of START, which gives the message, its text."""

    def refuse(value: Any, output: Any) -> Any:
        raise ValueError("no")

    join = JoinNode(name="both", reduce=refuse)
    run = await run_of(runner_for((START, left, join), (START, join, {FAILED: told})))
    assert run.answer is not None
    given = {"left": "left", "START": "go"}
    assert run.answer.output == {"told": {"type": "ValueError", "message": "no", "input": given}}


async def test_two_plain_messages_at_once_answer_one_question_each() -> None:
    """From two devices: the later one answers what is asked then; it is not refused as a second answer."""
    model = ScriptedLlm(["What?", "How many?", call("finish_task", result="done")])
    runner = runner_for((START, LlmAgent(name="clerk", mode="task", model=model), told))
    first = await run_of(runner)
    runs: list[Run] = []

    async def say(text: str) -> None:
        runs.append(await run_of(runner, text))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say, "tea")
        nursery.start_soon(say, "two")
    assert {run.invocation_id for run in runs} == {first.invocation_id}
    assert [str(run.status) for run in runs] == ["paused", "completed"]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_more_plain_messages_than_questions_begin_an_invocation(number: int) -> None:
    """Who comes when nothing is asked any more begins something, as if he had come alone."""
    model = ScriptedLlm(["What?", call("finish_task", result="done"), *["And what?"] * number])
    runner = runner_for((START, LlmAgent(name="clerk", mode="task", model=model), told))
    await run_of(runner)
    async with trio.open_nursery() as nursery:
        for _ in range(1 + number):
            nursery.start_soon(run_of, runner, "tea")
    listed = await runner.session_service.list_invocations()
    assert sorted(str(one.status) for one in listed)[0] == "completed"


@pytest.mark.parametrize("fails", [{0}, {0, 2}, {1}])
async def test_all_items_of_a_map_that_have_failed_are_tried_again(fails: set[int]) -> None:
    """Whoever goes on finds the items that were collected, whatever others have said after they had failed."""
    broken, done = [True], list[int]()

    async def item(node_input: int, ctx: InvocationContext) -> int:
        if broken[0] and node_input in fails:
            raise ConnectionError(str(node_input))
        await ctx.emit(Event(message=f"item {node_input}"))
        done.append(node_input)
        return node_input

    async def parent(ctx: InvocationContext) -> Any:
        return await ctx.map(item, range(4), on_failure="collect")

    runner = runner_for((START, parent))
    with pytest.raises((ConnectionError, ExceptionGroup)):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    broken[0] = False
    again = await gone_on(runner, run)
    assert again.answer is not None
    assert list(again.answer.output) == [0, 1, 2, 3]
    assert sorted(done) == [0, 1, 2, 3], "what has ended is not run again"


@pytest.mark.parametrize("retries", [1, 2])
async def test_a_tool_that_has_failed_is_called_again_by_who_goes_on(retries: int) -> None:
    """Each time under another id, in the last attempt of the node; what it has answered before stays as it is."""
    calls: list[str] = []

    def look(where: str) -> str:
        """Look."""
        calls.append(where)
        if len(calls) <= retries + 1:
            raise ConnectionError(where)
        return f"seen {where}"

    retry = RetryConfig(max_attempts=retries, initial_delay=0, jitter=0)
    runner = runner_for((START, node(FunctionTool(look), retry=retry)))
    run = await failed_run(runner, MinirunError)
    assert len(calls) == retries
    with pytest.raises(MinirunError, match="the tool 'look' has failed: ConnectionError"):
        await gone_on(runner, run)
    again = await gone_on(runner, run)
    assert again.answer is not None
    assert again.answer.output == "seen go"
    assert len(calls) == retries + 2
    ids = [call.id for event in again.session.events for call in event.get_function_calls()]
    answered = [each.id for event in again.session.events for each in event.get_function_responses()]
    assert len({*ids}) == len(ids) == len(calls)
    assert answered == ids


async def test_a_map_whose_failure_was_dealt_with_is_not_tried_again() -> None:
    """What the parent has said after it was made of the failures: they stay as they are recorded."""
    broken, tried = [True], list[int]()

    async def item(node_input: int) -> int:
        tried.append(node_input)
        if broken[0]:
            raise ConnectionError(str(node_input))
        return node_input

    async def parent(ctx: InvocationContext) -> Any:
        try:
            await ctx.map(item, range(2), on_failure="collect")
        except ExceptionGroup:
            pass
        await ctx.emit(Event(message="all right"))
        if broken[0]:
            raise ValueError("not all right")
        return "dealt with"

    runner = runner_for((START, parent))
    run = await failed_run(runner, ValueError)
    broken[0] = False
    again = await gone_on(runner, run)
    assert again.answer is not None
    assert again.answer.output == "dealt with"
    assert sorted(tried) == [0, 1]


@pytest.mark.parametrize("items", [5, None, "abc", b"abc"])
async def test_a_map_is_over_items(items: Any) -> None:
    """What is none, or a text, whose letters nobody means, is refused by name."""

    async def parent(ctx: InvocationContext) -> Any:
        return await ctx.map(left, items)

    with pytest.raises(ConfigurationError, match="expected items to be a list, or another iterable of values, found"):
        await run_of(runner_for((START, parent)))
