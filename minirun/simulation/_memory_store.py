"""A store of dicts that play a disk: another process goes on with them, once the one before is dead."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from .._json import JSON
from .._values import changed
from ..artifacts import InMemoryArtifactService
from ..events import Event
from ..memory import InMemoryMemoryService
from ..sessions import BaseSessionService, InMemorySessionService, InvocationStatus, SessionKey, SessionWriter
from ..sessions._fold import fold
from ..sessions._live import LiveSession
from ..sessions._state import Values
from ._artifacts import KeptArtifacts, StoredArtifacts, stored_artifacts
from ._checks import State
from ._memories import KeptMemories, StoredMemories, stored_memories
from ._processes import Process
from ._store import SETTER, ObservedService, Store, creation
from ._witness import Witness

__all__ = ["MemoryStore"]


class _MemoryService(ObservedService, InMemorySessionService):
    """A service whose dicts are a disk: another process may go on with them, once this one is dead."""

    async def commit_event(self, live: LiveSession, event: Event, **options: Any) -> None:
        self.process.refuse_if_dead()
        await super().commit_event(live, event, **options)

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        await self._env.point("create")
        self.process.refuse_if_dead()
        return await super().insert_session(key, events)

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        self.process.refuse_if_dead()
        return await super().record_end(writer, status)

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        self.process.refuse_if_dead()
        return await super().finish_invocation(writer, status)

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        self.process.refuse_if_dead()
        await super().insert_message(key, message)


class MemoryStore(Store):
    """A store that is only a model of a disk: fast, without faults of its own, and for one process at a time."""

    _KEPT = (
        "_runs",
        "_not_over",
        "_sessions",
        "_ordered",
        "_logs",
        "_app_values",
        "_user_values",
        "_invocations",
        "_sent",
        "_waiting",
        "_incarnations",
    )

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._service: _MemoryService | None = None
        self._artifacts: InMemoryArtifactService = InMemoryArtifactService()
        self._memories: InMemoryMemoryService = InMemoryMemoryService()

    def open(self, process: Process) -> BaseSessionService:
        """A service that goes on with what the last one has left."""
        service = _MemoryService(env=process.env)
        service.witness, service.process = self._witness, process
        if self._service is not None:
            for name in self._KEPT:
                setattr(service, name, getattr(self._service, name))
            for live in service._ordered:
                live.held = False
        self._service = service
        return service

    def open_artifacts(self, process: Process) -> KeptArtifacts:
        """What the last process has left."""
        return KeptArtifacts(self._artifacts, process, self._witness.artifacts)

    def open_memories(self, process: Process) -> KeptMemories:
        """What the last process has left."""
        return KeptMemories(self._memories, process, self._witness.memories)

    @property
    def _disk(self) -> _MemoryService:
        assert self._service is not None, "a world opens a service before it does anything"
        return self._service

    def bury(self, process: Process) -> None:
        """Its unfinished invocations are interrupted: nobody runs them any more."""
        for place, invocation in self._disk._invocations.items():
            if invocation.status is InvocationStatus.RUNNING:
                self._disk._invocations[place] = changed(invocation, status=InvocationStatus.INTERRUPTED)

    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit an app's initial state, now."""
        key = SessionKey(app_name, SETTER, SETTER)
        made = creation(state)
        for work in (
            InMemorySessionService.insert_session(self._disk, key, [made]),
            InMemorySessionService.remove_session(self._disk, key),
        ):
            with contextlib.suppress(StopIteration):
                work.send(None)
        self._witness.seeded(key, made)

    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """The committed state."""
        disk = self._disk
        found = dict(disk._app_values.get(app_name, {}))
        if user_id is not None:
            found.update(disk._user_values.get((app_name, user_id), {}))
            if session_id is not None:
                live = disk._sessions.get(SessionKey(app_name, user_id, session_id))
                found.update({} if live is None else live.values.session)
        return found

    def stored(self) -> dict[SessionKey, dict[int, str | None]]:
        """The ids of all events."""
        logs = self._disk._logs
        return {
            key: {event.seq or 0: event.id for event in logs[live.incarnation]}
            for key, live in self._disk._sessions.items()
        }

    def log(self, key: SessionKey) -> list[Event]:
        """All events of a session."""
        return list(self._disk._logs[self._disk._sessions[key].incarnation])

    def all_state(self) -> State:
        """Everything that is stored beside the events."""
        disk = self._disk
        shared = {(app, ""): values for app, values in disk._app_values.items()}
        return State({key: live.values.session for key, live in disk._sessions.items()}, shared | disk._user_values)

    def artifacts(self) -> StoredArtifacts:
        """All artifacts, as everybody sees them."""
        return stored_artifacts(self._artifacts)

    def memories(self) -> StoredMemories:
        """All memories."""
        return stored_memories(self._memories)

    def damages(self) -> list[str]:
        """Where the package's own fold disagrees with what is stored."""
        return [
            f"{key}: its log folds to something else"
            for key, live in self._disk._sessions.items()
            if fold(Values({}, {}, {}), self.log(key), shared=False).session != live.values.session
        ]
