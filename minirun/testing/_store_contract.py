"""
What every store of keys and values promises, as checks that its author can run:

    async def test_my_store() -> None:
        await check_key_value_store(MyStore)

`check_session_service` then checks the session service that is made of it. That one cannot find every mistake of a
store: a store that takes any owner serves a single service well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..sessions import KeyValueStore
from ._contract import expect

__all__ = ["check_key_value_store"]

KEYS = [chr(code) for code in range(0x20, 0x7F)]  # printable ASCII
TEXTS = ("", "\0\n\t", "é", "\U0001f600", '"\\', "x" * 1_000_000)
LIMIT = 1_000


async def check_key_value_store(factory: Callable[[], KeyValueStore], *, durable: bool = False) -> None:
    """
    Run every check of the contract on the store that *factory* makes, which is empty at first.

    Args:
        factory: Returns a store. It is called once for each check, when the store before has been closed.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The store breaks the contract; a note names the check.
    """
    for check in _CHECKS:
        name = check.__name__.strip("_")
        place = f"contract/{name}/"
        try:
            for body in (check, _is_found_again) if durable else (check,):
                store = factory()
                try:
                    await body(_Place(store, place))
                finally:
                    await store.aclose()
        except Exception as error:
            error.add_note(f"this breaks the store's promise: {name.replace('_', ' ')}")
            raise


class _Place:
    """A part of the store, for one check, with an entry that names its owner."""

    def __init__(self, store: KeyValueStore, place: str) -> None:
        self.store = store
        self.place = place

    async def read(self, first: str = " ", end: str = "\x7f", limit: int = LIMIT) -> dict[str, str]:
        """What is in the place, by names."""
        found = await self.store.read(self.place + first, self.place + end, limit)
        return {key.removeprefix(self.place): value for key, value in found}

    async def write(self, changes: Mapping[str, str | None], owner: str | None = None) -> bool:
        named = {self.place + name: value for name, value in changes.items()}
        return await self.store.write(named, owner=(f"{self.place}owner", owner))


async def _entries_are_sorted_from_the_first_up_to_the_end(place: _Place) -> None:
    expect("a write of the expected owner", await place.write({name: name for name in reversed(KEYS)}), True)
    inside = [name for name in KEYS if "A" <= name < "a"]
    expect("entries from A up to a, without a", list(await place.read("A", "a")), inside)
    expect("at most 3 of them", list(await place.read("A", "a", 3)), inside[:3])


async def _a_write_sets_and_removes(place: _Place) -> None:
    await place.write({"a": "1", "b": "2", "c": "3"})
    expect("a write of the expected owner", await place.write({"a": None, "b": "new", "d": None}), True)
    expect("entries", await place.read(), {"b": "new", "c": "3"})


async def _a_value_is_any_text(place: _Place) -> None:
    texts = {str(number): text for number, text in enumerate(TEXTS)}
    await place.write(texts)
    found = await place.read()
    for name, text in texts.items():
        expect(f"the text {text[:9]!r}", found.get(name), text)


async def _a_write_of_another_owner_changes_nothing(place: _Place) -> None:
    expect("a write of the first owner", await place.write({"owner": "1", "a": "1"}), True)
    for other in (None, "0", ""):
        found = await place.write({"owner": "2", "a": "2", "b": "2"}, owner=other)
        expect(f"a write that expects {other!r} as the owner, which is '1'", found, False)
        expect("entries after that", await place.read(), {"a": "1", "owner": "1"})
    expect("a write that takes the store over", await place.write({"owner": "2"}, owner="1"), True)
    expect("a write of the owner before", await place.write({"a": "3"}, owner="1"), False)
    await place.write({"owner": None}, owner="2")
    expect("a write of an owner that is gone", await place.write({"a": "3"}, owner="2"), False)
    expect("entries at the end", await place.read(), {"a": "1"})


_CHECKS = (
    _entries_are_sorted_from_the_first_up_to_the_end,
    _a_write_sets_and_removes,
    _a_value_is_any_text,
    _a_write_of_another_owner_changes_nothing,
)


async def _is_found_again(place: _Place) -> None:
    """What a check has left is found by the store that was opened after it."""
    expect("whether the entries of a store that was opened again are there", bool(await place.read()), True)
