"""
What `verify` tells of a store in which one value was changed.

Of every table, every column is changed in one row, to another value and to one that cannot be there, and every row of
one kind is deleted once. `fixtures/cells-KIND.json` says what is told then: where, and with which names and numbers.
So what nothing bears witness to stands there, too, with nothing told. Run as a program, this writes it anew.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun._postgres._pool import Transaction
from minirun._postgres._values import Statement
from minirun.artifacts import DatabaseArtifactService, SqliteArtifactService
from minirun.errors import StorageError
from minirun.memory import BaseMemoryService, DatabaseMemoryService, MemoryEntry, SqliteMemoryService
from minirun.sessions import DatabaseSessionService, SqliteSessionService
from minirun.sessions._integrity._verify import Damage, _ignore, _Verifier
from minirun.sessions._postgres._verify import _Verifier as _DatabaseVerifier
from minirun.types import Content, Part

from ..one_history import History, Told
from ..postgres import execute, missing, new_database
from ..stores import sql
from ..tables import as_kept, kept, write

Reports = dict[str, Any]
"""By what was changed: what is told of it."""


async def remember(service: BaseMemoryService) -> None:
    """Memories of two users, one of them with an author and a session; another one was deleted."""
    text = Content(parts=[Part(text="green tea, black tea")])
    whole = MemoryEntry(id="m-1", author="a", content=text, timestamp=5.0, session_id="s", custom_metadata={"a": 1})
    await service.add_memory(app_name="app", user_id="u", memories=[whole])
    later = MemoryEntry(id="m-2", content=Content(parts=[Part(text="今天 coffee")]), timestamp=6.0)
    await service.add_memory(app_name="app", user_id="u", memories=[later])
    other = MemoryEntry(id="m-3", content=Content(parts=[Part(text="milk")]), timestamp=7.0)
    await service.add_memory(app_name="b", user_id="v", memories=[other])
    await service.delete_memory(app_name="app", user_id="u", memory_id="m-2")


def facts(damage: Damage, name: str) -> list[Any]:
    """Where it is, and the names and numbers that it is told with; the words may change."""
    found = re.findall(r"'[^']*'|-?\d+(?:\.\d+)?|None|\[\]", damage.problem.replace(name, "a store"))
    return [damage.place[:80], damage.seq, *(fact[:40] for fact in found)]


def told(damages: Iterable[Damage], name: str = "no name") -> list[Any]:
    return [facts(damage, name) for damage in damages]


# --- a file -----------------------------------------------------------------------------------------------------------


async def write_file(path: Path) -> None:
    env = Told()
    async with SqliteSessionService(path, durability="process", env=env) as service:
        artifacts = SqliteArtifactService(service)
        await History(service, artifacts, env).write()
        place = {"app_name": "app", "user_id": "u", "session_id": "s", "filename": "large"}
        async with SqliteMemoryService(service) as memories:
            await remember(memories)
        await artifacts.save_artifact(**place, artifact=Part(text="large"), custom_metadata={"a": 1})


@cache
def file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(write_file, Path(folder, "a.db"))
        sql(Path(folder, "a.db"), "PRAGMA journal_mode=DELETE")  # a file in memory has no log beside it
        return Path(folder, "a.db").read_bytes()


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """The file, in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(file())
        yield db


def other_values(value: Any) -> list[Any]:
    """What else could stand there, and what could not."""
    if isinstance(value, bool | int):
        return [value + 1, -1, "x"]
    if isinstance(value, float):
        return [value + 1, "x"]
    if isinstance(value, bytes):
        return [bytes(len(value)), "x"]
    if isinstance(value, str):
        return [value + "~", "", b"x"]
    return ["x", 7]


ROWS_MAX = 15
"""Of tables with so many rows, each row is lost once; of larger ones, one."""


def tables(db: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'memory_index%' ORDER BY name"
    return [name for (name,) in db.execute(query) if name != "sqlite_sequence"]


def changes(db: sqlite3.Connection, table: str) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Every change of one value in a table, and the loss of a row: a name, a statement and its parameters."""
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        rows = db.execute(f"SELECT {column}, {', '.join(columns)} FROM {table} ORDER BY {column} DESC").fetchall()
        if rows:
            value, *row = rows[0]
            where = " AND ".join(f"{name} IS ?" for name in columns)
            for other in other_values(value):
                name = f"{column}: {str(value)[:30]} => {other!r:.30}"
                yield name, f"UPDATE {table} SET {column} = ? WHERE {where}", (other, *row)
            if column == columns[0]:
                lost = rows if len(rows) <= ROWS_MAX else rows[:1]
                for number, (_, *row) in enumerate(lost):
                    yield f"row {number}", f"DELETE FROM {table} WHERE {where}", tuple(row)


def verified(table: str) -> Reports:
    """What is told of each change of a table of the file."""
    found: Reports = {}
    with opened() as db:
        assert _Verifier(db, _ignore).run() == []
        for name, statement, parameters in changes(db, table):
            db.execute("BEGIN")
            try:
                db.execute(statement, parameters)
            except sqlite3.IntegrityError:
                found[name] = "refused"
            else:
                found[name] = told(_Verifier(db, _ignore).run())
            db.execute("ROLLBACK")
    return found


TABLES = (
    "artifact_versions", "artifacts", "chunks", "content_uses", "contents", "events", "invocations", "memory_deleted",
    "memory_entries", "memory_store", "memory_users", "open_calls", "session_state", "sessions", "shared_base",
    "shared_pasts", "shared_state", "store",
)  # fmt: skip


def test_all_tables_of_a_file_are_looked_at() -> None:
    """But for the index of memories, which is SQLite's own."""
    with opened() as db:
        assert tables(db) == [*TABLES]


@pytest.mark.parametrize("table", TABLES)
def test_what_is_told_of_a_changed_value_in_a_file(table: str) -> None:
    """Where it is, and what was expected and found there."""
    assert as_kept(verified(table)) == kept("cells-verify")[table]


def reports(*statements: str) -> list[str]:
    """What verify tells of the file after this was done to it."""
    with opened() as db:
        for statement in statements:
            db.execute(statement)
        return [*map(str, _Verifier(db, _ignore).run())]


def test_memories_of_another_format_are_told_as_such_and_not_looked_at() -> None:
    """Whatever else is wrong with them: this version does not know what should be there."""
    found = reports("UPDATE memory_store SET version = 99", "DELETE FROM memory_users")
    assert found == ["file: expected memories in format 1, found (99,)"]


def test_memories_without_a_word_of_their_format_are_told() -> None:
    """The table that says it is missing."""
    found = reports("DROP TABLE memory_store")
    assert "file: there are memories, and the table memory_store is missing, which says their format" in found


def test_a_memory_whose_number_is_a_text_is_told() -> None:
    """By its id."""
    statements = (*without_rules("memory_entries"), "UPDATE memory_entries SET number = 'x' WHERE id = 'm-1'")
    assert "memory 'm-1': its row has values of other types than were written" in reports(*statements)


def without_rules(table: str) -> tuple[str, ...]:
    """What lets a table have any rows."""
    return (
        f"CREATE TABLE loose AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE loose RENAME TO {table}",
    )


# --- a database -------------------------------------------------------------------------------------------------------


async def write_database(url: str) -> None:
    env = Told()
    async with DatabaseSessionService(url, env=env) as service:
        await History(service, DatabaseArtifactService(service), env).write()
        async with DatabaseMemoryService(service) as memories:
            await remember(memories)


@cache
def database() -> str:
    url = new_database()
    trio.run(write_database, url)
    return url


OTHERS = {
    "int8": ("{0} + 1", "-1"), "int4": ("{0} + 1", "-1"), "int2": ("{0} + 1",), "text": ("{0} || '~'", "''"),
    "bytea": ("'x'::bytea",), "float8": ("{0} + 1",), "bool": ("NOT {0}",), "_text": ("array_append({0}, '=x')",),
}  # fmt: skip
"""What else could stand in a column of a type."""
UNSEEN = ("claims", "versions")


def database_changes(url: str) -> dict[str, dict[str, str]]:
    """Every change of one value, and of each table the loss of a row: by table and name, the statement."""
    query = """
        SELECT table_name, column_name, udt_name FROM information_schema.columns
        WHERE table_schema = 'minirun' AND is_identity = 'NO' ORDER BY table_name, ordinal_position
    """
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in execute(url, query):
        if table in UNSEEN or column is None or table is None:
            continue
        own = found.setdefault(table, {})
        row = f"ctid = (SELECT ctid FROM minirun.{table} t ORDER BY {column} DESC NULLS LAST, t::text LIMIT 1)"
        if not own:
            [(count,)] = execute(url, f"SELECT count(*) FROM minirun.{table}")
            for number in range(int(count or 0) if int(count or 0) <= ROWS_MAX else 1):
                place = row.replace("LIMIT 1", f"OFFSET {number} LIMIT 1")
                own[f"row {number}"] = f"DELETE FROM minirun.{table} WHERE {place}"
        for other in OTHERS.get(kind or "", ()):
            own[f"{column}: {other.format(column)}"] = (
                f"UPDATE minirun.{table} SET {column} = {other.format(column)} WHERE {row}"
            )
    return found


WHOLE = ("events", "sessions", "store")
"""Tables whose numbers are looked at each for itself, from above and from below."""


def some_of(table: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Of the changes of a table one of each column, of such a table all, and the loss of its first and its last row."""
    rows = [name for name in changes if name.startswith("row ")]
    columns: dict[str, list[str]] = {}
    for name in changes:
        if name not in rows:
            columns.setdefault(name.partition(":")[0], []).append(name)
    # another kind of change from column to column
    kinds = [names if table in WHOLE else [names[at % len(names)]] for at, names in enumerate(columns.values())]
    chosen = {*rows[:1], *rows[-1:], *chain.from_iterable(kinds)}
    return {name: change for name, change in changes.items() if name in chosen}


async def database_verified(url: str, *, every: bool = True) -> dict[str, Reports]:
    """What is told of each change, or of some of each table."""
    found: dict[str, Reports] = {}
    async with DatabaseSessionService(url) as service:
        database = service._database
        await database.ready()
        async with database.pool.transaction() as transaction:
            for table, statements in database_changes(url).items():
                for name, statement in (statements if every else some_of(table, statements)).items():
                    found.setdefault(table, {})[name] = await _told(transaction, database.name, statement)
    return found


async def _told(transaction: Transaction, name: str, statement: str) -> Any:
    await transaction.run(Statement("mark", "SAVEPOINT before", once=True)())
    change = f"""
        DO $$ BEGIN {statement}; EXCEPTION WHEN integrity_constraint_violation OR program_limit_exceeded THEN
        PERFORM set_config('minirun.refused', 'yes', true); END $$
    """
    query = "SELECT coalesce(current_setting('minirun.refused', true), '')"
    await transaction.run(Statement("change", change, once=True)())
    [refused] = await transaction.run(Statement("refused", query, once=True)())
    try:
        if refused.rows[0][0] == "yes":
            return "refused"
        return told(await _DatabaseVerifier(transaction, name, lambda done, total: None).run(), name)
    except StorageError as error:
        return type(error).__name__
    finally:
        await transaction.run(Statement("back", "ROLLBACK TO before", once=True)())


@pytest.mark.skipif(bool(missing()), reason="no Postgres server")
@pytest.mark.parametrize(
    "every", [pytest.param(False, id="some"), pytest.param(True, id="every", marks=pytest.mark.slow)]
)
def test_what_is_told_of_a_changed_value_in_a_database(every: bool) -> None:
    """Of each table and column the same as of a file: where it is, and what was expected and found there."""
    found = as_kept(trio.run(partial(database_verified, database(), every=every)))
    wanted = kept("cells-database")
    assert [*found] == [*wanted]
    for table, reports in wanted.items():
        looked_at = reports if every else some_of(table, reports)
        assert found[table] == looked_at, table


def write_anew() -> None:
    """Write the files."""
    kinds = {
        "verify": {table: verified(table) for table in TABLES},
        "database": trio.run(database_verified, database()),
    }
    for kind, found in kinds.items():
        write(f"cells-{kind}", found, 2)


if __name__ == "__main__":
    write_anew()
