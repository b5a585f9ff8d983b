"""
The session service: what applications, runners and the authors of other services rely on.

Rules of this file:

1.  One writer at a time (promise P3). Whoever writes a session — a run, `append_event`, `delete_session` — holds its
    gate, so the order of appends is the order of asking and nothing inside a process is ever stale by accident.
2.  Nothing is stored that could not be read again: an event is checked before the store sees it (P8).
3.  An append is cancellable until the store has begun its transaction, and shielded from there to the store's answer;
    nothing checkpoints after the write (P1).
4.  Stored first, applied second: the live session is advanced by `apply_event`, after the commit (P4).

A service author subclasses `BaseSessionService` and implements the storage primitives, which stand in `_store.py`.
`minirun.testing.check_session_service` is the contract, as tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import attrs
import trio

from .._json import check_id, freeze, shown
from ..env import Env
from ..errors import InvalidValueError, ServiceInUseError
from ..events import Event, EventActions
from ._event_checks import checked_event
from ._invocation import Invocation, InvocationStatus
from ._key import SessionKey, check_app_name, session_key
from ._session import GetSessionConfig, ListSessionsResponse, Session
from ._state import TEMP_PREFIX, Scope, check_key, scope_of
from ._store import SessionStore

if TYPE_CHECKING:
    from ._pending import PendingCall

__all__ = ["BaseSessionService"]

_PAGE = re.compile(r"[0-9]{1,18}")
# Numbers of events and of sessions: beyond what any store will ever hold, and within SQLite's 64 bits.
NUMBER_MAX = 2**62


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

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: Mapping[str, object] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """
        Make a new session, with *state* as its initial state, and return it.

        `user:` and `app:` keys go to their scopes. Without a *session_id*, or with a blank one, an id is made.
        The initial state is an event, `seq` 0, which `read_events` shows and `session.events` does not.

        Raises:
            AlreadyExistsError: The user has a session of this id.
            InvalidValueError: A name or id is invalid, or *state* is not JSON or has `temp:` keys. Nothing is stored.
        """
        if session_id is None or (isinstance(session_id, str) and not session_id.strip()):
            session_id = self._env.new_id("session")
        key = session_key(app_name, user_id, session_id)
        event = Event(
            id=self._env.new_id("event"),
            author="system",
            seq=0,
            timestamp=self._env.now(),
            actions=_checked_initial_state(state),
        )
        with self._used():
            await trio.lowlevel.checkpoint()
            live = await self._create(key, [event])
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
        from ._integrity._history import check_history  # few programs import sessions

        key = session_key(app_name, user_id, session_id)
        history = check_history(events)
        with self._used():
            await trio.lowlevel.checkpoint()
            await self._create(key, history)
            return await self._whole(key)

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
        key = session_key(app_name, user_id, session_id)
        if new_session_id is None or (isinstance(new_session_id, str) and not new_session_id.strip()):
            new_session_id = self._env.new_id("session")
        new = session_key(app_name, user_id, new_session_id)
        if at_seq is not None and (isinstance(at_seq, bool) or not isinstance(at_seq, int) or at_seq < 0):
            raise InvalidValueError("at_seq", f"expected the seq of an event, from 0 up, found {shown(at_seq)}")
        with self._used():
            await trio.lowlevel.checkpoint()
            await self._fork(key, at_seq, new)
            return await self._whole(new)

    async def _whole(self, key: SessionKey) -> Session:
        """A session that was just made, with all that is visible; no cancellation comes after it was stored."""
        with trio.CancelScope(shield=True):
            live = await self._open(key, None)
        if live is None:  # deleted by another process just now
            raise await self._not_found(key)
        return live.snapshot(None)

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
            live = await self._open(key, config)
            return None if live is None else live.snapshot(config)

    async def list_sessions(
        self, *, app_name: str | None, user_id: str | None = None, limit: int | None = None, after: str | None = None
    ) -> ListSessionsResponse:
        """
        List sessions in the order they were made, without events and state. `app_name=None` lists those of all apps.

        With a *limit*, `response.next` is the *after* of the next page; pages neither skip nor repeat a session that
        stays, whatever is made or deleted between them.
        """
        if app_name is not None:
            check_app_name(app_name)
        if user_id is not None:
            user_id = check_id("user_id", user_id)
        limit = _checked_limit(limit)
        if after is not None and not (isinstance(after, str) and _PAGE.fullmatch(after)):
            raise InvalidValueError("after", f"expected the `next` of an earlier page, found {shown(after)}")
        with self._used():
            await trio.lowlevel.checkpoint()
            found = await self._list(app_name, user_id, None if limit is None else limit + 1, int(after or -1))
        page = found if limit is None else found[:limit]
        following = str(page[-1]._incarnation) if page and len(found) > len(page) else None
        return ListSessionsResponse(sessions=page, next=following)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """
        Delete the session and its events, if it exists; what it wrote to `user:` and `app:` stays.

        Its artifacts go first, those with `user:` aside: the ones in the same file, and those of the artifact services
        of all Runners that are there. A failure or a cancellation may leave a session that has lost some; delete it
        again. Waits for a run on the session to end.

        Raises:
            SessionBusyError: That run cannot end before this call returns.
        """
        key = session_key(app_name, user_id, session_id)
        with self._used():
            hold = await self._acquire(key)
            try:
                await self._open_free(key, GetSessionConfig(num_recent_events=0), reject=False)
                for service in list(self._accompanying.values()):
                    await service.delete_session_artifacts(**attrs.asdict(key))
                await self._delete(key)
            finally:
                hold.release()

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
        if not isinstance(session, Session):
            raise InvalidValueError("session", f"expected what get_session returns, found {shown(session)}")
        if not isinstance(event, Event):
            raise InvalidValueError("event", f"expected an Event, found {shown(event)}")
        if event.partial:
            return event
        event = checked_event(event)
        from ._outside import append_outside  # runs append by their writers

        with self._used():
            return await append_outside(self, session, event)

    async def read_events(
        self, *, app_name: str, user_id: str, session_id: str, after_seq: int | None = None, limit: int | None = None
    ) -> list[Event]:
        """
        Read stored events in order, the creation record (`seq` 0) included; with *after_seq* only later ones.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        key = session_key(app_name, user_id, session_id)
        limit = _checked_limit(limit)
        if after_seq is not None and (isinstance(after_seq, bool) or not isinstance(after_seq, int)):
            raise InvalidValueError("after_seq", f"expected an integer, found {shown(after_seq)}")
        after_seq = -1 if after_seq is None else min(max(after_seq, -1), NUMBER_MAX)
        with self._used():
            await trio.lowlevel.checkpoint()
            events = await self._read(key, after_seq, limit)
            if not events and await self._open(key, GetSessionConfig(num_recent_events=0)) is None:
                raise await self._not_found(key)
            return events

    async def list_invocations(
        self, *, app_name: str | None = None, status: InvocationStatus | str | None = None
    ) -> list[Invocation]:
        """
        List the invocations of runs, oldest first. `running` ones whose owner is gone are listed as `interrupted`.

        A `paused` one needs no owner. One that a rewind has undone before it ended is `cancelled`; one that has begun
        before what was undone is listed as it was then.

        Raises:
            InvalidValueError: *status* is not one of InvocationStatus.
        """
        if app_name is not None:
            check_app_name(app_name)
        if status is not None:
            try:
                status = InvocationStatus(status)
            except ValueError:
                problem = f"expected one of {', '.join(InvocationStatus)}, found {shown(status)}"
                raise InvalidValueError("status", problem) from None
        with self._used():
            await trio.lowlevel.checkpoint()
            found = await self._list_invocations(app_name, status)
        return [invocation for invocation in found if status is None or invocation.status is status]

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
        if app_name is not None:
            check_app_name(app_name)
        if user_id is not None:
            user_id = check_id("user_id", user_id)
        if session_id is not None:
            session_id = check_id("session_id", session_id)
        with self._used():
            await trio.lowlevel.checkpoint()
            found = await self._list_waiting(app_name, user_id, session_id)
        from ._pending import pending_call  # few programs ask

        pending = (pending_call(key, call, event, mark) for key, call, event, mark in found)
        return [each for each in pending if include_timers or each.kind != "timer"]


def _checked_initial_state(state: Mapping[str, object] | None) -> EventActions:
    if state is not None and not isinstance(state, Mapping):
        raise InvalidValueError("state", f"expected a mapping, found {type(state).__name__}")
    delta = freeze(dict(state or {}), "state")
    for key in delta:
        if scope_of(check_key(key, "state")) is Scope.TEMP:
            problem = f"{TEMP_PREFIX!r} keys live for one invocation; pass them to run_async(state_delta=...)"
            raise InvalidValueError(f"state[{key!r}]", problem)
    return EventActions(state_delta=delta)


def _checked_limit(limit: int | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidValueError("limit", f"expected an integer from 1 up, or None, found {shown(limit)}")
    return min(limit, NUMBER_MAX)
