"""
What an event becomes by the answer of an `on_event` hook.

The first that returns an Event has answered. One with the id of the event that it was given was made from it, and is
taken as it is, so that something can be taken away; any other is new, and what it leaves out stays. In both cases the
event keeps what it is known by, its calls and responses, and what waits: a call that is stored is one that is made and
answered (promise P6).
"""

from __future__ import annotations

import attrs

from .._json import brief
from .._values import changed
from ..errors import InvalidEventError
from ..events import Event

__all__ = ["reconciled"]

_KEPT = ("id", "invocation_id", "timestamp", "seq", "partial", "node_info")


def reconciled(event: Event, answer: Event | None) -> Event:
    """The event that *answer* makes of *event*."""
    if answer is None:
        return event
    if answer.id is not None and answer.id == event.id:
        other = changed(answer, **{name: getattr(event, name) for name in _KEPT})
    else:
        fields = [field for field in attrs.fields(Event) if field.name not in _KEPT]
        given = {field.name: getattr(answer, field.name) for field in fields}
        defaults = {field.name: field.default for field in fields}
        other = changed(event, **{name: value for name, value in given.items() if value != defaults[name]})
    kept = {"replay": event.actions.replay}
    if event.node_info.output_for is not None:
        kept["route"] = event.actions.route  # nobody else says where its workflow goes on
    if any(getattr(other.actions, name) != value for name, value in kept.items()):
        other = changed(other, actions=changed(other.actions, **kept))
    if event.partial:
        return other
    if _calls_of(other) != _calls_of(event):
        msg = (
            "expected on_event_callback to leave the function calls and responses of an event, and what waits, as they "
            f"are, found {brief(other.content)}; before_tool_callback changes arguments, after_tool_callback results"
        )
        raise InvalidEventError(msg)
    return other


def _calls_of(event: Event) -> tuple[object, ...]:
    waiting = event.long_running_tool_ids or None, frozenset(event.actions.suspended_calls)
    return event.get_function_calls(), event.get_function_responses(), *waiting
