"""
A run for synchronous code.

The run lives in a thread of its own with a `trio.run` of its own. Caller and thread meet at each event: the caller
asks and sleeps until the event is there, and the run goes on when it asks for the next one, exactly as for `async for`.

    caller                           thread
    ──────                           ──────
    first next()  ── starts ───────► enter the run
    next()        ── ask ──────────► await run.__anext__()
                  ◄─ event, end or error ──
    close()       ── stop ─────────► leave the run: cancel, clean up
                  ◄─ the thread ends, and is joined

Whatever ends the caller's interest is `close`: the end of a `with` block, garbage collection, an exception such as
KeyboardInterrupt while it waits, and the exit of the interpreter.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol

import trio

from ..env import Env, HostThread
from ..errors import InvocationEndedError
from ..events import Event
from ..runtime import Run, RunScope
from ..runtime._ids import STEP_ID
from ._entered import EnteredRun
from ._toolsets import entered_toolsets

__all__ = ["Host", "SyncRun", "refuse_inside_trio"]


class Host(Protocol):
    """Where the run of a `SyncRun` lives."""

    def ask(self) -> Event | None:
        """Ask for the next event and sleep until it is there; None after the last. Raises what the run fails with."""

    def stop(self) -> None:
        """
        Cancel the run and wait for its clean-up, if it is not over. Harmless when repeated.

        Inside trio it only cancels: what the clean-up waits for may be what that loop has to do.
        """

    def drop(self) -> None:
        """As `stop`, for a run that nobody holds any more."""


class SyncRun(EnteredRun, Iterator[Event]):
    """
    An iterator of the events of a run; see `Runner.run`.

    Once the first event was asked for it also tells what a `Run` tells: `invocation_id`, `status`, `answer`, `output`,
    `usage`, `pending`.
    """

    def __init__(self, scope: RunScope, start: Callable[[RunScope, list[Run]], Host]) -> None:
        super().__init__()
        self._host: Host | None = None
        self._process = os.getpid()  # a fork of it has this object, too, and no thread in which the run goes on
        self._scope: RunScope | None = scope
        self._start = start
        refuse_inside_trio()

    @classmethod
    def in_thread(cls, scope: RunScope, env: Env) -> SyncRun:
        """A run in a thread of its own."""
        return cls(scope, lambda scope, runs: _Host(scope, env, runs))

    def __iter__(self) -> SyncRun:
        return self

    def __next__(self) -> Event:
        """Let the logic that emitted the last event go on, and return the next one."""
        refuse_inside_trio()
        if self._scope is not None:
            self._host = self._start(self._scope, self._runs)
            self._scope = None
        if self._host is None:
            raise StopIteration
        if self._process != os.getpid():
            self.close()
            msg = f"the invocation {self.invocation_id} runs in the process that this one was forked from; run another"
            raise InvocationEndedError(msg)
        try:
            event = self._host.ask()
        except BaseException:  # the run's failure, or Ctrl-C while waiting: either way it is over
            self.close()
            raise
        if event is None:
            self.close()
            raise StopIteration
        return event

    def close(self) -> None:
        """
        Cancel the run if it is going on, wait for its clean-up, and join its thread. Harmless when repeated.

        Inside trio, where the garbage collector may come to it, it is cancelled and not waited for.
        """
        self._scope = None
        host, self._host = self._host, None
        if host is not None and self._process == os.getpid():
            host.stop()

    def __enter__(self) -> SyncRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._scope = None
        host, self._host = self._host, None
        if host is not None and self._process == os.getpid():
            host.drop()


def refuse_inside_trio() -> None:
    """Raise RuntimeError inside trio: waiting there as synchronous code does would stop the loop."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return
    msg = "expected synchronous code, found a running trio loop; here use `async with runner.run_async(...)`, or "
    raise RuntimeError(f"{msg}`await run_once(...)`")


class _Host:
    """The thread, and the two queues between it and the caller. It knows nothing of the SyncRun."""

    def __init__(self, scope: RunScope, env: Env, runs: list[Run]) -> None:
        self._scope = scope
        self._runs = runs
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._token: trio.lowlevel.TrioToken | None = None
        self._asks: trio.MemorySendChannel[None] | None = None
        self._stop = trio.CancelScope()
        self._stopped = False
        self._waiting = False
        self._failure: BaseException | None = None
        self._at_exit = _stop_at_exit(weakref.ref(self))
        atexit.register(self._at_exit)
        context = copy_context()  # the agent sees the caller's context variables, as under `run_async`
        context.run(STEP_ID.set, None)  # in a tool's or step's thread, whose events those of this run are not
        self._thread: HostThread = env.start_thread(partial(context.run, self._body), "minirun sync run")
        self._answers.get()  # the loop is up

    def _body(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = error
        self._answers.put(None)

    async def _main(self) -> None:
        self._asks, asks = trio.open_memory_channel[None](1)
        self._token = trio.lowlevel.current_trio_token()
        self._answers.put(None)
        with self._stop:
            await asks.receive()
            async with entered_toolsets(self._scope._program.tree), self._scope as run:
                self._runs.append(run)
                async for event in run:
                    self._answers.put(event)
                    await asks.receive()

    def ask(self) -> Event | None:
        """Ask for the next event and sleep until it is there; None after the last. Raises what the run fails with."""
        if self._waiting:
            msg = "another thread is asking this run for its next event; let one read and pass the events on"
            raise RuntimeError(msg)
        self._waiting = True
        self._post(self._asked)
        answer: Event | None = self._answers.get()
        self._waiting = False
        if answer is None:
            self._thread.join()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
        return answer

    def stop(self) -> None:
        """Cancel, wait for the clean-up, join. An error of the clean-up is raised, unless the run has told it."""
        if self._stopped:
            return
        if trio.lowlevel.in_trio_run():  # collected, or closed, by the run itself or another: it ends after this
            self._post(self._stop.cancel)
            return
        self._stopped = True
        self._post(self._stop.cancel)
        atexit.unregister(self._at_exit)
        if self._thread.is_current():
            return
        self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def drop(self) -> None:
        """See `Host`. In an asyncio loop it is waited for: the service belongs to this run until it has ended."""
        self.stop()

    def _asked(self) -> None:
        assert self._asks is not None
        self._asks.send_nowait(None)

    def _post(self, what: Any) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(what)
        except trio.RunFinishedError:
            pass  # the thread is through; joining it is all that is left


def _stop_at_exit(host: weakref.ref[_Host]) -> Any:
    process = os.getpid()

    def stop() -> None:
        living = host()
        if living is not None and process == os.getpid():
            living.stop()

    return stop
