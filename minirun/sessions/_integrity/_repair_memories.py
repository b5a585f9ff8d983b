"""
What is whole of the memories in a damaged session file, in a new one.

Whose they are, what they say and which ids were deleted is copied row by row; the index is made anew from that, and so
are the totals. A memory whose user is lost is not kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeAlias

from .._sqlite._errors import SQLITE_ERRORS
from .._sqlite._memories import PLACE_BITS, PLACES, TABLES, VERSION
from ._salvage import salvaged
from ._verify_memories import ENTRY, entry_problem, tokens_of

__all__ = ["save_memories"]

Lose: TypeAlias = Callable[[str, str], None]


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
    _save_deleted(old, new, users)
    _save_entries(old, new, users, lose)


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
    for number, row in salvaged(old, "memory_entries", "number", ENTRY):
        user, place = number >> PLACE_BITS, number & PLACES
        name = f"memory {row[1]!r:.80}"
        problem = entry_problem(number, row) or ("" if user in users else "whose it is is lost")
        if not problem and new.execute("SELECT 1 FROM memory_deleted WHERE user = ? AND id = ?", row[:2]).fetchone():
            problem = "it was deleted"
        if problem:
            lose(name, f"it is not kept: {problem}")
            continue
        query = "INSERT OR IGNORE INTO memory_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        if new.execute(query, (number, *row)).rowcount != 1:
            lose(name, "it is not kept: there is another one of its id")
            continue
        tokens = " ".join(tokens_of(number, row))
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
