"""A place in the line of a tool that has a limit. See `_limits`."""

from __future__ import annotations

import trio

from ._base import BaseTool
from ._slot import Slot

__all__ = ["LimitedSlot"]


class LimitedSlot(Slot):
    def __init__(self, lines: dict[int, list[LimitedSlot]], tool: BaseTool, limit: int) -> None:
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
