"""The benchmark works, and later work can rely on its form; what it measures is printed, never tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from minirun.simulation import why_unavailable

SCRIPT = Path(__file__).parent / "benchmarks" / "run.py"
NUMBER = r" +\d+\.\d (?:µs |ms |/s |MiB|   ) "
RATIO = r" +\d+\.\d\d \[\d+\.\d\d–\d+\.\d\d\]"
TARGET = r" target (?:<=|>=) [\d.]+(?: MiB|/s| ms)?"
ROW = re.compile(rf".+{NUMBER}\| .+{NUMBER}\| ratio{RATIO}({TARGET})?( \(.+\))?")

SEEDS = ("seeds: money, memory", "seeds: tools, memory", "    an empty world", "    one step", "    no faults, memory")
CROWDS = ("append_event, power, 2 sessions", "    events per COMMIT", "4 sessions x 2 appends", "3 sessions x 5 tool")


def lines_of(*options: str) -> list[str]:
    """What the script prints, after it has ended well and without a warning."""
    program = [sys.executable, "-X", "utf8", "-W", "error", str(SCRIPT), *options]
    warned = {**os.environ, "PYTHONWARNINGS": "error"}  # for the processes that it starts
    done = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=120, check=False, env=warned)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_figure_stands_beside_its_floor() -> None:
    """The first line names the versions and the file system, every other one a figure, its floor and their ratio."""
    versions, *rows = lines_of("--quick")
    assert re.fullmatch(r"Python .+, trio .+, SQLite .+; files in .+, on .+", versions)
    assert [row for row in rows if not ROW.fullmatch(row)] == []
    parts = ("import", "text turn", "tool turn", "emit", "streaming", "append_event", "search 300, disk")
    for scenario in (*parts, *CROWDS, *SEEDS):
        assert any(row.startswith(scenario) for row in rows), f"nothing is printed for {scenario}"


def test_the_targets_are_printed() -> None:
    """Import and growth have targets; they are printed beside the ratio and nobody judges them."""
    rows = lines_of("--quick", "--only", "growth-power")
    assert sum(row.endswith("target <= 1.5") for row in rows) == 1
    assert sum("COMMIT inline" in row for row in rows) == 1
    assert sum("COMMIT in a thread" in row for row in rows) == 1


def test_no_session_of_a_crowd_fails() -> None:
    """Sessions that take tool turns at once all end well, and their memory is told beside a target of 100 MiB."""
    rows = lines_of("--quick", "--only", "turning")
    assert sum(row.endswith("(0 failed)") for row in rows) == 1
    assert sum(row.endswith("target <= 100 MiB") for row in rows) == 2


def test_a_world_is_measured_in_seeds_per_second() -> None:
    """Of the reference world the least and the aim are printed, for each kind of store, with faults and without."""
    rows = [row for row in lines_of("--quick", "--only", "seeds") if row.startswith("seeds: money")]
    assert sum(row.endswith("target >= 300/s (aim 600/s)") for row in rows) == 2
    on_disk = 0 if why_unavailable() else 2
    assert sum(row.endswith("target >= 100/s (aim 300/s)") for row in rows) == on_disk
    assert len(rows) == 2 + on_disk
