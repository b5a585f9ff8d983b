"""
Which process runs a session: the leases of a file.

The lease of a session (owner, expiry, epoch) stands in its row. A run's first append takes it, `epoch + 1`; from then
on an append of any other epoch is stale. An append from outside of runs takes no lease, but ends one that has expired.
Expiry decides who may try, the epoch who may write.

A lease has its expiry on two clocks. Processes of one boot of a machine share a steady clock, which neither a step of
the wall clock nor a suspended machine moves; they go by that. The wall clock decides for others, and where no boot is
known. The owner of a row is so a text of three parts, `owner:boot:expiry on the steady clock`, or of the first alone.
"""

from __future__ import annotations

from pathlib import Path

from ...env import Env
from ...errors import StorageReadOnlyError
from ._owner_lock import OwnerLock, lock_files
from ._rows import Row

__all__ = ["LEASE_S", "RENEW_EVERY_S", "Leases"]

# A lease outlives three missed renewals by a margin; a host whose loop stands still for longer loses it.
LEASE_S = 30.0
RENEW_EVERY_S = 8.0


class Leases:
    """One service's leases of sessions in the file *path* (None: a database in memory), and those of others."""

    def __init__(self, path: Path | None, env: Env) -> None:
        self._path = path
        self._env = env
        self.lock: OwnerLock | None = None
        self.begin_here()
        self.renew_every_s = None if path is None else RENEW_EVERY_S
        self._outlived: dict[int, tuple[int, float]] = {}  # leases of others that are over whatever the clock says

    def begin_here(self) -> None:
        """Be an owner of this process, which may be a fork of another owner's."""
        if self.lock is not None:
            self.lock.release()
        self.lock = None
        self.owner = self._env.new_id("owner")[:16]
        self._boot = "" if self._path is None else self._env.boot()
        self.running: set[tuple[int, str]] = set()  # this process's invocations that run, by session and id

    def is_mine(self, row: Row) -> bool:
        """Whether the session's lease is this service's."""
        return row.owner is not None and row.owner.partition(":")[0] == self.owner

    def is_free(self, row: Row) -> bool:
        """Whether no other living owner has the session. Within this process the gate decides."""
        if row.owner is None or row.expires is None or self.is_mine(row):
            return True
        owner, boot, until = (*row.owner.split(":"), "", "")[:3]
        if self._env.steady() >= float(until) if boot and boot == self._boot else self._env.now() >= row.expires:
            return True
        if self._outlived.get(row.id) == (row.epoch, row.expires):
            return True
        from ._dead_owners import owner_is_gone  # few sessions are another process's; so it is below

        return self._path is not None and owner_is_gone(self._path, owner)

    def taken(self) -> tuple[str, float]:
        """The owner, and when its lease expires on the wall clock, of a row whose lease is taken or renewed now."""
        until = f":{self._boot}:{self._env.steady() + LEASE_S!r}" if self._boot else ""
        return f"{self.owner}{until}", self._env.now() + LEASE_S

    def lock_owner(self) -> None:
        """
        Show that this process lives, before its first lease.

        Raises:
            StorageReadOnlyError: Its lock file cannot be made.
        """
        if self.lock is None and self._path is not None:
            try:
                if lock_files(self._path):
                    from ._dead_owners import remove_dead_locks

                    remove_dead_locks(self._path)
                self.lock = OwnerLock(self._path, self.owner)
            except OSError as error:
                msg = f"{self._path}: cannot make a lock file beside it: {error}; make the folder writable"
                raise StorageReadOnlyError(msg) from error

    def release(self) -> None:
        """Give all leases up."""
        if self.lock is not None:
            self.lock.release()
