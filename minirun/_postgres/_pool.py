"""
A few connections for many tasks.

*   At most `size` connections. Tasks that wait for one get it in the order of coming.
*   A connection is made when it is needed. The one that was used last is used next: its statements are prepared.
*   One that the server has closed meanwhile is noticed before anything is sent on it, and replaced.
*   After the first connection was made, a server that is away is tried again for `RECONNECT_S`: it may be restarting.
*   What the server has rolled back by no fault of the statement is executed once more. What only reads is, too, if its
    connection was lost. What writes is never sent again when nobody knows whether it is stored.
*   There is no task. What is between two runs of trio are idle connections.
*   A fork of the process makes its own.

Errors are those of `minirun.errors`, by the table in `_errors`. `sqlstate(error)` tells what the server has said.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ..errors import ServiceClosedError, ServiceInUseError, StorageConnectionError
from ._connection import Bounds, Connect, Connection, ConnectionLostError, ServerError
from ._errors import RETRY, typed_error
from ._server import check_pooler, prepare_connection
from ._target import shown_url
from ._values import Call, Result, Statement

if TYPE_CHECKING:
    from ..env import Env

__all__ = ["Pool", "Transaction"]

POOL_SIZE: Final = 8

# A restart of a server takes a few seconds; a failover may take longer, and is seen.
RECONNECT_S = 10.0
RECONNECT_PAUSES_S = (0.05, 1.0)  # the first and the longest
# What was rolled back for another transaction (a deadlock) lets it through first: at once, it may take a lock again
# before the other one has woken, and both stand as before.
STAND_BACK_S = 0.05

_BEGIN: Final = Statement("begin", "BEGIN ISOLATION LEVEL READ COMMITTED")
_BEGIN_SNAPSHOT: Final = Statement("begin_snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_COMMIT: Final = Statement("commit", "COMMIT")
_ROLLBACK: Final = Statement("rollback", "ROLLBACK")
_SLOW: Final = Statement("slow", "SELECT set_config('statement_timeout', $1, true)", "text")
# Who reads for long also thinks, or writes elsewhere, between two statements; it holds no lock.
_SLOW_SNAPSHOT: Final = Statement(
    "slow_snapshot",
    "SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true)",
    "text",
)


class Pool:
    """
    The connections of one service to one database.

    Args:
        url: `postgresql://...`; what it leaves out, libpq takes from `PG...` variables and its files.
        size: How many connections at most. The one of a `Listener` is not among them.

    Raises:
        ConfigurationError: The URL is none that libpq can read.
        ModuleNotFoundError: psycopg is not installed.
    """

    def __init__(self, url: str, env: Env, *, size: int = POOL_SIZE, bounds: Bounds | None = None) -> None:
        self._url = url
        self._env = env
        self._size = size
        self.bounds = Bounds() if bounds is None else bounds
        self.name = shown_url(url)
        """What messages call the database."""
        self._connect: Connect = env.postgres()
        from ._libpq import options_of  # where psycopg is missing, Env has said so

        options_of(url, self.bounds)
        self._was_open = False
        self._is_closed = False
        self._all: set[Connection] = set()
        self.begin_here()

    def begin_here(self) -> None:
        """Serve this process, which may be a fork of the one that has opened the connections."""
        for connection in self._all:
            connection.abandon()
        self._process = os.getpid()
        self._all.clear()
        self._idle: list[Connection] = []
        self._taken = 0
        self._line = trio.lowlevel.ParkingLot()

    async def read(self, *calls: Call, slow_s: float | None = None) -> list[Result]:
        """
        Execute statements that only read, in one round trip, and return a result for each.

        Cancellable at any time. Each statement has its own view of the database; `transaction(snapshot=True)` has one
        for all. With *slow_s* the server may take so long for each, and not only `Bounds.statement_s`.

        Raises:
            StorageError: One whose `stored` is False.
        """
        return await self._execute(calls, writes=False, slow_s=slow_s)

    async def write(self, *calls: Call, slow_s: float | None = None) -> list[Result]:
        """
        Execute statements as one transaction, in one round trip, and return a result for each.

        All of them are stored when this returns, or none. Cancellable until they are sent. After that a cancelled
        task waits for the answer, `Bounds.grace_s` at most, and returns it.

        Raises:
            StorageUncertainError: They were sent, and no answer has come. They may still be executed: what is written
                under a lock that the caller takes next, or with another revision or epoch, comes after them.
            StorageError: Nothing was stored.
        """
        return await self._execute(calls, writes=True, slow_s=slow_s)

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False, slow_s: float | None = None) -> AsyncIterator[Transaction]:
        """
        A transaction of several round trips, for what must look before it writes. It is committed where the block ends.

        A block that is left by an exception, or is cancelled, rolls it back. With *snapshot* it only reads, and all of
        it sees one state of the database; with both, it may also be idle for *slow_s*. Nothing is done again.

        The caller is protected from Ctrl-C: a KeyboardInterrupt on the way into the block or out of it would lose the
        connection, and the right to it, for ever.

        Raises:
            StorageUncertainError: COMMIT was sent, and no answer has come.
            StorageError: Nothing was stored.
        """
        async with self._taking():
            connection = await self._connection()
            transaction = Transaction(self, connection, snapshot=snapshot, slow_s=slow_s)
            try:
                try:
                    yield transaction
                except BaseException:
                    await transaction._roll_back()
                    raise
                await transaction._commit()
            finally:
                self._give_back(connection)

    def is_busy(self) -> bool:
        """Whether every connection is in use and somebody waits for one."""
        return bool(self._line)

    def close(self) -> None:
        """Close the connections. Those in use are closed when they are given back."""
        self._is_closed = True
        for connection in self._idle:
            self._forget(connection)
        self._idle.clear()

    # --- executing

    @trio.lowlevel.enable_ki_protection  # as `transaction` says
    async def _execute(self, calls: Sequence[Call], *, writes: bool, slow_s: float | None) -> list[Result]:
        doing = "writing" if writes else "reading"
        if slow_s is not None:
            calls = (_SLOW(f"{round(1000 * slow_s)}ms"), *calls)
        answer_s = None if slow_s is None else slow_s + self.bounds.answer_s - self.bounds.statement_s
        async with self._taking():
            for is_last in (False, True):
                try:
                    results = await self._run(calls, withdraw=not writes, answer_s=answer_s)
                    return results if slow_s is None else results[1:]
                except (ConnectionLostError, ServerError) as error:
                    again = error.sqlstate in RETRY if isinstance(error, ServerError) else not writes
                    if is_last or not again:
                        raise typed_error(error, self.name, doing, writes=writes) from error
                    if isinstance(error, ServerError) and error.sqlstate != "26000":
                        await self._env.sleep(STAND_BACK_S)
        raise AssertionError("the second time either returns or raises")

    async def _run(self, calls: Sequence[Call], *, withdraw: bool, answer_s: float | None) -> list[Result]:
        """Run them once."""
        connection = await self._connection()
        try:
            return await connection.run(calls, withdraw=withdraw, answer_s=answer_s)
        except ServerError as error:
            if error.sqlstate == "26000":  # what was prepared is gone: so is what else a connection keeps
                connection.close()
            raise
        finally:
            self._give_back(connection)

    # --- connections

    @asynccontextmanager
    async def _taking(self) -> AsyncIterator[None]:
        """The right to one of the connections, in the order of coming."""
        self._check()
        if self._taken >= self._size:
            await self._line.park()  # who leaves passes the right on
        else:
            self._taken += 1
        try:
            yield
        finally:
            if self._process == os.getpid():
                if self._line:
                    self._line.unpark()
                else:
                    self._taken -= 1

    def _check(self) -> None:
        if self._is_closed:
            msg = f"{self.name}: the connections were closed; make a new service"
            raise ServiceClosedError(msg)
        if self._process != os.getpid():
            msg = f"{self.name}: this call was begun by the process that this one was forked from; call again"
            raise ServiceInUseError(msg)

    async def _connection(self) -> Connection:
        """An idle connection that is alive, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_alive():
                return connection
            self._forget(connection)
        return await self.connect()

    def _give_back(self, connection: Connection) -> None:
        if connection.is_open and not connection.in_transaction and not self._is_closed:
            self._idle.append(connection)
        else:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        connection.close()
        self._all.discard(connection)

    async def connect(self) -> Connection:
        """
        Make a connection that is checked and set up. It is the caller's, who ends it by `release`.

        Raises:
            StorageError: There is none. Its `stored` is False.
        """
        pause, longest = RECONNECT_PAUSES_S
        give_up = self._env.steady() + RECONNECT_S
        while True:
            try:
                return await self._connect_once()
            except StorageConnectionError:
                if not self._was_open or self._env.steady() >= give_up:
                    raise
            await self._env.sleep(pause)
            pause = min(2 * pause, longest)

    async def _connect_once(self) -> Connection:
        self._check()
        connection = await self._connect(self._url, self.bounds)
        self._all.add(connection)
        try:
            has_pooler = await prepare_connection(connection, self.bounds, self.name)
            if has_pooler and not self._was_open:
                await check_pooler(connection, partial(self._connect, self._url, self.bounds), self.name)
        except (ConnectionLostError, ServerError) as error:
            self.release(connection)
            raise typed_error(error, self.name, "connecting", writes=False) from error
        except BaseException:
            self.release(connection)
            raise
        self._was_open = True
        return connection

    def release(self, connection: Connection) -> None:
        """Close a connection of `connect`."""
        self._forget(connection)


class Transaction:
    """What a block works in; see `Pool.transaction`. BEGIN is sent with the first statements."""

    def __init__(self, pool: Pool, connection: Connection, *, snapshot: bool, slow_s: float | None) -> None:
        self._pool = pool
        self._connection = connection
        self._snapshot = snapshot
        self._slow_s = slow_s
        self._has_begun = False
        self._has_failed = False

    async def run(self, *calls: Call) -> list[Result]:
        """
        Execute statements in one round trip, and return a result for each. Cancellable: the transaction is rolled back.

        Raises:
            StorageError: One whose `stored` is False; the transaction is rolled back where the block ends.
        """
        assert not self._has_failed, "the transaction has failed; leave the block"
        first: list[Call] = []
        answer_s = None
        if not self._has_begun:
            first.append(_BEGIN_SNAPSHOT() if self._snapshot else _BEGIN())
        if self._slow_s is not None:
            answer_s = self._slow_s + self._pool.bounds.answer_s - self._pool.bounds.statement_s
            if first:
                slow = _SLOW_SNAPSHOT if self._snapshot else _SLOW
                first.append(slow(f"{round(1000 * self._slow_s)}ms"))
        self._has_begun = True
        try:
            results = await self._connection.run((*first, *calls), withdraw=True, answer_s=answer_s)
        except (ConnectionLostError, ServerError) as error:
            self._has_failed = True
            doing = "reading" if self._snapshot else "writing"
            raise typed_error(error, self._pool.name, doing, writes=False) from error  # there was no COMMIT
        except BaseException:
            self._has_failed = True
            raise
        return results[len(first) :]

    async def _commit(self) -> None:
        if not self._has_begun:
            return
        assert not self._has_failed, "the transaction has failed, and its block did not"
        try:
            await self._connection.run((_COMMIT(),), withdraw=False)
        except (ConnectionLostError, ServerError) as error:
            raise typed_error(error, self._pool.name, "COMMIT", writes=not self._snapshot) from error

    async def _roll_back(self) -> None:
        """End the transaction within the bound; else the connection is closed, which ends it, too."""
        if self._connection.in_transaction:
            with trio.CancelScope(shield=True):
                try:
                    await self._connection.run((_ROLLBACK(),), withdraw=False, answer_s=self._pool.bounds.grace_s)
                except (ConnectionLostError, ServerError):
                    self._connection.close()
