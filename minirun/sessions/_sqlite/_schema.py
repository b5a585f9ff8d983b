"""
The tables of a session file.

`store.deleted_no` is the highest number of an event when a session was last deleted: no number is used twice.

`events` holds logs, all in the order of their commits, so that a group commit writes few pages (measured for 16
sessions: 260 instead of 470 us). A session writes the log of its own number; the log of a fork goes on where the past
ends that it shares, and `shared_pasts` says which logs that past stands in. So a fork copies no event, and what a
deleted session has logged goes when no fork shows it any more.

Tables with values have rowids: without, SQLite reads a neighbour's whole value, which may be large, to compare its key.

A session has another log, whose number is its own, but negative: there the messages stand that were sent to its runs
and that none has taken yet (`_messages`).

A row of `open_calls` that is pending has the number of the newest event when it came to be so (`pending_no`): the
questions of all sessions have one order. The rows of questions, and of invocations that have not ended, have indexes of
their own: who looks for them does not pass what is over.

Artifacts may stand in the same file. An artifact keeps its row, and so its next number, when its versions are deleted.
A version names its content by the hash, or is hidden; it is staged as long as it has a stager, the owner that will
make it visible with an event. A content without a hash is on its way in or out. `content_uses` says who, of several
processes, is writing or reading a content that perhaps no version names.

Every event carries its link of the session's hash chain: SHA-256 of the link before it, its place and its text. The
newest link stands in the session's row too. So a changed, exchanged or missing event is found, even where SQLite,
which has no checksums, sees nothing wrong; `minirun.sessions.verify` is what looks.
"""

from __future__ import annotations

from typing import Final

from ._format import Format

__all__ = ["FORMAT", "NOT_COMPLETED", "UNFINISHED", "WAITS"]

# An id in `sessions` is never used twice: a session that was deleted and made again is another one.
SCHEMA: Final = """
CREATE TABLE store (only INTEGER PRIMARY KEY CHECK (only = 1), deleted_no INTEGER NOT NULL);
INSERT INTO store VALUES (1, 0);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    create_time REAL NOT NULL,
    update_time REAL NOT NULL,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_expires REAL,
    chain BLOB NOT NULL,
    compaction INTEGER NOT NULL DEFAULT 0,
    UNIQUE (app_name, user_id, session_id)
);
CREATE INDEX sessions_of_users ON sessions (app_name, user_id, id);
CREATE INDEX sessions_of_apps ON sessions (app_name, id);
CREATE TABLE events (
    commit_no INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    chain BLOB NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (log, seq)
);
CREATE TABLE shared_pasts (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    log INTEGER NOT NULL,
    PRIMARY KEY (session, first_seq)
) WITHOUT ROWID;
CREATE INDEX shared_pasts_logs ON shared_pasts (log);
CREATE TABLE session_state (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (session, key)
);
CREATE TABLE shared_state (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT,
    commit_no INTEGER NOT NULL,
    UNIQUE (app_name, user_id, key)
);
CREATE INDEX shared_state_commits ON shared_state (app_name, user_id, commit_no);
CREATE TABLE shared_base (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    commit_no INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (app_name, user_id)
);
CREATE TABLE open_calls (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    invocation_id TEXT NOT NULL,
    author TEXT NOT NULL,
    branch TEXT,
    pending TEXT NOT NULL,
    pending_seq INTEGER NOT NULL,
    pending_no INTEGER NOT NULL,
    UNIQUE (session, call_id)
);
CREATE INDEX open_calls_waiting ON open_calls (pending_no) WHERE pending = 'waits';
CREATE TABLE invocations (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    invocation_id TEXT NOT NULL,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    end_seq INTEGER,
    commit_no INTEGER NOT NULL,
    PRIMARY KEY (session, invocation_id)
) WITHOUT ROWID;
CREATE INDEX invocations_unfinished ON invocations (session, seq) WHERE status IN ('running', 'paused');
CREATE TABLE artifacts (
    id INTEGER PRIMARY KEY,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    filename TEXT NOT NULL,
    next_version INTEGER NOT NULL,
    UNIQUE (app_name, user_id, session_id, filename)
);
CREATE TABLE artifact_versions (
    artifact INTEGER NOT NULL REFERENCES artifacts,
    version INTEGER NOT NULL,
    sha256 TEXT,
    size INTEGER NOT NULL,
    create_time REAL NOT NULL,
    about TEXT NOT NULL,
    stager TEXT,
    seq INTEGER,
    UNIQUE (artifact, version)
);
CREATE INDEX artifact_versions_contents ON artifact_versions (sha256);
CREATE INDEX artifact_versions_staged ON artifact_versions (stager) WHERE stager IS NOT NULL;
CREATE TABLE contents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 TEXT UNIQUE,
    size INTEGER NOT NULL
);
CREATE TABLE chunks (
    content INTEGER NOT NULL REFERENCES contents,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (content, number)
);
CREATE TABLE content_uses (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content INTEGER NOT NULL REFERENCES contents,
    owner TEXT NOT NULL
);
CREATE INDEX content_uses_contents ON content_uses (content)
"""

# The conditions of the two partial indexes: SQLite uses one where a query has the very same words.
WAITS: Final = "pending = 'waits'"
UNFINISHED: Final = "status IN ('running', 'paused')"
NOT_COMPLETED: Final = "status <> 'completed'"

# The format of 0.1.0. Until that is released there is one format and nothing to migrate.
FORMAT: Final = Format(version=1, schema=SCHEMA)
