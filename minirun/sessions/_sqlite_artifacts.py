"""
What the artifacts in a session file owe to its sessions, in the transactions of these.

An event that names a version makes it visible; a session that is deleted takes its artifacts with it; a fork begins
with those that its past had. Artifacts of a user (`user:`) belong to no session and stay out of all but the first.
Contents are not looked at: versions name them by their hash, and what none names is collected later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from ..errors import AlreadyExistsError
from ._live import SessionKey

__all__ = ["NO_SESSION", "ArtifactScope", "copy_artifacts", "delete_artifacts", "publish_artifacts"]

# App, user and session. What is a user's has no session; no session id is empty.
ArtifactScope: TypeAlias = tuple[str, str, str]
NO_SESSION: Final = ""
USER_PREFIX: Final = "user:"
SQLITE_INTEGER_MAX: Final = 2**63 - 1


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
        artifact = "SELECT id FROM artifacts WHERE app_name = ? AND user_id = ? AND session_id = ? AND filename = ?"
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
    db: sqlite3.Connection, source: ArtifactScope, target: ArtifactScope, at_seq: int | None = None
) -> None:
    """
    Give *target* the visible versions of all artifacts of *source*, with their numbers.

    With *at_seq* those that a later event has made visible are left out.

    Raises:
        AlreadyExistsError: It has or had an artifact of one of the names; nothing may be written under its numbers.
    """
    visible = "v.stager IS NULL" + ("" if at_seq is None else " AND coalesce(v.seq, 0) <= ?")
    bound = () if at_seq is None else (at_seq,)
    names = (
        "SELECT a.id, a.filename, a.next_version FROM artifacts a WHERE app_name = ? AND user_id = ? AND session_id = ?"
        f" AND EXISTS (SELECT 1 FROM artifact_versions v WHERE v.artifact = a.id AND {visible})"
    )
    for artifact, filename, following in db.execute(names, (*source, *bound)).fetchall():
        made = db.execute(
            "INSERT OR IGNORE INTO artifacts VALUES (NULL, ?, ?, ?, ?, ?)", (*target, filename, following)
        )
        if made.rowcount != 1:
            msg = f"expected no artifact {filename!r:.80} in session {target[2]!r:.80}, found that there is or was one"
            raise AlreadyExistsError(f"{msg}; choose another id for the new session")
        db.execute(
            "INSERT INTO artifact_versions SELECT ?, version, sha256, size, create_time, about, NULL, seq"
            f" FROM artifact_versions v WHERE v.artifact = ? AND {visible} ORDER BY version",
            (made.lastrowid, artifact, *bound),
        )
