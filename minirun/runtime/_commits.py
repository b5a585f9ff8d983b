"""
What hooks do not see of an event: how long it took to store it, and what else there was to say by then.

`on_event` is asked before an event is stored. Whoever measures a run asks to be told afterwards; unless somebody does,
nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from .._record import Record

if TYPE_CHECKING:
    from ..events import Event

__all__ = ["Commit", "CommitTimer", "CommitWatcher"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Commit(Record):
    """One event that an agent, a tool or a hook has emitted, and that is stored."""

    event: Event
    """As it is stored, with its `seq` and its `state_conflicts`."""
    wait_s: float
    """From `emit` until it was the event's turn: what its `on_event` hooks took, and the caller, and other emitters."""
    store_s: float
    """From there until the store had it."""
    unread: int
    """How many events the caller of the run had not read by then, without this one."""


CommitWatcher: TypeAlias = Callable[[Commit], None]


class CommitTimer:
    """The clock of one event, in seconds of trio's clock."""

    __slots__ = ("_began", "_stored", "_turn", "_unread")

    def __init__(self) -> None:
        self._began = self._turn = self._stored = trio.current_time()
        self._unread = 0

    def has_turn(self) -> None:
        """The event is given to the store now."""
        self._turn = trio.current_time()

    def is_stored(self, unread: int) -> None:
        """The store has it."""
        self._stored, self._unread = trio.current_time(), unread

    def commit(self, event: Event) -> Commit:
        """What it has measured, for the stored *event*."""
        wait_s, store_s = self._turn - self._began, self._stored - self._turn
        return Commit(event=event, wait_s=wait_s, store_s=store_s, unread=self._unread)
