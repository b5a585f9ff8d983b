"""
The same seed is the same world: over and over, in other processes, on other Pythons, with other versions of trio.

The digests in `fixtures/simulation-digests.json` were made once, by
`python -m tests.simulation.test_simulation_sameness`; every Python and every trio that we support has to come to them.
What is meant to change them is a change of what worlds do, or of what is stored; then they are made again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minirun import LlmAgent
from minirun.models import LlmRequest
from minirun.simulation import Outcome, RecordedChoices, SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool

from ..graph_worlds import graphs
from ..reference_worlds import SCENARIOS
from .stores import Scenario, simulate, why_unavailable
from .test_simulation import explored, run


async def baskets(world: World) -> None:
    """A tool returns a set, and others wait: what is stored of sets is in one order everywhere."""

    async def collect() -> set[str]:
        await world.sleep(0)
        return {f"item {number}" for number in range(12)}

    def order(number: int) -> None: ...

    def script(request: LlmRequest) -> Any:
        if request.contents[-1].parts[-1].function_response is None:
            return [call("collect"), *(call("order", number=number) for number in range(5))]
        return "collected"

    tools: list[Any] = [collect, LongRunningFunctionTool(order, run_in="loop")]
    runner = world.runner(lambda: LlmAgent(name="baskets", model=ScriptedLlm(script), tools=tools))
    await world.say(runner, "ada", "go")


DIGESTS = Path(__file__).parents[1] / "fixtures" / "simulation-digests.json"
WORLDS: dict[str, Scenario] = {**SCENARIOS, "explored": explored, "graphs": graphs, "baskets": baskets}
SEEDS = (0, 1, 2, 17)

needs_the_disk = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


def outcome_of(name: str, seed: int, settings: str) -> Outcome:
    """One simulation; the settings are those that do not depend on the version of SQLite, or all there are."""
    choices = SeededChoices(seed)
    if settings == "memory":
        return simulate(WORLDS[name], choices, storage="memory", faults="all")
    if settings == "disk":
        return simulate(WORLDS[name], choices, faults=("model", "tools", "users"))
    return simulate(WORLDS[name], choices, faults="all", processes=2)


def digests(settings: str, seeds: Sequence[int] = SEEDS) -> dict[str, str]:
    """The digest of every world and seed."""
    return {f"{name} {seed}": outcome_of(name, seed, settings).digest for name in WORLDS for seed in seeds}


@pytest.mark.parametrize(
    "seeds", [pytest.param(SEEDS[-2:], id="some"), pytest.param(SEEDS, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("settings", ["memory", pytest.param("disk", marks=needs_the_disk)])
def test_every_python_and_every_trio_come_to_the_same(settings: str, seeds: Sequence[int]) -> None:
    """What happens in a world depends on its seed and on minirun, and on nothing below it."""
    kept = json.loads(DIGESTS.read_text("utf-8"))[settings]
    assert kept.keys() == {f"{name} {seed}" for name in WORLDS for seed in SEEDS}
    assert digests(settings, seeds) == {f"{name} {seed}": kept[f"{name} {seed}"] for name in WORLDS for seed in seeds}


@needs_the_disk
@pytest.mark.parametrize(
    ("settings", "times"),
    [
        pytest.param("memory", 15, id="memory"),
        pytest.param("everything", 3, id="everything"),
        pytest.param("memory", 200, id="memory, two hundred", marks=pytest.mark.slow),
        pytest.param("everything", 20, id="everything, twenty", marks=pytest.mark.slow),
    ],
)
def test_many_times_are_one(settings: str, times: int) -> None:
    """In one process, with objects at ever other addresses, a seed is the same to the byte each time."""
    name = "money" if settings == "memory" else "explored"
    first = outcome_of(name, 17, settings)
    clutter = []
    for number in range(times):
        clutter.append(bytearray(random.Random(number).randrange(5000)))
        again = outcome_of(name, 17, settings)
        assert (again.log, again.picks, again.digest) == (first.log, first.picks, first.digest)


@needs_the_disk
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["tools", "explored", "baskets"], id="some"),
        pytest.param([*WORLDS], id="all", marks=pytest.mark.slow),
    ],
)
def test_a_recorded_list_of_choices_is_the_same_world(names: Sequence[str]) -> None:
    """What a seed has chosen, replayed as a list, gives the same log and the same list."""
    for name in names:
        first = outcome_of(name, 4, "everything")
        again = simulate(WORLDS[name], RecordedChoices(first.picks), faults="all", processes=2)
        assert (again.digest, again.picks) == (first.digest, first.picks)


@needs_the_disk
@pytest.mark.parametrize(
    ("processes", "seeds"),
    [pytest.param(1, SEEDS[-1:], id="one"), pytest.param(20, SEEDS, id="twenty", marks=pytest.mark.slow)],
)
def test_every_process_comes_to_the_same(processes: int, seeds: Sequence[int]) -> None:
    """Fresh processes, in which strings have other hashes, agree with this one, faults of the disk included."""
    program = (
        "import json; from tests.simulation.test_simulation_sameness import *;"
        f"print(json.dumps(digests('everything', {seeds})))"
    )
    here = digests("everything", seeds)
    for _ in range(processes):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": "random"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == here


@pytest.mark.parametrize(
    "seeds", [pytest.param(40, id="some"), pytest.param(1_000, id="a thousand", marks=pytest.mark.slow)]
)
def test_other_seeds_are_other_worlds(seeds: int) -> None:
    """Of as many seeds, nearly as many orders in which four agents say five things each."""
    orders = {next(e.what for e in run("four", seed, "memory", ()).log if e.who == "order") for seed in range(seeds)}
    print(f"{len(orders)} different orders of {seeds}")
    assert len(orders) >= 0.95 * seeds


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps({name: digests(name) for name in ("memory", "disk")}, indent=1) + "\n", "utf-8")
