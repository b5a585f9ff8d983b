"""
The base of records that attrs makes, for what it would else compile for each class: equality, hash and repr.

Compiling is most of what an attrs class costs when it is imported. A record is `@attrs.frozen(eq=False, repr=False)`,
and behaves as if both were left out. What is compared or hashed for every event has methods of its own instead.
"""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence, MutableSet
from reprlib import recursive_repr
from typing import Any

import attrs

from ._arguments import refuse_unknown
from ._frozen import VALUE, refuse_changes

__all__ = ["MUTABLE", "Record", "fields_shown"]

# What can be changed in place: no two agents hold the same, neither as the default of a field nor as its copy.
MUTABLE = (MutableSequence, MutableMapping, MutableSet)


class Record:
    """Equal by content to a record of the same class; hashable if its content is."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_changes(cls, VALUE)
        refuse_unknown(cls)

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in _fields(self) if field.eq)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, field.name) for field in _fields(self) if field.eq)))

    @recursive_repr("...")
    def __repr__(self) -> str:
        return fields_shown(self)


def fields_shown(record: object) -> str:
    """The repr of an instance of an attrs class, as attrs itself makes it."""
    shown = (f"{field.name}={getattr(record, field.name, attrs.NOTHING)!r}" for field in _fields(record) if field.repr)
    return f"{type(record).__qualname__.rsplit('>.', 1)[-1]}({', '.join(shown)})"


def _fields(record: object) -> tuple[attrs.Attribute[Any], ...]:
    fields: tuple[attrs.Attribute[Any], ...] = type(record).__attrs_attrs__  # type: ignore[attr-defined]  # attrs'
    return fields
