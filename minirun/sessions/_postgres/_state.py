"""
State in a database: one row for each key, of sessions and of the scopes that sessions share.

What an event changes in the session's own state is worked out before it is sent: nobody else writes there. For the
shared scopes (`user:`, `app:`) the *writes* are sent, and applied inside the statement to what is there by then.

A cached scope knows up to which `commit_no` it is current. Numbers become visible in their order, so whatever saw a
number has seen all below it, and catching up asks for what is newer alone. Two answers may cross on their way: what is
not newer than the scope by then is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..._json import JSON, brief, dumps, freeze, loads
from ..._postgres._values import Call, Statement
from ...errors import InvalidValueError
from ...events import Event
from .._key import SessionKey
from .._scoped import CachedScope
from .._state import MISSING, REMOVED, Add, Extend, Scope, Write, _Missing, apply_write, scope_of, writes_of
from ._rows import corrupt
from ._text import read_key, stored_key

__all__ = [
    "NO_USER", "STATE_KEY_BYTES", "Scopes", "is_shared", "news_call", "operation", "operation_error", "read_key_of",
    "read_state", "read_value", "shared_rows", "shared_user", "state_rows", "take_news",
]  # fmt: skip

# In `shared_state` the app's own scope has no user; no user id is empty.
NO_USER: Final = ""
# What a key of the state takes in memory, with its place in a dict.
STATE_KEY_BYTES: Final = 100


def shared_user(key: str, user_id: str) -> str:
    """Whose scope a `user:` or `app:` key belongs to, as `shared_state` names it."""
    return NO_USER if scope_of(key) is Scope.APP else user_id


def is_shared(event: Event) -> bool:
    """Whether the event changes more than the session's own state."""
    return any(scope_of(key) is not Scope.SESSION for key in writes_of(event.actions))


def operation(write: Write) -> str:
    """A write as `minirun.fold` reads it: a letter, and its operand as JSON."""
    if write is REMOVED:
        return "r"
    if type(write) is Add:
        return f"a{dumps(write.amount)}"
    if type(write) is Extend:
        return f"e{dumps(write.items)}"
    return f"s{dumps(write)}"


def shared_rows(member: int, key: SessionKey, event: Event) -> list[tuple[Any, ...]]:
    """The event's writes to shared scopes, as the part `shared` of the statement has them."""
    return [
        (member, key.app_name, shared_user(name, key.user_id), *stored_key(name), operation(write))
        for name, write in writes_of(event.actions).items()
        if scope_of(name) is not Scope.SESSION
    ]


def operation_error(event: Event, key: str, found: str) -> InvalidValueError:
    """The error for an event's operation on a shared *key* that does not fit what stands there: *found*, as JSON."""
    try:
        apply_write(key, freeze(loads(found)), writes_of(event.actions)[key])
    except InvalidValueError as error:
        return error
    return InvalidValueError(f"state[{key!r}]", f"expected an operation that fits the value, found {found:.80}")


def state_rows(
    member: int, changes: Mapping[str, JSON | _Missing]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What is set and what is removed of a session's own state, as the statement's parts have it."""
    present = [(member, *stored_key(key), dumps(value)) for key, value in changes.items() if value is not MISSING]
    removed = [(member, stored_key(key)[0]) for key, value in changes.items() if value is MISSING]
    return present, removed


def read_value(name: str, key: str, data: str) -> JSON:
    """
    The value that stands under *key* in the database *name*.

    Raises:
        StorageCorruptError: It is not JSON as it was written.
    """
    try:
        return freeze(loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise corrupt(name, f"the value of state key {brief(key)}: {error}") from error


def read_key_of(name: str, stored: str, long_key: str | None, scope: Scope) -> str:
    """
    The key that a row has, in the database *name*.

    Raises:
        StorageCorruptError: It is none of the scope.
    """
    try:
        key = read_key(stored, long_key)
        if scope_of(key) is scope:
            return key
    except ValueError:
        pass
    raise corrupt(name, f"a state key of the {scope.value} is {brief(stored)}")


def read_state(name: str, rows: Sequence[Sequence[Any]]) -> tuple[dict[str, JSON], int]:
    """The session-scoped state that rows (key, name, value) hold, and about what it takes in memory."""
    values = {}
    for stored, long_key, data in rows:
        key = read_key_of(name, stored, long_key, Scope.SESSION)
        values[key] = read_value(name, key, data)
    return values, sum(STATE_KEY_BYTES + 2 * len(data) for _, _, data in rows)


NEWS: Final = Statement(
    "news",
    """
    SELECT t.app_name, t.user_id, t.key, t.name, t.value, t.commit_no
    FROM unnest($1::text[], $2::text[], $3::int8[]) AS k(app_name, user_id, known)
    JOIN minirun.shared_state t ON t.app_name = k.app_name AND t.user_id = k.user_id AND t.commit_no > k.known
    """,
    "text[] text[] int8[]",
)

Scopes: TypeAlias = Mapping[tuple[str, str], CachedScope]
"""Cached scopes by app and user."""


def news_call(scopes: Scopes) -> Call:
    """Ask what is newer in these scopes."""
    return NEWS([app for app, _ in scopes], [user for _, user in scopes], [each.commit_no for each in scopes.values()])


def take_news(name: str, scopes: Scopes, news: Iterable[Sequence[Any]]) -> None:
    """
    Let the scopes have what `news_call` was answered; *name* is that of the database.

    The answer has all above the numbers that were known when it was asked for, as one look has found it.
    """
    before = {place: scope.commit_no for place, scope in scopes.items()}
    for scope in scopes.values():
        if scope.commit_no < 0:
            scope.values.clear()
    for app, user, stored, long_key, data, number in news:
        if number <= before[app, user]:
            continue  # it was overtaken by a newer answer
        scope = scopes[app, user]
        key = read_key_of(name, stored, long_key, Scope.USER if user else Scope.APP)
        if data is None:
            scope.values.pop(key, None)
        else:
            scope.values[key] = read_value(name, key, data)
        scope.commit_no = max(scope.commit_no, number)
