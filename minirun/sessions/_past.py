"""What a session was at one of its events, as its log says: what a fork begins with."""

from __future__ import annotations

from ..errors import InvalidValueError
from ..events import Event
from ._calls import CallFold, cut_invocation, is_of_a_run
from ._compactions import CompactionFold
from ._fold import fold
from ._key import SessionKey
from ._state import Values

__all__ = ["Past", "check_fork_seq"]


class Past:
    """A session at event *at_seq*, from its log up to there and the event that follows."""

    def __init__(self, log: list[Event], at_seq: int) -> None:
        self.events = past = log[: at_seq + 1]
        following = log[at_seq + 1 : at_seq + 2]
        self.newest = past[-1]
        self.state = fold(Values({}, {}, {}), past, shared=False).session
        self.cut = cut_invocation(self.newest, following[0] if following else None)
        calls = CallFold()
        for event in past[1:]:
            calls.take(event, tracked=is_of_a_run(event))
        self.open_calls = calls.calls
        self.paused = {name: seq for name, seq in calls.paused().items() if name != self.cut}
        self.compaction = CompactionFold.over(past).seq


def check_fork_seq(key: SessionKey, at_seq: int | None, revision: int) -> None:
    """
    Raise unless the session has an event *at_seq*.

    Raises:
        InvalidValueError: It has none.
    """
    if at_seq is not None and at_seq > revision:
        raise InvalidValueError("at_seq", f"expected 0 to {revision}, the last event of {key}, found {at_seq}")
