"""How many runs of nodes go on at once: those of a workflow, and those that they run dynamically."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

__all__ = ["Place", "Slots"]


class Slots:
    """
    The places of a workflow. *limit* is how many there are, None for as many as are asked for.

    Nothing that has a place waits for one: a node that runs others lends its own place to one of them, as it only waits
    meanwhile; so no limit can have all wait for each other. A place that nobody waits for is told *on_free*.
    """

    def __init__(self, limit: int | None, on_free: Callable[[], None]) -> None:
        self._free = float("inf") if limit is None else limit
        self._on_free = on_free
        self._waiting: deque[_Waiting] = deque()

    def take(self) -> bool:
        """Take a place if one is free: none is while others wait, as they are given each that is left."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def may_keep(self) -> bool:
        """Whether a run that has ended may leave its place to one that begins: no other run waits for a place."""
        return not self._waiting

    def leave(self) -> None:
        """Give a place to what waits for one longest, or free it."""
        if self._waiting:
            self._waiting[0].go_on(lent=False)
        else:
            self._free += 1
            self._on_free()


class Place:
    """The place of one run of a node. What the run runs itself has this one, or further ones while that is lent."""

    __slots__ = ("_is_lent", "_waiting", "slots")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._is_lent = False
        self._waiting: deque[_Waiting] = deque()

    @asynccontextmanager
    async def below(self) -> AsyncIterator[Place]:
        """A place for one run below this one: first come, first served."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._is_lent:
            self._is_lent = is_lent = True
        else:
            is_lent = not self.slots.take() and await _Waiting(self).answered()
        try:
            yield Place(self.slots)
        finally:
            if not is_lent:
                self.slots.leave()
            elif self._waiting:
                self._waiting[0].go_on(lent=True)
            else:
                self._is_lent = False


class _Waiting:
    """A run that waits for the place of the one above it, or for another place, whichever comes first."""

    __slots__ = ("_is_lent", "_place", "_task")

    def __init__(self, place: Place) -> None:
        self._place = place
        self._task = trio.lowlevel.current_task()

    async def answered(self) -> bool:
        """Wait; return whether it is the place of the run above it, lent."""
        self._place._waiting.append(self)
        self._place.slots._waiting.append(self)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._forget()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return self._is_lent

    def go_on(self, *, lent: bool) -> None:
        """It has a place now."""
        self._forget()
        self._is_lent = lent
        trio.lowlevel.reschedule(self._task)

    def _forget(self) -> None:
        self._place._waiting.remove(self)
        self._place.slots._waiting.remove(self)
