"""
Sessions in a dict: for tests, simulations and scripts whose conversations may be forgotten.

It keeps the promises of the other services — one writer, checked values, atomic events — and all of it ends with the
process. The live sessions are the store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import count, islice
from operator import attrgetter

from .._json import JSON
from .._values import changed
from ..env import Env
from ..errors import AlreadyExistsError, SessionNotFoundError, StaleSessionError
from ..events import Event
from ._call_fold import CallFold, in_order, waiting_invocations
from ._calls import OpenCall, Pending, is_of_a_run
from ._fold import apply_event, fold
from ._invocation import Invocation, InvocationStatus, invocation_of, may_begin
from ._key import SessionKey
from ._live import LiveSession
from ._service import BaseSessionService
from ._session import GetSessionConfig, Session
from ._state import Values, apply_writes, writes_of
from ._store import SessionWriter

__all__ = ["InMemorySessionService"]


_incarnation_of = attrgetter("incarnation")


class InMemorySessionService(BaseSessionService):
    """
    Keeps sessions in memory, as long as the object lives.

    Args:
        env: Where time and ids come from.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._sessions: dict[SessionKey, LiveSession] = {}
        self._ordered: list[LiveSession] = []  # as they were made
        self._logs: dict[int, list[Event]] = {}  # by incarnation; the place of an event is its `seq`
        self._app_values: dict[str, dict[str, JSON]] = {}
        self._user_values: dict[tuple[str, str], dict[str, JSON]] = {}
        self._invocations: dict[tuple[int, str], Invocation] = {}
        self._runs: dict[int, list[str]] = {}  # the ids of each session's invocations
        self._not_over: dict[int, dict[str, None]] = {}  # of those that have not ended
        self._waiting: dict[tuple[int, str], LiveSession] = {}  # the calls that wait for somebody, longest first
        self._incarnations = count(1)
        self._sent: dict[int, list[Event]] = {}  # the messages that wait for runs, by incarnation

    def _after_fork(self) -> None:
        super()._after_fork()
        self._interrupt_runs()

    def _interrupt_runs(self) -> None:
        for (incarnation, _), run in list(self._invocations.items()):
            if run.status is InvocationStatus.RUNNING:  # in another process, not here
                self._note(incarnation, changed(run, status=InvocationStatus.INTERRUPTED))

    async def insert_session(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        if key in self._sessions:
            msg = f"there is a {key} already; get it with get_session, or choose another id"
            raise AlreadyExistsError(msg)
        values = self._values(key, {})
        if len(events) > 1:  # on a copy first: all of it, or nothing
            fold(Values({}, dict(values.user), dict(values.app)), events)
        changes = apply_event(values, events[0])
        live = self._new_live(key, values, events[0])
        log = self._logs[live.incarnation] = [events[0]]
        values.apply(changes)
        calls = CallFold()
        for event in events[1:]:
            called = calls.take(event, tracked=is_of_a_run(event))
            live.advance(event, apply_event(values, event), called)
            log.append(event)  # one by one, so that the list has room for the next ones
            self._note_waiting(live, called)
        for name, seq in calls.paused().items():
            self._record(live, name, InvocationStatus.PAUSED, seq, live.revision)
        return live

    def _values(self, key: SessionKey, session: dict[str, JSON]) -> Values:
        return Values(
            session=session,
            user=self._user_values.setdefault((key.app_name, key.user_id), {}),
            app=self._app_values.setdefault(key.app_name, {}),
        )

    def _new_live(self, key: SessionKey, values: Values, creation: Event, at: float | None = None) -> LiveSession:
        assert creation.timestamp is not None
        created = creation.timestamp if at is None else at
        live = LiveSession(key, values, incarnation=next(self._incarnations), create_time=created)
        live.last_update_time = creation.timestamp
        self._sessions[key] = live
        self._ordered.append(live)
        return live

    def _note_waiting(self, live: LiveSession, changes: Mapping[str, OpenCall | None]) -> None:
        asked: dict[str, OpenCall] = {}
        for call_id, call in changes.items():
            if call is not None and call.pending is Pending.WAITS:
                asked[call_id] = call
            else:
                self._waiting.pop((live.incarnation, call_id), None)
        for call_id in in_order(asked) if asked else ():
            self._waiting.setdefault((live.incarnation, call_id), live)

    async def insert_fork(self, key: SessionKey, at_seq: int | None, new: SessionKey, create_time: float) -> None:
        from ._past import Past, check_fork_seq, invocation_at  # few programs fork

        source = self._sessions.get(key)
        if source is None:
            raise await self._not_found(key)
        check_fork_seq(key, at_seq, source.revision)
        if new in self._sessions:
            msg = f"there is a {new} already; choose another id"
            raise AlreadyExistsError(msg)
        past = Past(self._logs[source.incarnation], source.revision if at_seq is None else at_seq)
        live = self._new_live(new, self._values(new, past.state), past.events[0], create_time)
        self._logs[live.incarnation] = past.events
        for event in past.events[1:]:
            live.advance(event, {}, {})
        live.open_calls = dict(source.open_calls) if live.revision == source.revision else past.open_calls
        self._note_waiting(live, live.open_calls)
        waiting = waiting_invocations(live.open_calls)
        for name in self._runs.get(source.incarnation, ()):
            run = self._invocations[source.incarnation, name]
            if run.seq <= live.revision:
                then = invocation_at(run, live.revision, waits=name in waiting and name != past.cut)
                self._record(live, name, then.status, then.seq, then.end_seq)
        for name, seq in past.paused.items():  # an import records only those that wait at the end of its log
            if (live.incarnation, name) not in self._invocations:
                self._record(live, name, InvocationStatus.PAUSED, seq, live.revision)

    async def load_session(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        return self._sessions.get(key)

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        self._check_commit(live, event, writer, begins=begins)
        changes = apply_writes(live.values, writes_of(event.actions))
        calls = live.call_changes(event, tracked=writer is not None)
        live.advance(event, changes, calls)
        self._logs[live.incarnation].append(event)
        if event.actions.replay.sent is not None:
            left = [message for message in self._sent.get(live.incarnation, ()) if message.id != event.id]
            self._sent[live.incarnation], live.has_messages = left, bool(left)
        if calls:
            self._note_waiting(live, calls)
        if event.actions.rewind_before_seq is not None:
            self._rewind_invocations(live, event.actions.rewind_before_seq, writer)
        if writer is not None:
            writer.epoch = 0
            if begins:
                self._record(live, writer.invocation_id, InvocationStatus.RUNNING, live.revision)

    def _check_commit(self, live: LiveSession, event: Event, writer: SessionWriter | None, *, begins: bool) -> None:
        if self._sessions.get(live.key) is not live:
            msg = f"{live.key} was deleted"
            raise SessionNotFoundError(msg)
        run = self._invocations.get((live.incarnation, writer.invocation_id)) if writer is not None and begins else None
        if run is not None and not may_begin(run, event):
            msg = f"the invocation {run.invocation_id!r} of {live.key} has just been ended"
            raise StaleSessionError(f"{msg}; look at it again")

    def _rewind_invocations(self, live: LiveSession, target: int, writer: SessionWriter | None) -> None:
        """Let the others of the session be what they were before event *target*; what has begun since is over."""
        from ._past import rewound_invocation  # few sessions are rewound

        waiting = waiting_invocations(live.open_calls)
        for name in self._runs.get(live.incarnation, ()):
            if writer is None or name != writer.invocation_id:
                run = self._invocations[live.incarnation, name]
                self._note(
                    live.incarnation, rewound_invocation(run, target, live.revision, waits=name in waiting)
                )

    async def remove_session(self, key: SessionKey) -> None:
        live = self._sessions.pop(key, None)
        if live is not None:
            del self._logs[live.incarnation]
            self._note_waiting(live, dict.fromkeys(live.open_calls))
            del self._ordered[bisect_left(self._ordered, live.incarnation, key=_incarnation_of)]
            self._not_over.pop(live.incarnation, None)
            self._sent.pop(live.incarnation, None)
            for name in self._runs.pop(live.incarnation, ()):
                del self._invocations[live.incarnation, name]

    async def insert_message(self, key: SessionKey, message: Event) -> None:
        from ._messages import received  # few programs send messages into runs

        live = self._sessions.get(key)
        if live is None:
            raise await self._not_found(key)
        runs = [self._invocations[live.incarnation, name] for name in self._runs.get(live.incarnation, ())]
        self._sent.setdefault(live.incarnation, []).append(received(key, message, runs))
        live.has_messages = True

    async def load_messages(self, live: LiveSession) -> list[Event]:
        return [*self._sent.get(live.incarnation, ())]

    async def load_sessions(
        self, app_name: str | None, user_id: str | None, limit: int | None, after: int
    ) -> list[Session]:
        from ._listed import listed_session  # most programs list nothing

        start = bisect_right(self._ordered, after, key=_incarnation_of)
        later = (self._ordered[place] for place in range(start, len(self._ordered)))  # a slice would be a copy
        wanted = (
            live for live in later if app_name in (None, live.key.app_name) and user_id in (None, live.key.user_id)
        )
        return [
            listed_session(live.key, live.incarnation, live.revision, live.create_time, live.last_update_time)
            for live in islice(wanted, limit)
        ]

    async def apps_with_session(self, user_id: str, session_id: str) -> set[str]:
        return {app for app in self._app_values if SessionKey(app, user_id, session_id) in self._sessions}

    async def load_events(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        live = self._sessions.get(key)
        if live is None:
            return []
        start = after_seq + 1
        return self._logs[live.incarnation][start : None if limit is None else start + limit]

    async def load_user_state(self, app_name: str, user_id: str) -> Mapping[str, JSON]:
        return self._user_values.get((app_name, user_id), {})

    async def load_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        if app_name is not None and user_id is not None and session_id is not None:
            live = self._sessions.get(SessionKey(app_name, user_id, session_id))
            names = () if live is None else self._runs.get(live.incarnation, ())
            return [self._invocations[live.incarnation, name] for name in names if live is not None]
        return [
            found
            for found in self._invocations.values()
            if app_name in (None, found.app_name)
            and user_id in (None, found.user_id)
            and session_id in (None, found.session_id)
        ]

    async def load_unfinished_invocations(self, key: SessionKey, after_seq: int) -> list[Invocation]:
        live = self._sessions.get(key)
        if live is None:
            return []
        runs = (self._invocations[live.incarnation, name] for name in self._not_over.get(live.incarnation, ()))
        return sorted((run for run in runs if run.seq > after_seq), key=attrgetter("seq"))

    async def load_invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        live = self._sessions.get(key)
        return None if live is None else self._invocations.get((live.incarnation, invocation_id))

    async def load_waiting_calls(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        found = []
        for (incarnation, call_id), live in self._waiting.items():
            key = live.key
            wanted = (app_name or key.app_name, user_id or key.user_id, session_id or key.session_id)
            if wanted == (key.app_name, key.user_id, key.session_id):
                log, call = self._logs[incarnation], live.open_calls[call_id]
                found.append((key, call, log[call.seq], log[call.pending_seq]))
        return found

    async def record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        return self._end(writer, status)

    async def finish_invocation(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        return self._end(writer, status)

    def _end(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        place = (writer.live.incarnation, writer.invocation_id)
        found = self._invocations.get(place)
        if found is None or found.status is not InvocationStatus.RUNNING:
            return True
        sent = self._sent.get(place[0]) if status is InvocationStatus.COMPLETED else None
        if sent and any(message.invocation_id == writer.invocation_id for message in sent):
            return False  # `insert_message` has noted that they wait
        if status is None:  # nobody runs it any more, and nobody has said how it ended
            self._note(place[0], changed(found, status=InvocationStatus.INTERRUPTED))
        else:
            self._note(place[0], changed(found, status=status, end_seq=writer.live.revision))
        return True

    def _record(
        self, live: LiveSession, invocation_id: str, status: InvocationStatus, seq: int, end_seq: int | None = None
    ) -> None:
        """Record an invocation; one that is recorded already keeps its place in the list, and its beginning."""
        place = (live.incarnation, invocation_id)
        if place in self._invocations:
            self._note(live.incarnation, changed(self._invocations[place], status=status, end_seq=end_seq))
            return
        self._runs.setdefault(live.incarnation, []).append(invocation_id)
        self._note(live.incarnation, invocation_of(live.key, invocation_id, status, seq, end_seq))

    def _note(self, incarnation: int, run: Invocation) -> None:
        self._invocations[incarnation, run.invocation_id] = run
        not_over = self._not_over.setdefault(incarnation, {})
        if run.status.has_ended:
            not_over.pop(run.invocation_id, None)
        else:
            not_over[run.invocation_id] = None
