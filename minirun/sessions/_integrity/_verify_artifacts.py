"""
Are the artifacts of a session file what was saved?

A version names a content that is there, as long as it says; a content has its chunks, in order, and its hash is that of
all of them. A version that an event has made visible belongs to a session that has such an event.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ..._json import loads
from .._sqlite._errors import SQLITE_ERRORS

__all__ = ["check_artifacts", "content_problem", "version_problem"]

Report: TypeAlias = Callable[[str, str], None]

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
        place = f"artifact {filename!r:.80} of {f'session {session!r:.80}' if session else 'a user'}"
        problem = version_problem(version, sha256, size, created, about)
        if problem:
            report(place, f"version {version!r:.40}: {problem}")
        elif type(following) is not int or version >= following:
            report(place, f"version {version}: expected one below the next, which is {following!r:.40}")
        elif sha256 is not None and there != size:
            found = "none" if there is None else f"one of {there!r:.40}"
            report(place, f"version {version}: expected a content of {size} bytes, found {found}")
        elif (stager is not None or not session) and seq is not None:
            report(place, f"version {version} is said to be made visible by event {seq!r:.40}, and cannot be")
        elif seq is not None and (type(seq) is not int or revision is None or not 0 <= seq <= revision):
            report(place, f"version {version} was made visible by event {seq!r:.40}, which there is not")
    for content, sha256, size in db.execute("SELECT id, sha256, size FROM contents WHERE sha256 IS NOT NULL"):
        problem = content_problem(db, content, sha256, size)
        if problem:
            report("file", f"content {content} of artifacts: {problem}")


def version_problem(version: Any, sha256: Any, size: Any, created: Any, about: Any) -> str:
    """What is wrong with the columns of a version; empty if nothing is."""
    if type(version) is not int or version < 0 or type(size) is not int or type(created) is not float:
        return f"expected numbers, found {version!r:.40}, {size!r:.40} and {created!r:.40}"
    if sha256 is None:
        return ""
    if type(sha256) is not str or type(about) is not str:
        return f"expected texts, found {sha256!r:.80} and {about!r:.80}"
    try:
        said = loads(about)
    except (ValueError, TypeError, RecursionError) as error:
        return f"what is said of it cannot be read: {error}"
    if not isinstance(said, dict) or not all(isinstance(said.get(name), kind) for name, kind in _ABOUT.items()):
        return f"expected what it is, found {about!r:.80}"
    return ""


def content_problem(db: sqlite3.Connection, content: int, sha256: Any, size: Any) -> str:
    """What is wrong with a content that has a hash; empty if nothing is."""
    hashed, length = hashlib.sha256(), 0
    query = "SELECT number, data FROM chunks WHERE content = ? ORDER BY number"
    try:
        for expected, (number, data) in enumerate(db.execute(query, (content,))):
            if number != expected or type(data) is not bytes:
                return f"expected chunk {expected}, found {number!r:.40} with {type(data).__name__}"
            hashed.update(data)
            length += len(data)
    except SQLITE_ERRORS as error:
        return f"SQLite cannot read it: {error}"
    if hashed.hexdigest() != sha256 or length != size:
        return f"expected {size!r:.40} bytes with the sha256 {sha256!r:.80}, found {length} others"
    return ""
