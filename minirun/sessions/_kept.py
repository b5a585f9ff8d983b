"""The sessions that a service keeps for their next turn, and what they take in memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from ._key import SessionKey
from ._live import LiveSession

__all__ = ["CACHE_BYTES", "SESSION_BYTES", "KeptSessions", "memory_of"]

# How much memory the sessions take that ran lately: about 25 000 that were run once, or 140 000 short events.
CACHE_BYTES = 128 * 2**20
# What a session takes in memory without events and state, measured with its user's scope.
SESSION_BYTES = 1500

L = TypeVar("L", bound=LiveSession)


def memory_of(line: str) -> int:
    """About how many bytes an event of this text takes in memory: measured, 900 for the shortest, with its objects."""
    return 500 + 2 * len(line)


class KeptSessions(Generic[L]):
    """Live sessions; those used last are kept, as far as *max_bytes* of memory go."""

    def __init__(self, max_bytes: int) -> None:
        self.sessions: OrderedDict[SessionKey, L] = OrderedDict()
        self.bytes = 0
        self._max_bytes = max_bytes

    def keep(self, live: L) -> L:
        """Keep the session, as the one that was used last, and as few others as the bound asks for."""
        if self.sessions.get(live.key) is not live:
            self.drop(live.key)
            self.sessions[live.key] = live
            self.bytes += live.size
        self.sessions.move_to_end(live.key)
        while self.bytes > self._max_bytes and len(self.sessions) > 1:
            self.drop(next(iter(self.sessions)))
        return live

    def drop(self, key: SessionKey) -> None:
        """Keep the session no longer, if it was."""
        live = self.sessions.pop(key, None)
        if live is not None:
            self.bytes -= live.size

    def grow(self, live: L, size: int) -> None:
        """Count *size* more bytes for the session."""
        live.size += size
        if self.sessions.get(live.key) is live:
            self.bytes += size

    def clear(self) -> None:
        """Keep none."""
        self.sessions.clear()
        self.bytes = 0
