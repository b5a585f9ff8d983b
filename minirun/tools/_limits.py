"""
How much of a runner's tools may happen at once.

A limit lives with the runner, not with the tool: one tool may serve several runners, and several `trio.run`, one after
another. Who calls a tool that has a limit joins its line, waits for the turn, and leaves; the line is kept only while
somebody stands in it. Joining does not wait, so that the calls of one turn stand in the order in which they were made.
"""

from __future__ import annotations

from typing import Any

import trio

from ._base import BaseTool
from ._slot import Slot

__all__ = ["ToolLimits"]


_UNLIMITED = Slot()


class ToolLimits:
    """
    What the tools of one runner share.

    Args:
        threads: How many synchronous tools may run at once; and how many threads that nobody waits for any more may
            still run beside them when another one begins.
    """

    def __init__(self, threads: int) -> None:
        self.threads = trio.CapacityLimiter(threads)
        self.abandoned: set[object] = set()
        """The threads that nobody waits for any more, and that still run."""
        self._lines: dict[int, list[Any]] = {}  # of LimitedSlot

    async def take_thread(self) -> None:
        """Take a place for a thread; whoever has it releases `threads`. A checkpoint only if it has to wait."""
        try:
            self.threads.acquire_nowait()
        except trio.WouldBlock:
            await self.threads.acquire()

    def check_threads(self) -> None:
        """Raise ThreadsExhaustedError if so many abandoned threads still run that no other may begin."""
        if len(self.abandoned) >= self.threads.total_tokens:
            from ..runtime._abandoned import exhausted  # few threads are abandoned

            raise exhausted(len(self.abandoned))

    def join(self, tool: BaseTool) -> Slot:
        """Stand in line for *tool*, behind everybody who does already. Whoever joins has to leave."""
        tool = tool.limited_as
        limit = tool.max_concurrency
        if limit is None:
            return _UNLIMITED
        from ._limited_slot import LimitedSlot  # few tools have a limit

        return LimitedSlot(self._lines, tool, limit)
