"""
What an agent's own logic, or a tool, has read of the committed state: recorded, and served when it is run again.

Logic decides by what it reads, and what it reads may have been written by anybody: a branch beside it, another session
of the user. So each event that is stored from inside of such logic carries what was read until then
(`EventActions.replay`), and who runs the logic again is given the same values in the same places. Of a key that is read
a thousand times one value is stored, and another one where it has changed; what the logic has written itself is in the
log already. `temp:` keys are never stored, and so they are read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._json import dumps
from ._state import MISSING, REMOVED, Add, Extend, Write

if TYPE_CHECKING:
    from ..flows._record import RecordedReads

__all__ = ["EVENTS", "Reads"]

EVENTS = "temp:events"
"""Stands for how far the session's events are read. What is read of a key of this name is not recorded."""


class Reads:
    """What the logic on *path* reads; *recorded* is, by key, what an earlier run of it has recorded."""

    __slots__ = ("_counts", "_known", "_recorded", "fresh", "path", "written")

    def __init__(self, path: str, recorded: Mapping[str, RecordedReads]) -> None:
        self.path = path
        self._recorded = recorded
        self._counts: dict[str, int] = {}
        self._known: dict[str, Any] = {}  # what it has got, or written itself
        self.written: dict[str, Write] = {}
        """What its own events have written since it last read something: it knows that without having read it."""
        self.fresh: dict[str, list[tuple[Any, ...]]] = {}
        """What no event has carried yet: by key, (place, value) or (place,)."""

    def value(self, key: str, value: Any) -> Any:
        """*key* is read, and has this value now; return the value that the reader gets."""
        if self.written:
            self._take_written()
        count, known = self._counts.get(key, 0), self._known
        self._counts[key] = count + 1
        record = self._recorded.get(key)
        if record is not None and count < record.count:
            if count in record.values:
                known[key] = record.values[count][0] if record.values[count] else MISSING
            return known.get(key, value)
        fresh = self.fresh.setdefault(key, [])
        if key not in known or not _is_same(known[key], value):
            fresh.append((count,) if value is MISSING else (count, value))
            known[key] = value
        return value

    def _take_written(self) -> None:
        for key, write in self.written.items():
            if type(write) not in (Add, Extend):
                self._known[key] = MISSING if write is REMOVED else write
        self.written.clear()

    def unrecorded(self) -> dict[str, Any]:
        """What the next event has to carry, by key."""
        return {key: [self._counts[key], *values] for key, values in list(self.fresh.items())}

    def settle(self, carried: Mapping[str, Any]) -> None:
        """An event that carried this is stored."""
        for key, (count, *_) in carried.items():
            left = [value for value in self.fresh.get(key, []) if value[0] >= count]
            if left or self._counts[key] > count:
                self.fresh[key] = left
            else:
                self.fresh.pop(key, None)


def _is_same(known: Any, value: Any) -> bool:
    """Whether they are the same as JSON: 1, 1.0 and true are not, although they are equal."""
    return known is value or (known == value and dumps(known) == dumps(value))
