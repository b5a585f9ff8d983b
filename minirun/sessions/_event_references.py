"""
Whether what an event refers to can be: calls that wait, versions of artifacts, credentials, and events of its past.

Few events refer to anything; those that do pass `check_references` within `checked_event`. Fewer bring a time of their
own, which has to be one of the calendar (`check_time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .._json import brief
from .._routes import check_route
from ..errors import InvalidEventError, InvalidValueError, NotSupportedError
from ..events import Event
from ..flows._questions import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL
from ..types import FunctionCall
from ._calls import OpenCall, marks_of
from ._compactions import check_compaction
from ._key import CALL_ID

__all__ = ["check_marked_calls", "check_references", "check_time"]

# The years 1 to 9999, in seconds since the epoch: what calendars have, those of Python and of most databases.
CALENDAR_S = (-62_135_596_800, 253_402_300_800)

# What the runtime would have to act on, and does not yet.
_WITHOUT_EFFECT = ("agent_state", "end_of_agent", "route", "render_ui_widgets")
# Of these, what earlier versions have stored all the same: histories may have it.
_STORED_BEFORE = ("route", "render_ui_widgets")


def check_references(event: Event, *, history: bool) -> None:
    """
    Raise unless what *event* names can be there; whether it is, the session knows.

    Raises:
        InvalidEventError: It cannot, or the event covers or undoes others and is not of a *history*.
        InvalidValueError: What it says of credentials is malformed, or its route is none.
        NotSupportedError: It asks for something that this version would ignore.
    """
    for name in _WITHOUT_EFFECT:
        value, is_new = getattr(event.actions, name), name in _STORED_BEFORE
        if (not history and value is not None) if is_new else value:
            _refuse_without_effect(event, name)
    _check_edit(event, history=history)
    _check_marks(event)
    _check_artifacts(event)
    _check_auth_configs(event)
    _check_confirmations(event)


def _refuse_without_effect(event: Event, name: str) -> None:
    """Raise, unless it is the route of a node run, which a workflow follows."""
    if name != "route":
        msg = f"EventActions.{name} has no effect in this version of minirun; leave it out"
        raise NotSupportedError(msg)
    if event.node_info.output_for is None:
        msg = "EventActions.route has no effect outside of a Workflow: only its nodes take routes; leave it out"
        raise NotSupportedError(msg)
    check_route(event.actions.route, "EventActions.route")


def check_time(seconds: float, path: str) -> None:
    """
    Raise unless it is a time of the calendar.

    Raises:
        InvalidValueError: It is none; *path* says where it stands.
    """
    first, end = CALENDAR_S
    if not first <= seconds < end:
        problem = f"expected seconds since the epoch, within the years 1 to 9999, found {seconds}"
        raise InvalidValueError(path, f"{problem}; divide milliseconds by 1000")


def check_marked_calls(event: Event, open_calls: Mapping[str, OpenCall]) -> None:
    """
    Raise unless the calls that the event of a run puts off are its own, or open.

    Raises:
        InvalidEventError: One is not: nobody could ever answer it.
    """
    own = {call.id for call in event.get_function_calls()}
    unknown = [call_id for call_id in marks_of(event) if call_id not in open_calls and call_id not in own]
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
        check_compaction(event)
    if not history and (event.actions.rewind_before_seq, event.actions.rewind_before_invocation_id) != (None, None):
        msg = "expected an event that undoes nothing, found rewind_before_...; use Runner.rewind_async"
        raise InvalidEventError(msg)


def _check_marks(event: Event) -> None:
    waiting, suspended = event.long_running_tool_ids or (), event.actions.suspended_calls
    for name, ids in (("Event.long_running_tool_ids", sorted(waiting)), ("EventActions.suspended_calls", suspended)):
        for call_id in ids:
            if not CALL_ID.fullmatch(call_id):
                msg = f"expected {name} to name calls by their ids: letters, digits, '_' or '-', found {brief(call_id)}"
                raise InvalidEventError(msg)
    both = sorted(set(waiting).intersection(suspended))
    if both:
        msg = f"expected a call to be in one of long_running_tool_ids and suspended_calls, found {both} in both"
        raise InvalidEventError(msg)


def _check_artifacts(event: Event) -> None:
    for name, numbers in event.actions.artifact_versions.items():
        if not isinstance(numbers, list):
            msg = f"expected artifact_versions to give names lists of numbers, found {brief(name)}: {brief(numbers)}"
            raise InvalidEventError(msg)
    for name, number in event.actions.named_artifacts():
        if not name or isinstance(number, bool) or not isinstance(number, int) or number < 0:
            msg = f"expected artifact_delta to give names the numbers of versions, found {brief(name)}: {brief(number)}"
            raise InvalidEventError(msg)


def _check_auth_configs(event: Event) -> None:
    """Raise unless what the event says of credentials is what its questions ask."""
    said = event.actions.requested_auth_configs
    if not said:
        return
    args = [call.args for call in event.get_function_calls() if call.name == REQUEST_CREDENTIAL]
    asked = {each["functionCallId"]: each.get("authConfig") for each in args if _names_a_call(each)}
    if said != asked or len(asked) != len(args):
        msg = (
            "expected EventActions.requested_auth_configs to say what the event's calls of adk_request_credential ask, "
            "found something else; leave it out: `ctx.request_credential` asks, and fills it in"
        )
        raise InvalidEventError(msg)
    from ..credentials._values import AuthConfig  # few events ask for credentials

    for fields in said.values():
        AuthConfig.from_dict(fields if isinstance(fields, dict) else {})


def _names_a_call(args: Mapping[str, Any]) -> bool:
    return isinstance(args.get("functionCallId"), str)


def _check_confirmations(event: Event) -> None:
    """Raise unless what the event says of confirmations is what its questions ask."""
    said = event.actions.requested_tool_confirmations
    if said and said != asked_confirmations(event.get_function_calls()):
        msg = (
            "expected EventActions.requested_tool_confirmations to say what the event's calls of "
            f"{REQUEST_CONFIRMATION} ask, found something else; leave it out: tools that are confirmed fill it in"
        )
        raise InvalidEventError(msg)


def asked_confirmations(calls: Iterable[FunctionCall]) -> dict[str, Any]:
    """Return what is asked of which call, by its id, in the questions among *calls*."""
    asked: dict[str, Any] = {}
    for call in calls:
        original = call.args.get("originalFunctionCall")
        if call.name == REQUEST_CONFIRMATION and isinstance(original, dict) and isinstance(original.get("id"), str):
            asked[original["id"]] = call.args.get("toolConfirmation")
    return asked
