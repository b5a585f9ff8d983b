"""The live session of a file or a database: what it has beside what every store knows of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from .._json import JSON, brief
from ._calls import OpenCall
from ._key import SessionKey
from ._live import LiveSession
from ._state import Values

__all__ = ["CHAIN_START", "SEQ_MAX", "CachedScope", "ScopedSession", "Segment", "segments_of"]

SEQ_MAX: Final = 2**63 - 1
"""The largest integer of SQLite and of Postgres."""

CHAIN_START: Final = bytes(32)
"""What stands before the first link of every chain."""


class Segment(NamedTuple):
    """Which log holds the events *first_seq* to *last_seq* of a session."""

    first_seq: int
    last_seq: int
    log: int


def segments_of(
    past: Iterable[Sequence[Any]], session: int, end: int, error: Callable[[str], Exception]
) -> tuple[Segment, ...]:
    """
    Where the events of a session are, given its rows of `shared_pasts`, in order; the last segment is its own log.

    *error* is raised of rows that were never written: with a gap, beyond *end*, its newest event, or in a younger log.
    """
    found, after = [], 0
    for first, last, log in past:
        if {type(first), type(last), type(log)} != {int} or not (first == after <= last <= end and 0 <= log < session):
            raise error(f"the past of session row {session} makes no sense: {brief([first, last, log])} from {after}")
        found.append(Segment(first, last, log))
        after = last + 1
    return (*found, Segment(after, SEQ_MAX, session))


class CachedScope:
    """The cached values of one `user:` or `app:` scope, current up to `commit_no`; -1: not loaded."""

    __slots__ = ("__weakref__", "commit_no", "values")

    def __init__(self) -> None:
        self.values: dict[str, JSON] = {}
        self.commit_no = -1


class ScopedSession(LiveSession):
    """A live session with its shared scopes, where its events are, and the epoch of its lease that was last seen."""

    __slots__ = ("app", "epoch", "segments", "user")

    def __init__(
        self,
        key: SessionKey,
        row: Any,  # of the session, as the store reads it
        values: dict[str, JSON],
        scopes: tuple[CachedScope, CachedScope],
        segments: tuple[Segment, ...],
        open_calls: dict[str, OpenCall],
        size: int,
    ) -> None:
        self.app, self.user = scopes
        super().__init__(
            key,
            Values(values, self.user.values, self.app.values),
            incarnation=row.id,
            create_time=row.create_time,
            last_update_time=row.update_time,
            revision=row.revision,
            open_calls=open_calls,
            size=size,
        )
        self.mark = row.chain
        self.segments = segments
        self.epoch: int = row.epoch
