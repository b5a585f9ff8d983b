"""The rules of `tests/trust.py`: pytest is run on a small folder in which each of them is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BROKEN = {
    "test_extra.py": 'import pytest\npytest.importorskip("no_such_module")\ndef test_it(): pass\n',
    "test_machine.py": """
        import pytest
        pytestmark = pytest.mark.skipif(True, reason="there is no such machine")
        def test_it(): pass
    """,
    "test_some.py": """
        import pytest
        @pytest.mark.skip(reason="not here")
        def test_one(): pass
        def test_other(): pass
    """,
    "test_leaves.py": """
        import subprocess, sys
        def test_it():
            left = "import time; print(flush=True); time.sleep(1000)  # left"
            subprocess.Popen([sys.executable, "-c", left], stdout=subprocess.PIPE).stdout.readline()  # it has begun
    """,
    "test_daemon.py": """
        import subprocess, sys
        daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(1000)  # a daemon"
        def test_it():
            subprocess.run([sys.executable, "-c", daemon], check=True)
    """,
    "test_hangs.py": """
        import pytest, subprocess, sys, time
        @pytest.mark.timeout(0.4)
        def test_it():
            with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
                try:
                    time.sleep(1000)
                finally:
                    process.kill()
    """,
    "test_waits.py": """
        import pytest, trio
        @pytest.mark.timeout(0.4)
        async def test_it():
            await trio.sleep(1000)
    """,
    "test_signals.py": """
        import signal, subprocess, sys
        def test_it():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            assert done.stdout == "True\\n"
    """,
}

WIDTH = " " * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tests that break the rules, one a file."""
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text.replace("\n" + WIDTH, "\n"))
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\nmarkers = slow\nend_s_max = 0.1\n")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest there as a shell does in the background, with Ctrl-C ignored."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        plugins = " ".join(f"-p {name}" for name in ("xdist", "pytest_timeout", "pytest_trio.plugin", "tests.trust"))
        program = f"{sys.executable} -m pytest {plugins} -p no:cacheprovider -q {' '.join(arguments)}"
        kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
        kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        return subprocess.run(
            ["sh", "-c", f"trap '' INT; exec {program}"],
            cwd=folder,
            env={**kept, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_what_breaks_the_rules_fails(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """
    In CI a module of which nothing is run, a process that is left by a test or by nobody knows whom, and a test that
    hangs, with the stack of what it waits for; a test of a module may be skipped, and Ctrl-C is not ignored.
    """
    done = run("-n1", CI="true")
    told = done.stdout
    assert done.returncode == 1, told + done.stderr
    assert "skipped in CI: test_extra.py: " in told
    assert "skipped in CI: test_machine.py: Skipped: there is no such machine; install what it needs" in told
    assert "test_some.py:" not in told
    assert "ERROR test_leaves.py::test_it - Failed: the test has left processes behind" in told
    assert "# left" in told
    assert "left behind at the end: process" in told
    assert "# a daemon" in told
    assert "FAILED test_hangs.py::test_it - Failed: Timeout" in told
    assert "FAILED test_waits.py::test_it" in told
    assert "2 failed, 4 passed, 3 skipped, 1 error in" in told


def test_elsewhere_a_module_may_be_skipped(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Who has no database, browser or extra at hand tests the rest."""
    done = run("test_extra.py", "test_machine.py", "test_signals.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nobody may trust" not in done.stdout
