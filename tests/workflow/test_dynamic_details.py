"""Details of nodes that are run by other logic: what of them is kept, refused, begun and told."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from minirun import InvocationContext, LlmAgent, ToolContext
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import InvocationEndedError, NodeRunsLimitExceededError, SecretError
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, RetryConfig
from minirun.workflow import START, NodeContext, node

from ..helpers import PLACE, runner_for, stored_events
from .test_workflow import AT_ONCE, flow, output_of, run_of


def one(node_input: object) -> int:
    """Says 1."""
    return 1


async def test_of_functions_that_are_made_anew_64_are_kept() -> None:
    """The node of the oldest is let go when the 65th is run, so a long loop takes no more room."""
    made: list[weakref.ref[Any]] = []

    async def loop(ctx: NodeContext) -> list[bool]:
        for number in range(66):

            def fresh(node_input: int, number: int = number) -> int:
                return number

            made.append(weakref.ref(fresh))
            await ctx.run_node(fresh, number)
            del fresh
            if number == 63:
                gc.collect()
                assert made[0]() is not None
        gc.collect()
        return [each() is None for each in made[:3]]

    assert await output_of(flow((START, loop))) == [True, True, False]


async def test_twelve_runs_below_each_other_share_a_task() -> None:
    """The runs of nodes that run each other take a task of their own at every twelfth level."""
    tasks: list[Any] = []

    async def level(node_input: int, ctx: NodeContext) -> int:
        tasks.append(trio.lowlevel.current_task())
        return await ctx.run_node(level, node_input - 1) if node_input else 0

    async def top(ctx: NodeContext) -> Any:
        return await ctx.run_node(level, 29)

    await output_of(flow((START, top)))
    shared = [len([task for task in tasks if task is each]) for each in dict.fromkeys(tasks)]
    assert shared == [11, 12, 7]


@pytest.mark.parametrize("items", [2, 5])
async def test_a_limit_of_one_run_refuses_a_second_item(items: int) -> None:
    """More items than nodes may run are refused by name, also where that is one."""

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(one, range(items))

    with pytest.raises(NodeRunsLimitExceededError, match="expected no more items of 'one' than the 1 nodes"):
        await run_of(flow((START, over)), max_node_runs=1)


async def test_without_a_limit_of_runs_there_are_as_many_items_as_are_given() -> None:
    """`max_node_runs=0` is no limit for a map either."""

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(one, range(3))

    assert await output_of(flow((START, over)), max_node_runs=0) == [1, 1, 1]


async def test_no_item_begins_behind_one_that_waits() -> None:
    """With one at a time, the second is begun when the first was answered."""
    begun: list[int] = []

    async def asks(node_input: int, ctx: NodeContext) -> Any:
        begun.append(node_input)
        return await ctx.request_input(f"{node_input}?")

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(asks, [1, 2], max_concurrency=1)

    runner = runner_for(flow((START, over)))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert (begun, len(run.pending)) == ([1], 1)


async def test_no_item_begins_behind_one_that_has_failed() -> None:
    """Also where failures are collected: what runs comes to its end, and nothing new begins."""
    begun: list[int] = []

    async def fails(node_input: int) -> Any:
        begun.append(node_input)
        raise ValueError(node_input)

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(fails, [1, 2], max_concurrency=1, on_failure="collect")

    with pytest.raises(ValueError, match="1"):
        await run_of(flow((START, over)))
    assert begun == [1]


async def test_a_node_whose_name_is_a_secret_is_refused() -> None:
    """A name is shown to everybody: no credential may be one."""

    async def tells(ctx: NodeContext) -> Any:
        secret = AuthCredential("api_key", api_key="hidden_name_4711")
        await ctx.save_credential(AuthConfig("k", scheme="api_key"), secret)
        return await ctx.run_node(one, 1, name="hidden_name_4711")

    with pytest.raises(SecretError, match="name of the node"):
        await run_of(flow((START, tells)))


async def steps_of(logic: Callable[..., Any]) -> list[str]:
    """The last parts of the paths by which the failures of nodes are told in the log."""
    runner = runner_for(flow((START, logic)))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    events = await stored_events(runner)
    return [step.path.rpartition("/")[2] for event in events if (step := event.actions.replay.step) is not None]


async def fails_at_two(node_input: int) -> int:
    """Fails for 2."""
    if node_input == 2:
        raise ValueError("two")
    return node_input


async def test_a_failure_of_an_item_is_told_with_the_items_beside_it() -> None:
    """The record of it names the first and the last of them."""

    async def over(ctx: NodeContext) -> str:
        await ctx.run_node(fails_at_two, 1)
        try:
            await ctx.map(fails_at_two, [1, 2, 3])
        except ValueError:
            return "caught"
        return "nothing"

    assert await steps_of(over) == ["fails_at_two[2:4]"]


async def test_items_of_tasks_beside_each_other_have_no_numbers() -> None:
    """Trio chooses which task is first, so a failure among items is told without the others beside it."""

    async def over(ctx: NodeContext) -> str:
        caught: list[str] = []

        async def part() -> None:
            try:
                await ctx.map(fails_at_two, [2, 5])
            except ValueError as error:
                caught.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(part)
        return caught[0]

    assert await steps_of(over) == ["fails_at_two"]


async def test_a_map_of_nothing_is_an_empty_list() -> None:
    """No item is asked for, so nothing runs."""

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(one, [])

    assert await output_of(flow((START, over))) == []


@pytest.mark.parametrize("attempts", [1, 2])
async def test_the_context_of_a_run_that_has_ended_tells_which_it_was(attempts: int) -> None:
    """What was kept of a node that has ended, or of an attempt that has failed, can do nothing any more."""
    kept: list[InvocationContext] = []

    async def first(ctx: NodeContext) -> int:
        kept.append(ctx)
        if len(kept) < attempts:
            raise ValueError("again")
        return 1

    async def second(node_input: int) -> str:
        told = []
        for ctx in kept:
            with pytest.raises(InvocationEndedError) as caught:
                await ctx.run_node(one, 1)
            told.append(str(caught.value))
        return "; ".join(told)

    wf = flow((START, node(first, retry=AT_ONCE), second))
    said = await output_of(wf)
    if attempts == 2:
        assert "the attempt of the node wf@1/first@1 has ended" in said.partition("; ")[0]
    last = said.rpartition("; ")[2] if attempts == 2 else said
    assert "the node wf@1/first@1 has ended" in last
    assert "attempt" not in last


async def test_an_end_that_is_refused_behind_the_last_attempt_has_its_place() -> None:
    """A failure that leads to a node which cannot take it is told with the path of the run that has failed."""
    late = RetryConfig(max_attempts=2, initial_delay=0, jitter=0)
    seen: list[int] = []

    async def fails(node_input: Any, ctx: NodeContext) -> None:
        seen.append(ctx.attempt_count)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        await run_of(flow((START, node(fails, retry=late))))
    assert seen == [1, 2]
    assert caught.value.__notes__ == ["in the node wf@1/fails@1"]


async def test_a_step_of_a_node_that_was_cut_off_is_not_taken_again(autojump_clock: trio.testing.MockClock) -> None:
    """A tool that had no more time runs the node anew in its next attempt, which comes to its recorded steps."""
    taken: list[str] = []
    begun: list[int] = []

    async def take() -> int:
        taken.append("step")
        return len(taken)

    async def slow(node_input: Any, ctx: NodeContext) -> int:
        begun.append(1)
        number: int = await ctx.step("take", take)
        if len(begun) < 2:
            await trio.sleep_forever()
        return number

    async def use(tool_context: ToolContext) -> Any:
        """Use it."""
        return await tool_context.run_node(slow, 1)

    tool = FunctionTool(use, timeout_s=5, retry=RetryConfig(max_attempts=2, initial_delay=0, jitter=0, exceptions=None))
    agent = LlmAgent(name="clerk", model=ScriptedLlm([call("use"), "done"]), tools=[tool])
    events, _ = await run_of(agent)
    [response] = [each.response for event in events for each in event.get_function_responses()]
    assert response == {"result": 1}
    assert (len(begun), taken) == (2, ["step"])
