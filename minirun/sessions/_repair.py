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
from ._live import OpenCall, SessionKey, is_of_a_run, opened_calls
from ._session import InvocationStatus
from ._sqlite_errors import SQLITE_ERRORS
from ._sqlite_format import check_place, make_format
from ._sqlite_schema import FORMAT, SEQ_MAX, Row, newest_no, read_segments
from ._state import Values
from ._verify import PROGRESS_EVERY, Damage, Progress, Scopes, Step, fold_shared, open_to_read, read_bases, scan, verify

__all__ = ["Repaired", "SavedSession", "repair"]


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


@attrs.frozen
class Repaired:
    """What a repair came to: each session, and what was wrong with the state that sessions share."""

    sessions: list[SavedSession]
    damages: list[Damage]

    @property
    def losses(self) -> list[SavedSession | Damage]:
        """What is not as it was."""
        return [*(one for one in self.sessions if one.revision is None or one.problem), *self.damages]


def repair(path: str | PathLike[str], new_path: str | PathLike[str], *, progress: Progress | None = None) -> Repaired:
    """
    Save every session's longest whole beginning into a new file, and return what became of each.

    `user:` and `app:` state, open calls and invocations are what the events that were kept say. Events whose session
    has lost its row are saved as sessions of the app `recovered`. It blocks, as `verify`.

    Raises:
        AlreadyExistsError: There is a file at *new_path*; nothing is changed.
        StorageError: The new file cannot be made there; or the old one is not one of minirun, or SQLite cannot read its
            first page (StorageFormatError). No new file is left.
    """
    target = Path(new_path)
    if target.exists():
        msg = f"expected a new file name, found a file at {str(target)!r}"
        raise AlreadyExistsError(msg)
    check_place(target)
    half_made = target.with_name(f"{target.name}.part")
    try:
        with closing(open_to_read(Path(path))) as old:
            half_made.unlink(missing_ok=True)
            with closing(REAL_ENV.connect(str(half_made))) as new:
                make_format(new, str(half_made), FORMAT)
                new.execute("BEGIN IMMEDIATE")
                repaired = _Repair(old, new, progress).run()
                new.execute("COMMIT")
        left = verify(half_made)
        assert not left, f"what was saved verifies: {left[0]}"
        half_made.rename(target)
    finally:
        half_made.unlink(missing_ok=True)
    return repaired


class _Repair:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, progress: Progress | None) -> None:
        self._old = old
        self._new = new
        self._progress = progress

    def run(self) -> Repaired:
        self._copy_events()
        for table in ("shared_pasts", "shared_base", "invocations"):
            self._copy_readable(table)
        saved = []
        columns = "s.app_name, s.user_id, s.session_id, s.revision, s.create_time"
        for session, row in list(_salvaged(self._old, "sessions s", "s.id", columns)):
            saved.append(self._save_session(session, row[:3], row[3], row[4]))
        for (log,) in self._new.execute(_LOST_LOGS).fetchall():
            names = (RECOVERED, RECOVERED, f"log-{log}")
            saved.append(
                self._save_session(log, names, None, None, "the row of the session that has written it is lost")
            )
        self._drop_what_was_cut()
        return Repaired(saved, self._save_shared())

    # --- what there is

    def _copy_events(self) -> None:
        """All events that can be read; which of them are whole is seen later, in the new file."""
        try:
            [total] = self._old.execute("SELECT count(*) FROM events").fetchone()
        except SQLITE_ERRORS:
            total = 0
        rows = _salvaged(self._old, "events", "commit_no", "log, seq, chain, data")
        for done, (number, (log, seq, chain, data)) in enumerate(rows, 1):
            if type(data) is str and type(chain) is bytes and type(log) is type(seq) is int:
                self._new.execute(
                    "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?)", (number, log, seq, chain, data)
                )
            if self._progress is not None and done % PROGRESS_EVERY == 0:
                self._progress(done, max(done, total))

    def _copy_readable(self, table: str) -> None:
        try:
            for row in self._old.execute(f"SELECT * FROM {table}"):
                if table == "shared_pasts" and any(type(number) is not int for number in row):
                    continue
                try:
                    marks = ", ".join("?" * len(row))
                    self._new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)
                except SQLITE_ERRORS:
                    continue  # a row that breaks a rule of its table
        except SQLITE_ERRORS:
            pass  # so far it could be read

    # --- sessions

    def _save_session(
        self, session: int, names: tuple[Any, ...], revision: Any, created: Any, lost: str = ""
    ) -> SavedSession:
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
            calls.update({call.call_id: call for call in opened_calls(step.event) if is_of_a_run(step.event)})
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
        return SavedSession(key, last.seq, was, lost or (problem if last.seq < was else ""))

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
        for call in calls.values():
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

    def _save_shared(self) -> list[Damage]:
        """Save the shared state; return what is wrong with its bases, and where it is not what it was."""
        new = self._new
        damages: list[Damage] = []
        try:
            deleted = newest_no(self._old)
        except SQLITE_ERRORS as error:
            damages.append(Damage("file", str(error)))
            deleted = newest_no(new)
        new.execute("UPDATE store SET deleted_no = ?", (deleted,))

        def report(place: str, problem: str) -> None:
            damages.append(Damage(place, problem))

        bases = read_bases(new, report)
        new.execute("DELETE FROM shared_base")
        for (app, user), (number, base) in bases.items():
            new.execute("INSERT INTO shared_base VALUES (?, ?, ?, ?)", (app, user, number, dumps(base)))
        scopes = fold_shared(new, bases, report)
        for (app, user), (values, numbers) in scopes.items():
            for key, value in values.items():
                new.execute(
                    "INSERT INTO shared_state VALUES (?, ?, ?, ?, ?)", (app, user, key, dumps(value), numbers[key])
                )
        return [*damages, *self._differences(scopes)]

    def _differences(self, scopes: Scopes) -> list[Damage]:
        """Where the shared state of the old file, as far as it can be read, is another one."""
        damages = []
        try:
            rows = self._old.execute("SELECT app_name, user_id, key, value FROM shared_state").fetchall()
        except SQLITE_ERRORS as error:
            return [Damage("file", f"the shared state cannot be read: {error}")]
        for app, user, key, value in rows:
            values, _ = scopes.get((app, user), ({}, {}))
            saved = dumps(values[key]) if key in values else None
            if saved != value:
                place = f"the state of {f'user {user!r} in ' if user else ''}app {app!r}"
                damages.append(Damage(place, f"state key {key!r:.80}: was {value!r:.80}, saved as {saved!r:.80}"))
        return damages


# Where the events of sessions go whose row cannot be read.
RECOVERED = "recovered"
_LOST_LOGS = (
    "SELECT DISTINCT log FROM events WHERE log NOT IN (SELECT id FROM sessions)"
    " AND log NOT IN (SELECT log FROM shared_pasts) ORDER BY log"
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
