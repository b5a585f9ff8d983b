"""
How much of a runner's tools may happen at once.

A limit lives with the runner, not with the tool: one tool may serve several runners, and several `trio.run`, one after
another. Who calls a tool that has a limit joins its line, waits for the turn, and leaves; the line is kept only while
somebody stands in it. Joining does not wait, so that the calls of one turn stand in the order in which they were made.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from ._base import BaseTool

__all__ = ["Slot", "ToolLimits"]


class _Line(NamedTuple):
    """Who calls one tool: those whose turn it is, and behind them those who wait."""

    tool: BaseTool  # held, so that its id is not another one's
    limit: int
    slots: list[Slot]


class Slot:
    """A place in the line of a tool: it waits, has its turn, or has left. Without a limit it always is its turn."""

    def __init__(self, limits: ToolLimits, line: _Line | None) -> None:
        self._limits = limits
        self._line = line
        self._turn = trio.Event()

    async def wait(self) -> None:
        """Wait until it is this one's turn; at once if it is. Leave also when this was cancelled."""
        if self._line is not None and not self._turn.is_set():
            await self._turn.wait()

    def leave(self) -> None:
        """Let the next one have its turn. Who has left already may leave again."""
        line, self._line = self._line, None
        if line is not None:
            line.slots.remove(self)
            self._limits._move_up(line)


class ToolLimits:
    """
    What the tools of one runner share.

    Args:
        threads: How many synchronous tools may run at once.
    """

    def __init__(self, threads: int) -> None:
        self.threads = trio.CapacityLimiter(threads)
        self._lines: dict[int, _Line] = {}

    def join(self, tool: BaseTool) -> Slot:
        """Stand in line for *tool*, behind everybody who does already. Whoever joins has to leave."""
        tool = tool.limited_as
        if tool.max_concurrency is None:
            return Slot(self, None)
        line = self._lines.setdefault(id(tool), _Line(tool, tool.max_concurrency, []))
        slot = Slot(self, line)
        line.slots.append(slot)
        self._move_up(line)
        return slot

    def _move_up(self, line: _Line) -> None:
        for slot in line.slots[: line.limit]:
            slot._turn.set()
        if not line.slots:
            del self._lines[id(line.tool)]
