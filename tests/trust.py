"""
What makes the tests worth trusting: a plugin of pytest, for the suite and for the test of its rules.

1.  Ctrl-C reaches what a test starts, however pytest itself was started.
2.  A test leaves no process behind. What it has started itself must be gone when it is torn down; what fixtures have
    started, and what others have left to the system, when the session ends. Who fails so is told, and the process is
    killed. Processes that tests share to the end of the session say so (`keep`).
3.  In CI no module is skipped: what it tests would go untested, and nobody would notice. A test that only some machines
    can run may skip, its module may not.

How long a test may take is the setting `timeout` of pytest-timeout in pyproject.toml; a `slow` one may take
`SLOW_S_MAX`. The method is a signal: it raises in the test, so that fixtures end what they have started.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["keep"]

# As the suite's, so that only what hangs is ended: the slowest of the larger settings take some minutes alone.
SLOW_S_MAX = 7200
# In the environment of whatever a test starts.
TOKEN = "MINIRUN_TESTS_OF"

_KEPT: set[int] = set()
_STARTED = pytest.StashKey[dict[int, str]]()
_PROBLEMS = pytest.StashKey[list[str]]()


def keep(pid: int) -> None:
    """Say that a process is shared by tests to the end of the session, and ended by whoever has started it."""
    _KEPT.add(pid)


# --- processes --------------------------------------------------------------------------------------------------------


def _name_of(pid: int) -> str:
    """Its command; empty if it has ended, or has only not been waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "" if state in "ZX" else command or "(without a command)"


def _children() -> dict[int, str]:
    """The processes that this one has started and that live, with their commands; Linux alone tells."""
    found: dict[int, str] = {}
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:  # twice per test: it is fast
                pids = file.read().split()
        except OSError:  # the thread has ended
            continue
        found.update((int(pid), name) for pid in pids if (name := _name_of(int(pid))))
    return found


def _descendants() -> dict[int, str]:
    """All that live and were started with this process's token, by whomever."""
    token, found = f"{TOKEN}={os.getpid()}\0".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = token in (folder / "environ").read_bytes()
        except OSError:
            continue
        if is_ours and int(folder.name) != os.getpid() and (name := _name_of(int(folder.name))):
            found[int(folder.name)] = name
    return found


def _left(pids: dict[int, str], config: pytest.Config) -> list[str]:
    """Of these processes those that do not end, which are killed."""
    give_up = time.monotonic() + float(config.getini("end_s_max"))
    while (living := {pid: name for pid, name in pids.items() if pid not in _KEPT and _name_of(pid)}) and (
        time.monotonic() < give_up
    ):
        time.sleep(0.02)
    for pid in living:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return [f"{pid} ({name[:200]})" for pid, name in living.items()]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note which processes the test itself starts."""
    before = _children()
    try:
        return (yield)
    finally:
        item.stash[_STARTED] = {pid: name for pid, name in _children().items() if pid not in before}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that leaves a process, after everything was torn down."""
    result = yield
    left = _left(item.stash.get(_STARTED, {}), item.config)
    if left:
        pytest.fail(f"the test has left processes behind: {', '.join(left)}; end and await them in it", pytrace=False)
    return result


# --- the session ------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take what the test of the rules has no time for."""
    # What was told to end may take so long on a busy machine. A test that leaves nothing waits for nothing.
    parser.addini("end_s_max", "how long processes may take to end, in seconds", default="20")


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported that a test needs."""
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would be each process of a test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_PROBLEMS] = []
    is_alone = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if is_alone:  # else workers would have it from the first process, and be taken for something that was left
        os.environ[TOKEN] = str(os.getpid())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the larger settings more time."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S_MAX))


def _skipped_modules(terminal: Any) -> list[str]:
    """The modules of which nothing was run, with a reason."""
    run: dict[str, bool] = defaultdict(bool)
    reasons: dict[str, str] = {}
    for kind, reports in terminal.stats.items():
        for report in reports:
            nodeid = getattr(report, "nodeid", "").partition("::")[0]
            if kind == "skipped" and nodeid:
                run[nodeid] |= False
                reasons[nodeid] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            elif getattr(report, "when", "") == "call":
                run[nodeid] = True
    return [f"{nodeid}: {reasons[nodeid]}" for nodeid, was_run in sorted(run.items()) if not was_run]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look what the session leaves, and what it has not done."""
    problems = session.config.stash[_PROBLEMS]
    if os.environ.get(TOKEN) == str(os.getpid()):
        left = _left(_descendants(), session.config)
        problems += [f"left behind at the end: process {each}; who has started it?" for each in left]
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and terminal is not None:
        problems += [
            f"skipped in CI: {each}; install what it needs (.ci/run does), so that it is tested"
            for each in _skipped_modules(terminal)
        ]
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["problems"] = problems
    _fail(session)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended: what it has found is told here."""
    node.config.stash[_PROBLEMS] += getattr(node, "workeroutput", {}).get("problems", [])


def _fail(session: pytest.Session) -> None:
    fine = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if session.config.stash[_PROBLEMS] and session.exitstatus in fine:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell what was found."""
    problems = config.stash[_PROBLEMS]
    if problems:
        terminalreporter.section("what nobody may trust")
        for problem in problems:
            terminalreporter.line(problem)
