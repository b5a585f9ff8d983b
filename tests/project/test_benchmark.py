"""The benchmark works, and later work can rely on its form; what it measures is printed, never tested."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import minirun

from ..benchmarks import contest, databases, details, mcp_calls, run
from ..benchmarks.chart import chart
from ..benchmarks.contest import Figure, play
from ..benchmarks.environments import folder_of
from ..benchmarks.fsyncs import fsyncs
from ..benchmarks.imports import import_once, imports
from ..benchmarks.measuring import Ratio, Row
from ..benchmarks.report import IN_README, readme_table
from ..benchmarks.run import arguments
from ..benchmarks.scale import QUICK
from ..benchmarks.scenarios import SCENARIOS as PLAYED
from ..benchmarks.sides import CHANNELS, MINIRUN, OURS, POWER, Peer, Side, SideFailedError
from ..benchmarks.targets import TARGETS, verdicts
from ..fork_server import MINIRUN as IMPORTED
from ..fork_server import Process, relay
from ..fork_server import run as run_forked
from ..fork_server import start as start_forked
from ..postgres import shared_server
from ..simulation.stores import why_unavailable

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run.py"
RATIO = r" +\d+\.\d\d \[\d+\.\d\d–\d+\.\d\d\]"
NUMBER = r" +[\d ]*\d(?:\.\d+)? (?:µs|ms|  )"
FIGURE = re.compile(rf".+ (minirun|floor).*{NUMBER} +\[.+–.+\]( \| floor{NUMBER} \| ratio{RATIO})?( \| \d+ MB)?")
PART = re.compile(
    rf".+ +\d+\.\d (?:µs |ms |/s |   ) \| .+ +\d+\.\d (?:µs |ms |/s |   ) \| ratio{RATIO}"
    r"( target (?:<=|>=) [\d.]+(?:/s| ms)?)?( \(.+\))?"
)
TARGET = re.compile(r"target: .+: at (least|most) .+: (.+ )?(reached|missed|not measured)")

SCENARIOS = (
    "import",
    "text turn in memory, 10 events before",
    "tool turn in memory, 0 events before",
    "text turn in a file, 10 events before",
    "tool turn in a file, 0 events before",
    "3 sessions x 5 tool turns in memory",
    "3 sessions x 5 tool turns in a file",
    "an answer in 20 chunks",
    "a file of 30 events is opened",
    "an event that changes one key of 20 in memory",
    "an event that changes one key of 20 in a file",
    "models-import",
    "chat completions over HTTP, 20 chunks",
    "Anthropic's messages over HTTP, 20 chunks",
    "3 streams of 200 chunks over HTTP at once",
    "a chain of 3 nodes in a file",
    "a chain of 3 nodes in a quick file",
    "3 nodes side by side and a join in a file",
    "3 nodes side by side and a join in a quick file",
    "a node mapped over 5 items in a file",
    "a node mapped over 5 items in a quick file",
    "3 agents answer in parallel",
    "fsyncs-text",
)
PARTS = (
    "text turn, process",
    "emit",
    "append_event, power, 2 sessions",
    "4 sessions x 2 appends",
    "seeds: money",
    "search 300, disk",
    "a node run, memory",
    "a node run, process",
    "a late node run, memory",
    "a late node run, process",
    "resume of a loop",
    "a piece in and one out, 3 live runs",
    "    such pairs a second",
)


def lines_of(*options: str) -> list[str]:
    """What the script prints, after it has ended well and without a warning."""
    program = [sys.executable, "-X", "utf8", "-W", "error", str(SCRIPT), *options]
    warned = {**os.environ, "PYTHONWARNINGS": "error"}  # for the processes that it starts
    done = subprocess.run(program, capture_output=True, encoding="utf-8", timeout=600, check=False, env=warned)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


class Forked:
    """What the benchmark takes from `subprocess`, for processes that have imported minirun already."""

    PIPE = subprocess.PIPE

    @staticmethod
    def Popen(program: list[str], **options: Any) -> Process:
        """Start one."""
        assert program[0] == sys.executable
        return start_forked(program[1:], cwd=options.get("cwd", ROOT), modules=IMPORTED)

    @staticmethod
    def run(program: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one."""
        assert program[0] == sys.executable
        done = run_forked(program[1:], cwd=options["cwd"], modules=IMPORTED)
        assert done.returncode == 0, done.stderr
        return done


class Shared:
    """The server of these tests, for whoever would start one of its own."""

    def __init__(self) -> None:
        self.new_database = shared_server().new_database

    def remove(self) -> None:
        """It stays."""


@pytest.fixture
def forked_lines(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Runs the script in this process and its programs in forked ones, and returns what it prints."""
    for module in (contest, databases, details):
        monkeypatch.setattr(module, "subprocess", Forked)
    monkeypatch.setattr(mcp_calls, "COMMAND", relay(["-m", "tests.mcp_servers.kinds"]))

    def lines(*options: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
        capfd.readouterr()
        run.main()
        return capfd.readouterr().out.splitlines()

    return lines


def test_the_script_runs_as_a_program() -> None:
    """Started by its path, it finds what it measures, and measures it in processes that import it."""
    versions, *rows = lines_of("--quick", "--only", "text-memory", "--sizes", "0")
    assert versions.startswith("Python ")
    assert [row for row in rows if not (FIGURE.fullmatch(row) or TARGET.fullmatch(row))] == []


@pytest.mark.usefixtures("set_aside")
def test_figures_stand_beside_their_floors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_lines: Callable[..., list[str]]
) -> None:
    """All parts but those that only fresh processes can have (imports, and fsyncs, which are traced)."""
    measured = [name for name in run.NAMES if name not in ("import", "models-import", "fsyncs", "seeds")]
    monkeypatch.setattr(run, "NAMES", measured)
    monkeypatch.setattr(databases, "CROWDS", [(2, 2, 2.0)])  # processes, writers of each
    monkeypatch.setattr(databases, "own_server", Shared)
    check_lines(
        forked_lines("--quick", "--results", str(tmp_path)),
        [each for each in (*SCENARIOS, *PARTS) if not each.startswith(("import", "models-import", "fsyncs", "seeds"))],
    )
    assert_complete(tmp_path)


def test_fsyncs_are_counted() -> None:
    """Those of a turn, by a trace of a process that takes more and one that takes fewer; or why there are none."""
    [figure] = fsyncs([side for side in OURS if side.kind == "file"][:1], ["text"])
    assert len(figure.rounds) == 1 or "strace" in figure.note


def test_every_figure_stands_beside_its_floor(tmp_path: Path) -> None:
    """A run prints the versions, then figures of minirun beside their floors, then targets; and leaves its results."""
    check_lines(lines_of("--quick", "--results", str(tmp_path)), [*SCENARIOS, *PARTS])
    assert_complete(tmp_path)
    command = f"Written by `python tests/benchmarks/run.py --quick --results {shlex.quote(str(tmp_path))}`."
    assert command in (tmp_path / "results.md").read_text(encoding="utf-8")


def check_lines(lines: list[str], scenarios: list[str]) -> None:
    """Each line has its form, and each scenario a line."""
    versions, *rows = lines
    assert re.match(r"Python .+, trio .+, SQLite .+, cores .+, files on .+", versions)
    assert [row for row in rows if not (FIGURE.fullmatch(row) or PART.fullmatch(row) or TARGET.fullmatch(row))] == []
    for scenario in scenarios:
        assert any(row.startswith(scenario) for row in rows), f"nothing is printed for {scenario}"
    mine = [row for row in rows if re.match(r".+ {2,}minirun", row)]
    assert [row for row in mine if "| floor " not in row] == []
    assert [row for row in rows if "sessions failed" in row] == []
    assert sum(row.startswith("target: ") for row in rows) == len(TARGETS)


def assert_complete(results: Path) -> None:
    """The table, the raw figures and the chart are there, and tell of the same things."""
    raw = json.loads((results / "results.json").read_text(encoding="utf-8"))
    assert {figure["side"] for figure in raw["figures"]} > {MINIRUN, POWER, CHANNELS}
    assert all(figure["rounds"] for figure in raw["figures"] if not figure["scenario"].startswith("fsyncs"))
    table = (results / "results.md").read_text(encoding="utf-8")
    for scenario in ("## Targets", "## text turn in memory, n events before", "## Parts"):
        assert scenario in table
    svg = ElementTree.fromstring((results / "turns.svg").read_text(encoding="utf-8"))
    assert len(svg.findall("{http://www.w3.org/2000/svg}polyline")) == 4  # minirun and the floor, twice


def test_a_world_is_measured_in_seeds_per_second(forked_lines: Callable[..., list[str]]) -> None:
    """The reference world stands beside its floor, in each store, with faults and without; two processes beside one."""
    rows = [row for row in forked_lines("--quick", "--only", "seeds") if row.startswith("seeds: ")]
    stores = 1 if why_unavailable() else 2
    targets = Counter(row.rpartition("target ")[2] for row in rows if "target" in row)
    assert targets == Counter({">= 0.6": 1, ">= 0.5": stores - 1, ">= 0.35": stores, ">= 1.9": stores})
    worlds = [row for row in rows if "real world" in row]
    assert len(worlds) == 4 * stores
    assert [row for row in worlds if " | ratio " not in row] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--windows", "19"], "--windows: expected an integer of at least 20, found '19'"),
        (["--sizes", "0", "-1"], "--sizes: expected an integer of at least 0, found '-1'"),
        (["--rounds", "0"], "--rounds: expected an integer of at least 1, found '0'"),
        (["--sessions", "few"], "--sessions: expected an integer of at least 1, found 'few'"),
        (["--results", str(SCRIPT)], "--results: expected a folder, or where one can be made"),
    ],
)
def test_options_that_cannot_be_are_refused(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that is too small, and results where no folder can be, are refused before anything is measured."""
    monkeypatch.setattr(sys, "argv", ["run.py", *options])
    with pytest.raises(SystemExit):
        arguments()
    assert said in capsys.readouterr().err


def test_the_import_of_this_minirun_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another minirun in the current folder is not the one whose import is measured."""
    (tmp_path / "minirun.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = import_once(f"import minirun; assert minirun.__file__ == {minirun.__file__!r}", environment)
    assert "minirun._lazy" in found.modules


def test_an_import_that_fails_says_why() -> None:
    """What the interpreter says about a statement that it cannot run is in the error, all of it as its note."""
    with pytest.raises(SideFailedError, match="No module named 'nobody'") as caught:
        import_once("import nobody", dict(os.environ))
    assert "Traceback" in caught.value.__notes__[0]


NOT_THERE = Peer("nobody", "floor", ("nobody",), "import nobody")
HOLLOW = Peer("hollow", "floor", (), "import nobody")


def test_peers_that_cannot_be_had_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are measured; where a peer's figures would be stands that it cannot be installed, or imported."""
    monkeypatch.setattr(contest, "subprocess", Forked)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    venv.create(folder_of(HOLLOW))
    (folder_of(HOLLOW) / "ready").touch()
    folder_of(NOT_THERE).symlink_to(tmp_path / "nowhere")  # so that no folder can be made there
    theirs = Side("nobody", "floor", "memory", "channels", frozenset({"text"}), peer=NOT_THERE)
    *others, absent, hollow = list(imports(QUICK, (NOT_THERE, HOLLOW), "import", "import json", "import email"))
    assert all(figure.rounds for figure in others)
    assert [figure.side for figure in others] == [MINIRUN, CHANNELS]
    assert (hollow.side, hollow.rounds, hollow.note) == ("hollow", [], "ModuleNotFoundError: No module named 'nobody'")
    in_memory = [side for side in OURS if side.name == CHANNELS and "text" in side.plays]
    played = list(play(PLAYED["text-memory"], (*in_memory, theirs), QUICK))
    assert [bool(figure.rounds) for figure in played] == [not figure.peer for figure in played]
    left_out = [absent, *(figure for figure in played if figure.peer)]
    assert len(left_out) > 1
    assert [figure.rounds for figure in left_out] == [[]] * len(left_out)
    assert {figure.note.partition(":")[0] for figure in left_out} == {"cannot be installed"}


def text_turns(side: str, rounds: list[float], size: int = 0, *, peer: bool = False, failed: int = 0) -> Figure:
    """A figure of text turns in memory."""
    return Figure("text-memory", side, size, "µs", rounds, peer=peer, failed=failed)


def test_ratios_are_those_of_rounds_at_the_same_time() -> None:
    """A machine that is slow for a round is slow for both sides, so that a ratio is the median of the rounds' own."""
    assert Ratio.of([10, 100, 12], [5, 50, 4]) == Ratio(2, 2, 3)


def test_targets_are_judged_by_ratios_of_the_run() -> None:
    """A target is reached or missed by the ratio to the floor, to the fastest peer, or to the own least size."""
    figures = [
        text_turns(MINIRUN, [20, 22, 24]),
        text_turns(MINIRUN, [40, 44, 48], 5_000),
        text_turns(CHANNELS, [10, 10, 10]),
        text_turns("slow", [900, 900, 900], peer=True),
        text_turns("fast", [200, 220, 240], peer=True),
        text_turns("broken", [1, 1, 1], peer=True, failed=3),
    ]
    told = [str(verdict) for verdict in verdicts(figures) if verdict.verdict != "not measured"]
    assert told == [
        "target: text turn in memory: at most 3 x floor: 2.20 [2.00–2.40] reached",
        "target: text turn in memory: at least 5 x as fast as the fastest peer: 10.00 [10.00–10.00] (fast) reached",
        "target: text turn in memory, 5 000 events: at most 1.25 x its own cost at the least size:"
        " 2.00 [2.00–2.00] missed",
    ]


def test_targets_of_parts_are_judged_by_their_rows() -> None:
    """A row of a part is reached or missed by its own ratio; one beside something else is not the one that is meant."""
    rows = [
        Row("a node run, memory", [12, 13, 13], "an event and a step", [10, 10, 10]),
        Row("resume of a loop", [40, 50, 60], "reading its events", [10, 10, 10], unit="ms"),
        Row("a late node run, memory", [1, 1, 1], "something else", [1, 1, 1]),
    ]
    told = [str(verdict) for verdict in verdicts([], rows) if verdict.verdict != "not measured"]
    assert told == [
        "target: node run in memory: at most 1.3 x an event and a step: 1.30 [1.20–1.30] reached",
        "target: resume of finished node runs: at most 3 x reading its events: 5.00 [4.00–6.00] missed",
    ]


def test_the_chart_draws_a_line_for_each_side() -> None:
    """Each side is a line with a point for each size, higher where it costs more, and its name beside it."""
    mine = [text_turns("minirun", [100]), text_turns("minirun", [1_000], 100)]
    figures = [*mine, text_turns("<peer>", [500], peer=True)]
    svg = ElementTree.fromstring(chart(figures))
    space = "{http://www.w3.org/2000/svg}"
    points = [line.attrib["points"].split() for line in svg.findall(f"{space}polyline")]
    assert sorted(map(len, points)) == [1, 2]
    [line] = [line for line in points if len(line) == 2]
    (x, y), (later, higher) = (map(float, point.split(",")) for point in line)
    assert later > x
    assert higher < y
    assert "<peer>" in [text.text for text in svg.findall(f"{space}text")]


def test_the_readme_tells_what_was_measured() -> None:
    """Its table is that of the results beside the benchmark, line by line, and its chart is theirs."""
    results, readme = SCRIPT.parent / "results", (SCRIPT.parents[2] / "README.md").read_text(encoding="utf-8")
    lines = list(readme_table(results))
    assert len(lines) == 2 + len(IN_README)
    assert "\n".join(lines) in readme
    assert f"({(results / 'turns.svg').relative_to(SCRIPT.parents[2])})" in readme
