"""Many seeds of one scenario: what fails is made small, and what is not the same twice is found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._choices import Choices, RecordedChoices
from ._simulate import Outcome, Scenario, simulate

__all__ = ["shrink"]

# What shrinking may cost. A simulation takes milliseconds, but one that never ends takes seconds.
SHRINK_RUNS_MAX = 400
SHRINK_S_MAX = 30.0


def shrink(scenario: Scenario, outcome: Outcome, *, runs_max: int = SHRINK_RUNS_MAX, **options: Any) -> Outcome:
    """
    Make the choices of a failure fewer and duller, as long as it fails with the same type of error.

    First whole stretches are dropped, then single choices become 0 or smaller. *options* are those of `simulate`.
    """
    return shrink_with(lambda choices: simulate(scenario, choices, **options), outcome, runs_max=runs_max)


def shrink_with(run: Callable[[Choices], Outcome], outcome: Outcome, *, runs_max: int = SHRINK_RUNS_MAX) -> Outcome:
    """The same for anything that makes an outcome of choices."""
    assert outcome.failure is not None, "only a failure can be shrunk"
    kind, best = type(outcome.failure), outcome
    tried: set[tuple[int, ...]] = set()
    deadline = time.monotonic() + SHRINK_S_MAX

    def fails(picks: Sequence[int]) -> bool:
        nonlocal best
        if tuple(picks) in tried or len(tried) >= runs_max or time.monotonic() > deadline:
            return False
        tried.add(tuple(picks))
        found = run(RecordedChoices(picks))
        if type(found.failure) is not kind:
            return False
        best = found
        return True

    picks = _without_stretches(stripped(outcome.picks), fails)
    _with_smaller_ones(picks, fails)
    return best


def stripped(picks: Sequence[int]) -> list[int]:
    """Without the zeros at the end, which a replay has anyway."""
    kept = list(picks)
    while kept and kept[-1] == 0:
        kept.pop()
    return kept


def _without_stretches(picks: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Drop stretches, or make them dull, from half of the list down to single choices."""
    size = max(1, len(picks) // 2)
    while size:
        at = 0
        while at < len(picks):
            for candidate in _dropped(picks, at, size):
                if candidate != picks and fails(candidate):
                    picks = candidate
                    break
            else:
                at += size
        size //= 2
    return picks


def _dropped(picks: list[int], at: int, size: int) -> Iterator[list[int]]:
    before, after = picks[:at], picks[at + size :]
    yield stripped([*before, *after])
    yield stripped([*before, *[0] * len(picks[at : at + size]), *after])


def _with_smaller_ones(picks: list[int], fails: Callable[[Sequence[int]], bool]) -> None:
    """Make single choices smaller."""
    for at, pick in enumerate(picks):
        for smaller in sorted({1, pick // 2, pick - 1}):
            candidate = [*picks[:at], smaller, *picks[at + 1 :]]
            if 0 < smaller < pick and fails(candidate):
                picks = candidate
                break
