"""Closing the connection to a file that was deleted or replaced below it, without harm to what is there now."""

from __future__ import annotations

import os
import sqlite3
from typing import Final

__all__ = ["close_lost"]

# Connections that could not be closed without harm to files that are not theirs any more (Python 3.11). As long as they
# are open, SQLite takes a log that was swapped below the same file for damage: then only a new process can go on.
_NEVER_CLOSED: Final[list[sqlite3.Connection]] = []


def close_lost(connection: sqlite3.Connection, file: str, log: str, index: str, identity: tuple[object, ...]) -> None:
    """
    Close the connection to *file*, which had this *identity* when it was opened, with its *log* and *index*.

    Where the file is still ours, and its log has lost its name to nothing else, what is in the log, still open, is
    written into the file. Else what has the names now is left alone.
    """
    # The last one to close checks in the log and deletes it, by name. Python 3.12 and later can switch it off.
    option = getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE", None)
    if not _has_lost_its_log(file, log, index, identity):
        if option is None:
            _NEVER_CLOSED.append(connection)
            return
        connection.setconfig(option, True)  # type: ignore[attr-defined]  # not in 3.11
    connection.close()


def _has_lost_its_log(file: str, log: str, index: str, identity: tuple[object, ...]) -> bool:
    """Whether the file is still ours, and its log has lost its name to nothing else."""
    try:
        found = os.stat(file)
    except OSError:
        return False
    if (found.st_dev, found.st_ino) != identity[:2] or os.path.lexists(log):
        return False
    return not os.path.lexists(index) or (len(identity) > 2 and os.stat(index).st_ino == identity[2])
