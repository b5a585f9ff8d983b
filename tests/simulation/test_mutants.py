"""
Planted bugs: what each promise is worth is shown by what breaks it being found.

Each file in tests/mutants is a bug of minirun itself, as changes to copies of its modules; the package has no hook for
them. The simulation must find every one in its reference worlds, within a bound of seeds, and make it small.
See mutating.py for how a mutant is planted and hunted, and worlds.py for the worlds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minirun.simulation import why_unavailable

from .. import mutating
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


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_says_what_it_says(mutant: Mutant, tmp_path: Path) -> None:
    """What it takes away stands where it says, once, and what comes of it can be imported."""
    assert plant(mutant, tmp_path)


PLACE = "in minirun.env:Env.now"
NOW = "        return time.time()"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "found 0 of them"),
        ([PLACE, f" {NOW}"], "expected changes that change something"),
        (["@@ -1 +1 @@", f"-{NOW}"], "expected `in minirun.module:function`"),
        (["in tests.mutating:plant", f"-{NOW}"], "expected `in minirun.module:function`"),
        (["in minirun.no:now", f"-{NOW}"], "expected a module of minirun, found 'minirun.no'"),
        (["in minirun.env:Env.no", f"-{NOW}"], r"\(found 0 of that name\), found them 0 times"),
        ([PLACE, "-no such line"], r"\(found 1 of that name\), found them 0 times"),
        ([PLACE, "+another line"], "found them 0 times"),
        (["in minirun.env:Env", "-", "+another line"], r"found them \d+ times"),
        ([PLACE, f"-{NOW}", "+        return ("], "expected a module that can be imported"),
        ([PLACE, f"-{NOW}", PLACE, f"-{NOW}", "+        return 0"], "expected changes that take away different lines"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error(lines: list[str], problem: str, tmp_path: Path) -> None:
    """What a mutant changes must be there, once, or it would say nothing about what was found."""
    with pytest.raises(ValueError, match=problem):
        plant(Mutant("misfit", "", "\n".join(lines)), tmp_path)


def test_a_mutant_fits_wherever_its_function_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that move, are indented more deeply, or stand in another function as well, are no reason to renew one."""
    package = tmp_path / "true" / "minirun"
    package.mkdir(parents=True)
    monkeypatch.setattr(mutating, "PACKAGE", package)
    mutant = Mutant("slow", "", "in minirun.a:A.f\n-    x = 1\n+    if x:\n+        x = 2\n")
    before = "def f():\n    x = 1\n\nclass A:\n    async def f(self):\n        "
    for inner in ("", "with self:\n            "):
        (package / "a.py").write_text(f"{before}{inner}x = 1\n")
        [planted] = plant(mutant, tmp_path)
        deep = " " * (12 if inner else 8)
        assert planted.read_text() == f"{before}{inner}if x:\n{deep}    x = 2\n"
