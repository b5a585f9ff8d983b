"""
How sides are measured beside each other: each in a process of its own, in turns.

Rules of this file:

*   All processes of a scenario live at the same time and one of them works at a time. In each round every side has its
    turn, forwards and backwards in turn, so that an hour in which the machine is slow is slow for all of them.
*   The first round warms up and is kept apart, as what the first use cost. Where the most memory would hide it, as with
    a crowd, every round has a process of its own, and none is for warming up.
*   What works in memory is judged by processor time, its threads included, because on a shared machine the time on the
    wall is mostly that of others; what waits for a disk is judged by the wall. Graphs are judged by processor time in
    files, too: they take so long that the disk has others to serve meanwhile. The raw figures have both.
*   A side that fails is left out with its reason, unless it is one of ours: then the benchmark fails.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import attrs

from .environments import QUIET, python_of
from .programs.protocol import SHORT_HISTORY_EVENTS
from .scale import Scale
from .sides import Kind, Side, SideFailedError

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Scenario:
    """
    What the sides are asked to do.

    Args:
        name: As the command line knows it.
        title: As a table has it, with `{}` where the size stands.
        what: As the programs know it.
        kind: The stores that take part.
        sizes: How large, and for peers; in the unit of the title.
        unit: Of the figures: `µs` or `ms`.
        alone: A process for each round; few rounds.
        clock: Which one judges.
    """

    name: str
    title: str
    what: str
    kind: Kind
    sizes: Callable[[Scale], Sequence[int]]
    peer_sizes: Callable[[Scale], Sequence[int]]
    unit: str = "µs"
    alone: bool = False
    clock: Literal["cpu", "wall"] = attrs.field()

    @clock.default
    def _clock(self) -> Literal["cpu", "wall"]:
        return "cpu" if self.kind == "memory" else "wall"


@attrs.frozen
class Figure:
    """
    What one side took in one scenario of one size: round by round, the first use apart; in the unit that is named.

    `rounds` is by the clock that judges (`Scenario.clock`), `wall_rounds` always by the wall.
    `peak_mb` is the most memory that its process has had, in 10^6 bytes; `failed` the sessions that failed, in the
    worst round. `note` says why there are no rounds, why sessions failed, or what else is to be known.
    """

    scenario: str
    side: str
    size: int
    unit: str
    rounds: list[float]
    wall_rounds: list[float] = attrs.field(factory=list)
    first: float | None = None
    peak_mb: float | None = None
    failed: int = 0
    note: str = ""
    peer: bool = False

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.rounds)


PER_US = {"µs": 1.0, "ms": 1e-3, "s": 1e-6}


class Process:
    """A program of a side that is prepared for a task, in a folder of its own."""

    def __init__(self, side: Side, task: dict[str, Any], stack: ExitStack, trace: Sequence[str] = ()) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="minirun-bench-"))
        self._errors = stack.enter_context(tempfile.TemporaryFile(mode="w+"))  # noqa: SIM115 - the stack closes it
        python = python_of(side.peer) if side.peer else sys.executable
        told = json.dumps({**task, "store": side.store, "folder": folder})
        self._process = stack.enter_context(
            subprocess.Popen(
                [*trace, python, "-m", f"tests.benchmarks.programs.{side.program}", told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, **QUIET} if side.peer else None,
            )
        )
        stack.callback(self.end)
        self._answer()

    def round(self) -> dict[str, Any]:
        """Do one."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words are read below
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.end()
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines()
            raise SideFailedError(said[-1] if said else f"it ended with {self._process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Ask it for no more rounds and wait for its end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.wait()


def repeats(what: str, size: int, scale: Scale) -> int:
    """How many steps a round has at most: few enough that a history stays about as long as it is said to be."""
    if what in ("text", "tool") and size > 0:
        return min(scale.turns, max(10, size // SHORT_HISTORY_EVENTS))
    return scale.turns


def play(scenario: Scenario, sides: Sequence[Side], scale: Scale) -> Iterator[Figure]:
    """Let the sides take turns at a scenario, size by size."""
    for size in sorted({*scenario.sizes(scale), *scenario.peer_sizes(scale)}):
        taking_part = [
            side
            for side in sides
            if side.kind == scenario.kind
            and scenario.what in side.plays
            and size in (scenario.peer_sizes(scale) if side.peer else scenario.sizes(scale))
        ]
        yield from played(scenario, size, taking_part, scale)


def played(scenario: Scenario, size: int, sides: Sequence[Side], scale: Scale) -> Iterator[Figure]:
    """Let the sides take turns at one size."""
    task = {"what": scenario.what, "size": size, "repeats": repeats(scenario.what, size, scale)}
    answers: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    reasons: dict[str, str] = {}
    with ExitStack() as stack:
        processes: dict[str, Process] = {}

        def attempt(side: Side) -> None:
            if side.name in reasons:
                return
            try:
                if scenario.alone:
                    with ExitStack() as once:
                        answers[side.name].append(Process(side, task, once).round())
                elif side.name not in processes:
                    processes[side.name] = Process(side, task, stack)
                else:
                    answers[side.name].append(processes[side.name].round())
            except SideFailedError as error:
                if side.peer is None:
                    raise
                reasons[side.name] = str(error)

        rounds = scale.slow_rounds if scenario.alone else scale.rounds + 2  # of these, one prepares and one warms up
        for number in range(rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                attempt(side)
    for side in sides:
        yield figure(scenario, size, side, answers[side.name], reasons.get(side.name, ""))


def figure(scenario: Scenario, size: int, side: Side, answers: list[dict[str, Any]], reason: str) -> Figure:
    """What a side has answered."""
    warm = 0 if scenario.alone or not answers else 1
    taken, wall = (
        [answer[f"{clock}_us"] * PER_US[scenario.unit] for answer in answers] for clock in (scenario.clock, "wall")
    )
    worst = max(answers, key=lambda answer: answer.get("failed", 0), default={})
    return Figure(
        scenario=scenario.name,
        side=side.name,
        size=size,
        unit=scenario.unit,
        rounds=[] if reason else taken[warm:],
        wall_rounds=[] if reason else wall[warm:],
        first=taken[0] if warm else None,
        peak_mb=max((answer["peak_mb"] for answer in answers), default=None),
        failed=worst.get("failed", 0),
        note=reason or worst.get("reason", ""),
        peer=side.peer is not None,
    )
