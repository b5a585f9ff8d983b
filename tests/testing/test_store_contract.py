"""The contract suite of key-value stores finds each mistake that a store can make, and nothing in a sound one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.own_store import JsonLines
from minirun.sessions import KeyValueStore
from minirun.testing import check_key_value_store

from ..sessions.test_key_value_store import InMemory


class Kept(KeyValueStore):
    """A sound store, whose entries can be handed from one to the next, and whose parts can be broken."""

    def __init__(self, entries: dict[str, str] | None = None) -> None:
        self.entries = {} if entries is None else entries

    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return sorted(entry for entry in self.entries.items() if first <= entry[0] < end)[:limit]

    def is_owner(self, key: str, value: str | None) -> bool:
        return self.entries.get(key) == value

    def change(self, changes: Mapping[str, str | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value

    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        if not self.is_owner(*owner):
            return False
        self.change(changes)
        return True


class TakesAnyOwner(Kept):
    def is_owner(self, key: str, value: str | None) -> bool:
        return True


class TakesAnyOwnerWhereThereIsNone(Kept):
    def is_owner(self, key: str, value: str | None) -> bool:
        return key not in self.entries or self.entries[key] == value


class ConfusesNoneAndEmpty(Kept):
    def is_owner(self, key: str, value: str | None) -> bool:
        return (self.entries.get(key) or None) == (value or None)

    def change(self, changes: Mapping[str, str | None]) -> None:
        super().change({key: value or None for key, value in changes.items()})


class ChangesWhatItRefuses(Kept):
    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        self.change(changes)
        return self.is_owner(*owner)


class Unsorted(Kept):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return [entry for entry in self.entries.items() if first <= entry[0] < end][:limit]


class SortsWithoutCase(Kept):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return sorted(await super().read(first, end, 10**6), key=lambda entry: entry[0].lower())[:limit]


class TakesTheEndIn(Kept):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return sorted(entry for entry in self.entries.items() if first <= entry[0] <= end)[:limit]


class KnowsNoLimit(Kept):
    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        return await super().read(first, end, 10**6)


class NeverRemoves(Kept):
    def change(self, changes: Mapping[str, str | None]) -> None:
        super().change({key: value for key, value in changes.items() if value is not None})


class CutsTexts(Kept):
    def change(self, changes: Mapping[str, str | None]) -> None:
        super().change({key: value and value[:65_536] for key, value in changes.items()})


MISTAKES = {
    TakesAnyOwner: "another owner",
    TakesAnyOwnerWhereThereIsNone: "another owner",
    ConfusesNoneAndEmpty: "any text",
    ChangesWhatItRefuses: "another owner",
    Unsorted: "sorted",
    SortsWithoutCase: "sorted",
    TakesTheEndIn: "sorted",
    KnowsNoLimit: "sorted",
    NeverRemoves: "sets and removes",
    CutsTexts: "any text",
}


@pytest.mark.parametrize("store", MISTAKES)
async def test_each_mistake_of_a_store_is_found(store: type[Kept]) -> None:
    """The note names the promise that is broken."""
    with pytest.raises(AssertionError) as caught:
        await check_key_value_store(store)
    assert MISTAKES[store] in caught.value.__notes__[0]


async def test_a_store_that_keeps_nothing_is_found() -> None:
    """With `durable`, what was written is looked for in the store that is opened next."""
    await check_key_value_store(Kept)
    with pytest.raises(AssertionError, match="opened again"):
        await check_key_value_store(Kept, durable=True)
    entries: dict[str, str] = {}
    await check_key_value_store(lambda: Kept(entries), durable=True)


@pytest.mark.parametrize("durable", [False, True])
async def test_sound_stores_pass(durable: bool, tmp_path: Path) -> None:
    """The store of the tests, in memory; and that of the example, in a file that one store has open at a time."""
    one = InMemory()
    numbers = iter(range(100))

    def in_file() -> Any:
        return JsonLines(tmp_path / ("one" if durable else str(next(numbers))))

    await check_key_value_store(in_file, durable=durable)
    await check_key_value_store((lambda: one) if durable else InMemory, durable=durable)
