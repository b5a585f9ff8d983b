"""
The tables that a database has for memories, made with those of the sessions, which do not know of them.

A memory's place is its number among those of its user, in the order in which they were added. `memory_postings` has a
row for each term and mark of each memory. It is read by its key alone, from the newest place on: so a search finds
exactly what the other services find, never passes what other users have said, and what it passes of its own user's is
bounded, however common the words are. An index over `tsvector` could do neither: it gives all matches in no order, and
a vector has room for less than a memory may have.

Nothing here knows more of a memory: that is `minirun.memory`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MEMORY_TABLES"]

MEMORY_TABLES: Final = (
    """CREATE TABLE minirun.memory_users (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        app_name text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        newest bigint NOT NULL,
        count bigint NOT NULL,
        length bigint NOT NULL,
        UNIQUE (app_name, user_id)
    ) WITH (fillfactor = 70)""",
    """CREATE TABLE minirun.memory_entries (
        of bigint NOT NULL,
        place bigint NOT NULL,
        id text COLLATE "C" NOT NULL,
        session text COLLATE "C",
        timestamp float8 NOT NULL,
        length bigint NOT NULL,
        terms text NOT NULL,
        parts text[] NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (of, place),
        UNIQUE (of, id)
    )""",
    "CREATE INDEX memory_entries_sessions ON minirun.memory_entries (of, session)",
    "CREATE INDEX memory_entries_times ON minirun.memory_entries (of, timestamp, place)",
    """CREATE TABLE minirun.memory_postings (
        of bigint NOT NULL,
        part text COLLATE "C" NOT NULL,
        place bigint NOT NULL,
        PRIMARY KEY (of, part, place)
    )""",
    """CREATE TABLE minirun.memory_deleted (
        of bigint NOT NULL,
        id text COLLATE "C" NOT NULL,
        PRIMARY KEY (of, id)
    )""",
)
