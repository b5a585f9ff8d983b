"""What is said where there is no session."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import SessionNotFoundError
from ._key import SessionKey

__all__ = ["not_found"]


def not_found(key: SessionKey, apps: Iterable[str], advice: str) -> SessionNotFoundError:
    """The error that says which *apps* have a session of this user and id, if any, and what to do."""
    found = ", ".join(sorted(apps))
    hint = f"; the apps that have one of this user and id: {found}" if found else ""
    return SessionNotFoundError(f"there is no {key}{hint}; {advice}")
