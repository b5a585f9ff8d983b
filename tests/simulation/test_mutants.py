"""
Planted bugs: what each promise is worth is shown by what breaks it being found.

Each file in tests/mutants is a bug of minirun itself, as a text patch to copies of its modules; the package has no
hook for them. The simulation must find every one in its reference worlds, within a bound of seeds, and make it small.
See mutating.py for how a mutant is planted and hunted, and worlds.py for the worlds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minirun.simulation import why_unavailable

from ..mutating import CHOICES_MAX, Find, Mutant, hunt_in_process, mutants, plant

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

SEEDS_MAX = 2_000

MUTANTS = mutants()


def told(mutant: Mutant, find: Find) -> None:
    """Print what was found (run with -s)."""
    print(f"{mutant.name:40} seed {find.seed:4}  {find.choices:3} choices  {find.world}: {find.failure}")


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    """Within 2 000 seeds a world fails, and what was shrunk of it fails again with the same type of error."""
    find = hunt_in_process(mutant, tmp_path, SEEDS_MAX)
    told(mutant, find)
    assert find.failure, f"{SEEDS_MAX} seeds have not found that {mutant.promise}"
    assert find.replayed == find.failure


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_made_small(mutant: Mutant, tmp_path: Path) -> None:
    """The first of 2 000 seeds that fails is shrunk: few choices are left, and they fail again alike."""
    find = hunt_in_process(mutant, tmp_path, SEEDS_MAX, whole=True)
    told(mutant, find)
    assert find.failure, f"{SEEDS_MAX} seeds have not found that {mutant.promise}"
    assert find.replayed == find.failure
    if find.failure != "LivelockError":  # a run without end takes 20 000 steps: there is time for a few attempts only
        assert find.choices <= CHOICES_MAX, find.message


@pytest.mark.parametrize(
    "seeds", [pytest.param(80, id="some"), pytest.param(20_000, id="many", marks=pytest.mark.slow)]
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
