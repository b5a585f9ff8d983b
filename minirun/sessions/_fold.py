"""
State is the fold of the log: the one function that says what an event changes.

Every store, the live sessions and the tests apply events through `apply_event`, so they cannot disagree (promise P4).
"""

from __future__ import annotations

from collections.abc import Iterable

from .._json import JSON
from ..events import Event
from ._state import CurrentValues, Scope, Values, _Missing, apply_writes, scope_of, writes_of

__all__ = ["apply_event", "fold"]


def apply_event(values: CurrentValues, event: Event, *, shared: bool = True) -> dict[str, JSON | _Missing]:
    """
    Return what storing *event* on top of *values* changes: key to new value, or to MISSING where it is deleted.

    `values` itself stays as it is. Partial events change nothing, and `temp:` keys are never in a stored event. With
    `shared=False` it is only what stays within the session: for an event of the past, whose `user:` and `app:` writes
    belong before what those scopes hold by now.

    Raises:
        InvalidValueError: An operation meets a value that it does not fit, such as `add` a string.
    """
    if event.partial:
        return {}
    writes = writes_of(event.actions)
    if not shared:
        writes = {key: write for key, write in writes.items() if scope_of(key) is Scope.SESSION}
    return apply_writes(values, writes)


def fold(values: Values, events: Iterable[Event], *, shared: bool = True) -> Values:
    """Apply *events* to *values*, in place, one after another; `shared` as in `apply_event`."""
    for event in events:
        values.apply(apply_event(values, event, shared=shared))
    return values
