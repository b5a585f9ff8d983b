"""
How an event becomes true
=========================

An agent has *said* something only once it is stored. So there is one writer per invocation, this one, and one order:

  1. store      the service appends the event, or raises
  2. apply      the live session becomes what `apply_event` says
  3. publish    the caller of `Runner.run_async()` receives the event
  4. resume     `emit()` returns when the caller asks for the next one, and the logic goes on

A crash between two steps loses no event that anyone has seen: nothing is visible before step 1, and everything after
it can be replayed.

Emitting waits twice. *Commit*: the event is handed over a channel without a buffer, and its emitter sleeps until the
store has answered. A cancellation before the hand-over stores nothing; after it, it asks the committer to withdraw,
which succeeds until the store has begun. Then the answer comes first, whatever happens. *Turn*: until the caller asks
for the next event. This second wait must never be shielded — a caller that has left will never ask — so a
cancellation, or leaving, simply ends it, and `Cancelled` arrives at the next checkpoint.

There is one *credit* per run: an ordinary emit takes it first, and the ask that follows the delivery of its event
gives it back. So at most one event is ahead of the caller, however many agents speak at once. Closing events (the
responses of cancelled calls, the error event) take none: they must be stored although nobody asks any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from ..errors import InvocationEndedError, StorageError
from ..events import Event
from ..sessions import BaseSessionService, SessionWriter

__all__ = ["Committer"]


class _Credit:
    """The right to have one event ahead of the caller; over once the caller has asked for the next one."""

    __slots__ = ("over", "task")

    def __init__(self) -> None:
        self.over = False
        self.task: trio.lowlevel.Task | None = None

    async def turn(self) -> None:
        """Sleep until it is over; a cancellation ends the wait without raising."""
        if self.over:
            return
        task = self.task = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self.task = None
            trio.lowlevel.reschedule(task)
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def end(self) -> None:
        self.over = True
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)


class _Request:
    """An event on its way to the store, and its emitter, asleep."""

    __slots__ = (
        "_raise_cancel",
        "_task",
        "applied",
        "credit",
        "error",
        "event",
        "finish",
        "settled",
        "stored",
        "withdrawal",
    )

    def __init__(
        self,
        event: Event,
        applied: Callable[[], None],
        finish: Callable[[Event], Event],
        credit: _Credit | None,
    ) -> None:
        self.event = event
        self.applied = applied
        self.finish = finish
        self.credit = credit
        self.settled = False
        self.stored: Event | None = None
        self.error: Exception | None = None
        self.withdrawal = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None
        self._raise_cancel: Callable[[], Any] | None = None

    async def answered(self) -> Event:
        """Sleep until the store has answered. A cancellation asks for the event to be withdrawn, and waits on."""
        if not self.settled:
            self._task = trio.lowlevel.current_task()

            def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
                self._raise_cancel = raise_cancel
                self.withdrawal.cancel()
                return trio.lowlevel.Abort.FAILED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self.error is not None:
            raise self.error
        if self.stored is None:  # withdrawn before the store had begun
            assert self._raise_cancel is not None
            self._raise_cancel()
        assert self.stored is not None
        return self.stored

    def settle(self) -> None:
        """The store has answered, or the event was withdrawn: wake the emitter."""
        self.settled = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)


class _Taker:
    """A task that waits for the credit."""

    __slots__ = ("credit", "task")

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.credit: _Credit | None = None


class Committer:
    """
    The writer of one invocation, and the queue of its caller.

    Args:
        writer: Stores events at the end of the session.
        check: Raises if an event must not be stored at this place in the log.
        on_stored: Called with each stored event before it is published.
        partial_buffer: How many partial events may be unread.
    """

    def __init__(
        self,
        writer: SessionWriter,
        check: Callable[[Event], None],
        on_stored: Callable[[Event], None],
        partial_buffer: int,
    ) -> None:
        self._writer = writer
        self._check = check
        self._on_stored = on_stored
        self._send, self._receive = trio.open_memory_channel[_Request](0)
        self._broken: StorageError | None = None
        # the caller's queue
        self._queue: deque[tuple[Event, _Credit | None]] = deque()
        self._reader: trio.lowlevel.Task | None = None
        self._asked = False
        self._delivered: _Credit | None = None
        self._ended = False
        self._left = False
        self._idle = trio.lowlevel.ParkingLot()  # for who waits until the caller has had everything
        # credit and back-pressure
        self._credit: _Credit | None = None
        self._takers: deque[_Taker] = deque()
        self._room = partial_buffer
        self._room_waiters = trio.lowlevel.ParkingLot()

    @property
    def session_service(self) -> BaseSessionService:
        """Where the events are stored."""
        return self._writer.service

    # --- the committer's task

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Store what is emitted, one event after another, until `end`."""
        with trio.CancelScope(shield=True):
            async for request in self._receive:
                with request.withdrawal:
                    await self._commit(request)
                request.settle()

    async def _commit(self, request: _Request) -> None:
        if self._broken is not None:
            request.error = self._broken
            return
        try:
            self._check(request.event)
            request.stored = await self._writer.append(request.finish(request.event))
        except Exception as error:  # whatever a service raises belongs to the one who emitted
            request.error = error
            if isinstance(error, StorageError) and error.stored is None:
                self._broken = error  # what follows would stand after an event that nobody knows to be there
            return
        request.applied()
        self._on_stored(request.stored)
        self._publish(request.stored, request.credit)

    # --- for the logic

    async def emit(
        self,
        event: Event,
        applied: Callable[[], None],
        finish: Callable[[Event], Event] = lambda event: event,
        *,
        closing: bool = False,
    ) -> Event:
        """
        Store, apply and publish *event*, and return it when the caller asks for the next one (promise P1).

        *finish* is called when its turn has come, and gives it what depends on the events before it; *applied* when it
        is stored, before anybody sees it.
        """
        credit = None if closing else await self._take()
        request = _Request(event, applied, finish, credit)
        try:
            await self._send.send(request)
            stored = await request.answered()
        except trio.ClosedResourceError:
            msg = "this invocation has ended; an event that is emitted after its end is not stored"
            raise InvocationEndedError(msg) from None
        finally:
            if credit is not None and request.stored is None:
                self._give_back(credit)
        if credit is not None:
            await credit.turn()
        return stored

    async def emit_partial(self, event: Event) -> None:
        """Show *event* to the caller; wait while too many are unread. Nothing is stored."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._room <= 0 and not self._left:
            await self._room_waiters.park()
        if not self._left:
            self._room -= 1
            self._publish(event, None)

    @property
    def unread(self) -> int:
        """How many events the caller has not read."""
        return len(self._queue)

    async def delivered(self) -> bool:
        """Wait until the caller has had all events and asks for one more; False if it has left instead."""
        await trio.lowlevel.checkpoint()
        while not self._left and (self._reader is None or self._queue):
            await self._idle.park()
        return not self._left

    def end(self) -> None:
        """The logic is through: nothing more will come."""
        self._send.close()
        self._ended = True
        self._wake_reader()

    # --- for the caller

    async def ask(self) -> Event | None:
        """Give the last event's credit back, and return the next event, or None after the last. A checkpoint."""
        if self._asked:
            msg = "two tasks are asking the same run for its next event; let one read and pass the events on"
            raise RuntimeError(msg)
        self._asked = True
        try:
            return await self._next_event()
        finally:
            self._asked = False

    async def _next_event(self) -> Event | None:
        if self._delivered is not None:
            credit, self._delivered = self._delivered, None
            self._give_back(credit)
        if self._queue or self._ended:
            await trio.lowlevel.checkpoint()
        while not self._queue or self._left:
            if self._ended:
                return None
            await self._wait_for_event()
        event, self._delivered = self._queue.popleft()
        if event.partial:
            self._room += 1
            self._room_waiters.unpark()
        return event

    async def _wait_for_event(self) -> None:
        self._reader = trio.lowlevel.current_task()
        self._idle.unpark_all()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def leave(self) -> None:
        """The caller is gone: nobody waits for it any more, and nothing more is published."""
        self._left = True
        self._delivered = None
        if self._credit is not None:
            self._credit.end()
        while self._takers:
            trio.lowlevel.reschedule(self._takers.popleft().task)
        self._room_waiters.unpark_all()
        self._idle.unpark_all()

    def show(self, event: Event) -> None:
        """Put a stored event into the caller's queue that was stored before this committer began."""
        self._publish(event, None)

    # --- inside

    def _publish(self, event: Event, credit: _Credit | None) -> None:
        if not self._left:
            self._queue.append((event, credit))
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)

    async def _take(self) -> _Credit | None:
        """Take the credit, in turn; None once the caller has left. A cancellation leaves it where it is."""
        if self._credit is not None and not self._left:
            taker = _Taker(trio.lowlevel.current_task())
            self._takers.append(taker)

            def abort(_: Any) -> trio.lowlevel.Abort:
                self._takers.remove(taker)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
            return taker.credit
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._left:
            return None
        self._credit = _Credit()
        return self._credit

    def _give_back(self, credit: _Credit) -> None:
        credit.end()
        if self._credit is credit:
            self._credit = None
            if self._takers:
                taker = self._takers.popleft()
                taker.credit = self._credit = _Credit()
                trio.lowlevel.reschedule(taker.task)
