"""
What a server must be, and what each connection is set to.

It is asked in one round trip, when a connection is made. What is wrong is said with what to do, before anything is
stored there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ..errors import StorageFormatError
from ._connection import Bounds, Connection
from ._values import Statement

__all__ = ["check_pooler", "prepare_connection"]

# Pipelines that libpq reads without blocking work with any; 14 has what ends a statement whose client is gone.
VERSION_MIN: Final = 14

# The last one: a statement whose worker has died, or has given it up, ends a second later, instead of waiting for a
# lock and then being stored after somebody has looked. Servers on other systems may refuse it.
# The three before it are ours whatever the server, the database or the role has as its default: a statement has to see
# what was committed before it began, the connection that shows that a worker lives is idle for long, and our texts of
# SQL have backslashes.
SETTINGS: Final = Statement(
    "settings",
    """
    SELECT pg_backend_pid(),
        set_config('statement_timeout', $1, false),
        set_config('lock_timeout', $2, false),
        set_config('idle_in_transaction_session_timeout', $3, false),
        set_config('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
        set_config('default_transaction_isolation', 'read committed', false),
        set_config('idle_session_timeout', '0', false),
        set_config('standard_conforming_strings', 'on', false),
        CASE WHEN version() LIKE '%linux%' THEN set_config('client_connection_check_interval', '1s', false) END
    """,
    "text text text",
    once=True,
)

BACKEND_PID: Final = Statement("backend_pid", "SELECT pg_backend_pid()", once=True)

# Which of two connections asks next. Poolers give out the server that was used last, or the one that waits longest, or
# any: in this order the first two are found at once, and the third but for one time in a thousand.
TURNS: Final = (0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1)


async def prepare_connection(connection: Connection, bounds: Bounds, name: str) -> bool:
    """
    Check the server, and set the time-outs. Return whether there is a pooler in between, of whatever mode.

    Raises:
        StorageFormatError: The server cannot be used.
        ServerError, ConnectionLostError: As `Connection.run`.
    """
    if connection.server_version < VERSION_MIN * 10_000:
        found = f"{connection.server_version // 10_000}.{connection.server_version % 10_000}"
        msg = f"{name}: expected a Postgres server of version {VERSION_MIN} or later, found {found}; upgrade it"
        raise StorageFormatError(msg)
    encoding = connection.parameter("server_encoding")
    if encoding != "UTF8":
        msg = f"{name}: expected a database whose encoding is UTF8, found {encoding or 'none'}"
        raise StorageFormatError(f"{msg}; make another one: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0")
    times = [f"{round(1000 * s)}ms" for s in (bounds.statement_s, bounds.lock_s, bounds.idle_transaction_s)]
    [result] = await connection.run([SETTINGS(*times)], withdraw=True)
    pid = result.rows[0][0]
    return bool(pid != connection.backend_pid)


async def check_pooler(connection: Connection, connect: Callable[[], Awaitable[Connection]], name: str) -> None:
    """
    Refuse a pooler that gives a server process to each transaction. In session mode one is as good as the server.

    Such a pooler loses what a connection has prepared, listens to and has locked. Two connections at a time find it:
    they get the same process of the server, or one of them gets several.

    Raises:
        StorageFormatError: There is one.
    """
    other = await connect()
    try:
        seen = await _processes_of((connection, other))
    finally:
        other.close()
    if len(seen[0]) != 1 or len(seen[1]) != 1 or seen[0] == seen[1]:
        msg = f"{name}: expected a connection with a server process of its own, found a pooler in transaction mode"
        raise StorageFormatError(f"{msg}; connect to the server itself, or set pool_mode=session for this database")


async def _processes_of(connections: Sequence[Connection]) -> tuple[set[int], set[int]]:
    seen: tuple[set[int], set[int]] = (set(), set())
    for turn in TURNS:
        [result] = await connections[turn].run([BACKEND_PID()], withdraw=True)
        seen[turn].add(result.rows[0][0])
    return seen
