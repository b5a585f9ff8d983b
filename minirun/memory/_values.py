"""
What memories are, and what is asked of them: values, and the checks of all that callers hand in.

A memory is text: of an event or a content its text parts are kept, without thoughts. What a memory can be looked up by
beside its text (who said it, in which session, its metadata) is kept as *marks*, which stand beside its terms.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import attrs

from .._fields import OBJECT, TEXT, number
from .._json import EMPTY_DICT, brief, check_id, check_text, dumps, freeze, shown
from .._values import Value, check_in_subclass, constructed
from ..errors import InvalidValueError
from ..events import Event
from ..types import Content, Part

__all__ = [
    "LIMIT",
    "LIMIT_MAX",
    "MemoryEntry",
    "Query",
    "Scope",
    "SearchMemoryResponse",
    "check_limit",
    "check_metadata",
    "entry_of_event",
    "given_entries",
    "marks_of",
    "parse_filter",
]

Scope: TypeAlias = tuple[str, str]
"""An app and a user of it: whose memories they are."""

LIMIT: Final = 10
LIMIT_MAX: Final = 500

FILTERS: Final = ("author", "session_id", "after", "before", "custom_metadata")


def _content(value: Content | str) -> Content:
    if isinstance(value, str):
        return Content(parts=[Part(text=value)])
    if not isinstance(value, Content):
        raise InvalidValueError("MemoryEntry.content", f"expected Content or a string, found {shown(value)}")
    return value


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, repr=False, unsafe_hash=False)
class MemoryEntry(Value):
    """
    One thing that is remembered of a user.

    `content` has text parts only; a string is short for one. `timestamp` is in seconds since the epoch. `score` says
    how well it fits a query, in a search's answer alone: greater is better, and only within one answer.
    """

    content: Content = attrs.field(converter=_content)
    id: str | None = attrs.field(default=None, metadata=TEXT)
    author: str | None = attrs.field(default=None, metadata=TEXT)
    timestamp: float | None = attrs.field(default=None, metadata=number())
    session_id: str | None = attrs.field(default=None, metadata=TEXT)
    custom_metadata: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    score: float | None = attrs.field(default=None, validator=check_in_subclass, metadata=number())

    @property
    def text(self) -> str:
        """The text parts joined."""
        return self.content.text


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, repr=False, unsafe_hash=False)
class SearchMemoryResponse(Value):
    """What a search has found, the best first."""

    memories: Sequence[MemoryEntry] = ()


@attrs.frozen
class Query:
    """
    What a search looks for: memories with one of the *terms*, all of the *marks*, and a time in [after, before).
    """

    terms: tuple[str, ...]
    marks: tuple[str, ...] = ()
    after: float = -sys.float_info.max
    before: float = float("inf")

    @property
    def asks_for_time(self) -> bool:
        """Whether the time of a memory matters."""
        return self.after > -sys.float_info.max or self.before < float("inf")


# --- checks, all before anything is stored --------------------------------------------------------------------------


def check_limit(limit: object) -> int:
    """
    Return how many memories are wanted.

    Raises:
        InvalidValueError: It is no number from 1 to 500.
    """
    if limit is None:
        return LIMIT
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidValueError("limit", f"expected an integer from 1 to {LIMIT_MAX}, or None, found {shown(limit)}")
    return int(limit)


def check_metadata(value: object, name: str = "custom_metadata") -> Mapping[str, Any]:
    """
    Return a JSON object, frozen.

    Raises:
        InvalidValueError: It is none.
    """
    if value is not None and not isinstance(value, dict):
        raise InvalidValueError(name, f"expected a dict or None, found {shown(value)}")
    frozen: Mapping[str, Any] = freeze(value or {}, name)
    return frozen


def parse_filter(terms: tuple[str, ...], value: object) -> Query:
    """
    Return what a search looks for, given its terms and its filter.

    Raises:
        InvalidValueError: The filter has a key that is none, or a value that cannot be one.
    """
    if value is None:
        return Query(terms)
    if not isinstance(value, Mapping):
        raise InvalidValueError("filter", f"expected a mapping of {', '.join(FILTERS)}, found {shown(value)}")
    unknown = [key for key in value if key not in FILTERS]
    if unknown:
        raise InvalidValueError("filter", f"expected keys of {', '.join(FILTERS)}, found {shown(unknown[0])}")
    marks: list[str] = []
    if "author" in value:
        author = value["author"]
        if not isinstance(author, str):
            raise InvalidValueError("filter['author']", f"expected a string, found {shown(author)}")
        marks.append(_mark("author", check_text(str.__str__(author), "filter['author']")))
    if "session_id" in value:
        marks.append(_mark("session_id", check_id("filter['session_id']", value["session_id"])))
    metadata = check_metadata(value.get("custom_metadata"), "filter['custom_metadata']")
    marks += [_mark("m", key, metadata[key]) for key in metadata]
    times = {name: _seconds(f"filter[{name!r}]", value[name]) for name in ("after", "before") if name in value}
    return Query(terms, (*marks,), **times)


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise InvalidValueError(name, f"expected seconds since the epoch, found {shown(value)}")
    return float(value)


# --- marks ----------------------------------------------------------------------------------------------------------


def marks_of(entry: MemoryEntry) -> tuple[str, ...]:
    """What *entry* can be looked up by, beside its text. No term is a mark: those begin with `=`."""
    known = {"author": entry.author, "session_id": entry.session_id}
    marks = [_mark(name, value) for name, value in known.items() if value is not None]
    return (*marks, *(_mark("m", key, value) for key, value in entry.custom_metadata.items()))


def _mark(kind: str, *values: Any) -> str:
    text = dumps([kind, *map(_plain, values)])
    return f"={blake2b(text.encode(), digest_size=16).hexdigest()}"


def _plain(value: Any) -> Any:
    """A JSON value in the one form that all equal ones have."""
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- entries --------------------------------------------------------------------------------------------------------


def entry_of_event(event: object, session_id: str | None, metadata: Mapping[str, Any]) -> MemoryEntry | None:
    """
    Return what is remembered of an event; None if it is nothing that anybody has said.

    Raises:
        InvalidValueError: It is no event, or one that was not stored.
    """
    if not isinstance(event, Event):
        raise InvalidValueError("events", f"expected events, found {shown(event)}")
    if event.partial or event.content is None or event.actions.compaction is not None:
        return None
    if event.error_code is not None or (event.content.role == "user" and event.author != "user"):
        return None  # no answer to anybody, or what an agent tells itself
    parts = _text_parts(event.content)
    if not parts:
        return None
    if event.id is None or event.timestamp is None:
        raise InvalidValueError(
            "events", f"expected events that are stored, found one without id or time: {brief(event)}"
        )
    return MemoryEntry(
        id=blake2b(dumps([session_id, event.id]).encode(), digest_size=12).hexdigest(),
        content=Content(parts=parts, role=event.content.role),
        author=event.author,
        timestamp=event.timestamp,
        session_id=session_id,
        custom_metadata=freeze({**(event.custom_metadata or {}), **metadata}, "custom_metadata"),
    )


def given_entries(memories: object, metadata: Mapping[str, Any]) -> list[MemoryEntry]:
    """
    Return memories that a caller has made, checked.

    Raises:
        InvalidValueError: They are no list of memories, or one of them cannot be kept.
    """
    if isinstance(memories, (str, bytes, Mapping)) or not isinstance(memories, Iterable):
        raise InvalidValueError("memories", f"expected a list of memories, found {shown(memories)}; write [memory]")
    return [_given_entry(memory, f"memories[{place}]", metadata) for place, memory in enumerate(memories)]


def _given_entry(memory: object, name: str, metadata: Mapping[str, Any]) -> MemoryEntry:
    if isinstance(memory, (str, Content)):
        memory = MemoryEntry(content=memory)
    if not isinstance(memory, MemoryEntry):
        raise InvalidValueError(name, f"expected a MemoryEntry, a Content or a string, found {shown(memory)}")
    if memory.score is not None:
        raise InvalidValueError(f"{name}.score", "expected None, because a search makes it; leave it out")
    parts = _text_parts(memory.content)
    if not parts or len(parts) != len(memory.content.parts):
        problem = "expected text parts that are no thoughts, found others or none; keep other things as artifacts"
        raise InvalidValueError(f"{name}.content", problem)
    return attrs.evolve(
        memory,
        id=None if memory.id is None else check_id(f"{name}.id", memory.id),
        session_id=None if memory.session_id is None else check_id(f"{name}.session_id", memory.session_id),
        custom_metadata=freeze({**memory.custom_metadata, **metadata}, "custom_metadata"),
    )


def _text_parts(content: Content) -> list[Part]:
    """The parts that say something, without what a provider put onto them."""
    said: Iterable[Part] = (part for part in content.parts if part.text is not None and not part.thought)
    parts = [Part(text=part.text) for part in said]
    return parts if any(part.text and part.text.strip() for part in parts) else []
