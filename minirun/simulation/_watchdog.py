"""
Real time, for code that never gives control back: a loop without an `await` takes no turn that could be counted.

Everything else that hangs is found by what follows from the choices (`_hangs`). This is the last resort, and outside of
the log: its error says the same whenever it strikes, and where the code was is a note on it. A seed that was ended by
it is told at once, neither compared with a second run nor shrunk.

A thread of its own looks now and then. What it finds overdue it interrupts where that runs, as Ctrl-C would, but also
where trio is protected from that. Code that swallows every interruption, or waits within C for something else than the
interpreter, is out of its reach: then the process ends, after it has told on stderr what is known, for it would never
end otherwise. Nobody is interrupted in a debugger. Time counts while the thread looks: a program that was stopped for
an hour (Ctrl-Z, a machine that was asleep) is not overdue when it goes on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from types import FrameType

from ..errors import MinirunError

__all__ = ["NAME", "Watchdog", "WatchdogError", "before_the_end"]

# No simulation takes so long, on whatever machine: 20 000 steps, after which a seed is ended anyway, take some seconds.
WATCHDOG_S = 300.0
# How often it looks, how soon it interrupts code again that went on all the same, for how long, and how long it stays
# without work.
LOOK_EVERY_S = 0.5
AGAIN_S = 5.0
GIVE_UP_S = 60.0
IDLE_S = 10.0
# How much of the time between two looks counts at most: the machine may be busy, or the program was stopped.
LOOK_S_MAX = 5.0
# With which a process ends that nothing else ends: that of `sysexits.h` for a defect of the program.
EXIT_STATUS = 70
# How much of the code's stack is shown, the innermost frames.
FRAMES_MAX = 12

NAME = "minirun watchdog"
_DEBUGGERS = ("bdb", "pdb")


class WatchdogError(MinirunError):
    """
    A simulation has not ended in five minutes of real time: some code of it does not give control back.

    Where that code was, and how the tasks waited meanwhile, is a note on it. Code that goes on for another minute,
    whatever interrupts it, ends the process with status 70; all this is on stderr then, with the seed.
    """


class _OverdueError(BaseException):
    """Interrupts what is overdue; nothing but cleaning up should catch it."""


_lock = threading.Lock()
_watched: dict[int, Watchdog] = {}  # by thread
_thread: threading.Thread | None = None
_looked_s = 0.0  # the clock of all
_last_calls: list[Callable[[], object]] = []


@contextmanager
def before_the_end(call: Callable[[], object]) -> Iterator[None]:
    """In the block, *call* is called before a process ends that nothing else ends: so that stderr is seen."""
    _last_calls.append(call)
    try:
        yield
    finally:
        _last_calls.remove(call)


class Watchdog:
    """Watches one simulation, in the thread that starts it. *dump* tells how its tasks wait, *origin* which it is."""

    def __init__(self, dump: Callable[[], str], origin: Callable[[], str]) -> None:
        self._dump = dump
        self._origin = origin
        self._ident = 0
        self._due_s = self._ends_s = 0.0
        self.failure: WatchdogError | None = None
        """What it has found."""

    def start(self) -> None:
        """Watch from now on."""
        global _thread
        self._ident = threading.get_ident()
        with _lock:
            self._due_s = _looked_s + WATCHDOG_S
            _watched[self._ident] = self
            if _thread is None or not _thread.is_alive():
                _thread = threading.Thread(target=_look, name=NAME, daemon=True)
                _thread.start()

    def stop(self) -> None:
        """
        Watch no more; an interruption that is on its way is met here.

        It is not taken back, for that leaves Python 3.11 looking for it for ever, and hanging once it is profiled.
        """
        while _watched.get(self._ident) is self:
            with suppress(_OverdueError), _lock:
                del _watched[self._ident]
        if self.failure is not None:
            with suppress(_OverdueError):
                _interrupt(self._ident)  # in the place of one that was on its way: there is only one at a time
                while True:
                    pass

    def _strike(self) -> None:
        """Interrupt the code; called in the watchdog's thread."""
        self._due_s = _looked_s + AGAIN_S
        frame = sys._current_frames().get(self._ident)
        if _is_debugged(frame):
            return
        if self.failure is not None and _looked_s >= self._ends_s:
            self._end_process(frame)
        if self.failure is None:
            self._ends_s = _looked_s + GIVE_UP_S
            self.failure = WatchdogError(
                "the simulation does not end: expected its code to give control back again and again, found some that"
                " runs on; look for a loop without an `await`"
            )
            told = "the tasks cannot be told"
            with suppress(Exception):  # they are looked at while they run
                told = f"the tasks:\n{self._dump()}"
            self.failure.add_note(f"the code was\n{_stack(frame)}\n{told}")
        _interrupt(self._ident)

    def _end_process(self, frame: FrameType | None) -> None:
        for call in _last_calls:
            with suppress(Exception):
                call()
        assert self.failure is not None
        lines = [
            f"minirun: {self._origin()} does not end, whatever interrupts it, so its process ends here",
            f"{type(self.failure).__name__}: {self.failure}",
            *self.failure.__notes__,
            f"at last the code was\n{_stack(frame)}\n",
        ]
        text = "\n".join(lines).encode("utf-8", "backslashreplace")
        with suppress(OSError):
            while text:
                text = text[os.write(2, text) :]
        os._exit(EXIT_STATUS)


def _look() -> None:
    """What the thread does, until there has been nothing to watch for a while."""
    global _thread, _looked_s
    now_s = monotonic()
    idle_since_s = _looked_s
    while True:
        sleep(LOOK_EVERY_S)
        with _lock:
            before_s, now_s = now_s, monotonic()
            _looked_s += min(now_s - before_s, LOOK_S_MAX)
            _strike_overdue()
            if _watched:
                idle_since_s = _looked_s
            elif _looked_s - idle_since_s > IDLE_S:
                _thread = None
                return


def _strike_overdue() -> None:
    """A function of its own, for a variable of the thread's would keep the last world while the thread sleeps."""
    for watchdog in list(_watched.values()):
        if watchdog._due_s <= _looked_s:
            watchdog._strike()


def _interrupt(ident: int) -> None:
    """Let a thread be interrupted as soon as it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_OverdueError))


def _is_debugged(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False


def _stack(frame: FrameType | None) -> str:
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_MAX:
        code = frame.f_code
        lines.append(f"      in {code.co_qualname}, {code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
        frame = frame.f_back
    return "\n".join(reversed(lines))
