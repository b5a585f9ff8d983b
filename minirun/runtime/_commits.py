"""
What hooks do not see of an event: how long it took to store it, and what else there was to say by then.

`on_event` is asked before an event is stored. A plugin that measures a run asks to be told afterwards; unless one does,
nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from .._record import Record

if TYPE_CHECKING:
    from ..events import Event
    from ._failure import Failures

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

    __slots__ = ("_began", "_commit", "_turn")

    def __init__(self) -> None:
        self._began = self._turn = trio.current_time()
        self._commit: Commit

    def has_turn(self) -> None:
        """The event is given to the store now."""
        self._turn = trio.current_time()

    def is_stored(self, event: Event, unread: int) -> None:
        """The store has it, as *event*."""
        wait_s, store_s = self._turn - self._began, trio.current_time() - self._turn
        self._commit = Commit(event=event, wait_s=wait_s, store_s=store_s, unread=unread)

    def tell(self, watchers: Iterable[CommitWatcher], failures: Failures) -> None:
        """Tell the *watchers*. What one raises fails the run at its end: the event stays stored."""
        for watcher in watchers:
            try:
                watcher(self._commit)
            except Exception as error:  # an application's function: nothing that it raises may undo the emit
                failures.late.append(error)
