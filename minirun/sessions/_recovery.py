"""
Closing what a dead run has left open.

Before a run enters a session it answers every call that an earlier run stored and never answered, because its process
or the store had failed: nobody knows whether the tool did its work, and the answer says just that (promise P6). What
is open is read from rows, so this costs what is open, not what is stored. Doing it twice appends nothing the second
time, and a death in the middle leaves less to do. What waits for somebody, deliberately, is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from ..env import derived_id
from ..events import Event, EventActions, Replay
from ..flows._branches import calls_around
from ..types import Content, FunctionResponse, Part
from ._calls import OpenCall
from ._invocation import InvocationStatus
from ._store import SessionWriter

__all__ = [
    "INTERRUPTED_MESSAGE", "around_waiting", "by_event", "closing_event", "closing_event_at_end", "failure_response",
    "recover",
]

INTERRUPTED_MESSAGE = "the run ended before the result was recorded; the call may or may not have taken effect"


def failure_response(kind: str, message: str) -> dict[str, object]:
    """What a call that gave no result is answered with: every failure has this one shape."""
    return {"error": {"type": kind, "message": message}}


def closing_event(calls: Sequence[OpenCall], kind: str, message: str) -> Event:
    """One event that answers *calls*, which stand in one event, in their order."""
    first = calls[0]
    parts = [
        Part(function_response=FunctionResponse(id=c.call_id, name=c.name, response=failure_response(kind, message)))
        for c in calls
    ]
    return Event(
        id=derived_id(first.invocation_id, "closing", *(f"{call.call_id} {call.seq}" for call in calls)),
        invocation_id=first.invocation_id or None,
        author=first.author,
        branch=first.branch,
        content=Content(role="user", parts=parts),
        actions=EventActions(replay=Replay(aside=True)),
    )


def closing_event_at_end(calls: Sequence[OpenCall], unrecorded: Collection[str | None]) -> Event:
    """One event that answers *calls* of a run that ends; of the *unrecorded* nobody can say what came of them."""
    if any(call.call_id in unrecorded for call in calls):
        return closing_event(calls, "outcome_unknown", INTERRUPTED_MESSAGE)
    return closing_event(calls, "cancelled", "the run ended before the call gave a result")


def by_event(calls: Iterable[OpenCall]) -> list[list[OpenCall]]:
    """
    Open calls, those of one event together: what is inside of a call before that call, and questions before what asks.

    So there is no moment at which a question is open, and what has asked it is not.
    """
    return [list(group) for _, group in groupby(sorted(calls, key=_place), key=_place)]


def _place(call: OpenCall) -> tuple[int, bool, int]:
    return -(call.branch or "").count("@"), call.pending != "waits", call.seq


def around_waiting(calls: Iterable[OpenCall]) -> set[str]:
    """The ids of the calls that have something inside that waits."""
    return {call_id for call in calls if call.pending == "waits" for call_id in calls_around(call.branch)}


async def _dead_live_runs(writer: SessionWriter, resumed: str | None) -> set[str]:
    """
    The live runs that have died with open requests. A live run is not resumed, so no reply can reach these.

    A live run that ends closes its requests, so an invocation that is paused is none: the log is read for few others.
    """
    found: set[str] = set()
    for invocation_id in {call.invocation_id for call in writer.live.open_calls.values() if call.pending} - {resumed}:
        invocation = await writer.service.load_invocation(writer.live.key, invocation_id)
        if invocation is not None and invocation.status is not InvocationStatus.PAUSED:
            events = await writer.service.load_events(writer.live.key, invocation.seq - 1, 1)
            if events and events[0].live is not None:
                found.add(invocation_id)
    return found


def left_open(writer: SessionWriter, resumed: str | None, dead: Collection[str] = ()) -> list[OpenCall]:
    """
    The calls of dead runs that nobody will answer any more: of the *dead* live runs all, requests included.

    What waits is left alone, and so is what is suspended as long as something of its invocation waits, or what has
    something inside that waits, although nobody came to say so; and all of the invocation that is being *resumed*,
    which settles its calls itself.
    """
    calls = writer.live.open_calls.values()
    waiting = [call for call in calls if call.pending == "waits" and call.invocation_id not in dead]
    invocations = {call.invocation_id for call in waiting}
    around = around_waiting(waiting)
    return [
        call
        for call in calls
        if call.invocation_id != resumed
        and call.call_id not in around
        and (
            not call.pending
            or call.invocation_id in dead
            or (call.pending == "suspended" and call.invocation_id not in invocations)
        )
    ]


async def recover(writer: SessionWriter, resumed: str | None = None) -> None:
    """
    Answer the calls that dead runs have left open, except those of the invocation that is being *resumed*; and store
    the messages that were sent to them, and that they have not taken.

    Raises:
        StaleSessionError, StorageError: See `SessionWriter.append`; what was answered until then is stored.
    """
    for calls in by_event(left_open(writer, resumed, await _dead_live_runs(writer, resumed))):
        await writer.append(closing_event(calls, "outcome_unknown", INTERRUPTED_MESSAGE))
    if writer.live.has_messages:
        from ._messages import take_over_messages  # few sessions have any

        await take_over_messages(writer, resumed)
