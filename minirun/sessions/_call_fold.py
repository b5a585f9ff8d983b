"""
The calls that a log leaves open, read from its beginning, and which invocations wait because of them.

What a call is, and what one event makes of the calls that are open, stands in `_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..events import Event
from ._calls import CallChanges, OpenCall, Pending, call_changes, take_over

__all__ = ["CallFold", "cut_invocation", "in_order", "waiting_invocations"]


def in_order(calls: Mapping[str, OpenCall]) -> dict[str, OpenCall]:
    """The calls as they stand in the log."""
    return dict(sorted(calls.items(), key=lambda item: (item[1].seq, item[1].place)))


class CallFold:
    """The calls that a log leaves open, read event by event from its beginning."""

    def __init__(self) -> None:
        self._calls: dict[str, OpenCall] = {}
        self._before: list[tuple[int, str, OpenCall | None]] = []  # by which event, which call, and what it was
        self._first_seqs: dict[str, int] = {}

    @property
    def calls(self) -> dict[str, OpenCall]:
        """The open calls, as they stand in the log."""
        return in_order(self._calls)

    def take(self, event: Event, *, tracked: bool) -> CallChanges:
        """Go on with the next event; return what it has changed."""
        assert event.seq is not None
        target = event.actions.rewind_before_seq
        undone: CallChanges = {}
        while target is not None and self._before and self._before[-1][0] >= target:
            _, call_id, before = self._before.pop()
            undone[call_id] = before
        take_over(self._calls, undone)
        changes = call_changes(self._calls, event, tracked=tracked)
        self._before.extend((event.seq, call_id, self._calls.get(call_id)) for call_id in changes)
        take_over(self._calls, changes)
        if event.invocation_id is not None:
            self._first_seqs.setdefault(event.invocation_id, event.seq)
        return undone | changes

    def paused(self) -> dict[str, int]:
        """The invocations that wait for somebody, with the `seq` of the event they began with."""
        return {name: self._first_seqs[name] for name in waiting_invocations(self.calls) if name in self._first_seqs}


def waiting_invocations(calls: Mapping[str, OpenCall]) -> list[str]:
    """The invocations of the calls that wait for somebody outside, in order."""
    return list(dict.fromkeys(call.invocation_id for call in calls.values() if call.pending is Pending.WAITS))


def cut_invocation(newest: Event, following: Event | None) -> str | None:
    """The invocation that was at work between two events of a log, and not waiting, if there is one."""
    if following is None or following.author == "user" or following.invocation_id != newest.invocation_id:
        return None
    return following.invocation_id
