"""Workflows: routes, lanes, attempts, maps, questions, cycles, schemas, agents, generators."""

from __future__ import annotations

from typing import Any, TypedDict

import trio

from minirun import Event, InvocationContext
from minirun.errors import ConfigurationError
from minirun.workflow import DEFAULT_ROUTE, START, JoinNode, RequestInput, RetryConfig, Workflow, node

from .workflow_play import Stage, scenario


def flow(*edges: Any, **fields: Any) -> Workflow:
    """A workflow with these edges."""
    return Workflow(name="wf", edges=edges, **fields)


async def classify(text: str, ctx: InvocationContext) -> Event:
    """Where it belongs."""
    ctx.state["seen"] = text
    return Event(output=text.upper(), route="billing" if "bill" in text else "other")


async def billing(text: str) -> dict[str, str]:
    """A bill."""
    return {"billed": text}


async def other(text: str, ctx: InvocationContext) -> dict[str, str]:
    """Something else."""
    ctx.state["o"] = 1
    return {"other": text}


async def done(node_input: Any) -> dict[str, Any]:
    """The end."""
    return {"answer": node_input}


@scenario("t06", "3-node workflow with a route; input 'my bill'")
async def bill(play: Stage) -> None:
    await play.begin(flow((START, classify, {"billing": billing, "other": other})))
    await play.turn("my bill")


@scenario("t06", "3-node workflow with a route; input 'hello'")
async def hello(play: Stage) -> None:
    await play.begin(flow((START, classify, {"billing": billing, "other": other})))
    await play.turn("hello")


@scenario("t06", "route with no matching edge")
async def no_edge(play: Stage) -> None:
    await play.begin(flow((START, classify, {"billing": billing})))
    await play.turn("hello")


@scenario("t06", "DEFAULT_ROUTE")
async def default(play: Stage) -> None:
    await play.begin(flow((START, classify, {"billing": billing, DEFAULT_ROUTE: other})))
    await play.turn("hello")


def two_lanes(play: Stage) -> tuple[Any, Any]:
    """A slow function and a fast one."""

    async def slow(node_input: str) -> str:
        await trio.sleep(0.2)
        play.note("slow")
        return f"s:{node_input}"

    async def fast(node_input: str) -> str:
        await trio.sleep(0.1)
        play.note("fast")
        return f"f:{node_input}"

    return slow, fast


@scenario("t06", "fan-out to 2, JoinNode, final")
async def joined(play: Stage) -> None:
    async def fin(node_input: dict[str, str]) -> list[list[str]]:
        return [list(each) for each in sorted(node_input.items())]

    await play.begin(flow((START, two_lanes(play), JoinNode(name="join"), fin)))
    await play.turn()


@scenario("t06", "two terminal outputs (no join)")
async def two_terminals(play: Stage) -> None:
    try:
        flow((START, two_lanes(play)))
    except ConfigurationError as error:
        play.refused(error)


@scenario("t06", "fan-out, one node raises")
async def one_raises(play: Stage) -> None:
    async def bad(node_input: Any) -> None:
        raise ValueError("bad node")

    await play.begin(flow((START, (two_lanes(play)[0], bad), JoinNode(name="join"))))
    await play.turn()


@scenario("t06", "retry_config: fails twice then succeeds")
async def flaky_thrice(play: Stage) -> None:
    async def flaky(ctx: InvocationContext) -> str:
        play.note("flaky attempt", n=ctx.attempt_count)
        if ctx.attempt_count < 3:
            raise ConnectionError(f"try {ctx.attempt_count}")
        return "ok"

    await play.begin(flow((START, node(flaky, retry_config=RetryConfig(max_attempts=3, initial_delay=0.01)))))
    await play.turn()


@scenario("t06", "timeout on a node")
async def too_long(play: Stage) -> None:
    async def hang(node_input: Any) -> None:
        await trio.sleep(10)

    await play.begin(flow((START, node(hang, timeout=0.05))))
    await play.turn()


@scenario("t06", "parallel_worker over a list")
async def mapped(play: Stage) -> None:
    async def items(node_input: Any) -> list[int]:
        return [1, 2, 3]

    async def work(node_input: int) -> int:
        await trio.sleep(0.1 * (4 - node_input))
        play.note("work", i=node_input)
        return 10 * node_input

    await play.begin(flow((START, items, node(work, parallel_worker=True))))
    await play.turn()


@scenario("t06", "HITL RequestInput, rerun_on_resume=False (resumable=False)")
async def asked(play: Stage) -> None:
    @node(rerun_on_resume=False)
    async def ask(node_input: Any) -> Any:
        play.note("ask ran")
        yield RequestInput(interrupt_id="q1", message="Approve?")

    await play.begin(flow((START, ask, done)))
    await play.turn()
    await play.answer("yes")


@scenario("t06", "HITL RequestInput, rerun_on_resume=True")
async def asked_in_the_middle(play: Stage) -> None:
    async def ask2(ctx: InvocationContext) -> str:
        play.note("ask2 ran")
        return f"hello {await ctx.request_input('Name?')}"

    await play.begin(flow((START, ask2, done)))
    await play.turn()
    await play.answer("Bob")


@scenario("t06", "dynamic nodes via ctx.run_node")
async def dynamic(play: Stage) -> None:
    async def child(node_input: int) -> int:
        await trio.sleep(0.01 * node_input)
        play.note("child", i=node_input)
        await trio.sleep(1)
        return node_input + 1

    async def parent(ctx: InvocationContext) -> list[Any]:
        first = await ctx.run_node(child, 1)
        second = await ctx.run_node(child, 2)
        return [first, second, await ctx.map(child, [10, 20])]

    await play.begin(flow((START, parent)))
    await play.turn()


@scenario("t06", "loop through a routed back edge (run ids @1 @2 @3)")
async def rounds(play: Stage) -> None:
    count = 0

    async def loop(node_input: Any) -> Event:
        nonlocal count
        count += 1
        return Event(output=count, route="again" if count < 3 else "stop")

    async def body(node_input: int) -> int:
        return node_input

    async def out(node_input: int) -> str:
        return f"stopped at {node_input}"

    await play.begin(flow((START, loop, {"again": body, "stop": out}), (body, loop)))
    await play.turn()


class Sch(TypedDict):
    """The state."""

    n: int


@scenario("t06", "state_schema violated by a node")
async def wrong_value(play: Stage) -> None:
    async def wr(ctx: InvocationContext) -> None:
        ctx.state["n"] = "not an int"

    await play.begin(flow((START, wr), state_schema=Sch))
    await play.turn()


@scenario("t06", "state_schema: undeclared key")
async def wrong_key(play: Stage) -> None:
    async def wr2(ctx: InvocationContext) -> None:
        ctx.state["zzz"] = 1

    await play.begin(flow((START, wr2), state_schema=Sch))
    await play.turn()


@scenario("t06", "LlmAgent as a node between functions")
async def agent_between(play: Stage) -> None:
    await play.begin(flow((START, billing, play.agent("summ", "summary", output_key="sum"), done)))
    await play.turn("bill me")


@scenario("t06", "nested workflow")
async def nested(play: Stage) -> None:
    await play.begin(flow((START, Workflow(name="inner", edges=[(START, billing)]), done)))
    await play.turn("bill me")


@scenario("t06", "generator node with progress events")
async def progress(play: Stage) -> None:
    async def gen(node_input: Any) -> Any:
        yield Event(message="progress 1")
        play.note("resumed 1")
        yield Event(state={"p": 2})
        yield "final"

    await play.begin(flow((START, gen)))
    await play.turn()


@scenario("t06", "node yields two outputs")
async def two_outputs(play: Stage) -> None:
    async def two(node_input: Any) -> Any:
        yield "a"
        yield "b"

    await play.begin(flow((START, two)))
    await play.turn()


@scenario("t06", "node returns None then a downstream node")
async def nothing_then(play: Stage) -> None:
    async def nothing(node_input: Any) -> None:
        return None

    await play.begin(flow((START, nothing, done)))
    await play.turn()


@scenario("t06", "consumer closes stream while two nodes run")
async def closed(play: Stage) -> None:
    await play.begin(flow((START, two_lanes(play), JoinNode(name="join"))))
    await play.turn(leave_after=1)
