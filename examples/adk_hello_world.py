"""
Tools and state: dice are rolled, numbers are checked for primes, and the rolls are kept.

After hello_world of google/adk-python. Different: the model follows a script and needs no safety settings; the die is
seeded; a plugin keeps the bytes of messages, because `RunConfig(save_input_blobs_as_artifacts=True)` is refused.
"""

from __future__ import annotations

import random

import trio

from minirun import Agent, InMemoryRunner, types
from minirun.plugins import SaveFilesAsArtifactsPlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

dice = random.Random(1)


def roll_die(sides: int, tool_context: ToolContext) -> int:
    """Roll a die, and remember what it showed."""
    result = dice.randint(1, sides)
    tool_context.state["rolls"] = [*tool_context.state.get("rolls", []), result]
    return result


async def check_prime(nums: list[int]) -> str:
    """Say which of the numbers are prime."""
    primes = [str(n) for n in nums if n > 1 and all(n % d for d in range(2, n))]
    return f"prime: {', '.join(primes)}" if primes else "none is prime"


roll = call("roll_die", sides=100)
root_agent = Agent(
    model=ScriptedLlm([roll, "An 18.", roll, call("check_prime", nums=[73]), "A 73, a prime.", "18 and 73.", "Kept."]),
    name="hello_world_agent",
    instruction="Roll dice with roll_die only. Check primes with check_prime only, after the roll.",
    tools=[roll_die, check_prime],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="my_app", plugins=[SaveFilesAsArtifactsPlugin()])
    session = await runner.session_service.create_session(app_name="my_app", user_id="user1")
    parts = [types.Part.from_text(text=text) for text in ("Roll 100 sides.", "Again. Is it prime?", "What did I get?")]
    for part in [*parts, types.Part.from_bytes(data=b"Hi bytes", mime_type="text/plain")]:
        content = types.Content(role="user", parts=[part])
        async with runner.run_async(user_id="user1", session_id=session.id, new_message=content) as run:
            async for event in run:
                if event.text:
                    print(f"{event.author}: {event.text}")
    assert runner.artifact_service
    files = await runner.artifact_service.list_artifact_keys(app_name="my_app", user_id="user1", session_id=session.id)
    print("rolls:", run.session.state["rolls"], "files:", len(files))


if __name__ == "__main__":
    trio.run(main)
