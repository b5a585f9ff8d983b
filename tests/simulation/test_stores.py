"""The store of a world, what goes wrong with it, its leases, and stores and observers of a user's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent
from minirun.errors import StaleSessionError
from minirun.sessions import SessionKey, SessionWriter
from minirun.simulation import CheckError, MemoryStore, Observer, Process, SeededChoices, World, simulate
from minirun.testing import ScriptedLlm, call

from ..fork_server import NOT_REWRITTEN, PYTEST, run
from ..helpers import Logic
from ..worlds import KEEPING, SHARING, WORLDS
from .stores import Scenario, checked
from .stores import simulate as simulate_checked


async def look_up(name: str, tool_context: Any) -> str:
    """A tool that counts."""
    tool_context.state.add("app:looked", 1)
    return name.upper()


def scripted(request: Any) -> Any:
    waiting = request.contents[-1].parts[-1].function_response is None
    return [call("look_up", name="a"), call("look_up", name="b")] if waiting else "done"


async def busy(world: World) -> None:
    """Three users, two of them on one session, with a model that calls tools."""
    runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(scripted), tools=[look_up]))

    async def talk(user: str, session: str) -> None:
        answer = await world.say(runner, user, "hello", session_id=session)
        assert answer is not None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "ada", "one")
        nursery.start_soon(talk, "ada", "one")
        nursery.start_soon(talk, "bob", "two")


def reached(scenario: Scenario, wanted: Collection[str], seeds: int = 80, **options: Any) -> Counter[str]:
    """What happens in so many seeds at most, in none of which a checker finds anything: all that is *wanted*."""
    found: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = simulate_checked(scenario, SeededChoices(seed), storage="memory", **options)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        found += outcome.coverage
        if set(wanted) <= set(found):
            break
    assert set(wanted) <= set(found), set(wanted) - set(found)
    return found


# --- what goes wrong with the store in memory -------------------------------------------------------------------------

REACHED: dict[str, set[str]] = {
    "storage": {"store: is refused", "store: is slow", "store: loses its acknowledgement"}
    | {"asked again after StorageRolledBackError", "asked again after StorageUncertainError"},
    "crash": {"crash", "crash in recovery", "asked again after a crash", "answer found when asking again"},
    "users": {"cancel during commit", "user left", "double send"},
}


@pytest.mark.parametrize("fault", REACHED)
def test_what_is_stored_in_memory_meets_every_fault(fault: str) -> None:
    """Writes are refused, slow, or stored without an acknowledgement; a run is cancelled during a commit."""
    found = reached(busy, REACHED[fault], faults=fault)
    assert not any(name.startswith("store: ") for name in found) or fault == "storage"


def test_a_process_dies_before_and_after_a_commit() -> None:
    """Nothing fails but processes: some events are not stored, and some are stored although nobody was told."""
    found = reached(busy, {"stored and not told", "asked again after a crash"}, faults="crash")
    assert not any(name.startswith("store: ") for name in found)


def test_a_process_that_stands_still_loses_its_lease() -> None:
    """Another one enters the session when the lease has run out, and not before; the first one is refused then."""
    waited_s: list[float] = []

    async def scenario(world: World) -> None:
        async def stay(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="one"))
            if not world.schedule.stalled and trio.current_time() == 0:
                process = "/".join(world.schedule.name_of(trio.lowlevel.current_task()).split("/")[:3])
                world.schedule.stalled[process] = 500.0
            await ctx.emit(Event(message="two"))

        runner = world.runner(lambda: Logic(name="agent", logic=stay))
        refused = False

        async def first() -> None:
            nonlocal refused
            try:
                await world.say(runner, "ada", "go")
            except StaleSessionError:
                refused = trio.current_time() == 500

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await trio.sleep(5)
            await world.say(runner, "ada", "go")
            entered_s = trio.current_time()
        if refused:  # else the second message has come to the process that stands still, too
            waited_s.append(entered_s)

    for seed in range(20):
        simulate(scenario, SeededChoices(seed), processes=2).check()
    assert len(waited_s) >= 3
    assert all(30 <= seconds < 32 for seconds in waited_s), waited_s


def test_a_process_that_stands_still_stops_no_other() -> None:
    """Time passes for the others, also while nothing is parked but tasks that stand still."""

    async def scenario(world: World) -> None:
        async def wait(seconds: float) -> None:
            await world.sleep(seconds)
            woken_s.append(trio.current_time())

        woken_s: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 1, name="still")
            nursery.start_soon(wait, 5, name="other")
            world.schedule.stalled["/scenario/still"] = 100.0
        assert woken_s == [5, 100]

    for seed in range(5):
        simulate(scenario, SeededChoices(seed)).check()


def test_several_processes_share_a_store_in_memory() -> None:
    """They take leases over, meet conflicts and stand still, and every promise is kept."""
    wanted = {"lease taken over", "conflict", "stall", "cancel during commit", "stored and not told"}
    reached(busy, wanted, faults=("crash", "storage", "users"), processes=2)


def test_one_process_runs_a_session_at_a_time() -> None:
    """Nothing goes wrong, so no lease runs out: the runs of one session never meet, whichever processes they are in."""
    inside: list[str] = []

    async def scenario(world: World) -> None:
        inside.clear()

        async def stay(ctx: InvocationContext) -> None:
            inside.append(ctx.invocation_id)
            assert len(inside) == 1
            await ctx.emit(Event(message="one"))
            await world.sleep(100)  # longer than a lease lasts, which is renewed
            await ctx.emit(Event(message="two"))
            inside.remove(ctx.invocation_id)

        runner = world.runner(lambda: Logic(name="agent", logic=stay))
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(world.say, runner, "ada", "go")

    for seed in range(20):
        simulate_checked(scenario, SeededChoices(seed), storage="memory", processes=3).check()


TROUBLED = {
    name: scenario
    for name, (scenario, options) in {**WORLDS, **KEEPING, **SHARING}.items()
    if {"crash", "storage"} <= set(options["faults"])
}


@pytest.mark.parametrize("name", TROUBLED)
def test_what_holds_on_a_disk_holds_in_memory_for_two_processes(name: str) -> None:
    """The worlds that are made for crashes and failing writes keep minirun's promises over this store, too."""
    for seed in range(3):
        outcome = simulate_checked(
            TROUBLED[name], SeededChoices(seed), storage="memory", processes=2, faults=("crash", "storage")
        )
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"


# --- stores and observers of one's own --------------------------------------------------------------------------------


class Diary(Observer):
    """Writes down what it is told."""

    told: list[str]

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.told = []
        DIARIES.append(self)

    def stored(self, key: SessionKey, event: Event, writer: SessionWriter | None, *, begins: bool) -> None:
        self.told.append(f"{key.user_id}: {event.text}{' begins' if begins else ''}")

    def ended(self, writer: SessionWriter, status: Any) -> None:
        self.told.append(f"ended as {status}")

    def gone(self, process: Process) -> None:
        self.told.append(f"{process.name} is gone")

    async def finish(self) -> None:
        await self.world.sleep(1)
        self.told.append("finished")


DIARIES: list[Diary] = []


class Greeter(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="good day"))


async def greeting(world: World) -> None:
    await world.say(world.runner(lambda: Greeter(name="greeter")), "ada", "hello")
    await world.restart()


def test_an_observer_is_told_what_happens_in_its_world() -> None:
    """What is stored, in its order; the ends of runs and processes; and the end of the world, which it may delay."""
    outcome = simulate(greeting, SeededChoices(1), observers=[Diary]).check()
    told = DIARIES.pop().told
    assert told == [
        "ada: hello begins",
        "ada: good day",
        "ended as completed",
        "process 1 is gone",
        "finished",
    ]
    assert outcome.digest == simulate(greeting, SeededChoices(1)).check().digest


def test_an_observer_fails_its_world() -> None:
    """Whatever catches it on the way; the failure names the property."""

    class Strict(Observer):
        def stored(self, key: SessionKey, event: Event, writer: SessionWriter | None, *, begins: bool) -> None:
            if event.author == "greeter":
                self.world.fail(f"{event.author} has spoken", "Silence")

    failure = simulate(greeting, SeededChoices(1), observers=[Strict]).failure
    assert isinstance(failure, CheckError)
    assert (str(failure), failure.what) == ("greeter has spoken", "Silence")


def test_a_world_keeps_its_sessions_in_the_store_that_it_is_given() -> None:
    """A class of stores, or a function of the world; it is closed at the end of the world, however that ends."""
    made: list[MemoryStore] = []
    closed: list[MemoryStore] = []

    class Counting(MemoryStore):
        def close(self) -> None:
            closed.append(self)

    def store(world: World) -> MemoryStore:
        made.append(Counting(world))
        return made[-1]

    async def fails(world: World) -> None:
        assert world.store is made[-1]
        raise ValueError("no")

    simulate(greeting, SeededChoices(1), store=store).check()
    assert isinstance(simulate(fails, SeededChoices(1), store=Counting).failure, AssertionError)
    assert isinstance(simulate(fails, SeededChoices(1), store=store).failure, ValueError)
    assert len(closed) == 3
    assert made[0].log(SessionKey("app", "ada", "ada"))[-1].text == "good day"


def test_the_marker_takes_them(tmp_path: Path) -> None:
    """As `simulate` does; they are of the test, so a kept failure is replayed with them."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from minirun import BaseAgent, Event\n"
        "from minirun.simulation import MemoryStore, Observer\n"
        "class Store(MemoryStore): pass\n"
        "class Silence(Observer):\n"
        "    def stored(self, key, event, writer, *, begins):\n"
        "        assert isinstance(self.world.store, Store)\n"
        "        if event.author == 'a': self.world.fail('it has spoken')\n"
        "class Agent(BaseAgent):\n"
        "    async def _run_async_impl(self, ctx): await ctx.emit(Event(message='hello'))\n"
        "@pytest.mark.simulation(seeds=2, store=Store, observers=[Silence])\n"
        "async def test_it(world):\n"
        "    await world.say(world.runner(lambda: Agent(name='a')), 'ada', 'go')\n"
    )
    plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", *NOT_REWRITTEN]
    done = run(["-m", "pytest", "-q", *plain], cwd=tmp_path, modules=PYTEST)
    assert "CheckError: it has spoken" in done.stdout, done.stdout
    [kept] = (tmp_path / ".minirun" / "failures").iterdir()
    again = run(["-m", "minirun", "simulate", "test_it.py::test_it", "--replay", str(kept)], cwd=tmp_path)
    assert (again.returncode, "CheckError: it has spoken" in again.stdout) == (1, True), again.stdout


def test_the_checks_see_what_a_world_without_them_does_not() -> None:
    """An event that is lost is nobody's failure in a plain world, and one of minirun's where that is checked."""

    async def loses(world: World) -> None:
        await greeting(world)
        assert isinstance(world.store, MemoryStore)
        for log in world.store.sessions._logs.values():
            log.pop()

    assert simulate(loses, SeededChoices(1)).failure is None
    failure = simulate(loses, SeededChoices(1), **checked(storage="memory")).failure
    assert isinstance(failure, CheckError)
    assert failure.what == "AcknowledgedIsStored"
