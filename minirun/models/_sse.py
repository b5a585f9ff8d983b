"""
A reader of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), without I/O.

Bytes go in, in any pieces; events come out, the same ones wherever the pieces were cut. Lines end with LF, CR or CRLF.
What is kept between two pieces is bounded. `id` and `retry` are read over: they serve clients that connect anew, which
no adapter does. An event that the end of the stream has cut off never comes out.

Some servers say what is wrong as plain JSON in the place of events. Lines that begin so are no fields; `left` has them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["EVENT_BYTES_MAX", "EventTooLongError", "SseEvent", "SseReader"]

# One event of a stream holds at most one whole answer, which the longest models keep below 1 MiB of text; pictures
# come as base64 in one event, and the APIs that send them bound a picture at 20 MB.
EVENT_BYTES_MAX = 32 * 2**20

_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = (b"\n", b"\r")
_JSON = (b"{", b"[")
# A piece as servers nearly always send it: one whole event, with one line of data.
_WHOLE_EVENT = re.compile(rb"(?:event: ([^\r\n]*)\r?\n)?data: ([^\r\n]*)\r?\n\r?\n")


class EventTooLongError(Exception):
    """A line or an event has more bytes than the reader keeps. It never leaves the transport."""


class SseEvent(NamedTuple):
    """One event: its name (`message` where the server gives none) and its data, lines joined by LF."""

    name: str
    data: str


class SseReader:
    """
    Reads one stream.

    Args:
        bytes_max: How long one line, and the data of one event, may be, in bytes.
    """

    __slots__ = (
        "_bytes_max", "_data", "_data_bytes", "_is_first", "_name", "_rest", "_rest_bytes", "_skips_lf", "_stray",
        "_stray_bytes",
    )  # fmt: skip

    def __init__(self, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._rest: list[bytes] = []  # pieces of a line that has not ended yet
        self._rest_bytes = 0
        self._skips_lf = False  # whether the last piece ended with CR, so that an LF now belongs to it
        self._is_first = True  # whether no line has ended yet: only the first may begin with a byte order mark
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._stray: list[bytes] = []  # lines from the first one on that begins as JSON does
        self._stray_bytes = 0

    def left(self) -> bytes:
        """Return the JSON text that stands at the end of the stream in the place of an event; empty: there is none."""
        text = b"\n".join((*self._stray, b"".join(self._rest)))
        return text if text.startswith(_JSON) else b""

    def feed(self, piece: bytes) -> list[SseEvent]:
        """
        Return the events that end in *piece*.

        Raises:
            EventTooLongError: More bytes than `bytes_max` belong to one line or one event.
        """
        if self._skips_lf and piece:
            self._skips_lf = False
            if piece.startswith(b"\n"):
                piece = piece[1:]
        if not piece:
            return []
        if not (self._rest or self._data or self._name):
            whole = _WHOLE_EVENT.fullmatch(piece)
            if whole is not None and len(piece) <= self._bytes_max:
                self._is_first = False
                name, data = whole.groups(b"")
                return [SseEvent(name.decode("utf-8", "replace") or "message", data.decode("utf-8", "replace"))]
        if b"\n" not in piece and b"\r" not in piece:
            self._keep(piece)
            return []
        self._skips_lf = piece.endswith(b"\r")
        lines = piece.splitlines()
        if self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest, self._rest_bytes = [], 0
        if not piece.endswith(_LINE_ENDS):
            self._keep(lines.pop())
        events: list[SseEvent] = []
        for line in lines:
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        self._check(self._rest_bytes)

    def _take(self, line: bytes) -> SseEvent | None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._check(self._data_bytes)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif self._stray or line.startswith(_JSON):
            self._stray.append(line)
            self._stray_bytes += len(line) + 1
            self._check(self._stray_bytes)
        return None  # comments, `id`, `retry`, and fields that nobody knows

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._name
        self._data, self._data_bytes, self._name = [], 0, ""
        if not data:
            return None
        return SseEvent(name or "message", b"\n".join(data).decode("utf-8", "replace"))

    def _check(self, count: int) -> None:
        if count > self._bytes_max:
            msg = f"expected lines and events of at most {self._bytes_max} bytes, found a longer one"
            raise EventTooLongError(msg)
