"""
The artifacts in a database: their tables, and what the sessions there owe to them, in the transactions of these.

An event that names a version makes it visible; a session that is deleted takes its artifacts with it; a fork begins
with those that its past had. Artifacts of a user (`user:`) belong to no session and stay out of all but the first.
Contents are not looked at: versions name them by their hash, and what none names is collected later.

`artifacts` gives the numbers of versions; its row stays when the versions are deleted. A version is *staged* as long as
it has a stager, the worker that will make it visible with an event. A content without a hash is on its way in or out;
`content_uses` says which worker is writing or reading it.

Transactions that name a content, or take one away, hold one advisory lock, `LOCK`: so no version names what a
collection has just found to be of no use. None that holds it waits for the counter of commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..._json import brief
from ..._postgres._errors import sqlstate
from ..._postgres._values import Call, Statement
from ...errors import AlreadyExistsError, StorageError
from ...events import Event
from .._key import SessionKey
from ._text import read_key, stored_key

__all__ = [
    "DELETE_ARTIFACTS",
    "LOCK",
    "NO_SESSION",
    "TABLES",
    "fork_artifacts",
    "named_rows",
    "reserved_rows",
    "taken_error",
    "taken_name",
]

NO_SESSION: Final = ""
"""The session of what is a user's. No session id is empty."""
USER_PREFIX: Final = "user:"
VERSION_MAX: Final = 2**63 - 1
# So many versions nobody makes; an event that names a higher number, which anybody can write, uses up nothing.
RESERVED_MAX: Final = 2**53
REFUSED_COPY: Final = "MR003"
SEPARATOR: Final = "\x1f"

# A number that other programs in the same database are not likely to lock: the letters of "artifact".
_LOCK_NUMBER: Final = 0x6172746966616374
LOCK: Final = Statement("lock_artifacts", f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")

_COPY: Final = f"""
CREATE FUNCTION minirun.copy_artifacts(
    of_app text, of_user text, of_session text, to_app text, to_user text, to_session text,
    at_seq bigint, only_keys text[], only_newest bigint[]
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    each record;
    made bigint;
BEGIN
    PERFORM pg_advisory_xact_lock({_LOCK_NUMBER});
    FOR each IN
        SELECT a.id, a.filename, a.name, a.next_version, coalesce(w.newest, {VERSION_MAX}) AS newest
        FROM minirun.artifacts a LEFT JOIN unnest(only_keys, only_newest) AS w(key, newest) ON w.key = a.filename
        WHERE a.app_name = of_app AND a.user_id = of_user AND a.session_id = of_session
            AND (only_keys IS NULL OR w.key IS NOT NULL)
            AND EXISTS (
                SELECT FROM minirun.artifact_versions v WHERE v.artifact = a.id AND v.stager IS NULL
                AND (w.newest IS NULL OR v.version <= w.newest) AND (at_seq IS NULL OR coalesce(v.seq, 0) <= at_seq)
            )
        ORDER BY a.filename
    LOOP
        IF EXISTS (
            SELECT FROM minirun.artifacts t
            WHERE t.app_name = to_app AND t.user_id = to_user AND t.session_id = to_session
                AND t.filename = each.filename AND (
                    at_seq IS NULL OR EXISTS (SELECT FROM minirun.artifact_versions v WHERE v.artifact = t.id)
                )
        ) THEN
            RAISE EXCEPTION 'there is an artifact of that name' USING
                ERRCODE = '{REFUSED_COPY}', CONSTRAINT = concat_ws(chr(31), each.filename, coalesce(each.name, ''));
        END IF;
        INSERT INTO minirun.artifacts AS t (app_name, user_id, session_id, filename, name, next_version)
            VALUES (to_app, to_user, to_session, each.filename, each.name, each.next_version)
            ON CONFLICT (app_name, user_id, session_id, filename)
            DO UPDATE SET next_version = greatest(t.next_version, excluded.next_version)
            RETURNING t.id INTO made;
        INSERT INTO minirun.artifact_versions (artifact, version, sha256, size, create_time, about, seq)
            SELECT made, v.version, v.sha256, v.size, v.create_time, v.about,
                CASE WHEN at_seq IS NULL THEN NULL ELSE v.seq END
            FROM minirun.artifact_versions v WHERE v.artifact = each.id AND v.stager IS NULL
                AND v.version <= each.newest AND (at_seq IS NULL OR coalesce(v.seq, 0) <= at_seq);
    END LOOP;
END $$
"""

TABLES: Final = (
    """CREATE TABLE minirun.artifacts (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        app_name text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        session_id text COLLATE "C" NOT NULL,
        filename text COLLATE "C" NOT NULL,
        name text,
        next_version bigint NOT NULL,
        UNIQUE (app_name, user_id, session_id, filename)
    )""",
    """CREATE TABLE minirun.artifact_versions (
        artifact bigint NOT NULL,
        version bigint NOT NULL,
        sha256 text COLLATE "C",
        size bigint NOT NULL,
        create_time float8 NOT NULL,
        about text NOT NULL,
        stager text,
        staged_at timestamptz NOT NULL DEFAULT now(),
        seq bigint,
        PRIMARY KEY (artifact, version)
    )""",
    "CREATE INDEX artifact_versions_contents ON minirun.artifact_versions (sha256) WHERE sha256 IS NOT NULL",
    "CREATE INDEX artifact_versions_staged ON minirun.artifact_versions (stager) WHERE stager IS NOT NULL",
    """CREATE TABLE minirun.contents (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        sha256 text COLLATE "C" UNIQUE,
        size bigint NOT NULL
    )""",
    """CREATE TABLE minirun.chunks (
        content bigint NOT NULL,
        number bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (content, number)
    )""",
    "ALTER TABLE minirun.chunks ALTER COLUMN data SET STORAGE EXTERNAL",  # what is large is mostly compressed already
    """CREATE TABLE minirun.content_uses (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        content bigint NOT NULL,
        owner text NOT NULL,
        since timestamptz NOT NULL DEFAULT now()
    )""",
    "CREATE INDEX content_uses_contents ON minirun.content_uses (content)",
    _COPY,
)
"""They stand beside those of the sessions, and are made with them."""

DELETE_ARTIFACTS: Final = Statement(
    "delete_artifacts",
    """
    DELETE FROM minirun.artifact_versions v USING minirun.artifacts a
    WHERE v.artifact = a.id AND a.app_name = $1 AND a.user_id = $2 AND a.session_id = $3
    """,
    "text text text",
)
"""Those of a session, the staged ones too. Their numbers stay used."""

_SHARE: Final = Statement(
    "share_artifacts",
    """
    SELECT minirun.copy_artifacts($1, $2, $3, $4, $5, $6, $7, NULL, NULL)
    WHERE EXISTS (SELECT FROM minirun.sessions WHERE app_name = $4 AND user_id = $5 AND session_id = $6)
    """,
    "text text text text text text int8",
)
_RESERVE_USED: Final = Statement(
    "reserve_used",
    """
    INSERT INTO minirun.artifacts AS t (app_name, user_id, session_id, filename, name, next_version)
    SELECT $4, $5, $6, a.filename, a.name, a.next_version FROM minirun.artifacts a
    WHERE a.app_name = $1 AND a.user_id = $2 AND a.session_id = $3
        AND EXISTS (SELECT FROM minirun.sessions WHERE app_name = $4 AND user_id = $5 AND session_id = $6)
    ON CONFLICT (app_name, user_id, session_id, filename)
    DO UPDATE SET next_version = greatest(t.next_version, excluded.next_version)
    """,
    "text text text text text text",
)


def fork_artifacts(key: SessionKey, new: SessionKey, at_seq: int, *, is_newest: bool) -> list[Call]:
    """
    What gives a fork, made in the same transaction, the artifacts that its past had; nothing if it was not made.

    A fork at the newest event of its original uses no number that was used there; one at an earlier event none that its
    past names, which `reserved_rows` are for.
    """
    places = (key.app_name, key.user_id, key.session_id, new.app_name, new.user_id, new.session_id)
    return [_SHARE(*places, at_seq), *([_RESERVE_USED(*places)] if is_newest else [])]


def named_rows(member: int, key: SessionKey, named: Iterable[tuple[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows by which an event makes those staged versions visible that it names."""
    rows = []
    for filename, version in named:
        if type(version) is int and 0 <= version <= VERSION_MAX:
            rows.append((member, *_scope(key, filename), stored_key(filename)[0], version))
    return rows


def reserved_rows(member: int, key: SessionKey, events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """The rows by which no version that is yet to come has a number that one of these events names."""
    named: dict[str, int] = {}
    for event in events:
        for filename, version in event.actions.named_artifacts():
            if type(version) is int and 0 <= version < RESERVED_MAX:
                named[filename] = max(version, named.get(filename, 0))
    return [
        (member, *_scope(key, filename), *stored_key(filename), version + 1) for filename, version in named.items()
    ]


def _scope(key: SessionKey, filename: str) -> tuple[str, str, str]:
    return key.app_name, key.user_id, NO_SESSION if filename.startswith(USER_PREFIX) else key.session_id


def taken_name(error: StorageError) -> str | None:
    """The name of the artifact because of which a copy was refused; None for another error."""
    if sqlstate(error) != REFUSED_COPY:
        return None
    key, _, name = getattr(error.__cause__, "constraint", "").partition(SEPARATOR)
    return read_key(key, name or None)


def taken_error(filename: str, session_id: str) -> AlreadyExistsError:
    """The error for a copy that was refused."""
    msg = f"expected no artifact {brief(filename)} in session {brief(session_id)}, found that there is or was one"
    return AlreadyExistsError(f"{msg}; choose another id for the new session")
