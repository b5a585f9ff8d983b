"""
Undoing what was said, from an invocation on.

A log never gets shorter. A rewind is one event at its end that says from which `seq` on the history is undone, and
sets the session's own state to what it was before: keys that did not exist are removed. The live session hides what is
undone, so later prompts, windows and agents read as if it had not been; `user:` and `app:` state is shared with other
sessions and stays.
"""

from __future__ import annotations

from .._json import dumps
from ..errors import InvocationNotFoundError
from ..events import Event, EventActions
from ..sessions import LiveSession
from ..sessions._fold import fold
from ..sessions._state import MISSING, REMOVED, Values, Write, with_writes

__all__ = ["rewind_event"]


def rewind_event(live: LiveSession, creation: Event, invocation_id: str) -> Event:
    """
    Return the event that undoes the invocation and all that came after it.

    *live* has the whole history loaded, *creation* is its creation record. The state before the invocation is the fold
    of what is visible of its past: what earlier rewinds have undone changes nothing there.

    Raises:
        InvocationNotFoundError: The visible history has no such invocation.
    """
    seq = live.first_of(invocation_id)
    if seq is None:
        msg = (
            f"{live.key} has no invocation {invocation_id!r:.80}, or it was undone by an earlier rewind; "
            "`session.events` shows which there are"
        )
        raise InvocationNotFoundError(msg)
    past = live.events[: live.index_of(seq)]
    before = fold(Values({}, {}, {}), [creation, *past], shared=False).session
    actions = EventActions(rewind_before_invocation_id=invocation_id, rewind_before_seq=seq)
    return Event(author="user", actions=with_writes(actions, _difference(live.values.session, before)))


def _difference(now: dict[str, object], wanted: dict[str, object]) -> dict[str, Write]:
    """The writes that turn the state *now* into the *wanted* one; 1, 1.0 and True are three different values."""
    writes: dict[str, Write] = {key: REMOVED for key in sorted(now) if key not in wanted}
    for key, value in sorted(wanted.items()):
        current = now.get(key, MISSING)
        if current is not value and (current is MISSING or dumps(current) != dumps(value)):
            writes[key] = value
    return writes
