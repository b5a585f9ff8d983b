"""Which files are ours, how an older format becomes today's, and what a path can be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from minirun.env import REAL_ENV
from minirun.errors import InvalidValueError, StorageFormatError
from minirun.sessions._sqlite._format import (
    APPLICATION_ID,
    Format,
    check_place,
    check_untouched,
    make_format,
    parse_path,
)
from minirun.sessions._sqlite._schema import FORMAT


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    found = sqlite3.connect(":memory:", isolation_level=None)
    yield found
    found.close()


# --- formats ----------------------------------------------------------------------------------------------------------


def one_more(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE t ADD COLUMN b")


def and_another(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE t ADD COLUMN c")


THIRD = Format(3, "CREATE TABLE t (a);CREATE TABLE u (a)", {1: one_more, 2: and_another})


def pragma(db: sqlite3.Connection, name: str) -> int:
    [(found,)] = db.execute(f"PRAGMA {name}").fetchall()
    return int(found)


def columns(db: sqlite3.Connection) -> list[str]:
    return [row[1] for row in db.execute("PRAGMA table_info(t)")]


def test_an_empty_file_becomes_one_of_the_format_at_once(db: sqlite3.Connection) -> None:
    """With all of its schema and no migration; a second time nothing changes."""
    for _ in range(2):
        make_format(db, "a.db", THIRD)
        assert columns(db) == ["a"]
        assert db.execute("SELECT count(*) FROM u").fetchone() == (0,)
        assert (pragma(db, "application_id"), pragma(db, "user_version")) == (int.from_bytes(b"mrun", "big"), 3)
        assert not db.in_transaction


@pytest.mark.parametrize(("version", "expected"), [(1, ["a", "b", "c"]), (2, ["a", "c"]), (3, ["a"])])
def test_an_older_file_goes_through_each_migration_in_turn(
    version: int, expected: list[str], db: sqlite3.Connection
) -> None:
    """From its own version on."""
    make_format(db, "a.db", THIRD)
    db.execute(f"PRAGMA user_version={version}")
    make_format(db, "a.db", THIRD)
    assert columns(db) == expected
    assert pragma(db, "user_version") == 3


OTHER = "a.db: expected a file made by minirun, found another program's database; use another name"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("PRAGMA user_version=4", "a.db: expected format 3, found format 4, made by a newer minirun; install that"),
        ("PRAGMA user_version=0", "a.db: expected format 3, found format 0, made by an older minirun; install that"),
        ("PRAGMA application_id=0", OTHER),
        ("PRAGMA application_id=1", OTHER),
        ("PRAGMA application_id=0; DROP TABLE t; DROP TABLE u", OTHER),
        ("PRAGMA application_id=0; PRAGMA user_version=0", OTHER),
        ("PRAGMA application_id=1; PRAGMA user_version=0; DROP TABLE t; DROP TABLE u", OTHER),
    ],
)
def test_a_file_of_another_format_or_program_is_refused(script: str, words: str, db: sqlite3.Connection) -> None:
    """In words that say what to do."""
    make_format(db, "a.db", THIRD)
    db.executescript(script)
    with pytest.raises(StorageFormatError) as caught:
        make_format(db, "a.db", THIRD)
    assert str(caught.value).startswith(words)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_of_text_is_refused_unless_a_journal_would_undo_it(tmp_path: Path) -> None:
    """One that is empty would not, nor would a folder; a file that is not there, or is ours, is untouched."""
    path, journal = tmp_path / "a.db", tmp_path / "a.db-journal"
    check_untouched(path, FORMAT, REAL_ENV)
    path.write_bytes(b"no database, but a text" * 99)
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        check_untouched(path, FORMAT, REAL_ENV)
    journal.write_bytes(b"")
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        check_untouched(path, FORMAT, REAL_ENV)
    journal.write_bytes(b"x")
    check_untouched(path, FORMAT, REAL_ENV)
    journal.unlink()
    (journal / "some").mkdir(parents=True)
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        check_untouched(path, FORMAT, REAL_ENV)


@pytest.mark.parametrize(
    ("application", "version", "is_refused"),
    [
        (APPLICATION_ID, FORMAT.version, False),
        (APPLICATION_ID, FORMAT.version + 1, True),
        (1, FORMAT.version, True),
        (0, 0, True),
    ],
)
def test_a_file_of_another_program_is_refused_before_it_is_touched(
    application: int, version: int, is_refused: bool, tmp_path: Path
) -> None:
    """Also one that another program has made and left without a mark."""
    path = tmp_path / "a.db"
    db = sqlite3.connect(path)
    db.executescript(f"CREATE TABLE t (a); PRAGMA application_id={application}; PRAGMA user_version={version}")
    db.close()
    if is_refused:
        with pytest.raises(StorageFormatError):
            check_untouched(path, FORMAT, REAL_ENV)
    else:
        check_untouched(path, FORMAT, REAL_ENV)


def test_a_place_where_there_can_be_no_file_is_told(tmp_path: Path) -> None:
    """No folder, a folder, a file of one byte, a name that is too long; others are taken."""
    cases = {
        tmp_path / "none" / "a.db": f"there is no folder {tmp_path / 'none'}; make it first",
        tmp_path: "expected a file, found a folder or device; choose another name",
        tmp_path / "one": "expected a file made by minirun, found one of one byte; use another name",
        tmp_path / ("x" * 300): "cannot be opened: File name too long; choose another name",
    }
    (tmp_path / "one").write_bytes(b"x")
    for path, words in cases.items():
        with pytest.raises(StorageFormatError) as caught:
            check_place(path)
        assert str(caught.value).startswith(f"{path}: {words}")
    (tmp_path / "two").write_bytes(b"xx")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("two", "empty", "new"):
        check_place(tmp_path / name)


def test_a_path_is_a_name_a_url_or_memory(tmp_path: Path) -> None:
    """Resolved once, so that a link makes no second file."""
    (tmp_path / "link").symlink_to(tmp_path / "a.db")
    expected = Path(tmp_path / "a.db").resolve()
    for given in (tmp_path / "a.db", str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "link"):
        assert parse_path(given) == expected
    assert parse_path(":memory:") is None
    assert parse_path("sqlite:///:memory:") is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "expected a file name as text without NUL, found None"),
        (5, "expected a file name as text without NUL, found 5"),
        ("a\0b", "expected a file name as text without NUL, found "),
        ("\udc80\ud800", "expected a file name, found "),
        ("postgresql://a", "expected a file name or sqlite:///FILE, found a URL"),
        ("sqlite://a", "expected a file name or sqlite:///FILE, found a URL"),
        ("", "expected a file name, ':memory:' or sqlite:///FILE, found ''"),
        (" ", "expected a file name, ':memory:' or sqlite:///FILE, found ' '"),
        ("sqlite:///", "expected a file name, ':memory:' or sqlite:///FILE, found 'sqlite:///'"),
    ],
)
def test_what_can_be_no_path_is_told(given: object, words: str) -> None:
    """With what was found."""
    with pytest.raises(InvalidValueError) as caught:
        parse_path(given)  # type: ignore[arg-type]  # what a caller may give
    assert caught.value.path == "path"
    assert str(caught.value).startswith(f"path: {words}")
