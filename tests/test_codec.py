"""
The codec of events against another one, which cattrs makes from the types of their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from minirun import Content, Event
from minirun._codec import content_from_dict, content_to_dict, event_from_json, event_to_dict, event_to_json
from minirun._json import dumps, thaw
from minirun.errors import InvalidValueError

from . import strategies
from .cattrs_codec import structured, unstructured

# Names that mean something somewhere, for the places where they mean nothing.
NAMES = st.sampled_from(
    [
        "content",
        "actions",
        "parts",
        "text",
        "inline_data",
        "data",
        "function_call",
        "name",
        "node_info",
        "path",
        "usage_metadata",
        "total_token_count",
        "state_delta",
        "state_removed",
        "long_running_tool_ids",
        "timestamp",
        "seq",
        "partial",
        "thought",
        "thought_signature",
        "unknown_fields",
        "message",
        "later",
    ]
)
GARBAGE = st.recursive(
    strategies.scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


def outcome(read: Callable[[], object]) -> object:
    """What is read, or how it is refused."""
    try:
        return read()
    except InvalidValueError as error:
        return str(error)


@st.composite
def garbled(draw: st.DrawFn) -> dict[str, Any]:
    """An event as JSON in which something may have been replaced, removed or put in."""
    document: dict[str, Any] = thaw(event_to_dict(draw(strategies.events)))
    at: Any = document
    while draw(st.booleans()):
        inside = [item for item in (at.values() if isinstance(at, dict) else at) if type(item) in (dict, list) and item]
        if not inside:
            break
        at = draw(st.sampled_from(inside))
    if isinstance(at, list):
        at[draw(st.integers(0, len(at) - 1))] = draw(GARBAGE)
    elif at and draw(st.booleans()):
        del at[draw(st.sampled_from(sorted(at)))]
    else:
        at[draw(NAMES)] = draw(GARBAGE)
    return document


@given(strategies.events)
def test_an_event_is_written_as_by_the_other_codec(event: Event) -> None:
    """
    The JSON of an event is that of the other codec, in the same order, and reads back as the event.
    """
    assert event_to_json(event) == dumps(unstructured(event))
    assert event_from_json(event_to_json(event)) == event


@given(strategies.contents)
def test_a_content_is_written_as_by_the_other_codec(content: Content) -> None:
    """
    The JSON of a content is that of the other codec, in the same order, and reads back as the content.
    """
    assert dumps(content_to_dict(content)) == dumps(unstructured(content))
    assert content_from_dict(content_to_dict(content)) == content


@given(garbled())
def test_what_is_garbled_is_read_or_refused_as_by_the_other_codec(document: dict[str, Any]) -> None:
    """
    Both codecs make the same event of a document, or refuse it with the same words.
    """
    line = dumps(document)
    assert outcome(lambda: event_from_json(line)) == outcome(lambda: structured(document, Event))


@given(GARBAGE)
def test_garbage_is_refused_as_by_the_other_codec(document: Any) -> None:
    """
    What is no document of an event or a content at all is refused with the same words.
    """
    assert outcome(lambda: event_from_json(dumps(document))) == outcome(lambda: structured(document, Event))
    assert outcome(lambda: content_from_dict(document)) == outcome(lambda: structured(document, Content))
