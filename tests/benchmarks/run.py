"""
What minirun costs, beside the floor and its peers.

    python tests/benchmarks/run.py [--peers] [--only NAME...] [--rounds N] [--sizes N...] [--quick] [--large]
                                   [--results FOLDER]

Rules of this file:

*   No figure stands alone. Beside it stands its *floor*, measured in the same run: what bare trio, sqlite3, attrs and
    json need for the unavoidable part of the same work. With `--peers` stand google-adk, openai-agents, pydantic-ai and
    langgraph beside it, each in a virtual environment of its own. Machines and hours differ by a factor of two; the
    ratio is what counts.
*   It prints and nothing fails: a target is printed with `reached` or `missed`. The guard against growing costs is a
    test.
*   What prepares a round (sessions, histories, files) is not measured.
*   A full run with peers writes what it has found to `results/`; any other one only where `--results` says.

Where things are: `scenarios` in which `sides` take turns (`contest`), each a program below `programs/` that is asked by
`protocol`; the `floors`; `imports` and `fsyncs`, which are measured from outside; `details` of single parts, of which
`node_runs`, `seeds`, `memories` and `crowd` are programs of their own; `targets`; the `report` and the `chart`;
`environments` of the peers; the `scale`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if not __package__:  # started as a script
    sys.path[0] = str(Path(__file__).parents[2])
    __package__ = "tests.benchmarks"

import attrs
import trio

from .contest import Figure, play
from .details import DETAILS
from .fsyncs import fsyncs
from .imports import MODELS_FLOOR_IMPORT, MODELS_IMPORT, imports
from .measuring import Ratio, Row
from .programs.protocol import WINDOW_EVENTS
from .report import number, title_of, write, written
from .scale import FULL, QUICK, Scale
from .scenarios import SCENARIOS
from .sides import CLIENTS, OURS, PEERS, THEIRS
from .targets import floor_of, verdicts

RESULTS = Path(__file__).parent / "results"
NAMES = ("import", "models-import", *SCENARIOS, "fsyncs", *DETAILS)


def file_system(folder: str) -> str:
    """The kind of file system below *folder*, where the machine tells; on a `tmpfs`, COMMIT waits for no disk."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    places = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    folder = os.path.realpath(folder)
    return max((len(place), kind) for place, kind in places if Path(folder).is_relative_to(place))[1]


def about(scale: Scale, peers: bool) -> dict[str, object]:
    """On what this was measured."""
    names: dict[str, object] = {
        "Python": platform.python_version(),
        "trio": trio.__version__,
        "SQLite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "files on": file_system(tempfile.gettempdir()),
        "rounds": scale.rounds,
    }
    if peers:
        names["peers"] = ", ".join(" + ".join(peer.requirements) for peer in (*PEERS, *CLIENTS))
    return names


def line(figure: Figure, figures: Sequence[Figure]) -> str:
    """A figure as it is printed, beside its floor."""
    title = title_of(figure.scenario, figure.size)
    if not figure.rounds:
        return f"{title:58} {figure.side:24} not measured: {figure.note}"
    spread = f"[{number(min(figure.rounds))}–{number(max(figure.rounds))}]"
    told = f"{title:58} {figure.side:24} {number(figure.median):>9} {figure.unit:2} {spread:>21}"
    floor = floor_of(figures, figure)
    if floor is not None:
        told += f" | floor {number(floor.median):>9} {figure.unit:2} | ratio {Ratio.of(figure.rounds, floor.rounds)}"
    if figure.peak_mb is not None:
        told += f" | {figure.peak_mb:.0f} MB"
    if figure.failed:
        told += f" | {figure.failed} sessions failed: {figure.note}"
    return told


def measured(name: str, scale: Scale, peers: bool) -> Iterator[list[Figure]]:
    """What was measured of this name, in pieces that belong together."""
    sides = (*OURS, *THEIRS) if peers else OURS
    if name == "import":
        yield list(imports(scale, PEERS if peers else ()))
    elif name == "models-import":
        yield list(imports(scale, CLIENTS if peers else (), name, MODELS_IMPORT, MODELS_FLOOR_IMPORT))
    elif name == "fsyncs":
        yield list(fsyncs(sides))
    else:
        figures = list(play(SCENARIOS[name], sides, scale))
        for size in dict.fromkeys(figure.size for figure in figures):
            yield [figure for figure in figures if figure.size == size]


def detail_rows(name: str, scale: Scale) -> list[Row]:
    """The rows of a part, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return trio.run(DETAILS[name], scale, Path(folder))


def main() -> None:
    """Measure what the command line asks for, print it, and write it down."""
    options = arguments()
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = attrs.evolve(scale, rounds=options.rounds, slow_rounds=options.rounds)
    if options.sizes:
        scale = attrs.evolve(scale, sizes=tuple(options.sizes))
    if options.windows:
        scale = attrs.evolve(scale, windows=tuple(options.windows))
    if options.sessions:
        scale = attrs.evolve(scale, crowd=options.sessions)
    if options.large:
        scale = attrs.evolve(scale, memories_on_disk=1_000_000, database_events=1_000_000)
    scale = attrs.evolve(scale, peers=options.peers)
    machine = about(scale, options.peers)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    usual = attrs.evolve(scale, memories_on_disk=0, database_events=0, peers=False)
    whole = options.peers and not options.only and usual == FULL
    folder = options.results or (RESULTS if whole else None)
    command = shlex.join(["python", "tests/benchmarks/run.py", *sys.argv[1:]])
    figures: list[Figure] = []
    rows: list[Row] = []
    if options.only and folder is not None:  # what is not measured again stays
        before, figures, rows = written(folder)
        command = f"{before}; {command}" if before else command
        figures = [figure for figure in figures if not figure.scenario.startswith(tuple(options.only))]
        rows = [] if any(name in DETAILS for name in options.only) else rows
    for name in options.only or NAMES:
        if name in DETAILS:
            found = detail_rows(name, scale)
            rows += found
            for row in found:
                print(row, flush=True)
        else:
            for together in measured(name, scale, options.peers):
                figures += together
                for figure in together:
                    print(line(figure, together), flush=True)
        if folder is not None:  # each time, so that who has had enough keeps what there is
            write(folder, command, machine, figures, rows)
    for verdict in verdicts(figures, rows):
        print(verdict)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="What minirun costs, beside the floor and its peers.")
    parser.add_argument("--peers", action="store_true", help="measure google-adk, openai-agents, … in the same run")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=at_least(1), help="how often the sides take turns")
    parser.add_argument("--sizes", type=at_least(0), nargs="+", help="stored events before a turn")
    window = f"stored events of which a turn sees the last {WINDOW_EVENTS}"
    parser.add_argument("--windows", type=at_least(WINDOW_EVENTS), nargs="+", help=window)
    parser.add_argument("--sessions", type=at_least(1), help="sessions at once")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works, not to measure")
    large = "also a million memories, and a table of a million events, which takes minutes"
    parser.add_argument("--large", action="store_true", help=large)
    told = "where to write the table, the figures and the chart; with --only beside what is there"
    parser.add_argument("--results", type=Path, help=told)
    options = parser.parse_args()
    if options.results is not None:
        try:
            options.results.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # said now, not after an hour of measuring
            parser.error(f"argument --results: expected a folder, or where one can be made: {error}")
    return options


def at_least(least: int) -> Callable[[str], int]:
    """What argparse reads a number with, that is not below *least*."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"expected an integer of at least {least}, found {text!r}")
        return value

    return read


if __name__ == "__main__":
    main()
