"""Workflows in detail, continued: people, resumes, agents, tools."""

from __future__ import annotations

from typing import Any

import trio

from minirun import AgentTool, Event, FunctionTool, InvocationContext
from minirun.testing import call
from minirun.workflow import START, JoinNode, RequestInput, Workflow, node

from .t06 import flow
from .t13 import Order, gives
from .workflow_play import Stage, plain, scenario


def asks(play: Stage, name: str, question: str, *, delay_s: float = 0.0) -> Any:
    """A function that asks, and gives the answer."""

    async def function(node_input: Any) -> Any:
        await trio.sleep(delay_s)
        play.note(f"asks {question}")
        yield RequestInput(interrupt_id=question, message=question)

    function.__name__ = name
    return function


# --- people -----------------------------------------------------------------------------------------------------------


@scenario("t13", "two lanes ask; answered one at a time")
async def two_ask(play: Stage) -> None:
    lanes = (
        asks(play, "ask_q1", "q1", delay_s=0.1), asks(play, "ask_q2", "q2", delay_s=0.2), play.says("free", delay_s=0.3)
    )
    await play.begin(flow((START, lanes, JoinNode(name="j"), play.says("end"))))
    await play.turn()
    await play.answer("A1", hint="q1")
    await play.answer("A2", hint="q2")


@scenario("t13", "a person sends a draft back once (one interrupt id for both rounds)")
async def sent_back(play: Stage) -> None:
    async def review(node_input: Any, ctx: InvocationContext) -> Event:
        play.note("review", input=node_input)
        answer = await ctx.request_input("ok?")
        return Event(output=answer, route="redo" if answer == "redo" else "ok")

    draft = play.says("draft")
    await play.begin(flow((START, draft, review, {"redo": draft, "ok": play.says("publish")})))
    await play.turn()
    await play.answer("redo")
    await play.answer("fine")


@scenario("t13", "a dynamic child asks; its parent runs again from its start")
async def child_asks(play: Stage) -> None:
    async def step(node_input: int) -> str:
        play.note("step", i=node_input)
        return f"s{node_input}"

    ask = asks(play, "ask_dyn", "dyn")

    async def parent(ctx: InvocationContext) -> list[Any]:
        play.note("parent begins")
        return [await ctx.run_node(step, 1), await ctx.run_node(ask), await ctx.run_node(step, 2)]

    await play.begin(flow((START, parent, play.says("end"))))
    await play.turn()
    await play.answer("yes")


@scenario("t13", "a question inside of a nested workflow")
async def nested_question(play: Stage) -> None:
    inner = Workflow(
        name="inner", edges=[(START, play.says("before"), asks(play, "ask_nq", "nq"), play.says("behind"))]
    )
    await play.begin(flow((START, play.says("first"), inner, play.says("last"))))
    await play.turn()
    await play.answer("A")


@scenario("t13", "one item of a map asks")
async def item_asks(play: Stage) -> None:
    async def work(node_input: int, ctx: InvocationContext) -> int:
        await trio.sleep(0.1 * node_input)
        play.note("work", i=node_input)
        if node_input == 2:
            await ctx.request_input("two?")
        return 10 * node_input

    await play.begin(flow((START, gives("items", [1, 2, 3]), node(work, parallel_worker=True), play.says("end"))))
    await play.turn()
    await play.answer("go")


async def confirmed(play: Stage, *, allowed: bool) -> None:
    """A node that needs permission."""

    async def wipe(node_input: Any) -> str:
        play.note("wiped")
        return "wiped"

    await play.begin(flow((START, node(wipe, require_confirmation=True), play.says("end"))))
    await play.turn()
    await play.answer(allowed)


@scenario("t13", "require_confirmation on a node; the answer is True")
async def allowed(play: Stage) -> None:
    await confirmed(play, allowed=True)


@scenario("t13", "require_confirmation on a node; the answer is False")
async def refused(play: Stage) -> None:
    await confirmed(play, allowed=False)


@scenario("t13", "plain text while a question is open, then the answer")
async def plain_text(play: Stage) -> None:
    await play.begin(flow((START, play.says("first"), asks(play, "ask_q", "q"), play.says("end"))))
    await play.turn()
    await play.turn("never mind")
    await play.answer("late")


# --- resumes ----------------------------------------------------------------------------------------------------------


@scenario("t13", "the caller leaves while the fourth node runs; resumed by invocation id (resumable=False)")
async def left(play: Stage) -> None:
    begun = 0

    async def silent(node_input: Any) -> None:
        play.note("silent ran")

    async def writes(ctx: InvocationContext) -> None:
        play.note("writes ran")
        ctx.state["w"] = 1

    async def slow(node_input: Any) -> str:
        nonlocal begun
        begun += 1
        play.note("slow began")
        try:
            await trio.sleep(10 if begun == 1 else 0)
        except trio.Cancelled:
            play.note("cancelled")
            raise
        play.note("slow ended")
        return "slow"

    await play.begin(flow((START, play.says("first"), silent, writes, slow, play.says("last"))))
    await play.turn(leave_after_s=1)
    await play.turn(None, invocation_id=play.invocation_id)


@scenario("t13", "a failed workflow is resumed by its invocation id")
async def failed(play: Stage) -> None:
    attempts = 0

    async def flaky(node_input: Any) -> str:
        nonlocal attempts
        attempts += 1
        await trio.sleep(0.1)
        play.note("flaky", n=attempts)
        await trio.sleep(0.1)
        if attempts == 1:
            raise ConnectionError("down")
        return "up"

    await play.begin(flow((START, (play.says("a"), flaky), JoinNode(name="j"), play.says("end"))))
    await play.turn()
    await play.turn(None, invocation_id=play.invocation_id)


# --- agents and tools -------------------------------------------------------------------------------------------------


@scenario("t13", "three agents: two in parallel, then one that reads both")
async def three_agents(play: Stage) -> None:
    both = (play.agent("pro", "for it", latency_s=0.2), play.agent("con", "against it", delay_s=0.1, latency_s=0.2))
    judge = play.agent("judge", "verdict", instruction="Judge.")
    await play.begin(flow((START, both, JoinNode(name="j"), judge)))
    await play.turn("Shall we?")


async def with_form(play: Stage, *answers: str) -> None:
    """An agent that answers in a form."""
    ext = play.agent("ext", *answers, output_schema=Order, output_key="order")
    await play.begin(flow((START, ext, play.says("use"))))
    await play.turn("five")


@scenario("t13", "agent with output_schema as a node")
async def form(play: Stage) -> None:
    await with_form(play, '{"n": 5}')


@scenario("t13", "agent with output_schema as a node: its answer does not fit")
async def no_form(play: Stage) -> None:
    await with_form(play, "five", "five", "five")


@scenario("t13", "agent with a tool as a node, after a function")
async def with_tool(play: Stage) -> None:
    async def look(q: str) -> str:
        """Look it up."""
        play.note("look", q=q)
        return f"found {q}"

    res = play.agent("res", call("look", q="cats"), "cats are fine", tools=[look])
    await play.begin(flow((START, play.says("topic", "cats"), res, play.says("use"))))
    await play.turn()


@scenario("t13", "a workflow as a tool")
async def as_tool(play: Stage) -> None:
    async def price(node_input: Any) -> dict[str, int]:
        play.note("price", of=plain(node_input))
        return {"price": 3}

    quote = Workflow(name="quote", description="Quotes.", edges=[(START, price, play.says("round", {"price": 3}))])
    await play.begin(play.agent("root", call("quote", request="tea"), "3 euros", tools=[AgentTool(quote)]))
    await play.turn("tea?")


@scenario("t13", "a tool as a node; a dict is its arguments")
async def tool_node(play: Stage) -> None:
    async def add(a: int, b: int) -> int:
        """Add."""
        play.note("add", a=a, b=b)
        return a + b

    await play.begin(flow((START, play.says("args", {"a": 2, "b": 3}), FunctionTool(add), play.says("next"))))
    await play.turn()


