"""
A JSON value while its text arrives: what is open is closed, and the result is parsed.

Incomplete parts are left out: a key without a value, half an escape, and a number, `true`, `false` or `null` until the
next character. The value is untyped: only the complete response is checked. A long text is parsed again when it has
grown by an eighth, so the cost of a piece does not grow with the text.
"""

from __future__ import annotations

import re

from .._json import JSON
from ._output import parsed

__all__ = ["PartialValue"]

# JSON begins with a bracket, perhaps in a Markdown fence, as `_output.parsed` reads a complete response.
_BEGIN = re.compile(r"\s*(?:```[\w+.-]*\s*)?(?=[{\[])")
_OUTSIDE = re.compile(r'[^"{}\[\]:,]+|.')
# A high surrogate waits for its other half.
_HIGH = r"\\u[dD][89abAB].."
_IN_STRING = re.compile(rf'[^"\\]+|"|\\[^u]|{_HIGH}\\u....|{_HIGH}[^\\]|(?!{_HIGH[:-2]})\\u....')


class PartialValue:
    """The value of a text that arrives in pieces."""

    def __init__(self) -> None:
        self._text = ""
        self._begin: int | None = None
        self._at = 0  # the position of the scanner
        self._open = ""  # the closing brackets of all open containers, innermost first
        self._in_string = False
        self._is_key = False  # the current or next string is a key
        self._safe = 0  # the text up to here is JSON once everything is closed
        self._parsed = 0  # `_safe` at the last parse
        self._value: JSON = None

    def feed(self, piece: str) -> JSON:
        """Append *piece*; return the value so far, which stays the same once the text is not JSON."""
        self._text += piece
        if self._begin is None:
            self._text = self._text.lstrip()
            if (found := _BEGIN.match(self._text)) is None:
                return None
            self._begin = self._at = found.end()
        while (self._open or self._at == self._begin) and (
            token := (_IN_STRING if self._in_string else _OUTSIDE).match(self._text, self._at)
        ):
            self._at = token.end()
            self._take(token[0])
        if self._safe - self._parsed > (self._safe // 8 if self._open and self._safe > 256 else 0):
            self._parsed = self._safe
            quote = '"' if self._in_string and not self._is_key else ""
            value, problems = parsed(self._text[self._begin : self._safe] + quote + self._open)
            if problems:
                self._open = ""  # nothing more is read
            else:
                self._value = value
        return self._value

    def _take(self, token: str) -> None:
        if self._in_string:
            self._in_string = token != '"'
            if not self._is_key:
                self._safe = self._at
        elif token == '"':
            self._in_string = True
            if not self._is_key:
                self._safe = self._at
        elif token in ("{", "["):
            self._open = ("}" if token == "{" else "]") + self._open
            self._is_key = token == "{"
            self._safe = self._at
        elif token in ("}", "]"):
            self._open = self._open[1:]
            self._safe = self._at
        elif token == ",":
            self._safe = self._at - 1
            self._is_key = self._open[0] == "}"
        elif token == ":":
            self._is_key = False
