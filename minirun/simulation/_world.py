"""
A world: users who say things to runners, the processes that serve them, and the disk that outlives the processes.

A *process* is a nursery, a session service and an Env. When it dies — killed, or because the power fails — all its
tasks end without another byte reaching the disk, and what they say on the way is heard by nobody. Then the next one
begins with what the disk has kept. Users live outside: `say` looks for a living process, and asks again.

What a world does follows from its choices alone. What may go wrong beside the order of things is named by its `faults`.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TypeAlias

import attrs
import trio

from .._codec import event_to_json
from .._json import JSON
from ..agents import AgentTool, BaseAgent
from ..apps import App
from ..artifacts import BaseArtifactService
from ..credentials import AuthCredential, CredentialKey
from ..errors import ConfigurationError, MinirunError, ModelError
from ..events import Event
from ..memory import BaseMemoryService
from ..models import LLMRegistry
from ..runners import Runner
from ..runtime import RunConfig
from ..sessions import BaseSessionService, Invocation, InvocationStatus, SessionKey, SessionWriter
from ..types import Content
from ._artifacts import ArtifactLedger
from ._checks import MODEL, RESULT, RETRY, TOOL, Checkers, Ledger
from ._choices import Choices
from ._credentials import KeptCredentials
from ._env import COMMIT, Machine, SimulatedEnv
from ._faults import FaultName, Rates, SimulatedFault
from ._memories import MemoryLedger
from ._memory_store import MemoryStore
from ._private import why_not_seeded
from ._saying import SAYING, Saying
from ._schedule import POLICIES, Schedule
from ._sqlite_store import SqliteStore, new_file
from ._store import Store
from ._vfs import Operation

__all__ = ["CheckError", "LogEntry", "Process", "World", "current_world"]

Runnable: TypeAlias = App | BaseAgent | Callable[[], App | BaseAgent]

# How often tasks go on together: never, now and then, often, always.
TOGETHER_ONE_IN = (0, 8, 2, 1)
# How often processes may die in one simulation: enough for a crash during the recovery from a crash.
DEATHS_MAX = 3
# How long something that must come true in the end may take, in seconds, once nothing goes wrong any more.
PATIENCE_S = 3600.0
# How long a process may stand still: longer than its leases last.
STALLS_S = (1.0, 20.0, 60.0)
# How long a slow commit takes, and how long somebody else locks the file, in seconds.
SLOW_COMMITS_S = (0.1, 5.0, 40.0)
LOCKS_S = (0.02, 0.2, 11.0)
# How long a model or a tool hangs: shorter than a run may take, if its RunConfig does not say so.
HANGS_S = 600.0
CLOCK_JUMPS_S = (-3600.0, -1.0, 3600.0)

_INVOCATION = re.compile(r" of (e-[^/ ]+)")


class CheckError(MinirunError, AssertionError):
    """A checker has found the world as it must never be; `what` names the property that does not hold."""

    def __init__(self, message: str, what: str = "") -> None:
        super().__init__(message)
        self.what = what


@attrs.frozen
class LogEntry:
    """What happened in a world: when (virtual seconds since its beginning), who, what, and with which event (JSON)."""

    at_s: float
    who: str
    what: str
    event: str | None = None

    def __str__(self) -> str:
        return f"{self.at_s:.6f} {self.who} {self.what}" + (f" {self.event}" if self.event is not None else "")


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


class Process:
    """One process: the next of those that have its seat."""

    env: SimulatedEnv
    service: BaseSessionService
    artifact_service: BaseArtifactService
    memory_service: BaseMemoryService
    nursery: trio.Nursery

    def __init__(self, number: int, seat: int) -> None:
        self.number = number
        self.seat = seat
        self.scope = trio.CancelScope()
        self.is_dead = False
        self.acknowledged = 0  # since the log was synced

    @property
    def name(self) -> str:
        return f"process {self.number}"


def _holds(check: Callable[[], object]) -> bool:
    """Call a check: what is false, and not None, says that it does not hold."""
    found = check()
    if inspect.iscoroutine(found):
        found.close()
        msg = f"expected a check that is a plain function, found {_name_of(check)}, which is async"
        raise ConfigurationError(msg)
    return found is None or bool(found)


def _name_of(check: Callable[[], object]) -> str:
    return str(getattr(check, "__qualname__", check))


def _restart(root: BaseAgent, *, only_named: bool) -> None:
    """
    Let the models of a tree of agents, and of those that are its tools, begin anew, if they remember anything.

    *only_named*: the registered ones, which outlive every process; the others were just made.
    """
    for agent in root._tree():
        model = getattr(agent, "model", None)
        is_named = isinstance(model, str)
        restart = getattr(LLMRegistry.new_llm(model) if isinstance(model, str) else model, "restart", None)
        if callable(restart) and (is_named or not only_named):
            restart()
        for tool in getattr(agent, "tools", ()):
            if isinstance(tool, AgentTool):
                _restart(tool.agent, only_named=only_named)


def _runner_in(process: Process, app: App, kept: dict[CredentialKey, AuthCredential]) -> Runner:
    return Runner(
        app=app,
        session_service=process.service,
        artifact_service=process.artifact_service,
        memory_service=process.memory_service,
        credential_service=KeptCredentials(kept, env=process.env),
        auto_create_session=True,
    )


@attrs.define
class _Runner:
    """A runner in every seat, and what they are made of."""

    runners: list[Runner]
    make: Callable[[], App]
    hosted: list[Callable[[Runner], Awaitable[object]]] = attrs.Factory(list)


class World:
    """
    The world of one simulation. Made by `simulate` and by the pytest plugin; a scenario gets it as `world`.

    Args:
        choices: What everything follows from.
        faults: What may go wrong: any of `FAULTS`.
        storage: `"memory"`, or `"sqlite"` on a recording disk.
        processes: How many processes serve the users at once, over one file.
        deep: Whether the end is checked by everything there is.
    """

    def __init__(
        self,
        choices: Choices,
        *,
        faults: frozenset[FaultName],
        storage: Literal["memory", "sqlite"],
        processes: int,
        deep: bool,
    ) -> None:
        self.choices = choices
        self.faults = faults
        self.coverage: Counter[str] = Counter()
        """How often what a simulation is for has happened."""
        self.log: list[LogEntry] = []
        """What happened; the same choices give the same."""
        policy = sorted(POLICIES)[choices.choose(len(POLICIES), "policy")]
        together = TOGETHER_ONE_IN[choices.choose(len(TOGETHER_ONE_IN), "how often tasks go on together")]
        if why_not_seeded() is not None:
            together = 0  # trio's order of theirs could not be told again
        self.schedule = Schedule(choices, self._step, policy, together)
        self._rates = Rates(choices, faults)
        self._machine = Machine(self.schedule, self._passed)
        self._storage: Literal["memory", "sqlite"] = storage
        self._new_file = new_file() if storage == "sqlite" else b""
        self._deep = deep
        self._ledger = Ledger()
        self._checkers = Checkers(self._ledger, self._fail)
        self.artifacts = ArtifactLedger(self._ledger, self._fail, self._stored_events)
        """What is known of the artifacts of this world, and must hold of them."""
        self.memories = MemoryLedger(self._fail)
        """What is known of its memories, and must hold of them."""
        self._runners: list[_Runner] = []
        self._always: list[Callable[[], object]] = []
        self._eventually: list[Callable[[], object]] = []
        self._says: Counter[str] = Counter()
        self._deaths = 0
        self._healed = False
        self.problem: CheckError | None = None
        """What a checker has found first."""
        self._seats: list[Process | None] = [None] * processes
        self._numbers = 0
        self._unburied = 0  # processes that have not ended yet, and hold what they have open
        self._power_is_on = trio.Event()
        self._power_is_on.set()
        self._born = trio.Event()
        self._leavers: dict[str, trio.CancelScope] = {}
        self._holders: dict[SessionKey, tuple[int, str]] = {}  # the process and the run that wrote a session last
        self._may_be_deleted: set[SessionKey] = set()
        self._clock_offset_max_s = 0.0
        self._credentials: dict[CredentialKey, AuthCredential] = {}  # outside of the processes, as in a keyring
        self._devices = 0  # that say things for which no scenario waits
        self._store: Store
        self._nursery: trio.Nursery

    # --- for scenarios

    def runner(self, what: Runnable, *, app_name: str = "app", state: Mapping[str, object] | None = None) -> Runner:
        """
        A runner of an app, an agent, or a function that makes one (called again for every process).

        Where it is no function, the scripts of its models begin anew for every process: `restart()` is called on those
        that have one. Of models that are registered by name it is called in any case. Sessions are made on their first
        use. *state* is the app's initial `app:` state, committed when this returns. Its `credential_service` keeps what
        it is given outside of all processes, as a keyring does. Its `artifact_service` and `memory_service` are in the
        file of the sessions; with `storage="memory"` they are outside of all processes, too, and artifacts are seen as
        soon as they are saved.
        """

        def make() -> App:
            made = what() if callable(what) and not isinstance(what, (App, BaseAgent)) else what
            app = made if isinstance(made, App) else App(app_name, made)
            _restart(app.root_agent, only_named=made is not what)
            return app

        made = _Runner([], make)
        for process in self._seats:
            assert process is not None, "every seat is taken before a scenario begins"
            made.runners.append(_runner_in(process, make(), self._credentials))
        self._runners.append(made)
        if state:
            if wrong := [key for key in state if not key.startswith("app:")]:
                msg = f"expected `app:` keys in state, found {wrong[0]!r:.80}; what is left belongs to users"
                raise ConfigurationError(msg)
            self._store.seed(made.runners[0].app_name, dict(state))
        return made.runners[0]

    async def say(
        self,
        runner: Runner,
        user_id: str,
        text: str | Content,
        *,
        session_id: str | None = None,
        run_config: RunConfig | None = None,
    ) -> Event | None:
        """
        Let a user say something and wait for the answer; the user's session is named after the user.

        A user whose process dies, or whose message meets a faulty disk, looks whether the answer is stored, and asks
        again if it is not. What the run fails with otherwise is raised: where the message answers a question
        (`pending.reply(...)`) and was stored before the process died, that it answers no open question.
        """
        session = user_id if session_id is None else session_id
        self._says[user_id] += 1
        saying = Saying(self, runner, user_id, session, text, run_config, f"{user_id} {self._says[user_id]}")
        return await saying.until_answered()

    def state(self, runner: Runner, *, user_id: str | None = None, session_id: str | None = None) -> dict[str, JSON]:
        """The committed state: of the app, with *user_id* that of the user too, with *session_id* all of it."""
        if session_id is not None and user_id is None:
            msg = f"expected a user_id with session_id={session_id!r:.80}: a session belongs to a user"
            raise ConfigurationError(msg)
        self._made(runner)
        return self._store.state(runner.app_name, user_id, session_id)

    def always(self, check: Callable[[], object]) -> None:
        """Let *check* be called after every step; it fails by raising, or by returning what is false (but None)."""
        self._always.append(check)

    def eventually(self, check: Callable[[], object]) -> None:
        """
        Let *check* come true at the end, when nothing goes wrong any more; it has an hour of virtual time for it.

        It is not true yet when it returns False or raises AssertionError.
        """
        self._eventually.append(check)

    def host(self, runner: Runner, work: Callable[[Runner], Awaitable[object]]) -> None:
        """
        Let *work* be done in every process, beside what users ask, from now on and in those to come.

        It is given the runner of its process, as in `world.host(runner, Runner.supervise)`, and ends with it.
        """
        made = self._made(runner)
        made.hosted.append(work)
        for process in self._living():
            process.nursery.start_soon(work, made.runners[process.seat], name="hosted")

    async def heal(self) -> None:
        """Let nothing go wrong from now on, and wait until all processes live: then what waits can come to its end."""
        self._heal()
        await self._all_living()

    async def restart(self) -> None:
        """End all processes as `kill -9` does, and wait for the next ones."""
        for process in self._living():
            self._die(process, "is killed by the scenario")
        await self._all_living()

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await trio.sleep(seconds)
        await self.schedule.point("sleep")

    @property
    def now(self) -> float:
        """Virtual time, in seconds since the epoch, as the processes see it."""
        return SimulatedEnv(self._machine, 0).now()

    def strikes(self, kind: str, label: str) -> bool:
        """Whether something of this kind goes wrong now."""
        return not self._healed and self._rates.strikes(kind, label)

    def note(self, who: str, what: str, event: Event | None = None) -> None:
        """Write into the log that *who* (a process, a user, the disk) did or met *what*."""
        text = None if event is None else event_to_json(event)
        self.log.append(LogEntry(round(trio.current_time(), 6), who, what, text))

    def reached(self, what: str) -> None:
        """Count that something happened which simulations are for."""
        self.coverage[what] += 1

    def _made(self, runner: Runner) -> _Runner:
        """Find what *runner* belongs to, or raise."""
        for made in self._runners:
            if runner in made.runners:
                return made
        msg = "expected a runner of this world, which world.runner() has made"
        raise ConfigurationError(msg)

    # --- the course of a world

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Run the world while the block runs; then let what goes wrong end, and check what is left."""
        token = _CURRENT.set(self)
        try:
            with self._stored():
                async with self.schedule.running(), trio.open_nursery() as self._nursery:
                    for seat in range(len(self._seats)):
                        self._begin(seat)
                    await self._all_living()
                    yield
                    self._heal()
                    await self._all_living()
                    await self._check_end()
                    for process in self._living():
                        process.is_dead = True
                    self._nursery.cancel_scope.cancel()
        finally:
            _CURRENT.reset(token)

    def _heal(self) -> None:
        """Nothing goes wrong from now on, and clocks that were set back are set right: leases run out."""
        self._healed = True
        self.schedule.stalled.clear()
        self._machine.clock_offset_s = self._clock_offset_max_s

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Make the store, and close it."""
        with ExitStack() as stack:
            if self._storage == "memory":
                self._store = MemoryStore(self)
            else:
                memory = Path("/dev/shm")  # a disk that needs no head
                place = memory if memory.is_dir() else None
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="minirun-", dir=place))
                self._store = SqliteStore(Path(folder), self.choices, self, self._new_file)
            stack.callback(self._store.close)
            yield

    def _begin(self, seat: int) -> None:
        self._numbers += 1
        process = Process(self._numbers, seat)
        self._nursery.start_soon(self._run, process, name=process.name)

    async def _run(self, process: Process) -> None:
        """A process, from its beginning to its burial, after which the next one takes its seat."""
        if process.number > len(self._seats):
            await self.schedule.point("restart")
        while not self._power_is_on.is_set():  # it may be gone again by the time this goes on
            await self._power_is_on.wait()

        def fault(operation: Operation, file: str) -> int:
            return self._disk_fault(process, operation, file)

        process.env = SimulatedEnv(self._machine, process.number, self._store.disk_for(process, fault))
        process.service = self._store.open(process)
        process.artifact_service = self._store.open_artifacts(process)
        process.memory_service = self._store.open_memories(process)
        self._unburied += 1
        for made in self._runners:  # what a scenario holds becomes the runner of the new process
            vars(made.runners[process.seat]).update(vars(_runner_in(process, made.make(), self._credentials)))
        try:
            with process.scope:
                async with trio.open_nursery() as process.nursery:
                    self.note(process.name, "begins")
                    self._seats[process.seat] = process
                    self._born.set()
                    self._born = trio.Event()
                    for made in self._runners:
                        for work in made.hosted:
                            process.nursery.start_soon(work, made.runners[process.seat], name="hosted")
                    await trio.sleep_forever()
        except* Exception as group:
            if not process.is_dead:
                raise group from None
        finally:
            process.is_dead = True
        self._store.bury(process)
        self.note(process.name, "is gone")
        self._unburied -= 1
        if not self._unburied and not self._power_is_on.is_set():
            self._store.power_is_back()
            self._power_is_on.set()
        if not self._unburied or self._power_is_on.is_set():
            self._find()
        self._begin(process.seat)

    def _living(self) -> list[Process]:
        return [process for process in self._seats if process is not None and not process.is_dead]

    async def _all_living(self) -> None:
        while len(self._living()) < len(self._seats):
            await self._born.wait()
        await self.schedule.point("next process")

    async def _any_living(self) -> Process:
        """A living process: which, is a choice."""
        while not self._living():
            await self._born.wait()
            await self.schedule.point("next process")
        living = self._living()
        return living[self.choices.choose(len(living), "which process is asked")]

    def _die(self, process: Process, how: str) -> None:
        if process.is_dead:
            return
        process.is_dead = True
        self._deaths += 1
        self.reached("crash")
        if any(label in ("recover", "message") and f"/{process.name}/" in name for name, label in self._points()):
            self.reached("crash in recovery")
        self.note(process.name, how)
        self.schedule.stalled.pop(self._path_of(process), None)
        process.scope.cancel()

    def _points(self) -> Iterator[tuple[str, str]]:
        yield from self.schedule.waiting()

    def _path_of(self, process: Process) -> str:
        return f"/scenario/{process.name}"

    def _fail_power(self, how: str) -> None:
        self.reached("power cut")
        self._ledger.doubtful.update(self._ledger.ended)
        self._power_is_on = trio.Event()
        for process in self._living():
            self._die(process, how)

    # --- what the stores tell

    def storing(self, key: SessionKey, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        """An append was acknowledged."""
        assert event.seq is not None
        log = self._ledger.logs.get(key)
        if log is None or event.seq > len(log):
            self._find_log(key, event.seq)
            log = self._ledger.logs[key]
        if event.seq >= len(log) or log[event.seq].id != event.id:  # else a look at the disk has found it already
            by = None if writer is None else writer.invocation_id
            self._checkers.storing(key, event, by=by, begins=begins)
            self._ledger.add(key, event, tracked=writer is not None)
        for process in self._living():
            process.acknowledged += self._is_of(process)
        if writer is None:
            return
        if begins:
            if not self._ledger.begins(event, writer):
                self.reached("lease taken over")
            self._ledger.begun[SAYING.get("")] = (key, writer.invocation_id)
            self._note_holder(key, writer.invocation_id)
        elif event.invocation_id == writer.invocation_id:
            self._ledger.acknowledged[writer.invocation_id].append(event)

    def _note_holder(self, key: SessionKey, invocation_id: str) -> None:
        number = next((process.number for process in self._seats if process is not None and self._is_of(process)), 0)
        before = self._holders.get(key)
        self._holders[key] = (number, invocation_id)
        if before is not None and before[0] != number and before[1] not in self._ledger.ended:
            self.reached("lease taken over")

    def created(self, key: SessionKey, events: Sequence[Event], own: int) -> None:
        """A session was made."""
        if key in self._ledger.logs and not self._is_there(key, self._store.stored()):
            self._ledger.delete(key)  # the one before was deleted, and nobody was told
        past = self._store.log(key) if own < 0 else events
        self._ledger.create(key, past, own=len(past) if own < 0 else own)

    def deleting(self, key: SessionKey) -> None:
        """A session is to be deleted; nobody may be told whether it was."""
        self._may_be_deleted.add(key)

    def deleted(self, key: SessionKey) -> None:
        """A session was deleted."""
        if key in self._ledger.logs and not self._is_there(key, self._store.stored()):
            self._ledger.delete(key)

    def _is_there(self, key: SessionKey, stored: Mapping[SessionKey, Mapping[int, str | None]]) -> bool:
        """Whether the session that is known is stored, and not another one under its id."""
        log, own = self._ledger.logs[key], self._ledger.own[key]
        return key in stored and (own >= len(log) or stored[key].get(own) == log[own].id)

    def ended(self, writer: SessionWriter, status: InvocationStatus) -> None:
        """The end of an invocation was recorded, unless that failed, or another run goes on with it by now."""
        invocation_id = writer.invocation_id
        if not self._store.has_ended(writer.live.key, invocation_id, status):
            return
        if self._ledger.run_by.get(invocation_id, (0, None))[1] is writer:
            self._checkers.ended(writer.live.key, invocation_id, status)
            self._ledger.ended[invocation_id] = status

    def _find(self) -> None:
        """Compare with what is on the disk, and take into the ledger what nobody was told of: crashes leave that."""
        stored = self._store.stored()
        for key in [key for key in self._ledger.logs if key in self._may_be_deleted]:
            if not self._is_there(key, stored):
                self._ledger.delete(key)
        self._checkers.found(stored)
        for key, ids in stored.items():
            log = self._ledger.logs.get(key)
            if log is None or max(ids, default=-1) >= len(log):
                self._find_log(key, None)
        if self.artifacts.is_used:
            self.artifacts.check(self._store.artifacts(), forks_copy=self._store.forks_copy)
        if self.memories.is_used:
            self.memories.check(self._store.memories())

    def _stored_events(self) -> Iterator[tuple[SessionKey, Event]]:
        for key in self._store.stored():
            for event in self._store.log(key):
                yield key, event

    def _find_log(self, key: SessionKey, until: int | None) -> None:
        found = self._store.log(key)[:until]
        self.reached("stored and not told")
        if key not in self._ledger.logs:
            self._ledger.create(key, found)
        for event in found[len(self._ledger.logs[key]) :]:
            if event.author == "user":
                self._ledger.run_by.pop(event.invocation_id or "", None)
            self._ledger.add(key, event, tracked=event.invocation_id is not None)

    def _is_of(self, process: Process) -> bool:
        """Whether the current task is one of the process."""
        path = self.schedule.name_of(trio.lowlevel.current_task())
        return f"{path}/".startswith(f"{self._path_of(process)}/")

    # --- steps, faults and checks

    def _step(self) -> None:
        if self.problem is not None:
            raise self.problem
        if not self._power_is_on.is_set():
            return  # what is stored is what the power cut will leave
        for check in self._always:
            if not _holds(check):
                self._fail(f"always({_name_of(check)}) does not hold")
        if self.strikes("lock", "another program locks the file"):
            self._nursery.start_soon(self._hold_lock, name="another program")
        living = self._living()
        if not living:
            return
        if self._deaths < DEATHS_MAX and self.strikes("death", "a process is killed"):
            victim = living[self.choices.choose(len(living), "which process is killed")]
            self._die(victim, "is killed")
        elif self.strikes("clock", "the clock on the wall jumps"):
            jump = CLOCK_JUMPS_S[self.choices.choose(len(CLOCK_JUMPS_S), "by how much")]
            self._machine.clock_offset_s += jump
            self._clock_offset_max_s = max(self._clock_offset_max_s, self._machine.clock_offset_s)
            self.reached("clock set back" if jump < 0 else "clock set forward")
            self.note("the clock", f"jumps by {jump:+.0f} s")
        elif len(living) > 1 and self.strikes("stall", "a process stands still"):
            victim = living[self.choices.choose(len(living), "which process stands still")]
            how_long = STALLS_S[self.choices.choose(len(STALLS_S), "for how long")]
            self.schedule.stalled[self._path_of(victim)] = trio.current_time() + how_long
            self.reached("stall")
            self.note(victim.name, f"stands still for {how_long:.0f} s")

    def _disk_fault(self, process: Process, operation: Operation, file: str) -> int:
        """What the disk answers: 0, or an error of SQLite's."""
        if operation == "sync" and file.endswith("-wal"):
            if process.acknowledged > 1:
                self.reached("group commit")
            process.acknowledged = 0
        what = f"power before a {operation} of {file}"
        may_end = operation in ("write", "sync") and self._deaths < DEATHS_MAX
        if may_end and self.strikes("power cut", f"lost {what}"):
            self._fail_power(f"loses {what}")
            return self._store.error
        if self.strikes("disk", f"a {operation} of {file} fails"):
            if operation == "write" and self.choices.choose(2, "because the disk is full"):
                self.reached("disk full")
                self.note("the disk", f"is full at a write of {file}")
                return self._store.full
            self.reached("disk fault")
            self.note("the disk", f"fails a {operation} of {file}")
            return self._store.error
        return 0

    def _passed(self, label: str) -> Awaitable[None] | None:
        """A task has passed a point of the runtime's: tell the checkers, and let what it stands for go wrong."""
        task = self.schedule.name_of(trio.lowlevel.current_task())
        found = _INVOCATION.findall(task)
        invocation = found[-1] if found else None
        self._checkers.point(label, invocation)
        if label == COMMIT:
            return self._slow_disk() if self.strikes("slow disk", "a commit is slow") else None
        if label.startswith(MODEL) and self.strikes("model", "the model fails"):
            return self._model_fails()
        if label.startswith((TOOL, RETRY)) and self.strikes("tool", f"the {label.partition('#')[0]} fails"):
            return self._tool_fails(label, task)
        if label.startswith(RESULT) and self.strikes("tool", f"the {label.partition('#')[0]} is lost"):
            self.reached("tool: raises after its work")
            raise SimulatedFault(f"the {label} was lost (simulated)")
        return None

    async def _slow_disk(self) -> None:
        self.reached("slow disk")
        await self.sleep(SLOW_COMMITS_S[self.choices.choose(len(SLOW_COMMITS_S), "how slow")])

    async def _hold_lock(self) -> None:
        """Somebody else holds the write lock, for shorter or longer than minirun waits for it."""
        if self._store.lock():
            self.reached("locked by another program")
            seldom = lambda luck: 2 if luck.randrange(10) == 0 else luck.randrange(2)  # noqa: E731 # waiting takes steps
            held_s = LOCKS_S[self.choices.choose(len(LOCKS_S), "how long the file is locked", seldom)]
            self.note("another program", f"holds the write lock for {held_s:g} s")
            await trio.sleep(held_s)
            self._store.unlock()

    async def _model_fails(self) -> None:
        if self.choices.choose(2, "how the model fails: stalls"):
            self.reached("model: stalls")
            await self.sleep(HANGS_S)
        else:
            self.reached("model: raises")
            raise ModelError("the model is overloaded (simulated)")

    async def _tool_fails(self, label: str, task: str) -> None:
        kinds = ("raises", "slow", "hangs", "cancelled")
        kind = kinds[self.choices.choose(len(kinds), "how the tool fails", names=kinds)]
        self.reached(f"tool: {kind}")
        if kind == "raises":
            raise SimulatedFault(f"{label} failed (simulated)")
        if kind == "cancelled":
            for token, scope in self._leavers.items():
                if f"/say {token}/" in f"{task}/":
                    scope.cancel()
        await self.sleep({"slow": 5, "hangs": HANGS_S}.get(kind, 0))

    async def _check_end(self) -> None:
        while self._devices:
            await self.sleep(1)
        for check in self._eventually:
            await self._until_true(check)
        self._find()
        for invocation in await self._ended_invocations():
            told = self._ledger.ended.get(invocation.invocation_id)
            if told is not None and invocation.status not in (told, InvocationStatus.INTERRUPTED):
                self._fail(f"{invocation.invocation_id} has ended as {told}, and is listed as {invocation.status}")
        logs = {key: self._store.log(key) for key in self._store.stored()}
        self._checkers.closed(logs, self._store.all_state())
        if self._deep:
            for damage in self._store.damages():
                self._fail(damage)

    async def _ended_invocations(self) -> list[Invocation]:
        """All invocations, once those whose end could not be recorded have lost their leases."""
        until = trio.current_time() + PATIENCE_S
        while True:
            invocations = await self._living()[0].service.list_invocations()
            running = [each.invocation_id for each in invocations if each.status is InvocationStatus.RUNNING]
            if not running:
                return invocations
            if trio.current_time() >= until:
                self._fail(f"the invocations {running} are listed as running, and nothing runs")
            await self.sleep(10)

    async def _until_true(self, check: Callable[[], object]) -> None:
        pause, until = 1.0, trio.current_time() + PATIENCE_S
        while True:
            try:
                if _holds(check):
                    return
                problem: AssertionError = CheckError(f"eventually({_name_of(check)}) does not hold")
            except AssertionError as error:
                problem = error
            if trio.current_time() >= until:
                raise problem
            await self.sleep(pause)
            pause *= 2

    def _fail(self, message: str, what: str = "") -> None:
        """Fail the simulation, whoever catches this on the way."""
        error = CheckError(message, what)
        self.problem = self.problem or error
        raise error
