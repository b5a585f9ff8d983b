"""
English words without their endings: M. F. Porter's algorithm of 1980, as SQLite's `porter` tokeniser has it.

A word is a row of consonants and vowels; its *measure* is how often a vowel is followed by a consonant. An ending goes
if what would be left of the word has the measure that the ending's rule asks for. In each step the longest ending that
fits is the only one that is looked at.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["stem"]

# SQLite leaves longer words alone, too.
LETTERS: Final = range(3, 65)

# Each group of endings: what it becomes if the measure before it is above 0.
STEP_2: Final = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "logi": "log",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
}
STEP_3: Final = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}

# These go if the measure before them is above 1.
_SUFFIXES: Final = ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism")
STEP_4: Final = dict.fromkeys((*_SUFFIXES, "ate", "iti", "ous", "ive", "ize"), "")


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return what is left of a word of ASCII letters and digits, in lower case."""
    if len(word) not in LETTERS:
        return word
    word = _past_forms(_plural(word))
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    for endings, least in ((STEP_2, 1), (STEP_3, 1), (STEP_4, 2)):
        word = _without(word, endings, least)
    return _tidied(word)


def _shape(word: str) -> str:
    """One letter for each of the word's: `c` for a consonant, `v` for a vowel; a `y` after a consonant is a vowel."""
    shape = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _is_short(word: str) -> bool:
    """Whether it ends as `hop` and `fil` do: then an `e` may have been there."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_forms(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        left = word.removesuffix(ending)
        if left != word and "v" in _shape(left):
            return _mended(left)
    return word


def _mended(word: str) -> str:
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-2:-1] == word[-1:] and _shape(word).endswith("c") and word[-1] not in "lsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _is_short(word) else word


def _without(word: str, endings: dict[str, str], least: int) -> str:
    found = max((ending for ending in endings if word.endswith(ending)), key=len, default="")
    left = word.removesuffix(found)
    if not found or _measure(left) < least or (found == "ion" and not left.endswith(("s", "t"))):
        return word
    return left + endings[found]


def _tidied(word: str) -> str:
    left = word[:-1]
    if word.endswith("e") and (_measure(left) > 1 or (_measure(left) == 1 and not _is_short(left))):
        word = left
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
