"""
Planted bugs: what each promise is worth is shown by what breaks it being found.

Each file in tests/mutants is a bug of minirun itself, as a text patch to a temporary copy of it; the package has no
hook for them. The simulation must find every one in its reference worlds, within a bound of seeds, and make it small.
See mutating.py for how a mutant is planted and hunted, and worlds.py for the worlds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minirun.simulation import why_unavailable

from .mutating import Find, Mutant, hunt_in_process, mutants, plant

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

SEEDS_MAX = 2_000
# What is left of a failure must be so little that somebody can follow it; most are below ten.
CHOICES_MAX = 40

MUTANTS = mutants()
NOT_FOUND = {
    "stranger_renewal_outlives_run": "a failed simulation waits for ever for a shielded loop that its failure has left",
}


def planted() -> list[Any]:
    """The mutants, as parameters; one that is not found yet says why, and is not tried, because it would not end."""
    return [
        pytest.param(mutant, id=mutant.name, marks=pytest.mark.xfail(reason=NOT_FOUND[mutant.name], run=False))
        if mutant.name in NOT_FOUND
        else pytest.param(mutant, id=mutant.name)
        for mutant in MUTANTS
    ]


@pytest.fixture(scope="module")
def finds() -> Iterator[dict[str, Find]]:
    """What was found, by mutant; told at the end (run with -s)."""
    found: dict[str, Find] = {}
    yield found
    print()
    for name, find in found.items():
        print(f"{name:40} seed {find.seed:4}  {find.choices:2} choices  {find.world}: {find.failure}")


@pytest.mark.parametrize("mutant", planted())
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path, finds: dict[str, Find]) -> None:
    """Within 2 000 seeds a world fails; few choices are left of it, and they fail again with the same type of error."""
    find = finds[mutant.name] = hunt_in_process(mutant, tmp_path, SEEDS_MAX)
    assert find.failure, f"{SEEDS_MAX} seeds have not found that {mutant.promise}"
    assert find.replayed == find.failure
    assert find.choices <= CHOICES_MAX, find.message


@pytest.mark.parametrize(
    "seeds", [pytest.param(200, id="some"), pytest.param(20_000, id="many", marks=pytest.mark.slow)]
)
def test_where_nothing_is_planted_nothing_is_found(seeds: int, tmp_path: Path) -> None:
    """The same hunt finds nothing in minirun as it is."""
    find = hunt_in_process(None, tmp_path, seeds)
    assert find == Find(), f"{find.world}, seed {find.seed}: {find.failure}: {find.message}"


def test_every_mutant_says_which_promise_it_breaks() -> None:
    """There are at least twenty, each with a sentence for people."""
    assert len(MUTANTS) >= 20
    assert [mutant.name for mutant in MUTANTS if not re.match(r"(P\d|DESIGN).*: .+", mutant.promise)] == []


def diff(name: str, *lines: str) -> str:
    return "\n".join([f"--- a/{name}", f"+++ b/{name}", "@@ -1 +1 @@", *lines])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "found 0 hunks"),
        (diff("minirun/env.py", "-no such line", "+another"), "found them 0 times"),
        (diff("minirun/env.py", "-", "+another"), r"found them \d\d times"),
        (diff("minirun/env.py", " import os"), "expected hunks that change something"),
        (diff("minirun/no.py", "-import os", "+import sys"), "once in minirun/no.py"),
        (diff("tests/no.py", "-import os", "+import sys"), "under a/minirun"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error(text: str, problem: str, tmp_path: Path) -> None:
    """What a mutant changes must be there, once, or it would say nothing about what was found."""
    with pytest.raises(ValueError, match=problem):
        plant(Mutant("misfit", "", text), tmp_path)
