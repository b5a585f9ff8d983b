"""Tokens and fragments (ADK: token_usage, streaming): what a run has used is added up from its events."""

from __future__ import annotations

import trio

from minirun import Agent, InMemoryRunner, RunConfig, StreamingMode
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm
from minirun.types import ModelContent, UsageMetadata

usage = UsageMetadata(prompt_token_count=12, candidates_token_count=3, total_token_count=15)
answer = [
    LlmResponse(content=ModelContent("It is "), partial=True),
    LlmResponse(content=ModelContent("It is a 4."), partial=False, usage_metadata=usage),
]
root_agent = Agent(name="dice", model=ScriptedLlm([answer, answer]))


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, auto_create_session=True)
    total_tokens = 0
    for message in ("Roll.", "Again."):
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        async with runner.run_async(user_id="u", session_id="s", new_message=message, run_config=config) as run:
            async for event in run:
                print("partial" if event.partial else "final", repr(event.text))
                if event.usage_metadata:
                    total_tokens += event.usage_metadata.total_token_count or 0
    print("tokens:", total_tokens)


if __name__ == "__main__":
    trio.run(main)
