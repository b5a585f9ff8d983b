"""Reading the invocations that a file has recorded, and whether somebody runs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from ..._values import changed
from .._invocation import Invocation, InvocationStatus, invocation_of
from .._key import SessionKey
from ._errors import corrupt
from ._leases import Leases
from ._rows import ROW, row_of

__all__ = ["INVOCATION", "find_invocations", "stored_invocation"]

# Columns of an invocation, as `stored_invocation` takes them, and of one with its session.
INVOCATION: Final = "i.invocation_id, i.status, i.seq, i.end_seq"
_INVOCATIONS: Final = (
    f"SELECT s.app_name, s.user_id, s.session_id, i.epoch, {INVOCATION}, {ROW}"
    " FROM invocations i JOIN sessions s ON s.id = i.session"
)


def find_invocations(
    db: sqlite3.Connection, name: str, leases: Leases, where: str, parameters: Sequence[object]
) -> list[Invocation]:
    """The invocations of the file *name* that a query finds; those that nobody runs are interrupted."""
    rows = db.execute(f"{_INVOCATIONS} WHERE {where}", parameters).fetchall()
    return [_found(name, leases, columns) for columns in rows]


def _found(name: str, leases: Leases, columns: Sequence[Any]) -> Invocation:
    app, user, session, epoch, *rest = columns
    found = stored_invocation(name, SessionKey(app, user, session), *rest[:4])
    row = row_of(rest[4:])
    if found.status is not InvocationStatus.RUNNING:
        return found
    ours = row.owner == leases.owner and (row.id, found.invocation_id) in leases.running
    theirs = row.owner not in (None, leases.owner) and not leases.is_free(row)
    if epoch == row.epoch and (ours or theirs):
        return found
    return changed(found, status=InvocationStatus.INTERRUPTED)


def stored_invocation(
    name: str, key: SessionKey, invocation_id: str, status: str, seq: int | None, end_seq: int | None
) -> Invocation:
    """
    The invocation of a row, as it is written.

    Raises:
        StorageCorruptError: It makes no sense.
    """
    if status not in InvocationStatus.__members__.values() or type(seq) is not int:
        what = f"has the status {status!r:.80} and begins at {seq!r:.80}"
        raise corrupt(name, f"an invocation of session {key.session_id!r:.80} {what}")
    return invocation_of(key, invocation_id, InvocationStatus(status), seq, end_seq)
