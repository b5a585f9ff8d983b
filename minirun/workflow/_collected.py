"""
What a run of a node has yielded and returned, item by item, and what is to be done with each.

What an item is:

    None                            nothing; a run that gives nothing else has the output None
    an Event                        said as it comes
    an Event with output or route   kept: the outcome of the run says it
    a RequestInput                  a question
    anything else                   the output

* A run has one output at most. A second one is refused before anything of it is stored. Of routes, the last one counts.
* The outcome is the last event of a run, so that what it says is stored together with the output, or not at all. Where
  something else is said after an event that was kept, that event's words and state are said first, as an event of their
  own: what a run says keeps its order.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, TypeAlias

import attrs

from .._json import JSON, FrozenList, brief
from .._values import changed
from ..errors import WorkflowError
from ..events import NO_ACTIONS, Event, EventActions
from ._binding import Binding
from ._request_input import RequestInput

__all__ = ["Collected", "Deed"]

Deed: TypeAlias = tuple[Literal["emit"], Event] | tuple[Literal["ask"], RequestInput]


@attrs.define(eq=False)
class Collected:
    """
    The items of one attempt of a run, in order. It does nothing by itself.

        collected = Collected(binding)
        for item in items:
            for deed in collected.add(item): ...
        outcome = collected.output, collected.route, collected.event
    """

    binding: Binding
    """That of the node: it writes the output."""

    output: JSON = attrs.field(default=None, init=False)
    """The output as frozen JSON."""

    route: bool | int | str | tuple[bool | int | str, ...] | None = attrs.field(default=None, init=False)
    """The last route."""

    event: Event | None = attrs.field(default=None, init=False)
    """What the outcome says besides the output and the route: an event without these two. None: nothing."""

    _has_value: bool = attrs.field(default=False, init=False)

    @property
    def has_output(self) -> bool:
        """Whether the run gives an output, if only None. One that ends with a route alone does not."""
        return self._has_value or self.route is None

    def add(self, item: object) -> tuple[Deed, ...]:
        """
        Take the next item that the run has yielded, or what it has returned.

        Returns:
            What to do now, in this order: emit events, ask a question. Often nothing.

        Raises:
            WorkflowError: It is a second output, or a partial event has an output or a route. Nothing has changed.
            InvalidValueError: An output is no JSON, or does not fit `output_schema`. Nothing has changed.
        """
        if item is None:
            return ()
        if isinstance(item, RequestInput):
            return (*self._release(), ("ask", item))
        if not isinstance(item, Event):
            self._put_output(item)
            return ()
        route = item.actions.route
        if item.output is None and route is None:
            return (*self._release(), ("emit", item))
        if item.partial:
            msg = f"node {self.binding.name!r} gave an output or a route in a partial event, which is not stored"
            raise WorkflowError(f"{msg}; yield it in an event that is not partial")
        if item.output is not None:
            self._put_output(item.output)
        if route is not None:
            self.route = tuple(route) if isinstance(route, FrozenList) else route
        if not _says_something(item):
            return ()
        deeds = self._release()
        actions = item.actions if route is None else changed(item.actions, route=None)
        self.event = changed(item, output=None, actions=actions)
        return deeds

    def set_output(self, value: object) -> None:
        """
        Take the output: what `ctx.output = value` does.

        Raises:
            WorkflowError, InvalidValueError: As for `add`.
        """
        if value is not None:
            self._put_output(value)

    def set_route(self, value: object) -> None:
        """
        Take a route: what `ctx.route = value` does. None takes the last one back.

        Raises:
            InvalidValueError: It cannot be one.
        """
        if value is None:
            self.route = None
        else:
            self.add(Event(route=value))

    def _release(self) -> tuple[Deed, ...]:
        """Say now what was kept for the outcome."""
        event, self.event = self.event, None
        return () if event is None else (("emit", event),)

    def _put_output(self, value: object) -> None:
        output = self.binding.written(value)
        if self._has_value:
            found = f"{brief(output, 60)} after {brief(self.output, 60)}"
            advice = "yield what is only said as `Event(message=...)`, and several values as one list"
            msg = f"node {self.binding.name!r}: expected one output at most, found a second, {found}; {advice}"
            raise WorkflowError(msg)
        self.output, self._has_value = output, True


_without_route = attrgetter(*(field.name for field in attrs.fields(EventActions) if field.name != "route"))
_NOTHING_ELSE = _without_route(NO_ACTIONS)


def _says_something(event: Event) -> bool:
    """Whether an event says anything besides its output and its route."""
    said = (event.content, event.error_code, event.error_message, event.custom_metadata, event.usage_metadata)
    return any(each is not None for each in said) or _without_route(event.actions) != _NOTHING_ELSE
