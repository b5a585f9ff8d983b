"""
How a program of a side and the benchmark talk: what is asked, what is answered, and how a round is timed.

    python -m tests.benchmarks.programs.SIDE TASK

The task is JSON. The program prepares what the task needs, says so, and then does one round for each line that it
reads, until there is none; each answer is a line of JSON.

Rules of this file:

*   The standard library only: it runs in the virtual environment of each peer, under asyncio as well as under trio.
*   A round is timed here, by the wall and by the processor, the same way for all: `make` prepares its steps and is
    not timed, the first step is not timed either, because the process has slept while others had their turn, then steps
    are timed until there is no other or the time of a round is over. What `after` does, such as closing a file, is not.
*   All sides say the same words, call the same tool, and answer as soon as they are asked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

QUESTION = "Will it rain in Lisbon this afternoon, or can I leave the coat at home when I go to the harbour?"
ANSWER = (
    "It stays dry in Lisbon until the late evening: a few clouds, a light wind from the west and at most 21 degrees. "
    "You can leave the coat at home, but take something against the sun along."
)
TOOL = "weather"
TOOL_ARGUMENTS = {"city": "Lisbon"}
TOOL_RESULT = {"city": "Lisbon", "sky": "a few clouds", "degrees": 21, "rain_mm": 0.0}
CHUNK = "word "

# Turns of each session of a crowd.
CROWD_TURNS = 5
# Chunks of each of many streams at once.
STREAM_CHUNKS = 200
# How many chunks minirun lets a caller lag behind by default (`RunConfig.partial_buffer`): the floor has the same.
PARTIAL_BUFFER = 16
# How many of the newest events a turn sees where a scenario says so.
WINDOW_EVENTS = 20
# A round is no longer than this, unless one step is: long enough for the clock, short enough that sides take turns
# before the machine has changed its mood.
ROUND_S = 0.2
# A session whose history is this short is made anew for each round: the measured turns would soon double it.
SHORT_HISTORY_EVENTS = 100

Step: TypeAlias = Callable[[], Awaitable[object]]
"""Something to time; what it returns is told with the time if it is `Told`."""


class Told(dict[str, object]):
    """What a step has to tell."""


@dataclass(frozen=True)
class Task:
    """
    What a process is to measure: a scenario on a kind of store, so large, in a folder of its own.

    `size` is how many events are stored before (`text`, `tool`, `window`), sessions (`crowd`), chunks (`stream`,
    `chat`, `messages`), streams (`streams`), keys (`keys`) or agents (`parallel`). `repeats` is how many steps a round
    has at most.
    """

    what: str
    store: str
    size: int
    repeats: int
    folder: str

    @property
    def file(self) -> Path:
        """Where a side that keeps a file has it."""
        return Path(self.folder) / "store.db"


def given() -> Task:
    """The task, from the command line."""
    return Task(**json.loads(sys.argv[1]))


def peak_mb() -> float:
    """
    The most memory that this process has had, in 10^6 bytes.

    On Linux `ru_maxrss` may be that of the parent, because it survives exec there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        [kib] = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
        return float(int(kib) * 1024 / 1e6)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


async def serve(
    task: Task, make: Callable[[int], Awaitable[list[Step]]], *, units: int = 1, after: Step | None = None
) -> None:
    """
    Do a round for each line that is read.

    Args:
        make: Prepares so many steps, or as many as it likes.
        units: What a step does so often; told is the time of one.
        after: Called after each step.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # what a peer prints must not get between the answers

    def tell(**answer: object) -> None:
        os.write(answers, json.dumps(answer).encode() + b"\n")

    tell(ready=True)
    for _ in sys.stdin:
        warm, *steps = await make(task.repeats + 1)
        if steps:
            await _timed(warm, after)
        gc.collect()
        wall_s, cpu_s, done, told = 0.0, 0.0, 0, Told()
        for step in steps or [warm]:
            step_wall_s, step_cpu_s, more = await _timed(step, after)
            wall_s, cpu_s, done = wall_s + step_wall_s, cpu_s + step_cpu_s, done + 1
            told.update(more)
            if wall_s > ROUND_S:
                break
        us = 1e6 / done / units
        tell(wall_us=wall_s * us, cpu_us=cpu_s * us, steps=done, peak_mb=peak_mb(), **told)


async def _timed(step: Step, after: Step | None) -> tuple[float, float, Told]:
    cpu, wall = time.process_time(), time.perf_counter()
    told = await step()
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    if after is not None:
        await after()
    return wall_s, cpu_s, told if isinstance(told, Told) else Told()


class Crowd:
    """Sessions that all take turns at once; how many of them failed is told, with the first reason."""

    def __init__(self, turn: Callable[[Any], Awaitable[object]], turns: int = CROWD_TURNS) -> None:
        self._turn = turn
        self._turns = turns
        self._failed: list[str] = []

    async def member(self, session: object) -> None:
        """One session: its turns, one after another, until one fails."""
        try:
            for _ in range(self._turns):
                await self._turn(session)
        except Exception as error:  # whatever a peer raises, the others go on, and it is told
            self._failed.append(" ".join(f"{type(error).__name__}: {error}".split())[:120])

    def told(self) -> Told:
        """What became of them."""
        return Told(failed=len(self._failed), reason=self._failed[0] if self._failed else "")


def allow_many_files() -> None:
    """Let this process open as many files as it may: some peers open several for each session."""
    with contextlib.suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
