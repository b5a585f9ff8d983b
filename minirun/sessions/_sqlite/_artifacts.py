"""
What the artifacts in a session file owe to its sessions, in the transactions of these.

An event that names a version makes it visible; a session that is deleted takes its artifacts with it; a fork begins
with those that its past had. Artifacts of a user (`user:`) belong to no session and stay out of all but the first.
Contents are not looked at: versions name them by their hash, and what none names is collected later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from ..._json import brief
from ...errors import AlreadyExistsError
from ...events import Event
from .._key import SessionKey

__all__ = [
    "NO_SESSION",
    "SQLITE_INTEGER_MAX",
    "ArtifactScope",
    "copy_artifacts",
    "delete_artifacts",
    "publish_artifacts",
    "reserve_named",
    "reserve_used",
    "scope_of_artifacts",
]

# App, user and session. What is a user's has no session; no session id is empty.
ArtifactScope: TypeAlias = tuple[str, str, str]
NO_SESSION: Final = ""
USER_PREFIX: Final = "user:"
SQLITE_INTEGER_MAX: Final = 2**63 - 1
# So many versions nobody makes; an event that names a higher number, which anybody can write, uses up nothing.
RESERVED_MAX: Final = 2**53

_NAMED: Final = "app_name = ? AND user_id = ? AND session_id = ? AND filename = ?"


def scope_of_artifacts(key: SessionKey) -> ArtifactScope:
    """Where the artifacts of a session stand."""
    return key.app_name, key.user_id, key.session_id


def publish_artifacts(
    db: sqlite3.Connection, key: SessionKey, seq: int | None, named: Iterable[tuple[str, Any]]
) -> None:
    """
    Make those staged versions visible that event *seq* names.

    What it names beyond these belongs to another artifact service, or was visible before.
    """
    for filename, version in named:
        if type(version) is not int or not 0 <= version <= SQLITE_INTEGER_MAX:
            continue
        of_user = filename.startswith(USER_PREFIX)
        session_id = NO_SESSION if of_user else key.session_id
        artifact = f"SELECT id FROM artifacts WHERE {_NAMED}"
        db.execute(
            "UPDATE artifact_versions SET stager = NULL, seq = ?"
            f" WHERE version = ? AND stager IS NOT NULL AND artifact = ({artifact})",
            (None if of_user else seq, version, key.app_name, key.user_id, session_id, filename),
        )


def delete_artifacts(db: sqlite3.Connection, scope: ArtifactScope, *, staged: bool) -> None:
    """Delete the versions of all artifacts of the scope, those that are staged only if told so. Numbers stay used."""
    db.execute(
        "DELETE FROM artifact_versions WHERE artifact IN"
        " (SELECT id FROM artifacts WHERE app_name = ? AND user_id = ? AND session_id = ?)"
        + ("" if staged else " AND stager IS NULL"),
        scope,
    )


def copy_artifacts(
    db: sqlite3.Connection,
    source: ArtifactScope,
    target: ArtifactScope,
    *,
    at_seq: int | None = None,
    versions: Mapping[str, int] | None = None,
) -> None:
    """
    Give *target* the visible versions of all artifacts of *source*, with their numbers.

    With *at_seq* it is a fork: *target* is a session without a past, those that a later event has made visible are left
    out, and the others stay with their events. With *versions* only those of its names are copied, up to its numbers.

    Raises:
        AlreadyExistsError: It has or had an artifact of one of the names; nothing may be written under its numbers.
            What a session of the same id had that was deleted does not matter to a fork; its numbers stay used.
    """
    visible = "v.stager IS NULL AND v.version <= ?" + ("" if at_seq is None else " AND coalesce(v.seq, 0) <= ?")
    seq, bound = ("NULL", ()) if at_seq is None else ("seq", (at_seq,))
    names = "SELECT id, filename, next_version FROM artifacts WHERE app_name = ? AND user_id = ? AND session_id = ?"
    for artifact, filename, following in db.execute(names, source).fetchall():
        newest = SQLITE_INTEGER_MAX if versions is None else min(versions.get(filename, -1), SQLITE_INTEGER_MAX)
        there = f"SELECT 1 FROM artifact_versions v WHERE v.artifact = ? AND {visible} LIMIT 1"
        if not db.execute(there, (artifact, newest, *bound)).fetchone():
            continue
        if _is_taken(db, target, filename, by_name=at_seq is None):
            msg = f"expected no artifact {brief(filename)} in session {brief(target[2])}, found that there is or was"
            raise AlreadyExistsError(f"{msg} one; choose another id for the new session")
        made = _reserve(db, target, filename, following)
        db.execute(
            f"INSERT INTO artifact_versions SELECT ?, version, sha256, size, create_time, about, NULL, {seq}"
            f" FROM artifact_versions v WHERE v.artifact = ? AND {visible} ORDER BY version",
            (made, artifact, newest, *bound),
        )


def _is_taken(db: sqlite3.Connection, scope: ArtifactScope, filename: str, *, by_name: bool) -> bool:
    """Whether there is an artifact, or if *by_name*, ever was one."""
    query = f"SELECT id FROM artifacts WHERE {_NAMED}"
    found = db.execute(query, (*scope, filename)).fetchone()
    if found is None or by_name:
        return found is not None
    versions = "SELECT 1 FROM artifact_versions WHERE artifact = ? LIMIT 1"
    return db.execute(versions, found).fetchone() is not None


def _reserve(db: sqlite3.Connection, scope: ArtifactScope, filename: str, following: int) -> int:
    """Let the next version of an artifact not have a number below *following*; return the artifact's row."""
    db.execute(
        "INSERT INTO artifacts VALUES (NULL, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET next_version = max(next_version, excluded.next_version)",
        (*scope, filename, following),
    )
    [number] = db.execute(f"SELECT id FROM artifacts WHERE {_NAMED}", (*scope, filename)).fetchone()
    return int(number)


def reserve_named(db: sqlite3.Connection, key: SessionKey, events: Iterable[Event]) -> None:
    """Let no version that is yet to come have a number that one of these events names; they are of another past."""
    named: dict[str, int] = {}
    for event in events:
        for filename, version in event.actions.named_artifacts():
            if type(version) is int and 0 <= version < RESERVED_MAX:
                named[filename] = max(version, named.get(filename, 0))
    for filename, version in named.items():
        session_id = NO_SESSION if filename.startswith(USER_PREFIX) else key.session_id
        _reserve(db, (key.app_name, key.user_id, session_id), filename, version + 1)


def reserve_used(db: sqlite3.Connection, source: ArtifactScope, target: ArtifactScope) -> None:
    """Let no version of *target* that is yet to come have a number that was used in *source*."""
    names = "SELECT filename, next_version FROM artifacts WHERE app_name = ? AND user_id = ? AND session_id = ?"
    for filename, following in db.execute(names, source).fetchall():
        _reserve(db, target, filename, following)
