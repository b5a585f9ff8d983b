"""
It is told what the stores of a world acknowledge. It keeps the ledger, and lets the checkers look at each step.

Where nobody was told, as in a crash, it compares the ledger with what is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from ..events import Event
from ..sessions import InvocationStatus, SessionKey, SessionWriter
from ._artifacts import ArtifactLedger
from ._memories import MemoryLedger
from ._saying import SAYING

if TYPE_CHECKING:
    from ._world import World

__all__ = ["Witness"]


class Witness:
    """What the stores of a world tell what they acknowledge."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = world._ledger
        self._checkers = world._checkers
        self._processes = world._processes
        self.artifacts = ArtifactLedger(world._ledger, world._fail, self._stored_events)
        self.memories = MemoryLedger(world._fail)
        self._holders: dict[SessionKey, tuple[int, str]] = {}  # the process and the run that wrote a session last
        self._may_be_deleted: set[SessionKey] = set()

    def reached(self, what: str) -> None:
        """Something happened that simulations are for."""
        self._world.reached(what)

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
            self._world.met(event, self._world.schedule.name_of(trio.lowlevel.current_task()))
        for process in self._processes.living():
            process.acknowledged += self._processes.is_of(process)
        if writer is None:
            return
        if begins:
            if not self._ledger.begins(event, writer):
                self._world.reached("lease taken over")
            self._ledger.begun[SAYING.get("")] = (key, writer.invocation_id)
            self._note_holder(key, writer.invocation_id)
        elif event.invocation_id == writer.invocation_id:
            self._ledger.acknowledged[writer.invocation_id].append(event)

    def _note_holder(self, key: SessionKey, invocation_id: str) -> None:
        seats = (process for process in self._processes.seats if process is not None)
        number = next((process.number for process in seats if self._processes.is_of(process)), 0)
        before = self._holders.get(key)
        self._holders[key] = (number, invocation_id)
        if before is not None and before[0] != number and before[1] not in self._ledger.ended:
            self._world.reached("lease taken over")

    def created(self, key: SessionKey, events: Sequence[Event], own: int) -> None:
        """A session was made; its own events begin at *own*, or it is a fork if that is below 0."""
        if key in self._ledger.logs and not self._is_there(key, self._world._store.stored()):
            self._ledger.delete(key)  # the one before was deleted, and nobody was told
        past = self._world._store.log(key) if own < 0 else events
        self._ledger.create(key, past, own=len(past) if own < 0 else own)

    def seeded(self, key: SessionKey, event: Event) -> None:
        """An app has its initial state by this event of a session that is deleted again."""
        self._ledger.create(key, [event])
        self._ledger.delete(key)

    def deleting(self, key: SessionKey) -> None:
        """A session is to be deleted; nobody may be told whether it was."""
        self._may_be_deleted.add(key)

    def deleted(self, key: SessionKey) -> None:
        """A session was deleted."""
        if key in self._ledger.logs and not self._is_there(key, self._world._store.stored()):
            self._ledger.delete(key)

    def _is_there(self, key: SessionKey, stored: Mapping[SessionKey, Mapping[int, str | None]]) -> bool:
        """Whether the session that is known is stored, and not another one under its id."""
        log, own = self._ledger.logs[key], self._ledger.own[key]
        return key in stored and (own >= len(log) or stored[key].get(own) == log[own].id)

    def ended(self, writer: SessionWriter, status: InvocationStatus) -> None:
        """The end of an invocation was recorded, unless that failed, or another run goes on with it by now."""
        invocation_id = writer.invocation_id
        if not self._world._store.has_ended(writer.live.key, invocation_id, status):
            return
        if self._ledger.run_by.get(invocation_id, (0, None))[1] is writer:
            self._checkers.ended(writer.live.key, invocation_id, status)
            self._world.met(f"ends as {status}", self._world.schedule.name_of(trio.lowlevel.current_task()))
            self._ledger.ended[invocation_id] = status

    def find(self) -> None:
        """Compare with what is on the disk, and take into the ledger what nobody was told of: crashes leave that."""
        stored = self._world._store.stored()
        for key in [key for key in self._ledger.logs if key in self._may_be_deleted]:
            if not self._is_there(key, stored):
                self._ledger.delete(key)
        self._checkers.found(stored)
        for key, ids in stored.items():
            log = self._ledger.logs.get(key)
            if log is None or max(ids, default=-1) >= len(log):
                self._find_log(key, None)
        if self.artifacts.is_used:
            self.artifacts.check(self._world._store.artifacts(), forks_copy=self._world._store.forks_copy)
        if self.memories.is_used:
            self.memories.check(self._world._store.memories())

    def _stored_events(self) -> Iterator[tuple[SessionKey, Event]]:
        for key in self._world._store.stored():
            for event in self._world._store.log(key):
                yield key, event

    def _find_log(self, key: SessionKey, until: int | None) -> None:
        found = self._world._store.log(key)[:until]
        self._world.reached("stored and not told")
        if key not in self._ledger.logs:
            self._ledger.create(key, found)
        for event in found[len(self._ledger.logs[key]) :]:
            if event.author == "user":
                self._ledger.run_by.pop(event.invocation_id or "", None)
            self._ledger.add(key, event, tracked=event.invocation_id is not None)
