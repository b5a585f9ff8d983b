"""What differs from run to run has no place in a simulation: it is refused where it is used, and fails the run."""

from __future__ import annotations

import datetime
import logging
import os
import queue
import random
import secrets
import select
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import closing
from os import urandom as urandom_by_name
from time import time as time_by_name
from typing import Any

import pytest
import trio
from trio.to_thread import run_sync as run_sync_by_name

from minirun import BaseAgent, Event, InvocationContext, LlmAgent
from minirun.simulation import LeakError, SeededChoices, World
from minirun.testing import ScriptedLlm, call

from .stores import explore, replay, simulate

imported_by_name = random.random


async def in_a_thread() -> None:
    await trio.to_thread.run_sync(time.perf_counter)


async def in_a_waiting_thread() -> None:
    await run_sync_by_name(time.perf_counter)


async def in_a_process() -> None:
    await trio.run_process([sys.executable, "-c", ""])


async def over_the_net() -> None:
    with trio.socket.socket():
        pass



LEAKS: dict[str, Callable[[], Any]] = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.localtime": lambda: time.localtime(),
    "time.gmtime": lambda: time.gmtime(None),
    "time.ctime": lambda: time.ctime(),
    "time.strftime": lambda: time.strftime("%H:%M"),
    "select": lambda: select.select([], [], [], 0),
    "time.sleep": lambda: time.sleep(0),
    "uuid4": lambda: uuid.uuid4(),
    "uuid1": lambda: uuid.uuid1(),
    "date.today": lambda: datetime.date.today(),
    "os.urandom": lambda: os.urandom(1),
    "secrets": lambda: secrets.token_hex(),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "random": lambda: random.random(),
    "Random, unseeded": lambda: random.Random(),
    "Random, seeded with nothing": lambda: random.Random(1).seed(),
    **({"os.getrandom": lambda: os.getrandom(1)} if hasattr(os, "getrandom") else {}),
    "time.clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "random, imported by name": imported_by_name,
    "thread": lambda: threading.Thread(target=print).start(),
    "trio thread": in_a_thread,
    "trio thread that waits, by name": in_a_waiting_thread,
    "waiting for a thread": lambda: threading.Event().wait(),
    "queue of threads": lambda: queue.Queue().get(),
    "process": lambda: subprocess.run([sys.executable, "-c", ""], check=False),
    "trio process": in_a_process,
    "fork": lambda: os.fork(),
    "socket": lambda: socket.socket(),
    "trio socket": over_the_net,
}


async def maybe_await(found: Any) -> None:
    if isinstance(found, Awaitable):
        await found


@pytest.mark.parametrize("leak", LEAKS)
def test_what_leaks_fails_the_simulation(leak: str) -> None:
    """Each way to ask the machine for something else is named in the error, with what to use instead."""

    async def scenario(world: World) -> None:
        await maybe_await(LEAKS[leak]())

    trio.run(in_a_waiting_thread)  # the thread waits for more work
    failure = simulate(scenario, SeededChoices(1), storage="memory").failure
    assert isinstance(failure, LeakError)
    assert "choices alone" in str(failure) or "no seed decides" in str(failure)


@pytest.mark.parametrize("leak", ["time.time", "thread", "random, imported by name"])
def test_it_fails_even_where_somebody_catches_it(leak: str) -> None:
    """A tool's error becomes an answer for the model; a leak in a tool fails the simulation all the same."""

    async def stamp() -> str:
        """A tool that leaks."""
        await maybe_await(LEAKS[leak]())
        return "done"

    def answer(request: Any) -> Any:
        return "done" if request.contents[-1].parts[-1].function_response else call("stamp")

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(answer), tools=[stamp]))
        await world.say(runner, "ada", "hello")

    assert isinstance(simulate(scenario, SeededChoices(1), storage="memory").failure, LeakError)


def test_the_world_is_whole_again_afterwards() -> None:
    """What was replaced is put back, whether the simulation failed or not."""
    before = (time.time, uuid.uuid4, os.urandom, random.random, trio.to_thread.run_sync)

    async def scenario(world: World) -> None:
        time.time()

    simulate(scenario, SeededChoices(1), storage="memory")
    assert (time.time, uuid.uuid4, os.urandom, random.random, trio.to_thread.run_sync) == before
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT strftime('%Y', 'now') > '2000'").fetchone() == (1,)
    assert abs(time.time() - time.time()) < 1


def test_what_cannot_leak_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    """Logging, luck with a seed of its own, virtual sleep, synchronous tools, and another thread's own business."""
    own = random.Random(1)
    stop = threading.Event()
    seen: list[float] = []

    def other() -> None:
        while not stop.wait(0.001):
            seen.append(time.perf_counter())

    def inline() -> str:
        """A synchronous tool."""
        return "inline"

    class Sleeper(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            logging.getLogger("minirun.test").warning("logged")
            assert time.strftime("%Y", time.gmtime(0)) == "1970"
            with closing(sqlite3.connect(":memory:")) as database:
                assert database.execute("SELECT datetime(0, 'unixepoch')").fetchone() == ("1970-01-01 00:00:00",)
            await trio.sleep(1000)
            await ctx.emit(Event(message=str(own.random())))

    def answer(request: Any) -> Any:
        return "done" if request.contents[-1].parts[-1].function_response else call("inline")

    async def scenario(world: World) -> None:
        await world.say(world.runner(lambda: Sleeper(name="sleeper"), app_name="one"), "ada", "hello")
        model = world.runner(lambda: LlmAgent(name="a", model=ScriptedLlm(answer), tools=[inline]), app_name="two")
        await world.say(model, "ada", "hello")

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert simulate(scenario, SeededChoices(1), storage="memory").failure is None
    finally:
        stop.set()
        thread.join()


def test_a_leak_that_is_seen_twice_is_told_as_one() -> None:
    """`date.today()` asks `time.time()`: the strict run sees it first, and no two outcomes are made of it."""

    async def scenario(world: World) -> None:
        datetime.date.today()

    [explored] = explore(scenario, [0], {"storage": "memory"})
    assert isinstance(explored.outcome.failure, LeakError)


BY_NAME: dict[str, Callable[[], Any]] = {
    "datetime.now()": lambda: datetime.datetime.now(),
    "datetime.utcnow()": lambda: datetime.datetime.now(datetime.UTC),
    "time.time()": lambda: time_by_name(),
    "posix.urandom()": lambda: urandom_by_name(1),
}


class Stamped(datetime.datetime):
    """A type of the user's own."""


@pytest.mark.parametrize("leak", BY_NAME)
def test_a_strict_simulation_sees_what_cannot_be_replaced(leak: str) -> None:
    """Types written in C, and functions that were imported by name: seen where all calls are watched."""

    async def scenario(world: World) -> None:
        BY_NAME[leak]()

    assert simulate(scenario, SeededChoices(1), storage="memory").failure is None
    failure = simulate(scenario, SeededChoices(1), storage="memory", strict=True).failure
    assert isinstance(failure, LeakError)
    name = "datetime.now()" if leak == "datetime.utcnow()" else leak
    assert str(failure).startswith(f"{name} asks ")


def test_searches_are_strict_now_and_then() -> None:
    """A day that is read from the real calendar is the same in two runs; it is found all the same, and made small."""

    async def scenario(world: World) -> None:
        world.note("today", str(Stamped.now().date()))

    [explored] = explore(scenario, [20], {"storage": "memory"})
    assert isinstance(explored.outcome.failure, LeakError)
    assert "Stamped.now() asks the real clock" in str(explored.outcome.failure)
    assert not any(explored.outcome.picks)
    assert isinstance(replay(scenario, explored.outcome.picks, {"storage": "memory"}).failure, LeakError)
    [explored] = explore(scenario, [21], {"storage": "memory"})
    assert explored.outcome.failure is None


def test_a_strict_simulation_is_the_same_world() -> None:
    """Watching changes nothing, and whatever else profiles the program is left alone."""

    async def scenario(world: World) -> None:
        runner = world.runner(lambda: LlmAgent(name="agent", model=ScriptedLlm(lambda request: "done")))
        logging.getLogger("minirun.test").warning("logged")
        await world.say(runner, "ada", "hello")
        world.note("day", str(datetime.datetime.fromtimestamp(world.now, datetime.UTC)))

    def digest(**options: bool) -> str:
        return simulate(scenario, SeededChoices(1), storage="memory", faults="all", **options).check().digest

    assert digest() == digest(strict=True)
    seen: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        seen.append(event)

    sys.setprofile(profile)
    try:
        assert digest() == digest(strict=True)
    finally:
        sys.setprofile(None)
    assert sys.getprofile() is None
    assert seen


def test_randomness_that_has_a_seed_is_no_leak() -> None:
    """However the seed is given; what follows from it is the same in every run."""

    async def scenario(world: World) -> None:
        same = random.Random(0)
        again = random.Random(x=0)
        assert same.random() == again.random()
        again.seed(a=0)
        assert random.Random(0).random() == again.random()

    before = random.Random.seed
    assert simulate(scenario, SeededChoices(1), storage="memory", strict=True).failure is None
    assert random.Random.seed is before
