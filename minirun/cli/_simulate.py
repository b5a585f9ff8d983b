"""`minirun simulate`: one scenario and many seeds, or one failure again."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..errors import ConfigurationError
from ..simulation._choices import SeededChoices
from ..simulation._explore import (
    TWICE_EVERY_SEEDS,
    CoverageError,
    Explored,
    NondeterminismError,
    Settings,
    check_faults,
    check_reached,
    checked_options,
    explore,
    first_difference,
    plain_options,
    replay,
    settings,
)
from ..simulation._kept import KeptFileError, file_of, keep, kept_of, read_kept
from ..simulation._report import headline, report, story, tidied
from ..simulation._simulate import Outcome
from ..simulation._simulate import simulate as simulate_once
from ._load import load_scenario
from ._show import plain, write

__all__ = ["compare_seeds", "simulate"]

# How a shell reports a program that was ended by SIGINT (128 + 2).
INTERRUPTED = 130
# How often a line is printed where there is no terminal.
LINE_EVERY_S = 10.0
# How many coverage counters fit into a line.
COUNTERS_SHOWN = 4
# The hashes of strings in the process that runs every 20th seed once more. If the user has set them for all processes,
# sets of strings are in one order everywhere, and there is no such process.
HASH_SEED = "PYTHONHASHSEED"
OTHER_HASH_SEED = "1"
# What shows that a folder is a project's: where pytest has its root, too.
ROOT_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")


def _not_nan(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of minutes", context, parameter)
    return value


@click.command()
@click.argument("target", metavar="FILE.py::name")
@click.option("--seeds", type=click.IntRange(1), help="How many seeds; the marker's, or 100.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    callback=_not_nan,
    help="Stop then; without --seeds search until then.",
)
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failure; tell one of each kind.")
@click.option("--replay", "file", type=click.Path(path_type=Path), help="Run the choices of a kept failure instead.")
@click.option("--faults", help="What may go wrong, such as crash,storage; or all; or none.")
@click.option("--processes", type=click.IntRange(1), help="How many simulated processes serve the users.")
def simulate(
    target: str,
    seeds: int | None,
    first_seed: int,
    minutes: float | None,
    keep_going: bool,
    file: Path | None,
    faults: str | None,
    processes: int | None,
) -> None:
    """
    Run an async function that takes `world` in one simulated world for each seed.

    The arguments of its marker `simulation` are the defaults, if it has one. A failure is shrunk, told, and kept in
    .minirun/failures, from where --replay runs it again. Exits with 1 if something failed.
    """
    given = {"processes": processes, "faults": None if faults is None else _named(faults)}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        scenario = _Scenario.load(target, given)
        if file is not None:
            _refuse_what_searches()
            status = _replay(scenario, file, given)
        else:
            wanted = scenario.settings.seeds if seeds is None and minutes is None else seeds
            status = _Searching(scenario, given, first_seed, wanted, minutes, keep_going).run()
    except (ConfigurationError, KeptFileError) as error:
        raise click.UsageError(plain(str(error))) from error
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _refuse_what_searches() -> None:
    """Refuse the options that a replay does not heed."""
    context = click.get_current_context()
    for name in ("seeds", "first_seed", "minutes", "keep_going"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(f"expected --replay or --{option}, found both: a replay searches nothing")


def _named(faults: str) -> Sequence[str] | str:
    names = [name.strip() for name in faults.split(",") if name.strip()]
    return "all" if names == ["all"] else [] if names == ["none"] else names


@attrs.frozen
class _Scenario:
    """What is simulated, and where its failure is kept."""

    target: str
    function: Any
    settings: Settings
    test: str
    root: Path

    @property
    def file(self) -> Path:
        """Where its failure is kept."""
        return file_of(self.root, self.test)

    @classmethod
    def load(cls, target: str, given: Mapping[str, Any]) -> _Scenario:
        path, function, (args, kwargs) = load_scenario(target)
        try:
            found = settings(*args, **{**kwargs, **given})
        except TypeError as error:
            raise ConfigurationError(f"{target}: the marker's arguments make no sense: {error}") from error
        root = _root(path)
        name = target.partition("::")[2]
        test = f"{path.resolve().relative_to(root).as_posix()}::{name}"
        return cls(target, function, found, test, root)


def _root(path: Path) -> Path:
    """The folder that pytest would take as its root for this file."""
    folders = path.resolve().parents
    return next((folder for folder in folders if any((folder / name).is_file() for name in ROOT_FILES)), folders[0])


# --- one failure again ------------------------------------------------------------------------------------------------


def _replay(scenario: _Scenario, file: Path, given: Mapping[str, Any]) -> int:
    """Run the choices of a kept failure twice, and tell what comes of them."""
    kept = read_kept(file)
    if kept.test.partition("::")[2] != scenario.test.partition("::")[2]:
        raise click.UsageError(plain(f"{file}: expected a failure of {scenario.target}, found one of {kept.test}"))
    options = checked_options(**{**scenario.settings.options, **kept.options, **given})
    outcome = replay(scenario.function, kept.choices, options)
    console = Console()
    if outcome.failure is None:
        write(console, f"no failure; {kept.failure} was kept by minirun {kept.minirun}: {kept.message}")
        return 0
    write(console, _raised(outcome.failure), "red")
    commands = [shlex.join(["minirun", "simulate", scenario.target, "--replay", str(file)])]
    head = headline(kept.headline, outcome)
    write(console, story(head, plain_options(options), report(outcome), kept=str(file), commands=commands))
    return 1


# --- searching --------------------------------------------------------------------------------------------------------


class _Searching:
    """One search, and what is known of it so far."""

    def __init__(
        self,
        scenario: _Scenario,
        given: Mapping[str, Any],
        first_seed: int,
        seeds: int | None,
        minutes: float | None,
        keep_going: bool,
    ) -> None:
        self._scenario = scenario
        self._given = given
        self._wanted = seeds
        self._numbers = count(first_seed) if seeds is None else iter(range(first_seed, first_seed + seeds))
        self._keep_going = keep_going
        self._began_s = time.monotonic()
        self._deadline_s = None if minutes is None else self._began_s + 60 * minutes
        self._seeds = self._failures = 0
        self._coverage: Counter[str] = Counter()
        self._found: dict[str, Explored] = {}
        self._broken = ""
        self._different: list[str] = []
        self._digests: dict[int, str] = {}
        """Of every 20th seed that has passed, what it came to."""

    def run(self) -> int:
        """Search, and tell what was found."""
        is_interrupted = False
        try:
            with _display(self._wanted) as show, open(os.devnull, "w") as nowhere:
                with redirect_stdout(nowhere):  # what scenarios print for every seed
                    self._search(show)
                    if not self._is_over():
                        self._compare()
        except KeyboardInterrupt:
            write(Console(stderr=True), "interrupted")
            is_interrupted = True
        status = self._tell()
        return INTERRUPTED if is_interrupted else status

    def _search(self, show: Any) -> None:
        options, function = self._scenario.settings.options, self._scenario.function
        for explored in explore(function, self._numbers, options, shrinks=lambda each: _kind(each) not in self._found):
            self._seeds += 1
            self._coverage += explored.coverage
            failure = explored.outcome.failure
            if failure is not None:
                self._failures += 1
                self._found.setdefault(_kind(failure), explored)
            elif explored.seed % TWICE_EVERY_SEEDS == 0:
                self._digests[explored.seed] = explored.outcome.digest
            show(self)
            if self._is_over() or self._is_late():
                break

    def _is_over(self) -> bool:
        return bool(self._found) and not self._keep_going

    def _is_late(self) -> bool:
        return self._deadline_s is not None and time.monotonic() > self._deadline_s

    def _compare(self) -> None:
        """Let a process in which strings have other hashes run every 20th seed, and find the worlds that differ."""
        if not self._digests or os.environ.get(HASH_SEED, "random") != "random":
            return
        program = "from minirun.cli._simulate import compare_seeds; compare_seeds()"
        asked = {"target": self._scenario.target, "given": dict(self._given), "digests": self._digests}
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(asked),
            env={**os.environ, HASH_SEED: OTHER_HASH_SEED},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            self._broken = f"the process with other hashes has ended with exit status {done.returncode}"
            return
        for seed, there in json.loads(done.stdout.splitlines()[-1]):
            options = self._scenario.settings.options
            here = _log_of(simulate_once(self._scenario.function, SeededChoices(seed), **options))
            self._different.append(
                f"seed {seed} is another world where strings have other hashes: {first_difference(here, there)}; sort"
                f" the sets on whose order it depends. {HASH_SEED} set to a number gives all processes one order"
            )

    # --- telling

    @property
    def seeds(self) -> int:
        """How many are done."""
        return self._seeds

    @property
    def failures(self) -> str:
        """How many of them have failed, or are another world where strings have other hashes."""
        return _count(self._failures + len(self._different), "failure")

    def line(self) -> str:
        """How far it is."""
        seconds = max(time.monotonic() - self._began_s, 1e-3)
        told = [_count(self._seeds, "seed"), f"{self._seeds / seconds:.0f}/s", self.failures]
        wanted = self._scenario.settings.reach
        others = [name for name, _ in self._coverage.most_common() if name not in wanted]
        counters = [f"{name} {self._coverage[name]}" for name in [*wanted, *others][:COUNTERS_SHOWN]]
        return ", ".join(told) + (f"; {', '.join(counters)}" if counters else "")

    def _tell(self) -> int:
        console = Console()
        for place, found in enumerate(self._found.values()):
            self._tell_of(console, found, place)
        if self._broken:
            write(Console(stderr=True), self._broken, "red")
        for difference in self._different[:1]:
            write(console, f"{NondeterminismError.__name__}: {difference}", "red")
        seconds = time.monotonic() - self._began_s
        write(console, f"{_count(self._seeds, 'seed')} in {seconds:.1f} s, {self.failures}")
        for name, number in sorted(self._coverage.items()):
            write(console, f"  {name}: {number}", "dim")
        if self._found or self._broken or self._different:
            return 1
        try:
            check_reached(self._scenario.settings.reach, self._coverage, self._seeds)
            for problem in check_faults(self._scenario.settings.named_faults, self._coverage, self._seeds):
                write(console, problem, "yellow")
        except CoverageError as error:
            write(console, f"{type(error).__name__}: {error}", "red")
            return 1
        return 0

    def _tell_of(self, console: Console, found: Explored, place: int) -> None:
        file, options, outcome = self._scenario.file, self._scenario.settings.options, found.outcome
        file = file if place == 0 else file.with_name(f"{file.stem}-{place + 1}.json")
        problem = keep(file, kept_of(self._scenario.test, found.seed, options, outcome))
        seen = _seen_from_here(file)
        assert outcome.failure is not None
        write(console, _raised(outcome.failure), "red")
        commands = [shlex.join(["minirun", "simulate", self._scenario.target, "--replay", seen])]
        head = headline(f"seed {found.seed}", outcome, found.found_choices)
        told = story(head, plain_options(options), report(outcome), kept=f"{seen}{problem}", commands=commands)
        write(console, told + "\n")


def compare_seeds() -> None:
    """
    Run the seeds that standard input names, and print those that come to something else than it says, with their logs.

    It is the program of the process with other hashes.
    """
    asked = json.load(sys.stdin)
    differing = []
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        scenario = _Scenario.load(asked["target"], asked["given"])
        for seed, digest in asked["digests"].items():
            outcome = simulate_once(scenario.function, SeededChoices(int(seed)), **scenario.settings.options)
            if outcome.digest != digest:
                differing.append((int(seed), _log_of(outcome)))
    print(json.dumps(differing))


def _log_of(outcome: Outcome) -> list[str]:
    """Return what a seed came to, an entry each."""
    end = "no failure" if outcome.failure is None else f"fails with {type(outcome.failure).__name__}"
    return [*map(str, outcome.log), end]


def _raised(failure: BaseException) -> str:
    """Return a failure as Python shows it, without the frames that say nothing."""
    return "".join(traceback.format_exception(tidied(failure))).rstrip("\n")


def _kind(failure: BaseException) -> str:
    """Return what two failures have in common if they are likely to have one cause: all but numbers."""
    first_line = str(failure).partition("\n")[0]
    return f"{type(failure).__name__}: {re.sub(r'[0-9a-f]{8,}|[0-9]+', '#', first_line)}"


def _count(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def _seen_from_here(path: Path) -> str:
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@contextmanager
def _display(seeds: int | None) -> Iterator[Any]:
    """What shows how far a search is: a bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task: TaskID = bar.add_task("starting", total=seeds)

        def show(searching: _Searching) -> None:
            bar.update(task, completed=searching.seeds, description=plain(searching.line()).replace("[", "\\["))

        yield show


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = time.monotonic() + LINE_EVERY_S

    def __call__(self, searching: _Searching) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s += LINE_EVERY_S
            write(self._console, searching.line())
