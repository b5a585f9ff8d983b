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

__all__ = ["message_begins", "read_key", "stored_key"]

# Of a key that stands in a row of an index as it is.
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


def message_begins(message_id: str | None) -> str:
    """What the text of the message of this id begins with, and of no other."""
    return f'{{"id":{dumps(message_id)},'
