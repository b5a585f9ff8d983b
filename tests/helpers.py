"""What many tests need: a runner over a fresh in-memory session, and runs read to their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from minirun import BaseAgent, Content, Event, InMemoryRunner, InvocationContext, RunConfig, Runner
from minirun.runtime import Run


class Place(TypedDict):
    """Where the one session is."""

    user_id: str
    session_id: str


PLACE: Place = {"user_id": "u", "session_id": "s"}


class Logic(BaseAgent):
    """An agent whose logic is a function of the context."""

    logic: Callable[[InvocationContext], Awaitable[None]]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await self.logic(ctx)


def runner_for(logic: BaseAgent | Callable[[InvocationContext], Awaitable[None]]) -> Runner:
    """A runner over an in-memory service that makes sessions on first use."""
    agent = logic if isinstance(logic, BaseAgent) else Logic(name="agent", logic=logic)
    return InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)


async def run_to_end(runner: Runner, message: str | Content = "go", **options: Any) -> tuple[list[Event], Run]:
    """Run a message and return all its events, and the run."""
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        events = [event async for event in run]
    return events, run


async def stored_events(runner: Runner) -> list[Event]:
    """The events of the session, without the creation record."""
    return await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)


def look(n: int = 0) -> str:
    """Look it up."""
    return f"seen {n}"


def shown(model: Any, request: int = -1) -> list[str]:
    """What a model was shown, a text for each content."""
    texts = []
    for content in model.requests[request].contents:
        said = [part.text or f"{(part.function_call or part.function_response).name}!" for part in content.parts]
        texts.append(f"{content.role}: {' '.join(said)}")
    return texts


__all__ = ["PLACE", "Logic", "Place", "RunConfig", "look", "run_to_end", "runner_for", "shown", "stored_events"]
