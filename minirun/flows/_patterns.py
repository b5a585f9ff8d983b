"""
Patterns of schemas, tried in a time that grows with the text and the pattern, and never faster.

Python's `re` goes back and tries again: `(a+)+$` takes twice as long for each further `a` of a text that does not fit,
and nothing else runs meanwhile. Here all ways that a text could fit are followed at once, one character after another.
So back references, looking around, and groups that cannot be gone back into are not among what a pattern may have:
these need the other way.

Whether a text fits is all that a schema asks, so greedy and lazy repetition are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # it has no public name; what is read of it is tried by tests
from typing import Any, NamedTuple

__all__ = ["Pattern", "PatternError"]

# Of the automaton: beyond what anybody writes by hand, and small enough to be followed for every character.
NODES_MAX = 10_000
# Of what is remembered of what follows where, in steps: for usual patterns and texts everything.
MEMO_MAX = 100_000

_WORD = re.compile(r"\w")
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_REFUSED = {
    "GROUPREF": "a back reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ASSERT": "looking ahead or behind",
    "ASSERT_NOT": "looking ahead or behind",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}

_Fits = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern cannot be tried in bounded time; the message says what of it."""


class _Node(NamedTuple):
    """One step: a character that *fits*, a place that is *at* something, or a choice of what follows."""

    following: list[int]
    fits: _Fits | None = None
    at: Callable[[str, str, bool], bool] | None = None
    """Is told the characters before and after, empty at the ends of the text, and whether the latter is the last."""


class Pattern:
    """
    A regular expression, searched for in texts as `re.search` does.

    Raises:
        PatternError: It has something that takes more than one pass over the text, or it is too large.
        re.error: It is no regular expression.
    """

    def __init__(self, source: str) -> None:
        flags = re.compile(source).flags
        self.source = source
        self._nodes: list[_Node] = []
        self._end = self._node([])
        self._start = self._sequence(_parser.parse(source), self._end, flags)
        self._memo: dict[tuple[frozenset[int], str, str, bool], frozenset[int] | None] = {}
        self._memo_size = 0

    def fits(self, text: str) -> bool:
        """Whether the pattern is found in *text*."""
        now, before = frozenset({self._start}), ""
        for place, char in enumerate(text):
            after = self._after(now, before, char, place == len(text) - 1)
            if after is None:
                return True
            now, before = after, char
        return self._after(now, before, "", False) is None

    def _after(self, now: frozenset[int], before: str, char: str, is_last: bool) -> frozenset[int] | None:
        """
        Where those that stand *now* are after *char*, and one that begins there; None if one has come to the end of the
        pattern before it.
        """
        kind = before if before in ("", "\n") else "-"
        if kind == "-" and _WORD.match(before):
            kind = "w" if before.isascii() else "W"
        key = (now, kind, char, is_last)
        if key in self._memo:
            return self._memo[key]
        found: frozenset[int] | None = self._step(now, before, char, is_last)
        if self._memo_size >= MEMO_MAX:
            self._memo, self._memo_size = {}, 0
        self._memo[key] = found
        self._memo_size += len(now) + 1
        return found

    def _step(self, now: Iterable[int], before: str, char: str, is_last: bool) -> frozenset[int] | None:
        seen, open_nodes, following = set(now), list(now), {self._start}
        while open_nodes:
            number = open_nodes.pop()
            if number == self._end:
                return None
            node = self._nodes[number]
            if node.fits is not None:
                if char and node.fits(char):
                    following.update(node.following)
            elif node.at is None or node.at(before, char, is_last):
                fresh = [each for each in node.following if each not in seen]
                seen.update(fresh)
                open_nodes += fresh
        return frozenset(following)

    # --- reading it

    def _node(self, following: list[int], **what: Any) -> int:
        if len(self._nodes) >= NODES_MAX:
            raise PatternError(f"it stands for more than {NODES_MAX} steps; repeat less")
        self._nodes.append(_Node(following, **what))
        return len(self._nodes) - 1

    def _sequence(self, items: Iterable[Any], following: int, flags: int) -> int:
        for opcode, argument in reversed(list(items)):
            following = self._item(opcode, argument, following, flags)
        return following

    def _item(self, opcode: object, argument: Any, following: int, flags: int) -> int:
        name = str(opcode)
        if name == "BRANCH":
            return self._node([self._sequence(branch, following, flags) for branch in argument[1]])
        if name == "SUBPATTERN":
            _, added, removed, inside = argument
            if added & (re.ASCII | re.UNICODE):  # `re` begins its search with the categories of the whole
                raise PatternError("`a` and `u` are not found reliably for a part alone; begin the pattern with `(?a)`")
            return self._sequence(inside, following, (flags | added) & ~removed)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inside = argument
            return self._repeat(least, most, inside, following, flags)
        if name == "AT":
            return self._node([following], at=_at(str(argument), flags))
        if name in _REFUSED:
            raise PatternError(f"{_REFUSED[name]} takes more than one pass over a text; check that in the tool instead")
        return self._node([following], fits=_fits(name, argument, flags))

    def _repeat(self, least: int, most: object, inside: Iterable[Any], following: int, flags: int) -> int:
        begin = following
        if str(most) == "MAXREPEAT" or not isinstance(most, int):
            begin = self._node([following])
            self._nodes[begin].following.append(self._sequence(inside, begin, flags))
        else:
            for _ in range(most - least):
                begin = self._node([following, self._sequence(inside, begin, flags)])
        for _ in range(least):
            before, begin = begin, self._sequence(inside, begin, flags)
            if begin == before:  # it is nothing, however often
                break
        return begin


def _fits(name: str, argument: Any, flags: int) -> _Fits:
    """
    Return what tells whether a character is one of a set.

    `re` itself tells that, of this one character: which ones are the same but for their case is a table of its own.
    """
    if name == "LITERAL" and not flags & re.IGNORECASE:
        return chr(argument).__eq__
    if name == "ANY":
        return _alone(".", flags & re.DOTALL)
    if name == "NOT_LITERAL":
        name, argument = "IN", [("NEGATE", None), ("LITERAL", argument)]
    members = [(str(kind), what) for kind, what in (argument if name == "IN" else [(name, argument)])]
    source = "".join(_member(kind, what) for kind, what in members)
    return _alone(f"[{source}]", flags & (re.IGNORECASE | re.ASCII))


@lru_cache(512)
def _alone(source: str, flags: int) -> _Fits:
    whole = re.compile(source, flags).fullmatch
    return lambda char: whole(char) is not None


def _member(name: str, argument: Any) -> str:
    """How something stands in a set."""
    if name == "NEGATE":
        return "^"
    if name == "LITERAL":
        return f"\\U{argument:08x}"
    if name == "RANGE":
        return "-".join(f"\\U{end:08x}" for end in argument)
    if name == "CATEGORY":
        return _CATEGORIES[str(argument)]
    raise PatternError(f"{name} is not known to this version of minirun")


def _at(name: str, flags: int) -> Callable[[str, str, bool], bool]:
    """Return what tells whether a place is the one that is meant."""
    if name == "AT_BEGINNING_STRING" or (name == "AT_BEGINNING" and not flags & re.MULTILINE):
        return lambda before, after, is_last: not before
    if name == "AT_BEGINNING":
        return lambda before, after, is_last: before in ("", "\n")
    if name == "AT_END_STRING":
        return lambda before, after, is_last: not after
    if name == "AT_END":
        if flags & re.MULTILINE:
            return lambda before, after, is_last: after in ("", "\n")
        return lambda before, after, is_last: not after or (after == "\n" and is_last)
    word = re.compile(r"\w", flags & re.ASCII)
    is_wanted = name == "AT_BOUNDARY"
    return lambda before, after, is_last: (bool(word.match(before)) != bool(word.match(after))) == is_wanted
