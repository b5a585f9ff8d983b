"""
What is said of a damaged file, word by word, and where each bound lies.

`fixtures/integrity-words.json` has for each change of a file what `verify` tells of it. That of every column is in
test_changed_cells.py, without the words. Run as a program, this writes it anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from minirun.errors import StorageFormatError
from minirun.sessions import verify
from minirun.sessions._integrity import _verify
from minirun.sessions._integrity._verify import _ignore, _Verifier
from minirun.sessions._scoped import CHAIN_START
from minirun.sessions._sqlite._logs import link

from ..stores import sql
from ..tables import as_kept, kept, write
from .test_changed_cells import file

INTEGER_MAX = 2**63 - 1
NEWEST = 67
"""The number of the newest event of the file."""

CHANGES: tuple[tuple[str, ...], ...] = (
    # versions and what they name
    ("UPDATE artifact_versions SET size = 6 WHERE artifact = 2",),
    ("DELETE FROM contents WHERE id = 2",),
    ("UPDATE contents SET sha256 = NULL WHERE id = 1",),
    ("UPDATE artifact_versions SET seq = 2 WHERE artifact = 2",),
    *((f"UPDATE artifact_versions SET seq = {seq} WHERE artifact = 1",) for seq in (-1, 0, 7, 8)),
    ("UPDATE artifacts SET session_id = 'nobody' WHERE id = 1",),
    (
        f"UPDATE artifact_versions SET version = {INTEGER_MAX - 1} WHERE artifact = 1",
        f"UPDATE artifacts SET next_version = {INTEGER_MAX} WHERE id = 1",
    ),
    (f"UPDATE artifact_versions SET version = {INTEGER_MAX} WHERE artifact = 1",),
    *((f"UPDATE artifacts SET next_version = {number} WHERE id = 1",) for number in (INTEGER_MAX - 1, INTEGER_MAX, -1)),
    ("UPDATE artifacts SET filename = x'00' WHERE id = 1",),
    ("DELETE FROM artifacts WHERE id = 1",),
    *((f"UPDATE artifact_versions SET about = '{about}' WHERE artifact = 1",) for about in ("{", "[]", "{}")),
    ("UPDATE artifact_versions SET create_time = 7 WHERE artifact = 1",),
    ("UPDATE artifact_versions SET create_time = 'x' WHERE artifact = 1",),
    ("UPDATE artifact_versions SET stager = 'x', seq = NULL WHERE artifact = 1",),
    ("UPDATE artifact_versions SET stager = 'x' WHERE artifact = 1",),
    ("UPDATE artifact_versions SET sha256 = NULL, about = 5 WHERE artifact = 1",),
    ("UPDATE artifact_versions SET sha256 = x'00' WHERE artifact = 1",),
    ("UPDATE artifact_versions SET about = x'00' WHERE artifact = 1",),
    # contents
    ("UPDATE chunks SET number = 1 WHERE content = 2",),
    ("UPDATE chunks SET data = 'x' WHERE content = 2",),
    ("UPDATE chunks SET data = x'00' WHERE content = 2",),
    ("UPDATE contents SET size = 6 WHERE id = 2", "UPDATE artifact_versions SET size = 6 WHERE artifact = 2"),
    ("INSERT INTO content_uses VALUES (1, 1, 'nobody')",),
    # memories
    ("UPDATE memory_entries SET terms = ' Milk ' WHERE id = 'm-3'",),
    ("UPDATE memory_entries SET marks = '=a B' WHERE id = 'm-3'",),
    ("UPDATE memory_entries SET terms = ' tea ' WHERE id = 'm-3'",),
    ("UPDATE memory_entries SET length = 2 WHERE id = 'm-3'",),
    ("UPDATE memory_entries SET user = 1 WHERE id = 'm-3'",),
    *(
        (f"UPDATE memory_entries SET data = '{data}' WHERE id = 'm-3'",)
        for data in (
            '{"content":{"parts":5}}', '{"content":{},"metadata":5}', '{"content":{},"author":5}', "{}", "[]", "5", "{",
        )
    ),
    ("DELETE FROM memory_entries WHERE id = 'm-3'",),
    *((f"UPDATE memory_users SET newest = {newest} WHERE id = 2",) for newest in (-1, 0, 2**32 - 1, 2**32)),
    ("UPDATE memory_users SET count = 2 WHERE id = 2",),
    ("UPDATE memory_users SET length = 2 WHERE id = 2",),
    ("UPDATE memory_users SET app_name = x'00' WHERE id = 1",),
    ("UPDATE memory_users SET user_id = x'00' WHERE id = 1",),
    ("DELETE FROM memory_users WHERE id = 1",),
    ("INSERT INTO memory_deleted VALUES (1, 'm-1')",),
    ("INSERT INTO memory_users VALUES (3, 'c', 'w', 0, 0, 0)",),
    ("DROP TABLE memory_store", "CREATE VIEW memory_store AS SELECT no_function(1) AS version"),
    # sessions and their logs
    ("INSERT INTO store VALUES (2, 0)",),
    ("UPDATE sessions SET revision = -1 WHERE id = 3",),
    ("DELETE FROM session_state WHERE session = 11", "UPDATE sessions SET id = -5 WHERE id = 11"),
    (f"UPDATE events SET chain = '{'abcdefghij' * 5}' WHERE commit_no = 16",),
    ("UPDATE events SET data = CAST(data AS BLOB) WHERE commit_no = 16",),
    ("INSERT INTO shared_pasts VALUES (5, 17, 17, 1)",),
    *(
        (
            f"UPDATE shared_pasts SET last_seq = {last} WHERE session = 5",
            f"INSERT INTO shared_pasts VALUES (5, {last + 1}, 16, 1)",
        )
        for last in (11, 12)
    ),
    (
        "UPDATE shared_pasts SET last_seq = 11 WHERE session = 5",
        "INSERT INTO shared_pasts VALUES (5, 12, 16, 1)",
        "UPDATE sessions SET chain = zeroblob(32) WHERE id = 5",
        "DELETE FROM events WHERE log = 5",
    ),
    ("DELETE FROM events WHERE log = 1 AND seq = 12",),
    ("DELETE FROM events WHERE log = 1 AND seq = 13",),
    ("UPDATE sessions SET revision = 'x' WHERE id = 1", "DELETE FROM events WHERE log = 1 AND seq = 12"),
    *(
        (
            "DELETE FROM events WHERE log = 5",
            "UPDATE sessions SET revision = 16, update_time = 5.0, chain ="
            " (SELECT chain FROM events WHERE log = 1 AND seq = 16) WHERE id = 5",
            f"UPDATE shared_pasts SET {change} WHERE session = 5",
        )
        for change in ("log = 1", "log = 2", "last_seq = 15")
    ),
    (
        "DELETE FROM events WHERE log = 5",
        "UPDATE sessions SET revision = 16, update_time = 5.0, chain ="
        " (SELECT chain FROM events WHERE log = 1 AND seq = 16) WHERE id = 5",
        "UPDATE shared_pasts SET last_seq = 15 WHERE session = 5",
        "INSERT INTO shared_pasts VALUES (5, 16, 16, 1)",
    ),
    (
        "DELETE FROM shared_pasts WHERE session = 6 AND first_seq = 3",
        "UPDATE shared_pasts SET last_seq = 3 WHERE session = 6",
    ),
    ("DELETE FROM events WHERE log = 4",),
    ("DELETE FROM shared_pasts WHERE session = 6 AND log = 4",),
    ("UPDATE shared_pasts SET log = 4 WHERE session = 5",),
    ("UPDATE sessions SET create_time = 'x' WHERE id = 5",),
    ("DELETE FROM sessions WHERE id = 1",),
    ("DELETE FROM sessions WHERE id = 8", "UPDATE events SET data = '{}' WHERE log = 8 AND seq = 3"),
    *((f"UPDATE invocations SET seq = {seq} WHERE session = 3",) for seq in (0, 2, "'x'", -1)),
    ("UPDATE invocations SET invocation_id = 'e-2' WHERE session = 3",),
    ("UPDATE invocations SET status = 'odd' WHERE session = 3",),
    ("DELETE FROM invocations WHERE session = 1 AND invocation_id = 'e-4'",),
    ("UPDATE sessions SET compaction = 0 WHERE id = 8",),
    ("UPDATE sessions SET update_time = 7.0 WHERE id = 3",),
    ("UPDATE sessions SET create_time = 7.0 WHERE id = 3",),
    ("UPDATE sessions SET create_time = 7.0 WHERE id = 6",),
    *((f"UPDATE sessions SET lease_epoch = {epoch} WHERE id = 3",) for epoch in (INTEGER_MAX, INTEGER_MAX - 1, -1)),
    ("UPDATE sessions SET lease_owner = 'x' WHERE id = 3",),
    ("UPDATE sessions SET lease_expires = 5.0 WHERE id = 3",),
    # notes of sessions
    *(
        (f"UPDATE invocations SET commit_no = {number} WHERE session = 5",)
        for number in (16, 17, NEWEST, NEWEST + 1)
    ),
    *((f"UPDATE invocations SET epoch = {epoch} WHERE session = 3",) for epoch in (1, 2)),
    *(
        (f"UPDATE invocations SET status = 'paused', end_seq = {end} WHERE session = 3",)
        for end in ("NULL", "0", "1", "2", "'x'")
    ),
    *(
        (f"UPDATE open_calls SET pending_no = {number} WHERE session = 1 AND call_id = 'c-8'",)
        for number in (NEWEST, NEWEST + 1, 0)
    ),
    ("UPDATE open_calls SET pending_no = 1 WHERE session = 1 AND call_id = 'c-4'",),
    ("DELETE FROM open_calls WHERE session = 1",),
    # what sessions share
    *((f"UPDATE shared_state SET commit_no = {number} WHERE key = 'user:d'",) for number in (57, 58, 59, "'x'")),
    ("UPDATE store SET deleted_no = 57",),
    ("UPDATE store SET deleted_no = 59",),
    (f"UPDATE store SET deleted_no = {INTEGER_MAX}",),
    ("UPDATE shared_base SET app_name = x'00' WHERE user_id = 'v'",),
    ("UPDATE shared_base SET user_id = x'00' WHERE user_id = 'v'",),
    ("UPDATE shared_base SET value = '[]' WHERE user_id = 'v'",),
    ("""UPDATE shared_base SET value = '{"user:d":2,"app:d":2}' WHERE user_id = 'v'""",),
    # tables without the rules of ours
    *(
        (f"CREATE TABLE loose AS SELECT * FROM {table}", f"DROP TABLE {table}",
         f"ALTER TABLE loose RENAME TO {table}", f"UPDATE {table} SET {change}")
        for table, change in (
            ("events", "commit_no = 'x' WHERE commit_no = 16"),
            ("events", "seq = 'x' WHERE commit_no = 16"),
            ("events", "commit_no = 0 WHERE commit_no = 44"),
            ("store", "deleted_no = 'x'"),
        )
    ),
    # messages that wait
    ("UPDATE events SET seq = 0, log = -1 WHERE commit_no = 21",),
    ("UPDATE events SET data = x'00' WHERE commit_no = 21",),
)  # fmt: skip


@contextmanager
def changed(*statements: str, kind: type[sqlite3.Connection] = sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """The file in memory after these statements, whatever its tables check."""
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=kind)) as db:
        db.deserialize(file())
        db.execute("PRAGMA ignore_check_constraints=ON")
        for statement in statements:
            db.execute(statement)
        yield db


def words(*statements: str) -> list[str]:
    """What is told of the file after these statements."""
    with changed(*statements) as db:
        return [*map(str, _Verifier(db, _ignore).run())]


@pytest.mark.parametrize("statements", CHANGES, ids="; ".join)
def test_what_is_told_of_a_change_word_by_word(statements: tuple[str, ...]) -> None:
    """Where it is and what it is; of a value that may stand there, nothing."""
    assert as_kept(words(*statements)) == kept("integrity-words")["; ".join(statements)]


def test_of_a_sound_file_nothing_is_told() -> None:
    """It is as it was written."""
    assert words() == []


def test_the_numbers_of_events_are_above_0() -> None:
    """Also that of a session's first event, whose link is right."""
    with changed() as db:
        [data] = db.execute("SELECT data FROM events WHERE log = 11").fetchone()
        chain = link(CHAIN_START, 0, 0, data)
        db.execute("UPDATE events SET commit_no = 0, chain = ? WHERE log = 11", (chain,))
        db.execute("UPDATE sessions SET chain = ? WHERE id = 11", (chain,))
        place = "session 'd' of user 'v' in app 'app'"
        found = [*map(str, _Verifier(db, _ignore).run())]
        assert found == [f"{place}, event 0: expected a number above 0, found 0"]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_what_changes_while_a_file_is_verified_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is read as it was when that began: two halves that do not belong together would look like damage."""
    monkeypatch.setattr(_verify, "PROGRESS_EVERY", 1)
    path = tmp_path / "a.db"
    path.write_bytes(file())
    sql(path, "PRAGMA journal_mode=WAL")

    def change(done: int, total: int) -> None:
        if done == 1:
            sql(path, "DELETE FROM shared_state")

    assert verify(path, progress=change) == []
    assert verify(path) != []


def test_a_file_with_a_schema_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Nothing of it can be looked at."""
    path = tmp_path / "a.db"
    path.write_bytes(file())
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE events (' WHERE name = 'events'")
    with pytest.raises(StorageFormatError, match="found one that SQLite cannot read: malformed database schema"):
        verify(path)


if __name__ == "__main__":
    write("integrity-words", {"; ".join(statements): words(*statements) for statements in CHANGES}, 2)
