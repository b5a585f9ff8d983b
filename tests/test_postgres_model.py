"""
Several workers of one database in simulated time, on a model of the server at the driver's seam.

The model is in postgres_model.py. Answers are late, lost, or lost while the statement is still on its way; workers are
cut off for longer than a lease. A seed decides it all, so a failure is found again by its number. Planted bugs of the
client's side of the commit must be found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from minirun import Event, EventActions, InvocationContext, Runner
from minirun._codec import from_json, to_json
from minirun.errors import MinirunError, StorageError
from minirun.sessions import DatabaseSessionService, SessionWriter
from minirun.sessions._live import LiveSession

from .helpers import Logic
from .mutating import Mutant, plant
from .postgres_model import ModelEnv, ModelServer, Network

pytest.importorskip("psycopg")

ROOT = Path(__file__).parents[1]
PLANTED = Path(__file__).parent / "mutants" / "postgres"
SEEDS = 20
SESSIONS = ("a", "b", "c")
WORKERS = 3
APPENDS = 8


class Book:
    """What has become of each attempt to append, by the event's text as it would be stored."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.coverage: Counter[str] = Counter()

    def note(self, line: str, what: str) -> None:
        """It is sent, stored, refused, or nobody knows."""
        self.outcomes[line] = what
        self.coverage[what] += 1


class NotedService(DatabaseSessionService):
    """A service that notes each append."""

    book: Book

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        line = to_json(event)
        try:
            await super()._commit(live, event, writer=writer, begins=begins)
        except BaseException as error:
            is_open = isinstance(error, StorageError) and error.stored is None
            self.book.note(line, "uncertain" if is_open else "refused")
            raise
        self.book.note(line, "stored")


async def run(service: NotedService, place: dict[str, str], event: Event, luck: Random) -> None:
    """A run whose message changes nothing, and whose agent emits *event*, perhaps after longer than a lease."""

    async def logic(ctx: InvocationContext) -> None:
        await trio.sleep(luck.choice([0, 0.01, 40]))
        await ctx.emit(event)

    runner = Runner(agent=Logic(name="a", logic=logic), app_name="app", session_service=service)
    user_id, session_id = place["user_id"], place["session_id"]
    async with runner.run_async(user_id=user_id, session_id=session_id, new_message="go") as running:
        await running.wait()
    service.book.coverage["runs"] += 1


async def write(service: NotedService, luck: Random) -> None:
    """Append to any session, in runs and outside of them; what fails is not tried again."""
    for number in range(APPENDS):
        place: dict[str, Any] = {"app_name": "app", "user_id": "u", "session_id": luck.choice(SESSIONS)}
        ops: dict[str, Any] = {"n": {"add": 1}, "user:n": {"add": 1}, "app:log": {"extend": [number]}}
        event = Event(author="a", actions=EventActions(state_ops=ops))
        with trio.move_on_after(luck.choice([0.005, 50, 50, 50])):
            try:
                if luck.random() < 0.5:
                    await run(service, place, event, luck)
                    continue
                session = await service.get_session(**place)
                assert session is not None
                await service.append_event(session, event)
            except MinirunError as error:
                service.book.coverage[type(error).__name__] += 1
        await trio.sleep(luck.choice([0, 0, 0.01, 5]))


async def cut_off(envs: list[ModelEnv], luck: Random) -> None:
    """Now and then a worker is cut off for longer than a lease."""
    while True:
        await trio.sleep(luck.random() * 20)
        luck.choice(envs).network.cut_off_until = trio.current_time() + luck.choice([1, 45])


async def world(seed: int) -> Counter[str]:
    """Three workers write, then all logs are compared with what was heard of them."""
    luck, book = Random(seed), Book()
    server = ModelServer(luck)
    envs = [ModelEnv(server, Network(luck.choice([0, 0.1, 0.3]))) for _ in range(WORKERS)]
    services = [NotedService("postgresql:///model", env=env) for env in envs]
    NotedService.book = book
    async with DatabaseSessionService("postgresql:///model", env=ModelEnv(server)) as sound:
        for session_id in SESSIONS:
            await sound.create_session(app_name="app", user_id="u", session_id=session_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_off, envs, luck)
            async with trio.open_nursery() as writers:
                for service in services:
                    for _ in range(2):
                        writers.start_soon(write, service, luck)
            nursery.cancel_scope.cancel()
        for each in list(server.connections):
            each.land()
        for env in envs:
            env.network.trouble = env.network.cut_off_until = 0
        await check(server, book, [sound, *services])
        for service in services:
            await service.aclose()
    return book.coverage


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
    items: list[Any] = []
    for _, number in sorted((no, data) for log in server.events.values() for seq, no, _, data in log if seq):
        items += from_json(Event, number).actions.state_ops.get("app:log", {"extend": []})["extend"]
    for service in services:
        for session_id, log in logs.items():
            session = await service.get_session(app_name="app", user_id="u", session_id=session_id)
            assert session is not None
            assert [to_json(event) for event in session.events] == log
            adding = {name: sum('"n":{"add":1}' in line for line in lines) for name, lines in logs.items()}
            assert session.state.get("n", 0) == adding[session_id]
            assert session.state.get("user:n", 0) == sum(adding.values())
            assert list(session.state.get("app:log", [])) == items


def hunt(seeds: int) -> str:
    """The first seed that fails, and with what; "" if none does."""
    for seed in range(seeds):
        try:
            trio.run(world, seed, clock=trio.testing.MockClock(autojump_threshold=0))
        except BaseException as error:
            return f"seed {seed}: {type(error).__name__}: {error}"[:300].replace("\n", " ")
    return ""


def test_workers_of_a_model_keep_what_they_acknowledge() -> None:
    """In simulated worlds of three workers with lost and late answers, logs, outcomes and states agree."""
    coverage: Counter[str] = Counter()
    for seed in range(SEEDS):
        coverage += trio.run(world, seed, clock=trio.testing.MockClock(autojump_threshold=0))
    print(dict(coverage))
    assert {"stored", "refused", "uncertain", "StorageUncertainError", "StaleSessionError", "runs"} <= set(coverage)


def planted() -> list[Mutant]:
    """The planted bugs of this file."""
    found = []
    for path in sorted(PLANTED.glob("*.patch")):
        promise, _, diff = path.read_text("utf-8").partition("\n")
        found.append(Mutant(path.stem, promise.removeprefix("# "), diff))
    return found


@pytest.mark.parametrize("mutant", planted(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_of_the_commit_is_found(mutant: Mutant, tmp_path: Path) -> None:
    """Some seed of the worlds fails."""
    plant(mutant, tmp_path)
    hunting = f"from tests import planted; planted.use({str(tmp_path)!r})\n"
    hunting += f"from tests.test_postgres_model import hunt; print('FOUND', hunt({SEEDS}))"
    done = subprocess.run(
        [sys.executable, "-c", hunting], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = done.stdout.rpartition("FOUND ")[2].strip()
    print(found)
    assert found, mutant.promise
