"""
The tables that a SQLite file has for memories.

They stand in a file of their own or among the tables of sessions, which do not know of them. They are made by the first
transaction that adds a memory, and have a version of their own.

A memory's number is `user << 32 | place`: those of a user stand together. The full-text index (FTS5) holds no text and
no positions, only which numbers have a term or a mark. Each of these is indexed under a token that begins with the user
and with the block of 65 536 numbers that the memory is in. So a search never passes what other users have said, and
what it passes of its own user's is bounded, however common the words are.

Nothing here knows more of a memory: that is `minirun.memory`. The tables are defined here because `verify` reads them
too.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BLOCK_BITS", "PLACES", "PLACE_BITS", "TABLES", "VERSION", "token"]

VERSION: Final = 1

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS memory_store (only INTEGER PRIMARY KEY CHECK (only = 1), version INTEGER NOT NULL)",
    f"INSERT OR IGNORE INTO memory_store VALUES (1, {VERSION})",
    "CREATE TABLE IF NOT EXISTS memory_users (id INTEGER PRIMARY KEY AUTOINCREMENT, app_name TEXT NOT NULL,"
    " user_id TEXT NOT NULL, newest INTEGER NOT NULL, count INTEGER NOT NULL, length INTEGER NOT NULL,"
    " UNIQUE (app_name, user_id))",
    "CREATE TABLE IF NOT EXISTS memory_entries (number INTEGER PRIMARY KEY, user INTEGER NOT NULL, id TEXT NOT NULL,"
    " session_id TEXT, timestamp REAL NOT NULL, length INTEGER NOT NULL, terms TEXT NOT NULL, marks TEXT NOT NULL,"
    " data TEXT NOT NULL, UNIQUE (user, id))",
    "CREATE INDEX IF NOT EXISTS memory_entries_sessions ON memory_entries (user, session_id)",
    "CREATE INDEX IF NOT EXISTS memory_entries_times ON memory_entries (user, timestamp)",
    "CREATE TABLE IF NOT EXISTS memory_deleted (user INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (user, id))"
    " WITHOUT ROWID",
    # `ascii` leaves what is beyond ASCII as it is: the tokens are ours.
    "CREATE VIRTUAL TABLE IF NOT EXISTS memory_index USING fts5 (tokens, content='', detail=none, columnsize=0,"
    " tokenize='ascii')",
)

PLACE_BITS: Final = 32
PLACES: Final = (1 << PLACE_BITS) - 1
BLOCK_BITS: Final = 16


def token(start: str, part: str) -> str:
    """
    What a term or a mark is indexed under: letters, digits, and what is beyond ASCII.

    Args:
        start: The user and the block, `7x0`.
        part: A term, or a mark, which begins with `=`.
    """
    return f"{start}m{part[1:]}" if part.startswith("=") else f"{start}w{part}"
