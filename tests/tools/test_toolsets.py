"""Toolsets: which tools an agent gets, under which names, and what is never remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import FunctionTool, LlmAgent, LoopAgent
from minirun.errors import ConfigurationError
from minirun.runtime import ReadonlyContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset, RetryConfig, exit_loop
from minirun.types import FunctionDeclaration

from ..helpers import run_to_end, runner_for


def named(name: str, **options: Any) -> FunctionTool:
    """A tool of this name that says it."""

    async def says() -> str:
        return name

    return FunctionTool(says, name=name, description=f"says {name}", **options)


class Shelf(BaseToolset):
    """A toolset that gives what stands on it, and notes who asked."""

    def __init__(self, tools: Any, **options: Any) -> None:
        super().__init__(**options)
        self.tools = tools
        self.asked: list[Any] = []
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> Sequence[BaseTool]:
        self.asked.append(readonly_context)
        if isinstance(self.tools, Exception):
            raise self.tools
        found: Sequence[BaseTool] = self.tools
        return found


async def names_of(toolset: BaseToolset, context: Any = None) -> list[str]:
    return [tool.name for tool in await toolset.get_tools_with_prefix(context)]


NAMES = ("a", "b", "c", "d")


@given(
    shelf=st.lists(st.sampled_from(NAMES), unique=True), wanted=st.lists(st.sampled_from(NAMES)), prefix=st.booleans()
)
def test_a_list_of_names_selects_in_the_toolsets_order(shelf: list[str], wanted: list[str], prefix: bool) -> None:
    """A filter of names gives the tools that have them, in the toolset's order; unknown names select nothing."""
    toolset = Shelf([named(name) for name in shelf], tool_filter=wanted, tool_name_prefix="x" if prefix else None)
    expected = [f"x_{name}" if prefix else name for name in shelf if name in wanted]
    assert trio.run(names_of, toolset) == expected


async def test_a_predicate_sees_each_tool_and_who_asks() -> None:
    """A filter function, sync or async, gets the tool under its own name, and the context."""
    seen: list[tuple[str, Any]] = []

    def picks(tool: BaseTool, context: Any) -> bool:
        seen.append((tool.name, context))
        return bool(tool.name == context)

    async def picks_later(tool: BaseTool, context: Any) -> bool:
        await trio.lowlevel.checkpoint()
        return bool(tool.name == context)

    tools = [named("a"), named("b")]
    assert await names_of(Shelf(tools, tool_filter=picks, tool_name_prefix="x"), "a") == ["x_a"]
    assert seen == [("a", "a"), ("b", "a")]
    assert await names_of(Shelf(tools, tool_filter=picks_later), "b") == ["b"]


async def test_nothing_is_remembered_from_one_question_to_the_next() -> None:
    """Who asks gets what the toolset has for it now; an answer that another context got is not given again."""
    toolset = Shelf([named("a"), named("b")], tool_filter=lambda tool, context: tool.name == context)
    assert [await names_of(toolset, who) for who in ("a", "b", "a")] == [["a"], ["b"], ["a"]]
    toolset.tools = []
    assert await names_of(toolset, "a") == []
    assert toolset.asked == ["a", "b", "a", "a"]


class Hand(BaseTool):
    """A tool that is no function, and notes what is done to it."""

    def __init__(self) -> None:
        super().__init__(
            name="hand", description="takes", timeout_s=7, retry=RetryConfig(max_attempts=2), max_concurrency=3
        )
        self.taken: list[Any] = []
        self.closed = 0

    @property
    def declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name="hand", description="takes", parameters={"type": "object", "properties": {}})

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        self.taken.append((args, tool_context))
        return "taken"

    async def close(self) -> None:
        self.closed += 1


async def test_a_prefix_changes_the_name_and_nothing_else() -> None:
    """The tool under its new name is declared, run and limited as before; closing it does not close the tool."""
    hand = Hand()
    inner = Shelf([hand], tool_name_prefix="left")
    [tool] = await inner.get_tools_with_prefix()
    [twice] = await Shelf([tool], tool_name_prefix="my").get_tools_with_prefix()
    assert (hand.name, tool.name, twice.name) == ("hand", "left_hand", "my_left_hand")
    assert twice.declaration == FunctionDeclaration(
        name="my_left_hand", description="takes", parameters=hand.declaration.parameters
    )
    assert (twice.description, twice.timeout_s, twice.retry, twice.max_concurrency) == (
        "takes",
        7,
        RetryConfig(max_attempts=2),
        3,
    )
    assert twice.limited_as is hand
    context: Any = object()
    assert await twice.run_async(args={"x": 1}, tool_context=context) == "taken"
    assert hand.taken == [({"x": 1}, context)]
    await twice.close()
    assert hand.closed == 0


async def test_a_renamed_tool_keeps_its_rules() -> None:
    """Who has to allow it, what a crash makes of it, whether it waits and what it says to a request hold as before."""

    class Ruled(Hand):
        is_long_running = True

        async def needs_confirmation(self, args: dict[str, Any], tool_context: Any) -> bool:
            return args == {"x": 1}

        async def process_llm_request(self, *, tool_context: Any, llm_request: Any) -> None:
            llm_request.append(tool_context)

        def _is_final_answer(self, response: Mapping[str, Any]) -> bool:
            return response == {"last": True}

    hand = Ruled()
    hand.on_interrupted = "ask"
    hand.require_confirmation = True
    [tool] = await Shelf([hand], tool_name_prefix="left").get_tools_with_prefix()
    context: Any = object()
    request: Any = []
    assert (tool.on_interrupted, tool.require_confirmation, tool.is_long_running) == ("ask", True, True)
    assert await tool.needs_confirmation({"x": 1}, context)
    assert not await tool.needs_confirmation({"x": 2}, context)
    await tool.process_llm_request(tool_context=context, llm_request=request)
    assert request == [context]
    assert tool._is_final_answer({"last": True})
    assert not tool._is_final_answer({})


async def test_an_agent_calls_a_tool_under_its_prefixed_name() -> None:
    """A model is told the new names, its call reaches the tool, and the runner closes the toolset, once."""
    model = ScriptedLlm([call("web_find"), "done"])
    toolset = Shelf([named("find"), named("hide")], tool_filter=["find"], tool_name_prefix="web")
    runner = runner_for(LlmAgent(name="a", model=model, tools=[toolset]))
    events, _ = await run_to_end(runner)
    assert [declared.name for declared in model.requests[0].config.tools] == ["web_find"]
    [answer] = events[1].get_function_responses()
    assert (answer.name, answer.response) == ("web_find", {"result": "find"})
    await runner.close()
    await runner.close()
    assert toolset.closed == 1


async def test_tools_of_one_name_are_refused_by_name() -> None:
    """Two tools that an agent could not tell apart are an error, unless the filter leaves out one kind of them."""
    tools = [named("a"), named("b"), named("b")]
    with pytest.raises(ConfigurationError, match=r"Shelf\.get_tools .* two named b"):
        await names_of(Shelf(tools))
    with pytest.raises(ConfigurationError, match="two named x_b"):
        await names_of(Shelf(tools, tool_name_prefix="x"))
    assert await names_of(Shelf(tools, tool_filter=["a"])) == ["a"]


@pytest.mark.parametrize("found", [None, 5, [len], [named("a"), "b"]])
async def test_what_is_no_list_of_tools_is_refused(found: Any) -> None:
    """A toolset that gives something else than tools fails, whatever the filter would have made of it."""
    with pytest.raises(ConfigurationError, match=r"Shelf\.get_tools to return a list of tools"):
        await names_of(Shelf(found, tool_filter=[]))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tool_filter": "find"}, "tool_filter"),
        ({"tool_filter": 5}, "tool_filter"),
        ({"tool_filter": ["a", 5]}, "tool_filter"),
        ({"tool_name_prefix": ""}, "tool_name_prefix"),
        ({"tool_name_prefix": "1st"}, "tool_name_prefix"),
        ({"tool_name_prefix": "my tools"}, "tool_name_prefix"),
    ],
)
def test_a_toolset_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    """A filter is a list of names or a function; a prefix begins a name."""
    with pytest.raises(ConfigurationError, match=problem):
        Shelf([], **options)


async def test_a_name_that_gets_too_long_is_refused() -> None:
    """A prefix that makes the name longer than providers take is told with the name."""
    with pytest.raises(ConfigurationError, match="x_aaaaaaaa"):
        await names_of(Shelf([named("a" * 63)], tool_name_prefix="x"))


async def test_what_a_toolset_fails_with_is_not_hidden() -> None:
    """An agent that was promised tools does not get an empty list of them when they cannot be had."""
    with pytest.raises(OSError, match="no route"):
        await names_of(Shelf(OSError("no route")))


async def test_exit_loop_ends_the_loop_after_the_response() -> None:
    """A model in a LoopAgent that calls exit_loop is not asked again, and the loop is over."""
    model = ScriptedLlm(["first try", [call("exit_loop")]])
    worker = LlmAgent(name="worker", model=model, tools=[exit_loop])
    events, _ = await run_to_end(runner_for(LoopAgent(name="loop", sub_agents=[worker], max_iterations=9)))
    model.assert_done()
    [answer] = [event for event in events if event.get_function_responses()]
    assert answer.get_function_responses()[0].response == {"result": None}
    assert (answer.actions.escalate, answer.actions.skip_summarization) == (True, True)
    [declared] = model.requests[0].config.tools
    assert declared.name == "exit_loop"
    assert "loop" in declared.description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tool_name_prefix": "a b"},
            "expected tool_name_prefix of up to 64 letters, digits, '_' and '-', found 'a b'; name it",
        ),
        (
            {"tool_name_prefix": 3},
            "expected tool_name_prefix of up to 64 letters, digits, '_' and '-', found 3; name it",
        ),
        ({"tool_filter": "ab"}, "expected tool_filter to be a list of names, or a function of a tool, found 'ab'"),
        ({"tool_filter": [3]}, "expected tool_filter to be a list of names, or a function of a tool, found [3]"),
        ({"sequential": 1}, "expected sequential to be True or False, found 1"),
    ],
)
def test_options_of_a_toolset_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    """When it is made; the error names the option, and what was found."""

    class Empty(BaseToolset):
        async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
            return []

    with pytest.raises(ConfigurationError) as caught:
        Empty(**options)
    assert str(caught.value) == message
