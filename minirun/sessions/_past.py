"""What a session was at one of its events, as its log says: for forks, for rewinds, and for verifying."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from ..errors import InvalidValueError
from ..events import Event
from ..types import id_of
from ._call_fold import CallFold, cut_invocation
from ._calls import CallChanges, is_of_a_run, marks_of
from ._compactions import CompactionFold
from ._fold import apply_event
from ._invocation import Invocation, InvocationStatus
from ._key import SessionKey
from ._state import Values

__all__ = ["LogFold", "Past", "check_fork_seq", "invocation_at", "rewound", "rewound_invocation"]


class LogFold:
    """The session that a log makes, read event by event; of its state only what stays within the session."""

    def __init__(self) -> None:
        self.values = Values({}, {}, {})
        self.calls = CallFold()
        self.compactions = CompactionFold()

    def take(self, event: Event, *, tracked: bool | None = None) -> None:
        """
        Go on with the next event; whether its calls are *tracked* follows from it, by default.

        Raises:
            InvalidValueError: Its state changes do not fit what is there. Nothing of it is taken.
        """
        self.values.apply(apply_event(self.values, event, shared=False))
        self.calls.take(event, tracked=is_of_a_run(event) if tracked is None else tracked)
        self.compactions.take(event)


class Past:
    """A session at event *at_seq*, from its log up to there and the event that follows."""

    def __init__(self, log: list[Event], at_seq: int) -> None:
        self.events = past = log[: at_seq + 1]
        following = log[at_seq + 1 : at_seq + 2]
        self.newest = past[-1]
        self.cut = cut_invocation(self.newest, following[0] if following else None)
        then = LogFold()
        for event in past:
            then.take(event)
        self.state = then.values.session
        self.open_calls = then.calls.calls
        self.paused = {name: seq for name, seq in then.calls.paused().items() if name != self.cut}
        self.compaction = then.compactions.seq


def check_fork_seq(key: SessionKey, at_seq: int | None, revision: int) -> None:
    """
    Raise unless the session has an event *at_seq*.

    Raises:
        InvalidValueError: It has none.
    """
    if at_seq is not None and at_seq > revision:
        raise InvalidValueError("at_seq", f"expected 0 to {revision}, the last event of {key}, found {at_seq}")


def rewound(past: Iterable[Event], undone: Iterable[Event]) -> CallChanges:
    """
    What undoing events makes of the calls that are open; *past* is what is visible before them.

    What the undone events have not touched stays as it is, whether or not the log names its maker.
    """
    touched: set[str] = set()
    for event in undone:
        touched.update(id_of(call) for call in event.get_function_calls())
        touched.update(id_of(response) for response in event.get_function_responses())
        touched.update(marks_of(event))
    if not touched:
        return {}
    fold = CallFold()
    for event in past:
        fold.take(event, tracked=is_of_a_run(event))
    before = fold.calls
    gone: CallChanges = dict.fromkeys(sorted(touched - before.keys()))
    return gone | {call_id: call for call_id, call in before.items() if call_id in touched}


def invocation_at(found: Invocation, seq: int, *, waits: bool) -> Invocation:
    """
    What an invocation was when *seq* was the newest event, as far as that is known; *waits*: a call of it waited then.
    """
    was_left = found.end_seq is not None and found.end_seq <= seq
    if was_left and (waits or found.status is not InvocationStatus.PAUSED):  # else a rewind has undone its answer
        return found
    if found.end_seq is None or not waits:
        return attrs.evolve(found, status=InvocationStatus.INTERRUPTED, end_seq=None)
    return attrs.evolve(found, status=InvocationStatus.PAUSED, end_seq=seq)


def rewound_invocation(found: Invocation, target: int, rewind_seq: int, *, waits: bool) -> Invocation:
    """
    What an invocation is once event *rewind_seq* has undone those from *target* on: what it was before them.

    One that has begun in the undone part, and not ended, is cancelled. *waits*: a call of it waited before *target*.
    """
    if found.seq < target:
        return invocation_at(found, target - 1, waits=waits)
    if found.status.has_ended:
        return found
    return attrs.evolve(found, status=InvocationStatus.CANCELLED, end_seq=rewind_seq)
