"""
What an agent is shown that chooses for itself: `include_contents=f`, `transfer_input_filter=f`.

The choice is made anew for each question to the model, from the events that the agent would be shown otherwise. However
events are left out or changed, a call is shown only with its response, and a response only with its call: providers
refuse everything else.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .._json import FrozenTuple, brief
from .._values import changed
from ..errors import InvalidValueError
from ..events import Event
from ..flows._branches import is_visible
from ..flows._hidden import without_hidden
from ..flows._retold import handed_input
from ..flows._transcript import Transcript
from ..runtime import CallbackContext, InvocationContext
from ..types import Content, Part

if TYPE_CHECKING:
    from ..flows._filters import EventFilter
    from ._llm import LlmAgent

__all__ = ["choose"]


def choose(
    agent: LlmAgent, ctx: InvocationContext | CallbackContext, events: Sequence[Event], transcript: Transcript
) -> Transcript:
    """
    Let *transcript* read what *agent* is to be shown of *events*, and return it.

    Raises:
        InvalidValueError: What has chosen has returned something else than events.
    """
    told = without_hidden(events)
    shown = [event for event in told if event.content is not None and is_visible(event.branch, ctx.branch)]
    answered = {item.id for event in shown for item in event.get_function_responses()}
    if agent.transfer_input_filter is not None:
        handed = [index for index, event in enumerate(shown) if event.actions.transfer_to_agent == agent.name]
        if handed:
            before, since = shown[: handed[-1] + 1], shown[handed[-1] + 1 :]
            kept = _chosen(agent.transfer_input_filter, "transfer_input_filter", ctx, before)
            given = None if any(handed_input(event, agent.name) for event in kept) else before[-1]
            given_part = None if given is None else handed_input(given, agent.name)
            if given_part is not None:  # what it was given is no part of what was before
                kept.append(Event(author=agent.name, seq=0, content=Content(role="user", parts=[given_part])))
            shown = [*kept, *since]
    if callable(agent.include_contents):
        shown = _chosen(agent.include_contents, "include_contents", ctx, shown)
    transcript.read(_paired(shown, answered))
    return transcript


def _chosen(
    choice: EventFilter, name: str, ctx: InvocationContext | CallbackContext, events: list[Event]
) -> list[Event]:
    found = choice(ctx._readonly(), list(events))
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise InvalidValueError(name, "expected a function that is not `async`, found one that is")
    kept = list(found) if isinstance(found, Iterable) else [found]
    for event in kept:
        if not isinstance(event, Event):
            raise InvalidValueError(name, f"expected a list of events, found {brief(event)} in it")
    return kept


def _paired(events: Sequence[Event], answered: set[str | None]) -> list[Event]:
    """
    Return the events without calls that stand there twice, or whose response was left out or stands before them.

    What was *answered* in the log needs its response; a call that is open is shown as that. A response without its call
    is not shown anyway.
    """
    calls: set[str | None] = set()
    paired: set[str | None] = set()
    once = []
    for event in events:
        again = {call.id for call in event.get_function_calls()} & calls
        once.append(_without(event, again) if again else event)
        calls |= {call.id for call in event.get_function_calls()}
        paired |= {item.id for item in event.get_function_responses()} & calls
    lost = (answered & calls) - paired
    found = [_without(event, lost) for event in once] if lost else once
    return [event if event.seq is not None else changed(event, seq=0) for event in found if event.content is not None]


def _without(event: Event, lost: set[str | None]) -> Event:
    if event.content is None or not any(call.id in lost for call in event.get_function_calls()):
        return event
    parts = [part for part in event.content.parts if not _is_one_of(part, lost)]
    return changed(event, content=Content(role=event.content.role, parts=FrozenTuple(parts)) if parts else None)


def _is_one_of(part: Part, calls: set[str | None]) -> bool:
    return part.function_call is not None and part.function_call.id in calls
