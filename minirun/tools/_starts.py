"""
In which order the tools of one turn begin: in that of their calls.

trio starts tasks in no particular order, so a call waits before its tool is called until the calls before it have
begun. The hooks before it run meanwhile. A call that has ended, that asks a person first, or that waits for a slot of
its tool holds up no other call. A tool that runs in a thread has begun when it is handed to one; threads have no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..runtime import ToolContext
from ._slot import Slot

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["Start", "run_side_by_side", "wait_for_slot", "wait_for_turn"]


class Start:
    """The beginning of one call, after those of all calls before it in the turn."""

    def __init__(self, previous: Start | None) -> None:
        self._previous = previous
        self._next: Start | None = None
        self._has_begun = False
        self._all_begun = trio.Event()  # set when this call and all before it have begun
        if previous is not None:
            previous._next = self

    def _follows_all(self) -> bool:
        return self._previous is None or self._previous._all_begun.is_set()

    @property
    def is_open(self) -> bool:
        """True if the call need not wait: all calls before it have begun, or it has begun and is retried."""
        return self._has_begun or self._follows_all()

    async def wait(self) -> None:
        """Wait until all calls before it have begun."""
        if self._previous is not None:
            await self._previous._all_begun.wait()

    def begin(self) -> None:
        """Let the calls after it begin. It can be repeated."""
        if self._has_begun:
            return
        self._has_begun = True
        start: Start | None = self
        while start is not None and start._has_begun and start._follows_all():
            start._all_begun.set()
            start = start._next


async def run_side_by_side(batch: Sequence[ToolCall]) -> None:
    """Run the calls concurrently in a nursery. They begin in their order, hooks included."""
    start: Start | None = None
    for each in batch:
        start = each.attempts.start = Start(start)
    async with trio.open_nursery() as nursery:

        async def run_from(place: int) -> None:
            if place + 1 < len(batch):
                nursery.start_soon(partial(run_from, place + 1), name=f"tool {batch[place + 1].call.name}")
            await batch[place].run()

        nursery.start_soon(run_from, 0, name=f"tool {batch[0].call.name}")


async def wait_for_turn(context: ToolContext, start: Start) -> None:
    """Wait until all calls before this one have begun."""
    with _left_out_of_replay(context):
        await start.wait()


async def wait_for_slot(context: ToolContext, slot: Slot, start: Start | None) -> None:
    """Wait for a slot of the tool. The calls after this one do not wait for it to begin."""
    if start is not None:
        start.begin()
    with _left_out_of_replay(context):
        await slot.wait()


@contextmanager
def _left_out_of_replay(context: ToolContext) -> Iterator[None]:
    """While a call waits, a replay does not wait for the events that are recorded inside of it."""
    replayer, call_id = context._invocation.replayer, context.function_call_id
    if replayer is not None:
        replayer.end_call(call_id)
    yield
    if replayer is not None:
        replayer.record.start_calls([call_id])
