"""Whether events that somebody brings are what `read_events` returned for a whole session: what an import checks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ..._fields import is_list
from ..._json import shown
from ...errors import InvalidValueError
from ...events import Event
from .._compactions import Compaction, CompactionFold
from .._event_checks import checked_event
from .._event_references import check_time

__all__ = ["check_history"]


def check_history(given: Iterable[Event]) -> list[Event]:
    """
    Return these events if they are a session's whole log: its creation record first, without a gap, each one storable.

    Raises:
        InvalidValueError, InvalidEventError, NotSupportedError: They are not; the message says which one, and why.
    """
    if not is_list(given):
        raise InvalidValueError("events", f"expected a list of events, found {shown(given)}")
    events = list(given)
    if not events:
        raise InvalidValueError("events", "expected the creation record (seq 0) at least, found none")
    visible: list[int] = []  # what was not undone: a summary may end there, and a rewind go back to it
    compactions = CompactionFold()
    for seq, event in enumerate(events):
        path = f"events[{seq}]"
        if not isinstance(event, Event):
            raise InvalidValueError(path, f"expected an Event, found {shown(event)}")
        if event.seq != seq:
            raise InvalidValueError(f"{path}.seq", f"expected {seq}, found {event.seq}; a history has no gaps")
        if event.timestamp is None or not event.id:
            raise InvalidValueError(path, "expected a stored event, found one without id or timestamp")
        check_time(event.timestamp, f"{path}.timestamp")
        if checked_event(event, history=True) is not event:
            raise InvalidValueError(path, "expected a stored event, found `temp:` keys in it, which are never stored")
        if event.actions.compaction is not None:
            _check_order(event, compactions, visible, path)
        compactions.take(event)
        target = event.actions.rewind_before_seq
        if target is not None:
            place = bisect_left(visible, target)
            known = target > 0 and target in visible[place : place + 1]
            if not known or events[target].actions.rewind_before_seq is not None:
                problem = f"expected the seq of an event before it that was not undone, and no rewind, found {target}"
                raise InvalidValueError(f"{path}.actions.rewind_before_seq", problem)
            del visible[place:]
        visible.append(seq)  # a rewind stands in the history, too, in the place of what it has undone
    if events[0].content is not None:
        raise InvalidValueError("events[0]", "expected the creation record, which has no content")
    return events


def _check_order(event: Event, compactions: CompactionFold, visible: Sequence[int], path: str) -> None:
    """Raise unless the compaction goes on where the one before it ends; *visible* are the events before it."""
    found, newest = Compaction.of(event), compactions.newest
    if found.previous_seq != compactions.seq:
        problem = f"expected {compactions.seq}, the compaction before it, found {found.previous_seq}"
        raise InvalidValueError(f"{path}.actions.compaction.previous_seq", problem)
    last = 0 if newest is None else Compaction.of(newest).end_seq
    place = bisect_left(visible, found.end_seq)
    if found.end_seq <= last or found.end_seq not in visible[place : place + 1]:
        problem = f"expected the seq of an event beyond {last} that was not undone, found {found.end_seq}"
        raise InvalidValueError(f"{path}.actions.compaction.end_seq", problem)
