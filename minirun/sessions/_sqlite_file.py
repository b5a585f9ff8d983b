"""
One SQLite file: opening it, its format, its transactions, and what its errors mean.

Nothing here knows what a session is. The rules:

*   WAL, one connection, one transaction at a time behind a lock. `BEGIN IMMEDIATE` only: a read transaction that is
    upgraded can fail in a way that no waiting cures (SQLITE_BUSY_SNAPSHOT).
*   `busy_timeout=0`. SQLite's own waiting would stop the whole loop; here it is done on trio's clock, with a bound,
    and can be cancelled. Once BEGIN has succeeded nothing is cancellable, and nothing waits but COMMIT.
*   Statements run inline; they are short. Under `"power"` only COMMIT goes to a worker thread, because it alone
    waits for the disk.
*   A COMMIT that fails leaves open whether it happened: the connection is closed and the next use opens a new one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import trio

from ..env import Env
from ..errors import (
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUncertainError,
)

__all__ = ["Durability", "SqliteFile"]

Durability = Literal["power", "process"]

# "mrun" in ASCII: tells a minirun file from another program's (https://sqlite.org/pragma.html#pragma_application_id).
APPLICATION_ID: Final = 0x6D72756E
FORMAT_VERSION: Final = 1

# FULL, not NORMAL: in WAL mode NORMAL may lose the latest commits in a power cut
# (https://sqlite.org/pragma.html#pragma_synchronous), and a commit lost here is an event that somebody has seen.
SYNCHRONOUS: Final = {"power": "FULL", "process": "NORMAL"}

# How long another process may hold the write lock before that is an error. Ours hold it for well under 10 ms.
BUSY_WAIT_S = 10.0
BUSY_POLL_S = (0.0005, 0.02)  # the first pause and the longest

_KINDS: Final = {
    sqlite3.SQLITE_BUSY: StorageBusyError,
    sqlite3.SQLITE_LOCKED: StorageBusyError,
    sqlite3.SQLITE_FULL: StorageFullError,
    sqlite3.SQLITE_TOOBIG: StorageFullError,
    sqlite3.SQLITE_READONLY: StorageReadOnlyError,
    sqlite3.SQLITE_CANTOPEN: StorageFormatError,
    sqlite3.SQLITE_PERM: StorageReadOnlyError,
    sqlite3.SQLITE_CORRUPT: StorageCorruptError,
    sqlite3.SQLITE_NOTADB: StorageFormatError,
}

_ADVICE: Final = {
    StorageBusyError: "another process holds the write lock; end it, or try again later",
    StorageFullError: "make room on the disk, or store smaller values",
    StorageReadOnlyError: "let this user read and write the file and its folder",
    StorageCorruptError: "the file is damaged; keep a copy of it and restore a backup",
    StorageFormatError: "choose a file that minirun has made, or a new name",
    StorageError: "the event may or may not be stored; read the session again",
}


def storage_error(error: sqlite3.Error, path: str, doing: str) -> StorageError:
    """Return the typed error for what SQLite raised."""
    kind = _KINDS.get(_code(error), StorageError)
    if isinstance(error, sqlite3.DataError):  # larger than SQLite's limit for a value
        kind = StorageFullError
    elif not _code(error) and "decode" in str(error):  # not UTF-8, which we never wrote
        kind = StorageCorruptError
    return kind(f"{path}: {doing} failed: {error}; {_ADVICE[kind]}")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if the error is Python's own."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteFile:
    """
    A file and its one connection, opened when first used.

    Args:
        path: The file, or None for a database in memory, which ends with the object.
    """

    def __init__(self, path: Path | None, schema: str, durability: Durability, env: Env) -> None:
        self._connection: sqlite3.Connection | None = None
        self.path = path
        self.name = ":memory:" if path is None else str(path)
        self._schema = schema
        self._durability = durability
        self._env = env
        self._lock = trio.Lock()
        self._limiter = trio.CapacityLimiter(1)  # the application's own threads never hold up a commit

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[sqlite3.Connection]:
        """A transaction that reads: one consistent view of the file. Nothing in the block may wait."""
        async with self._lock:
            connection = await self._opened()
            try:
                await self._begin(connection, "BEGIN")
                yield connection
            except sqlite3.Error as error:
                raise storage_error(error, self.name, "reading") from error
            finally:
                self._roll_back(connection)

    @asynccontextmanager
    async def writing(self, *, durable: bool = True) -> AsyncIterator[sqlite3.Connection]:
        """
        A transaction that writes; it is committed when the block ends and rolled back when it raises.

        Cancellable until it has begun. Nothing in the block may wait. With `durable=False` the commit waits for no
        disk: it survives the end of the process, and a power cut may take it back.

        Raises:
            StorageBusyError, StorageFullError, StorageReadOnlyError, StorageCorruptError: Nothing was stored.
            StorageUncertainError: COMMIT failed; the connection was closed.
        """
        async with self._lock:
            connection = await self._opened()
            relaxed = not durable and self._durability == "power"
            if relaxed:
                connection.execute("PRAGMA synchronous=NORMAL")
            try:
                try:
                    await self._begin(connection, "BEGIN IMMEDIATE")
                    yield connection
                except BaseException as error:
                    self._roll_back(connection)
                    if isinstance(error, sqlite3.Error):
                        raise storage_error(error, self.name, "writing") from error
                    raise
                await self._commit(connection, inline=relaxed or self._durability == "process")
            finally:
                if relaxed and self._connection is connection:
                    connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[self._durability]}")

    async def _begin(self, connection: sqlite3.Connection, begin: str) -> None:
        pause, longest = BUSY_POLL_S
        deadline = trio.current_time() + BUSY_WAIT_S
        while True:
            try:
                connection.execute(begin)
                connection.execute("PRAGMA user_version").fetchone()  # a plain BEGIN is put off to the first reading
            except sqlite3.Error as error:
                self._roll_back(connection)
                if not _is_busy(error) or trio.current_time() >= deadline:
                    raise storage_error(error, self.name, "beginning a transaction") from error
            else:
                return
            await self._env.sleep(pause)
            pause = min(2 * pause, longest)

    async def _commit(self, connection: sqlite3.Connection, *, inline: bool) -> None:
        try:
            if inline:
                connection.execute("COMMIT")
            else:
                with trio.CancelScope(shield=True):
                    await self._env.run_sync(partial(connection.execute, "COMMIT"), limiter=self._limiter)
        except BaseException as error:
            self._roll_back(connection)
            if not isinstance(error, sqlite3.Error):
                raise
            if self.path is not None:
                self._disconnect()
            msg = f"{self.name}: COMMIT failed: {error}; {_ADVICE[StorageError]}"
            raise StorageUncertainError(msg) from error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """End the transaction, if SQLite has not done so by itself, so that the next one can begin."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            if self.path is None:
                raise  # closing would lose everything
            self._disconnect()  # which rolls back

    async def close(self) -> None:
        """Close the connection; a database in memory is gone."""
        self._disconnect()

    def __del__(self) -> None:
        self._disconnect()  # closing is a courtesy: a file that nobody closed is closed with its last user

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- opening

    async def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            pause, longest = BUSY_POLL_S
            deadline = trio.current_time() + BUSY_WAIT_S
            while True:
                try:
                    self._connection = self._connect()
                    break
                except sqlite3.Error as error:
                    if not _is_busy(error) or trio.current_time() >= deadline:
                        raise storage_error(error, self.name, "opening") from error
                await self._env.sleep(pause)
                pause = min(2 * pause, longest)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            self._check_path(self.path)
            self._check_untouched(self.path)
        connection = self._env.connect(self.name)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA synchronous=FULL")
            self._make_format(connection)
            connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[self._durability]}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_path(self, path: Path) -> None:
        try:
            self._check_place(path)
        except PermissionError as error:
            msg = f"{path}: this user may not look into {path.parent}; {_ADVICE[StorageReadOnlyError]}"
            raise StorageReadOnlyError(msg) from error
        except OSError as error:  # a name too long, a loop of links, …
            msg = f"{path}: cannot be opened: {error.strerror}; choose another name"
            raise StorageFormatError(msg) from error

    def _check_place(self, path: Path) -> None:
        if not path.parent.is_dir():
            msg = f"{path}: there is no folder {path.parent}; make it first, or choose another place"
            raise StorageFormatError(msg)
        if path.exists() and not path.is_file():
            msg = f"{path}: expected a file, found a folder or device; choose another name"
            raise StorageFormatError(msg)
        if path.exists() and path.stat().st_size == 1:  # which SQLite would take for an empty one
            msg = f"{path}: expected a file made by minirun, found one of one byte; use another name"
            raise StorageFormatError(msg)
        target = path if path.exists() else path.parent
        if not os.access(target, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
            msg = f"{path}: cannot be read and written; {_ADVICE[StorageReadOnlyError]} (a log is kept beside the file)"
            raise StorageReadOnlyError(msg)

    def _check_untouched(self, path: Path) -> None:
        """
        Refuse a file that is not ours before anything of it can change.

        To open it properly would already roll back or check in what its own program has left in its journal. Not even
        its locks are taken, and its log is not read: so a file of ours may look damaged here, while or after a process
        wrote back its log and got half way. Only what is certainly foreign is refused.
        """
        if not path.exists():
            return
        connection = self._env.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            connection.execute("BEGIN")
            self._check_format(connection)
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_NOTADB:
                raise
        finally:
            connection.close()

    def _check_format(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has our format already; False if it is empty. Called in a transaction, for one view."""
        [application] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == APPLICATION_ID:
            if version == FORMAT_VERSION:
                return True
            msg = (
                f"{self.name}: expected format {FORMAT_VERSION}, found format {version}, made by "
                f"{'a newer' if version > FORMAT_VERSION else 'an older'} minirun; install that, or use another file"
            )
            raise StorageFormatError(msg)
        if application or version or tables:
            msg = f"{self.name}: expected a file made by minirun, found another program's database; use another name"
            raise StorageFormatError(msg)
        return False

    def _make_format(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        made = self._check_format(connection)
        connection.execute("COMMIT")
        if made:
            return
        connection.execute("BEGIN IMMEDIATE")
        if not self._check_format(connection):  # another process may have been faster
            for statement in self._schema.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
        connection.execute("COMMIT")
