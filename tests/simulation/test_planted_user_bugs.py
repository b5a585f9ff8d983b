"""
Bugs that users of minirun write, each beside what is right: the simulation finds the one and lets the other pass.

A bug is a few lines of a tool or an agent and a check that a user would write. None of them needs a special schedule by
hand, a mock or a sleep: the first seeds find them, and what is left after shrinking is the few choices that matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from minirun import Event, InvocationContext, LlmAgent, RunConfig
from minirun.agents import BaseAgent
from minirun.errors import DeadlineExceededError
from minirun.models import LlmRequest
from minirun.simulation import CheckError, RecordedChoices, SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

from ..helpers import Logic
from .stores import Scenario, shrink, simulate

SEEDS_MAX = 2_000
CHOICES_MAX = 10


def calls_then_done(*turns: list[Any]) -> ScriptedLlm:
    """A model that makes the calls of each turn, one turn after another, and then is done."""

    def script(request: LlmRequest) -> Any:
        answered = 0
        for content in reversed(request.contents):
            if content.role == "user" and content.parts[0].function_response is None:
                break
            answered += content.parts[0].function_response is not None
        return turns[answered] if answered < len(turns) else "done"

    return ScriptedLlm(script)


async def in_turn(world: World) -> None:
    """What takes its time: the database of a shop, the web."""
    await world.sleep(0)


# --- a lost update in a tool ------------------------------------------------------------------------------------------

Sell = Callable[[World, ToolContext], Awaitable[None]]


async def sell_by_writing(world: World, ctx: ToolContext) -> None:
    """Reads the stock, waits, and writes what it has read, less one."""
    stock = ctx.state["app:stock"]
    await in_turn(world)
    ctx.state["app:stock"] = stock - 1


async def sell_by_adding(world: World, ctx: ToolContext) -> None:
    """Lets the store do the sum, when the event is stored."""
    await in_turn(world)
    ctx.state.add("app:stock", -1)


def selling(sell_one: Sell) -> Scenario:
    """Two customers buy one thing each; in the end two are gone."""

    async def scenario(world: World) -> None:
        async def sell(tool_context: ToolContext) -> str:
            """Sell one."""
            await sell_one(world, tool_context)
            return "sold"

        runner = world.runner(
            lambda: LlmAgent(name="shop", model=calls_then_done([call("sell")]), tools=[sell]), state={"app:stock": 10}
        )
        world.eventually(lambda: world.state(runner)["app:stock"] == 8)
        async with trio.open_nursery() as nursery:
            for user in ("ada", "bob"):
                nursery.start_soon(world.say, runner, user, "one, please")

    return scenario


# --- a retry that is not idempotent -----------------------------------------------------------------------------------


class Payments:
    """A service outside of minirun, which a crash does not undo: it does what it is asked, once for each key."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self._known: set[str] = set()

    def pay(self, order: str, key: str) -> None:
        """Pay the order, unless that was done under this key."""
        if key not in self._known:
            self._known.add(key)
            self.paid[order] += 1


def key_of_invocation(ctx: InvocationContext, order: str) -> str:
    """A user who asks again begins another invocation."""
    return ctx.invocation_id


def key_of_order(ctx: InvocationContext, order: str) -> str:
    """It is the order that must be paid once, however often it is asked for."""
    return order


def paying(key_of: Callable[[InvocationContext, str], str]) -> Scenario:
    """An order is paid once, although the process may die at any point and the user asks again."""

    async def scenario(world: World) -> None:
        payments = Payments()

        async def order(ctx: InvocationContext) -> None:
            number = ctx.user_content.text if ctx.user_content else ""
            await ctx.emit(Event(message="one moment"))
            payments.pay(number, key_of(ctx, number))
            await in_turn(world)
            await ctx.emit(Event(message="paid"))

        runner = world.runner(lambda: Logic(name="cashier", logic=order))
        world.always(lambda: payments.paid["order 1"] <= 1)
        world.eventually(lambda: payments.paid["order 1"] == 1)
        await world.say(runner, "ada", "order 1")

    return scenario


# --- check, then act, with something between --------------------------------------------------------------------------


async def book_if_free(world: World, ctx: InvocationContext) -> None:
    """Looks whether the seat is free, asks somebody, and takes it."""
    if "app:seat" in ctx.state:
        await ctx.emit(Event(message="taken"))
        return
    await in_turn(world)
    ctx.state["app:seat"] = ctx.user_id
    await ctx.emit(Event(message="yours"))


async def book_by_claiming(world: World, ctx: InvocationContext) -> None:
    """Stands in line first, and looks then who is at its head: what is stored has an order."""
    ctx.state.extend("app:claims", [ctx.user_id])
    await ctx.emit(Event(message="one moment"))
    await in_turn(world)
    await ctx.emit(Event(message="yours" if ctx.state["app:claims"][0] == ctx.user_id else "taken"))


def booking(book: Callable[[World, InvocationContext], Awaitable[None]]) -> Scenario:
    """Two users want the one seat; one of them gets it."""

    async def scenario(world: World) -> None:
        async def logic(ctx: InvocationContext) -> None:
            await book(world, ctx)

        told: list[str] = []

        async def ask(user: str) -> None:
            answer = await world.say(runner, user, "the seat, please")
            told.append(answer.text if answer is not None else "")

        runner = world.runner(lambda: Logic(name="booking", logic=logic))
        world.always(lambda: told.count("yours") <= 1)
        world.eventually(lambda: sorted(told) == ["taken", "yours"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "ada")
            nursery.start_soon(ask, "bob")

    return scenario


# --- a loop without a bound -------------------------------------------------------------------------------------------


async def wait_for_ever(world: World, job: list[str]) -> str:
    """Asks until the job is done; that it may fail was forgotten."""
    while "done" not in job:
        await world.sleep(1)
    return "done"


async def wait_a_while(world: World, job: list[str]) -> str:
    """Asks until the job has ended, and not for ever."""
    for _ in range(20):
        if job:
            return job[0]
        await world.sleep(1)
    return "it takes too long"


def polling(wait: Callable[[World, list[str]], Awaitable[str]]) -> Scenario:
    """A tool waits for a job that seldom fails; the user is always answered."""

    async def scenario(world: World) -> None:
        job: list[str] = []

        async def work() -> None:
            await world.sleep(5)
            job.append("failed" if world.choices.maybe("the job fails", 10) else "done")

        async def report() -> str:
            """Wait for the job."""
            return await wait(world, job)

        runner = world.runner(lambda: LlmAgent(name="clerk", model=calls_then_done([call("report")]), tools=[report]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            answer = await world.say(runner, "ada", "is it done?", run_config=RunConfig(deadline_s=60))
        world.eventually(lambda: answer is not None)

    return scenario


# --- tools that depend on each other, called at once ------------------------------------------------------------------


def in_one_turn() -> ScriptedLlm:
    """A model that puts two things into the cart and pays, all at once."""
    return calls_then_done([call("put", price=2), call("put", price=3), call("settle")])


def in_two_turns() -> ScriptedLlm:
    """A model that pays when it was told that the things are in the cart."""
    return calls_then_done([call("put", price=2), call("put", price=3)], [call("settle")])


def shopping(model: Callable[[], ScriptedLlm]) -> Scenario:
    """What is paid is the sum of what is in the cart."""

    async def scenario(world: World) -> None:
        cart: list[int] = []
        paid: list[int] = []

        async def put(price: int) -> str:
            """Put something into the cart."""
            await in_turn(world)
            cart.append(price)
            return "it is in the cart"

        async def settle() -> int:
            """Pay what is in the cart."""
            await in_turn(world)
            paid.append(sum(cart))
            return sum(cart)

        def agent() -> BaseAgent:
            return LlmAgent(name="shop", model=model(), tools=[put, settle])

        runner = world.runner(agent)
        world.eventually(lambda: paid == [5])
        await world.say(runner, "ada", "both, please")

    return scenario


# --- what is found ----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Bug:
    """A planted bug, what is right instead, and what the bug is found by."""

    name: str
    planted: Scenario
    corrected: Scenario
    failure: type[Exception] = CheckError
    faults: tuple[str, ...] = ()


BUGS = [
    Bug(name="a lost update in a tool", planted=selling(sell_by_writing), corrected=selling(sell_by_adding)),
    Bug(
        name="a retry that is not idempotent",
        planted=paying(key_of_invocation),
        corrected=paying(key_of_order),
        faults=("crash",),
    ),
    Bug(name="check, then act", planted=booking(book_if_free), corrected=booking(book_by_claiming)),
    Bug(
        name="a loop without a bound",
        planted=polling(wait_for_ever),
        corrected=polling(wait_a_while),
        failure=DeadlineExceededError,
    ),
    Bug(name="an order of parallel tools", planted=shopping(in_one_turn), corrected=shopping(in_two_turns)),
]


@pytest.mark.parametrize("more", [pytest.param(20, id="some"), pytest.param(100, id="many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_users_bug_is_found_and_its_correction_passes(bug: Bug, more: int) -> None:
    """It fails within 2 000 seeds, shrinks, and fails again alike; what is right passes as many seeds and some more."""

    def play(scenario: Scenario, seed: int) -> BaseException | None:
        return simulate(scenario, SeededChoices(seed), faults=bug.faults, storage="memory").failure

    found = next((seed for seed in range(SEEDS_MAX) if play(bug.planted, seed) is not None), None)
    assert found is not None
    first = simulate(bug.planted, SeededChoices(found), faults=bug.faults, storage="memory")
    assert type(first.failure) is bug.failure
    small = shrink(bug.planted, first, faults=bug.faults, storage="memory")
    left = [choice.label for choice in small.trace if choice.picked]
    assert len(left) <= CHOICES_MAX, left
    again = simulate(bug.planted, RecordedChoices(small.picks), faults=bug.faults, storage="memory")
    assert (again.digest, type(again.failure)) == (small.digest, bug.failure)
    print(f"{bug.name}: seed {found}, {len(left)} choices of {len(first.picks)}")
    for seed in range(found + 1 + more):
        assert play(bug.corrected, seed) is None, f"seed {seed}"
