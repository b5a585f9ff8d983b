"""
Artifacts as rows: what is read and written within a transaction of a session file.

The tables are those of `sessions/_sqlite/_schema.py`. A content is a row and its chunks, numbered from 0. It has its
hash from the transaction on in which the first version names it; without, it is on its way in or out, and nobody may
name it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from types import NoneType
from typing import Any, Final

import attrs

from .._json import brief, dumps, freeze, loads
from ..sessions._sqlite._artifacts import NO_SESSION, SQLITE_INTEGER_MAX, ArtifactScope
from ..sessions._sqlite._errors import damage
from ._values import ArtifactKey, Description, Scope, Stored, next_number

__all__ = [
    "Use",
    "add_version",
    "begin_content",
    "chunk_of",
    "delete_visible",
    "discard",
    "drop_chunks",
    "find_content",
    "find_version",
    "name_content",
    "put_chunk",
    "release",
    "rows_of",
    "seal_content",
    "use_content",
    "visible_names",
    "visible_versions",
]

_KINDS: Final = ((int,), (str, NoneType), (int,), (float,), (str,))
_ABOUT: Final = {"mime_type": str, "part": dict, "custom_metadata": dict}


def rows_of(scope: Scope) -> ArtifactScope:
    """The scope as the tables have it."""
    app, user, session = scope
    return app, user, NO_SESSION if session is None else session


def _artifact(db: sqlite3.Connection, key: ArtifactKey) -> tuple[int, int] | None:
    """The row of an artifact, and its next number."""
    query = (
        "SELECT id, next_version FROM artifacts WHERE app_name = ? AND user_id = ? AND session_id = ? AND filename = ?"
    )
    found = db.execute(query, (*rows_of(key.scope), key.filename)).fetchone()
    if found is not None and (type(found[1]) is not int or found[1] < 0):
        raise damage(f"the next version of {brief(key.filename)} is {brief(found[1], 40)}")
    return None if found is None else (found[0], found[1])


# --- versions ---------------------------------------------------------------------------------------------------------


def add_version(
    db: sqlite3.Connection,
    key: ArtifactKey,
    stored: Stored | None,
    create_time: float,
    stager: str | None,
    least: int,
) -> int:
    """Insert the next version, not below *least*, which is what *stored* is, or hidden; return its number."""
    found = _artifact(db, key)
    number = next_number(0 if found is None else found[1], least)
    if found is None:
        row = (*rows_of(key.scope), key.filename, number + 1)
        artifact = db.execute("INSERT INTO artifacts VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid
    else:
        artifact = found[0]
        db.execute("UPDATE artifacts SET next_version = ? WHERE id = ?", (number + 1, artifact))
    sha256, size, about = None, 0, "{}"
    if stored is not None:
        version = stored.version
        sha256, size = version.sha256, version.size
        about = dumps({"mime_type": version.mime_type, "part": stored.part, "custom_metadata": version.custom_metadata})
    columns = (artifact, number, sha256, size, create_time, about, stager)
    db.execute("INSERT INTO artifact_versions VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", columns)
    return number


def find_version(
    db: sqlite3.Connection, key: ArtifactKey, version: int | None, staged: Collection[int] = ()
) -> Stored | None:
    """
    Return a version, or the newest, that is visible or one of *staged*; None if it is hidden or not there.

    Raises:
        sqlite3.DatabaseError: Its row makes no sense: the file is damaged.
    """
    found = _artifact(db, key)
    if found is None or (version is not None and version > SQLITE_INTEGER_MAX):
        return None
    own = ", ".join("?" * len(staged))
    which = "" if version is None else "AND version = ?"
    query = (
        "SELECT version, sha256, size, create_time, about FROM artifact_versions"
        f" WHERE artifact = ? {which} AND (stager IS NULL OR version IN ({own})) ORDER BY version DESC LIMIT 1"
    )
    chosen = () if version is None else (version,)
    columns = db.execute(query, (found[0], *chosen, *staged)).fetchone()
    return None if columns is None or columns[1] is None else _stored(key, columns)


def _stored(key: ArtifactKey, columns: Sequence[Any]) -> Stored:
    for value, kinds in zip(columns, _KINDS, strict=True):
        if type(value) not in kinds:
            raise damage(f"a version of {brief(key.filename)} has {brief(value)} where {kinds[0].__name__} was written")
    number, sha256, size, create_time, text = columns
    try:
        about = freeze(loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise damage(f"what is said of version {number} of {brief(key.filename)}: {error}") from error
    if not isinstance(about, dict) or not all(isinstance(about.get(name), kind) for name, kind in _ABOUT.items()):
        raise damage(f"what is said of version {number} of {brief(key.filename)} is {brief(text)}")
    said = Description(**{name: about[name] for name in _ABOUT})
    return Stored.of(key, number, said, size=size, sha256=sha256, create_time=create_time)


def visible_versions(db: sqlite3.Connection, key: ArtifactKey) -> list[int]:
    """The numbers that can be read."""
    found = _artifact(db, key)
    query = (
        "SELECT version FROM artifact_versions"
        " WHERE artifact = ? AND stager IS NULL AND sha256 IS NOT NULL ORDER BY version"
    )
    return [] if found is None else [number for (number,) in db.execute(query, (found[0],))]


def visible_names(db: sqlite3.Connection, scope: Scope) -> list[str]:
    """The names of those artifacts whose newest visible version is not hidden."""
    visible = "SELECT sha256 FROM artifact_versions v WHERE v.artifact = a.id AND stager IS NULL"
    newest = f"{visible} ORDER BY version DESC LIMIT 1"
    query = (
        "SELECT filename FROM artifacts a"
        f" WHERE app_name = ? AND user_id = ? AND session_id = ? AND ({newest}) IS NOT NULL"
    )
    return [name for (name,) in db.execute(query, rows_of(scope))]


def delete_visible(db: sqlite3.Connection, key: ArtifactKey) -> None:
    """Delete all visible versions."""
    found = _artifact(db, key)
    if found is not None:
        db.execute("DELETE FROM artifact_versions WHERE artifact = ? AND stager IS NULL", found[:1])


def discard(db: sqlite3.Connection, key: ArtifactKey, versions: Collection[int]) -> None:
    """Delete those of these versions that are staged."""
    found = _artifact(db, key)
    if found is not None:
        query = "DELETE FROM artifact_versions WHERE artifact = ? AND version = ? AND stager IS NOT NULL"
        db.executemany(query, [(found[0], version) for version in versions])


# --- contents ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Use:
    """The sign that a process is writing or reading a content."""

    id: int
    content: int


def begin_content(db: sqlite3.Connection, owner: str) -> Use:
    """Insert the row of a content whose chunks are about to come."""
    content = db.execute("INSERT INTO contents VALUES (NULL, NULL, 0)").lastrowid
    assert content is not None
    return use_content(db, content, owner)


def use_content(db: sqlite3.Connection, content: int, owner: str) -> Use:
    """Let nobody collect a content as long as *owner* lives and the use is not released."""
    use = db.execute("INSERT INTO content_uses VALUES (NULL, ?, ?)", (content, owner)).lastrowid
    assert use is not None
    return Use(use, content)


def release(db: sqlite3.Connection, use: Use) -> None:
    """End a use, if it has not ended."""
    db.execute("DELETE FROM content_uses WHERE id = ?", (use.id,))


def find_content(db: sqlite3.Connection, sha256: str) -> int | None:
    """The content that has this hash, if it is there."""
    found = db.execute("SELECT id FROM contents WHERE sha256 = ?", (sha256,)).fetchone()
    return None if found is None else int(found[0])


def put_chunk(db: sqlite3.Connection, content: int, number: int, data: bytes) -> None:
    """Insert a chunk, or write it anew."""
    db.execute(
        "INSERT INTO chunks VALUES (?, ?, ?) ON CONFLICT (content, number) DO UPDATE SET data = excluded.data",
        (content, number, data),
    )


def chunk_of(db: sqlite3.Connection, content: int, number: int) -> bytes | None:
    """
    A chunk, if it is there.

    Raises:
        sqlite3.DatabaseError: It is no bytes: the file is damaged.
    """
    found = db.execute("SELECT data FROM chunks WHERE content = ? AND number = ?", (content, number)).fetchone()
    if found is not None and type(found[0]) is not bytes:
        raise damage(f"chunk {number} of content {content} is {brief(found[0], 40)}")
    return None if found is None else found[0]


def name_content(db: sqlite3.Connection, data: bytes, sha256: str) -> None:
    """Store a content of one chunk, unless it is there; were that one damaged, it would be whole again."""
    content = find_content(db, sha256)
    if content is None:
        content = db.execute("INSERT INTO contents VALUES (NULL, ?, ?)", (sha256, len(data))).lastrowid
        assert content is not None
    same = "SELECT data IS ? FROM chunks WHERE content = ? AND number = 0"
    if data and db.execute(same, (data, content)).fetchone() != (1,):
        put_chunk(db, content, 0, data)


def seal_content(db: sqlite3.Connection, content: int, sha256: str, size: int) -> None:
    """Give a content, all of whose chunks are there, its hash; another that has it is on its way out from here on."""
    db.execute("UPDATE contents SET sha256 = NULL WHERE sha256 = ? AND id <> ?", (sha256, content))
    db.execute("UPDATE contents SET sha256 = ?, size = ? WHERE id = ?", (sha256, size, content))


def drop_chunks(db: sqlite3.Connection, content: int, limit: int) -> list[int]:
    """
    Delete up to *limit* chunks of a content and return their lengths; fewer than *limit*: its row is deleted, too.

    One that has a hash, or a use, is left alone.
    """
    used = "SELECT 1 FROM content_uses u WHERE u.content = c.id"
    is_kept = f"SELECT 1 FROM contents c WHERE c.id = ? AND (c.sha256 IS NOT NULL OR EXISTS ({used}))"
    if db.execute(is_kept, (content,)).fetchone():
        return []
    chunks = "SELECT rowid, length(data) FROM chunks WHERE content = ? LIMIT ?"
    found = db.execute(chunks, (content, limit)).fetchall()
    db.executemany("DELETE FROM chunks WHERE rowid = ?", [(row,) for row, _ in found])
    if len(found) < limit:
        db.execute("DELETE FROM contents WHERE id = ?", (content,))
    return [length for _, length in found]
