"""
Making the map: runs files of tests in one process, and notes which lines each test passes.

`python -m tests.mutation.recorder FOLDER FILE...`, started by `python -m tests.mutation map` with the hook on
PYTHONPATH. A line is told of once per test, so that a test takes little longer than it does otherwise.
"""

from __future__ import annotations

import itertools
import marshal
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from .lines import ROOT, LineMap, digest, modules, ranges

__all__ = ["NOTED", "environment", "options", "record"]

HOOK = Path(__file__).parent / "hook"
# Plain asserts: else pytest would rewrite the package too, whose plugin it loads, and its code would be another one.
OPTIONS = (
    *("-p", "no:cacheprovider", "--assert=plain", "--capture=no", "--tb=native", "--no-header", "--no-summary", "-q"),
    *("-o", "tmp_path_retention_policy=none", "-o", "timeout=0"),  # whoever tries mutants has limits of its own
)

NOTED = (0, 1, 5)  # of pytest: tests have passed, some have failed, there are none


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that loads the hook."""
    paths = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "", **more}


def options(place: Path) -> list[str]:
    """Options of pytest, with a folder of one's own for what tests write: other runs tidy up the usual one."""
    return [*OPTIONS, f"--basetemp={place}"]


def record(folder: Path, files: list[str]) -> int:
    """Run these files of tests in a fresh process, and put what they pass into the map in *folder*."""
    with tempfile.TemporaryDirectory(prefix="mr-lines-") as place:
        marks, described = Path(place, "marks"), Path(place, "lines")
        begins: dict[str, int] = {}
        end = 0
        for module in modules():
            begins[str(ROOT / module)] = end
            end += (ROOT / module).read_bytes().count(b"\n") + 2
        marks.write_bytes(bytes(end))
        described.write_bytes(marshal.dumps((str(marks), begins)))
        command = [sys.executable, "-m", "tests.mutation.recorder", str(folder), str(Path(place, "t")), *files]
        environ = environment(MINIRUN_LINES=str(described))
        return subprocess.run(
            command, cwd=ROOT, env=environ, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ).returncode


class Recorder:
    """A plugin of pytest that keeps what each test passes."""

    def __init__(self, line_map: LineMap, files: list[str]) -> None:
        self._hook: Any = import_module("sitecustomize")  # ours, which is on PYTHONPATH
        self._map = line_map
        self._digests = {file: digest((ROOT / file).read_bytes()) for file in files}
        self._texts = {module: digest((ROOT / module).read_bytes()) for module in modules()}
        self._tests: dict[str, Any] = {}
        self._outcome = "passed"
        self._loading: Any = {}

    def _passed(self) -> dict[str, list[list[int]]]:
        """The marks of all processes since the last time, by module."""
        hook = self._hook
        marks = bytes(hook.marks)
        hook.marks[:] = bytes(len(marks))
        sys.monitoring.restart_events()  # type: ignore[attr-defined]  # since 3.12
        begins = [*hook.offsets.values(), len(marks)]
        found = {}
        for path, (begin, end) in zip(hook.offsets, itertools.pairwise(begins), strict=True):
            lines = [line for line, passed in enumerate(marks[begin:end]) if passed] if any(marks[begin:end]) else []
            if lines:
                found[str(Path(path).relative_to(ROOT))] = ranges(lines)
        return found

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What has been passed by now was passed by imports."""
        self._loading = self._passed()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Run one test, and keep what it has passed; with the last one of a file, store the file."""
        self._passed()
        self._outcome = "passed"
        began, waited = _seconds(), time.monotonic()
        yield
        numbers = [round(_seconds() - began, 4), round(time.monotonic() - waited, 4)]
        file = item.nodeid.partition("::")[0]
        self._tests[item.nodeid] = [self._outcome, *numbers, self._passed()]
        if nextitem is None or nextitem.nodeid.partition("::")[0] != file:
            self._map.keep(file, self._digests.pop(file), self._texts, self._tests, self._loading)
            self._tests = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the worst of a test's three phases."""
        if report.outcome != "passed":
            self._outcome = report.outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """A file without tests has passed nothing; of one that could not be run, nobody knows."""
        for file, read in self._digests.items() if exitstatus in NOTED else ():
            self._map.keep(file, read, self._texts, {}, self._loading)


def _seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    _, cache, temporary, *named = sys.argv
    sys.exit(pytest.main([*options(Path(temporary)), *named], plugins=[Recorder(LineMap(Path(cache)), named)]))
