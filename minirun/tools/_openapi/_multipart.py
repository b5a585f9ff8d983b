"""
Bodies with files: forms of several parts (RFC 7578), and files alone. No I/O here.

A model cannot write bytes. So where the document wants a file, the argument is the name of an artifact of the session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from ...errors import ArgumentError
from ...types import Blob
from ._operations import Operation
from ._styles import plain

__all__ = ["file_names", "form_of"]

_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def file_names(operation: Operation, args: Mapping[str, Any]) -> list[str]:
    """
    Return the names of the artifacts that a call sends.

    Raises:
        ArgumentError: One is no name.
    """
    body = args.get(operation.body_name) if operation.body_name else None
    if operation.body_is_file:
        found = [body]
    else:
        fields = body.items() if isinstance(body, dict) else ()
        found = [each for name, value in fields if name in operation.body_files for each in _each(value)]
    if not all(isinstance(name, str) and name for name in found if name is not None):
        raise ArgumentError("expected the name of an artifact where a file is sent, found something else")
    return list(dict.fromkeys(name for name in found if name is not None))


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def form_of(operation: Operation, value: Any, files: Mapping[str, Blob]) -> tuple[str, bytes]:
    """
    Return the media type and the content of a form of several parts.

    Raises:
        ArgumentError: The value has no fields.
    """
    if not isinstance(value, dict):
        raise ArgumentError("expected the fields of a form as an object, found something else")
    parts = list(_parts(operation, value, files))
    boundary = blake2b(b"\0".join(parts), digest_size=16).hexdigest()  # no part holds a hash of itself
    mark = f"--{boundary}".encode()
    content = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
    return f"multipart/form-data; boundary={boundary}", content


def _parts(operation: Operation, value: Mapping[str, Any], files: Mapping[str, Blob]) -> Iterator[bytes]:
    for name, item in value.items():
        said = operation.body_types.get(name, "")
        own = said if _TYPE.fullmatch(said) else ""
        for each in _each(item):
            if each is None:
                continue
            if name in operation.body_files:
                blob = files[each]
                kind = own or (blob.mime_type if _TYPE.fullmatch(blob.mime_type) else "application/octet-stream")
                yield _part(name, kind, blob.data, filename=each.rpartition("/")[2].removeprefix("user:"))
            elif isinstance(each, (dict, list)) or own.endswith("json"):
                text = json.dumps(each, ensure_ascii=False, separators=(",", ":"))
                yield _part(name, own or "application/json", text.encode())
            else:
                yield _part(name, own, plain(each).encode())


def _part(name: str, media_type: str, content: bytes, *, filename: str | None = None) -> bytes:
    said = f'form-data; name="{_quoted(name)}"' + (f'; filename="{_quoted(filename)}"' if filename is not None else "")
    kind = f"content-type: {media_type}\r\n" if media_type else ""
    return f"content-disposition: {said}\r\n{kind}\r\n".encode() + content


def _quoted(text: str) -> str:
    """A name in quotes, as browsers write it: nothing in it ends the quotes or the line."""
    return re.sub('["\r\n\0]', lambda found: f"%{ord(found[0]):02X}", text)
