"""
One session of ADK's as a history of ours: pure, from what its tables hold to the events of `import_session`.

*   ADK's log has no creation record. Ours (`seq` 0) holds what the stored state has and no event sets.
*   Where the events then make another state than the stored one, which ADK's users may write beside the log, one
    closing event by `import` holds the difference.
*   What the events set of `user:` and `app:` state is not set again: the shared values are taken over as they are
    stored now. It stays readable in the event's metadata, like all else that means nothing here: where ADK's engine
    was, its summaries, and which calls waited for somebody. Nobody can go on with an invocation of another engine; its
    open calls are answered, as those of a dead run, when the session is next run.
*   Secrets do not come along: what was asked and answered about credentials is left out.
*   A rewind undoes here what it has undone there.
"""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import attrs

from ..._codec import from_dict
from ..._json import brief
from ..._values import changed
from ...errors import InvalidValueError
from ...events import Event, EventActions
from ...flows._questions import REQUEST_CREDENTIAL
from .._key import CALL_ID
from .._state import Scope, scope_of

__all__ = ["IMPORTER", "StoredEvent", "StoredSession", "history_of"]

IMPORTER: Final = "import"
"""The author of what no event of ADK's says."""

NOTES: Final = "adk"
"""The key of an event's metadata for what means nothing here."""

# Fields of an event and of its actions that mean something to ADK's engine alone.
_ENGINE: Final = ("node_info", "long_running_tool_ids", "isolation_scope", "output")
_ENGINE_ACTIONS: Final = (
    "agent_state", "end_of_agent", "compaction", "route", "render_ui_widgets", "set_model_response",
)  # fmt: skip
# What may hold credentials in the clear.
_SECRET_ACTIONS: Final = ("requested_auth_configs",)


@attrs.frozen
class StoredEvent:
    """A row of ADK's events: its columns, and the JSON object of the event."""

    id: str
    invocation_id: str
    timestamp: float
    fields: Mapping[str, Any]


@attrs.frozen
class StoredSession:
    """A row of ADK's sessions, and its events in their order."""

    state: Mapping[str, Any]
    created: float
    events: tuple[StoredEvent, ...]


def history_of(stored: StoredSession, name: str) -> list[Event]:
    """
    The events of our session; *name* makes the ids of those that ADK has not.

    Raises:
        InvalidValueError: Something in it cannot be stored here.
    """
    calls = _CallIds(name)
    events = [_event_of(row, calls) for row in stored.events]
    numbered = [changed(event, seq=seq) for seq, event in enumerate(_without_repeats(events), 1)]
    numbered = _with_rewinds(numbered)
    written: dict[str, Any] = {}
    for event in numbered:
        written |= event.actions.state_delta
    expected = {key: value for key, value in stored.state.items() if scope_of(key) is Scope.SESSION}
    initial = {key: value for key, value in expected.items() if key not in written}
    first = Event(
        id=_id(name, "created"), author="system", seq=0, timestamp=stored.created,
        actions=EventActions(state_delta=initial),
    )  # fmt: skip
    history = [first, *numbered]
    found = initial | written
    if found != expected:
        wrong = {key: value for key, value in expected.items() if key not in found or found[key] != value}
        gone = [key for key in found if key not in expected]
        actions = EventActions(state_delta=wrong, state_removed=gone)
        last = history[-1]
        history.append(
            Event(id=_id(name, "closed"), author=IMPORTER, seq=len(history), timestamp=last.timestamp, actions=actions)
        )
    return history


def _id(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:32]


def _without_repeats(events: Iterable[Event]) -> list[Event]:
    """Those that say or change something; partial ones were shown, and are followed by the whole."""
    return [event for event in events if not event.partial]


def _event_of(row: StoredEvent, calls: _CallIds) -> Event:
    fields = {key: value for key, value in row.fields.items() if value not in (None, [], {})}
    notes: dict[str, Any] = {key: fields.pop(key) for key in _ENGINE if key in fields}
    if notes.get("node_info") == {"path": ""}:
        del notes["node_info"]
    given = fields.pop("actions", {})
    if not isinstance(given, dict):
        raise InvalidValueError("actions", f"expected an object, found {brief(given)}")
    actions = {key: value for key, value in given.items() if value not in (None, [], {})}
    engine = {key: actions.pop(key) for key in _ENGINE_ACTIONS if key in actions}
    for key in _SECRET_ACTIONS:
        actions.pop(key, None)
    delta = actions.pop("state_delta", {})
    if not isinstance(delta, dict):
        raise InvalidValueError("actions.state_delta", f"expected an object, found {brief(delta)}")
    shared = {key: value for key, value in delta.items() if scope_of(key) in (Scope.USER, Scope.APP)}
    own = {key: value for key, value in delta.items() if scope_of(key) is Scope.SESSION}
    if shared:
        engine["state_delta"] = shared
    if engine:
        notes["actions"] = engine
    if own:
        actions["state_delta"] = own
    timestamp = fields.get("timestamp")
    fields |= {"id": row.id, "invocation_id": row.invocation_id or None, "actions": actions}
    fields["timestamp"] = timestamp if isinstance(timestamp, (int, float)) else row.timestamp
    if not fields.get("author"):
        fields["author"] = IMPORTER
    if isinstance(fields.get("content"), dict):
        fields["content"] = _content_of(fields["content"], row.id, calls)
    if notes:
        metadata = fields.get("custom_metadata")
        fields["custom_metadata"] = {**(metadata if isinstance(metadata, dict) else {}), NOTES: notes}
    return from_dict(Event, fields)


def _content_of(content: Mapping[str, Any], event_id: str, calls: _CallIds) -> dict[str, Any]:
    parts = content.get("parts")
    if not isinstance(parts, list):
        return {**content, "parts": []}
    return {**content, "parts": [_part_of(part, f"{event_id} {place}", calls) for place, part in enumerate(parts)]}


def _part_of(part: Any, place: str, calls: _CallIds) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise InvalidValueError("content.parts", f"expected an object, found {brief(part)}")
    found = {key: value for key, value in part.items() if value is not None}
    if "thought_signature" in found:
        found["thought_signature"] = _bytes_of(found["thought_signature"])
    blob, call, response = (found.get(key) for key in ("inline_data", "function_call", "function_response"))
    if isinstance(blob, dict) and "data" in blob:
        found["inline_data"] = {**blob, "data": _bytes_of(blob["data"])}
    if isinstance(call, dict):
        found["function_call"] = _without_secrets(calls.call(call, place), "args")
    if isinstance(response, dict):
        found["function_response"] = _without_secrets(calls.response(response, place), "response")
    return found


def _without_secrets(call: dict[str, Any], what: str) -> dict[str, Any]:
    """A question for a credential has the client's secret in it, and its answer the user's."""
    return {**call, what: {}} if call.get("name") == REQUEST_CREDENTIAL else call


def _bytes_of(text: object) -> str:
    """Bytes as we write them: ADK writes those of a `Blob` with the alphabet for URLs, and both with padding."""
    try:
        data = base64.b64decode(str(text).translate({45: "+", 95: "/"}), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidValueError("content.parts", f"expected bytes as base64, found {brief(text)}") from None
    return base64.b64encode(data).decode()


class _CallIds:
    """Ids as providers accept them, for calls and for their responses, which ADK stores as a model has given them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._unnamed: defaultdict[str, list[str]] = defaultdict(list)  # ids of calls that had none, by function

    def call(self, call: dict[str, Any], place: str) -> dict[str, Any]:
        """The call with an id."""
        if call.get("id"):
            return {**call, "id": self._valid(call["id"])}
        made = f"adk-{_id(self._name, place)}"
        self._unnamed[str(call.get("name"))].append(made)
        return {**call, "id": made}

    def response(self, response: dict[str, Any], place: str) -> dict[str, Any]:
        """The response with the id of its call: without one it answers the oldest call of its function."""
        if response.get("id"):
            return {**response, "id": self._valid(response["id"])}
        waiting = self._unnamed[str(response.get("name"))]
        return {**response, "id": waiting.pop(0) if waiting else f"adk-{_id(self._name, place)}"}

    def _valid(self, found: object) -> str:
        text = str(found)
        return text if CALL_ID.fullmatch(text) else f"adk-{_id(text)}"


def _with_rewinds(events: list[Event]) -> list[Event]:
    """The events, of which rewinds say what they undo by its `seq`."""
    visible: list[Event] = []
    result: list[Event] = []
    for event in events:
        target = event.actions.rewind_before_invocation_id
        if target is not None:
            place = next((at for at, each in enumerate(visible) if each.invocation_id == target), None)
            seq = None if place is None else visible[place].seq
            undone = None if seq is None else target
            actions = changed(event.actions, rewind_before_invocation_id=undone, rewind_before_seq=seq)
            event = changed(event, actions=actions)
            if place is not None:
                del visible[place:]
        visible.append(event)
        result.append(event)
    return result
