"""
The database of a session service: the driver's connections, once the schema there is known to be ours.

The schema `minirun` holds all that minirun has in a database, so that other programs' tables may stand beside it. Its
table `versions` says of each part, such as the sessions, in which version it is. Who opens a database first, or with a
newer minirun, makes or migrates the part in one transaction, behind an advisory lock: others wait for it, and look
again. A part that a newer minirun has written is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from ..._postgres._connection import Connection
from ..._postgres._errors import sqlstate
from ..._postgres._pool import Pool
from ..._postgres._values import Call, Result, Statement
from ...errors import StorageFormatError, StorageRolledBackError
from ._schema import MIGRATIONS

__all__ = ["Database"]

_PART: Final = "sessions"
# A number that other programs in the same database are not likely to lock: the letters of "minirun".
_LOCK: Final = 0x6D696E6972756E

# Before there is a schema, `versions` is not there to be asked; so its name is looked up first.
_HAS_VERSIONS: Final = Statement("has_versions", "SELECT to_regclass('minirun.versions') IS NOT NULL", once=True)
_VERSION: Final = Statement("version", "SELECT version FROM minirun.versions WHERE part = $1", "text", once=True)
_LOCK_SCHEMA: Final = Statement("lock_schema", "SELECT pg_advisory_xact_lock($1)", "int8", once=True)
_MAKE_SCHEMA: Final = Statement("make_schema", "CREATE SCHEMA IF NOT EXISTS minirun", once=True)
_MAKE_VERSIONS: Final = Statement(
    "make_versions",
    "CREATE TABLE IF NOT EXISTS minirun.versions (part text PRIMARY KEY, version int4 NOT NULL)",
    once=True,
)
_SET_VERSION: Final = Statement(
    "set_version",
    "INSERT INTO minirun.versions VALUES ($1, $2) ON CONFLICT (part) DO UPDATE SET version = excluded.version",
    "text int4",
    once=True,
)

_SNAPSHOT: Final = Statement("begin_snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_COMMIT: Final = Statement("commit", "COMMIT")

# "duplicate_table" and the like: what we would make is there, and not ours.
_DUPLICATE: Final = frozenset({"42P07", "42723", "42710"})


class Database:
    """What a service asks of its database; see `Pool` for how each way fails, and what a cancellation does."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.name = pool.name
        """What messages call it."""
        self.begin_here()

    def begin_here(self) -> None:
        """Serve this process, which may be a fork of the one before."""
        self._is_ready = False
        self._lock = trio.Lock()

    async def read(self, *calls: Call) -> list[Result]:
        """Execute what only reads, in one round trip; each statement has its own view."""
        await self.ready()
        return await self.pool.read(*calls)

    async def snapshot(self, *calls: Call) -> list[Result]:
        """Execute what only reads, in one round trip and with one view of the database."""
        await self.ready()
        results = await self.pool.read(_SNAPSHOT(), *calls, _COMMIT())
        return results[1:-1]

    async def write(self, *calls: Call) -> list[Result]:
        """Execute statements as one transaction, in one round trip."""
        await self.ready()
        return await self.pool.write(*calls)

    async def connect(self) -> Connection:
        """A connection of the caller's own, who gives it back with `pool.release`."""
        await self.ready()
        return await self.pool.connect()

    async def ready(self) -> None:
        """
        Have the schema as this version knows it.

        Raises:
            StorageFormatError: A newer version has made it, or it is another program's.
            StorageReadOnlyError: There is none, and we may not make it.
        """
        if self._is_ready:
            return
        async with self._lock:
            if not self._is_ready:
                if await self._version() != len(MIGRATIONS):
                    await self._migrate()
                self._is_ready = True

    async def _version(self) -> int:
        [found] = await self.pool.read(_HAS_VERSIONS())
        if not found.rows[0][0]:
            return 0
        [result] = await self.pool.read(_VERSION(_PART))
        return self._checked(result)

    def _checked(self, result: Result) -> int:
        version = int(result.rows[0][0]) if result.rows else 0
        if not 0 <= version <= len(MIGRATIONS):
            msg = f"{self.name}: expected sessions of format {len(MIGRATIONS)}, found format {version}, made by a newer"
            raise StorageFormatError(f"{msg} minirun; install that, or use another database")
        return version

    @trio.lowlevel.enable_ki_protection
    async def _migrate(self) -> None:
        try:
            async with self.pool.transaction() as transaction:
                await transaction.run(_LOCK_SCHEMA(_LOCK), _MAKE_SCHEMA(), _MAKE_VERSIONS())
                [result] = await transaction.run(_VERSION(_PART))  # with a view of its own: after the lock
                steps = MIGRATIONS[self._checked(result) :]
                await transaction.run(*_statements(steps), _SET_VERSION(_PART, len(MIGRATIONS)))
        except StorageRolledBackError as error:
            if sqlstate(error) not in _DUPLICATE:
                raise
            msg = f"{self.name}: expected the schema 'minirun' to be ours or empty, found another program's: {error}"
            raise StorageFormatError(f"{msg}; rename that schema, or use another database") from error


def _statements(steps: Sequence[Sequence[str]]) -> list[Call]:
    return [Statement("migrate", sql, once=True)() for step in steps for sql in step]
