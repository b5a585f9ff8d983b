"""
Trying mutants: a plugin of pytest that forks a child for each, when all tests are collected.

The child swaps the code, runs the tests that were chosen, and says through a pipe how each ends. The parent waits, ends
it when a test takes too long, and asks again before it counts a kill.
"""

from __future__ import annotations

import gc
import json
import marshal
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import attrs
import pytest

from .lines import ROOT
from .operators import Mutant, changed_code
from .recorder import environment, options
from .sample import Chooser
from .swap import UnswappableError, functions_by_file, swap

__all__ = ["Driver", "Result"]

# A test may take this much more than it did when the map was made, by the clock: other work may be going on.
TIMES_MAX, MORE_S_MAX = 20.0, 10.0
LOAD_S_MAX = 120.0  # for a fresh process to import and collect
MEMORY_BYTES_MAX = 4 << 30  # more than the parent has: a loop that fills a list fails soon
FRESH_FILES_MAX = 6  # files of tests that a fresh process collects; each takes it time


@attrs.frozen(kw_only=True)
class Result:
    """What became of a mutant."""

    end: str
    """killed, time limit, survived, or no test."""
    test: str = ""
    tests_run: int = 0
    left_out: int = 0
    seconds: float = 0.0
    """Processor time of all its processes."""


@attrs.frozen
class Ended:
    """How a child's tests have ended: which one failed first, after how many, and whether it took too long."""

    failed: int | None
    run: int
    late: bool = False
    unable: bool = False


class Plugin:
    """What both plugins do: they run tests as pytest does, in their own order, and properties without shrinking."""

    _has_failed = False

    def pytest_configure(self, config: pytest.Config) -> None:
        """Try the same examples for every mutant, and keep none: before any test is imported, which takes them over."""
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", settings(), phases=phases, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that one of a test's phases has failed."""
        self._has_failed |= report.failed

    def run_all(self, items: list[pytest.Item | None], pipe: int) -> None:
        """Run tests until one fails, and say how each ends; one that is not there fails."""
        os.write(pipe, b"begun\n")
        for index, item in enumerate(items):
            following = next(filter(None, items[index + 1 :]), None)
            if item is not None:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if item is None or self._has_failed:
                os.write(pipe, b"failed\n")
                return
            os.write(pipe, b"passed\n")
        os.write(pipe, b"done\n")


class Driver(Plugin):
    """The plugin of the process that forks: it tries the mutants instead of running the tests."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        chooser: Chooser,
        is_done: Callable[[Mutant], bool],
        tell: Callable[[Mutant, Result], None],
        jobs: int,
        place: Path,
    ) -> None:
        self._mutants = mutants
        # As they are imported: whoever edits one meanwhile changes the numbers of its mutants.
        self._sources = {m.path: (ROOT / m.path).read_text("utf-8") for m in mutants}
        self._chooser = chooser
        self._jobs = jobs
        self._place = place
        self._is_done = is_done
        self._tell = tell
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self._passes_alone: dict[str, bool] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try them all, in several processes that share what is imported; nothing else is run."""
        self._items = {item.nodeid: item for item in session.items}
        _start_server()
        gc.unfreeze()  # what is set aside is not found
        self._functions = functions_by_file()
        gc.freeze()  # so that children share the memory
        workers = []
        for number in range(self._jobs):
            worker = os.fork()
            if worker == 0:
                self._work(self._mutants[number :: self._jobs])
            workers.append(worker)
        for worker in workers:
            os.waitpid(worker, 0)
        return True

    def _work(self, mutants: Sequence[Mutant]) -> NoReturn:
        try:
            for mutant in mutants:
                if self._is_done(mutant):
                    continue  # another process was faster
                before = _seconds()
                result = self._try(mutant)
                self._tell(mutant, attrs.evolve(result, seconds=round(_seconds() - before, 2)))
        except KeyboardInterrupt:
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)

    # --- one mutant ---------------------------------------------------------------------------------------------------

    def _try(self, mutant: Mutant) -> Result:
        chosen = self._chooser.choose(mutant)
        tests = [test for test in chosen.tests if test in self._items]
        if not tests:
            return Result(end="no test", left_out=chosen.left_out)
        path = str(ROOT / mutant.path)
        source = self._sources[mutant.path]
        new = changed_code(source, path, mutant.number)
        first, last = mutant.lines
        is_loaded = any(line in self._chooser.loading.get(mutant.path, ()) for line in range(first, last + 1))
        with _changed(path, new):
            result: Result | None = None
            if mutant.function:
                old = compile(source, path, "exec", dont_inherit=True)
                result = self._in_forks(tests, lambda: self._swap(path, old, new))
            if result is None or (result.end == "survived" and is_loaded):
                result = self._afresh(tests)
        return attrs.evolve(result, left_out=chosen.left_out)

    def _swap(self, path: str, old: CodeType, new: CodeType) -> None:
        functions = self._functions.get(path, [])
        if path in _loaded() and not swap(functions, old, new):
            raise UnswappableError
        import_module("sitecustomize").changed[path] = new  # ours: for modules that are imported later

    def _in_forks(self, tests: list[str], prepare: Callable[[], None]) -> Result | None:
        """Run the tests with the mutant; None if it could not be put in."""
        begin = 0
        while begin < len(tests):
            ended = self._fork(tests[begin:], prepare)
            if ended.unable:
                return None
            if ended.failed is None:
                break
            test = tests[begin + ended.failed]
            if self._is_kill(test, prepare, late=ended.late):
                end = "time limit" if ended.late else "killed"
                return Result(end=end, test=test, tests_run=begin + ended.failed + 1)
            begin += ended.failed + 1
        return Result(end="survived", tests_run=len(tests))

    def _is_kill(self, test: str, prepare: Callable[[], None], *, late: bool) -> bool:
        """If the test passes alone without the mutant, and fails alone with it."""
        if test not in self._passes_alone:
            self._passes_alone[test] = self._fork([test], _without).failed is None
        return self._passes_alone[test] and (late or self._fork([test], prepare).failed is not None)

    def _fork(self, tests: list[str], prepare: Callable[[], None]) -> Ended:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._be_child(tests, prepare, writing)
        os.close(writing)
        try:
            return _wait(reading, [self._limit_s(test) for test in tests], MORE_S_MAX)
        finally:
            os.close(reading)
            _end(child)
            _drop_databases(child)
            shutil.rmtree(self._place / str(child), ignore_errors=True)

    def _be_child(self, tests: list[str], prepare: Callable[[], None], pipe: int) -> NoReturn:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            files: Any = self._items[tests[0]].config
            files._tmp_path_factory._given_basetemp = self._place / str(os.getpid())
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, resource.getrlimit(resource.RLIMIT_AS)[1]))
            try:
                prepare()
            except UnswappableError:
                os.write(pipe, b"unable\n")
            else:
                self.run_all([self._items[test] for test in tests], pipe)
        finally:
            os._exit(0)

    def _limit_s(self, test: str) -> float:
        return MORE_S_MAX + TIMES_MAX * self._chooser.waited_s[test]

    # --- a fresh process ----------------------------------------------------------------------------------------------

    def _afresh(self, tests: list[str]) -> Result:
        """Run the tests in a process that has imported the mutant; first those of a few files, then the others."""
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        run = 0
        for some in (files[:FRESH_FILES_MAX], files[FRESH_FILES_MAX:]):
            here = [test for test in tests if test.partition("::")[0] in some]
            while here:
                ended = self._fresh(here)
                if ended.failed is None:
                    run += len(here)
                    break
                test = here[ended.failed] if ended.failed >= 0 else "the import"
                if ended.failed < 0 or self._is_kill(test, _without, late=True):
                    end = "time limit" if ended.late else "killed"
                    return Result(end=end, test=test, tests_run=run + ended.failed + 1)
                run += ended.failed + 1
                here = here[ended.failed + 1 :]
        return Result(end="survived", tests_run=run)

    def _fresh(self, tests: list[str]) -> Ended:
        reading, writing = os.pipe()
        with tempfile.NamedTemporaryFile("w", suffix=".json") as told:
            json.dump(tests, told)
            told.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.mutation.driver", told.name, str(writing)],
                cwd=ROOT, pass_fds=[writing], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            os.close(writing)
            ended = _wait(reading, [self._limit_s(test) for test in tests], LOAD_S_MAX)
            os.close(reading)
            _end(process.pid)
            process.returncode = 0  # it has been waited for
        return ended


class Fresh(Plugin):
    """The plugin of a fresh process: it runs the tests that it is told, in that order, and says how they end."""

    def __init__(self, tests: list[str], pipe: int) -> None:
        self._tests = tests
        self._pipe = pipe

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them."""
        items = {item.nodeid: item for item in session.items}
        self.run_all([items.get(test) for test in self._tests], self._pipe)
        return True


# --- the parent -------------------------------------------------------------------------------------------------------


def _wait(pipe: int, limits_s: list[float], begin_s: float) -> Ended:
    """Read what the child says, until it is done, a test fails, or one takes too long; `failed` -1 is the beginning."""
    at, heard, until = -1, b"", time.monotonic() + begin_s
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return Ended(at, max(at, 0), late=True)
        more = os.read(pipe, 4096)
        if not more:
            return Ended(at, max(at, 0))  # it has died
        heard += more
        *words, heard = heard.split(b"\n")
        for word in words:
            if word == b"unable":
                return Ended(None, 0, unable=True)
            if word == b"done":
                return Ended(None, at)
            if word == b"failed":
                return Ended(at, at + 1)
            at += 1
            until = time.monotonic() + (limits_s[at] if at < len(limits_s) else begin_s)


def _end(child: int) -> None:
    """Kill what is left of a child's group, and wait for it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextmanager
def _changed(path: str, code: CodeType) -> Iterator[None]:
    """Let all processes that are started in here load this code instead of the file."""
    with tempfile.NamedTemporaryFile(suffix=".mutant") as file:
        file.write(marshal.dumps({path: code}))
        file.flush()
        before = dict(os.environ)
        os.environ.update(environment(MINIRUN_MUTANT=file.name))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _without() -> None:
    """Let the processes that a child starts be without the mutant, as it is itself."""
    del os.environ["MINIRUN_MUTANT"]


def _loaded() -> set[str]:
    return {str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}


def _start_server() -> None:
    """Start the Postgres server that all children share, if there can be one, and let its threads end."""
    from .. import postgres

    if not postgres.missing():
        postgres.new_database()
    while threading.active_count() > 1:
        time.sleep(0.2)


def _drop_databases(child: int) -> None:
    """Drop the databases that a child has made."""
    from .. import postgres

    if not postgres.missing():
        server = postgres.shared_server()
        for (name,) in server.execute(f"SELECT datname FROM pg_database WHERE starts_with(datname, 't{child}_')"):
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    _, told, to = sys.argv
    named: list[str] = json.loads(Path(told).read_text())
    with tempfile.TemporaryDirectory(prefix="mr-mutant-") as folder:
        files = dict.fromkeys(test.partition("::")[0] for test in named)
        sys.exit(pytest.main([*options(Path(folder, "t")), *files], plugins=[Fresh(named, int(to))]))
