"""The result, or the error, that a response becomes. No I/O here."""

from __future__ import annotations

import codecs
import json
from http import HTTPStatus
from typing import Any

from ..._json import freeze
from ..._web import WebAnswer
from ...errors import ApiError, InvalidValueError
from ...models._retry_after import retry_after_s
from ...types import Blob
from ._document import cleaned
from ._operations import Operation

__all__ = ["error_of", "result_of"]

# Of what a server says of an error: what is wrong stands at the beginning.
ERROR_CHARS_MAX = 2_000

_TEXTS = ("text/", "application/xml", "application/yaml", "application/javascript", "application/x-www-form-urlencoded")
_CHARSETS = ("utf-8", "iso8859-1", "ascii", "cp1252", "utf-16", "utf-16-le", "utf-16-be")


def result_of(operation: Operation, answer: WebAnswer) -> Any:
    """
    Return what the model is told: JSON as it is, texts as texts, anything else as media.

    What is longer than it may be is cut if it is a text, and says so.

    Raises:
        ApiError: It is longer than it may be, and no text.
    """
    media_type, charset = _type_of(answer)
    if not answer.body or answer.status in (204, 205):
        return None
    if media_type == "application/json" or media_type.endswith("+json"):
        if not answer.is_cut:
            found = _json(answer.body)
            if found is not _NONE:
                return found
        return _text(answer, charset)
    if media_type.startswith(_TEXTS) or media_type.endswith("+xml") or (not media_type and _is_utf8(answer)):
        return _text(answer, charset)
    if answer.is_cut:
        msg = f"expected {operation.title} to answer with at most {len(answer.body)} bytes of {media_type or 'data'}"
        msg = f"{msg}, found more; ask for less, or make the tools with response_bytes_max="
        raise ApiError(msg, status=answer.status)
    return Blob(data=answer.body, mime_type=media_type or "application/octet-stream")


_NONE = object()


def _json(body: bytes) -> Any:
    """The JSON in a body, as it may be stored; `_NONE` if it is none."""
    try:
        return freeze(json.loads(body))
    except (ValueError, RecursionError, InvalidValueError):
        return _NONE


def _type_of(answer: WebAnswer) -> tuple[str, str]:
    """The media type of a body, and how its texts are written."""
    said, *parameters = answer.headers.get("content-type", "").lower().split(";")
    charset = next((each.partition("=")[2].strip(" \"'") for each in parameters if "charset=" in each), "utf-8")
    media_type = said.strip()
    is_fine = media_type.isascii() and media_type.isprintable() and len(media_type) <= 100
    try:
        name = codecs.lookup(charset[:40]).name
    except (LookupError, ValueError):
        name = "utf-8"
    return media_type if is_fine else "", name if name in _CHARSETS else "utf-8"


def _is_utf8(answer: WebAnswer) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(answer.body, final=not answer.is_cut)
    except UnicodeDecodeError:
        return False
    return True


def _text(answer: WebAnswer, charset: str) -> Any:
    text = answer.body.decode(charset, "replace")
    if not answer.is_cut:
        return text
    return {"text": text, "cut": f"this is the beginning, of {len(answer.body)} bytes; there is more"}


def error_of(operation: Operation, answer: WebAnswer) -> ApiError:
    """What a response that is no success means; of what it says, the beginning."""
    _, charset = _type_of(answer)
    said = cleaned(answer.body[: 4 * ERROR_CHARS_MAX].decode(charset, "replace"), ERROR_CHARS_MAX)
    phrase = HTTPStatus(answer.status).phrase if answer.status in HTTPStatus._value2member_map_ else ""
    status = f"{answer.status} {phrase}".strip()
    msg = f"{operation.title} was answered with {status}" + (f": {said}" if said else "")
    return ApiError(msg, status=answer.status, retry_after_s=retry_after_s(answer.headers))
