"""What the tests of session services share: the services in every setting, one session, and things that go wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import attrs

from minirun import Env, Event, InMemorySessionService
from minirun.sessions import (
    BaseSessionService,
    DatabaseSessionService,
    GetSessionConfig,
    Session,
    SessionKey,
    SessionWriter,
    SqliteSessionService,
)

from .contracts.session_bench import spelled
from .postgres import new_database
from .postgres_sessions import empty


class Where(TypedDict):
    """Where the one session is."""

    app_name: str
    user_id: str
    session_id: str


HERE: Where = {"app_name": "app", "user_id": "u", "session_id": "s"}
KEY = SessionKey("app", "u", "s")

Factory = Callable[[], BaseSessionService]


def services(folder: Path) -> dict[str, Factory]:
    """Every service, in every setting that changes how it works."""
    return {
        "memory": InMemorySessionService,
        "sqlite in memory": lambda: SqliteSessionService(":memory:"),
        "sqlite power": lambda: SqliteSessionService(folder / "power.db"),
        "sqlite process": lambda: SqliteSessionService(folder / "process.db", durability="process"),
        "sqlite without cache": lambda: SqliteSessionService(folder / "uncached.db", cache_bytes=0),
        "postgres": lambda: DatabaseSessionService(database_of(folder)),
        "postgres without cache": lambda: DatabaseSessionService(database_of(folder), cache_bytes=0),
    }


_FOLDER: list[Path] = []
"""Whose test has the database."""


@cache
def _database() -> str:
    return new_database()


def database_of(folder: Path) -> str:
    """
    The URL of the Postgres database of a test, which has this folder. Skips the test without a server.

    It is one for all tests, which come one after another: emptying it takes a third of the time of making one.
    """
    url = _database()
    if [folder] != _FOLDER:
        _FOLDER[:] = [folder]
        empty(url)
    return url


KINDS = tuple(services(Path()))
DURABLE = frozenset(KINDS[2:])


class Elsewhere(SqliteSessionService):
    """A service as another process has it: it shares the file, and no gate."""

    def store_id(self) -> Hashable:
        return id(self)


class ElsewhereInPostgres(DatabaseSessionService):
    """The same for a database."""

    def store_id(self) -> Hashable:
        return id(self)


@attrs.frozen(eq=False)
class Clock(Env):
    """
    The clocks of one boot of a machine, as the test sets them.

    `seconds` pass on both, `steps` move the one on the wall. Two with one `machine` share the steady clock.
    """

    seconds: list[float]
    steps: list[float] = attrs.field(factory=lambda: [0.0])
    machine: str = "here"

    def now(self) -> float:
        return self.seconds[0] + self.steps[0]

    def steady(self) -> float:
        return self.seconds[0]

    def boot(self) -> str:
        return self.machine


class Faulty:
    """A connection on which some statements fail, or do something else first: `{statement: what to do}`."""

    def __init__(self, connection: sqlite3.Connection, faults: dict[str, Callable[[], None]]) -> None:
        self._connection = connection
        self._faults = faults

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if statement in self._faults:
            self._faults[statement]()
        return self._connection.execute(statement, *parameters)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        self._connection.close()


def failing(code: int, text: str = "planted") -> Callable[[], None]:
    """What SQLite does when it fails with this code."""

    def fail() -> None:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        raise error

    return fail


def inject(service: SqliteSessionService, faults: dict[str, Callable[[], None]]) -> None:
    """Let the open connection of *service* fail."""
    connection = service._file._connection
    assert connection is not None
    service._file._connection = Faulty(connection, faults)  # type: ignore[assignment]  # behaves as one


@asynccontextmanager
async def one_session(
    path: Path, make: type[SqliteSessionService] = SqliteSessionService, **options: Any
) -> AsyncIterator[tuple[SqliteSessionService, Session]]:
    """A service over a file with one new session in it."""
    async with make(path, **{"durability": "process", **options}) as service:
        yield service, await service.create_session(**HERE)


async def get(service: BaseSessionService, session_id: str = "s", **window: Any) -> Session:
    config = GetSessionConfig(**window) if window else None
    session = await service.get_session(app_name="app", user_id="u", session_id=session_id, config=config)
    assert session is not None
    return session


async def append(service: BaseSessionService, session: Session, text: str = "x", **state: Any) -> Event:
    """Append a text and state; `user_x` is short for the key `user:x`, `app_x` for `app:x`."""
    return await service.append_event(session, Event(author="a", message=text, state=spelled(state)))


async def enter(service: BaseSessionService, name: str = "e-1", *, reject: bool = False) -> SessionWriter:
    writer = await service.open_writer(KEY, name, None, reject=reject)
    assert writer is not None
    return writer


async def begin(writer: SessionWriter) -> Event:
    event = Event(author="user", message="hi", invocation_id=writer.invocation_id)
    return await writer.append(event, begins=True)


def texts(session: Session) -> list[str]:
    return [event.text for event in session.events]


def sql(path: Path, statement: str, *parameters: Any) -> list[Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement, parameters).fetchall()
    finally:
        connection.close()
