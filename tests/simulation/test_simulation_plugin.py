"""The marker `simulation`, as users of pytest meet it: in processes of their own, with other plugins around."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from minirun.simulation._kept import file_of

from ..fork_server import NOT_REWRITTEN, PYTEST, run
from .stores import why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

TESTS = """
import pytest, trio
from minirun import BaseAgent, Event

PEOPLE = ("ada", "bob", "eve")

class Bank(BaseAgent):
    async def _run_async_impl(self, ctx):
        _, amount, _, to = ctx.user_content.text.split()
        ctx.state.add(f"app:{ctx.user_id}", -int(amount))
        ctx.state.add(f"app:{to}", int(amount))
        await ctx.emit(Event(message="moved"))

class CarelessBank(BaseAgent):
    async def _run_async_impl(self, ctx):
        _, amount, _, to = ctx.user_content.text.split()
        mine, theirs = ctx.state[f"app:{ctx.user_id}"], ctx.state[f"app:{to}"]
        await ctx.emit(Event(message="one moment"))
        ctx.state[f"app:{ctx.user_id}"] = mine - int(amount)
        ctx.state[f"app:{to}"] = theirs + int(amount)
        await ctx.emit(Event(message="moved"))

bank_app = Bank(name="bank")

@pytest.mark.simulation(seeds=10)
async def test_money_is_conserved(world):
    bank = world.runner(bank_app, state={"app:ada": 100, "app:bob": 100, "app:eve": 100})   # simulated env, storage
    world.always(lambda: sum(world.state(bank)[f"app:{who}"] for who in ("ada", "bob", "eve")) == 300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, bank, "ada", "move 10 to bob")
        nursery.start_soon(world.say, bank, "bob", "move 10 to ada")

@pytest.mark.simulation(seeds=5, faults="all")
@pytest.mark.parametrize("amount", [1, 2])
async def test_with_faults_and_fixtures(world, amount, tmp_path):
    bank = world.runner(lambda: Bank(name="bank"), state={"app:ada": 100, "app:bob": 0})
    answer = await world.say(bank, "ada", f"move {amount} to bob")
    assert answer.text == "moved"
    assert tmp_path.is_dir()

@pytest.mark.simulation(seeds=10)
async def test_money_is_lost(world):
    bank = world.runner(lambda: CarelessBank(name="bank"), state={f"app:{who}": 100 for who in PEOPLE})
    world.always(lambda: sum(world.state(bank)[f"app:{who}"] for who in PEOPLE) == 300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, bank, "ada", "move 10 to bob")
        nursery.start_soon(world.say, bank, "bob", "move 20 to ada")
        nursery.start_soon(world.say, bank, "eve", "move 30 to ada")

async def test_of_another_plugin():
    await trio.sleep(0)
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    installed = any(point.name == "minirun" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "minirun._pytest_plugin"]
    program = ["-m", "pytest", "-p", "no:cacheprovider", "-o", "trio_mode=true", *plugin, *arguments, *NOT_REWRITTEN]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those of this run
    return run(program, cwd=folder, env=environment, modules=PYTEST)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_bank.py").write_text(TESTS)
    return tmp_path


def test_seeds_are_run_whatever_other_plugins_claim(folder: Path) -> None:
    """Marked tests run in their worlds, with fixtures and parameters; the others stay those of their plugins."""
    done = run_pytest(folder, "-q", "-W", "error", "--deselect", "test_bank.py::test_money_is_lost")
    assert "4 passed, 1 deselected" in done.stdout, done.stdout + done.stderr
    assert "simulation(seeds=100" in run_pytest(folder, "--markers").stdout
    assert not (folder / ".minirun").exists()


def kept_files(folder: Path) -> list[Path]:
    return sorted((folder / ".minirun" / "failures").glob("*"))


def test_a_failure_is_told_kept_and_tried_first(folder: Path) -> None:
    """The seed, what was chosen, what happened; its choices are a file, which the next run begins with, until fixed."""
    done = run_pytest(folder, "-q", "-k", "lost")
    assert done.returncode == 1
    [kept] = kept_files(folder)
    for words in (
        "CheckError: always(",
        "seed 1 fails with CheckError; its ",
        "faults: none; processes: 1",
        " runs before ",
        "what happened:",
        '"one moment"',
        "app:ada = ",
        f"kept in .minirun/failures/{kept.name}, which the next run tries first",
        f"minirun simulate test_bank.py::test_money_is_lost --replay .minirun/failures/{kept.name}",
        "or: pytest test_bank.py::test_money_is_lost",
    ):
        assert words in done.stdout, done.stdout
    assert "trio/_core" not in done.stdout
    assert "Exception Group" not in done.stdout
    again = run_pytest(folder, "-q", "-k", "lost")
    assert again.returncode == 1
    assert "the kept failure (found with seed 1) fails with CheckError" in again.stdout
    (folder / "test_bank.py").write_text(TESTS.replace("CarelessBank(name", "Bank(name"))
    fixed = run_pytest(folder, "-q", "-k", "lost")
    assert fixed.returncode == 0, fixed.stdout
    assert not kept.exists()


def test_what_is_kept_lies_below_the_root_a_file_for_each_set_of_parameters(folder: Path) -> None:
    """Whatever folder pytest is started in, and however much the names of two tests look alike."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    inner = folder / "inner"
    inner.mkdir()
    (inner / "test_parameters.py").write_text(
        "import pytest\n"
        "@pytest.mark.simulation(1)\n"
        "@pytest.mark.parametrize('text', ['a/b', 'a b', 'fine', 'x' * 300])\n"
        "async def test_it(world, text):\n"
        "    assert text == 'fine'\n"
    )
    done = run_pytest(inner, "-q", "test_parameters.py")
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    assert "replay: pytest 'test_parameters.py::test_it[a b]'" in done.stdout, "no command line without fixtures"
    assert len(kept_files(folder)) == 3
    assert not (inner / ".minirun").exists()


DAMAGES = {
    "{": "a file that cannot be read",
    "[]": "another kind of file",
    '{"format": 99}': "found format 99",
    '{"format": 1, "choices": [-1]}': "damaged test, seed, options",
    "GOOD": "kept with other options than the marker's",
}


def test_a_damaged_file_is_told_and_ignored(folder: Path) -> None:
    """Whatever lies where a failure is kept: it is no failure of the test, not even where warnings are errors."""
    good = {"format": 1, "test": "t", "seed": 0, "failure": "E", "message": "", "choices": [1], "minirun": "0"}
    other = json.dumps({**good, "options": {"processes": 2}})
    (folder / "test_bank.py").write_text(
        f"import pytest\n@pytest.mark.simulation(1)\n"
        f"@pytest.mark.parametrize('number', range({len(DAMAGES)}))\nasync def test_it(world, number): pass\n"
    )
    for number, content in enumerate(DAMAGES):
        file = file_of(folder, f"test_bank.py::test_it[{number}]")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(other if content == "GOOD" else content)
    done = run_pytest(folder, "-q", "-W", "error")
    assert done.returncode == 0, done.stdout
    assert "kept failures that were ignored" in done.stdout
    for told in DAMAGES.values():
        assert told in done.stdout, done.stdout
    assert len(kept_files(folder)) == len(DAMAGES), "they are not ours to delete"


ENDS = """
import pytest, trio

pytestmark = pytest.mark.simulation(seeds=3)

async def look(world):
    "No test: a helper that takes the world."

class TestMethods:
    async def test_method(self, world, capsys):
        assert isinstance(self, TestMethods)
        await look(world)

@pytest.mark.simulation(seeds=2)
class TestMarked:
    async def test_method(self, world):
        pass

    def test_plain(self):
        pass

def test_plain():
    pass

async def test_skipped(world):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(skip)

async def skip():
    pytest.skip("not today")

async def test_xfailed(world):
    pytest.xfail("known")

@pytest.mark.xfail(raises=ZeroDivisionError)
async def test_expected(world):
    1 / 0

async def test_raises(world):
    with pytest.raises(ValueError, match="no"):
        raise ValueError("no")

async def test_did_not_raise(world):
    with pytest.raises(ValueError):
        await world.sleep(1)

async def test_assertion(world):
    one, two = [1, 2, 3], [1, 2, 4]
    assert one == two
"""


def test_what_ends_a_test_ends_it_as_usual(folder: Path) -> None:
    """Skipping, expected failures, `pytest.raises`, rewritten assertions; in functions, methods and marked modules."""
    (folder / "test_bank.py").write_text(ENDS)
    done = run_pytest(folder, "-q", "-rA", "-W", "error")
    assert "2 failed, 5 passed, 1 skipped, 2 xfailed" in done.stdout, done.stdout
    for words in ("Failed: DID NOT RAISE", "assert [1, 2, 3] == [1, 2, 4]", "At index 2 diff: 3 != 4"):
        assert words in done.stdout, done.stdout
    assert "seed 0 fails with Failed" in done.stdout
    assert "seed 0 fails with AssertionError" in done.stdout
    assert "1 failed" in run_pytest(folder, "-q", "-x", "-k", "raise or assertion").stdout


def test_ctrl_c_goes_through(folder: Path) -> None:
    """An interruption is no failure of the test: pytest ends, and nothing is kept."""
    (folder / "test_bank.py").write_text(
        "import pytest\n@pytest.mark.simulation(3)\nasync def test_it(world):\n    raise KeyboardInterrupt\n"
    )
    done = run_pytest(folder, "-q")
    assert done.returncode == 2, done.stdout
    assert not kept_files(folder)


REACH = """
import pytest

@pytest.mark.simulation(seeds=7, reach=("mine", "crash"))
async def test_reached_in_part(world):
    world.reached("mine")

@pytest.mark.simulation(seeds=2, reach="mine")
async def test_reached(world):
    world.reached("mine")

runs = []

@pytest.mark.simulation(seeds=2)
async def test_not_the_same_twice(world):
    runs.append(1)
    world.note("ada", f"is here for the time {len(runs)}")
"""


def test_what_was_never_reached_fails_and_so_does_what_differs(folder: Path) -> None:
    """A run that does not test what it claims to, and one that could not be replayed, are failures of their own."""
    (folder / "test_bank.py").write_text(REACH)
    done = run_pytest(folder, "-q")
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "CoverageError: 7 seeds have never reached 'crash'; they have reached: mine (7)." in done.stdout
    assert "NondeterminismError: the same choices have led to two outcomes: entry " in done.stdout
    assert "ada is here for the time " in done.stdout


REFUSED = [
    ("faults='flood'", "async def test_it(world): pass", "expected faults out of crash, storage"),
    ("faults=3", "async def test_it(world): pass", "expected faults to be names, or 'all'; found 3"),
    ("storage='paper'", "async def test_it(world): pass", "unexpected keyword argument 'storage'"),
    ("processes=0", "async def test_it(world): pass", "expected 1 to 8 processes"),
    ("seeds=-1", "async def test_it(world): pass", "expected seeds to be a whole number from 1 on, found -1"),
    ("seeds='3'", "async def test_it(world): pass", "expected seeds to be a whole number from 1 on, found '3'"),
    ("sedes=3", "async def test_it(world): pass", "unexpected keyword argument 'sedes'"),
    ("3, 'all'", "async def test_it(world): pass", "all but seeds by name"),
    ("reach=[3]", "async def test_it(world): pass", "names of coverage counters"),
    ("", "def test_it(world): pass", "to be an async function"),
    ("", "async def test_it(tmp_path): pass", "to take `world`"),
    ("", "async def test_it(world, slow): pass", "found 'slow', which is async"),
    ("", "async def test_it(world, given): pass", "found 'given', which is async"),
]


def test_what_makes_no_sense_is_refused_at_collection(tmp_path: Path) -> None:
    """Unknown arguments and values, sync tests, tests without a world, and async fixtures."""
    for number, (arguments, test, _) in enumerate(REFUSED):
        (tmp_path / f"test_{number:02}.py").write_text(
            "import pytest\n"
            "@pytest.fixture\nasync def slow(): pass\n"
            "@pytest.fixture\nasync def given():\n    yield\n"
            f"@pytest.mark.simulation({arguments})\n{test}\n"
        )
    done = run_pytest(tmp_path, "-q", "--collect-only")
    assert done.returncode == 2
    sections = done.stdout.split("ERROR collecting ")[1:]
    for number, (section, (_, _, told)) in enumerate(zip(sections, REFUSED, strict=True)):
        assert f"test_{number:02}.py::test_it: " in section
        assert told in section, section


def test_a_world_outside_of_a_simulation_says_so(folder: Path) -> None:
    """A fixture cannot use the world, and a fixture of the same name is not ours."""
    (folder / "test_bank.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef bank(world):\n    return world.runner(None)\n"
        "@pytest.mark.simulation\nasync def test_one(world, bank): pass\n"
        "class TestOther:\n"
        "    @pytest.fixture\n    def world(self):\n        return 3\n"
        "    @pytest.mark.simulation\n    async def test_two(self, world): pass\n"
    )
    done = run_pytest(folder, "-q")
    assert "expected `world.runner` to be used in a test" in done.stdout, done.stdout
    assert "expected `world` to be minirun's fixture" in done.stdout


OTHER_PLUGINS = {
    "pytest_asyncio": ("pytest-asyncio", ["-o", "asyncio_mode=auto", "-p", "no:trio"]),
    "anyio": ("anyio", ["-p", "no:trio"]),
}


@pytest.mark.parametrize("module", OTHER_PLUGINS)
def test_the_marker_wins_over_other_plugins(folder: Path, module: str) -> None:
    """Plugins that claim all async tests, or those of a module, do not run marked ones, nor change their number."""
    name, options = OTHER_PLUGINS[module]
    if find_spec(module) is None:
        pytest.skip(f"{name} is not installed")
    tests = TESTS.replace("PEOPLE", "pytestmark = pytest.mark.anyio\nPEOPLE", 1) if module == "anyio" else TESTS
    (folder / "test_bank.py").write_text(tests)
    ours = ("test_bank.py::test_money_is_conserved", "test_bank.py::test_with_faults_and_fixtures")
    done = run_pytest(folder, "-q", *options, *ours)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_way_in_imports_nothing_heavy() -> None:
    """Every pytest of an environment with minirun loads it: it costs neither trio nor hypothesis nor attrs."""
    program = (
        "import sys, minirun._pytest_plugin; print([n for n in ('trio', 'attrs', 'hypothesis') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_failure_that_cannot_be_kept_is_told_all_the_same(folder: Path) -> None:
    """Where `.minirun` cannot be made, the report says so, after the failure itself."""
    (folder / ".minirun").write_text("in the way")
    done = run_pytest(folder, "-q", "-k", "lost")
    assert done.returncode == 1
    for words in ("CheckError: always(", "seed ", "what happened", "it could not be kept there"):
        assert words in done.stdout, done.stdout
