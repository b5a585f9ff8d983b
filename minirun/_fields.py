"""
How fields are checked: those of values by their metadata, `TEXT`, `OBJECT`, …; those of settings by `setting`.

The check of a value raises InvalidValueError, with the path of the field, and returns what the field holds: frozen,
plain, of the type that comes back from JSON. The check of a setting (of an agent, an app, a run, a tool) raises
ConfigurationError and changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeGuard

import attrs

from ._json import FrozenDict, FrozenTuple, brief, check_text, freeze, shown
from .errors import ConfigurationError, InvalidValueError

__all__ = [
    "EMPTY_LIST", "FLAG", "JSON_VALUE", "NAMES", "NAME_SET", "OBJECT", "TEXT", "check_unknown", "checked",
    "instance_of", "integer", "is_list", "number", "setting",
]

EMPTY_LIST = FrozenTuple()
"""The default of lists, by which it is known that there is nothing to check."""


Check: TypeAlias = Callable[[Any, str], Any]
"""Returns what a field holds for the value that it is given; raises InvalidValueError, with the path of the field."""


def checked(check: Check, form: str | None = None) -> dict[str, Any]:
    """
    The metadata of a field that is checked, unless it is given its default.

    `form` is what the codec has to know: `"json"` is JSON already, `"bytes"` becomes base64, `"set"` a sorted list;
    what is none of these is written and read by its type.
    """
    return {"check": check, "form": form}


def _wrong(path: str, expected: str, found: object) -> InvalidValueError:
    return InvalidValueError(path, f"expected {expected}, found {shown(found)}")


def _text(value: object, path: str) -> str:
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return check_text(str.__str__(value), path)  # a StrEnum, too, as the plain string that will be read back


def _flag(value: object, path: str) -> object:
    if not (value is True or value is False):
        raise _wrong(path, "True, False or None", value)
    return value


def _object(value: object, path: str) -> FrozenDict:
    if not isinstance(value, dict):
        raise InvalidValueError(path, f"expected a dict, found {type(value).__name__}")
    frozen: FrozenDict = freeze(value, path)
    return frozen


def _names(value: object, path: str) -> FrozenTuple:
    if not is_list(value):
        raise _wrong(path, "a list of strings", value)
    names = tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise _wrong(path, "strings", name)
    return FrozenTuple([freeze(name, path) for name in names])


TEXT = checked(_text)
"""Text that UTF-8 can write."""

FLAG = checked(_flag)
"""True, False or None."""

JSON_VALUE = checked(freeze, "json")
"""A JSON value, frozen."""

OBJECT = checked(_object, "json")
"""A JSON object, frozen."""

NAMES = checked(_names, "json")
"""A list of strings, as a tuple."""

NAME_SET = checked(lambda value, path: frozenset(_names(value, path)), "set")
"""A set of strings."""


def check_unknown(fields: Iterable[attrs.Attribute[Any]], value: object, path: str) -> FrozenDict:
    """The check of what a value keeps that a later version wrote, beside the fields that it has itself."""
    frozen = _object(value, path)
    known = [field.name for field in fields if field.name in frozen and field.name != "unknown_fields"]
    if known:  # in JSON they would take the place of the fields themselves
        raise InvalidValueError(path, f"expected fields unknown to this version, found {', '.join(known)}")
    return frozen


def instance_of(kind: type) -> dict[str, Any]:
    """One of *kind*."""

    def check(value: object, path: str) -> object:
        if not isinstance(value, kind):
            raise _wrong(path, kind.__name__, value)
        return value

    return checked(check)


def _bounded(what: str, least: float | None, most: float | None) -> str:
    bounds = [f"at {word} {bound}" for word, bound in (("least", least), ("most", most)) if bound is not None]
    return f"{what} of {' and '.join(bounds)}" if bounds else what


def integer(least: int | None = None, most: int | None = None) -> dict[str, Any]:
    """An integer that can be stored, of at least *least*, and not beyond *most*, which nobody needs."""
    expected = _bounded("an integer", least, most)

    def check(value: Any, path: str) -> int:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer or (least is not None and value < least) or (most is not None and value > most):
            raise _wrong(path, expected, value)
        plain: int = freeze(value, path)
        return plain

    return checked(check)


def number(least: float | None = None, most: float | None = None) -> dict[str, Any]:
    """A finite number within these bounds, as a float."""
    expected = _bounded("a finite number", least, most)
    low = -sys.float_info.max if least is None else least
    high = sys.float_info.max if most is None else most

    def check(value: object, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise _wrong(path, expected, value)
        return float(value)

    return checked(check)


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether *value* is a list of something, or can be made one; neither a text nor a dict is."""
    if type(value) is list or type(value) is tuple:
        return True
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict))


def setting(expected: str, fits: Callable[[Any], bool], *, of: str | None = None) -> Callable[[Any, Any, Any], None]:
    """
    Return attrs' validator of a setting: a value that does not fit raises ConfigurationError.

    Args:
        expected: What fits, for the message.
        fits: Whether a value fits.
        of: The class that the user writes, if it is another one than that of the field.
    """

    def check(instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if not fits(value):
            owner = of or type(instance).__name__
            raise ConfigurationError(f"{owner}.{field.name}: expected {expected}, found {brief(value)}")

    return check
