"""
Are the memories of a file what was written, and does their index find them?

Each row can be read, belongs to a user, and is counted in that user's totals. The full-text index has the terms and
marks of each memory, and no others: both sides are added up, for each memory, and have to come to the same.

Which ids were deleted nothing else says, and whether terms are those of the text only `minirun.memory` knows: neither
is looked at.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ..._codec import content_from_dict
from ..._json import loads
from .._sqlite._memories import BLOCK_BITS, PLACE_BITS, PLACES, VERSION, token

__all__ = ["ENTRY", "check_memories", "entry_problem", "tokens_of"]

Report: TypeAlias = Callable[[str, str], None]

ENTRY: Final = "user, id, session_id, timestamp, length, terms, marks, data"
"""The columns of a memory but its number, as `entry_problem` and `tokens_of` take them."""

_TYPES: Final = ((int,), (str,), (str, type(None)), (float,), (int,), (str,), (str,), (str,))


def check_memories(db: sqlite3.Connection, report: Report) -> None:
    """Look at all memories, and report what is wrong."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'memory_store'").fetchone() is None:
        return
    found = db.execute("SELECT version FROM memory_store").fetchone()
    if found != (VERSION,):
        report("file", f"expected memories in format {VERSION}, found {found!r:.40}")
        return
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    sums: dict[int, int] = defaultdict(int)
    for number, *row in db.execute(f"SELECT number, {ENTRY} FROM memory_entries"):
        problem = entry_problem(number, row)
        if problem:
            report(f"memory {row[1]!r:.80}", problem)
            continue
        user = totals[row[0]]
        user[:] = max(user[0], number & PLACES), user[1] + 1, user[2] + row[4]
        for each in tokens_of(number, row):
            sums[number] += hash(each)
    _check_users(db, totals, report)
    _check_index(db, sums, report)
    query = "SELECT id FROM memory_entries e JOIN memory_deleted d USING (user, id)"
    for (name,) in db.execute(query):
        report(f"memory {name!r:.80}", "it is there, and it was deleted")


def entry_problem(number: Any, row: Any) -> str:
    """What is wrong with the row of a memory; empty if nothing is."""
    if any(type(value) not in kinds for value, kinds in zip(row, _TYPES, strict=True)):
        return "its row has values of other types than were written"
    if row[0] != number >> PLACE_BITS:
        return f"its number {number} is not one of its user, {row[0]}"
    if row[4] != len(row[5].split()):
        return f"expected {row[4]} terms, found {len(row[5].split())}"
    try:
        fields = loads(row[7])
        content_from_dict(fields["content"])
        is_whole = isinstance(fields.get("author", ""), str) and isinstance(fields.get("metadata", {}), dict)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        return f"it cannot be read ({error!r:.200})"
    return "" if is_whole else "it cannot be read: its author or its metadata is none"


def tokens_of(number: int, row: Any) -> list[str]:
    """What the index has of a memory."""
    start = f"{row[0]}x{(number & PLACES) >> BLOCK_BITS}"
    return [token(start, part) for part in (*dict.fromkeys(row[5].split()), *row[6].split())]


def _check_users(db: sqlite3.Connection, totals: dict[int, list[int]], report: Report) -> None:
    for user, app, name, *written in db.execute(
        "SELECT id, app_name, user_id, newest, count, length FROM memory_users"
    ):
        place, found = f"memories of user {name!r:.80} of app {app!r:.80}", totals.pop(user, [0, 0, 0])
        if any(type(value) is not int for value in written) or written[0] < found[0] or written[1:] != found[1:]:
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
        place = f"memory number {number}" if found is None else f"memory {found[0]!r:.80}"
        report(place, "the index has other words for it than it has, so searches may miss it, or fail")
