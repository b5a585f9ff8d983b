"""How files are made: for this user alone (0600), because what agents hear and say is nobody else's."""

from __future__ import annotations

import os

__all__ = ["open_private"]


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """
    Open a file with these `os.O_…` flags, and return its descriptor. What it makes no other user can read.

    What is there keeps its mode. Files that SQLite lays beside a database have that of the database.
    """
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
