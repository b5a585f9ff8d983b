"""
The processes of a world: how they begin, live, and die.

A *process* is a nursery, a session service and an Env. When it dies, all its tasks end without another write to the
store, and nothing that they return is used. Then the next one takes its seat, over what the store has kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs
import trio

from ..agents._lanes import no_stray_cancellation
from ..apps import App
from ..artifacts import BaseArtifactService
from ..errors import ConfigurationError, StorageRolledBackError
from ..memory import BaseMemoryService
from ..runners import Runner
from ..sessions import BaseSessionService
from ._env import SimulatedEnv
from ._services import KeptCredentials, Keyring

if TYPE_CHECKING:
    from ._world import World

__all__ = ["Process", "Processes", "Runners"]


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
        self.is_buried = False  # all its tasks have ended

    @property
    def name(self) -> str:
        return f"process {self.number}"

    def refuse_if_dead(self) -> None:
        """
        Let a dead process do nothing.

        Raises:
            StorageRolledBackError: It is dead.
        """
        if self.is_dead:
            raise StorageRolledBackError("this process is dead")


@attrs.define
class Runners:
    """A runner in every seat, and what they are made of."""

    runners: list[Runner]
    make: Callable[[], App]
    hosted: list[Callable[[Runner], Awaitable[object]]] = attrs.Factory(list)


class Processes:
    """The seats of a world, and the processes that have them."""

    def __init__(self, world: World, seats: int) -> None:
        self._world = world
        self._schedule = world.schedule
        self.seats: list[Process | None] = [None] * seats
        self.deaths = 0
        self.runners: list[Runners] = []
        self._numbers = 0
        self._born = trio.Event()
        self._credentials = Keyring()  # outside of the processes

    # --- runners

    def seat(self, make: Callable[[], App]) -> Runners:
        """Make a runner in every seat."""
        made = Runners([], make)
        for process in self.seats:
            assert process is not None, "every seat is taken before a scenario begins"
            made.runners.append(_runner_in(process, make(), self._credentials))
        self.runners.append(made)
        return made

    def runners_of(self, runner: Runner) -> Runners:
        """Return those that *runner* is one of, or raise."""
        for made in self.runners:
            if runner in made.runners:
                return made
        msg = "expected a runner of this world, which world.runner() has made"
        raise ConfigurationError(msg)

    # --- life

    def begin(self, seat: int) -> None:
        """Let the next process take a seat."""
        self._numbers += 1
        process = Process(self._numbers, seat)
        self._world._nursery.start_soon(self._run, process, name=process.name)

    async def _run(self, process: Process) -> None:
        """A process, from its beginning to its burial, after which the next one takes its seat."""
        if process.number > len(self.seats):
            await self._schedule.point("restart")
        store = self._world.store
        await store.ready()
        process.env = store.env(process)
        process.service = store.open(process)
        process.artifact_service = store.open_artifacts(process)
        process.memory_service = store.open_memories(process)
        for made in self.runners:  # what a scenario holds becomes the runner of the new process
            vars(made.runners[process.seat]).update(vars(_runner_in(process, made.make(), self._credentials)))
        try:
            with process.scope:
                async with trio.open_nursery() as process.nursery:
                    self._world.note(process.name, "begins")
                    self.seats[process.seat] = process
                    self._born.set()
                    self._born = trio.Event()
                    for made in self.runners:
                        for work in made.hosted:
                            self.host(process, made, work)
                    await trio.sleep_forever()
        except* Exception as group:
            if not process.is_dead:
                raise group from None
        finally:
            process.is_dead = True
        process.is_buried = True
        store.bury(process)
        self._world.note(process.name, "is gone")
        for observer in self._world.observers:
            observer.gone(process)
        self.begin(process.seat)

    def host(self, process: Process, made: Runners, work: Callable[[Runner], Awaitable[object]]) -> None:
        """Let *work* be done in a process."""
        process.nursery.start_soon(_hosted, work, made.runners[process.seat], name="hosted")

    def living(self) -> list[Process]:
        """Return the processes that are not dead, by their seats."""
        return [process for process in self.seats if process is not None and not process.is_dead]

    async def all_living(self) -> None:
        """Wait until every seat is taken."""
        while len(self.living()) < len(self.seats):
            await self._born.wait()
        await self._schedule.point("next process")

    async def any_living(self) -> Process:
        """Wait for a living process. Which one is a choice."""
        while not self.living():
            await self._born.wait()
            await self._schedule.point("next process")
        living = self.living()
        return living[self._world.choices.choose(len(living), "which process is asked")]

    # --- death

    def die(self, process: Process, how: str) -> None:
        """End a process as `kill -9` does."""
        if process.is_dead:
            return
        process.is_dead = True
        self.deaths += 1
        self._world.reached("crash")
        of_process = f"/{process.name}/"
        if any(label in ("recover", "message") and of_process in name for name, label in self._schedule.waiting()):
            self._world.reached("crash in recovery")
        self._world.note(process.name, how)
        self._schedule.stalled.pop(self.path_of(process), None)
        process.scope.cancel()

    # --- whose tasks

    def path_of(self, process: Process) -> str:
        """Return the name of what all tasks of a process are named under."""
        return f"/scenario/{process.name}"

    def is_of(self, process: Process) -> bool:
        """Whether the current task is one of the process."""
        path = self._schedule.name_of(trio.lowlevel.current_task())
        return f"{path}/".startswith(f"{self.path_of(process)}/")


async def _hosted(work: Callable[[Runner], Awaitable[object]], runner: Runner) -> None:
    with no_stray_cancellation("what a process hosts"):
        await work(runner)


def _runner_in(process: Process, app: App, kept: Keyring) -> Runner:
    return Runner(
        app=app,
        session_service=process.service,
        artifact_service=process.artifact_service,
        memory_service=process.memory_service,
        credential_service=KeptCredentials(kept, process.env),
        auto_create_session=True,
    )
