"""
Forks: a new session that shares the past of another one.

The events stay where they are; copied are only the rows that are derived from them, state and open calls. At the newest
event these are the rows of the other session; at an event of the past they are the fold of the log up to it.

What is copied is read in one view of the database, and written by one statement, which stores nothing if the other
session is not there any more. What it was at an event does not change; so a run may go on there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from ..._codec import from_json
from ..._json import dumps
from ..._postgres._values import Statement
from ...errors import InvalidValueError, SessionNotFoundError, StorageRolledBackError
from ...events import Event
from .._call_fold import waiting_invocations
from .._calls import OpenCall
from .._invocation import Invocation, InvocationStatus, invocation_of
from .._key import SessionKey
from .._past import Past, check_fork_seq, invocation_at
from .._scoped import Segment
from .._shared_past import share_events
from ._artifacts import fork_artifacts, reserved_rows, taken_error, taken_name
from ._cache import CALLS, FIND, PASTS, STATE, THERE, SessionCache
from ._create import check_counter, check_duplicate
from ._database import Database
from ._logs import is_there
from ._rows import INVOCATION, call_of, call_row, corrupt, read_segments, row_of, stored_invocation, stored_status
from ._statement import Rows, fork_call
from ._text import stored_key

__all__ = ["fork_session"]

_RUNS: Final = Statement(
    "runs",
    f"SELECT {INVOCATION} FROM minirun.invocations i WHERE session = {THERE} ORDER BY commit_no, seq",
    "text text text",
)
_LINK: Final = Statement("link", "SELECT chain, data FROM minirun.events WHERE log = $1 AND seq = $2", "int8 int8")

ReadEvents = Callable[[SessionKey, int, int | None], Awaitable[list[Event]]]


async def fork_session(
    database: Database, cache: SessionCache, read: ReadEvents, create_time: float, owner: str,
    key: SessionKey, at_seq: int | None, new: SessionKey,
) -> bool:  # fmt: skip
    """
    Make a session *new* with the past of *key* up to *at_seq*; False if that is deleted meanwhile.

    Raises:
        SessionNotFoundError, AlreadyExistsError, InvalidValueError: See `BaseSessionService.fork_session`.
        StorageCorruptError: The row that counts is gone, or counts wrong; or what the log says cannot be.
    """
    while True:
        place, name = (key.app_name, key.user_id, key.session_id), database.name
        found, state, calls, pasts, runs = await database.snapshot(
            FIND(owner, *place), STATE(*place), CALLS(*place), PASTS(*place), _RUNS(*place)
        )
        if not found.rows:
            msg = f"there is no {key}"
            raise SessionNotFoundError(msg)
        source = row_of(name, found.rows[0])
        check_fork_seq(key, at_seq, source.revision)
        at = source.revision if at_seq is None else at_seq
        segments = [each for each in read_segments(name, pasts.rows, source) if each.first_seq <= at]
        past = None
        if at < source.revision:  # what it was then is found by going through its log
            log = await read(key, -1, at + 2)
            if not log:
                return False
            try:
                past = Past(log, at)
            except InvalidValueError as error:  # an operation does not fit what stands there: it was never stored so
                raise corrupt(name, f"the log of {key} up to event {at}: {error}") from error
        at_end = await _newest(database, source.id, segments[-1], at)
        if at_end is not None and (past is None or past.newest.id == at_end[0].id):
            break  # else the session was deleted meanwhile, and perhaps made again
    newest, chain = at_end
    rows: Rows = defaultdict(list)
    if past is None:
        rows["set_state"] += [(1, *columns) for columns in state.rows]
        open_calls = {call.call_id: call for call in (call_of(name, columns) for columns in calls.rows)}
    else:
        rows["set_state"] += [(1, *stored_key(each), dumps(value)) for each, value in past.state.items()]
        open_calls = past.open_calls
    rows["calls"] += [(1, *call_row(call)) for call in open_calls.values()]
    recorded = [stored_invocation(name, new, *columns) for columns in runs.rows]
    for run in _runs_at(new, recorded, at, open_calls, past):
        rows["runs"].append((1, *stored_key(run.invocation_id), stored_status(run.status), run.seq, run.end_seq))
    compaction = source.compaction if past is None else past.compaction
    shared = [(each.first_seq, min(each.last_seq, at), each.log) for each in segments]
    assert newest.timestamp is not None
    if past is not None:
        rows["reserved"] += reserved_rows(1, new, past.events)
    artifacts = fork_artifacts(key, new, at, is_newest=past is None)
    call = fork_call(new, source.id, at, create_time, newest.timestamp, chain, compaction, shared, rows)
    try:
        made, *_ = await database.write(call, *artifacts)
    except StorageRolledBackError as error:
        check_duplicate(name, new, error)
        if (filename := taken_name(error)) is not None:
            raise taken_error(filename, new.session_id) from None
        raise
    if not made.rows:
        await check_counter(database)
        return False
    await share_events(cache, key, new)
    return True


async def _newest(database: Database, session: int, segment: Segment, at: int) -> tuple[Event, bytes] | None:
    """The event *at* of a session, which is in this segment, and its link; None if the session was deleted."""
    [result] = await database.read(_LINK(segment.log, at))
    if not result.rows and not await is_there(database, session):
        return None
    try:
        [(chain, data)] = result.rows
        return from_json(Event, data), chain
    except (ValueError, InvalidValueError, TypeError) as error:
        raise corrupt(database.name, f"the event {at} of log {segment.log}: {error}") from error


def _runs_at(
    new: SessionKey, recorded: Iterable[Invocation], at: int, open_calls: Mapping[str, OpenCall], past: Past | None
) -> list[Invocation]:
    """The invocations of a fork, as they were at event *at*; nobody runs them there."""
    waiting = waiting_invocations(open_calls)
    paused: dict[str, Any] = {} if past is None else dict(past.paused)
    runs = []
    for run in recorded:
        if run.seq <= at:
            paused.pop(run.invocation_id, None)
            waits = run.invocation_id in waiting and (past is None or past.cut != run.invocation_id)
            runs.append(invocation_at(run, at, waits=waits))
    # An import records only those that wait at the end of its log.
    runs += [invocation_of(new, name, InvocationStatus.PAUSED, seq, at) for name, seq in paused.items()]
    return runs
