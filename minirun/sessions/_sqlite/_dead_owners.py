"""Whether the owner of a lease has died: see `_owner_lock`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..._json import brief
from ._errors import damage
from ._owner_lock import lock_files, lock_path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]  # the function below asks for it

__all__ = ["is_owner", "owner_is_gone", "remove_dead_locks"]

# What an owner can be called: a part of a file's name. Whatever else stands in a file was not written by us.
_OWNER = re.compile(r"[0-9A-Za-z_.-]{1,64}")


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
    path = lock_path(database, owner)
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
        if not os.fstat(file).st_nlink:  # swept up meanwhile: its owner, if it was only about to lock it, has a new one
            return owner_is_gone(database, owner)
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(file)


def remove_dead_locks(database: Path) -> None:
    """Delete the files that dead processes have left."""
    for path in lock_files(database):
        owner = path.name.removeprefix(f"{database.name}-owner-")
        if is_owner(owner):
            owner_is_gone(database, owner)
