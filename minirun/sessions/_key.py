"""Which session: the key of every session, and what names and ids can be."""

from __future__ import annotations

import re

import attrs

from .._json import check_id, shown
from ..errors import InvalidValueError

__all__ = ["CALL_ID", "SessionKey", "check_app_name", "session_key"]

# The ids of calls that the strictest providers accept.
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_APP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@attrs.frozen
class SessionKey:
    """Which session: of which app, user and id."""

    app_name: str
    user_id: str
    session_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r} of user {self.user_id!r} in app {self.app_name!r}"


def check_app_name(name: object) -> str:
    """
    Return *name* if an app can have it: letters, digits, `_` and `-`, a letter or `_` first, and not `user`.

    Raises:
        InvalidValueError: It is not such a name.
    """
    if not isinstance(name, str) or not _APP_NAME.fullmatch(name) or name == "user":
        problem = "expected letters, digits, '_' and '-', beginning with a letter or '_', and not 'user'"
        raise InvalidValueError("app_name", f"{problem}; found {shown(name)}")
    return str.__str__(name)


def session_key(app_name: object, user_id: object, session_id: object) -> SessionKey:
    """
    Return the key of a session, with the ids exactly as they are given.

    Raises:
        InvalidValueError: One of the three cannot be a name or an id.
    """
    return SessionKey(check_app_name(app_name), check_id("user_id", user_id), check_id("session_id", session_id))
