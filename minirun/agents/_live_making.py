"""What a live run keeps of calls until they are answered, and of what the model's side was told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from ..events import Event
from ..types import FunctionCall

if TYPE_CHECKING:
    from ..tools import BaseTool
    from ._live_calls import Calls

__all__ = ["Batch", "Calling", "LiveSide", "Making"]


class LiveSide:
    """A session of the model's side, however many connections carry it on."""

    def __init__(self, history_seq: int) -> None:
        self.history_seq = history_seq
        """How much of the log it was told when it began."""
        self.told: set[str] = set()
        """The ids of the calls that it was sent a response to."""


class Batch(NamedTuple):
    """Calls of one event, and what has come of them."""

    calls: Sequence[FunctionCall]
    side: LiveSide
    """Which session of the model's side has asked for them."""
    answered: Sequence[Event]
    """The events with their responses, among others."""
    waiting: Sequence[FunctionCall] = ()
    """Those that have none yet: somebody is asked."""


class Calling(NamedTuple):
    """The calls of one event."""

    by: Calls
    """Who makes them."""
    made: Event
    side: LiveSide
    """Which session has asked for them."""
    lock: trio.Lock
    """Held by those that are made in order."""


class Making(NamedTuple):
    """A call that is being made."""

    scope: trio.CancelScope
    is_over: trio.Event
    tool: BaseTool
