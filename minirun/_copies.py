"""Copies of values of somebody else's class, whose fields may stand in slots of several classes, or in a dict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["copied"]


def copied(value: Any, changes: dict[str, Any], *, without: Iterable[str]) -> Any:
    """Return a copy whose fields are those of *value*, with *changes*; the slots *without* are left empty."""
    cls = type(value)
    copy = object.__new__(cls)
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__", *without) and hasattr(value, name):
                object.__setattr__(copy, name, getattr(value, name))
    if hasattr(value, "__dict__"):
        copy.__dict__.update(value.__dict__)
    for name, field in changes.items():
        object.__setattr__(copy, name, field)
    return copy
