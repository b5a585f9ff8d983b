"""
Memories in an inverted index: for tests, simulations and scripts.

The index is kept as memories come: each term and mark has the numbers of the memories that have it, in order. A search
touches nothing but the lists of what it asks for, and those of one user.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import attrs
import trio

from ..env import Env
from ._ranking import Numbers, Totals, look
from ._service import BaseMemoryService, Memory
from ._values import MemoryEntry, Query, Scope

__all__ = ["InMemoryMemoryService"]

# From how many times as long a list on it is searched for each number, which takes about so many times as long.
BISECT_FROM: Final = 10


class _User:
    """The memories of one user, as an index (see `_ranking.Index`)."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # by id
        self.deleted: set[str] = set()
        self.kept: dict[int, Memory] = {}  # by number
        self.sessions: dict[str | None, set[int]] = {}
        self._postings: dict[str, list[int]] = {}
        self._times: list[tuple[float, int]] = []
        self._newest = 0
        self._length = 0

    # --- changing it

    def add(self, memory: Memory) -> None:
        """Add it, or put it in the place of the one with its id."""
        if memory.id in self.deleted:
            return
        number = self.numbers.get(memory.id)
        if number is None:
            number = self._newest = self._newest + 1
        elif self.kept[number].entry == memory.entry:
            return
        else:
            self._take_out(number)
        self.numbers[memory.id] = number
        self.kept[number] = memory
        self.sessions.setdefault(memory.entry.session_id, set()).add(number)
        for part in memory.index:
            numbers = self._postings.setdefault(part, [])
            if numbers and numbers[-1] > number:
                insort(numbers, number)
            else:
                numbers.append(number)
        insort(self._times, (_time_of(memory), number))
        self._length += memory.length

    def delete(self, number: int) -> None:
        """Forget it, but for its id."""
        memory = self._take_out(number)
        del self.numbers[memory.id]
        self.deleted.add(memory.id)

    def _take_out(self, number: int) -> Memory:
        memory = self.kept.pop(number)
        for part in memory.index:
            numbers = self._postings[part]
            del numbers[bisect_left(numbers, number)]
            if not numbers:
                del self._postings[part]
        self.sessions[memory.entry.session_id].discard(number)
        del self._times[bisect_left(self._times, (_time_of(memory), number))]
        self._length -= memory.length
        return memory

    # --- as an index

    def totals(self) -> Totals:
        return Totals(self._newest, len(self.kept), self._length)

    def newest(self, parts: tuple[str, ...], limit: int, query: Query | None, within: Numbers | None) -> list[int]:
        shortest, *others = sorted((self._postings.get(part, []) for part in parts), key=len)
        numbers = shortest if within is None else _between(shortest, within)
        for other in others:
            numbers = _common(numbers, other if within is None else _between(other, within))
        asked = (number for number in reversed(numbers) if query is None or self._is_asked(number, query))
        return list(islice(asked, limit))

    def newest_before(self, before: float) -> int:
        place = bisect_left(self._times, (before, 0))
        return self._times[place - 1][1] if place else 0

    def lengths(self, numbers: Sequence[int]) -> dict[int, int]:
        return {number: self.kept[number].length for number in numbers}

    def texts(self, numbers: Sequence[int]) -> Iterable[tuple[int, int, str]]:
        for number in numbers:
            memory = self.kept[number]
            yield number, memory.length, memory.terms

    def _is_asked(self, number: int, query: Query) -> bool:
        return query.after <= _time_of(self.kept[number]) < query.before


def _time_of(memory: Memory) -> float:
    assert memory.entry.timestamp is not None
    return memory.entry.timestamp


def _between(numbers: list[int], within: Numbers) -> list[int]:
    return numbers[bisect_left(numbers, within.first) : bisect_right(numbers, within.last)]


def _common(numbers: list[int], others: list[int]) -> list[int]:
    """The numbers that are in both, in order; the first are no more than the second."""
    if len(others) > BISECT_FROM * len(numbers):
        return [number for number in numbers if _holds(others, number)]
    known = set(others)
    return [number for number in numbers if number in known]


def _holds(numbers: list[int], number: int) -> bool:
    place = bisect_left(numbers, number)
    return place < len(numbers) and numbers[place] == number


class InMemoryMemoryService(BaseMemoryService):
    """
    Keeps memories in memory, as long as the object lives.

    Args:
        env: Where time and ids come from.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._users: dict[Scope, _User] = {}

    async def _add(self, scope: Scope, memories: Sequence[Memory]) -> None:
        await trio.lowlevel.checkpoint()
        user = self._users.setdefault(scope, _User())
        for memory in memories:
            user.add(memory)

    async def _look_up(self, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryEntry | None]:
        await trio.lowlevel.checkpoint()
        user = self._user(scope)
        known: dict[str, MemoryEntry | None] = dict.fromkeys(user.deleted.intersection(ids))
        return known | {name: user.kept[user.numbers[name]].entry for name in ids if name in user.numbers}

    async def _search(self, scope: Scope, query: Query, limit: int) -> list[MemoryEntry]:
        await trio.lowlevel.checkpoint()
        user = self._user(scope)
        ranking = look(user, query)
        entries = {number: user.kept[number].entry for number, _, _ in ranking.texts}
        return [attrs.evolve(entries[number], score=score) for number, score in await self._ranked(ranking, limit)]

    async def _delete(self, scope: Scope, memory_id: str) -> None:
        await trio.lowlevel.checkpoint()
        user = self._user(scope)
        if memory_id in user.numbers:
            user.delete(user.numbers[memory_id])

    async def _delete_page(self, scope: Scope, session_id: str | None, limit: int) -> int:
        await trio.lowlevel.checkpoint()
        user = self._user(scope)
        numbers = sorted(user.kept if session_id is None else user.sessions.get(session_id, ()), reverse=True)[:limit]
        for number in numbers:
            user.delete(number)
        return len(numbers)

    def _user(self, scope: Scope) -> _User:
        return self._users.get(scope) or _User()
