"""
A report in versions: a draft, a better one after a critic has read it, a third one, and the way back.

Each version becomes visible with the event that names it, in one transaction, because the artifact service shares the
file of the session service. A rewind takes the last turn back, and the report with it, without copying a byte.
"""

from __future__ import annotations

import trio

from minirun import LlmAgent, LoopAgent, Part, Runner, SqliteSessionService, ToolContext
from minirun.artifacts import SqliteArtifactService
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop


async def write_report(text: str, tool_context: ToolContext) -> dict[str, int]:
    """Save the report."""
    return {"version": await tool_context.save_artifact("report.md", Part(text=text))}


drafts = ["Sales rose.", "Sales rose by 4 % in May.", "Sales fell."]
writer = LlmAgent(
    name="writer",
    model=ScriptedLlm([each for text in drafts for each in (call("write_report", text=text), "Written.")]),
    instruction="Write the report. So far: {artifact.report.md?}",
    tools=[write_report],
)
critic = LlmAgent(
    name="critic",
    model=ScriptedLlm(["By how much?", call("exit_loop"), call("exit_loop")]),
    instruction="Is this a good report? {artifact.report.md}",
    tools=[exit_loop],
)
team = LoopAgent(name="team", sub_agents=[writer, critic])


async def main() -> None:
    async with SqliteSessionService("reports.db") as sessions:
        artifacts = SqliteArtifactService(sessions)
        runner = Runner(agent=team, app_name="reports", session_service=sessions, artifact_service=artifacts)
        may = (await sessions.create_session(app_name="reports", user_id="ada")).id

        async def show(what: str) -> None:
            where = {"app_name": "reports", "user_id": "ada", "session_id": may}
            found = await artifacts.list_artifact_versions(filename="report.md", **where)
            print(what, [f"{version.version}: {version.size} bytes" for version in found])

        for message in ("Report on May.", "Sound more worried."):
            async with runner.run_async(user_id="ada", session_id=may, new_message=message) as run:
                await run.wait()
            await show(message)
        last = run.invocation_id
        await runner.rewind_async(user_id="ada", session_id=may, rewind_before_invocation_id=last)
        await show("(taken back)")


if __name__ == "__main__":
    trio.run(main)
