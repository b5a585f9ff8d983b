"""
Branches: three agents look things up at once, a fourth puts together what they found.

After parallel_agent_web_research.py of google/adk-docs (examples/python/snippets/agents/workflow-agents). Different:
the models follow scripts, so nobody searches the web; the instructions are short; failures are raised, not printed.
"""

from __future__ import annotations

import trio

from minirun import InMemoryRunner, LlmAgent, ParallelAgent, SequentialAgent
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm

APP_NAME, USER_ID = "parallel_research_app", "research_user_01"
TOPICS = {"RenewableEnergy": "renewable_energy", "EV": "ev_technology", "CarbonCapture": "carbon_capture"}


def merge(request: LlmRequest) -> str:
    """Stands for a model that joins what its instruction holds."""
    return " ".join(str(request.config.system_instruction).partition("Merge: ")[2].split("\n")[0].split(" / "))


researchers = [
    LlmAgent(
        name=f"{name}Researcher",
        model=ScriptedLlm([f"{name} is growing."]),
        instruction=f"Say in a sentence what is new in {key}.",
        output_key=f"{key}_result",
    )
    for name, key in TOPICS.items()
]
parallel = ParallelAgent(name="ParallelWebResearchAgent", sub_agents=researchers)
instruction = "Merge: {renewable_energy_result} / {ev_technology_result} / {carbon_capture_result}"
merger = LlmAgent(name="SynthesisAgent", model=ScriptedLlm(merge), instruction=instruction)
root_agent = SequentialAgent(name="ResearchAndSynthesisPipeline", sub_agents=[parallel, merger])


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name=APP_NAME)
    session = await runner.session_service.create_session(app_name=APP_NAME, user_id=USER_ID)
    found = []
    async with runner.run_async(user_id=USER_ID, session_id=session.id, new_message="What is new?") as run:
        async for event in run:
            if event.is_final_response() and event.author != "SynthesisAgent":
                found.append(f"{event.author} in {event.branch}: {event.text}")
            elif event.is_final_response():
                print(*sorted(found), f"{event.author}: {event.text}", sep="\n")


if __name__ == "__main__":
    trio.run(main)
