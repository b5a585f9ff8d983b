"""A world that does not come to its end is ended, and says with which seed, who waits for what, and where."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import repeat
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import InvocationContext, LlmAgent, RunConfig
from minirun.errors import DeadlineExceededError
from minirun.simulation import (
    DeadlockError,
    LivelockError,
    Outcome,
    RunawayClockError,
    SeededChoices,
    WatchdogError,
    World,
    _hangs,
    _schedule,
    _watchdog,
)
from minirun.testing import ScriptedLlm, call

from ..fork_server import run
from ..helpers import Logic
from .stores import Scenario, Storage, explore, replay, simulate, why_unavailable
from .stores.sqlite_store import SqliteStore

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

STORAGES: tuple[Storage, ...] = ("memory", "sqlite")

Tool = Callable[[], Awaitable[str]]


def with_tools(make: Callable[[], tuple[Tool, ...]], **options: Any) -> Scenario:
    """Ada's model calls all tools at once; *make* makes them anew for each world."""

    async def scenario(world: World) -> None:
        tools = make()

        def model(request: Any) -> Any:
            is_answered = request.contents[-1].parts[-1].function_response is not None
            return "done" if is_answered else [call(tool.__name__) for tool in tools]

        runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(model), tools=list(tools)))
        await world.say(runner, "ada", "go", run_config=RunConfig(**options))

    return scenario


def alone(work: Callable[[World], Awaitable[object]]) -> Scenario:
    """Ada's agent does *work*."""

    async def scenario(world: World) -> None:
        async def logic(ctx: InvocationContext) -> None:
            await work(world)

        await world.say(world.runner(lambda: Logic(name="agent", logic=logic)), "ada", "go")

    return scenario


def crossed(*, shield: bool, patience_s: float = inf) -> Callable[[], tuple[Tool, ...]]:
    """Two tools that take two locks, in opposite orders."""

    def make() -> tuple[Tool, ...]:
        left, right = trio.Lock(), trio.Lock()

        async def both(first: trio.Lock, second: trio.Lock) -> str:
            with trio.CancelScope(shield=shield):
                async with first:
                    await trio.sleep(1)
                    with trio.move_on_after(patience_s):
                        async with second:
                            return "both"
            return "one"

        async def forth() -> str:
            """Left, then right."""
            return await both(left, right)

        async def back() -> str:
            """Right, then left."""
            return await both(right, left)

        return forth, back

    return make


def ended(scenario: Scenario, storage: Storage = "memory", seed: int = 1, **options: Any) -> Outcome:
    """What the seed came to: the same, to the byte, when it is simulated again."""
    outcome = simulate(scenario, SeededChoices(seed), storage=storage, **options)
    again = simulate(scenario, SeededChoices(seed), storage=storage, **options)
    assert (outcome.digest, outcome.picks, str(outcome.failure)) == (again.digest, again.picks, str(again.failure))
    return outcome


# --- deadlocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("shield", [True, False])
def test_a_deadlock_fails_at_once(storage: Storage, shield: bool) -> None:
    """Two tools with two locks: neither a shield nor the run's deadline nor the renewals of its lease hide it."""
    outcome = ended(with_tools(crossed(shield=shield)), storage)
    assert isinstance(outcome.failure, DeadlockError)
    told = str(outcome.failure)
    assert told.startswith("a deadlock: tool `back` of ada waits for tool `forth` of ada, which waits for tool `back`")
    assert "/tool back: waits for a Lock held by /scenario/process 1/say ada 1/minirun agent" in told
    assert "in crossed.<locals>.make.<locals>.both, test_simulation_hangs.py:" in told
    assert outcome.steps < 100
    assert outcome.log[-1].at_s <= 60


def test_a_lock_that_is_tried_for_a_while_is_no_deadlock() -> None:
    """A deadline of one's own ends such a circle; so there is none."""
    for seed in range(20):
        simulate(with_tools(crossed(shield=True, patience_s=2)), SeededChoices(seed), storage="memory").check()


def test_who_holds_a_lock_and_waits_for_a_child_that_wants_it() -> None:
    """A nursery waits for its tasks, so a circle goes through it as well."""

    async def work(world: World) -> None:
        lock = trio.StrictFIFOLock()

        async def child() -> None:
            async with lock:
                pass

        with trio.CancelScope(shield=True):
            async with lock, trio.open_nursery() as nursery:
                nursery.start_soon(child)

    outcome = ended(alone(work), "sqlite")
    assert isinstance(outcome.failure, DeadlockError)
    assert "a deadlock: task `child` of ada waits for the agent of ada, which waits for task `child`" in str(
        outcome.failure
    )


@pytest.mark.parametrize("storage", STORAGES)
def test_a_wait_that_only_the_usual_deadline_ends_is_a_deadlock(storage: Storage) -> None:
    """Nobody has asked for an hour; who waits for what nobody does waits for ever."""

    async def work(world: World) -> None:
        await trio.Event().wait()

    outcome = ended(alone(work), storage)
    assert isinstance(outcome.failure, DeadlockError)
    assert "the agent of ada waits for ever: nothing can go on but by RunConfig.deadline_s=3600.0" in str(
        outcome.failure
    )
    assert "waits for an Event, at most until 3600 s" in str(outcome.failure)


def test_a_wait_for_nobody_after_time_has_passed_is_a_deadlock() -> None:
    """The clock notices that nothing is left to jump to, also where no task has come to a point meanwhile."""

    async def scenario(world: World) -> None:
        await trio.sleep(5)
        await trio.Event().wait()

    failure = ended(scenario).failure
    assert isinstance(failure, DeadlockError)
    assert "nothing can go on" in str(failure)
    assert "/scenario: waits for an Event" in str(failure)


def test_who_waits_until_all_others_wait_is_no_deadlock() -> None:
    """Such a task goes on when nobody else can, so it is not the end of the world that nobody else ever will."""

    async def scenario(world: World) -> None:
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()

    simulate(scenario, SeededChoices(1), storage="memory").check()


def test_a_deadline_that_was_asked_for_says_how_the_tasks_waited() -> None:
    """It is a failure of the run, which a scenario may expect; told are all tasks at that moment."""

    def make() -> tuple[Tool, ...]:
        async def hang() -> str:
            """Wait for ever."""
            send, receive = trio.open_memory_channel[str](0)
            with send:
                return await receive.receive()

        return (hang,)

    outcome = ended(with_tools(make, deadline_s=5))
    assert isinstance(outcome.failure, DeadlineExceededError)
    [note] = [note for note in outcome.failure.__notes__ if note.startswith("when a run met its deadline")]
    assert "/tool hang: waits to receive from a memory channel of 0 of 0 items, 1 open senders, at most until 5" in note


def test_a_tool_may_be_called_as_if_it_kept_a_lease() -> None:
    """Only the task that renews a lease does nothing for the world while it sleeps, not a tool of such a name."""

    def make() -> tuple[Tool, ...]:
        async def release() -> str:
            await trio.sleep(7200)
            return "late"

        return (release,)

    assert isinstance(ended(with_tools(make)).failure, DeadlineExceededError)


def test_two_tasks_never_have_one_name() -> None:
    """Whatever programs call them: a number that another one is called by is left out."""

    async def scenario(world: World) -> None:
        async def work() -> None:
            await world.schedule.point("work")
            names.append(world.schedule.name_of(trio.lowlevel.current_task()))

        async with trio.open_nursery() as nursery:
            for name in ("a", "a", "a:2", "b:2", "b", "b", "a"):
                nursery.start_soon(work, name=name)

    names: list[str] = []
    simulate(scenario, SeededChoices(0), storage="memory").check()
    assert sorted(name.rpartition("/")[2] for name in names) == ["a", "a:2", "a:2:2", "a:3", "b", "b:2", "b:3"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_whatever_is_raised_fails_the_seed(error: BaseException) -> None:
    """Also what is no Exception, but for Ctrl-C: it has a seed, and may be shrunk and replayed as any other failure."""

    async def scenario(world: World) -> None:
        if world.choices.choose(4, "rare") == 3:
            raise error

    failures = [explored.outcome.failure for explored in explore(scenario, range(20), {"storage": "memory"})]
    assert {type(failure) for failure in failures} == {type(None), type(error)}


def test_a_poll_that_only_the_deadline_ends_is_told_by_it() -> None:
    """Who asks again and again is no deadlock; but that it was asking is told with the deadline."""

    async def work(world: World) -> None:
        for _ in repeat(None):
            await trio.sleep(1)

    outcome = ended(alone(work))
    assert isinstance(outcome.failure, DeadlineExceededError)
    assert any("agent of" in line and "sleeps" in line for line in outcome.failure.__notes__[-1].splitlines())


def test_what_is_left_over_at_the_end_ends() -> None:
    """Who has left a tool behind a shield that nobody can wake keeps no world from ending, and is told of."""

    async def scenario(world: World) -> None:
        async def for_ever() -> None:
            with trio.CancelScope(shield=True):
                await trio.Event().wait()

        world._nursery.start_soon(for_ever)

    failure = ended(scenario).failure
    assert isinstance(failure, DeadlockError)
    assert "for_ever: waits for an Event, shielded" in str(failure)


@pytest.mark.parametrize("storage", STORAGES)
def test_what_is_shielded_is_cancelled_and_may_clean_up(storage: Storage) -> None:
    """It loses its shields, one after the other, also where time goes on beside it."""
    heard: list[str] = []

    async def work(world: World) -> None:
        lock = trio.Lock()
        await lock.acquire()
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lock.acquire)
            except BaseException:
                heard.append("cancelled")
                with trio.CancelScope(shield=True):
                    try:
                        await trio.Event().wait()
                    except trio.Cancelled:
                        heard.append("cancelled again")
                        raise
                raise

    assert isinstance(simulate(alone(work), SeededChoices(1), storage=storage).failure, DeadlockError)
    assert heard == ["cancelled", "cancelled again"]


# --- what goes on and on ----------------------------------------------------------------------------------------------


async def swallows(world: World) -> None:
    """Goes on, whatever it is told."""
    while True:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            pass


async def swallows_points(world: World) -> None:
    """The same at points, of which each is a step."""
    while True:
        try:
            await world.schedule.point("again")
        except (trio.Cancelled, LivelockError):
            pass


async def sleeps_shielded(world: World) -> None:
    """A short sleep after the other, which nothing ends."""
    with trio.CancelScope(shield=True):
        for _ in repeat(None):
            await trio.sleep(0.001)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("work", [swallows, swallows_points, sleeps_shielded])
def test_a_spin_ends_even_where_it_swallows_its_cancellation(
    work: Callable[[World], Awaitable[object]], storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left behind where it stands; the next simulation has nothing of it, and no file is left."""
    monkeypatch.setattr(_schedule, "TURNS_MAX", 3_000)
    monkeypatch.setattr(_schedule, "STEPS_MAX", 300)
    monkeypatch.setattr(_hangs, "ENDING_TURNS_MAX", 2_000)
    folders: list[Path] = []

    async def works(world: World) -> None:
        if isinstance(world.store, SqliteStore):
            folders.append(world.store._root)
        await work(world)

    failure = ended(alone(works), storage).failure
    assert isinstance(failure, LivelockError)
    assert f"in {work.__name__}, test_simulation_hangs.py:" in str(failure)
    assert not any(folder.exists() for folder in folders)

    async def fine(world: World) -> None:
        await world.sleep(1)

    simulate(alone(fine), SeededChoices(1), storage=storage).check()


async def backs_off(world: World) -> None:
    """Waits ever longer."""
    pause_s = 1.0
    while True:
        await trio.sleep(pause_s)
        pause_s *= 2


async def looks_daily(world: World) -> None:
    """Looks once a day, for ever."""
    for _ in repeat(None):
        await trio.sleep(86_400)


@pytest.mark.parametrize("work", [backs_off, looks_daily])
def test_a_clock_that_runs_away_is_stopped(work: Callable[[World], Awaitable[object]]) -> None:
    """Time that passes again and again with nothing coming of it, or beyond all bounds."""
    outcome = ended(work)
    assert isinstance(outcome.failure, RunawayClockError)
    assert "/scenario: sleeps, at most until " in str(outcome.failure)
    assert f"in {work.__name__}, test_simulation_hangs.py:" in str(outcome.failure)


@pytest.mark.parametrize("shield", [True, False])
def test_a_loop_that_naps_is_told_by_how_often_time_passes(shield: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each nap is a round of trio's loop, and takes ten times as long as a turn without one; so fewer of them will do. A
    step begins a new count.
    """
    monkeypatch.setattr(_hangs, "JUMPS_MAX", 1_000)
    naps = 0

    async def scenario(world: World) -> None:
        nonlocal naps
        for _ in range(3):
            for _ in range(90):
                await trio.sleep(1)
            await world.sleep(1)
        naps = 0
        with trio.CancelScope(shield=shield):
            while True:
                await trio.sleep(1)
                naps += 1

    failure = simulate(scenario, SeededChoices(1), storage="memory").failure
    assert isinstance(failure, LivelockError)
    assert "no end after time has passed 1000 times since step 4; the tasks:" in str(failure)
    assert "in test_a_loop_that_naps" in str(failure)
    assert naps in (1_000, 1_001)
    assert _hangs.JUMPS_MAX * 5 < _schedule.TURNS_MAX


async def waits_behind_a_shield() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def waits_whatever_cancels_it() -> None:
    while True:
        with suppress(BaseException):
            await trio.sleep_forever()


async def sleeps_behind_shields() -> None:
    while True:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)


async def spins_behind_shields() -> None:
    while True:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize(
    ("at_its_end", "error"),
    [
        (waits_behind_a_shield, DeadlockError),
        (waits_whatever_cancels_it, LivelockError),
        (sleeps_behind_shields, LivelockError),
        (spins_behind_shields, LivelockError),
    ],
)
def test_a_generator_that_is_left_and_does_not_end_is_told(
    at_its_end: Callable[[], Awaitable[None]], error: type[Exception], is_kept: bool
) -> None:
    """trio ends it outside of the world, and the run would wait for it for ever."""
    kept: list[object] = []

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await at_its_end()

    async def scenario(world: World) -> None:
        if world.choices.seed == 1:
            left = generator()
            await anext(left)
            kept.extend([left] * is_kept)

    outcomes = [simulate(scenario, SeededChoices(seed), storage="memory") for seed in range(3)]
    assert [type(outcome.failure) for outcome in outcomes] == [type(None), error, type(None)]
    assert f"in {at_its_end.__name__}" in str(outcomes[1].failure)


def test_what_is_cancelled_is_said_to_be() -> None:
    """Its deadline is that of nobody."""

    async def scenario(world: World) -> None:
        for _ in repeat(None):
            await trio.sleep(1)

    failure = simulate(scenario, SeededChoices(1), storage="memory").failure
    assert isinstance(failure, LivelockError)
    assert "-inf" not in str(failure)


def test_long_waits_are_none() -> None:
    """Ten years of days, of which each has something to do."""

    async def scenario(world: World) -> None:
        for _ in range(3_650):
            await world.sleep(86_400)

    simulate(scenario, SeededChoices(1), storage="memory").check()


def test_code_that_never_gives_control_back_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real time ends it, once; its error is always the same, and where the code was is a note."""
    monkeypatch.setattr(_watchdog, "WATCHDOG_S", 0.2)
    monkeypatch.setattr(_watchdog, "LOOK_EVERY_S", 0.05)
    runs: list[int] = []

    async def work(world: World) -> None:
        runs.append(1)
        while True:
            pass

    [explored] = explore(alone(work), [20], {"storage": "memory"})
    outcome = explored.outcome
    assert isinstance(outcome.failure, WatchdogError)
    assert "in work" not in str(outcome.failure)
    assert "in test_code_that_never_gives_control_back_is_interrupted.<locals>.work" in outcome.failure.__notes__[0]
    assert "/scenario: waits for an Event" in outcome.failure.__notes__[0]
    assert len(runs) == 1
    assert replay(alone(work), outcome.picks, {"storage": "memory"}).digest == outcome.digest
    assert len(runs) == 2

    async def fine(world: World) -> None:
        await world.sleep(1)

    simulate(alone(fine), SeededChoices(1), storage="memory", strict=True).check()  # profiled, which would hang


SWALLOWS = """
import threading, time
from minirun.simulation import SeededChoices, _watchdog, simulate
vars(_watchdog).update(WATCHDOG_S=0.2, LOOK_EVERY_S=0.05, AGAIN_S=0.05, GIVE_UP_S=0.2)

async def swallows(world):
    while True:
        try:
            while True:
                try:
                    time.perf_counter()
                except:
                    pass
        except:  # between two turns of the loop, too
            pass

async def waits_outside_of_python(world):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""


@pytest.mark.parametrize("scenario", ["swallows", "waits_outside_of_python"])
def test_what_cannot_be_interrupted_ends_its_process(scenario: str) -> None:
    """It would never end: stderr has the seed, where the code was, and how the tasks waited."""
    done = run(["-c", f"{SWALLOWS}\nsimulate({scenario}, SeededChoices(17))"])
    assert done.returncode == _watchdog.EXIT_STATUS
    assert "the simulation of seed 17 does not end, whatever interrupts it" in done.stderr
    assert f"in {scenario}" in done.stderr
    assert "/scenario" in done.stderr
    assert "WatchdogError: the simulation does not end" in done.stderr


def test_under_pytest_it_is_seen_although_output_is_captured(tmp_path: Path) -> None:
    """What a test prints is kept from the terminal, and would end with the process."""
    test = "\n\nimport pytest\ntest_it = pytest.mark.simulation(1)(swallows)\n"
    (tmp_path / "test_it.py").write_text(SWALLOWS + test)
    done = run(["-m", "pytest", "-p", "no:cacheprovider", "test_it.py"], cwd=tmp_path)
    assert done.returncode == _watchdog.EXIT_STATUS
    assert "the simulation of seed 0 does not end, whatever interrupts it" in done.stderr


def join_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watchdog, "IDLE_S", 0.0)
    for thread in threading.enumerate():
        if thread.name == _watchdog.NAME:
            thread.join(120)
            assert not thread.is_alive()


def test_a_program_that_was_stopped_is_not_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks an hour has passed, as after Ctrl-Z: nothing is interrupted."""
    looks: list[str] = []
    monkeypatch.setattr(_watchdog, "LOOK_EVERY_S", 0.01)

    def clock() -> float:
        looks.append(threading.current_thread().name)
        return 3_600.0 * looks.count(_watchdog.NAME)

    monkeypatch.setattr(_watchdog, "monotonic", clock)

    async def scenario(world: World) -> None:
        looks.clear()
        while looks.count(_watchdog.NAME) < 3:
            pass

    simulate(scenario, SeededChoices(1), storage="memory").check()
    join_the_watchdog(monkeypatch)  # which has seen this clock


def test_the_watchdog_ends_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is there while simulations are, and a little longer."""
    monkeypatch.setattr(_watchdog, "LOOK_EVERY_S", 0.01)

    async def scenario(world: World) -> None:
        await world.sleep(1)

    simulate(scenario, SeededChoices(1), storage="memory").check()
    join_the_watchdog(monkeypatch)


def test_the_watchdog_keeps_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread has looked at a simulation, and sleeps; nothing of the simulation is left all the same."""
    looks: list[str] = []
    seen: list[weakref.ref[World]] = []
    monkeypatch.setattr(_watchdog, "LOOK_EVERY_S", 0.01)

    def clock() -> float:
        looks.append(threading.current_thread().name)
        return 0.0

    monkeypatch.setattr(_watchdog, "monotonic", clock)

    async def scenario(world: World) -> None:
        seen.append(weakref.ref(world))
        looks.clear()
        while looks.count(_watchdog.NAME) < 2:
            pass

    simulate(scenario, SeededChoices(1), storage="memory").check()
    gc.collect()  # which a simulation leaves to whoever has frozen what was there, as conftest.py has
    assert seen[0]() is None


# --- what is told -----------------------------------------------------------------------------------------------------


def test_everything_that_can_be_waited_for_has_words() -> None:
    """Limiters, semaphores, conditions, channels and sleeps, each with what there is to it."""
    limiter, semaphore, condition = trio.CapacityLimiter(1), trio.Semaphore(0), trio.Condition()
    send, receive = trio.open_memory_channel[int](1)

    async def wait_for_condition() -> None:
        async with condition:
            await condition.wait()

    async def borrow() -> None:
        async with limiter:
            await trio.sleep_forever()

    async def send_two() -> None:
        await send.send(1)
        await send.send(2)

    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            for work in (wait_for_condition, semaphore.acquire, send_two, borrow, trio.sleep_forever):
                nursery.start_soon(work, name=work.__name__)
            await world.sleep(1)
            nursery.start_soon(limiter.acquire, name="second")
            nursery.start_soon(trio.sleep, 50, name="sleeper")
            nursery.start_soon(world.sleep, 20, name="parks")
            await world.sleep(20)
            told.append(world.schedule.hangs.dump())
            nursery.cancel_scope.cancel()

    told: list[str] = []
    simulate(scenario, SeededChoices(1), storage="memory").check()
    receive.close()
    lines = {line.strip().partition(": ")[0]: line.partition(": ")[2] for line in told[0].splitlines() if ": " in line}
    assert lines["/scenario/wait_for_condition"] == "waits for a Condition to be notified"
    assert lines["/scenario/acquire"] == "waits for a Semaphore, whose value is 0"
    assert lines["/scenario/send_two"] == "waits to send into a memory channel of 1 of 1 items, 1 open receivers"
    assert lines["/scenario/sleep_forever"] == "sleeps for ever"
    assert lines["/scenario/second"] == "waits for a CapacityLimiter, 1 of 1 borrowed, by /scenario/borrow"
    assert lines["/scenario/sleeper"] == "sleeps, at most until 51 s"


def test_the_seed_is_in_the_report() -> None:
    """Who asks an outcome of a seed is told which it was."""
    with pytest.raises(DeadlockError) as found:
        simulate(with_tools(crossed(shield=True)), SeededChoices(17), storage="memory").check()
    assert found.value.__notes__[-1].startswith("seed: 17\n")
