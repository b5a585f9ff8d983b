"""A simulation says when it has tested nothing: of faults that struck nothing, and of what it has reached."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from minirun import InvocationContext, LlmAgent
from minirun.events import Event
from minirun.simulation import CoverageError, SeededChoices, World
from minirun.simulation._explore import check_faults, settings
from minirun.simulation._faults import COULD_STRIKE, FAULTS, HAS_STRUCK
from minirun.testing import ScriptedLlm, call

from .. import fork_server
from ..fork_server import MINIRUN, NOT_REWRITTEN, PYTEST
from ..helpers import Logic
from .stores import explore, simulate, why_unavailable

needs_the_disk = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


async def nothing(world: World) -> None:
    """A world in which nobody does anything."""


async def look_up(name: str) -> str:
    """A tool."""
    return name.upper()


def answer(request: Any) -> Any:
    """A model that calls the tool, then answers."""
    return "done" if request.contents[-1].parts[-1].function_response else call("look_up", name="a")


async def talk(world: World) -> None:
    """A world in which there is something to be struck by each fault."""
    runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(answer), tools=[look_up]))
    for text in ("one", "two"):
        try:
            await world.say(runner, "ada", text)
        except Exception:
            world.reached("failed")


def reached(scenario: Any, seeds: int, **options: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for explored in explore(scenario, range(seeds), options):
        assert explored.outcome.failure is None, explored.outcome.failure
        found += explored.coverage
    return found


@needs_the_disk
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "crash"])
def test_a_fault_that_had_nothing_to_strike_is_an_error(fault: str) -> None:
    """No model, no tool, no file, no user: a fault that was named for them has tested nothing, and is told by name."""
    found = reached(nothing, 3, faults=fault)
    with pytest.raises(CoverageError, match=f"3 seeds had nothing that could be struck by the faults '{fault}'"):
        check_faults(settings(3, faults=fault).named_faults, found, 3)


@needs_the_disk
def test_a_fault_that_could_strike_and_never_did_is_told() -> None:
    """By chance, in few seeds: that is no error, and no secret."""
    assert check_faults(["model"], {COULD_STRIKE.format("model"): 2}, 3) == [
        "the fault 'model' has struck in none of 3 seeds, though it could in 2 of them: use more seeds, or a"
        " scenario that does more"
    ]
    found = reached(talk, 12, faults=FAULTS)
    assert check_faults(FAULTS, found, 12) == []
    assert {name.format(fault) for fault in FAULTS for name in (COULD_STRIKE, HAS_STRUCK)} <= set(found)
    assert found[COULD_STRIKE.format("tools")] <= 12


def test_all_faults_name_none() -> None:
    """`"all"` is whatever there is; what has nothing to strike among that is no error."""
    assert settings(3, faults="all").named_faults == ()
    assert settings(3, faults=("tools", "crash")).named_faults == ("crash", "tools")
    assert settings(3).named_faults == ()
    assert reached(nothing, 3, faults="all", storage="memory")[COULD_STRIKE.format("tools")] == 0


def test_every_report_has_the_counters() -> None:
    """What the failing seed has reached stands between its choices and its log, on one line, whatever it is named."""

    async def scenario(world: World) -> None:
        world.reached("mine")
        world.reached("two\nlines")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as found:
        simulate(scenario, SeededChoices(3), storage="memory").check()
    assert "\nreached: mine 1, two\\nlines 1\nwhat happened" in found.value.__notes__[-1]


@needs_the_disk
def test_a_sync_can_find_no_room() -> None:
    """Some file systems say so no earlier; then it is unknown whether what was to be synced is stored."""

    async def scenario(world: World) -> None:
        async def logic(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="said"))

        runner = world.runner(lambda: Logic(name="agent", logic=logic))
        for text in ("one", "two", "three"):
            await world.say(runner, "ada", text)

    asked_again: set[str] = set()
    for seed in (195, *range(400)):  # the first one has shown it
        outcome = simulate(scenario, SeededChoices(seed), faults="storage")
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        told = [entry.what for entry in outcome.log if entry.who == "the disk"]
        if told and all(what.startswith("is full at a sync") for what in told):
            asked_again |= {name for name in outcome.coverage if name.startswith("asked again after Storage")}
        if asked_again:
            break
    assert asked_again == {"asked again after StorageUncertainError"}


TESTS = """
import pytest

@pytest.mark.simulation(seeds=2, faults="tools")
async def test_without_tools(world):
    pass

@pytest.mark.simulation(seeds=2, faults="crash")
async def test_without_luck(world):
    world.reached("mine")
"""


def run(folder: Path, *arguments: str) -> str:
    (folder / "test_it.py").write_text(TESTS, "utf-8")
    done = fork_server.run(arguments, cwd=folder, modules=PYTEST if "pytest" in arguments else MINIRUN)
    assert done.returncode == ("test_it.py::test_without_luck" not in arguments), done.stdout
    return done.stdout


def test_pytest_and_the_command_line_tell_it(tmp_path: Path) -> None:
    """Named and nothing to strike: a failure. Never struck by chance: a line at the end. With -v: all counters."""
    plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", *NOT_REWRITTEN]
    told = run(tmp_path, "-m", "pytest", "-v", *plain)
    assert "CoverageError: 2 seeds had nothing that could be struck by the faults 'tools' (no tool was called)" in told
    assert "1 failed, 1 passed" in told
    assert "test_it.py::test_without_luck: the fault 'crash' has struck in none of 2 seeds" in told
    assert "test_it.py::test_without_luck: 2 seeds: fault could strike: crash 2, mine 2" in told
    assert "mine 2" not in run(tmp_path, "-m", "pytest", *plain)
    command = ["-m", "minirun", "simulate"]
    assert "had nothing that could be struck by the faults 'tools'" in run(
        tmp_path, *command, "test_it.py::test_without_tools"
    )
    assert "the fault 'crash' has struck in none of 2 seeds" in run(tmp_path, *command, "test_it.py::test_without_luck")
