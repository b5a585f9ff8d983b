"""Whether what an event keeps for a replay is of its form: see `events.Replay`."""

from __future__ import annotations

from ._json import JSON, freeze, shown
from .errors import InvalidValueError

__all__ = ["reads", "saves"]


def reads(value: object, path: str, level: int) -> JSON:
    """What was read of the state, frozen; a value of the state may be deeper in it by *level*."""
    # A place without a value: there was no such key.
    seen = list(value.values()) if isinstance(value, dict) else [None]
    if not all(isinstance(keys, dict) and all(map(_is_record, keys.values())) for keys in seen):
        expected = "{reader: {key: [count, [place, value], ...]}}"
        raise InvalidValueError(path, f"expected {expected}, found {shown(value)}")
    return freeze(value, path, level)


def _is_record(record: object) -> bool:
    if not isinstance(record, (list, tuple)) or not record or type(record[0]) is not int:
        return False
    return all(isinstance(item, (list, tuple)) and len(item) in (1, 2) and type(item[0]) is int for item in record[1:])


def saves(value: object, path: str) -> JSON:
    """Versions by the ids of saves, frozen."""
    if not isinstance(value, dict) or not all(type(version) is int for version in value.values()):
        raise InvalidValueError(path, f"expected a dict of integers, found {shown(value)}")
    return freeze(value, path)
