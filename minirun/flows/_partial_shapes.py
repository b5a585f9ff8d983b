"""
The forms of answers, for values that are not complete: which type stands in which place.

A value that is complete becomes what it is in the answer's `output`: JSON as its type writes it, an object with its
defaults. What a class does beyond that (validators, converters) shows when its object is complete. Of a union, an enum,
a date, a set or a tuple of several types nothing is shown before; nor of a value whose type says nothing of its parts.
A JSON schema says nothing of types here: its values are shown as they come.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

import attrs

from .._json import JSON
from ..errors import ConfigurationError
from ._foreign_models import is_model
from ._output import RESULT, OutputSchema
from ._parameters import hints_of, parameters_of
from ._partial_json import ANYTHING, HIDDEN, Misfit, Shape

__all__ = ["shape_of", "wrapped_shape"]

_INNER = {typing.Annotated, typing.Required, typing.NotRequired, typing.Final}
_LISTS = {list, collections.abc.Sequence}
_MAPS = {dict, collections.abc.Mapping}


def shape_of(tp: Any) -> Shape:
    """Return the shape of the values of an `output_schema`."""
    return ANYTHING if isinstance(tp, dict) else _shape(tp, {})


def wrapped_shape(shape: Shape) -> Shape:
    """The shape of the arguments of a call, where the value is no object, and is one of them."""
    return _Wrapped(shape)


class _Text(Shape):
    def open(self, kind: type) -> None:
        raise Misfit

    def whole(self, value: Any, shown: JSON) -> JSON:
        if not isinstance(value, str):
            raise Misfit
        return value


class _Whole(Shape):
    """A value that is shown once it is complete."""

    shows_texts = shows_parts = False

    def __init__(self, tp: Any, *, is_optional: bool = False) -> None:
        self._tp = tp
        self._is_optional = is_optional  # whether it is left out, rather than wrong, if it does not fit

    @cached_property
    def _form(self) -> OutputSchema | None:
        try:
            return OutputSchema.of(self._tp)
        except ConfigurationError:
            return None  # of a class of somebody else, which reads and writes it in its own way

    def below(self, key: str | int) -> Shape:
        return ANYTHING

    def whole(self, value: Any, shown: JSON) -> JSON:
        outcome = None if self._form is None else self._form.parse_value(value)
        if outcome is not None and not outcome.problems:
            return outcome.value
        if self._is_optional or outcome is None:
            return HIDDEN
        raise Misfit


class _Scalar(_Whole):
    """A number or a boolean, most of which need no more than a look."""

    def whole(self, value: Any, shown: JSON) -> JSON:
        if type(value) is self._tp:
            return value
        return super().whole(value, shown)


class _Parts(Shape):
    """A list, or an object with any keys, of one type of values."""

    shows_texts = False

    def __init__(self, kind: type, inside: Shape) -> None:
        self._kind = kind
        self._inside = inside

    def open(self, kind: type) -> None:
        if kind is not self._kind:
            raise Misfit

    def below(self, key: str | int) -> Shape:
        return self._inside

    def whole(self, value: Any, shown: JSON) -> JSON:
        if not isinstance(value, self._kind):
            raise Misfit
        return shown


class _Record(Shape):
    """An object of a class."""

    shows_texts = False

    def __init__(self, tp: Any, known: dict[Any, Shape]) -> None:
        self._whole = _Whole(tp)
        self._is_typed_dict = typing.is_typeddict(tp)
        self._tp = tp
        self._known = known

    @cached_property
    def _fields(self) -> dict[str, Shape]:
        make: Callable[[Any], Shape] = lambda tp: _shape(tp, self._known)  # noqa: E731
        if is_model(self._tp):
            return _fields_of_model(self._tp, self._known)
        return {name: make(tp) for name, tp in _hints_of_fields(self._tp).items()}

    def open(self, kind: type) -> None:
        if kind is not dict:
            raise Misfit

    def below(self, key: str | int) -> Shape:
        return self._fields.get(str(key), _UNKNOWN)

    def whole(self, value: Any, shown: JSON) -> JSON:
        if self._is_typed_dict and isinstance(value, dict) and self._has_all(value):
            return shown  # there are no defaults, and its values were read
        return self._whole.whole(value, shown)

    def _has_all(self, value: dict[str, Any]) -> bool:
        required: frozenset[str] = self._tp.__required_keys__
        return required <= value.keys() <= self._fields.keys()


class _Hidden(Shape):
    """What no field is for: the whole object shows whether it may be there."""

    shows_texts = shows_parts = False

    def below(self, key: str | int) -> Shape:
        return ANYTHING

    def whole(self, value: Any, shown: JSON) -> JSON:
        return HIDDEN


class _OrNull(Shape):
    """A value of a type, or null."""

    def __init__(self, inner: Shape) -> None:
        self._inner = inner
        self.shows_texts, self.shows_parts = inner.shows_texts, inner.shows_parts
        self.open = inner.open  # type: ignore[method-assign]
        self.below = inner.below  # type: ignore[method-assign]

    def whole(self, value: Any, shown: JSON) -> JSON:
        return None if value is None else self._inner.whole(value, shown)


class _Wrapped(Shape):
    shows_texts = False

    def __init__(self, inner: Shape) -> None:
        self._inner = inner

    def open(self, kind: type) -> None:
        if kind is not dict:
            raise Misfit

    def below(self, key: str | int) -> Shape:
        return self._inner if key == RESULT else _UNKNOWN


_TEXT = _Text()
_UNKNOWN = _Hidden()


def _shape(tp: Any, known: dict[Any, Shape]) -> Shape:
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if type(tp).__name__ == "TypeAliasType":
        return _shape(tp.__value__, known)
    if origin in _INNER:
        return _shape(args[0], known)
    if isinstance(tp, typing.NewType):
        return _shape(tp.__supertype__, known)
    if tp is str:
        return _TEXT
    if tp in (int, float, bool):
        return _Scalar(tp)
    if tp in (Any, object):
        return ANYTHING
    kind = origin or tp
    if origin in (typing.Union, types.UnionType):
        inner = [each for each in args if each is not types.NoneType]
        return _OrNull(_shape(inner[0], known)) if len(inner) == 1 else _Whole(tp)
    if kind in _LISTS or (kind is tuple and args[1:] == (...,)):
        return _Parts(list, _shape(args[0] if args else Any, known))
    if kind in _MAPS:
        return _Parts(dict, _shape(args[1] if args else Any, known))
    is_record = isinstance(tp, type) and (dataclasses.is_dataclass(tp) or attrs.has(tp) or is_model(tp))
    if is_record or typing.is_typeddict(tp):
        if tp not in known:
            known[tp] = _Record(tp, known)
        return known[tp]
    return _Whole(tp)


def _hints_of_fields(tp: Any) -> dict[str, Any]:
    """The types of the fields of a class, by the names that its constructor has for them; `_schema` has read it."""
    hints = hints_of(tp, f"the annotations of {tp.__qualname__}")
    if typing.is_typeddict(tp):
        return hints
    aliases = {field.alias: field.name for field in attrs.fields(tp)} if attrs.has(tp) else {}
    found = {}
    for parameter in parameters_of(tp, f"{tp.__qualname__}()"):
        hint = hints.get(aliases.get(parameter.name, parameter.name), parameter.annotation)
        found[parameter.name] = hint.type if isinstance(hint, dataclasses.InitVar) else hint
    return found


def _fields_of_model(tp: Any, known: dict[Any, Shape]) -> dict[str, Shape]:
    """The same for a pydantic model; what it reads or writes under another name is seen when it is complete."""
    found: dict[str, Shape] = {}
    for name, field in getattr(tp, "model_fields", {}).items():
        names = {field.alias or name, field.validation_alias or name, field.serialization_alias or name}
        if names == {name}:
            shape = _shape(field.annotation, known)
            found[name] = _Whole(field.annotation, is_optional=True) if isinstance(shape, _Whole) else shape
    return found
