"""
Values of any class to JSON and back.

One line of JSON per value, fields at their default left out, bytes as base64, field names as in Python. What a later
version wrote and this one does not know comes back from `unknown_fields`, at every level, so that reading and writing
a log never loses anything. This is the only user of cattrs, which is imported when the first value is coded.

It knows no class by name: what is special about a field stands in its metadata, and every class reads itself.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_type_hints

import attrs

from ._json import brief, dumps, loads
from .errors import InvalidValueError

__all__ = ["from_dict", "from_json", "object_of", "to_dict", "to_json"]

_T = TypeVar("_T")

def _is_value(thing: Any) -> bool:
    """Whether *thing* is a value, or the class of one; `_values` cannot be asked, because values ask here."""
    return hasattr(thing, "unknown_fields")


@cache
def _converter() -> Any:
    import cattrs  # its import costs as much as the whole package; a program that stores nothing never pays it
    import cattrs.gen

    converter = cattrs.Converter(detailed_validation=False)
    for kind in (str, int, float, bool, bytes):
        converter.register_structure_hook(kind, _as_it_is)  # the classes check their own fields

    def overrides(cls: Any) -> dict[str, Any]:
        return {field.name: _override(field, cattrs.gen.override) for field in attrs.fields(cls)}

    def writer(cls: type) -> Callable[[Any], dict[str, Any]]:
        unwritten = {**overrides(cls), "unknown_fields": cattrs.gen.override(omit=True)}
        return _writer(cattrs.gen.make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, **unwritten))

    def reader(cls: type) -> Callable[[Any, Any], Any]:
        read: Any = cattrs.gen.make_dict_structure_fn(
            cls, converter, _cattrs_detailed_validation=False, _cattrs_use_alias=False, **overrides(cls)
        )
        return _reader(cls, read)

    # Made when a class is first written, or read: who only writes does not pay for reading.
    converter.register_unstructure_hook_factory(_is_value, writer)
    converter.register_structure_hook_factory(_is_value, reader)
    return converter


def _override(attribute: attrs.Attribute[Any], override: Callable[..., Any]) -> Any:
    form = attribute.metadata.get("form")
    if form is None:
        return override()
    return override(struct_hook=attribute.metadata.get("read", _as_it_is), unstruct_hook=_UNSTRUCTURE[form])


def _as_it_is(value: Any, _: Any = None) -> Any:
    return value  # JSON is frozen already, and the class itself checks and freezes what was read


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _to_list(value: frozenset[str] | None) -> list[str] | None:
    return None if value is None else sorted(value)


# Written by hand, which takes less time than cattrs does to compile it for three more classes.


def _to_notes(value: Any) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    for field in attrs.fields(type(value)):
        note = getattr(value, field.name)
        if note is field.default:
            continue
        if field.name == "unknown_fields":
            notes.update(note)
        elif note != field.default:
            notes[field.name] = _to_notes(note) if _is_value(note) else note
    return notes


_UNSTRUCTURE: dict[str, Callable[[Any], Any]] = {
    "json": _as_it_is,
    "bytes": _to_base64,
    "set": _to_list,
    "replay": _to_notes,
}


def _writer(write: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    def unstructure(value: Any) -> dict[str, Any]:
        fields = write(value)
        if value.unknown_fields:
            fields.update(value.unknown_fields)
        return fields

    return unstructure


def _reader(cls: type, read: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    known = frozenset(get_type_hints(cls)) - {"unknown_fields"}

    def structure(fields: Any, _: Any) -> Any:
        if not isinstance(fields, dict):
            raise InvalidValueError(cls.__name__, f"expected a JSON object, found {type(fields).__name__}")
        if fields.keys() <= known:
            return read(fields, cls)
        unknown = {name: fields[name] for name in fields if name not in known}
        return read({**{name: fields[name] for name in fields if name in known}, "unknown_fields": unknown}, cls)

    return structure


def to_dict(value: object) -> dict[str, Any]:
    """Return *value* as plain JSON values."""
    fields: dict[str, Any] = _converter().unstructure(value)
    return fields


def to_json(value: object) -> str:
    """Return *value* as one line of JSON, which reads back as an equal value."""
    return dumps(to_dict(value))


def from_dict(cls: type[_T], fields: Any) -> _T:
    """
    Read a value of *cls* from plain JSON values.

    Raises:
        InvalidValueError: They are not those of one.
    """
    try:
        value: _T = _converter().structure(fields, cls)
    except InvalidValueError:
        raise
    except Exception as error:  # whatever a foreign JSON document provokes, told as one error that names the class
        raise InvalidValueError(cls.__name__, f"cannot be read from this JSON ({brief(error, 200)})") from error
    return value


def from_json(cls: type[_T], text: str | bytes) -> _T:
    """
    Read a value of *cls* from its JSON.

    Raises:
        InvalidValueError: It is not JSON, or not that of one.
    """
    return from_dict(cls, object_of(cls.__name__, text))


def object_of(what: str, text: str | bytes) -> Any:
    """
    Return what a JSON text holds; *what* it is to be stands in messages.

    Raises:
        InvalidValueError: It is not JSON.
    """
    try:
        return loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(what, f"expected a line of JSON, found {brief(text)} ({error})") from None
