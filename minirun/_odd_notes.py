"""Notes for a replay that another program has written, and this version can make nothing of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ._json import freeze
from ._values import changed
from .errors import InvalidValueError

__all__ = ["without_odd"]

_T = TypeVar("_T")


def without_odd(notes: Any, read: Callable[[Any], _T]) -> _T:
    """
    Return what *read* makes of the notes that it can read, each for itself; the others are among its unknown fields.

    Raises:
        InvalidValueError: They are no dict.
    """
    if not isinstance(notes, dict):
        return read(notes)
    odd = {name: note for name, note in notes.items() if not _is_read({name: note}, read)}
    known: Any = read({name: note for name, note in notes.items() if name not in odd})
    kept: _T = changed(known, unknown_fields=freeze({**known.unknown_fields, **odd}, "EventActions.replay"))
    return kept


def _is_read(notes: dict[str, Any], read: Callable[[dict[str, Any]], object]) -> bool:
    try:
        read(notes)
    except InvalidValueError:
        return False
    return True
