"""
A world: users who say things to runners, the processes that serve them, and the disk that outlives the processes.

Users live outside of the processes (`_processes`): `say` looks for a living one, and asks again if that dies.

What a world does follows from its choices alone. What may go wrong beside the order of things is named by its `faults`,
and done by `_mishaps`. What is stored is told to the `_witness`, whose ledger the checkers compare with.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import attrs
import trio

from .._codec import to_json
from .._json import JSON, brief
from .._web import Web
from .._workflow_errors import StrayCancellationError
from ..agents import AgentTool, BaseAgent
from ..apps import App
from ..errors import ConfigurationError, MinirunError
from ..events import Event
from ..models import LLMRegistry
from ..runners import Runner
from ..runtime import RunConfig
from ..sessions import Invocation, InvocationStatus
from ..types import Content
from ._behaviour import COUNTED, Note
from ._checks import Checkers, Ledger
from ._choices import Choices
from ._env import Machine, SimulatedEnv
from ._faults import FaultName
from ._memory_store import MemoryStore
from ._mishaps import Mishaps
from ._private import why_not_seeded
from ._processes import Processes
from ._saying import Saying
from ._schedule import POLICIES, Schedule
from ._sqlite_store import SqliteStore, new_file
from ._store import Store
from ._witness import Witness

__all__ = ["CheckError", "LogEntry", "World", "current_world"]

Runnable: TypeAlias = App | BaseAgent | Callable[[], App | BaseAgent]

# How often tasks go on together: never, now and then, often, always.
TOGETHER_ONE_IN = (0, 8, 2, 1)
# How long something that must come true in the end may take, in seconds, once nothing goes wrong any more.
PATIENCE_S = 3600.0


class CheckError(MinirunError, AssertionError):
    """A checker has found the world as it must never be; `what` names the property that does not hold."""

    def __init__(self, message: str, what: str = "") -> None:
        super().__init__(message)
        self.what = what


def _as_json(event: Event | str | None) -> str | None:
    return to_json(event) if isinstance(event, Event) else event


@attrs.frozen
class LogEntry:
    """What happened in a world: when (virtual seconds since its beginning), who, what, and with which event (JSON)."""

    at_s: float
    who: str
    what: str
    # Kept as it is, for it cannot change, and few logs are read.
    _event: Event | str | None = attrs.field(default=None, alias="event", eq=_as_json)

    @property
    def event(self) -> str | None:
        """The event, as JSON."""
        return _as_json(self._event)

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


def _holds(check: Callable[[], object]) -> bool:
    """Call a check: what is false, and not None, says that it does not hold."""
    try:
        found = check()
    except trio.Cancelled as error:  # it has no checkpoint to raise it
        raise StrayCancellationError(f"the check {_name_of(check)} has raised trio.Cancelled") from error
    if found is True:
        return True
    if inspect.iscoroutine(found):
        found.close()
        msg = f"expected a check that is a plain function, found {_name_of(check)}, which is async"
        raise ConfigurationError(msg)
    return found is None or bool(found)


def _name_of(check: Callable[[], object]) -> str:
    """What a check is called, and where it stands if it has a place of its own."""
    name, code = str(getattr(check, "__qualname__", check)), getattr(check, "__code__", None)
    return name if code is None else f"{name}, {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def _remove(folder: str) -> None:
    """Remove a folder and what is in it; `shutil.rmtree` takes three times as long, for it guards against others."""
    for place, _, files in os.walk(folder, topdown=False):
        for file in files:
            os.unlink(os.path.join(place, file))
        os.rmdir(place)


class World:
    """
    The world of one simulation. Made by `simulate` and by the pytest plugin; a scenario gets it as `world`.

    It ends with its run. Then its log and its counters can be read, and its methods raise ConfigurationError.

    Args:
        choices: What everything follows from.
        faults: What may go wrong: any of `FAULTS`.
        storage: `"memory"`, or `"sqlite"` on a recording disk.
        processes: How many processes serve the users at once, over one file.
        deep: Whether the end is checked by everything there is.
        hasty: Whether it goes on without end after a part of the usual steps already.
    """

    def __init__(
        self,
        choices: Choices,
        *,
        faults: frozenset[FaultName],
        storage: Literal["memory", "sqlite"],
        processes: int,
        deep: bool,
        hasty: bool = False,
    ) -> None:
        self.choices = choices
        self.faults = faults
        self.coverage: Counter[str] = Counter()
        """How often what a simulation is for has happened."""
        self.log: list[LogEntry] = []
        """What happened; the same choices give the same."""
        self.notes: list[Note] = []
        """What may tell this world from others: see `_behaviour`."""
        policy = sorted(POLICIES)[choices.choose(len(POLICIES), "policy")]
        together = TOGETHER_ONE_IN[choices.choose(len(TOGETHER_ONE_IN), "how often tasks go on together")]
        if why_not_seeded() is not None:
            together = 0  # trio's order of theirs could not be told again
        self.schedule = Schedule(choices, self._step, policy, together, hasty=hasty)
        self._processes = Processes(self, processes)
        self._mishaps = Mishaps(self)
        self._machine = Machine(self.schedule, self._mishaps.passed)
        self._storage: Literal["memory", "sqlite"] = storage
        self._new_file = new_file() if storage == "sqlite" else b""
        self._deep = deep
        self._ledger = Ledger()
        self._checkers = Checkers(self._ledger, self._fail)
        self._witness = Witness(self)
        self.artifacts = self._witness.artifacts
        """What is known of the artifacts of this world, and must hold of them."""
        self.memories = self._witness.memories
        """What is known of its memories, and must hold of them."""
        self._always: list[Callable[[], object]] = []
        self._eventually: list[Callable[[], object]] = []
        self._says: Counter[str] = Counter()
        self.problem: CheckError | None = None
        """What a checker has found first."""
        self._leavers: dict[str, trio.CancelScope] = {}
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

        made = self._processes.seat(make)
        if state:
            if wrong := [key for key in state if not key.startswith("app:")]:
                msg = f"expected `app:` keys in state, found {brief(wrong[0])}; what is left belongs to users"
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
            msg = f"expected a user_id with session_id={brief(session_id)}: a session belongs to a user"
            raise ConfigurationError(msg)
        self._processes.runners_of(runner)
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
        made = self._processes.runners_of(runner)
        made.hosted.append(work)
        for process in self._processes.living():
            self._processes.host(process, made, work)

    def serve_web(self, web: Web) -> None:
        """
        Let *web* answer what all processes ask of authorization servers, in the place of the real web.

        It is told of each request as its `request(method, url, headers=, content=, timeout_s=, bytes_max=)`, and
        returns a `WebAnswer`, or raises a `WebFailedError`. What takes longer than *timeout_s* is answered by nobody.
        """
        self._machine.web = web

    async def heal(self) -> None:
        """Let nothing go wrong from now on, and wait until all processes live: then what waits can come to its end."""
        self._mishaps.heal()
        await self._processes.all_living()

    async def restart(self) -> None:
        """End all processes as `kill -9` does, and wait for the next ones."""
        for process in self._processes.living():
            self._processes.die(process, "is killed by the scenario")
        await self._processes.all_living()

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
        return self._mishaps.strikes(kind, label)

    def note(self, who: str, what: str, event: Event | None = None) -> None:
        """Write into the log that *who* (a process, a user, the disk) did or met *what*."""
        entry = LogEntry(round(trio.current_time(), 6), who, what, event)
        self.log.append(entry)
        self.met(entry)

    def reached(self, what: str) -> None:
        """Count that something happened which simulations are for."""
        self.coverage[what] += 1
        self.met(COUNTED + what)

    def met(self, what: str | Event | LogEntry, task: str = "") -> None:
        """Note for the coverage of behaviour what happens, and in which task if that matters."""
        self.notes.append((what, task, len(self.choices.trace)))

    # --- the course of a world

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Run the world while the block runs; then let what goes wrong end, and check what is left."""
        token = _CURRENT.set(self)
        try:
            with self._stored():
                async with self.schedule.running(), trio.open_nursery() as self._nursery:
                    for seat in range(len(self._processes.seats)):
                        self._processes.begin(seat)
                    await self._processes.all_living()
                    yield
                    self._mishaps.heal()
                    await self._processes.all_living()
                    await self._check_end()
                    for process in self._processes.living():
                        process.is_dead = True
                    self._nursery.cancel_scope.cancel()
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Make the store, and close it."""
        with ExitStack() as stack:
            if self._storage == "memory":
                self._store = MemoryStore(self._witness)
            else:
                memory = Path("/dev/shm")  # a disk that needs no head
                place = memory if memory.is_dir() else None
                folder = tempfile.mkdtemp(prefix="minirun-", dir=place)
                stack.callback(_remove, folder)
                self._store = SqliteStore(Path(folder), self.choices, self._witness, self._new_file)
            stack.callback(self._store.close)
            yield

    def _end(self) -> None:
        """The run is over: from now on what is asked of the world is refused, at no cost for what was asked before."""
        self.__class__ = _EndedWorld

    # --- what is checked

    def _step(self) -> None:
        if self.problem is not None:
            raise self.problem
        if not self._processes.power_is_on.is_set():
            return  # what is stored is what the power cut will leave
        for check in self._always:
            if not _holds(check):
                self._fail(f"always({_name_of(check)}) does not hold")
        self._mishaps.step()

    async def _check_end(self) -> None:
        while self._devices:
            await self.sleep(1)
        for check in self._eventually:
            await self._until_true(check)
        self._witness.find()
        for invocation in await self._ended_invocations():
            told = self._ledger.end_of(invocation)
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
            invocations = await self._processes.living()[0].service.list_invocations()
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
        """Fail the simulation, whatever code catches this on the way."""
        error = CheckError(message, what)
        if self.schedule.hangs.failure is None:  # what ends in disorder says nothing of its own
            self.problem = self.problem or error
        raise error


class _EndedWorld(World):
    """A world whose run has ended: its values can be read, and its methods are refused."""


def _refusing(name: str) -> Callable[..., NoReturn]:
    """What stands for a method of a world whose run has ended."""

    def refusing(world: World, *args: object, **options: object) -> NoReturn:
        msg = (
            f"expected `world.{name}` while the world lives, found that its run has ended; each run of a scenario is"
            " given a world of its own, so keep none for later"
        )
        raise ConfigurationError(msg)

    return refusing


for _name, _found in vars(World).items():
    if not _name.startswith("_"):
        _refused: Any = _refusing(_name)
        setattr(_EndedWorld, _name, property(_refused) if isinstance(_found, property) else _refused)
