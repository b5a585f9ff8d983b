"""
Many sessions at once in one file, in a process of its own: what they took, as one line of JSON.

    python -m tests.benchmarks.crowd SIDE WHAT SESSIONS TIMES FILE [--commits] [--traced]

The benchmark starts it, round by round, once for each side. A session is a task, which appends an event, or takes a
tool turn, so many times in a row; all begin together. The file is made anew, at durability `power`.

Rules of this file:

*   The *floor* is what sqlite3 and trio need for the same events if they share commits as far as they can: bare rows
    at synchronous=FULL, and whoever comes while a COMMIT is under way shares the next one.
*   Looking has its price, so it is asked for: `--commits` counts the COMMIT statements that SQLite gets to see,
    `--traced` the bytes that Python allocates. The times of such a run say nothing.
*   A fresh process, because the most memory that a process has had never falls again.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sqlite3
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from minirun import Env, Event, SqliteSessionService
from minirun.errors import MinirunError

from .run import EVENTS_PER_TOOL_TURN, Took, floor_event, floor_line, tool_runner, turn

Step: TypeAlias = Callable[[], Awaitable[object]]

# --- the floor ------------------------------------------------------------------------------------------------------


class FloorGroup:
    """The events of one transaction, and when it is done."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, str]] = []
        self.done = trio.Event()


class FloorGroups:
    """One file and many writers, with one transaction for all who waited for the one before."""

    def __init__(self, db: sqlite3.Connection, sessions: int) -> None:
        self._db = db
        self._lock = trio.Lock()
        self._next = FloorGroup()
        self._revisions = [0] * sessions
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE events (session, seq, data TEXT, PRIMARY KEY (session, seq)) WITHOUT ROWID")
        db.execute("CREATE TABLE state (session, key, value TEXT, PRIMARY KEY (session, key)) WITHOUT ROWID")
        db.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY, revision INTEGER)")
        db.executemany("INSERT INTO sessions VALUES (?, 0)", [(number,) for number in range(sessions)])

    async def append(self, session: int, times: int = 1) -> None:
        """Store so many events of a session, one after another."""
        for _ in range(times):
            self._revisions[session] += 1
            event = floor_event(self._revisions[session], "hello")
            group = self._next
            group.rows.append((session, event.seq, floor_line(event), event.content.parts[0].text))
            if len(group.rows) > 1:
                await group.done.wait()
                continue
            async with self._lock:  # the first of a group commits for all who join until it can begin
                self._next = FloorGroup()
                self._db.execute("BEGIN IMMEDIATE")
                for row in group.rows:
                    self._write(*row)
                await trio.to_thread.run_sync(partial(self._db.execute, "COMMIT"))
            group.done.set()

    def _write(self, session: int, seq: int, line: str, text: str) -> None:
        self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (session, seq, line))
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, 'last', ?)", (session, text))
        self._db.execute("UPDATE sessions SET revision = ? WHERE id = ?", (seq, session))


@asynccontextmanager
async def floor_steps(what: str, sessions: int, file: Path, env: Env) -> AsyncIterator[list[Step]]:
    """What each session of the floor does, again and again."""
    db = env.connect(str(file))
    floor = FloorGroups(db, sessions)
    events = 1 if what == "append" else EVENTS_PER_TOOL_TURN
    yield [partial(floor.append, session, events) for session in range(sessions)]
    db.close()


# --- minirun --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def minirun_steps(what: str, sessions: int, file: Path, env: Env) -> AsyncIterator[list[Step]]:
    """What each session of minirun does, again and again."""
    async with SqliteSessionService(file, durability="power", env=env) as service:
        made = [await service.create_session(app_name="app", user_id="u") for _ in range(sessions)]
        if what == "append":
            event = Event(author="agent", message="hello", state={"last": "hello"})
            yield [partial(service.append_event, session, event) for session in made]
        else:
            runner = tool_runner(service)
            yield [partial(turn, runner, session.id) for session in made]


@attrs.frozen(eq=False)
class Listening(Env):
    """The real world, and how many COMMITs SQLite got to see."""

    commits: list[str] = attrs.field(factory=list)

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        connection = super().connect(database, uri=uri)
        connection.set_trace_callback(self._hear)
        return connection

    def _hear(self, statement: str) -> None:
        if statement == "COMMIT":
            self.commits.append(statement)


# --- measuring ------------------------------------------------------------------------------------------------------

# A small crowd may fit into what its process had before; then this stands for its memory, so that a ratio exists.
PAGE_MIB = resource.getpagesize() / 2**20


def peak_mib() -> float:
    """The most memory that this process has had. On Linux ru_maxrss may be the parent's: it survives exec there."""
    status = Path("/proc/self/status")
    if status.exists():
        [kib] = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
        return int(kib) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


async def crowd(side: str, what: str, sessions: int, times: int, file: Path, *, commits: bool, traced: bool) -> Took:
    """Let them all begin together, and see what they took."""
    waits_s: list[float] = []
    failed = 0

    async def session(step: Step) -> None:
        nonlocal failed
        for _ in range(times):
            start = time.perf_counter()
            try:
                await step()
            except MinirunError:
                failed += 1
            waits_s.append(time.perf_counter() - start)

    before_mib = peak_mib()
    if traced:
        tracemalloc.start()
    env = Listening() if commits else Env()
    make = minirun_steps if side == "minirun" else floor_steps
    async with make(what, sessions, file, env) as steps:
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
        taken_s=taken_s,
        failed=failed,
        p50_ms=hundredths[49] * 1e3,
        p99_ms=hundredths[98] * 1e3,
        commits=len(env.commits) - earlier if isinstance(env, Listening) else 0,
        peak_mib=max(peak_mib() - before_mib, PAGE_MIB),
        traced_mib=tracemalloc.get_traced_memory()[1] / 2**20,
    )


def main() -> None:
    """Do what the command line asks for, once."""
    parser = argparse.ArgumentParser(description="Many sessions at once, in a process of their own.")
    parser.add_argument("side", choices=("minirun", "floor"))
    parser.add_argument("what", choices=("append", "turn"))
    parser.add_argument("sessions", type=int)
    parser.add_argument("times", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--commits", action="store_true")
    parser.add_argument("--traced", action="store_true")
    print(json.dumps(attrs.asdict(trio.run(partial(crowd, **vars(parser.parse_args()))))))


if __name__ == "__main__":
    main()
