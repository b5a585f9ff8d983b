"""
What `verify` and `repair` say of whole files: one that SQLite itself finds damaged, one that is none, a new one that
cannot be made; how far they have come; and why what a session has lost ends where it does.

Rows that make no sense are in test_changed_cells.py and test_verify.py.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import SqliteSessionService
from minirun.errors import AlreadyExistsError, StorageError, StorageFormatError
from minirun.sessions import repair, verify
from minirun.sessions._integrity import _repair, _verify
from minirun.sessions._integrity._repair import SavedSession
from minirun.sessions._integrity._salvage import salvaged

from ..stores import append, sql

NAMES = ("session-one", "session-two", "session-three")


async def write(path: Path) -> None:
    """Three sessions of eight events each."""
    async with SqliteSessionService(path, durability="process") as service:
        for name in NAMES:
            session = await service.create_session(app_name="app", user_id="u", session_id=name, state={"n": 1})
            for number in range(7):
                await append(service, session, f"text {number}", user_n=number, n=number)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("integrity") / "a.db"
    trio.run(write, path)
    return path


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    path.write_bytes(original.read_bytes())
    return path


def told(path: Path) -> list[str]:
    return [str(damage) for damage in verify(path)]


# --- what SQLite sees -------------------------------------------------------------------------------------------------


def test_an_index_that_says_something_else_is_told_in_sqlites_words(copy: Path) -> None:
    """By verify as it is; by repair with what follows from it, and the new file is sound."""
    data = copy.read_bytes()
    places = [at for at in range(len(data)) if data.startswith(b"session-two", at)]
    assert len(places) == 2, "in its row and in the index of names"
    page = int.from_bytes(data[16:18], "big")
    roots = dict(sql(copy, "SELECT rootpage - 1, name FROM sqlite_master"))
    [at] = [place for place in places if roots.get(place // page) == "sqlite_autoindex_sessions_1"]
    copy.write_bytes(data[:at] + b"session-tvo" + data[at + 11 :])
    found = told(copy)
    assert found[0] == "file: SQLite's integrity_check: row 2 missing from index sqlite_autoindex_sessions_1"
    assert all(each.startswith("file: SQLite's integrity_check: ") for each in found)
    repaired = repair(copy, copy.with_name("new.db"))
    assert [str(loss) for loss in repaired.losses] == [f"{found[0]}; there may have been more than could be found"]
    assert [(one.key.session_id, one.revision, one.was, one.problem) for one in repaired.sessions] == [
        (name, 7, 7, "") for name in NAMES
    ]
    assert verify(copy.with_name("new.db")) == []


STORE = "file: expected one row with a number in the table of the store, found"


def test_an_index_of_any_name_does_no_harm(copy: Path) -> None:
    """Also one whose name has quotes in it; a unique one is told."""
    sql(copy, 'CREATE INDEX "o""dd" ON events (seq)')
    assert told(copy) == []
    sql(copy, 'CREATE UNIQUE INDEX "u""dd" ON events (log, seq)')
    [found] = told(copy)
    assert found.startswith("file: its schema has the index 'u\"dd' on 'events'")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "INSERT INTO session_state VALUES (9, 'n', '1')",
            ["file: row 4 of session_state refers to no row of sessions"],
        ),
        (
            "INSERT INTO open_calls VALUES (9, 'c', 'f', 2, 0, 'e', 'a', NULL, '', 0, 0)",
            ["file: row 1 of open_calls refers to no row of sessions"],
        ),
        ("CREATE TABLE more (a)", ["file: its schema has the table 'more', which is not minirun's"]),
        (
            "UPDATE store SET only = 2",
            [f"{STORE} [(2, 0)]"],
        ),
        (
            "UPDATE store SET deleted_no = -1",
            [f"{STORE} [(1, -1)]"],
        ),
    ],
)
def test_what_is_wrong_with_the_file_as_a_whole_is_told_of_it(statement: str, expected: list[str], copy: Path) -> None:
    """Rows without a session, tables of others, and the one row that counts."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        db.execute(statement)
    assert told(copy) == expected


def test_what_is_no_file_of_ours_is_told_with_its_format(copy: Path, tmp_path: Path) -> None:
    """Which format was expected and found; a file that SQLite cannot read is told in its words."""
    version = sql(copy, "PRAGMA user_version")[0][0]
    with pytest.raises(StorageFormatError) as caught:
        verify(tmp_path / "none.db")
    assert str(caught.value) == f"expected a session file, found none at {str(tmp_path / 'none.db')!r}"
    (tmp_path / "text.db").write_bytes(b"no database, but a text that is long enough to look like one" * 9)
    with pytest.raises(StorageFormatError) as caught:
        verify(tmp_path / "text.db")
    words = "expected a session file, found one that SQLite cannot read: file is not a database"
    assert str(caught.value) == f"{tmp_path / 'text.db'}: {words}"
    for pragma, found in (("user_version = 99", 99), ("application_id = 1", 99)):
        sql(copy, f"PRAGMA {pragma}")
        with pytest.raises(StorageFormatError) as caught:
            verify(copy)
        words = f"expected a minirun file of format {version}, found another one (format {found})"
        assert str(caught.value) == f"{copy}: {words}"


# --- the new file -----------------------------------------------------------------------------------------------------


def test_a_repair_overwrites_nothing_and_makes_no_folder(copy: Path, tmp_path: Path) -> None:
    """The new file has to be a new one, in a folder that is there."""
    (tmp_path / "there.db").write_bytes(b"mine")
    with pytest.raises(AlreadyExistsError) as caught:
        repair(copy, tmp_path / "there.db")
    assert str(caught.value) == f"expected a new file name, found a file at {str(tmp_path / 'there.db')!r}"
    assert (tmp_path / "there.db").read_bytes() == b"mine"
    with pytest.raises(StorageFormatError):
        repair(copy, tmp_path / "no folder" / "new.db")
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("a.db")) == ["there.db"]


@pytest.mark.parametrize("kind", [sqlite3.OperationalError, KeyboardInterrupt])
def test_a_repair_that_fails_leaves_no_file_beside_the_new_one_either(
    kind: type[BaseException], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its log nor its index, also where somebody has it open; what SQLite says is told of the new file."""
    monkeypatch.setattr(_repair, "PROGRESS_EVERY", 5)
    new = copy.with_name("new.db")
    others = []

    def fail(done: int, total: int) -> None:
        others.append(sqlite3.connect(new))
        others[-1].execute("SELECT count(*) FROM sqlite_master").fetchone()
        new.with_name("new.db-journal").touch()
        assert new.with_name("new.db-wal").exists()
        assert new.with_name("new.db-shm").exists()
        raise kind("planted")

    with pytest.raises((StorageError, KeyboardInterrupt)) as caught:
        repair(copy, new, progress=fail)
    for other in others:
        other.close()
    if kind is not KeyboardInterrupt:
        assert str(caught.value).startswith(f"{new}: writing failed: planted")
        assert type(caught.value.__cause__) is kind
    assert [path.name for path in copy.parent.iterdir() if path.name.startswith("new")] == []


@pytest.mark.parametrize("every", [1, 5, 24, 25])
def test_how_far_a_repair_has_come_is_told_in_steps(every: int, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all events that the file has; so is how far verifying has."""
    monkeypatch.setattr(_repair, "PROGRESS_EVERY", every)
    monkeypatch.setattr(_verify, "PROGRESS_EVERY", every)
    repairing: list[tuple[int, int]] = []
    verifying: list[tuple[int, int]] = []
    repair(copy, copy.with_name("new.db"), progress=lambda done, total: repairing.append((done, total)))
    verify(copy, progress=lambda done, total: verifying.append((done, total)))
    assert repairing == verifying == [(done, 24) for done in range(every, 25, every)]
    assert repair(copy, copy.with_name("other.db")).losses == [], "and where nobody wants to know"


def test_the_new_file_is_for_this_user_alone(copy: Path) -> None:
    """As every file that is made here."""
    repair(copy, copy.with_name("new.db"))
    assert os.stat(copy.with_name("new.db")).st_mode & 0o777 == 0o600


# --- what sessions have lost ------------------------------------------------------------------------------------------

OF_TWO = "log = 2 AND seq = 4"
CUT: list[tuple[str, str, int | None, int | None]] = [
    (f"DELETE FROM events WHERE {OF_TWO}", "event 4: it is missing; the next one is 5", 3, 7),
    ("DELETE FROM events WHERE log = 2 AND seq > 4", "event 5: it is missing; the session went on to 7", 4, 7),
    ("DELETE FROM events WHERE log = 2", "it has no events", None, 7),
    (f"UPDATE events SET data = 5 WHERE {OF_TWO}", "event 4: expected the link", 3, 7),
    (f"UPDATE events SET data = x'00' WHERE {OF_TWO}", "event 4: it is missing; the next one is 5", 3, 7),
    (f"UPDATE events SET chain = zeroblob(32) WHERE {OF_TWO}", "event 4: expected the link", 3, 7),
    (f"UPDATE events SET chain = 'x' WHERE {OF_TWO}", "event 4: it is missing; the next one is 5", 3, 7),
    ("UPDATE sessions SET revision = 9 WHERE id = 2", "event 8: it is missing; the session went on to 9", 7, 9),
    ("UPDATE sessions SET revision = -1 WHERE id = 2", "how far it went is lost with its row", 7, None),
    ("UPDATE sessions SET revision = 'x' WHERE id = 2", "how far it went is lost with its row", 7, None),
    (
        "UPDATE sessions SET app_name = '-' WHERE id = 2",
        "app_name: expected letters, digits, '_' and '-', beginning with a letter or '_', and not 'user'; found '-' of "
        "type str",
        None,
        7,
    ),
]


@pytest.mark.parametrize(("statement", "problem", "revision", "was"), CUT)
def test_what_was_kept_of_a_session_is_told_with_why_no_more(
    statement: str, problem: str, revision: int | None, was: int | None, copy: Path
) -> None:
    """Its longest whole beginning; how far it went is what its row says. The others are whole."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        db.execute(statement)
    repaired = repair(copy, copy.with_name("new.db"))
    [cut] = [one for one in repaired.sessions if one.problem]
    assert cut.problem.startswith(problem)
    assert (cut.revision, cut.was) == (revision, was)
    whole = [one for one in repaired.sessions if not one.problem]
    assert [(one.key.session_id, one.revision) for one in whole] == [("session-one", 7), ("session-three", 7)]


def test_a_session_whose_row_is_lost_is_saved_as_far_as_its_log_goes(copy: Path) -> None:
    """Under the app `recovered`, by the number of its log."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("DELETE FROM sessions WHERE id = 2")
    repaired = repair(copy, copy.with_name("new.db"))
    [found] = [one for one in repaired.sessions if one.problem]
    assert (found.key.app_name, found.key.user_id, found.key.session_id) == ("recovered", "recovered", "log-2")
    assert (found.revision, found.was) == (7, None)
    assert found.problem == "the row of the session that has written it is lost"


def test_a_session_without_a_first_event_is_told_with_what_that_has(copy: Path) -> None:
    """Not as one that has no events."""
    sql(copy, "UPDATE events SET chain = zeroblob(32) WHERE log = 2 AND seq = 0")
    [found] = [one for one in repair(copy, copy.with_name("new.db")).sessions if one.problem]
    assert found.revision is None
    assert found.problem.startswith("event 0: expected the link")
    assert str(found) == f"{found.key}: kept nothing of 7 ({found.problem})"
    assert str(SavedSession(found.key, 3, 3)) == f"{found.key}: kept events 0 to 3"


def test_a_log_that_has_the_number_0_is_saved_as_any_that_nobody_knows(copy: Path) -> None:
    """Its events are no messages that wait for a session, of which each is linked alone."""
    sql(copy, "DELETE FROM sessions WHERE id = 2")
    sql(copy, "UPDATE events SET log = 0 WHERE log = 2")
    repaired = repair(copy, copy.with_name("new.db"))
    [found] = [one for one in repaired.sessions if one.problem]
    assert (found.key.session_id, found.revision) == ("log-0", 7)
    assert [damage for damage in repaired.damages if "message" in damage.problem] == []


async def write_fork(path: Path) -> None:
    """A fork of the first session at its event 3, which has no event of its own, and one that has."""
    async with SqliteSessionService(path) as service:
        for name in ("bare", "longer"):
            fork = await service.fork_session(
                app_name="app", user_id="u", session_id=NAMES[0], at_seq=3, new_session_id=name
            )
        await append(service, fork, "more")


def test_a_fork_without_events_of_its_own_shows_its_past_whatever_its_row_says(copy: Path) -> None:
    """Where its revision is lost, it is as long as the past that it shares."""
    trio.run(write_fork, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        db.execute("UPDATE sessions SET revision = 'x' WHERE session_id = 'bare'")
    found = {one.key.session_id: one for one in repair(copy, copy.with_name("new.db")).sessions}
    assert (found["bare"].revision, found["bare"].problem) == (3, "how far it went is lost with its row")
    assert (found["longer"].revision, found["longer"].problem) == (4, "")


def test_a_fork_whose_past_has_lost_its_last_event_ends_before_it(copy: Path) -> None:
    """Also if it has events of its own, which nothing leads to."""
    trio.run(write_fork, copy)
    sql(copy, "DELETE FROM events WHERE log = 1 AND seq = 3")
    found = {one.key.session_id: one for one in repair(copy, copy.with_name("new.db")).sessions}
    assert (found["bare"].revision, found["longer"].revision) == (2, 2)
    assert found["bare"].problem == "event 3: it is missing; the session went on to 3"
    assert found["longer"].problem == "event 3: it is missing; the next one is 4"
    assert found[NAMES[0]].revision == 2


# --- what sessions share ----------------------------------------------------------------------------------------------


def test_a_base_is_beyond_all_events_where_nobody_knows_which_is_the_newest(copy: Path) -> None:
    """A store that has lost how far it went has deleted nothing; the new one says so of itself."""
    assert repair(copy, copy.with_name("whole.db")).losses == []
    assert sql(copy.with_name("whole.db"), "SELECT deleted_no FROM store") == [(0,)]
    sql(copy, "INSERT INTO shared_base VALUES ('app', 'u', 1, '{}')")
    sql(copy, "DROP TABLE store")
    found = [str(damage) for damage in repair(copy, copy.with_name("new.db")).damages]
    base = "the state of user 'u' in app 'app': its base makes no sense (it has the number 1, and there are 0)"
    assert found[0] == f"{base}; its values are kept unchecked"


def test_a_stored_value_that_cannot_be_read_is_lost_with_the_base_that_could_have_told_it(copy: Path) -> None:
    """The others of the scope are kept as they are stored."""
    sql(copy, "INSERT INTO shared_base VALUES ('app', 'u', 0, '[]')")
    sql(copy, "INSERT INTO shared_state VALUES ('app', 'u', 'user:bad', '{', 0), ('app', 'u', 'user:good', '1', 0)")
    found = [str(damage) for damage in repair(copy, copy.with_name("new.db")).damages]
    state = "the state of user 'u' in app 'app'"
    assert found[0].startswith(f"{state}: its base makes no sense (")
    assert f"{state}: state key 'user:bad': kept None, found {{" in found
    kept = sql(copy.with_name("new.db"), "SELECT value FROM shared_state WHERE key IN ('user:bad', 'user:good')")
    assert kept == [("1",)]


# --- rows one by one --------------------------------------------------------------------------------------------------


def test_rows_are_read_in_the_order_of_their_numbers(copy: Path) -> None:
    """Those above 0, each with the columns that are asked for."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, a, b)")
        db.executemany("INSERT INTO rows VALUES (?, ?, ?)", [(5, "e", 5), (1, "a", 1), (3, None, b"3"), (0, "zero", 0)])
        assert [*salvaged(db, "rows", "id", "a, b")] == [(1, ("a", 1)), (3, (None, b"3")), (5, ("e", 5))]
        assert [*salvaged(db, "rows", "id", "b")] == [(1, (1,)), (3, (b"3",)), (5, (5,))]
        assert [*salvaged(db, "no_table", "id", "b")] == []
        db.execute("DELETE FROM rows")
        assert [*salvaged(db, "rows", "id", "b")] == []


class Torn(sqlite3.Connection):
    """A connection to a file of which some rows are in pages that cannot be read."""

    unreadable: frozenset[int] = frozenset()

    def execute(self, statement: str, *parameters: Any) -> Any:
        """The rows of the table, as far as they can be read."""
        found = super().execute(statement, *parameters)
        return TornRows(found.fetchall(), self.unreadable) if "FROM rows" in statement else found


class TornRows:
    """What a statement finds, which fails at the first row that cannot be read."""

    def __init__(self, rows: list[tuple[Any, ...]], unreadable: frozenset[int]) -> None:
        self._rows = rows
        self._unreadable = unreadable

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for row in self._rows:
            if row[0] in self._unreadable:
                raise sqlite3.DatabaseError("database disk image is malformed")
            yield row

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first of them."""
        return next(iter(self), None)


@pytest.mark.parametrize(
    "unreadable", [{1}, {9}, {3, 4, 5}, {2, 5, 8}, {1, 2, 8, 9}, {*range(1, 9)}, {*range(1, 10)}, {*range(1, 2**8)}]
)
def test_rows_that_cannot_be_read_are_left_out(unreadable: set[int]) -> None:
    """Wherever they lie; those after them are found by their numbers, one after the other."""
    with closing(sqlite3.connect(":memory:", factory=Torn)) as db:
        db.unreadable = frozenset(unreadable)
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, a, b)")
        db.executemany("INSERT INTO rows VALUES (?, ?, ?)", [(number, f"{number}", -number) for number in range(1, 10)])
        whole = [number for number in range(1, 10) if number not in unreadable]
        assert [*salvaged(db, "rows", "id", "a, b")] == [(number, (f"{number}", -number)) for number in whole]
