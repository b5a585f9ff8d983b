"""Memories in one SQLite file, which may be that of the sessions."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

import attrs
import trio

from ..env import Env
from ..sessions import SqliteSessionService
from ..sessions._sqlite._file import Durability, Transaction
from ..sessions._sqlite._guest import FileGuest
from ._ranking import look
from ._service import BaseMemoryService, Memory
from ._sqlite_tables import User, find_user, has_tables, make_tables, make_user
from ._values import MemoryEntry, Query, Scope

__all__ = ["SqliteMemoryService"]


class SqliteMemoryService(FileGuest, BaseMemoryService):
    """
    Keeps memories in a SQLite file with a full-text index (FTS5), which several processes may share.

    Given a session service, they stand in its file and go through its connection: what is written at the same moment,
    sessions or memories, shares one wait for the disk. It is to be closed after this one, which does not close it.

    A file of its own is one that `SqliteSessionService` can open, too, and the other way round.

    Args:
        store: A file (its folder must exist), `":memory:"`, `"sqlite:///FILE"`, or a SqliteSessionService. It is
            opened on first use; the tables for memories are made when the first memory is added.
        durability: As of SqliteSessionService, by default `"power"`; only for a file.
        env: Where time and ids come from; only for a file.

    Raises:
        ConfigurationError: A session service came with a durability or an Env of another.
        NotSupportedError: On use: this SQLite has no FTS5.
        StorageFormatError: On use: the file, or its memories, are not of this version of minirun.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | SqliteSessionService,
        *,
        durability: Durability | None = None,
        env: Env | None = None,
    ) -> None:
        super().__init__(store, durability=durability, env=env)
        self._generation = 0  # of the file that is known to have the tables

    # --- the storage primitives

    async def _add(self, scope: Scope, memories: Sequence[Memory]) -> None:
        def add(transaction: Transaction) -> None:
            self._make_tables(transaction)
            user = make_user(transaction.db, scope)
            for memory in memories:
                user.add(memory)
            user.save()

        await self._file.write(add)

    @trio.lowlevel.enable_ki_protection
    async def _look_up(self, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryEntry | None]:
        async with self._file.reading() as db:
            user = self._find_user(db, scope)
            if user is None:
                return {}
            known: dict[str, MemoryEntry | None] = {name: None for name in ids if user.is_deleted(name)}
            places = [place for name in ids if (place := user.place_of(name)) is not None]
            return known | {entry.id: entry for entry in user.entries(places) if entry.id is not None}

    @trio.lowlevel.enable_ki_protection
    async def _search(self, scope: Scope, query: Query, limit: int) -> list[MemoryEntry]:
        async with self._file.reading() as db:
            user = self._find_user(db, scope)
            if user is None:
                return []
            ranking = look(user, query)
            if not ranking.is_long:
                found = ranking.best(limit)
                entries = user.entries([number for number, _ in found])
                return [attrs.evolve(entry, score=score) for entry, (_, score) in zip(entries, found, strict=True)]
        found = await self._ranked(ranking, limit)
        async with self._file.reading() as db:
            left = user_now.entries_left([n for n, _ in found]) if (user_now := self._find_user(db, scope)) else {}
        return [attrs.evolve(left[number], score=score) for number, score in found if number in left]

    async def _delete(self, scope: Scope, memory_id: str) -> None:
        def choose(user: User) -> list[int]:
            place = user.place_of(memory_id)
            return [] if place is None else [place]

        await self._delete_chosen(scope, choose)

    async def _delete_page(self, scope: Scope, session_id: str | None, limit: int) -> int:
        return await self._delete_chosen(scope, lambda user: user.places(session_id, limit))

    async def _delete_chosen(self, scope: Scope, choose: Callable[[User], list[int]]) -> int:
        def delete(transaction: Transaction) -> int:
            user = self._find_user(transaction.db, scope)
            places = [] if user is None else choose(user)
            if user is not None and places:
                for place in places:
                    user.delete(place)
                user.save()
            return len(places)

        return await self._file.write(delete)

    # --- helpers

    def _make_tables(self, transaction: Transaction) -> None:
        generation = self._file.generation
        if self._generation != generation:
            if not has_tables(transaction.db, self._file.name):
                make_tables(transaction.db)
            transaction.after_commit(lambda: self._note_tables(generation))

    def _find_user(self, db: sqlite3.Connection, scope: Scope) -> User | None:
        if self._generation != self._file.generation and not has_tables(db, self._file.name):
            return None
        return find_user(db, scope)

    def _note_tables(self, generation: int) -> None:
        self._generation = generation
