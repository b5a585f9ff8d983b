"""
Compaction, as the log tells it: an event that says what was said before, in fewer words.

`EventActions.compaction` of such an event covers the events 1 to `end_seq`, always from the session's first event on:
a new summary takes over the one before it. So one summary is in force, that of the newest visible compaction, and every
event is either covered by it or stands after it. Places are `seq`s; no clock takes part. Each compaction names the one
before it: where a rewind undoes the newest, that one is in force again, and is found without reading the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._codec import from_dict, to_dict
from .._json import shown
from ..errors import InvalidEventError, InvalidValueError
from ..events import Event, EventActions, seq_of
from ..types import Content

__all__ = ["Compaction", "CompactionFold", "check_compaction", "compaction_actions"]

_FIELDS = ("start_seq", "end_seq", "previous_seq", "speaker", "compacted_content")


class Compaction(NamedTuple):
    """
    A stored compaction.

    `seq` is that of its event, `end_seq` that of the last event that it covers. `previous_seq` is the `seq` of the
    compaction whose summary it has taken over, 0 if there was none. `speaker` is the agent that would have answered
    after the last covered event; None if there was none.
    """

    seq: int
    end_seq: int
    previous_seq: int
    speaker: str | None
    content: Content

    @classmethod
    def of(cls, event: Event) -> Compaction:
        """
        The compaction that a stored event is.

        Raises:
            InvalidValueError: It is none.
        """
        fields = event.actions.compaction
        if fields is None or event.seq is None or fields.keys() != set(_FIELDS):
            raise InvalidValueError("compaction", f"expected a stored one, found {shown(fields)}")
        content = from_dict(Content, fields["compacted_content"])
        return cls(event.seq, fields["end_seq"], fields["previous_seq"], fields["speaker"], content)


def compaction_actions(
    content: Content, *, end_seq: int, previous: Compaction | None, speaker: str | None
) -> EventActions:
    """The actions of an event that covers everything up to *end_seq*, the summary before it included."""
    fields = {
        "start_seq": 1,
        "end_seq": end_seq,
        "previous_seq": 0 if previous is None else previous.seq,
        "speaker": speaker,
        "compacted_content": to_dict(content),
    }
    return EventActions(compaction=fields)


def check_compaction(event: Event) -> None:
    """
    Raise unless *event*, which has `actions.compaction`, is a compaction as runs store them.

    Raises:
        InvalidEventError: It is not; the message names the field.
    """
    fields = event.actions.compaction
    assert fields is not None
    if event.content is not None or event.actions.rewind_before_seq is not None:
        _refuse("", "an event without content that undoes nothing", "one that does more than cover others")
    if fields.keys() != set(_FIELDS):
        _refuse("", f"the fields {', '.join(_FIELDS)}", ", ".join(fields) or "none")
    _check_number(fields, "start_seq", 1, 1)
    _check_number(fields, "end_seq", 1, None if event.seq is None else event.seq - 1)
    _check_number(fields, "previous_seq", 0, None if event.seq is None else event.seq - 1)
    if not isinstance(fields["speaker"], str | None):
        _refuse(".speaker", "the name of an agent, or None", shown(fields["speaker"]))
    try:
        content = from_dict(Content, fields["compacted_content"])
    except InvalidValueError as error:
        msg = f"compaction.compacted_content: expected a content, as JSON: {error}"
        raise InvalidEventError(msg) from None
    if not content.text.strip() or any(part.text is None for part in content.parts):
        _refuse(".compacted_content", "a content of texts, not blank", shown(fields["compacted_content"]))


def _check_number(fields: Mapping[str, Any], name: str, least: int, most: int | None) -> None:
    value = fields[name]
    if type(value) is not int or value < least or (most is not None and value > most):
        expected = f"{least}" if most == least else f"a seq from {least} up" + (f" to {most}" if most else "")
        _refuse(f".{name}", expected, shown(value))


def _refuse(where: str, expected: str, found: str) -> None:
    msg = f"compaction{where}: expected {expected}, found {found}"
    raise InvalidEventError(msg)


class CompactionFold:
    """Which compaction of a log is in force, read event by event from its beginning; what was undone never was."""

    def __init__(self) -> None:
        self._visible: list[Event] = []

    @property
    def newest(self) -> Event | None:
        """The event of the compaction that is in force; None: there is none."""
        return self._visible[-1] if self._visible else None

    @property
    def seq(self) -> int:
        """Its `seq`, or 0."""
        newest = self.newest
        return 0 if newest is None else seq_of(newest)

    def take(self, event: Event) -> None:
        """Go on with the next event."""
        target = event.actions.rewind_before_seq
        while target is not None and self._visible and (self._visible[-1].seq or 0) >= target:
            self._visible.pop()
        if event.actions.compaction is not None:
            self._visible.append(event)

    @classmethod
    def over(cls, events: Iterable[Event]) -> CompactionFold:
        """The fold over a whole log, or over what is visible of it."""
        fold = cls()
        for event in events:
            fold.take(event)
        return fold
