"""
`python -m tests.mutation`: try a sample of mutants, and report what survives. See `tests/mutation/__init__.py`.

    python -m tests.mutation map                          make the map, or make anew what changed of it
    python -m tests.mutation --seed 1 --count 300         try a sample; one that was interrupted goes on
    python -m tests.mutation --under minirun/sessions     a sample of the modules whose paths begin so
    python -m tests.mutation --report                     the report of what was tried by now
    python -m tests.mutation --again                      try those once more that have survived, with all tests
    python -m tests.mutation --only ID                    try one, which may be the beginning of an id
    python -m tests.mutation --show ID                    print a mutant as a diff
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from .lines import ROOT, LineMap, digest
from .operators import Mutant, changed_tree
from .recorder import NOTED, environment, options, record
from .sample import Chooser, all_mutants, equivalents, in_sample, under

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minirun-mutation"
FILES_AT_ONCE = 25  # of tests, in one process that makes the map
KILLED = ("killed", "time limit")


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="How much the tests notice.")
    parser.add_argument("what", nargs="?", choices=["map"], help="make the map instead of trying mutants")
    parser.add_argument("files", nargs="*", help="of tests, for the map: these, whether they have changed or not")
    parser.add_argument("--jobs", type=int, default=1, help="processes that work at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="mutants of the sample")
    parser.add_argument("--under", action="append", default=[], metavar="PATH", help="only mutants of these modules")
    parser.add_argument("--cache", type=Path, default=CACHE, help="the folder of the map and the results")
    parser.add_argument("--report", action="store_true", help="try none")
    parser.add_argument("--again", action="store_true", help="try survivors once more, with all tests")
    parser.add_argument("--only", default="", metavar="ID")
    parser.add_argument("--show", default="", metavar="ID")
    asked = parser.parse_args()
    if sys.version_info < (3, 12):
        sys.exit("expected Python 3.12 or newer, for sys.monitoring; run it with one that has minirun[dev] installed")
    if asked.what == "map":
        return make_map(asked.cache, asked.files, asked.jobs)
    has_hook = hasattr(sys.modules.get("sitecustomize"), "changed")
    if not (asked.show or asked.report or has_hook):  # which the children of tests have, too
        os.execve(sys.executable, [sys.executable, "-m", "tests.mutation", *sys.argv[1:]], environment())
    every = under(asked.under, all_mutants(cache=asked.cache))
    if asked.show:
        for mutant in every:
            if mutant.id.startswith(asked.show):
                print(diff(mutant))
        return 0
    sample = in_sample(every, asked.seed, asked.count)
    if asked.only:
        sample = [mutant for mutant in every if mutant.id.startswith(asked.only)]
    results = Results(asked.cache / "results.jsonl")

    def is_done(mutant: Mutant) -> bool:
        told = results.read().get(mutant.id)
        return told is not None and not asked.only and (told["end"] in KILLED or not asked.again)

    left = [mutant for mutant in sample if not is_done(mutant)]
    if left and not asked.report:
        line_map = LineMap(asked.cache)
        if missing := line_map.missing():
            print(f"the map is older than {len(missing)} files of tests; python -m tests.mutation map", flush=True)
        run(left, is_done, Chooser(line_map, all_tests=asked.again), results, asked.jobs)
    return report(sample, results.read(), len(every))


def make_map(cache: Path, files: list[str], jobs: int) -> int:
    """Note what all files of tests pass that have changed since the last time."""
    line_map = LineMap(cache)
    left = files or line_map.missing()
    parts = [left[begin : begin + FILES_AT_ONCE] for begin in range(0, len(left), FILES_AT_ONCE)]

    def make(part: list[str]) -> None:
        code = record(cache, part)
        print(f"{'noted' if code in NOTED else 'FAILED'}: {' '.join(part)}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(make, parts))
    still = line_map.missing()
    print("the map has all tests as they are" if not still else f"{len(still)} files of tests are not in the map")
    return 1 if still else 0


class Results:
    """What has become of mutants, one line of JSON each; the last one of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[str, dict[str, Any]]:
        """By id."""
        if not self._path.exists():
            return {}
        told = [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]
        return {each["id"]: each for each in told}

    def add(self, told: dict[str, Any]) -> None:
        """Append one."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def run(
    mutants: list[Mutant], is_done: Callable[[Mutant], bool], chooser: Chooser, results: Results, jobs: int
) -> None:
    """Try these, in a pytest that has collected all tests."""
    import pytest

    from .driver import Driver, Result

    def tell(mutant: Mutant, result: Result) -> None:
        told = {"id": mutant.id, "module": digest((ROOT / mutant.path).read_bytes()), **attrs.asdict(result)}
        results.add(told)
        print(f"{result.end:10} {result.seconds:6.1f} s  {describe(mutant)}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mr-mutants-") as place:
        driver = Driver(mutants, chooser, is_done, tell, jobs, Path(place))
        pytest.main([*options(Path(place, "t")), *chooser.files_for(mutants)], plugins=[driver])


def describe(mutant: Mutant) -> str:
    """One line about a mutant."""
    return f"{mutant.path}:{mutant.line} {mutant.operator}: {mutant.before} => {mutant.after}"


def diff(mutant: Mutant) -> str:
    """What it changes, as a diff of the module as Python writes it."""
    source = (ROOT / mutant.path).read_text("utf-8")
    before, after = ast.unparse(ast.parse(source)), ast.unparse(changed_tree(source, mutant.number))
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=4)
    return "\n".join([mutant.id, describe(mutant), *changes])


def report(sample: list[Mutant], results: dict[str, dict[str, Any]], possible: int) -> int:
    """Print the share killed, by folder, and all survivors; the exit code is 1 if there are too many."""
    argued = equivalents()
    tried = [mutant for mutant in sample if mutant.id in results]
    if not tried:
        print("none was tried")
        return 0
    ends = Counter(results[mutant.id]["end"] for mutant in tried)
    print(f"\n{len(tried)} of a sample of {len(sample)}, uniform over {possible} mutants:", dict(ends))
    folders = Counter(mutant.path.split("/")[1] for mutant in tried)
    for folder, count in sorted(folders.items()):
        dead = sum(results[m.id]["end"] in KILLED for m in tried if m.path.split("/")[1] == folder)
        print(f"  {folder:10} {dead:4} of {count:4} killed  {dead / count:6.1%}")
    dead = sum(ends[end] for end in KILLED)
    print(f"  {'all':10} {dead:4} of {len(tried):4} killed  {dead / len(tried):6.1%}, before any excuse")
    seconds = sum(results[mutant.id]["seconds"] for mutant in tried)
    print(f"  {seconds / len(tried):.1f} s of processor time for one mutant")
    for mutant in tried:
        told = results[mutant.id]
        if told["end"] in KILLED:
            continue
        tests = f"{told['tests_run']} tests" + (f", {told['left_out']} left out" if told["left_out"] else "")
        print(f"\n{told['end']} ({tests}): {describe(mutant)}\n  {mutant.id}")
        if mutant.id in argued:
            print(f"  equivalent: {argued[mutant.id]}")
    same = sum(results[m.id]["end"] not in KILLED for m in tried if m.id in argued)
    print(f"\n{same} of {len(tried)} are called equivalent ({same / len(tried):.1%})")
    return 0 if dead >= 0.9 * len(tried) and same <= 0.03 * len(tried) else 1


if __name__ == "__main__":
    sys.exit(main())
