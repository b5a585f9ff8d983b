"""
What SQLite's errors mean for an event.

An error before COMMIT says that nothing was stored: the transaction is rolled back, by SQLite or by us. An error of
COMMIT itself says nothing: after a failed fsync, for one, the same connection calls the commit undone and the next
opening of the file finds it done.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ...errors import (
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageReadOnlyError,
    StorageRolledBackError,
)

__all__ = ["ADVICE", "SQLITE_ERRORS", "corrupt", "damage", "is_busy", "result_code", "storage_error"]

# The second is what Python makes of an error message that quotes a damaged schema, the third of a number that would go
# beyond 64 bits: there is none so high that was not in the file.
SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError, OverflowError)

_KINDS: Final[dict[int, type[StorageError]]] = {
    sqlite3.SQLITE_BUSY: StorageBusyError,
    sqlite3.SQLITE_LOCKED: StorageBusyError,
    sqlite3.SQLITE_FULL: StorageFullError,
    sqlite3.SQLITE_TOOBIG: StorageFullError,
    sqlite3.SQLITE_READONLY: StorageReadOnlyError,
    sqlite3.SQLITE_CANTOPEN: StorageFormatError,
    sqlite3.SQLITE_PERM: StorageReadOnlyError,
    sqlite3.SQLITE_CORRUPT: StorageCorruptError,
    sqlite3.SQLITE_NOTADB: StorageFormatError,
}

ADVICE: Final = {
    StorageBusyError: "another process holds the write lock; end it, or try again later",
    StorageFullError: "make room on the disk, or store smaller values",
    StorageReadOnlyError: "let this user read and write the file and its folder",
    StorageCorruptError: (
        "the file is damaged: `minirun sessions verify` shows where; restore a backup, or save what SQLite can read "
        "with `sqlite3 FILE .recover`"
    ),
    StorageFormatError: "choose a file that minirun has made, or a new name",
    StorageRolledBackError: "look after the disk; the transaction was rolled back and can be tried again",
}


def damage(what: str) -> sqlite3.DatabaseError:
    """An error as SQLite raises it for damage: for what only the reader of a row can see to be wrong."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def corrupt(name: str, what: str) -> StorageCorruptError:
    """The error for a file of this name in which *what* makes no sense."""
    return StorageCorruptError(f"{name}: {what:.300}; {ADVICE[StorageCorruptError]}")


def storage_error(error: sqlite3.Error | UnicodeDecodeError | OverflowError, path: str, doing: str) -> StorageError:
    """Return the typed error for what SQLite raised before COMMIT."""
    kind = _KINDS.get(result_code(error), StorageRolledBackError)
    if isinstance(error, sqlite3.DataError):  # larger than SQLite's limit for a value
        kind = StorageFullError
    elif not isinstance(error, sqlite3.Error) or (not result_code(error) and "decode" in str(error)):
        # not UTF-8, which we never wrote
        kind = StorageCorruptError
    return kind(f"{path}: {doing} failed: {error}; {ADVICE[kind]}")


def result_code(error: BaseException) -> int:
    """SQLite's primary result code; 0 if the error is Python's own."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    return result_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
