"""
Values as JSON: what a model is shown of a dataclass, an enum, a date. `_schema` reads what is written here.

A value is written as what it is, whatever an annotation says of it:

* A dataclass or attrs class as an object of its fields, under the names that its constructor takes, and of those that
  it sets itself (`init=False`); a pydantic model as its own `model_dump(mode="json")` has it.
* An enum as its value, a date or datetime in ISO form, a set as an array, sorted so that it is the same everywhere.
* A tuple as an array, a mapping as an object: its keys are strings, or enums of strings.

Everything else has more than one form or none, and is refused by its type: bytes, decimals, paths, open files.

An annotation is checked when a tool is made, so that nothing is done whose result cannot be told. One that has no
meaning while the program runs, such as a name that is imported under `if TYPE_CHECKING:`, says nothing of the result:
it is written as what it is, like that of a function without annotations. One that is no Python is refused.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs

from .._json import DEPTH_MAX, brief
from ..errors import InvalidValueError
from ..types import Blob, FileData, Part
from ._foreign_models import check_dump, dumped, is_model

__all__ = ["check_result", "fields_shown", "module_of", "written"]

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


# --- annotations ------------------------------------------------------------------------------------------------------


_WRAPPED = (typing.Annotated, typing.Final, typing.Required, typing.NotRequired)
_LATER = (collections.abc.Awaitable, collections.abc.Coroutine)
_ONE_BY_ONE = (
    *(collections.abc.Iterator, collections.abc.AsyncIterator, collections.abc.Generator),
    *(collections.abc.AsyncGenerator, collections.abc.AsyncIterable),
)
_COLLECTIONS = (
    *(collections.abc.Iterable, collections.abc.Collection, collections.abc.Sequence, collections.abc.MutableSequence),
    *(collections.abc.Set, collections.abc.MutableSet, list, tuple, set, frozenset),
)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def check_result(annotation: Any, where: str, namespace: dict[str, Any], function: object = None) -> None:
    """
    Check that what an annotation says can be written, as far as it says what it is. *where* begins messages.

    The annotation of an async generator says that it is one; its items are checked as they come.

    Raises:
        TypeError: It names a type whose values never can, or is a text that is no Python.
    """
    if not inspect.isasyncgenfunction(function):
        _check_all(SimpleNamespace(__annotations__={"result": annotation}), where, set(), namespace=namespace)


def _meant(tp: Any) -> tuple[Any, ...] | None:
    """The types that a name, a union or a wrapper stands for; None: it is one itself."""
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if type(tp).__name__ == "TypeAliasType":
        return (tp.__value__,)
    if isinstance(tp, typing.NewType):
        return (tp.__supertype__,)
    if isinstance(tp, typing.TypeVar):
        return tp.__constraints__ or (() if tp.__bound__ is None else (tp.__bound__,))
    if origin in (typing.Union, types.UnionType):
        return args
    if origin in _WRAPPED:
        return args[:1]
    return args[-1:] if origin in _LATER else None


def _check(tp: Any, where: str, seen: set[int]) -> None:
    if id(tp) in seen:
        return
    seen.add(id(tp))
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    meant = tuple(map(type, args)) if origin is typing.Literal else _meant(tp)
    if meant is not None:
        for each in meant:
            _check(each, where, seen)
    elif typing.is_typeddict(origin or tp):
        _check_all(origin or tp, where, seen)
    elif tp is not Any and isinstance(origin or tp, type):  # Any is a class from Python 3.11 on
        _check_class(tp, origin or tp, args, where, seen)


def _check_class(tp: Any, cls: Any, args: tuple[Any, ...], where: str, seen: set[int]) -> None:
    fields = fields_shown(cls)
    if is_model(cls):
        check_dump(cls, where)
    if cls in (object, *_LATER, *_MEDIA) or is_model(cls):
        return
    if issubclass(cls, Enum):
        for member in cls:
            _check(type(member.value), where, seen)
    elif fields is not None:
        _check_all(cls, where, seen, fields)
    elif cls in _ONE_BY_ONE:
        _refuse(tp, where, "return a list")
    elif cls in _MAPPINGS or issubclass(cls, collections.abc.Mapping):
        key, item = args if len(args) == 2 else (str, object)
        if issubclass(cls, collections.Counter) and args:
            key = args[0]
        if not _may_be_key(key, set()):
            _refuse(tp, where, "give it keys that are strings")
        _check(item, where, seen)
    elif cls in _COLLECTIONS or issubclass(cls, (list, tuple, set, frozenset)):
        for item in args:
            if item is not ...:
                _check(item, where, seen)
    elif not (issubclass(cls, (*_SCALARS, datetime.date)) or _is_open(cls)):
        _refuse(tp, where, _ADVICE)


def _may_be_key(tp: Any, seen: set[int]) -> bool:
    """Whether all that an annotation says of a key can be one: text, or enums of it."""
    if id(tp) in seen:
        return True
    seen.add(id(tp))
    cls, meant = typing.get_origin(tp) or tp, _meant(tp)
    if meant is not None:
        return all(_may_be_key(each, seen) for each in meant)
    if cls is typing.Literal:
        return all(isinstance(each.value if isinstance(each, Enum) else each, str) for each in typing.get_args(tp))
    if tp is Any or not isinstance(cls, type):
        return tp is not None
    if issubclass(cls, Enum):
        return all(isinstance(member.value, str) for member in cls)
    return issubclass(cls, str) or cls is object or _is_open(cls)


def _check_all(
    owner: Any,
    where: str,
    seen: set[int],
    fields: Mapping[str, str] | None = None,
    namespace: dict[str, Any] | None = None,
) -> None:
    """Check the annotations of *owner*: of its *fields*, by the names that are written, or all."""
    hints = _hints_with_a_meaning(owner, where, namespace)
    names = {at: name for name, at in fields.items()} if fields is not None else {}
    for at, hint in hints.items():
        if fields is None or at in names:
            _check(hint, where if fields is None else f"{where}: field {names[at]!r} of {owner.__qualname__}", seen)


def _hints_with_a_meaning(owner: Any, where: str, namespace: dict[str, Any] | None) -> dict[str, Any]:
    """The annotations of *owner* without those that only a type checker understands."""
    try:
        return typing.get_type_hints(owner, namespace, include_extras=True)
    except (SyntaxError, IndexError) as error:  # the latter of an empty text
        msg = f"{where}: expected an annotation, found a text that is no Python ({error})"
        raise TypeError(msg) from None
    except (NameError, AttributeError, TypeError):  # a name, a part of one, or the parameters of a class
        parts = [
            (SimpleNamespace(__annotations__={name: hint}), module_of(base))
            for base in reversed(getattr(owner, "__mro__", ()))
            for name, hint in inspect.get_annotations(base).items()
        ]
    return {name: hint for part in parts for name, hint in _hints_with_a_meaning(part[0], where, part[1]).items()}


def module_of(cls: type) -> dict[str, Any]:
    """The names of the module of a class, in which its annotations are read; none if it is gone."""
    return getattr(sys.modules.get(cls.__module__), "__dict__", {})


def _is_open(cls: Any) -> bool:
    """Whether a class says nothing about what its values are: others stand for it."""
    return cls is not collections.abc.Callable and (
        inspect.isabstract(cls) or bool(getattr(cls, "_is_protocol", False))
    )


def _refuse(tp: object, where: str, advice: str) -> NoReturn:
    msg = f"{where}: {inspect.formatannotation(tp)} has no JSON form; {advice}"
    raise TypeError(msg)
