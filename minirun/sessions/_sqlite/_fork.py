"""
Forks: a new session that shares the past of another one.

The events stay where they are; copied are only the rows that are derived from them, state and open calls. At the newest
event these are the rows of the other session; at an event of the past they are the fold of the log up to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ..._json import dumps
from ...errors import InvalidValueError, SessionNotFoundError
from ...events import Event
from .._call_fold import waiting_invocations
from .._invocation import InvocationStatus, invocation_of
from .._key import SessionKey
from .._past import Past, check_fork_seq, invocation_at
from .._shared_past import share_events
from ._artifacts import copy_artifacts, reserve_named, reserve_used, scope_of_artifacts
from ._cache import SessionCache
from ._errors import corrupt
from ._file import Transaction
from ._logs import newest_no, read_lines, read_segments
from ._queries import INVOCATION, stored_invocation
from ._rows import find_session, insert_session, read_open_calls, write_call, write_invocation

__all__ = ["fork_session"]


async def fork_session(
    cache: SessionCache,
    read: Callable[[SessionKey, int, int | None], Awaitable[list[Event]]],
    create_time: float,
    key: SessionKey,
    at_seq: int | None,
    new: SessionKey,
) -> bool:
    """
    Make a session *new* with the past of *key* up to *at_seq*; False if there is none any more.

    Raises:
        SessionNotFoundError, AlreadyExistsError, InvalidValueError: See `BaseSessionService.fork_session`.
        StorageCorruptError: What the log says cannot be.
    """
    past: Past | None = None
    while not await cache.file.write(partial(_write_fork, cache.file.name, create_time, key, at_seq, past, new)):
        assert at_seq is not None
        events = await read(key, -1, at_seq + 2)  # what it was then is found by going through its log
        if not events:
            return False
        try:
            past = Past(events, at_seq)
        except InvalidValueError as error:  # an operation does not fit what stands there: it was never stored so
            raise corrupt(cache.file.name, f"the log of {key} up to event {at_seq}: {error}") from error
    await share_events(cache, key, new)
    return True


def _write_fork(
    name: str,
    create_time: float,
    key: SessionKey,
    at_seq: int | None,
    past: Past | None,
    new: SessionKey,
    transaction: Transaction,
) -> bool:
    """
    Make a session *new* with the past of *key* up to *at_seq*, and return True; False if that past must be read first.

    *name* is that of the file.

    Raises:
        SessionNotFoundError, AlreadyExistsError, InvalidValueError: See `BaseSessionService.fork_session`.
    """
    db = transaction.db
    source = find_session(db, key)
    if source is None:
        msg = f"there is no {key}"
        raise SessionNotFoundError(msg)
    check_fork_seq(key, at_seq, source.revision)
    at = source.revision if at_seq is None else at_seq
    if at < source.revision and past is None:
        return False
    segments = tuple(segment for segment in read_segments(db, source.id, source.revision) if segment.first_seq <= at)
    [(newest, _)] = read_lines(db, name, segments, at, at + 1)
    [chain] = db.execute("SELECT chain FROM events WHERE log = ? AND seq = ?", (segments[-1].log, at)).fetchone()
    if past is not None and past.newest.id != newest.id:
        return False  # the session was deleted and made again meanwhile
    row = insert_session(db, new, newest, create_time)
    compaction = source.compaction if past is None else past.compaction
    db.execute("UPDATE sessions SET chain = ?, compaction = ? WHERE id = ?", (chain, compaction, row.id))
    db.execute(
        "INSERT INTO shared_pasts SELECT ?, first_seq, min(last_seq, ?), log FROM shared_pasts"
        " WHERE session = ? AND first_seq <= ?",
        (row.id, at, source.id, at),
    )
    if segments[-1].log == source.id:
        db.execute("INSERT INTO shared_pasts VALUES (?, ?, ?, ?)", (row.id, segments[-1].first_seq, at, source.id))
    number = newest_no(db)
    if at == source.revision:
        db.execute(
            "INSERT INTO session_state SELECT ?, key, value FROM session_state WHERE session = ?", (row.id, source.id)
        )
        open_calls = read_open_calls(db, source.id)
    else:
        assert past is not None
        for state_key, value in past.state.items():
            db.execute("INSERT INTO session_state VALUES (?, ?, ?)", (row.id, state_key, dumps(value)))
        open_calls = past.open_calls
    for call in open_calls.values():
        write_call(db, row.id, call, number)
    copy_artifacts(db, scope_of_artifacts(key), scope_of_artifacts(new), at_seq=at)
    if past is None:
        reserve_used(db, scope_of_artifacts(key), scope_of_artifacts(new))
    else:
        reserve_named(db, new, past.events)
    waiting = waiting_invocations(open_calls)
    paused = {} if past is None else dict(past.paused)
    query = f"SELECT {INVOCATION} FROM invocations i WHERE session = ? AND seq <= ? ORDER BY commit_no, seq"
    for columns in db.execute(query, (source.id, at)).fetchall():
        run = stored_invocation(name, new, *columns)
        paused.pop(run.invocation_id, None)
        waits = run.invocation_id in waiting and (past is None or past.cut != run.invocation_id)
        # Nobody runs them in the fork: what was running there is interrupted here.
        write_invocation(db, row.id, invocation_at(run, at, waits=waits), epoch=0, number=number)
    for invocation_id, seq in paused.items():  # an import records only those that wait at the end of its log
        run = invocation_of(new, invocation_id, InvocationStatus.PAUSED, seq, at)
        write_invocation(db, row.id, run, epoch=0, number=number)
    return True
