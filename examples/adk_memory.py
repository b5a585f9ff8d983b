"""Memory (ADK: memory): a session is added to the memory, and another session finds what was said in it."""

from __future__ import annotations

import trio

from minirun import Agent, InMemoryRunner
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import load_memory, preload_memory
from minirun.types import Part


def answer(request: LlmRequest) -> str | Part:
    """Stands for a model that looks into its memory before it answers a question."""
    last = request.contents[-1]
    if "?" in last.text:
        return call("load_memory", query="badminton")
    found = [str(part.function_response.response) for part in last.parts if part.function_response]
    return ("You like badminton." if "badminton" in found[0] else "I do not know.") if found else "Good to know."


root_agent = Agent(name="memory_agent", model=ScriptedLlm(answer), tools=[load_memory, preload_memory])


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="my_app")
    sessions, memories = runner.session_service, runner.memory_service
    assert memories is not None
    for session_id, message in (("one", "My hobby is badminton."), ("two", "What is my hobby?")):
        session = await sessions.create_session(app_name="my_app", user_id="u", session_id=session_id)
        async with runner.run_async(user_id="u", session_id=session.id, new_message=message) as run:
            event = await run.wait()
        print(event.text if event else None)
        session = await sessions.get_session(app_name="my_app", user_id="u", session_id=session_id) or session
        await memories.add_session_to_memory(session)


if __name__ == "__main__":
    trio.run(main)
