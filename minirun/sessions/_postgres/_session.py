"""The live session of a database: what is remembered of its lease."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..._json import JSON
from .._calls import OpenCall
from .._key import SessionKey
from .._scoped import CachedScope, ScopedSession, Segment

__all__ = ["SEQ_MAX", "DatabaseSession", "Row"]

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


class DatabaseSession(ScopedSession):
    """A live session of a database, and what is known of its lease."""

    __slots__ = ("gone", "in_flight")

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
        super().__init__(key, row, values, scopes, segments, open_calls, size)
        self.gone: str | None = None  # an owner of the lease that was seen to be dead, though its time is not over
        self.in_flight = False  # whether an append of it was sent, and not answered yet

    def see(self, row: Row) -> None:
        """Note what the row says of the lease."""
        self.epoch = row.epoch
        self.gone = row.owner if row.is_free and not row.is_over else None
