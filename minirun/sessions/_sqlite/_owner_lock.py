"""
Is the process that owns a lease still there?

Each service that writes a file holds an OS lock on a small file of its own beside it (`chat.db-owner-3f…`). The lock
dies with the process, however it dies. A process that finds a lease of another owner tries that lock: if it can be
had, the owner is gone and its lease counts as expired at once. Expiry and this question only decide who may *try*;
who may write is decided by the lease's epoch, inside the transaction.

Where there are no such locks (no `fcntl`), only the expiry time decides.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from ..._files import open_private

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]  # the functions below ask for it

__all__ = ["OwnerLock", "lock_files", "lock_path"]


class OwnerLock:
    """This service's sign of life, from its first lease to its closing."""

    def __init__(self, database: Path, owner: str) -> None:
        self._file = -1
        self._process = os.getpid()  # a fork of it has the object, too, and is somebody else
        self._path = lock_path(database, owner)
        if fcntl is not None:
            self._file = _locked(self._path)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Give the sign up; leases of this owner count as expired from now on."""
        file, self._file = self._file, -1
        if file >= 0:
            if self._process == os.getpid():
                self._path.unlink(missing_ok=True)
            os.close(file)  # in a fork this gives up the fork's share of the lock: it is its owner's alone again


def _locked(path: Path) -> int:
    """Make the file and lock it. Who sweeps up what dead owners have left may find it in between, and remove it."""
    while True:
        file = open_private(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(file, fcntl.LOCK_EX)  # waits only while somebody looks whether this owner lives
        if os.fstat(file).st_nlink:
            return file
        os.close(file)


def lock_files(database: Path) -> list[Path]:
    """The files of all owners, living or dead."""
    return [*database.parent.glob(f"{glob.escape(database.name)}-owner-*")]


def lock_path(database: Path, owner: str) -> Path:
    """The file of an owner."""
    return database.with_name(f"{database.name}-owner-{owner}")
