"""
What plugins make of an event before it is stored or shown.

The first that returns an Event has answered. One with the id of the event that it was given was made from it, and is
taken as it is, so that something can be taken away; any other is new, and what it leaves out stays. In both cases the
event keeps what it is known by, its calls and responses, and what waits: a call that is stored is one that is made and
answered (promise P6).

A closing event has to be stored, whatever the plugins do: each has a bounded time, and a failure is kept for the end of
the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

import attrs
import trio

from .._json import brief
from .._values import changed
from ..errors import CleanupTimeoutError, InvalidEventError
from ..events import Event
from ..sessions._event_checks import checked_event
from ..sessions._state import Write, merge_writes, writes_of
from ._failure import leaves
from ._hooks import ask, expect

if TYPE_CHECKING:
    from ._base_context import ContextBase

__all__ = ["apply_on_event"]

_KEPT = ("id", "invocation_id", "timestamp", "seq", "partial")


async def apply_on_event(context: ContextBase, event: Event, *, closing: bool) -> tuple[Event, dict[str, Write]]:
    """
    Return what the plugins make of *event*, and all that it writes: its own, and what they write to their *context*.

    Raises:
        InvalidEventError, InvalidValueError, TypeError: What one has returned cannot take the place of the event.
        Exception: Whatever else a hook raises. Nothing, if the event is *closing*: then it is a late failure.
    """
    program, failures = context._invocation.program, context._invocation.failures
    grace_s = program.cleanup_timeout_s if closing else inf
    outcome = event, dict(writes_of(event.actions))
    for hook in program.plugins["on_event_callback"]:
        try:
            with trio.CancelScope(deadline=trio.current_time() + grace_s) as scope:
                answer = await ask([hook], invocation_context=context, event=event)
                other = _reconciled(event, expect(answer, Event, "on_event_callback"))
                changes = context.actions.changes_to(other.actions)
                if changes:
                    other = changed(other, actions=changed(other.actions, **changes))
                outcome = other, _with_pending(writes_of(other.actions), context.state.pending())
        except Exception as error:
            if not closing:
                failures.of_hooks += leaves(error)
                raise
            failures.late.append(error)
            continue
        if scope.cancelled_caught:
            msg = f"an on_event callback took longer than {grace_s} seconds, for an event that had to be stored"
            failures.late.append(CleanupTimeoutError(msg))
        elif answer is not None:
            break
    return outcome


def _reconciled(event: Event, answer: Event | None) -> Event:
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
    if other.actions.replay != event.actions.replay:
        other = changed(other, actions=changed(other.actions, replay=event.actions.replay))
    if event.partial:
        return other
    if _calls_of(other) != _calls_of(event):
        msg = (
            "expected on_event_callback to leave the function calls and responses of an event, and what waits, as they "
            f"are, found {brief(other.content)}; before_tool_callback changes arguments, after_tool_callback results"
        )
        raise InvalidEventError(msg)
    checked_event(other)
    return other


def _calls_of(event: Event) -> tuple[object, ...]:
    waiting = event.long_running_tool_ids or None, frozenset(event.actions.suspended_calls)
    return event.get_function_calls(), event.get_function_responses(), *waiting


def _with_pending(writes: Mapping[str, Write], pending: Mapping[str, Write]) -> dict[str, Write]:
    above = {key: merge_writes(key, writes[key], write) if key in writes else write for key, write in pending.items()}
    return {**writes, **above}
