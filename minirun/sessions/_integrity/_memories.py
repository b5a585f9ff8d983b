"""
The memories of a file: whether they are what was written and found by their index.

Each row can be read, belongs to a user, and is counted in that user's totals. The full-text index has the terms and
marks of each memory, and no others: both sides are added up, for each memory, and have to come to the same. Which ids
were deleted nothing else says, and whether terms are those of the text only `minirun.memory` knows: neither is looked
at.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ..._codec import from_dict
from ..._json import brief, loads
from ...types import Content
from .._sqlite._memories import BLOCK_BITS, PLACE_BITS, PLACES, VERSION, token

__all__ = ["check_memories"]

Report: TypeAlias = Callable[[str, str], None]
"""Called with what is wrong: where, and what."""

ENTRY: Final = "user, id, session_id, timestamp, length, terms, marks, data"
"""The columns of a memory but its number, as `_entry_problem` and `_tokens_of` take them."""

# A term, or a mark: what the index takes for one word, as it is.
_PART: Final = re.compile(r"=?[0-9a-z\x80-\U0010ffff]+")
# Of a user: the place of the newest memory, how many there are, and how many terms they have.
_Totals: TypeAlias = tuple[int, int, int]
_NONE: Final[_Totals] = (0, 0, 0)
_TYPES: Final = ((int,), (str,), (str, type(None)), (float,), (int,), (str,), (str,), (str,))


def check_memories(db: sqlite3.Connection, report: Report) -> None:
    """Look at all memories, and report what is wrong."""
    if not _has(db, "memory_store"):
        if _has(db, "memory_entries"):
            report("file", "there are memories, and the table memory_store is missing, which says their format")
        return
    found = db.execute("SELECT version FROM memory_store").fetchone()
    if found != (VERSION,):
        report("file", f"expected memories in format {VERSION}, found {brief(found, 40)}")
        return
    totals: dict[int, _Totals] = {}
    sums: dict[int, int] = defaultdict(int)
    for number, *row in db.execute(f"SELECT number, {ENTRY} FROM memory_entries ORDER BY number"):
        problem = _entry_problem(number, row)
        if problem:
            report(f"memory {brief(row[1])}", problem)
            continue
        _, count, length = totals.get(row[0], _NONE)
        totals[row[0]] = number & PLACES, count + 1, length + row[4]
        for each in _tokens_of(number, row):
            sums[number] += hash(each)
    _check_users(db, totals, report)
    _check_index(db, sums, report)
    query = "SELECT id FROM memory_entries e JOIN memory_deleted d USING (user, id)"
    for (name,) in db.execute(query):
        report(f"memory {brief(name)}", "it is there, and it was deleted")


def _has(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _entry_problem(number: Any, row: Any) -> str:
    """What is wrong with the row of a memory; empty if nothing is."""
    if type(number) is not int or any(type(value) not in kinds for value, kinds in zip(row, _TYPES, strict=True)):
        return "its row has values of other types than were written"
    if row[0] != number >> PLACE_BITS:
        return f"its number {number} is not one of its user, {row[0]}"
    if row[4] != len(row[5].split()):
        return f"expected {row[4]} terms, found {len(row[5].split())}"
    odd = [part for part in (*row[5].split(), *row[6].split()) if not _PART.fullmatch(part)]
    if odd:  # the index would make others of them
        return f"expected terms and marks of lower-case letters and digits, found {brief(odd[0], 40)}"
    try:
        fields = loads(row[7])
        from_dict(Content, fields["content"])
        is_whole = isinstance(fields.get("author", ""), str) and isinstance(fields.get("metadata", {}), dict)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        return f"it cannot be read ({brief(error, 200)})"
    return "" if is_whole else "it cannot be read: its author or its metadata is none"


def _tokens_of(number: int, row: Any) -> list[str]:
    """What the index has of a memory."""
    start = f"{row[0]}x{(number & PLACES) >> BLOCK_BITS}"
    return [token(start, part) for part in (*dict.fromkeys(row[5].split()), *row[6].split())]


def _check_users(db: sqlite3.Connection, totals: dict[int, _Totals], report: Report) -> None:
    for user, app, name, *written in db.execute(
        "SELECT id, app_name, user_id, newest, count, length FROM memory_users"
    ):
        place, found = f"memories of user {brief(name)} of app {brief(app)}", totals.pop(user, _NONE)
        if any(type(value) is not int for value in written) or written[0] < found[0] or (*written[1:],) != found[1:]:
            report(place, f"expected {found[1]} with {found[2]} terms, the newest {found[0]} or later, found {written}")
    for user in totals:
        report("file", f"there are memories of user row {user}, which there is not")


def _check_index(db: sqlite3.Connection, sums: dict[int, int], report: Report) -> None:
    """Take what the index has from *sums*: what is left over is wrong."""
    db.execute("CREATE VIRTUAL TABLE temp.memory_index_terms USING fts5vocab('main', 'memory_index', 'instance')")
    rows: Iterable[tuple[str, int]] = db.execute("SELECT term, doc FROM temp.memory_index_terms")
    for term, number in rows:
        sums[number] -= hash(term)
    wrong = [number for number, left in sums.items() if left]
    query = "SELECT id FROM memory_entries WHERE number = ?"
    for number in wrong:
        found = db.execute(query, (number,)).fetchone()
        place = f"memory number {number}" if found is None else f"memory {brief(found[0])}"
        report(place, "the index has other words for it than it has, so searches may miss it, or fail")
