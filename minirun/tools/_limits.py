"""
How much of a runner's tools may happen at once.

A limit lives with the runner, not with the tool: one tool may serve several runners, and several `trio.run`, one after
another. Who calls a tool that has a limit joins its line, waits for the turn, and leaves; the line is kept only while
somebody stands in it. Joining does not wait, so that the calls of one turn stand in the order in which they were made.
"""

from __future__ import annotations

import trio

from ..errors import ThreadsExhaustedError
from ._base import BaseTool

__all__ = ["Slot", "ToolLimits"]


class Slot:
    """A place in the line of a tool: it waits, has its turn, or has left. This one has no limit to wait for."""

    is_free = True
    """Whether it is this one's turn."""

    async def wait(self) -> None:
        """Wait until it is this one's turn; at once if it is. Leave also when this was cancelled."""

    def leave(self) -> None:
        """Let the next one have its turn. Who has left already may leave again."""


class _LimitedSlot(Slot):
    def __init__(self, lines: dict[int, list[_LimitedSlot]], tool: BaseTool, limit: int) -> None:
        self._lines = lines
        self._tool = tool  # held, so that its id is not another one's
        self._limit = limit
        self._turn = trio.Event()
        lines.setdefault(id(tool), []).append(self)
        self._move_up()

    @property
    def is_free(self) -> bool:  # type: ignore[override]  # one without a limit always is
        return self._turn.is_set()

    async def wait(self) -> None:
        if not self.is_free:
            await self._turn.wait()

    def leave(self) -> None:
        if self in self._lines.get(id(self._tool), ()):
            self._lines[id(self._tool)].remove(self)
            self._turn.set()
            self._move_up()

    def _move_up(self) -> None:
        line = self._lines[id(self._tool)]
        for slot in line[: self._limit]:
            slot._turn.set()
        if not line:
            del self._lines[id(self._tool)]


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
        self._lines: dict[int, list[_LimitedSlot]] = {}

    def check_threads(self) -> None:
        """Raise ThreadsExhaustedError if so many abandoned threads still run that no other may begin."""
        if len(self.abandoned) >= self.threads.total_tokens:
            msg = (
                f"expected fewer than {self.threads.total_tokens} abandoned threads of tools, found "
                f"{len(self.abandoned)} that still run; give what tools wait for a time limit of its own"
            )
            raise ThreadsExhaustedError(msg)

    def join(self, tool: BaseTool) -> Slot:
        """Stand in line for *tool*, behind everybody who does already. Whoever joins has to leave."""
        tool = tool.limited_as
        limit = tool.max_concurrency
        return _UNLIMITED if limit is None else _LimitedSlot(self._lines, tool, limit)
