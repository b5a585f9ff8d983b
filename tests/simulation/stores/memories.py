"""
The memories of a simulated world: what its processes use, and what must hold of them, whatever goes wrong.

What was acknowledged as added is there, as it was added and for its user; nothing is there that nobody has added, and
nothing that was deleted. That is judged when a process has died, and at the end.

Where the sessions are in memory, memories outlive the processes in a store of their own; on a disk they share the file
of the sessions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from minirun.memory import BaseMemoryService, InMemoryMemoryService, Memory, MemoryEntry, SqliteMemoryService
from minirun.memory._values import Query, Scope
from minirun.sessions import SqliteSessionService
from minirun.simulation import Process
from minirun.simulation._services import KeptMemories

__all__ = ["CheckedMemories", "MemoryLedger", "SharedMemories", "StoredMemories", "stored_memories"]

StoredMemories: TypeAlias = Mapping[Scope, Sequence[MemoryEntry]]
"""All memories, by app and user."""


class MemoryLedger:
    """
    What is known of memories, and what must hold of them.

    Args:
        fail: Told of what does not hold, and of the name of the property.
    """

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._tried: defaultdict[Scope, defaultdict[str, list[MemoryEntry]]] = defaultdict(lambda: defaultdict(list))
        self._added: defaultdict[Scope, dict[str, MemoryEntry]] = defaultdict(dict)
        self._indexed: defaultdict[Scope, dict[str, Memory]] = defaultdict(dict)
        self._may_be_gone: defaultdict[Scope, set[str]] = defaultdict(set)
        self._deleted: defaultdict[Scope, set[str]] = defaultdict(set)
        self._deletions: list[tuple[Scope, Callable[[MemoryEntry], bool]]] = []  # which are under way

    @contextmanager
    def adding(self, scope: Scope, memories: Sequence[Memory]) -> Iterator[None]:
        """Note that these are added; once the block has ended, they are."""
        for memory in memories:
            self._tried[scope][memory.id].append(memory.entry)
            if any(scope == other and is_meant(memory.entry) for other, is_meant in self._deletions):
                self._may_be_gone[scope].add(memory.id)
        yield
        for memory in memories:
            self._added[scope][memory.id] = memory.entry
            self._indexed[scope][memory.id] = memory

    @contextmanager
    def deleting(self, scope: Scope, is_meant: Callable[[MemoryEntry], bool]) -> Iterator[None]:
        """Note that those are deleted that are meant; once the block has ended, they are."""
        certain = [name for name, entry in self._added[scope].items() if is_meant(entry)]
        for name, entries in self._tried[scope].items():
            if any(map(is_meant, entries)):
                self._may_be_gone[scope].add(name)
        deletion = (scope, is_meant)
        self._deletions.append(deletion)
        try:
            yield
        finally:
            self._deletions.remove(deletion)
        self._deleted[scope].update(certain)

    def searching(self, scope: Scope, query: Query) -> _Search:
        """Note that somebody begins to search; it judges the answer."""
        fitting = {name: memory for name, memory in self._indexed[scope].items() if _fits(memory, query)}
        return _Search(self, scope, query, fitting, frozenset(self._deleted[scope]))

    @property
    def is_used(self) -> bool:
        """Whether anybody has added anything."""
        return bool(self._tried)

    def check(self, stored: StoredMemories) -> None:
        """Judge what is stored."""
        for scope, memories in stored.items():
            for name, times in Counter(memory.id for memory in memories).items():
                if times > 1:
                    self._fail(f"{scope}: the memory {name} is there {times} times", "RememberedOnce")
            for memory in memories:
                if memory not in self._tried[scope].get(memory.id or "", ()):
                    self._fail(f"{scope}: nobody has added {memory}", "RememberedAsAdded")
                if memory.id in self._deleted[scope]:
                    self._fail(f"{scope}: the memory {memory.id} was deleted, and is there", "ForgottenStaysForgotten")
        for scope, added in self._added.items():
            there = {memory.id for memory in stored.get(scope, ())}
            lost = added.keys() - there - self._may_be_gone[scope]
            if lost:
                self._fail(f"{scope}: the memories {sorted(lost)} were added, and are not there", "AddedIsRemembered")


@attrs.frozen
class _Search:
    """Somebody searches: what was remembered, and forgotten, when that began."""

    _ledger: MemoryLedger
    _scope: Scope
    _query: Query
    _fitting: Mapping[str, Memory]
    _deleted: frozenset[str]

    def found(self, memories: Sequence[MemoryEntry], limit: int) -> None:
        """Judge the answer."""
        ledger, names = self._ledger, [memory.id or "" for memory in memories]
        tried = ledger._tried[self._scope]
        if len(names) != len(set(names)):
            ledger._fail(f"{self._scope}: a search has found something twice: {names}", "RememberedOnce")
        for memory in memories:
            if attrs.evolve(memory, score=None) not in tried.get(memory.id or "", ()):
                ledger._fail(f"{self._scope}: a search has found {memory}, which nobody has added", "RememberedAsAdded")
        if self._deleted.intersection(names):
            ledger._fail(f"{self._scope}: a search has found what was deleted", "ForgottenStaysForgotten")
        certain = {name for name in self._fitting if all(entry == tried[name][0] for entry in tried[name])}
        lost = certain - set(names) - ledger._may_be_gone[self._scope]
        if lost and len(names) < limit:
            ledger._fail(f"{self._scope}: a search for {self._query} has not found {sorted(lost)}", "AddedIsRemembered")


def _fits(memory: Memory, query: Query) -> bool:
    has = set(memory.index)
    at = memory.entry.timestamp or 0.0
    return bool(has & set(query.terms)) and has >= set(query.marks) and query.after <= at < query.before


# --- what processes use -----------------------------------------------------------------------------------------------


class _Observed(BaseMemoryService):
    """What the services of a world have in common: the ledger knows what they do."""

    ledger: MemoryLedger

    async def _add(self, scope: Scope, memories: Sequence[Memory]) -> None:
        with self.ledger.adding(scope, memories):
            await super()._add(scope, memories)  # type: ignore[safe-super]

    async def _search(self, scope: Scope, query: Query, limit: int) -> list[MemoryEntry]:
        search = self.ledger.searching(scope, query)
        found: list[MemoryEntry] = await super()._search(scope, query, limit)  # type: ignore[safe-super]
        search.found(found, limit)
        return found

    async def _delete(self, scope: Scope, memory_id: str) -> None:
        with self.ledger.deleting(scope, lambda memory: memory.id == memory_id):
            await super()._delete(scope, memory_id)  # type: ignore[safe-super]

    async def delete_session_memories(self, *, app_name: str, user_id: str, session_id: str) -> None:
        with self.ledger.deleting((app_name, user_id), lambda memory: memory.session_id == session_id):
            await super().delete_session_memories(app_name=app_name, user_id=user_id, session_id=session_id)

    async def delete_user_memories(self, *, app_name: str, user_id: str) -> None:
        with self.ledger.deleting((app_name, user_id), lambda memory: True):
            await super().delete_user_memories(app_name=app_name, user_id=user_id)


class SharedMemories(_Observed, SqliteMemoryService):
    """What a process sees of the memories in the file of its sessions."""

    def __init__(self, sessions: SqliteSessionService, ledger: MemoryLedger) -> None:
        super().__init__(sessions)
        self.ledger = ledger


class CheckedMemories(_Observed, KeptMemories):
    """The memories of one process outside of all processes."""

    def __init__(self, kept: InMemoryMemoryService, process: Process, ledger: MemoryLedger) -> None:
        super().__init__(kept, process.env)
        self.ledger = ledger


def stored_memories(kept: InMemoryMemoryService) -> StoredMemories:
    """All memories of *kept*."""
    return {scope: [memory.entry for memory in user.kept.values()] for scope, user in kept._users.items()}
