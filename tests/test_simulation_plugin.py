"""The marker `simulation`, as users of pytest meet it: in processes of their own, with other plugins around."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from minirun.simulation import why_unavailable

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

@pytest.mark.simulation(seeds=30)
async def test_money_is_conserved(world):
    bank = world.runner(bank_app, state={"app:ada": 100, "app:bob": 100, "app:eve": 100})   # simulated env, storage
    world.always(lambda: sum(world.state(bank)[f"app:{who}"] for who in ("ada", "bob", "eve")) == 300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, bank, "ada", "move 10 to bob")
        nursery.start_soon(world.say, bank, "bob", "move 10 to ada")

@pytest.mark.simulation(seeds=20, faults="all", storage="memory")
@pytest.mark.parametrize("amount", [1, 2])
async def test_with_faults_and_fixtures(world, amount, tmp_path):
    bank = world.runner(lambda: Bank(name="bank"), state={"app:ada": 100, "app:bob": 0})
    answer = await world.say(bank, "ada", f"move {amount} to bob")
    assert answer.text == "moved"
    assert tmp_path.is_dir()

@pytest.mark.simulation(seeds=30)
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
    program = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "trio_mode=true", *plugin, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those of this run
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)


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


def test_a_failure_is_told_kept_and_tried_first(folder: Path) -> None:
    """The seed, what was chosen, what happened; its choices are a file, which the next run begins with, until fixed."""
    done = run_pytest(folder, "-q", "-k", "lost")
    assert done.returncode == 1
    for words in ("CheckError: always(", "seed ", "goes on before", "what happened:", "ada sees", "kept in .minirun"):
        assert words in done.stdout, done.stdout
    [kept] = (folder / ".minirun" / "failures").iterdir()
    assert all(isinstance(pick, int) for pick in json.loads(kept.read_text())["choices"])
    again = run_pytest(folder, "-q", "-k", "lost")
    assert again.returncode == 1
    assert f"the failure in .minirun/failures/{kept.name}" in again.stdout
    (folder / "test_bank.py").write_text(TESTS.replace("CarelessBank(name", "Bank(name"))
    fixed = run_pytest(folder, "-q", "-k", "lost")
    assert fixed.returncode == 0, fixed.stdout
    assert not kept.exists()


def test_the_way_in_imports_nothing_heavy() -> None:
    """Every pytest of an environment with minirun loads it: it costs neither trio nor hypothesis nor attrs."""
    program = (
        "import sys, minirun._pytest_plugin; print([n for n in ('trio', 'attrs', 'hypothesis') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
