"""
The rows of a damaged table, one by one.

They are read by their numbers, where SQLite cannot read a table from end to end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from .._scoped import SEQ_MAX
from .._sqlite._errors import SQLITE_ERRORS

__all__ = ["salvaged"]

# Where SQLite cannot tell which row is next, so many numbers are tried one by one, but no more than there can be rows
# in the file: none is smaller than this. From there on the steps double.
NUMBERS_TRIED: Final = 100_000
ROW_BYTES_MIN: Final = 40


def salvaged(db: sqlite3.Connection, table: str, number: str, columns: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The rows of a table, by their numbers; those that cannot be read are left out."""
    query = f"SELECT {number}, {columns} FROM {table} NOT INDEXED WHERE {number} > ? ORDER BY {number}"
    last = 0
    while True:
        try:
            for row in db.execute(query, (last,)):
                last = row[0]
                yield last, row[1:]
        except SQLITE_ERRORS:
            following = _next_readable(db, query, last)
            if following is None:
                return
            last = following[0]
            yield last, following[1:]
        else:
            return


def _next_readable(db: sqlite3.Connection, query: str, last: int) -> tuple[Any, ...] | None:
    """The first row after *last* that can be read, as far as that can be found out."""
    for candidate in _candidates(db, last):
        try:
            row: tuple[Any, ...] | None = db.execute(f"{query} LIMIT 1", (candidate,)).fetchone()
        except SQLITE_ERRORS:
            continue
        return row
    return None


def _candidates(db: sqlite3.Connection, last: int) -> Iterator[int]:
    try:
        [[pages], [size]] = db.execute("PRAGMA page_count").fetchall() + db.execute("PRAGMA page_size").fetchall()
    except SQLITE_ERRORS:
        pages, size = 0, 0
    single = min(NUMBERS_TRIED, pages * size // ROW_BYTES_MIN)
    yield from range(last + 1, min(last + single, SEQ_MAX))
    step = max(single, 1)
    while last + step < SEQ_MAX:
        yield last + step
        step *= 2
