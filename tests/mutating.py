"""
Planting bugs in a copy of minirun, and hunting for them with its own simulation.

A mutant is a unified diff under tests/mutants, with a first line that says which promise it breaks, and perhaps a
second one that says in which worlds that shows, so that no time is spent in others. Applying one is strict: what a hunk
takes away, with the lines around it, must stand in its file exactly once, wherever; so a mutant either says what it
says or fails the suite. A hunt runs in a fresh process that imports the copy, because modules that are imported already
would be the true ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

import minirun
from minirun.simulation import RecordedChoices, SeededChoices, shrink, simulate

from .worlds import KEEPING, WORLDS

__all__ = ["FOLDER", "Find", "Mutant", "hunt_in_process", "mutants", "plant"]

FOLDER = Path(__file__).parent / "mutants"
PACKAGE = Path(minirun.__file__).parent
TESTS = Path(__file__).parent

WHERE = "# worlds: "
EVERYWHERE = {**WORLDS, **KEEPING}
# A hunt that takes so long, on a machine however busy, has met a world that never ends.
HUNT_S_MAX = 200.0
SEED_S_MAX = 0.1
# Enough for the choices that matter to stand alone, mostly; more would only make them prettier. Where more than
# CHOICES_MAX are left, there is a second go.
CHOICES_MAX = 60
SHRINKING: tuple[tuple[int, float], ...] = ((60, 3.0), (400, 30.0))


@attrs.frozen
class Mutant:
    """A planted bug: what it is called, which promise it breaks, its diff, and in which worlds to look for it."""

    name: str
    promise: str
    diff: str
    worlds: tuple[str, ...] = tuple(WORLDS)


def mutants() -> list[Mutant]:
    """All mutants, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.patch")):
        promise, _, diff = path.read_text("utf-8").partition("\n")
        assert promise.startswith("# "), f"{path.name}: expected a first line `# promise`, found {promise!r}"
        worlds = tuple(WORLDS)
        if diff.startswith(WHERE):
            where, _, diff = diff.removeprefix(WHERE).partition("\n")
            worlds = tuple(where.split(", "))
            assert set(worlds) <= set(EVERYWHERE), f"{path.name}: expected worlds that there are, found {worlds}"
        found.append(Mutant(path.stem, promise.removeprefix("# "), diff, worlds))
    return found


# --- planting ---------------------------------------------------------------------------------------------------------


def plant(mutant: Mutant | None, folder: Path) -> None:
    """
    Copy the package into *folder*, with the mutant in it, if there is one.

    Raises:
        ValueError: The mutant does not fit the package as it is.
    """
    shutil.copytree(PACKAGE, folder / "minirun", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in _hunks(mutant) if mutant is not None else []:
        path = folder / name
        text = "\n" + path.read_text("utf-8") if path.is_file() else ""
        if text.count("\n" + old) != 1:
            assert mutant is not None
            times = text.count("\n" + old)
            msg = f"{mutant.name}: expected these lines once in {name}, found them {times} times; renew it:\n{old}"
            raise ValueError(msg)
        path.write_text(text.replace("\n" + old, "\n" + new)[1:], "utf-8")


def _hunks(mutant: Mutant) -> list[tuple[str, str, str]]:
    """What the diff says: in which file, the old lines, the new lines."""
    found: list[tuple[str, str, str]] = []
    name = ""
    for line in mutant.diff.splitlines():
        if line.startswith("+++ b/minirun/"):
            name = line.removeprefix("+++ b/").split("\t")[0]
        elif line.startswith("@@") and name:
            found.append((name, "", ""))
        elif line.startswith(("--- a/minirun/", "#", "diff --git ", "index ")):
            name = ""
        elif name and found and line[:1] in ("", " ", "+", "-"):
            mark, text = line[:1] or " ", line[1:] + "\n"
            path, old, new = found[-1]
            found[-1] = (path, old + text * (mark in " -"), new + text * (mark in " +"))
        else:
            msg = f"{mutant.name}: expected a unified diff of files under a/minirun and b/minirun, found {line!r}"
            raise ValueError(msg)
    if not found or any(old == new for _, old, new in found):
        msg = f"{mutant.name}: expected hunks that change something, found {len(found)} hunks"
        raise ValueError(msg)
    return found


# --- hunting ----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Find:
    """The first failure of a hunt, shrunk and replayed; `world` is empty if there was none."""

    world: str = ""
    seed: int = -1
    failure: str = ""
    message: str = ""
    choices: int = 0
    """How many choices of the shrunk failure are not dull."""
    replayed: str = ""
    """What the shrunk choices fail with when they are replayed."""


def hunt_in_process(mutant: Mutant | None, folder: Path, seeds: int) -> Find:
    """Plant the mutant in a fresh folder and hunt for it in a process of its own."""
    plant(mutant, folder)
    names = list(EVERYWHERE if mutant is None else mutant.worlds)
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.mutating import hunt; hunt({seeds}, {names})"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(TESTS.parent)))},
        capture_output=True,
        text=True,
        timeout=HUNT_S_MAX + seeds * SEED_S_MAX,
    )
    assert done.returncode == 0, f"the hunt for {mutant} has ended badly:\n{done.stdout}{done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert Path(told.pop("package")).is_relative_to(folder.resolve()), "expected the copy to be imported"
    return Find(**told)


def hunt(seeds: int, names: list[str]) -> None:
    """Try one world after another until one fails, and print what was found as JSON. Runs in the process of a hunt."""
    find = Find()
    for seed in range(seeds):
        name = names[seed % len(names)]
        scenario, options = EVERYWHERE[name]
        small = simulate(scenario, SeededChoices(seed), **options)
        if small.failure is None:
            continue
        failure, message = type(small.failure).__name__, str(small.failure)
        for runs, seconds in SHRINKING:
            if sum(choice.picked != 0 for choice in small.trace) > (CHOICES_MAX if runs > SHRINKING[0][0] else 0):
                small = shrink(scenario, small, runs_max=runs, seconds_max=seconds, **options)
        again = simulate(scenario, RecordedChoices(small.picks), **options)
        find = Find(
            world=name,
            seed=seed,
            failure=failure,
            message=message,
            choices=sum(choice.picked != 0 for choice in small.trace),
            replayed=type(again.failure).__name__,
        )
        break
    print(json.dumps({**attrs.asdict(find), "package": str(PACKAGE.resolve())}))
