"""The asyncio side of a run, and how the trio thread tells a loop that something has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._service import misused
from ..errors import ServiceInUseError
from ..events import Event
from ..runners._entered import EnteredRun
from ..runtime import RunScope
from ..runtime._failure import add_note
from ._portal import Driver, Room, nobody

__all__ = ["BridgeRun", "Outcome", "in_loop", "running_loop"]


class Outcome:
    """How something in trio ended, for one asyncio task. `set` is called in the trio thread; all else in the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    @property
    def is_set(self) -> bool:
        return self._future.done()

    def set(self, value: Any, error: BaseException | None) -> None:
        _post(self._loop, nobody, _resolve, self._future, (value, error))

    async def wait(self) -> Any:
        """Wait for the end, and return or raise what it has. A cancellation leaves it as it is."""
        await asyncio.wait([self._future])
        value, error = self._future.result()
        if error is not None:
            raise error
        return value

    async def settled(self) -> BaseException | None:
        """Wait for the end, however often this task is cancelled meanwhile: that is raised afterwards."""
        cancelled: asyncio.CancelledError | None = None
        while not self._future.done():
            try:
                await asyncio.wait([self._future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return self._future.result()[1]


def running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        msg = "expected a task of the event loop in which the bridge was entered, found none; in threads, use `run` and"
        raise ServiceInUseError(f"{msg} `call_sync`") from None


def in_loop() -> bool:
    """Whether this is the thread of an event loop, which runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _post(loop: asyncio.AbstractEventLoop, closed: Callable[..., None], function: Any, *args: Any) -> None:
    """Call a function in the loop's thread; *closed* here, if there is no loop any more that could."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        closed()


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


class BridgeRun(EnteredRun, AsyncIterator[Event]):
    """
    A run in a bridge: an async iterator of its events, and an async context manager; see `AsyncioBridge.run_async`.

    It also tells what a `Run` tells: `invocation_id`, `status`, `answer`, `output`, `usage`, `pending`.
    """

    def __init__(self, room: Room, scope: RunScope, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        super().__init__()
        self._ended = Outcome(loop)
        self._driver = Driver(room, scope, self._runs, self._ended.set)
        self._waiter: asyncio.Future[Any] | None = None
        self._was_left = False  # before its end
        self._is_told = False  # whether somebody was raised the failure

    async def __aenter__(self) -> BridgeRun:
        if self._driver.is_started:
            msg = "this run was entered already; call run_async again for another one"
            raise RuntimeError(msg)
        if await self._asked_of(self._driver.enter) is None:
            await self._over()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception as failure:
            if not isinstance(error, Exception):
                raise
            add_note(error, failure)  # the block has failed first

    if not TYPE_CHECKING:  # a type checker has a word of its own for these
        __await__ = __iter__ = __enter__ = __exit__ = misused

    def __aiter__(self) -> BridgeRun:
        return self

    async def __anext__(self) -> Event:
        """Let the logic that emitted the last event go on, and return the next one."""
        if self._was_left:
            msg = "this run was left before its end, and cancelled; ask it inside of its block, or run another one"
            raise RuntimeError(msg)
        event: Event | None = None if self._ended.is_set else await self._asked_of(self._driver.ask)
        if event is None:
            await self._over()
            raise StopAsyncIteration
        return event

    async def wait(self) -> Event | None:
        """Consume what is left of the run and return `answer`; raises what the run fails with."""
        async for _ in self:
            pass
        return self.answer

    async def aclose(self) -> None:
        """Cancel the run if it is going on, and wait for its clean-up. Raises its failure, if nobody has seen it."""
        if not self._ended.is_set:
            self._was_left = True
            self._driver.cancel()
        await self._over()

    async def _asked_of(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        """Ask the driver, and wait for its answer: None if the run is over."""
        if running_loop() is not self._loop:
            msg = "this run belongs to another event loop; ask it there, and pass the events on"
            raise ServiceInUseError(msg)
        if self._waiter is not None:
            msg = "another task is asking this run for its next event; let one read and pass the events on"
            raise RuntimeError(msg)
        self._waiter = waiter = self._loop.create_future()
        try:
            ask(partial(_post, self._loop, self._driver.cancel_now, _resolve, waiter))
            return await waiter
        except asyncio.CancelledError:
            self._driver.cancel()
            await self._ended.settled()
            raise
        finally:
            self._waiter = None

    async def _over(self) -> None:
        """Wait until it is out of the trio thread, and raise what it has failed with, once."""
        error = await self._ended.settled()
        if error is not None and not self._is_told:
            self._is_told = True
            raise error

    def __del__(self) -> None:
        if not self._ended.is_set:
            self._driver.cancel()
