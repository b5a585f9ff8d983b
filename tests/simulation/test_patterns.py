"""
Patterns of schemas: they say what `re.search` says, and no text makes one of them slow.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun.errors import ConfigurationError
from minirun.flows._json_schema import compile_schema
from minirun.flows._patterns import Pattern, PatternError

# Small and large letters that are the same to `re` only, or only to Unicode: long s, Turkish i, micro, Kelvin, sharp s,
# final sigma, iota, a ligature, titlecase, Georgian, Cherokee, Deseret.
CASES = "sSſkK\u212aiIİıµμΜßẞσςΣιΙ\u0345\u1fbeﬅﬆǅǆǄåÅ\u212bωΩ\u2126აᲐᎠꭰ𐐀𐐨яЯᲇ"
CHARS = f"aAbB1_ -.\nßéÉ٣\u2028{CASES}"
LEAVES = st.one_of(
    st.sampled_from(["a", "B", "1", "é", "ß", r"\.", ".", "^", "$", r"\b", r"\B", r"\A", r"\Z"]),
    st.sampled_from([r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[ab]", "[^a]", r"[\d_-]", r"[^\W\d]", "[A-b]"]),
    st.sampled_from(CASES),
    st.lists(st.sampled_from(CASES), min_size=1, max_size=3).map(lambda chars: f"[{''.join(chars)}]"),
    st.lists(st.sampled_from(CASES), min_size=1, max_size=3).map(lambda chars: f"[^{''.join(chars)}]"),
    st.lists(st.sampled_from(CASES), min_size=2, max_size=2).map(lambda ends: f"[{min(ends)}-{max(ends)}]"),
    st.lists(st.sampled_from(CASES), min_size=2, max_size=2).map(lambda ends: f"[^{min(ends)}-{max(ends)}]"),
)
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?"])
PATTERNS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: f"(?:{'|'.join(branches)})"),
        st.tuples(inner, REPEATS).map(lambda both: f"(?:{both[0]}){both[1]}"),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"(?i:{one})"),
        inner.map(lambda one: f"(?s:{one})"),
        inner.map(lambda one: f"(?-i:{one})"),
    ),
    max_leaves=6,
)
FLAGS = st.sampled_from(["", "(?m)", "(?s)", "(?a)", "(?i)", "(?ai)", "(?is)"])


@settings(max_examples=600, deadline=None)
@given(FLAGS, PATTERNS, st.lists(st.text(CHARS, max_size=7), min_size=1, max_size=8))
def test_a_pattern_is_found_where_python_finds_it(flags: str, source: str, texts: list[str]) -> None:
    """
    In every text it says what `re.search` says, also when it is asked again.
    """
    pattern, expected = Pattern(flags + source), re.compile(flags + source)
    for text in texts + texts:
        if not text and r"\B" in source:
            continue  # before Python 3.14 it matched everything that is no boundary but an empty text
        assert pattern.fits(text) == (expected.search(text) is not None), (flags + source, text)


@pytest.mark.parametrize("flags", ["(?i)", "(?ai)"])
@pytest.mark.parametrize("form", ["{}", "[{}]", "[^{}]", "[{}_]", "[!-{}]", "(?:{}|_)"])
def test_whatever_its_case_a_letter_is_the_same_letter_as_to_python(form: str, flags: str) -> None:
    """
    Each letter with a case of its own is tried on all that anything could call the same letter.
    """
    for letter in CASES:
        source = flags + form.format(letter)
        pattern, expected = Pattern(source), re.compile(source)
        fitting = [char for char in CASES if pattern.fits(char)]
        assert fitting == [char for char in CASES if expected.search(char)], source


@pytest.mark.parametrize(
    "source",
    ["(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){25}$", "^(([a-z])+.)+[A-Z]$", "a+a+a+$", r"^(\w+\s?)*$", "^(a?){60}b$"],
)
def test_no_text_makes_a_pattern_slow(source: str) -> None:
    """
    What takes `re` longer than anybody waits takes one pass here: the text has 20 000 characters.
    """
    assert not Pattern(source).fits("a" * 20_000 + "\u2028!")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (r"(a)\1", "a back reference"),
        ("(?=a)b", "looking ahead or behind"),
        ("(?<!a)b", "looking ahead or behind"),
        ("(a)?(?(1)b|c)", "a conditional group"),
        ("(?>a+)b", "an atomic group"),
        ("a++b", "a possessive repetition"),
        ("(a{999}){999}", "more than 10000 steps"),
        ("(){0,2000000000}", "more than 10000 steps"),
    ],
)
def test_what_takes_more_than_one_pass_is_refused_when_the_schema_is_made(source: str, what: str) -> None:
    """
    The message says what of the pattern it is, and where it stands.
    """
    with pytest.raises(PatternError, match=what):
        Pattern(source)
    with pytest.raises(ConfigurationError, match=rf"form at #/pattern: expected a pattern .* one pass.*{what}"):
        compile_schema({"type": "string", "pattern": source}, "form")


@pytest.mark.parametrize("source", [r"(?a:\W)", r"a(?u:\w)", r"(?ai:k)"])
def test_what_python_itself_does_not_search_for_reliably_is_refused(source: str) -> None:
    """
    The categories of a part alone: `re.search` begins with those of the whole. The message says what to write.
    """
    with pytest.raises(PatternError, match=r"for a part alone; begin the pattern with `\(\?a\)`"):
        Pattern(source)


@pytest.mark.parametrize("source", ["(){2000000000}", "((){2000000000}){2000000000}", "(a{0}){2000000000,}"])
def test_nothing_repeated_is_nothing(source: str) -> None:
    """
    An empty group takes no time to be read, however often it is repeated.
    """
    assert Pattern(f"^{source}$").fits("")
    assert not Pattern(f"^{source}$").fits("a")


def test_a_long_text_is_not_remembered_for_ever() -> None:
    """
    A pattern that meets many different characters forgets what it has worked out, and still says the same.
    """
    pattern = Pattern(r"^[^x]{3,}y$")
    text = "".join(map(chr, range(0x4E00, 0x9F00))) * 2
    assert pattern.fits(text + "y")
    assert not pattern.fits(text + "xy")
