"""
The worlds that the simulation itself is tested and measured with: users of a bank, of a model with tools, and talkers.

Only what a benchmark needs, too, is imported here: a process of one has to import nothing of pytest and hypothesis.
"""

from __future__ import annotations

from typing import Any

import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent
from minirun.simulation import World
from minirun.testing import ScriptedLlm, call

from .simulation.stores import Scenario

__all__ = ["PEOPLE", "SCENARIOS", "Bank", "answer", "four", "look_up", "money", "tools"]

PEOPLE = ("ada", "bob", "eve")


class Bank(BaseAgent):
    """Moves money as it is told: `move 10 to bob`."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        _, amount, _, to = (ctx.user_content.text if ctx.user_content else "").split()
        ctx.state.add(f"app:{ctx.user_id}", -int(amount))
        ctx.state.add(f"app:{to}", int(amount))
        await ctx.emit(Event(message="moved"))


def money(bank: type[BaseAgent]) -> Scenario:
    """Three people move money at the same time; there is never more or less of it."""

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: bank(name="bank"), state={f"app:{who}": 100 for who in PEOPLE})

        def is_conserved() -> bool:
            total: int = sum(world.state(runner)[f"app:{who}"] for who in PEOPLE)
            return total == 300

        world.always(is_conserved)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.say, runner, "ada", "move 10 to bob")
            nursery.start_soon(world.say, runner, "bob", "move 20 to ada")
            nursery.start_soon(world.say, runner, "eve", "move 30 to ada")

    return scenario


async def look_up(name: str) -> str:
    """A tool."""
    return name.upper()


def answer(request: Any) -> Any:
    """A model that calls the tool once, then answers."""
    waiting = request.contents[-1].parts[-1].function_response is None
    return [call("look_up", name="a"), call("look_up", name="b")] if waiting else "done"


async def tools(world: World) -> None:
    """Two users talk to a model with tools, twice; one of them has two devices on one session."""
    runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(answer), tools=[look_up]))
    async with trio.open_nursery() as nursery:
        for user in ("ada", "bob"):
            nursery.start_soon(world.say, runner, user, "hello")
        nursery.start_soon(world.say, runner, "ada", "me too")


async def four(world: World) -> None:
    """Four agents say five things each, at the same time, and each notes the order of all in one list."""

    async def talk(ctx: InvocationContext) -> None:
        for number in range(5):
            ctx.state.extend("app:order", [f"{ctx.user_id}{number}"])
            await ctx.emit(Event(message=str(number)))

    class Talker(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await talk(ctx)

    runner = world.runner(lambda: Talker(name="talker"))
    async with trio.open_nursery() as nursery:
        for user in "abcd":
            nursery.start_soon(world.say, runner, user, "go")
    world.note("order", str(world.state(runner)["app:order"]))


SCENARIOS: dict[str, Scenario] = {"money": money(Bank), "tools": tools, "four": four}
