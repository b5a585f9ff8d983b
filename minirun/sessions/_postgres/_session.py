"""The live session of a database: what has to be remembered with it, beside what every store knows of a session."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..._json import JSON
from .._calls import OpenCall
from .._key import SessionKey
from .._live import LiveSession
from .._state import Values

__all__ = ["CHAIN_START", "SEQ_MAX", "CachedScope", "DatabaseSession", "Row", "Segment"]

CHAIN_START: Final = bytes(32)
"""What stands before the first link of every chain."""

SEQ_MAX: Final = 2**62
"""What no number in a database comes near."""


class Row(NamedTuple):
    """A row of `sessions`, as one worker sees it."""

    id: int
    revision: int
    create_time: float
    update_time: float
    epoch: int
    owner: str | None
    expires: float | None
    """When the lease ends, on the database's clock, in seconds since the epoch."""
    is_over: bool
    """Whether that has passed."""
    is_free: bool
    """Whether no other living worker has the lease; of ours, the gate decides."""
    chain: bytes
    compaction: int
    """The `seq` of the newest visible compaction; 0: none."""
    has_messages: bool
    """Whether messages wait for its runs."""


class Segment(NamedTuple):
    """Which log holds the events *first_seq* to *last_seq* of a session."""

    first_seq: int
    last_seq: int
    log: int


class CachedScope:
    """The cached values of one `user:` or `app:` scope, current up to `commit_no`; -1: not loaded."""

    __slots__ = ("__weakref__", "commit_no", "values")

    def __init__(self) -> None:
        self.values: dict[str, JSON] = {}
        self.commit_no = -1


class DatabaseSession(LiveSession):
    """A live session with its shared scopes, where its events are, and what is known of its lease."""

    __slots__ = ("app", "epoch", "gone", "in_flight", "segments", "user")

    def __init__(
        self,
        key: SessionKey,
        row: Row,
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
        self.epoch = row.epoch
        self.gone: str | None = None  # an owner of the lease that was seen to be dead, though its time is not over
        self.in_flight = False  # whether an append of it was sent, and not answered yet

    def see(self, row: Row) -> None:
        """Note what the row says of the lease, and of messages."""
        self.epoch, self.has_messages = row.epoch, row.has_messages
        self.gone = row.owner if row.is_free and not row.is_over else None
