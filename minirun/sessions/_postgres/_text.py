"""
Texts as Postgres can keep them.

A column of text cannot hold NUL, and a row of an index no more than 2 704 bytes. The keys of a state, the ids of calls
and of invocations are any text. So they stand as JSON has them, where NUL is an escape; and an index has of a long one
its hash, with the text itself in a column beside it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from ..._json import dumps, loads
from ...errors import InvalidValueError
from .._key import SessionKey

__all__ = ["ID_BYTES_MAX", "check_key_bytes", "read_key", "stored_key"]

# Of a name or id in a session's key: three of these fit into a row of an index, with room.
ID_BYTES_MAX: Final = 512
_KEY_BYTES_MAX: Final = 512


def stored_key(text: str) -> tuple[str, str | None]:
    """What stands for *text* in an index, and what beside it, if that does not have all of it."""
    escaped = dumps(text)[1:-1]
    if len(escaped.encode()) <= _KEY_BYTES_MAX:
        return f"={escaped}", None
    return f"#{sha256(escaped.encode()).hexdigest()}", escaped


def read_key(key: str, name: str | None) -> str:
    """
    The text that `stored_key` wrote.

    Raises:
        ValueError: It was not written by that.
    """
    text = loads(f'"{key[1:] if name is None else name}"')
    if not isinstance(text, str) or stored_key(text) != (key, name):
        raise ValueError("a key that is written in another way")
    return text


def check_key_bytes(key: SessionKey) -> None:
    """
    Raise unless a new session can have this key.

    Raises:
        InvalidValueError: Its app, user or id is longer than the index has room for.
    """
    for name, text in (("app_name", key.app_name), ("user_id", key.user_id), ("session_id", key.session_id)):
        size = len(text.encode())
        if size > ID_BYTES_MAX:
            problem = f"expected at most {ID_BYTES_MAX} bytes of UTF-8 for a new session, found {size}"
            raise InvalidValueError(name, f"{problem}; use a shorter one, such as a hash of it")
