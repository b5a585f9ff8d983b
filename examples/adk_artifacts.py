"""
Artifacts: each query of the user is saved as a version of one text.

After artifact_save_text of google/adk-python. Different: the model follows a script and needs no safety settings; the
sample has no `main`, because `adk web` shows it: here two queries are saved, and the first version is read again.
"""

from __future__ import annotations

import trio

from minirun import Agent, InMemoryRunner, types
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext


async def log_query(tool_context: ToolContext, query: str) -> None:
    """Save the query as the artifact 'query'."""
    part = types.Part(inline_data=types.Blob(mime_type="text/plain", data=query.encode()))
    await tool_context.save_artifact("query", part)


root_agent = Agent(
    model=ScriptedLlm([call("log_query", query="one"), "Logged.", call("log_query", query="two"), "Logged."]),
    name="log_agent",
    description="Logs queries.",
    instruction="Log every query of the user, and say that you did.",
    tools=[log_query],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="logs")
    for event in await runner.run_debug(["one", "two"], quiet=True):
        if event.actions.artifact_delta:
            print(dict(event.actions.artifact_delta))
    assert runner.artifact_service is not None
    place = {"app_name": "logs", "user_id": "debug_user_id", "session_id": "debug_session_id"}
    part = await runner.artifact_service.load_artifact(**place, filename="query", version=0)
    print(part.inline_data.data if part and part.inline_data else None)


if __name__ == "__main__":
    trio.run(main)
