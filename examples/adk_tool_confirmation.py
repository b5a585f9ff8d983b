"""A confirmation (ADK: human_tool_confirmation): a tool is not run before somebody has allowed it."""

from __future__ import annotations

import trio

from minirun import Agent, FunctionTool, InMemoryRunner
from minirun.testing import ScriptedLlm, call


def reimburse(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def is_large(amount: int) -> bool:
    """Whether somebody has to look at it."""
    return amount > 1000


root_agent = Agent(
    name="time_off_agent",
    model=ScriptedLlm([call("reimburse", amount=10), "Done.", call("reimburse", amount=5000), "Done, after a look."]),
    tools=[FunctionTool(reimburse, require_confirmation=is_large)],
)


async def main() -> None:
    runner = InMemoryRunner(agent=root_agent, auto_create_session=True)
    for message in ("Pay 10.", "Pay 5000."):
        async with runner.run_async(user_id="u", session_id="s", new_message=message) as run:
            await run.wait()
        while run.pending:
            [question] = run.pending
            print(f"allow {question.tool}{dict(question.args)}? yes")
            async with runner.run_async(user_id="u", session_id="s", new_message=question.reply(True)) as run:
                await run.wait()
        print(run.answer.text if run.answer else None)


if __name__ == "__main__":
    trio.run(main)
