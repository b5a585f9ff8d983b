"""Logic that is an async generator: what it yields is emitted."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import trio

from ..errors import UnfinishedAgentError
from ..events import Event
from ..runtime import InvocationContext
from ..runtime._failure import first_failure, is_only_cancelled

if TYPE_CHECKING:
    from ._base import BaseAgent

__all__ = ["emit_from"]


async def emit_from(agent: BaseAgent, context: InvocationContext, logic: AsyncGenerator[Event, None]) -> None:
    """Emit what the generator yields. It runs in a task of its own, as trio needs it."""
    finished = False
    failed: list[Exception] = []  # that have left the generator: trio's channel would write to them, and fail if frozen

    @trio.as_safe_channel
    async def events() -> AsyncGenerator[Event, None]:
        nonlocal finished
        context._tasks += (trio.lowlevel.current_task(),)
        try:
            async for event in logic:
                yield event
            finished = True
        except Exception as error:
            failed.append(error)
        finally:
            await logic.aclose()

    try:
        async with events() as channel:
            async for event in channel:
                await context.emit(event)
    except BaseException as error:
        if failed and not is_only_cancelled(error):
            raise BaseExceptionGroup(f"agent {agent.name!r} and its caller failed", [error, *failed]) from None
        if failed:
            raise failed[0] from None
        if not isinstance(first_failure(error), GeneratorExit):
            raise
        # trio 0.30 lets the closing of a generator leave it, where the generator had opened a nursery
        await trio.lowlevel.checkpoint_if_cancelled()
    if failed:
        raise failed[0]
    if not finished:  # a cancel scope around a `yield` has ended the generator, which looks like success here
        msg = (
            f"the generator of agent {agent.name!r} was stopped inside a `yield`, by a cancel scope around it or by "
            "itself; in such a place write `await ctx.emit(event)` in a coroutine instead"
        )
        raise UnfinishedAgentError(msg)
