"""
A list that many hold and nobody copies.

Histories only grow at their end. So a session, the runs over it and every prompt made from it share one list, and
each holds a `Window`: the list plus the part of it that belongs to the holder. Only the owner of the list appends to
it; the others' windows do not show it until they are told, in O(1). A holder that is told of something else, because
the list has gone another way than the holder, goes on with a copy of its own.

A prompt may need a few items more than the history has. It is an `Extended` view then: the shared beginning, and a
short end of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar, overload

__all__ = ["Extended", "Window", "inserted"]

T = TypeVar("T")


class _View(Sequence[T]):
    """A sequence that is equal to every other one with the same items, and is shown like a list."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # it grows, like a list

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (_View, list, tuple)):
            return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))
        return NotImplemented

    def __repr__(self) -> str:
        return repr(list(self))


class Window(_View[T]):
    """A read-only sequence over a part of a shared, append-only list. Slices are plain lists."""

    __slots__ = ("_items", "_mine", "_start", "_stop")

    def __init__(self, items: list[T], start: int = 0, stop: int | None = None) -> None:
        self._items = items
        self._start = start
        self._stop = len(items) if stop is None else stop
        self._mine = False  # whether the list is a copy that nobody else has

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return [self._items[self._start + i] for i in range(start, stop, step)]
        place = index + (self._stop if index < 0 else self._start)
        if not self._start <= place < self._stop:
            msg = f"index {index} is outside of a window of {len(self)}"
            raise IndexError(msg)
        return self._items[place]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._start, self._stop)

    def push(self, item: T) -> None:
        """Let the window grow by *item*, which the owner of the list has appended, or has not. For its holder only."""
        if self._stop == len(self._items) or self._items[self._stop] is not item:
            if not self._mine:
                self._items, self._mine = list(self), True
                self._start, self._stop = 0, len(self._items)
            self._items.append(item)
        self._stop += 1

    def first(self, count: int) -> Window[T]:
        """A window over the first *count* items of this one."""
        return Window(self._items, self._start, self._start + count)

    @property
    def origin(self) -> list[T]:
        """The shared list: windows with the same origin agree on what they both show. Never change it."""
        return self._items


class Extended(_View[T]):
    """A read-only view: a *shared* window, then items of one's *own*. Slices are plain lists."""

    __slots__ = ("own", "shared")

    def __init__(self, shared: Window[T], own: Sequence[T]) -> None:
        self.shared = shared
        self.own = own

    def __len__(self) -> int:
        return len(self.shared) + len(self.own)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            msg = f"index {index} is outside of a sequence of {len(self)}"
            raise IndexError(msg)
        inside = place - len(self.shared)
        return self.shared[place] if inside < 0 else self.own[inside]

    def __iter__(self) -> Iterator[T]:
        return chain(self.shared, self.own)


def inserted(items: Window[T] | Extended[T], place: int, item: T) -> Extended[T]:
    """A view of *items* with *item* before the one at *place*; it shares what stands before."""
    shared = items.shared if isinstance(items, Extended) else items
    kept = shared.first(min(place, len(shared)))
    return Extended(kept, [*items[len(kept) : place], item, *items[place:]])
