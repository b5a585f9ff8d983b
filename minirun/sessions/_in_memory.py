"""
Sessions in a dict: for tests, simulations and scripts whose conversations may be forgotten.

It keeps the promises of the other services — one writer, checked values, atomic events — and all of it ends with the
process. The live sessions are the store.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

from .._json import JSON
from .._window import Window
from ..env import Env
from ..errors import AlreadyExistsError, SessionNotFoundError
from ..events import Event
from ..types import changed
from ._fold import apply_event
from ._live import LiveSession, SessionKey
from ._service import BaseSessionService, SessionWriter
from ._session import GetSessionConfig, Invocation, InvocationStatus, Session
from ._state import Values

__all__ = ["InMemorySessionService"]


class InMemorySessionService(BaseSessionService):
    """
    Keeps sessions in memory, as long as the object lives.

    Args:
        env: Where time and ids come from.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._sessions: dict[SessionKey, LiveSession] = {}
        self._creations: dict[SessionKey, Event] = {}
        self._app_values: dict[str, dict[str, JSON]] = {}
        self._user_values: dict[tuple[str, str], dict[str, JSON]] = {}
        self._invocations: dict[tuple[int, str], Invocation] = {}
        self._incarnations = count(1)

    def _store_id(self) -> Hashable:
        return id(self)

    async def _create(self, key: SessionKey, event: Event) -> LiveSession:
        if key in self._sessions:
            msg = f"there is a {key} already; get it with get_session, or choose another id"
            raise AlreadyExistsError(msg)
        values = Values(
            session={},
            user=self._user_values.setdefault((key.app_name, key.user_id), {}),
            app=self._app_values.setdefault(key.app_name, {}),
        )
        values.apply(apply_event(values, event))
        assert event.timestamp is not None
        live = LiveSession(key, values, incarnation=next(self._incarnations), create_time=event.timestamp)
        self._sessions[key] = live
        self._creations[key] = event
        return live

    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        return self._sessions.get(key)

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        if self._sessions.get(live.key) is not live:
            msg = f"{live.key} was deleted"
            raise SessionNotFoundError(msg)
        changes = apply_event(live.values, event)
        live.advance(event, changes, tracked=writer is not None)
        if writer is not None:
            writer.epoch = 0
            if begins:
                self._record(live, writer, InvocationStatus.RUNNING, live.revision)

    async def _delete(self, key: SessionKey) -> None:
        live = self._sessions.pop(key, None)
        self._creations.pop(key, None)
        if live is not None:
            for place in [place for place in self._invocations if place[0] == live.incarnation]:
                del self._invocations[place]

    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        found = [
            live
            for key, live in self._sessions.items()
            if live.incarnation > after and app_name in (None, key.app_name) and user_id in (None, key.user_id)
        ]
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
            for live in found[:limit]
        ]

    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        live = self._sessions.get(key)
        if live is None:
            return []
        first = [self._creations[key]] if after_seq < 0 else []
        start = max(0, after_seq)
        stop = None if limit is None else start + limit - len(first)
        return first + live.events[start:stop]

    async def _list_invocations(self, app_name: str | None) -> list[Invocation]:
        return [found for found in self._invocations.values() if app_name in (None, found.app_name)]

    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        place = (writer.live.incarnation, writer.invocation_id)
        if status is not None and place in self._invocations:
            self._invocations[place] = changed(self._invocations[place], status=status)

    def _record(self, live: LiveSession, writer: SessionWriter, status: InvocationStatus, seq: int) -> None:
        self._invocations[live.incarnation, writer.invocation_id] = Invocation(
            app_name=live.key.app_name,
            user_id=live.key.user_id,
            session_id=live.key.session_id,
            invocation_id=writer.invocation_id,
            status=status,
            seq=seq,
        )
