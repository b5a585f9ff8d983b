"""
The store of a simulated run, which outlives its processes, and the observers, which are told what it stores.

A store opens the services of each process. A process can end at any point. The next process opens services over what
the store has kept. `_memory_store` has the store that is used by default; `World(store=...)` takes another one.

The services of a store tell the world what they have stored (`ObservedService`), and the world tells its observers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from .._json import JSON
from .._values import changed
from ..artifacts import BaseArtifactService, InMemoryArtifactService
from ..errors import StaleSessionError
from ..events import Event, EventActions
from ..memory import BaseMemoryService, InMemoryMemoryService
from ..runtime import RunConfig
from ..sessions import BaseSessionService, InvocationStatus, SessionKey, SessionWriter
from ..sessions._live import LiveSession
from ._env import SimulatedEnv
from ._faults import Kinds
from ._private import is_cancelled
from ._processes import Process
from ._services import KeptArtifacts, KeptMemories

if TYPE_CHECKING:
    from ._world import World

__all__ = ["FIRST", "ObservedService", "Observer", "Store", "creation"]

# The id of the event with the initial state of an app, and the user and the session under which it is created. The
# session is deleted at once; the state stays.
FIRST = "simulation"


class Store(ABC):
    """
    Where the sessions of a simulated run are kept.

    A world makes one with `store(world)`, and closes it at its end. Artifacts and memories are kept outside of all
    processes, if the store does not say otherwise.
    """

    faults: ClassVar[Kinds] = {}
    """
    By fault (`"storage"`, `"crash"`), the kinds of it that `world.strikes` is asked for, and once in how many times
    each happens. The first kind shows that the fault could strike. What is missing here is as `_faults` has it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._artifacts = InMemoryArtifactService()
        self._memories = InMemoryMemoryService()

    # --- processes

    def env(self, process: Process) -> SimulatedEnv:
        """Return the Env of a new process."""
        return SimulatedEnv(self.world.machine, process.number, lambda: process.is_dead)

    async def ready(self) -> None:
        """Wait until a new process can begin."""

    @property
    def is_readable(self) -> bool:
        """Whether the committed state can be read now. Checks of a scenario wait for it."""
        return True

    @abstractmethod
    def open(self, process: Process) -> BaseSessionService:
        """Open the sessions for a new process."""

    def open_artifacts(self, process: Process) -> BaseArtifactService:
        """Open the artifacts for a process, after its sessions."""
        return KeptArtifacts(self._artifacts, process.env)

    def open_memories(self, process: Process) -> BaseMemoryService:
        """Open the memories for a process, after its sessions."""
        return KeptMemories(self._memories, process.env)

    @abstractmethod
    def bury(self, process: Process) -> None:
        """Take back what a process had open: all its tasks have ended."""

    def step(self) -> None:
        """Let a fault of the store's own strike, or not. Called before each step of the schedule."""

    def close(self) -> None:
        """Release everything: the world has ended."""

    # --- the committed state

    @abstractmethod
    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit the initial state of an app, now and without faults."""

    @abstractmethod
    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """Return the committed state of an app, with that of a user and of a session."""

    @abstractmethod
    def log(self, key: SessionKey) -> list[Event]:
        """Return all stored events of a session, in order; none if there is no such session."""

    @abstractmethod
    def status(self, key: SessionKey, invocation_id: str) -> InvocationStatus | None:
        """Return the stored status of an invocation, or None if it is not stored."""


class Observer:
    """
    Is told what happens in a simulated run. A subclass overrides what it needs; `world.fail(...)` fails the simulation.

    A world makes one with `observer(world)` for each of its `observers`.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    def stored(self, key: SessionKey, event: Event, writer: SessionWriter | None, *, begins: bool) -> None:
        """An append was acknowledged: of a run if there is a *writer*, whose run begins or resumes with *begins*."""

    def created(self, key: SessionKey, events: Sequence[Event], *, is_fork: bool) -> None:
        """A session was created with these events, or as a fork."""

    def seeded(self, key: SessionKey, event: Event) -> None:
        """An app has its initial state by this event of a session that was deleted again."""

    def deleted(self, key: SessionKey) -> None:
        """A session was deleted."""

    def ended(self, writer: SessionWriter, status: InvocationStatus) -> None:
        """The end of an invocation was stored, or that it is paused."""

    def point(self, label: str, task: str) -> None:
        """A task, of this logical name, has passed a point of the runtime."""

    def entered(self, key: SessionKey, invocation_id: str, config: RunConfig) -> None:
        """A user of `world.say` has entered a run."""

    def seen(self, key: SessionKey, invocation_id: str, events: Sequence[Event]) -> None:
        """The user has received the last of *events* from the run."""

    def left(self, invocation_id: str, tasks: Sequence[str]) -> None:
        """The user has left the run. These tasks, which it has started, are alive."""

    def gone(self, process: Process) -> None:
        """All tasks of a dead process have ended."""

    async def finish(self) -> None:
        """The world ends: nothing fails any more, and all processes live."""


class ObservedService(BaseSessionService):
    """A session service that tells what it has stored. Mix it in before the service of a store."""

    store: Store
    process: Process

    async def _append(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None = None, begins: bool = False, **rest: Any
    ) -> Event:
        world, key = self.store.world, live.key
        await self._env.point("append")
        if writer is not None and begins:
            world.begun(key, writer.invocation_id, changed(event, seq=live.revision + 1))  # if it will be stored
        try:
            stored = await super()._append(live, event, writer=writer, begins=begins, **rest)
        except StaleSessionError:
            world.reached("conflict")
            raise
        if is_cancelled(trio.lowlevel.current_task()):
            world.reached("cancel during commit")
        for observer in world.observers:
            observer.stored(key, stored, writer, begins=begins)
        return stored

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        live = await super().insert_session(key, events)  # type: ignore[safe-super]  # of the store's service
        for observer in self.store.world.observers:
            observer.created(key, events, is_fork=False)
        return live

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        await super().insert_fork(key, at_seq, new, create_time)  # type: ignore[safe-super]  # of the store's service
        for observer in self.store.world.observers:
            observer.created(new, (), is_fork=True)

    async def remove_session(self, key: SessionKey) -> None:
        await super().remove_session(key)  # type: ignore[safe-super]  # of the store's service
        for observer in self.store.world.observers:
            observer.deleted(key)

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        done = await super().record_end(writer, status)
        if done:
            self._tell_end(writer, status)
        return done

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        found = await super().finish_invocation(writer, status)  # type: ignore[safe-super]  # of the store's service
        is_left = found is not False
        if status is not None and is_left:
            self._tell_end(writer, status)
        return is_left

    def _tell_end(self, writer: SessionWriter, status: InvocationStatus) -> None:
        """Tell the end, unless it was not stored because another run has resumed the invocation."""
        if self.store.status(writer.live.key, writer.invocation_id) is status:
            for observer in self.store.world.observers:
                observer.ended(writer, status)


def creation(state: dict[str, object]) -> Event:
    """Return the event that holds an app's initial state."""
    return Event(id=FIRST, author="system", seq=0, timestamp=0.0, actions=EventActions(state_delta=state))
