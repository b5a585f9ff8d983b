"""
The store that somebody implements, and its use by one owner.

A store has one owner, the service that has begun to use it last. Each write names it, and a former owner's is refused.
So what the owner has in memory is what is stored, and nothing has to be asked twice.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from ..._json import dumps, shown
from ...env import Env
from ...errors import (
    MinirunError,
    ServiceInUseError,
    StaleSessionError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageRolledBackError,
    StorageUncertainError,
)
from ._entries import FORMAT, MARK, NEXT, fields_of, hexadecimal, number_of

__all__ = ["KeyValueStore", "OwnedStore"]

# How many entries are asked for at once: some hundred kB of usual events.
PAGE_ENTRIES = 500


class KeyValueStore(ABC):
    """
    A sorted map of text to text: what to implement for a store of one's own. `KeyValueSessionService` does the rest.

    It belongs to the process that uses it first: a fork of that one is refused, and does not close it.

    Keys are printable ASCII, ordered as Python orders `str`; values are any text that UTF-8 can encode. Calls may
    overlap, but never two calls of `write` by one service.

    An exception of `read` means that nothing has happened. One of `write` leaves open whether anything was stored, and
    everything is read again, unless it is a StorageError that says so (`stored` is False).
    """

    @abstractmethod
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        """Return the entries with `first <= key < end` in the order of their keys, at most *limit* of them."""

    @abstractmethod
    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        """
        Set the entries of *changes*, and remove those that are None: all of it or nothing, and lasting on return.

        *owner* is a key and the value that it must have, None for no such entry. If it has another one, return False
        and change nothing. That look and the change are one step, whatever other process uses the store.

        It is called shielded: leaving a run does not interrupt it.
        """

    async def aclose(self) -> None:
        """Give back what the store holds. It is called once, when the service is closed."""


class OwnedStore:
    """A store as its owner uses it. *forget* is called when nobody knows any more what is stored."""

    def __init__(self, store: KeyValueStore, env: Env, forget: Callable[[], None]) -> None:
        self._store = store
        self._name = type(store).__name__
        self._env = env
        self._forget = forget
        self._one_at_a_time = trio.Lock()
        self._owner: str | None = None  # what the entry that names the owner has; None: to be found out
        self._marks: set[str] = set()  # which owner this may be: since it has become one, no other is taken over
        self._is_lost = False
        self._next: int  # of the numbers that are given; known once the store is owned
        self._process: int | None = None  # that has used the store first

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """
        Own the store, alone: what is decided in the block from what was read is still true when it is written.

        No checkpoint after the block.
        """
        async with self._one_at_a_time:
            self.check_owner()
            if self._owner is None:
                await self._own()
            yield

    def check_owner(self) -> None:
        """
        Raise if somebody else owns the store.

        Raises:
            StaleSessionError: Another service has begun to use it.
            ServiceInUseError: It was used before this process was forked.
        """
        self._check_process()
        if self._is_lost:
            msg = (
                "expected one service to use the store, found that another one has begun to, so nothing was stored; "
                "let one use it at a time, or make a new service to take it over"
            )
            raise StaleSessionError(msg)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was used before this process was forked: what it holds belongs to that one."""
        return self._process not in (None, os.getpid())

    def _check_process(self) -> None:
        if self.is_elsewhere:
            msg = (
                f"expected {self._name} to be used by one process, found a fork of the one that has used it; make a "
                "store and a service in each process, or fork before they are used"
            )
            raise ServiceInUseError(msg)
        self._process = os.getpid()

    async def _own(self) -> None:
        while True:
            found = await self.entry(MARK)
            if self._marks and found is not None and found not in self._marks:
                self._lose()
            version = FORMAT if found is None else fields_of(MARK, found).get("format")
            if version != FORMAT:
                msg = f"expected a store of format {FORMAT}, found {shown(version)}; use the version that wrote it"
                raise StorageFormatError(msg)
            mine = dumps({"format": FORMAT, "owner": self._env.new_id("store")})
            if self._marks:
                self._marks.add(mine)  # a write that fails may be stored
            if await self._written({MARK: mine}, found):
                break
        self._marks = {mine}
        self._next = number_of(NEXT, await self.entry(NEXT) or hexadecimal(1))
        self._owner = mine

    def new_number(self) -> int:
        """The next number of the store; it is used once what it is for is written."""
        self._next += 1
        return self._next - 1

    async def entry(self, key: str) -> str | None:
        """One entry, if it is there."""
        page = await self._page(key, key + "\0", 1)
        return page[0][1] if page else None

    async def entries(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        """The entries below *prefix*, which ends with a slash, from *after* on."""
        found: list[tuple[str, str]] = []
        first, end = prefix + after, prefix[:-1] + "0"  # the character after the slash
        while limit is None or len(found) < limit:
            asked = PAGE_ENTRIES if limit is None else min(PAGE_ENTRIES, limit - len(found))
            page = await self._page(first, end, asked)
            found += page
            if len(page) < asked:
                break
            first = page[-1][0] + "\0"
        return found

    async def _page(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        self._check_process()
        try:
            page = await self._store.read(first, end, limit)
        except MinirunError:
            raise
        except Exception as error:
            msg = f"{self._name}.read failed: {shown(error)}"
            raise StorageRolledBackError(msg) from error
        if not _fits(page, first, end, limit):
            msg = (
                f"expected {self._name}.read to return at most {limit} entries with {first!r} <= key < {end!r}, "
                f"in the order of their keys, found {shown(page)}"
            )
            raise StorageCorruptError(msg)
        return page

    async def write(self, changes: Mapping[str, str | None]) -> None:
        """
        Store *changes*, or raise. No checkpoint after the write.

        Raises:
            StaleSessionError: Somebody else owns the store. Nothing was stored.
            StorageError: See the class for what it says about the changes.
        """
        if not await self._written({**changes, NEXT: hexadecimal(self._next)}, self._owner):
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        self._forget()
        self.check_owner()

    async def _written(self, changes: Mapping[str, str | None], owner: str | None) -> bool:
        is_known = False
        try:
            with trio.CancelScope(shield=True):
                done = await self._store.write(changes, owner=(MARK, owner))
            if not isinstance(done, bool):
                msg = f"expected {self._name}.write to return True or False, found {shown(done)}"
                raise StorageUncertainError(msg)
            is_known = True
        except StorageError as error:
            is_known = error.stored is not None
            raise
        except Exception as error:
            msg = f"{self._name}.write failed: {shown(error)}"
            raise StorageUncertainError(msg) from error
        finally:
            if not is_known:
                self._owner = None
                self._forget()
        return done


def _fits(page: Sequence[tuple[str, str]], first: str, end: str, limit: int) -> bool:
    """Whether *page* is what was asked for."""
    if not isinstance(page, Sequence) or len(page) > limit:
        return False
    before: str | None = None
    for entry in page:
        if not (isinstance(entry, Sequence) and len(entry) == 2 and all(isinstance(each, str) for each in entry)):
            return False
        key = entry[0]
        if not (first <= key < end) or (before is not None and key <= before):
            return False
        before = key
    return True
