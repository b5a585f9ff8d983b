"""
Seeds of simulated worlds: as many as it takes to meet all that a test is about, or many.

A common run of the tests ends with the seed in which all of it has happened. The larger forms take all of their seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from minirun.simulation import SeededChoices

from .simulation.stores import Scenario, simulate

__all__ = ["coverage_of_all", "coverage_until"]

COMMON = 50
"""At most so many seeds are those of a common run."""
FEWEST = 3


def coverage_until(
    reached: Collection[str], worlds: Mapping[str, tuple[Scenario, Any]], seeds: int, **more: Any
) -> Counter[str]:
    """What happens in at most so many seeds of each world, in none of which anything is found."""
    found: Counter[str] = Counter()
    for seed in range(seeds):
        for name, (scenario, options) in worlds.items():
            outcome = simulate(scenario, SeededChoices(seed), **{**options, **more})
            assert outcome.failure is None, f"{name}, seed {seed}: {outcome.failure!r}"
            found += outcome.coverage
        if seeds <= COMMON and seed + 1 >= FEWEST and set(reached) <= set(found):
            break
    assert set(reached) <= set(found), set(reached) - set(found)
    return found


def coverage_of_all(
    reached: Collection[str],
    worlds: Mapping[str, tuple[Scenario, Any]],
    least: int,
    *,
    only_on_disks: Collection[str],
    **more: Any,
) -> Counter[str]:
    """
    What happens in the worlds together, in none of which anything is found: all that is to be *reached*.

    Each world has the *least* number of seeds. After them it has one in turn as long as something is missing that may
    happen in it: what happens *only_on_disks* is not looked for in memory, and all else is looked for there alone,
    where a seed takes a fifth of the time.
    """
    found: Counter[str] = Counter()
    for seed in range(max(least, COMMON)):
        for name, (scenario, options) in worlds.items():
            missing = {*reached} - {*found}
            in_memory = options["storage"] == "memory"
            if seed >= least and not any((what in only_on_disks) is not in_memory for what in missing):
                continue
            outcome = simulate(scenario, SeededChoices(seed), **{**options, **more})
            assert outcome.failure is None, f"{name}, seed {seed}: {outcome.failure!r}"
            found += outcome.coverage
    assert set(reached) <= set(found), set(reached) - set(found)
    return found
