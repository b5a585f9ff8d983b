"""Waiting for the lease of another process to end."""

from __future__ import annotations

import trio

from ._leases import LEASE_S, Leases
from ._rows import Row

__all__ = ["LEASE_POLL_S", "LeaseWait"]

# How often a waiting process looks whether the lease is free: the first pause and the longest.
LEASE_POLL_S = (0.01, 0.25)


class LeaseWait:
    """
    Waiting for the lease of another process to end.

    Its time of expiry is on the wall clock, which may have been set back since, or be another machine's. A living owner
    renews its lease every few seconds; so one that stays the same for as long as a lease lasts, on our own steady
    clock, is over whatever the time of expiry says.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._pause_s, self._longest_s = LEASE_POLL_S
        self._lease: tuple[int, float] | None = None
        self._since: float  # when the lease was first seen so

    async def sleep(self, row: Row) -> None:
        """Sleep until it is time to look again at the session, of which *row* was found."""
        assert row.expires is not None, "a session without a lease is free"
        lease, now = (row.epoch, row.expires), trio.current_time()
        if lease != self._lease:
            self._lease, self._since = lease, now
        elif now - self._since >= LEASE_S:
            self._leases._outlived[row.id] = lease
        await self._leases._env.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s)
