"""Sessions as lists have them."""

from __future__ import annotations

from .._window import Window
from ._key import SessionKey
from ._session import Session

__all__ = ["listed_session"]


def listed_session(
    key: SessionKey, incarnation: int, revision: int, create_time: float, last_update_time: float
) -> Session:
    """A session as lists have it: without events and state."""
    return Session(
        id=key.session_id,
        app_name=key.app_name,
        user_id=key.user_id,
        values=None,
        events=Window([]),
        revision=revision,
        create_time=create_time,
        last_update_time=last_update_time,
        incarnation=incarnation,
    )
