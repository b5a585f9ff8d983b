"""The lines of a stream whose bytes come in pieces, as on both sides of a protocol that speaks in lines. Pure."""

from __future__ import annotations

__all__ = ["LineTooLongError", "Lines"]


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

    def fed(self, chunk: bytes) -> list[bytes]:
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
