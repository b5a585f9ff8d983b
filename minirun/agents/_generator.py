"""Logic that is an async generator: what it yields is emitted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import trio

from ..errors import UnfinishedAgentError
from ..runtime import InvocationContext
from ..runtime._failure import first_failure, is_only_cancelled

__all__ = ["emit_from"]


async def emit_from(
    name: str,
    context: InvocationContext,
    logic: AsyncGenerator[Any, None],
    say: Callable[[Any], Awaitable[object]],
) -> None:
    """
    Let *say* have what the generator of *name* yields; once it returns True, the generator is closed.

    The generator runs in a task of its own, as trio needs it.
    """
    finished = is_enough = False
    failed: list[Exception] = []  # that have left the generator: trio's channel would write to them, and fail if frozen

    @trio.as_safe_channel
    async def events() -> AsyncGenerator[Any, None]:
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
                is_enough = await say(event) is True
                if is_enough:
                    break
    except BaseException as error:
        if failed and not is_only_cancelled(error):
            raise BaseExceptionGroup(f"{name} and its caller failed", [error, *failed]) from None
        if failed:
            raise failed[0] from None
        if not isinstance(first_failure(error), GeneratorExit):
            raise
        # trio 0.30 lets the closing of a generator leave it, where the generator had opened a nursery
        await trio.lowlevel.checkpoint_if_cancelled()
    if failed:
        raise failed[0]
    if not (finished or is_enough):  # a cancel scope around a `yield` has ended it, which looks like success
        msg = (
            f"the generator of {name} was stopped inside a `yield`, by a cancel scope around it or by "
            "itself; in such a place write `await ctx.emit(event)` in a coroutine instead"
        )
        raise UnfinishedAgentError(msg)
