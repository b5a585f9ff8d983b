"""Toolsets as nodes: the input is a call, and the tool that it names is run."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import App, InMemoryRunner, ToolContext
from minirun.errors import MinirunError
from minirun.plugins import BasePlugin
from minirun.runtime import Run
from minirun.tools import FunctionTool
from minirun.workflow import START, Workflow, node

from ..tools.test_toolsets import Shelf


async def add(number: int, other: int = 1) -> int:
    """Add."""
    return number + other


async def fail() -> None:
    """Fail."""
    raise ValueError("no")


async def allowed(tool_context: ToolContext) -> str:
    """Ask first."""
    return f"heard {await tool_context.request_input('What?')}"


def shelf(**options: Any) -> Shelf:
    """A toolset of three tools."""
    return Shelf([FunctionTool(add), FunctionTool(fail), FunctionTool(allowed)], **options)


def runner_for(toolset: Shelf, given: Any, *, plugins: Any = (), name: str | None = None) -> InMemoryRunner:
    """A runner of a workflow in which the toolset is given that."""

    async def gives() -> Any:
        return given

    wf = Workflow(name="wf", edges=[(START, gives, toolset if name is None else node(toolset, name=name))])
    return InMemoryRunner(app=App("app", wf, plugins=plugins), auto_create_session=True)


async def run_of(runner: InMemoryRunner, message: Any = "go") -> Run:
    """Run to the end, or to the question."""
    async with runner.run_async(user_id="u", session_id="s", new_message=message) as run:
        await run.wait()
    return run


async def output_of(toolset: Shelf, given: Any) -> Any:
    """What it comes to."""
    run = await run_of(runner_for(toolset, given))
    assert run.answer is not None
    return run.answer.output


@pytest.mark.parametrize(
    "given",
    [{"name": "add", "args": {"number": 1, "other": 2}}, '{"name": "add", "args": {"number": 1, "other": 2}}'],
    ids=["dict", "JSON"],
)
async def test_the_input_is_a_call(given: Any) -> None:
    """The tool that it names is run with its arguments, and its result is the output."""
    assert await output_of(shelf(), given) == 3


async def test_what_the_tools_are_called_by_agents_they_are_called_here() -> None:
    """With a prefix the name has it, and the node has it as its name; what a filter leaves out is not there."""
    toolset = shelf(tool_name_prefix="my", tool_filter=["add"])
    runner = runner_for(toolset, {"name": "my_add", "args": {"number": 1}})
    run = await run_of(runner)
    assert run.answer is not None
    assert run.answer.output == 2
    assert run.answer.node_info.path == "wf@1/my@1"
    [context] = toolset.asked
    assert context.invocation_id == run.invocation_id
    await runner.close()
    assert toolset.closed == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "my_add"}, r"node 'Shelf': expected the name .* found 'my_add'; there are: 'add', 'fail', 'allowed'"),
        ({"name": 5}, "expected the name of a tool of the toolset, found 5"),
        ({"args": {}}, "expected a call of the form"),
        ({"name": "add", "arguments": {}}, "expected a call of the form"),
        ("add", "expected a call of the form"),
        (None, "expected a call of the form .* found None"),
        ({"name": "add", "args": [1]}, "expected the args of a call to be a dict"),
        ({"name": "add", "args": {"number": "x"}}, "the tool 'add' has failed: ArgumentError"),
        ({"name": "fail"}, "the tool 'fail' has failed: ValueError"),
    ],
)
async def test_what_is_no_call_fails_the_node_by_name(given: Any, problem: str) -> None:
    """A name that no tool has, another form, and what the tool fails with."""
    with pytest.raises(MinirunError, match=problem) as caught:
        await run_of(runner_for(shelf(), given))
    assert caught.value.__notes__ == ["in the node wf@1/Shelf@1"]


async def test_a_toolset_without_tools_says_so() -> None:
    """What a filter leaves out is not offered either."""
    with pytest.raises(MinirunError, match=r"found 'add'; there are: none"):
        await run_of(runner_for(shelf(tool_filter=[]), {"name": "add"}))


async def test_hooks_are_asked_and_people_are() -> None:
    """The call is one as any other: plugins see it, and a tool may wait for somebody."""
    seen = []

    class Watch(BasePlugin):
        async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
            seen.append(tool.name)

    runner = runner_for(shelf(), {"name": "allowed"}, plugins=[Watch(name="watch")], name="called")
    run = await run_of(runner)
    [pending] = run.pending
    run = await run_of(runner, pending.reply("yes"))
    assert run.answer is not None
    assert run.answer.output == "heard yes"
    assert set(seen) == {"allowed"}


async def test_a_toolset_without_tools_says_that_there_are_none() -> None:
    """The refusal names what there is, and that is nothing."""
    with pytest.raises(MinirunError, match="found 'add'; there are: none"):
        await output_of(Shelf([]), {"name": "add"})
