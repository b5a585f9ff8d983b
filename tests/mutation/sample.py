"""
Which mutants are tried, and which tests look at one: plain functions of the map.

A sample is uniform over all mutants of all modules. It takes those whose id, hashed with the seed, comes first: so a
change of code replaces the mutants of that code in the sample, and no others.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from .lines import ROOT, LineMap, digest, modules
from .operators import Mutant, mutants_of

__all__ = ["Chooser", "Chosen", "all_mutants", "equivalents", "in_sample", "under"]

WORD = re.compile(r"\w+")
EQUIVALENT = Path(__file__).parent / "equivalent.txt"
# Seconds of tests, by the processor time that they take, for one mutant. Most have far less to run; a line that
# thousands of tests pass is tried with the best of them first, and with all of them if it has survived those.
TESTS_S_MAX = 30.0
LAST_S_MAX = 10.0  # no single test that takes longer
# How much larger than a stranger's a file's share of the time is, by what its name shares with the module's.
NEAR, NEXT_DOOR = 8.0, 3.0


def all_mutants(paths: Iterable[str] | None = None, cache: Path | None = None) -> list[Mutant]:
    """Every mutant of the modules; those of modules and operators as they are may be kept in a folder."""
    operators = (Path(__file__).parent / "operators.py").read_bytes()
    found = []
    for path in paths or modules():
        source = (ROOT / path).read_bytes()
        kept = cache / "mutants" / digest(operators + path.encode() + source) if cache is not None else None
        if kept is not None and kept.exists():
            told = json.loads(kept.read_text())
            found += [Mutant(**{**m, "lines": tuple(m["lines"]), "names": tuple(m["names"])}) for m in told]
            continue
        own = mutants_of(source.decode(), path)
        found += own
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps([attrs.asdict(mutant) for mutant in own]))
    return found


def in_sample(mutants: Sequence[Mutant], seed: int, count: int) -> list[Mutant]:
    """The sample of a seed, in the order of the draw."""
    return sorted(mutants, key=lambda each: hashlib.sha256(f"{seed}:{each.id}".encode()).digest())[:count]


def under(paths: Sequence[str], mutants: Sequence[Mutant]) -> list[Mutant]:
    """Those of modules whose path begins with one of *paths*; all of them if there is none."""
    return [mutant for mutant in mutants if not paths or mutant.path.startswith(tuple(paths))]


def equivalents() -> dict[str, str]:
    """Why no test can kill a mutant, by its id: one line each in equivalent.txt, `id | argument`."""
    lines = [line for line in EQUIVALENT.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    told = dict(line.split(" | ", 1) for line in lines)
    assert all(len(argument) > 20 for argument in told.values()), "expected an argument for each equivalent"
    return told


@attrs.frozen
class Chosen:
    """The tests to run, in order, and how many more pass the place than there is time for."""

    tests: list[str]
    left_out: int


class Chooser:
    """Chooses the tests for a mutant, from the map: the nearest ones, or *all* that pass the place."""

    def __init__(self, line_map: LineMap, *, all_tests: bool = False) -> None:
        self._tests_s_max, self._last_s_max = (math.inf, math.inf) if all_tests else (TESTS_S_MAX, LAST_S_MAX)
        passages = list(line_map.passages())
        self.seconds = {each.test: each.seconds for each in passages}
        self.waited_s = {each.test: each.waited_s for each in passages}
        self.loading = line_map.loading()
        """Lines of functions that are passed when modules and tests are imported."""
        self._by_line: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for each in passages:
            for module, lines in each.lines.items():
                by_line = self._by_line[module]
                for line in lines:
                    by_line[line].append(each.test)
        self._texts: dict[str, frozenset[str]] = {}
        self._users: dict[str, list[tuple[str, int]]] | None = None

    def choose(self, mutant: Mutant) -> Chosen:
        """
        Return the tests that pass the lines of the mutant, cheap and near ones first.

        What runs at import has no tests of its own: they are those of the functions that use its names, those in files
        that read the names of the module, and those of the module itself.
        """
        if mutant.function:
            first, last = mutant.lines
            passing = self._passing(mutant.path, range(first, last + 1)) or self._passing_above(mutant.path, first)
        else:
            passing = set()
            for name in mutant.names:
                for module, line in self._uses().get(name, ()):
                    passing |= self._passing(module, [line])
                passing |= self._reading(mutant.path, name)
            if not passing:
                passing = self._passing(mutant.path, list(self._by_line.get(mutant.path, ())))
        return self._in_order(mutant.path, passing)

    def files_for(self, mutants: Iterable[Mutant]) -> list[str]:
        """The files of all tests that look at one of these: no others need to be collected."""
        return sorted({test.partition("::")[0] for mutant in mutants for test in self.choose(mutant).tests})

    def _passing(self, module: str, lines: Iterable[int]) -> set[str]:
        by_line = self._by_line.get(module, {})
        return {test for line in lines for test in by_line.get(line, ())}

    def _passing_above(self, module: str, first: int) -> set[str]:
        """Those that pass the nearest line above: Python notes no line of its own for some jumps, as for `continue`."""
        above = max((line for line in self._by_line.get(module, ()) if line < first), default=0)
        return self._passing(module, [above])

    def _reading(self, module: str, name: str) -> set[str]:
        """The tests of files that have both names in them: of a module, and in it."""
        told = {test for test in self.seconds if test.partition("::")[0] not in self._texts}
        for file in {test.partition("::")[0] for test in told}:
            path = ROOT / file
            self._texts[file] = frozenset(WORD.findall(path.read_text("utf-8"))) if path.exists() else frozenset()
        wanted = {Path(module).stem, name}
        return {test for test in self.seconds if wanted <= self._texts[test.partition("::")[0]]}

    def _uses(self) -> dict[str, list[tuple[str, int]]]:
        """Where a name is read in a function of any module."""
        if self._users is None:
            self._users = defaultdict(list)
            for module in modules():
                for node in ast.walk(ast.parse((ROOT / module).read_text("utf-8"))):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                        self._users[node.id].append((module, node.lineno))
        return self._users

    def _in_order(self, module: str, tests: set[str]) -> Chosen:
        """Each file of tests gets its share of the time, and begins with its cheapest tests."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            if self.seconds[test] <= self._last_s_max:
                by_file[test.partition("::")[0]].append(test)
        turns: list[tuple[float, str]] = []
        for file, own in by_file.items():
            used = 0.0
            for test in sorted(own, key=lambda each: (self.seconds[each], each)):
                used += max(self.seconds[test], 0.002)
                turns.append((used / _nearness(module, file), test))
        chosen: list[str] = []
        left_s = self._tests_s_max
        for _, test in sorted(turns):
            if self.seconds[test] <= left_s:
                left_s -= self.seconds[test]
                chosen.append(test)
        return Chosen(chosen, len(tests) - len(chosen))


def _nearness(module: str, file: str) -> float:
    name = Path(module).stem.strip("_")
    if name in Path(file).stem:
        return NEAR
    return NEXT_DOOR if Path(module).parts[1] == Path(file).parts[1] else 1.0
