"""What a fork that was just made has in memory: the events of its original, which are loaded already."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Protocol, TypeVar

import trio

from ..errors import StorageError
from ._key import SessionKey
from ._live import LiveSession
from ._session import GetSessionConfig

__all__ = ["share_events"]

L = TypeVar("L", bound=LiveSession)


class Cache(Protocol[L]):
    """The live sessions of a store."""

    @property
    def sessions(self) -> MutableMapping[SessionKey, L]:
        """Those that are kept."""

    async def open(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[L, object] | None:
        """The session as it is now, with what *config* asks for loaded, and more; None if there is none."""

    def grow(self, live: L, size: int) -> None:
        """Count *size* more bytes for the session."""


async def share_events(cache: Cache[L], key: SessionKey, new: SessionKey) -> None:
    """Let a fork that was just made have the events that are loaded of its original, where it has the same ones."""
    source = cache.sessions.get(key)
    if source is None:
        return
    try:
        with trio.CancelScope(shield=True):
            opened = await cache.open(new, GetSessionConfig(num_recent_events=0))
    except StorageError:  # the fork is stored, whatever cannot be read now
        return
    if opened is None:
        return
    live = opened[0]
    if live.mark == source.mark and not live.events and cache.sessions.get(key) is source:
        live.prepend(list(source.events), source.first_seq)
        cache.grow(live, source.size - live.size)
