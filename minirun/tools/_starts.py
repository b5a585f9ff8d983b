"""
In which order the tools of one turn begin: in that of their calls.

trio starts tasks in no particular order, so a call waits just before its tool is called until the calls before it have
come as far. The hooks before it run meanwhile. A call that has ended, asks somebody first, or stands in line for its
tool holds up nobody. What follows the beginning has no order: a tool that runs in a thread has begun when it is handed
to one, and threads run as the operating system likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..runtime import ToolContext
from ._slot import Slot

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["Start", "run_side_by_side", "wait_for_turn"]


class Starts:
    """How many of the calls of one turn have begun, or need not be waited for."""

    def __init__(self) -> None:
        self.next = 0
        """The first that is still to begin."""
        self._begun: set[int] = set()  # of those after it
        self.parked: dict[int, trio.Event] = {}

    def begin(self, index: int) -> None:
        """Let the calls after this one begin, as far as it goes for them."""
        self._begun.add(index)
        while self.next in self._begun:
            self._begun.remove(self.next)
            self.next += 1
        if self.next in self.parked:
            self.parked[self.next].set()


class Start:
    """The beginning of one call."""

    __slots__ = ("_has_begun", "_index", "_starts")

    def __init__(self, starts: Starts, index: int) -> None:
        self._starts = starts
        self._index = index
        self._has_begun = False

    @property
    def is_open(self) -> bool:
        """Whether it need not wait: all calls before it have begun, or it has, and is made again."""
        return self._has_begun or self._index <= self._starts.next

    async def wait(self) -> None:
        """Wait for the calls before it. They may have begun already."""
        if not self.is_open:
            event = self._starts.parked[self._index] = trio.Event()
            await event.wait()

    def begin(self) -> None:
        """Begin, or do not make the others wait for it; it may be said again."""
        if not self._has_begun:
            self._has_begun = True
            self._starts.begin(self._index)


async def run_side_by_side(batch: Sequence[ToolCall]) -> None:
    """Run the calls in a nursery: they begin in their order, hooks included, and go on beside each other."""
    starts = Starts()
    for index, each in enumerate(batch):
        each.attempts.start = Start(starts, index)
    async with trio.open_nursery() as nursery:

        async def run_from(place: int) -> None:
            if place + 1 < len(batch):
                nursery.start_soon(partial(run_from, place + 1), name=f"tool {batch[place + 1].call.name}")
            await batch[place].run()

        nursery.start_soon(run_from, 0, name=f"tool {batch[0].call.name}")


async def wait_for_turn(context: ToolContext, slot: Slot, start: Start | None) -> None:
    """
    Wait until the tool of a call may be called: for its place in the line, or for the calls before it to begin.

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
