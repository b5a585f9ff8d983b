"""
How far a state key reaches: `app:` to everybody, `user:` to one user's sessions, `temp:` to one run, the rest to one
session. And how it changes: with events, never by assigning to a session that a service returned.
"""

from __future__ import annotations

import trio

from minirun import InMemoryRunner, LlmAgent, ToolContext
from minirun.testing import ScriptedLlm, call


def buy(item: str, tool_context: ToolContext) -> str:
    """Put an item into the cart."""
    state = tool_context.state
    state.extend("cart", [item])  # operations: what is bought at the same time elsewhere counts too
    state.add("user:items_bought", 1)
    state["app:last_item"] = item
    return f"{item}, paid in {state['temp:currency']}"


model = ScriptedLlm([[call("buy", item="pen"), call("buy", item="ink")], "Done."])
agent = LlmAgent(name="shop", model=model, tools=[buy], output_key="said")
runner = InMemoryRunner(agent=agent, app_name="shop", auto_create_session=True)
service = runner.session_service


async def show(user_id: str, session_id: str) -> None:
    """Print the state as this session sees it; make the session if need be."""
    session = await service.get_session(app_name="shop", user_id=user_id, session_id=session_id)
    if session is None:
        session = await service.create_session(app_name="shop", user_id=user_id, session_id=session_id)
    print(f"{user_id}/{session_id}: {session.state}")


async def main() -> None:
    """Buy two things on Monday, then look from elsewhere, and again when Monday's session is deleted."""
    delta = {"temp:currency": "euros"}
    async with runner.run_async(user_id="ada", session_id="monday", new_message="pen, ink", state_delta=delta) as run:
        async for event in run:
            print(event.author, event.text or [answer.response["result"] for answer in event.get_function_responses()])
    await show("ada", "monday")
    await show("ada", "tuesday")
    await show("bob", "monday")

    await service.delete_session(app_name="shop", user_id="ada", session_id="monday")
    await show("ada", "monday")

    session = await service.create_session(app_name="shop", user_id="ada")
    try:
        session.state["cart"] = []  # type: ignore[index]  # mypy says so too
    except TypeError as error:
        print(str(error).partition(";")[0])


if __name__ == "__main__":
    trio.run(main)
