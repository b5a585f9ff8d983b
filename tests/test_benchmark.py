"""The benchmark works; what it measures is printed, never tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "benchmarks" / "run.py"


def test_the_benchmark_prints_a_ratio_to_the_floor_for_every_scenario() -> None:
    """Every line but the first has a figure, its floor of the same run, and their ratio."""
    program = [sys.executable, "-W", "error", str(SCRIPT), "--quick"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) > 15
    assert all(" floor " in line and " ratio " in line for line in lines[1:])
    assert sum("target" in line for line in lines) == 5
