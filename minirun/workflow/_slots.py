"""How many runs of nodes go on at once: those of a workflow, and those that they run dynamically."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

__all__ = ["Slots"]


class Slots:
    """
    The places of a workflow. *limit* is how many there are, None for as many as are asked for.

    Nobody who has a place waits for one: a node that runs others lends its own place to one of them, as it only waits
    meanwhile; so no limit can have all wait for each other. A place that nobody waits for is told *on_free*.
    """

    def __init__(self, limit: int | None, on_free: Callable[[], None]) -> None:
        self._free = float("inf") if limit is None else limit
        self._on_free = on_free
        self._waiting: deque[trio.lowlevel.Task] = deque()

    def take(self) -> bool:
        """Take a place if one is free; those who wait come first."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Take a place, once there is one: first come, first served."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.take():
            return
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def leave(self) -> None:
        """Give a place to who waits for one longest, or free it."""
        if self._waiting:
            trio.lowlevel.reschedule(self._waiting.popleft())
        else:
            self._free += 1
            self._on_free()


class Place:
    """The place of one run of a node. What the run runs itself has this one, or further ones while that is lent."""

    __slots__ = ("_is_lent", "slots")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._is_lent = False

    @asynccontextmanager
    async def below(self) -> AsyncIterator[Place]:
        """A place for one run below this one."""
        if not self._is_lent:
            self._is_lent = True
            try:
                yield Place(self.slots)
            finally:
                self._is_lent = False
            return
        await self.slots.wait()
        try:
            yield Place(self.slots)
        finally:
            self.slots.leave()
