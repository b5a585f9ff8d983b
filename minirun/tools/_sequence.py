"""
The calls of a turn in which some are made alone: after all those before them, and before all those after them.

They are made in groups, one after the other. Each group is answered before the next one begins, so a call sees what
those before it have written, and what a call has come to is stored when the next one is made. Which calls are made
alone was stored with the calls (`Replay.alone`), so that a run that resumes the invocation finds the same groups: a
call of a later group has not begun before those of the earlier ones are answered. Where one of these waits, the later
ones wait with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from .._values import changed
from .._window import Window
from ..errors import MinirunError
from ..events import Event, seq_of
from ..flows._actions import over_turn
from ..runtime import InvocationContext
from ..runtime._closing import close_calls
from ..types import Content, FunctionCall, id_of
from ._base import BaseTool
from ._batch import run_group
from ._call import ToolCall

__all__ = ["run_groups", "run_in_order"]


async def run_in_order(
    context: InvocationContext, made: Event, calls: Sequence[FunctionCall], tools: Mapping[str, BaseTool]
) -> Event:
    """
    Run *calls*, those of the event *made* that have no response yet; return all responses of the turn, as one event.

    The event is not stored in this form: the groups are answered by events of their own.

    Raises:
        Pause: Some wait. What comes before them is answered, what comes after them has not begun.
        FatalError: A tool has met a limit of the run. The calls are answered all the same.
    """
    context._invocation.budgets.spend("max_tool_calls", len(calls))
    return await run_groups(context, made, calls, tools)


async def run_groups(
    context: InvocationContext,
    made: Event,
    calls: Sequence[FunctionCall],
    tools: Mapping[str, BaseTool],
    call_type: Callable[..., ToolCall] = ToolCall,
) -> Event:
    """As `run_in_order`, for calls that are counted."""
    groups, is_open = _groups(made), {call.id for call in calls}
    in_order, begun = [call for group in groups for call in group], 0
    _note_not_begun(context, groups)
    answers = _answers_before(context, made)
    for group in groups:
        begun += len(group)
        rest, later = [call for call in group if call.id in is_open], Window(in_order, begun)
        if not rest:
            continue
        try:
            answers.append(await run_group(context, rest, tools, later, call_type))
        except BaseException:
            await _give_up(context, rest, later)
            raise
    return _as_one(answers)


def _groups(made: Event) -> list[list[FunctionCall]]:
    """The calls of an event, those together that are made beside each other."""
    groups: list[list[FunctionCall]] = []
    alone, was_alone = set(made.actions.replay.alone), True
    for call in made.get_function_calls():
        is_alone = call.id in alone
        if is_alone or was_alone:
            groups.append([])
        groups[-1].append(call)
        was_alone = is_alone
    return groups


def _note_not_begun(context: InvocationContext, groups: Sequence[Sequence[FunctionCall]]) -> None:
    """Tell the record which calls no earlier run can have begun: those after a call that was open when it ended."""
    if context._invocation.replayer is None:
        return
    record, is_later = context._invocation.replayer.record, False
    for group in groups:
        ids = {id_of(call) for call in group}
        if is_later:
            record.open_before -= ids
        is_later = is_later or not (ids.isdisjoint(record.open_before) and ids.isdisjoint(record.answered_now))


def _answers_before(context: InvocationContext, made: Event) -> list[Event]:
    """The events that have answered calls of the turn in earlier runs, or with this run's message, in order."""
    if context._invocation.replayer is None:
        return []
    responses = context._invocation.replayer.record.responses
    found = (responses.get(id_of(call)) for call in made.get_function_calls())
    return [event for _, event in sorted({seq_of(event): event for event in found if event is not None}.items())]


async def _give_up(context: InvocationContext, stopped: Sequence[FunctionCall], later: Sequence[FunctionCall]) -> None:
    """Answer the calls *later*, which do not begin any more, unless one of those that were *stopped* waits."""
    calls = context._invocation.live.open_calls
    if not any(call.id in calls for call in stopped):
        with suppress(MinirunError):  # the store fails: the end of the run tries again and reports it
            await close_calls(context, [calls[id_of(call)] for call in later if call.id in calls])


def _as_one(answers: Sequence[Event]) -> Event:
    """All that was answered, as if by one event; it takes the place of the model's answer if each of them does."""
    parts = [part for event in answers if event.content for part in event.content.parts if part.function_response]
    last, flags = answers[-1], over_turn([event.actions for event in answers])
    return changed(
        last,
        content=Content(role="user", parts=parts),
        actions=changed(last.actions, **flags),
    )
