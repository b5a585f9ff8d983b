"""Deleting a session: what goes with it, and what it leaves to others."""

from __future__ import annotations

from typing import Final

from ..._postgres._values import Statement
from .._key import SessionKey
from ._artifacts import DELETE_ARTIFACTS
from ._cache import FIND, PASTS
from ._database import Database
from ._leases import CHANNEL
from ._rows import row_of
from ._session import Row

__all__ = ["delete_session"]

# How long one statement may take: a million events are deleted in some ten seconds.
DELETE_S: Final = 300.0

# The session's row is locked, so nobody writes there, and no fork of it begins; its own log goes before the counter is
# locked, because that may take a while.
_HOLD: Final = Statement(
    "hold",
    "SELECT FROM minirun.sessions WHERE app_name = $1 AND user_id = $2 AND session_id = $3 FOR UPDATE",
    "text text text",
)
_DELETE_LOG: Final = Statement(
    "delete_log",
    """
    DELETE FROM minirun.events WHERE log = $1
    AND seq > coalesce((SELECT max(last_seq) FROM minirun.shared_pasts WHERE log = $1 AND session <> $1), -1)
    """,
    "int8",
)
_DELETE_MESSAGES: Final = Statement("delete_messages", "DELETE FROM minirun.events WHERE log = -$1", "int8")
_LOCK_COUNTER: Final = Statement("lock_counter", "SELECT FROM minirun.store FOR UPDATE")
# The shared scopes no longer depend on the deltas of a session that is about to go: their whole values are the base,
# from the newest number on (promise P4).
_WRITE_BASE: Final = Statement(
    "write_base",
    """
    INSERT INTO minirun.shared_base (app_name, user_id, commit_no, value)
    SELECT $1, u.user_id, (SELECT commit_no FROM minirun.store), '{' || coalesce(
        string_agg('"' || coalesce(t.name, substr(t.key, 2)) || '":' || t.value, ',' ORDER BY t.key), ''
    ) || '}'
    FROM (VALUES (''), ($2)) AS u(user_id)
    LEFT JOIN minirun.shared_state t ON t.app_name = $1 AND t.user_id = u.user_id AND t.value IS NOT NULL
    GROUP BY u.user_id
    ON CONFLICT (app_name, user_id) DO UPDATE SET commit_no = excluded.commit_no, value = excluded.value
    """,
    "text text",
)
_DELETE_ROWS: Final = tuple(
    Statement(f"delete_{table}", f"DELETE FROM minirun.{table} WHERE {column} = $1", "int8")
    for table, column in (
        ("session_state", "session"),
        ("open_calls", "session"),
        ("invocations", "session"),
        ("shared_pasts", "session"),
        ("sessions", "id"),
    )
)
# What a deleted session has logged goes when no fork shows it any more. Under the counter's lock: of two that go at the
# same moment, one sees that the other is gone.
_DELETE_PASTS: Final = Statement(
    "delete_pasts",
    """
    DELETE FROM minirun.events e USING (
        SELECT l.log, coalesce((SELECT max(p.last_seq) FROM minirun.shared_pasts p WHERE p.log = l.log), -1) AS kept
        FROM unnest($1::int8[]) AS l(log) WHERE NOT EXISTS (SELECT FROM minirun.sessions s WHERE s.id = l.log)
    ) gone WHERE e.log = gone.log AND e.seq > gone.kept
    """,
    "int8[]",
)
_TELL: Final = Statement("tell", f"SELECT pg_notify('{CHANNEL}', $1::text)", "int8")


async def delete_session(database: Database, key: SessionKey, owner: str, *, gone: str | None) -> Row | None:
    """
    Delete the session, unless another worker is running it: then its row is returned.

    *owner* is this worker, *gone* another one whose lease is over.
    """
    place = (key.app_name, key.user_id, key.session_id)
    await database.ready()
    async with database.pool.transaction(slow_s=DELETE_S) as transaction:
        _, found, pasts = await transaction.run(_HOLD(*place), FIND(owner, *place), PASTS(*place))
        if not found.rows:
            return None
        row = row_of(database.name, found.rows[0])
        if not row.is_free and row.owner != gone:
            return row
        logs = [log for _, _, log in pasts.rows]
        await transaction.run(
            _DELETE_LOG(row.id),
            _DELETE_MESSAGES(row.id),
            _LOCK_COUNTER(),
            _WRITE_BASE(key.app_name, key.user_id),
            *(statement(row.id) for statement in _DELETE_ROWS),
            DELETE_ARTIFACTS(*place),
            _DELETE_PASTS(logs),
            _TELL(row.id),
        )
    return None
