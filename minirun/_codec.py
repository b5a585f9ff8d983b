"""
Values to JSON and back.

One line of JSON per event, fields at their default left out, bytes as base64, field names as in Python. What a later
version wrote and this one does not know comes back from `unknown_fields`, at every level, so that reading and writing
a log never loses anything. How a field is written follows from its metadata; what a class makes of its fields, and what
it refuses, is its own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import attrs

from ._json import dumps, loads
from .errors import InvalidValueError
from .events import Event, EventActions, NodeInfo
from .types import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
    UsageMetadata,
)

__all__ = ["content_from_dict", "content_to_dict", "event_from_json", "event_to_dict", "event_to_json"]

_T = TypeVar("_T")

_Coder: TypeAlias = Callable[[Any], Any]

# The fields that hold values of these classes. All of them may be null, but for `actions`.
_CLASSES: Final[dict[str, type]] = {
    "actions": EventActions,
    "code_execution_result": CodeExecutionResult,
    "content": Content,
    "executable_code": ExecutableCode,
    "file_data": FileData,
    "function_call": FunctionCall,
    "function_response": FunctionResponse,
    "inline_data": Blob,
    "node_info": NodeInfo,
    "usage_metadata": UsageMetadata,
}


class _Form(NamedTuple):
    """How a class is read and written."""

    known: frozenset[str]
    required: tuple[str, ...]
    readers: dict[str, _Coder]
    """Of the fields that are not handed to the class as they stand in the JSON."""
    writers: tuple[tuple[str, object, _Coder | None], ...]
    """Of each field, in order: its name, its default, and what makes it JSON if it is not already."""


@cache
def _form(cls: Any) -> _Form:
    fields = [field for field in attrs.fields(cls) if not field.metadata.get("unknown")]
    readers = {field.name: _reader(field.name) for field in fields}
    return _Form(
        known=frozenset(readers),
        required=tuple(field.name for field in fields if field.default is attrs.NOTHING),
        readers={name: read for name, read in readers.items() if read is not None},
        writers=tuple((field.name, field.default, _writer(field)) for field in fields),
    )


def _reader(name: str) -> _Coder | None:
    if name == "parts":
        return lambda items: [_read(item, Part) for item in items]
    cls = _CLASSES.get(name)
    if cls is None:
        return None
    is_never_null = cls is EventActions
    return lambda fields: None if fields is None and not is_never_null else _read(fields, cls)


def _writer(field: attrs.Attribute[Any]) -> _Coder | None:
    cls = _CLASSES.get(field.name)
    if cls is not None:
        return lambda value: None if value is None else _written(value, cls)
    if field.name == "parts":
        return lambda parts: [_written(part, Part) for part in parts]
    if field.metadata.get("bytes"):
        return lambda value: None if value is None else base64.b64encode(value).decode("ascii")
    return _sorted if field.metadata.get("set") else None


def _sorted(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _read(fields: Any, cls: Any) -> Any:
    if not isinstance(fields, dict):
        raise InvalidValueError(cls.__name__, f"expected a JSON object, found {type(fields).__name__}")
    form = _form(cls)
    given: dict[str, Any] = {**fields}
    if not fields.keys() <= form.known:
        given["unknown_fields"] = {name: given.pop(name) for name in fields if name not in form.known}
    for name, read in form.readers.items():
        if name in given:
            given[name] = read(given[name])
    for name in form.required:
        if name not in given:
            raise KeyError(name)
    return cls(**given)


def _written(value: Any, cls: type) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, default, write in _form(cls).writers:
        item = getattr(value, name)
        if item is not default and item != default:  # most are their default, by identity
            fields[name] = item if write is None else write(item)
    if value.unknown_fields:
        fields.update(value.unknown_fields)
    return fields


def _structure(fields: Any, cls: type[_T]) -> _T:
    try:
        value: _T = _read(fields, cls)
    except InvalidValueError:
        raise
    except Exception as error:  # whatever a foreign JSON document provokes, told as one error that names the class
        raise InvalidValueError(cls.__name__, f"cannot be read from this JSON ({error!r:.200})") from error
    return value


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return *event* as plain JSON values."""
    return _written(event, Event)


def event_to_json(event: Event) -> str:
    """Return *event* as one line of JSON, which reads back as an equal event."""
    return dumps(event_to_dict(event))


def event_from_json(line: str | bytes) -> Event:
    """
    Read an event from its JSON.

    Raises:
        InvalidValueError: It is not JSON, or not an event.
    """
    try:
        fields = loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError("Event", f"expected a line of JSON, found {line!r:.80} ({error})") from None
    return _structure(fields, Event)


def content_to_dict(content: Content) -> dict[str, Any]:
    """Return *content* as plain JSON values."""
    return _written(content, Content)


def content_from_dict(fields: dict[str, Any]) -> Content:
    """
    Read a content from plain JSON values.

    Raises:
        InvalidValueError: They are not those of a content.
    """
    return _structure(fields, Content)
