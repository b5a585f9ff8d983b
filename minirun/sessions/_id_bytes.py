"""
How long the names and ids of a new session may be, in bytes of UTF-8: the same for every service.

The bound is that of the narrowest: an index of Postgres, whose rows have room for three of these. So a session can be
taken from any service to any other. Sessions that were made with longer ones before there was a bound go on.
"""

from __future__ import annotations

from typing import Final

from ..errors import InvalidValueError
from ._key import SessionKey

__all__ = ["ID_BYTES_MAX", "check_key_bytes"]

ID_BYTES_MAX: Final = 512


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
