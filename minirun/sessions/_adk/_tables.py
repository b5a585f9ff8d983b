"""
ADK's tables, as they stand in a SQLite file or in a Postgres database: what is read, and what is refused.

Their schema of today (`schema_version` 1) keeps each event as JSON. The one before it pickled what an event did; a
pickle runs code when it is read, so it is never read here. ADK migrates such a database itself.

Nothing is written, and all is read in one view.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from ..._json import brief, loads
from ..._postgres._pool import Pool, Transaction
from ..._postgres._values import Statement
from ...env import Env
from ...errors import InvalidValueError, StorageFormatError
from .._postgres._url import postgres_url
from ._events import StoredEvent, StoredSession

__all__ = ["AdkTables", "opened", "shared_values"]

VERSION: Final = "1"
COLUMNS: Final = {
    "sessions": {"app_name", "user_id", "id", "state", "create_time", "update_time"},
    "events": {"id", "app_name", "user_id", "session_id", "invocation_id", "timestamp", "event_data"},
    "app_states": {"app_name", "state"},
    "user_states": {"app_name", "user_id", "state"},
}
MIGRATE: Final = "`adk migrate session --source_db_url OLD --dest_db_url NEW` makes one of today's; import that"
# Reading a large table may take longer than a commit may.
READ_S: Final = 300.0

Place = tuple[str, str, str]


class AdkTables(Protocol):
    """What is read of ADK's tables."""

    async def sessions(self) -> list[Place]:
        """App, user and id of each, in the order in which they were made."""
        ...

    async def session(self, place: Place) -> StoredSession:
        """
        One of them, with its events in the order of (timestamp, id), as ADK has them.

        Raises:
            InvalidValueError: It is not what ADK writes.
        """
        ...

    async def shared(self) -> dict[tuple[str, str], object]:
        """The shared values, as `shared_values` reads them, by app and user; "" for those of the app."""
        ...


def _check(name: str, columns: dict[str, set[str]], version: str | None) -> None:
    """
    Refuse what is not ADK's schema of today.

    Raises:
        StorageFormatError: It is an older or newer one, or another program's.
    """
    if "actions" in columns.get("events", ()) and "event_data" not in columns.get("events", ()):
        msg = f"{name}: expected ADK's tables of schema {VERSION}, found the one before it, which has pickles in it"
        raise StorageFormatError(f"{msg}: these run code when they are read, and are never read here; {MIGRATE}")
    if version not in (None, VERSION):
        msg = f"{name}: expected ADK's tables of schema {VERSION}, found schema {brief(version)}, a newer one"
        raise StorageFormatError(msg)
    for table, wanted in COLUMNS.items():
        missing = sorted(wanted - columns.get(table, set()))
        if missing:
            found = f"no columns {', '.join(missing)} in it" if table in columns else "no such table"
            msg = f"{name}: expected ADK's table {table!r}, found {found}; name the database that ADK has written"
            raise StorageFormatError(msg)


def _object(text: object, what: str) -> dict[str, Any]:
    try:
        found = loads(text) if isinstance(text, str) else None
    except ValueError as error:
        raise InvalidValueError(what, f"expected JSON, found {brief(text)}: {error}") from None
    if not isinstance(found, dict):
        raise InvalidValueError(what, f"expected a JSON object, found {brief(text)}")
    return found


def shared_values(app: str, user: str, state: object) -> dict[str, Any]:
    """
    The values that a row of `AdkTables.shared` holds, under their full keys.

    Raises:
        InvalidValueError: It cannot be read.
    """
    prefix = "user:" if user else "app:"
    return {f"{prefix}{key}": value for key, value in _object(state, f"{prefix} state of {brief(user or app)}").items()}


# --- SQLite -----------------------------------------------------------------------------------------------------------


def _seconds(value: object) -> float:
    """A time as DatabaseSessionService (a text, in UTC) or SqliteSessionService (seconds) writes it."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InvalidValueError("timestamp", f"expected a time, found {brief(value)}") from None


@attrs.frozen
class _File:
    """The tables in a SQLite file."""

    db: sqlite3.Connection

    async def sessions(self) -> list[Place]:
        rows = self.db.execute("SELECT app_name, user_id, id FROM sessions ORDER BY create_time, app_name, user_id, id")
        return [(app, user, name) for app, user, name in rows]

    async def session(self, place: Place) -> StoredSession:
        query = "SELECT state, create_time FROM sessions WHERE app_name = ? AND user_id = ? AND id = ?"
        [(state, created)] = self.db.execute(query, place)
        rows = self.db.execute(
            "SELECT id, invocation_id, timestamp, event_data FROM events"
            " WHERE app_name = ? AND user_id = ? AND session_id = ? ORDER BY timestamp, id",
            place,
        )
        events = tuple(
            StoredEvent(name, invocation, _seconds(at), _object(data, f"event {brief(name)}"))
            for name, invocation, at, data in rows
        )
        return StoredSession(_object(state, "state"), _seconds(created), events)

    async def shared(self) -> dict[tuple[str, str], object]:
        rows = [(app, "", state) for app, state in self.db.execute("SELECT app_name, state FROM app_states")]
        rows += self.db.execute("SELECT app_name, user_id, state FROM user_states").fetchall()
        return {(app, user): state for app, user, state in rows}


def _columns(db: sqlite3.Connection) -> Iterator[tuple[str, set[str]]]:
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        yield table, {row[1] for row in db.execute("SELECT * FROM pragma_table_info(?)", (table,))}


def _address(path: Path) -> str:
    if not path.is_file():
        msg = f"expected a SQLite file that ADK has written, found none at {str(path)!r}"
        raise StorageFormatError(msg)
    return f"{path.absolute().as_uri()}?mode=ro"


@asynccontextmanager
async def _file(path: Path, env: Env) -> AsyncIterator[AdkTables]:
    with closing(env.connect(_address(path), uri=True)) as db:
        try:
            db.execute("BEGIN")
            columns = dict(_columns(db))
            version = None
            if "adk_internal_metadata" in columns:
                query = "SELECT value FROM adk_internal_metadata WHERE key = 'schema_version'"
                version = next((value for (value,) in db.execute(query)), "none")
        except sqlite3.DatabaseError as error:
            msg = f"{path}: expected a SQLite file that ADK has written, found one that cannot be read: {error}"
            raise StorageFormatError(msg) from error
        _check(str(path), columns, version)
        yield _File(db)


# --- Postgres ---------------------------------------------------------------------------------------------------------

# The tables that the user's search path leads to, as for ADK; but a user called `minirun` would be led to ours.
_PATH: Final = Statement(
    "adk_path",
    "SELECT set_config('search_path', coalesce(string_agg(quote_ident(name), ',' ORDER BY place), ''), true)"
    " FROM unnest(current_schemas(false)) WITH ORDINALITY AS u(name, place) WHERE name <> 'minirun'",
    once=True,
)
_COLUMNS: Final = Statement(
    "adk_columns",
    "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
    " WHERE c.oid = ANY (ARRAY(SELECT to_regclass(n) FROM unnest($1::text[]) AS n)::oid[])"
    " AND a.attnum > 0 AND NOT a.attisdropped",
    "text[]",
    once=True,
)
_VERSION: Final = Statement(
    "adk_version", "SELECT value::text FROM adk_internal_metadata WHERE key = 'schema_version'", once=True
)
_SESSIONS: Final = Statement(
    "adk_sessions",
    "SELECT app_name::text, user_id::text, id::text FROM sessions ORDER BY create_time, app_name, user_id, id",
    once=True,
)
_SESSION: Final = Statement(
    "adk_session",
    "SELECT state::text, extract(epoch FROM create_time)::float8 FROM sessions"
    " WHERE app_name = $1 AND user_id = $2 AND id = $3",
    "text text text",
    once=True,
)
_EVENTS: Final = Statement(
    "adk_events",
    "SELECT id::text, invocation_id::text, extract(epoch FROM timestamp)::float8, event_data::text FROM events"
    ' WHERE app_name = $1 AND user_id = $2 AND session_id = $3 ORDER BY timestamp, id COLLATE "C"',
    "text text text",
    once=True,
)
_SHARED: Final = Statement(
    "adk_shared",
    "SELECT app_name::text, '' AS user_id, state::text FROM app_states"
    " UNION ALL SELECT app_name::text, user_id::text, state::text FROM user_states",
    once=True,
)


@attrs.frozen
class _Database:
    """The tables in a Postgres database."""

    transaction: Transaction

    async def sessions(self) -> list[Place]:
        [found] = await self.transaction.run(_SESSIONS())
        return [(app, user, name) for app, user, name in found.rows]

    async def session(self, place: Place) -> StoredSession:
        session, events = await self.transaction.run(_SESSION(*place), _EVENTS(*place))
        [(state, created)] = session.rows
        stored = tuple(
            StoredEvent(name, invocation, at, _object(data, f"event {brief(name)}"))
            for name, invocation, at, data in events.rows
        )
        return StoredSession(_object(state, "state"), created, stored)

    async def shared(self) -> dict[tuple[str, str], object]:
        [found] = await self.transaction.run(_SHARED())
        return {(app, user): state for app, user, state in found.rows}


@asynccontextmanager
async def _database(url: str, env: Env) -> AsyncIterator[AdkTables]:
    pool = Pool(postgres_url(url), env, size=1)
    try:
        async with pool.transaction(snapshot=True, slow_s=READ_S) as transaction:
            _, found = await transaction.run(_PATH(), _COLUMNS([*COLUMNS, "adk_internal_metadata"]))
            columns: dict[str, set[str]] = {}
            for table, column in found.rows:
                columns.setdefault(table, set()).add(column)
            version = None
            if "adk_internal_metadata" in columns:
                [said] = await transaction.run(_VERSION())
                version = str(said.rows[0][0]) if said.rows else "none"
            _check(pool.name, columns, version)
            yield _Database(transaction)
    finally:
        pool.close()


def opened(place: Path | str, env: Env) -> AbstractAsyncContextManager[AdkTables]:
    """
    Open the tables at *place*, a file or the URL of a Postgres database: an async context manager of AdkTables.

    Raises:
        StorageFormatError: There are none, or of a schema that is not read.
        StorageError: They cannot be read.
    """
    return _file(place, env) if isinstance(place, Path) else _database(place, env)
