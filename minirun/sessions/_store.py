"""
Writing sessions: the writer that a run holds, and what a store has to do for it.

`SessionStore` has the storage primitives: ten abstract methods, and eleven with a default. A service author subclasses
`BaseSessionService`, which adds the methods that applications call, and implements the primitives at the end of this
file; what is above them is the same for all stores. Applications do not call the primitives: they take no lock.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import trio

from .._json import JSON
from .._service import BaseService
from .._values import changed
from ..env import Env
from ..errors import (
    InvalidEventError,
    InvocationEndedError,
    NotSupportedError,
    ServiceInUseError,
    SessionNotFoundError,
    StorageError,
)
from ..events import Event
from ._calls import OpenCall
from ._gate import INSIDE, Hold, acquire, acquire_free
from ._invocation import Invocation, InvocationStatus
from ._key import SessionKey
from ._live import LiveSession
from ._renewals import Renewals
from ._session import GetSessionConfig, Session
from ._state import writes_of

__all__ = ["ChangedMeanwhileError", "SessionStore", "SessionWriter"]


class ChangedMeanwhileError(Exception):
    """Raised by `commit_event` for an append without a writer when another process entered the session just before."""


class SessionWriter:
    """
    What a run holds from entering a session to leaving it: the right to write, and the live session.

    `append` stores and applies; `begins` on the user message also records the invocation as running, on the first event
    of one that is resumed as running again. The first append takes the session's lease where several processes share
    the store.
    """

    def __init__(self, service: SessionStore, hold: Hold, live: LiveSession, invocation_id: str) -> None:
        self.service = service
        self._pid = service._pid
        self.live = live
        self.invocation_id = invocation_id
        self.epoch: int | None = None  # of the lease, once it is taken
        self.put_off: Event | None = None
        """The message of a run that stores it, and takes the lease, only when it has something else to store."""
        self._has_recorded_end = False
        self._hold: Hold | None = hold
        live.held = True

    def belongs_to(self, nursery: trio.Nursery) -> None:
        """Tell which nursery is the run's, so that waiting inside it for this session is refused."""
        assert self._hold is not None
        self._hold.nursery = nursery

    def mark_task(self) -> None:
        """Let the current task, and the threads it starts, be known as inside the run."""
        assert self._hold is not None
        INSIDE.set((*INSIDE.get(), self._hold))

    async def append(self, event: Event, *, begins: bool = False) -> Event:
        """
        Store *event* at the end of the session and return it with its `seq` and `timestamp`.

        Cancellable until the store has begun; `Cancelled` means that nothing was stored.

        Raises:
            StaleSessionError: Another process has written, or has taken the lease. Nothing was stored.
            InvocationEndedError: The run has left the session. Nothing was stored.
            InvalidEventError: It says of a call that it waits, or is suspended, and there is no such open call.
            StorageError: See the class for what it says about the event.
        """
        if self._hold is None or self._pid != os.getpid():
            why = "has left" if self._hold is None else "runs in the process that this one was forked from, in"
            msg = f"the invocation {self.invocation_id} {why} {self.live.key}; what it would still write is refused"
            raise InvocationEndedError(msg)
        if event.long_running_tool_ids or event.actions.suspended_calls:
            from ._event_references import check_marked_calls  # few events mark calls

            check_marked_calls(event, self.live.open_calls)
        if self.put_off is not None:
            await self.begin()
        return await self.service._append(self.live, event, writer=self, begins=begins)

    async def begin(self) -> None:
        """Store the message that was `put_off`, if there is one; raises as `append` does. No checkpoint otherwise."""
        message = self.put_off
        if message is not None:
            self.put_off = None  # `append` stores it otherwise
            try:
                await self.append(message, begins=True)
            except BaseException:
                self.put_off = message
                raise

    async def reload(self, config: GetSessionConfig | None, *, reject: bool) -> None:
        """Read the session again, for a run that found it changed before its own message was stored."""
        live = await self.service.load_free_session(self.live.key, config, reject=reject)
        if live is None:
            raise await self.service._not_found(self.live.key)
        self.live.held = False
        live.held = True
        self.live = live
        self.epoch = None

    @trio.lowlevel.enable_ki_protection
    def keep(self, nursery: trio.Nursery) -> None:
        """Have the lease renewed every `service.renew_every_s` seconds, by a task in this nursery if there is none."""
        service = self.service
        if service.renew_every_s is not None:
            if service._renewals is None:
                service._renewals = Renewals(service._env, service.renew_every_s, service.renew_leases)
            service._renewals.add(self, nursery)

    @trio.lowlevel.enable_ki_protection
    def stop_renewing(self) -> None:
        """Leave the lease to run out; *keep*'s nursery can close then."""
        renewals = self.service._renewals
        if renewals is not None and not renewals.remove(self):
            self.service._renewals = None

    async def renew(self) -> None:
        """Extend the lease now."""
        await self.service.renew_leases([self])

    async def record_end(self, status: InvocationStatus) -> None:
        """
        Record how the invocation has ended, before the session is left: what still follows cannot change that.

        Raises:
            StorageError: It may be recorded or not; `finish` does it, then.
        """
        if self.epoch is not None and self._pid == os.getpid():
            self._has_recorded_end = await self.service.record_end(self, status)

    @trio.lowlevel.enable_ki_protection
    async def finish(self, status: InvocationStatus | None) -> bool:
        """
        Record how the invocation ended, or that it is paused, give the lease back and let the next one in. None: it
        never began, or is left, and so interrupted. It changes nothing where this writer has not begun it, and the end
        that `record_end` has recorded stays as it is.

        May be lost in a power cut or a storage failure: then the invocation is listed as interrupted.

        Returns:
            False if it is to be completed, and messages that were sent to it wait: nothing has changed then, the
            writer goes on.
        """
        assert self._hold is not None, "a writer is finished once"
        hold, self._hold, is_left = self._hold, None, True
        self.live.held = False
        try:
            if self.epoch is not None and self._pid == os.getpid():
                status = None if self._has_recorded_end else status
                is_left = await self.service.finish_invocation(self, status) is not False
        except StorageError:
            pass  # every event is stored; the lease runs out by itself, and the status says what is true: unknown
        finally:
            if is_left:
                hold.release()
                self.service._end_use(self._pid)
            else:
                self._hold, self.live.held = hold, True
                if hold.nursery is not None:
                    self.keep(hold.nursery)
        return is_left


class SessionStore(BaseService, ABC):
    """Where sessions are kept: who uses it, who writes to it, and the primitives that each store implements."""

    renew_every_s: float | None = None
    """How often a run renews its lease, in seconds; None where no other process can reach the store."""

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._users = 0
        self._token: trio.lowlevel.TrioToken | None = None
        self._renewals: Renewals[SessionWriter] | None = None  # while there are runs with a lease

    @contextmanager
    def _used(self) -> Iterator[None]:
        """
        Mark the service as used by this `trio.run`.

        The caller is protected from Ctrl-C: without that, a KeyboardInterrupt on the way into the block or out of it
        would leave the service in use, or a session or a lock of the store held, for ever.
        """
        assert trio.lowlevel.currently_ki_protected()
        self._begin_use()
        process = self._pid
        try:
            yield
        finally:
            self._end_use(process)

    def _begin_use(self) -> None:
        self._check_open()
        token = trio.lowlevel.current_trio_token()
        if self._users and self._token is not token:
            msg = f"this {type(self).__name__} is being used by another trio.run; give each its own service"
            raise ServiceInUseError(msg)
        self._token = token
        self._users += 1

    def _end_use(self, process: int) -> None:
        self._users -= process == self._pid  # what another one began is not counted in its fork

    def _after_fork(self) -> None:
        self._users, self._token, self._renewals = 0, None, None

    @trio.lowlevel.enable_ki_protection
    async def open_writer(
        self, key: SessionKey, invocation_id: str, config: GetSessionConfig | None, *, reject: bool
    ) -> SessionWriter | None:
        """
        Wait for the session and open it for a run; None if there is no such session. Stores nothing.

        No checkpoint in itself, where the session is free and the store has it at hand.

        Raises:
            SessionBusyError: It is held and *reject* is set, or waiting could never end.
        """
        self._begin_use()  # until the writer is finished
        hold: Hold | None = None
        live: LiveSession | None = None
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            # Nothing is gained by letting others go first where nobody waits: a run checkpoints before it stores.
            hold = acquire_free((self.store_id(), key)) or await self._acquire(key, reject=reject)
            live = await self.load_free_session(key, config, reject=reject)
            return None if live is None else SessionWriter(self, hold, live, invocation_id)
        finally:
            if live is None:
                self._end_use(self._pid)
                if hold is not None:
                    hold.release()

    async def _acquire(self, key: SessionKey, *, reject: bool = False) -> Hold:
        return await acquire((self.store_id(), key), str(key), reject=reject)

    async def _append(
        self,
        live: LiveSession,
        event: Event,
        *,
        session: Session | None = None,
        writer: SessionWriter | None = None,
        begins: bool = False,
    ) -> Event:
        """Complete, store and apply an event that was checked."""
        if event.seq is not None and event.seq != live.revision + 1:
            msg = f"expected an event without seq (the store gives it), found seq={event.seq}"
            raise InvalidEventError(msg)
        if event.timestamp is not None:
            from ._event_references import check_time  # few events bring their own

            check_time(event.timestamp, "timestamp")
        complete = changed(
            event,
            id=event.id or self._env.new_id("event"),
            seq=live.revision + 1,
            timestamp=self._env.now() if event.timestamp is None else event.timestamp,
        )
        try:
            await self.commit_event(live, complete, writer=writer, begins=begins)
        except StorageError as error:
            if session is not None and error.stored is None:
                session._uncertain = (changed(event, id=None), complete.id)
            raise
        if session is not None:
            changes = {name: live.values.get(name) for name in writes_of(complete.actions)}
            session._advance(complete, changes, live.mark)
        return complete

    async def _not_found(self, key: SessionKey, advice: str = "look for it with list_sessions") -> SessionNotFoundError:
        """The error that says where there is a session of this id, if anywhere, and what to do."""
        from ._missing import not_found

        return not_found(key, await self.apps_with_session(key.user_id, key.session_id), advice)

    # --- storage primitives, abstract: what a service author implements -----------------------------------------------

    @abstractmethod
    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        """
        Store a new session with these events, the creation record first, or raise AlreadyExistsError.

        All of it or nothing. Calls without a response are open, and the invocations whose calls wait for a reply are
        paused. No checkpoint after the write.
        """

    @abstractmethod
    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        """
        Store a new session with the past of another one up to *at_seq*, or raise AlreadyExistsError.

        Its open calls and its invocations are those of the other one, as they were then (`invocation_at`), and no
        process runs them. No checkpoint after the write.
        """

    @abstractmethod
    async def load_session(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        """
        The up-to-date live session with at least the events that *config* asks for (`LiveSession.wanted`), or None.

        Its newest visible compaction is known, whatever is loaded.
        """

    @abstractmethod
    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        """
        Store *event*, whose seq is `live.revision + 1`, with all it changes, atomically; then `live.advance` it.

        Shared scopes are applied to the values that are current in the transaction. With *begins* the writer's
        invocation is recorded as running, again if it was recorded before; one that has ended is refused as stale,
        unless `may_begin` allows it. An event that undoes others cancels the invocations that have begun in the undone
        part and not ended; the others are as they were before it (`invocation_at`). An event that was sent to a run
        (`Replay.sent`) is removed from the waiting messages. No checkpoint after the write.
        """

    @abstractmethod
    async def remove_session(self, key: SessionKey) -> None:
        """Delete the session if it exists."""

    @abstractmethod
    async def load_sessions(
        self, app_name: str | None, user_id: str | None, limit: int | None, after: int
    ) -> list[Session]:
        """Sessions whose incarnation is above *after*, in that order, without events and state."""

    @abstractmethod
    async def load_events(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        """Stored events with a seq above *after_seq* (-1: all), in order; none if there is no such session."""

    @abstractmethod
    async def load_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        """
        All recorded invocations, or at least those of a *status*, oldest first.

        The cost for one session does not depend on the number of other sessions.
        """

    @abstractmethod
    async def load_waiting_calls(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        """
        The calls that wait for a reply, each with the event that contains it and the event that made it wait.

        The call that began to wait first, in this store, comes first; then by session and position in the log. The cost
        depends on what is returned, not on what is stored.
        """

    @abstractmethod
    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool | None:
        """
        Record the final status, if there is one and the writer's invocation runs, and give the lease back.

        Return False, and change nothing, if messages wait for an invocation that is to be completed (`insert_message`);
        `record_end` returns False then, too, and both set `writer.live.has_messages`.

        It may come late: an invocation that another writer has begun again since stays as it is. So does one that is
        to be completed, but can take no message any more, if one was sent to it that it has not taken.
        """

    # --- storage primitives with a default: for what a store can do better, or need not have -------------------------

    def store_id(self) -> Hashable:
        """What names the store in this process: two services over one file return the same."""
        return id(self)

    async def load_free_session(
        self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool
    ) -> LiveSession | None:
        """As `load_session`, after waiting until no other process has the session's lease."""
        return await self.load_session(key, config)

    def cached_session(self, key: SessionKey) -> LiveSession | None:
        """The live session as it was last used, which may be out of date, if that avoids a read of the store."""
        return None

    async def load_invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        """One recorded invocation of a session. Better found without reading others."""
        found = await self.load_invocations(key.app_name, key.user_id, key.session_id, None)
        return next((one for one in found if one.invocation_id == invocation_id), None)

    async def load_unfinished_invocations(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        """
        The recorded invocations of a session that have begun after event *after_seq*, and not ended.

        Better found without reading others; those that have begun before have all ended.
        """
        found = await self.load_invocations(key.app_name, key.user_id, key.session_id, None)
        return [one for one in found if one.seq > after_seq and not one.status.has_ended]

    async def apps_with_session(self, user_id: str, session_id: str) -> set[str]:
        """The apps that have a session of this user and id. Better found without reading all sessions."""
        found = await self.load_sessions(None, user_id, None, -1)
        return {session.app_name for session in found if session.id == session_id}

    async def load_user_state(self, app_name: str, user_id: str) -> Mapping[str, JSON]:
        """The values that all sessions of a user share, under their full keys."""
        msg = f"{type(self).__name__} does not tell the state of users; read that of one of the user's sessions"
        raise NotSupportedError(msg)

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        """
        Store the message of a user for the invocation that is to take it, by `received`, after those that wait.

        Waiting messages are not part of the log. A run takes one by appending it, in the same transaction.

        Raises:
            SessionNotFoundError, InvocationNotFoundError, InvocationEndedError: No run would take it.
        """
        raise NotSupportedError(f"{type(self).__name__} keeps no messages for runs; implement `insert_message`")

    async def load_messages(self, live: LiveSession) -> list[Event]:
        """The messages that wait in a session, in the order in which they were sent, without `seq`."""
        return []

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        """
        Record the final status of the writer's invocation, and keep the lease; later appends do not belong to it.

        Return whether that was done. If not, `finish_invocation` records it: a process that dies before leaves the
        invocation interrupted.
        """
        return False

    async def renew_leases(self, writers: Sequence[SessionWriter]) -> None:
        """Extend the leases of those of the writers that have one."""
