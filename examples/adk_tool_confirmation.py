"""
Confirmations: a tool is not called before somebody has allowed it, or asks somebody itself.

After human_tool_confirmation of google/adk-python. Different: the model follows a script; no setting makes the app
resumable, because every invocation is; the sample has no `main`, because `adk web` asks the user there.
"""

from __future__ import annotations

from typing import Any

import trio

from minirun import Agent, FunctionTool, InMemoryRunner
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext


def reimburse(amount: int) -> dict[str, str]:
    """Pay the employee."""
    return {"status": "ok"}


async def confirmation_threshold(amount: int) -> bool:
    return amount > 1000


def request_time_off(days: int, tool_context: ToolContext) -> dict[str, Any]:
    """Ask for days off."""
    if days <= 2:
        return {"status": "ok", "approved_days": days} if days > 0 else {"status": "invalid"}
    confirmation = tool_context.tool_confirmation
    if confirmation is None:
        tool_context.request_confirmation(hint="How many days may it be?", payload={"approved_days": 0})
        return {"status": "waiting for the manager"}
    approved = min(confirmation.payload["approved_days"], days)
    return {"status": "ok" if approved else "rejected", "approved_days": approved}


small, large, off = call("reimburse", amount=10), call("reimburse", amount=5000), call("request_time_off", days=5)
model = ScriptedLlm([small, "Done.", large, "Done.", off, "Done."])
tools: list[Any] = [FunctionTool(reimburse, require_confirmation=confirmation_threshold), request_time_off]
root_agent = Agent(name="time_off_agent", model=model, tools=tools)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, auto_create_session=True)
    queue: list[Any] = ["Pay 10.", "Pay 5000.", "5 days off!"]
    while queue:
        async with runner.run_async(user_id="u", session_id="s", new_message=queue.pop(0)) as run:
            async for event in run:
                for response in event.get_function_responses():
                    print(dict(response.response))
        for question in run.pending:
            print(f"allow {question.tool}{dict(question.args)}? yes")
            queue.insert(0, question.reply(True, payload=question.payload and {"approved_days": 3}))


if __name__ == "__main__":
    trio.run(main)
