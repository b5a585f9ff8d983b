"""Whose turn it is, asked of the row of a session that is not as an append expects it."""

from __future__ import annotations

from typing import Final

from ..._postgres._values import Statement
from ...errors import SessionNotFoundError, StaleSessionError
from .._store import ChangedMeanwhileError
from ._append import Append
from ._database import Database
from ._rows import ROW, row_of

__all__ = ["look_again"]

_ROW: Final = Statement("row", f"SELECT {ROW} FROM minirun.sessions s WHERE s.id = $2", "text int8")


async def look_again(database: Database, append: Append, owner: str) -> None:
    """
    Let an append that was not stored be tried on the lease as it is now, if that is free; else raise.

    Raises:
        ChangedMeanwhileError, StaleSessionError: It is not its turn (any more).
        SessionNotFoundError: The session was deleted.
    """
    key = append.live.key
    [result] = await database.read(_ROW(owner, append.live.incarnation))
    if not result.rows:
        msg = f"{key} was deleted"
        raise SessionNotFoundError(msg)
    row = row_of(database.name, result.rows[0])
    if not append.has_entered and row.is_free and (row.revision, row.chain) == (append.revision, append.mark):
        append.epoch, append.gone = row.epoch, None if row.is_over else row.owner
        return
    if append.writer is None:
        raise ChangedMeanwhileError
    msg = (
        f"{key} was read at revision {append.revision} and is at {row.revision}: another worker has "
        f"{'taken the session over' if append.has_entered else 'entered it first'}, or the database is another one; "
        "run the message again"
    )
    raise StaleSessionError(msg)
