"""
What `verify` says of whole files: one that SQLite itself finds damaged, and one that is none; and how far it has come.

Rows that make no sense are in test_changed_cells.py and test_verify.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from minirun import SqliteSessionService
from minirun.errors import StorageFormatError
from minirun.sessions import verify
from minirun.sessions._integrity import _verify

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
    """Row by row."""
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


STORE = "file: expected one row with a number in the table of the store, found"


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
    """Rows without a session, and the one row that counts."""
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


@pytest.mark.parametrize("every", [1, 5, 24, 25])
def test_progress_is_reported_in_steps(every: int, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how many events were read, of how many the file has."""
    monkeypatch.setattr(_verify, "PROGRESS_EVERY", every)
    verifying: list[tuple[int, int]] = []
    verify(copy, progress=lambda done, total: verifying.append((done, total)))
    assert verifying == [(done, 24) for done in range(every, 25, every)]
