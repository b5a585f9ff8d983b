"""What a workflow does, by example: routes, joins, lanes, failures, people, agents, tools, and where it may stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import (
    ConfigurationError,
    InvalidValueError,
    MinirunError,
    ModelError,
    NodeInputError,
    NodeRejectedError,
    NodeRunsLimitExceededError,
    NodeTimeoutError,
    RouteError,
    StateSchemaError,
    WorkflowConfigurationError,
    WorkflowError,
)
from minirun.events import EventActions
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, RetryConfig
from minirun.types import Content
from minirun.workflow import DEFAULT_ROUTE, END, FAILED, START, Edge, JoinNode, Node, RequestInput, Workflow, node

from ..resuming import says

AT_ONCE = RetryConfig(max_attempts=3, initial_delay=0, jitter=0)


def flow(*edges: Any, **fields: Any) -> Workflow:
    """A workflow with these edges."""
    return Workflow(name="wf", edges=edges, **fields)


async def run_of(root: Any, message: str = "go", **config: Any) -> tuple[list[Event], Run]:
    """Run to the end; what fails is raised."""
    app = App("app", root)
    runner = InMemoryRunner(app=app, auto_create_session=True)
    async with runner.run_async(
        user_id="u", session_id="s", new_message=message, run_config=RunConfig(**config)
    ) as run:
        events = [event async for event in run]
    return events, run


async def output_of(root: Any, message: str = "go", **config: Any) -> Any:
    """What a workflow comes to."""
    _, run = await run_of(root, message, **config)
    assert run.status == "completed"
    return None if run.answer is None else run.answer.output


async def given(node_input: Any) -> Any:
    """Hands on what it was given."""
    return {"given": node_input.text if isinstance(node_input, Content) else node_input}


async def ends(node_input: Any) -> Any:
    """Hands on what it was given."""
    return node_input.text if isinstance(node_input, Content) else node_input


def route(where: Any, output: Any = None) -> Callable[..., Any]:
    """A node that takes a route."""

    async def choose(node_input: Any) -> Event:
        return Event(output=output, route=where)

    return choose


# --- values -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ticket:
    """What a node gives to the next."""

    text: str
    urgent: bool = False


async def test_nodes_give_each_other_values() -> None:
    """A class that a node returns is JSON in the log, and the class again for whom its annotation says so."""

    def read(node_input: str) -> Ticket:
        return Ticket(node_input, urgent=True)

    async def answer(ticket: Ticket) -> str:
        assert isinstance(ticket, Ticket)
        return f"{ticket.text} {ticket.urgent}"

    events, run = await run_of(flow((START, read, answer)))
    assert events[0].output == {"text": "go", "urgent": True}
    assert run.answer is not None
    assert run.answer.output == "go True"


async def test_what_is_no_json_is_refused_at_the_node() -> None:
    """The path of the value is in the message, and nothing is stored of it."""

    async def lookup(node_input: Any) -> Any:
        return [{"when": object()}]

    with pytest.raises(InvalidValueError, match=r"output of 'lookup'\[0\]\['when'\]"):
        await run_of(flow((START, lookup)))


async def test_a_route_alone_hands_the_input_on() -> None:
    """None is what a node has returned, and not what it has left out."""

    async def nothing(node_input: Any) -> None:
        return None

    assert await output_of(flow((START, route("x"), {"x": given}))) == {"given": "go"}
    assert await output_of(flow((START, nothing, given))) == {"given": None}


async def test_the_example_of_the_documents() -> None:
    """A parameter that is no key of the state is the input; the route and the state go with the end of the node."""

    @node(rerun_on_resume=True)
    async def classify_and_route(user_msg: str, ctx: Any) -> Any:
        intent = "billing" if "invoice" in user_msg.lower() else "support"
        yield Event(state={"last_intent": intent}, route=intent)

    wf = flow((START, classify_and_route, {"billing": ends, "support": given}))
    events, _ = await run_of(wf, "my invoice")
    assert events[0].node_info.path == "wf@1/classify_and_route@1"
    assert (events[0].node_info.name, events[0].node_info.run_id) == ("classify_and_route", "1")
    assert events[0].actions.state_delta == {"last_intent": "billing"}
    assert [event.is_final_response() for event in events] == [False, True]


# --- routes and outputs -----------------------------------------------------------------------------------------------


async def test_a_route_that_matches_nothing_is_an_error() -> None:
    """It names the node and the routes there are, and the end of the node is not stored."""
    stored: list[Event] = []

    class Look(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                await flow((START, route("z"), {"x": given, "y": ends})).run_async(ctx)
            finally:
                stored.extend(ctx.session.events)

    with pytest.raises(RouteError, match=r"'choose@1'.*'x', 'y'.*found the route 'z'"):
        await run_of(Look(name="look"))
    assert not any(event.actions.replay.ended for event in stored)


async def test_true_is_not_one() -> None:
    """Routes match by type and value."""
    choose = route(True, 5)
    assert await output_of(flow((START, choose, {1: ends}), Edge(choose, given, route=True))) == {"given": 5}


async def test_a_second_output_is_refused_before_it_is_stored() -> None:
    """A workflow has one, or says whose."""

    async def spread(node_input: Any) -> Event:
        return Event(output=1, route=["a", "b"])

    async def a(node_input: Any) -> str:
        return "a"

    async def b(node_input: Any) -> str:
        return "b"

    edges = (START, spread, {"a": a, "b": b})
    with pytest.raises(WorkflowError, match="one output"):
        await run_of(flow(edges))
    assert await output_of(flow(edges, output=a)) == "a"


@pytest.mark.parametrize("given", [[1, None], [None, 1], [1, None, None]], ids=str)
async def test_none_is_no_output_of_a_workflow_wherever_it_runs(given: list[int | None]) -> None:
    """The named node has given 1, and then nothing more: 1 is the answer of a run, and what a node after it gets."""

    def made() -> Workflow:
        left = list(given)

        def gives() -> int | None:
            return left.pop(0)

        def turns() -> Event:
            return Event(route="again" if left else "done")

        def after() -> int:
            return 9

        return flow((START, gives, turns, {"again": gives, "done": after}), output=gives)

    def shown(node_input: Any) -> dict[str, Any]:
        return {"given": node_input}

    assert await output_of(made()) == 1
    assert await output_of(Workflow(name="outer", edges=[(START, made(), shown)])) == {"given": 1}


async def test_only_the_end_of_the_workflow_is_final() -> None:
    """Who stops at the first final response has the answer."""

    async def speak(node_input: Any, ctx: InvocationContext) -> str:
        await ctx.emit(Event(message="on my way"))
        return "spoken"

    inner = Workflow(name="inner", edges=[(START, speak)])
    events, run = await run_of(flow((START, speak, inner, LlmAgent(name="last", model=says("the end")))))
    assert [event.text for event in events if event.is_final_response()] == ["the end"]
    assert run.answer is not None
    assert run.answer.text == "the end"


async def test_a_branch_may_end_quietly() -> None:
    """END is where nothing follows."""
    assert await output_of(flow((START, route("no", 1), {"yes": given, DEFAULT_ROUTE: END}))) == 1


# --- joins ------------------------------------------------------------------------------------------------------------


async def test_a_join_has_the_order_of_its_edges(autojump_clock: trio.testing.MockClock) -> None:
    """Whoever ends first; who was not chosen is left out, who returned None is None."""

    async def slow(node_input: Any) -> str:
        await trio.sleep(2)
        return "slow"

    async def quick(node_input: Any) -> None:
        return None

    spread = route(["slow", "quick"], 1)
    edges = [(START, spread, {"slow": slow, "quick": quick, "never": ends}), ((slow, quick, ends), JoinNode(name="j"))]
    assert list((await output_of(Workflow(name="wf", edges=edges))).items()) == [("slow", "slow"), ("quick", None)]
    edges[1] = ((slow, quick, ends), JoinNode(name="j", require_all=True))
    with pytest.raises(WorkflowError, match="'ends' can come no more"):
        await run_of(Workflow(name="wf", edges=edges))


async def test_a_join_reduces_in_order() -> None:
    """From the initial value, in the order of the edges."""

    async def one(node_input: Any) -> int:
        return 1

    async def two(node_input: Any) -> int:
        return 2

    join = JoinNode(name="j", reduce=lambda value, output: [*value, output], initial=[])
    assert await output_of(flow((START, (one, two), join))) == [1, 2]


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_failure_is_the_nodes_own() -> None:
    """The run raises what the node has raised, with a note of where; what it has written is not stored."""

    async def fail(node_input: Any, ctx: InvocationContext) -> None:
        ctx.state["written"] = 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        await run_of(flow((START, fail)))
    assert "in the node wf@1/fail@1" in caught.value.__notes__


async def test_a_failure_is_one_event_of_its_node() -> None:
    """The event names the node, whose failure it is, and is no final response; so for an outcome that is refused."""

    async def fail(node_input: Any) -> None:
        raise KeyError("mine")

    inner = Workflow(name="inner", edges=[(START, fail)])
    for root, path, code in (
        (flow((START, fail)), "wf@1/fail@1", "KeyError"),
        (flow((START, inner)), "wf@1/inner@1/fail@1", "KeyError"),
        (flow((START, route("z"), {"x": given})), "wf@1/choose@1", "RouteError"),
        (flow((START, given), output_schema=int), "wf@1/given@1", "WorkflowError"),
    ):
        runner = InMemoryRunner(root, app_name="app", auto_create_session=True)
        with pytest.raises((KeyError, WorkflowError)):
            async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
                await run.wait()
        session = await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")
        assert session is not None
        [error] = [event for event in session.events if event.error_code]
        assert (error.node_info.path, error.error_code, error.is_final_response()) == (path, code, False)


async def test_attempts_drop_what_they_have_written(autojump_clock: trio.testing.MockClock) -> None:
    """A step is taken once, and what a failed attempt left behind is gone."""
    taken: list[int] = []

    async def take() -> int:
        taken.append(1)
        return 1

    @node(retry=RetryConfig(max_attempts=3, jitter=0))
    async def often(node_input: Any, ctx: InvocationContext) -> list[Any]:
        before = ctx.state.get("attempt")
        await ctx.step("take", take)
        ctx.state["attempt"] = ctx.attempt_count
        if ctx.attempt_count < 3:
            raise ValueError
        return [before, ctx.attempt_count]

    start = trio.current_time()
    events, run = await run_of(flow((START, often)))
    assert run.answer is not None
    assert run.answer.output == [None, 3]
    assert taken == [1]
    assert trio.current_time() - start == pytest.approx(3, abs=0.1)  # the clock of due times runs on
    notes = [event.custom_metadata["node_retry"] for event in events if event.custom_metadata]
    assert [(note["attempt"], note["max_attempts"], note["error"]) for note in notes] == [
        (1, 3, "ValueError"),
        (2, 3, "ValueError"),
    ]
    assert not any(event.is_final_response() for event in events[:-1])


async def test_a_failure_may_have_a_route() -> None:
    """The handler is told what has failed, and with what input."""

    async def fail(node_input: str) -> None:
        raise ValueError("no")

    told = await output_of(flow((START, fail, {FAILED: given, DEFAULT_ROUTE: END})))
    assert told == {"given": {"type": "ValueError", "message": "no", "input": "go"}}


async def test_a_limit_of_time_is_one_of_each_attempt(autojump_clock: trio.testing.MockClock) -> None:
    """What takes longer is cancelled; an attempt may follow."""

    @node(retry=AT_ONCE, timeout_s=5)
    async def slow(node_input: Any, ctx: InvocationContext) -> int:
        await trio.sleep(10 if ctx.attempt_count < 3 else 1)
        return ctx.attempt_count

    start = trio.current_time()
    assert await output_of(flow((START, slow))) == 3
    assert trio.current_time() - start == pytest.approx(11)
    with pytest.raises(NodeTimeoutError, match=r"'slow' took longer than timeout_s=5") as caught:
        await run_of(flow((START, node(slow, retry=None))))
    assert (caught.value.node_name, caught.value.timeout) == ("slow", 5)


async def test_a_thread_that_takes_too_long_is_no_success() -> None:
    """A synchronous function runs in a thread, and what comes too late is dropped."""

    def sleep(node_input: Any) -> str:
        time.sleep(0.05)
        return "late"

    with pytest.raises(NodeTimeoutError):
        await run_of(flow((START, node(sleep, timeout_s=0.01))))


async def test_others_come_to_their_end_if_that_is_asked_for(autojump_clock: trio.testing.MockClock) -> None:
    """Nothing new is started after a failure."""
    done: list[str] = []

    async def fail(node_input: Any) -> None:
        raise ValueError

    async def slow(node_input: Any) -> str:
        await trio.sleep(1)
        done.append("slow")
        return "slow"

    async def after(node_input: Any) -> None:
        done.append("after")

    for on_failure, expected in (("cancel_others", []), ("collect", ["slow"])):
        stored: list[Event] = []
        wf = flow((START, fail), (START, slow, after), on_failure=on_failure, output=after)
        with pytest.raises(ValueError) as caught:  # noqa: PT011 # it has no words
            await run_of(Keeping(name="keeping", sub_agents=[wf], stored=stored))
        assert caught.value.__notes__ == ["in the node keeping@1/wf@1/fail@1"]
        assert done == expected
        assert [event.output for event in stored if event.actions.replay.ended] == expected


class Keeping(BaseAgent):
    """Runs an agent, and keeps what is stored when that has ended, whichever way."""

    stored: Any

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        try:
            await self.sub_agents[0].run_async(ctx)
        finally:
            self.stored.extend(ctx.session.events)


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_loop_has_an_end() -> None:
    """`RunConfig.max_node_runs` counts all runs of nodes, those of nested workflows too."""
    async def again(node_input: Any) -> Event:
        return Event(output=1, route="again")

    with pytest.raises(NodeRunsLimitExceededError, match="has run nodes 20 times"):
        await run_of(flow((START, again, {"again": again})), max_node_runs=20)


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_no_more_at_once_than_that(limit: int, autojump_clock: trio.testing.MockClock) -> None:
    """Nodes that are run by nodes count, and a node that waits for them does not."""
    now = most = 0

    async def work(node_input: Any) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(1)
        now -= 1
        return 1

    async def parent(ctx: InvocationContext) -> int:
        return sum(await ctx.map(work, [1, 2, 3]))

    parents = [node(parent, name=f"parent{number}") for number in range(3)]
    wf = flow((START, (*parents, work), JoinNode(name="all")), max_concurrency=limit)
    assert await output_of(wf) == {"parent0": 3, "parent1": 3, "parent2": 3, "work": 1}
    assert most <= limit


# --- people -----------------------------------------------------------------------------------------------------------


async def test_a_node_needs_permission() -> None:
    """Somebody is asked first; who says no has the node fail."""
    for says_yes in (True, False):
        runner = InMemoryRunner(
            flow((START, node(given, require_confirmation=True))), app_name="app", auto_create_session=True
        )
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            await run.wait()
        [question] = run.pending
        scope = runner.run_async(user_id="u", session_id="s", new_message=question.reply(says_yes))
        if says_yes:
            async with scope as run:
                answer = await run.wait()
                assert answer is not None
                assert answer.output == {"given": "go"}
        else:
            with pytest.raises(NodeRejectedError):
                async with scope as run:
                    await run.wait()


# --- where it may stand -----------------------------------------------------------------------------------------------


async def test_it_is_an_agent_as_others_are() -> None:
    """In a sequence, side by side, in a loop that a node ends, as a tool, as whom somebody hands over to."""

    async def escalate(ctx: InvocationContext) -> int:
        ctx.actions.escalate = True
        return 1

    async def after(ctx: InvocationContext) -> int:
        raise AssertionError

    ending = Workflow(name="ending", edges=[(START, escalate, after)])
    events, _ = await run_of(LoopAgent(name="loop", sub_agents=[ending, LlmAgent(name="no", model=says("no"))]))
    assert [event.output for event in events] == [1]
    one, two = (Workflow(name=name, edges=[(START, given)]) for name in ("one", "two"))
    events, _ = await run_of(ParallelAgent(name="both", sub_agents=[one, two]))
    assert len(events) == 2
    events, run = await run_of(SequentialAgent(name="all", sub_agents=[one, LlmAgent(name="last", model=says("x"))]))
    assert run.answer is not None
    assert run.answer.text == "x"
    asks = LlmAgent(
        name="asks", model=ScriptedLlm([call("one", request="please"), "done"]), tools=[AgentTool(one)]
    )
    events, run = await run_of(asks)
    assert events[-2].get_function_responses()[0].response == {"given": "please"}
    hands = LlmAgent(
        name="hands", model=ScriptedLlm([call("transfer_to_agent", agent_name="one")]), sub_agents=[one]
    )
    events, run = await run_of(hands)
    assert run.answer is not None
    assert run.answer.output is not None


async def test_the_invocation_may_end_in_a_node() -> None:
    """Then nothing more is started."""

    async def stop(ctx: InvocationContext) -> int:
        ctx.end_invocation = True
        return 1

    events, run = await run_of(flow((START, stop, given)))
    assert [event.output for event in events] == [1]
    assert run.status == "completed"


async def test_a_node_may_be_the_root() -> None:
    """Of an app, and of a runner, which takes one of the three."""

    async def double(node_input: str) -> str:
        return 2 * node_input

    assert await output_of(node(double)) == "gogo"
    runner = InMemoryRunner(node=double, app_name="app", auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="x") as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == "xx"
    with pytest.raises(ConfigurationError, match="exactly one of app=, agent= and node=, found agent= and node="):
        InMemoryRunner(LlmAgent(name="a", model=says("x")), node=double, app_name="app")


async def test_a_tool_and_an_agent_run_nodes() -> None:
    """Outside of workflows, too; what runs there is in a branch that no prompt shows."""
    seen: list[str] = []

    async def half(node_input: int) -> float:
        return node_input / 2

    async def ask(tool_context: ToolContext) -> str:
        """Ask."""
        helper = LlmAgent(name="helper", model=says("helped"))
        return f"{await tool_context.run_node(half, 3)} {await tool_context.run_node(helper, 'help')}"

    def answer(request: Any) -> Any:
        seen.append(str(request.contents))
        return "done" if request.contents[-1].responses else call("ask")

    class Parent(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            halves = await ctx.map(half, [2, 4])
            one = LlmAgent(name="one", model=says("secret"))
            said = await ctx.run_node(one, {"x": 1})
            await ctx.emit(Event(message=f"{halves} {said}"))

    agent = LlmAgent(name="asks", model=ScriptedLlm(answer), tools=[ask])
    events, run = await run_of(SequentialAgent(name="all", sub_agents=[Parent(name="parent"), agent]))
    assert any(event.text == "[1.0, 2.0] secret" for event in events)
    responses = [one.response for event in events for one in event.get_function_responses()]
    assert responses == [{"result": "1.5 helped"}]
    assert "said: secret" not in "".join(seen)
    assert "helped" not in seen[0]
    assert run.answer is not None
    assert run.answer.text == "done"


async def test_an_agent_is_given_its_input_and_nothing_else() -> None:
    """What was said before, and beside it, is not shown; its text or its output is the output."""
    asked: list[Any] = []

    def answer(request: Any) -> str:
        asked.append([content.text for content in request.contents])
        return "heard"

    async def first(node_input: Any) -> dict[str, int]:
        return {"n": 1}

    zero, one = LlmAgent(name="zero", model=says("zero")), LlmAgent(name="a", model=ScriptedLlm(answer))
    wf = flow((START, zero, first, one, ends))
    assert await output_of(wf) == "heard"
    assert asked == [['{"n":1}']]


async def test_a_model_that_fails_fails_the_node() -> None:
    """An answer that is an error is none."""
    from minirun.models import LlmResponse

    broken = ScriptedLlm(lambda request: LlmResponse(error_code="SAFETY", error_message="no"))
    with pytest.raises(ModelError, match="SAFETY"):
        await run_of(flow((START, LlmAgent(name="a", model=broken), given)))


async def test_a_tool_is_a_node() -> None:
    """Its call is stored and answered; what it fails with fails the node."""

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def numbers(node_input: Any) -> dict[str, int]:
        return {"a": 1, "b": 2}

    events, run = await run_of(flow((START, numbers, FunctionTool(add))))
    assert run.answer is not None
    assert run.answer.output == 3
    assert [len(event.get_function_calls()) for event in events] == [0, 1, 0, 0]

    def fail(given: str) -> int:
        """Fail."""
        raise ValueError("no")

    with pytest.raises(MinirunError, match="ValueError: no"):
        await run_of(flow((START, given, FunctionTool(fail))))


# --- what is refused when it is made ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: flow((given, ends)), "START"),
        (lambda: flow((START, given), (ends, given)), "ends"),
        (lambda: flow((START, 5)), "expected a function, an agent, a tool, a toolset or a node"),
        (lambda: flow((START, given), (START, given)), "given"),
        (lambda: flow((START, given), max_concurrency=0), "Workflow.max_concurrency: expected an integer from 1 up"),
        (lambda: flow((START, given), on_failure="no"), "on_failure"),
        (lambda: flow((START, node(given, name="a"), node(ends, name="a"))), "two nodes are called 'a'"),
        (lambda: flow((START, (given, ends))), "output"),
        (lambda: node(given, max_parallel_workers=2), "parallel_worker"),
        (lambda: node(given, timeout_s=0), "timeout_s"),
        (lambda: node(given, retry=3), "FunctionNode.retry: expected a RetryConfig or None"),
        (lambda: flow((START, given), retry=3), "Workflow.retry: expected a RetryConfig or None"),
        (lambda: flow((START, given), input_schema=5), "input_schema"),
        (lambda: flow((START, given), output_schema=5), "output_schema"),
        (lambda: node(given, retry=AT_ONCE, retry_config=RetryConfig()), "retry_config, which is the same"),
        (lambda: node(lambda node_input: 1), "name"),
    ],
)
def test_what_could_not_run_is_refused(make: Callable[[], Any], words: str) -> None:
    """By name, when it is made."""
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_names_of_the_peer_are_read() -> None:
    """`retry_config` and `timeout` are `retry` and `timeout_s`; an unknown field is refused."""
    made = node(given, retry_config=AT_ONCE, timeout=3)
    assert (made.retry, made.timeout_s) == (AT_ONCE, 3)
    with pytest.raises(TypeError, match="bogus"):
        flow((START, given), bogus=1)
    assert Workflow(name="wf", edges=[Edge(START, given)]).retry is None


class Fetch(Node):
    """A node that is a class."""

    url: str

    async def run_node_impl(self, *, ctx: Any, node_input: Any) -> str:
        return f"{self.url} {node_input.text}"


async def test_a_class_may_be_a_node() -> None:
    """With fields of its own."""
    assert await output_of(flow((START, Fetch(name="fetch", url="x")))) == "x go"


async def test_a_question_as_a_value() -> None:
    """What is yielded ends the node, with the answer as its output; what follows is not run."""

    async def ask(node_input: Any) -> Any:
        yield RequestInput(message="What?", payload={"a": 1})
        raise AssertionError

    runner = InMemoryRunner(flow((START, ask, given)), app_name="app", auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()
    assert (run.status, run.pending[0].hint, run.pending[0].payload) == ("paused", "What?", {"a": 1})
    async with runner.run_async(user_id="u", session_id="s", new_message=run.pending[0].reply("that")) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == {"given": "that"}


async def test_nothing_is_run_again_that_has_ended() -> None:
    """An invocation that is completed yields nothing, and has its answer."""
    runs: list[int] = []

    async def once(node_input: Any) -> int:
        runs.append(1)
        return 1

    runner = InMemoryRunner(flow((START, once)), app_name="app", auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()
    async with runner.run_async(user_id="u", session_id="s", invocation_id=run.invocation_id) as again:
        assert [event async for event in again] == []
    assert (again.status, again.answer and again.answer.output, runs) == ("completed", 1, [1])


async def test_a_route_outside_of_workflows_is_refused() -> None:
    """It would mean nothing."""

    class Speaks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(actions=EventActions(route="x")))

    with pytest.raises(MinirunError, match="route"):
        await run_of(Speaks(name="speaks"))


# --- the state --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Desk:
    """What stands in the state of a desk."""

    city: str = ""
    count: int = 0


async def test_a_state_has_a_schema() -> None:
    """Parameters are its fields; what does not fit is not written; inside of another, fields of both are known."""

    async def write(node_input: str, ctx: InvocationContext) -> int:
        with pytest.raises(StateSchemaError, match=r"town.*city"):
            ctx.state["town"] = "Rome"
        with pytest.raises(StateSchemaError, match="count"):
            ctx.state["count"] = "1"
        ctx.state["city"] = node_input
        return 1

    async def read(text: int, city: str) -> str:
        return f"{text} {city}"

    wf = flow((START, write, read), state_schema=Desk)
    assert await output_of(wf) == "1 go"

    async def other(ctx: InvocationContext) -> str:
        ctx.state["other"] = 1
        return "done"

    @attrs.frozen
    class Other:
        other: int = 0

    inner = Workflow(name="inner", edges=[(START, write, other)], state_schema=Other)
    assert await output_of(flow((START, inner), state_schema=Desk)) == "done"
    with pytest.raises(WorkflowConfigurationError, match="town"):
        flow((START, two_strangers), state_schema=Desk)


async def two_strangers(town: str, village: str) -> None:
    """Its parameters come from nowhere."""


async def test_nothing_begins_after_a_failure(autojump_clock: trio.testing.MockClock) -> None:
    """A node that waits for a place does not begin, and what ends in spite of its cancellation is not stored."""
    begun: list[str] = []
    stored: list[Event] = []

    async def fail(node_input: Any) -> None:
        await trio.sleep(1)
        raise ValueError("mine")

    async def waits(node_input: Any) -> None:
        begun.append("waits")

    async def stubborn(node_input: Any) -> str:
        try:
            await trio.sleep(5)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
        return "in spite of it"

    class Looks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                lanes = (fail, stubborn, waits)
                await flow((START, lanes, JoinNode(name="j")), max_concurrency=2).run_async(ctx)
            finally:
                stored.extend(ctx.session.events)

    with pytest.raises(ValueError, match="mine"):
        await run_of(Looks(name="looks"))
    assert begun == []
    assert not any(event.actions.replay.ended for event in stored)


async def test_an_agent_may_answer_false() -> None:
    """What its schema allows is its output, and is not taken for nothing."""

    def look(callback_context: Any) -> None:
        """So that its answer is not the end of the node."""

    model = ScriptedLlm(lambda request: "false")
    judge = LlmAgent(name="judge", model=model, output_schema=bool, after_agent_callback=look)
    assert await output_of(flow((START, judge, given))) == {"given": False}


async def test_what_has_ended_is_not_run_again_by_another_attempt() -> None:
    """Nodes that a node, or a tool, runs: once each, however often that is attempted, and whatever it asks then."""
    runs: list[int] = []

    async def charge(node_input: int) -> int:
        runs.append(node_input)
        return node_input

    @node(retry=AT_ONCE)
    async def parent(node_input: Any, ctx: InvocationContext) -> list[Any]:
        done = [await ctx.run_node(charge, 1), *(await ctx.map(charge, [2, 3]))]
        if ctx.attempt_count < 3:
            raise ValueError
        return [*done, await ctx.request_input("And?")]

    runner = InMemoryRunner(flow((START, parent)), app_name="app", auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()
    async with runner.run_async(user_id="u", session_id="s", new_message=run.pending[0].reply("so")) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == [1, 2, 3, "so"]
    assert sorted(runs) == [1, 2, 3]
    runs.clear()
    tries: list[int] = []

    async def pay(tool_context: ToolContext) -> int:
        """Pay."""
        paid: int = await tool_context.run_node(charge, 7)
        tries.append(paid)
        if len(tries) < 3:
            raise ValueError
        return paid

    model = ScriptedLlm([call("pay"), "done"])
    await run_of(LlmAgent(name="a", model=model, tools=[FunctionTool(pay, retry=AT_ONCE)]))
    assert (runs, tries) == ([7], [7, 7, 7])


async def test_each_item_has_its_attempts() -> None:
    """A node that is run for each item is not run again as a whole."""
    tries: list[int] = []

    @node(parallel_worker=True, retry=AT_ONCE)
    async def work(node_input: int) -> int:
        tries.append(node_input)
        if node_input == 2:
            raise ValueError("two")
        return node_input

    async def three(node_input: Any) -> list[int]:
        return [1, 2, 3]

    with pytest.raises(ValueError, match="two"):
        await run_of(flow((START, three, work), on_failure="collect"))
    assert tries.count(2) == 3
    assert max(tries.count(1), tries.count(3)) == 1


async def test_a_failure_deep_inside_is_itself() -> None:
    """No group: in a map, in a workflow inside, for who handles it, and for who decides about another attempt."""
    attempts: list[int] = []

    async def fail(node_input: Any) -> None:
        attempts.append(1)
        raise KeyError("mine")

    async def catches(ctx: InvocationContext) -> str:
        try:
            await ctx.map(fail, [1])
        except KeyError:
            pass
        try:
            await ctx.run_node(Workflow(name="inner", edges=[(START, fail)]), 1)
        except KeyError:
            return "caught"
        return "not caught"

    assert await output_of(flow((START, catches))) == "caught"
    inner = Workflow(name="inner", edges=[(START, fail)])
    attempts.clear()
    retried = node(inner, retry=RetryConfig(max_attempts=2, initial_delay=0, exceptions=[KeyError]))
    told = await output_of(flow((START, retried, {FAILED: given, DEFAULT_ROUTE: END})))
    assert (told["given"]["type"], len(attempts)) == ("KeyError", 2)


async def test_the_end_of_an_invocation_takes_questions_back() -> None:
    """A lane that asks does not keep an invocation open that another lane has ended."""

    async def ask(ctx: InvocationContext) -> Any:
        return await ctx.request_input("What?")

    async def stop(ctx: InvocationContext) -> int:
        ctx.end_invocation = True
        return 1

    _, run = await run_of(flow((START, (ask, stop), JoinNode(name="j"))))
    assert (run.status, run.pending) == ("completed", [])


async def test_a_failure_that_is_caught_stays_one() -> None:
    """What its parent has made of it was said already: it is raised again, and not tried again."""
    runs: list[int] = []

    async def fails_once(node_input: int) -> str:
        runs.append(node_input)
        if len(runs) == 1:
            raise ValueError("once")
        return "fine"

    class Parent(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                said = await ctx.run_node(fails_once, 1)
            except ValueError as error:
                said = f"caught {error}"
            await ctx.emit(Event(message=f"{said} {await ctx.request_input(f'Go on with {said}?')}"))

    async def parent(ctx: InvocationContext) -> str:
        try:
            return str(await ctx.run_node(fails_once, 1))
        except ValueError as error:
            return f"caught {error} {await ctx.request_input('Go on?')}"

    for root in (Parent(name="parent"), flow((START, parent))):
        runs.clear()
        runner = InMemoryRunner(root, app_name="app", auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            await run.wait()
        async with runner.run_async(user_id="u", session_id="s", new_message=run.pending[0].reply("yes")) as run:
            answer = await run.wait()
        assert answer is not None
        assert (answer.output or answer.text, runs) == ("caught once yes", [1])


async def test_a_workflow_is_given_what_its_schema_says() -> None:
    """The user's words, or what the node before it gives, read in one way; what does not fit is refused."""
    inner = Workflow(name="inner", edges=[(START, ends)], input_schema=list[int])
    assert await output_of(inner, "[1, 2]") == [1, 2]

    async def numbers(node_input: Any) -> list[int]:
        return [3]

    assert await output_of(flow((START, numbers, inner))) == [3]
    with pytest.raises(NodeInputError, match="input of workflow 'inner'"):
        await run_of(inner, "no numbers")
    assert await output_of(Workflow(name="text", edges=[(START, ends)], input_schema=str), "words") == "words"


@pytest.mark.parametrize("name", ["_run_async_impl", "_run_impl"])
def test_a_workflow_has_no_logic_but_its_graph(name: str) -> None:
    """A subclass that overrides how it runs is refused by name; one with fields and methods is a workflow."""

    async def own(self: Workflow, ctx: InvocationContext) -> None:
        await ctx.run_node(given, 1)

    class Desk(Workflow):
        size: int = 1

    assert Desk(name="desk", edges=[(START, given)], size=2).size == 2
    for bases in ((Workflow,), (type("Mixin", (), {name: own}), Desk)):
        with pytest.raises(WorkflowConfigurationError, match=f"class Own: .* found a `{name}` of its own"):
            type("Own", bases, {name: own} if bases == (Workflow,) else {})


async def test_what_an_agent_runs_in_a_later_round_is_run() -> None:
    """Two nodes that an agent runs in each round of a loop are two, in the second round as in the first."""

    class Runs(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            outputs = [await ctx.run_node(given, number) for number in (1, 2)]
            await ctx.emit(Event(output=outputs))

    events, _ = await run_of(LoopAgent(name="twice", sub_agents=[Runs(name="runs")], max_iterations=2))
    said = [event.output for event in events if event.node_info.output_for is None]
    assert said == [[{"given": 1}, {"given": 2}]] * 2
