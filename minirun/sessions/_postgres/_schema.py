"""
The tables that sessions have in a Postgres database, in the schema `minirun`, and the functions that the commit calls.

`store` has one row, which every commit updates: the number of the newest event, and that of the newest session. A
transaction that has updated it holds its lock until the commit is visible. So numbers are given without a gap, become
visible in their order, and what is written under the lock is written in that order by all workers.

`events` holds logs, as in a file (`sessions._sqlite._schema`): a session writes the log of its own number, the log of a
fork goes on where the past ends that it shares, and `shared_pasts` says which logs that past stands in. `chain` is the
link of the session's hash chain, made by `minirun.link`; the newest one stands in the session's row, too.

Texts are `text`, not `jsonb`, which reorders keys, folds doubled ones and refuses NUL. A column cannot hold NUL either,
and an index no more than 2 704 bytes for all its columns together: so the keys of the state, and ids that are no
session's, stand as `_text.stored_key` writes them, and the full text of a long one stands in `name`.

`claims` says which worker is about to go on with an invocation (`_work`).

There are no foreign keys: each row that belongs to a session is written by a statement that holds the session's row.

The functions:

    link(before, seq, number, data)     the next link of a chain; `chain` is the aggregate over events in their order
    fold(value, operations, ...)        what a key of a shared scope holds after operations, as `apply_write` has it
    share(...)                          folds into one key of a shared scope
    begin_run(...)                      records that an invocation runs

`fold` and `begin_run` raise what concerns one member of a group alone; nothing of the statement is stored then. The
error names the member, and what was found, in the place of a constraint's name.

`share` and `begin_run` are volatile, so each statement in them sees what was committed before it began: what has been
committed while the statement that calls them waited for a lock is seen there, and nowhere else in that statement.
"""

from __future__ import annotations

from typing import Final

from ._artifacts import TABLES as ARTIFACT_TABLES
from ._memories import MEMORY_TABLES

__all__ = ["MIGRATIONS", "REFUSED_OPERATION", "REFUSED_RUN", "SEPARATOR", "UNFINISHED", "WAITS"]

# The errors of our own functions: SQLSTATE classes that begin with a letter from I to Z are free for such.
REFUSED_OPERATION: Final = "MR001"
REFUSED_RUN: Final = "MR002"
# Between the member, the key and the value there: no JSON has it as it is.
SEPARATOR: Final = "\x1f"

# The conditions of the two partial indexes.
WAITS: Final = "pending = 'waits'"
UNFINISHED: Final = "status IN ('running', 'paused')"

# A row that every commit updates needs room for the versions of it that somebody may still see.
_TABLES: Final = (
    """CREATE TABLE minirun.store (
        id smallint PRIMARY KEY CHECK (id = 1),
        commit_no bigint NOT NULL,
        session_no bigint NOT NULL
    ) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000)""",
    "INSERT INTO minirun.store VALUES (1, 0, 0)",
    """CREATE TABLE minirun.sessions (
        id bigint PRIMARY KEY,
        app_name text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        session_id text COLLATE "C" NOT NULL,
        revision bigint NOT NULL,
        create_time float8 NOT NULL,
        update_time float8 NOT NULL,
        lease_epoch bigint NOT NULL DEFAULT 0,
        lease_owner text,
        lease_expires timestamptz,
        chain bytea NOT NULL,
        compaction bigint NOT NULL DEFAULT 0,
        UNIQUE (app_name, user_id, session_id)
    ) WITH (fillfactor = 70)""",
    "CREATE INDEX sessions_of_users ON minirun.sessions (app_name, user_id, id)",
    "CREATE INDEX sessions_of_apps ON minirun.sessions (app_name, id)",
    """CREATE TABLE minirun.events (
        log bigint NOT NULL,
        seq bigint NOT NULL,
        commit_no bigint NOT NULL,
        chain bytea NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (log, seq)
    )""",
    """CREATE TABLE minirun.shared_pasts (
        session bigint NOT NULL,
        first_seq bigint NOT NULL,
        last_seq bigint NOT NULL,
        log bigint NOT NULL,
        PRIMARY KEY (session, first_seq)
    )""",
    "CREATE INDEX shared_pasts_logs ON minirun.shared_pasts (log)",
    """CREATE TABLE minirun.session_state (
        session bigint NOT NULL,
        key text COLLATE "C" NOT NULL,
        name text,
        value text NOT NULL,
        PRIMARY KEY (session, key)
    ) WITH (fillfactor = 70)""",
    """CREATE TABLE minirun.shared_state (
        app_name text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        name text,
        value text,
        commit_no bigint NOT NULL,
        PRIMARY KEY (app_name, user_id, key)
    ) WITH (fillfactor = 70)""",
    "CREATE INDEX shared_state_commits ON minirun.shared_state (app_name, user_id, commit_no)",
    """CREATE TABLE minirun.shared_base (
        app_name text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        commit_no bigint NOT NULL,
        value text NOT NULL,
        PRIMARY KEY (app_name, user_id)
    )""",
    """CREATE TABLE minirun.open_calls (
        session bigint NOT NULL,
        call_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        place bigint NOT NULL,
        pending text NOT NULL,
        pending_seq bigint NOT NULL,
        pending_no bigint NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (session, call_id)
    )""",
    "CREATE INDEX open_calls_waiting ON minirun.open_calls (pending_no) WHERE pending = 'waits'",
    """CREATE TABLE minirun.invocations (
        session bigint NOT NULL,
        invocation_id text COLLATE "C" NOT NULL,
        name text,
        status text NOT NULL,
        epoch bigint NOT NULL,
        seq bigint NOT NULL,
        end_seq bigint,
        commit_no bigint NOT NULL,
        PRIMARY KEY (session, invocation_id)
    ) WITH (fillfactor = 70)""",
    """CREATE TABLE minirun.claims (
        session bigint NOT NULL,
        invocation_id text COLLATE "C" NOT NULL,
        owner text NOT NULL,
        until timestamptz NOT NULL,
        PRIMARY KEY (session, invocation_id)
    )""",
    "CREATE INDEX claims_until ON minirun.claims (until)",
    "CREATE INDEX invocations_unfinished ON minirun.invocations (session, seq) WHERE status IN ('running', 'paused')",
)

# The same bytes as `sessions._sqlite._logs.link` hashes: the link before, the place, the number, the text.
_LINK: Final = """
CREATE FUNCTION minirun.link(before bytea, seq bigint, number bigint, data text) RETURNS bytea
LANGUAGE sql STABLE AS $$ SELECT sha256(before || convert_to(seq || ' ' || number || ' ' || data, 'UTF8')) $$
"""
_CHAIN: Final = f"""
CREATE AGGREGATE minirun.chain(seq bigint, number bigint, data text)
    (SFUNC = minirun.link, STYPE = bytea, INITCOND = '\\x{bytes(32).hex()}')
"""

# Values are JSON as `dumps` writes it: an integer is digits alone, a list begins with `[` and has no space. An
# operation is one letter and its operand. Python adds an integer to a fraction as fractions, and so does this; a sum
# beyond the fractions, or of more digits than CPython reads, is refused. What a fraction is written as may differ from
# Python's way, never what it is read as: one without a point or an exponent gets a point, or it would be read as an
# integer.
_FOLD: Final = f"""
CREATE FUNCTION minirun.fold(
    value text, operations text[], members bigint[], stored_key text, long_key text
) RETURNS text LANGUAGE plpgsql IMMUTABLE SET extra_float_digits = 1 AS $$
DECLARE
    operation text;
    operand text;
    place int := 0;
    refused boolean;
BEGIN
    FOREACH operation IN ARRAY operations LOOP
        place := place + 1;
        operand := substr(operation, 2);
        refused := false;
        CASE left(operation, 1)
            WHEN 's' THEN value := operand;
            WHEN 'r' THEN value := NULL;
            WHEN 'e' THEN
                IF value IS NULL OR value = '[]' THEN
                    value := operand;
                ELSIF left(value, 1) <> '[' THEN
                    refused := true;
                ELSIF operand <> '[]' THEN
                    value := left(value, -1) || ',' || substr(operand, 2);
                END IF;
            WHEN 'a' THEN
                IF value !~ '^-?[0-9]' THEN
                    refused := true;
                ELSE
                    BEGIN
                        IF coalesce(value, '0') ~ '^-?[0-9]+$' AND operand ~ '^-?[0-9]+$' THEN
                            operand := (coalesce(value, '0')::numeric + operand::numeric)::text;
                            refused := length(ltrim(operand, '-')) > 4000;
                        ELSE
                            operand := (coalesce(value, '0')::float8 + operand::float8)::text;
                            IF operand ~ '^-?[0-9]+$' THEN
                                operand := operand || '.0';
                            END IF;
                        END IF;
                    EXCEPTION WHEN numeric_value_out_of_range THEN
                        refused := true;
                    END;
                    IF NOT refused THEN
                        value := operand;
                    END IF;
                END IF;
        END CASE;
        IF refused THEN
            RAISE EXCEPTION 'an operation on the shared state does not fit' USING
                ERRCODE = '{REFUSED_OPERATION}',
                CONSTRAINT = concat_ws(chr(31), members[place], stored_key, coalesce(long_key, ''), value);
        END IF;
    END LOOP;
    RETURN value;
END $$
"""

_SHARE: Final = """
CREATE FUNCTION minirun.share(
    app text, usr text, stored_key text, long_key text, operations text[], members bigint[], number bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    present text;
BEGIN
    SELECT t.value INTO present FROM minirun.shared_state t
        WHERE t.app_name = app AND t.user_id = usr AND t.key = stored_key;
    INSERT INTO minirun.shared_state AS t (app_name, user_id, key, name, value, commit_no)
        VALUES (
            app, usr, stored_key, long_key, minirun.fold(present, operations, members, stored_key, long_key), number
        )
        ON CONFLICT (app_name, user_id, key) DO UPDATE SET value = excluded.value, commit_no = excluded.commit_no;
END $$
"""

# One that is recorded already goes on, and keeps its beginning and its place in the list. One that has failed, or was
# cancelled, goes on *again* only where the event says so; one that is completed never.
_BEGIN_RUN: Final = f"""
CREATE FUNCTION minirun.begin_run(
    member bigint, of bigint, stored_id text, long_name text, of_epoch bigint, at bigint, number bigint, again boolean
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO minirun.invocations AS t (session, invocation_id, name, status, epoch, seq, end_seq, commit_no)
        VALUES (of, stored_id, long_name, 'running', of_epoch, at, NULL, number)
        ON CONFLICT (session, invocation_id) DO UPDATE
            SET status = excluded.status, epoch = excluded.epoch, end_seq = excluded.end_seq
            WHERE t.{UNFINISHED} OR (again AND t.status <> 'completed');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the invocation has been ended' USING
            ERRCODE = '{REFUSED_RUN}', CONSTRAINT = member::text;
    END IF;
END $$
"""

# Each is what leads from one version to the next; the first makes everything. A version, once released, stays as it is.
MIGRATIONS: Final = ((*_TABLES, *ARTIFACT_TABLES, *MEMORY_TABLES, _LINK, _CHAIN, _FOLD, _SHARE, _BEGIN_RUN),)
