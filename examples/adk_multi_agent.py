"""
Transfers: a root agent hands over to the agent that fits, which keeps control until it hands over itself.

After hello_world_ma of google/adk-python. Different: the model, which all three agents share as they do there, follows
a script and needs no safety settings; the die is seeded; there is no ExampleTool: examples belong in the instruction.
"""

from __future__ import annotations

import random
from typing import Any

import trio

from minirun import Agent, InMemoryRunner
from minirun.testing import ScriptedLlm, call

dice = random.Random(1)


def roll_die(sides: int) -> int:
    """Roll a die."""
    return dice.randint(1, sides)


def check_prime(nums: list[int]) -> str:
    """Say which of the numbers are prime."""
    primes = [str(n) for n in nums if n > 1 and all(n % d for d in range(2, n))]
    return f"prime: {', '.join(primes)}" if primes else "none is prime"


roll_agent = Agent(
    name="roll_agent", description="Rolls dice.", instruction="Roll dice with roll_die only.", tools=[roll_die]
)
prime_agent = Agent(
    name="prime_agent", description="Checks primes.", instruction="Use check_prime only.", tools=[check_prime]
)
script: list[Any] = [call("transfer_to_agent", agent_name="roll_agent"), call("roll_die", sides=6), "A 2."]
script += [call("transfer_to_agent", agent_name="prime_agent"), call("check_prime", nums=[2]), "It is."]
root_agent = Agent(
    model=ScriptedLlm(script),
    name="root_agent",
    instruction="Delegate rolls to roll_agent, and questions about primes to prime_agent.",
    global_instruction="You are a bot for dice and primes.",
    sub_agents=[roll_agent, prime_agent],
)


async def main() -> None:
    for event in await InMemoryRunner(agent=root_agent).run_debug(["Roll a die.", "Is it prime?"], quiet=True):
        for made in event.get_function_calls():
            print(f"{event.author} calls {made.name}({dict(made.args)})")
        if event.text:
            print(f"{event.author}: {event.text}")


if __name__ == "__main__":
    trio.run(main)
