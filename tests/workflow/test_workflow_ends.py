"""How a run of a node ends: what is refused at its very end, and what its own code makes of a cancellation."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

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
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Runner,
    ToolContext,
)
from minirun.errors import (
    ConfigurationError,
    MinirunError,
    NodeTimeoutError,
    RouteError,
    SecondOutputError,
    StateSchemaError,
    StrayCancellationError,
    WorkflowError,
)
from minirun.models import LlmResponse
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.workflow import END, FAILED, START, JoinNode, RequestInput, Workflow, node

from ..interruptions import PLACE, failing_commit
from ..resuming import says
from .test_workflow import flow, given, output_of, run_of

AT_ONCE = RetryConfig(max_attempts=3, initial_delay=0, jitter=0)


@attrs.frozen
class Desk:
    """A state."""

    number: int


async def wrong_route(node_input: Any) -> Event:
    """Ends with a route that leads nowhere."""
    return Event(output=1, route="nowhere")


async def wrong_state(node_input: Any) -> Event:
    """Ends with a value that the state cannot have."""
    return Event(output=1, state={"number": "one"})


async def wrong_output(node_input: Any) -> str:
    """Ends with what the workflow cannot give."""
    return "one"


async def told(node_input: Any) -> str:
    """What has failed."""
    return str(node_input["type"])


# --- what is refused at the end is the failure of the node ------------------------------------------------------------


@pytest.mark.parametrize(
    ("wf", "error"),
    [
        (flow((START, wrong_route, {"somewhere": END, FAILED: told})), RouteError),
        (flow((START, wrong_state, {FAILED: told}), state_schema=Desk, output=told), StateSchemaError),
        (flow((START, wrong_output, {FAILED: told}), output_schema={"enum": [1, "WorkflowError"]}), WorkflowError),
    ],
)
async def test_what_is_refused_at_the_end_leads_along_failed(wf: Workflow, error: type[MinirunError]) -> None:
    """A route without an edge, a write that the schema refuses, a bad output of the workflow: each fails the node."""
    assert await output_of(wf) == error.__name__


async def test_a_join_that_misses_one_leads_along_failed() -> None:
    """A join that requires all of its predecessors fails as any node does."""

    async def choose(node_input: Any) -> Event:
        return Event(output=1, route="left")

    async def left(node_input: Any) -> int:
        return 1

    async def right(node_input: Any) -> int:
        return 2

    join = JoinNode(name="both", require_all=True)
    wf = flow((START, choose, {"left": left, "right": right}), ((left, right), join), (join, {FAILED: told}))
    assert await output_of(wf) == "WorkflowError"


def _broken(node_input: Any) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("kind", ["function", "agent"])
async def test_a_workflow_that_goes_on_without_a_node_has_not_failed(kind: str) -> None:
    """Whoever runs it as a part of something is not told the failure that it has dealt with."""
    silent = LlmAgent(name="silent", model=ScriptedLlm([LlmResponse(error_code="SAFETY", error_message="no")] * 2))
    fails: Any = silent if kind == "agent" else _broken
    inner = Workflow(name="inner", edges=[(START, fails, {FAILED: END})])
    assert await output_of(flow((START, inner, given))) == {"given": None}
    model = ScriptedLlm([call("inner", request="go"), "done"])
    events, _ = await run_of(LlmAgent(name="a", model=model, tools=[AgentTool(inner)]))
    [response] = [each for event in events for each in event.get_function_responses()]
    assert "error" not in response.response


async def test_an_output_that_was_not_stored_is_not_the_first_one(autojump_clock: trio.testing.MockClock) -> None:
    """Of two nodes that may give the output one is refused at its end: the other one gives it, and is stored."""

    async def both(node_input: Any) -> Event:
        return Event(route=["x", "y"])

    async def later(node_input: Any) -> int:
        await trio.sleep(1)
        return 2

    wf = flow((START, both, {"x": wrong_state, "y": later}), state_schema=Desk, on_failure="collect")
    runner = InMemoryRunner(app=App("app", wf), auto_create_session=True)
    with pytest.raises(StateSchemaError, match="number"):
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            await run.wait()
    assert [event.output for event in run.session.events if event.node_info.path == "wf@1/later@1"] == [2]


async def test_what_is_refused_at_the_end_is_tried_again() -> None:
    """An attempt whose end is refused is followed by another, which may end otherwise; it has written nothing."""

    async def third(node_input: Any, ctx: InvocationContext) -> Event:
        attempt = ctx.attempt_count
        state: dict[str, Any] = {"number": "one"} if attempt == 2 else {"number": attempt}
        return Event(output=attempt, state=state, route="ok" if attempt > 1 else "nowhere")

    events, run = await run_of(
        flow((START, node(third, retry=AT_ONCE), {"ok": END}), state_schema=Desk, output="third")
    )
    assert run.answer is not None
    assert run.answer.output == 3
    assert run.session.state["number"] == 3
    notes = [event.custom_metadata["node_retry"]["error"] for event in events if event.custom_metadata]
    assert notes == ["RouteError", "StateSchemaError"]


async def test_an_answer_that_is_refused_is_tried_again() -> None:
    """An agent whose answer cannot be the output of the workflow is asked again, as often as its node may be tried."""
    model = ScriptedLlm(["wrong", "right"])
    wf = flow((START, node(LlmAgent(name="sage", model=model), retry=AT_ONCE)), output_schema={"enum": ["right"]})
    events, run = await run_of(wf)
    assert run.answer is not None
    assert run.answer.text == "right"
    assert [event.text for event in events if event.text] == ["right"]
    model.assert_done()


async def test_a_second_output_is_no_failure_of_a_node(autojump_clock: trio.testing.MockClock) -> None:
    """A second output of a workflow is a mistake in its graph: no attempt is made again, and no handler runs."""
    attempts: list[int] = []

    async def second(node_input: Any, ctx: InvocationContext) -> int:
        attempts.append(ctx.attempt_count)
        await trio.sleep(1)
        return 2

    async def first(node_input: Any) -> Event:
        return Event(output=1, route=["a", "b"])

    again = node(second, retry=AT_ONCE)
    wf = flow((START, first, {"a": given, "b": again}), (again, {FAILED: told}))
    with pytest.raises(SecondOutputError, match="expected one output"):
        await run_of(wf)
    assert attempts == [1]


# --- a cancellation that nobody has asked for -------------------------------------------------------------------------


def kept_cancellation() -> Any:
    """A function that raises a Cancelled which it has kept."""

    async def stale(node_input: Any) -> None:
        kept: list[BaseException] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                kept.append(error)
        raise kept[0]

    return stale


@pytest.mark.parametrize("alone", [True, False])
async def test_a_stray_cancellation_fails_the_node(alone: bool) -> None:
    """A Cancelled that a node has kept is its failure: the workflow does not end as if it were complete."""
    first: Any = kept_cancellation() if alone else (kept_cancellation(), given)
    edges = (START, first) if alone else (START, first, JoinNode(name="both"))
    with pytest.raises(StrayCancellationError, match="wf@1/stale@1"):
        await run_of(flow(edges))


async def test_a_stray_cancellation_leads_along_failed() -> None:
    """It is a failure like any other: tried again, and handled."""
    stale = node(kept_cancellation(), retry=AT_ONCE)
    events, run = await run_of(flow((START, stale, {FAILED: told})))
    assert run.answer is not None
    assert run.answer.output == "StrayCancellationError"
    assert sum(event.custom_metadata is not None for event in events) == 2


async def test_a_stray_cancellation_fails_a_map() -> None:
    """An item of a map, and a node that is run, fail by it, too; what runs them may catch that."""

    async def parent(node_input: Any, ctx: InvocationContext) -> list[str]:
        found = []
        for run in (lambda: ctx.map(kept_cancellation(), [1, 2]), lambda: ctx.run_node(kept_cancellation())):
            try:
                await run()
            except StrayCancellationError as error:
                found.append(type(error).__name__)
        return found

    assert await output_of(flow((START, parent))) == ["StrayCancellationError"] * 2


async def test_a_stray_cancellation_fails_a_parallel_agent() -> None:
    """A branch that raises one fails, and with it the ParallelAgent."""

    class Stale(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await kept_cancellation()(None)

    agents = [Stale(name="stale"), LlmAgent(name="other", model=says("hello"))]
    with pytest.raises(StrayCancellationError, match="stale"):
        await run_of(ParallelAgent(name="both", sub_agents=agents))


async def test_a_cancellation_of_a_node_is_no_stray(autojump_clock: trio.testing.MockClock) -> None:
    """What a failing node cancels beside it ends as before: the failure alone is raised."""

    async def fails(node_input: Any) -> None:
        await trio.sleep(1)
        raise ValueError("no")

    async def long(node_input: Any) -> None:
        await trio.sleep(100)

    with pytest.raises(ValueError, match="no"):
        await run_of(flow((START, (fails, long), JoinNode(name="both"))))


# --- another attempt of a workflow that is a node ---------------------------------------------------------------------


@pytest.mark.parametrize("where", ["a node", "run by a node", "inside another"])
async def test_another_attempt_of_a_workflow_goes_on_with_it(where: str) -> None:
    """What has ended in it is not run again, nor what that has run; what has failed is, and what it was beside."""
    runs: list[str] = []

    async def charge(node_input: Any, ctx: InvocationContext) -> str:
        runs.append("charge")
        return "charged"

    async def send(node_input: Any, ctx: InvocationContext) -> Any:
        runs.append("send")
        charged = await ctx.run_node(charge, "again")
        if runs.count("send") < 3:
            raise ConnectionError("down")
        return [node_input, charged]

    async def parent(node_input: Any, ctx: InvocationContext) -> Any:
        return await ctx.run_node(inner, node_input)

    inner = Workflow(name="inner", edges=[(START, charge, send)])
    outer = Workflow(name="outer", edges=[(START, inner)])
    first = {"a node": inner, "run by a node": parent, "inside another": outer}[where]
    assert await output_of(flow((START, node(first, retry=AT_ONCE)))) == ["charged", "charged"]
    assert runs == ["charge", "send", "charge", "send", "send"]


# --- rerun_on_resume=False --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [LlmAgent(name="a", model=says("a")), FunctionTool(told), JoinNode(name="j"), flow((START, given))]
)
def test_what_goes_on_after_each_question_cannot_be_told_not_to(value: Any) -> None:
    """On an agent, a tool, a join or a workflow it has no effect, and is refused by name."""
    with pytest.raises(ConfigurationError, match="rerun_on_resume=False has no effect"):
        node(value, rerun_on_resume=False)


async def test_a_node_that_a_question_ends_cannot_go_on_after_one() -> None:
    """With rerun_on_resume=False a RequestInput ends the node, and ctx.request_input is refused before it asks."""

    async def goes_on(node_input: Any, ctx: InvocationContext) -> Any:
        return await ctx.request_input("What?")

    async def ends(node_input: Any) -> Any:
        yield RequestInput(message="What?")

    with pytest.raises(ConfigurationError, match="wf@1/goes_on@1 has rerun_on_resume=False"):
        await run_of(flow((START, node(goes_on, rerun_on_resume=False))))
    _, run = await run_of(flow((START, node(ends, rerun_on_resume=False, require_confirmation=True))))
    assert [question.hint for question in run.pending] == ["May the node 'ends' run?"]


# --- what a failed attempt has asked ----------------------------------------------------------------------------------


async def answered(root: BaseAgent) -> tuple[list[list[str]], Run]:
    """Run it, and answer what it asks, one after the other; return what was open at each pause."""
    runner = InMemoryRunner(app=App("app", root), auto_create_session=True)
    asked: list[list[str]] = []
    what: dict[str, Any] = {"new_message": "go"}
    while True:
        async with runner.run_async(user_id="u", session_id="s", **what) as run:
            await run.wait()
        if run.status != "paused":
            return asked, run
        asked.append([question.hint for question in run.pending])
        if run.pending:
            what = {"new_message": run.pending[0].reply(f"answer {len(asked)}")}
        else:
            [invocation] = await runner.resume_due(now=9e9)
            async with runner.run_async(user_id="u", session_id="s", invocation_id=invocation.invocation_id) as run:
                await run.wait()
            return asked, run


async def test_a_question_that_an_attempt_gave_up_is_asked_anew() -> None:
    """Another attempt asks the same under another id, and gets the answer to that; so does the one after it."""

    async def gives_up(node_input: Any, ctx: InvocationContext) -> Any:
        if ctx.attempt_count < 3:
            try:
                await ctx.request_input("What?")
            except BaseException:
                raise ValueError("gives it up") from None
        first = await ctx.request_input("What?")
        return [first, await ctx.request_input("What?")]

    asked, run = await answered(flow((START, node(gives_up, retry=AT_ONCE))))
    assert asked == [["What?"], ["What?"]]
    assert run.answer is not None
    assert run.answer.output == ["answer 1", "answer 2"]


@pytest.mark.parametrize("handled", [True, False])
async def test_nobody_is_asked_any_more_what_a_failed_attempt_has_asked(
    handled: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """What was asked in an attempt that took too long is withdrawn, whether another attempt follows or a handler."""
    begun: list[int] = []

    async def item(node_input: Any, ctx: InvocationContext) -> Any:
        if node_input == 1:
            return await ctx.request_input("Which?")
        begun.append(node_input)
        if len(begun) == 1:
            await trio.sleep(100)
        return node_input

    async def both(node_input: Any, ctx: InvocationContext) -> Any:
        return await ctx.map(item, [1, 2])

    async def asks(node_input: Any, ctx: InvocationContext) -> Any:
        return await ctx.request_input(f"What now, after {node_input['type']}?")

    if handled:
        asked, run = await answered(flow((START, node(both, timeout_s=5), {FAILED: asks})))
    else:
        asked, run = await answered(flow((START, node(both, retry=AT_ONCE, timeout_s=5))))
    assert asked == [["What now, after NodeTimeoutError?"]] if handled else [["Which?"]]
    assert run.answer is not None
    assert run.answer.output == ("answer 1" if handled else ["answer 1", 2])


async def asks_or_sleeps(node_input: int, ctx: InvocationContext) -> Any:
    """Asks, as the first item; the other takes long."""
    return await ctx.request_input("Which?") if node_input == 1 else await trio.sleep(100)


async def both(node_input: Any, ctx: InvocationContext) -> Any:
    """Somebody is asked while something else takes long."""
    return await ctx.map(asks_or_sleeps, [1, 2])


@pytest.mark.parametrize("handled", [True, False])
async def test_an_attempt_whose_question_cannot_be_taken_back_is_the_last(
    handled: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """The store refuses to end the question of a failed attempt: neither another attempt follows, nor a handler."""
    attempts: list[int] = []

    async def counted(node_input: Any, ctx: InvocationContext) -> Any:
        attempts.append(ctx.attempt_count)
        return await both(node_input, ctx)

    service = InMemorySessionService()
    failing_commit(service, 3, "refused")  # after the message and the question
    async def handles(node_input: Any) -> None:
        attempts.append(0)

    if handled:
        root = flow((START, node(counted, timeout_s=5), {FAILED: handles}))
    else:
        root = flow((START, node(counted, retry=AT_ONCE, timeout_s=5)))
    runner = Runner(agent=root, app_name="app", session_service=service, auto_create_session=True)
    with pytest.raises(NodeTimeoutError):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert (attempts, run.status, run.pending) == ([1], "failed", [])


@pytest.mark.parametrize("number", [3, 99])
async def test_who_catches_what_a_node_has_failed_with_goes_on_only_without_its_questions(
    number: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Where the store refuses to end them, what is raised has that, too; else the failure is the same in every run."""
    runs: list[list[str]] = []

    class Catches(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                await ctx.run_node(node(both, timeout_s=5), 1)
            except NodeTimeoutError as error:
                runs.append([str(error)])
            runs[-1].append(await ctx.request_input("What now?"))

    service = InMemorySessionService()
    failing_commit(service, number, "refused")  # the first are the message and the question
    runner = Runner(agent=Catches(name="c"), app_name="app", session_service=service, auto_create_session=True)
    with pytest.raises(NodeTimeoutError) if number == 3 else nullcontext():
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    if number == 3:
        assert (run.status, run.pending, runs) == ("failed", [], [])
        return
    [question] = run.pending
    async with runner.run_async(**PLACE, new_message=question.reply("on")) as run:
        await run.wait()
    told = "the node 'both' took longer than timeout_s=5 seconds"
    assert (run.status, runs) == ("completed", [[told], [told, "on"]])


@pytest.mark.parametrize("where", ["node", "tool"])
async def test_what_a_node_or_a_tool_runs_may_wait_for_a_time(where: str) -> None:
    """A child waits, and its next attempt is a long time away: the invocation is paused, and goes on when it is due."""

    async def child(node_input: int, ctx: InvocationContext) -> int:
        if ctx.attempt_count == 1:
            raise ValueError("later")
        await ctx.sleep_until(4e9 + node_input)
        return node_input

    later = node(child, retry=RetryConfig(max_attempts=2, initial_delay=1000, max_delay=1000, jitter=0))

    async def parent(node_input: Any, ctx: InvocationContext) -> Any:
        return await ctx.map(later, [1, 2])

    async def tool(tool_context: ToolContext) -> Any:
        """Run both."""
        return await tool_context.map(later, [1, 2])

    _, run = await answered(flow((START, parent if where == "node" else FunctionTool(tool))))
    assert run.answer is not None
    assert (run.status, run.answer.output) == ("completed", [1, 2])


def test_a_node_that_has_timed_out_has_no_error_number() -> None:
    """It is a TimeoutError, so an OSError: its arguments, from which it is made again, are none of the system's."""
    error = NodeTimeoutError("both", 5.0)
    assert (error.errno, error.strerror, error.args) == (None, None, ("both", 5.0))
    assert str(pickle.loads(pickle.dumps(error))) == "the node 'both' took longer than timeout_s=5.0 seconds"
