"""
A long-running call: a small reimbursement is paid at once, a large one waits for a manager, who answers later.

After human_in_loop of google/adk-python. Different: the model follows a script, nothing is traced, less is printed;
what the tool has said meanwhile is the question's `hint`, where ADK stores it as a first answer of the call.
"""

from __future__ import annotations

import trio

from minirun import Agent, InMemorySessionService, Runner, types
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool, ToolContext


def reimburse(purpose: str, amount: float) -> dict[str, str]:
    """Pay the employee."""
    return {"status": "ok"}


def ask_for_approval(purpose: str, amount: float, tool_context: ToolContext) -> dict[str, object]:
    """Ask the manager."""
    return {"status": "pending", "amount": amount, "ticketId": "T-1"}


travel = {"purpose": "travel", "amount": 200.0}
small, ask = call("reimburse", purpose="meals", amount=50.0), call("ask_for_approval", **travel)
root_agent = Agent(
    model=ScriptedLlm([small, "Paid.", ask, call("reimburse", **travel), "Paid, too."]),
    name="reimbursement_agent",
    instruction="Pay less than $100 at once. For more ask for approval, and pay what is approved.",
    tools=[reimburse, LongRunningFunctionTool(func=ask_for_approval)],
    generate_content_config=types.GenerateContentConfig(temperature=0.1),
)


async def main() -> None:
    runner = Runner(agent=root_agent, app_name="human_in_the_loop", session_service=InMemorySessionService())
    await runner.session_service.create_session(app_name="human_in_the_loop", user_id="1234", session_id="s")
    queue = [types.UserContent("Reimburse $50 for meals."), types.UserContent("Reimburse $200 for travel.")]
    for message in queue:
        waiting = None
        async with runner.run_async(user_id="1234", session_id="s", new_message=message) as run:
            async for event in run:
                for made in event.get_function_calls():
                    print(f"{made.name}{dict(made.args)}")
                    waiting = made if made.id in (event.long_running_tool_ids or ()) else waiting
                if event.text:
                    print(event.text)
        if waiting:
            print("the manager approves of what said", run.pending[0].hint)
            answer = types.FunctionResponse(id=waiting.id, name=waiting.name, response={"status": "approved"})
            queue.append(types.Content(role="user", parts=[types.Part(function_response=answer)]))


if __name__ == "__main__":
    trio.run(main)
