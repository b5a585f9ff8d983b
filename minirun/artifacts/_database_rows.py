"""
Artifacts as rows of a Postgres database: the statements, and what their answers say.

The tables are those of `sessions/_postgres/_artifacts.py`. A content is a row and its chunks, numbered from 0. It has
its hash from the transaction on in which the first version names it; without, it is on its way in or out, and nobody
may name it. Statements that name a content, or take one away, are sent behind `LOCK`, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from .._json import brief, dumps, freeze, loads
from .._postgres._values import Call, Statement
from ..errors import InvalidValueError
from ..sessions._id_bytes import ID_BYTES_MAX
from ..sessions._postgres._artifacts import NO_SESSION, VERSION_MAX
from ..sessions._postgres._text import stored_key
from ._values import ArtifactKey, Description, Scope, Stored

__all__ = ["ADD", "Use", "about_of", "place_of", "rows_of", "stored_of"]

_ABOUT: Final = {"mime_type": str, "part": dict, "custom_metadata": dict}

# The artifact of a key: its scope is $1, $2, $3, its name $4.
_ARTIFACT: Final = (
    "SELECT id FROM minirun.artifacts WHERE app_name = $1 AND user_id = $2 AND session_id = $3 AND filename = $4"
)
_KEY_TYPES: Final = "text text text text"
_SCOPE_TYPES: Final = "text text text"
# The next number of an artifact, $6 at least. The row is locked by it, so numbers have one order.
_NEXT: Final = """
    INSERT INTO minirun.artifacts AS t (app_name, user_id, session_id, filename, name, next_version)
    VALUES ($1, $2, $3, $4, $5, $6 + 1)
    ON CONFLICT (app_name, user_id, session_id, filename)
    DO UPDATE SET next_version = greatest(t.next_version, $6) + 1
    RETURNING id, next_version - 1 AS number
"""
_NEXT_TYPES: Final = f"{_KEY_TYPES} text int8"

# A version whose content is not there any more is not made: its upload was taken for one that a dead worker has left.
ADD: Final = Statement(
    "add_version",
    f"""
    WITH a AS ({_NEXT})
    INSERT INTO minirun.artifact_versions (artifact, version, sha256, size, create_time, about, stager)
    SELECT a.id, a.number, c.sha256, $8, $9, $10, $11 FROM a JOIN minirun.contents c ON c.sha256 = $7
    RETURNING version
    """,
    f"{_NEXT_TYPES} text int8 float8 text text",
)
RESTORE: Final = Statement(
    "restore_version",
    f"""
    WITH earlier AS (
        SELECT sha256, size, about FROM minirun.artifact_versions
        WHERE artifact = ({_ARTIFACT}) AND version = $7 AND stager IS NULL AND sha256 IS NOT NULL
    ), a AS ({_NEXT})
    INSERT INTO minirun.artifact_versions (artifact, version, sha256, size, create_time, about, stager)
    SELECT a.id, a.number, e.sha256, coalesce(e.size, 0), $8, coalesce(e.about, '{{}}'), $9
    FROM a LEFT JOIN earlier e ON true
    RETURNING version
    """,
    f"{_NEXT_TYPES} int8 float8 text",
)
# $5 are the staged numbers that the reader sees, $6 is the version, or NULL for the newest.
_FOUND: Final = f"""
    SELECT v.version, v.sha256, v.size, v.create_time, v.about FROM minirun.artifact_versions v
    WHERE v.artifact = ({_ARTIFACT}) AND (v.stager IS NULL OR v.version = ANY($5::int8[]))
        AND ($6::int8 IS NULL OR v.version = $6) ORDER BY v.version DESC LIMIT 1
"""
_FOUND_TYPES: Final = f"{_KEY_TYPES} int8[] int8"
FIND: Final = Statement("find_version", _FOUND, _FOUND_TYPES)
# With the content of a small one, up to $7 bytes, in the same view of the database.
OPEN: Final = Statement(
    "open_version",
    f"""
    WITH found AS ({_FOUND})
    SELECT found.*, c.id, (SELECT data FROM minirun.chunks WHERE content = c.id AND number = 0 AND found.size <= $7)
    FROM found LEFT JOIN minirun.contents c ON c.sha256 = found.sha256
    """,
    f"{_FOUND_TYPES} int8",
)
USE_VERSION: Final = Statement(
    "use_version",
    f"""
    WITH found AS ({_FOUND}), used AS (
        INSERT INTO minirun.content_uses (content, owner)
        SELECT c.id, $7 FROM found JOIN minirun.contents c ON c.sha256 = found.sha256
        RETURNING id, content
    )
    SELECT found.*, used.id, used.content FROM found LEFT JOIN used ON true
    """,
    f"{_FOUND_TYPES} text",
)
VERSIONS: Final = Statement(
    "visible_versions",
    f"""
    SELECT version FROM minirun.artifact_versions
    WHERE artifact = ({_ARTIFACT}) AND stager IS NULL AND sha256 IS NOT NULL ORDER BY version
    """,
    _KEY_TYPES,
)
NAMES: Final = Statement(
    "visible_names",
    """
    SELECT a.filename, a.name FROM minirun.artifacts a
    WHERE a.app_name = $1 AND a.user_id = $2 AND a.session_id = $3 AND (
        SELECT v.sha256 FROM minirun.artifact_versions v WHERE v.artifact = a.id AND v.stager IS NULL
        ORDER BY v.version DESC LIMIT 1
    ) IS NOT NULL
    """,
    _SCOPE_TYPES,
)
DELETE: Final = Statement(
    "delete_versions",
    f"DELETE FROM minirun.artifact_versions WHERE artifact = ({_ARTIFACT}) AND stager IS NULL",
    _KEY_TYPES,
)
DELETE_SCOPE: Final = Statement(
    "delete_visible",
    """
    DELETE FROM minirun.artifact_versions v USING minirun.artifacts a WHERE v.artifact = a.id AND v.stager IS NULL
        AND a.app_name = $1 AND a.user_id = $2 AND a.session_id = $3
    """,
    _SCOPE_TYPES,
)
DISCARD: Final = Statement(
    "discard_versions",
    f"""
    DELETE FROM minirun.artifact_versions
    WHERE artifact = ({_ARTIFACT}) AND version = ANY($5::int8[]) AND stager IS NOT NULL
    """,
    f"{_KEY_TYPES} int8[]",
)
COPY: Final = Statement(
    "copy_artifacts",
    "SELECT minirun.copy_artifacts($1, $2, $3, $4, $5, $6, NULL, $7, $8)",
    "text text text text text text text[] int8[]",
)

# --- contents

# One of one chunk, unless it is there; were that one damaged, it would be whole again.
NAME_SMALL: Final = Statement(
    "name_small_content",
    """
    WITH made AS (
        INSERT INTO minirun.contents (sha256, size) VALUES ($1, length($2)) ON CONFLICT (sha256) DO NOTHING RETURNING id
    ), content AS (
        SELECT id FROM made UNION ALL SELECT id FROM minirun.contents WHERE sha256 = $1
    )
    INSERT INTO minirun.chunks AS t (content, number, data) SELECT id, 0, $2 FROM content WHERE length($2) > 0
    ON CONFLICT (content, number) DO UPDATE SET data = excluded.data WHERE t.data <> excluded.data
    """,
    "text bytea",
)
BEGIN_CONTENT: Final = Statement(
    "begin_content",
    """
    WITH c AS (
        INSERT INTO minirun.contents (size) VALUES (0) RETURNING id
    ), u AS (
        INSERT INTO minirun.content_uses (content, owner) SELECT id, $1 FROM c RETURNING id, content
    ), d AS (
        INSERT INTO minirun.chunks (content, number, data) SELECT id, 0, $2 FROM c
    )
    SELECT id, content FROM u
    """,
    "text bytea",
)
PUT_CHUNK: Final = Statement(
    "put_chunk",
    """
    INSERT INTO minirun.chunks AS t (content, number, data)
    SELECT content, $2, $3 FROM minirun.content_uses WHERE id = $1
    ON CONFLICT (content, number) DO UPDATE SET data = excluded.data
    """,
    "int8 int8 bytea",
)
GET_CHUNK: Final = Statement(
    "get_chunk", "SELECT data FROM minirun.chunks WHERE content = $1 AND number = $2", "int8 int8"
)
USE_CONTENT: Final = Statement(
    "use_content",
    """
    INSERT INTO minirun.content_uses (content, owner) SELECT id, $2 FROM minirun.contents WHERE sha256 = $1
    RETURNING id, content
    """,
    "text text",
)
RELEASE: Final = Statement("release_uses", "DELETE FROM minirun.content_uses WHERE id = ANY($1::int8[])", "int8[]")
# A content whose use $1 is still there gets its hash; another one that has it is on its way out from here on.
UNNAME_TWIN: Final = Statement(
    "unname_twin",
    """
    UPDATE minirun.contents SET sha256 = NULL
    WHERE sha256 = $2 AND id <> (SELECT content FROM minirun.content_uses WHERE id = $1)
    """,
    "int8 text",
)
SEAL: Final = Statement(
    "seal_content",
    """
    UPDATE minirun.contents SET sha256 = $2, size = $3
    WHERE id = (SELECT content FROM minirun.content_uses WHERE id = $1)
    """,
    "int8 text int8",
)

# --- collecting

DANGLING: Final = Statement(
    "dangling",
    """
    SELECT v.sha256 FROM minirun.artifact_versions v WHERE v.sha256 IS NOT NULL
        AND NOT EXISTS (SELECT FROM minirun.contents c WHERE c.sha256 = v.sha256) LIMIT 1
    """,
)
# A worker that shows no sign of life, and has been at it for longer than a lost connection takes to be made again.
_GONE: Final = "pg_try_advisory_xact_lock_shared(hashtextextended({0}, 0))"
END_USES: Final = Statement(
    "end_uses",
    f"""
    DELETE FROM minirun.content_uses WHERE id = ANY($1::int8[])
        OR (since < now() - $2 * interval '1 s' AND {_GONE.format("owner")})
    """,
    "int8[] float8",
)
DROP_STAGED: Final = Statement(
    "drop_staged",
    f"""
    DELETE FROM minirun.artifact_versions
    WHERE stager IS NOT NULL AND staged_at < now() - $1 * interval '1 s' AND {_GONE.format("stager")}
    """,
    "float8",
)
# A page of contents from $1 on: the hashes of those go that nobody names or uses.
PAGE_END: Final = Statement(
    "page_of_contents",
    "SELECT max(id) FROM (SELECT id FROM minirun.contents WHERE id > $1 ORDER BY id LIMIT $2) page",
    "int8 int8",
)
UNNAME: Final = Statement(
    "unname_contents",
    """
    WITH found AS (
        SELECT id FROM minirun.contents c WHERE id > $1 AND id <= $2
            AND NOT EXISTS (SELECT FROM minirun.artifact_versions v WHERE v.sha256 = c.sha256)
            AND NOT EXISTS (SELECT FROM minirun.content_uses u WHERE u.content = c.id)
    )
    UPDATE minirun.contents c SET sha256 = NULL FROM found WHERE c.id = found.id RETURNING c.id
    """,
    "int8 int8",
)
_UNKEPT: Final = """
    SELECT id FROM minirun.contents c WHERE id = $1 AND sha256 IS NULL
    AND NOT EXISTS (SELECT FROM minirun.content_uses u WHERE u.content = c.id)
"""
DROP_CHUNKS: Final = Statement(
    "drop_chunks",
    f"""
    DELETE FROM minirun.chunks WHERE content = ({_UNKEPT}) AND number IN (
        SELECT number FROM minirun.chunks WHERE content = $1 ORDER BY number LIMIT $2
    ) RETURNING length(data)
    """,
    "int8 int8",
)
DROP_CONTENT: Final = Statement(
    "drop_content",
    f"""
    DELETE FROM minirun.contents WHERE id = ({_UNKEPT})
        AND NOT EXISTS (SELECT FROM minirun.chunks WHERE content = $1)
    """,
    "int8",
)


@attrs.frozen
class Use:
    """The sign that a worker is writing or reading a content."""

    id: int
    content: int


def rows_of(scope: Scope) -> tuple[str, str, str]:
    """
    The scope as the tables have it.

    Raises:
        InvalidValueError: A name is longer than the index has room for.
    """
    app, user, session = scope
    for name, text in (("app_name", app), ("user_id", user), ("session_id", session or "")):
        if len(text.encode()) > ID_BYTES_MAX:
            problem = f"expected at most {ID_BYTES_MAX} bytes of UTF-8, found {len(text.encode())}"
            raise InvalidValueError(name, f"{problem}; use a shorter one, such as a hash of it")
    return app, user, NO_SESSION if session is None else session


def place_of(key: ArtifactKey) -> tuple[str, str, str, str]:
    """The artifact as the tables have it."""
    return (*rows_of(key.scope), stored_key(key.filename)[0])


def next_place(key: ArtifactKey, least: int) -> tuple[Any, ...]:
    """What the next number of an artifact is asked for with."""
    return (*rows_of(key.scope), *stored_key(key.filename), least)


def find(statement: Statement, key: ArtifactKey, version: int | None, staged: Sequence[int], *more: Any) -> Call | None:
    """The call that finds a version, or the newest; None for a number that no version can have."""
    if version is not None and version > VERSION_MAX:
        return None
    return statement(*place_of(key), [*staged], version, *more)


def about_of(said: Description) -> str:
    """What of a version has no column."""
    return dumps({"mime_type": said.mime_type, "part": said.part, "custom_metadata": said.custom_metadata})


def stored_of(key: ArtifactKey, columns: Sequence[Any]) -> Stored:
    """
    The version of a row.

    Raises:
        ValueError: It was not written by us.
    """
    number, sha256, size, create_time, text = columns
    try:
        about = freeze(loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        msg = f"what is said of version {number} of {brief(key.filename)}: {error}"
        raise ValueError(msg) from error
    if not isinstance(about, dict) or not all(isinstance(about.get(name), kind) for name, kind in _ABOUT.items()):
        msg = f"what is said of version {number} of {brief(key.filename)} is {brief(text)}"
        raise ValueError(msg)
    said = Description(**{name: about[name] for name in _ABOUT})
    return Stored.of(key, number, said, size=size, sha256=sha256, create_time=create_time)
