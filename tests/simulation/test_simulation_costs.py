"""What a seed does not do, so that it is cheap, and that leaving it out changes nothing. No time is measured."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
import trio
import trio._core._run as trio_run

from minirun import BaseAgent, Event, InvocationContext
from minirun._codec import to_json
from minirun.simulation import LogEntry, SeededChoices, World
from minirun.simulation._choices import _Luck
from minirun.simulation._private import _Order

from ..reference_worlds import SCENARIOS
from .stores import simulate, why_unavailable
from .stores.sqlite_store import file_with
from .stores.vfs import RecordingVFS

needs_the_disk = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
POINTS = 300


class Rounds(trio.abc.Instrument):
    """Counts the rounds of trio's loop."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


class Quiet(BaseAgent):
    """Says nothing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        pass


def test_a_step_takes_one_round_of_the_loop() -> None:
    """The gate is opened by trio's clock: no task waits until all others wait, which takes a round more."""
    rounds = Rounds()

    async def scenario(world: World) -> None:
        async def pass_points() -> None:
            for _ in range(POINTS):
                await world.schedule.point("step")

        trio.lowlevel.add_instrument(rounds)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_points)
            nursery.start_soon(pass_points)
        trio.lowlevel.remove_instrument(rounds)

    outcome = simulate(scenario, SeededChoices(1), storage="memory").check()
    assert outcome.steps >= 2 * POINTS
    assert rounds.count < 2 * POINTS + 20


def test_time_passes_where_nothing_is_parked() -> None:
    """A scenario may wait until all tasks wait, and for a deadline, and both come."""
    times: list[float] = []

    async def scenario(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5)
            await trio.testing.wait_all_tasks_blocked()
            times.append(trio.current_time())
        times.append(trio.current_time())

    simulate(scenario, SeededChoices(1), storage="memory").check()
    assert times == [0, 5]


def test_what_a_check_raises_between_two_steps_fails_the_seed() -> None:
    """It is asked within trio's clock, and the error is nevertheless that of the simulation."""

    async def scenario(world: World) -> None:
        world.always(lambda: world.schedule.steps < 5)
        for _ in range(POINTS):
            await world.schedule.point("step")

    outcome = simulate(scenario, SeededChoices(1), storage="memory")
    assert "does not hold" in str(outcome.failure)
    assert outcome.steps == 5


@needs_the_disk
@pytest.mark.parametrize("seed", range(6))
def test_a_file_with_the_state_is_made_once_and_nothing_shows_of_it(seed: int) -> None:
    """A seed that makes the file of its initial state, and one that finds it made, are the same to the last choice."""
    file_with.cache_clear()
    made, found = (simulate(SCENARIOS["money"], SeededChoices(seed), faults="all", processes=2) for _ in range(2))
    assert file_with.cache_info().hits == 1
    assert (made.digest, made.picks, made.coverage) == (found.digest, found.picks, found.coverage)


@needs_the_disk
@pytest.mark.parametrize("seed", range(6))
def test_a_state_is_there_from_the_beginning_and_for_ever(seed: int) -> None:
    """Two apps begin with a state, the second one in a file that is in use; power cuts take nothing of them."""

    async def scenario(world: World) -> None:
        first = world.runner(lambda: Quiet(name="a"), app_name="one", state={"app:a": [1], "app:b": "x"})
        assert world.state(first) == {"app:a": [1], "app:b": "x"}
        second = world.runner(lambda: Quiet(name="a"), app_name="two", state={"app:a": 2})
        for _ in range(3):
            await world.say(first, "ada", "hello")
            await world.restart()
        assert world.state(first) == {"app:a": [1], "app:b": "x"}
        assert world.state(second) == {"app:a": 2}

    simulate(scenario, SeededChoices(seed), faults="crash", deep=True).check()


def test_an_entry_is_its_event_or_the_json_of_it() -> None:
    """The log keeps events and makes JSON when it is read; nobody can tell the difference."""
    event = Event(author="a", message="hello", timestamp=1.0)
    kept, read = LogEntry(0.0, "ada", "sees", event), LogEntry(0.0, "ada", "sees", to_json(event))
    assert kept.event == read.event == to_json(event)
    assert (kept, str(kept), hash(kept)) == (read, str(read), hash(read))
    assert LogEntry(0.0, "ada", "sees").event is None


@needs_the_disk
@pytest.mark.parametrize("reads", [True, False])
def test_a_disk_is_asked_about_reads_or_is_not(reads: bool) -> None:
    """Without, what is read is as it was written, and writes are asked about as ever."""
    asked: list[str] = []
    with tempfile.TemporaryDirectory() as folder, RecordingVFS(reads=reads) as vfs:
        path = str(Path(folder) / "some.db")

        def note(operation: str, file: str) -> int:
            asked.append(operation)
            return 0

        vfs.fault = note
        for statement in ("CREATE TABLE numbers AS SELECT 7 AS number", "SELECT number FROM numbers"):
            db = vfs.connect(path)
            found = db.execute(statement).fetchall()
            db.close()
    assert found == [(7,)]
    assert ("read" in asked, "write" in asked) == (reads, True)


@pytest.mark.parametrize("seed", range(20))
def test_draws_are_those_of_random(seed: int) -> None:
    """What is left out of drawing and shuffling changes no number, so no world."""
    luck, order, real = _Luck(seed), _Order(seed), random.Random(seed)
    numbers = (1, 2, 3, 4, 7, 8, 1000, 2**16, 2**40)
    assert [luck.randrange(stop) for stop in numbers] == [real.randrange(stop) for stop in numbers]
    assert luck.randrange(5, 50, 5) == real.randrange(5, 50, 5)
    real = random.Random(seed)
    for size in (0, 1, 2, 1, 9):
        mine, theirs = list(range(size)), list(range(size))
        order.shuffle(mine)
        real.shuffle(theirs)
        assert mine == theirs
    assert order.getstate() == real.getstate()


def test_a_world_has_one_instrument() -> None:
    """To add one to trio, or to tell one of each turn, takes longer than what it does."""
    found: dict[str, int] = {}

    async def scenario(world: World) -> None:
        instruments = trio_run.GLOBAL_RUN_CONTEXT.runner.instruments
        found.update({hook: len(told) for hook, told in instruments.items()})

    simulate(scenario, SeededChoices(1), storage="memory").check()
    assert found == {"_all": 1, "task_spawned": 1, "task_exited": 1}
