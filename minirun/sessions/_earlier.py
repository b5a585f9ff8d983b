"""Loading the past of a session that is cached, from its newest event backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import trio

from ..events import Event, seq_of
from ._live import LiveSession, visible_tail
from ._session import GetSessionConfig

__all__ = ["PAGE_EVENTS", "load_earlier"]

# Decoding so many events takes about 5 ms; then other tasks get their turn.
PAGE_EVENTS = 250

L = TypeVar("L", bound=LiveSession, contravariant=True)


class Cache(Protocol[L]):
    """What loads a session."""

    async def lines(self, live: L, first: int, until: int) -> Sequence[tuple[Event, int]] | None:
        """Read the events from *first* up to *until*, each with its size; None if the session was deleted."""

    def grow(self, live: L, size: int) -> None:
        """Count *size* more bytes for the session."""


async def load_earlier(cache: Cache[L], live: L, config: GetSessionConfig | None) -> bool:
    """Load what *config* asks for, page by page; False if the session was deleted meanwhile."""
    first = 1 if config is None or config.after_seq is None else config.after_seq + 1
    count = None if config is None else config.num_recent_events
    pages: list[list[Event]] = []
    size, until = 0, live.first_seq
    missing = None if count is None else count - len(live.events)
    while until > first and (missing is None or missing > 0):
        if pages:
            await trio.lowlevel.checkpoint()
        begin = max(first, until - min(PAGE_EVENTS, PAGE_EVENTS if missing is None else missing))
        lines = await cache.lines(live, begin, until)
        if lines is None:
            return False
        page, until = visible_tail((event for event, _ in reversed(lines)), until)
        size += sum(length for _, length in lines)
        pages.append(page)
        missing = None if missing is None else missing - len(page)
    loaded = [event for page in reversed(pages) for event in page]
    if live.first_seq > until:  # else another task has loaded it meanwhile
        earlier = [event for event in loaded if seq_of(event) < live.first_seq]
        live.prepend(earlier, until)
        cache.grow(live, size)
    if count is not None and len(live.events) < count and live.first_seq > max(first, 1):
        return await load_earlier(cache, live, config)  # a rewind has undone meanwhile what was counted
    return True
