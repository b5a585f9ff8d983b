"""
What a text is known by: its terms. The same law for every memory service, and for what is stored as for what is asked.

*   Letters are compared without case, width and the accents of Latin, Greek and Cyrillic letters.
*   A word is a row of letters, marks and digits; everything else stands between words. An emoji or another symbol that
    is a picture is a word by itself. Of a longer word its first 64 characters count.
*   Words of ASCII letters lose their English endings (`_stem`).
*   Scripts that put no spaces between words have no words here, but n-grams: all pieces of up to 2 characters of a row
    of Chinese or Japanese characters, of up to 3 of Thai, Lao, Burmese or Khmer ones, whose characters mean less. So
    what is asked is found wherever it stands. Two, because that is how long most Chinese and Japanese words are.

SQLite's own tokenisers are not used: theirs are Unicode 6.1, trigrams find no word of two characters, and a memory
that is kept elsewhere would find other things.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from ._stem import stem

__all__ = ["QUERY_TERMS_MAX", "TERM_CHARS_MAX", "query_terms", "terms_of"]

# No word of any language; longer rows of letters are data, such as base64.
TERM_CHARS_MAX: Final = 64

# Some pages. Taking so many characters apart takes some milliseconds; a question that stands in, before or after a
# text that was pasted stands at one of its ends.
QUERY_CHARS_MAX: Final = 4_000

# A message of some sentences, or of about as many Chinese characters. Looking one up takes about 0.1 ms.
QUERY_TERMS_MAX: Final = 128

_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_HAN_AND_KANA: Final = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_SOUTHEAST_ASIAN: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_ROWS: Final = re.compile(f"([{_HAN_AND_KANA}]+)|([{_SOUTHEAST_ASIAN}]+)|([^{_HAN_AND_KANA}{_SOUTHEAST_ASIAN}]+)")
_VARIATIONS: Final = frozenset(map(chr, range(0xFE00, 0xFE10)))  # how the character before is to look


def terms_of(text: str) -> list[str]:
    """Return the terms that *text* is found by, in their order, and as often as they stand there."""
    found: list[str] = []
    for row, gram in _rows(text):
        if gram:
            found.extend(row[at : at + size] for size in range(1, gram + 1) for at in range(len(row) - size + 1))
        else:
            found.append(row)
    return found


def query_terms(text: str) -> tuple[str, ...]:
    """
    Return the different terms that *text* asks for: at most 128, spread over all of it.

    Of a text of more than 4 000 characters the first and the last 2 000 count.
    """
    if len(text) > QUERY_CHARS_MAX:
        half = QUERY_CHARS_MAX // 2
        text = f"{text[:half]}\n{text[-half:]}"
    found: dict[str, None] = {}
    for row, gram in _rows(text):
        size = min(gram, len(row))
        pieces = (row[at : at + size] for at in range(len(row) - size + 1)) if gram else (row,)
        found.update(dict.fromkeys(pieces))
    terms = (*found,)
    if len(terms) <= QUERY_TERMS_MAX:
        return terms
    last = QUERY_TERMS_MAX - 1  # the first and the last of them among the others
    return tuple(terms[place * (len(terms) - 1) // last] for place in range(QUERY_TERMS_MAX))


def _rows(text: str) -> Iterator[tuple[str, int]]:
    """The words of a text, stemmed, and its rows of characters without spaces, with the size of their n-grams."""
    if text.isascii():
        for word in _ASCII_WORD.findall(text.lower()):
            yield stem(word[:TERM_CHARS_MAX]), 0
        return
    for word in _spaced(text).split():
        if word.isascii():
            yield stem(word[:TERM_CHARS_MAX]), 0
            continue
        for han, thai, other in _ROWS.findall(word):
            if other:
                yield (stem(other[:TERM_CHARS_MAX]) if other.isascii() else other[:TERM_CHARS_MAX]), 0
            else:
                yield han or thai, 2 if han else 3


def _spaced(text: str) -> str:
    """The text in comparable letters, with spaces for what is between words."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _ACCENTS.sub("", unicodedata.normalize("NFD", text))
    text = unicodedata.normalize("NFC", text)
    return text.translate({ord(character): _place(character) for character in set(text)})


def _place(character: str) -> str:
    category = unicodedata.category(character)
    if character in _VARIATIONS:
        return ""
    if category == "So":
        return f" {character} "
    return character if category[0] in "LMN" else " "
