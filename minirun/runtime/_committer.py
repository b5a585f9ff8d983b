"""
How an event becomes true
=========================

An agent has *said* something only once it is stored. So there is one writer per invocation, this one, and one order:

  1. store      the service appends the event, or raises; the live session goes on with it
  2. apply      the writes that were pending are committed
  3. publish    the caller of `Runner.run_async()` receives the event
  4. resume     `emit()` returns when the caller asks for the next one, and the logic goes on

A crash between two steps loses no event that anyone has seen: nothing is visible before step 1, and everything after
it can be replayed.

Emitting is one sleep, for two things. *Commit*: the event is handed over a channel without a buffer, and its emitter
sleeps until the store has answered. A cancellation before the hand-over stores nothing; after it, it asks the committer
to withdraw, which succeeds until the store has begun. Then the answer comes first, whatever happens. *Turn*: until the
caller asks for the next event. This must never be shielded — a caller that has left will never ask — so a
cancellation, or leaving, simply ends it, and `Cancelled` arrives at the next checkpoint.

Partial events wait for nothing of this: they go into a bounded buffer, whose reader takes them without a pause until it
is empty. Only then do those go on that wait for room, so that there is a handoff for each buffer, not for each event.

What is written here is all or nothing to Ctrl-C: between two lines of it, somebody would be left asleep. So trio defers
a `KeyboardInterrupt` to the main task's next checkpoint.

There is one *credit* per run: an ordinary emit takes it first, and the ask that follows the delivery of its event
gives it back. So at most one event is ahead of the caller, however many agents speak at once. Closing events (the
responses of cancelled calls, the error event) take none: they must be stored although nobody asks any more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ..errors import InvocationEndedError, StorageError
from ..events import Event
from ..sessions import SessionWriter
from ..sessions._store import SessionStore
from ._failure import is_only_cancelled

if TYPE_CHECKING:
    from ._emit import Emission

__all__ = ["Committer"]


class Committer:
    """
    The writer of one invocation, and the queue of its caller.

    Args:
        writer: Stores events at the end of the session.
        invocation_id: The invocation.
        partial_buffer: How many partial events may be unread.
    """

    __slots__ = (
        "_broken", "_context", "_delivered", "_ended", "_first", "_holder", "_invocation_id", "_is_asked", "_left",
        "_nursery", "_queue", "_reader", "_receive", "_room", "_send", "_takers", "_waiters", "_withdrawal", "_writer",
    )

    def __init__(self, writer: SessionWriter, invocation_id: str, partial_buffer: int) -> None:
        self._writer = writer
        self._invocation_id = invocation_id
        self._nursery: trio.Nursery | None = None  # where its task is to run, until it does
        self._context: Context
        self._first: Emission | None = None  # that its task begins with
        self._send: trio.MemorySendChannel[Emission]
        self._receive: trio.MemoryReceiveChannel[Emission]
        self._send, self._receive = trio.open_memory_channel(0)
        self._withdrawal = trio.CancelScope(shield=True)  # an emitter that is cancelled cancels it
        self._broken: StorageError | None = None
        # the caller's queue
        self._queue: list[tuple[Event, Emission | None]] = []  # a list, as an empty deque takes much room
        self._reader: trio.lowlevel.Task | None = None
        self._is_asked = False
        self._delivered: Emission | None = None
        self._ended = False
        self._left = False
        # credit and back-pressure
        self._holder: Emission | None = None
        self._takers: list[Emission] = []
        self._room = partial_buffer
        self._waiters = trio.lowlevel.ParkingLot()  # for room, or until the caller has had everything

    @property
    def session_service(self) -> SessionStore:
        """Where the events are stored."""
        return self._writer.service

    def runs_in(self, nursery: trio.Nursery) -> None:
        """Say where the task is to run that stores events: with the first of them it starts, in the present context."""
        self._nursery, self._context = nursery, copy_context()

    # --- the committer's task

    @trio.lowlevel.enable_ki_protection
    async def _store_all(self) -> None:
        """Store what is emitted, one event after another, until `end`."""
        emission, self._first = self._first, None
        while True:
            with self._withdrawal:
                if emission is not None and not emission.is_settled:
                    await self._commit(emission)
                # A withdrawal that was asked for when the store had begun is left over, and cancels the next receive.
                # That loses nothing: no event is taken then, and the next emitter waits for the next round.
                async for emission in self._receive:
                    await self._commit(emission)
            if emission is not None:
                emission.settle()  # it was withdrawn, or it is settled
            if self._ended:
                return
            self._withdrawal = trio.CancelScope(shield=True)

    async def _commit(self, emission: Emission) -> None:
        emission.error = self._broken
        if emission.error is None:
            try:
                event = emission.to_store()
                self._writer.live.check_calls(event, self._invocation_id)
                stored = await self._writer.append(event)
                emission.apply(stored)
                self.publish(stored, emission if emission.has_credit else None)
            except BaseException as error:  # whatever a service raises belongs to the one who emitted
                if is_only_cancelled(error):
                    raise  # it was withdrawn
                emission.error = error
                if isinstance(error, StorageError) and error.stored is None:
                    self._broken = error  # what follows would stand after an event that nobody knows to be there
        emission.settle()

    # --- for the logic

    @trio.lowlevel.enable_ki_protection
    async def emit(self, emission: Emission, *, closing: bool = False) -> Event:
        """Store, apply and publish the event, and return it when the caller asks for the next one (promise P1)."""
        _check_stack()
        try:
            if not (closing or self._left):
                if self._holder is None:
                    self._hand_credit_to(emission)
                else:
                    await self._wait_for_credit(emission)
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._hand_over(emission)
            return await emission.answered(self._withdrawal)
        finally:
            if emission.stored is None:
                self._give_back(emission)

    async def _hand_over(self, emission: Emission) -> None:
        if self._nursery is not None and not self._ended:
            nursery, self._nursery = self._nursery, None
            self._first = emission
            name = f"minirun committer of {self._invocation_id}"
            self._context.run(partial(nursery.start_soon, self._store_all, name=name))
            return
        try:
            try:
                self._send.send_nowait(emission)  # its emitter sleeps afterwards
            except trio.WouldBlock:
                await self._send.send(emission)
        except trio.ClosedResourceError:
            msg = "this invocation has ended; an event that is emitted after its end is not stored"
            raise InvocationEndedError(msg) from None

    @trio.lowlevel.enable_ki_protection
    async def emit_partial(self, event: Event) -> None:
        """Show *event* to the caller; wait while too many are unread. Nothing is stored."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._room <= 0 and not self._left:
            await self._waiters.park()
        if not self._left:
            self._room -= 1
            self.publish(event)

    def withdraw_partials(self, fits: Callable[[Event], bool]) -> list[Event]:
        """Take unread partial events back, and return them. An emitter that waits for room waits on."""
        taken = [event for event, _ in self._queue if event.partial and fits(event)]
        if taken:
            self._queue = [each for each in self._queue if not (each[0].partial and fits(each[0]))]
            self._room += len(taken)
        return taken

    @trio.lowlevel.enable_ki_protection
    async def delivered(self) -> bool:
        """Wait until the caller has had all events and asks for one more; False if it has left instead."""
        await trio.lowlevel.checkpoint()
        while not self._left and self._reader is None:  # who reads sleeps only while the queue is empty
            await self._waiters.park()
        return not self._left

    @trio.lowlevel.enable_ki_protection
    def end(self) -> None:
        """End: nothing more is emitted, and the caller gets None after the last event."""
        self._send.close()
        self._ended = True
        self._wake_reader()

    # --- for the caller

    @trio.lowlevel.enable_ki_protection
    async def ask(self) -> Event | None:
        """
        Give the last event's credit back, and return the next event, or None after the last. A checkpoint, but one of
        cancellation only where a partial event is there already. Asking after leaving is harmless: it takes no event,
        gives no credit back, and waits for the end of the run, which waits for no caller.
        """
        if self._is_asked:
            msg = "two tasks are asking the same run for its next event; let one read and pass the events on"
            raise RuntimeError(msg)
        self._is_asked = True
        try:
            if self._delivered is not None:
                emission, self._delivered = self._delivered, None
                self._give_back(emission)
            if self._queue and self._queue[0][0].partial:
                await trio.lowlevel.checkpoint_if_cancelled()
            elif self._queue or self._ended:
                await trio.lowlevel.checkpoint()
            while not self._queue or self._left:
                if self._ended:
                    return None
                await self._wait_for_event()
        finally:
            self._is_asked = False
        event, self._delivered = self._queue.pop(0)
        if event.partial:
            self._room += 1
        if self._waiters and not self._queue:
            self._waiters.unpark_all()
        return event

    async def _wait_for_event(self) -> None:
        self._reader = trio.lowlevel.current_task()
        if self._waiters:
            self._waiters.unpark_all()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    @trio.lowlevel.enable_ki_protection
    def leave(self) -> None:
        """Note that the caller is gone: nobody waits for it any more, and nothing more is published."""
        self._left = True
        self._delivered = None
        if self._holder is not None:
            holder, self._holder = self._holder, None
            holder.end_turn()
        while self._takers:
            self._takers.pop(0).wake()
        if self._waiters:
            self._waiters.unpark_all()

    def publish(self, event: Event, emission: Emission | None = None) -> None:
        """Put *event* into the caller's queue; asking for the next one gives back the credit of *emission*."""
        if not self._left:
            self._queue.append((event, emission))
            self._wake_reader()

    # --- inside

    def _wake_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)

    async def _wait_for_credit(self, emission: Emission) -> None:
        """Wait for the turn to take the credit, or until the caller has left. A cancellation leaves it where it is."""
        emission.task = trio.lowlevel.current_task()
        self._takers.append(emission)

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._takers.remove(emission)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _hand_credit_to(self, emission: Emission) -> None:
        self._holder = emission
        emission.has_credit = True

    def _give_back(self, emission: Emission) -> None:
        emission.end_turn()
        if self._holder is emission:
            self._holder = None
            if self._takers:
                taker = self._takers.pop(0)
                self._hand_credit_to(taker)
                taker.wake()


def _check_stack(levels: int = 40) -> None:
    """Raise RecursionError while it is harmless: in the middle of a hand-over it would leave both sides waiting."""
    try:
        sys._getframe(sys.getrecursionlimit() // 3)  # a frame may count twice: what is called through C counts, too
    except ValueError:
        return  # the stack is not that deep, as nearly always
    if levels:
        _check_stack(levels - 1)
