"""A tool agent (ADK: hello_world): dice are rolled, numbers checked, and the rolls kept in the state."""

from __future__ import annotations

import trio

from minirun import Agent, InMemoryRunner, types
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext


def roll_die(sides: int, tool_context: ToolContext) -> int:
    """Roll a die.

    Args:
        sides: How many sides it has.
    """
    result = 7 % sides  # a die that always falls like this
    tool_context.state["rolls"] = [*tool_context.state.get("rolls", []), result]
    return result


async def check_prime(nums: list[int]) -> str:
    """Say which of the numbers are prime."""
    primes = [n for n in nums if n > 1 and all(n % d for d in range(2, n))]
    return f"{', '.join(map(str, primes)) or 'none'} prime"


root_agent = Agent(
    model=ScriptedLlm([call("roll_die", sides=8), call("check_prime", nums=[7]), "I rolled 7, which is prime."]),
    name="hello_world_agent",
    description="Rolls dice and checks for primes.",
    instruction="Roll dice with roll_die, and check the result with check_prime.",
    tools=[roll_die, check_prime],
    generate_content_config=types.GenerateContentConfig(temperature=0.1),
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="hello")
    session = await runner.session_service.create_session(app_name="hello", user_id="user1")
    content = types.Content(role="user", parts=[types.Part.from_text(text="Roll a die with 8 sides. Is it prime?")])
    async with runner.run_async(user_id="user1", session_id=session.id, new_message=content) as run:
        async for event in run:
            for part in event.content.parts if event.content else ():
                if part.text:
                    print(f"** {event.author}: {part.text}")
    fresh = await runner.session_service.get_session(app_name="hello", user_id="user1", session_id=session.id)
    print("rolls:", fresh.state["rolls"] if fresh else None)


if __name__ == "__main__":
    trio.run(main)
