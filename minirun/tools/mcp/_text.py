"""
Text of a server, before anybody is shown it: without control characters, and no longer than it needs to be.

A server may say anything: escape sequences that deceive who reads them on a terminal, or a megabyte in a description.
"""

from __future__ import annotations

import re

__all__ = ["LABEL_CHARS_MAX", "cleaned", "line"]

# Of what stands in the middle of a sentence: names, and what an error says.
LABEL_CHARS_MAX = 500

# Control characters but tab and newline; what turns the direction of writing; and halves of characters.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def cleaned(text: str, chars_max: int) -> str:
    """*text* with each control character as `\\x1b`, cut to so many characters."""
    cut = text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text) - chars_max} characters left out)"
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), cut)


def line(text: str, chars_max: int = LABEL_CHARS_MAX) -> str:
    """The same, in one line."""
    return " ".join(cleaned(text, chars_max).split())
