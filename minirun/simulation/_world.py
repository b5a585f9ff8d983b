"""
A world: users who say things to runners, the processes that serve them, and the disk that outlives the processes.

One *life* is one process: a nursery, its session service, its Env. When it dies — killed, or by a power cut — all its
tasks end without another byte reaching the disk, and what they say on the way is heard by nobody. Then the next life
begins with what the disk has kept. Users live outside: `say` waits for the next life and asks again.

What a world does follows from its choices alone. What it may do beside scheduling is named by its `faults`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import trio

from .._codec import event_to_json
from .._json import JSON
from ..agents import BaseAgent
from ..apps import App
from ..errors import ConfigurationError, MinirunError, StorageError
from ..events import Event
from ..runners import Runner
from ..runtime import RunConfig
from ..sessions import BaseSessionService, SessionKey
from ._choices import Choices
from ._env import SimulatedEnv
from ._schedule import POLICIES, Schedule
from ._stores import MemoryStore, SqliteStore, Store
from ._vfs import Operation

__all__ = ["FAULTS", "CheckError", "FaultName", "LogEntry", "World", "current_world"]

FaultName: TypeAlias = Literal["crash", "storage", "model", "tools", "users"]
FAULTS: tuple[FaultName, ...] = ("crash", "storage", "model", "tools", "users")

Runnable: TypeAlias = App | BaseAgent | Callable[[], App | BaseAgent]

# How often a process may die in one simulation: enough for a crash during the recovery from a crash.
DEATHS_MAX = 3
# One step in so many is a process's last.
DEATH_ONE_IN = 40
# A disk operation in so many fails, and one in so many is the last before a power cut.
DISK_FAULT_ONE_IN = 60


class CheckError(MinirunError, AssertionError):
    """A checker has found the world as it must never be."""


_CURRENT: ContextVar[World] = ContextVar("minirun simulated world")


def current_world() -> World:
    """
    The world that the current task lives in.

    Raises:
        ConfigurationError: It is in none.
    """
    try:
        return _CURRENT.get()
    except LookupError:
        msg = "expected to run inside a simulation; this is only for tests marked `simulation`, or `simulate`"
        raise ConfigurationError(msg) from None


class _DiedError(Exception):
    """The process that was asked has died."""


class _Life:
    """One process."""

    def __init__(self, number: int, env: SimulatedEnv, service: BaseSessionService) -> None:
        self.number = number
        self.env = env
        self.service = service
        self.scope = trio.CancelScope()
        self.nursery: trio.Nursery | None = None
        self.is_dead = False
        self.ended = trio.Event()


@attrs.define
class _Runner:
    """A runner and what it was made of."""

    runner: Runner
    make: Callable[[], App]
    state: Mapping[str, object]


@attrs.frozen
class LogEntry:
    """What happened in a world: when (virtual seconds since its beginning), who, what, and with which event (JSON)."""

    at_s: float
    who: str
    what: str
    event: str | None = None

    def __str__(self) -> str:
        return f"{self.at_s:.6f} {self.who} {self.what}" + (f" {self.event}" if self.event is not None else "")


class World:
    """
    The world of one simulation. Made by `simulate` and by the pytest plugin; a scenario gets it as `world`.

    Args:
        choices: What everything follows from.
        faults: What may go wrong: any of `FAULTS`.
        storage: `"memory"`, or `"sqlite"` on a recording disk.
    """

    def __init__(self, choices: Choices, *, faults: frozenset[FaultName], storage: Literal["memory", "sqlite"]) -> None:
        self.choices = choices
        self.faults = faults
        self.coverage: Counter[str] = Counter()
        """How often what a simulation is for has happened."""
        self.log: list[LogEntry] = []
        """What happened; the same choices give the same."""
        policy = sorted(POLICIES)[choices.choose(len(POLICIES), "policy")]
        self.schedule = Schedule(choices, self._step, policy)
        self._storage: Literal["memory", "sqlite"] = storage
        self._clock_offset = [0.0]
        self._runners: list[_Runner] = []
        self._always: list[Callable[[], object]] = []
        self._eventually: list[Callable[[], object]] = []
        self._says: Counter[str] = Counter()
        self._deaths = 0
        self._healed = False
        self._life: _Life
        self._born = trio.Event()
        self._store: Store

    # --- for scenarios

    def runner(self, what: Runnable, *, app_name: str = "app", state: Mapping[str, object] | None = None) -> Runner:
        """
        A runner of an app, an agent, or a function that makes one (called again for every process).

        Sessions are made on their first use. *state* is the app's initial `app:` state.
        """

        def make() -> App:
            made = what() if callable(what) and not isinstance(what, (App, BaseAgent)) else what
            return made if isinstance(made, App) else App(app_name, made)

        runner = Runner(app=make(), session_service=self._life.service, auto_create_session=True)
        self._runners.append(_Runner(runner, make, dict(state or {})))
        if state:
            self._store.seed(runner.app_name, dict(state))
        return runner

    async def say(self, runner: Runner, user_id: str, text: str, *, session_id: str | None = None) -> Event | None:
        """
        Let a user say something and wait for the answer; the user's session is named after the user.

        A user whose process dies, or whose message meets a faulty disk, asks again as soon as there is a next one.
        What the run fails with otherwise is raised.
        """
        session = user_id if session_id is None else session_id
        self._says[user_id] += 1
        token = f"{user_id} {self._says[user_id]}"
        while True:
            life = self._life
            try:
                answer: Event | None = await self._in_life(
                    life, token, lambda: self._converse(runner, user_id, session, text, token)
                )
                return answer
            except _DiedError:
                self.coverage["asked again after a crash"] += 1
            except StorageError:
                if self._healed:
                    raise
                self.coverage["asked again after a storage error"] += 1
                await life.env.sleep(1)
            await self._next_life()

    def state(self, runner: Runner, *, user_id: str | None = None, session_id: str | None = None) -> dict[str, JSON]:
        """The committed state: of the app, with *user_id* that of the user too, with *session_id* all of it."""
        return self._store.state(runner.app_name, user_id, session_id)

    def always(self, check: Callable[[], object]) -> None:
        """Let *check* be called after every step; it fails by raising, or by returning False."""
        self._always.append(check)

    def eventually(self, check: Callable[[], object]) -> None:
        """Let *check* be called at the end, when nothing goes wrong any more and everything has come to rest."""
        self._eventually.append(check)

    async def restart(self) -> None:
        """End the process as `kill -9` does, and wait for the next one."""
        self._die("is killed by the scenario")
        await self._next_life()

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self._life.env.sleep(seconds)

    @property
    def now(self) -> float:
        """Virtual time, in seconds since the epoch."""
        return self._life.env.now()

    # --- the course of a world

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Run the world while the block runs; then let what goes wrong end, and check what is left."""
        token = _CURRENT.set(self)
        try:
            with self._stored():
                async with self.schedule.running(), trio.open_nursery() as nursery:
                    nursery.start_soon(self._lives, name="processes")
                    await self._born.wait()
                    yield
                    self._healed = True
                    await self._check_end()
                    self._life.is_dead = True
                    nursery.cancel_scope.cancel()
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Make the store, and close it."""
        with ExitStack() as stack:
            if self._storage == "memory":
                self._store = MemoryStore()
            else:
                memory = Path("/dev/shm")  # a disk that needs no head
                place = memory if memory.is_dir() else None
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="minirun-", dir=place))
                self._store = SqliteStore(Path(folder), self.choices, self._disk_fault)
            stack.callback(self._store.close)
            yield

    async def _lives(self) -> None:
        """One life after the other."""
        number = 0
        while True:
            number += 1
            self._store.prepare()
            env = SimulatedEnv(self.schedule, number, self._clock_offset, self._store.vfs)
            life = _Life(number, env, self._store.open(env))
            for made in self._runners:
                made.runner.session_service = life.service
                made.runner._env = env
                made.runner.app = made.make()
            self._life = life
            try:
                with life.scope:
                    async with trio.open_nursery() as life.nursery:
                        self.note(f"process {number}", "begins")
                        self._born.set()
                        await trio.sleep_forever()
            except* Exception as group:
                if not life.is_dead:
                    raise group from None
            self._born = trio.Event()
            life.nursery = None
            self._store.bury()
            self.note(f"process {number}", "is gone")
            life.ended.set()
            await self.schedule.point("restart")

    def _die(self, how: str) -> None:
        life = self._life
        if not life.is_dead:
            life.is_dead = True
            self._deaths += 1
            self.coverage["crash"] += 1
            self.note(f"process {life.number}", how)
            self._store.die(power="power" in how)
            life.scope.cancel()

    async def _next_life(self) -> None:
        if self._life.is_dead:
            await self._life.ended.wait()
            await self._born.wait()
        await self.schedule.point("next life")

    async def _in_life(self, life: _Life, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do *work* in a task of the process; what it comes to is heard only while the process lives."""
        if life.is_dead or life.nursery is None:
            raise _DiedError
        result: list[Any] = []
        done = trio.Event()

        async def task() -> None:
            try:
                result.append((await work(), None))
            except Exception as error:
                result.append((None, error))
            finally:
                done.set()

        with trio.CancelScope() as leaving:
            life.nursery.start_soon(task, name=f"say {name}")
            await done.wait()
        await self.schedule.point("heard")
        if leaving.cancelled_caught:
            self.coverage["user left"] += 1
        if life.is_dead or not result:
            raise _DiedError
        value, error = result[0]
        if error is not None:
            raise error
        return value

    async def _converse(self, runner: Runner, user_id: str, session: str, text: str, token: str) -> Event | None:
        config = RunConfig(custom_metadata={"say": token})
        seen = 0
        async with runner.run_async(user_id=user_id, session_id=session, new_message=text, run_config=config) as run:
            async for event in run:
                if event.seq is not None:
                    if event.seq <= seen:
                        self._fail(f"{token} has seen event {event.seq} after {seen}")
                    seen = event.seq
                    key = SessionKey(runner.app_name, user_id, session)
                    if self._store.acknowledged.get((key, event.seq)) != event.id:
                        self._fail(f"{token} has seen event {event.seq} of {key}, which is not stored")
                self.note(user_id, "sees", event)
        return run.answer

    # --- steps, faults and checks

    def _step(self) -> None:
        if self._life.is_dead:
            return  # what is stored is what the next process will find
        for check in self._always:
            if check() is False:
                self._fail(f"always({getattr(check, '__qualname__', check)}) is False")
        if self._may_die() and self.choices.maybe("the process is killed", DEATH_ONE_IN):
            self._die("is killed")

    def _may_die(self) -> bool:
        return "crash" in self.faults and not self._healed and self._deaths < DEATHS_MAX and not self._life.is_dead

    def _disk_fault(self, operation: Operation, file: str) -> int:
        """What the disk answers: 0, or an error of SQLite's."""
        if self._healed or self._life.is_dead:
            return 0
        changing = operation in ("write", "sync")
        label = f"the power fails before a {operation} of {file}"
        if changing and self._may_die() and self.choices.maybe(label, DISK_FAULT_ONE_IN):
            self._die(f"loses power before a {operation} of {file}")
            return self._store.error
        if "storage" in self.faults and self.choices.maybe(f"a {operation} of {file} fails", DISK_FAULT_ONE_IN):
            self.coverage["disk fault"] += 1
            self.note("the disk", f"fails a {operation} of {file}")
            return self._store.error
        return 0

    async def _check_end(self) -> None:
        while self._life.is_dead:
            await self._next_life()
        await self._store.check(self._fail)
        for check in self._eventually:
            if check() is False:
                self._fail(f"eventually({getattr(check, '__qualname__', check)}) is False")

    def _fail(self, what: str) -> None:
        raise CheckError(what)

    def note(self, who: str, what: str, event: Event | None = None) -> None:
        """Write into the log that *who* (a process, a user, the disk) did or met *what*."""
        text = None if event is None else event_to_json(event)
        self.log.append(LogEntry(round(trio.current_time(), 6), who, what, text))
