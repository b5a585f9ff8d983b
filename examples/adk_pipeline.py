"""A pipeline (ADK: workflow_agent_seq): write, review, rewrite; each reads what the one before left in the state."""

from __future__ import annotations

import trio

from minirun import InMemoryRunner, LlmAgent, SequentialAgent
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm


def improve(request: LlmRequest) -> str:
    """Stands for a model that rewrites the code in its instruction."""
    return "rewritten: " + str(request.config.system_instruction).partition("Code: ")[2].splitlines()[0]


writer = LlmAgent(
    name="code_writer",
    model=ScriptedLlm(["def add(a, b): return a + b"]),
    instruction="Write the code that is asked for.",
    output_key="generated_code",
)
reviewer = LlmAgent(
    name="code_reviewer",
    model=ScriptedLlm(["No docstring."]),
    instruction="Review this. Code: {generated_code}",
    output_key="review_comments",
)
refactorer = LlmAgent(
    name="code_refactorer",
    model=ScriptedLlm(improve),
    instruction="Improve this. Code: {generated_code}\nComments: {review_comments}",
    output_key="refactored_code",
)
root_agent = SequentialAgent(name="code_pipeline", sub_agents=[writer, reviewer, refactorer])


async def main() -> None:
    for event in await InMemoryRunner(agent=root_agent).run_debug("Write add.", quiet=True):
        print(f"{event.author}: {event.text} {dict.fromkeys(event.actions.state_delta, '...')}")


if __name__ == "__main__":
    trio.run(main)
