"""
The one statement by which a group of appends becomes true.

One process sends the appends that wait in it as one statement, in autocommit: one round trip, one wait for the disk,
and no transaction that stays open while Python thinks. Each append is a *member*; arrays of the same length hold what
there is of each, and further arrays the rows that members write, each with the number of its member.

What has to be true under READ COMMITTED, where a statement sees what was committed before it began, and a row that it
locks or updates as it is after the wait for that lock (EvalPlanQual):

1.  `held` locks the sessions that are as their members know them, in the order of their ids, so that two groups cannot
    wait for each other. Revision, chain, epoch and lease are compared with the newest version of the row, because it is
    the locked one. This is the fence. A session that does not match is not in the answer, and so fails alone; nothing
    below touches it. Nothing but this comparison decides who may write. Only this statement changes an epoch, and it
    moves the revision, so an old epoch has an old revision, too, unless somebody has ended the lease by hand.
2.  `counter` updates the one row of `store`, after `held` because it counts it: so numbers have no gap, and who waited
    for the lock sees the newest number. The lock is kept until the commit is visible: numbers become visible in their
    order, and everything below is done by one worker at a time.
3.  `fresh` has each member's number, in the order of the queue, and its link of the chain.
4.  What a session's own rows hold may be read and deleted as the statement's beginning saw it: they change only under
    (1), and the revision that was compared there was visible to this process before it sent anything.
5.  The shared scopes and the invocations may have been changed by others since the beginning. A CTE would read them as
    old as that. So they are written by volatile functions, in which each statement sees what is committed by then; they
    take the number as an argument, so they run after (2). For the shared scopes nobody else is in (2) meanwhile. An
    invocation's row is locked by the upsert itself.
6.  An error aborts the whole statement. The functions name the member that cannot be stored, it alone is refused, and
    the others are sent again.

`now()` is the time at which the statement has begun, on the database's clock. A lease that is taken here is a little
shorter for the wait for locks, never longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from ..._postgres._values import Call, Statement
from .._key import SessionKey

__all__ = ["CONTINUES", "ENTERS", "OUTSIDE", "Rows", "append_call", "create_call", "fork_call"]

# How a member stands to the session's lease.
CONTINUES: Final = 0
"""It is of a run that has the lease: the epoch is its own."""
ENTERS: Final = 1
"""It is the first one of a run: it takes the lease, which is free, and the next epoch."""
OUTSIDE: Final = 2
"""It is of no run: it takes no lease, but ends one that is over."""


class Part(NamedTuple):
    """Rows that members may write: `columns` are names and types, the first one the member's number."""

    name: str
    columns: tuple[tuple[str, str], ...]
    sql: str
    is_query: bool = False
    """Whether it is a query for the sake of its functions, which the answer has to ask for."""


MEMBER: Final = (
    ("session", "int8"),
    ("revision", "int8"),
    ("chain", "bytea"),
    ("epoch", "int8"),
    ("mode", "int4"),
    ("gone", "text"),
    ("update_time", "float8"),
    ("compaction", "int8"),
    ("data", "text"),
)
"""What there is of each member: `revision`, `chain` and `epoch` are what it stands on, `gone` is a dead owner."""

_ARRAYS: Final = ", ".join(f"${place}::{kind}[]" for place, (_, kind) in enumerate(MEMBER, 3))
_APPEND: Final = f"""
WITH m AS MATERIALIZED (
    SELECT * FROM unnest({_ARRAYS}) WITH ORDINALITY AS m({", ".join(name for name, _ in MEMBER)}, i)
), held AS MATERIALIZED (
    SELECT m.i, s.id FROM m JOIN minirun.sessions s ON s.id = m.session
    WHERE s.revision = m.revision AND s.chain = m.chain AND s.lease_epoch = m.epoch AND (
        m.mode = 0 OR s.lease_owner IS NULL OR s.lease_owner = $1 OR s.lease_owner = m.gone OR s.lease_expires <= now()
    )
    ORDER BY s.id FOR NO KEY UPDATE OF s
), counted AS (
    SELECT count(*) AS members FROM held
), counter AS (
    UPDATE minirun.store SET commit_no = commit_no + counted.members FROM counted WHERE counted.members > 0
    RETURNING commit_no - counted.members AS base
), numbered AS (
    SELECT m.*, counter.base + row_number() OVER (ORDER BY m.i) AS number FROM held JOIN m USING (i), counter
), fresh AS MATERIALIZED (
    SELECT i, session, revision + 1 AS seq, epoch, mode, update_time, compaction, data, number,
        minirun.link(chain, revision + 1, number, data) AS chain
    FROM numbered
), moved AS (
    UPDATE minirun.sessions s SET
        revision = f.seq, update_time = f.update_time, chain = f.chain, compaction = f.compaction,
        lease_epoch = s.lease_epoch + CASE f.mode WHEN 0 THEN 0 WHEN 1 THEN 1 ELSE (s.lease_owner IS NOT NULL)::int END,
        lease_owner = CASE f.mode WHEN 0 THEN s.lease_owner WHEN 1 THEN $1 END,
        lease_expires = CASE f.mode WHEN 0 THEN s.lease_expires WHEN 1 THEN now() + $2 * interval '1 s' END
    FROM fresh f WHERE s.id = f.session
    RETURNING f.i, f.number, s.id AS session, s.lease_epoch, s.chain
), logged AS (
    INSERT INTO minirun.events (log, seq, commit_no, chain, data) SELECT session, seq, number, chain, data FROM fresh
)"""

_APPENDED: Final = (
    "SELECT moved.i, moved.number, moved.lease_epoch, moved.chain,"
    " EXISTS (SELECT FROM minirun.events e WHERE e.log = -moved.session){ran} FROM moved"
)
_APPEND_TYPES: Final = ("text", "float8", *(f"{kind}[]" for _, kind in MEMBER))

_OF: Final = ("i", "int8")

PARTS: Final = (
    Part(
        "set_state",
        (_OF, ("key", "text"), ("name", "text"), ("value", "text")),
        """INSERT INTO minirun.session_state (session, key, name, value)
        SELECT f.session, r.key, r.name, r.value FROM {rows} JOIN fresh f USING (i)
        ON CONFLICT (session, key) DO UPDATE SET value = excluded.value""",
    ),
    Part(
        "removed_state",
        (_OF, ("key", "text")),
        """DELETE FROM minirun.session_state t USING {rows} JOIN fresh f USING (i)
        WHERE t.session = f.session AND t.key = r.key""",
    ),
    Part(
        "shared",
        (_OF, ("app", "text"), ("usr", "text"), ("key", "text"), ("name", "text"), ("operation", "text")),
        """SELECT minirun.share(
            each.app, each.usr, each.key, each.name, each.operations, each.members, each.number
        ) FROM (
            SELECT r.app, r.usr, r.key, max(r.name) AS name, array_agg(r.operation ORDER BY f.number) AS operations,
                array_agg(r.i ORDER BY f.number) AS members, max(f.number) AS number
            FROM {rows} JOIN fresh f USING (i) GROUP BY r.app, r.usr, r.key ORDER BY r.app, r.usr, r.key
        ) each""",
        is_query=True,
    ),
    Part(
        "calls",
        (
            _OF, ("call_id", "text"), ("seq", "int8"), ("place", "int8"), ("pending", "text"),
            ("pending_seq", "int8"), ("data", "text"),
        ),
        """INSERT INTO minirun.open_calls AS t (session, call_id, seq, place, pending, pending_seq, pending_no, data)
        SELECT f.session, r.call_id, r.seq, r.place, r.pending, r.pending_seq,
            CASE WHEN r.pending = '' THEN 0 ELSE f.number END, r.data
        FROM {rows} JOIN fresh f USING (i)
        ON CONFLICT (session, call_id) DO UPDATE SET
            seq = excluded.seq, place = excluded.place, pending = excluded.pending, data = excluded.data,
            pending_seq = excluded.pending_seq,
            pending_no = CASE WHEN t.pending = excluded.pending THEN t.pending_no ELSE excluded.pending_no END""",
    ),
    Part(
        "answered",
        (_OF, ("call_id", "text")),
        """DELETE FROM minirun.open_calls t USING {rows} JOIN fresh f USING (i)
        WHERE t.session = f.session AND t.call_id = r.call_id""",
    ),
    Part(
        "begun",
        (_OF, ("invocation_id", "text"), ("name", "text"), ("again", "bool")),
        """SELECT minirun.begin_run(
            f.i, f.session, r.invocation_id, r.name, f.epoch + (f.mode = 1)::int, f.seq, f.number, r.again
        ) FROM {rows} JOIN fresh f USING (i)""",
        is_query=True,
    ),
    Part(
        "runs",
        (_OF, ("invocation_id", "text"), ("name", "text"), ("status", "text"), ("seq", "int8"), ("end_seq", "int8")),
        """INSERT INTO minirun.invocations (session, invocation_id, name, status, epoch, seq, end_seq, commit_no)
        SELECT f.session, r.invocation_id, r.name, r.status, 0, r.seq, r.end_seq, f.number
        FROM {rows} JOIN fresh f USING (i)""",
    ),
    Part(
        "taken",
        (_OF, ("begins", "text")),
        """DELETE FROM minirun.events e USING {rows} JOIN fresh f USING (i)
        WHERE e.log = -f.session AND starts_with(e.data, r.begins)""",
    ),
    Part(
        "artifacts",
        (_OF, ("app", "text"), ("usr", "text"), ("of", "text"), ("filename", "text"), ("version", "int8")),
        """UPDATE minirun.artifact_versions v SET stager = NULL, seq = CASE WHEN r.of = '' THEN NULL ELSE f.seq END
        FROM {rows} JOIN fresh f USING (i) JOIN minirun.artifacts a ON
            a.app_name = r.app AND a.user_id = r.usr AND a.session_id = r.of AND a.filename = r.filename
        WHERE v.artifact = a.id AND v.version = r.version AND v.stager IS NOT NULL""",
    ),
    Part(
        "reserved",
        (
            _OF, ("app", "text"), ("usr", "text"), ("of", "text"), ("filename", "text"), ("name", "text"),
            ("following", "int8"),
        ),
        """INSERT INTO minirun.artifacts AS t (app_name, user_id, session_id, filename, name, next_version)
        SELECT r.app, r.usr, r.of, r.filename, r.name, r.following FROM {rows} JOIN fresh f USING (i)
        ON CONFLICT (app_name, user_id, session_id, filename)
        DO UPDATE SET next_version = greatest(t.next_version, excluded.next_version)""",
    ),
    Part(
        "undone",
        (_OF, ("invocation_id", "text"), ("status", "text"), ("end_seq", "int8")),
        """UPDATE minirun.invocations t SET status = r.status, end_seq = r.end_seq
        FROM {rows} JOIN fresh f USING (i)
        WHERE t.session = f.session AND t.invocation_id = r.invocation_id""",
    ),
)  # fmt: skip
"""What members may write beside their events, in the order in which the statement has it."""


# A new session, of a log: `place` is that of each event, from 1 on. The check of the name spares most of those who come
# too late an error in the server's log; the table's own rule refuses the others, and with them the number.
_CREATE: Final = """
WITH counter AS (
    UPDATE minirun.store SET commit_no = commit_no + cardinality($7::text[]), session_no = session_no + 1
    WHERE NOT EXISTS (SELECT 1 FROM minirun.sessions WHERE app_name = $1 AND user_id = $2 AND session_id = $3)
    RETURNING commit_no - cardinality($7::text[]) AS base, session_no AS session
), numbered AS (
    SELECT r.i, counter.session, r.i - 1 AS seq, counter.base + r.i AS number, r.data
    FROM unnest($7::text[]) WITH ORDINALITY AS r(data, i), counter
), fresh AS MATERIALIZED (
    SELECT *, minirun.chain(seq, number, data) OVER (ORDER BY seq) AS chain FROM numbered
), made AS (
    INSERT INTO minirun.sessions
        (id, app_name, user_id, session_id, revision, create_time, update_time, chain, compaction)
    SELECT session, $1, $2, $3, seq, $4, $5, chain, $6 FROM fresh ORDER BY seq DESC LIMIT 1
    RETURNING id, chain
), logged AS (
    INSERT INTO minirun.events (log, seq, commit_no, chain, data) SELECT session, seq, number, chain, data FROM fresh
)"""
_CREATE_TYPES: Final = ("text", "text", "text", "float8", "float8", "int8", "text[]")
_CREATED: Final = "SELECT made.id, made.chain{ran} FROM made"

# A fork: it has no event of its own yet, and stands on those of the session $4, which must be there.
_FORK: Final = """
WITH source AS (
    SELECT id FROM minirun.sessions WHERE id = $4 FOR KEY SHARE
), counter AS (
    UPDATE minirun.store SET session_no = session_no + 1 FROM source
    RETURNING session_no AS session, commit_no AS number
), fresh AS MATERIALIZED (
    SELECT 1 AS i, session, number FROM counter
), made AS (
    INSERT INTO minirun.sessions
        (id, app_name, user_id, session_id, revision, create_time, update_time, chain, compaction)
    SELECT session, $1, $2, $3, $5, $6, $7, $8, $9 FROM fresh
    RETURNING id, chain
), past AS (
    INSERT INTO minirun.shared_pasts (session, first_seq, last_seq, log)
    SELECT fresh.session, r.first_seq, r.last_seq, r.log
    FROM fresh, unnest($10::int8[], $11::int8[], $12::int8[]) AS r(first_seq, last_seq, log)
)"""
_FORK_TYPES: Final = (
    *("text", "text", "text", "int8", "int8", "float8", "float8", "bytea", "int8"),
    *("int8[]", "int8[]", "int8[]"),
)

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""What members write beside their events, by the names of parts."""


@cache
def _statement(name: str, head: str, types: tuple[str, ...], foot: str, names: frozenset[str]) -> Statement:
    """What begins with *head*, of parameters of these types, writes the parts of these names, and answers *foot*."""
    parts = [part for part in PARTS if part.name in names]
    kinds = [*types]
    for part in parts:
        arrays = ", ".join(f"${len(kinds) + at}::{kind}[]" for at, (_, kind) in enumerate(part.columns, 1))
        kinds += [f"{kind}[]" for _, kind in part.columns]
        rows = f"unnest({arrays}) AS r({', '.join(column for column, _ in part.columns)})"
        head += f", {part.name} AS {'MATERIALIZED ' if part.is_query else ''}(\n{part.sql.format(rows=rows)}\n)"
    ran = "".join(f", (SELECT count(*) FROM {part.name})" for part in parts if part.is_query)
    return Statement(name, f"{head} {foot.format(ran=ran)}".strip(), " ".join(kinds))


def append_call(owner: str, lease_s: float, members: Sequence[Sequence[Any]], rows: Rows) -> Call:
    """
    The statement that appends the events of *members*; what else they write is in *rows*.

    It answers with a row for each member that is stored: its number in the group, from 1; `commit_no`; epoch; link;
    whether messages have waited in its session when the statement began.
    """
    statement = _statement("append", _APPEND, _APPEND_TYPES, _APPENDED, _names(rows))
    return statement(owner, lease_s, *_columns(members), *_arrays(rows))


def create_call(
    key: SessionKey, create_time: float, update_time: float, compaction: int, lines: Sequence[str], rows: Rows
) -> Call:
    """
    The statement that makes a session of events, whose texts are *lines*; member *i* is the event with seq *i - 1*.

    It answers with the session's number and its newest link; with nothing, or an error, if there is such a session.
    """
    statement = _statement("create", _CREATE, _CREATE_TYPES, _CREATED, _names(rows))
    place = (key.app_name, key.user_id, key.session_id)
    return statement(*place, create_time, update_time, compaction, [*lines], *_arrays(rows))


def fork_call(
    key: SessionKey, source: int, revision: int, create_time: float, update_time: float, chain: bytes,
    compaction: int, segments: Sequence[tuple[int, int, int]], rows: Rows,
) -> Call:  # fmt: skip
    """
    The statement that makes a session on the past of another one, *source*; member 1 is it.

    It answers with the session's number and its link; with nothing if the source is not there any more.
    """
    statement = _statement("fork", _FORK, _FORK_TYPES, _CREATED, _names(rows))
    place = (key.app_name, key.user_id, key.session_id)
    past = _columns(segments)
    return statement(*place, source, revision, create_time, update_time, chain, compaction, *past, *_arrays(rows))


def _names(rows: Rows) -> frozenset[str]:
    return frozenset(name for name, found in rows.items() if found)


def _arrays(rows: Rows) -> list[list[Any]]:
    return [column for part in PARTS if rows.get(part.name) for column in _columns(rows[part.name])]


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[*column] for column in zip(*rows, strict=True)]
