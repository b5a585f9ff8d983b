"""
Planting bugs in copies of minirun's modules, and hunting for them with its own simulation.

A mutant is a unified diff under tests/mutants, with a first line that says which promise it breaks. A second one may
say in which worlds that shows, and a third one which seed has shown it, so that no time is spent elsewhere; a seed that
does not show it any more is no failure, it only takes longer. Applying a mutant is strict: what a hunk takes away, with
the lines around it, must stand in its file exactly once, wherever; so a mutant either says what it says or fails the
suite. A hunt runs in a fresh process that imports the copies (see planted.py), because modules that are imported
already would be the true ones.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

import minirun
from minirun.simulation import RecordedChoices, SeededChoices, shrink, simulate

from .worlds import KEEPING, WORLDS

__all__ = ["CHOICES_MAX", "FOLDER", "Find", "Mutant", "hunt_in_process", "mutants", "plant"]

FOLDER = Path(__file__).parent / "mutants"
PACKAGE = Path(minirun.__file__).parent
TESTS = Path(__file__).parent

HEADER = re.compile(r"# (?P<promise>.+)\n(?:# worlds: (?P<worlds>.+)\n)?(?:# seed: (?P<seed>\d+)\n)?")
EVERYWHERE = {**WORLDS, **KEEPING}
# Only so that a hunt that hangs ends: what ends any other is a number of seeds, of runs and of steps.
HUNT_S_MAX = 1200.0
SEED_S_MAX = 0.2
# Worlds that need an extra, which takes a second to import: only the hunts that name them do.
ELSEWHERE = {
    "clerk in memory": ("control_worlds", "CONTROL"),
    "servers in memory": ("mcp_worlds", "SERVERS"),
    "older servers in memory": ("mcp_worlds", "SERVERS"),
    "calm calls in memory": ("live_worlds", "LIVE"),
    "calls over bad lines": ("live_worlds", "LIVE"),
    "calls in memory": ("live_worlds", "LIVE"),
    "sign-ins in memory": ("oauth_worlds", "SIGN_INS"),
    "sign-ins in two processes": ("oauth_worlds", "SIGN_INS"),
}
# Enough for the choices that matter to stand alone, mostly; more would only make them prettier. Where more than
# CHOICES_MAX are left, there is a second go.
CHOICES_MAX = 60
SHRINKING: tuple[tuple[int, int], ...] = ((60, 40_000), (400, 400_000))  # runs, and steps in all of them
# Enough to see that what is shrunk fails alike.
SHRINKING_SOME: tuple[tuple[int, int], ...] = ((8, 10_000),)


@attrs.frozen
class Mutant:
    """A planted bug: what it is called, which promise it breaks, its diff, and where to look for it first."""

    name: str
    promise: str
    diff: str
    worlds: tuple[str, ...] = tuple(WORLDS)
    seed: int = 0


def mutants() -> list[Mutant]:
    """All mutants, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.patch")):
        text = path.read_text("utf-8")
        header = HEADER.match(text)
        assert header is not None, f"{path.name}: expected a first line `# promise`, found {text[:80]!r}"
        worlds = tuple(header["worlds"].split(", ")) if header["worlds"] else tuple(WORLDS)
        assert set(worlds) <= {*EVERYWHERE, *ELSEWHERE}, f"{path.name}: expected worlds that there are, found {worlds}"
        seed = int(header["seed"] or 0)
        found.append(Mutant(path.stem, header["promise"], text[header.end() :], worlds, seed))
    return found


# --- planting ---------------------------------------------------------------------------------------------------------


def plant(mutant: Mutant | None, folder: Path) -> list[Path]:
    """
    Write the modules that the mutant changes, changed, into *folder*, and return their files.

    Raises:
        ValueError: The mutant does not fit the package as it is.
    """
    changed: dict[Path, str] = {}
    for name, old, new in _hunks(mutant) if mutant is not None else []:
        source = PACKAGE.parent / name
        text = changed.get(folder / name) or "\n" + (source.read_text("utf-8") if source.is_file() else "")
        if text.count("\n" + old) != 1:
            assert mutant is not None
            times = text.count("\n" + old)
            msg = f"{mutant.name}: expected these lines once in {name}, found them {times} times; renew it:\n{old}"
            raise ValueError(msg)
        changed[folder / name] = text.replace("\n" + old, "\n" + new)
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text[1:], "utf-8")
    return list(changed)


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


def hunt_in_process(mutant: Mutant | None, folder: Path, seeds: int, *, whole: bool = False) -> Find:
    """
    Plant the mutant in a fresh folder and hunt for it in a process of its own.

    The *whole* hunt tries all seeds in order, and shrinks what it finds as far as it goes. Otherwise the mutant's own
    seed is the first, and the failure is shrunk a little.
    """
    planted = plant(mutant, folder)
    names = list(EVERYWHERE if mutant is None else mutant.worlds)
    first = 0 if mutant is None or whole else mutant.seed
    hunt = f"hunt({seeds}, {names}, {first}, whole={whole})"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from tests import planted; planted.use({str(folder)!r});from tests.mutating import hunt; {hunt}",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=HUNT_S_MAX + seeds * SEED_S_MAX,
    )
    assert done.returncode == 0, f"the hunt for {mutant} has ended badly:\n{done.stdout}{done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    imported = {*told.pop("files")} & {*map(str, planted)}
    assert imported == {*map(str, planted)}, f"expected {planted} to be imported, found {sorted(imported)}"
    return Find(**told)


def _world(name: str) -> Any:
    if name in EVERYWHERE:
        return EVERYWHERE[name]
    module, worlds = ELSEWHERE[name]
    return getattr(import_module(f"tests.{module}"), worlds)[name]


def hunt(seeds: int, names: list[str], first: int, *, whole: bool) -> None:
    """
    Try one world after another until one fails, and print what was found as JSON. Runs in the process of a hunt.

    The *first* seed is tried before all others. What is printed has also the files of the modules that were imported.
    """
    find = Find()
    for seed in dict.fromkeys((first, *range(seeds))):
        name = names[seed % len(names)]
        scenario, options = _world(name)
        small = simulate(scenario, SeededChoices(seed), **options)
        if small.failure is None:
            continue
        failure, message = type(small.failure).__name__, str(small.failure)
        endless = failure == "LivelockError"  # takes seconds each time
        for runs, steps in SHRINKING if whole else () if endless else SHRINKING_SOME:
            if sum(choice.picked != 0 for choice in small.trace) > (CHOICES_MAX if runs > SHRINKING[0][0] else 0):
                small = shrink(scenario, small, runs_max=runs, steps_max=steps, **options)
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
    files = [getattr(module, "__file__", None) for module in sys.modules.values()]
    print(json.dumps({**attrs.asdict(find), "files": files}))
