"""
Many sessions that append at once to one file, in a process of its own: what they took, as one line of JSON.

    python -m tests.benchmarks.crowd SIDE SESSIONS TIMES FILE [--commits]

The benchmark starts it, round by round, once for each side. A session is a task, which appends an event so many times
in a row; all begin together. The file is made anew, at durability `power`. Counting has its price, so it is asked for:
`--commits` counts the COMMIT statements that SQLite gets to see, and the times of such a run say nothing.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from minirun import Env, Event, SqliteSessionService

from .details import Took
from .floors import FloorGroups
from .programs.protocol import ANSWER

Step: TypeAlias = Callable[[], Awaitable[object]]


@attrs.frozen(eq=False)
class Listening(Env):
    """The real world, and how many COMMITs SQLite got to see."""

    commits: list[str] = attrs.field(factory=list)

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        connection = super().connect(database, uri=uri)
        self.listen(connection)
        return connection

    def listen(self, connection: sqlite3.Connection) -> None:
        """Count those of this connection."""
        connection.set_trace_callback(self._hear)

    def _hear(self, statement: str) -> None:
        if statement == "COMMIT":
            self.commits.append(statement)


@asynccontextmanager
async def floor_steps(sessions: int, file: Path, env: Env) -> AsyncIterator[list[Step]]:
    """What each session of the floor does, again and again."""
    floor = FloorGroups(file)
    if isinstance(env, Listening):
        env.listen(floor.db)
    yield [partial(floor.append, session, ANSWER, last=True) for session in range(sessions)]
    floor.close()


@asynccontextmanager
async def minirun_steps(sessions: int, file: Path, env: Env) -> AsyncIterator[list[Step]]:
    """What each session of minirun does, again and again."""
    async with SqliteSessionService(file, durability="power", env=env) as service:
        made = [await service.create_session(app_name="app", user_id="u") for _ in range(sessions)]
        event = Event(author="agent", message=ANSWER, state={"last": ANSWER})
        yield [partial(service.append_event, session, event) for session in made]


async def crowd(side: str, sessions: int, times: int, file: Path, *, commits: bool) -> Took:
    """Let them all begin together, and see what they took."""
    waits_s: list[float] = []

    async def session(step: Step) -> None:
        for _ in range(times):
            start = time.perf_counter()
            await step()
            waits_s.append(time.perf_counter() - start)

    env = Listening() if commits else Env()
    make = minirun_steps if side == "minirun" else floor_steps
    async with make(sessions, file, env) as steps:
        for _ in range(3):
            await steps[0]()  # warm
        earlier = len(env.commits) if isinstance(env, Listening) else 0
        start = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for step in steps:
                nursery.start_soon(session, step)
        taken_s = time.perf_counter() - start
    hundredths = statistics.quantiles(waits_s, n=100, method="inclusive")
    return Took(
        steps_per_s=sessions * times / taken_s,
        p50_ms=hundredths[49] * 1e3,
        p99_ms=hundredths[98] * 1e3,
        commits=len(env.commits) - earlier if isinstance(env, Listening) else 0,
    )


def main() -> None:
    """Do what the command line asks for, once."""
    parser = argparse.ArgumentParser(description="Many sessions at once, in a process of their own.")
    parser.add_argument("side", choices=("minirun", "floor"))
    parser.add_argument("sessions", type=int)
    parser.add_argument("times", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--commits", action="store_true")
    print(json.dumps(attrs.asdict(trio.run(partial(crowd, **vars(parser.parse_args()))))))


if __name__ == "__main__":
    main()
