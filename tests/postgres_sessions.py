"""What the tests of sessions in Postgres look at in a database beside the service: all tables must be one truth."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from typing import Any

from minirun._codec import from_json
from minirun.events import Event, EventActions
from minirun.sessions._fold import fold
from minirun.sessions._postgres._text import read_key
from minirun.sessions._sqlite._logs import link
from minirun.sessions._state import Scope, Values, scope_of, with_writes, writes_of

from .postgres import execute

EMPTY = """
DO $$ DECLARE name text; BEGIN
    IF to_regclass('minirun.store') IS NULL THEN RETURN; END IF;
    SET LOCAL session_replication_role = replica; -- what a row refers to goes, too
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'minirun' AND tablename NOT IN ('store', 'versions')
        LOOP EXECUTE format('DELETE FROM minirun.%I', name); END LOOP;
    UPDATE minirun.store SET commit_no = 0, session_no = 0;
END $$
"""
"""Faster than TRUNCATE of small tables."""

KEEP = """
DO $$ DECLARE name text; BEGIN
    CREATE SCHEMA kept;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'minirun' AND tablename <> 'versions'
        LOOP EXECUTE format('CREATE TABLE kept.%1$I AS TABLE minirun.%1$I', name); END LOOP;
END $$
"""
RESTORE = """
DO $$ DECLARE name text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept'
        LOOP EXECUTE format('DELETE FROM minirun.%1$I', name);
        EXECUTE format('INSERT INTO minirun.%1$I OVERRIDING SYSTEM VALUE TABLE kept.%1$I', name); END LOOP;
END $$
"""
"""What is there as it was kept; no number that a column makes goes back."""


def name_of(url: str) -> str:
    """The database of a URL of the tests' server."""
    return url.partition("?")[0].rpartition("/")[2]


def sql(url: str, *statements: str) -> list[tuple[str | None, ...]]:
    """Do the statements on a connection of their own; the rows of the last one, as text."""
    return execute(url, *statements)


@cache
def _cleaner(url: str) -> Any:
    """A connection that is made once."""
    from psycopg import pq

    return pq.PGconn.connect(url.encode())


def _clean(url: str, statement: str) -> None:
    from psycopg import pq

    result = _cleaner(url).exec_(statement.encode())
    assert result.status == pq.ExecStatus.COMMAND_OK, result.error_message


def empty(url: str) -> None:
    """Delete what minirun has stored there, if it has stored anything."""
    _clean(url, EMPTY)


def keep(url: str) -> None:
    """Note what is there, once."""
    _clean(url, KEEP)


def restore(url: str) -> None:
    """Let be there what was there at that time, and nothing else."""
    _clean(url, RESTORE)


def check_database(url: str, *, is_whole: bool = False) -> None:
    """
    Each table is the fold of the events in it: numbers, links, state, shared scopes from their base rows on (P4).

    With *is_whole* no session was deleted, so the numbers have no gap.
    """
    rows = [
        (app, user, int(log or 0), int(seq or 0), int(number or 0), chain, data or "")
        for app, user, log, seq, number, chain, data in sql(
            url,
            "SELECT s.app_name, s.user_id, e.log, e.seq, e.commit_no, encode(e.chain, 'hex'), e.data"
            " FROM minirun.events e JOIN minirun.sessions s ON s.id = e.log ORDER BY e.commit_no",
        )
    ]
    numbers = [row[4] for row in rows]
    [(newest,)] = sql(url, "SELECT commit_no FROM minirun.store")
    assert len(set(numbers)) == len(numbers)
    assert max(numbers, default=0) <= int(newest or 0)
    if is_whole:
        assert numbers == list(range(1, int(newest or 0) + 1))
    _check_chains(url, rows)
    _check_own_state(url, rows)
    _check_shared_state(url, rows)


def _check_chains(url: str, rows: list[Any]) -> None:
    """Every link follows from the one before, and the newest stands in the session's row."""
    newest: dict[int, tuple[int, str]] = {}
    started: dict[int, bytes] = {}
    for past_of, at, chain in sql(
        url,
        "SELECT p.session, max(p.last_seq), (SELECT encode(e.chain, 'hex') FROM minirun.events e JOIN"
        " minirun.shared_pasts q ON q.log = e.log AND e.seq = q.last_seq WHERE q.session = p.session"
        " ORDER BY e.seq DESC LIMIT 1) FROM minirun.shared_pasts p GROUP BY p.session",
    ):
        started[int(past_of or 0)] = bytes.fromhex(chain or "")
        newest[int(past_of or 0)] = (int(at or 0), chain or "")
    for _, _, log, seq, number, chain, data in rows:
        before = bytes.fromhex(newest[log][1]) if log in newest else bytes(32)
        assert seq == (newest[log][0] + 1 if log in newest else 0)
        assert link(before, seq, number, data).hex() == chain
        newest[log] = (seq, chain)
    for session, revision, chain in sql(url, "SELECT id, revision, encode(chain, 'hex') FROM minirun.sessions"):
        assert newest[int(session or 0)] == (int(revision or 0), chain)


def _check_own_state(url: str, rows: list[Any]) -> None:
    forks = {int(session or 0) for (session,) in sql(url, "SELECT DISTINCT session FROM minirun.shared_pasts")}
    states: dict[int, Values] = defaultdict(lambda: Values({}, {}, {}))
    for _, _, log, _, _, _, data in rows:
        fold(states[log], [from_json(Event, data)], shared=False)
    found: dict[int, dict[str, Any]] = {log: {} for log in states}
    for session, key, name, value in sql(url, "SELECT session, key, name, value FROM minirun.session_state"):
        found[int(session or 0)][read_key(key or "", name)] = json.loads(value or "")
    for log, values in states.items():
        assert log in forks or found[log] == values.session


def _check_shared_state(url: str, rows: list[Any]) -> None:
    base = {
        (app, user): (int(number or 0), json.loads(value or ""))
        for app, user, number, value in sql(url, "SELECT app_name, user_id, commit_no, value FROM minirun.shared_base")
    }
    current: dict[Any, dict[str, Any]] = defaultdict(dict)
    for app, user, key, name, value in sql(
        url, "SELECT app_name, user_id, key, name, value FROM minirun.shared_state"
    ):
        if value is not None:
            current[app, user][read_key(key or "", name)] = json.loads(value)
    for (app, user), values in current.items():
        since, begun = base.get((app, user), (0, {}))
        folded = Values({}, dict(begun) if user else {}, {} if user else dict(begun))
        for in_app, of_user, _, _, number, _, data in rows:
            if in_app == app and user in ("", of_user) and number > since:
                fold(folded, [_only(Scope.USER if user else Scope.APP, from_json(Event, data))])
        assert values == (folded.user if user else folded.app)


def _only(scope: Scope, event: Event) -> Event:
    """The event with what it changes in one scope."""
    writes = {key: write for key, write in writes_of(event.actions).items() if scope_of(key) is scope}
    return Event(actions=with_writes(EventActions(), writes))
