"""Making a session: one of a creation record, or of a whole history, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...events import Event
from .._calls import is_of_a_run
from .._invocation import InvocationStatus, invocation_of
from .._kept import memory_of
from .._key import SessionKey
from .._scoped import CHAIN_START, ScopedSession
from ._cache import SessionCache
from ._file import Transaction
from ._logs import base_no, link, next_no
from ._rows import insert_session, write_calls, write_invocation
from ._state import STATE_KEY_BYTES, current_values, mark_scopes, note_shared, write_event

if TYPE_CHECKING:
    from .._call_fold import CallFold

__all__ = ["create_session"]


def create_session(
    cache: SessionCache, key: SessionKey, events: Sequence[Event], lines: Sequence[str], transaction: Transaction
) -> ScopedSession:
    """
    Make a session of these events, of which *lines* are the texts, and keep it once it is stored.

    Raises:
        AlreadyExistsError: There is such a session.
    """
    db = transaction.db
    created, newest = events[0].timestamp, events[-1]
    assert created is not None
    row = insert_session(db, key, newest, created)
    live = cache.new(db, key, row, until=base_no(transaction))
    live.revision = -1  # nothing is applied yet
    current = current_values(transaction, cache.file.name, live)
    history = current.copy() if len(events) > 1 else None  # each event stands on those before it
    calls: CallFold | None = None
    if history is not None:
        from .._call_fold import CallFold  # few programs import histories

        calls = CallFold()
    chain, done, compaction = CHAIN_START, [], 0
    for event, line in zip(events, lines, strict=True):
        assert event.seq is not None
        number = next_no(transaction)
        chain = link(chain, event.seq, number, line)
        changes = write_event(db, live, history or current, event, line, chain, number)
        if history is not None:
            history.apply(changes)
        called = calls.take(event, tracked=is_of_a_run(event)) if calls is not None and event.seq else {}
        write_calls(db, row.id, called, number)
        done.append((event, line, changes, called, number))
    if calls is not None:
        from .._compactions import CompactionFold
        from ._artifacts import reserve_named

        reserve_named(db, key, events)
        compaction = CompactionFold.over(events).seq
    db.execute("UPDATE sessions SET chain = ?, compaction = ? WHERE id = ?", (chain, compaction, row.id))
    for name, seq in () if calls is None else calls.paused().items():
        run = invocation_of(key, name, InvocationStatus.PAUSED, seq, newest.seq)
        write_invocation(db, row.id, run, epoch=0, number=done[seq][-1])

    def apply() -> None:
        for event, _, changes, called, number in done:
            if event.seq:
                live.advance(event, changes, called)
            else:
                live.values.apply(changes)
                live.revision, live.first_seq = 0, 1
            mark_scopes(live, changes, number)
        live.size += sum(memory_of(line) + STATE_KEY_BYTES * len(changes) for _, line, changes, _, _ in done)
        live.mark = chain
        cache.keep(live)

    for _, _, changes, _, _ in done:
        note_shared(transaction, live, changes)
    transaction.after_commit(apply)
    return live
