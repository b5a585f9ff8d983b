"""
What stands in a store, as text:

    minirun                                     the format, and who owns the store
    next                                        the next number, for sessions and for what has an order
    session/APP/USER/SESSION                    a session: its number, revision and times
    event/NUMBER/SEQ                            an event; "+" before it if a run has stored it, else "-"
    app/APP/KEY   user/APP/USER/KEY             the shared state, an entry for each key
    run/NUMBER/INVOCATION                       how far an invocation has come
    wait/NUMBER/CALL                            a call that waits for somebody outside
    message/NUMBER/NUMBER                       a message that waits for a run of the session, in the order of sending

Ids in keys are percent-encoded, numbers have 16 hexadecimal digits, values are JSON. A session's own state is the fold
of its events, and so are its open calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import attrs

from ..._codec import from_json, to_json
from ..._json import JSON, brief, dumps, finite, freeze, is_count, loads, shown
from ...errors import StorageCorruptError
from ...events import Event
from .._invocation import Invocation, InvocationStatus
from .._key import SessionKey
from .._messages import message_from_json
from .._state import APP_PREFIX, MISSING, USER_PREFIX, Scope, _Missing, scope_of

__all__ = [
    "Changes",
    "Head",
    "Row",
    "Run",
    "app_prefix",
    "event_name",
    "fields_of",
    "head_of",
    "hexadecimal",
    "id_of",
    "is_of",
    "key_of",
    "message_of",
    "number_of",
    "row_for",
    "row_of",
    "run_of",
    "run_place_of",
    "run_text",
    "session_name",
    "shared_changes",
    "shared_of",
    "user_prefix",
    "wait_of",
]

FORMAT = 1
MARK, NEXT = "minirun", "next"

Changes: TypeAlias = dict[str, str | None]


class Head(NamedTuple):
    """A session as its entry has it."""

    number: int
    revision: int
    create_time: float
    last_update_time: float

    def text(self) -> str:
        """The value of the entry."""
        return dumps(self._asdict())


class Row(NamedTuple):
    """A stored event, whether a run has stored it (then its calls are open until they are answered), and its entry."""

    event: Event
    tracked: bool
    text: str


class Run(NamedTuple):
    """An invocation, and its place among all of the store."""

    number: int
    invocation: Invocation


# --- keys


def _id(text: str) -> str:
    return quote(text, safe="")


def hexadecimal(number: int) -> str:
    """A number as it stands in keys, so that they are in its order."""
    return f"{number:016x}"


def session_name(key: SessionKey) -> str:
    """The key of a session's entry."""
    return f"session/{key.app_name}/{_id(key.user_id)}/{_id(key.session_id)}"


def key_of(name: str) -> SessionKey:
    """The session that an entry is of."""
    with _reading(name):
        _, app_name, user_id, session_id = name.split("/")
        return SessionKey(app_name, unquote(user_id), unquote(session_id))


def event_name(number: int, seq: int | None) -> str:
    """The key of an event's entry."""
    assert seq is not None, "stored events have one"
    return f"event/{hexadecimal(number)}/{hexadecimal(seq)}"


def of_session(kind: str, number: int, name: str = "") -> str:
    """The key of a run or of a waiting call of a session; without a name, the prefix of all."""
    return f"{kind}/{hexadecimal(number)}/{_id(name)}"


def app_prefix(app_name: str) -> str:
    """What the keys of an app's state begin with."""
    return f"app/{app_name}/"


def user_prefix(app_name: str, user_id: str) -> str:
    """What the keys of a user's state begin with."""
    return f"user/{app_name}/{_id(user_id)}/"


def id_of(name: str) -> str:
    """The id at the end of a key."""
    return unquote(name.rpartition("/")[2])


# --- values


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        msg = f"the entry {brief(name, 200)} cannot be read: {brief(error, 200)}"
        raise StorageCorruptError(msg) from error


def fields_of(name: str, text: str) -> dict[str, Any]:
    """The fields of an entry that has some."""
    with _reading(name):
        return dict(loads(text))


def _count(found: object) -> int:
    if not is_count(found):
        raise ValueError(f"expected a number from 0 up, found {shown(found)}")
    return found


def _check_times(*found: object) -> None:
    for each in found:
        if finite(each) is None:
            raise ValueError(f"expected a time in seconds, found {shown(each)}")


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"expected a string, found {shown(found)}")
    return found


def wait_of(name: str, text: str) -> tuple[int, SessionKey]:
    """The place of a waiting call among all, and its session."""
    with _reading(name):
        fields = loads(text)
        number = _count(fields.pop("number"))
        return number, SessionKey(**{field: _text(found) for field, found in fields.items()})


def run_place_of(name: str) -> int:
    """The number of the session that an invocation's entry is of."""
    with _reading(name):
        _, number, _ = name.split("/")
        return int(number, 16)


def number_of(name: str, text: str) -> int:
    """The number that an entry has."""
    with _reading(name):
        return _count(int(text, 16))


def head_of(name: str, text: str) -> Head:
    """The session of an entry."""
    with _reading(name):
        head = Head(**loads(text))
        _count(head.number), _count(head.revision)
        _check_times(head.create_time, head.last_update_time)
        return head


def row_for(event: Event, *, tracked: bool) -> Row:
    """The row that stores an event."""
    return Row(event, tracked, ("+" if tracked else "-") + to_json(event))


def row_of(name: str, text: str) -> Row:
    """The event of an entry."""
    with _reading(name):
        return Row(from_json(Event, text[1:]), text[0] == "+", text)


def message_of(name: str, text: str) -> Event:
    """The message of an entry."""
    with _reading(name):
        return message_from_json(text)


def run_text(run: Run) -> str:
    """The value of an invocation's entry."""
    return dumps(attrs.asdict(run.invocation) | {"number": run.number})


def run_of(name: str, text: str) -> Run:
    """The invocation of an entry, as it was stored."""
    with _reading(name):
        fields = loads(text)
        number = _count(fields.pop("number"))
        _count(fields["seq"])
        if fields["end_seq"] is not None:
            _count(fields["end_seq"])
        for field in ("app_name", "user_id", "session_id", "invocation_id"):
            _text(fields[field])
        return Run(number, Invocation(**{**fields, "status": InvocationStatus(fields["status"])}))


def is_of(run: Invocation, asked: tuple[str | None, str | None, str | None]) -> bool:
    """Whether an invocation is of this app, user and session; None stands for any."""
    app_name, user_id, session_id = asked
    return (
        app_name in (None, run.app_name)
        and user_id in (None, run.user_id)
        and session_id in (None, run.session_id)
    )


def shared_of(begin: str, entries: list[tuple[str, str]]) -> dict[str, JSON]:
    """The state that entries hold, by keys that begin with `app:` or `user:`."""
    values = {}
    for name, text in entries:
        with _reading(name):
            values[begin + id_of(name)] = freeze(loads(text))
    return values


def shared_changes(key: SessionKey, changed: Mapping[str, JSON | _Missing]) -> Changes:
    """The entries of what is changed in the shared scopes."""
    changes: Changes = {}
    for name, value in changed.items():
        if scope_of(name) is Scope.USER:
            entry = user_prefix(key.app_name, key.user_id) + _id(name.removeprefix(USER_PREFIX))
        elif scope_of(name) is Scope.APP:
            entry = app_prefix(key.app_name) + _id(name.removeprefix(APP_PREFIX))
        else:
            continue
        changes[entry] = None if value is MISSING else dumps(value)
    return changes
