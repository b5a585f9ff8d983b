"""What can only go wrong in live runs."""

from __future__ import annotations

from .errors import FatalError, MinirunError

__all__ = ["IdleTimeoutError", "LiveQueueFullError"]


class LiveQueueFullError(MinirunError):
    """A LiveRequestQueue holds as much as it may; what was to be sent was not taken. Wait, or send less."""


class IdleTimeoutError(FatalError):
    """In a live run nobody has said anything for `RunConfig.idle_s` seconds."""
