"""The store in memory, with what the checks look at."""

from __future__ import annotations

from minirun.sessions import SessionKey
from minirun.sessions._fold import fold
from minirun.sessions._state import Values
from minirun.simulation import MemoryStore, Process
from minirun.simulation._memory_store import MemoryService

from .artifacts import CheckedArtifacts, StoredArtifacts, stored_artifacts
from .checks import State
from .memories import CheckedMemories, StoredMemories, stored_memories
from .witness import CheckedService, CheckedStore

__all__ = ["CheckedMemoryStore"]


class _CheckedMemoryService(CheckedService, MemoryService):
    pass


class CheckedMemoryStore(MemoryStore, CheckedStore):
    """Sessions, artifacts and memories in dicts, with what the checks look at."""

    service = _CheckedMemoryService

    def open_artifacts(self, process: Process) -> CheckedArtifacts:
        """The artifacts, whose ledger is told."""
        return CheckedArtifacts(self._artifacts, process, self.checks.artifacts)

    def open_memories(self, process: Process) -> CheckedMemories:
        """The memories, whose ledger is told."""
        return CheckedMemories(self._memories, process, self.checks.memories)

    def stored(self) -> dict[SessionKey, dict[int, str | None]]:
        """The ids of all events."""
        logs = self.sessions._logs
        return {
            key: {event.seq or 0: event.id for event in logs[live.incarnation]}
            for key, live in self.sessions._sessions.items()
        }

    def all_state(self) -> State:
        """Everything that is stored beside the events."""
        sessions = self.sessions
        shared = {(app, ""): values for app, values in sessions._app_values.items()}
        own = {key: live.values.session for key, live in sessions._sessions.items()}
        return State(own, shared | sessions._user_values)

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
            for key, live in self.sessions._sessions.items()
            if fold(Values({}, {}, {}), self.log(key), shared=False).session != live.values.session
        ]
