"""
How the works of one process are measured: in turns, and as rows beside a floor.

Works take turns, round by round, in changing order, with a collected heap; the first round warms up. A ratio is the
median of the rounds' own ratios, so that a machine that is slow for a while is slow for both sides; it may differ a
little from the quotient of the medians. Its spread, the least and the greatest, stands in brackets.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs


@attrs.frozen
class Work:
    """
    Something to measure: `step`, done `repeats` times in each round, doing `units` of what is counted each time.

    `prepare` is called before each round and not measured.
    """

    name: str
    step: Callable[[], Awaitable[object]]
    repeats: int = 1
    units: int = 1
    prepare: Callable[[], Awaitable[object]] | None = None


Times: TypeAlias = dict[str, list[float]]
"""For each work its µs per unit, round by round."""


async def measure(rounds: int, *works: Work, clock: Callable[[], float] = time.perf_counter) -> Times:
    """Let the works take turns; `clock` tells seconds."""
    times: Times = {work.name: [] for work in works}
    for number in range(rounds + 1):
        for work in works if number % 2 == 0 else works[::-1]:
            if work.prepare is not None:
                await work.prepare()
            gc.collect()
            start = clock()
            for _ in range(work.repeats):
                await work.step()
            times[work.name].append((clock() - start) / (work.repeats * work.units) * 1e6)
    return {name: taken[1:] for name, taken in times.items()}


@attrs.frozen
class Ratio:
    """How often one side is the other: the median of the rounds, and the least and the greatest of them."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, rounds: Sequence[float], floor_rounds: Sequence[float]) -> Ratio:
        """That of two sides which took turns: a round beside the other side's of the same time."""
        ratios = [a / b for a, b in zip(rounds, floor_rounds, strict=False)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:6.2f} [{self.least:.2f}–{self.greatest:.2f}]"


@attrs.frozen
class Row:
    """One line of the table: the rounds of one work, and those of what it is compared with."""

    what: str
    rounds: list[float]
    beside: str
    floor_rounds: list[float]
    target: str = ""
    unit: str = "µs"
    note: str = ""

    def __str__(self) -> str:
        ratio = str(Ratio.of(self.rounds, self.floor_rounds))
        figure, floor = statistics.median(self.rounds), statistics.median(self.floor_rounds)
        target = f" target {self.target}" if self.target else ""
        note = f" {self.note}" if self.note else ""
        return (
            f"{self.what:42}{figure:9.1f} {self.unit:3} | {self.beside:32}{floor:9.1f} {self.unit:3}"
            f" | ratio {ratio}{target}{note}"
        )
