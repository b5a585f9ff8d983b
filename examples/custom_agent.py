"""
An agent of your own, in both forms. Annotated fields of the class are its keyword arguments.

The coroutine form can do everything: emit from nested scopes, handle a failing store, call other agents. The generator
form reads well where an agent only says one thing after another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trio

from minirun import BaseAgent, Event, InMemoryRunner, InvocationContext


class Countdown(BaseAgent):
    """Counts down, a number each `pause_s` seconds, and gives up after `patience_s`."""

    start: int = 3
    pause_s: float = 1.0
    patience_s: float = 2.5

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        with trio.move_on_after(self.patience_s) as patience:
            for number in range(self.start, -1, -1):
                stored = await ctx.emit(Event(message=str(number), state={"reached": number}))
                assert stored.seq is not None  # here the event is stored, and the caller has asked for the next one
                await trio.sleep(self.pause_s)
        if patience.cancelled_caught:
            await ctx.emit(Event(message=f"gave up at {ctx.state['reached']}"))


class Echo(BaseAgent):
    """Repeats the message, then runs the agents below it, one after another."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        assert ctx.user_content is not None
        yield Event(message=f"you said {ctx.user_content.text!r}")
        for agent in self.sub_agents:
            await agent.run_async(ctx)  # its events are its own; there is nothing to pass on


async def main() -> None:
    """Run one in the other."""
    agent = Echo(name="echo", sub_agents=[Countdown(name="countdown", start=9)])
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        async for event in run:
            print(event.seq, event.author, event.text)


if __name__ == "__main__":
    trio.run(main)
