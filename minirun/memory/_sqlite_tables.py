"""
One user's memories in a SQLite file, as an index (see `sessions._sqlite._memories` for the tables).

FTS5's own `bm25()` is not used: it counts how many memories *of all users* have each word, which takes as long as there
are many, and tells in each score something of what others have said.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence, Sized
from typing import Any, Final

import attrs

from .._codec import from_dict, to_dict
from .._json import brief, dumps, loads
from ..errors import NotSupportedError, StorageFormatError
from ..sessions._sqlite._errors import damage
from ..sessions._sqlite._memories import BLOCK_BITS, PLACE_BITS, PLACES, TABLES, VERSION, token
from ..types import Content
from ._ranking import Numbers, Totals
from ._service import Memory
from ._values import MemoryEntry, Query, Scope

__all__ = ["User", "find_user", "has_tables", "make_tables", "make_user"]

# How many numbers a query names at once, well below SQLite's bound on variables of 32 766.
NUMBERS_MAX: Final = 500


def has_tables(db: sqlite3.Connection, name: str) -> bool:
    """
    Whether the file has memories.

    Raises:
        StorageFormatError: They are of another version.
    """
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'memory_store'").fetchone() is None:
        return False
    found = db.execute("SELECT version FROM memory_store").fetchone()
    if found != (VERSION,):
        msg = f"{name}: expected memories in format {VERSION}, found {brief(found, 40)}; use the one that has made them"
        raise StorageFormatError(msg)
    return True


def make_tables(db: sqlite3.Connection) -> None:
    """Make the tables, in the transaction that needs them."""
    for statement in TABLES:
        _execute(db, statement)


def find_user(db: sqlite3.Connection, scope: Scope) -> User | None:
    """The memories of a user that has, or had, some."""
    query = "SELECT id, newest, count, length FROM memory_users WHERE app_name = ? AND user_id = ?"
    found = db.execute(query, scope).fetchone()
    if found is None:
        return None
    if any(type(value) is not int for value in found):
        raise damage(f"the row of a user's memories has {brief(found)} where integers were written")
    return User(db, found[0], Totals(*found[1:]))


def make_user(db: sqlite3.Connection, scope: Scope) -> User:
    """The memories of a user, who may be new."""
    user = find_user(db, scope)
    if user is None:
        db.execute("INSERT INTO memory_users (app_name, user_id, newest, count, length) VALUES (?, ?, 0, 0, 0)", scope)
        user = find_user(db, scope)
    assert user is not None
    return user


class User:
    """The memories of one user, as an index (see `_ranking.Index`), within one transaction."""

    def __init__(self, db: sqlite3.Connection, row: int, totals: Totals) -> None:
        self._db = db
        self._row = row
        self._totals = totals

    # --- changing it

    def add(self, memory: Memory) -> None:
        """Add it, or put it in the place of the one with its id."""
        if self.is_deleted(memory.id):
            return
        found = self._db.execute(
            "SELECT number FROM memory_entries WHERE user = ? AND id = ?", (self._row, memory.id)
        ).fetchone()
        if found is None:
            self._totals = attrs.evolve(self._totals, newest=self._totals.newest + 1)
            place = self._totals.newest
        else:
            place = found[0] & PLACES
            [known] = self.entries([place])
            if known == memory.entry:
                return
            self._take_out(place)
        entry, marks = memory.entry, [part for part in memory.index if part.startswith("=")]
        self._db.execute(
            "INSERT INTO memory_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._number(place),
                self._row,
                memory.id,
                entry.session_id,
                entry.timestamp,
                memory.length,
                memory.terms,
                " ".join(marks),
                _data_of(entry),
            ),
        )
        tokens = self._tokens(place, memory.index)
        _execute(self._db, "INSERT INTO memory_index (rowid, tokens) VALUES (?, ?)", (self._number(place), tokens))
        self._count(1, memory.length)

    def delete(self, place: int) -> None:
        """Forget it, but for its id."""
        memory_id = self._take_out(place)
        self._db.execute("INSERT INTO memory_deleted VALUES (?, ?)", (self._row, memory_id))

    def _take_out(self, place: int) -> str:
        """Take it out of all tables, and return its id. The index wants to be told what it was given."""
        query = "SELECT id, length, terms, marks FROM memory_entries WHERE number = ?"
        memory_id, length, terms, marks = self._db.execute(query, (self._number(place),)).fetchone()
        tokens = self._tokens(place, (*dict.fromkeys(terms.split()), *marks.split()))
        query = "INSERT INTO memory_index (memory_index, rowid, tokens) VALUES ('delete', ?, ?)"
        _execute(self._db, query, (self._number(place), tokens))
        self._db.execute("DELETE FROM memory_entries WHERE number = ?", (self._number(place),))
        self._count(-1, -length)
        name: str = memory_id
        return name

    def _count(self, count: int, length: int) -> None:
        totals = self._totals
        self._totals = attrs.evolve(totals, count=totals.count + count, length=totals.length + length)

    def save(self) -> None:
        """Write the totals, after all changes."""
        totals = attrs.astuple(self._totals)
        self._db.execute("UPDATE memory_users SET newest = ?, count = ?, length = ? WHERE id = ?", (*totals, self._row))

    # --- looking things up

    def is_deleted(self, memory_id: str) -> bool:
        """Whether there was a memory of this id that was deleted."""
        query = "SELECT 1 FROM memory_deleted WHERE user = ? AND id = ?"
        return self._db.execute(query, (self._row, memory_id)).fetchone() is not None

    def place_of(self, memory_id: str) -> int | None:
        """Where the memory of this id stands, if there is one."""
        query = "SELECT number FROM memory_entries WHERE user = ? AND id = ?"
        found = self._db.execute(query, (self._row, memory_id)).fetchone()
        return None if found is None else found[0] & PLACES

    def places(self, session_id: str | None, limit: int) -> list[int]:
        """Where memories stand, of a session or of all."""
        where, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
        query = f"SELECT number FROM memory_entries WHERE user = ?{where} LIMIT ?"
        return [number & PLACES for (number,) in self._db.execute(query, (self._row, *values, limit))]

    def entries(self, places: Sequence[int]) -> list[MemoryEntry]:
        """The memories that stand there, in this order."""
        found = self.entries_left(places)
        _check_all(places, found)
        return [found[place] for place in places]

    def entries_left(self, places: Sequence[int]) -> dict[int, MemoryEntry]:
        """Those that stand there still, by place: somebody may have deleted some since an earlier transaction."""
        columns = "number, id, session_id, timestamp, data"
        return {number & PLACES: _entry_of(rest) for number, *rest in self._rows_left(columns, places)}

    # --- as an index

    def totals(self) -> Totals:
        return self._totals

    def newest(self, parts: tuple[str, ...], limit: int, query: Query | None, within: Numbers | None) -> list[int]:
        first = 1 if within is None else max(within.first, 1)
        last = self._totals.newest if within is None else min(within.last, self._totals.newest)
        found: list[int] = []
        for block in range(last >> BLOCK_BITS, (first >> BLOCK_BITS) - 1, -1):
            if len(found) < limit and first <= last:
                numbers = Numbers(self._number(first), self._number(last))
                found += self._newest_in_block(block, parts, limit - len(found), query, numbers)
        return found

    def _newest_in_block(
        self, block: int, parts: tuple[str, ...], limit: int, query: Query | None, within: Numbers
    ) -> list[int]:
        start = f"{self._row}x{block}"
        match = " AND ".join(f'"{token(start, part)}"' for part in parts)
        table, times, values = "memory_index", "", ()  # type: tuple[str, str, tuple[float, ...]]
        if query is not None:
            table = "memory_index CROSS JOIN memory_entries ON number = memory_index.rowid"
            times, values = " AND timestamp >= ? AND timestamp < ?", (query.after, query.before)
        statement = (
            f"SELECT memory_index.rowid FROM {table} WHERE memory_index MATCH ? AND memory_index.rowid BETWEEN ? AND ?"
            f"{times} ORDER BY memory_index.rowid DESC LIMIT ?"
        )
        rows = _execute(self._db, statement, (match, within.first, within.last, *values, limit))
        return [number & PLACES for (number,) in rows]

    def newest_before(self, before: float) -> int:
        query = (
            "SELECT number FROM memory_entries WHERE user = ? AND timestamp < ? ORDER BY timestamp DESC, number DESC"
        )
        found = self._db.execute(f"{query} LIMIT 1", (self._row, before)).fetchone()
        return 0 if found is None else found[0] & PLACES

    def lengths(self, numbers: Sequence[int]) -> dict[int, int]:
        found = {number & PLACES: length for number, length in self._rows("number, length", numbers)}
        if any(type(length) is not int for length in found.values()):
            raise damage("the row of a memory has another length than was written")
        return found

    def texts(self, numbers: Sequence[int]) -> Iterable[tuple[int, int, str]]:
        rows = self._rows("number, length, terms", numbers)
        if any(type(length) is not int or type(terms) is not str for _, length, terms in rows):
            raise damage("the row of a memory has other terms than were written")
        return [(number & PLACES, length, terms) for number, length, terms in rows]

    def _rows(self, columns: str, places: Sequence[int]) -> list[tuple[Any, ...]]:
        rows = self._rows_left(columns, places)
        _check_all(places, rows)
        return rows

    def _rows_left(self, columns: str, places: Sequence[int]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for first in range(0, len(places), NUMBERS_MAX):
            numbers = [self._number(place) for place in places[first : first + NUMBERS_MAX]]
            query = f"SELECT {columns} FROM memory_entries WHERE number IN ({', '.join('?' * len(numbers))})"
            rows += self._db.execute(query, numbers)
        return rows

    def _number(self, place: int) -> int:
        return self._row << PLACE_BITS | place

    def _tokens(self, place: int, parts: Iterable[str]) -> str:
        start = f"{self._row}x{place >> BLOCK_BITS}"
        return " ".join([token(start, part) for part in parts])


def _check_all(places: Sequence[int], found: Sized) -> None:
    if len(found) != len(places):
        raise damage(f"the index of memories names {len(places) - len(found)} that are not there")


def _execute(db: sqlite3.Connection, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
    """Execute a statement that needs the full-text index."""
    try:
        return db.execute(statement, values)
    except sqlite3.OperationalError as error:
        if "no such module" not in str(error):
            raise
        msg = f"expected a SQLite with FTS5, found {sqlite3.sqlite_version} without ({error}); use another Python, or "
        raise NotSupportedError(msg + "InMemoryMemoryService") from error


def _data_of(entry: MemoryEntry) -> str:
    """What of an entry has no column."""
    fields = {"content": to_dict(entry.content), "author": entry.author, "metadata": entry.custom_metadata}
    return dumps({name: value for name, value in fields.items() if value})


def _entry_of(columns: Sequence[Any]) -> MemoryEntry:
    """
    The memory of a row.

    Raises:
        sqlite3.DatabaseError: It is none that was ever written: the file is damaged.
    """
    memory_id, session_id, timestamp, data = columns
    try:
        fields = loads(data)
        return MemoryEntry(
            id=memory_id,
            session_id=session_id,
            timestamp=timestamp,
            content=from_dict(Content, fields["content"]),
            author=fields.get("author"),
            custom_metadata=fields.get("metadata", {}),
        )
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise damage(f"the memory {brief(memory_id)} cannot be read ({brief(error, 200)})") from error
