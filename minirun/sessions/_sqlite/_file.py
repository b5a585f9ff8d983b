"""
One SQLite file: its one connection, and its transactions.

Nothing here knows what a session is. The rules:

*   WAL, one connection, one transaction at a time behind a lock. `BEGIN IMMEDIATE` only: a read transaction that is
    upgraded can fail in a way that no waiting cures (SQLITE_BUSY_SNAPSHOT).
*   *Group commit*. What waits to be written at the same moment goes into one transaction, so that many sessions share
    one wait for the disk. There is no task for that: the first that waits leads and commits for all.
*   What fails in a group fails alone: each job has a savepoint. A COMMIT that fails, fails for all of them.
*   `busy_timeout=0`. SQLite's own waiting would stop the whole loop; here it is done on trio's clock, with a bound,
    cancellable, and without the lock: others read meanwhile.
*   A job is cancellable until BEGIN has succeeded. From there to the answer of COMMIT nothing is, nothing waits but
    COMMIT, and nothing checkpoints after it.
*   Statements run inline; they are short. Under `"power"` only COMMIT goes to a worker thread, because it alone
    waits for the disk; that of a job which writes much always does.
*   Stored first, applied second: what jobs want applied (`after_commit`) is done in the order of the transaction,
    before anybody is woken.
*   A COMMIT that fails leaves open whether it happened: the connection is closed and the next use opens a new one.
    Except for one that fails for want of room, of jobs that wait for no disk: it was rolled back. What had no room was
    a page of it or its last one, which alone makes it count; of what an fsync may have left half done, there is none.
*   The connection, its lock and its queue are of one process. A fork of it opens another one.
*   A file that is deleted or replaced while it is open is noticed before the next transaction: nothing is written
    into a file that has no name any more.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import trio

from ...env import Env
from ...errors import ServiceInUseError, StorageFormatError, StorageMissingError, StorageUncertainError
from .._queued import Queued
from ._errors import SQLITE_ERRORS, is_busy, result_code, storage_error
from ._format import Format, check_place, check_untouched, make_format

__all__ = ["Durability", "SqliteFile", "Transaction"]

T = TypeVar("T")

Durability = Literal["power", "process"]

# FULL, not NORMAL: in WAL mode NORMAL may lose the latest commits in a power cut
# (https://sqlite.org/pragma.html#pragma_synchronous), and a commit lost here is an event that somebody has seen.
SYNCHRONOUS: Final = {"power": "FULL", "process": "NORMAL"}

# How long another process may hold the write lock before that is an error. Ours hold it for well under 10 ms.
BUSY_WAIT_S = 10.0
BUSY_POLL_S = (0.0005, 0.1)  # the first pause and the longest

# A leader lets others join as long as more come with each tick of the loop; what is ready to run arrives within a few.
GATHER_TICKS_MAX = 8


class Transaction:
    """What a job works in: the connection, and what it shares with the other jobs of its group."""

    __slots__ = ("_callbacks", "db", "shared")

    def __init__(self, db: sqlite3.Connection, shared: dict[Any, Any]) -> None:
        self.db = db
        self.shared = shared
        """What earlier jobs of the group have left; not undone for a job that fails, so it is written last."""
        self._callbacks: list[Callable[[], None]] = []

    def after_commit(self, apply: Callable[[], None]) -> None:
        """Let *apply* be called when, and only if, what the job has written is stored."""
        self._callbacks.append(apply)


class _Job(Queued):
    """What one task wants written."""

    __slots__ = ("callbacks", "deadline", "durable", "heavy", "result", "work")

    def __init__(self, work: Callable[[Transaction], Any], deadline: float, *, durable: bool, heavy: bool) -> None:
        super().__init__()
        self.work = work
        self.deadline = deadline
        self.durable = durable
        self.heavy = heavy
        self.result: Any = None
        self.callbacks: list[Callable[[], None]] = []


class SqliteFile:
    """
    A file and its one connection, opened when first used.

    Args:
        path: The file, or None for a database in memory, which ends with the object.
    """

    def __init__(self, path: Path | None, wanted: Format, durability: Durability, env: Env) -> None:
        self._connection: sqlite3.Connection | None
        self.path = path
        self._address = ":memory:" if path is None else str(path)
        self._log, self._index = f"{self._address}-wal", f"{self._address}-shm"
        self.name = self._address
        """What messages call it."""
        self._format = wanted
        self._durability = durability
        self._synchronous = ""  # the level that is set now
        self._env = env
        self._identity: tuple[object, ...] = ()  # of the file and its log, as they were opened
        self.generation = 0
        """Counts the files that were opened: what was cached of another one is worth nothing."""
        self.begin_here()

    def begin_here(self) -> None:
        """
        Serve this process, which may be a fork of the one that the file was opened by.

        A connection is never used on the other side of a fork, nor closed there: closing one of several would take the
        log away from the others (https://sqlite.org/howtocorrupt.html, 2.6).
        """
        self._process = os.getpid()
        self._connection = None
        self._lock = trio.Lock()
        self._queue: deque[_Job] = deque()
        self._has_leader = False  # whether a leader is at work, or was woken to be

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[sqlite3.Connection]:
        """
        A transaction that reads: one consistent view of the file. Nothing in the block may wait.

        The caller is protected from Ctrl-C: a KeyboardInterrupt on the way into the block or out of it would keep the
        lock for ever.

        Raises:
            StorageError: One whose `stored` is False.
        """
        deadline = trio.current_time() + BUSY_WAIT_S
        connection = await self._with_lock(self._begin_reading, deadline, "beginning a transaction")
        try:
            yield connection
        except SQLITE_ERRORS as error:
            raise storage_error(error, self.name, "reading") from error
        finally:
            self._roll_back(connection)
            self._lock.release()

    @trio.lowlevel.enable_ki_protection
    async def look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """
        Return what *work* finds by a single statement, which sees one view of the file without a transaction.

        Raises:
            StorageError: One whose `stored` is False.
        """
        found = await self._with_lock(work, trio.current_time() + BUSY_WAIT_S, "reading")
        self._lock.release()
        return found

    # --- writing

    @trio.lowlevel.enable_ki_protection
    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True, heavy: bool = False) -> T:
        """
        Let *work* write, in a transaction that it may share with others, and return what it returns once it is stored.

        Cancellable until the transaction has begun; `Cancelled` means that nothing was stored. *work* must not wait;
        if it raises, what it has written is undone and this raises the same. With `durable=False` nothing waits for
        the disk: the commit survives the end of the process, and a power cut may take it back. With `heavy=True`, for
        what fills many pages, COMMIT goes to a worker thread whatever the durability.

        Raises:
            StorageUncertainError: COMMIT failed; the connection was closed.
            StorageError: Any other kind: nothing was stored.
            StorageFullError: That, too, if COMMIT found no room, and no job of the group is durable.
        """
        job = _Job(work, trio.current_time() + BUSY_WAIT_S, durable=durable, heavy=heavy)
        self._queue.append(job)
        if self._has_leader:
            await job.wait(self._queue)
        if not job.done:
            self._has_leader = True
            await self._lead(job)
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    async def _lead(self, leader: _Job) -> None:
        """Commit for all who wait, and let the first of those who came meanwhile lead the next group."""
        try:
            await self._gather()
            connection = await self._with_lock(self._begin_writing, leader.deadline, "beginning a transaction")
        except BaseException:
            self._queue.remove(leader)
            self._pass_on()
            raise
        group = list(self._queue)
        self._queue.clear()
        for job in group:
            job.begun = True
        try:
            await self._write_group(connection, group)
        except BaseException as error:  # nobody may be left asleep, whatever happens
            for job in group:
                job.error = job.error or error
            self._disconnect()
        finally:
            self._lock.release()
            for job in group:
                job.done = True
                job.wake()
            self._pass_on()

    def _pass_on(self) -> None:
        self._has_leader = bool(self._queue)
        if self._queue:
            self._queue[0].wake()

    async def _gather(self) -> None:
        for _ in range(GATHER_TICKS_MAX):
            waiting = len(self._queue)
            await trio.lowlevel.checkpoint()
            if len(self._queue) == waiting:
                return

    async def _write_group(self, connection: sqlite3.Connection, group: list[_Job]) -> None:
        """Do the jobs, commit what succeeded, and apply it, in order."""
        shared: dict[Any, Any] = {}
        for job in group:
            self._do(job, Transaction(connection, shared), alone=len(group) == 1)
        if not connection.in_transaction:  # SQLite has undone all of it because of one of them
            cause = next(job.error for job in reversed(group) if job.error is not None)
            for job in group:
                job.error = job.error or type(cause)(*cause.args)
        written = [job for job in group if job.error is None]
        try:
            if written:
                inline = self._synchronous != "FULL" and not any(job.heavy for job in written)
                await self._commit(connection, inline=inline)
            else:
                self._roll_back(connection)
        except sqlite3.Error as error:
            self._roll_back(connection)
            is_undone = result_code(error) == sqlite3.SQLITE_FULL and not any(job.durable for job in written)
            if self.path is not None and not is_undone:
                self._disconnect()
            for job in written:
                job.error = storage_error(error, self.name, "COMMIT") if is_undone else self._uncertain(error)
                job.error.__cause__ = error
            return
        for job in written:
            for apply in job.callbacks:
                apply()

    def _uncertain(self, error: sqlite3.Error) -> StorageUncertainError:
        msg = f"{self.name}: COMMIT failed: {error}; what was written may or may not be stored"
        return StorageUncertainError(f"{msg}: for an event read the session again, for an artifact list its versions")

    def _do(self, job: _Job, transaction: Transaction, *, alone: bool) -> None:
        db = transaction.db
        try:
            if not db.in_transaction:
                return  # undone by what went wrong before
            if not alone:
                db.execute("SAVEPOINT job")
            job.result = job.work(transaction)
            if not alone:
                db.execute("RELEASE job")
            job.callbacks = transaction._callbacks
        except BaseException as error:
            job.error = error
            if isinstance(error, SQLITE_ERRORS):
                job.error = storage_error(error, self.name, "writing")
                job.error.__cause__ = error
            if not alone and db.in_transaction:
                db.execute("ROLLBACK TO job")
                db.execute("RELEASE job")

    async def _commit(self, connection: sqlite3.Connection, *, inline: bool) -> None:
        if inline:
            connection.execute("COMMIT")
        else:
            with trio.CancelScope(shield=True):
                await self._env.run_sync(partial(connection.execute, "COMMIT"))

    # --- beginning and ending

    async def _with_lock(self, work: Callable[[sqlite3.Connection], T], deadline: float, doing: str) -> T:
        """Take the lock and do *work*, keeping it; wait for other processes up to *deadline*, without the lock."""
        pause, longest = BUSY_POLL_S
        while True:
            try:
                self._lock.acquire_nowait()
            except trio.WouldBlock:
                await self._lock.acquire()
            try:
                return work(self._opened())
            except BaseException as error:
                self._lock.release()
                if not isinstance(error, SQLITE_ERRORS):
                    raise
                if not is_busy(error) or trio.current_time() >= deadline:
                    raise storage_error(error, self.name, doing) from error
            await self._env.sleep(pause)
            pause = min(2 * pause, longest)

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that has the name."""
        if self._process != os.getpid():
            msg = f"{self.name}: this call was begun by the process that this one was forked from; call again"
            raise ServiceInUseError(msg)
        if self._connection is not None and self._identity != self._identity_now():
            from ._lost_file import close_lost  # few files are

            connection, self._connection = self._connection, None
            close_lost(connection, self._address, self._log, self._index, self._identity)
            msg = f"{self.name}: the file was deleted or replaced while it was open; put it back, or use another name"
            raise StorageMissingError(msg)
        return self._connection or self._connect()

    def _begin_reading(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            connection.execute("BEGIN")
            connection.execute("PRAGMA user_version").fetchone()  # a plain BEGIN is put off to the first reading
        except BaseException:
            self._roll_back(connection)
            raise
        return connection

    def _begin_writing(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            self._synchronize(connection)
            connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._roll_back(connection)
            raise
        return connection

    def _synchronize(self, connection: sqlite3.Connection) -> None:
        """Set how the next commit waits for the disk: for the most careful of those in the queue."""
        careful = any(job.durable for job in self._queue)
        wanted = SYNCHRONOUS[self._durability] if careful else "NORMAL"
        if wanted != self._synchronous:
            connection.execute(f"PRAGMA synchronous={wanted}")
            self._synchronous = wanted

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """End the transaction, if SQLite has not done so by itself, so that the next one can begin."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            if self.path is None:
                raise  # closing would lose everything
            self._disconnect()  # which rolls back

    # --- opening and closing

    def _connect(self) -> sqlite3.Connection:
        if self.path is None and self.generation:
            msg = f"{self.name}: the database has ended with its connection or is another process's; make a new service"
            raise StorageMissingError(msg)
        if self.path is not None:
            if self.generation and not self.path.exists():
                msg = f"{self.name}: the file was deleted while it was in use; put it back, or use another name"
                raise StorageMissingError(msg)
            check_place(self.path)
            check_untouched(self.path, self._format, self._env)
        connection = self._env.connect(self._address)
        try:
            # A function that holds its connection: it ends when it is closed, and not with the last name for it, which
            # may be given up on the other side of a fork.
            connection.create_function("minirun_held", 0, connection.interrupt)
            [mode] = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal" and self.path is not None:
                msg = (
                    f"{self.name}: SQLite cannot keep a write-ahead log here, as on a network's disk; use another place"
                )
                raise StorageFormatError(msg)
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA synchronous=FULL")
            make_format(connection, self.name, self._format)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._synchronous = "FULL"
        self._identity = self._identity_now()
        self.generation += 1
        return connection

    def _identity_now(self) -> tuple[object, ...]:
        """What tells the file and its log from others of the same name."""
        if self.path is None:
            return ()
        try:
            file, log, index = os.stat(self._address), os.stat(self._log), os.stat(self._index)
        except OSError:
            return (None,)
        return (file.st_dev, file.st_ino, index.st_ino, log.st_ino)

    async def close(self) -> None:
        """Close the connection; a database in memory is gone."""
        self._disconnect()

    def __del__(self) -> None:
        self._disconnect()  # closing is a courtesy: a file that nobody closed is closed with its last user

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            connection.close()
