"""What is left of an invocation after its end: contexts that somebody has kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minirun import BaseAgent, Event, InMemoryRunner, InvocationContext
from minirun.agents import CallbackContext
from minirun.errors import InvocationEndedError


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.__setitem__("k", 1),
        lambda state: state.__delitem__("there"),
        lambda state: state.add("n", 1),
        lambda state: state.extend("l", [1]),
        lambda state: state.update({"k": 1}),
        lambda state: state.setdefault("k", 1),
        lambda state: state.__setitem__("temp:k", 1),
    ],
)
async def test_state_is_not_written_after_the_run(write: Callable[[Any], object]) -> None:
    """
    Agents, callbacks and hooks that keep their context are told that nothing of a write would be stored.
    """
    kept: list[Any] = []

    class Keeper(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            kept.append(ctx)
            await ctx.emit(Event(message="hi", state={"there": 1, "n": 1, "l": []}))

    def before(callback_context: CallbackContext) -> None:
        kept.append(callback_context)

    runner = InMemoryRunner(Keeper(name="a", before_agent_callback=before), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert len(kept) == 2
    for context in kept:
        with pytest.raises(InvocationEndedError, match="has ended; nothing can be emitted or written any more"):
            write(context.state)
    session = await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")
    assert session is not None
    assert dict(session.state) == {"there": 1, "n": 1, "l": []}
