"""
How often a turn asks the disk to keep what it has: counted by the system, from outside.

`strace` writes down every fsync and fdatasync of a process and its threads, each before the process goes on. A process
of each side takes turns in rounds; what is written down between the end of the first and of the last is what the turns
alone have asked for, without opening and closing the file.
Where there is no strace, or it may not trace, nothing is counted and the table says so.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from .contest import Figure, Process
from .programs.protocol import SHORT_HISTORY_EVENTS
from .sides import Side, SideFailedError

CALLS = "fsync,fdatasync,sync_file_range,msync"
# More turns than these would reach SQLite's checkpoint of the WAL, whose fsyncs belong to no turn.
TURNS = 10
ROUNDS = 2  # behind the first one
# A session that is made once, so that making it is in no count.
STORED = SHORT_HISTORY_EVENTS + 2


def may_trace() -> bool:
    """Whether strace is there and the system lets it trace."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return done.returncode == 0


def counted(side: Side, what: str) -> float:
    """How many of the calls a turn has made, of a process that takes them in rounds."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "calls"
        trace = ["strace", "-f", "-q", "-e", f"trace={CALLS}", "-o", str(written)]
        with ExitStack() as stack:
            process = Process(side, {"what": what, "size": STORED, "repeats": TURNS}, stack, trace)
            process.round()
            before = calls_in(written)
            # Each round has one more, which warms up.
            turns: int = sum(process.round()["steps"] + 1 for _ in range(ROUNDS))
            return (calls_in(written) - before) / turns


def calls_in(written: Path) -> int:
    """How many of the calls are written down there."""
    return sum(line.endswith(" = 0") and "sync" in line for line in written.read_text().splitlines())


def fsyncs(sides: Sequence[Side], whats: Sequence[str] = ("text", "tool")) -> Iterator[Figure]:
    """The calls of a turn of each side that keeps a file."""
    if not may_trace():
        yield Figure("fsyncs-text", "all", 0, "", [], note="strace is not there, or may not trace")
        return
    for what in whats:
        for side in sides:
            if side.kind == "file" and what in side.plays:
                yield figure(side, what)


def figure(side: Side, what: str) -> Figure:
    """The calls of a turn."""
    name, peer = f"fsyncs-{what}", side.peer is not None
    try:
        calls = counted(side, what)
    except SideFailedError as error:
        return Figure(name, side.name, 0, "", [], note=str(error), peer=peer)
    return Figure(name, side.name, 0, "", [calls], note=side.durability, peer=peer)
