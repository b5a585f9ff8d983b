"""
The life of state: what callbacks write is seen at once, and stored later.

After session_state_agent of google/adk-python. Different: the model follows a script; keys are counted and printed, not
asserted; the runner knows the service, as contexts have no private way to it; the sample has no `main`.
"""

from __future__ import annotations

from typing import Any

import trio

from minirun import Agent, Content, InMemoryRunner, types
from minirun.agents import CallbackContext
from minirun.models import LlmRequestDraft, LlmResponse
from minirun.testing import ScriptedLlm

KEYS = ("before_agent", "before_model", "after_model", "after_agent")


async def write(ctx: CallbackContext, title: str) -> None:
    ctx.state[title] = 1
    place: Any = {"app_name": ctx.app_name, "user_id": ctx.user_id, "session_id": ctx.session.id}
    stored = await runner.session_service.get_session(**place)
    assert stored
    print(f"{title}: seen {sum(key in ctx.state for key in KEYS)}, stored {sum(key in stored.state for key in KEYS)}")


async def before_agent(callback_context: CallbackContext) -> Content | None:
    if "before_agent" in callback_context.state:
        return types.ModelContent("Once is enough.")
    await write(callback_context, "before_agent")
    return None


async def before_model(callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
    await write(callback_context, "before_model")


async def after_model(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    await write(callback_context, "after_model")


async def after_agent(callback_context: CallbackContext) -> None:
    await write(callback_context, "after_agent")


hooks: Any = {f"{hook.__name__}_callback": hook for hook in (before_agent, before_model, after_model, after_agent)}
root_agent = Agent(name="root_agent", model=ScriptedLlm(["Noted."]), **hooks)
runner = InMemoryRunner(agent=root_agent)


async def main() -> None:
    for event in await runner.run_debug(["hello", "again"], quiet=True):
        print(event.text or f"(stored {', '.join(event.actions.state_delta)})")


if __name__ == "__main__":
    trio.run(main)
