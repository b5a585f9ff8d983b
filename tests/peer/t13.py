"""Workflows in detail: joins, routes, values, attempts, dynamic nodes, maps; `t13_people` has the others."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
import trio

from minirun import Event, InvocationContext
from minirun.workflow import DEFAULT_ROUTE, START, JoinNode, RetryConfig, Workflow, node

from .t06 import flow
from .workflow_play import Stage, plain, scenario

THRICE = RetryConfig(max_attempts=3, initial_delay=0.01)


@attrs.frozen
class Order:
    """What agents and functions give."""

    n: int
    note: str | None = None


def gives(name: str, output: object, route: Any = None) -> Any:
    """A function that gives this."""

    async def function(node_input: Any) -> Any:
        return output if route is None else Event(output=output, route=route)

    function.__name__ = name
    return function


# --- joins and routes -------------------------------------------------------------------------------------------------


@scenario("t13", "join of three; b finishes first, then c, then a; the next agent reads the join as its prompt")
async def join_of_three(play: Stage) -> None:
    lanes = (play.says("a", delay_s=0.3), play.says("b", delay_s=0.1), play.says("c", delay_s=0.2))
    await play.begin(flow((START, lanes, JoinNode(name="join"), play.agent("summ", "done"))))
    await play.turn()


def quiet(play: Stage) -> Any:
    """A function that gives nothing."""

    async def quiet(node_input: Any) -> None:
        await trio.sleep(0.2)
        play.note("quiet ran")

    return quiet


@scenario("t13", "join: one predecessor returns None")
async def join_none(play: Stage) -> None:
    lanes = (play.says("a", delay_s=0.1), quiet(play))
    await play.begin(flow((START, lanes, JoinNode(name="join"), play.says("end"))))
    await play.turn()


@scenario("t13", "join: one predecessor is not chosen by the route")
async def join_not_chosen(play: Stage) -> None:
    left, right = play.says("left"), play.says("right")
    chosen = (START, gives("choose", "c", "left"), {"left": left, "right": right})
    await play.begin(flow(chosen, ((left, right), JoinNode(name="join"), play.says("end"))))
    await play.turn()


@scenario("t13", "join inside of a loop of two rounds")
async def join_in_a_loop(play: Stage) -> None:
    count = 0

    async def gate(node_input: Any) -> Event:
        nonlocal count
        count += 1
        return Event(output=count, route="again" if count < 3 else "stop")

    begin = play.says("begin")
    lanes = (play.says("a", delay_s=0.1), play.says("b", delay_s=0.2))
    await play.begin(
        flow((START, begin, lanes, JoinNode(name="join"), gate, {"again": begin, "stop": play.says("end")}))
    )
    await play.turn()


@scenario("t13", "fan-in without a join: the sink is terminal")
async def fan_in(play: Stage) -> None:
    await play.begin(flow((START, (play.says("a", delay_s=0.2), play.says("b", delay_s=0.1)), play.says("sink"))))
    await play.turn()


@scenario("t13", "route is a list: two of three edges match")
async def route_list(play: Stage) -> None:
    targets = {"x": play.says("nx"), "y": play.says("ny"), "z": play.says("nz", delay_s=0.1)}
    await play.begin(flow((START, gives("pick", "p", ["x", "z"]), targets)))
    await play.turn()


@scenario("t13", "route True, edges for 1 and for DEFAULT")
async def route_true(play: Stage) -> None:
    targets = {1: play.says("one"), DEFAULT_ROUTE: play.says("fallback")}
    await play.begin(flow((START, gives("pick", "p", True), targets)))
    await play.turn()


@scenario("t13", "an unrouted edge beside DEFAULT; the route matches nothing")
async def beside_default(play: Stage) -> None:
    pick, fallback = gives("pick", "p", "nobody"), play.says("fallback", delay_s=0.1)
    routes = {"somebody": play.says("somebody"), DEFAULT_ROUTE: fallback}
    await play.begin(flow((START, pick, play.says("always")), (pick, routes)))
    await play.turn()


@scenario("t13", "output and two routes in separate events")
async def late_routes(play: Stage) -> None:
    async def late(node_input: Any) -> Any:
        yield Event(output="first")
        yield Event(route="r1")
        yield Event(route="r2")
        play.note("after the routes")

    await play.begin(flow((START, late, {"r1": play.says("n1"), "r2": play.says("n2")})))
    await play.turn()


@scenario("t13", "the terminal node returns None")
async def ends_with_none(play: Stage) -> None:
    async def nothing(node_input: Any) -> None:
        return None

    await play.begin(flow((START, play.says("a"), nothing)))
    await play.turn()


@scenario("t13", "max_concurrency=1 with three nodes")
async def one_at_a_time(play: Stage) -> None:
    lanes = (play.says("a", delay_s=0.3), play.says("b", delay_s=0.2), play.says("c", delay_s=0.1))
    await play.begin(flow((START, lanes, JoinNode(name="j")), max_concurrency=1))
    await play.turn()


# --- values -----------------------------------------------------------------------------------------------------------


@scenario("t13", "two lanes write one state key")
async def one_key(play: Stage) -> None:
    async def l(node_input: Any, ctx: InvocationContext) -> str:  # noqa: E743
        ctx.state["k"] = "left"
        await trio.sleep(0.2)
        return f"l sees {ctx.state['k']}"

    async def r(node_input: Any, ctx: InvocationContext) -> str:
        ctx.state["k"] = "right"
        await trio.sleep(0.1)
        return "r"

    await play.begin(flow((START, (l, r), JoinNode(name="j"))))
    await play.turn()


async def use_order(play: Stage, n: object, *before: Any) -> None:
    """A function whose result is annotated, and one that reads it."""

    async def good(node_input: Any) -> Order:
        return {"n": n, "note": None}  # type: ignore[return-value]  # that is the question

    async def use(node_input: Order) -> int:
        play.note("use", got=type(node_input).__name__, n=node_input.n)
        return node_input.n

    good.__name__ = "good" if n == 3 else "bad"
    await play.begin(flow((START, *before, good, use)))
    await play.turn()


@scenario("t13", "return annotation is a model: dict is coerced, None is dropped")
async def returns_a_class(play: Stage) -> None:
    await use_order(play, 3)


@scenario("t13", "return annotation is a model: the value does not fit")
async def returns_something_else(play: Stage) -> None:
    async def a(node_input: Any, ctx: InvocationContext) -> str:
        play.note("a", input=plain(node_input))
        ctx.state["s"] = 1
        return "a"

    await use_order(play, "three", a)


@scenario("t13", "node_input annotation list[int]: strings are coerced")
async def list_of_int(play: Stage) -> None:
    async def take(node_input: list[int]) -> int:
        play.note("take", got=node_input)
        return sum(node_input)

    await play.begin(flow((START, gives("give", ["1", "2"]), take)))
    await play.turn()


async def first_takes_a_class(play: Stage, message: str) -> None:
    """The first node reads what the user says."""

    async def take(node_input: Order) -> int:
        play.note("take", got=attrs.asdict(node_input))
        return node_input.n

    await play.begin(flow((START, take)))
    await play.turn(message)


@scenario("t13", "first node takes a model; the user says '{\"n\": 4}'")
async def says_json(play: Stage) -> None:
    await first_takes_a_class(play, '{"n": 4}')


@scenario("t13", "first node takes a model; the user says 'four'")
async def says_no_json(play: Stage) -> None:
    await first_takes_a_class(play, "four")


async def from_the_state(play: Stage, state: dict[str, Any]) -> None:
    """A function whose parameters are keys of the state."""

    async def take(city: str, size: int) -> str:
        play.note("take", city=city, size=size)
        return city

    try:
        await play.begin(flow((START, take)), state=state)
    except Exception as error:
        play.refused(error)
    else:
        await play.turn()


@scenario("t13", "parameters come from state {'city': 'Bonn', 'size': '7'}")
async def state_given(play: Stage) -> None:
    await from_the_state(play, {"city": "Bonn", "size": "7"})


@scenario("t13", "parameters come from state {}")
async def state_missing(play: Stage) -> None:
    await from_the_state(play, {})


@scenario("t13", "output_schema of the workflow does not fit the terminal output")
async def output_schema(play: Stage) -> None:
    await play.begin(flow((START, play.says("a", {"n": "zz"})), output_schema=Order))
    await play.turn()


@scenario("t13", "node returns a datetime and a set")
async def no_json(play: Stage) -> None:
    given = {"when": datetime(2026, 1, 1), "ids": {1}}
    await play.begin(flow((START, gives("give", given), play.says("next", "ok"))))
    await play.turn()


# --- attempts ---------------------------------------------------------------------------------------------------------


@scenario("t13", "retry: all three attempts fail")
async def never(play: Stage) -> None:
    async def flaky(ctx: InvocationContext) -> None:
        ctx.state["tries"] = ctx.state.get("tries", 0) + 1
        play.note("attempt", n=ctx.attempt_count, attempt=ctx.attempt_count, tries=ctx.state["tries"])
        raise ConnectionError(f"no {ctx.attempt_count}")

    await play.begin(flow((START, node(flaky, retry_config=THRICE))))
    await play.turn()


@scenario("t13", "retry only for OSError; a ValueError is raised")
async def another_kind(play: Stage) -> None:
    async def flaky(ctx: InvocationContext) -> None:
        play.note("attempt", n=ctx.attempt_count)
        raise ValueError("bad value")

    await play.begin(flow((START, node(flaky, retry_config=attrs.evolve(THRICE, exceptions=[OSError])))))
    await play.turn()


@scenario("t13", "timeout per attempt, retried once")
async def slow_once(play: Stage) -> None:
    async def slow(ctx: InvocationContext) -> Any:
        play.note("attempt", n=ctx.attempt_count)
        yield Event(message="working")
        await trio.sleep(10 if ctx.attempt_count == 1 else 0)
        yield "made it"

    await play.begin(flow((START, node(slow, retry_config=THRICE, timeout=0.05))))
    await play.turn()


@scenario("t13", "a node fails after its output was stored, and is retried")
async def fails_late(play: Stage) -> None:
    async def g(ctx: InvocationContext) -> Any:
        yield f"out{ctx.attempt_count}"
        play.note("after output", n=ctx.attempt_count)
        if ctx.attempt_count == 1:
            raise ConnectionError("after the output")

    await play.begin(flow((START, node(g, retry_config=THRICE), play.says("next"))))
    await play.turn()


@scenario("t13", "retry_config on a nested workflow: its second node fails once")
async def nested_retry(play: Stage) -> None:
    attempts = 0

    async def flaky(node_input: Any) -> str:
        nonlocal attempts
        attempts += 1
        play.note("flaky", n=attempts)
        if attempts == 1:
            raise ConnectionError("once")
        return "ok"

    inner = Workflow(name="inner", edges=[(START, play.says("first"), flaky)], retry_config=THRICE)
    await play.begin(flow((START, inner, play.says("after"))))
    await play.turn()


# --- dynamic nodes and maps -------------------------------------------------------------------------------------------


@scenario("t13", "a dynamic child fails and its parent catches that")
async def caught(play: Stage) -> None:
    async def bad(node_input: Any) -> None:
        raise ValueError("child is bad")

    async def parent(ctx: InvocationContext) -> str:
        try:
            await ctx.run_node(bad, 1)
        except ValueError as error:
            play.note("caught", type=type(error).__name__, text=str(error))
        return "parent goes on"

    await play.begin(flow((START, parent)))
    await play.turn()


@scenario("t13", "run_node twice with one run_id, then without")
async def one_run_id(play: Stage) -> None:
    async def child(node_input: int) -> int:
        play.note("child", i=node_input)
        return 2 * node_input

    async def parent(ctx: InvocationContext) -> list[int]:
        return [await ctx.run_node(child, number) for number in (1, 2, 3)]

    await play.begin(flow((START, parent)))
    await play.turn()


@scenario("t13", "use_as_output: the output of an agent called by a node is the output of the node")
async def as_output(play: Stage) -> None:
    helper = play.agent("helper", "helper says hi")

    async def parent(ctx: InvocationContext) -> Any:
        said = await ctx.run_node(helper, "go")
        play.note("helper returned", r=said)
        return said

    await play.begin(flow((START, parent, play.says("next"))))
    await play.turn()


@scenario("t13", "parallel_worker over four items, two at a time")
async def two_at_a_time(play: Stage) -> None:
    async def work(node_input: int, ctx: InvocationContext) -> int:
        play.note("start", i=node_input)
        ctx.state[f"w{node_input}"] = 1
        await trio.sleep({1: 0.2, 2: 0.1, 3: 0.4, 4: 0.1}[node_input])
        play.note("end", i=node_input)
        return 10 * node_input

    mapped = node(work, parallel_worker=True, max_parallel_workers=2)
    await play.begin(flow((START, gives("items", [1, 2, 3, 4]), mapped, play.says("next"))))
    await play.turn()


@scenario("t13", "parallel_worker: the second of three items fails")
async def item_fails(play: Stage) -> None:
    async def work(node_input: int) -> int:
        await trio.sleep(0.1 * node_input)
        play.note("work", i=node_input)
        if node_input == 2:
            raise ValueError("two")
        return node_input

    await play.begin(flow((START, gives("items", [1, 2, 3]), node(work, parallel_worker=True))))
    await play.turn()
