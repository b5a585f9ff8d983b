"""
What the checks of a session service stand on: a bench with short forms of its operations, and how they expect things.

The checks say `expect` where a test would say `assert`, so that they also check under `python -O`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import trio

from ..errors import MinirunError
from ..events import Event
from ..sessions import BaseSessionService, GetSessionConfig, Session, SessionKey, SessionWriter
from ..sessions._fold import fold
from ..sessions._state import ReadOnlyState, Values

__all__ = [
    "Bench",
    "Body",
    "Factory",
    "expect",
    "folded",
    "listed_in",
    "raises",
    "settled",
    "texts",
]

Factory: TypeAlias = Callable[[], AbstractAsyncContextManager[BaseSessionService]]


class Bench:
    """One service under test, with short forms of its operations on one app."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self.app = ""
        self.service: BaseSessionService

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseSessionService]:
        """Open the service, or open it again."""
        async with self._factory() as service:
            if not self.app:
                self.app = "contract-" + re.sub(r"[^A-Za-z0-9]", "-", service.env.new_id("contract"))
            self.service = service
            yield service

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


Body: TypeAlias = Callable[[Bench], Awaitable[None]]


def listed_in(table: dict[str, Body]) -> Callable[[Body], Body]:
    """A decorator that puts a check into *table*, under its name."""

    def put(body: Body) -> Body:
        table[body.__name__.strip("_")] = body
        return body

    return put


async def settled() -> None:
    """Let the other tasks go on until none of them can: until they wait for something that this one may do."""
    quiet = 0
    while quiet < 3:  # trio runs tasks in batches; those of this one may still be in the next
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if trio.lowlevel.current_statistics().tasks_runnable == 0 else 0


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        msg = f"{what}: expected {expected!r:.400}, found {found!r:.400}"
        raise AssertionError(msg)


@contextmanager
def raises(kind: type[MinirunError], *words: str) -> Iterator[None]:
    """The block raises exactly this kind of error, and its message has all these words."""
    try:
        yield
    except MinirunError as error:
        if type(error) is not kind:
            msg = f"expected {kind.__name__}, found {error!r}"
            raise AssertionError(msg) from error
        missing = [word for word in words if word not in str(error)]
        expect(f"words in the message {str(error)!r} of {kind.__name__}, missing", missing, [])
    else:
        msg = f"expected {kind.__name__}, found no error"
        raise AssertionError(msg)


def texts(session: Session) -> list[str]:
    return [event.text for event in session.events]


def folded(log: list[Event]) -> dict[str, Any]:
    """The state that a session's log alone comes to."""
    return dict(ReadOnlyState(fold(Values({}, {}, {}), log)))
