"""The lines of a stream whose bytes come in pieces, as on both sides of a protocol that speaks in lines. Pure."""

from __future__ import annotations

import json

__all__ = ["LineTooLongError", "Lines", "with_whole_characters"]


class LineTooLongError(Exception):
    """A line has more bytes than are kept. It is for the caller, who says so in the words of the stream."""


class Lines:
    """
    Cuts a stream into lines.

    Args:
        bytes_max: How many bytes are kept of a line that has not ended.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()

    def fed(self, chunk: bytes | bytearray) -> list[bytes]:
        """
        Return the lines that *chunk* ends, without their ends and without those that are blank.

        Raises:
            LineTooLongError: The last one does not end.
        """
        start = len(self._rest)
        self._rest += chunk
        end = self._rest.rfind(b"\n", start)  # what was there before has none
        found = bytes(self._rest[: end + 1]).split(b"\n")
        del self._rest[: end + 1]
        if not found[:-1] and len(self._rest) > self._bytes_max:
            raise LineTooLongError
        return [line for line in found if line.strip()]


def with_whole_characters(line: bytes) -> str | None:
    """
    Return the JSON object of a line, with U+FFFD for each half of a character; None if the line has none.

    Programs in JavaScript that cut a text in the middle of a character send the half, which no UTF-8 can write. An
    integer of more digits than Python reads becomes infinity, as a float beyond its range does; what takes the value
    refuses it then, and knows whose it is.
    """
    try:
        found = json.loads(line, parse_int=_number)
        if not isinstance(found, dict):
            return None
        return json.dumps(found, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    except (ValueError, RecursionError):
        return None


def _number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)
