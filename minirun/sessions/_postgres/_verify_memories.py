"""
The memories of a database: whether they are what was written, and found by their index.

Each row can be read, and is counted in its user's totals. A memory's parts are its terms, then its marks, and
`memory_postings` has each of them, and nothing else. Which ids were deleted nothing else says, and which terms and
marks a text has only `minirun.memory` knows: neither is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..._codec import from_dict
from ..._json import brief, loads
from ..._postgres._pool import Transaction
from ..._postgres._values import Statement
from ...types import Content
from ._text import stored_key

__all__ = ["check_memories"]

PAGE: Final = 500
# So many wrong rows of one user's index are told by name.
SHOWN: Final = 100

_USERS: Final = Statement(
    "verify_memory_users",
    "SELECT id, app_name, user_id, newest, count, length FROM minirun.memory_users WHERE id > $1 ORDER BY id LIMIT $2",
    "int8 int8",
)
_ENTRIES: Final = Statement(
    "verify_memories",
    """
    SELECT e.place, e.id, e.session, e.timestamp, e.length, e.terms, e.parts, e.data,
        EXISTS (SELECT FROM minirun.memory_deleted d WHERE d.of = e.of AND d.id = e.id)
    FROM minirun.memory_entries e WHERE e.of = $1 AND e.place > $2 ORDER BY e.place LIMIT $3
    """,
    "int8 int8 int8",
)
_INDEX: Final = Statement(
    "verify_postings",
    """
    SELECT wrong.place, t.id FROM (
        SELECT DISTINCT coalesce(e.place, p.place) AS place
        FROM (SELECT place, unnest(parts) AS part FROM minirun.memory_entries WHERE of = $1) e
        FULL JOIN (SELECT place, part FROM minirun.memory_postings WHERE of = $1) p
            ON p.place = e.place AND p.part = e.part
        WHERE e.place IS NULL OR p.place IS NULL ORDER BY place LIMIT $2
    ) wrong LEFT JOIN minirun.memory_entries t ON t.of = $1 AND t.place = wrong.place ORDER BY wrong.place
    """,
    "int8 int8",
)
_STRAY: Final = Statement(
    "verify_stray_memories",
    """
    SELECT DISTINCT of FROM (
        SELECT of FROM minirun.memory_entries UNION SELECT of FROM minirun.memory_postings
        UNION SELECT of FROM minirun.memory_deleted
    ) used WHERE NOT EXISTS (SELECT FROM minirun.memory_users u WHERE u.id = used.of) ORDER BY of
    """,
    once=True,
)


async def check_memories(transaction: Transaction, report: Callable[[str, str], None]) -> None:
    """Look at all memories in the view of *transaction*; *report* is told where something is wrong, and what."""
    user = -1
    while True:
        [page] = await transaction.run(_USERS(user, PAGE))
        for user, app, name, *totals in page.rows:
            await _check_user(transaction, user, f"memories of user {brief(name)} of app {brief(app)}", totals, report)
        if len(page.rows) < PAGE:
            break
    [stray] = await transaction.run(_STRAY())
    for (user,) in stray.rows:
        report("database", f"there are memories of user row {user}, which there is not")


async def _check_user(
    transaction: Transaction, user: int, place: str, totals: Sequence[int], report: Callable[[str, str], None]
) -> None:
    newest = count = length = 0
    while True:
        [page] = await transaction.run(_ENTRIES(user, newest, PAGE))
        for row in page.rows:
            newest, count, length = row[0], count + 1, length + row[4]
            problem = _entry_problem(row)
            if problem:
                report(f"memory {brief(row[1])}", problem)
        if len(page.rows) < PAGE:
            break
    if totals[0] < newest or [*totals[1:]] != [count, length]:
        report(place, f"expected {count} with {length} terms, the newest {newest} or later, found {[*totals]}")
    [index] = await transaction.run(_INDEX(user, SHOWN))
    for at, key in index.rows:
        memory = f"memory number {at} of {place}" if key is None else f"memory {brief(key)}"
        report(memory, "the index has other words for it than it has, so searches may miss it, or find what is not")


def _entry_problem(row: Sequence[Any]) -> str:
    """What is wrong with the row of a memory; empty if nothing is."""
    _, key, session, timestamp, length, terms, parts, data, is_deleted = row
    words = terms.split()
    if length != len(words):
        return f"expected {length} terms, found {len(words)}"
    own = [stored_key(word)[0] for word in dict.fromkeys(words)]
    if parts[: len(own)] != own or len({*parts}) != len(parts):
        return "the words it is looked up by are not those of its text"
    try:
        fields = loads(data)
        from_dict(Content, fields["content"])
        is_whole = isinstance(fields.get("author", ""), str) and isinstance(fields.get("metadata", {}), dict)
        of = fields.get("session_id")
        stored = (stored_key(fields["id"])[0], None if of is None else stored_key(of)[0], fields["timestamp"])
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        return f"it cannot be read ({brief(error, 200)})"
    if not is_whole:
        return "it cannot be read: its author or its metadata is none"
    if stored != (key, session, timestamp):
        return f"its row is that of another one, {brief(stored[0])}"
    return "it is there, and it was deleted" if is_deleted else ""
