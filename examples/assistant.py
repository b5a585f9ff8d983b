"""
An assistant that remembers: what was said in one session helps in another one, also in another process.

    python examples/assistant.py

Each run is remembered when it ends (`MemoryPlugin`), in the file of the sessions. Before the model is asked it is told
what fits the message (`preload_memory`); it can look for more by itself (`load_memory`).
"""

from __future__ import annotations

import trio

from minirun import App, LlmAgent, Runner, SqliteSessionService
from minirun.memory import SqliteMemoryService
from minirun.models import LlmRequest
from minirun.plugins import MemoryPlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import load_memory, preload_memory
from minirun.types import Part


def answer(request: LlmRequest) -> str | Part:
    """Stands for a model: it reads what it is told, and asks for more where that is not enough."""
    last = request.contents[-1]
    found = [part.function_response.response for part in last.parts if part.function_response is not None]
    known = f"{request.config.system_instruction} {found}"
    if "?" not in last.text and not found:
        return "I will remember that."
    if "I like tea" in known:
        return "You like tea."
    return "I do not know." if found else call("load_memory", query="likes drink tea")


assistant = LlmAgent(name="assistant", model=ScriptedLlm(answer), tools=[preload_memory, load_memory])
app = App("assistant", assistant, plugins=[MemoryPlugin()])


async def main() -> None:
    async with SqliteSessionService("assistant.db") as sessions:
        memory = SqliteMemoryService(sessions)
        runner = Runner(app=app, session_service=sessions, memory_service=memory, auto_create_session=True)
        for user, session, message in (
            ("ada", "monday", "I like tea with milk."),
            ("ada", "tuesday", "Which tea should I buy?"),
            ("ada", "wednesday", "What should I order in the morning?"),
            ("bob", "thursday", "Which tea should I buy?"),
        ):
            async with runner.run_async(user_id=user, session_id=session, new_message=message) as run:
                said = await run.wait()
            print(f"{user}, {session}: {said and said.text}")


if __name__ == "__main__":
    trio.run(main)
