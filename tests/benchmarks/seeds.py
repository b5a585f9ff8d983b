"""
Simulated seeds in a second of one core, and where the time of one seed goes, in a process of its own: rows, as JSON.

    python -m tests.benchmarks.seeds ROUNDS SEEDS

The benchmark starts it once; works take turns in it as they do there. Two forks of it at once show what `--jobs 2` of
`minirun simulate` can come to, beside one. The reference world is the bank of `tests/reference_worlds.py`, whose three
users move money at once; `tools` is of the same file.

Rules of this file:

*   The *floor* of a simulated seed is the same scenario in the real world: the same services on a plain disk, worker
    threads inline, no schedule, no checkers and no faults. What a figure has above it is what simulating costs.
*   A time is processor time, because a core that is shared with others says nothing about one core. A simulation has
    one thread and waits for nothing.
*   A seed with faults may take ten times as long as another one, so each round has the same seeds, from 0 on.
*   The package is measured as it is: what is taken away for a row, such as the checkers, is taken away from here.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest.mock import patch

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minirun import App, Env, Event, InMemorySessionService, Runner, SqliteSessionService
from minirun._codec import from_json, to_json
from minirun.sessions import BaseSessionService
from minirun.simulation import SeededChoices, World
from tests.reference_worlds import PEOPLE, Bank, money, tools

from ..simulation.stores import Scenario, Storage, simulate, why_unavailable
from ..simulation.stores import checks as _checks
from ..simulation.stores.sqlite_store import new_file
from ..simulation.stores.vfs import RecordingVFS
from .details import CHANNELS, INLINE, stored
from .floors import FloorFile, FloorMemory, floor_dumps, floor_run
from .measuring import Row, Times
from .programs.protocol import ANSWER

T = TypeVar("T")

STORAGES: tuple[Storage, ...] = ("memory",) if why_unavailable() else ("memory", "sqlite")
FAULTS: dict[Storage, tuple[str, ...]] = {"memory": ("crash",), "sqlite": ("crash", "storage")}
# Which part of its floor the reference world is to reach, with faults and without, and two processes of one.
TARGETS: dict[Storage, str] = {"memory": ">= 0.6", "sqlite": ">= 0.5"}
FAULTS_TARGET = ">= 0.35"
JOBS_TARGET = ">= 1.9"
SCENARIOS: dict[str, Scenario] = {"money": money(Bank), "tools": tools}
# For each seed. With 50 seeds they are enough that making the world does not show beside them.
POINTS = 39
TRANSACTIONS = 4


# --- measuring ------------------------------------------------------------------------------------------------------


@attrs.frozen
class Work:
    """Something to measure: `step` does `units` of what is counted."""

    name: str
    step: Callable[[], object]
    units: int = 1


def often(step: Callable[[], object], times: int) -> Callable[[], object]:
    """The step, so many times."""
    return lambda: [step() for _ in range(times)]


def measure(rounds: int, works: Iterable[Work]) -> Times:
    """Let the works take turns; the first round warms up."""
    works = list(works)
    times: Times = {work.name: [] for work in works}
    for number in range(rounds + 1):
        for work in works if number % 2 == 0 else works[::-1]:
            gc.collect()
            start = time.process_time()
            work.step()
            times[work.name].append((time.process_time() - start) / work.units * 1e6)
    return {name: taken[1:] for name, taken in times.items()}


def rates(rounds: list[float]) -> list[float]:
    """How many in a second."""
    return [1e6 / taken for taken in rounds]


# --- the real world -------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Inline(Env):
    """The real world without worker threads, as a simulated one has none."""

    async def run_sync(
        self, fn: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None, abandon_on_cancel: bool = False
    ) -> T:
        await trio.lowlevel.checkpoint()
        return fn()


class RealWorld:
    """What the scenarios use of a World, with nothing simulated and nothing checked."""

    def __init__(self, service: BaseSessionService) -> None:
        self._service = service

    def runner(self, make: Callable[[], Any], *, state: object = None) -> Runner:
        return Runner(app=App("app", make()), session_service=self._service, auto_create_session=True)

    async def say(self, runner: Runner, user_id: str, text: str) -> None:
        async with runner.run_async(user_id=user_id, session_id=user_id, new_message=text) as run:
            async for _ in run:
                pass

    def always(self, check: Callable[[], object]) -> None:
        pass


@contextlib.contextmanager
def fresh_folder() -> Iterator[Path]:
    """A folder where a World makes its own."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="minirun-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def service_on(storage: Storage) -> AsyncIterator[BaseSessionService]:
    """A service as a World opens it, on a file that has its tables."""
    if storage == "memory":
        yield InMemorySessionService(env=Inline())
    else:
        with fresh_folder() as folder:
            (folder / "world.db").write_bytes(new_file())
            async with SqliteSessionService(folder / "world.db", env=Inline()) as service:
                yield service


async def in_the_real_world(name: str, storage: Storage) -> None:
    """One run of a scenario. That money begins with a state is left out: nothing depends on it here."""
    async with service_on(storage) as service:
        await SCENARIOS[name](cast(World, RealWorld(service)))


async def bare(storage: Storage, events: int) -> None:
    """As many events, and nothing but what stores them."""
    if storage == "memory":
        await floor_run(FloorMemory(), 0, [ANSWER] * (events - 1), last=True)
    else:
        with fresh_folder() as folder:
            file = FloorFile(folder / "floor.db", "FULL")
            await stored(file, events)
            file.close()


# --- simulated worlds -----------------------------------------------------------------------------------------------


def simulated(scenario: Scenario, seeds: int, storage: Storage, faults: tuple[str, ...] = ()) -> None:
    """The seeds from 0 on, of which none may fail, as a search simulates them."""
    for seed in range(seeds):
        simulate(scenario, SeededChoices(seed), storage=storage, faults=faults).check()


def floor_name(name: str, storage: Storage) -> str:
    return f"{name}, {storage}, the real world"


def speed(rounds: int, seeds: int) -> Iterator[Row]:
    """Seeds in a second, beside runs in the real world."""
    works, what = [], []
    for name, scenario in SCENARIOS.items():
        for storage in STORAGES:
            floor = floor_name(name, storage)
            works.append(Work(floor, often(partial(trio.run, in_the_real_world, name, storage), seeds), seeds))
            for faults in ((), FAULTS[storage]):
                mine = f"{name}, {storage}, {' and '.join(faults) or 'no faults'}"
                works.append(Work(mine, partial(simulated, scenario, seeds, storage, faults), seeds))
                target = FAULTS_TARGET if faults else TARGETS[storage]
                what.append((mine, floor, target if name == "money" else ""))
    times = measure(rounds, works)
    for mine, floor, target in what:
        yield Row(f"seeds: {mine}", rates(times[mine]), floor, rates(times[floor]), target, "/s")


def alone(rounds: int, seeds: int, storage: Storage) -> list[float]:
    """The seeds of the reference world in a second of this process, round by round."""
    work = Work("alone", partial(simulated, SCENARIOS["money"], seeds, storage), seeds)
    return rates(measure(rounds, [work])["alone"])


def processes(rounds: int, seeds: int, storage: Storage, count: int) -> list[float]:
    """The same of so many processes at once, together: what one of them waits for a core does not count."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(count)]

    def work(theirs: Connection) -> None:
        theirs.send(alone(rounds, seeds, storage))

    started = [context.Process(target=work, args=(theirs,)) for _, theirs in pipes]
    for process in started:
        process.start()
    told: list[list[float]] = [mine.recv() for mine, _ in pipes]
    for process in started:
        process.join()
    return [sum(together) for together in zip(*told, strict=True)]


def jobs(rounds: int, seeds: int) -> Iterator[Row]:
    """Two processes beside one: seeds can be shared between them."""
    for storage in STORAGES:
        one, two = (processes(rounds, seeds, storage, count) for count in (1, 2))
        yield Row(f"seeds: two processes, {storage}", two, f"one process, {storage}", one, JOBS_TARGET, "/s")


async def nothing(world: object = None) -> None:
    """An empty scenario."""


def steps(points: int) -> Scenario:
    """One that only passes points: three tasks, as the reference world has three users."""

    async def steps(world: World) -> None:
        async def pass_points() -> None:
            for _ in range(points // 3):
                await world.schedule.point("step")

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(pass_points)

    return steps


async def bare_steps(points: int) -> None:
    """The same with as little as a gate can be: park, wait until nothing else goes on, go on."""
    parked: list[trio.lowlevel.Task] = []

    async def pass_points() -> None:
        for _ in range(points // 3):
            parked.append(trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(pass_points)
        for _ in range(points // 3 * 3):
            await wait_all_tasks_blocked()
            trio.lowlevel.reschedule(parked.pop())


def unchecked(seeds: int, storage: Storage) -> None:
    """The reference world with nobody who looks whether it is as it should be, its own check included."""

    def deaf(*_: object, **__: object) -> None:
        pass

    with patch.object(_checks, "_all", lambda checkers, name: deaf), patch.object(World, "always", deaf):
        simulated(SCENARIOS["money"], seeds, storage)


# --- parts of a seed ------------------------------------------------------------------------------------------------


def transactions(connect: Callable[[str], sqlite3.Connection], count: int) -> None:
    """Rows of the size of an event, one for each transaction, in a file of their own."""
    with fresh_folder() as folder, contextlib.closing(connect(str(folder / "some.db"))) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data TEXT)")
        for _ in range(count):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO events (data) VALUES (?)", ("x" * 400,))
            db.execute("COMMIT")


def reads(connect: Callable[[str], sqlite3.Connection], count: int) -> None:
    """Reading the only row of a table, again and again."""
    with fresh_folder() as folder, contextlib.closing(connect(str(folder / "some.db"))) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE numbers AS SELECT 1 AS number")
        for _ in range(count):
            db.execute("SELECT number FROM numbers").fetchall()


def recorded(use: Callable[[Callable[[str], sqlite3.Connection], int], None], count: int) -> None:
    """Do it on a recording disk whose fault hook never strikes."""
    with RecordingVFS() as vfs:
        vfs.fault = lambda operation, file: 0
        use(vfs.connect, count)


plain = partial(sqlite3.connect, isolation_level=None)


async def event_lines() -> list[str]:
    """The events that the reference world makes, as JSON."""
    async with service_on("memory") as service:
        await SCENARIOS["money"](cast(World, RealWorld(service)))
        logs = [await service.read_events(app_name="app", user_id=who, session_id=who) for who in PEOPLE]
    return [to_json(event) for log in logs for event in log]


def coded(lines: list[str]) -> None:
    for line in lines:
        to_json(from_json(Event, line))


def bare_coded(lines: list[str]) -> None:
    for line in lines:
        floor_dumps(json.loads(line))


def breakdown(rounds: int, seeds: int) -> Iterator[Row]:
    """Where the time of one seed of the reference world goes, in µs."""
    points, some = POINTS * seeds, TRANSACTIONS * seeds
    run, clocked = "an empty trio.run", "an empty trio.run, virtual time"
    lines, bare_gate, bare_json = trio.run(event_lines), "a bare gate in trio", "json of the same lines"
    statement, transaction = "a statement, SQLite as it is", "a transaction, SQLite as it is"

    def clocked_run() -> None:
        trio.run(nothing, clock=MockClock(autojump_threshold=0))

    works = [
        Work(run, often(partial(trio.run, nothing), seeds), seeds),
        Work(clocked, often(clocked_run, seeds), seeds),
        Work(bare_gate, partial(trio.run, bare_steps, points), points),
        Work("gate", partial(simulated, steps(points), 1, "memory"), points),
        Work(bare_json, often(partial(bare_coded, lines), seeds), seeds),
        Work("codec", often(partial(coded, lines), seeds), seeds),
    ]
    for storage in STORAGES:
        real = partial(trio.run, in_the_real_world, "money", storage)
        works += [
            Work(f"empty {storage}", partial(simulated, nothing, seeds, storage), seeds),
            Work(f"bare {storage}", often(partial(trio.run, bare, storage, len(lines)), seeds), seeds),
            Work(f"real {storage}", often(real, seeds), seeds),
            Work(f"checked {storage}", partial(simulated, SCENARIOS["money"], seeds, storage), seeds),
            Work(f"unchecked {storage}", partial(unchecked, seeds, storage), seeds),
        ]
    if "sqlite" in STORAGES:
        works += [
            Work(statement, partial(reads, plain, some), some),
            Work("statement", partial(recorded, reads, some), some),
            Work(transaction, partial(transactions, plain, some), some),
            Work("transaction", partial(recorded, transactions, some), some),
        ]
    times = measure(rounds, works)

    def row(what: str, mine: str, floor: str, floor_is: str = "", note: str = "") -> Row:
        return Row(f"    {what}", times[mine], floor_is or floor, times[floor], note=note)

    yield row("an empty trio.run, virtual time", clocked, run)
    for storage in STORAGES:
        yield row(f"an empty world, {storage}", f"empty {storage}", clocked)
    yield row("one step of the schedule", "gate", bare_gate)
    yield row("encoding and decoding the events", "codec", bare_json, note=f"({len(lines)} events)")
    for storage in STORAGES:
        floor_is = CHANNELS if storage == "memory" else INLINE
        yield row(f"the real world, {storage}", f"real {storage}", f"bare {storage}", floor_is)
    for storage in STORAGES:
        yield row(f"no faults, {storage}", f"checked {storage}", f"unchecked {storage}", "without the checkers")
    if "sqlite" in STORAGES:
        yield row("a statement on the recording disk", "statement", statement)
        yield row("a transaction on the recording disk", "transaction", transaction)


def main() -> None:
    """Do what the command line asks for, once."""
    parser = argparse.ArgumentParser(description="Simulated seeds, in a process of their own.")
    parser.add_argument("rounds", type=int)
    parser.add_argument("seeds", type=int)
    options = parser.parse_args()
    parts = (speed, jobs, breakdown)
    rows = [row for part in parts for row in part(options.rounds, options.seeds)]
    print(json.dumps([attrs.asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
