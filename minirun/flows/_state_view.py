"""
An instance that cannot be changed: what `ctx.state_as` returns.

It is a picture of the state, and a change of it would be lost. So it refuses one, and so does all that it holds: lists
and dicts are frozen, sets are frozensets, and the objects in it refuse as it does. It is equal to an ordinary instance
with the same content.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NoReturn

from .._frozen_error import FrozenValueError
from .._json import FrozenDict, FrozenList, freeze
from ..errors import InvalidValueError
from ._foreign_models import is_model
from ._written import fields_shown

__all__ = ["read_only"]

# One for each class in a schema; see `_state_schema`.
CLASSES_KEPT_MAX = 512


class _List(FrozenList):
    """One with objects in it, which `freeze` has to look through, as it is no JSON."""

    __slots__ = ()


class _Dict(FrozenDict):
    """The same with objects as values."""

    __slots__ = ()


_List.__name__, _Dict.__name__ = FrozenList.__name__, FrozenDict.__name__  # as messages call them


def read_only(value: Any) -> Any:
    """Return what *value* holds so that it cannot change; an object itself, as nobody else has it yet."""
    if isinstance(value, (list, dict)):
        try:
            return freeze(value)  # all of it is JSON
        except InvalidValueError:  # there are objects in it
            if isinstance(value, dict):
                return _Dict({key: read_only(item) for key, item in value.items()})
            return _List([read_only(item) for item in value])
    if isinstance(value, tuple):
        return tuple([read_only(item) for item in value])
    if isinstance(value, (set, frozenset)):
        return frozenset(value)
    cls = type(value)
    names = tuple(vars(value)) if is_model(cls) else tuple((fields_shown(cls) or {}).values())
    if not names and not is_model(cls) and fields_shown(cls) is None:
        return value
    for name in names:
        if hasattr(value, name):  # a field that its class sets itself may not be set yet
            object.__setattr__(value, name, read_only(getattr(value, name)))
    object.__setattr__(value, "__class__", _refusing(cls))  # type: ignore[arg-type]  # mypy: a class is hashable
    return value


@lru_cache(maxsize=CLASSES_KEPT_MAX)
def _refusing(cls: Any) -> Any:
    """
    A class whose instances are those of *cls*, and refuse to be changed.

    They say that they are of *cls*, as dataclasses and attrs classes compare that.
    """

    def refuse(self: object, name: str, *value: object) -> NoReturn:
        msg = f"{cls.__name__}.{name} cannot change: this is a picture of the state, and a change of it would be lost"
        raise FrozenValueError(f"{msg}; write to `ctx.state`")

    body = {"__slots__": (), "__setattr__": refuse, "__delattr__": refuse, "__class__": property(lambda self: cls)}
    return type.__new__(type(cls), cls.__name__, (cls,), {**body, "__module__": cls.__module__})
