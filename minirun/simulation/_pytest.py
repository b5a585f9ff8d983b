"""
What the marker `simulation` does with a test: it looks at the marker, runs the seeds, and tells what failed.

`minirun._pytest_plugin` loads this when it meets a marked test. Beside pytest it needs nothing but the core.
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from .._json import brief
from ..errors import ConfigurationError
from ._explore import Settings, check_faults, check_reached, explore, plain_options, replay, settings
from ._kept import Kept, KeptFileError, file_of, keep, kept_of, read_kept
from ._report import counted, headline, report, story, tidied, with_note
from ._simulate import Outcome
from ._watchdog import before_the_end
from ._world import World

__all__ = ["check_item", "check_test", "run_test", "world"]

_IGNORED = pytest.StashKey[list[str]]()
# Properties of a test's report.
REACHED = "simulation has reached"
IDLE = "simulation fault never struck"


class _Place:
    """Stands for the world until there is one, and knows the test that wants it."""

    def __init__(self, node: pytest.Function) -> None:
        self.minirun_node = node

    def __getattr__(self, name: str) -> NoReturn:
        msg = (
            f"expected `world.{name}` to be used in a test marked `simulation`, found it in {self.minirun_node.nodeid}"
            " outside of one: each seed has a world of its own, which no fixture can see"
        )
        raise ConfigurationError(msg)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> object:
    """The world of a simulation; each seed of a test that is marked `simulation` gets one of its own."""
    return _Place(request.node)


# --- at collection ----------------------------------------------------------------------------------------------------


def check_test(test: Callable[..., Any], mark: pytest.Mark) -> None:
    """
    Look at a marked function and its marker.

    Raises:
        ConfigurationError: It cannot be run, or the marker makes no sense.
    """
    if not inspect.iscoroutinefunction(test):
        hint = (
            "; with @given use worlds() and simulate(...) instead of the marker" if hasattr(test, "hypothesis") else ""
        )
        msg = f"expected a test marked `simulation` to be an async function, found {brief(test)}{hint}"
        raise ConfigurationError(msg)
    if "world" not in inspect.signature(test).parameters:
        msg = "expected a test marked `simulation` to take `world`, found one that does not"
        raise ConfigurationError(msg)
    _settings_of(mark)


def check_item(item: pytest.Item) -> None:
    """
    Look at the fixtures of a collected test.

    Raises:
        ConfigurationError: One of them is async: it would run once, in another event loop than the worlds.
    """
    info: Any = getattr(item, "_fixtureinfo", None)  # no public way leads to a test's fixtures before it is set up
    for name, found in sorted(getattr(info, "name2fixturedefs", {}).items()):
        function = getattr(found[-1], "func", None) if found else None
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        if is_async or getattr(function, "_force_trio_fixture", False):  # how pytest-trio marks its own
            msg = (
                f"expected the fixtures of a test marked `simulation` to be sync, found {name!r}, which is async; each"
                " seed has a trio.run of its own: make in the test what belongs to it, or make the fixture sync"
            )
            raise ConfigurationError(msg)


def _settings_of(mark: pytest.Mark) -> Settings:
    try:
        return settings(*mark.args, **mark.kwargs)
    except TypeError as error:
        msg = f"expected simulation(seeds, reach=..., faults=..., ...) with all but seeds by name: {error}"
        raise ConfigurationError(msg) from error


# --- running ----------------------------------------------------------------------------------------------------------


def run_test(test: Callable[..., Any], fixtures: dict[str, Any]) -> None:
    """
    Run *test* in its worlds; the choices of its last failure first.

    Raises:
        ConfigurationError: `world` is not the fixture of this module.
        CoverageError: No seed has reached what the marker says, or a fault that it names had nothing to strike.
        The failure of the first world that fails, shrunk, with a note that tells it.
    """
    __tracebackhide__ = True
    place = fixtures["world"]
    if not isinstance(place, _Place):
        msg = f"expected `world` to be minirun's fixture, found another one of this name that gives {brief(place)}"
        raise ConfigurationError(msg)
    node = place.minirun_node
    capture = node.config.pluginmanager.getplugin("capturemanager")
    with nullcontext() if capture is None else before_the_end(partial(capture.suspend_global_capture, in_=True)):
        _Test(test, fixtures, node).run()


class _Test:
    """One test, with its fixtures and parameters."""

    def __init__(self, test: Callable[..., Any], fixtures: Mapping[str, Any], node: pytest.Function) -> None:
        mark = node.get_closest_marker("simulation")
        assert mark is not None, "only marked tests are run here"
        self.settings = _settings_of(mark)
        self.node = node
        self.file = file_of(node.config.rootpath, node.nodeid)
        self._takes_only_world = set(fixtures) == {"world"}

        async def scenario(world: World) -> None:
            await test(**{**fixtures, "world": world})

        self._scenario = functools.wraps(test.func if isinstance(test, functools.partial) else test)(scenario)

    def run(self) -> None:
        """Try the kept failure, then all seeds."""
        __tracebackhide__ = True
        options = self.settings.options
        kept = self._kept()
        if kept is not None:
            tried = replay(self._scenario, kept.choices, options)
            if tried.failure is not None:
                self._fail(tried, kept.headline, kept.seed)
            self.file.unlink(missing_ok=True)
        coverage: Counter[str] = Counter()
        for explored in explore(self._scenario, range(self.settings.seeds), options):
            coverage += explored.coverage
            if explored.outcome.failure is not None:
                self._fail(explored.outcome, f"seed {explored.seed}", explored.seed, explored.found_choices)
        properties = self.node.user_properties  # travel with the report: into junit.xml, and to xdist's first process
        properties.append((REACHED, f"{self.settings.seeds} seeds: {counted(coverage)}"))
        check_reached(self.settings.reach, coverage, self.settings.seeds)
        for problem in check_faults(self.settings.named_faults, coverage, self.settings.seeds):
            properties.append((IDLE, problem))

    def _kept(self) -> Kept | None:
        """The failure that is kept for this test, if it is one, and of the same options."""
        if not self.file.exists():
            return None
        try:
            kept = read_kept(self.file)
        except KeptFileError as error:
            self._ignore(str(error))
            return None
        if kept.options != plain_options(self.settings.options):
            self._ignore(f"{self.file}: kept with other options than the marker's: {dict(kept.options)}")
            return None
        return kept

    def _ignore(self, why: str) -> None:
        self.node.config.stash.setdefault(_IGNORED, []).append(why)

    def _fail(self, failed: Outcome, what: str, seed: int, found_choices: int | None = None) -> NoReturn:
        __tracebackhide__ = True
        assert failed.failure is not None
        problem = keep(self.file, kept_of(self.node.nodeid, seed, self.settings.options, failed))
        with_note(
            failed.failure,
            story(
                headline(what, failed, found_choices),
                plain_options(self.settings.options),
                report(failed),
                kept=f"{self._seen_from_here(self.file)}, which the next run tries first{problem}",
                commands=list(self._commands()),
            ),
        )
        if not self.node.config.getoption("fulltrace", False):
            tidied(failed.failure)
        raise failed.failure

    def _commands(self) -> Iterator[str]:
        """What replays the failure. The command line knows no fixtures, so it can do that for plain tests only."""
        path, functions = self._seen_from_here(self.node.path), self.node.nodeid.partition("::")[2]
        if self._takes_only_world and self.node.name == self.node.originalname:
            yield shlex.join(
                ["minirun", "simulate", f"{path}::{functions}", "--replay", self._seen_from_here(self.file)]
            )
        yield shlex.join(["pytest", f"{path}::{functions}"])

    def _seen_from_here(self, path: Path) -> str:
        """A path as it can be typed where pytest was started."""
        try:
            return os.path.relpath(path, self.node.config.invocation_params.dir)
        except ValueError:  # another drive
            return str(path)


# --- what is told at the end ------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """
    Tell of kept failures that were not tried, and of faults that never struck. Not as warnings, which may be errors.

    With -v also what each simulation has reached.
    """
    ignored = config.stash.get(_IGNORED, [])
    if ignored:
        terminalreporter.section("simulations: kept failures that were ignored")
        for line in ignored:
            terminalreporter.line(line)
    _tell(terminalreporter, IDLE, "simulations: faults that never struck")
    if config.getoption("verbose") > 0:
        _tell(terminalreporter, REACHED, "simulations: what they have reached")


def _tell(terminalreporter: Any, name: str, title: str) -> None:
    """A section with a property of all tests that have it."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [
        f"{report.nodeid}: {value}"
        for report in reports
        if getattr(report, "when", "") == "call"
        for property_name, value in report.user_properties
        if property_name == name
    ]
    if lines:
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.line(line)
