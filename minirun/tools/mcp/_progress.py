"""
What a server tells of a call while it goes on, as `ctx.progress`.

The official package calls back in tasks of its own, in any order, and nothing bounds how often. So a call back leaves
what it was told in a channel that holds a few, and a task of the call emits it. What does not fit is dropped, and what
is not more than what was told before: progress of the protocol only grows. Progress that is not finite says nothing,
and is dropped, too; a total that is not finite is none.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from mcp.shared.dispatcher import ProgressFnT

from ...runtime import ToolContext
from ...runtime._failure import Pause
from ._text import line

__all__ = ["with_progress"]

# Of a server that tells faster than anybody reads.
KEPT_MAX = 64


async def with_progress(context: ToolContext, work: Callable[[ProgressFnT], Awaitable[Any]]) -> Any:
    """Return what *work* returns, or raise what it raises; what it reports meanwhile is shown to the caller."""
    send, receive = trio.open_memory_channel[tuple[float, float | None, str | None]](KEPT_MAX)

    async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        if not math.isfinite(progress):
            return
        if total is not None and not math.isfinite(total):
            total = None
        try:
            send.send_nowait((progress, total, message))
        except (trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError):
            pass

    async def show() -> None:
        newest = float("-inf")
        async for progress, total, message in receive:
            if progress > newest:
                newest = progress
                fraction = progress / total if total and 0 <= progress <= total else None
                told = line(message or "") or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
                await context.progress(told, fraction=fraction)

    result: Any = None
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(show, name="progress of a call of an MCP server")
        try:
            result = await work(report)
        except (Exception, Pause) as error:  # the headers of a request may ask a person for a credential
            failure = error
        finally:
            send.close()
    if failure is not None:
        raise failure
    return result
