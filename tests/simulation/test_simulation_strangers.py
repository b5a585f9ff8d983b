"""
A shop as a stranger would write it, with the four bugs that strangers write; each is found within a hundred seeds.

The corrected shop is silent, so what is found is the bug.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent, ToolContext
from minirun.simulation import DeadlockError, SeededChoices, World
from minirun.testing import ScriptedLlm, call

from ..helpers import Logic
from .stores import Scenario, simulate, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

SEEDS = 100


class Accounts:
    """Moves money in a database of its own, which wants both accounts locked."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._locks = {"ada": trio.Lock(), "bob": trio.Lock()}

    async def move(self, source: str, target: str) -> None:
        first, second = sorted((source, target)) if self._in_order else (source, target)
        with trio.CancelScope(shield=True):  # nobody shall see half of it
            async with self._locks[first]:
                await trio.sleep(0.1)
                async with self._locks[second]:
                    await trio.sleep(0.1)


def deadlock(*, bug: bool) -> Scenario:
    """Two users send each other money."""

    async def scenario(world: World) -> None:
        accounts = Accounts(in_order=not bug)

        async def pay(to: str, tool_context: ToolContext) -> str:
            """Send money."""
            await accounts.move(tool_context.user_id, to)
            return "sent"

        def model(request: Any) -> Any:
            last = request.contents[-1].parts[-1]
            return "done" if last.function_response else call("pay", to=last.text)

        runner = world.runner(lambda: LlmAgent(name="teller", model=ScriptedLlm(model), tools=[pay]))
        async with trio.open_nursery() as nursery:
            for user, other in (("ada", "bob"), ("bob", "ada")):
                await world.sleep(world.choices.choose(4, "how much later") / 10)
                nursery.start_soon(world.say, runner, user, other)

    return scenario


def lost_update(*, bug: bool) -> Scenario:
    """Two users visit at the same time, and are counted in one number."""

    async def count(ctx: InvocationContext) -> None:
        visits = ctx.state["app:visits"]
        await ctx.emit(Event(message="welcome"))
        if bug:
            ctx.state["app:visits"] = visits + 1
        else:
            ctx.state.add("app:visits", 1)
        await ctx.emit(Event(message="counted"))

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: Logic(name="counter", logic=count), state={"app:visits": 0})
        async with trio.open_nursery() as nursery:
            for user in ("ada", "bob"):
                nursery.start_soon(world.say, runner, user, "hello")
        assert world.state(runner)["app:visits"] == 2, "a visit was lost"

    return scenario


def double_charge(*, bug: bool) -> Scenario:
    """A user orders something, and a bank outside of all processes is told to charge for it, once."""

    async def scenario(world: World) -> None:
        charged: dict[str, int] = {}

        async def charge(order: str) -> str:
            """Charge the user's card."""
            charged[str(len(charged)) if bug else order] = 9
            await trio.sleep(0.1)
            return "paid"

        def model(request: Any) -> Any:
            last = request.contents[-1].parts[-1]
            return "thank you" if last.function_response else call("charge", order=last.text)

        runner = world.runner(lambda: LlmAgent(name="shop", model=ScriptedLlm(model), tools=[charge]))
        await world.say(runner, "ada", "order 7")
        assert sum(charged.values()) <= 9, "an order was paid for twice"

    return scenario


def stale_read(*, bug: bool) -> Scenario:
    """A shop remembers a price that the other process has changed since."""

    def shop() -> BaseAgent:
        remembered: dict[str, int] = {}

        async def logic(ctx: InvocationContext) -> None:
            if ctx.user_content is not None and ctx.user_content.text == "raise it":
                remembered["price"] = 20
                ctx.state["app:price"] = 20
                await ctx.emit(Event(message="raised"))
                return
            price = remembered.setdefault("price", ctx.state["app:price"]) if bug else ctx.state["app:price"]
            await ctx.emit(Event(message=f"it costs {price}"))

        return Logic(name="shop", logic=logic)

    async def scenario(world: World) -> None:
        runner = world.runner(shop, state={"app:price": 10})
        await world.say(runner, "ada", "how much?")
        await world.say(runner, "boss", "raise it")
        for user in ("ada", "bob"):
            answer = await world.say(runner, user, "how much?")
            assert answer is not None
            assert answer.text == "it costs 20", "a price of yesterday"

    return scenario


SHOPS: dict[str, tuple[Any, dict[str, Any], type[BaseException]]] = {
    "deadlock": (deadlock, {"storage": "memory"}, DeadlockError),
    "lost update": (lost_update, {"storage": "memory"}, AssertionError),
    "double charge": (double_charge, {"storage": "memory", "faults": ("crash",)}, AssertionError),
    "stale read": (stale_read, {"processes": 2}, AssertionError),
}


@pytest.mark.parametrize("name", SHOPS)
def test_the_bug_of_a_stranger_is_found(name: str) -> None:
    """Within a hundred seeds, and it fails with what it is."""
    make, options, kind = SHOPS[name]
    for seed in range(SEEDS):
        failure = simulate(make(bug=True), SeededChoices(seed), **options).failure
        if failure is not None:
            assert isinstance(failure, kind), f"seed {seed}: {failure!r}"
            print(f"{name}: seed {seed}")
            return
    pytest.fail(f"{SEEDS} seeds have not found the {name}")


@pytest.mark.parametrize("seeds", [pytest.param(12, id="some"), pytest.param(40, id="more", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SHOPS)
def test_the_corrected_shop_is_silent(name: str, seeds: int) -> None:
    """What has no bug fails in no seed."""
    make, options, _ = SHOPS[name]
    for seed in range(seeds):
        failure = simulate(make(bug=False), SeededChoices(seed), **options).failure
        assert failure is None, f"seed {seed}: {failure!r}"


def two_tools(*, opposite: bool, begun: list[str]) -> Scenario:
    """One answer calls two tools, each of which takes two locks, with bare checkpoints between."""

    async def scenario(world: World) -> None:
        locks = {"a": trio.Lock(), "b": trio.Lock()}

        async def take(name: str, first: str, second: str) -> str:
            begun.append(name)
            async with locks[first]:
                await trio.lowlevel.checkpoint()
                async with locks[second]:
                    return "taken"

        async def one() -> str:
            return await take("one", "a", "b")

        async def two() -> str:
            return await take("two", *("ba" if opposite else "ab"))

        def answer(request: Any) -> Any:
            has_responses = request.contents[-1].parts[-1].function_response is not None
            return "done" if has_responses else [call("one"), call("two")]

        runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(answer), tools=[one, two]))
        await world.say(runner, "ada", "go")

    return scenario


def test_tools_of_one_answer_meet_between_their_checkpoints() -> None:
    """Locks in opposite order stop the world in some seeds, in one order in none; the tools begin in their order."""
    begun: list[str] = []
    for opposite in (True, False):
        outcomes = [
            simulate(two_tools(opposite=opposite, begun=begun), SeededChoices(seed), storage="memory")
            for seed in range(30)
        ]
        found = {type(outcome.failure) for outcome in outcomes}
        assert found == ({DeadlockError, type(None)} if opposite else {type(None)})
    assert begun == ["one", "two"] * (len(begun) // 2)
