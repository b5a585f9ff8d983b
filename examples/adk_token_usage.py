"""
Tokens: what each turn has used is printed, and added up over a session.

After token_usage of google/adk-python. Different: two models that follow scripts stand for those of four providers; the
die is seeded; one message is sent, and no artifacts are listed, as there are none.
"""

from __future__ import annotations

import random
from collections import Counter

import trio

from minirun import InMemoryRunner, LlmAgent, SequentialAgent
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext
from minirun.types import Content, Part, UsageMetadata

dice = random.Random(1)


def roll_die(sides: int, tool_context: ToolContext) -> int:
    """Roll a die."""
    result = dice.randint(1, sides)
    tool_context.state["rolls"] = [*tool_context.state.get("rolls", []), result]
    return result


def answer(part: Part, prompt: int, candidates: int) -> LlmResponse:
    """What a model says, and what it says of its cost."""
    usage = UsageMetadata(
        prompt_token_count=prompt, candidates_token_count=candidates, total_token_count=prompt + candidates
    )
    return LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=usage)


def roll_agent(name: str, prompt: int) -> LlmAgent:
    script = [answer(call("roll_die", sides=100), prompt, 3), answer(Part(text="Rolled."), prompt + 5, 2)]
    return LlmAgent(name=name, model=ScriptedLlm(script), instruction="Roll with roll_die.", tools=[roll_die])


root_agent = SequentialAgent(name="pipeline", sub_agents=[roll_agent("small_model", 12), roll_agent("large_model", 20)])


async def main() -> None:
    tokens = Counter[str]()
    for event in await InMemoryRunner(agent=root_agent).run_debug("Roll a die with 100 sides.", quiet=True):
        if used := event.usage_metadata:
            print(f"{event.author}: {used.total_token_count} tokens")
            tokens["prompt"] += used.prompt_token_count or 0
            tokens["candidates"] += used.candidates_token_count or 0
    print(f"session: {tokens.total()} tokens, {dict(tokens)}")


if __name__ == "__main__":
    trio.run(main)
