"""
Is the process that owns a lease still there?

Each service that writes a file holds an OS lock on a small file of its own beside it (`chat.db-owner-3f…`). The lock
dies with the process, however it dies. Whoever finds a lease of another owner tries that owner's lock: if it can be
had, the owner is gone and its lease counts as expired at once. Expiry and this question only decide who may *try*;
who may write is decided by the lease's epoch, inside the transaction.

Where there are no such locks (no `fcntl`), only the expiry time decides.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from ..._files import open_private
from ..._json import brief
from ._errors import damage

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]  # the functions below ask for it

__all__ = ["OwnerLock", "is_owner", "owner_is_gone", "remove_dead_locks"]

# What an owner can be called: a part of a file's name. Whatever else stands in a file was not written by us.
_OWNER = re.compile(r"[0-9A-Za-z_.-]{1,64}")


class OwnerLock:
    """This service's sign of life, from its first lease to its closing."""

    def __init__(self, database: Path, owner: str) -> None:
        self._file = -1
        self._process = os.getpid()  # a fork of it has the object, too, and is somebody else
        self._path = _lock_path(database, owner)
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
        try:
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except FileNotFoundError:
            pass
        os.close(file)


def is_owner(name: object) -> bool:
    """Whether an owner can be called so."""
    return isinstance(name, str) and _OWNER.fullmatch(name) is not None


def owner_is_gone(database: Path, owner: str) -> bool:
    """
    Whether the process behind *owner* has certainly ended. Sweeps up the file that a dead one has left.

    Raises:
        sqlite3.DatabaseError: Nobody is called so: the file is damaged.
    """
    if not is_owner(owner):
        raise damage(f"an owner is called {brief(owner)}")
    if fcntl is None:
        return False
    path = _lock_path(database, owner)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that ask at once do not mislead each other
    except OSError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(file)


def remove_dead_locks(database: Path) -> None:
    """Delete the files that dead processes have left."""
    for path in database.parent.glob(f"{glob.escape(database.name)}-owner-*"):
        owner = path.name.removeprefix(f"{database.name}-owner-")
        if is_owner(owner):
            owner_is_gone(database, owner)


def _lock_path(database: Path, owner: str) -> Path:
    return database.with_name(f"{database.name}-owner-{owner}")
