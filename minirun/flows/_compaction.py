"""
Which events a summary is to cover, and when there is to be one.

A summary covers a beginning of what stands after the one before it. It never ends inside of an open call: what it
covers has the responses to its calls, and the calls to its responses. And it never reaches an invocation that somebody
may still go on with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from .._json import dumps
from ..events import Event
from ..types import Part
from ._questions import QUESTIONS

__all__ = ["Settings", "Tail", "covered", "is_due", "is_told", "size_of", "told"]

# Where no model has said how many tokens its prompt had: a rule of thumb for English text.
CHARS_PER_TOKEN = 4


class Settings(Protocol):
    """When to make a summary, and what to leave out of it: an EventsCompactionConfig."""

    @property
    def compaction_interval(self) -> int | None:
        """After so many ended invocations."""

    @property
    def token_threshold(self) -> int | None:
        """From so many tokens of prompt on."""

    @property
    def event_retention_size(self) -> int | None:
        """How many of the last events stay out of a summary that the tokens ask for."""


class Tail:
    """
    What stands after the newest summary, as far as it was read; reading on costs what is new.

    Args:
        start_seq: Where it begins.
        summary_seq: Where the summary's own event stands; 0: there is none.
        summary_chars: How long the summary is.
    """

    __slots__ = ("_chars", "_reported", "_summary_seq", "invocations", "next_seq", "start_seq")

    def __init__(self, start_seq: int, summary_seq: int, summary_chars: int) -> None:
        self.start_seq = self.next_seq = start_seq
        self.invocations: dict[str, None] = {}
        """Those that have said something in it."""
        self._summary_seq = summary_seq
        self._chars = summary_chars
        self._reported: int | None = None

    def read(self, events: Iterable[Event]) -> None:
        """Take over the events that follow."""
        for event in events:
            assert event.seq is not None
            self.next_seq = event.seq + 1
            if event.content is None:
                continue
            if event.invocation_id is not None:
                self.invocations[event.invocation_id] = None
            if is_told(event):
                self._chars += size_of(event)
                usage = event.usage_metadata
                if usage is not None and usage.prompt_token_count is not None and event.seq > self._summary_seq:
                    self._reported = usage.prompt_token_count

    @property
    def tokens(self) -> int:
        """How large a prompt is: what a model has reported last since the summary, or else an estimate."""
        return self._chars // CHARS_PER_TOKEN if self._reported is None else self._reported


def is_due(settings: Settings, tail: Tail, unfinished: Collection[str] = ()) -> bool:
    """Whether there is to be a summary; the *unfinished* invocations do not count."""
    return _asked_by_tokens(settings, tail) or _asked_by_interval(settings, tail, unfinished)


def _asked_by_tokens(settings: Settings, tail: Tail) -> bool:
    return settings.token_threshold is not None and tail.tokens >= settings.token_threshold


def _asked_by_interval(settings: Settings, tail: Tail, unfinished: Collection[str]) -> bool:
    interval = settings.compaction_interval
    return interval is not None and sum(name not in unfinished for name in tail.invocations) >= interval


def covered(settings: Settings, tail: Tail, events: Sequence[Event], unfinished: dict[str, int]) -> int:
    """
    How many of *events*, those after the newest summary, the next one covers; 0: there is none to make now.

    Args:
        settings: What the app has set.
        tail: The same events, as they were read.
        events: In their order.
        unfinished: The `seq`s at which the invocations begin that have not ended.
    """
    limit = min(unfinished.values(), default=None)
    ended = len(events) if limit is None else sum((event.seq or 0) < limit for event in events)
    count = 0
    if _asked_by_tokens(settings, tail):
        count = _closed(events, min(ended, _retained_from(events, settings.event_retention_size or 0)))
    if count == 0 and _asked_by_interval(settings, tail, unfinished):
        count = _closed(events, ended)
    return count if any(is_told(event) for event in events[:count]) else 0


def _retained_from(events: Sequence[Event], size: int) -> int:
    """Where the last *size* events begin that have something to tell."""
    for place in range(len(events), 0, -1):
        if size == 0:
            return place
        size -= is_told(events[place - 1])
    return 0


def _closed(events: Sequence[Event], until: int) -> int:
    """The longest beginning of *events*, not beyond *until*, in which every call has its response."""
    open_calls: set[str | None] = set()
    closed = 0
    for place, event in enumerate(events[:until], 1):
        open_calls.update(call.id for call in event.get_function_calls())
        open_calls.difference_update(response.id for response in event.get_function_responses())
        if not open_calls:
            closed = place
    return closed


# --- what events tell -------------------------------------------------------------------------------------------------


def is_told(event: Event) -> bool:
    """Whether a summary has anything to tell of *event*: what is inside of a call stays there."""
    return event.content is not None and "@" not in (event.branch or "")


def told(event: Event) -> list[str]:
    """What *event* tells, as texts: what was said, which tools were called, and with which results."""
    texts = (_told(part) for part in (event.content.parts if event.content is not None else ()))
    return [f"{event.author}{text}" for text in texts if text]


def _told(part: Part) -> str:
    call = part.function_call or part.function_response
    if call is not None and call.name in QUESTIONS:
        return ""
    if part.function_call is not None:
        return f" called {part.function_call.name} with {dumps(part.function_call.args)}"
    if part.function_response is not None:
        return f" got from {part.function_response.name}: {dumps(part.function_response.response)}"
    if part.text is not None:
        return f": {part.text}" if part.text.strip() and not part.thought else ""
    data = part.inline_data or part.file_data
    return "" if data is None else f" showed a file of type {data.mime_type or 'unknown'}"


def size_of(event: Event) -> int:
    """How long what *event* tells is, in characters."""
    return sum(map(len, told(event)))
