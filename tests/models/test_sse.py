"""
Server-sent events: the same ones come out wherever the stream was cut.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun.models._sse import EventTooLongError, SseEvent, SseReader

STREAM = (
    "\ufeff: a comment\n"
    "event: first\ndata: one\n\n"
    "data:two\r\ndata:  lines\r\n\r\n"
    "data\rdata: after an empty line\r\r"
    "id: 7\nretry: 1000\nunknown: x\ndata: grüße 😀\n\n"
    "event: without data\n\n"
    "\n\r\n"
    "data: last\n\n"
    "data: cut off"
).encode()
EVENTS = [
    SseEvent("first", "one"),
    SseEvent("message", "two\n lines"),
    SseEvent("message", "\nafter an empty line"),
    SseEvent("message", "grüße 😀"),
    SseEvent("message", "last"),
]


def read(pieces: list[bytes]) -> list[SseEvent]:
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def test_all_kinds_of_lines_are_read() -> None:
    """
    Comments, names, several lines of data, every line ending, a byte order mark, `id` and `retry` are understood.
    """
    assert read([STREAM]) == EVENTS


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
def test_a_cut_changes_nothing(place: int) -> None:
    """
    A stream that is cut at any byte has the same events.
    """
    assert read([STREAM[:place], STREAM[place:]]) == EVENTS


def test_single_bytes_are_read() -> None:
    """
    A stream that comes byte by byte has the same events.
    """
    assert read([bytes([byte]) for byte in STREAM]) == EVENTS


LINES = st.sampled_from([b"data: a", b"data:", b"data", b"event: b", b": c", b"", b"", b"id: 1", "data: ü".encode()])
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.data())
def test_cuts_change_nothing(lines: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    """
    Any stream has the same events in any pieces.
    """
    stream = b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert read(pieces) == read([stream])


@pytest.mark.parametrize("pieces", [[b"data: " + b"x" * 100], [b"data: x\n"] * 60, [b"x"] * 101])
def test_an_endless_event_is_refused(pieces: list[bytes]) -> None:
    """
    A line or an event that is longer than the bound is refused when the bound is passed, not when it ends.
    """
    reader = SseReader(bytes_max=100)
    with pytest.raises(EventTooLongError, match="at most 100 bytes"):
        for piece in pieces:
            reader.feed(piece)
