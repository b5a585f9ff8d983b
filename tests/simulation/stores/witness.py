"""
The observer that checks minirun's own promises in every simulated run, whatever goes wrong.

It is told what the stores acknowledge, keeps the ledger, and lets the checkers look at each step. What no service was
told, as in a crash, it finds by comparing the ledger with what is stored.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import trio

from minirun.events import Event
from minirun.runtime import RunConfig
from minirun.sessions import Invocation, InvocationStatus, SessionKey, SessionWriter
from minirun.simulation import Observer, Process, Store, World
from minirun.simulation._saying import SAYING
from minirun.simulation._store import ObservedService
from minirun.simulation._world import PATIENCE_S

from .artifacts import ArtifactLedger, StoredArtifacts
from .checks import POINTS, Checkers, Ledger, State
from .memories import MemoryLedger, StoredMemories

__all__ = ["CheckedService", "CheckedStore", "Checks", "DeepChecks"]

_INVOCATION = re.compile(r" of (e-[^/ ]+)")


@lru_cache(maxsize=1024)
def _invocation_in(task: str) -> str | None:
    """The innermost invocation that a task of this name belongs to. A task passes many points."""
    found = _INVOCATION.findall(task)
    return found[-1] if found else None


class CheckedStore(Store):
    """A store whose content can be looked at without anything going wrong."""

    forks_copy = False
    """Whether a fork of a session begins with the artifacts of its past."""
    verify_one_in = 1
    """In how many worlds one has its store verified at the end."""

    @property
    def checks(self) -> Checks:
        """The observer."""
        return next(observer for observer in self.world.observers if isinstance(observer, Checks))

    @abstractmethod
    def stored(self) -> dict[SessionKey, dict[int, str | None]]:
        """The ids of all events, by session and seq; of a fork only its own."""

    @abstractmethod
    def all_state(self) -> State:
        """All state that is stored beside the events."""

    @abstractmethod
    def artifacts(self) -> StoredArtifacts:
        """All artifacts, as everybody sees them."""

    @abstractmethod
    def memories(self) -> StoredMemories:
        """All memories."""

    def damages(self) -> list[str]:
        """What a thorough look finds wrong."""
        return []


class CheckedService(ObservedService):
    """A session service that also tells of what is under way. Mix it in before the service of a store."""

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        checks = _checks_of(self.store)
        checks.artifacts.copying(_scope_of(key), _scope_of(new), whole=False)
        await super().insert_fork(key, at_seq, new, create_time)
        checks.artifacts.forked(_scope_of(new))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        checks = _checks_of(self.store)
        checks.deleting(SessionKey(app_name, user_id, session_id))
        with checks.artifacts.deleting((app_name, user_id, session_id), None):
            await super().delete_session(app_name=app_name, user_id=user_id, session_id=session_id)


def _checks_of(store: Store) -> Checks:
    assert isinstance(store, CheckedStore)
    return store.checks


def _scope_of(key: SessionKey) -> tuple[str, str, str]:
    return key.app_name, key.user_id, key.session_id


class Checks(Observer):
    """Keeps the ledger of a world with a `CheckedStore`, and lets the checkers look at each step."""

    deep = False
    """Whether the store is verified at the end in any case."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert isinstance(world.store, CheckedStore)
        self.store = world.store
        self.ledger = Ledger()
        self.checkers = Checkers(self.ledger, world.fail)
        self.artifacts = ArtifactLedger(self.ledger, world.fail, self._stored_events)
        self.memories = MemoryLedger(world.fail)
        self._may_be_deleted: set[SessionKey] = set()
        self._after: dict[tuple[str, str], int] = {}  # after which event a user has entered a run, by its task

    def stored(self, key: SessionKey, event: Event, writer: SessionWriter | None, *, begins: bool) -> None:
        assert event.seq is not None
        log = self.ledger.logs.get(key)
        if log is None or event.seq > len(log):
            self._find_log(key, event.seq)
            log = self.ledger.logs[key]
        if event.seq >= len(log) or log[event.seq].id != event.id:  # else a look at the store has found it already
            by = None if writer is None else writer.invocation_id
            self.checkers.storing(key, event, by=by, begins=begins)
            self.ledger.add(key, event, tracked=writer is not None)
        if writer is None:
            return
        if begins:
            if not self.ledger.begins(event, writer):
                self.world.reached("lease taken over")
            self.ledger.begun[SAYING.get("")] = (key, writer.invocation_id)
        elif event.invocation_id == writer.invocation_id:
            self.ledger.acknowledged[writer.invocation_id].append(event)

    def created(self, key: SessionKey, events: Sequence[Event], *, is_fork: bool) -> None:
        if key in self.ledger.logs and not self._is_there(key, self.store.stored()):
            self.ledger.delete(key)  # the one before was deleted, and nobody was told
        past = self.store.log(key) if is_fork else events
        self.ledger.create(key, past, own=len(past) if is_fork else 0)

    def seeded(self, key: SessionKey, event: Event) -> None:
        self.ledger.create(key, [event])
        self.ledger.delete(key)

    def deleting(self, key: SessionKey) -> None:
        """A session is to be deleted; nobody may be told whether it was."""
        self._may_be_deleted.add(key)

    def deleted(self, key: SessionKey) -> None:
        if key in self.ledger.logs and not self._is_there(key, self.store.stored()):
            self.ledger.delete(key)

    def _is_there(self, key: SessionKey, stored: Mapping[SessionKey, Mapping[int, str | None]]) -> bool:
        """Whether the session that is known is stored, and not another one under its id."""
        log, own = self.ledger.logs[key], self.ledger.own[key]
        return key in stored and (own >= len(log) or stored[key].get(own) == log[own].id)

    def ended(self, writer: SessionWriter, status: InvocationStatus) -> None:
        invocation_id = writer.invocation_id
        if self.ledger.run_by.get(invocation_id, (0, None))[1] is writer:
            self.checkers.ended(writer.live.key, invocation_id, status)
            self.ledger.ended[invocation_id] = status

    def point(self, label: str, task: str) -> None:
        if label.startswith(POINTS):
            self.checkers.point(label, _invocation_in(task))

    def entered(self, key: SessionKey, invocation_id: str, config: RunConfig) -> None:
        limits = (config.max_llm_calls, config.max_tool_calls, config.max_transfers)
        self.checkers.budget.limits[invocation_id] = limits
        self._after[invocation_id, self._task()] = self.ledger.run_by.get(invocation_id, (0, None))[0]

    def seen(self, key: SessionKey, invocation_id: str, events: Sequence[Event]) -> None:
        self.checkers.seen(key, invocation_id, events, self._after[invocation_id, self._task()])

    def _task(self) -> str:
        return self.world.schedule.name_of(trio.lowlevel.current_task())

    def left(self, invocation_id: str, tasks: Sequence[str]) -> None:
        self.checkers.left(invocation_id, tasks)

    def gone(self, process: Process) -> None:
        if self.store.is_readable:
            self.find()

    def find(self) -> None:
        """Compare with what is stored, and take into the ledger what nobody was told of: crashes leave that."""
        stored = self.store.stored()
        for key in [key for key in self.ledger.logs if key in self._may_be_deleted]:
            if not self._is_there(key, stored):
                self.ledger.delete(key)
        self.checkers.found(stored)
        for key, ids in stored.items():
            log = self.ledger.logs.get(key)
            if log is None or max(ids, default=-1) >= len(log):
                self._find_log(key, None)
        if self.artifacts.is_used:
            self.artifacts.check(self.store.artifacts(), forks_copy=self.store.forks_copy)
        if self.memories.is_used:
            self.memories.check(self.store.memories())

    def _stored_events(self) -> Iterator[tuple[SessionKey, Event]]:
        for key in self.store.stored():
            for event in self.store.log(key):
                yield key, event

    def _find_log(self, key: SessionKey, until: int | None) -> None:
        found = self.store.log(key)[:until]
        self.world.reached("stored and not told")
        if key not in self.ledger.logs:
            self.ledger.create(key, found)
        for event in found[len(self.ledger.logs[key]) :]:
            if event.author == "user":
                self.ledger.run_by.pop(event.invocation_id or "", None)
            if self.ledger.may_go_on(event.invocation_id or "", event):
                self.ledger.ended.pop(event.invocation_id or "", None)
            self.ledger.add(key, event, tracked=event.invocation_id is not None)

    # --- the end

    async def finish(self) -> None:
        self.find()
        for invocation in await self._ended_invocations():
            told = self.ledger.end_of(invocation)
            if told is not None and invocation.status not in (told, InvocationStatus.INTERRUPTED):
                self.world.fail(f"{invocation.invocation_id} has ended as {told}, and is listed as {invocation.status}")
        logs = {key: self.store.log(key) for key in self.store.stored()}
        self.checkers.closed(logs, self.store.all_state())
        one_in = self.store.verify_one_in
        if self.deep or one_in == 1 or self.world.choices.maybe("whether the store is verified", one_in):
            for damage in self.store.damages():
                self.world.fail(damage)

    async def _ended_invocations(self) -> list[Invocation]:
        """All invocations, once those whose end could not be recorded have lost their leases."""
        until = trio.current_time() + PATIENCE_S
        while True:
            invocations = await self.world._processes.living()[0].service.list_invocations()
            running = [each.invocation_id for each in invocations if each.status is InvocationStatus.RUNNING]
            if not running:
                return invocations
            if trio.current_time() >= until:
                self.world.fail(f"the invocations {running} are listed as running, and nothing runs")
            await self.world.sleep(10)


class DeepChecks(Checks):
    """The same, and the store is verified at the end of every world."""

    deep = True
