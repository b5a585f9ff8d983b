"""
The session service: what applications, runners and the authors of other services rely on.

Rules of this file:

1.  One writer at a time (promise P3). Whoever writes a session — a run, `append_event`, `delete_session` — holds its
    gate, so the order of appends is the order of asking and nothing inside a process is ever stale by accident.
2.  Nothing is stored that could not be read again: an event is checked before the store sees it (P8).
3.  An append is cancellable until the store has begun its transaction, and shielded from there to the store's answer;
    nothing checkpoints after the write (P1).
4.  Stored first, applied second: the live session is advanced by `apply_event`, after the commit (P4).

A service author subclasses `BaseSessionService` and implements the storage primitives at its end; what is above them
is the same for all. `minirun.testing.check_session_service` is the contract, as tests.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import attrs
import trio

from .._json import check_id, freeze, shown
from .._service import BaseService
from .._values import changed
from ..env import Env
from ..errors import (
    InvalidEventError,
    InvalidValueError,
    InvocationEndedError,
    NotSupportedError,
    ServiceInUseError,
    SessionNotFoundError,
    StaleSessionError,
    StorageError,
)
from ..events import NO_ACTIONS, Event, EventActions
from ..flows._questions import REQUEST_CREDENTIAL
from ._calls import OpenCall, marks_of
from ._compactions import Compaction, CompactionFold, check_compaction
from ._fold import apply_event
from ._gate import INSIDE, Hold, acquire
from ._live import LiveSession, SessionKey
from ._renewals import Renewals
from ._session import GetSessionConfig, Invocation, InvocationStatus, ListSessionsResponse, Session
from ._state import TEMP_PREFIX, Scope, check_key, scope_of, with_writes, writes_of

if TYPE_CHECKING:
    from ._pending import PendingCall

__all__ = ["BaseSessionService", "SessionWriter", "check_app_name"]


# The ids of calls that the strictest providers accept.
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_APP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_PAGE = re.compile(r"[0-9]{1,18}")
# Numbers of events and of sessions: beyond what any store will ever hold, and within SQLite's 64 bits.
NUMBER_MAX = 2**62

# What the runtime would have to act on, and does not yet.
_WITHOUT_EFFECT = (
    "requested_tool_confirmations",
    "agent_state",
    "end_of_agent",
)


# --- checks, all before anything is stored --------------------------------------------------------------------------


def check_app_name(name: object) -> str:
    """
    Return *name* if an app can have it: letters, digits, `_` and `-`, a letter first, and not `user`.

    Raises:
        InvalidValueError: It is not such a name.
    """
    if not isinstance(name, str) or not _APP_NAME.fullmatch(name) or name == "user":
        problem = f"expected letters, digits, '_' and '-', beginning with a letter, and not 'user'; found {shown(name)}"
        raise InvalidValueError("app_name", problem)
    return str.__str__(name)


def session_key(app_name: object, user_id: object, session_id: object) -> SessionKey:
    """
    Return the key of a session; space around the ids does not count.

    Raises:
        InvalidValueError: One of the three cannot be a name or an id.
    """
    return SessionKey(check_app_name(app_name), check_id("user_id", user_id), check_id("session_id", session_id))


def checked_event(event: Event, *, history: bool = False) -> Event:
    """
    Return *event* as it may be stored: complete, with what can be stored of its state changes.

    Only the *history* of a session may contain rewinds and compactions; runners make new ones.

    Raises:
        InvalidEventError: It lacks an author, is partial, its calls or responses lack valid ids, or it names calls by
            what cannot be an id. Or it undoes or covers others, and is not of a history.
        InvalidValueError: Its state changes are malformed.
        NotSupportedError: It asks for something that this version would ignore.
    """
    if not event.author:
        msg = f"expected an event with an author, found author={event.author!r}; use an agent's name, or 'user'"
        raise InvalidEventError(msg)
    if event.partial:
        msg = "expected a complete event, found partial=True; partial events are shown and never stored"
        raise InvalidEventError(msg)
    has_actions = event.actions is not NO_ACTIONS  # most have none
    if has_actions:
        _check_use(event, history=history)
    _check_call_ids(event)
    _check_marks(event)
    if not has_actions:
        return event
    _check_artifacts(event)
    _check_auth_configs(event)
    writes = writes_of(event.actions)
    if any(scope_of(key) is Scope.TEMP for key in writes):
        kept = {key: write for key, write in writes.items() if scope_of(key) is not Scope.TEMP}
        return changed(event, actions=with_writes(event.actions, kept))
    return event


def _check_use(event: Event, *, history: bool) -> None:
    """Raise if its actions are none that an event of a *history*, or a new one, may have in this version."""
    actions = event.actions
    for name in _WITHOUT_EFFECT:
        if getattr(actions, name):
            msg = f"EventActions.{name} has no effect in this version of minirun; leave it out"
            raise NotSupportedError(msg)
    if actions.compaction is not None:
        if not history:
            msg = "expected an event that covers no others, found actions.compaction; "
            raise InvalidEventError(msg + "App(events_compaction_config=...) lets runs make such events")
        check_compaction(event)
    if not history and (actions.rewind_before_seq is not None or actions.rewind_before_invocation_id is not None):
        msg = "expected an event that undoes nothing, found rewind_before_...; use Runner.rewind_async"
        raise InvalidEventError(msg)


def _check_call_ids(event: Event) -> None:
    calls, responses = event.get_function_calls(), event.get_function_responses()
    if not calls and not responses:
        return
    if event.author == "user" and calls:
        msg = "expected no function calls of the user, found one; calls are made by models, in an event of their agent"
        raise InvalidEventError(msg)
    for what, items in (("call", calls), ("response", responses)):
        ids = [item.id for item in items]
        for item in items:
            if item.id is None or not CALL_ID.fullmatch(item.id):
                msg = (
                    f"expected every function {what} to have an id of 1 to 40 letters, digits, '_' or '-', "
                    f"found {item.id!r:.80} on {item.name!r}"
                )
                raise InvalidEventError(msg)
        if len(set(ids)) < len(ids):
            msg = f"expected the ids of an event's function {what}s to differ, found {ids}"
            raise InvalidEventError(msg)


def _check_marks(event: Event) -> None:
    waiting, suspended = event.long_running_tool_ids or (), event.actions.suspended_calls
    if not waiting and not suspended:
        return
    for name, ids in (("Event.long_running_tool_ids", sorted(waiting)), ("EventActions.suspended_calls", suspended)):
        for call_id in ids:
            if not CALL_ID.fullmatch(call_id):
                msg = f"expected {name} to name calls by their ids (letters, digits, '_' or '-'), found {call_id!r:.80}"
                raise InvalidEventError(msg)
    both = sorted(set(waiting).intersection(suspended))
    if both:
        msg = f"expected a call to be in one of long_running_tool_ids and suspended_calls, found {both} in both"
        raise InvalidEventError(msg)


def _check_artifacts(event: Event) -> None:
    for name, numbers in event.actions.artifact_versions.items():
        if not isinstance(numbers, list):
            msg = f"expected artifact_versions to give names lists of numbers, found {name!r:.80}: {numbers!r:.80}"
            raise InvalidEventError(msg)
    for name, number in event.actions.named_artifacts():
        if not name or isinstance(number, bool) or not isinstance(number, int) or number < 0:
            msg = f"expected artifact_delta to give names the numbers of versions, found {name!r:.80}: {number!r:.80}"
            raise InvalidEventError(msg)


def _check_auth_configs(event: Event) -> None:
    """Raise unless what the event says of credentials is what its questions ask."""
    said = event.actions.requested_auth_configs
    if not said:
        return
    asked = [call.args for call in event.get_function_calls() if call.name == REQUEST_CREDENTIAL]
    if said != {args.get("functionCallId"): args.get("authConfig") for args in asked}:
        msg = (
            "expected EventActions.requested_auth_configs to say what the event's calls of adk_request_credential ask, "
            "found something else; leave it out: `ctx.request_credential` asks, and fills it in"
        )
        raise InvalidEventError(msg)
    from ..credentials._values import AuthConfig  # few events ask for credentials

    for fields in said.values():
        AuthConfig.from_dict(fields if isinstance(fields, dict) else {})


def check_marked_calls(event: Event, live: LiveSession) -> None:
    """
    Raise unless the calls that the event of a run puts off are its own, or open.

    Raises:
        InvalidEventError: One is not: nobody could ever answer it.
    """
    marks = marks_of(event)
    if not marks:
        return
    unknown = marks.keys() - live.open_calls.keys() - {call.id for call in event.get_function_calls()}
    if unknown:
        msg = (
            "expected long_running_tool_ids and suspended_calls to name calls of this event or open ones, "
            f"found {sorted(unknown)}"
        )
        raise InvalidEventError(msg)


def _check_history(events: Sequence[Event]) -> None:
    """Raise unless *events* are what `read_events` returned for a whole session."""
    if not events:
        raise InvalidValueError("events", "expected the creation record (seq 0) at least, found none")
    visible: list[int] = []  # what was not undone: a summary may end there, and a rewind go back to it
    compactions = CompactionFold()
    for seq, event in enumerate(events):
        path = f"events[{seq}]"
        if not isinstance(event, Event):
            raise InvalidValueError(path, f"expected an Event, found {shown(event)}")
        if event.seq != seq:
            raise InvalidValueError(f"{path}.seq", f"expected {seq}, found {event.seq}; a history has no gaps")
        if event.timestamp is None or not event.id:
            raise InvalidValueError(path, "expected a stored event, found one without id or timestamp")
        if checked_event(event, history=True) is not event:
            raise InvalidValueError(path, "expected a stored event, found `temp:` keys in it, which are never stored")
        if event.actions.compaction is not None:
            _check_order(event, compactions, visible, path)
        compactions.take(event)
        target = event.actions.rewind_before_seq
        if target is not None:
            place = bisect_left(visible, target)
            known = target > 0 and target in visible[place : place + 1]
            if not known or events[target].actions.rewind_before_seq is not None:
                problem = f"expected the seq of an event before it that was not undone, and no rewind, found {target}"
                raise InvalidValueError(f"{path}.actions.rewind_before_seq", problem)
            del visible[place:]
        visible.append(seq)  # a rewind stands in the history, too, in the place of what it has undone
    if events[0].content is not None:
        raise InvalidValueError("events[0]", "expected the creation record, which has no content")


def _check_order(event: Event, compactions: CompactionFold, visible: Sequence[int], path: str) -> None:
    """Raise unless the compaction goes on where the one before it ends; *visible* are the events before it."""
    found, newest = Compaction.of(event), compactions.newest
    if found.previous_seq != compactions.seq:
        problem = f"expected {compactions.seq}, the compaction before it, found {found.previous_seq}"
        raise InvalidValueError(f"{path}.actions.compaction.previous_seq", problem)
    last = 0 if newest is None else Compaction.of(newest).end_seq
    place = bisect_left(visible, found.end_seq)
    if found.end_seq <= last or found.end_seq not in visible[place : place + 1]:
        problem = f"expected the seq of an event beyond {last} that was not undone, found {found.end_seq}"
        raise InvalidValueError(f"{path}.actions.compaction.end_seq", problem)


def check_fork_seq(key: SessionKey, at_seq: int | None, revision: int) -> None:
    """
    Raise unless the session has an event *at_seq*.

    Raises:
        InvalidValueError: It has none.
    """
    if at_seq is not None and at_seq > revision:
        raise InvalidValueError("at_seq", f"expected 0 to {revision}, the last event of {key}, found {at_seq}")


def _checked_initial_state(state: Mapping[str, object] | None) -> EventActions:
    if state is not None and not isinstance(state, Mapping):
        raise InvalidValueError("state", f"expected a mapping, found {type(state).__name__}")
    delta = freeze(dict(state or {}), "state")
    for key in delta:
        if scope_of(check_key(key, "state")) is Scope.TEMP:
            problem = f"{TEMP_PREFIX!r} keys live for one invocation; pass them to run_async(state_delta=...)"
            raise InvalidValueError(f"state[{key!r}]", problem)
    return EventActions(state_delta=delta)


# --- writing --------------------------------------------------------------------------------------------------------


class SessionWriter:
    """
    What a run holds from entering a session to leaving it: the right to write, and the live session.

    `append` stores and applies; `begins` on the user message also records the invocation as running, on the first event
    of one that is resumed as running again. The first append takes the session's lease where several processes share
    the store.
    """

    def __init__(self, service: BaseSessionService, hold: Hold, live: LiveSession, invocation_id: str) -> None:
        self.service = service
        self.live = live
        self.invocation_id = invocation_id
        self.epoch: int | None = None  # of the lease, once it is taken
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
        if self._hold is None:
            msg = f"the invocation {self.invocation_id} has left {self.live.key}; what it would still write is refused"
            raise InvocationEndedError(msg)
        check_marked_calls(event, self.live)
        return await self.service._append(self.live, event, writer=self, begins=begins)

    async def reload(self, config: GetSessionConfig | None, *, reject: bool) -> None:
        """Read the session again, for a run that found it changed before its own message was stored."""
        live = await self.service._open_free(self.live.key, config, reject=reject)
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
                service._renewals = Renewals(service._env, service.renew_every_s, service._renew)
            service._renewals.add(self, nursery)

    @trio.lowlevel.enable_ki_protection
    def stop_renewing(self) -> None:
        """Leave the lease to run out; *keep*'s nursery can close then."""
        renewals = self.service._renewals
        if renewals is not None and not renewals.remove(self):
            self.service._renewals = None

    async def renew(self) -> None:
        """Extend the lease now."""
        await self.service._renew([self])

    async def record_end(self, status: InvocationStatus) -> None:
        """
        Record how the invocation has ended, before the session is left: what still follows cannot change that.

        Raises:
            StorageError: It may be recorded or not; `finish` does it, then.
        """
        if self.epoch is not None:
            self._has_recorded_end = await self.service._record_end(self, status)

    @trio.lowlevel.enable_ki_protection
    async def finish(self, status: InvocationStatus | None) -> None:
        """
        Record how the invocation ended, or that it is paused, give the lease back and let the next one in. None: it
        never began, or is left, and so interrupted. It changes nothing where this writer has not begun it, and the end
        that `record_end` has recorded stays as it is.

        May be lost in a power cut or a storage failure: then the invocation is listed as interrupted.
        """
        assert self._hold is not None, "a writer is finished once"
        hold, self._hold = self._hold, None
        self.live.held = False
        try:
            if self.epoch is not None:
                await self.service._finish(self, None if self._has_recorded_end else status)
        except StorageError:
            pass  # every event is stored; the lease runs out by itself, and the status says what is true: unknown
        finally:
            hold.release()
            self.service._users -= 1


class SessionParts(Protocol):
    """A service that keeps something of sessions beside their store: an artifact service."""

    async def delete_session_artifacts(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete what is kept of the session, if there is anything."""


class BaseSessionService(BaseService, ABC):
    """
    Keeps sessions: their events, their state, and the state that a user or an app shares between sessions.

    It works without `async with`, which only closes it. It serves one `trio.run` after another, and refuses two at
    once with ServiceInUseError.

    Args:
        env: Where time and ids come from; a Runner over this service uses the same.
    """

    renew_every_s: float | None = None
    """How often a run renews its lease, in seconds; None where no other process can reach the store."""

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._users = 0
        self._token: trio.lowlevel.TrioToken | None = None
        self._accompanying: WeakValueDictionary[int, SessionParts] = WeakValueDictionary()
        self._numbers = count()
        self._renewals: Renewals[SessionWriter] | None = None  # while there are runs with a lease

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
        key = session_key(app_name, user_id, session_id)
        history = list(events)
        _check_history(history)
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
        if event.id is None and event == session._unsure[0]:
            event = changed(event, id=session._unsure[1])
        key = session_key(session.app_name, session.user_id, session.id)
        with self._used():
            hold = await self._acquire(key)
            try:
                return await self._append_outside(key, session, event)
            finally:
                hold.release()

    async def _append_outside(self, key: SessionKey, session: Session, event: Event) -> Event:
        at_hand = self._at_hand(key)
        if at_hand is not None and _is_next(at_hand, session, event):  # if so it is; the store checks it anyway
            try:
                return await self._append(at_hand, event, session=session)
            except (ChangedMeanwhileError, SessionNotFoundError):
                pass  # another process was faster
        while True:
            live = await self._open_free(key, GetSessionConfig(num_recent_events=0), reject=False)
            if live is None:
                raise await self._not_found(key)
            if live.incarnation != session._incarnation:
                raise _stale(key, session, "it was deleted and made again")
            earlier = await self._stored_before(live, session, event)
            if earlier is not None:
                return earlier
            if session.revision != live.revision:
                raise _stale(key, session, f"it is at revision {live.revision}")
            if session._history() not in (None, live.mark):
                raise _stale(key, session, "it has another history, as in another file or a restored one")
            try:
                return await self._append(live, event, session=session)
            except ChangedMeanwhileError:
                continue  # another process was faster between the look and the transaction: look again

    async def _stored_before(self, live: LiveSession, session: Session, event: Event) -> Event | None:
        """The stored event that *event* is a retry of; *session* is advanced to it."""
        if event.id is None:
            return None
        for seq in (session.revision, session.revision + 1):
            if not 0 < seq <= live.revision:
                continue
            stored = await self._event_at(live, seq)
            if stored is None or stored.id != event.id:
                continue
            if changed(stored, seq=event.seq, timestamp=event.timestamp) != event:
                msg = f"expected the event that is stored under the id {event.id!r} (seq {seq}), found another one"
                raise InvalidEventError(msg)
            if seq > session.revision:
                now = {name: live.values.get(name) for name in writes_of(stored.actions)}
                changes = {**now, **apply_event(session._values, stored, shared=False)}
                session._advance(stored, changes, live.mark if seq == live.revision else None)
            return stored
        return None

    async def _event_at(self, live: LiveSession, seq: int) -> Event | None:
        if live.first_seq <= seq <= live.revision:
            loaded = live.events[live.index_of(seq)]
            if loaded.seq == seq:
                return loaded
        found = await self._read(live.key, seq - 1, 1)
        return found[0] if found else None  # deleted by another process just now

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

    # --- for runners

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Mark the service as used by this `trio.run`."""
        self._begin_use()
        try:
            yield
        finally:
            self._users -= 1

    def _begin_use(self) -> None:
        token = trio.lowlevel.current_trio_token()
        self._check_open()
        if self._users and self._token is not token:
            msg = f"this {type(self).__name__} is being used by another trio.run; give each its own service"
            raise ServiceInUseError(msg)
        self._token = token
        self._users += 1

    async def open_writer(
        self, key: SessionKey, invocation_id: str, config: GetSessionConfig | None, *, reject: bool
    ) -> SessionWriter | None:
        """
        Wait for the session and open it for a run; None if there is no such session. Stores nothing.

        Raises:
            SessionBusyError: It is held and *reject* is set, or waiting could never end.
        """
        self._begin_use()  # until the writer is finished
        hold: Hold | None = None
        live: LiveSession | None = None
        try:
            hold = await self._acquire(key, reject=reject)
            live = await self._open_free(key, config, reject=reject)
            return None if live is None else SessionWriter(self, hold, live, invocation_id)
        finally:
            if live is None:
                self._users -= 1
                if hold is not None:
                    hold.release()

    async def _acquire(self, key: SessionKey, *, reject: bool = False) -> Hold:
        return await acquire((self._store_id(), key), str(key), reject=reject)

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
        complete = changed(
            event,
            id=event.id or self._env.new_id("event"),
            seq=live.revision + 1,
            timestamp=self._env.now() if event.timestamp is None else event.timestamp,
        )
        try:
            await self._commit(live, complete, writer=writer, begins=begins)
        except StorageError as error:
            if session is not None and error.stored is None:
                session._unsure = (changed(event, id=None), complete.id)
            raise
        if session is not None:
            changes = {name: live.values.get(name) for name in writes_of(complete.actions)}
            session._advance(complete, changes, live.mark)
        return complete

    async def _not_found(self, key: SessionKey) -> SessionNotFoundError:
        """The error that says where there is a session of this id, if anywhere."""
        apps = sorted(
            {
                session.app_name
                for session in await self._list(None, key.user_id, None, -1)
                if session.id == key.session_id
            }
        )
        hint = f"; the apps that have one of this user and id: {', '.join(apps)}" if apps else ""
        msg = f"there is no {key}{hint}; make it with create_session, or use Runner(auto_create_session=True)"
        return SessionNotFoundError(msg)

    # --- storage primitives: what a service author implements -------------------------------------------------------

    @abstractmethod
    def _store_id(self) -> Hashable:
        """What names the store in this process: two services over one file return the same."""

    @abstractmethod
    async def _create(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        """
        Store a new session with these events, the creation record first, or raise AlreadyExistsError.

        All of it or nothing. The calls that are not answered are open, and the invocations of those that wait for
        somebody are paused. No checkpoint after the write.
        """

    @abstractmethod
    async def _fork(self, key: SessionKey, at_seq: int | None, new: SessionKey) -> None:
        """
        Store a new session with the past of another one up to *at_seq*, or raise AlreadyExistsError.

        Its open calls and its invocations are those of the other one, as they were then (`invocation_at`), and nobody
        runs them. No checkpoint after the write.
        """

    @abstractmethod
    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        """
        The up-to-date live session with at least the events that *config* asks for (`LiveSession.wanted`), or None.

        Its newest visible compaction is known, whatever is loaded.
        """

    async def _open_free(self, key: SessionKey, config: GetSessionConfig | None, *, reject: bool) -> LiveSession | None:
        """As `_open`, after waiting until no other process has the session's lease."""
        return await self._open(key, config)

    def _at_hand(self, key: SessionKey) -> LiveSession | None:
        """The live session as it was last used, which may be out of date, if that spares asking the store."""
        return None

    @abstractmethod
    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        """
        Store *event*, whose seq is `live.revision + 1`, with all it changes, atomically; then `live.advance` it.

        Shared scopes are applied to the values that are current in the transaction. With *begins* the writer's
        invocation is recorded as running, again if it was recorded before. An event that undoes others lets the
        invocations that have begun in the undone part, and not ended, be cancelled; the others are what they were
        before it (`invocation_at`). No checkpoint after the write.
        """

    @abstractmethod
    async def _delete(self, key: SessionKey) -> None:
        """Delete the session if it exists."""

    @abstractmethod
    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        """Sessions whose incarnation is above *after*, in that order, without events and state."""

    @abstractmethod
    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        """Stored events with a seq above *after_seq* (-1: all), in order; none if there is no such session."""

    @abstractmethod
    async def _list_invocations(self, app_name: str | None, status: InvocationStatus | None) -> list[Invocation]:
        """All recorded invocations, or at least those of a *status*, oldest first."""

    @abstractmethod
    async def _invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        """One recorded invocation of a session, found without looking at others."""

    async def _not_ended(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        """
        The recorded invocations of a session that have begun after event *after_seq*, and not ended.

        Better found without looking at others; those that have begun before have all ended.
        """
        found = await self._list_invocations(key.app_name, None)
        place = (key.user_id, key.session_id)
        later = (one for one in found if (one.user_id, one.session_id) == place and one.seq > after_seq)
        return [one for one in later if not one.status.has_ended]

    @abstractmethod
    async def _list_waiting(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        """
        The calls that wait for somebody outside, with the event that holds each and the one that lets it wait.

        The one that began to wait first, in this store, comes first; then as sessions were made, and as they stand in
        the log. Found without looking at others.
        """

    async def _renew(self, writers: Sequence[SessionWriter]) -> None:
        """Extend the leases of those of the writers that have one."""

    async def _record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        """
        Record the final status of the writer's invocation, and keep the lease; what is appended later stays out of it.

        Return whether that was done. If not, `_finish` is told: a process that dies before leaves it interrupted.
        """
        return False

    @abstractmethod
    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        """
        Record the final status, if there is one and the writer's invocation runs, and give the lease back.

        It may come late: an invocation that another writer has begun again since stays as it is.
        """


class ChangedMeanwhileError(Exception):
    """Raised by `_commit` for an outside append when another process entered the session just before."""


def _is_next(live: LiveSession, session: Session, event: Event) -> bool:
    """Whether *event*, appended to *session*, would come next in *live*, and is no retry of what is there."""
    if live.incarnation != session._incarnation or live.revision != session.revision:
        return False
    if session._history() not in (None, live.mark):
        return False
    return event.id is None or (bool(live.events) and live.events[-1].id != event.id)


def _checked_limit(limit: int | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidValueError("limit", f"expected an integer from 1 up, or None, found {shown(limit)}")
    return min(limit, NUMBER_MAX)


def _stale(key: SessionKey, session: Session, why: str) -> StaleSessionError:
    msg = (
        f"{key} has changed since it was read at revision {session.revision}: {why}; "
        "get_session again and append to what it returns"
    )
    return StaleSessionError(msg)
