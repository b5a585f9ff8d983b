"""
What a fork begins with.

The past of another session is shared, and copied are only the rows that are derived from it: state and open calls. At
the newest event these are the rows of the other session; at an event of the past they are the fold of the log up to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ..._json import dumps
from ...events import Event
from .._calls import CallFold, cut_invocation, is_of_a_run
from .._compactions import CompactionFold
from .._fold import fold
from .._state import Values
from ._schema import read_open_calls, write_call

__all__ = ["Past", "copy_rows", "write_past"]


class Past:
    """What a session was at one of its events, from its log up to there and the event that follows."""

    def __init__(self, events: Sequence[Event], at_seq: int) -> None:
        self.events = past = events[: at_seq + 1]
        following = events[at_seq + 1 :]
        self.newest = past[-1]
        self.state = fold(Values({}, {}, {}), past, shared=False).session
        self.cut = cut_invocation(self.newest, following[0] if following else None)
        calls = CallFold()
        for event in past[1:]:
            calls.take(event, tracked=is_of_a_run(event))
        self.open_calls = calls.calls
        self.paused = {name: seq for name, seq in calls.paused().items() if name != self.cut}
        self.compaction = CompactionFold.over(past).seq


def copy_rows(db: sqlite3.Connection, source: int, fork: int, number: int) -> None:
    """Give a fork the state and the open calls that its source has now, when *number* is the newest event."""
    db.execute("INSERT INTO session_state SELECT ?, key, value FROM session_state WHERE session = ?", (fork, source))
    for call in read_open_calls(db, source).values():
        write_call(db, fork, call, number)


def write_past(db: sqlite3.Connection, fork: int, past: Past, number: int) -> None:
    """Give it those that its source had once."""
    for name, value in past.state.items():
        db.execute("INSERT INTO session_state VALUES (?, ?, ?)", (fork, name, dumps(value)))
    for call in past.open_calls.values():
        write_call(db, fork, call, number)
