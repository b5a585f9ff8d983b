"""
Settings for every test of the project.

A property runs without a deadline, because a shared machine may stall for any time, and on CI it tries the same
examples each time, so that a failure there belongs to the change that is being tested. It tries a few of them; many
with `--hypothesis-profile=many` (see examples.py).

Five things cost more than most tests do, and are spared: waiting for a disk, compiling the same again, looking for
garbage in all that pytest has collected, trying each character of Unicode, and reading the certificates that the system
trusts for each client of HTTP.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.charmap import charmap_file
from trio.testing import MockClock

for name, max_examples in (("minirun", 15), ("many", 100)):
    settings.register_profile(
        name,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=bool(os.environ.get("CI")),
        print_blob=True,
        max_examples=max_examples,
    )
settings.load_profile("minirun")

pytest_plugins = ["tests.trust"]

# A sync of a file costs milliseconds on a disk and nothing in memory. No test can tell the two apart: what a power cut
# leaves is computed from what was synced. Whoever sets TMPDIR has the files there.
IN_MEMORY = Path("/dev/shm")
NEEDED_BYTES = 6 * 2**30  # most of it for databases, of two workers

if "TMPDIR" not in os.environ and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= NEEDED_BYTES:
    os.environ["TMPDIR"] = str(IN_MEMORY)
    tempfile.tempdir = None  # it is found once

# Whoever wants no bytecode beside the sources has it in a folder of the user's own. Without any, each of hundreds of
# processes would compile all that it imports, and pytest would rewrite every test each time.
BYTECODE = Path(tempfile.gettempdir()) / "minirun-bytecode"

if sys.dont_write_bytecode and sys.pycache_prefix is None:
    BYTECODE.mkdir(mode=0o700, exist_ok=True)
    if not hasattr(os, "getuid") or BYTECODE.stat().st_uid == os.getuid():
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(BYTECODE)
        sys.dont_write_bytecode = False


try:
    import httpcore2
except ImportError:
    pass  # an extra that is not installed
else:
    vars(httpcore2)["default_ssl_context"] = cache(httpcore2.default_ssl_context)


@pytest.fixture
def idle_clock() -> MockClock:
    """A clock for tests with sockets inside of one process: it jumps when nothing has happened for a moment."""
    return MockClock(autojump_threshold=0.02)


@pytest.fixture
def running_clock() -> MockClock:
    """A clock for tests that start processes: it runs as time does, and never jumps over what a busy machine takes."""
    return MockClock(rate=1)


def say_what_utf_8_has() -> None:
    """
    Answer which characters UTF-8 can encode, as `st.text()` asks: all but the surrogates, and all of them come back.

    Hypothesis tries each, which takes seconds, and keeps a file of the answer; in a new checkout there is none. (If it
    should keep it in another way, it does not see this one.)
    """
    answer = charmap_file("codec-v2-utf-8")
    if not answer.exists():
        answer.parent.mkdir(parents=True, exist_ok=True)
        made = answer.with_name(f"{os.getpid()}.gz")  # another worker does the same
        made.write_bytes(gzip.compress(json.dumps([[[0, 0xD7FF], [0xE000, sys.maxunicode]], []]).encode()))
        made.replace(answer)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """
    Give each worker files of its own, whose tests share what the first of them has made; who is done helps the other.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

    return WorkStealingScheduling(config, log)


def pytest_collection_finish() -> None:
    """Before the first test: set aside what is there, half a gigabyte that each search for garbage would go through."""
    say_what_utf_8_has()
    gc.collect()
    gc.freeze()
