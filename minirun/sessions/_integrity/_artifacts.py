"""
The artifacts of a session file: whether they are what was saved.

A version names a content that is there, as long as it says; a content has its chunks, in order, and its hash is that of
all of them. A version that an event has made visible belongs to a session that has such an event.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ..._json import brief, loads
from .._sqlite._dead_owners import is_owner
from .._sqlite._errors import SQLITE_ERRORS

__all__ = ["about_problem", "check_artifacts"]

Report: TypeAlias = Callable[[str, str], None]
"""Called with what is wrong: where, and what."""

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
