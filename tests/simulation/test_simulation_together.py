"""Simulations share a `trio.run`, and none sees anything of those before it."""

from __future__ import annotations

import random
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import trio._core._run as trio_run

from minirun.simulation import (
    DeadlockError,
    LeakError,
    SeededChoices,
    World,
    _private,
    _simulate,
    simulate,
    why_unavailable,
)
from minirun.simulation._explore import explore
from minirun.simulation._simulate import Storage, simulate_each
from minirun.simulation._world import current_world

from ..reference_worlds import SCENARIOS

SEEDS = range(3)
STORAGES: tuple[Storage, ...] = ("memory",) if why_unavailable() else ("memory", "sqlite")


def tokens(scenario: Callable[[World], Awaitable[object]], seeds: int = 4) -> list[object]:
    """Simulate it with so many seeds, of which none may fail; which `trio.run` each was in."""
    found: list[object] = []

    async def noting(world: World) -> None:
        found.append(trio.lowlevel.current_trio_token())
        await scenario(world)

    for outcome in simulate_each(noting, map(SeededChoices, range(seeds)), storage="memory"):
        outcome.check()
    return found


async def nothing(world: World) -> None:
    """An empty scenario."""


async def stay() -> AsyncIterator[int]:
    """A generator that is left where it stands."""
    yield 1


# --- what they share ------------------------------------------------------------------------------------------------


def test_seeds_share_a_run() -> None:
    """To make a `trio.run` costs as much as some twenty steps, so there is one for several seeds."""
    assert len(set(tokens(nothing))) == 1


def test_a_run_is_shared_until_its_seeds_have_made_enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a caller does not wait for long until it is told of the first."""
    monkeypatch.setattr(_simulate, "STEPS_TOGETHER", 1)
    assert len(set(tokens(nothing))) == 4


def test_what_is_asked_for_is_simulated_not_much_ahead() -> None:
    """Choices may come without end: some are taken at a time."""
    begun: list[int] = []

    async def scenario(world: World) -> None:
        begun.append(1)
        for _ in range(200):
            await world.schedule.point("step")

    def endless() -> Any:
        while True:
            yield SeededChoices(1)

    next(simulate_each(scenario, endless(), storage="memory"))
    assert len(begun) <= 6


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_is_the_same_world_alone_and_together(name: str, storage: Storage) -> None:
    """To the byte of the log and to the last choice, with everything that may go wrong."""
    together = simulate_each(SCENARIOS[name], map(SeededChoices, SEEDS), storage=storage, faults="all")
    for seed, outcome in zip(SEEDS, together, strict=True):
        alone = simulate(SCENARIOS[name], SeededChoices(seed), storage=storage, faults="all")
        assert outcome.seed == seed
        assert (outcome.digest, outcome.trace, outcome.coverage) == (alone.digest, alone.trace, alone.coverage)


def test_a_seed_that_fails_is_the_last_of_its_run() -> None:
    """It fails as it does alone, is told at once, and the others go on after it."""
    begun: list[object] = []

    async def scenario(world: World) -> None:
        begun.append(trio.lowlevel.current_trio_token())
        if len(begun) == 2:
            raise RuntimeError("the second one")

    found = [outcome.failure for outcome in simulate_each(scenario, map(SeededChoices, range(4)), storage="memory")]
    assert [str(failure) for failure in found] == ["None", "the second one", "None", "None"]
    assert begun[0] is begun[1] is not begun[2] is begun[3]


def test_a_world_that_has_to_be_left_behind_takes_no_other_with_it() -> None:
    """Where a task refuses to end, its whole run is given up; the next seed has another one."""
    begun: list[World] = []

    async def refuse() -> None:
        while True:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                if begun[-1] is not begun[1]:
                    raise

    async def scenario(world: World) -> None:
        begun.append(world)
        if len(begun) == 2:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refuse)

    found = [outcome.failure for outcome in simulate_each(scenario, map(SeededChoices, range(3)), storage="memory")]
    assert [type(failure) for failure in found] == [type(None), DeadlockError, type(None)]


def test_ctrl_c_ends_all_of_them() -> None:
    """What is no failure is raised, and no seed after it begins."""
    begun: list[World] = []

    async def scenario(world: World) -> None:
        begun.append(world)
        if len(begun) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(simulate_each(scenario, map(SeededChoices, range(4)), storage="memory"))
    assert len(begun) == 2


def test_a_search_shares_runs_between_the_seeds_that_it_runs_twice() -> None:
    """Every 20th seed has one for itself; the outcomes come in order, with their own coverage."""
    begun: list[object] = []

    async def scenario(world: World) -> None:
        begun.append(trio.lowlevel.current_trio_token())
        world.reached("begun")

    found = list(explore(scenario, range(22), {"storage": "memory"}))
    assert [each.seed for each in found] == list(range(22))
    assert all(each.coverage["begun"] == 1 for each in found)
    assert len(set(begun)) == 2 + 1 + 2 + 1  # seeds 0, 1 to 19, 20, 21


# --- what they do not see -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["context variable", "variable of the run", "time", "world", "randomness", "warning"])
def test_a_seed_begins_as_the_first_one_does(name: str) -> None:
    """Whatever the one before has set, waited or drawn is not there any more, though they share a run."""
    of_context: ContextVar[int] = ContextVar("of a seed")
    of_run: trio.lowlevel.RunVar[int] = trio.lowlevel.RunVar("of a seed")
    drawn: set[object] = set()

    async def scenario(world: World) -> None:
        if name == "context variable":
            assert of_context.get(0) == 0
            of_context.set(1)
        elif name == "variable of the run":
            assert of_run.get(0) == 0
            of_run.set(1)
        elif name == "time":
            assert trio.current_time() == 0
            await world.sleep(100)
        elif name == "world":
            assert current_world() is world
        elif name == "randomness":
            drawn.add(trio_run._r.getstate())
        else:
            assert "of a seed" not in str(warnings.filters)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "of a seed")
                await world.sleep(1)

    assert len(set(tokens(scenario))) == 1
    alone = simulate(scenario, SeededChoices(1), storage="memory").check()
    assert alone.failure is None
    assert len(drawn) in (0, 4)  # by seed, and seed 1 drew the same alone


@pytest.mark.parametrize("name", ["task", "callback", "generator", "instrument"])
def test_a_run_in_which_something_is_left_is_not_shared(name: str) -> None:
    """What a seed has left in its `trio.run` ends with that, as it does where the seed is alone."""
    kept: list[AsyncIterator[int]] = []

    async def scenario(world: World) -> None:
        if name == "task":
            trio.lowlevel.spawn_system_task(trio.sleep_forever)
        elif name == "callback":
            trio.lowlevel.current_trio_token().run_sync_soon(list)
        elif name == "generator":
            kept.append(stay())
            await anext(kept[-1])
        else:
            trio.lowlevel.add_instrument(Watching())

    runs = tokens(scenario)
    assert len(set(runs)) == (1 if name == "callback" else 4)  # that one is called before its seed has ended


class Watching(trio.abc.Instrument):
    """Watches the ends of tasks, and says nothing."""

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        pass


def test_nothing_of_a_seed_ends_during_the_next_one() -> None:
    """What it has dropped in circles is collected before, so that its last words are not heard in another world."""
    events: list[str] = []

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            events.append("gone")

    async def scenario(world: World) -> None:
        events.append("begins")
        Last()
        assert events[-1] == "begins"

    tokens(scenario, 3)
    assert events == ["begins", "gone"] * 3


def test_a_leak_is_that_of_its_own_seed() -> None:
    """A draw from `random` fails the seed that has drawn, and what was replaced stays so for the next ones."""
    begun: list[World] = []
    draw = random.random

    async def scenario(world: World) -> None:
        begun.append(world)
        if len(begun) == 2:
            random.random()

    found = [outcome.failure for outcome in simulate_each(scenario, map(SeededChoices, range(4)), storage="memory")]
    assert [type(failure) for failure in found] == [type(None), LeakError, type(None), type(None)]
    assert random.random is draw


def test_where_trio_is_another_each_seed_has_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run holds cannot be known there, so nothing is shared."""
    monkeypatch.setattr(_private, "_runner", lambda: None)
    assert len(set(tokens(nothing))) == 4
