"""
A pipeline: code is written, reviewed and rewritten; each agent reads in the state what those before it have left.

After workflow_agent_seq of google/adk-python. Different: the models follow scripts, the instructions are short, and the
sample has no `main`, because `adk web` shows it.
"""

from __future__ import annotations

import trio

from minirun import InMemoryRunner, LlmAgent, SequentialAgent
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm


def improve(request: LlmRequest) -> str:
    """Stands for a model that rewrites the code in its instruction."""
    return "rewritten: " + str(request.config.system_instruction).partition("Code: ")[2].splitlines()[0]


writer = LlmAgent(
    name="CodeWriterAgent",
    model=ScriptedLlm(["def add(a, b): return a + b"]),
    instruction="Write the Python code that is asked for.",
    description="Writes the first version.",
    output_key="generated_code",
)
reviewer = LlmAgent(
    name="CodeReviewerAgent",
    model=ScriptedLlm(["No docstring."]),
    instruction="Say what to improve in this. Code: {generated_code}",
    description="Comments on it.",
    output_key="review_comments",
)
refactorer = LlmAgent(
    name="CodeRefactorerAgent",
    model=ScriptedLlm(improve),
    instruction="Improve this. Code: {generated_code}\nComments: {review_comments}",
    description="Rewrites it.",
    output_key="refactored_code",
)
root_agent = SequentialAgent(
    name="CodePipelineAgent", sub_agents=[writer, reviewer, refactorer], description="Writes, reviews, rewrites."
)


async def main() -> None:
    for event in await InMemoryRunner(agent=root_agent).run_debug("Write add.", quiet=True):
        print(f"{event.author}: {event.text} {dict.fromkeys(event.actions.state_delta, '...')}")


if __name__ == "__main__":
    trio.run(main)
