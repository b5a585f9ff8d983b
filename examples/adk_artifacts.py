"""Artifacts (ADK: artifact_save_text): each query is saved as a version of a text, and can be loaded again."""

from __future__ import annotations

import trio

from minirun import Agent, InMemoryRunner, types
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext, load_artifacts


async def log_query(tool_context: ToolContext, query: str) -> dict[str, int]:
    """Save the query."""
    part = types.Part.from_bytes(data=query.encode(), mime_type="text/plain")
    return {"version": await tool_context.save_artifact("query.txt", part)}


root_agent = Agent(
    name="log_agent",
    model=ScriptedLlm([call("log_query", query="one"), "Logged.", call("log_query", query="two"), "Logged, too."]),
    instruction="Log every query.",
    tools=[log_query, load_artifacts],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, app_name="logs")
    events = await runner.run_debug(["one", "two"], quiet=True)
    print([dict(event.actions.artifact_delta) for event in events if event.actions.artifact_delta])
    assert runner.artifact_service is not None
    place = {"app_name": "logs", "user_id": "debug_user_id", "session_id": "debug_session_id"}
    part = await runner.artifact_service.load_artifact(**place, filename="query.txt", version=0)
    print(part.inline_data.data if part and part.inline_data else None)


if __name__ == "__main__":
    trio.run(main)
