"""
A world: users who say things to runners, the processes that serve them, and the store that outlives the processes.

Users live outside of the processes (`_processes`): `say` looks for a living one, and asks again if that dies.

What a world does follows from its choices alone. What may go wrong beside the order of things is named by its `faults`,
and done by `_mishaps`. What outlives the processes is the `store`; what it stores is told to the `observers`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeAlias

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
from ..sessions import SessionKey
from ..types import Content
from ._choices import Choices
from ._env import Machine, SimulatedEnv
from ._faults import FaultName
from ._memory_store import MemoryStore
from ._mishaps import Mishaps
from ._private import why_not_seeded
from ._processes import Processes
from ._saying import SAYING, Saying
from ._schedule import POLICIES, Schedule
from ._store import Observer, Store

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


class World:
    """
    The world of one simulation. Made by `simulate` and by the pytest plugin; a scenario gets it as `world`.

    It ends with its run. Then its log and its counters can be read, and its methods raise ConfigurationError.

    Args:
        choices: What everything follows from.
        faults: What may go wrong: any of `FAULTS`.
        processes: How many processes serve the users at once, over one store.
        store: Makes the store, which is given the world.
        observers: Make what is told what happens, in the same way.
    """

    def __init__(
        self,
        choices: Choices,
        *,
        faults: frozenset[FaultName] = frozenset(),
        processes: int = 1,
        store: Callable[[World], Store] = MemoryStore,
        observers: Iterable[Callable[[World], Observer]] = (),
    ) -> None:
        self.choices = choices
        self.faults = faults
        self.processes = processes
        self.coverage: Counter[str] = Counter()
        """How often what a simulation is for has happened."""
        self.log: list[LogEntry] = []
        """What happened; the same choices give the same."""
        policy = sorted(POLICIES)[choices.choose(len(POLICIES), "policy")]
        together = TOGETHER_ONE_IN[choices.choose(len(TOGETHER_ONE_IN), "how often tasks go on together")]
        if why_not_seeded() is not None:
            together = 0  # trio's order of theirs could not be told again
        self.schedule = Schedule(choices, self._step, policy, together)
        self._processes = Processes(self, processes)
        self.machine = Machine(self.schedule, lambda label: self._mishaps.passed(label))
        self.store = store(self)
        """What outlives the processes."""
        self._mishaps = Mishaps(self)
        self.observers = [make(self) for make in observers]
        """Those that are told what happens."""
        self.runs_of_users: dict[str, tuple[SessionKey, str, Event]] = {}
        """By the token of what a user says: the session, the invocation, and the event that may be stored."""
        self._always: list[Callable[[], object]] = []
        self._eventually: list[Callable[[], object]] = []
        self._says: Counter[str] = Counter()
        self.problem: CheckError | None = None
        """What a checker has found first."""
        self._leavers: dict[str, trio.CancelScope] = {}
        self._devices = 0  # that say things for which no scenario waits
        self._nursery: trio.Nursery

    # --- for scenarios

    def runner(self, what: Runnable, *, app_name: str = "app", state: Mapping[str, object] | None = None) -> Runner:
        """
        A runner of an app, an agent, or a function that makes one (called again for every process).

        Where it is no function, the scripts of its models begin anew for every process: `restart()` is called on those
        that have one. Of models that are registered by name it is called in any case. Sessions are made on their first
        use. *state* is the app's initial `app:` state, committed when this returns. Its `credential_service` keeps what
        it is given outside of all processes, as a keyring does. Its `artifact_service` and `memory_service` are those
        of the store: by default outside of all processes, too, where artifacts are seen as soon as they are saved.
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
            self.store.seed(made.runners[0].app_name, dict(state))
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
        return self.store.state(runner.app_name, user_id, session_id)

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
        self.machine.web = web

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
        return SimulatedEnv(self.machine, 0).now()

    def strikes(self, kind: str, label: str) -> bool:
        """Whether something of this kind goes wrong now."""
        return self._mishaps.strikes(kind, label)

    def note(self, who: str, what: str, event: Event | None = None) -> None:
        """Write into the log that *who* (a process, a user, the disk) did or met *what*."""
        self.log.append(LogEntry(round(trio.current_time(), 6), who, what, event))

    def reached(self, what: str) -> None:
        """Count that something happened which simulations are for."""
        self.coverage[what] += 1

    def begun(self, key: SessionKey, invocation_id: str, event: Event) -> None:
        """Note which invocation begins, or resumes, with what the user of the current task says, if it is stored."""
        self.runs_of_users[SAYING.get("")] = key, invocation_id, event

    # --- the course of a world

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Run the world while the block runs; then let what goes wrong end, and check what is left."""
        token = _CURRENT.set(self)
        try:
            async with self.schedule.running(), trio.open_nursery() as self._nursery:
                for seat in range(self.processes):
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

    def _end(self) -> None:
        """The run is over: from now on what is asked of the world is refused, at no cost for what was asked before."""
        self.__class__ = _EndedWorld

    # --- what is checked

    def _step(self) -> None:
        if self.problem is not None:
            raise self.problem
        if not self.store.is_readable:
            return
        for check in self._always:
            if not _holds(check):
                self.fail(f"always({_name_of(check)}) does not hold")
        self._mishaps.step()

    async def _check_end(self) -> None:
        while self._devices:
            await self.sleep(1)
        for check in self._eventually:
            await self._until_true(check)
        for observer in self.observers:
            await observer.finish()

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

    def fail(self, message: str, what: str = "") -> None:
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
