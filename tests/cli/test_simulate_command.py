"""`minirun simulate`, as a process: what it searches, what it tells, what it keeps, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minirun.simulation._kept import file_of

from ..fork_server import run, start

SCENARIOS = """
import os, sys
import trio
from minirun import BaseAgent, Event

class Bank(BaseAgent):
    async def _run_async_impl(self, ctx):
        balance = ctx.state["app:balance"]
        await ctx.emit(Event(message="one moment"))
        ctx.state["app:balance"] = balance + 10
        await ctx.emit(Event(message="added 10"))

async def loses(world):
    bank = world.runner(lambda: Bank(name="bank"), state={"app:balance": 0})
    async with trio.open_nursery() as nursery:
        for user in ("ada", "bob"):
            nursery.start_soon(world.say, bank, user, "add")
    if world.state(bank)["app:balance"] != 20:
        raise ValueError("money was lost")

async def fine(world):
    assert sys.modules.get("pytest") is None
    print("scenarios may print")
    world.reached("fine")

class Pair:
    async def method(self, world):
        assert isinstance(self, Pair)

async def two_ways(world):
    if world.choices.choose(2, "which"):
        raise ValueError(f"number {world.now}")
    raise KeyError("other")

async def unsorted(world):
    world.note("set", "".join({letter * 2 for letter in "abcdefghijklmnop"}))

async def takes_more(world, more):
    pass

async def endless(world):
    os.write(2, b"begins\\n")
    while True:
        await world.sleep(1e-9)

async def exits(world):
    raise SystemExit(3)
"""

# As long as nothing is wrong, a process of these tests ends at once.
PATIENCE_S = 120


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "minirun", "simulate", *arguments]


# With it a search has no twin, a process more with other hashes; `test_an_order_of_hashes_…` has one.
ONE_HASH = {"PYTHONHASHSEED": "0"}


def simulate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process that has imported it already (see fork_server.py)."""
    return run(program(*arguments)[1:], cwd=folder, env={**os.environ, **ONE_HASH})


def fresh_simulate(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, with variables that an interpreter reads when it starts."""
    return subprocess.run(
        program(*arguments),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def problems_in(stderr: str) -> list[str]:
    """What stands on standard error beside the lines which say that a slow machine goes on."""
    return [line for line in stderr.splitlines() if not re.fullmatch(r" *\d+ seeds?, .*\d+ failures?", line)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenarios.py").write_text(SCENARIOS)
    return tmp_path


def test_a_failure_is_shrunk_told_kept_and_replayed(folder: Path) -> None:
    """The traceback without machinery, the story, a file that replays it, and exit status 1; fixed, it is 0."""
    done = simulate(folder, "scenarios.py::loses")
    assert (done.returncode, problems_in(done.stderr)) == (1, [])
    kept = file_of(folder, "scenarios.py::loses").relative_to(folder)
    assert (folder / kept).is_file()
    replay = f"minirun simulate scenarios.py::loses --replay {kept}"
    for words in ("ValueError: money was lost", " that are not dull", "bob runs before ada", "app:balance = 10"):
        assert words in done.stdout, done.stdout
    assert f"kept in {kept}\nreplay: {replay}\n" in done.stdout
    assert "trio/_core" not in done.stdout
    again = simulate(folder, "scenarios.py::loses", "--replay", str(kept))
    assert again.returncode == 1
    assert "the kept failure (found with seed " in again.stdout
    assert "faults: none; processes: 1" in again.stdout
    (folder / "scenarios.py").write_text(SCENARIOS.replace("!= 20", "== 0"))
    fixed = simulate(folder, "scenarios.py::loses", "--replay", str(kept))
    assert (fixed.returncode, fixed.stdout.partition(";")[0]) == (0, "no failure")


def test_seeds_are_shared_between_processes_by_their_first(folder: Path) -> None:
    """Each seed is run once, what they reach is summed, and it needs no pytest; not on a terminal it prints lines."""
    (folder / "without").mkdir()
    (folder / "without" / "sitecustomize.py").write_text(
        "import sys\nsys.modules.update(pytest=None, _pytest=None, hypothesis=None)\n"
    )
    path = os.pathsep.join([str(folder / "without"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    arguments = ("--seeds", "20", "--first-seed", "20")
    done = fresh_simulate(folder, "scenarios.py::fine", *arguments, PYTHONPATH=path)
    assert (done.returncode, problems_in(done.stderr)) == (0, [])
    first, *counters = done.stdout.splitlines()
    assert first.startswith("20 seeds in ")
    assert first.endswith(" s, 0 failures")
    assert counters == ["  fine: 20"]


def test_an_order_of_hashes_is_found_by_a_process_with_others(folder: Path) -> None:
    """Two runs in one process agree on the order of a set of strings; a process with other hashes tells of the seed."""
    arguments = ("scenarios.py::unsorted", "--seeds", "1")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    done = run(program(*arguments)[1:], cwd=folder, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NondeterminismError: seed 0 is another world where strings have other hashes: entry 2 of" in done.stdout
    assert "sort the sets" in done.stdout
    assert re.search(r"^1 seed in .* s, 1 failure$", done.stdout, re.MULTILINE), done.stdout
    assert simulate(folder, *arguments).returncode == 0


def test_failures_of_each_kind_are_told_where_it_keeps_going(folder: Path) -> None:
    """With --keep-going all seeds are run, all failures counted, and one of each kind is told and kept."""
    done = simulate(folder, "scenarios.py::two_ways", "--seeds", "10", "--keep-going")
    assert done.returncode == 1
    assert "10 failures" in done.stdout
    assert done.stdout.count("replay: ") == 2
    assert len(list((folder / ".minirun" / "failures").iterdir())) == 2


def test_the_marker_has_the_defaults_and_the_file_is_pytests(folder: Path) -> None:
    """Seeds, options and what must be reached come from the marker of function or class; what is given wins."""
    (folder / "inner").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "inner" / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.simulation(7, reach='fire')\nasync def test_it(world): pass\n"
        "@pytest.mark.simulation(seeds=2, faults='crash')\nclass TestIt:\n"
        "    async def test_it(self, world):\n        with pytest.raises(ValueError): pass\n"
    )
    done = simulate(folder, "inner/test_it.py::test_it")
    assert done.returncode == 1
    assert "7 seeds in " in done.stdout
    assert "CoverageError: 7 seeds have never reached 'fire'" in done.stdout
    assert "3 seeds in " in simulate(folder, "inner/test_it.py::test_it", "--seeds", "3").stdout
    method = simulate(folder, "inner/test_it.py::TestIt::test_it", "--faults", "none")
    assert "Failed: DID NOT RAISE" in method.stdout
    assert "faults: none; processes: 1" in method.stdout
    assert file_of(folder, "inner/test_it.py::TestIt::test_it").is_file()


def test_a_file_in_a_package_imports_its_neighbours(folder: Path) -> None:
    """As pytest imports it: by its full name."""
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("SEEDS = 1\n")
    (package / "scenario.py").write_text("from .helper import SEEDS\nasync def scenario(world): pass\n")
    assert simulate(folder, "package/scenario.py::scenario", "--seeds", "1").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["nix.py::a"], 2, "found no file at 'nix.py'"),
        (["scenarios.py"], 2, "expected FILE.py::name, found no name"),
        (["scenarios.py::nix"], 1, "scenarios.py has no 'nix'; it has loses, fine"),
        (["scenarios.py::Bank"], 1, "expected an async function that takes `world` alone, found <class"),
        (["scenarios.py::takes_more"], 1, "one that takes world, more; pytest can run it"),
        (["scenarios.py::fine", "--faults", "flood"], 2, "expected faults out of crash, storage"),
        (["scenarios.py::fine", "--replay", "scenarios.py"], 2, "expected a kept failure, found a file that cannot"),
        (["scenarios.py::fine", "--replay", "nix.json"], 2, "expected a kept failure, found a file that cannot"),
        (["scenarios.py::fine", "--replay", "a.json", "--first-seed", "0"], 2, "or --first-seed, found both"),
        (["scenarios.py::fine", "--minutes", "nan"], 2, "nan is no number of minutes"),
    ],
)
def test_what_cannot_be_done_is_told(folder: Path, arguments: list[str], status: int, told: str) -> None:
    """In one line on stderr, without a traceback; 2 for what was asked wrongly, 1 for what went wrong."""
    done = simulate(folder, *arguments)
    assert (done.returncode, told in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_scenario_that_exits_has_failed(folder: Path) -> None:
    """It does not end the search with it: it is told with its seed, and kept."""
    done = simulate(folder, "scenarios.py::exits")
    assert done.returncode == 1
    assert "SystemExit: 3" in done.stdout
    assert "--replay" in done.stdout, done.stdout


def test_ctrl_c_ends_a_search(folder: Path) -> None:
    """SIGINT in the middle of a seed, as a terminal sends it: status 130, no traceback, and what was found is told."""
    arguments = program("scenarios.py::endless")[1:]
    environment = {**os.environ, **ONE_HASH}
    with start(arguments, cwd=folder, env=environment, start_new_session=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begins\n"
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.endswith("interrupted\n")
    assert "0 seeds in " in output
