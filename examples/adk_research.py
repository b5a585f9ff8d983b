"""Branches (ADK: parallel web research): three agents look things up at once, a fourth puts it together."""

from __future__ import annotations

import trio

from minirun import InMemoryRunner, LlmAgent, ParallelAgent, SequentialAgent
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm


def merge(request: LlmRequest) -> str:
    """Stands for a model that joins what its instruction holds."""
    return " ".join(str(request.config.system_instruction).partition("Merge: ")[2].split("\n")[0].split(" / "))


researchers = [
    LlmAgent(name=f"{topic}_researcher", model=ScriptedLlm([f"{topic} is growing."]), output_key=f"{topic}_result")
    for topic in ("wind", "solar", "carbon")
]
synthesis = LlmAgent(
    name="synthesis",
    model=ScriptedLlm(merge),
    instruction="Merge: {wind_result} / {solar_result} / {carbon_result}",
)
root_agent = SequentialAgent(
    name="research", sub_agents=[ParallelAgent(name="parallel_research", sub_agents=researchers), synthesis]
)


async def main() -> None:
    events = await InMemoryRunner(agent=root_agent).run_debug("What is new?", quiet=True)
    print("\n".join(sorted(f"{event.author} in {event.branch}" for event in events[:3])))
    print(f"{events[-1].author}: {events[-1].text}")


if __name__ == "__main__":
    trio.run(main)
