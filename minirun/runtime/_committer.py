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

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from ..errors import InvocationEndedError, StorageError
from ..events import Event
from ..sessions import SessionWriter
from ..sessions._store import SessionStore
from ._failure import is_only_cancelled

__all__ = ["Committer"]


class _Request:
    """
    An event on its way to the store and to the caller, and its emitter, asleep.

    It sleeps once: until the store has refused the event, or else until the caller asks for the next one.
    """

    __slots__ = (
        "_raise_cancel",
        "applied",
        "error",
        "event",
        "finish",
        "has_credit",
        "over",
        "settled",
        "stored",
        "task",
    )

    def __init__(self, event: Event, applied: Callable[[], None], finish: Callable[[Event], Event]) -> None:
        self.event = event
        self.applied = applied
        self.finish = finish
        self.has_credit = False
        self.over = False  # whether the caller has asked for the next event, or left
        self.settled = False  # whether the store has answered, or the event was withdrawn
        self.stored: Event | None = None
        self.error: BaseException | None = None
        self.task: trio.lowlevel.Task | None = None  # that sleeps
        self._raise_cancel: Callable[[], Any] | None = None

    async def answered(self, withdraw: Callable[[], None]) -> Event:
        """Sleep. A cancellation asks for the event to be withdrawn, and waits on, until the store has answered."""
        if not self.settled or self._waits_for_caller:
            self.task = trio.lowlevel.current_task()

            def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
                if self.settled:
                    self.wake()  # it is stored: the cancellation arrives at the next checkpoint
                else:
                    self._raise_cancel = raise_cancel
                    withdraw()
                return trio.lowlevel.Abort.FAILED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self.error is not None:
            raise self.error
        if self.stored is None:  # withdrawn before the store had begun
            assert self._raise_cancel is not None
            self._raise_cancel()
        assert self.stored is not None
        return self.stored

    @property
    def _waits_for_caller(self) -> bool:
        return self.stored is not None and self.has_credit and not self.over and self._raise_cancel is None

    def settle(self) -> None:
        """The store has answered, or the event was withdrawn."""
        self.settled = True
        if not self._waits_for_caller:
            self.wake()

    def end(self) -> None:
        """Nobody is to wait for the caller any more."""
        self.over = True
        if self.settled:
            self.wake()

    def wake(self) -> None:
        """It goes on, if it sleeps."""
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)


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
        self._send: trio.MemorySendChannel[_Request]
        self._receive: trio.MemoryReceiveChannel[_Request]
        self._send, self._receive = trio.open_memory_channel(0)
        self._broken: StorageError | None = None
        # the caller's queue
        self._queue: deque[tuple[Event, _Request | None]] = deque()
        self._reader: trio.lowlevel.Task | None = None
        self._asked = False
        self._delivered: _Request | None = None
        self._ended = False
        self._left = False
        self._idle = trio.lowlevel.ParkingLot()  # for who waits until the caller has had everything
        # credit and back-pressure
        self._holder: _Request | None = None
        self._takers: deque[_Request] = deque()
        self._room = partial_buffer
        self._room_waiters = trio.lowlevel.ParkingLot()

    @property
    def session_service(self) -> SessionStore:
        """Where the events are stored."""
        return self._writer.service

    # --- the committer's task

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Store what is emitted, one event after another, until `end`."""
        request = None
        while not self._ended:
            with trio.CancelScope(shield=True) as self._withdrawal:  # until an emitter cancels it
                async for request in self._receive:
                    await self._commit(request)
                    request.settle()
            if request is not None and not request.settled:
                request.settle()
        del self._check, self._on_stored  # they know the run, which knows this: now nothing waits for the collector

    async def _commit(self, request: _Request) -> None:
        if self._broken is not None:
            request.error = self._broken
            return
        try:
            self._check(request.event)
            request.stored = await self._writer.append(request.finish(request.event))
        except BaseException as error:  # whatever a service raises belongs to the one who emitted
            if is_only_cancelled(error):
                raise  # it was withdrawn
            request.error = error
            if isinstance(error, StorageError) and error.stored is None:
                self._broken = error  # what follows would stand after an event that nobody knows to be there
            return
        request.applied()
        self._on_stored(request.stored)
        self._publish(request.stored, request if request.has_credit else None)

    # --- for the logic

    @trio.lowlevel.enable_ki_protection
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
        request = _Request(event, applied, finish)
        try:
            if not closing:
                await self._take(request)
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._hand_over(request)
            return await request.answered(self._withdrawal.cancel)
        finally:
            if request.stored is None:
                self._give_back(request)

    async def _hand_over(self, request: _Request) -> None:
        try:
            try:
                self._send.send_nowait(request)  # its emitter sleeps afterwards
            except trio.WouldBlock:
                await self._send.send(request)
        except trio.ClosedResourceError:
            msg = "this invocation has ended; an event that is emitted after its end is not stored"
            raise InvocationEndedError(msg) from None

    @trio.lowlevel.enable_ki_protection
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

    @trio.lowlevel.enable_ki_protection
    async def delivered(self) -> bool:
        """Wait until the caller has had all events and asks for one more; False if it has left instead."""
        await trio.lowlevel.checkpoint()
        while not self._left and (self._reader is None or self._queue):
            await self._idle.park()
        return not self._left

    @trio.lowlevel.enable_ki_protection
    def end(self) -> None:
        """The logic is through: nothing more will come."""
        self._send.close()
        self._ended = True
        self._wake_reader()

    # --- for the caller

    @trio.lowlevel.enable_ki_protection
    async def ask(self) -> Event | None:
        """
        Give the last event's credit back, and return the next event, or None after the last. A checkpoint, but one of
        cancellation only where a partial event is there already.
        """
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
            request, self._delivered = self._delivered, None
            self._give_back(request)
        if self._queue and self._queue[0][0].partial:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif self._queue or self._ended:
            await trio.lowlevel.checkpoint()
        while not self._queue or self._left:
            if self._ended:
                return None
            await self._wait_for_event()
        event, self._delivered = self._queue.popleft()
        if event.partial:
            self._room += 1
        if self._room_waiters and not self._queue:
            self._room_waiters.unpark_all()
        return event

    async def _wait_for_event(self) -> None:
        self._reader = trio.lowlevel.current_task()
        if self._idle:
            self._idle.unpark_all()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    @trio.lowlevel.enable_ki_protection
    def leave(self) -> None:
        """The caller is gone: nobody waits for it any more, and nothing more is published."""
        self._left = True
        self._delivered = None
        if self._holder is not None:
            self._holder.end()
        while self._takers:
            self._takers.popleft().wake()
        for waiters in (self._room_waiters, self._idle):
            if waiters:
                waiters.unpark_all()

    def show(self, event: Event) -> None:
        """Put a stored event into the caller's queue that was stored before this committer began."""
        self._publish(event, None)

    # --- inside

    def _publish(self, event: Event, request: _Request | None) -> None:
        if not self._left:
            self._queue.append((event, request))
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)

    async def _take(self, request: _Request) -> None:
        """Take the credit, in turn, unless the caller has left. A cancellation leaves it where it is."""
        if self._left:
            return
        if self._holder is None:
            self._hand_to(request)
            return
        request.task = trio.lowlevel.current_task()
        self._takers.append(request)

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._takers.remove(request)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _hand_to(self, request: _Request) -> None:
        self._holder = request
        request.has_credit = True

    def _give_back(self, request: _Request) -> None:
        request.end()
        if self._holder is request:
            self._holder = None
            if self._takers:
                taker = self._takers.popleft()
                self._hand_to(taker)
                taker.wake()
