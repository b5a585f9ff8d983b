"""What an event that calls tools says of them: which calls will wait for somebody outside, and which are made alone."""

from __future__ import annotations

from collections.abc import Mapping

from .._json import FrozenTuple
from .._values import changed
from ..events import Event
from ..flows._turn import CUT_OFF
from ..runtime._emit import with_call_ids
from ..tools import BaseTool
from ..types import id_of

__all__ = ["with_notes"]


def with_notes(event: Event, tools: Mapping[str, BaseTool], *, parallel: bool) -> Event:
    """
    Return a model's *event* with the ids of its calls, and what its *tools* make of them.

    Unless the calls are made in *parallel*, each is made alone.
    """
    assert event.content is not None, "it has calls"
    assert event.id is not None, "the ids of calls follow from it"
    content = with_call_ids(event.content, event.id)
    made = {} if event.finish_reason == CUT_OFF else tools  # what is not made does not wait
    calls = [(id_of(call), made.get(call.name) if call.args_text is None else None) for call in content.calls]
    waiting = [call_id for call_id, tool in calls if tool is not None and tool.is_long_running]
    alone = [call_id for call_id, tool in calls if not parallel or (tool is not None and tool.sequential)]
    replay = event.actions.replay
    if waiting:
        event, replay = changed(event, long_running_tool_ids=frozenset(waiting)), changed(replay, at_work=True)
    if alone and len(calls) > 1:
        replay = changed(replay, alone=FrozenTuple(alone))
    return changed(event, content=content, actions=changed(event.actions, replay=replay))
