"""A long-running call (ADK: human_in_loop): a large reimbursement waits for a manager, who answers later."""

from __future__ import annotations

from typing import Any

import trio

from minirun import Agent, InMemorySessionService, Runner
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool


def reimburse(purpose: str, amount: float) -> dict[str, str]:
    """Reimburse the employee."""
    return {"status": "ok"}


def ask_for_approval(purpose: str, amount: float) -> dict[str, Any]:
    """Ask the manager."""
    return {"status": "pending", "ticketId": "reimbursement-ticket-001"}


root_agent = Agent(
    name="reimbursement_agent",
    model=ScriptedLlm(
        [
            call("ask_for_approval", purpose="travel", amount=200.0),
            call("reimburse", purpose="travel", amount=200.0),
            "Your travel is reimbursed.",
        ]
    ),
    tools=[reimburse, LongRunningFunctionTool(ask_for_approval)],
)


async def main() -> None:
    sessions = InMemorySessionService()
    runner = Runner(agent=root_agent, app_name="hitl", session_service=sessions)
    await sessions.create_session(app_name="hitl", user_id="1234", session_id="s")
    message = "Please reimburse $200 for travel."
    async with runner.run_async(user_id="1234", session_id="s", new_message=message) as run:
        await run.wait()
        [question] = run.pending  # ADK: look for the call whose id is in long_running_tool_ids
    print(f"{run.status}: {question.name}{dict(question.args)}\nit said {question.hint}")

    reply = question.reply({"status": "approved", "ticketId": "reimbursement-ticket-001"})
    async with runner.run_async(user_id="1234", session_id="s", new_message=reply) as run:
        async for event in run:
            print([each.name for each in event.get_function_calls()] or event.text)


if __name__ == "__main__":
    trio.run(main)
