"""
What stands in the schema of a file and is not ours, looked for where a schema is not the very one that we write.

A trigger or a view can make of what we write something else, or nothing, without an error; so can a table of ours with
other rules. So each of these is refused, and every table that we do not know: what is in the file is what its events
say. An index that is unique, of an expression or of a part of the rows can refuse what we write, for it is worked out
then; so can one in an order that only somebody else's program knows. Let alone are other indexes, which change no
result, the statistics of SQLite's ANALYZE, the tables of our memories, and those of Litestream, which replicates files
of SQLite and marks each by two tables of its own.

A file that is another program's as a whole, or of a format that is not read, is refused in words from here, too.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeAlias

from ..._json import brief
from ...errors import StorageFormatError
from ._memories import TABLES

__all__ = ["Part", "foreign_parts", "refusal"]

# A row of `sqlite_master`: type, name, table, text.
Part: TypeAlias = tuple[str, str, str, str]

_NAME = re.compile(r"CREATE (?:VIRTUAL )?(TABLE|INDEX) (\w+)")
_MEMORIES = frozenset(statement.replace(" IF NOT EXISTS", "") for statement in TABLES)
# FTS5 keeps an index in tables of its own, each of which it names after it.
_SHADOWS = "memory_index_"
_LITESTREAM = "_litestream_"


def refusal(name: str, wanted: int, found: int | None) -> StorageFormatError:
    """The error for a file of this name that is in another format than the *wanted* one; None: it is not ours."""
    if found is None:
        msg = f"{name}: expected a file made by minirun, found another program's database; use another name"
        return StorageFormatError(msg)
    version = "a newer" if found > wanted else "an older"
    msg = f"{name}: expected format {wanted}, found format {found}, made by {version} minirun; install that, or use"
    return StorageFormatError(f"{msg} another file")


def foreign_parts(
    connection: sqlite3.Connection, found: Collection[Part], ours: Collection[str], *, migrated: bool
) -> Iterator[str]:
    """
    Name each part of a schema that is not ours, and each table of ours that is missing.

    Args:
        connection: To the file.
        found: What its schema has.
        ours: The statements of the format that make something.
        migrated: Whether a migration may have left other texts than these.
    """
    known = {match.groups() for statement in ours if (match := _NAME.match(statement))}
    names = {(kind.upper(), name) for kind, name, _, _ in found}
    strange = [part for part in found if part[3] not in ours and part[3] not in _MEMORIES]
    harmless = _plain_indexes(connection, {table for kind, _, table, _ in strange if kind == "index"})
    for kind, name, table, _ in strange:
        if kind == "index" and name in harmless:
            continue
        if kind == "table" and name.startswith((_SHADOWS, _LITESTREAM)):
            continue
        if (kind.upper(), name) not in known:
            yield f"the {kind} {brief(name)}{'' if table == name else f' on {brief(table)}'}, which is not minirun's"
        elif not migrated:
            yield f"the {kind} {brief(name)} with other rules than minirun gives it"
    yield from (f"no table {name!r}" for kind, name in sorted(known - names) if kind == "TABLE")


def _plain_indexes(connection: sqlite3.Connection, tables: Iterable[str]) -> frozenset[str]:
    """
    The indexes of columns alone that are not unique, and have all rows in an order that SQLite has itself.

    SQLite itself says so: it reads a text in which anything may stand between the words.
    """
    return frozenset(
        name
        for table in tables
        for _, name, is_unique, _, is_partial in _pragma(connection, "index_list", table)
        if not is_unique and not is_partial
        if all(
            at != _EXPRESSION and order in _ORDERS for _, at, _, _, order, _ in _pragma(connection, "index_xinfo", name)
        )
    )


# What `index_xinfo` tells of a column: its place in the table, and its collating sequence.
_EXPRESSION = -2
_ORDERS = ("BINARY", "NOCASE", "RTRIM")


def _pragma(connection: sqlite3.Connection, pragma: str, of: str) -> list[tuple[Any, ...]]:
    quoted = of.replace('"', '""')
    return connection.execute(f'PRAGMA {pragma}("{quoted}")').fetchall()
