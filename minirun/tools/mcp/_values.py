"""
A bound on how many values a message of a server has, checked before the message is parsed. Pure.

Bytes alone do not bound the cost. 600 000 empty blocks are a message of 15.6 MB: as objects they take 1.2 GiB, and to
make them stops the event loop for 9 s. So the commas and opening brackets outside of strings are counted in the bytes.

The text comes in pieces of any size. A string of JSON cannot contain an end of line, so each line begins outside of a
string, whatever an unfinished line before it contains. That holds also for the lines of an event stream, whose messages
are counted one by one: a blank line ends one.
"""

from __future__ import annotations

import re

__all__ = ["VALUES_MAX", "TooManyValuesError", "Values"]

# A table of 1 MiB, the default bound of a result, has up to some 120 000 values in rows of 35 bytes. As many blocks as
# this bound allows take 120 MiB and stop the event loop for about 1 s.
VALUES_MAX = 200_000

# Counted at once: the objects that this makes are bounded as well, and a message of too many values is left early.
PIECE_BYTES = 64 * 1024

_ESCAPED = re.compile(rb"\\[^\r\n]")
_END_OF_LINE = re.compile(rb"\r\n|\r|\n")


class TooManyValuesError(Exception):
    """A message has more values than are taken."""


class Values:
    """
    Counts the values of messages.

    Args:
        are_events: The bytes are an event stream, in which a blank line ends a message. Otherwise they are one message.
    """

    def __init__(self, *, are_events: bool = False) -> None:
        self._are_events = are_events
        self._count = 0
        self._is_in_string = False
        self._is_blank = True  # the line so far
        self._held = b""  # the last byte, which belongs together with the next one

    def fed(self, chunk: bytes) -> None:
        """
        Count the values in the next piece.

        Raises:
            TooManyValuesError: The message has more than `VALUES_MAX`.
        """
        for start in range(0, len(chunk), PIECE_BYTES):
            self._count_in(chunk[start : start + PIECE_BYTES])
            if self._count > VALUES_MAX:
                raise TooManyValuesError

    def _count_in(self, piece: bytes) -> None:
        text = _ESCAPED.sub(b"_", self._held + piece)
        self._held = text[-1:] if text.endswith((b"\\", b"\r")) else b""
        for number, line in enumerate(_END_OF_LINE.split(text.removesuffix(self._held))):
            if number:
                if self._is_blank and self._are_events:
                    self._count = 0
                self._is_in_string, self._is_blank = False, True
            self._is_blank = self._is_blank and not line
            parts = line.split(b'"')
            for part in parts[self._is_in_string :: 2]:
                self._count += part.count(b",") + part.count(b"[") + part.count(b"{")
            self._is_in_string ^= len(parts) % 2 == 0
