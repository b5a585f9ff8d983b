"""What programs that the tests start have done, line by line in a file."""

from __future__ import annotations

from pathlib import Path

import trio

__all__ = ["Notes"]


class Notes:
    """What was noted, in whatever process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        """The notes."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    async def has(self, line: str) -> None:
        """Wait for a note."""
        with trio.fail_after(30):
            while line not in self.lines():  # noqa: ASYNC110 # another process may write it
                await trio.sleep(0.01)
