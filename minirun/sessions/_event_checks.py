"""
Whether an event can be stored.

Every event passes `checked_event` once, before a store sees it: the runtime calls it where it prepares an event,
`append_event` for events from outside, an import for each event of a history. Nobody checks again after that: an event
is immutable. Only whether the calls that it marks are open depends on the session, and is asked when it is appended
(`check_marked_calls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .._values import changed
from ..errors import InvalidEventError, NotSupportedError
from ..events import NO_ACTIONS, Event
from ..flows._questions import REQUEST_CREDENTIAL
from ..types import FunctionCall, FunctionResponse
from ._calls import OpenCall, marks_of
from ._state import TEMP_PREFIX, with_writes, writes_of

__all__ = ["CALL_ID", "check_marked_calls", "checked_event"]

# The ids of calls that the strictest providers accept.
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")

# What the runtime would have to act on, and does not yet.
_WITHOUT_EFFECT = (
    "requested_tool_confirmations",
    "agent_state",
    "end_of_agent",
)


def checked_event(event: Event, *, history: bool = False) -> Event:
    """
    Return *event* as it may be stored: complete, with what can be stored of its state changes.

    Only the *history* of a session may contain rewinds and compactions; runners make new ones.

    Raises:
        InvalidEventError: It lacks an author, is partial, its calls or responses lack valid ids, or it names calls by
            what cannot be an id. Or it undoes or covers others, and is not of a history.
        InvalidValueError: Its state changes are malformed.
        NotSupportedError: It asks for something that this version would ignore.
    """
    if not event.author:
        msg = f"expected an event with an author, found author={event.author!r}; use an agent's name, or 'user'"
        raise InvalidEventError(msg)
    if event.partial:
        msg = "expected a complete event, found partial=True; partial events are shown and never stored"
        raise InvalidEventError(msg)
    actions = event.actions
    if actions is not NO_ACTIONS:  # most events have none
        for name in _WITHOUT_EFFECT:
            if getattr(actions, name):
                msg = f"EventActions.{name} has no effect in this version of minirun; leave it out"
                raise NotSupportedError(msg)
        if (actions.compaction, actions.rewind_before_seq, actions.rewind_before_invocation_id) != (None, None, None):
            _check_edit(event, history=history)
    calls, responses = event.get_function_calls(), event.get_function_responses()
    if calls or responses:
        _check_call_ids(event, calls, responses)
    if event.long_running_tool_ids or actions.suspended_calls:
        _check_marks(event)
    if actions is NO_ACTIONS:
        return event
    if actions.artifact_delta or actions.artifact_versions:
        _check_artifacts(event)
    if actions.requested_auth_configs:
        _check_auth_configs(actions.requested_auth_configs, calls)
    writes = writes_of(actions)
    for temporary in writes:
        if temporary.startswith(TEMP_PREFIX):
            kept = {key: write for key, write in writes.items() if not key.startswith(TEMP_PREFIX)}
            return changed(event, actions=with_writes(actions, kept))
    return event


def check_marked_calls(event: Event, open_calls: Mapping[str, OpenCall]) -> None:
    """
    Raise unless the calls that the event of a run puts off are its own, or open.

    Raises:
        InvalidEventError: One is not: nobody could ever answer it.
    """
    unknown = marks_of(event).keys() - open_calls.keys() - {call.id for call in event.get_function_calls()}
    if unknown:
        msg = (
            "expected long_running_tool_ids and suspended_calls to name calls of this event or open ones, "
            f"found {sorted(unknown)}"
        )
        raise InvalidEventError(msg)


def _check_edit(event: Event, *, history: bool) -> None:
    """Raise unless an event that covers or undoes others is of a *history*, and well made."""
    if event.actions.compaction is not None:
        if not history:
            msg = "expected an event that covers no others, found actions.compaction; "
            raise InvalidEventError(msg + "App(events_compaction_config=...) lets runs make such events")
        from ._compactions import check_compaction  # few sessions have summaries

        check_compaction(event)
    if not history and (event.actions.rewind_before_seq, event.actions.rewind_before_invocation_id) != (None, None):
        msg = "expected an event that undoes nothing, found rewind_before_...; use Runner.rewind_async"
        raise InvalidEventError(msg)


def _check_call_ids(event: Event, calls: Sequence[FunctionCall], responses: Sequence[FunctionResponse]) -> None:
    if event.author == "user" and calls:
        msg = "expected no function calls of the user, found one; calls are made by models, in an event of their agent"
        raise InvalidEventError(msg)
    both: Iterable[tuple[str, Sequence[FunctionCall | FunctionResponse]]] = (("call", calls), ("response", responses))
    for what, items in both:
        ids = [item.id for item in items]
        for item in items:
            if item.id is None or not CALL_ID.fullmatch(item.id):
                msg = (
                    f"expected every function {what} to have an id of 1 to 40 letters, digits, '_' or '-', "
                    f"found {item.id!r:.80} on {item.name!r}"
                )
                raise InvalidEventError(msg)
        if len(set(ids)) < len(ids):
            msg = f"expected the ids of an event's function {what}s to differ, found {ids}"
            raise InvalidEventError(msg)


def _check_marks(event: Event) -> None:
    waiting, suspended = event.long_running_tool_ids or (), event.actions.suspended_calls
    for name, ids in (("Event.long_running_tool_ids", sorted(waiting)), ("EventActions.suspended_calls", suspended)):
        for call_id in ids:
            if not CALL_ID.fullmatch(call_id):
                msg = f"expected {name} to name calls by their ids (letters, digits, '_' or '-'), found {call_id!r:.80}"
                raise InvalidEventError(msg)
    both = sorted(set(waiting).intersection(suspended))
    if both:
        msg = f"expected a call to be in one of long_running_tool_ids and suspended_calls, found {both} in both"
        raise InvalidEventError(msg)


def _check_artifacts(event: Event) -> None:
    for name, numbers in event.actions.artifact_versions.items():
        if not isinstance(numbers, list):
            msg = f"expected artifact_versions to give names lists of numbers, found {name!r:.80}: {numbers!r:.80}"
            raise InvalidEventError(msg)
    for name, number in event.actions.named_artifacts():
        if not name or isinstance(number, bool) or not isinstance(number, int) or number < 0:
            msg = f"expected artifact_delta to give names the numbers of versions, found {name!r:.80}: {number!r:.80}"
            raise InvalidEventError(msg)


def _check_auth_configs(said: Mapping[str, object], calls: Sequence[FunctionCall]) -> None:
    """Raise unless what the event says of credentials is what its questions, which are among its *calls*, ask."""
    asked = [call.args for call in calls if call.name == REQUEST_CREDENTIAL]
    if said != {args.get("functionCallId"): args.get("authConfig") for args in asked}:
        msg = (
            "expected EventActions.requested_auth_configs to say what the event's calls of adk_request_credential ask, "
            "found something else; leave it out: `ctx.request_credential` asks, and fills it in"
        )
        raise InvalidEventError(msg)
    from ..credentials._values import AuthConfig  # few events ask for credentials

    for fields in said.values():
        AuthConfig.from_dict(fields if isinstance(fields, dict) else {})
