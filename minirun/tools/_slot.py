"""A place in the line of a tool. See `_limits`."""

from __future__ import annotations

__all__ = ["Slot"]


class Slot:
    """A place in the line of a tool: it waits, has its turn, or has left. This one has no limit to wait for."""

    is_free = True
    """Whether it is this one's turn."""

    async def wait(self) -> None:
        """Wait until it is this one's turn; at once if it is. Leave also when this was cancelled."""

    def leave(self) -> None:
        """Let the next one have its turn. A call that has left already may leave again."""
