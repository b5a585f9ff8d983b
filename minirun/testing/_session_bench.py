"""What the checks of a session service stand on: a bench with short forms of its operations on one app."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import trio

from ..events import Event
from ..sessions import BaseSessionService, GetSessionConfig, Session, SessionKey, SessionWriter
from ..sessions._fold import fold
from ..sessions._read_only import ReadOnlyState
from ..sessions._state import Values
from ._contract import BaseBench, expect

__all__ = ["Bench", "folded", "settled", "texts"]


class Bench(BaseBench[BaseSessionService]):
    """One service under test, with short forms of its operations on one app."""

    async def create(self, session_id: str | None = "s", *, user: str = "u", app: str = "", **state: Any) -> Session:
        return await self.service.create_session(
            app_name=app or self.app, user_id=user, session_id=session_id, state=spelled(state) or None
        )

    async def find(
        self, session_id: str = "s", config: GetSessionConfig | None = None, *, user: str = "u", app: str = ""
    ) -> Session | None:
        return await self.service.get_session(
            app_name=app or self.app, user_id=user, session_id=session_id, config=config
        )

    async def get(self, session_id: str = "s", config: GetSessionConfig | None = None, *, user: str = "u") -> Session:
        session = await self.find(session_id, config, user=user)
        expect("get_session finds the session", session is not None, True)
        assert session is not None
        return session

    async def append(self, session: Session, text: str = "x", **state: Any) -> Event:
        return await self.service.append_event(session, Event(author="a", message=text, state=spelled(state)))

    async def events(self, session_id: str = "s", *, user: str = "u", **options: Any) -> list[Event]:
        return await self.service.read_events(app_name=self.app, user_id=user, session_id=session_id, **options)

    async def delete(self, session_id: str = "s", *, user: str = "u") -> None:
        await self.service.delete_session(app_name=self.app, user_id=user, session_id=session_id)

    def key(self, session_id: str = "s", *, user: str = "u") -> SessionKey:
        return SessionKey(self.app, user, session_id)

    async def writer(self, invocation_id: str = "e-1", session_id: str = "s", *, reject: bool = False) -> SessionWriter:
        writer = await self.service.open_writer(self.key(session_id), invocation_id, None, reject=reject)
        expect("open_writer finds the session", writer is not None, True)
        assert writer is not None
        return writer

    async def unchanged(self, session: Session) -> None:
        """What is stored is what *session* shows, and that is what its log says."""
        stored = await self.get(session.id, user=session.user_id)
        expect("the stored revision", stored.revision, session.revision)
        expect("the stored state", dict(stored.state), dict(session.state))
        expect("the stored events", list(stored.events)[-3:], list(session.events)[-3:])
        log = await self.events(session.id, user=session.user_id)
        expect("the seqs of the log", [event.seq for event in log], list(range(session.revision + 1)))
        expect("the last event", log[1:][-1:], list(session.events)[-1:])


def spelled(state: Mapping[str, Any]) -> dict[str, Any]:
    """`user_x` is short for the key `user:x`, `app_x` for `app:x`, `temp_x` for `temp:x`."""
    return {re.sub("^(user|app|temp)_", r"\1:", key): value for key, value in state.items()}


async def settled() -> None:
    """Let the other tasks go on until none of them can: until they wait for something that this one may do."""
    quiet = 0
    while quiet < 3:  # trio runs tasks in batches; those of this one may still be in the next
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if trio.lowlevel.current_statistics().tasks_runnable == 0 else 0


def texts(session: Session) -> list[str]:
    return [event.text for event in session.events]


def folded(log: list[Event]) -> dict[str, Any]:
    """The state that a session's log alone comes to."""
    return dict(ReadOnlyState(fold(Values({}, {}, {}), log)))
