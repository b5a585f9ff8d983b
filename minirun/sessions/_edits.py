"""What an event that undoes others, or sums them up, makes of a live session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import Event
from ._call_fold import in_order
from ._compactions import Compaction, CompactionFold

if TYPE_CHECKING:
    from ._live import LiveSession

__all__ = ["edit_history"]


def edit_history(live: LiveSession, event: Event) -> None:
    """Take out what the event undoes, and learn which compaction is in force after it."""
    target = event.actions.rewind_before_seq
    if target is not None:
        live.events = live.events[: live.index_of(target)]  # others hold the list as it was
        live.first_seq = min(live.first_seq, target)
        live.call_ids = {call.id for visible in live.events for call in visible.get_function_calls()}
        live.memo = {}
        live.open_calls = in_order(live.open_calls)
        if live.compaction is not None and live.compaction.seq >= target:
            before = CompactionFold.over(live.events).newest  # a store that has not loaded it knows better
            live.compaction = None if before is None else Compaction.of(before)
    if event.actions.compaction is not None:
        live.compaction = Compaction.of(event)
