"""
State in a session file: one row for each key, of sessions and of the scopes that sessions share.

The shared scopes (`user:`, `app:`) carry the number of the event that last changed each key; a cached scope knows up to
which number it is current, so catching up with other processes reads only what is newer.

Appends that share a transaction see each other's shared values through `Uncommitted`; the cached scopes, which other
runs read, change when all of it is stored, in the order of the numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from ..._json import JSON, brief, dumps, freeze, loads
from ...events import Event
from .._fold import apply_event
from .._scoped import SEQ_MAX, CachedScope, ScopedSession
from .._state import MISSING, Scope, Values, _Missing, scope_of, writes_of
from ._errors import corrupt
from ._file import Transaction
from ._logs import base_no

__all__ = [
    "NO_USER", "STATE_KEY_BYTES", "Uncommitted", "current_values", "mark_scopes", "note_shared", "read_key",
    "read_state", "read_value", "refresh_scopes", "shared_user", "stays_within", "write_event",
]

# In `shared_state` the app's own scope has no user; no user id is empty.
NO_USER: Final = ""
# What a key of the state takes in memory, with its place in a dict.
STATE_KEY_BYTES: Final = 100


def shared_user(key: str, user_id: str) -> str:
    """Whose scope a `user:` or `app:` key belongs to, as `shared_state` names it."""
    return NO_USER if scope_of(key) is Scope.APP else user_id


# --- reading ----------------------------------------------------------------------------------------------------------


def read_key(name: str, key: object, scope: Scope) -> str:
    """
    Return the *key* of a row, in the file *name*.

    Raises:
        StorageCorruptError: It is none of the scope.
    """
    if not isinstance(key, str) or scope_of(key) is not scope:
        raise corrupt(name, f"a state key of the {scope.value} is {brief(key)}")
    return key


def read_value(name: str, key: str, data: str) -> JSON:
    try:
        return freeze(loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise corrupt(name, f"the value of state key {brief(key)}: {error}") from error


def read_state(db: sqlite3.Connection, name: str, session: int) -> tuple[dict[str, JSON], int]:
    """The session-scoped state of a session, and about what it takes in memory."""
    rows = db.execute("SELECT key, value FROM session_state WHERE session = ?", (session,)).fetchall()
    values = {read_key(name, key, Scope.SESSION): read_value(name, key, data) for key, data in rows}
    return values, sum(STATE_KEY_BYTES + 2 * len(data) for _, data in rows)


def refresh_scopes(db: sqlite3.Connection, name: str, live: ScopedSession, until: int = SEQ_MAX) -> None:
    """Take over what other processes have committed to the session's shared scopes, up to the number *until*."""
    for scope, user in ((live.app, NO_USER), (live.user, live.key.user_id)):
        rows = db.execute(
            "SELECT key, value, commit_no FROM shared_state"
            " WHERE app_name = ? AND user_id = ? AND commit_no > ? AND commit_no <= ?",
            (live.key.app_name, user, scope.commit_no, until),
        )
        if scope.commit_no < 0:
            scope.values.clear()
        for found, data, commit_no in rows:
            key = read_key(name, found, Scope.USER if user else Scope.APP)
            if data is None:
                scope.values.pop(key, None)
            else:
                scope.values[key] = read_value(name, key, data)
            scope.commit_no = max(scope.commit_no, commit_no)


# --- within a transaction ---------------------------------------------------------------------------------------------


class Uncommitted:
    """The values that a session has within a transaction, where others have written to its shared scopes already."""

    def __init__(self, live: ScopedSession, shared: dict[tuple[str, str], JSON | _Missing]) -> None:
        self._values = live.values
        self._user_id = live.key.user_id
        self._shared = shared

    def get(self, key: object) -> JSON | _Missing:
        assert isinstance(key, str)
        if scope_of(key) is not Scope.SESSION:
            place = (shared_user(key, self._user_id), key)
            if place in self._shared:
                return self._shared[place]
        return self._values.get(key)

    def copy(self) -> Values:
        """A copy that can be written to."""
        values = self._values.copy()
        mine = {key: value for (user, key), value in self._shared.items() if user in (NO_USER, self._user_id)}
        values.apply(mine)
        return values


def current_values(transaction: Transaction, name: str, live: ScopedSession) -> Uncommitted:
    """The values of the session in this transaction: the newest that are stored, and what others have written."""
    refresh_scopes(transaction.db, name, live, base_no(transaction))
    return Uncommitted(live, transaction.shared.get(("scopes", live.key.app_name), {}))


def stays_within(event: Event) -> bool:
    """Whether the event changes the session's own state only, if any."""
    return all(scope_of(key) is Scope.SESSION for key in writes_of(event.actions))


def write_event(
    db: sqlite3.Connection,
    live: ScopedSession,
    values: Values | Uncommitted,
    event: Event,
    line: str,
    chain: bytes,
    number: int,
) -> dict[str, JSON | _Missing]:
    """Write the event, of which *line* is the text, and the state it changes; return the changes."""
    db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (number, live.incarnation, event.seq, chain, line))
    changes = apply_event(values, event)
    for key, value in changes.items():
        _write_value(db, live, key, value, number)
    return changes


def _write_value(db: sqlite3.Connection, live: ScopedSession, key: str, value: JSON | _Missing, number: int) -> None:
    data = None if value is MISSING else dumps(value)
    if scope_of(key) is Scope.SESSION:
        if data is None:
            db.execute("DELETE FROM session_state WHERE session = ? AND key = ?", (live.incarnation, key))
        else:
            db.execute(
                "INSERT INTO session_state VALUES (?, ?, ?)"
                " ON CONFLICT (session, key) DO UPDATE SET value = excluded.value",
                (live.incarnation, key, data),
            )
        return
    # A removed key leaves its row, without a value, so that other processes hear of the removal.
    user = shared_user(key, live.key.user_id)
    db.execute(
        "INSERT INTO shared_state VALUES (?, ?, ?, ?, ?) ON CONFLICT (app_name, user_id, key)"
        " DO UPDATE SET value = excluded.value, commit_no = excluded.commit_no",
        (live.key.app_name, user, key, data, number),
    )


def note_shared(transaction: Transaction, live: ScopedSession, changes: Mapping[str, JSON | _Missing]) -> None:
    """Let later jobs of the transaction see what this one has written to the shared scopes. The last thing it does."""
    for key, value in changes.items():
        if scope_of(key) is not Scope.SESSION:
            shared = transaction.shared.setdefault(("scopes", live.key.app_name), {})
            shared[shared_user(key, live.key.user_id), key] = value


def mark_scopes(live: ScopedSession, changes: Mapping[str, JSON | _Missing], number: int) -> None:
    """Note that the scopes have what event *number* has changed: they were current when it was written."""
    for key in changes:
        kind = scope_of(key)
        if kind is not Scope.SESSION:
            scope: CachedScope = live.app if kind is Scope.APP else live.user
            scope.commit_no = max(scope.commit_no, number)
