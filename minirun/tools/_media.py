"""
Images, sounds and files that a tool returns: a `Part`, a `Blob` or a `FileData`, or a list of them with texts.

They go with the tool's response as its `parts`, in their order. The response itself says what they are, so that whoever
cannot see them, a model or a person who reads the log, is told of them: `{"text": ..., "media": ["image/png, 70 B"]}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._json import FrozenDict, brief, freeze
from ..errors import InvalidValueError
from ..flows._written import written
from ..types import Blob, FileData, Part

__all__ = ["Media", "media_in", "told_of"]

_ADVICE = "return texts, Parts, Blobs and FileData, and what else there is as JSON in a text"


def told_of(value: object, path: str) -> tuple[FrozenDict, Sequence[Part]]:
    """
    Return the response that a result makes which is no JSON, but has one form in it, or media, and these media.

    Raises:
        InvalidValueError: It has neither.
    """
    media = media_in(value, path)
    if media is not None:
        return freeze({"result": media.told}, path), media.parts
    plain = written(value, path)
    return freeze(plain if isinstance(value, dict) else {"result": plain}, path), ()


class Media(NamedTuple):
    """What of a result goes into its response, and the parts that go with it."""

    told: dict[str, Any]
    parts: Sequence[Part]


def media_in(value: object, path: str) -> Media | None:
    """
    Return the media that a tool has returned; None if it has returned something else.

    Raises:
        InvalidValueError: There are media beside what is neither media nor text.
    """
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not any(isinstance(item, (Part, Blob, FileData)) for item in items):
        return None
    texts: list[str] = []
    parts: list[Part] = []
    for index, item in enumerate(items):
        at = path if items[0] is value else f"{path}[{index}]"
        part = _checked(_part(item, at), at)
        if part.text is None:
            parts.append(part)
        elif part.text:
            texts.append(part.text)
    told: dict[str, Any] = {"text": "\n".join(texts)} if texts else {}
    return Media({**told, "media": [_reference(part) for part in parts]} if parts else told, parts)


def _part(item: object, path: str) -> Part:
    if isinstance(item, str):
        return Part(text=item)
    if isinstance(item, Blob):
        return Part(inline_data=item)
    if isinstance(item, FileData):
        return Part(file_data=item)
    if isinstance(item, Part) and (item.text, item.inline_data, item.file_data) != (None, None, None):
        return item
    raise InvalidValueError(path, f"expected a text or media, found {brief(item)}; {_ADVICE}")


def _checked(part: Part, path: str) -> Part:
    """Raise InvalidValueError for a reference to an artifact, which no model can follow."""
    if part.file_data is not None and part.file_data.file_uri.startswith("artifact:"):
        advice = "return what `await tool_context.load_artifact(name)` returns, which is the media themselves"
        raise InvalidValueError(path, f"expected media, found a reference to an artifact; {advice}")
    return part


def _reference(part: Part) -> str:
    """What stands for a part where it cannot be seen."""
    if part.inline_data is not None:
        blob = part.inline_data
        about = [blob.display_name, blob.mime_type, f"{len(blob.data)} B"]
    else:
        assert part.file_data is not None, "it is one of the two"
        about = [part.file_data.display_name, part.file_data.mime_type, part.file_data.file_uri]
    return ", ".join(each for each in about if each)
