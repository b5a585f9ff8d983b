"""
Sessions in a dict: for tests, simulations and scripts whose conversations may be forgotten.

It keeps the promises of the other services — one writer, checked values, atomic events — and all of it ends with the
process. The live sessions are the store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence
from itertools import count, islice
from operator import attrgetter

from .._json import JSON
from .._window import Window
from ..env import Env
from ..errors import AlreadyExistsError, SessionNotFoundError
from ..events import Event
from ..types import changed
from ._fold import apply_event, fold
from ._live import LiveSession, SessionKey, is_of_a_run
from ._service import BaseSessionService, SessionWriter, check_fork_seq
from ._session import GetSessionConfig, Invocation, InvocationStatus, Session
from ._state import Values, _Missing

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
        self._incarnations = count(1)

    def _store_id(self) -> Hashable:
        return id(self)

    async def _create(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        if key in self._sessions:
            msg = f"there is a {key} already; get it with get_session, or choose another id"
            raise AlreadyExistsError(msg)
        values = self._values(key, {})
        if len(events) > 1:  # on a copy first: all of it, or nothing
            fold(Values({}, dict(values.user), dict(values.app)), events)
        changes = apply_event(values, events[0])
        live = self._new_live(key, values, events[0])
        self._logs[live.incarnation] = [events[0]]
        values.apply(changes)
        for event in events[1:]:
            self._advance(live, event, apply_event(values, event), tracked=is_of_a_run(event))
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

    def _advance(
        self, live: LiveSession, event: Event, changes: Mapping[str, JSON | _Missing], *, tracked: bool
    ) -> None:
        live.advance(event, changes, tracked=tracked)
        self._logs[live.incarnation].append(event)

    async def _fork(self, key: SessionKey, at_seq: int | None, new: SessionKey) -> None:
        source = self._sessions.get(key)
        if source is None:
            raise await self._not_found(key)
        log = self._logs[source.incarnation]
        past = log if at_seq is None else log[: at_seq + 1]
        check_fork_seq(key, at_seq, source.revision)
        if new in self._sessions:
            msg = f"there is a {new} already; choose another id"
            raise AlreadyExistsError(msg)
        values = self._values(new, fold(Values({}, {}, {}), past, shared=False).session)
        live = self._new_live(new, values, past[0], self._env.now())
        self._logs[live.incarnation] = list(past)
        for event in past[1:]:
            live.advance(event, {}, tracked=is_of_a_run(event))
        if len(past) == len(log):
            live.open_calls = dict(source.open_calls)
        cut = log[len(past)].invocation_id if len(past) < len(log) else None
        for name in self._runs.get(source.incarnation, ()):
            run = self._invocations[source.incarnation, name]
            if run.seq <= live.revision:
                ended = run.status is not InvocationStatus.RUNNING and name != cut
                self._record(live, name, run.status if ended else InvocationStatus.INTERRUPTED, run.seq)

    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        return self._sessions.get(key)

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        if self._sessions.get(live.key) is not live:
            msg = f"{live.key} was deleted"
            raise SessionNotFoundError(msg)
        changes = apply_event(live.values, event)
        self._advance(live, event, changes, tracked=writer is not None)
        if writer is not None:
            writer.epoch = 0
            if begins:
                self._record(live, writer.invocation_id, InvocationStatus.RUNNING, live.revision)

    async def _delete(self, key: SessionKey) -> None:
        live = self._sessions.pop(key, None)
        if live is not None:
            del self._logs[live.incarnation]
            del self._ordered[bisect_left(self._ordered, live.incarnation, key=_incarnation_of)]
            for name in self._runs.pop(live.incarnation, ()):
                del self._invocations[live.incarnation, name]

    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        start = bisect_right(self._ordered, after, key=_incarnation_of)
        later = (self._ordered[place] for place in range(start, len(self._ordered)))  # a slice would be a copy
        wanted = (
            live for live in later if app_name in (None, live.key.app_name) and user_id in (None, live.key.user_id)
        )
        return [
            Session(
                id=live.key.session_id,
                app_name=live.key.app_name,
                user_id=live.key.user_id,
                values=Values({}, {}, {}),
                events=Window([]),
                revision=live.revision,
                create_time=live.create_time,
                last_update_time=live.last_update_time,
                incarnation=live.incarnation,
            )
            for live in islice(wanted, limit)
        ]

    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        live = self._sessions.get(key)
        if live is None:
            return []
        start = after_seq + 1
        return self._logs[live.incarnation][start : None if limit is None else start + limit]

    async def _list_invocations(self, app_name: str | None) -> list[Invocation]:
        return [found for found in self._invocations.values() if app_name in (None, found.app_name)]

    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        place = (writer.live.incarnation, writer.invocation_id)
        if status is not None and place in self._invocations:
            self._invocations[place] = changed(self._invocations[place], status=status)

    def _record(self, live: LiveSession, invocation_id: str, status: InvocationStatus, seq: int) -> None:
        self._runs.setdefault(live.incarnation, []).append(invocation_id)
        self._invocations[live.incarnation, invocation_id] = Invocation(
            app_name=live.key.app_name,
            user_id=live.key.user_id,
            session_id=live.key.session_id,
            invocation_id=invocation_id,
            status=status,
            seq=seq,
        )
