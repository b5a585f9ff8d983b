"""
How many planted bugs a number of seeds finds. Nothing is known of where a bug shows: all worlds take turns, and the
first seed is 0. And whether so many seeds find anything in minirun as it is: a failure is a bug of it, or a false
alarm.

    python -m tests.finds --seeds 1000                      a table over all planted bugs
    python -m tests.finds --seeds 300 seq_gap stale_check_by_time --worlds own
    python -m tests.finds --clean --seeds 20000 --begin 1000000     all worlds of minirun as it is, by turns
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minirun.simulation._explore import Explored

from .mutating import ELSEWHERE, EVERYWHERE, TESTS, Mutant, mutants, plant, without_hints, world_of
from .simulation.stores import explore

__all__ = ["search"]

# How much of a failure is printed: some have all tasks as they were.
QUOTED_CHARS_MAX = 600


def search(seeds: int, names: Sequence[str]) -> Iterator[Explored]:
    """Simulate so many worlds, by turns."""
    searches = []
    for place, name in enumerate(names):
        scenario, options = world_of(name)
        own = range(place, seeds, len(names))
        searches.append(explore(scenario, own, options, shrinks=lambda _: False))
    for seed in range(seeds):
        yield next(searches[seed % len(names)])


def find(seeds: int, names: Sequence[str]) -> None:
    """Print how many seeds it took until a world failed (None: none did), how, and the time it took."""
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    failed = (
        (number, type(explored.outcome.failure).__name__, names[(number - 1) % len(names)], explored.seed)
        for number, explored in enumerate(search(seeds, names), 1)
        if explored.outcome.failure is not None
    )
    print(json.dumps((*next(failed, (None, "", "", None)), time.process_time() - began)))


def find_in_process(mutant: Mutant, seeds: int, names: Sequence[str]) -> list[Any]:
    """The same for a planted bug."""
    with tempfile.TemporaryDirectory() as folder:
        plant(mutant, Path(folder))
        program = (
            f"from tests import planted; planted.use({folder!r}); from tests.finds import find;"
            f" find({seeds}, {list(names)})"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"the search for {mutant.name} has ended badly:\n{done.stdout}{done.stderr}"
        found: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def table(chosen: Sequence[Mutant], seeds: int, *, own_worlds: bool, kept: Path | None = None) -> None:
    """
    Print a line for each planted bug, and how many were found. What stands in the file *kept*, a line of JSON each, is
    not looked for again; what is found is added to it. It is of one sort of search: the same seeds.
    """
    number = taken = 0
    known = {} if kept is None or not kept.exists() else dict(map(json.loads, kept.read_text().splitlines()))
    for mutant in chosen:
        names = (mutant if own_worlds else without_hints(mutant)).worlds
        found = known.get(mutant.name) or find_in_process(mutant, seeds, names)
        if kept is not None and mutant.name not in known:
            with kept.open("a") as file:
                file.write(json.dumps([mutant.name, found]) + "\n")
        number += found[0] is not None
        taken += found[0] or seeds
        print(f"{mutant.name:40} {found[0] or '-':>10}", flush=True)
    print(f"{f'found, of {len(chosen)}':40} {number:>10}")
    print(f"{'found per 1 000 seeds':40} {1000 * number / max(taken, 1):>10.2f}")


def clean(seeds: int, begin: int, names: Sequence[str]) -> bool:
    """
    Simulate so many seeds of minirun as it is, by turns; of each world those that follow each other, from its own first
    one on. Every 20th is run twice, as `minirun simulate` does. Print what fails as it comes, and at the end the time
    that each world took; return whether nothing failed.
    """
    logging.disable(logging.CRITICAL)
    each = -(-seeds // len(names))
    searches = {}
    for place, name in enumerate(names):
        scenario, options = world_of(name)
        first = begin + place * each
        own = range(first, min(first + each, begin + seeds))
        searches[name] = explore(scenario, own, options, shrinks=lambda _: False)
    counts, taken, failed = Counter[str](), dict.fromkeys(names, 0.0), 0
    while searches:
        for name, search in [*searches.items()]:
            began = time.process_time()
            explored = next(search, None)
            taken[name] += time.process_time() - began
            if explored is None:
                del searches[name]
                continue
            counts[name] += 1
            if explored.outcome.failure is not None:
                failed += 1
                print(f"{name}, seed {explored.seed}: {explored.outcome.failure!r}"[:QUOTED_CHARS_MAX], flush=True)
            if counts.total() % 1000 == 0:
                spent = sum(taken.values())
                print(f"{counts.total()} seeds, {failed} failed, {spent:.0f} s of processor time", flush=True)
    for name in names:
        rate = counts[name] / max(taken[name], 1e-9)
        print(f"{name:40} {counts[name]:>7} seeds {taken[name]:>8.1f} s {rate:>8.1f} seeds/s")
    spent = sum(taken.values())
    rate = counts.total() / max(spent, 1e-9)
    print(f"{'all':40} {counts.total():>7} seeds {spent:>8.1f} s {rate:>8.1f} seeds/s, {failed} failed")
    return not failed


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="planted bugs; with --clean worlds; or all")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--worlds", choices=("all", "own"), default="all", help="own: those that the planted bug names")
    parser.add_argument("--kept", type=Path, help="a file with the lines of a table that was interrupted, and goes on")
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--begin", type=int, default=0, help="the first seed of --clean")
    options = parser.parse_args()
    if options.clean:
        sys.exit(not clean(options.seeds, options.begin, options.names or [*EVERYWHERE, *ELSEWHERE]))
    chosen = [mutant for mutant in mutants() if not options.names or mutant.name in options.names]
    table(chosen, options.seeds, own_worlds=options.worlds == "own", kept=options.kept)


if __name__ == "__main__":
    main()
