"""
Planting bugs in copies of minirun's modules, and hunting for them with its own simulation.

A mutant is a file under tests/mutants, with a first line that says which promise it breaks. A second one may say in
which worlds that shows, and a third one which seed has shown it, so that no time is spent elsewhere; a seed that does
not show it any more is no failure, it only takes longer. Then come its changes:

    in minirun.sessions._calls:call_changes
    - changes[id_of(response)] = None
    + if event.author != "user":
    +     changes[id_of(response)] = None

Each names a module and a function of it (or a class, or a name that is assigned to). Lines with `-` are removed, lines
with `+` are added, other lines stay. They are compared as code (see planting.py): comments, layout and names of local
variables do not matter, nor where the statements are in the function. They must occur in it exactly once; otherwise the
suite fails and names the planted bug. A hunt runs in a process of its own that has the copies, or the functions of the
copies (see planted.py).
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

import minirun
from minirun.simulation import RecordedChoices, SeededChoices

from .fork_server import BARE, run
from .planted import SWAPPED, can_swap
from .planting import Change, changed
from .simulation.stores import shrink, simulate
from .worlds import KEEPING, SHARING, WORLDS

__all__ = [
    "CHOICES_MAX",
    "FOLDER",
    "Find",
    "Mutant",
    "hunt_in_process",
    "mutants",
    "plant",
    "without_hints",
    "world_of",
]

FOLDER = Path(__file__).parent / "mutants"
PACKAGE = Path(minirun.__file__).parent
TESTS = Path(__file__).parent

HEADER = re.compile(r"# (?P<promise>.+)\n(?:# worlds: (?P<worlds>.+)\n)?(?:# seed: (?P<seed>\d+)\n)?")
CHANGE = re.compile(r"in (?P<module>minirun(?:\.\w+)*):(?P<within>\w+(?:\.\w+)*)")
EVERYWHERE = {**WORLDS, **KEEPING, **SHARING}
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
    "calls on disk": ("live_worlds", "LIVE"),
    "calls in two processes": ("live_worlds", "LIVE"),
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
    """A planted bug: what it is called, which promise it breaks, its changes, and where to look for it first."""

    name: str
    promise: str
    patch: str
    """Its changes, as they stand in its file."""
    worlds: tuple[str, ...] = tuple(WORLDS)
    seed: int = 0


def mutants(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants of a folder, by name."""
    found = []
    for path in sorted(folder.glob("*.patch")):
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
    if mutant is None:
        return []
    written: list[Path] = []
    try:
        changes = _changes(mutant.patch)
        for module in dict.fromkeys(change.module for change in changes):
            source = _source_of(module)
            text = changed(source.read_text("utf-8"), [change for change in changes if change.module == module])
            path = folder / source.relative_to(PACKAGE.parent)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    except ValueError as error:
        msg = f"{mutant.name}: {error}"
        raise ValueError(msg) from error
    return written


def _changes(patch: str) -> list[Change]:
    """The changes that a mutant's file describes."""
    found: list[tuple[str, str, list[str], list[str]]] = []
    for line in patch.splitlines():
        if header := CHANGE.fullmatch(line):
            found.append((header["module"], header["within"], [], []))
        elif found and line[:1] in ("", " ", "+", "-"):
            _, _, old, new = found[-1]
            old.extend([line[1:]] * (line[:1] != "+"))
            new.extend([line[1:]] * (line[:1] != "-"))
        else:
            msg = f"expected `in minirun.module:function`, and lines with - or +, found {line!r}"
            raise ValueError(msg)
    if not found or any(old == new for _, _, old, new in found):
        msg = f"expected changes that change something, found {len(found)} of them"
        raise ValueError(msg)
    return [Change(module, within, "\n".join(old), "\n".join(new)) for module, within, old, new in found]


def _source_of(module: str) -> Path:
    """The file of a module of the package."""
    path = PACKAGE.parent / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    msg = f"expected a module of minirun, found {module!r}: renew or delete this planted bug"
    raise ValueError(msg)


# --- hunting ----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Find:
    """The first failure of a hunt, shrunk and replayed; `world` is empty if there was none."""

    world: str = ""
    seed: int = -1
    tried: int = 0
    """How many seeds have been tried until one has failed, itself included."""
    failure: str = ""
    message: str = ""
    choices: int = 0
    """How many choices of the shrunk failure are not dull."""
    replayed: str = ""
    """What the shrunk choices fail with when they are replayed."""


def without_hints(mutant: Mutant) -> Mutant:
    """The same bug, of which nobody says where to look for it."""
    return attrs.evolve(mutant, worlds=(*EVERYWHERE, *ELSEWHERE), seed=0)


def hunt_in_process(
    mutant: Mutant | None, folder: Path, seeds: int, *, begin: int | None = None, whole: bool = False
) -> Find:
    """
    Plant the mutant in a fresh folder and hunt for it in a process of its own, which has imported minirun already if
    the mutant changes no more than what functions do.

    The seeds are those from *begin* on; without it the mutant's own seed, and then those from 0 on. The *whole* hunt
    tries all seeds in order, and shrinks what it finds as far as it goes; otherwise it is shrunk a little.
    """
    planted = plant(mutant, folder)
    names = list(EVERYWHERE if mutant is None else mutant.worlds)
    begin, first = begin or 0, begin or (0 if mutant is None or whole else mutant.seed)
    hunt = f"hunt({seeds}, {names}, {first}, {begin}, whole={whole})"
    true = (PACKAGE.parent / file.relative_to(folder) for file in planted)
    pairs = [(one.read_text("utf-8"), other.read_text("utf-8")) for one, other in zip(true, planted, strict=True)]
    timeout = HUNT_S_MAX + seeds * SEED_S_MAX
    if all(can_swap(*pair) for pair in pairs):
        swapped = f"from tests import mutating, planted\nplanted.swap({str(folder)!r})\nmutating.{hunt}"
        done = run(["-c", swapped], timeout=timeout)
    else:
        done = run(
            ["-c", f"from tests import planted; planted.use({str(folder)!r});from tests.mutating import hunt; {hunt}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
            timeout=timeout,
            modules=BARE,
        )
    assert done.returncode == 0, f"the hunt for {mutant} has ended badly:\n{done.stdout}{done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    imported = {*told.pop("files")} & {*map(str, planted)}
    assert imported == {*map(str, planted)}, f"expected {planted} to be imported, found {sorted(imported)}"
    return Find(**told)


def world_of(name: str) -> Any:
    """The scenario of this name, and its options."""
    if name in EVERYWHERE:
        return EVERYWHERE[name]
    module, worlds = ELSEWHERE[name]
    return getattr(import_module(f"tests.{module}"), worlds)[name]


def hunt(seeds: int, names: list[str], first: int, begin: int, *, whole: bool) -> None:
    """
    Try one world after another until one fails, and print what was found as JSON. Runs in the process of a hunt.

    The *first* seed is tried before all others, which are those from *begin* on. What is printed has also the files of
    the modules that were imported.
    """
    find = Find()
    for tried, seed in enumerate(dict.fromkeys((first, *range(begin, begin + seeds))), 1):
        name = names[seed % len(names)]
        scenario, options = world_of(name)
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
            tried=tried,
            failure=failure,
            message=message,
            choices=sum(choice.picked != 0 for choice in small.trace),
            replayed=type(again.failure).__name__,
        )
        break
    files = [*SWAPPED, *(getattr(module, "__file__", None) for module in sys.modules.values())]
    print(json.dumps({**attrs.asdict(find), "files": files}))
