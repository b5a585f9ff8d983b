"""
The one seam between minirun and the world: time, ids, randomness, threads, databases, the web, and where it yields.

Everything in the package that would ask the machine for something unpredictable asks its `Env` instead. The default
is the real world. A simulation passes another one, under which the same choices give the same log; there is no other
flag, hook or branch for tests anywhere. Session services own an Env, and a Runner uses that of its service.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import attrs
import trio

from ._arguments import refuse_unknown
from ._files import open_private

__all__ = ["Env", "HostThread", "derived_id"]

T = TypeVar("T")


class HostThread:
    """A thread that was started to host a `trio.run`; see `Env.start_thread`."""

    def __init__(self, body: Callable[[], None], name: str) -> None:
        # A daemon, because the interpreter joins other threads before it runs exit hooks, and it is an exit hook
        # that asks this one to end.
        self._thread = threading.Thread(target=body, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread


@refuse_unknown
@attrs.frozen(eq=False)
class Env:
    """
    The real world. Subclass it to make another; two Envs are the same only if they are one object.

    None of its methods may be called from a worker thread, except `now` and `steady`.
    """

    def now(self) -> float:
        """The wall clock, in seconds since the epoch. It may jump; nothing is ordered by it."""
        return time.time()

    def steady(self) -> float:
        """
        A clock in seconds that neither a step of the wall clock nor a suspended machine moves.

        All processes of one boot read the same one; see `boot`.
        """
        return time.monotonic()

    def boot(self) -> str:
        """What names the processes that share the steady clock: the same text for all of them; "" if not known."""
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot = file.read()
        except OSError:
            return ""
        try:
            clock = os.readlink("/proc/self/ns/time")
        except OSError:  # a Linux that has one such clock for all
            clock = ""
        return derived_id("boot", boot, clock)

    def new_id(self, path: str) -> str:
        """A new id of 32 letters and digits. *path* says for what; a simulation derives the id from it."""
        return os.urandom(16).hex()

    def random(self, path: str) -> float:
        """A number from 0.0 up to 1.0, for jitter and the like. *path* says for what."""
        return random.random()

    async def sleep(self, seconds: float) -> None:
        """Sleep on trio's clock. A checkpoint."""
        await trio.sleep(seconds)

    async def run_sync(
        self, fn: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None, abandon_on_cancel: bool = False
    ) -> T:
        """
        Run blocking code in a worker thread and return what it returns.

        A cancellation waits for the thread, unless it may be abandoned: then its outcome is lost. Without a limiter
        the thread begins at once, and the code cannot call back into trio (`trio.from_thread`).
        """
        if limiter is None and not abandon_on_cancel:
            return await _run_plainly(fn)
        begun = False

        def work() -> tuple[T, None] | tuple[None, BaseException]:
            nonlocal begun
            begun = True
            try:
                return fn(), None
            except BaseException as error:  # trio writes to what passes it, which a frozen exception refuses
                return None, error

        try:
            result = await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
            if result[1] is not None:
                raise result[1]
            return result[0]
        except RuntimeError:
            # While the interpreter exits, CPython 3.12 and later refuse to start threads; a commit made on the way
            # out then runs here, where it blocks nobody.
            if begun:
                raise
        return fn()

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        """
        Open a SQLite database: a file name or, with *uri*, a `file:` URI.

        Its transactions are the caller's, it never waits for a lock, and any thread may use it, one at a time. A file
        that is not there is made for this user alone.
        """
        if not uri and database != ":memory:" and not os.path.exists(database):
            try:
                os.close(open_private(database, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            except OSError:
                pass  # SQLite says what is wrong; or another process was faster
        return sqlite3.connect(database, uri=uri, timeout=0, isolation_level=None, check_same_thread=False)

    def postgres(self) -> Callable[..., Awaitable[Any]]:
        """Return what opens connections to Postgres, a `Connect`. It needs the extra `minirun[postgres]`."""
        from ._postgres._libpq import connect

        return partial(connect, self)

    def web(self) -> Any:
        """Return what asks authorization servers, a `Web`; the caller closes it. It needs `minirun[models]`."""
        from ._web_client import HttpxWeb

        return HttpxWeb()

    async def point(self, label: str) -> None:
        """
        A place where the runtime may be interrupted, named. Nothing happens here in the real world.

        Under a simulation's Env the task parks here until the schedule chooses it.
        """

    def start_thread(self, body: Callable[[], None], name: str) -> HostThread:
        """Start a thread of the caller's own, for the synchronous form of `Runner.run`."""
        return HostThread(body, name)


async def _run_plainly(fn: Callable[[], T]) -> T:
    """As `trio.to_thread.run_sync`, for code that asks nothing back: about 50 us less for each COMMIT."""
    await trio.lowlevel.checkpoint_if_cancelled()
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()

    def deliver(result: Any) -> None:
        token.run_sync_soon(trio.lowlevel.reschedule, task, result)

    try:
        trio.lowlevel.start_thread_soon(fn, deliver)
    except RuntimeError:  # no threads any more, while the interpreter exits
        return fn()
    result: T = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
    return result


def derived_id(*path: object) -> str:
    """
    Return an id of 24 letters and digits that depends on nothing but *path*.

    An Env makes one random id for each invocation; what stands below it is named after it in this way, so that two runs
    of the same name the same things alike.
    """
    return blake2b("\x1f".join(map(str, path)).encode(), digest_size=12).hexdigest()


REAL_ENV = Env()
