"""
Calls that are made again because somebody has answered what they have asked: in a live run, and after it.

A conversation cannot be replayed, but one call of it can: it sees the invocation as a later run would, with a record of
what it has asked, done and said before, and with ids that are counted anew. All else is the invocation's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from .._values import changed
from ..events import Event, seq_of
from ..flows._branches import calls_around
from ..flows._record import Record
from ..runtime import InvocationContext
from ..runtime._failure import is_pause
from ..runtime._ids import Ids
from ..runtime._invocation import Invocation
from ..runtime._replay import Replayer
from ..sessions import LiveSession, OpenCall
from ..tools import BaseTool
from ..tools._batch import run_group
from ..tools._call import ToolCall
from ..tools._sequence import run_groups
from ..types import FunctionCall, id_of

__all__ = ["AnsweredInvocation", "Made", "calls_asking", "make"]


class Made(NamedTuple):
    """What has come of calls of one event."""

    answered: Sequence[Event]
    """The events with their responses."""
    waiting: Sequence[FunctionCall]
    """Those that stay open, until somebody has answered."""


async def make(
    context: InvocationContext,
    made: Event,
    calls: Sequence[FunctionCall],
    tools: Mapping[str, BaseTool],
    call_type: Callable[..., ToolCall] = ToolCall,
) -> Made:
    """Make those *calls* of the event *made*, which are counted; what waits has asked by then."""
    try:
        if made.actions.replay.alone:
            event = await run_groups(context, made, calls, tools, call_type)
        else:
            event = await run_group(context, calls, tools, call_type=call_type)
        return Made([event], ())
    except BaseException as error:
        if not is_pause(error):
            raise
    live, ids = context._invocation.live, {call.id for call in calls}
    answered = [
        event
        for event in live.events[live.index_of(seq_of(made)) :]
        if any(response.id in ids for response in event.get_function_responses())
    ]
    return Made(answered, [call for call in calls if call.id in live.open_calls])


def calls_asking(live: LiveSession, asked: Iterable[Event]) -> dict[str, OpenCall]:
    """
    Return the open calls that the questions in the events *asked* have come from, by their ids; the outermost of each.

    The call of a long-running tool asks itself, and is answered with its question: it is not among them.
    """
    found: dict[str, OpenCall] = {}
    for event in asked:
        for call_id in calls_around(event.branch)[:1] or event.actions.suspended_calls:
            if call_id in live.open_calls:
                found[call_id] = live.open_calls[call_id]
    return found


class AnsweredInvocation(Invocation):
    """
    The invocation *of* a conversation as calls see it that are made again.

    Args:
        of: The invocation.
        made: The event that has made the calls.
        answer: The stored event of the user that answers what one of them has asked.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Invocation, made: Event, answer: Event) -> None:
        self._of = of
        self.run_id = id_of(answer)
        self.ids = Ids(of.id)
        self.ids.call_ids = of.ids.call_ids
        self.tool_events = {}
        self.emitter = self.replayer = replayer = _CallReplayer(of, made, answer)
        self.inside = frozenset(replayer.record.inside)


_OWN = {"emitter", "ids", "inside", "replayer", "run_id", "tool_events"}


def _shared(name: str) -> property:
    def get(answered: AnsweredInvocation) -> object:
        return getattr(answered._of, name)

    def put(answered: AnsweredInvocation, value: object) -> None:
        setattr(answered._of, name, value)

    return property(get, put)


for _name in set(Invocation.__slots__) - _OWN:
    setattr(AnsweredInvocation, _name, _shared(_name))


class _CallReplayer(Replayer):
    """The record of calls, in an invocation that goes on beside them: from the event on that has *made* them."""

    __slots__ = ()

    def __init__(self, of: Invocation, made: Event, answer: Event) -> None:
        super().__init__(of.id, of.live, seq_of(made), was_paused=True)
        events = [_as_answer(event) for event in self.record.events]
        self.record = Record(events, of.live.open_calls, was_paused=True)
        self.record.answered_now = {id_of(response) for response in answer.get_function_responses()}


def _as_answer(event: Event) -> Event:
    """*event* as it would be in a run that begins with it: an answer is no withdrawal, though it came from beside."""
    if event.author != "user" or not event.actions.replay.aside:
        return event
    replay = changed(event.actions.replay, aside=None)
    return changed(event, actions=changed(event.actions, replay=replay))
