"""Deleting a session: what goes with it, and what it leaves to others."""

from __future__ import annotations

import sqlite3
from functools import partial

from ..._json import dumps
from .._key import SessionKey
from .._state import Scope
from ._artifacts import delete_artifacts, scope_of_artifacts
from ._cache import SessionCache
from ._file import Transaction
from ._leases import Leases
from ._logs import newest_no
from ._rows import Row, find_session
from ._state import NO_USER, read_key

__all__ = ["delete_session"]


def delete_session(cache: SessionCache, leases: Leases, key: SessionKey, transaction: Transaction) -> Row | None:
    """Delete the session, unless another process is running it: then its row is returned."""
    db = transaction.db
    row = find_session(db, key)
    if row is not None:
        if not leases.is_free(row):
            return row
        _write_base(db, cache.file.name, key)
        logs = [row.id, *(log for (log,) in db.execute("SELECT log FROM shared_pasts WHERE session = ?", (row.id,)))]
        db.execute("DELETE FROM events WHERE log = ?", (-row.id,))  # the messages that wait
        db.execute("DELETE FROM sessions WHERE id = ?", (row.id,))
        delete_artifacts(db, scope_of_artifacts(key), staged=True)
        for log in logs:
            if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (log,)).fetchone():
                [kept] = db.execute("SELECT max(last_seq) FROM shared_pasts WHERE log = ?", (log,)).fetchone()
                db.execute("DELETE FROM events WHERE log = ? AND seq > ?", (log, -1 if kept is None else kept))
    transaction.after_commit(partial(cache.drop, key))
    return None


def _write_base(db: sqlite3.Connection, name: str, key: SessionKey) -> None:
    """Let the shared scopes no longer depend on the deltas of a session that is about to go (promise P4)."""
    newest = newest_no(db)
    db.execute("UPDATE store SET deleted_no = ?", (newest,))
    for user in (NO_USER, key.user_id):
        rows = db.execute(
            "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL",
            (key.app_name, user),
        )
        scope = Scope.USER if user else Scope.APP
        value = ",".join(f"{dumps(read_key(name, found, scope))}:{data}" for found, data in rows)
        row = (key.app_name, user, newest, f"{{{value}}}")
        db.execute("INSERT OR REPLACE INTO shared_base VALUES (?, ?, ?, ?)", row)
