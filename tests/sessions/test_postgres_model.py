"""
Several workers of one database in simulated worlds, on a model of the server at the driver's seam.

The model is in postgres_model.py. Round trips of the workers happen in any order; answers are late, lost, or lost
while the statement is still on its way; workers are cut off for longer than a lease, stand still, and are killed; the
server's clock jumps; notifications are lost. All of it follows from the choices of `minirun.simulation`, so a failure
is found again by its seed, and made small. Planted bugs of the client's side must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import Event, EventActions, InvocationContext, Runner
from minirun._codec import from_json, to_json
from minirun.errors import MinirunError, StorageError
from minirun.sessions import DatabaseSessionService, SessionWriter
from minirun.sessions._live import LiveSession
from minirun.simulation import SeededChoices, World, simulate

from ..fork_server import program, run
from ..helpers import Logic
from ..mutating import Mutant, mutants, plant
from ..postgres_model import Luck, ModelEnv, ModelServer, Network

pytest.importorskip("psycopg")

ROOT = Path(__file__).parents[2]
PLANTED = Path(__file__).parents[1] / "mutants" / "postgres"
SEEDS = 20
WORLDS = 8
FINDERS = (20,)
"""A seed that finds what few do is tried first."""
# What has imported nothing of minirun: all of it comes from where the bug was planted.
SESSIONS = ("a", "b", "c")
WORKERS = 3
APPENDS = 8
LIVES = 3  # of each worker, at most
# More than all the runs and disturbances of a world take together, in virtual time.
VISIT_S = 3600
URL = "postgresql:///model"
# A run may take longer than a lease lasts (30 s), and be cut off for as long.
PAUSES_S = [0, 0.01, 40]


class Book:
    """What has become of each attempt to append, by the event's text as it would be stored."""

    def __init__(self, world: World) -> None:
        self.outcomes: dict[str, str] = {}
        self._world = world

    def note(self, line: str, what: str) -> None:
        """It is sent, stored, refused, or nobody knows."""
        self.outcomes[line] = what
        self._world.reached(what)


class NotedService(DatabaseSessionService):
    """A service that notes each append."""

    book: Book
    worker: ModelEnv

    @classmethod
    def of(cls, book: Book, worker: ModelEnv) -> NotedService:
        """The service of a worker."""
        service = cls(URL, env=worker)
        service.book, service.worker = book, worker
        return service

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        line = to_json(event)
        self.book.note(line, "sent")
        try:
            await super().commit_event(live, event, writer=writer, begins=begins)
        except BaseException as error:
            is_open = self.worker.network.is_dead or (isinstance(error, StorageError) and error.stored is None)
            self.book.note(line, "uncertain" if is_open else "refused")
            raise
        self.book.note(line, "stored")


# --- what workers do --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Workers:
    """What the workers of a world share."""

    world: World
    server: ModelServer
    luck: Luck
    book: Book
    alive: dict[str, ModelEnv] = attrs.Factory(dict)

    async def live(self, name: str, number: int) -> None:
        """A worker, and after each death the next one in its place; the last one is not killed."""
        for life in range(LIVES):
            trouble = self.luck.one_of("trouble", [0, 0.1, 0.3])
            env = ModelEnv(self.world._machine, 10 * number + life + 1, server=self.server, network=Network(trouble))
            service = NotedService.of(self.book, env)
            self.alive[name] = env
            with trio.CancelScope() as scope:
                try:
                    async with trio.open_nursery() as nursery:
                        if life < LIVES - 1:
                            nursery.start_soon(self._die, env, scope, name="dies")
                        async with trio.open_nursery() as writers:
                            for _ in range(2):
                                writers.start_soon(self._write, service, env, name="writes")
                        nursery.cancel_scope.cancel()
                finally:
                    await aclose_soon(service)
            if not env.network.is_dead:
                return
            self.world.reached("killed")

    async def _die(self, env: ModelEnv, scope: trio.CancelScope) -> None:
        """Kill it at some point of its life, perhaps."""
        await self.world.sleep(self.luck.one_of("dies after", [1e6, 0.01, 1, 45]))
        for _ in range(self.luck.one_of("and so many points", [0, 1, 2, 3, 5, 8, 13, 21])):
            await env.point("lives on")
        env.kill()
        scope.cancel()

    async def visit(self) -> None:
        """A worker that nothing happens to enters every session at last, whoever has it and whatever it hears."""
        service = NotedService.of(self.book, ModelEnv(self.world._machine, 99, server=self.server))
        for session_id in SESSIONS * 2:
            await self.world.sleep(self.luck.one_of("visits after", [1, 10, 30]))
            event = Event(author="a", actions=EventActions(state_ops={"n": {"add": 1}, "user:n": {"add": 1}}))
            with trio.fail_after(VISIT_S):
                while not await self._has_visited(service, {"user_id": "u", "session_id": session_id}, event):
                    await self.world.sleep(1)
        await service.aclose()

    async def _has_visited(self, service: NotedService, place: dict[str, Any], event: Event) -> bool:
        try:
            await self._run(service, place, event)
        except MinirunError:
            return False  # overtaken, since the server's clock has jumped
        return True

    async def _write(self, service: NotedService, env: ModelEnv) -> None:
        """Append to any session, in runs and outside of them; what fails is not tried again."""
        for number in range(APPENDS):
            place: dict[str, Any] = {"user_id": "u", "session_id": self.luck.one_of("session", SESSIONS)}
            ops: dict[str, Any] = {"n": {"add": 1}, "user:n": {"add": 1}, "app:log": {"extend": [number]}}
            event = Event(author="a", actions=EventActions(state_ops=ops))
            with trio.move_on_after(self.luck.one_of("patience", [50, 50, 50, 0.005])):
                try:
                    if self.luck.happens("as a run", 0.5):
                        await self._run(service, place, event)
                    else:
                        session = await service.get_session(app_name="app", **place)
                        assert session is not None
                        await service.append_event(session, event)
                except MinirunError as error:
                    self.world.reached(type(error).__name__)
            await env.sleep(self.luck.one_of("pause", [0, 0.01, 5]))

    async def _run(self, service: NotedService, place: dict[str, Any], event: Event) -> None:
        """A run whose message changes nothing, and whose agent emits *event*, perhaps after longer than a lease."""

        async def logic(ctx: InvocationContext) -> None:
            await service.worker.sleep(self.luck.one_of("the agent takes", PAUSES_S))
            await ctx.emit(event)

        runner = Runner(agent=Logic(name="a", logic=logic), app_name="app", session_service=service)
        async with runner.run_async(**place, new_message="go") as running:
            await running.wait()
        self.world.reached("runs")

    # --- what happens to them

    async def disturb(self) -> None:
        """Now and then a worker is cut off or stands still, for longer than a lease perhaps, or the clock jumps."""
        while True:
            await self.world.sleep(self.luck.one_of("until the next disturbance", [20, 5, 1, 0.01]))
            what = self.luck.one_of("disturbance", ["cut off", "stands still", "the clock jumps"])
            name = self.luck.one_of("whom", sorted(self.alive))
            until = trio.current_time() + self.luck.one_of("for", [1, 45])
            self.world.reached(what)
            if what == "cut off":
                self.alive[name].network.cut_off_until = until
            elif what == "stands still":
                stands = [task for task in self.world.schedule.living() if task.rpartition("/")[2] == name]
                self.world.schedule.stalled.update(dict.fromkeys(stands, until))
            else:
                self.server.clock_offset_s += self.luck.one_of("by", [60, -60, 5])

    async def deliver(self) -> None:
        """What is on its way arrives at some time."""
        while True:
            await self.world.sleep(self.luck.one_of("until something arrives", [0.01, 1, 10]))
            for each in [one for one in self.server.connections if one.is_on_its_way]:
                if self.luck.happens("arrives", 0.5):
                    each.land()
                    self.world.reached("late")


async def aclose_soon(service: DatabaseSessionService) -> None:
    """Close the service of a worker that has ended, in whatever way."""
    with trio.CancelScope(shield=True):
        await service.aclose()


async def workers_write(world: World) -> None:
    """Three workers write, then all logs are compared with what was heard of them."""
    luck, book = Luck(world.choices), Book(world)
    server = ModelServer(luck)
    workers = Workers(world, server, luck, book)
    async with DatabaseSessionService(URL, env=ModelEnv(world._machine, 100, server=server)) as sound:
        for session_id in SESSIONS:
            await sound.create_session(app_name="app", user_id="u", session_id=session_id)
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as living:
                for number in range(WORKERS):
                    living.start_soon(workers.live, f"worker {number}", number, name=f"worker {number}")
                living.start_soon(workers.visit, name="visits")
                nursery.start_soon(workers.disturb, name="disturbs")
                nursery.start_soon(workers.deliver, name="delivers")
            nursery.cancel_scope.cancel()
        for each in list(server.connections):
            each.land()
        async with DatabaseSessionService(URL, env=ModelEnv(world._machine, 101, server=server)) as new:
            await check(server, book, [sound, new])


# --- what must hold ---------------------------------------------------------------------------------------------------


async def check(server: ModelServer, book: Book, services: list[DatabaseSessionService]) -> None:
    """What was acknowledged stands there once, what was refused does not; every worker sees the same state."""
    logs = {row.place[2]: [data for seq, _, _, data in server.events[number] if seq] for number, row in
            server.sessions.items()}  # fmt: skip
    stored = Counter(data for log in logs.values() for data in log)
    for line, what in book.outcomes.items():
        if what == "stored":
            assert stored[line] == 1, f"acknowledged, and there {stored[line]} times: {line}"
        elif what == "refused":
            assert stored[line] == 0, f"refused, and stored: {line}"
    assert sum(stored.values()) == sum(book.outcomes.get(line, "") in ("stored", "uncertain") for line in stored)
    numbers = sorted(number for log in server.events.values() for _, number, _, _ in log)
    assert numbers == [*range(1, server.commit_no + 1)], "a number is missing, or there twice"
    items: list[Any] = []
    for _, data in sorted((no, data) for log in server.events.values() for seq, no, _, data in log if seq):
        items += from_json(Event, data).actions.state_ops.get("app:log", {"extend": []})["extend"]
    for service in services:
        for session_id, log in logs.items():
            session = await service.get_session(app_name="app", user_id="u", session_id=session_id)
            assert session is not None
            assert [to_json(event) for event in session.events] == log
            adding = {name: sum('"n":{"add":1}' in line for line in lines) for name, lines in logs.items()}
            assert session.state.get("n", 0) == adding[session_id]
            assert session.state.get("user:n", 0) == sum(adding.values())
            assert list(session.state.get("app:log", [])) == items


REACHED = (
    "stored", "refused", "uncertain", "StorageUncertainError", "StaleSessionError", "runs", "killed", "late", "cut off",
    "stands still", "the clock jumps",
)  # fmt: skip
"""What happens in some of these worlds; else they would show nothing."""


@pytest.mark.simulation(seeds=WORLDS, storage="memory", reach=REACHED)
async def test_workers_of_a_model_keep_what_they_acknowledge(world: World) -> None:
    """In simulated worlds of three workers with lost and late answers, logs, outcomes and states agree."""
    await workers_write(world)


def hunt(seeds: Iterable[int]) -> str:
    """The first seed that fails, and with what; "" if none does."""
    for seed in seeds:
        failure = simulate(workers_write, SeededChoices(seed), storage="memory").failure
        if failure is not None:
            return f"seed {seed}: {type(failure).__name__}: {failure}"[:300].replace("\n", " ")
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_workers_of_a_model_keep_it_in_many_worlds(part: int) -> None:
    """The same for a thousand seeds."""
    assert hunt(range(1000 + 250 * part, 1250 + 250 * part)) == ""


def test_a_seed_gives_the_same_world_again() -> None:
    """Whatever is random in a world follows from its seed, so a failure is found again."""
    first, second = (simulate(workers_write, SeededChoices(7), storage="memory") for _ in range(2))
    assert (first.digest, first.picks, first.coverage) == (second.digest, second.picks, second.coverage)


@pytest.mark.parametrize("mutant", mutants(PLANTED), ids=lambda mutant: mutant.name)
def test_a_planted_bug_of_the_commit_is_found(mutant: Mutant, tmp_path: Path) -> None:
    """Some seed of the worlds fails."""
    plant(mutant, tmp_path)
    hunting = "from tests import planted; from tests.sessions.test_postgres_model import hunt\n"
    hunting += f"planted.swap({str(tmp_path)!r}); print('FOUND', hunt({(*FINDERS, *range(SEEDS))}))"
    done = run(program(hunting))
    assert done.returncode == 0, done.stderr
    found = done.stdout.rpartition("FOUND ")[2].strip()
    print(found)
    assert found, mutant.promise
