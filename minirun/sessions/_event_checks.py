"""
Whether an event can be stored.

Every event passes `checked_event` once, before a store sees it: the runtime calls it where it prepares an event,
`append_event` for events from outside, an import for each event of a history. Nobody checks again after that: an event
is immutable. Only whether the calls that it marks are open depends on the session, and is asked when it is appended
(`check_marked_calls`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._json import brief
from .._values import changed
from ..errors import InvalidEventError
from ..events import Event
from ..types import NO_CALLS, FunctionCall, FunctionResponse
from ._key import CALL_ID
from ._state import REMOVED, RESERVED_PREFIX, TEMP_PREFIX, with_writes, writes_of

__all__ = ["checked_event"]


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
    calls, responses = NO_CALLS if event.content is None else event.content.calls_and_responses
    if calls or responses:
        _check_call_ids(event, calls, responses)
    actions = event.actions
    if event.long_running_tool_ids or not actions.is_only_state:
        from ._event_references import check_references  # few events do more than say something or change state

        check_references(event, history=history)
    writes = writes_of(actions)
    has_temp = False
    for key, write in writes.items():
        if RESERVED_PREFIX in key and write is not REMOVED and not history:
            from ._reserved import check_own_key  # few keys look like one of the framework

            check_own_key(key, "state")
        has_temp = has_temp or key.startswith(TEMP_PREFIX)
    if has_temp:
        kept = {key: write for key, write in writes.items() if not key.startswith(TEMP_PREFIX)}
        return changed(event, actions=with_writes(actions, kept))
    return event


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
                    f"found {brief(item.id)} on {item.name!r}"
                )
                raise InvalidEventError(msg)
        if len(set(ids)) < len(ids):
            msg = f"expected the ids of an event's function {what}s to differ, found {ids}"
            raise InvalidEventError(msg)
