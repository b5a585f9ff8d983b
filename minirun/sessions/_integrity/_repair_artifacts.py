"""
What is whole of the artifacts in a damaged session file, in a new one.

A content is whole if its chunks have its hash. A version is kept if what it names is, with its number. Those that were
staged are not: whoever would have shown them is gone. One whose event is not kept stays visible without it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ._salvage import salvaged
from ._verify_artifacts import content_problem, version_problem

__all__ = ["save_artifacts"]

Lose: TypeAlias = Callable[[str, str], None]

INTEGER_MAX: Final = 2**63 - 2


def save_artifacts(old: sqlite3.Connection, new: sqlite3.Connection, lose: Lose) -> None:
    """Copy what is whole, after the sessions, chunk by chunk; *lose* is told what is not."""
    kept = _save_contents(old, new, lose)
    named = _save_names(old, new, lose)
    columns = "artifact, version, sha256, size, create_time, about, stager, seq"
    for _, (artifact, version, sha256, size, created, about, stager, seq) in salvaged(
        old, "artifact_versions", "rowid", columns
    ):
        if stager is not None:
            continue
        place, owner = named.get(artifact, (f"artifact row {artifact!r:.40}", None))
        problem = version_problem(version, sha256, size, created, about)
        if not problem and owner is None:
            problem = "whose it is is lost"
        if not problem and sha256 is not None and kept.get(sha256) != size:
            problem = "its content is lost"
        if problem or version > INTEGER_MAX:
            lose(place, f"version {version!r:.40} is not kept: {problem or 'it is none that was written'}")
            continue
        new.execute(
            "INSERT OR IGNORE INTO artifact_versions VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
            (artifact, version, sha256, size, created, about, _kept_seq(new, owner, seq)),
        )
        new.execute("UPDATE artifacts SET next_version = max(next_version, ?) WHERE id = ?", (version + 1, artifact))


def _save_contents(old: sqlite3.Connection, new: sqlite3.Connection, lose: Lose) -> dict[str, int]:
    """Copy what is whole; return the sizes by hash."""
    saved: dict[str, int] = {}
    for content, (sha256, size) in salvaged(old, "contents", "id", "sha256, size"):
        if sha256 is None:
            continue
        problem = content_problem(old, content, sha256, size)
        if not problem and new.execute("SELECT 1 FROM contents WHERE sha256 = ?", (sha256,)).fetchone():
            continue
        if problem:
            lose("file", f"content {content} of artifacts is not kept: {problem}")
            continue
        new.execute("INSERT INTO contents VALUES (?, ?, ?)", (content, sha256, size))
        for chunk in old.execute("SELECT content, number, data FROM chunks WHERE content = ?", (content,)):
            new.execute("INSERT INTO chunks VALUES (?, ?, ?)", chunk)
        saved[sha256] = size
    return saved


def _save_names(
    old: sqlite3.Connection, new: sqlite3.Connection, lose: Lose
) -> dict[int, tuple[str, tuple[str, str, str] | None]]:
    """Copy the rows of artifacts; return how each is called in a report, and whose it is."""
    named: dict[int, tuple[str, tuple[str, str, str] | None]] = {}
    columns = "app_name, user_id, session_id, filename, next_version"
    for artifact, (app, user, session, filename, following) in salvaged(old, "artifacts", "id", columns):
        place = f"artifact {filename!r:.80} of {f'session {session!r:.80}' if session else 'a user'}"
        if not all(type(name) is str for name in (app, user, session, filename)):
            lose(place, f"it is not kept: its row has {app!r:.40}, {user!r:.40}, {session!r:.40}")
            continue
        if type(following) is not int or not 0 <= following <= INTEGER_MAX:
            lose(place, f"which numbers were used is lost: found {following!r:.40}")
            following = 0
        row = (artifact, app, user, session, filename, following)
        if new.execute("INSERT OR IGNORE INTO artifacts VALUES (?, ?, ?, ?, ?, ?)", row).rowcount == 1:
            named[artifact] = place, (app, user, session)
        else:
            lose(place, "it is not kept: there is another one of its name")
    return named


def _kept_seq(new: sqlite3.Connection, owner: Any, seq: Any) -> int | None:
    """The event that has made a version visible, if it was kept."""
    query = "SELECT revision FROM sessions WHERE app_name = ? AND user_id = ? AND session_id = ?"
    found = new.execute(query, owner).fetchone()
    return seq if found is not None and type(seq) is int and 0 <= seq <= found[0] else None
