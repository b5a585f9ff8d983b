"""`minirun simulate`: one scenario, many seeds, several processes; or one failure again."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..errors import ConfigurationError
from ..simulation import Corpus, CorpusError, why_unavailable
from ..simulation._corpus import Learned
from ..simulation._explore import (
    CoverageError,
    NondeterminismError,
    Settings,
    check_faults,
    check_reached,
    checked_options,
    replay,
    settings,
)
from ..simulation._kept import KeptFileError, file_of, keep, read_kept
from ..simulation._report import headline, report, story
from ._load import load_scenario
from ._show import plain, write
from ._workers import Broken, Found, Message, Search, Tally, Workers, World, raised

__all__ = ["simulate"]

# How a shell reports a program that was ended by SIGINT (128 + 2).
INTERRUPTED = 130
# How often the display is drawn, and how often a line is printed where there is no terminal.
DRAW_EVERY_S = 0.25
LINE_EVERY_S = 10.0
# How many coverage counters fit into a line.
COUNTERS_SHOWN = 4
# What takes so much longer than the search was given does not end. A seed is ended by its watchdog after six minutes,
# with its process if it must be; shrinking is bounded in steps, which take some minutes on a busy machine.
OVERTIME_S = 1_200.0
# What shows that a folder is a project's: where pytest has its root, too.
ROOT_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")


def _not_empty(context: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    if value == "":
        raise click.BadParameter("expected a folder, found an empty name", context, parameter)
    return None if value is None else Path(value)


def _not_nan(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of minutes", context, parameter)
    return value


@click.command()
@click.argument("target", metavar="FILE.py::name")
@click.option("--seeds", type=click.IntRange(1), help="How many seeds; the marker's, or 100.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="How many processes search.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    callback=_not_nan,
    help="Stop then; without --seeds search until then.",
)
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failure; tell one of each kind.")
@click.option(
    "--corpus", type=click.Path(file_okay=False), callback=_not_empty, help="A folder of inputs that guide the search."
)
@click.option("--replay", "file", type=click.Path(path_type=Path), help="Run the choices of a kept failure instead.")
@click.option("--faults", help="What may go wrong, such as crash,storage; or all; or none.")
@click.option("--storage", help="sqlite, or memory, which is faster.")
@click.option("--processes", type=click.IntRange(1), help="How many simulated processes serve the users.")
def simulate(
    target: str,
    seeds: int | None,
    first_seed: int,
    jobs: int,
    minutes: float | None,
    keep_going: bool,
    corpus: Path | None,
    file: Path | None,
    faults: str | None,
    storage: str | None,
    processes: int | None,
) -> None:
    """
    Run an async function that takes `world` in one simulated world for each seed.

    The arguments of its marker `simulation` are the defaults, if it has one. A failure is shrunk, told, and kept in
    .minirun/failures, from where --replay runs it again. Exits with 1 if something failed.
    """
    given = {"storage": storage, "processes": processes, "faults": None if faults is None else _named(faults)}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        scenario = _Scenario.load(target, given)
        if file is not None:
            _refuse_what_searches()
            status = _replay(scenario, file, given)
        else:
            wanted = scenario.settings.seeds if seeds is None and minutes is None else seeds
            learned = scenario.corpus(corpus)
            inputs = None if learned is None else tuple(learned.inputs)
            search = Search(target, scenario.test, scenario.settings.options, first_seed, wanted, jobs, inputs)
            status = _Searching(scenario, search, minutes, keep_going, learned).run()
    except (ConfigurationError, CorpusError, KeptFileError) as error:
        raise click.UsageError(plain(str(error))) from error
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _refuse_what_searches() -> None:
    """Refuse the options that a replay does not heed."""
    context = click.get_current_context()
    for name in ("seeds", "first_seed", "jobs", "minutes", "keep_going", "corpus"):
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

    def corpus(self, named: Path | None) -> Corpus | None:
        """The corpus in the folder that was *named*, or else in that of the marker."""
        folder = named or self.settings.corpus_in(self.root)
        return None if folder is None else Corpus(folder, self.test)

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


def _check_disk(options: Mapping[str, Any]) -> None:
    if options["storage"] == "sqlite" and why_unavailable() is not None:
        raise click.ClickException(f"no simulated disk here, use --storage memory: {why_unavailable()}")


# --- one failure again ------------------------------------------------------------------------------------------------


def _replay(scenario: _Scenario, file: Path, given: Mapping[str, Any]) -> int:
    """Run the choices of a kept failure twice, and tell what comes of them."""
    kept = read_kept(file)
    if kept.test.partition("::")[2] != scenario.test.partition("::")[2]:
        raise click.UsageError(plain(f"{file}: expected a failure of {scenario.target}, found one of {kept.test}"))
    options = checked_options({**kept.options, **given})
    _check_disk(options)
    outcome = replay(scenario.function, kept.choices, options)
    console = Console()
    if outcome.failure is None:
        write(console, f"no failure; {kept.failure} was kept by minirun {kept.minirun}: {kept.message}")
        return 0
    write(console, raised(outcome.failure), "red")
    commands = [shlex.join(["minirun", "simulate", scenario.target, "--replay", str(file)])]
    head = headline(kept.headline, outcome)
    write(console, story(head, options, report(outcome), kept=str(file), commands=commands))
    return 1


# --- searching --------------------------------------------------------------------------------------------------------


class _Searching:
    """One search, and what is known of it so far."""

    def __init__(
        self, scenario: _Scenario, search: Search, minutes: float | None, keep_going: bool, corpus: Corpus | None
    ) -> None:
        _check_disk(search.options)
        self._scenario = scenario
        self._search = search
        self._keep_going = keep_going
        self._corpus = corpus
        self._began_s = time.monotonic()
        self._deadline_s = None if minutes is None else self._began_s + 60 * minutes
        self._seeds = self._failures = 0
        self._coverage: Counter[str] = Counter()
        self._found: dict[str, Found] = {}
        self._broken: list[str] = []
        self._worlds: dict[int, World] = {}
        """What one of two processes has told of a seed."""
        self._different: list[str] = []

    def run(self) -> int:
        """Search, and tell what was found."""
        is_interrupted = False
        try:
            with Workers(self._search) as workers, _display(self._search.seeds) as show:
                while workers.are_working:
                    for message in workers.received(DRAW_EVERY_S):
                        self._hear(message)
                    if self._is_over():
                        workers.stop()
                    if self._is_overdue():
                        self._broken.append("what it had in hand does not end")
                        break
                    show(self)
        except KeyboardInterrupt:
            write(Console(stderr=True), "interrupted")
            is_interrupted = True
        if self._corpus is not None:
            self._save(self._corpus)
        status = self._tell()
        return INTERRUPTED if is_interrupted else status

    def _save(self, corpus: Corpus) -> None:
        """Keep what was learned; where that cannot be, say why: what was found has to be told anyway."""
        before = len(corpus.inputs)
        try:
            corpus.save()
        except OSError as error:
            write(Console(stderr=True), f"the corpus could not be kept: {error}", "red")
        else:
            write(Console(), f"corpus: {len(corpus.inputs)} inputs (before: {before})")

    def _hear(self, message: Message) -> None:
        if isinstance(message, Tally):
            self._seeds += message.seeds
            self._failures += message.failures
            self._coverage.update(message.coverage)
        elif isinstance(message, Broken):
            self._broken.append(message.why)
        elif isinstance(message, Learned):
            assert self._corpus is not None, "without a corpus nothing is learned"
            self._corpus.told(message)
        elif isinstance(message, World):
            before = self._worlds.pop(message.seed, None)
            if before is None:
                self._worlds[message.seed] = message
            elif difference := before.difference(message):
                self._different.append(difference)
        else:
            self._found.setdefault(message.kind, message)

    def _is_overdue(self) -> bool:
        return self._deadline_s is not None and time.monotonic() > self._deadline_s + OVERTIME_S

    def _is_over(self) -> bool:
        is_late = self._deadline_s is not None and time.monotonic() > self._deadline_s
        has_found = bool(self._found) or bool(self._different)
        return is_late or bool(self._broken) or (has_found and not self._keep_going)

    # --- telling

    @property
    def seeds(self) -> int:
        """How many are done."""
        return self._seeds

    @property
    def failures(self) -> str:
        """How many of them have failed, those included that a process with other hashes runs differently."""
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
        for why in self._broken:
            write(Console(stderr=True), f"a worker could not go on: {why}", "red")
        for difference in self._different[:1]:
            write(console, f"{NondeterminismError.__name__}: {difference}", "red")
        seconds = time.monotonic() - self._began_s
        write(console, f"{_count(self._seeds, 'seed')} in {seconds:.1f} s, {self.failures}")
        for name, count in sorted(self._coverage.items()):
            write(console, f"  {name}: {count}", "dim")
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

    def _tell_of(self, console: Console, found: Found, place: int) -> None:
        file = self._scenario.file
        file = file if place == 0 else file.with_name(f"{file.stem}-{place + 1}.json")
        problem = keep(file, found.kept)
        seen = _seen_from_here(file)
        write(console, found.raised, "red")
        commands = [shlex.join(["minirun", "simulate", self._scenario.target, "--replay", seen])]
        told = story(found.headline, self._search.options, found.report, kept=f"{seen}{problem}", commands=commands)
        write(console, told + "\n")


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
