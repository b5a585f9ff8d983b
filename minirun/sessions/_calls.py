"""
Which calls of a session are open, and what they wait for: a fold of its visible history.

A call is open from the event that makes it to the first response of its id. While it is open, events may mark it:
`Event.long_running_tool_ids` says that it waits for somebody outside (a person's answer, a clock),
`EventActions.suspended_calls` that it stays open until something else was answered. The last mark counts. What a
rewind undoes has never been: calls made there are gone, calls answered or marked there are what they were before. The
event in which a model calls a long-running tool names the call, too (`Replay.at_work`); it only waits once the tool has
begun the work, and an event after it has said so.

Calls count where the service knows that a run has made them, marks in every event that names an invocation. The same
is told twice: `_call_fold` reads a log from its beginning, `call_changes` and `rewound` say what one event changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import attrs

from .._record import Record
from ..events import Event, seq_of
from ..types import id_of

__all__ = ["CallChanges", "OpenCall", "Pending", "call_changes", "is_of_a_run", "marks_of", "take_over"]


class Pending(StrEnum):
    """Whether an open call has been put off on purpose, and for what."""

    NO = ""
    """It has not: its tool is at work, or was when its process died."""
    WAITS = "waits"
    """For somebody outside: a person's answer, or a time."""
    SUSPENDED = "suspended"
    """Until something else that waits was answered."""


@attrs.frozen(eq=False, repr=False)
class OpenCall(Record):
    """
    A stored function call that has no response yet.

    `place` is where it stands among the calls of its event, `pending_seq` the `seq` of the event that has said what it
    is `pending` for; 0 if none has.
    """

    call_id: str
    name: str
    seq: int
    invocation_id: str
    author: str
    branch: str | None
    place: int = 0
    pending: Pending = Pending.NO
    pending_seq: int = 0


CallChanges: TypeAlias = dict[str, OpenCall | None]
"""What becomes of calls, by their ids; None: not open any more."""


def is_of_a_run(event: Event) -> bool:
    """Whether a stored event was said in a run, as far as one can tell from the log: then its calls need answers."""
    return event.invocation_id is not None


def marks_of(event: Event) -> dict[str, Pending]:
    """The calls that the event says are put off, in an order that is the same each time."""
    if not event.long_running_tool_ids and not event.actions.suspended_calls:
        return {}
    marks = dict.fromkeys(event.actions.suspended_calls, Pending.SUSPENDED)
    if event.actions.replay.at_work:
        return marks
    return marks | dict.fromkeys(sorted(event.long_running_tool_ids or ()), Pending.WAITS)


def call_changes(calls: Mapping[str, OpenCall], event: Event, *, tracked: bool) -> CallChanges:
    """
    What storing *event* makes of the calls that are open; what it undoes is not looked at.

    The calls of *tracked* events are open from now on.
    """
    changes: CallChanges = {}
    made, answers = event.content.calls_and_responses if event.content is not None else ((), ())
    if not (made or answers or event.actions.suspended_calls or event.long_running_tool_ids):
        return changes
    if tracked:
        for place, call in enumerate(made):
            said_by = event.invocation_id or "", event.author or "", event.branch
            changes[id_of(call)] = OpenCall(id_of(call), call.name, seq_of(event), *said_by, place)
    if is_of_a_run(event):
        for call_id, pending in marks_of(event).items():
            found = changes.get(call_id) or calls.get(call_id)
            if found is not None:
                changes[call_id] = attrs.evolve(found, pending=pending, pending_seq=seq_of(event))
    for response in answers:
        changes[id_of(response)] = None
    return changes


def take_over(calls: dict[str, OpenCall], changes: Mapping[str, OpenCall | None]) -> None:
    """Let *changes* become true, in place."""
    for call_id, call in changes.items():
        if call is None:
            calls.pop(call_id, None)
        else:
            calls[call_id] = call
