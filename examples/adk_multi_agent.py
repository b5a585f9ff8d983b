"""Transfers (ADK: hello_world_ma): a root agent hands over to the agent that fits, and that one keeps control."""

from __future__ import annotations

import trio

from minirun import Agent, InMemoryRunner
from minirun.testing import ScriptedLlm, call


def roll_die(sides: int) -> int:
    """Roll a die."""
    return 7 % sides


roll_agent = Agent(
    name="roll_agent",
    model=ScriptedLlm([call("roll_die", sides=6), "A 1.", "Another 1, I am sure."]),
    description="Rolls dice.",
    instruction="Roll dice with roll_die.",
    tools=[roll_die],
)
prime_agent = Agent(name="prime_agent", description="Checks for primes.", instruction="Say which are prime.")
root_agent = Agent(
    name="root_agent",
    model=ScriptedLlm([call("transfer_to_agent", agent_name="roll_agent")]),
    instruction="Delegate rolling to roll_agent, and checks to prime_agent.",
    sub_agents=[roll_agent, prime_agent],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent)
    for event in await runner.run_debug(["Roll a die.", "Again?"], quiet=True):
        for call_ in event.get_function_calls():
            print(f"{event.author} calls {call_.name}({dict(call_.args)})")
        if event.text:
            print(f"{event.author}: {event.text}")


if __name__ == "__main__":
    trio.run(main)
