"""Details of workflows at work: places that are free again, two outputs at once, and failures in words."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import App, Env, Event, InMemoryRunner, LlmAgent
from minirun.errors import StateSchemaError, WorkflowError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm
from minirun.tools import RetryConfig
from minirun.types import Content, Part
from minirun.workflow import END, FAILED, START, JoinNode, NodeContext, Workflow, node

from ..helpers import PLACE, runner_for, stored_events
from .test_workflow import ends, flow, output_of


async def test_a_place_is_free_again_when_a_lane_has_ended(autojump_clock: trio.testing.MockClock) -> None:
    """Two nodes that wait for each other run side by side once the lane beside them is over."""
    met = [trio.Event(), trio.Event()]

    async def short(node_input: Any) -> None:
        return None

    async def long(node_input: Any) -> int:
        await trio.sleep(5)
        return 1

    async def one(node_input: Any) -> int:
        met[0].set()
        await met[1].wait()
        return 1

    async def two(node_input: Any) -> int:
        met[1].set()
        await met[0].wait()
        return 2

    wf = Workflow(
        name="wf",
        max_concurrency=2,
        edges=[(START, (short, long)), (long, (one, two), JoinNode(name="both"))],
        output="both",
    )
    with trio.fail_after(60):
        assert await output_of(wf) == {"one": 1, "two": 2}


@attrs.frozen(eq=False)
class Slow(Env):
    """The real world, in which each place where a run may be interrupted takes a second."""

    async def point(self, label: str) -> None:
        """Take it."""
        await trio.sleep(1)


@pytest.mark.parametrize("env", [Env(), Slow()], ids=["at once", "slowly"])
async def test_of_two_outputs_at_once_the_second_is_refused(env: Env, autojump_clock: trio.testing.MockClock) -> None:
    """While the first is being stored, another is refused as one that comes later is, and is not in the log."""

    async def left(node_input: Any) -> Event:
        return Event(output="left", route="end")

    async def right(node_input: Any) -> Event:
        return Event(output="right", route="end")

    wf = flow((START, (left, right)), (left, {"end": END, "on": ends}), (right, {"end": END, "on": ends}))
    runner = InMemoryRunner(app=App("app", wf), auto_create_session=True, env=env)
    async with runner.run_async(**PLACE, new_message="go") as run:
        with pytest.raises(WorkflowError, match=r"expected one output, but .* has given one, and now"):
            await run.wait()
    outputs = [event.output for event in await stored_events(runner) if event.output is not None]
    assert len(outputs) < 2


@pytest.mark.parametrize(
    ("said", "message"), [("a \ud800 b", "a ? b"), ("plain", "plain"), ("", "ValueError"), ("ä", "ä")]
)
async def test_a_failure_is_led_on_in_words_that_can_be_stored(said: str, message: str) -> None:
    """What cannot be written is a question mark, and an error without words is told by its class."""

    async def fails(node_input: Any) -> None:
        raise ValueError(said)

    found = await output_of(flow((START, fails, {FAILED: ends})))
    assert found == {"type": "ValueError", "message": message, "input": "go"}


async def test_a_join_that_fails_is_told_with_what_it_was_given() -> None:
    """Of START that is the text of the message."""

    async def one(node_input: Any) -> int:
        return 1

    def breaks(value: Any, output: Any) -> Any:
        raise ValueError("no")

    join = JoinNode(name="both", reduce=breaks)
    wf = flow((START, (one, join)), (one, join), (join, {FAILED: ends}))
    assert await output_of(wf) == {"type": "ValueError", "message": "no", "input": {"START": "go", "one": 1}}


async def test_an_agent_gets_what_was_said_as_words_of_the_user() -> None:
    """A message that a node hands on is the user's, a text is a text, and other JSON is written."""
    asked: list[Any] = []

    def answer(request: Any) -> str:
        asked.append([(each.role, each.parts[0].text) for each in request.contents])
        return "said"

    for given, shown in (("words", "words"), ({"a": [1]}, '{"a":[1]}'), (3, "3")):

        async def gives(node_input: Any, given: Any = given) -> Any:
            return given

        await output_of(flow((START, gives, LlmAgent(name="agent", model=ScriptedLlm(answer)))))
        assert asked[-1] == [("user", shown)]


async def test_a_message_of_a_model_is_the_users_where_an_agent_is_run_with_it() -> None:
    """`ctx.run_node(agent, content)` shows the model what the user says, whoever has said it."""
    asked: list[Any] = []

    def answer(request: Any) -> str:
        asked.append([(each.role, each.parts[0].text) for each in request.contents])
        return "said"

    agent = LlmAgent(name="agent", model=ScriptedLlm(answer))

    async def runs(ctx: NodeContext) -> Any:
        return await ctx.run_node(agent, Content(role="model", parts=[Part(text="mine")]))

    assert await output_of(flow((START, runs))) == "said"
    assert asked == [[("user", "mine")]]


async def test_what_is_ready_is_begun_in_order_as_places_come_free() -> None:
    """With one place nodes run one after the other, in the order in which they were triggered."""
    order: list[str] = []

    def step(name: str) -> Any:
        async def run(node_input: Any) -> str:
            order.append(f"{name} begins")
            await trio.lowlevel.checkpoint()
            order.append(f"{name} ends")
            return name

        run.__name__ = name
        return run

    names = ["a", "b", "c"]
    lanes = tuple(step(name) for name in names)
    wf = Workflow(name="wf", max_concurrency=1, edges=[(START, lanes, JoinNode(name="all"))])
    assert await output_of(wf) == {name: name for name in names}
    assert order == [f"{name} {what}" for name in names for what in ("begins", "ends")]


async def test_a_lane_that_asks_is_withdrawn_where_another_has_ended_the_invocation() -> None:
    """Nothing is open then, and the question has been answered by an error."""

    async def asks(ctx: NodeContext) -> Any:
        return await ctx.request_input("What?")

    async def over(ctx: NodeContext) -> None:
        await trio.testing.wait_all_tasks_blocked()
        ctx.end_invocation = True

    runner = runner_for(flow((START, (asks, over), JoinNode(name="both"))))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert (run.status, list(run.pending)) == ("completed", [])
    events = await stored_events(runner)
    asked = [each.id for event in events for each in event.get_function_calls()]
    assert [each.id for event in events for each in event.get_function_responses()] == asked
    assert len(asked) == 1


class Counts:
    """How many go on at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def take(self, seconds: float) -> int:
        """Go on for a while."""
        self.now += 1
        self.most = max(self.most, self.now)
        await trio.sleep(seconds)
        self.now -= 1
        return self.most


async def test_no_more_go_on_at_once_than_there_are_places(autojump_clock: trio.testing.MockClock) -> None:
    """Also where a place has come free before."""
    counts = Counts()

    async def short(node_input: Any) -> None:
        return None

    async def work(node_input: Any) -> int:
        return await counts.take(5)

    def part(name: str) -> Any:
        async def run(node_input: Any) -> int:
            return await counts.take(1)

        run.__name__ = name
        return run

    parts = tuple(part(name) for name in "abcd")
    wf = Workflow(
        name="wf",
        max_concurrency=2,
        edges=[(START, (short, work)), (work, parts, JoinNode(name="all"))],
        output="all",
    )
    await output_of(wf)
    assert counts.most == 2


@pytest.mark.parametrize("places", [1, 2, 3])
async def test_items_of_a_map_keep_to_the_places_of_the_workflow(
    places: int, autojump_clock: trio.testing.MockClock
) -> None:
    """The node that runs them lends its own place to one of them."""
    counts = Counts()

    async def item(node_input: float) -> int:
        return await counts.take(node_input)

    async def over(ctx: NodeContext) -> Any:
        await ctx.map(item, [1, 2, 3, 4])
        return await ctx.map(item, [1, 2, 3, 4])

    await output_of(Workflow(name="wf", max_concurrency=places, edges=[(START, over)]))
    assert counts.most == places


async def test_what_is_ready_takes_the_place_that_an_item_leaves(autojump_clock: trio.testing.MockClock) -> None:
    """A node that had to wait is begun as soon as an item of another node has ended."""
    begun = trio.Event()

    async def item(node_input: int) -> int:
        if node_input == 1:
            await begun.wait()
        else:
            await trio.sleep(1)
        return node_input

    async def over(ctx: NodeContext) -> Any:
        return await ctx.map(item, [1, 2])

    async def first(node_input: Any) -> int:
        await trio.sleep(1)
        return 1

    async def second(node_input: Any) -> int:
        begun.set()
        return 2

    wf = Workflow(
        name="wf",
        max_concurrency=2,
        edges=[(START, (over, first)), (first, second), ((over, second), JoinNode(name="all"))],
    )
    with trio.fail_after(60):
        assert await output_of(wf) == {"over": [1, 2], "second": 2}


@attrs.frozen
class Known:
    """What may be written."""

    known: int = 0


@pytest.mark.parametrize("on_failure", ["cancel_others", "collect"])
async def test_an_output_that_is_refused_leaves_the_output_to_another(
    on_failure: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A run whose end could not be stored has given no output, so another one may, while it waits or has failed."""
    retry = RetryConfig(max_attempts=2, initial_delay=5, jitter=0)

    async def refused(ctx: NodeContext) -> Event:
        if ctx.attempt_count > 1:
            return Event(route="none")
        return Event(output="refused", route="end", state={"unknown": 1})

    async def gives(node_input: Any) -> Event:
        await trio.sleep(1)
        return Event(output="given", route="end")

    first = node(refused, retry=retry) if on_failure == "cancel_others" else refused
    wf = Workflow(
        name="wf",
        state_schema=Known,
        on_failure=on_failure,
        edges=[
            (START, (first, gives)),
            (first, {"end": END, "on": ends, "none": nothing}),
            (gives, {"end": END, "on": ends}),
        ],
    )
    runner = runner_for(wf)
    async with runner.run_async(**PLACE, new_message="go") as run:
        if on_failure == "collect":
            with pytest.raises(StateSchemaError):
                await run.wait()
        else:
            await run.wait()
    assert [event.output for event in await stored_events(runner) if event.output is not None] == ["given"]


async def nothing(node_input: Any) -> None:
    """Gives nothing."""


async def test_nothing_begins_behind_a_failure_that_is_collected(autojump_clock: trio.testing.MockClock) -> None:
    """Also not when a lane has begun to wait since."""
    begun: list[str] = []

    async def fails(node_input: Any) -> None:
        await trio.sleep(1)
        raise ValueError("no")

    async def asks(ctx: NodeContext) -> Any:
        await trio.sleep(2)
        return await ctx.request_input("What?")

    async def works(node_input: Any) -> int:
        await trio.sleep(3)
        return 1

    async def follows(node_input: Any) -> int:
        begun.append("follows")
        return 1

    wf = Workflow(
        name="wf",
        on_failure="collect",
        edges=[(START, (fails, asks, works)), (works, follows), ((fails, asks, follows), JoinNode(name="all"))],
    )
    with pytest.raises(ValueError, match="no"):
        await output_of(wf)
    assert begun == []


class TakesAway(BasePlugin):
    """Takes the output from what the first run of the node `a` says at its end."""

    async def on_event_callback(self, *, invocation_context: Any, event: Event) -> Event | None:
        """Without it."""
        is_end = event.output is not None and event.node_info.path.endswith("a@1")
        return attrs.evolve(event, output=None) if is_end else None


async def test_an_output_that_a_plugin_takes_away_leaves_room_for_another_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The run has ended, and has given none."""

    async def a(node_input: Any) -> Event:
        return Event(output="taken away", route="end")

    async def b(node_input: Any) -> Event:
        await trio.sleep(1)
        return Event(output="given", route="end")

    async def more(node_input: Any) -> None:
        return None

    wf = Workflow(
        name="wf", edges=[(START, (a, b)), (a, {"end": END, "on": more}), (b, {"end": END, "on": more})]
    )
    runner = InMemoryRunner(app=App("app", wf, plugins=[TakesAway("takes")]), auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()
    assert run.answer is not None
    assert run.answer.output == "given"
