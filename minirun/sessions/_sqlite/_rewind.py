"""What a rewind needs beside the append of its event: the invocations that it undoes."""

from __future__ import annotations

import sqlite3

from ...events import Event
from .._call_fold import waiting_invocations
from .._past import rewound_invocation
from .._scoped import ScopedSession
from .._store import SessionWriter
from ._queries import INVOCATION, stored_invocation
from ._rows import read_open_calls, stored_status

__all__ = ["rewind_invocations"]


def rewind_invocations(
    db: sqlite3.Connection, name: str, live: ScopedSession, event: Event, writer: SessionWriter | None
) -> None:
    """Let the others of the session be what they were before what is undone; what has begun in it is over."""
    target = event.actions.rewind_before_seq
    assert target is not None
    assert event.seq is not None
    waiting = waiting_invocations(read_open_calls(db, live.incarnation))
    query = f"SELECT {INVOCATION} FROM invocations i WHERE session = ? AND (end_seq IS NULL OR end_seq >= ?)"
    for columns in db.execute(query, (live.incarnation, target)).fetchall():
        found = stored_invocation(name, live.key, *columns)
        if writer is not None and found.invocation_id == writer.invocation_id:
            continue
        run = rewound_invocation(found, target, event.seq, waits=found.invocation_id in waiting)
        db.execute(
            "UPDATE invocations SET status = ?, end_seq = ? WHERE session = ? AND invocation_id = ?",
            (stored_status(run.status), run.end_seq, live.incarnation, run.invocation_id),
        )
