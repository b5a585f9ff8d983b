"""
Values as JSON: what a model is shown of a dataclass, an enum, a date. `_schema` reads what is written here.

A value is written as what it is, whatever an annotation says of it:

* A dataclass or attrs class as an object of its fields, under the names that its constructor takes, and of those that
  it sets itself (`init=False`); a pydantic model as its own `model_dump(mode="json")` has it.
* An enum as its value, a date or datetime in ISO form, a set as an array, sorted so that it is the same everywhere.
* A tuple as an array, a mapping as an object: its keys are strings, or enums of strings.

Everything else has more than one form or none, and is refused by its type: bytes, decimals, paths, open files.

The annotation of a result is not read.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import sys
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import attrs

from .._json import DEPTH_MAX, brief
from ..errors import InvalidValueError
from ..types import Blob, FileData, Part
from ._foreign_models import dumped, is_model

__all__ = ["fields_shown", "module_of", "written"]

_ADVICE = "return text, numbers, lists, dicts, sets, enums, dates, dataclasses, attrs classes, pydantic models of these"
_MEDIA = (Blob, FileData, Part)  # they go beside the JSON
_SCALARS = (str, int, float, bool, types.NoneType)


# --- values -----------------------------------------------------------------------------------------------------------


def fields_shown(cls: type) -> Mapping[str, str] | None:
    """The fields of a dataclass or attrs class: the names to write, and the attributes. None: it is neither."""
    if attrs.has(cls):
        return {field.alias or field.name: field.name for field in attrs.fields(cls)}
    return {field.name: field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else None


def written(
    value: Any, path: str, fields_of: Callable[[type], Mapping[str, str] | None] | None = None, level: int = 1
) -> Any:
    """
    Return what *value*, which messages call *path*, is as JSON. Numbers and strings are not looked at.

    Args:
        value: What to write.
        path: What messages call it.
        fields_of: Of what is to be read again: which fields of a class are written, and from which attributes. By
            default all are, and what models compute, too.
        level: How deep it stands in what is stored.

    Raises:
        InvalidValueError: A part of it has no JSON form, or it is nested too deeply.
    """
    if level > DEPTH_MAX + 1:
        raise InvalidValueError(path[:200], f"nested deeper than {DEPTH_MAX} levels; flatten it")
    if isinstance(value, Enum):
        return written(value.value, path, fields_of, level)
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, datetime.date):
        return value.isoformat()
    if is_model(type(value)):
        return dumped(value, path, to_be_read=fields_of is not None)
    fields = None if isinstance(value, type) else (fields_of or fields_shown)(type(value))
    if fields is not None:
        return {
            name: written(getattr(value, attribute), f"{path}.{name}", fields_of, level + 1)
            for name, attribute in fields.items()
            if hasattr(value, attribute)  # a field that its class sets itself may not be set yet
        }
    if isinstance(value, collections.abc.Mapping):
        return {
            _key(key, path): written(item, f"{path}[{brief(key, 60)}]", fields_of, level + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [written(item, f"{path}[{index}]", fields_of, level + 1) for index, item in enumerate(value)]
        return sorted(items, key=_rank) if isinstance(value, (set, frozenset)) else items
    raise InvalidValueError(path, f"expected a value that JSON has a form for, found {type(value).__name__}; {_ADVICE}")


def _key(key: object, path: str) -> str:
    key = key.value if isinstance(key, Enum) else key
    if isinstance(key, str):
        return key
    raise InvalidValueError(path, f"expected keys that are strings, found {brief(key, 60)}")


def _rank(value: Any) -> tuple[str, Any, str]:
    """The order of a set differs from process to process."""
    if isinstance(value, (str, int, float)):
        return type(value).__name__, value, ""
    return type(value).__name__, 0, brief(value, sys.maxsize)  # also of integers that Python does not write


def module_of(cls: type) -> dict[str, Any]:
    """The names of the module of a class, in which its annotations are read; none if it is gone."""
    return getattr(sys.modules.get(cls.__module__), "__dict__", {})
