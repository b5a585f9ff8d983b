"""What agents and tools that run beside each other write, so that the event which replaces it can name the keys."""

from __future__ import annotations

from collections.abc import Mapping

from ._state import Add, Extend, Write

__all__ = ["ConcurrentWrites"]


class ConcurrentWrites:
    """Which branch of a parallel agent, or which call of one turn, has written a key of the state last."""

    __slots__ = ("_writers",)

    def __init__(self) -> None:
        self._writers: dict[str, int] = {}

    def conflicts(self, index: int, writes: Mapping[str, Write]) -> list[str]:
        """Return the keys that these writes of branch *index* replace after another branch has written them."""
        replaced = [key for key, write in writes.items() if type(write) not in (Add, Extend)]
        return [key for key in replaced if self._writers.get(key, index) != index]

    def add(self, index: int, writes: Mapping[str, Write]) -> None:
        """Note the writes of branch *index*, which are stored now, or will be with those of the others."""
        self._writers.update(dict.fromkeys(writes, index))
