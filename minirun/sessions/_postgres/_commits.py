"""
Group commit: the appends that wait in this process go out as one statement.

There is no task for that. The first that waits leads: it lets others join as long as more come with each tick, takes
all of them, and sends. Those who come meanwhile make the next group, and the first of them leads that.

*   An append is cancellable until its group is sent, and shielded from there to the answer, which the driver's bounds
    limit. Nothing checkpoints after the answer.
*   Groups of one process go over one connection of their own, one after the other: the counter's lock would let them
    wait for each other anyway, and no reading waits for a disk.
*   Stored first, applied second: the live sessions are advanced in the order of the numbers, before anybody is woken.
    What others have committed to the shared scopes that the group has written to comes with the same answer, read under
    the counter's lock.
*   A member that is not in the answer was stale; it alone is told. One that the server's functions refuse is taken out,
    and the others are sent again: nothing of the statement was stored. A deadlock or a serialization failure is tried
    once more.
*   A connection that is lost between sending and answer leaves open whether the group is stored.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from ..._postgres._connection import Connection, ConnectionLostError, ServerError
from ..._postgres._errors import RETRY, typed_error
from ..._postgres._values import Call
from ...errors import StorageError
from .._queued import Queued
from .._scoped import CachedScope
from ._append import Append
from ._database import Database
from ._schema import REFUSED_OPERATION, REFUSED_RUN, SEPARATOR
from ._state import NO_USER, news_call, operation_error, take_news
from ._statement import Rows, append_call
from ._text import read_key

__all__ = ["Commits"]

# A leader lets others join as long as more come with each tick of the loop; what is ready to run arrives within a few.
GATHER_TICKS_MAX: Final = 8
# A statement is read whole before it is executed, by both sides. Larger groups are no faster.
GROUP_MAX: Final = 256
GROUP_CHARS_MAX: Final = 4_000_000


class _Job(Queued):
    """An append that waits."""

    __slots__ = ("append", "is_stored")

    def __init__(self, append: Append) -> None:
        super().__init__()
        self.append = append
        self.is_stored = False


class Commits:
    """
    The appends of one service.

    Args:
        owner: What the leases of this worker are called.
        lease_s: How long one lasts, in seconds.
        stored: Is called for each append that was stored and applied.
    """

    def __init__(
        self, database: Database, owner: Callable[[], str], lease_s: float, stored: Callable[[Append], None]
    ) -> None:
        self._database = database
        self._owner = owner
        self._lease_s = lease_s
        self._stored = stored
        self._connection: Connection | None = None
        self.begin_here()

    def begin_here(self) -> None:
        """Serve this process, which may be a fork of the one before."""
        self._connection = None  # the pool has abandoned it
        self._queue: deque[_Job] = deque()
        self._has_leader = False
        self._answers = trio.lowlevel.ParkingLot()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._database.pool.release(connection)

    async def answered(self) -> None:
        """Wait until the group that was sent is answered."""
        await self._answers.park()

    @trio.lowlevel.enable_ki_protection
    async def store(self, append: Append) -> bool:
        """
        Store and apply it, and return True; False if the session is not what it stands on: then nothing was stored.

        Raises:
            InvalidValueError: An operation does not fit the shared state.
            StaleSessionError: The invocation that it begins has been ended.
            StorageError: See the class for what it says about the event.
        """
        job = _Job(append)
        self._queue.append(job)
        if self._has_leader:
            await job.wait(self._queue)
        if not job.done:
            self._has_leader = True
            await self._lead(job)
        if job.error is not None:
            raise job.error
        return job.is_stored

    async def _lead(self, leader: _Job) -> None:
        """Send all that wait, and let the first of those who came meanwhile lead the next group."""
        try:
            await self._gather()
            connection = await self._connected()
        except StorageError as error:  # nobody is better off: each would wait as long for the same server
            waiting = self._take_all()
            self._fail(waiting, error)
            for job in waiting:
                job.done = True
                job.wake()
            self._pass_on()
            return
        except BaseException:
            self._queue.remove(leader)
            self._pass_on()
            raise
        group = self._take()
        for job in group:
            job.begun = job.append.live.in_flight = True
        try:
            with trio.CancelScope(shield=True):
                await self._send(connection, group)
        except BaseException as error:  # nobody may be left asleep, whatever happens
            for job in group:
                job.error = job.error or error
            self.close()
        finally:
            for job in group:
                job.append.live.in_flight = False
                job.done = True
                job.wake()
            self._answers.unpark_all()
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

    def _take(self) -> list[_Job]:
        """The next group: from the front of the queue, where its leader is."""
        group: list[_Job] = []
        chars = 0
        while self._queue and len(group) < GROUP_MAX and chars < GROUP_CHARS_MAX:
            job = self._queue.popleft()
            chars += len(job.append.line)
            group.append(job)
        return group

    def _take_all(self) -> list[_Job]:
        waiting = [*self._queue]
        self._queue.clear()
        return waiting

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.is_alive():
            self.close()
        if self._connection is None:
            self._connection = await self._database.connect()
        return self._connection

    # --- one group

    async def _send(self, connection: Connection, group: list[_Job]) -> None:
        """Send until there is an answer for each."""
        members, is_retry = [*group], False
        while members:
            calls, scopes = self._calls(members)
            try:
                results = await connection.run(calls, withdraw=False)
            except ServerError as error:
                refused = _refused(error, members)
                if refused is not None:
                    members.remove(refused)
                    continue
                if error.sqlstate in RETRY and not is_retry:
                    is_retry = True
                    if error.sqlstate == "26000":  # what was prepared is gone, and so is what else a connection keeps
                        self.close()
                        connection = await self._connected()
                    continue
                self._fail(members, error)
                return
            except ConnectionLostError as error:
                self.close()
                if not error.sent and not is_retry:
                    is_retry = True
                    try:
                        connection = await self._connected()
                    except StorageError as away:
                        self._fail(members, away)
                        return
                    continue
                self._fail(members, error)
                return
            self._apply(members, results[0].rows)
            if scopes:
                take_news(self._database.name, scopes, results[1].rows)
            return

    def _calls(self, members: Sequence[_Job]) -> tuple[list[Call], dict[tuple[str, str], CachedScope]]:
        """The statement of a group, and what asks for the news of the shared scopes that it writes to."""
        rows: Rows = defaultdict(list)
        scopes: dict[tuple[str, str], CachedScope] = {}
        for number, job in enumerate(members, 1):
            append, live = job.append, job.append.live
            append.add_rows(number, rows)
            if append.is_shared:
                scopes[live.key.app_name, NO_USER] = live.app
                scopes[live.key.app_name, live.key.user_id] = live.user
        calls = [append_call(self._owner(), self._lease_s, [job.append.member() for job in members], rows)]
        return [*calls, news_call(scopes)] if scopes else calls, scopes

    def _apply(self, members: Sequence[_Job], rows: Sequence[Sequence[Any]]) -> None:
        """Apply what is stored, in the order of the numbers."""
        for place, _, epoch, chain, has_messages, *_ in sorted(rows, key=lambda row: row[1]):
            job = members[place - 1]
            job.is_stored = True
            job.append.apply(epoch, chain, has_messages=has_messages)
            self._stored(job.append)

    def _fail(self, members: Sequence[_Job], error: ServerError | ConnectionLostError | StorageError) -> None:
        """Let each of them fail by an error of its own."""
        for job in members:
            if isinstance(error, StorageError):
                job.error = type(error)(*error.args)
                job.error.__cause__ = error.__cause__
            else:
                job.error = typed_error(error, self._database.name, "storing", writes=True)
                job.error.__cause__ = error


def _refused(error: ServerError, members: Sequence[_Job]) -> _Job | None:
    """The member that one of our functions has refused, with the error it gets; None: the server has refused all."""
    if error.sqlstate not in (REFUSED_OPERATION, REFUSED_RUN):
        return None
    place, *found = error.constraint.split(SEPARATOR)
    job = members[int(place) - 1]
    if error.sqlstate == REFUSED_RUN:
        job.error = job.append.run_error()
    else:
        stored, long_key, value = found
        job.error = operation_error(job.append.event, read_key(stored, long_key or None), value)
    return job
