"""
In which order the tools of one turn begin: in that of their calls.

trio starts tasks in no particular order, so a call waits just before its tool is called until the calls before it have
come as far. The hooks before it run meanwhile. A call that has ended, asks somebody first, or stands in line for its
tool holds up nobody. What follows the beginning has no order: a tool that runs in a thread has begun when it is handed
to one, and threads run as the operating system likes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..runtime import ToolContext
from ._slot import Slot

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["Start", "run_side_by_side", "wait_for_turn"]


class Stage:
    """How many of the calls of one turn, from the first one on, have come so far, or need not be waited for."""

    def __init__(self) -> None:
        self.next = 0
        """The first that is still to come."""
        self._passed: set[int] = set()  # of those after it
        self._parked: dict[int, trio.Event] = {}

    def pass_by(self, index: int) -> None:
        """Let the calls after this one follow, as far as it goes for them. It may be said again."""
        if index >= self.next:
            self._passed.add(index)
        while self.next in self._passed:
            self._passed.remove(self.next)
            self.next += 1
        if self.next in self._parked:
            self._parked[self.next].set()

    async def wait(self, index: int) -> None:
        """Wait for the calls before this one. They may have come already."""
        if index > self.next:
            event = self._parked[index] = trio.Event()
            await event.wait()


class Start:
    """The beginning of one call: it comes to the point before its tool, and then begins."""

    __slots__ = ("_beginnings", "_comings", "_has_begun", "_index")

    def __init__(self, comings: Stage, beginnings: Stage, index: int) -> None:
        self._comings = comings
        self._beginnings = beginnings
        self._index = index
        self._has_begun = False

    @property
    def is_open(self) -> bool:
        """Whether it need not wait: all before it have come to their points, or it has begun, and is made again."""
        return self._has_begun or self._index <= self._comings.next

    async def wait(self) -> None:
        """Wait for the calls before it to come to their points. They may have come already."""
        if not self.is_open:
            await self._comings.wait(self._index)

    async def begin_after(self, point: Awaitable[None]) -> None:
        """
        Pass the point, and begin. Those that stand at their points may go on at the same time; so where the schedule is
        a choice, what they do between two checkpoints is mixed. They begin in their order all the same.
        """
        self._comings.pass_by(self._index)
        await point
        if not self._has_begun:
            await self._beginnings.wait(self._index)
            self.begin()

    def begin(self) -> None:
        """Begin, or do not make the others wait for it; it may be said again."""
        self._has_begun = True
        self._comings.pass_by(self._index)
        self._beginnings.pass_by(self._index)


async def run_side_by_side(batch: Sequence[ToolCall]) -> None:
    """Run the calls in a nursery: they begin in their order, hooks included, and go on beside each other."""
    comings, beginnings = Stage(), Stage()
    for index, each in enumerate(batch):
        each.attempts.start = Start(comings, beginnings, index)
    async with trio.open_nursery() as nursery:

        async def run_from(place: int) -> None:
            if place + 1 < len(batch):
                nursery.start_soon(partial(run_from, place + 1), name=f"tool {batch[place + 1].call.name}")
            await batch[place].run()

        nursery.start_soon(run_from, 0, name=f"tool {batch[0].call.name}")


async def wait_for_turn(context: ToolContext, slot: Slot, start: Start | None) -> None:
    """
    Wait until the tool of a call may be called: for its place in the line, or for the calls before it to come as far.

    A replay does not wait meanwhile for what is recorded inside of the call.
    """
    replayer, call_id = context._invocation.replayer, context.function_call_id
    if replayer is not None:
        replayer.end_call(call_id)
    if start is not None and slot.is_free:
        await start.wait()
    else:
        if start is not None:
            start.begin()
        await slot.wait()
    if replayer is not None:
        replayer.record.start_calls([call_id])
