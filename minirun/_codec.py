"""
Values to JSON and back.

One line of JSON per event, fields at their default left out, bytes as base64, field names as in Python. What a later
version wrote and this one does not know comes back from `unknown_fields`, at every level, so that reading and writing
a log never loses anything. This is the only user of cattrs, which is imported when the first value is coded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_type_hints

import attrs

from ._json import brief, dumps, freeze, loads
from ._values import Value, changed
from .errors import InvalidValueError
from .events import Event, EventActions, NodeInfo, Replay, replay_of
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

_CLASSES: tuple[type, ...] = (
    Blob,
    CodeExecutionResult,
    Content,
    Event,
    EventActions,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    NodeInfo,
    Part,
    UsageMetadata,
)


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
    converter.register_unstructure_hook_factory(_CLASSES.__contains__, writer)
    converter.register_structure_hook_factory(_CLASSES.__contains__, reader)
    return converter


def _override(attribute: attrs.Attribute[Any], override: Callable[..., Any]) -> Any:
    form = attribute.metadata["form"]
    if form is None:
        return override()
    return override(struct_hook=_STRUCTURE.get(form, _as_it_is), unstruct_hook=_UNSTRUCTURE[form])


def _as_it_is(value: Any, _: Any = None) -> Any:
    return value  # JSON is frozen already, and the class itself checks and freezes what was read


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _to_list(value: frozenset[str] | None) -> list[str] | None:
    return None if value is None else sorted(value)


# Written and read by hand, which takes less time than cattrs does to compile it for three more classes.


def _to_notes(value: Any) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    for field in attrs.fields(type(value)):
        note = getattr(value, field.name)
        if note is field.default:
            continue
        if field.name == "unknown_fields":
            notes.update(note)
        elif note != field.default:
            notes[field.name] = _to_notes(note) if isinstance(note, Value) else note
    return notes


def _from_notes(notes: Any, _: Any) -> Replay:
    """
    What is stored of a `Replay`. What this version can make nothing of is kept as fields that it does not know are.

    So an event stays readable whatever another program has written there: only the runtime needs it.
    """
    try:
        return replay_of(notes)
    except InvalidValueError:
        if not isinstance(notes, dict):
            raise
    odd = {name: note for name, note in notes.items() if not _is_of_replay({name: note})}
    read = replay_of({name: note for name, note in notes.items() if name not in odd})
    return changed(read, unknown_fields=freeze({**read.unknown_fields, **odd}, "EventActions.replay"))


def _is_of_replay(notes: dict[str, Any]) -> bool:
    try:
        replay_of(notes)
    except InvalidValueError:
        return False
    return True


_UNSTRUCTURE: dict[str, Callable[[Any], Any]] = {
    "json": _as_it_is,
    "bytes": _to_base64,
    "set": _to_list,
    "replay": _to_notes,
}
_STRUCTURE: dict[str, Callable[[Any, Any], Any]] = {"replay": _from_notes}


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


def _structure(fields: Any, cls: type[_T]) -> _T:
    try:
        value: _T = _converter().structure(fields, cls)
    except InvalidValueError:
        raise
    except Exception as error:  # whatever a foreign JSON document provokes, told as one error that names the class
        raise InvalidValueError(cls.__name__, f"cannot be read from this JSON ({brief(error, 200)})") from error
    return value


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return *event* as plain JSON values."""
    fields: dict[str, Any] = _converter().unstructure(event)
    return fields


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
        raise InvalidValueError("Event", f"expected a line of JSON, found {brief(line)} ({error})") from None
    return _structure(fields, Event)


def content_to_dict(content: Content) -> dict[str, Any]:
    """Return *content* as plain JSON values."""
    fields: dict[str, Any] = _converter().unstructure(content)
    return fields


def content_from_dict(fields: dict[str, Any]) -> Content:
    """
    Read a content from plain JSON values.

    Raises:
        InvalidValueError: They are not those of a content.
    """
    return _structure(fields, Content)
