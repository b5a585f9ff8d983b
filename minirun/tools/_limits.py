"""
How much of a runner's tools may happen at once.

A limit lives with the runner, not with the tool: one tool may serve several runners, and several `trio.run`, one after
another. What a tool's limit counts is kept only while somebody has a slot of it or waits for one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from ._base import BaseTool

__all__ = ["ToolLimits"]


@attrs.define(eq=False)
class _Slots:
    """The slots of one tool, and how many calls have one or wait for one."""

    tool: BaseTool  # held, so that its id is not another one's
    semaphore: trio.Semaphore
    users: int = 0


class ToolLimits:
    """
    What the tools of one runner share.

    Args:
        threads: How many synchronous tools may run at once.
    """

    def __init__(self, threads: int) -> None:
        self.threads = trio.CapacityLimiter(threads)
        self._slots: dict[int, _Slots] = {}

    @asynccontextmanager
    async def slot(self, tool: BaseTool, limit: int | None) -> AsyncIterator[None]:
        """
        Wait, first come first served, until fewer than *limit* calls of *tool* run, and count as one in the block.

        With None it neither waits nor counts. A cancelled wait leaves nothing behind.
        """
        if limit is None:
            yield
            return
        slots = self._slots.setdefault(id(tool), _Slots(tool, trio.Semaphore(limit)))
        slots.users += 1
        try:
            async with slots.semaphore:
                yield
        finally:
            slots.users -= 1
            if not slots.users:
                del self._slots[id(tool)]
