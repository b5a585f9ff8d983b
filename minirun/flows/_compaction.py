"""
Which events a summary is to cover, and when there is to be one.

A summary covers a beginning of what stands after the one before it. It never ends inside of an open call: what it
covers has the responses to its calls, and the calls to its responses. And it never reaches an invocation that somebody
may still go on with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from .._json import dumps
from ..events import Event
from ..types import Part
from ._questions import QUESTIONS
from ._retold import indented

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
    What stands after the newest summary, as far as it was read; reading on costs what is new, and looking nothing.

    Args:
        start_seq: Where it begins.
        summary_seq: Where the summary's own event stands; 0: there is none.
        summary_chars: How long the summary is.
    """

    __slots__ = (
        "_chars",
        "_closed_seqs",
        "_open_calls",
        "_reported",
        "_summary_seq",
        "_told_seqs",
        "declined",
        "invocations",
        "next_seq",
        "start_seq",
    )

    def __init__(self, start_seq: int, summary_seq: int, summary_chars: int) -> None:
        self.start_seq = self.next_seq = start_seq
        self.invocations: dict[str, None] = {}
        """Those that have said something in it."""
        self.declined = 0
        """Of how many events nobody could make a shorter summary, when that was tried last."""
        self._summary_seq = summary_seq
        self._chars = summary_chars
        self._reported: int | None = None
        self._open_calls: set[str | None] = set()
        self._closed_seqs: list[int] = []  # where every call before has its response
        self._told_seqs: list[int] = []  # of what a summary has to tell

    def read(self, events: Iterable[Event]) -> None:
        """Take over the events that follow."""
        for event in events:
            assert event.seq is not None
            self.next_seq = event.seq + 1
            self._open_calls.update(call.id for call in event.get_function_calls())
            self._open_calls.difference_update(response.id for response in event.get_function_responses())
            if not self._open_calls:
                self._closed_seqs.append(event.seq)
            if event.content is None:
                continue
            if event.invocation_id is not None:
                self.invocations[event.invocation_id] = None
            if is_told(event):
                self._told_seqs.append(event.seq)
                self._chars += size_of(event)
                usage = event.usage_metadata
                if usage is not None and usage.prompt_token_count is not None and event.seq > self._summary_seq:
                    self._reported = usage.prompt_token_count

    @property
    def tokens(self) -> int:
        """How large a prompt is: what a model has reported last since the summary, or else an estimate."""
        return self._chars // CHARS_PER_TOKEN if self._reported is None else self._reported

    def retained_seq(self, size: int) -> int:
        """Where the last *size* events begin that have something to tell."""
        if size == 0:
            return self.next_seq
        return self._told_seqs[-size] if size <= len(self._told_seqs) else self.start_seq

    def closed_before(self, seq: int) -> int:
        """The last event before *seq* up to which every call has its response; 0: there is none."""
        place = bisect_left(self._closed_seqs, seq)
        return self._closed_seqs[place - 1] if place else 0

    def told_until(self, seq: int) -> int:
        """How many events up to *seq* have something to tell."""
        return bisect_right(self._told_seqs, seq)


def is_due(settings: Settings, tail: Tail, unfinished: Collection[str] = ()) -> bool:
    """Whether there is to be a summary; the *unfinished* invocations do not count."""
    return _asked_by_tokens(settings, tail) or _asked_by_interval(settings, tail, unfinished)


def _asked_by_tokens(settings: Settings, tail: Tail) -> bool:
    return settings.token_threshold is not None and tail.tokens >= settings.token_threshold


def _asked_by_interval(settings: Settings, tail: Tail, unfinished: Collection[str]) -> bool:
    if settings.compaction_interval is None:
        return False
    ended = len(tail.invocations) - sum(name in tail.invocations for name in unfinished)
    return ended >= settings.compaction_interval


def covered(settings: Settings, tail: Tail, until: int, unfinished: Mapping[str, int]) -> int:
    """
    The last event that the next summary covers; 0: there is none to make now.

    Where the last one that was tried would not have been shorter, the next waits until there is twice as much to tell.

    Args:
        settings: What the app has set.
        tail: What stands after the newest summary.
        until: The event before which it ends.
        unfinished: The `seq`s at which the invocations begin that have not ended: nothing from there on is covered.
    """
    limit = min(until, *unfinished.values()) if unfinished else until
    end = 0
    if _asked_by_tokens(settings, tail):
        end = tail.closed_before(min(limit, tail.retained_seq(settings.event_retention_size or 0)))
    if end == 0 and _asked_by_interval(settings, tail, unfinished):
        end = tail.closed_before(limit)
    return end if tail.told_until(end) >= max(1, 2 * tail.declined) else 0


# --- what events tell -------------------------------------------------------------------------------------------------


def is_told(event: Event) -> bool:
    """Whether a summary has anything to tell of *event*: what is inside of a call stays there."""
    return event.content is not None and "@" not in (event.branch or "")


def told(event: Event) -> list[str]:
    """What *event* tells, as texts: what was said, which tools were called, and with which results; see `indented`."""
    if event.content is None:
        return []
    # what stands in the user's role among the events of an agent, it was told: what its answer lacks, for example
    said = " was told" if event.content.role == "user" and event.author != "user" else ""
    texts = (_told(part, said) for part in event.content.parts)
    author = " ".join((event.author or "").splitlines())
    return [indented(f"{author}{text}") for text in texts if text]


def _told(part: Part, said: str) -> str:
    call = part.function_call or part.function_response
    if call is not None and call.name in QUESTIONS:
        return ""
    if part.function_call is not None:
        return f" called {part.function_call.name} with {dumps(part.function_call.args)}"
    if part.function_response is not None:
        return f" got from {part.function_response.name}: {dumps(part.function_response.response)}"
    if part.text is not None:
        return f"{said}: {part.text}" if part.text.strip() and not part.thought else ""
    data = part.inline_data or part.file_data
    return "" if data is None else f" showed a file of type {data.mime_type or 'unknown'}"


def size_of(event: Event) -> int:
    """How long what *event* tells is, in characters."""
    return sum(map(len, told(event)))
