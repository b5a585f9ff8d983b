"""
The session service: what applications, runners and the authors of other services rely on.

Rules of this file:

1.  One writer at a time (promise P3). What writes a session — a run, `append_event`, `delete_session` — holds its
    gate, so the order of appends is the order of asking and nothing inside a process is ever stale by accident.
2.  Nothing is stored that could not be read again: an event is checked before the store sees it (P8).
3.  An append is cancellable until the store has begun its transaction, and shielded from there to the store's answer;
    nothing checkpoints after the write (P1).
4.  Stored first, applied second: the live session is advanced by `apply_event`, after the commit (P4).

A service author subclasses `BaseSessionService` and implements the storage primitives, which are in `_store.py`.
`minirun.testing.check_session_service` checks the result, and `tests/contracts` has the whole suite. What no run needs
is done in `_seldom.py`, which is imported by the first call that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import trio

from .._json import shown
from ..env import Env
from ..errors import InvalidValueError, ServiceInUseError
from ..events import Event, EventActions
from ._invocation import Invocation, InvocationStatus
from ._key import session_key
from ._session import GetSessionConfig, ListSessionsResponse, Session
from ._store import SessionStore

if TYPE_CHECKING:
    from ._node_runs import NodeRunInfo
    from ._pending import PendingCall

__all__ = ["BaseSessionService"]


class SessionParts(Protocol):
    """A service that keeps something of sessions beside their store: an artifact service."""

    async def delete_session_artifacts(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete what is kept of the session, if there is anything."""


class BaseSessionService(SessionStore):
    """
    Keeps sessions: their events, their state, and the state that a user or an app shares between sessions.

    It works without `async with`, which only closes it. It serves one `trio.run` after another, and refuses two at
    once with ServiceInUseError.

    Args:
        env: Where time and ids come from; a Runner over this service uses the same.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._accompanying: WeakValueDictionary[int, SessionParts] = WeakValueDictionary()
        self._numbers = count()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, traceback)
        except ServiceInUseError:
            if error is None:
                raise
            error.add_note(f"and this {type(self).__name__} was left open: a run or a call is still using it")

    async def aclose(self) -> None:
        """Close the store. What is stored stays stored; using the service afterwards raises ServiceClosedError."""
        if self._users:
            msg = "expected no run and no call in progress when the service is closed; leave the runs first"
            raise ServiceInUseError(msg)
        await super().aclose()

    # --- sessions

    @trio.lowlevel.enable_ki_protection
    async def create_session(
        self, *, app_name: str, user_id: str, state: Mapping[str, object] | None = None, session_id: str | None = None
    ) -> Session:
        """
        Make a new session, with *state* as its initial state, and return it.

        `user:` and `app:` keys go to their scopes. Without a *session_id*, or with a blank one, an id is made.
        The initial state is an event, `seq` 0, which `read_events` shows and `session.events` does not.

        Raises:
            AlreadyExistsError: The user has a session of this id.
            InvalidValueError: A name or id is invalid, or has more than 512 bytes of UTF-8, or *state* is not JSON or
                has `temp:` keys. Nothing is stored.
        """
        if session_id is None or (isinstance(session_id, str) and not session_id.strip()):
            session_id = self._env.new_id("session")
        key = session_key(app_name, user_id, session_id)
        if max(map(len, (key.app_name, key.user_id, key.session_id))) > 128:  # of four bytes each they may be too long
            from ._id_bytes import check_key_bytes

            check_key_bytes(key)
        actions = EventActions()
        if state is not None:
            from ._initial_state import initial_state

            actions = initial_state(state)
        event = Event(id=self._env.new_id("event"), author="system", seq=0, timestamp=self._env.now(), actions=actions)
        with self._used():
            await trio.lowlevel.checkpoint()
            live = await self.insert_session(key, [event])
            return live.snapshot(None)

    async def import_session(self, *, app_name: str, user_id: str, session_id: str, events: Iterable[Event]) -> Session:
        """
        Make a session out of what `read_events` returned for another one, its creation record first.

        Ids, times and `seq` stay as they are; so the session reads, and exports, exactly as the other one did. What
        the events changed in the `user:` and `app:` scopes is applied to those of this store, now. Invocations that
        wait for somebody are paused, and can be answered here. All of it is stored, or nothing.

        Raises:
            AlreadyExistsError: The user has a session of this id.
            InvalidValueError, InvalidEventError: The events are not a session's whole history. Nothing is stored.
        """
        from . import _seldom

        return await _seldom.import_session(self, session_key(app_name, user_id, session_id), events)

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        at_seq: int | None = None,
        new_session_id: str | None = None,
    ) -> Session:
        """
        Make a new session that shares the past of another one, up to the event *at_seq* (by default all of it).

        Its session-scoped state is that of that moment, its events are the very same ones, ids included; `user:` and
        `app:` state is shared as always. The original is not touched, may be in the middle of a run, and may be
        deleted. An invocation that is cut, or was still running, is interrupted in the fork: calls it has left open
        are closed by the next run. One that waited at that place is paused in the fork, whatever came later, and its
        questions are asked there, too.

        Raises:
            SessionNotFoundError: There is no such session.
            AlreadyExistsError: The user has a session of the new id.
            InvalidValueError: The session has no event *at_seq*.
        """
        from . import _seldom

        return await _seldom.fork_session(self, session_key(app_name, user_id, session_id), at_seq, new_session_id)

    @trio.lowlevel.enable_ki_protection
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """
        Return the session as it is now, or None. *config* limits its events, never its state.

        It is a copy to read and to append to; a run in progress goes on without changing it.
        """
        key = session_key(app_name, user_id, session_id)
        if not isinstance(config, GetSessionConfig | None):
            raise InvalidValueError("config", f"expected a GetSessionConfig, found {shown(config)}")
        with self._used():
            await trio.lowlevel.checkpoint()
            live = await self.load_session(key, config)
            return None if live is None else live.snapshot(config)

    async def list_sessions(
        self, *, app_name: str | None, user_id: str | None = None, limit: int | None = None, after: str | None = None
    ) -> ListSessionsResponse:
        """
        List sessions in the order they were made, without events and state. `app_name=None` lists those of all apps.

        With a *limit*, `response.next` is the *after* of the next page; pages neither skip nor repeat a session that
        stays, whatever is made or deleted between them.
        """
        from . import _seldom

        return await _seldom.list_sessions(self, app_name, user_id, limit, after)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """
        Delete the session and its events, if it exists; what it wrote to `user:` and `app:` stays.

        Its artifacts go first, those with `user:` aside: the ones in the same file, and those of the artifact services
        of all Runners that are there. A failure or a cancellation may leave a session that has lost some; delete it
        again. Waits for a run on the session to end.

        Raises:
            SessionBusyError: That run cannot end before this call returns.
        """
        from . import _seldom

        await _seldom.delete_session(self, session_key(app_name, user_id, session_id))

    def _accompany(self, service: SessionParts) -> None:
        """Let *service* delete what it keeps of a session when that is deleted, as long as anybody else needs it."""
        if all(present is not service for present in self._accompanying.values()):
            self._accompanying[next(self._numbers)] = service

    # --- events

    async def append_event(self, session: Session, event: Event) -> Event:
        """
        Store *event* at the end of the session; return it with its id, `seq` and `timestamp`, and advance *session*.

        Waits while a run writes the session. Appends through one session object are stored one after another. An
        event whose id is already stored where it would come next (or last) is returned as it is stored: a retry is
        safe, also of an event without id on the same session object. A partial event is returned untouched. `temp:`
        keys are left out.

        Cancellable until the store has begun; `Cancelled` means that nothing was stored.

        Raises:
            StaleSessionError: The session was written since *session* was read; nothing was stored, read it again.
            SessionNotFoundError: It was deleted.
            SessionBusyError: A run holds it that cannot end before this call returns.
            InvalidEventError, InvalidValueError, NotSupportedError: The event cannot be stored.
            StorageError: See the class for what it says about the event.
        """
        from ._outside import append_event  # runs append by their writers

        return await append_event(self, session, event)

    async def read_events(
        self, *, app_name: str, user_id: str, session_id: str, after_seq: int | None = None, limit: int | None = None
    ) -> list[Event]:
        """
        Read stored events in order, the creation record (`seq` 0) included; with *after_seq* only later ones.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        from . import _seldom

        return await _seldom.read_events(self, session_key(app_name, user_id, session_id), after_seq, limit)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """
        Return the `user:` values that all sessions of a user share, without the prefix; also where none is left.

        Raises:
            NotSupportedError: The service cannot tell.
        """
        from . import _seldom

        return await _seldom.get_user_state(self, app_name, user_id)

    async def list_invocations(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        status: InvocationStatus | str | None = None,
    ) -> list[Invocation]:
        """
        List the invocations of runs, oldest first. `running` ones whose owner is gone are listed as `interrupted`.
        Those of one session (all three names given) cost what they are, however many others the store has.

        A `paused` one needs no owner. One that a rewind has undone before it ended is `cancelled`; one that has begun
        before what was undone is listed as it was then.

        Raises:
            InvalidValueError: A name or id cannot be one, or *status* is not one of InvocationStatus.
        """
        from . import _seldom

        return await _seldom.list_invocations(self, app_name, user_id, session_id, status)

    async def list_node_runs(
        self, invocation_id: str, *, app_name: str | None = None, user_id: str | None = None,
        session_id: str | None = None,
    ) -> list[NodeRunInfo]:  # fmt: skip
        """
        List the runs of workflows' nodes that an invocation has recorded, in the order in which each is first recorded.

        With app, user and session its events are all that is read; without them it is looked for among all invocations.

        Raises:
            InvocationNotFoundError: There is no such invocation.
            InvalidValueError: A name or id cannot be one; or several sessions have such an invocation, as forks do.
        """
        from . import _seldom

        return await _seldom.list_node_runs(self, invocation_id, app_name, user_id, session_id)

    async def list_pending(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        include_timers: bool = False,
    ) -> list[PendingCall]:
        """
        List the open questions: the calls of runs that wait for somebody outside, the one that waits longest first.

        With *include_timers* also those that wait for a time. What a rewind has undone asks nothing any more, and what
        was answered in the undone part is asked again. The costs are those of what is listed, not of what is stored.

        Raises:
            InvalidValueError: A name or id cannot be one.
        """
        from . import _seldom

        return await _seldom.list_pending(self, app_name, user_id, session_id, include_timers=include_timers)
