"""
Which worker runs a session: the leases of a database, and this worker's sign of life.

The lease of a session (owner, expiry, epoch) stands in its row. A run's first append takes it, `epoch + 1`; from then
on an append of any other epoch is stale. An append from outside of runs takes no lease, but ends one that is over.
Expiry decides who may try, the epoch who may write: `_statement` compares it.

All times are those of the database's clock, so that of no worker matters.

A worker's sign of life is an advisory lock on its name, held by its one long connection. The server gives it up when
the connection ends, that is at once when the process has died; then the worker's sessions are free. The connection of a
worker that is stopped, or cut off from the network, stays for a while: then the expiry decides. One whose connection
alone was lost goes on; somebody may have taken its sessions by then, and it finds that by the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from ..._postgres._listener import Bell, Listener
from ..._postgres._values import Call, Statement
from ...env import Env
from .._invocation import InvocationStatus
from .._store import SessionWriter
from ._database import Database
from ._rows import stored_status
from ._session import Row
from ._text import stored_key

__all__ = ["CHANNEL", "HURRIED_HOLD", "LEASE_S", "RENEW_EVERY_S", "WORK", "End", "LeaseWait", "Leases"]

# A lease outlives three missed renewals by a margin; a host whose loop stands still for longer loses it.
LEASE_S: Final = 30.0
RENEW_EVERY_S: Final = 8.0

CHANNEL: Final = "minirun_sessions"
"""What tells of sessions that are free now: the payload is the session's number."""
WORK: Final = "minirun_work"
"""What tells supervisors that a worker has left an invocation to them."""

# How often a worker that waits for a session looks at it, if it hears nothing: the first pause and the longest. A
# worker that dies tells nobody.
LEASE_POLL_S: Final = (0.05, 1.0)

_ALIVE: Final = Statement("alive", "SELECT pg_advisory_lock(hashtextextended($1, 0))", "text", once=True)
# What a power cut may take back without harm waits for no disk.
_HURRIED: Final = Statement("hurried", "SELECT set_config('synchronous_commit', 'off', true)")
_RENEW: Final = Statement(
    "renew",
    """
    WITH held AS (
        SELECT s.id FROM unnest($3::int8[], $4::int8[]) AS w(id, epoch) JOIN minirun.sessions s ON s.id = w.id
        WHERE s.lease_epoch = w.epoch AND s.lease_owner = $1 ORDER BY s.id FOR NO KEY UPDATE OF s
    )
    UPDATE minirun.sessions s SET lease_expires = now() + $2 * interval '1 s' FROM held WHERE s.id = held.id
    """,
    "text float8 int8[] int8[]",
)
# In one transaction with the two after it, which see what was committed before the session's row was locked: the
# sender of a message locks it, too (`_messages`).
HURRIED_HOLD: Final = Statement(
    "hurried_hold",
    "SELECT set_config('synchronous_commit', 'off', true) FROM minirun.sessions WHERE id = $1 FOR NO KEY UPDATE",
    "int8",
)
_END_UNCALLED: Final = Statement(
    "end_uncalled",
    """
    UPDATE minirun.invocations SET status = $4, end_seq = greatest(seq, $5)
    WHERE session = $1 AND invocation_id = $3 AND epoch = $2
        AND NOT EXISTS (SELECT FROM minirun.events e WHERE e.log = -$1)
        AND EXISTS (SELECT FROM minirun.sessions s WHERE s.id = $1 AND s.lease_epoch = $2)
    RETURNING true
    """,
    "int8 int8 text text int8",
)
_LEAVE_ENDED: Final = Statement(
    "leave_ended",
    f"""
    UPDATE minirun.sessions s SET lease_owner = NULL, lease_expires = NULL
    WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3 AND NOT EXISTS (
        SELECT FROM minirun.invocations i
        WHERE i.session = $1 AND i.invocation_id = $4 AND i.epoch = $2 AND i.status = 'running'
    )
    RETURNING pg_notify('{CHANNEL}', $1::text)
    """,
    "int8 int8 text text",
)
_LEAVE: Final = Statement(
    "leave",
    f"""
    UPDATE minirun.sessions SET lease_owner = NULL, lease_expires = NULL
    WHERE id = $1 AND lease_epoch = $2 AND lease_owner = $3
    RETURNING pg_notify('{CHANNEL}', $1::text)
    """,
    "int8 int8 text",
)
# The worker that has claimed it (`_work`) has begun it by now.
_UNCLAIM: Final = Statement(
    "unclaim", "DELETE FROM minirun.claims WHERE session = $1 AND invocation_id = $2 AND owner = $3", "int8 text text"
)
_TELL_WORK: Final = Statement(
    "tell_work",
    f"""
    SELECT pg_notify('{WORK}', '') FROM minirun.invocations
    WHERE session = $1 AND invocation_id = $3 AND epoch = $2 AND status = 'running'
    """,
    "int8 int8 text",
)
_END: Final = Statement(
    "end_run",
    """
    UPDATE minirun.invocations SET status = $4, end_seq = greatest(seq, $5)
    WHERE session = $1 AND invocation_id = $3 AND epoch = $2
    """,
    "int8 int8 text text int8",
)


class End:
    """How the invocation of a writer has ended, or None: it is left. It may be recorded late."""

    __slots__ = ("_epoch", "_incarnation", "_invocation_id", "revision", "status", "writer")

    def __init__(self, writer: SessionWriter, status: InvocationStatus | None) -> None:
        self.writer = writer
        self._incarnation = writer.live.incarnation
        self._invocation_id = writer.invocation_id
        self._epoch = writer.epoch
        self.revision = writer.live.revision
        self.status = status

    async def record(self, database: Database, owner: str | None) -> None:
        """
        Record it, if nobody has resumed the invocation since; give the lease of *owner* back, if there is one.

        One that is completed is `record_uncalled`, or may be called back (`_messages`).
        """
        await database.write(_HURRIED(), *self.calls(self.status, owner))

    def calls(self, status: InvocationStatus | None, owner: str | None) -> list[Call]:
        """What `record` executes, the session's row first, as appends lock it."""
        calls = []
        place = (self._incarnation, self._epoch, stored_key(self._invocation_id)[0])
        if owner is not None:
            calls.append(_LEAVE(self._incarnation, self._epoch, owner))
            calls.append(_UNCLAIM(place[0], place[2], owner))
        if status is not None:
            calls.append(_END(*place, stored_status(status), self.revision))
        elif owner is not None:
            calls.append(_TELL_WORK(*place))  # unless its end was recorded before
        return calls

    async def record_uncalled(self, database: Database, owner: str | None) -> bool:
        """
        The same for one that is completed, unless messages wait in the session, or a later run has it, which may have
        taken some over: then nothing changes. Return whether it was recorded.
        """
        place = (self._incarnation, self._epoch, stored_key(self._invocation_id)[0])
        assert self.status is not None
        calls = [HURRIED_HOLD(self._incarnation), _END_UNCALLED(*place, stored_status(self.status), self.revision)]
        if owner is not None:
            calls.append(_LEAVE_ENDED(self._incarnation, self._epoch, owner, place[2]))
            calls.append(_UNCLAIM(place[0], place[2], owner))
        results = await database.write(*calls)
        return bool(results[1].rows)


class Leases:
    """One service's leases, and how it waits for those of others."""

    def __init__(self, database: Database, env: Env) -> None:
        self._database = database
        self._env = env
        self._listener: Listener | None = None
        self.lease_s, self.renew_every_s = LEASE_S, RENEW_EVERY_S
        self.begin_here()

    def begin_here(self) -> None:
        """Be a worker of this process, which may be a fork of another one's."""
        if self._listener is not None:
            self._listener.begin_here()
        self.owner = self._env.new_id("owner")[:16]
        self._listener = Listener(self._database.pool, (_ALIVE(self.owner),))
        self.running: set[tuple[int, str]] = set()  # this worker's invocations that run, by session and id

    def close(self) -> None:
        """Give the sign of life up: leases of this worker are over."""
        if self._listener is not None:
            self._listener.close()

    @property
    def listener(self) -> Listener:
        """The worker's one long connection."""
        assert self._listener is not None
        return self._listener

    async def show_life(self) -> None:
        """
        Show that this worker lives, before its first lease and with each renewal.

        Raises:
            StorageError: It cannot. Nothing was stored.
        """
        await self._database.ready()
        await self.listener.ensure()

    async def renew(self, writers: Sequence[SessionWriter]) -> None:
        """Extend the leases of these writers that have one."""
        held = [writer for writer in writers if writer.epoch is not None]
        await self.show_life()
        numbers, epochs = [writer.live.incarnation for writer in held], [writer.epoch for writer in held]
        await self._database.write(_HURRIED(), _RENEW(self.owner, self.lease_s, numbers, epochs))


class LeaseWait:
    """
    Waiting for the lease of another worker to end.

    A living owner renews its lease every few seconds; so one that stays the same for as long as a lease lasts, on our
    own steady clock, is over, even if the clock of the database was set back since.
    """

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._pause_s, self._longest_s = LEASE_POLL_S
        self._lease: tuple[int, str | None, float | None] | None = None
        self._since: float  # when the lease was first seen so

    def is_over(self, row: Row) -> bool:
        """Whether the lease, of which *row* was found, has not changed for as long as one lasts."""
        lease, now = (row.epoch, row.owner, row.expires), trio.current_time()
        if lease != self._lease:
            self._lease, self._since = lease, now
        return now - self._since >= LEASE_S

    async def sleep(self) -> None:
        """Sleep until it is time to look again."""
        await self._bell.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s)
