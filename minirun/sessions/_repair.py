"""
What is whole in a damaged file, in a new one.

Of every session the longest beginning is kept that the hash chain vouches for; what can be derived is derived again
from that. Rows are read one by one, by their numbers, where SQLite cannot read a table from end to end. The old file is
only read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from .._json import dumps
from ..env import REAL_ENV
from ..errors import AlreadyExistsError, InvalidValueError
from ._fold import apply_event
from ._live import OpenCall, SessionKey, opened_calls
from ._session import InvocationStatus
from ._sqlite_errors import SQLITE_ERRORS
from ._sqlite_format import make_format
from ._sqlite_schema import FORMAT, SEQ_MAX, Row, newest_no, read_segments
from ._state import Values
from ._verify import Progress, Step, fold_shared, open_to_read, scan, verify

__all__ = ["SavedSession", "repair"]


@attrs.frozen
class SavedSession:
    """What became of a session: its newest event in the new file (None: nothing was whole), and in the old one."""

    key: SessionKey
    revision: int | None
    was: int
    problem: str = ""

    def __str__(self) -> str:
        kept = "nothing" if self.revision is None else f"events 0 to {self.revision}"
        return f"{self.key}: kept {kept}" + (f" of {self.was} ({self.problem})" if self.problem else "")


def repair(
    path: str | PathLike[str], new_path: str | PathLike[str], *, progress: Progress | None = None
) -> list[SavedSession]:
    """
    Save every session's longest whole beginning into a new file, and return what became of each.

    `user:` and `app:` state, open calls and invocations are what the events that were kept say. It blocks, as `verify`.

    Raises:
        AlreadyExistsError: There is a file at *new_path*; nothing is changed.
        StorageFormatError: The old file is not one of minirun, or SQLite cannot read its first page.
    """
    target = Path(new_path)
    if target.exists():
        msg = f"expected a new file name, found a file at {str(target)!r}"
        raise AlreadyExistsError(msg)
    with closing(open_to_read(Path(path))) as old:
        with closing(REAL_ENV.connect(str(target))) as new:
            new.execute("PRAGMA journal_mode=WAL")
            make_format(new, str(target), FORMAT)
            new.execute("BEGIN IMMEDIATE")
            saved = _Repair(old, new, progress).run()
            new.execute("COMMIT")
    left = verify(target)
    assert not left, f"what was saved verifies: {left[0]}"
    return saved


class _Repair:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, progress: Progress | None) -> None:
        self._old = old
        self._new = new
        self._progress = progress

    def run(self) -> list[SavedSession]:
        self._copy_events()
        for table in ("shared_pasts", "shared_base", "invocations"):
            self._copy_readable(table)
        saved = []
        columns = "s.app_name, s.user_id, s.session_id, s.revision, s.create_time"
        for session, (*names, revision, created) in list(_salvaged(self._old, "sessions s", "s.id", columns)):
            saved.append(self._save_session(session, tuple(names), revision, created))
        self._drop_what_was_cut()
        self._save_shared()
        return saved

    # --- what there is

    def _copy_events(self) -> None:
        """All events that can be read; which of them are whole is seen later, in the new file."""
        rows = _salvaged(self._old, "events", "commit_no", "log, seq, chain, data")
        for done, (number, (log, seq, chain, data)) in enumerate(rows, 1):
            if type(data) is str and type(chain) is bytes and type(log) is type(seq) is int:
                self._new.execute(
                    "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?)", (number, log, seq, chain, data)
                )
            if self._progress is not None and done % 10_000 == 0:
                self._progress(done, done)

    def _copy_readable(self, table: str) -> None:
        try:
            for row in self._old.execute(f"SELECT * FROM {table}"):
                try:
                    marks = ", ".join("?" * len(row))
                    self._new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)
                except SQLITE_ERRORS:
                    continue  # a row that breaks a rule of its table
        except SQLITE_ERRORS:
            pass  # so far it could be read

    # --- sessions

    def _save_session(self, session: int, names: tuple[Any, ...], revision: Any, created: Any) -> SavedSession:
        was = revision if type(revision) is int else 0
        key = SessionKey(*(name if isinstance(name, str) else repr(name) for name in names))
        values = Values({}, {}, {})
        calls: dict[str, OpenCall] = {}
        first: Step | None = None
        last: Step | None = None
        problem = ""
        # Only the events say how far it goes: its row may be damaged.
        for step in scan(self._new, Row(session, SEQ_MAX, 0.0, 0.0, 0, None, None, b"")):
            try:
                if step.event is None:
                    raise InvalidValueError(f"event {step.seq}", step.problem)
                values.apply(apply_event(values, step.event, shared=False))
            except InvalidValueError as error:
                problem = str(error)
                break
            last = step
            first = step if step.seq == 0 else first
            calls.update({call.call_id: call for call in opened_calls(step.event)})
            for response in step.event.get_function_responses():
                calls.pop(response.id or "", None)
        if last is None or last.event is None or not all(isinstance(name, str) for name in names):
            return SavedSession(key, None, was, problem or "its name is damaged")
        assert first is not None
        assert first.event is not None
        if len(read_segments(self._new, session)) == 1 or type(created) is not float:  # only a fork is made later
            created = first.event.timestamp
        try:
            self._new.execute(
                "INSERT INTO sessions (id, app_name, user_id, session_id, revision, create_time, update_time, chain)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (session, *names, last.seq, created, last.event.timestamp, last.chain),
            )
        except sqlite3.IntegrityError as error:  # two rows of one name
            return SavedSession(key, None, was, str(error))
        self._insert_rest(session, last.seq, values, calls, cut=last.seq < was)
        return SavedSession(key, last.seq, was, problem if last.seq < was else "")

    def _insert_rest(
        self, session: int, revision: int, values: Values, calls: dict[str, OpenCall], *, cut: bool
    ) -> None:
        new = self._new
        for name, value in values.session.items():
            new.execute("INSERT INTO session_state VALUES (?, ?, ?)", (session, name, dumps(value)))
        new.execute("DELETE FROM shared_pasts WHERE session = ? AND first_seq > ?", (session, revision))
        new.execute(
            "UPDATE shared_pasts SET last_seq = ? WHERE session = ? AND last_seq > ?", (revision, session, revision)
        )
        self._check_invocations(session, revision, cut=cut)
        runs = {name for (name,) in new.execute("SELECT invocation_id FROM invocations WHERE session = ?", (session,))}
        for call in calls.values():
            if call.invocation_id in runs:
                new.execute(
                    "INSERT INTO open_calls VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (session, call.call_id, call.name, call.seq, call.invocation_id, call.author, call.branch),
                )

    def _check_invocations(self, session: int, revision: int, *, cut: bool) -> None:
        """Keep the notes that the kept events bear out; the last one of a log that was cut is interrupted."""
        new = self._new
        kept = []
        query = "SELECT invocation_id, seq, status FROM invocations WHERE session = ? ORDER BY seq"
        for name, seq, status in new.execute(query, (session,)).fetchall():
            found = next((step for step in self._steps(session, seq, revision)), None)
            if found is None or found[1] != name or status not in InvocationStatus.__members__.values():
                new.execute("DELETE FROM invocations WHERE session = ? AND invocation_id = ?", (session, name))
                continue
            new.execute(
                "UPDATE invocations SET commit_no = ? WHERE session = ? AND invocation_id = ?",
                (found[0], session, name),
            )
            kept.append(name)
        if cut and kept:
            new.execute(
                "UPDATE invocations SET status = ?, epoch = -1 WHERE session = ? AND invocation_id = ?",
                (InvocationStatus.RUNNING, session, kept[-1]),
            )

    def _steps(self, session: int, seq: object, revision: int) -> Iterator[tuple[int, str | None]]:
        """The number and the invocation of the event *seq* of the session, if it was kept."""
        from_json = "json_extract(data, '$.invocation_id')"
        for segment in read_segments(self._new, session):
            if isinstance(seq, int) and segment.first_seq <= seq <= min(segment.last_seq, revision):
                query = f"SELECT commit_no, {from_json} FROM events WHERE log = ? AND seq = ?"
                yield from self._new.execute(query, (segment.log, seq))

    # --- what they share

    def _drop_what_was_cut(self) -> None:
        new = self._new
        for table in ("shared_pasts", "invocations"):
            new.execute(f"DELETE FROM {table} WHERE session NOT IN (SELECT id FROM sessions)")
        new.execute(
            "DELETE FROM events WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = log AND seq <= s.revision)"
            " AND NOT EXISTS (SELECT 1 FROM shared_pasts p WHERE p.log = events.log AND seq <= p.last_seq)"
        )

    def _save_shared(self) -> None:
        new = self._new
        new.execute("DELETE FROM shared_base WHERE typeof(commit_no) <> 'integer' OR NOT json_valid(value)")
        bases = new.execute("SELECT coalesce(max(commit_no), 0) FROM shared_base").fetchone()
        try:
            deleted = newest_no(self._old)
        except SQLITE_ERRORS:
            deleted = 0
        new.execute("UPDATE store SET deleted_no = ?", (max(deleted, *bases),))
        for (app, user), (values, numbers) in fold_shared(new, lambda place, problem: None).items():
            for key, value in values.items():
                new.execute(
                    "INSERT INTO shared_state VALUES (?, ?, ?, ?, ?)", (app, user, key, dumps(value), numbers[key])
                )


# Where SQLite cannot tell which row is next, so many numbers are tried, but no more than there can be rows in the file:
# none is smaller than this.
NUMBERS_TRIED = 100_000
ROW_BYTES_MIN = 40


def _salvaged(db: sqlite3.Connection, table: str, number: str, columns: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The rows of a table, by their numbers; those that cannot be read are left out."""
    last = 0
    while True:
        try:
            query = f"SELECT {number}, {columns} FROM {table} NOT INDEXED WHERE {number} > ? ORDER BY {number}"
            for row in db.execute(query, (last,)):
                last = row[0]
                yield last, row[1:]
        except SQLITE_ERRORS:
            following = _next_readable(db, table, number, columns, last)
            if following is None:
                return
            last = following[0]
            yield following
        else:
            return


def _next_readable(
    db: sqlite3.Connection, table: str, number: str, columns: str, last: int
) -> tuple[int, tuple[Any, ...]] | None:
    pages, size = db.execute("PRAGMA page_count").fetchone()[0], db.execute("PRAGMA page_size").fetchone()[0]
    for candidate in range(last + 1, last + min(NUMBERS_TRIED, pages * size // ROW_BYTES_MIN)):
        try:
            row = db.execute(f"SELECT {columns} FROM {table} NOT INDEXED WHERE {number} = ?", (candidate,)).fetchone()
        except SQLITE_ERRORS:
            continue
        if row is not None:
            return candidate, row
    return None
