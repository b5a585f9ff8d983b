"""
Ctrl-C at each line of what begins, carries and ends a run: `python -m tests.ctrl_c_lines STORE STEP RUNS`.

A trace function raises a real SIGINT at the n-th line that is executed, for every STEP-th n. Whatever the program does
then has to end in a bounded time, and another run must be possible over the same service. What goes wrong is printed
as JSON, with the line.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import trio

import minirun
from minirun import BaseAgent, Event, InMemorySessionService, Runner, SqliteSessionService
from minirun.sessions import BaseSessionService

PACKAGE = Path(minirun.__file__).parent
PLACES = (
    "runtime/_scope.py",
    "runtime/_run.py",
    "runtime/_invocation.py",
    "runtime/_emit.py",
    "runtime/_committer.py",
    "sessions/_renewals.py",
)
FILES = {str(PACKAGE / place) for place in PLACES}
LIMIT_S = 30.0
ENOUGH = 4  # problems, so that a run that hangs often fails soon


class TookTooLongError(BaseException):
    """The program did not end by itself."""


class Interrupting:
    """A trace function that counts the lines of FILES, and interrupts at one of them; at none if that is 0."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.count = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.count += 1
            if self.count == self.target:
                name = Path(frame.f_code.co_filename).name
                self.where = f"{name}:{frame.f_lineno} {frame.f_code.co_qualname}"
                signal.raise_signal(signal.SIGINT)
        return self


class Says(BaseAgent):
    """Says something in pieces, and then two things."""

    async def _run_async_impl(self, ctx: Any) -> None:
        await ctx.emit(Event(message="h", partial=True))
        await ctx.emit(Event(message="hello"))
        await ctx.emit(Event(message="bye"))


async def use(service: BaseSessionService, runs: int) -> None:
    """Have so many runs at once."""
    runner = Runner(agent=Says(name="says"), app_name="app", session_service=service, auto_create_session=True)

    async def one(name: str) -> None:
        async with runner.run_async(user_id="u", session_id=name, new_message="go") as run:
            async for _ in run:
                pass

    if runs == 1:
        await one("main")
        return
    async with trio.open_nursery() as nursery:
        for number in range(1, runs):
            nursery.start_soon(one, f"other {number}")
        await one("main")


def outcome(service: BaseSessionService, runs: int, trace: Interrupting | None) -> str:
    """What a program comes to that uses the service; it is cut off if it takes too long."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    sys.settrace(trace)
    try:
        trio.run(use, service, runs)
    except KeyboardInterrupt:
        return "interrupted"
    except BaseExceptionGroup as group:
        return "interrupted" if group.split(KeyboardInterrupt)[1] is None else repr(group)
    except BaseException as error:
        return repr(error)
    finally:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "ended"


def problem(service: BaseSessionService, runs: int, trace: Interrupting) -> str:
    """What is wrong after a Ctrl-C there; empty if nothing is."""
    first = outcome(service, runs, trace)
    if trace.where and first != "interrupted":
        return first
    if first not in ("interrupted", "ended"):
        return first
    second = outcome(service, 1, None)
    return "" if second == "ended" else f"afterwards: {second}"


def main(store: str, step: int, runs: int) -> None:
    """Print how many lines there are, how many interrupts there were, and what was wrong where."""

    def took_too_long(*_: object) -> None:
        raise TookTooLongError

    signal.signal(signal.SIGALRM, took_too_long)
    interrupts = 0
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:

        def service(number: int) -> BaseSessionService:
            if store == "memory":
                return InMemorySessionService()
            return SqliteSessionService(Path(folder) / f"{number}.db", durability="process")

        whole = Interrupting(0)
        outcome(service(0), runs, whole)
        for target in range(1, whole.count + 1, step):
            trace = Interrupting(target)
            wrong = problem(service(target), runs, trace)
            interrupts += bool(trace.where)
            if wrong:
                bad.append(f"{trace.where}: {wrong}")
            if len(bad) == ENOUGH:
                break
    print(json.dumps({"lines": whole.count, "interrupts": interrupts, "bad": bad}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
