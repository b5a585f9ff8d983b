"""What a rewind needs beside the append of its event: the compaction before it, and the invocations that it undoes."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..._postgres._values import Statement
from ...events import Event
from .._call_fold import in_order, waiting_invocations
from .._compactions import Compaction
from .._past import rewound_invocation
from .._store import SessionWriter
from ._cache import SessionCache
from ._database import Database
from ._rows import INVOCATION, stored_invocation, stored_status
from ._session import DatabaseSession
from ._text import stored_key

__all__ = ["Undone", "read_undone"]

_UNDONE: Final = Statement(
    "undone",
    f"SELECT {INVOCATION} FROM minirun.invocations i WHERE session = $1 AND (end_seq IS NULL OR end_seq >= $2)",
    "int8 int8",
)


class Undone(NamedTuple):
    """What is known before a rewind is stored; if the session changes meanwhile, the rewind is stale."""

    compaction: Compaction | None
    """The one that is in force once the event is stored."""
    runs: list[tuple[str, str, int | None]]
    """Invocations as they are then: id, status, `end_seq`."""


async def read_undone(
    database: Database, cache: SessionCache, live: DatabaseSession, event: Event, writer: SessionWriter | None
) -> Undone:
    """Read what storing *event*, which undoes others, has to know."""
    target = event.actions.rewind_before_seq
    assert target is not None
    assert event.seq is not None
    compaction = live.compaction
    while compaction is not None and compaction.seq >= target:
        compaction = await cache.compaction_at(live.segments, compaction.previous_seq)
    calls = dict(live.open_calls)
    changes = live.call_changes(event, tracked=writer is not None)
    calls = {name: call for name, call in {**calls, **changes}.items() if call is not None}
    waiting = waiting_invocations(in_order(calls))
    [result] = await database.read(_UNDONE(live.incarnation, target))
    runs = []
    for columns in result.rows:
        found = stored_invocation(database.name, live.key, *columns)
        if writer is None or found.invocation_id != writer.invocation_id:
            run = rewound_invocation(found, target, event.seq, waits=found.invocation_id in waiting)
            runs.append((stored_key(run.invocation_id)[0], stored_status(run.status), run.end_seq))
    return Undone(compaction, runs)
