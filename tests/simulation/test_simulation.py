"""Simulations: the same choices are the same world, other choices are another one, and what is wrong is found."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections import Counter
from typing import Any

import pytest
import trio
import trio._core._run as trio_run
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import BaseAgent, Event, InvocationContext, LlmAgent
from minirun.errors import ConfigurationError, ModelContractError, ModelError
from minirun.simulation import (
    ChaosLlm,
    CheckError,
    DeadlockError,
    LivelockError,
    Outcome,
    RecordedChoices,
    SeededChoices,
    World,
    _private,
    _schedule,
    depth_first,
)
from minirun.simulation._chaos import FAULTS as MODEL_FAULTS

from ..examples import examples
from ..exhausting import all_outcomes
from ..reference_worlds import SCENARIOS, Bank, look_up, money, tools
from .stores import Scenario, Storage, shrink, simulate, why_unavailable
from .stores.strategy import DrawnChoices

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

STORAGES: tuple[Storage, ...] = ("memory", "sqlite")


class CarelessBank(BaseAgent):
    """Looks, lets others go on, and then writes what it has seen before: money is made and lost."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        _, amount, _, to = (ctx.user_content.text if ctx.user_content else "").split()
        mine, theirs = ctx.state[f"app:{ctx.user_id}"], ctx.state[f"app:{to}"]
        await ctx.emit(Event(message="one moment"))
        ctx.state[f"app:{ctx.user_id}"] = mine - int(amount)
        ctx.state[f"app:{to}"] = theirs + int(amount)
        await ctx.emit(Event(message="moved"))


FAULTS: dict[str, tuple[str, ...]] = {"memory": ("crash",), "sqlite": ("crash", "storage")}


def run(name: str, seed: int, storage: Storage, faults: tuple[str, ...] | None = None) -> Outcome:
    return simulate(
        SCENARIOS[name], SeededChoices(seed), storage=storage, faults=FAULTS[storage] if faults is None else faults
    )


# --- trio -------------------------------------------------------------------------------------------------------------


def test_trio_is_left_as_it_was() -> None:
    """A simulation seeds trio's own luck, and gives it back."""
    before = trio_run._r.getstate()
    run("tools", 1, "memory")
    assert trio_run._r.getstate() == before


def test_the_internals_of_trio_are_as_we_know_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: where this fails, a new trio needs a look. Without them a simulation runs, and says what it lacks."""
    assert _private.why_not_seeded() is None
    monkeypatch.delattr(trio_run, "_r")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _private.seeded_trio(1):
            pass
    assert ["no generator named _r" in str(one.message) for one in caught] == [True]


def test_nothing_is_left_of_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation collects what it leaves, so thousands of them take no more memory than one."""
    monkeypatch.setattr(logging.getLogger("minirun"), "disabled", True)  # pytest keeps each record with its traceback
    seen: list[weakref.ref[World]] = []

    async def scenario(world: World) -> None:
        seen.append(weakref.ref(world))
        await tools(world)

    for storage in STORAGES:
        assert simulate(scenario, SeededChoices(4), storage=storage, faults="all").failure is None
    assert [reference() for reference in seen] == [None, None]


def test_a_world_is_refused_when_its_run_has_ended() -> None:
    """In a later world, which it would be no part of, and outside of all; what has happened in it can be read."""
    kept: list[World] = []

    async def scenario(world: World) -> None:
        kept.append(world)
        world.note("ada", "waits")
        await kept[0].sleep(1)

    first, second = (simulate(scenario, SeededChoices(seed), storage="memory") for seed in (1, 2))
    assert first.failure is None
    assert isinstance(second.failure, ConfigurationError)
    assert "expected `world.sleep` while the world lives, found that its run has ended" in str(second.failure)
    for world in kept:
        with pytest.raises(ConfigurationError, match=r"expected `world.now` while"):
            _ = world.now
        for name in ("runner", "say", "state", "always", "eventually", "host", "restart", "heal", "note", "reached"):
            with pytest.raises(ConfigurationError, match=f"expected `world.{name}` while"):
                getattr(world, name)("anything", "there is", text="to say")
        assert "waits" in [entry.what for entry in world.log]


# --- choices ----------------------------------------------------------------------------------------------------------


def test_recorded_choices_wrap_around_and_end_dull() -> None:
    """Whatever the list, every choice is valid, and after its end all are 0."""
    choices = RecordedChoices([5, 1])
    assert [choices.choose(3, "a"), choices.choose(1, "b"), choices.choose(2, "c"), choices.choose(9, "d")] == [
        2,
        0,
        1,
        0,
    ]
    assert [choice.label for choice in choices.trace] == ["a", "c", "d"]


def test_every_way_is_gone_once() -> None:
    """Depth first exhausts all lists of choices, also where later choices depend on earlier ones."""
    found = []
    for choices in depth_first(10):
        first = choices.choose(3, "first")
        found.append((first, *(choices.choose(2, "more") for _ in range(first))))
    assert found == [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)]


class Quiet(BaseAgent):
    """Says nothing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        pass


class Once(BaseAgent):
    """Says one thing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        ctx.state.add("said", 1)
        await ctx.emit(Event(message="once"))


class Both(BaseAgent):
    """Says two things at the same time."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.emit, Event(message="a"))
            nursery.start_soon(ctx.emit, Event(message="b"))


async def two_users(world: World) -> None:
    """Two messages to one session at once."""
    runner = world.runner(lambda: Once(name="once"))
    async with trio.open_nursery() as nursery:
        for text in ("x", "y"):
            nursery.start_soon(world.say, runner, "ada", text)
    log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id="ada")
    world.note("order", " ".join(event.text for event in log if event.author == "user"))


async def two_emitters(world: World) -> None:
    """One run that says two things at once."""
    runner = world.runner(lambda: Both(name="both"))
    await world.say(runner, "ada", "go")
    log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id="ada")
    world.note("order", " ".join(event.text for event in log if event.author == "both"))


async def left_at_any_step(world: World) -> None:
    """A user who leaves, at every step at which one can, and then says something else."""
    runner = world.runner(lambda: Once(name="once"))

    async def user(scope: trio.CancelScope) -> None:
        with scope:
            await world.say(runner, "ada", "x")

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(user, scope)
        await world.schedule.point("leaving")
        scope.cancel()
    await world.say(runner, "ada", "y")
    log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id="ada")
    world.note("order", " ".join(event.text for event in log if event.author == "user"))


async def killed_at_any_step(world: World) -> None:
    """A process that dies at every step at which one can; its user asks again."""
    runner = world.runner(lambda: Once(name="once"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, runner, "ada", "x")
        await world.schedule.point("dying")
        await world.restart()
    log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id="ada")
    world.note("order", " ".join(event.text for event in log if event.text))


SMALL: dict[str, tuple[Scenario, Storage, set[str]]] = {
    "two users": (two_users, "memory", {"x y", "y x"}),
    "two emitters": (two_emitters, "memory", {"a b", "b a"}),
    "left": (left_at_any_step, "memory", {"y", "x y"}),
    "killed": (killed_at_any_step, "memory", {"x once", "x x once"}),
    "two users on disk": (two_users, "sqlite", {"x y", "y x"}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "two users on disk" else ()) for name in SMALL]
)
def test_a_small_configuration_is_exhausted(name: str) -> None:
    """Every schedule there is: none fails, and what can come of them all does."""
    scenario, storage, possible = SMALL[name]
    orders = all_outcomes(scenario, storage, told_by="order")
    print(f"{name}: {orders.total()} schedules")
    assert set(orders) == possible


# --- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
def test_a_lost_update_is_found_and_shrunk(storage: Storage) -> None:
    """A planted bug of a user's agent fails within a few seeds; few choices are left of it, and they fail again."""
    found = next(
        o for s in range(50) if (o := simulate(money(CarelessBank), SeededChoices(s), storage=storage)).failure
    )
    assert isinstance(found.failure, CheckError)
    assert "is_conserved" in str(found.failure)
    small = shrink(money(CarelessBank), found, storage=storage)
    interesting = [choice for choice in small.trace if choice.picked]
    assert len(interesting) <= 10
    again = simulate(money(CarelessBank), RecordedChoices(small.picks), storage=storage)
    assert (again.digest, type(again.failure)) == (small.digest, CheckError)


@settings(max_examples=examples(40))
@given(prefix=st.binary(max_size=40), tail=st.integers(0, 2**16))
def test_hypothesis_draws_worlds(prefix: bytes, tail: int) -> None:
    """Its choices come as bytes and a seed; nothing that is right fails."""
    outcome = simulate(money(Bank), DrawnChoices(prefix, tail), storage="memory", faults=("crash",))
    assert outcome.failure is None, outcome.failure


@pytest.mark.parametrize(
    ("seeds", "storage"),
    [
        pytest.param(12, "memory", id="some in memory"),
        pytest.param(6, "sqlite", id="some on disk"),
        pytest.param(10_000, "memory", id="many in memory", marks=pytest.mark.slow),
        pytest.param(3_000, "sqlite", id="many on disk", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", SCENARIOS)
def test_minirun_keeps_its_promises_in_every_world(name: str, seeds: int, storage: Storage) -> None:
    """No seed finds anything, and together they reach what they are for: crashes, also during recovery, and retries."""
    coverage: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = run(name, seed, storage)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        coverage += outcome.coverage
    assert coverage["crash"] > seeds // 4
    assert coverage["asked again after a crash"] > 0
    if storage == "sqlite":
        assert coverage["disk fault"] > 0


def test_a_wait_without_end_is_an_error() -> None:
    """Where nothing can ever go on, the simulation ends and says who waits where."""

    async def scenario(world: World) -> None:
        await trio.sleep_forever()

    failure = simulate(scenario, SeededChoices(1), storage="memory").failure
    assert isinstance(failure, DeadlockError)
    assert "scenario, test_simulation.py" in str(failure)


def test_a_run_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes on and on is ended, and says what it was doing."""
    monkeypatch.setattr(_schedule, "STEPS_MAX", 300)

    async def scenario(world: World) -> None:
        while True:
            await world.sleep(1)

    assert isinstance(simulate(scenario, SeededChoices(1), storage="memory").failure, LivelockError)


def test_eventually_is_checked_when_nothing_goes_wrong_any_more() -> None:
    """A check at the end sees everything settled; one that fails is a failure."""

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: Bank(name="bank"), state={"app:ada": 1, "app:bob": 1})
        world.eventually(lambda: world.state(runner) == {"app:ada": 0, "app:bob": 2})
        await world.say(runner, "ada", "move 1 to bob")
        if world.choices.choose(2, "twice"):
            await world.say(runner, "ada", "move 1 to bob")

    outcomes = [simulate(scenario, SeededChoices(seed), storage="memory") for seed in range(20)]
    assert {type(outcome.failure) for outcome in outcomes} == {type(None), CheckError}


# --- models without a script ------------------------------------------------------------------------------------------


async def transfer(amount: int, to: str, urgent: bool = False, tool_context: Any = None) -> str:
    """A tool with arguments of several kinds."""
    tool_context.state.add("app:sum", amount)
    return to if not urgent else to.upper()


async def explored(world: World) -> None:
    """Two users talk to an agent whose model makes its own way."""
    runner = world.runner(lambda: LlmAgent(name="agent", model=ChaosLlm(), tools=[transfer, look_up]))
    async with trio.open_nursery() as nursery:
        for user in ("ada", "bob"):
            nursery.start_soon(talk_twice, world, runner, user)


async def talk_twice(world: World, runner: Any, user: str) -> None:
    for _ in range(2):
        try:
            await world.say(runner, user, "hello")
        except (ModelContractError, ModelError):
            world.coverage["the user was told of the model's failure"] += 1


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("least", [pytest.param(1, id="some"), pytest.param(60, id="many", marks=pytest.mark.slow)])
def test_a_model_that_makes_its_own_way_breaks_nothing(storage: Storage, least: int) -> None:
    """Valid calls, unknown tools, bad arguments, equal ids, cut streams: every world ends well, and all are reached."""
    coverage: Counter[str] = Counter()
    reached: set[str] = set()
    wanted = {*MODEL_FAULTS, "raises", "stalls"}
    for seed in range(60):
        if seed >= least and reached == wanted:
            break
        outcome = simulate(explored, SeededChoices(seed), storage=storage, faults=("model", "crash"))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        coverage += outcome.coverage
        reached = {name.removeprefix("model: ") for name in coverage if name.startswith("model: ")}
    assert reached == wanted
    calm = simulate(explored, SeededChoices(1), storage=storage)
    assert (calm.failure, [name for name in calm.coverage if "model" in name]) == (None, [])
