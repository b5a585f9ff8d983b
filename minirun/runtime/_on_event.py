"""
What plugins make of an event before it is stored or shown.

A closing event has to be stored, whatever the plugins do: each has a bounded time, and a failure is kept for the end of
the run.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import trio

from .._values import changed
from ..errors import CleanupTimeoutError
from ..events import Event
from ..flows._event_answer import reconciled
from ..sessions._event_checks import checked_event
from ..sessions._state import Write, layered, parted, with_writes, writes_of
from ._failure import leaves
from ._hook_calls import ask, expect

if TYPE_CHECKING:
    from ._base_context import ContextBase
    from ._emit import Emission

__all__ = ["after_hooks", "apply_on_event"]


async def after_hooks(context: ContextBase, event: Event, emission: Emission, *, closing: bool) -> Event:
    """What the plugins make of the event; what they write goes with it."""
    hook_context = context._for_on_event(context._state.layer())
    event, writes = await apply_on_event(hook_context, event, closing=closing)
    emission.writes, temp = parted(writes)
    emission.temp = layered(emission.temp, temp)
    actions = with_writes(event.actions, emission.writes)
    return event if actions is event.actions else changed(event, actions=actions)


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
                other = reconciled(event, expect(answer, Event, "on_event_callback"))
                if other is not event and not event.partial:
                    checked_event(other)
                changes = context.actions.changes_to(other.actions)
                if changes:
                    other = changed(other, actions=changed(other.actions, **changes))
                writes = layered(writes_of(other.actions), context.state.pending())
                if context.state.schemas is not None:
                    context.state.schemas.check_event(context._invocation.values, writes)
                outcome = other, writes
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
