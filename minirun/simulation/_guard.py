"""
A simulation may depend on nothing but its choices; what asks the machine for something else is refused, and told of.

An audit hook sees sockets, processes and most threads. Clock, sleep and randomness make no audit events everywhere, so
their functions are replaced while simulations run. What was imported by name before (`from time import time`), and
`datetime.now()`, whose type cannot be changed, are seen by a *strict* guard alone: a profile function is told of every
call of what is written in C, which makes a simulation some three times slower. The state of `random` is compared, too,
so that nobody draws from it unnoticed. Refusing raises where it happens, and fails the simulation even where somebody
catches that.

Not seen: `datetime.now` that is called from C (by a `partial`, by `map`), and the clock of SQLite. Both are found where
their value reaches the log.
"""

from __future__ import annotations

import datetime
import os
import random
import select
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any, Final

import trio

from ..errors import MinirunError
from ._private import thread_cache
from ._watchdog import NAME

__all__ = ["Guard", "LeakError", "guarding"]


class LeakError(MinirunError):
    """A simulation has used what differs from run to run: a thread, a socket, the real clock, real randomness."""


_THREADS: Final = "starts a thread; use a synchronous tool, which runs inline here"
_EVENTS: Final = {
    "_thread.start_new_thread": _THREADS,
    "_thread.start_joinable_thread": _THREADS,
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.exec": "becomes another process",
    "os.system": "starts a process",
    "pty.spawn": "starts a process",
}
_SOCKETS: Final = "uses a socket"
_CLOCK: Final = "asks the real clock; use the Env's now()"

# Modules whose own use of the clock shows in no simulation: stamps of log records, times of test runners.
_EXEMPT: Final = (
    "logging", "_pytest", "pytest", "hypothesis", "trio", "warnings", "threading", "concurrent",
    "tempfile",  # of which names are random
)  # fmt: skip

_DRAWS: Final = tuple(name for name in random.__all__ if not name[0].isupper() and name not in ("getstate", "setstate"))
_REPLACED: Final[tuple[tuple[Any, str, str], ...]] = (
    *((time, name, _CLOCK) for name in ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime")),
    *((time, name, _CLOCK) for name in ("clock_gettime", "clock_gettime_ns")),
    (time, "sleep", "really sleeps; use trio.sleep"),
    (select, "select", "really waits; use what trio has to wait with"),
    (threading, "_start_new_thread", _THREADS),  # no audit event tells of it before Python 3.12
    (threading.Condition, "wait", "waits for another thread, and there is none; use trio.Event"),
    (uuid, "uuid1", "makes an id of time and machine; use the Env's new_id()"),
    (uuid, "uuid4", "makes an id at random; use the Env's new_id()"),
    (os, "getrandom", "asks for real randomness; use the Env's random()"),
    (random.Random, "seed", "asks for real randomness without a seed; give it one"),
    (os, "urandom", "asks for real randomness; use the Env's random()"),
    (random, "_urandom", "asks for real randomness; use the Env's random()"),
    (trio.to_thread, "run_sync", "uses a thread; use the Env's run_sync()"),
    (trio.lowlevel, "start_thread_soon", "uses a thread; use the Env's run_sync()"),
    # a thread that waits for work since before makes no audit event, and `run_sync` may have been imported by name
    (thread_cache(), "start_thread_soon", "uses a thread; use the Env's run_sync()"),
    *((random, name, "draws from randomness that no seed decides; use the Env's random()") for name in _DRAWS),
)
# Those that leak only where they are not told the time or the seed, and how many arguments they have then.
_UNTOLD: Final = {
    "time.localtime()": 0, "time.gmtime()": 0, "time.ctime()": 0, "time.strftime()": 1, "Random.seed()": 1,
}  # fmt: skip

# What a strict guard sees, by the names of the functions: those of dates, and those of these modules.
_BUILTIN: Final = {
    "now": _CLOCK,
    "utcnow": _CLOCK,
    "today": _CLOCK,
    "time": _CLOCK,
    "time_ns": _CLOCK,
    "sleep": "really sleeps; use trio.sleep",
    "urandom": "asks for real randomness; use the Env's random()",
}
_OF_DATES: Final = ("now", "utcnow", "today")
_OF_MODULES: Final = ("time", "posix", "nt")

_ACTIVE: dict[int, Guard] = {}  # by thread


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _ACTIVE and (event in _EVENTS or event.startswith("socket.")):
        guard = _ACTIVE.get(threading.get_ident())
        if guard is not None:
            guard.refuse(event, _EVENTS.get(event, _SOCKETS))


_lock = threading.Lock()
_installed = False
_blocks = 0  # in which functions are replaced, in all threads
_real: list[tuple[Any, str, Any]] = []  # the functions that are


@contextmanager
def guarding() -> Iterator[None]:
    """In the block, guards can see what leaks, one after another; each thread may have a block of its own."""
    global _installed, _blocks
    with _lock:
        if not _installed:
            _installed = True
            sys.addaudithook(_audit)  # it stays as long as the process: there is no way to remove one
        _blocks += 1
        if _blocks == 1:
            for module, name, why in _REPLACED:
                real = getattr(module, name, None)
                if real is not None:
                    _real.append((module, name, real))
                    setattr(module, name, _refusing(f"{module.__name__}.{name}()", real, why))
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            while _blocks == 0 and _real:
                setattr(*_real.pop())


class Guard:
    """Watches one simulation, in a block of `guarding`; a *strict* one sees more, and takes longer."""

    def __init__(self, *, strict: bool = False) -> None:
        self._is_strict = strict and sys.getprofile() is None  # who profiles wants to see the program as it is
        self.leak: LeakError | None = None
        self._thread = 0  # while it watches
        self._luck: object = None

    def refuse(self, what: str, why: str) -> None:
        """Note it, and raise."""
        error = LeakError(f"{what} {why}: expected what a simulation does to follow from its choices alone")
        self.leak = self.leak or error
        raise error

    def start(self) -> None:
        """From now on refuse what leaks, in this thread."""
        self._luck = random.getstate()
        self._thread = threading.get_ident()
        _ACTIVE[self._thread] = self
        if self._is_strict:
            sys.setprofile(self._profile)

    def stop(self) -> None:
        """Refuse nothing any more, and look whether somebody drew from `random`."""
        if not self._thread:
            return
        if self._is_strict:
            sys.setprofile(None)
        _ACTIVE.pop(self._thread, None)
        self._thread = 0
        if self.leak is None and random.getstate() != self._luck and not _others_live():
            self.leak = LeakError("something drew from `random`, whose randomness no seed decides; use Env.random()")

    def _profile(self, frame: FrameType, event: str, called: Any) -> None:
        """What Python calls before each call of what is written in C, among others."""
        if event != "c_call" or getattr(called, "__name__", "") not in _BUILTIN:
            return
        name, owner = called.__name__, getattr(called, "__self__", None)
        if name in _OF_DATES:
            leaks = isinstance(owner, type) and issubclass(owner, datetime.date)
        else:
            leaks = getattr(owner, "__name__", "") in _OF_MODULES
        caller = frame.f_globals.get("__name__", "")
        if leaks and caller != __name__ and caller.partition(".")[0] not in _EXEMPT:
            self.refuse(f"{owner.__name__ if owner is not None else ''}.{name}()", _BUILTIN[name])


def _others_live() -> bool:
    """Whether there are threads that may have drawn from `random` with good reason."""
    names = (thread.name for thread in threading.enumerate())
    return not all(name.startswith(("MainThread", "Trio thread", NAME)) for name in names)


@lru_cache(maxsize=4 * len(_REPLACED))
def _refusing(what: str, real: Callable[..., Any], why: str) -> Callable[..., Any]:
    """What stands for a function while a simulation runs, in whatever thread; made once, as every seed needs it."""
    untold = _UNTOLD.get(what, sys.maxsize)

    def refusing(*args: Any, **options: Any) -> Any:
        guard = _ACTIVE.get(threading.get_ident())
        if guard is not None and (len(args) <= untold or args[untold] is None) and options.get("a") is None:
            caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            if caller == "random":  # `Random()` seeds itself
                caller = sys._getframe(2).f_globals.get("__name__", "").partition(".")[0]
            if caller not in _EXEMPT or "thread" in why:
                guard.refuse(what, why)
        return real(*args, **options)

    return refusing
