"""
What outlives a simulated process.

A store opens a session service for each process, tells the world what is acknowledged, and knows what a dead process
may leave: everything it has written, after a kill; what was synced and any of the rest, after a power cut. It can also
be looked at without anything going wrong, which is for the checkers.

`_memory_store` has one of dicts that play a disk, `_sqlite_store` one with SQLite on a recording disk.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import trio

from .._json import JSON
from ..artifacts import BaseArtifactService
from ..errors import StaleSessionError
from ..events import Event, EventActions
from ..memory import BaseMemoryService
from ..sessions import BaseSessionService, InvocationStatus, SessionKey, SessionWriter
from ..sessions._live import LiveSession
from ._artifacts import StoredArtifacts
from ._checks import FIRST, State
from ._memories import StoredMemories
from ._private import is_cancelled
from ._processes import Process
from ._vfs import Fault, RecordingVFS
from ._witness import Witness

__all__ = ["SETTER", "ObservedService", "Store", "creation"]

# The user and the session under which the initial state of an app is created; the session is deleted, its state stays.
SETTER = FIRST


class Store(ABC):
    """What a world keeps its sessions in."""

    error = sqlite3.SQLITE_IOERR
    full = sqlite3.SQLITE_FULL

    def disk_for(self, process: Process, fault: Fault) -> RecordingVFS | None:
        """What a new process is to use as its disk; *fault* says what that answers."""
        return None

    @abstractmethod
    def open(self, process: Process) -> BaseSessionService:
        """Open a service for a new process, which has an Env by now."""

    @abstractmethod
    def open_artifacts(self, process: Process) -> BaseArtifactService:
        """Open the artifacts for a process, whose service is open by now."""

    @abstractmethod
    def open_memories(self, process: Process) -> BaseMemoryService:
        """Open the memories for a process, whose service is open by now."""

    @abstractmethod
    def bury(self, process: Process) -> None:
        """All tasks of a process have ended: take back what it had open."""

    def power_is_back(self) -> None:
        """The power was gone, and all processes are buried: make what it has left."""

    def lock(self) -> bool:
        """Let somebody else hold the right to write; False where nobody can, or another one has it now."""
        return False

    def unlock(self) -> None:
        """Let that one give it back."""

    def close(self) -> None:
        """The world has ended."""

    @abstractmethod
    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit an app's initial state, now."""

    @abstractmethod
    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """The committed state."""

    @abstractmethod
    def stored(self) -> dict[SessionKey, dict[int, str | None]]:
        """The ids of all events, by session and seq; of a fork only its own."""

    @abstractmethod
    def log(self, key: SessionKey) -> list[Event]:
        """All events of a session."""

    @abstractmethod
    def all_state(self) -> State:
        """All state that is stored beside the events."""

    def has_ended(self, key: SessionKey, invocation_id: str, status: InvocationStatus) -> bool:
        """Whether this end of an invocation is recorded."""
        return True

    forks_copy = False
    """Whether a fork of a session begins with the artifacts of its past."""

    @abstractmethod
    def artifacts(self) -> StoredArtifacts:
        """All artifacts, as everybody sees them."""

    @abstractmethod
    def memories(self) -> StoredMemories:
        """All memories."""

    def damages(self) -> list[str]:
        """What a thorough look finds wrong."""
        return []


class ObservedService(BaseSessionService):
    """What the services of a world have in common: they tell what they acknowledge."""

    witness: Witness
    process: Process

    async def _append(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None = None, begins: bool = False, **rest: Any
    ) -> Event:
        key = live.key
        await self._env.point("append")
        try:
            stored = await super()._append(live, event, writer=writer, begins=begins, **rest)
        except StaleSessionError:
            self.witness.reached("conflict")
            raise
        if is_cancelled(trio.lowlevel.current_task()):
            self.witness.reached("cancel during commit")
        self.witness.storing(key, stored, writer=writer, begins=begins)
        return stored

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        live = await super().insert_session(key, events)  # type: ignore[safe-super]  # of the store's service
        self.witness.created(key, events, 0)
        return live

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        self.witness.artifacts.copying(_scope_of(key), _scope_of(new), whole=False)
        await super().insert_fork(key, at_seq, new, create_time)  # type: ignore[safe-super]  # of the store's service
        self.witness.artifacts.forked(_scope_of(new))
        self.witness.created(new, (), -1)

    async def remove_session(self, key: SessionKey) -> None:
        await super().remove_session(key)  # type: ignore[safe-super]  # of the store's service
        self.witness.deleted(key)

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        done = await super().record_end(writer, status)
        if done:
            self.witness.ended(writer, status)
        return done

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        self.witness.deleting(SessionKey(app_name, user_id, session_id))
        with self.witness.artifacts.deleting((app_name, user_id, session_id), None):
            await super().delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        found = await super().finish_invocation(writer, status)  # type: ignore[safe-super]  # of the store's service
        is_left = found is not False
        if status is not None and is_left:
            self.witness.ended(writer, status)
        return is_left


def _scope_of(key: SessionKey) -> tuple[str, str, str]:
    return key.app_name, key.user_id, key.session_id


def creation(state: dict[str, object]) -> Event:
    """Return the event that holds an app's initial state."""
    return Event(id=FIRST, author="system", seq=0, timestamp=0.0, actions=EventActions(state_delta=state))
