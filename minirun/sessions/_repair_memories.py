"""
What is whole of the memories in a damaged session file, in a new one.

Whose they are, what they say and which ids were deleted is copied row by row; the index is made anew from that, and so
are the totals. A memory whose user is lost is not kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ._salvage import salvaged
from ._sqlite_errors import SQLITE_ERRORS
from ._sqlite_memories import BLOCK_BITS, PLACE_BITS, PLACES, TABLES, VERSION, token

__all__ = ["save_memories"]

Lose: TypeAlias = Callable[[str, str], None]

_TYPES: Final = ((int,), (str,), (str, type(None)), (float,), (int,), (str,), (str,), (str,))


def save_memories(old: sqlite3.Connection, new: sqlite3.Connection, lose: Lose) -> None:
    """Copy what is whole; *lose* is told what is not."""
    try:
        found = old.execute("SELECT version FROM memory_store").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return
        raise
    except SQLITE_ERRORS:
        found = None
    if found not in (None, (VERSION,)):
        lose("file", f"memories are not kept: expected them in format {VERSION}, found {found!r:.40}")
        return
    try:
        for statement in TABLES:
            new.execute(statement)
    except sqlite3.OperationalError as error:
        lose("file", f"memories are not kept: this SQLite cannot index them ({error})")
        return
    users = _save_users(old, new, lose)
    _save_entries(old, new, users, lose)
    _save_deleted(old, new, users)


def _save_users(old: sqlite3.Connection, new: sqlite3.Connection, lose: Lose) -> set[int]:
    """Copy whose memories there are; return their numbers."""
    users = set()
    for user, (app, name, newest) in salvaged(old, "memory_users", "id", "app_name, user_id, newest"):
        if not (isinstance(app, str) and isinstance(name, str)):
            lose(f"user row {user}", f"memories are not kept: whose they are is lost, found {app!r:.40}, {name!r:.40}")
            continue
        last = newest if type(newest) is int and 0 <= newest <= PLACES else 0
        query = "INSERT OR IGNORE INTO memory_users VALUES (?, ?, ?, ?, 0, 0)"
        if new.execute(query, (user, app, name, last)).rowcount == 1:
            users.add(user)
    return users


def _save_entries(old: sqlite3.Connection, new: sqlite3.Connection, users: set[int], lose: Lose) -> None:
    columns = "user, id, session_id, timestamp, length, terms, marks, data"
    for number, row in salvaged(old, "memory_entries", "number", columns):
        user, place = number >> PLACE_BITS, number & PLACES
        name = f"memory {row[1]!r:.80}"
        if user not in users or row[0] != user or not _is_whole(row):
            lose(name, "it is not kept: its row makes no sense, or whose it is is lost")
            continue
        query = "INSERT OR IGNORE INTO memory_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        if new.execute(query, (number, *row)).rowcount != 1:
            lose(name, "it is not kept: there is another one of its id")
            continue
        start, parts = f"{user}x{place >> BLOCK_BITS}", (*dict.fromkeys(row[5].split()), *row[6].split())
        tokens = " ".join([token(start, part) for part in parts])
        new.execute("INSERT INTO memory_index (rowid, tokens) VALUES (?, ?)", (number, tokens))
        query = "UPDATE memory_users SET newest = max(newest, ?), count = count + 1, length = length + ? WHERE id = ?"
        new.execute(query, (place, row[4], user))


def _save_deleted(old: sqlite3.Connection, new: sqlite3.Connection, users: set[int]) -> None:
    for user in users:
        try:
            for (name,) in old.execute("SELECT id FROM memory_deleted WHERE user = ?", (user,)):
                if isinstance(name, str):
                    new.execute("INSERT OR IGNORE INTO memory_deleted VALUES (?, ?)", (user, name))
        except SQLITE_ERRORS:
            continue  # what was deleted may be added again


def _is_whole(row: tuple[Any, ...]) -> bool:
    typed = all(type(value) in kinds for value, kinds in zip(row, _TYPES, strict=True))
    return typed and row[4] == len(row[5].split())
