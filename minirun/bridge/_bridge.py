"""What an application holds: the bridge, which is entered once and shared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .._arguments import refuse_unknown
from .._json import brief, shown
from .._service import misused
from ..errors import ConfigurationError, ServiceClosedError, ServiceInUseError
from ..runners import Runner, SyncRun
from ..runners._sync import refuse_inside_trio
from ..runtime import RunConfig
from ..types import Content
from ._portal import LEFT, Ended, Job, Portal, Room, ThreadsRun
from ._run import BridgeRun, Outcome, in_loop, running_loop

__all__ = ["AsyncioBridge"]

T = TypeVar("T")


@refuse_unknown
class AsyncioBridge:
    """
    Runs a Runner's agents for an asyncio program, or for the threads of a synchronous one.

        async with AsyncioBridge(runner) as chat:
            async for event in chat.run_async(user_id="u", session_id="s", new_message="hi"):
                ...

    Make one for the whole program, and share it. Context variables of the caller are seen by its runs and calls, and
    exceptions come through as themselves. The bridge closes neither the runner nor its services: `call` their `close`
    before leaving. Leaving cancels what still runs, waits for its clean-up, and ends the thread.

    With plain `with`, a synchronous program has `run` and `call_sync`, from as many threads as it likes.

    Raises:
        ServiceInUseError: Entered twice, or used in another event loop than that in which it was entered.
        ServiceClosedError: Used before it was entered, or after it was left.
    """

    _room: Room | None = None  # between entering and leaving

    def __init__(self, runner: Runner) -> None:
        if not isinstance(runner, Runner):
            raise ConfigurationError(f"expected a Runner, found {shown(runner)}")
        self.runner = runner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._was_entered = False

    if not TYPE_CHECKING:  # a type checker has a word of its own for this
        __await__ = misused

    # --- entering and leaving

    async def __aenter__(self) -> AsyncioBridge:
        loop = running_loop()
        entered = Outcome(loop)
        self._enter(entered.set)
        self._loop = loop
        try:
            await entered.wait()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave()

    def __enter__(self) -> AsyncioBridge:
        refuse_inside_trio()
        entered: SimpleQueue[Any] = SimpleQueue()
        self._enter(lambda value, error: entered.put(error))
        error = entered.get()
        if error is not None:
            self.__exit__(None, None, None)
            raise error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        left: SimpleQueue[BaseException | None] = SimpleQueue()
        room, self._room = self._room, None
        if room is not None:
            room.leave(lambda value, failure: left.put(failure))
            failure = left.get()
            room.portal.release()
            if failure is not None and error is None:
                raise failure

    def __del__(self) -> None:
        room, self._room = self._room, None
        if room is not None:  # it was never left: what it has is cancelled, and nobody waits for it
            room.leave(lambda value, error: room.portal.release())

    def _enter(self, entered: Ended) -> None:
        if self._was_entered:
            msg = "this bridge was entered already; share it in the block of `async with`, or make another one"
            raise ServiceInUseError(msg)
        self._was_entered = True
        self._room = Room(Portal.of(self.runner.session_service), self.runner.app._tree)
        self._room.open(entered)

    async def _leave(self) -> None:
        room, self._room = self._room, None
        if room is None:
            return
        left = Outcome(asyncio.get_running_loop())
        room.leave(left.set)
        try:
            failure = await left.settled()
        finally:
            room.portal.release()
        if failure is not None:
            raise failure

    def _entered_room(self) -> Room:
        if self._room is None:
            unused = "this bridge was not entered; write `async with AsyncioBridge(runner) as chat:`"
            raise ServiceClosedError(LEFT if self._was_entered else unused)
        return self._room

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        loop = running_loop()
        if loop is not self._loop:
            how = "plain `with`" if self._loop is None else "another event loop"
            msg = f"this bridge was entered by {how}; enter one with `async with` in each loop, or use `run` in threads"
            raise ServiceInUseError(msg)
        return loop

    # --- for asyncio

    def run_async(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | None = None,
        invocation_id: str | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, object] | None = None,
        deps: Any = None,
        yield_user_message: bool = False,
    ) -> BridgeRun:
        """
        Run the agent on a message; see `Runner.run_async` for the arguments and for what is raised.

        Iterate over it, or enter it first: `async with chat.run_async(...) as run: async for event in run: ...`. The
        agent waits while the loop holds an event, so a slow reader slows its own run and no other.

        A cancelled task that waits for an event cancels the run and waits for its clean-up. Leaving `async with` does
        the same. An iteration that is left in another way (`break`, an exception in its body) cancels the run when the
        iterator goes, which is at once if nothing else holds it, and waits when the bridge is left.
        """
        room = self._entered_room()
        loop = self._checked_loop()
        scope = self.runner.run_async(
            user_id=user_id,
            session_id=session_id,
            new_message=new_message,
            invocation_id=invocation_id,
            run_config=run_config,
            state_delta=state_delta,
            deps=deps,
            yield_user_message=yield_user_message,
        )
        return BridgeRun(room, scope, loop)

    async def call(self, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """
        Call an async function of minirun's, or any other that needs trio, and return what it returns:

            session = await chat.call(sessions.create_session, app_name="app", user_id="u")

        Cancelling it cancels the call, and waits for its end. It may have been done all the same, if that came late.

        Raises:
            TypeError: *function* is none, or is not async.
        """
        room = self._entered_room()
        outcome = Outcome(self._checked_loop())
        job = Job(room, _called(function, args, kwargs), outcome.set)
        job.start()
        try:
            value: T = await outcome.wait()
        except asyncio.CancelledError:
            job.cancel()
            await outcome.settled()
            raise
        return value

    # --- for threads

    def run(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | None = None,
        invocation_id: str | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, object] | None = None,
        deps: Any = None,
    ) -> SyncRun:
        """
        As `Runner.run`, from any thread and from many at once: the runs live in the bridge's thread.

        In the thread of the event loop it works as well, and holds the loop.
        """
        room = self._entered_room()
        scope = self.runner.run_async(
            user_id=user_id,
            session_id=session_id,
            new_message=new_message,
            invocation_id=invocation_id,
            run_config=run_config,
            state_delta=state_delta,
            deps=deps,
        )
        return SyncRun(scope, partial(ThreadsRun, room, in_loop))

    def call_sync(self, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """
        As `call`, from any thread. Ctrl-C while it waits cancels the call, and waits for its end.

        Raises:
            RuntimeError: Called inside trio; await the function there.
            TypeError: *function* is none, or is not async.
        """
        refuse_inside_trio()
        ends: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        call, room = _called(function, args, kwargs), self._entered_room()
        job = Job(room, call, lambda *end: ends.put(end), holds_thread=True)
        job.start()
        try:
            value, error = ends.get()
        except BaseException:
            job.cancel()
            ends.get()
            raise
        if error is not None:
            raise error
        result: T = value
        return result


def _called(
    function: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[[], Any]:
    """The call of a function that may not be what it should: what is found out before it is called is told at once."""
    if isinstance(function, Coroutine):
        function.close()
    if not callable(function):
        found = f"expected an async function and its arguments apart, found {brief(function)}"
        raise TypeError(f"{found}; write `call(function, ...)` instead of `call(function(...))`")

    async def call() -> T:
        result = function(*args, **kwargs)
        if not isinstance(result, Awaitable):
            name = getattr(function, "__qualname__", brief(function))
            found = f"expected an async function, found that {name} returned {brief(result)}"
            raise TypeError(f"{found}; it needs no bridge, so call it yourself")
        return await result

    return call
