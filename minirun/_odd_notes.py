"""Notes for a replay that another program has written, and this version can make nothing of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import InvalidValueError

__all__ = ["parted"]


def parted(notes: dict[str, Any], read: Callable[[dict[str, Any]], object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the notes that can be *read*, each for itself, and the others."""
    odd = {name: note for name, note in notes.items() if not _is_read({name: note}, read)}
    return {name: note for name, note in notes.items() if name not in odd}, odd


def _is_read(notes: dict[str, Any], read: Callable[[dict[str, Any]], object]) -> bool:
    try:
        read(notes)
    except InvalidValueError:
        return False
    return True
