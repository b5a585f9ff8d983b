"""Whose turn it is, asked of the row of a session that is not as an append expects it."""

from __future__ import annotations

import sqlite3

from ...errors import SessionNotFoundError, StaleSessionError
from .._scoped import ScopedSession
from .._store import ChangedMeanwhileError, SessionWriter
from ._leases import Leases
from ._rows import ROW, Row, row_of

__all__ = ["check_writer"]


def check_writer(
    db: sqlite3.Connection,
    leases: Leases,
    live: ScopedSession,
    writer: SessionWriter | None,
    revision: int,
    mark: bytes,
) -> tuple[Row, int]:
    """
    Return the session's row, and the epoch to write under on top of *revision*, at which its history had this *mark*.

    Raises:
        ChangedMeanwhileError, StaleSessionError: It is not the writer's turn (any more).
        SessionNotFoundError: The session was deleted.
    """
    columns = db.execute(f"SELECT {ROW} FROM sessions s WHERE id = ?", (live.incarnation,)).fetchone()
    if columns is None:
        msg = f"{live.key} was deleted"
        raise SessionNotFoundError(msg)
    row = row_of(columns)
    entered = None if writer is None else writer.epoch
    free = leases.is_free(row) if entered is None else row.epoch == entered
    if free and row.revision == revision and row.chain == mark:
        stays = entered is not None or (writer is None and row.owner is None)
        return row, row.epoch if stays else row.epoch + 1
    if writer is None:
        raise ChangedMeanwhileError
    msg = (
        f"{live.key} was read at revision {revision} and is at {row.revision}: another process has "
        f"{'entered it first' if entered is None else 'taken the session over'}, or the file is another one; "
        "run the message again"
    )
    raise StaleSessionError(msg)
