"""
What an agent's own logic, or a tool, has read of the committed state: recorded, and served when it is run again.

Logic decides by what it reads, and what it reads may have been written by anybody: a branch beside it, another session
of the user. So each event that is stored from inside of such logic carries what was read until then
(`EventActions.replay`), and who runs the logic again is given the same values in the same places. Of a key that is read
a thousand times one value is stored, and another one where it has changed; what the logic has written itself is in the
log already. `temp:` keys are never stored, and so they are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..events import Event
from ..sessions._state import MISSING, REMOVED, Add, Extend, Write

__all__ = ["EVENTS", "ReadRecord", "Reads", "recorded_reads"]

EVENTS = "temp:events"
"""Stands for how far the session's events are read. What is read of a key of this name is not recorded."""


class ReadRecord:
    """How often one reader has read one key, as far as that is recorded, and what it got: by the number of the read."""

    __slots__ = ("count", "values")

    def __init__(self) -> None:
        self.count = 0
        self.values: dict[int, Any] = {}


def recorded_reads(events: Iterable[Event]) -> dict[str, dict[str, ReadRecord]]:
    """What *events* have recorded, by reader and key."""
    found: dict[str, dict[str, ReadRecord]] = {}
    for event in events:
        for reader, keys in event.actions.replay.reads.items():
            for key, (count, *values) in keys.items():
                record = found.setdefault(reader, {}).setdefault(key, ReadRecord())
                record.count = max(record.count, count)
                record.values.update((place, value[0] if value else MISSING) for place, *value in values)
    return found


class Reads:
    """
    What one context reads.

    Args:
        reader: What it is known by: the same whenever the logic is run again.
        recorded: What is recorded of it, by key.
    """

    __slots__ = ("_counts", "_fresh", "_known", "_recorded", "reader")

    def __init__(self, reader: str, recorded: Mapping[str, ReadRecord]) -> None:
        self.reader = reader
        self._recorded = recorded
        self._counts: dict[str, int] = {}
        self._known: dict[str, Any] = {}  # what it has got, or written itself
        self._fresh: dict[str, list[tuple[Any, ...]]] = {}  # what no event has carried yet: (place, value), or (place,)

    def seen(self, key: str, value: Any) -> Any:
        """*key* is read, and has this value now; return the value that the reader gets."""
        count, known = self._counts.get(key, 0), self._known
        self._counts[key] = count + 1
        record = self._recorded.get(key)
        if record is not None and count < record.count:
            if count in record.values:
                known[key] = record.values[count]
            return known.get(key, value)
        fresh = self._fresh.setdefault(key, [])
        if key not in known or (known[key] is not value and known[key] != value):
            fresh.append((count,) if value is MISSING else (count, value))
            known[key] = value
        return value

    def wrote(self, writes: Mapping[str, Write]) -> None:
        """An event of the reader's own is stored."""
        for key, write in writes.items():
            if type(write) in (Add, Extend):
                self._known.pop(key, None)
            else:
                self._known[key] = MISSING if write is REMOVED else write

    def fresh(self) -> dict[str, Any]:
        """What the next event has to carry, by key."""
        return {key: [self._counts[key], *values] for key, values in list(self._fresh.items())}

    def settle(self, carried: Mapping[str, Any]) -> None:
        """An event that carried this is stored."""
        for key, (count, *_) in carried.items():
            left = [value for value in self._fresh.get(key, []) if value[0] >= count]
            if left or self._counts[key] > count:
                self._fresh[key] = left
            else:
                self._fresh.pop(key, None)
