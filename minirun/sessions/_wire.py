"""
A session as JSON, for programs outside: an object of its fields, with its events in the form in which they are stored.

`temp:` keys are left out, as they are from every store: they belong to one run. What a later version writes beside the
fields of this one is passed over, because nobody writes a session back that was read here. The events keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._codec import from_dict, object_of, to_dict
from .._json import dumps, finite, freeze, shown
from .._window import Window
from ..errors import InvalidValueError
from ..events import Event
from ._key import session_key
from ._state import Scope, Values, check_key, scope_of

if TYPE_CHECKING:
    from ._session import Session

__all__ = ["session_from_json", "session_to_json"]

# Services count from 1: none has this session, so none takes it for its own when something is appended to it.
FROM_JSON = 0

_FIELDS = ("id", "app_name", "user_id", "state", "events", "create_time", "last_update_time", "revision")


def session_to_json(session: Session) -> str:
    """Return *session* as one line of JSON."""
    fields: dict[str, Any] = {name: getattr(session, name) for name in _FIELDS}
    fields["state"] = {key: value for key, value in session.state.items() if scope_of(key) is not Scope.TEMP}
    fields["events"] = [to_dict(event) for event in session.events]
    return dumps(fields)


def session_from_json(cls: type[Session], text: str | bytes) -> Session:
    """
    Read a session, one of *cls*, from its JSON.

    Raises:
        InvalidValueError: It is not JSON, or not that of a session.
    """
    fields = object_of("Session", text)
    if not isinstance(fields, dict):
        raise InvalidValueError("Session", f"expected a JSON object, found {type(fields).__name__}")
    missing = [name for name in _FIELDS if name not in fields]
    if missing:
        raise InvalidValueError("Session", f"expected the fields {', '.join(_FIELDS)}; missing {', '.join(missing)}")
    key = session_key(fields["app_name"], fields["user_id"], fields["id"])
    revision = fields["revision"]
    if type(revision) is not int or revision < 0:
        raise InvalidValueError("Session.revision", f"expected an integer from 0 up, found {shown(revision)}")
    return cls(
        id=key.session_id,
        app_name=key.app_name,
        user_id=key.user_id,
        values=_values(fields["state"]),
        events=Window(_events(fields["events"])),
        revision=revision,
        create_time=_seconds(fields, "create_time"),
        last_update_time=_seconds(fields, "last_update_time"),
        incarnation=FROM_JSON,
        mark=None,
    )


def _values(state: Any) -> Values:
    if not isinstance(state, dict):
        raise InvalidValueError("Session.state", f"expected a JSON object, found {type(state).__name__}")
    values = Values({}, {}, {})
    for key, value in freeze(state, "Session.state").items():
        check_key(key, "Session.state")
        if scope_of(key) is Scope.TEMP:
            raise InvalidValueError("Session.state", f"expected no temp: keys, which belong to one run, found {key!r}")
        values.scope(key)[key] = value
    return values


def _events(events: Any) -> list[Event]:
    if not isinstance(events, list):
        raise InvalidValueError("Session.events", f"expected a list, found {type(events).__name__}")
    return [from_dict(Event, event) for event in events]


def _seconds(fields: dict[str, Any], name: str) -> float:
    seconds = finite(fields[name])
    if seconds is None:
        raise InvalidValueError(f"Session.{name}", f"expected seconds since the epoch, found {shown(fields[name])}")
    return seconds
