"""What an agent may be shown less of: functions for `include_contents=` and `transfer_input_filter=`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from .._json import FrozenTuple, brief, is_count
from .._values import changed
from ..errors import ConfigurationError
from ..events import Event

if TYPE_CHECKING:
    from ..runtime import ReadonlyContext

__all__ = ["EventFilter", "keep_last", "remove_all_tools"]

EventFilter: TypeAlias = "Callable[[ReadonlyContext, list[Event]], Iterable[Event]]"
"""Of the events that an agent would be shown, returns those that it is shown."""


def remove_all_tools(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
    """Leave out calls of tools and their responses: `LlmAgent(transfer_input_filter=remove_all_tools)`."""
    kept = []
    for event in events:
        if event.content is not None and (event.get_function_calls() or event.get_function_responses()):
            said = [part for part in event.content.parts if not (part.function_call or part.function_response)]
            if not said:
                continue
            event = changed(event, content=changed(event.content, parts=FrozenTuple(said)))
        kept.append(event)
    return kept


def keep_last(number: int) -> EventFilter:
    """
    Keep the last *number* events that the agent would be shown: `LlmAgent(include_contents=keep_last(20))`.

    Raises:
        ConfigurationError: It is no number from 1 up.
    """
    if not is_count(number, 1):
        raise ConfigurationError(f"expected keep_last to get an integer from 1 up, found {brief(number)}")

    def kept(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        return events[-number:]

    return kept
