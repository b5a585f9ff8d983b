"""The benchmark works, and later work can rely on its form; what it measures is printed, never tested."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "benchmarks" / "run.py"
NUMBER = r" +\d+\.\d (?:µs|ms|  ) "
ROW = re.compile(rf".+{NUMBER}\| .+{NUMBER}\| ratio +\d+\.\d\d( target <= 1\.\d+)?( \(.+\))?")


def lines_of(*options: str) -> list[str]:
    """What the script prints, after it has ended well and without a warning."""
    program = [sys.executable, "-X", "utf8", "-W", "error", str(SCRIPT), *options]
    done = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_figure_stands_beside_its_floor() -> None:
    """The first line names the versions, every other one a figure, its floor of the same run and their ratio."""
    versions, *rows = lines_of("--quick")
    assert versions.startswith("Python ")
    assert [row for row in rows if not ROW.fullmatch(row)] == []
    for scenario in ("import", "text turn", "tool turn", "emit", "streaming", "append_event"):
        assert any(row.startswith(scenario) for row in rows), f"nothing is printed for {scenario}"


def test_the_targets_are_printed() -> None:
    """Import and growth have targets; they are printed beside the ratio and nobody judges them."""
    rows = lines_of("--quick", "--only", "growth-power")
    assert sum(row.endswith("target <= 1.5") for row in rows) == 1
    assert sum("COMMIT inline" in row for row in rows) == 1
    assert sum("COMMIT in a thread" in row for row in rows) == 1
