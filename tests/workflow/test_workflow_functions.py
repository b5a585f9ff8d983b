"""What a node's logic gives, whatever kind of function it is; what it is called with; and how its attempts are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from minirun import App, BaseAgent, Event, InMemoryRunner, InvocationContext
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import ConfigurationError, InvalidValueError, MinirunError, NodeRejectedError, NodeTimeoutError
from minirun.runtime import Run
from minirun.tools import FunctionTool, RetryConfig
from minirun.workflow import FAILED, START, JoinNode, Node, NodeContext, RequestInput, Workflow, node

from .test_workflow import ends, flow, given, output_of, run_of

PLACE: Any = {"user_id": "u", "session_id": "s"}


def runner_for(*edges: Any, **fields: Any) -> InMemoryRunner:
    """A runner of a workflow with these edges."""
    return InMemoryRunner(app=App("app", flow(*edges, **fields)), auto_create_session=True)


async def until_it_stops(runner: InMemoryRunner, message: Any = "go") -> Run:
    """Run to the end, or to a question."""
    async with runner.run_async(**PLACE, new_message=message) as run:
        await run.wait()
    return run


def told(events: list[Event]) -> list[tuple[Any, ...]]:
    """What events say."""
    return [(e.author, e.text, e.output, e.actions.route, dict(e.actions.state_delta), e.branch) for e in events]


# --- generators -------------------------------------------------------------------------------------------------------

ITEMS = (
    Event(message="one"),
    None,
    Event(message="two", state={"k": 1}),
    Event(output=5, route="on", message="three"),
    Event(message="four"),
    Event(route=["off", "on"], state={"k": 2}),
)


def several(node_input: object) -> Iterator[Any]:
    """Yields in a thread."""
    yield from ITEMS


async def several_later(node_input: object) -> AsyncIterator[Any]:
    """Yields in its task."""
    for each in ITEMS:
        yield each


@pytest.mark.parametrize("logic", [several, several_later])
async def test_what_is_yielded_is_said_in_order(logic: Callable[..., Any]) -> None:
    """Words come as they are yielded, those beside an output before what follows; the last route and state end it."""
    events, run = await run_of(flow((START, node(logic, name="talks"), {"on": ends})))
    assert told(events) == [
        ("wf", "one", None, None, {}, "wf.talks"),
        ("wf", "two", None, None, {"k": 1}, "wf.talks"),
        ("wf", "three", None, None, {}, "wf.talks"),
        ("wf", "four", None, None, {}, "wf.talks"),
        ("wf", "", 5, ["off", "on"], {"k": 2}, "wf.talks"),
        ("wf", "", 5, None, {}, "wf.ends"),
    ]
    assert run.session.state["k"] == 2


def asks_in_thread(closed: list[str]) -> Callable[..., Any]:
    """A generator that asks."""

    def asks(node_input: object) -> Iterator[Any]:
        try:
            yield Event(message="first")
            yield RequestInput(message="What?")
            raise AssertionError("never comes here")
        finally:
            closed.append("closed")

    return asks


def asks_in_task(closed: list[str]) -> Callable[..., Any]:
    """An async generator that asks."""

    async def asks(node_input: object) -> AsyncIterator[Any]:
        try:
            yield Event(message="first")
            yield RequestInput(message="What?")
            raise AssertionError("never comes here")
        finally:
            closed.append("closed")

    return asks


@pytest.mark.parametrize("make", [asks_in_thread, asks_in_task])
async def test_a_generator_ends_at_its_question(make: Callable[[list[str]], Any]) -> None:
    """It is closed where it has asked, at the pause and at the end; the answer is the output."""
    closed: list[str] = []
    runner = runner_for((START, make(closed), given))
    run = await until_it_stops(runner)
    assert (run.status, closed) == ("paused", ["closed"])
    run = await until_it_stops(runner, run.pending[0].reply("that"))
    assert run.answer is not None
    assert (run.answer.output, closed) == ({"given": "that"}, ["closed", "closed"])


async def test_a_generator_in_a_thread_that_fails_fails_the_node() -> None:
    """What it has said before stays said."""

    def fails(node_input: object) -> Iterator[Any]:
        yield Event(message="before")
        raise KeyError("here")

    events, run = await run_of(flow((START, fails, {FAILED: given})))
    assert events[0].text == "before"
    assert run.answer is not None
    assert run.answer.output == {"given": {"type": "KeyError", "message": "'here'", "input": "go"}}


@pytest.mark.parametrize("value", [iter([1, 2]), map(str, [1]), (each for each in "ab")], ids=["iter", "map", "nested"])
async def test_an_iterator_that_is_returned_is_no_output(value: object) -> None:
    """Only a generator of the node's own is gone through."""

    async def gives() -> Any:
        return [value]

    with pytest.raises(InvalidValueError, match="output of 'gives'"):
        await run_of(flow((START, gives)))


async def test_an_iterator_alone_is_no_output_either() -> None:
    """A sync function that returns one has not yielded."""

    def gives() -> Any:
        return iter([1])

    with pytest.raises(InvalidValueError, match="output of 'gives': expected a value that JSON has a form for"):
        await run_of(flow((START, gives)))


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "hint", "payload", "schema", "args"),
    [
        (RequestInput(), "The node 'asks' asks for input.", None, None, {}),
        (
            RequestInput(interrupt_id="q-7", message="How many?", payload={"a": [1]}, response_schema=int),
            "How many?",
            {"a": [1]},
            {"type": "integer"},
            {"interrupt_id": "q-7", "payload": {"a": [1]}, "response_schema": {"type": "integer"}},
        ),
    ],
)
async def test_a_question_is_asked_as_it_is(
    question: RequestInput, hint: str, payload: Any, schema: Any, args: dict[str, Any]
) -> None:
    """Its message, payload, schema and id are those that who answers is shown."""

    async def asks(node_input: object) -> RequestInput:
        return question

    run = await until_it_stops(runner_for((START, asks)))
    [pending] = run.pending
    assert (pending.kind, pending.hint, pending.payload, pending.schema) == ("input", hint, payload, schema)
    [asked] = [call for event in run.session.events for call in event.get_function_calls()]
    assert asked.args == {"message": hint, **args}
    assert (pending.author, pending.branch) == ("wf", "wf.asks")


@pytest.mark.parametrize("gives", [None, "words", {"a": 1}, [1, 2]])
async def test_whoever_permits_a_node_sees_its_input(gives: Any) -> None:
    """The question is one for True or False, with the input; a no fails the node by its path."""

    async def first() -> Any:
        return gives

    runner = runner_for((START, first, node(ends, name="pay", require_confirmation=True)))
    run = await until_it_stops(runner)
    [pending] = run.pending
    assert pending.hint == "May the node 'pay' run?"
    assert pending.schema == {"type": "boolean"}
    assert pending.payload == gives
    with pytest.raises(NodeRejectedError, match=r"^the node wf@1/pay@1 was not allowed to run"):
        await until_it_stops(runner, pending.reply(False))


# --- many items -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "limit", "output", "at_once"),
    [
        ([1, 2, 3, 4], None, [2, 3, 4, 5], 4),
        ([1, 2, 3, 4], 1, [2, 3, 4, 5], 1),
        ([1, 2, 3, 4], 3, [2, 3, 4, 5], 3),
        (7, None, [8], 1),
        ([], 2, [], 0),
    ],
)
async def test_a_parallel_worker_takes_one_item_each(
    items: Any, limit: int | None, output: list[int], at_once: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Outputs have the order of the items; no more run at once than it says; what is no list is one item."""
    now = most = 0

    async def first() -> Any:
        return items

    async def work(node_input: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(10 - node_input)
        now -= 1
        return node_input + 1

    many = node(work, parallel_worker=True, max_parallel_workers=limit)
    assert await output_of(flow((START, first, many))) == output
    assert most == at_once


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_concurrency": 0}, "expected max_concurrency from 1 up, or None for no limit, found 0"),
        ({"max_concurrency": True}, "expected max_concurrency from 1 up, or None for no limit, found True"),
        ({"on_failure": "stop"}, "expected on_failure 'cancel_others' or 'collect', found 'stop'"),
    ],
)
async def test_options_of_a_map_are_checked(options: dict[str, Any], problem: str) -> None:
    """A limit that is none, and a word that says nothing, are refused before anything runs."""
    ran = []

    async def note(node_input: int) -> None:
        ran.append(node_input)

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(note, [1], **options)

    with pytest.raises(ConfigurationError, match=f"^{problem}"):
        await run_of(flow((START, over)))
    assert ran == []


async def test_after_a_failure_no_further_item_begins(autojump_clock: trio.testing.MockClock) -> None:
    """With `collect`, those that run come to their end; one failure is itself, several are a group with the name."""
    ran: list[int] = []

    async def work(node_input: int) -> int:
        ran.append(node_input)
        await trio.sleep(node_input)
        if node_input in bad:
            raise ValueError(f"no {node_input}")
        ran.append(-node_input)
        return node_input

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(work, [1, 2, 3], max_concurrency=2, on_failure="collect")

    bad = {1}
    with pytest.raises(ValueError, match=r"^no 1"):
        await run_of(flow((START, over)))
    assert ran == [1, 2, -2]

    ran.clear()
    bad = {2}
    with pytest.raises(ValueError, match=r"^no 2"):
        await run_of(flow((START, over)))
    assert ran == [1, 2, -1, 3, -3]

    async def group(ctx: NodeContext) -> Any:
        try:
            await ctx.map(work, [1, 2], on_failure="collect")
        except ExceptionGroup as errors:
            return [errors.message, [str(each) for each in errors.exceptions]]

    bad = {1, 2}
    assert await output_of(flow((START, group))) == ["items of 'work' failed", ["no 1", "no 2"]]


async def test_places_are_lent_and_given_back(autojump_clock: trio.testing.MockClock) -> None:
    """Of two places a map has both: its own, lent to an item, and the free one, each for the next that waits."""

    async def work(node_input: int) -> int:
        await trio.sleep(node_input)
        return node_input

    async def over(node_input: list[int], ctx: NodeContext) -> float:
        start = trio.current_time()
        await ctx.map(work, node_input)
        return trio.current_time() - start

    for limit, items, seconds in (
        (1, "[3, 1, 1]", 5),
        (2, "[3, 1, 1]", 3),
        (2, "[1, 3, 1]", 3),
        (2, "[2, 2, 2, 2]", 4),
        (3, "[2, 2, 2, 1]", 3),
        (None, "[3, 1, 1]", 3),
    ):
        assert await output_of(flow((START, over), max_concurrency=limit), items) == pytest.approx(seconds)


async def test_a_place_that_is_free_is_taken_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """What is ready and waits begins when an item of another node has ended, and in the later stages of a graph."""
    begun: dict[str, float] = {}

    def lasts(seconds: float, name: str) -> Any:
        async def work(node_input: Any) -> int:
            begun[name] = trio.current_time() - start
            await trio.sleep(seconds)
            return 1

        return node(work, name=name)

    async def over(ctx: NodeContext) -> Any:
        async def item(node_input: int) -> None:
            await trio.sleep(node_input)

        return await ctx.map(item, [5, 1])

    start = trio.current_time()
    await output_of(flow((START, (over, lasts(2, "y"), lasts(4, "z")), JoinNode(name="all")), max_concurrency=2))
    assert begun == pytest.approx({"y": 0, "z": 3})

    begun.clear()
    start = trio.current_time()
    first, second = (lasts(1, "a"), lasts(2, "b")), (lasts(1, "c"), lasts(2, "d"))
    await output_of(flow((START, first, JoinNode(name="all"), second, JoinNode(name="both")), max_concurrency=2))
    assert begun == pytest.approx({"a": 0, "b": 0, "c": 2, "d": 2})


async def test_an_item_that_is_cancelled_leaves_the_queue(autojump_clock: trio.testing.MockClock) -> None:
    """What waits for a place when another item fails is gone: the places are there for what comes next."""

    async def work(node_input: int) -> int:
        await trio.sleep(1)
        if node_input == 0:
            raise ValueError("no")
        return node_input

    async def over(ctx: NodeContext) -> Any:
        for _ in range(2):
            try:
                await ctx.map(work, [0, 1, 2])
            except ValueError:
                pass
        return await ctx.map(work, [3, 4, 5])

    assert await output_of(flow((START, over), max_concurrency=1)) == [3, 4, 5]


# --- attempts ---------------------------------------------------------------------------------------------------------


async def test_a_failed_attempt_is_told_in_one_note(autojump_clock: trio.testing.MockClock) -> None:
    """Who shows events is told what has failed, which attempt that was, and when the next one is made."""

    @node(retry=RetryConfig(max_attempts=3, initial_delay=2, backoff_factor=3, jitter=0))
    async def often(ctx: NodeContext) -> str:
        await ctx.emit(Event(message=f"try {ctx.attempt_count}"))
        raise ValueError(f"no {ctx.attempt_count}")

    start = trio.current_time()
    events, run = await run_of(flow((START, often, {FAILED: given})))
    assert trio.current_time() - start == pytest.approx(2 + 6, abs=0.1)
    assert [event.text for event in events if event.text] == ["try 1", "try 2", "try 3"]
    notes = [event for event in events if event.custom_metadata]
    assert [event.custom_metadata for event in notes] == [
        {
            "node_retry": {
                "attempt": attempt,
                "max_attempts": 3,
                "delay_s": delay_s,
                "error": "ValueError",
                "message": f"no {attempt}",
            }
        }
        for attempt, delay_s in ((1, 2), (2, 6))
    ]
    assert {(event.author, event.branch) for event in notes} == {("wf", "wf.often")}
    for number, event in enumerate(notes, 1):
        noted = event.actions.replay.attempt
        assert noted is not None
        assert noted["number"] == number
        assert noted["due"] == pytest.approx(event.timestamp + noted["delay_s"])
        assert event.actions.replay.aside
    assert run.answer is not None
    assert run.answer.output == {"given": {"type": "ValueError", "message": "no 3", "input": "go"}}


async def test_what_an_attempt_runs_has_its_number() -> None:
    """In the second attempt a node that it runs again speaks in a branch of its own, and its path stays."""

    async def speaks(ctx: NodeContext) -> int:
        await ctx.emit(Event(message="hi"))
        return 1

    @node(retry=RetryConfig(max_attempts=3, initial_delay=0, jitter=0))
    async def often(ctx: NodeContext) -> None:
        await ctx.run_node(speaks, ctx.attempt_count)
        if ctx.attempt_count < 3:
            raise ValueError("no")

    events, _ = await run_of(flow((START, often)))
    said = [(event.branch, event.node_info.path) for event in events if event.text]
    assert said == [
        ("wf.often.speaks~1", "wf@1/often@1/speaks@1"),
        ("wf.often.speaks~1*2", "wf@1/often@1/speaks@1"),
        ("wf.often.speaks~1*3", "wf@1/often@1/speaks@1"),
    ]


@pytest.mark.parametrize(("seconds", "in_time"), [(1.9, True), (2.1, False)])
async def test_an_attempt_has_its_time(
    seconds: float, in_time: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """At the end of its time it is cancelled, and the error says how long that was."""

    async def slow(node_input: object) -> str:
        await trio.sleep(seconds)
        return "done"

    wf = flow((START, node(slow, timeout_s=2)))
    if in_time:
        assert await output_of(wf) == "done"
        return
    start = trio.current_time()
    with pytest.raises(NodeTimeoutError, match=r"^the node 'slow' took longer than timeout_s=2 seconds"):
        await run_of(wf)
    assert trio.current_time() - start == pytest.approx(2, abs=0.1)


# --- tools ------------------------------------------------------------------------------------------------------------


def needs(b: str, a: str = "A", c: int = 0) -> list[Any]:
    """Needs one, and may have two more."""
    return [a, b, c]


def free(a: str = "A", b: str = "B") -> list[Any]:
    """Needs none."""
    return [a, b]


@pytest.mark.parametrize(
    ("tool", "gives", "state", "output"),
    [
        (needs, {"a": "x", "b": "y"}, {}, ["x", "y", 0]),
        (needs, "y", {}, ["A", "y", 0]),
        (needs, "y", {"a": "kept", "b": "other", "more": 1}, ["kept", "y", 0]),
        (needs, None, {"b": "kept", "c": 4}, ["A", "kept", 4]),
        (needs, {"c": 3}, {"b": "kept", "c": 4}, ["A", "kept", 3]),
        (free, "x", {}, ["x", "B"]),
        (free, None, {}, ["A", "B"]),
        (free, None, {"b": "kept"}, ["A", "kept"]),
    ],
)
async def test_what_a_tool_is_given_as_a_node(tool: Any, gives: Any, state: dict[str, Any], output: Any) -> None:
    """A dict is its arguments; another value is the first that it needs, or has; the state has what is missing."""

    async def first() -> Event:
        return Event(output=gives, state=state)

    called = FunctionTool(tool)
    events, run = await run_of(flow((START, first, called)))
    assert run.answer is not None
    assert run.answer.output == output
    [made] = [event for event in events if event.get_function_calls()]
    [answered] = [event for event in events if event.get_function_responses()]
    assert [each.name for each in made.get_function_calls()] == [called.name]
    assert made.get_function_calls()[0].id == answered.get_function_responses()[0].id
    assert (made.author, made.branch) == ("wf", f"wf.{called.name}")


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ("text", "text"),
        (None, None),
        ({"result": 1}, 1),
        ({"result": 1, "more": 2}, {"result": 1, "more": 2}),
        ({"error": "words"}, {"error": "words"}),
        ({"error": {"message": "m"}}, {"error": {"message": "m"}}),
        ({"error": {"type": "t"}, "more": 1}, {"error": {"type": "t"}, "more": 1}),
        ([1], [1]),
    ],
)
async def test_what_a_tool_returns_is_the_output(result: Any, output: Any) -> None:
    """Only an error with a type, and nothing beside it, is a failure."""

    def gives(given: str) -> Any:
        """Gives."""
        return result

    assert await output_of(flow((START, FunctionTool(gives), ends))) == output


async def test_an_error_that_a_tool_returns_fails_the_node() -> None:
    """The failure names the tool, the type and the message."""

    def gives(given: str) -> Any:
        """Gives."""
        return {"error": {"type": "Full", "message": "no room"}}

    with pytest.raises(MinirunError, match=r"^the tool 'gives' has failed: Full: no room"):
        await run_of(flow((START, FunctionTool(gives))))


# --- joins ------------------------------------------------------------------------------------------------------------


async def test_a_reducer_begins_with_a_value_of_its_own() -> None:
    """What it changes is a copy of `initial`, in each run."""
    begun: list[Any] = []

    def collect(value: list[Any], output: Any) -> list[Any]:
        begun.append([*value])
        value.append(output)
        return value

    async def one(node_input: object) -> int:
        return 1

    async def two(node_input: object) -> int:
        return 2

    wf = flow((START, (one, two), JoinNode(name="all", reduce=collect, initial=[0])))
    for _ in range(2):
        begun.clear()
        assert await output_of(wf) == [0, 1, 2]
        assert begun == [[0], [0, 1]]


async def test_a_reducer_without_initial_begins_with_none() -> None:
    """A reducer that gives what has no form in JSON fails the join by name."""

    async def one(node_input: object) -> int:
        return 1

    async def two(node_input: object) -> int:
        return 2

    both: Any = (START, (one, two))
    assert await output_of(flow((*both, JoinNode(name="all", reduce=lambda value, output: [value, output])))) == [
        [None, 1],
        2,
    ]
    with pytest.raises(InvalidValueError, match="output of 'all'"):
        await run_of(flow((*both, JoinNode(name="all", reduce=lambda value, output: object()))))


# --- contexts ---------------------------------------------------------------------------------------------------------


async def test_what_is_set_can_be_taken_back_or_read() -> None:
    """Before anything is set both are None; a route of None takes the last one back, an output of None is none."""
    seen: list[Any] = []

    async def sets(ctx: NodeContext) -> None:
        seen.append((ctx.output, ctx.route))
        ctx.route = "left"
        ctx.route = ["left", "right"]
        seen.append((ctx.output, ctx.route))
        ctx.route = None
        ctx.output = None
        seen.append((ctx.output, ctx.route))
        ctx.output = 3
        seen.append((ctx.output, ctx.route))

    async def never(node_input: object) -> None:
        raise AssertionError

    assert await output_of(flow((START, sets, {"left": never}), (sets, ends))) == 3
    assert seen == [(None, None), (None, ("left", "right")), (None, None), (3, None)]


async def test_who_ends_with_a_question_is_told_what_to_do_instead() -> None:
    """The refusal names the node, and the way that is left."""

    async def asks(ctx: InvocationContext) -> Any:
        return await ctx.request_input("What?")

    with pytest.raises(ConfigurationError) as caught:
        await run_of(flow((START, node(asks, rerun_on_resume=False))))
    assert str(caught.value) == (
        "the node wf@1/asks@1 has rerun_on_resume=False, so a question ends it; leave that out, or yield a "
        "RequestInput, whose answer is the output"
    )


def test_edges_are_a_list() -> None:
    """What is none is refused by what was found."""
    with pytest.raises(ConfigurationError, match=r"^expected edges to be a list of chains and Edges, found 'abc'"):
        Workflow(name="wf", edges="abc")


async def test_a_class_that_goes_on_to_no_logic_is_told() -> None:
    """`super().run_node_impl` of a node is nothing that can be run."""

    class Calls(Node):
        async def run_node_impl(self, *, ctx: InvocationContext, node_input: Any) -> Any:
            return await super().run_node_impl(ctx=ctx, node_input=node_input)

    with pytest.raises(NotImplementedError, match=r"^Calls has no logic: override `async def run_node_impl`"):
        await run_of(flow((START, Calls(name="calls"))))


class Sealed(Exception):
    """A failure that takes no notes."""

    def add_note(self, note: str) -> None:
        raise AttributeError("it is frozen")


async def test_a_failure_that_takes_no_notes_is_raised_as_it_is() -> None:
    """Nothing is put in its place."""

    async def fails(node_input: object) -> None:
        raise Sealed("sealed")

    with pytest.raises(Sealed, match=r"^sealed$"):
        await run_of(flow((START, fails)))


async def test_a_node_gets_the_credential_that_it_asks_for() -> None:
    """The node is run again once it is there, and goes on with it."""

    async def asks(ctx: NodeContext) -> int:
        found = await ctx.request_credential(AuthConfig(credential_key="mail", scheme="bearer"))
        return len(found.reveal())

    runner = runner_for((START, asks))
    run = await until_it_stops(runner)
    [pending] = run.pending
    assert pending.kind == "credential"
    given = AuthCredential("bearer", token="12345678")
    run = await until_it_stops(runner, await runner.provide_credential(pending, given))
    assert run.answer is not None
    assert run.answer.output == 8


async def test_a_runner_of_a_node_takes_an_agent_too() -> None:
    """`Runner(node=...)` of an agent is one of the agent; of a function, one of a workflow around it."""

    class Says(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="hi"))

    agent = Says(name="says")
    for value, author, path in ((agent, "says", "says@1"), (ends, "ends", "ends@1/ends@1")):
        runner = InMemoryRunner(node=value, app_name="app", auto_create_session=True)
        run = await until_it_stops(runner)
        event = run.session.events[-1]
        assert (event.author, event.node_info.path) == (author, path)
