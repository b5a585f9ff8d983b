"""
What the server's SQLSTATEs mean for what was to be stored.

An error with which the connection goes on says that nothing was stored: Postgres has rolled the transaction back. A
connection that is lost after something was sent says nothing.
"""

from __future__ import annotations

from typing import Final

from ..errors import (
    StorageBusyError,
    StorageConnectionError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageMissingError,
    StorageReadOnlyError,
    StorageRolledBackError,
    StorageUncertainError,
)
from ._connection import ConnectionLostError, ServerError

__all__ = ["ADVICE", "RETRY", "sqlstate", "typed_error"]

# Codes, and classes of codes (the first two characters): https://www.postgresql.org/docs/current/errcodes-appendix.html
_KINDS: Final[dict[str, type[StorageError]]] = {
    "08": StorageConnectionError,
    "08007": StorageUncertainError,  # transaction resolution unknown
    "25006": StorageReadOnlyError,  # a standby, or default_transaction_read_only
    "26000": StorageFormatError,  # a prepared statement is gone
    "28": StorageConnectionError,  # not let in
    "3D000": StorageMissingError,  # no such database
    "3F000": StorageMissingError,  # no such schema
    "40001": StorageBusyError,  # serialization failure
    "40003": StorageUncertainError,  # statement completion unknown
    "40P01": StorageBusyError,  # deadlock
    "42501": StorageReadOnlyError,  # no right
    "42703": StorageMissingError,  # no such column
    "42883": StorageMissingError,  # no such function
    "42P01": StorageMissingError,  # no such table
    "53": StorageFullError,  # disk, memory
    "53300": StorageConnectionError,  # too many connections
    "54": StorageFullError,  # larger than a limit of the server
    "55P03": StorageBusyError,  # lock_timeout
    "57014": StorageBusyError,  # statement_timeout, or somebody has cancelled it
    "57P": StorageConnectionError,  # shutting down, or not yet started
    "XX001": StorageCorruptError,
    "XX002": StorageCorruptError,
}

# Rolled back by no fault of the statement: done once more, it will succeed. Or it was not executed at all, because its
# connection has lost what was prepared.
RETRY: Final = frozenset({"26000", "40001", "40P01"})

ADVICE: Final[dict[type[StorageError], str]] = {
    StorageBusyError: "another transaction is in the way or the server is overloaded; try again later",
    StorageConnectionError: "look whether the server runs and lets this user in; then try again",
    StorageCorruptError: "the server's files are damaged: restore a backup",
    StorageFormatError: "connect to the server itself, or to a pooler in session mode",
    StorageFullError: "make room on the server's disk, or store smaller values",
    StorageMissingError: "restore what was dropped from the database, or use another database",
    StorageReadOnlyError: (
        "connect to the primary server, as the user whose schema 'minirun' is, or make this one a member: "
        "GRANT OWNER TO USER; to make the schema: GRANT CREATE, CONNECT ON DATABASE ... TO USER"
    ),
    StorageRolledBackError: "the transaction was rolled back; look at the server's log",
    StorageUncertainError: "what was written may or may not be stored: read it again",
}


def typed_error(error: ConnectionLostError | ServerError, name: str, doing: str, *, writes: bool) -> StorageError:
    """
    Return the error for callers. Raise it from *error*, where `sqlstate` finds what the server has said.

    What only reads has stored nothing, whether it was sent or not: *writes* says if it does.
    """
    if isinstance(error, ServerError):
        code = error.sqlstate
        kind = _KINDS.get(code) or _KINDS.get(code[:3]) or _KINDS.get(code[:2]) or StorageRolledBackError
        return kind(f"{name}: {doing} failed: {error}; {ADVICE[kind]}")
    kind = StorageUncertainError if error.sent and writes else StorageConnectionError
    return kind(f"{name}: the connection was lost while {doing}: {error}; {ADVICE[kind]}")


def sqlstate(error: BaseException) -> str:
    """Return the server's code for what `typed_error` has made; "" for any other error."""
    return error.__cause__.sqlstate if isinstance(error.__cause__, ServerError) else ""
