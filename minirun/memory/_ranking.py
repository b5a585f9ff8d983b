"""
Which memories a search looks at, and how well each of them fits: what every memory service does alike.

The memories of a user are numbered in the order in which they were added. A service keeps, for each term and mark, the
numbers of those that have it, and gives the newest of them; the rest is decided here, on numbers alone:

1.  A term is *rare* if at most `RARE_MAX` memories of the user have it. All memories with a rare term are looked at.
2.  Of the common terms the `COMMON_MAX` that are worth most lead to memories, too: to the newest `RARE_MAX` with each,
    and to the newest `RARE_MAX` with all of them. What is common in all its parts is looked up among the newest
    `WINDOW` memories.
3.  A filter makes the lists shorter before they are cut. A mark that is rare makes them complete, too. Times alone do
    not: with a `before` the window ends a tenth of its length after the newest memory that is older.
4.  The best `RANKED_MAX` of all these, by the weights of the terms that led to them, are ranked by bm25; of long ones
    so many that they have at most `RANKED_LENGTH_MAX` terms together.

Of a query with more than `TERMS_MAX` terms that somebody has said those count that are worth most.

So a user with at most `RARE_MAX` memories has all of them looked at. The work is bounded by the number of terms and
these numbers, however many memories the user, or anybody else, has.

bm25 is computed from the user's own memories: how many there are, how long, and how many have a term. What other users
have said changes nothing. For a common term their number is estimated from how densely its newest ones stand.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Final, Protocol

import attrs

from ._values import LIMIT_MAX, Query

__all__ = ["Index", "Numbers", "Ranked", "Ranking", "Totals", "look", "padded"]

RARE_MAX = 500
COMMON_MAX = 8
RANKED_MAX = LIMIT_MAX

# The rarest words of a message say what it is about; each is counted in each memory that is ranked.
TERMS_MAX = 32

# Some megabytes of text: counting 32 terms in them takes about 0.1 s, in a worker thread.
RANKED_LENGTH_MAX = 500_000

# Counting 32 terms in so many takes about 5 ms.
LENGTH_INLINE: Final = 20_000

# A search in it takes some milliseconds, or, where the times of memories have to be looked at, ten times as long.
WINDOW = 50_000

# The usual constants of bm25: how soon repeating a term stops to matter, and how much the length of a text does.
K1: Final = 1.2
B: Final = 0.75

Ranked = tuple[int, float]
"""A number, and how well that memory fits."""


@attrs.frozen
class Totals:
    """Of all memories of a user: the number of the newest one, how many there are, and how many terms they have."""

    newest: int = 0
    count: int = 0
    length: int = 0


@attrs.frozen
class Numbers:
    """From which number to which: both included."""

    first: int
    last: int


class Index(Protocol):
    """The memories of one user, by terms and marks."""

    @abstractmethod
    def totals(self) -> Totals:
        """What is known of all of them."""

    @abstractmethod
    def newest(self, parts: tuple[str, ...], limit: int, query: Query | None, within: Numbers | None) -> list[int]:
        """
        The numbers of the newest memories with all *parts*, from the newest on.

        Only those whose time *query* asks for, if it is given, and whose numbers are *within*.
        """

    @abstractmethod
    def newest_before(self, before: float) -> int:
        """The number of the memory with the latest time before this one; 0 if there is none."""

    @abstractmethod
    def lengths(self, numbers: Sequence[int]) -> Mapping[int, int]:
        """How many terms these memories have."""

    @abstractmethod
    def texts(self, numbers: Sequence[int]) -> Iterable[tuple[int, int, str]]:
        """Number, length and padded terms of these memories."""


def padded(terms: Iterable[str]) -> str:
    """The terms of a memory as one string, in which `" term "` stands as often as the memory has it."""
    return "".join([f" {term} " for term in terms])


@attrs.frozen
class Ranking:
    """Memories that were looked at, to be ranked: all that is needed for that, apart from any index."""

    parts: Sequence[tuple[str, float]] = ()
    """Each term, padded, and what finding it is worth."""
    texts: Sequence[tuple[int, int, str]] = ()
    """Number, length and padded terms."""
    average: float = 1.0

    @property
    def is_long(self) -> bool:
        """Whether it is worth a worker thread."""
        return sum(length for _, length, _ in self.texts) > LENGTH_INLINE

    def best(self, limit: int) -> list[Ranked]:
        """Return the memories that fit best, at most *limit* of them; of equal ones the newer is first."""
        ranked = [(number, self._score(text, length / self.average)) for number, length, text in self.texts]
        return sorted(ranked, key=lambda found: (-found[1], -found[0]))[:limit]

    def _score(self, text: str, relative_length: float) -> float:
        """How well a memory fits, given its terms, and its length in those of an average one."""
        norm = K1 * (1 - B + B * relative_length)
        total = 0.0
        for part, weight in self.parts:
            if count := text.count(part):
                total += weight * count / (count + norm)
        return total


def look(index: Index, query: Query) -> Ranking:
    """Return the memories that are worth being ranked."""
    totals = index.totals()
    if not query.terms or not totals.count:
        return Ranking()
    search = _Search(index, query, totals)
    weights: dict[int, float] = {}
    for terms, numbers in search.lists():
        weight = sum(search.weights[term] for term in terms)
        for number in numbers:
            known = weights.get(number, 0.0)
            weights[number] = known + weight if len(terms) == 1 else max(known, weight)
    chosen = sorted(sorted(weights, reverse=True), key=weights.__getitem__, reverse=True)[:RANKED_MAX]
    if totals.length > RANKED_LENGTH_MAX:
        chosen = _bounded(chosen, index.lengths(chosen))
    return Ranking(search.parts, (*index.texts(chosen),), totals.length / totals.count)


def _bounded(numbers: Sequence[int], lengths: Mapping[int, int]) -> list[int]:
    """The first, and those after it that there is room for."""
    chosen: list[int] = []
    total = 0
    for number in numbers:
        if not chosen or total + lengths[number] <= RANKED_LENGTH_MAX:
            chosen.append(number)
            total += lengths[number]
    return chosen


class _Search:
    """One search, at work: which of its parts are common, and what finding a term is worth."""

    def __init__(self, index: Index, query: Query, totals: Totals) -> None:
        self._index = index
        self._query = query
        self._within = self._window(totals)
        parts = (*query.terms, *query.marks)
        self._newest = {part: index.newest((part,), RARE_MAX + 1, None, None) for part in parts}
        weights = {term: _weight(self._newest[term], totals) for term in query.terms if self._newest[term]}
        worth_most = set(sorted(weights, key=weights.__getitem__, reverse=True)[:TERMS_MAX])
        self.weights = {term: weight for term, weight in weights.items() if term in worth_most}
        self.parts = [(f" {term} ", weight * (K1 + 1)) for term, weight in self.weights.items()]

    def _window(self, totals: Totals) -> Numbers:
        if self._query.before == float("inf"):
            return Numbers(totals.newest - WINDOW + 1, totals.newest)
        newest = self._index.newest_before(self._query.before)
        return Numbers(newest - WINDOW + 1, newest + WINDOW // 10)

    def lists(self) -> Iterable[tuple[tuple[str, ...], list[int]]]:
        """What is looked at: some terms, and the numbers of memories with all of them. Single terms come first."""
        rare = [term for term in self.weights if not self._is_common(term)]
        common = [term for term in self.weights if self._is_common(term)]
        leading = sorted(common, key=self.weights.__getitem__, reverse=True)[:COMMON_MAX]
        for term in (*rare, *leading):
            yield (term,), self._numbers((term,))
        if len(leading) > 1:
            yield (*leading,), self._numbers((*leading,))

    def _is_common(self, part: str) -> bool:
        return len(self._newest[part]) > RARE_MAX

    def _numbers(self, terms: tuple[str, ...]) -> list[int]:
        query = self._query
        if len(terms) == 1 and not query.marks and not query.asks_for_time:
            return self._newest[terms[0]][:RARE_MAX]
        parts = (*terms, *query.marks)
        within = self._within if all(map(self._is_common, parts)) else None
        return self._index.newest(parts, RARE_MAX, query if query.asks_for_time else None, within)


def _weight(newest: list[int], totals: Totals) -> float:
    """What a term is worth: the more, the fewer memories have it."""
    count = len(newest)
    if count > RARE_MAX:
        span = totals.newest - newest[-1] + 1
        count = min(totals.count, max(count, totals.count * count // span))
    return log(1 + (totals.count - count + 0.5) / (count + 0.5))
