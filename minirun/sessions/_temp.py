"""The writes to `temp:` keys, which live for one run."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InvalidValueError
from ._state import Values, Write, apply_write

__all__ = ["keep_temp"]


def keep_temp(values: Values, writes: Mapping[str, Write]) -> None:
    """Apply writes to `temp:` keys."""
    for key, write in writes.items():
        try:
            values.apply({key: apply_write(key, values.get(key), write)})
        except InvalidValueError:
            pass  # a sibling has changed its kind since this was checked; the event is stored
