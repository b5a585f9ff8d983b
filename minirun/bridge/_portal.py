"""
The trio side of a bridge: a thread for each session service, in it a room for each bridge, a task for each run or call.

Nothing here knows of asyncio: a waiter gives a function, which is called in the trio thread and only passes on.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import trio

from ..agents._tree import AgentTree
from ..env import Env
from ..errors import ServiceClosedError
from ..events import Event
from ..runners._toolsets import entered_toolsets
from ..runtime import Run, RunScope
from ..runtime._failure import is_only_cancelled
from ..sessions import BaseSessionService
from ..sessions._deadlocks import OF_THREADS

__all__ = ["LEFT", "Driver", "Ended", "Job", "Portal", "Room", "ThreadsRun", "nobody"]

LEFT = "this bridge was left, and what went on in it was cancelled; make a new one"

# How something has ended: what it has returned, and what it has raised.
Ended = Callable[[Any, "BaseException | None"], None]


def nobody(*_: Any) -> None:
    """Nobody wants to know."""


class Portal:
    """The thread of a session service, with its `trio.run`, as long as a bridge over the service is entered."""

    _living: ClassVar[WeakKeyDictionary[BaseSessionService, Portal]] = WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, env: Env) -> None:
        self._users = 0
        self._process = os.getpid()  # a fork of it has no such thread
        self._stop = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self.nursery: trio.Nursery | None = None
        up: SimpleQueue[None] = SimpleQueue()
        self._thread = env.start_thread(partial(trio.run, self._main, up), "minirun bridge")
        up.get()  # a millisecond at most
        atexit.register(self._end)

    @classmethod
    def of(cls, service: BaseSessionService) -> Portal:
        """The portal of a service, which is used by one more from now on."""
        with cls._lock:
            portal = cls._living.get(service)
            if portal is None or not portal._users or portal._process != os.getpid():
                portal = cls._living[service] = Portal(service.env)
            portal._users += 1
            return portal

    def release(self) -> None:
        """End the thread, if this was the last that used it."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._end()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """
        Call a function in the trio thread, soon.

        Raises:
            trio.RunFinishedError: The thread is at its end, or in the process that this one was forked from.
        """
        if self._process != os.getpid():
            raise trio.RunFinishedError("the thread is in another process")
        assert self._token is not None
        self._token.run_sync_soon(function, *args)

    async def _main(self, up: SimpleQueue[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._stop:
            async with trio.open_nursery() as self.nursery:
                up.put(None)
                await trio.sleep_forever()

    def _end(self) -> None:
        atexit.unregister(self._end)
        try:
            self.post(self._stop.cancel)
        except trio.RunFinishedError:
            pass
        if not self._thread.is_current():
            self._thread.join()


class Room:
    """What one bridge has in the portal's thread: a nursery of its own, which it can leave while others stay."""

    def __init__(self, portal: Portal, tree: AgentTree) -> None:
        self.portal = portal
        self._tree = tree  # whose toolsets are entered as long
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._of_threads: trio.Nursery | None = None  # what threads wait for: see `OF_THREADS`
        self._left: list[Ended] = []
        self._is_over = False

    def open(self, opened: Ended) -> None:
        """Open it: *opened* hears when that is done."""
        self._post(self._open, opened)

    def leave(self, left: Ended) -> None:
        """Cancel what is in it: *left* hears when nothing is any more."""
        try:
            self._post(self._leave, left)
        except trio.RunFinishedError:
            left(None, None)

    def start(
        self, context: Context, body: Callable[[], Awaitable[None]], refuse: Callable[[], None], *, holds_thread: bool
    ) -> None:
        """Start a task in it, or *refuse* it if it was left; *body* never raises. *holds_thread*: one waits for it."""
        try:
            self._post(self._start, context, body, refuse, holds_thread)
        except trio.RunFinishedError:
            refuse()

    def _post(self, function: Callable[..., object], *args: Any) -> None:
        self.portal.post(function, *args)

    def _open(self, opened: Ended) -> None:
        assert self.portal.nursery is not None
        self.portal.nursery.start_soon(self._live, opened)

    async def _live(self, opened: Ended) -> None:
        failure: Exception | None = None
        is_open = False
        try:
            with self._scope:
                async with entered_toolsets(self._tree):
                    async with trio.open_nursery() as self._of_threads, trio.open_nursery() as self._nursery:
                        OF_THREADS.add(self._of_threads)
                        is_open = True
                        opened(None, None)
                        await trio.sleep_forever()
        except Exception as error:  # of a toolset that is entered or left: who opens or leaves the room is told
            failure = error
        finally:
            self._is_over = True
            if not is_open:
                opened(None, failure or ServiceClosedError(LEFT))
            for left in self._left:
                left(None, failure if is_open else None)

    def _leave(self, left: Ended) -> None:
        if self._is_over:
            left(None, None)
            return
        self._left.append(left)
        self._scope.cancel()

    def _start(
        self, context: Context, body: Callable[[], Awaitable[None]], refuse: Callable[[], None], holds_thread: bool
    ) -> None:
        nursery = self._of_threads if holds_thread else self._nursery
        if nursery is None or self._scope.cancel_called:
            refuse()
        else:
            context.run(nursery.start_soon, body)


class Job:
    """
    One call in the trio thread. `ended` is called there, once, whatever happens.

    *holds_thread* tells that the thread that makes it does nothing else until it has ended.
    """

    def __init__(
        self, room: Room, function: Callable[[], Awaitable[Any]], ended: Ended, *, holds_thread: bool = False
    ) -> None:
        self._holds_thread = holds_thread
        self._room = room
        self._function = function
        self._ended = ended
        self._scope = trio.CancelScope()
        self._context = copy_context()

    def start(self) -> None:
        """Start it, from any thread."""
        refuse = partial(self._ended, None, ServiceClosedError(LEFT))
        self._room.start(self._context, self._run, refuse, holds_thread=self._holds_thread)

    def cancel(self) -> None:
        """Cancel it, from any thread, and perhaps too late."""
        try:
            self._room.portal.post(self._scope.cancel)
        except trio.RunFinishedError:
            pass

    def cancel_now(self) -> None:
        """Cancel it, in the trio thread."""
        self._scope.cancel()

    async def _run(self) -> None:
        value: Any = None
        error: BaseException | None = ServiceClosedError(LEFT)  # if it is the room that is cancelled
        try:
            with self._scope:
                value = await self._function()
            error = None
        except BaseException as raised:
            if is_only_cancelled(raised):  # also a group: the function may have opened a nursery
                raise
            error = raised  # it is for the caller, in another thread
        finally:
            self._ended(value, error)


class Driver(Job):
    """A run, driven by somebody in another thread: it enters at the first ask, and goes on at each further one."""

    def __init__(
        self, room: Room, scope: RunScope, runs: list[Run], ended: Ended, *, holds_thread: bool = False
    ) -> None:
        super().__init__(room, self._drive, self._end, holds_thread=holds_thread)
        self._run_scope = scope
        self._runs = runs
        self._tell_end = ended
        self._answer: Callable[[Any], None] = nobody  # of the waiter for an answer
        self._send, self._asks = trio.open_memory_channel[None](1)
        self._is_asked = False  # whether the first event is asked for with entering
        self.is_started = False

    def enter(self, answer: Callable[[Any], None]) -> None:
        """Enter the run: *answer* hears True, in the trio thread; or None, when it has ended."""
        self._answer = answer
        self.is_started = True
        self.start()

    def ask(self, answer: Callable[[Any], None]) -> None:
        """Ask for the next event: *answer* hears it, in the trio thread; or None, when the run has ended."""
        if not self.is_started:
            self._is_asked = True
            self.enter(answer)
            return
        self._answer = answer
        try:
            self._room.portal.post(self._asked)
        except trio.RunFinishedError:
            answer(None)

    def cancel(self) -> None:
        """Cancel it, from any thread. One that was never started is over."""
        if self.is_started:
            super().cancel()
        else:
            self.is_started = True
            self._tell_end(None, None)

    def _asked(self) -> None:
        try:
            self._send.send_nowait(None)
        except trio.BrokenResourceError:  # it has ended meanwhile
            self._answer(None)

    async def _drive(self) -> None:
        with self._asks:
            async with self._run_scope as run:
                self._runs.append(run)
                if not self._is_asked:
                    self._answer(True)
                    await self._asks.receive()
                async for event in run:
                    self._answer(event)
                    await self._asks.receive()

    def _end(self, value: Any, error: BaseException | None) -> None:
        self._tell_end(value, error)
        answer, self._answer = self._answer, nobody
        answer(None)


class ThreadsRun:
    """The host of a `SyncRun` whose run lives in a bridge's thread."""

    def __init__(self, room: Room, in_loop: Callable[[], bool], scope: RunScope, runs: list[Run]) -> None:
        self._in_loop = in_loop
        self._answers: SimpleQueue[Event | None] = SimpleQueue()
        self._ends: SimpleQueue[BaseException | None] = SimpleQueue()
        self._driver = Driver(room, scope, runs, lambda value, error: self._ends.put(error), holds_thread=True)
        self._is_waiting = False
        self._is_over = False

    def ask(self) -> Event | None:
        """See `Host`."""
        if self._is_waiting:
            msg = "another thread is asking this run for its next event; let one read and pass the events on"
            raise RuntimeError(msg)
        self._is_waiting = True
        self._driver.ask(self._answers.put)
        event = self._answers.get()
        self._is_waiting = False
        if event is None:
            self._wait()
        return event

    def stop(self) -> None:
        """See `Host`."""
        self._driver.cancel()
        if not trio.lowlevel.in_trio_run():  # there it would wait for what only that thread can do
            self._wait()

    def drop(self) -> None:
        """See `Host`. The thread of an event loop has other things to do than to wait for what nobody holds."""
        if self._in_loop():
            self._driver.cancel()
        else:
            self.stop()

    def _wait(self) -> None:
        if not self._is_over:
            self._is_over = True
            error = self._ends.get()
            if error is not None:
                raise error
