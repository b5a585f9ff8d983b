"""
Sessions in dicts that outlive the processes: the store of a world that names none.

* Each process has its own copy of a session, as over a database. An append is refused as stale if the stored session
  has moved on, or if another process has taken its lease.
* With several processes a run holds a lease on its session. The lease is renewed while the run goes on. It ends with
  its process, or runs out if the process stands still for longer.
* The fault `storage` strikes at each write: it is refused, or takes long, or is stored and its acknowledgement is lost.
* In a world with faults each write has a point before and a point after it is stored, shielded from cancellation. So a
  process can die before or after a commit, and a run can be cancelled during one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import attrs
import trio

from .._json import JSON
from .._values import changed
from ..errors import (
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageRolledBackError,
    StorageUncertainError,
)
from ..events import Event
from ..sessions import (
    BaseSessionService,
    GetSessionConfig,
    InMemorySessionService,
    Invocation,
    InvocationStatus,
    SessionKey,
    SessionWriter,
)
from ..sessions._live import LiveSession
from ..sessions._state import Values, apply_writes, writes_of
from ..sessions._store import ChangedMeanwhileError
from ._faults import Kinds
from ._processes import Process
from ._store import FIRST, ObservedService, Store, creation

if TYPE_CHECKING:
    from ._world import World

__all__ = ["MemoryService", "MemoryStore"]

T = TypeVar("T")

# A lease outlives three missed renewals, as those of a file and of a database do.
LEASE_S = 30.0
RENEW_EVERY_S = 8.0
# How often a waiting process looks whether a session is free, in virtual time: each look is a step.
LEASE_POLL_S = 1.0
# How long a slow write takes: shorter than a lease lasts, and longer.
SLOW_WRITES_S = (0.1, 5.0, 40.0)

_KINDS: Final = ("is refused", "is slow", "loses its acknowledgement")
_REFUSED, _SLOW, _LOST = _KINDS

# What an InMemorySessionService has stored; the rest of it belongs to a process.
_STORED: Final = (
    *("_app_values", "_incarnations", "_invocations", "_logs", "_not_over", "_ordered", "_runs", "_sent"),
    *("_sessions", "_user_values", "_waiting"),
)

_Place = tuple[int, str]
"""An invocation: the incarnation of its session, and its id."""


@attrs.define(eq=False)
class _Lease:
    """The right to write a session: its epoch grows with each holder."""

    epoch: int = 0
    holder: Process | None = None
    until_s: float = 0.0


class _Copy(LiveSession):
    """What a process knows of a session that is stored."""

    __slots__ = ("stored",)

    def __init__(self, stored: LiveSession) -> None:
        super().__init__(
            stored.key,
            Values(dict(stored.values.session), stored.values.user, stored.values.app),
            incarnation=stored.incarnation,
            create_time=stored.create_time,
            last_update_time=stored.last_update_time,
            revision=stored.revision,
            open_calls=dict(stored.open_calls),
        )
        self.stored = stored
        self.events, self.first_seq = [*stored.events], stored.first_seq
        self.call_ids, self.compaction = {*stored.call_ids}, stored.compaction


class MemoryService(ObservedService, InMemorySessionService):
    """The sessions of a `MemoryStore`, for one process."""

    def __init__(self, store: MemoryStore, process: Process) -> None:
        super().__init__(env=process.env)
        self.store: MemoryStore = store
        self.process = process
        self.renew_every_s = RENEW_EVERY_S if store.is_shared else None
        self._copies: dict[SessionKey, _Copy] = {}
        for name in _STORED:
            setattr(self, name, getattr(store.sessions, name))

    # --- opening

    async def load_session(self, key: SessionKey, config: GetSessionConfig | None) -> _Copy | None:
        stored = self._sessions.get(key)
        if stored is None:
            return None
        copy = self._copies.get(key)
        if copy is None or copy.stored is not stored or copy.revision != stored.revision:
            copy = self._copies[key] = _Copy(stored)
        copy.has_messages = stored.has_messages
        return copy

    async def load_free_session(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> _Copy | None:
        while True:
            copy = await self.load_session(key, config)
            if copy is None or self.store.is_free(copy.incarnation, self.process):
                return copy
            if reject:
                raise SessionBusyError(f"another process is running {key}; wait for it, or try again later")
            await self._env.sleep(LEASE_POLL_S)

    # --- writing

    async def _begin_write(self, what: str) -> str:
        """Let a write be slow or refused; return how the store fails, or an empty text."""
        fault, world = "", self.store.world
        if world.strikes("write", f"the store fails to write {what}"):
            fault = _KINDS[world.choices.choose(len(_KINDS), "how the store fails", names=_KINDS)]
            world.reached(f"store: {fault}")
            world.note("the store", f"is told to write {what}, which {fault}")
        if fault == _SLOW:
            seconds = SLOW_WRITES_S[world.choices.choose(len(SLOW_WRITES_S), "how slow")]
            with trio.CancelScope(shield=True):  # the store has the write, and does it in any case
                await world.sleep(seconds)
        self.process.refuse_if_dead()
        if fault == _REFUSED:
            raise StorageRolledBackError(f"{what} was refused (simulated)")
        return fault

    async def _end_write(self, what: str, fault: str) -> None:
        """Acknowledge a write, or lose the acknowledgement; the process can die before it has it."""
        if self.store.world.faults:
            with trio.CancelScope(shield=True):
                await self._env.point("stored")
        if fault == _LOST or self.process.is_dead:
            raise StorageUncertainError(f"{what} was stored, and the acknowledgement was lost (simulated)")

    async def _write(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        fault = await self._begin_write(what)
        done = await work()
        await self._end_write(what, fault)
        return done

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        assert isinstance(live, _Copy), "live sessions come from the service that they are written by"
        fault = await self._begin_write("an event")
        lease = self._check_turn(live, event, writer)
        changes = apply_writes(live.values, writes_of(event.actions))
        calls = live.call_changes(event, tracked=writer is not None)
        entered = None if writer is None else writer.epoch
        await super().commit_event(live.stored, event, writer=writer, begins=begins)
        if entered is None:
            self._take(lease, writer)
        if writer is not None:
            writer.epoch = lease.epoch
            if begins:
                self.store.runs[live.incarnation, writer.invocation_id] = self.process, lease.epoch
        if fault == _LOST:
            self._copies.pop(live.key, None)  # this process does not know what is stored: the next use reads it
        else:
            live.advance(event, changes, calls)
            live.has_messages = live.stored.has_messages
        await self._end_write("an event", fault)

    def _check_turn(self, live: _Copy, event: Event, writer: SessionWriter | None) -> _Lease:
        """
        Return the lease of the session.

        Raises:
            ChangedMeanwhileError, StaleSessionError: Another process has written, or has taken the lease.
            SessionNotFoundError: The session was deleted.
        """
        if self._sessions.get(live.key) is not live.stored:
            raise SessionNotFoundError(f"{live.key} was deleted")
        lease = self.store.lease(live.incarnation)
        entered = None if writer is None else writer.epoch
        is_turn = self.store.is_free(live.incarnation, self.process) if entered is None else lease.epoch == entered
        if is_turn and event.seq == live.stored.revision + 1:
            return lease
        if writer is None:
            raise ChangedMeanwhileError
        msg = f"{live.key} has changed: another process has entered it first, or has taken it over; run it again"
        raise StaleSessionError(msg)

    def _take(self, lease: _Lease, writer: SessionWriter | None) -> None:
        """Take a free lease for a run; an append from outside of runs ends one that has run out."""
        if lease.holder not in (None, self.process):
            self.store.world.reached("lease taken over")
        if writer is not None or lease.holder is not None:
            lease.epoch += 1
        lease.holder = None if writer is None else self.process
        lease.until_s = self.store.new_expiry()

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        await self._env.point("create")
        return await self._write("a session", partial(super().insert_session, key, events))

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        await self._write("a fork", partial(super().insert_fork, key, at_seq, new, create_time))

    async def remove_session(self, key: SessionKey) -> None:
        while (stored := self._sessions.get(key)) and not self.store.is_free(stored.incarnation, self.process):
            await self._env.sleep(LEASE_POLL_S)
        await self._write("a deletion", partial(super().remove_session, key))

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        await self._write("a message", partial(super().insert_message, key, message))

    # --- leases, and how runs end

    async def renew_leases(self, writers: Sequence[SessionWriter]) -> None:
        self.process.refuse_if_dead()
        for writer in writers:
            lease = self.store.lease(writer.live.incarnation)
            if lease.epoch == writer.epoch and lease.holder is self.process:
                lease.until_s = self.store.new_expiry()

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        return await self._write("the end of a run", partial(self._store_end, super().record_end, writer, status))

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        place = (writer.live.incarnation, writer.invocation_id)
        run = self.store.runs.pop(place, None)  # also if that cannot be stored: the run has left the session
        if run is not None and (run[0] is not self.process or run[1] != writer.epoch):
            self.store.runs[place] = run
        is_left = await self._write("the end of a run", partial(self._leave, writer, status))
        if not is_left and run is not None:
            self.store.runs[place] = run
        return is_left

    async def _leave(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        if not await self._store_end(super().finish_invocation, writer, status):
            return False
        lease = self.store.lease(writer.live.incarnation)
        if lease.holder is self.process and lease.epoch == writer.epoch:
            lease.holder = None
        return True

    async def _store_end(
        self, store: Callable[..., Awaitable[bool]], writer: SessionWriter, status: InvocationStatus | None
    ) -> bool:
        """Store the end of a run, if no other process has resumed it."""
        if self.store.lease(writer.live.incarnation).epoch != writer.epoch:
            return True
        done = await store(writer, status)
        assert isinstance(writer.live, _Copy)
        writer.live.has_messages = writer.live.stored.has_messages
        return done

    # --- reading

    def _listed(self, run: Invocation) -> Invocation:
        """Return an invocation as it is listed: interrupted if its process is gone, or has lost the lease."""
        if run.status is not InvocationStatus.RUNNING:
            return run
        incarnation = self._sessions[SessionKey(run.app_name, run.user_id, run.session_id)].incarnation
        holder, epoch = self.store.runs.get((incarnation, run.invocation_id), (None, 0))
        lease = self.store.lease(incarnation)
        lives = holder is not None and lease.epoch == epoch and not self.store.has_run_out(lease)
        return run if lives else changed(run, status=InvocationStatus.INTERRUPTED)

    async def load_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        return [self._listed(run) for run in await super().load_invocations(app_name, user_id, session_id, status)]

    async def load_unfinished_invocations(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        return [self._listed(run) for run in await super().load_unfinished_invocations(key, after_seq)]

    async def load_invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        found = await super().load_invocation(key, invocation_id)
        return None if found is None else self._listed(found)


class MemoryStore(Store):
    """Sessions in dicts, which outlive the processes of a simulated run."""

    faults: ClassVar[Kinds] = {"storage": {"write": (50, 12, 200)}}
    service = MemoryService

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sessions = InMemorySessionService()
        """What is stored."""
        self.is_shared = world.processes > 1
        self.runs: dict[_Place, tuple[Process, int]] = {}
        """The invocations that run: in which process, and under which epoch of the lease."""
        self._leases: dict[int, _Lease] = {}

    def lease(self, incarnation: int) -> _Lease:
        """Return the lease of a session."""
        return self._leases.setdefault(incarnation, _Lease())

    def new_expiry(self) -> float:
        """Return when a lease runs out that is taken or renewed now."""
        return trio.current_time() + LEASE_S if self.is_shared else float("inf")

    def has_run_out(self, lease: _Lease) -> bool:
        """Whether the lease has no living holder any more, or has run out."""
        return lease.holder is None or lease.holder.is_buried or lease.until_s <= trio.current_time()

    def is_free(self, incarnation: int, process: Process) -> bool:
        """Whether no other living process holds the session."""
        lease = self.lease(incarnation)
        return lease.holder is process or self.has_run_out(lease)

    def open(self, process: Process) -> BaseSessionService:
        """Open a service over what is stored."""
        return self.service(self, process)

    def bury(self, process: Process) -> None:
        """Nothing of a process is in the store but its leases, which end with it."""
        self.runs = {place: run for place, run in self.runs.items() if run[0] is not process}

    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit the initial state of an app, now."""
        key, made = SessionKey(app_name, FIRST, FIRST), creation(state)
        for work in (self.sessions.insert_session(key, [made]), self.sessions.remove_session(key)):
            with contextlib.suppress(StopIteration):
                work.send(None)
        for observer in self.world.observers:
            observer.seeded(key, made)

    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """Return the committed state."""
        found = dict(self.sessions._app_values.get(app_name, {}))
        if user_id is not None:
            found.update(self.sessions._user_values.get((app_name, user_id), {}))
            if session_id is not None:
                stored = self.sessions._sessions.get(SessionKey(app_name, user_id, session_id))
                found.update({} if stored is None else stored.values.session)
        return found

    def log(self, key: SessionKey) -> list[Event]:
        """Return all events of a session."""
        stored = self.sessions._sessions.get(key)
        return [] if stored is None else [*self.sessions._logs[stored.incarnation]]

    def status(self, key: SessionKey, invocation_id: str) -> InvocationStatus | None:
        """Return the stored status of an invocation."""
        stored = self.sessions._sessions.get(key)
        run = None if stored is None else self.sessions._invocations.get((stored.incarnation, invocation_id))
        return None if run is None else run.status
