"""
How much of a runner's tools may happen at once.

A limit lives with the runner, not with the tool: one tool may serve several runners, and several `trio.run`, one after
another. Who calls a tool that has a limit joins its line, waits for the turn, and leaves; the line is kept only while
somebody stands in it. Joining does not wait, so that the calls of one turn stand in the order in which they were made.
"""

from __future__ import annotations

from typing import Any

from .._threads import Threads
from ._base import BaseTool
from ._slot import Slot

__all__ = ["ToolLimits"]


_UNLIMITED = Slot()


class ToolLimits:
    """
    What the tools of one runner share.

    Args:
        threads: How many synchronous tools may run at once; see `Threads`.
    """

    def __init__(self, threads: int) -> None:
        self.threads = Threads(threads)
        self._lines: dict[int, list[Any]] = {}  # of LimitedSlot

    def join(self, tool: BaseTool) -> Slot:
        """Stand in line for *tool*, behind all calls that do already. A call that joins has to leave."""
        tool = tool.limited_as
        limit = tool.max_concurrency
        if limit is None:
            return _UNLIMITED
        from ._limited_slot import LimitedSlot  # few tools have a limit

        return LimitedSlot(self._lines, tool, limit)
