"""How many runs of nodes go on at once: those of a workflow, and those that they run dynamically."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

__all__ = ["Slots"]


class Slots:
    """
    The places of a workflow. *limit* is how many there are, None for as many as are asked for.

    A node that runs others lends its own place to one of them after another, as it only waits meanwhile; so no limit
    can have all wait for each other. A place that nobody waits for is told *on_free*.
    """

    def __init__(self, limit: int | None, on_free: Callable[[], None]) -> None:
        self._free = float("inf") if limit is None else limit
        self._on_free = on_free
        self._waiting: deque[_Waiter] = deque()

    def take(self) -> bool:
        """Take a place if one is free; those who wait come first."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    async def wait(self, place: Place) -> bool:
        """Wait for a place, first come, first served; return whether it is *place*, which was lent, and came back."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.take():
            return False
        waiter = _Waiter(trio.lowlevel.current_task(), place)
        self._waiting.append(waiter)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting.remove(waiter)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return waiter.has_own

    def leave(self) -> None:
        """Give a place to who waits for one longest, or free it."""
        if self._waiting:
            trio.lowlevel.reschedule(self._waiting.popleft().task)
        else:
            self._free += 1
            self._on_free()

    def lend_again(self, place: Place) -> bool:
        """Lend *place*, which has come back, to who waits longest of those below it; return whether somebody does."""
        waiter = next((each for each in self._waiting if each.place is place), None)
        if waiter is None:
            return False
        self._waiting.remove(waiter)
        waiter.has_own = True
        trio.lowlevel.reschedule(waiter.task)
        return True


@attrs.define(eq=False)
class _Waiter:
    """A task that waits for any place, or for the one that whoever runs it has lent to another."""

    task: trio.lowlevel.Task
    place: Place
    has_own: bool = False


class Place:
    """The place of one run of a node. What the run runs itself has this one, or further ones while that is lent."""

    __slots__ = ("_is_lent", "slots")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._is_lent = False

    @asynccontextmanager
    async def below(self) -> AsyncIterator[Place]:
        """A place for one run below this one."""
        if self._is_lent:
            has_own = await self.slots.wait(self)
        else:
            has_own = self._is_lent = True
        try:
            yield Place(self.slots)
        finally:
            if not has_own:
                self.slots.leave()
            elif not self.slots.lend_again(self):
                self._is_lent = False
