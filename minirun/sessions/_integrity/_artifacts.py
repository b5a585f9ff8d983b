"""
The artifacts of a session file: whether they are what was saved, and what is whole of them, in a new file.

A version names a content that is there, as long as it says; a content has its chunks, in order, and its hash is that of
all of them. A version that an event has made visible belongs to a session that has such an event.

A version is kept if its content is whole, with its number. Those that were staged are not: the run that would have
shown them is gone. One whose event is not kept stays visible without it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ..._json import brief, loads
from .._sqlite._dead_owners import is_owner
from .._sqlite._errors import SQLITE_ERRORS
from ._salvage import salvaged

__all__ = ["about_problem", "check_artifacts", "save_artifacts"]

Report: TypeAlias = Callable[[str, str], None]
"""Is told what is wrong, or lost: where, and what."""

INTEGER_MAX: Final = 2**63 - 2
_ABOUT: Final = {"mime_type": str, "part": dict, "custom_metadata": dict}
VERSIONS: Final = (
    "SELECT v.version, v.sha256, v.size, v.create_time, v.about, v.seq, v.stager, a.next_version, a.filename,"
    " a.session_id, c.size, s.revision FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact"
    " LEFT JOIN contents c ON c.sha256 = v.sha256 LEFT JOIN sessions s"
    " ON s.app_name = a.app_name AND s.user_id = a.user_id AND s.session_id = a.session_id"
)


def check_artifacts(db: sqlite3.Connection, report: Report) -> None:
    """Look at all artifacts, and report what is wrong. Contents are read chunk by chunk."""
    for version, sha256, size, created, about, seq, stager, following, filename, session, there, revision in db.execute(
        VERSIONS
    ):
        place = f"artifact {brief(filename)} of {f'session {brief(session)}' if session else 'a user'}"
        problem = _version_problem(version, sha256, size, created, about)
        if problem:
            report(place, f"version {brief(version, 40)}: {problem}")
        elif type(following) is not int or version >= following:
            report(place, f"version {version}: expected one below the next, which is {brief(following, 40)}")
        elif sha256 is not None and there != size:
            found = "none" if there is None else f"one of {brief(there, 40)}"
            report(place, f"version {version}: expected a content of {size} bytes, found {found}")
        elif (stager is not None or not session) and seq is not None:
            report(place, f"version {version} is said to be made visible by event {brief(seq, 40)}, and cannot be")
        elif seq is not None and (type(seq) is not int or revision is None or not 0 <= seq <= revision):
            report(place, f"version {version} was made visible by event {brief(seq, 40)}, which there is not")
    owners = "SELECT stager FROM artifact_versions WHERE stager NOT NULL UNION SELECT owner FROM content_uses"
    for (owner,) in db.execute(owners).fetchall():
        if not is_owner(owner):
            report("file", f"artifacts are said to be used by {brief(owner)}, which is the name of no process")
    for content, sha256, size in db.execute("SELECT id, sha256, size FROM contents WHERE sha256 IS NOT NULL"):
        problem = _content_problem(db, content, sha256, size)
        if problem:
            report("file", f"content {content} of artifacts: {problem}")


def _version_problem(version: Any, sha256: Any, size: Any, created: Any, about: Any) -> str:
    """What is wrong with the columns of a version; empty if nothing is."""
    if type(version) is not int or version < 0 or type(size) is not int or type(created) is not float:
        return f"expected numbers, found {brief(version, 40)}, {brief(size, 40)} and {brief(created, 40)}"
    if sha256 is None:
        return ""
    if type(sha256) is not str or type(about) is not str:
        return f"expected texts, found {brief(sha256)} and {brief(about)}"
    return about_problem(about)


def about_problem(about: str) -> str:
    """What is wrong with what is said of a version beside its numbers; empty if nothing is."""
    try:
        said = loads(about)
    except (ValueError, TypeError, RecursionError) as error:
        return f"what is said of it cannot be read: {error}"
    if not isinstance(said, dict) or not all(isinstance(said.get(name), kind) for name, kind in _ABOUT.items()):
        return f"expected what it is, found {brief(about)}"
    return ""


def _content_problem(db: sqlite3.Connection, content: int, sha256: Any, size: Any) -> str:
    """What is wrong with a content that has a hash; empty if nothing is."""
    hashed, length = hashlib.sha256(), 0
    query = "SELECT number, data FROM chunks WHERE content = ? ORDER BY number"
    try:
        for expected, (number, data) in enumerate(db.execute(query, (content,))):
            if number != expected or type(data) is not bytes:
                return f"expected chunk {expected}, found {brief(number, 40)} with {type(data).__name__}"
            hashed.update(data)
            length += len(data)
    except SQLITE_ERRORS as error:
        return f"SQLite cannot read it: {error}"
    if hashed.hexdigest() != sha256 or length != size:
        return f"expected {brief(size, 40)} bytes with the sha256 {brief(sha256)}, found {length} others"
    return ""


# --- saving -----------------------------------------------------------------------------------------------------------


def save_artifacts(old: sqlite3.Connection, new: sqlite3.Connection, lose: Report) -> None:
    """Copy what is whole, after the sessions, chunk by chunk; *lose* is told what is not."""
    kept = _save_contents(old, new, lose)
    named = _save_names(old, new, lose)
    columns = "artifact, version, sha256, size, create_time, about, stager, seq"
    for _, (artifact, version, sha256, size, created, about, stager, seq) in salvaged(
        old, "artifact_versions", "rowid", columns
    ):
        if stager is not None:
            continue
        place, owner = named.get(artifact, (f"artifact row {brief(artifact, 40)}", None))
        problem = _version_problem(version, sha256, size, created, about)
        if not problem and owner is None:
            problem = "whose it is is lost"
        if not problem and sha256 is not None and kept.get(sha256) != size:
            problem = "its content is lost"
        if problem or version > INTEGER_MAX:
            lose(place, f"version {brief(version, 40)} is not kept: {problem or 'it is none that was written'}")
            continue
        new.execute(
            "INSERT OR IGNORE INTO artifact_versions VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
            (artifact, version, sha256, size, created, about, _kept_seq(new, owner, seq)),
        )
        new.execute("UPDATE artifacts SET next_version = max(next_version, ?) WHERE id = ?", (version + 1, artifact))


def _save_contents(old: sqlite3.Connection, new: sqlite3.Connection, lose: Report) -> dict[str, int]:
    """Copy what is whole; return the sizes by hash."""
    saved: dict[str, int] = {}
    for content, (sha256, size) in salvaged(old, "contents", "id", "sha256, size"):
        if sha256 is None:
            continue
        problem = _content_problem(old, content, sha256, size)
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
    old: sqlite3.Connection, new: sqlite3.Connection, lose: Report
) -> dict[int, tuple[str, tuple[str, str, str] | None]]:
    """Copy the rows of artifacts; return how each is called in a report, and whose it is."""
    named: dict[int, tuple[str, tuple[str, str, str] | None]] = {}
    columns = "app_name, user_id, session_id, filename, next_version"
    for artifact, (app, user, session, filename, following) in salvaged(old, "artifacts", "id", columns):
        place = f"artifact {brief(filename)} of {f'session {brief(session)}' if session else 'a user'}"
        if not all(type(name) is str for name in (app, user, session, filename)):
            lose(place, f"it is not kept: its row has {brief(app, 40)}, {brief(user, 40)}, {brief(session, 40)}")
            continue
        if type(following) is not int or not 0 <= following <= INTEGER_MAX:
            lose(place, f"which numbers were used is lost: found {brief(following, 40)}")
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
