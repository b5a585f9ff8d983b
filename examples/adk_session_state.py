"""The life of state (ADK: session_state_agent): what callbacks write is seen at once, and stored later."""

from __future__ import annotations

import trio

from minirun import Agent, Content, InMemoryRunner, types
from minirun.agents import CallbackContext
from minirun.models import LlmRequestDraft, LlmResponse
from minirun.testing import ScriptedLlm

KEYS = ("before_agent", "before_model", "after_model", "after_agent")


async def write(ctx: CallbackContext, title: str) -> None:
    """Write a key, and print how many the context has, and how many of them are stored."""
    ctx.state[title] = 1
    sessions = runner.session_service
    stored = await sessions.get_session(app_name=ctx.app_name, user_id=ctx.user_id, session_id=ctx.session.id)
    assert stored is not None
    print(f"{title}: seen {sum(key in ctx.state for key in KEYS)}, stored {sum(key in stored.state for key in KEYS)}")


async def before_agent(callback_context: CallbackContext) -> Content | None:
    if "before_agent" in callback_context.state:
        return types.ModelContent("Sorry, I can only reply once.")
    await write(callback_context, "before_agent")
    return None


async def before_model(callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
    await write(callback_context, "before_model")


async def after_model(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    await write(callback_context, "after_model")


async def after_agent(callback_context: CallbackContext) -> None:
    await write(callback_context, "after_agent")


root_agent = Agent(
    name="root_agent",
    model=ScriptedLlm(["Noted."]),
    before_agent_callback=before_agent,
    before_model_callback=before_model,
    after_model_callback=after_model,
    after_agent_callback=after_agent,
)
runner = InMemoryRunner(agent=root_agent)


async def main() -> None:
    for event in await runner.run_debug(["hello", "again"], quiet=True):
        print(event.text or f"(stored {', '.join(event.actions.state_delta)})")


if __name__ == "__main__":
    trio.run(main)
