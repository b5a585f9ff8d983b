"""Constructors whose errors name the nearest argument, or what replaces an argument of ADK: see `_adk.ADVICE`."""

from __future__ import annotations

from functools import wraps
from typing import Any, TypeVar

__all__ = ["refuse_unknown"]

_Class = TypeVar("_Class", bound=type)


def refuse_unknown(cls: _Class) -> _Class:
    """
    Let the constructor of one of minirun's classes name the nearest argument if it is given an unknown one.

    It costs a call where the constructor succeeds. The values of an event have compiled constructors, which take
    unknown arguments themselves: see `_values`.
    """
    construct: Any = vars(cls).get("__init__")
    if construct is None or hasattr(construct, "__wrapped__") or not cls.__module__.startswith("minirun."):
        return cls

    @wraps(construct)
    def __init__(self: Any, *args: Any, **fields: Any) -> None:
        try:
            construct(self, *args, **fields)
        except TypeError:
            from ._adk import check_arguments  # few programs make this mistake

            check_arguments(type(self), construct, fields)
            raise

    cls.__init__ = __init__  # type: ignore[misc]  # it takes the same
    return cls
