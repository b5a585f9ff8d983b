"""
Memory: what was said in one session is found in another one.

After memory of google/adk-python. Different: the model follows a script, and fewer messages are sent.
"""

from __future__ import annotations

from datetime import datetime

import trio

from minirun import Agent, InMemoryRunner, Session
from minirun.agents import CallbackContext
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import load_memory, preload_memory
from minirun.types import Part


def answer(request: LlmRequest) -> str | Part:
    """Stands for a model that looks into its memory before it answers a question."""
    last = request.contents[-1]
    if "?" in last.text:
        return call("load_memory", query="game play")
    found = [str(part.function_response.response) for part in last.parts if part.function_response]
    return ("You play chess." if "chess" in found[0] else "I do not know.") if found else "Good to know."


def update_current_time(callback_context: CallbackContext) -> None:
    callback_context.state["_time"] = datetime.now().isoformat()


root_agent = Agent(
    model=ScriptedLlm(answer),
    name="memory_agent",
    before_agent_callback=update_current_time,
    instruction="Answer the user's questions. It is {_time} now.",
    tools=[load_memory, preload_memory],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="my_app")
    assert runner.memory_service

    async def run_prompts(*messages: str) -> Session:
        session = await runner.session_service.create_session(app_name="my_app", user_id="user1")
        for message in messages:
            async with runner.run_async(user_id="user1", session_id=session.id, new_message=message) as run:
                event = await run.wait()
            print(event.text if event else None)
        return run.session

    await runner.memory_service.add_session_to_memory(await run_prompts("I am Ada.", "I play chess."))
    await run_prompts("Hi", "Which game do I play?")


if __name__ == "__main__":
    trio.run(main)
