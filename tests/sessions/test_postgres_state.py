"""The shared state of a database is folded by the database, with the very results of `apply_write`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from minirun._json import dumps, freeze, loads
from minirun._postgres._errors import sqlstate
from minirun._postgres._pool import Pool
from minirun._postgres._values import Statement
from minirun.env import Env
from minirun.errors import InvalidValueError, StorageRolledBackError
from minirun.sessions._postgres._database import Database
from minirun.sessions._postgres._schema import REFUSED_OPERATION, SEPARATOR
from minirun.sessions._postgres._state import operation, take_news
from minirun.sessions._postgres._text import read_key, stored_key
from minirun.sessions._scoped import CachedScope
from minirun.sessions._state import MISSING, REMOVED, Add, Extend, Write, apply_write

from ..examples import examples
from ..postgres import new_database

FOLD = Statement("fold", "SELECT minirun.fold($1, $2, $3, '=k', NULL)", "text text[] int8[]")


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A database with the schema, which nothing is stored in."""
    found = Database(Pool(new_database(), Env(), size=1))
    yield found
    found.pool.close()


INTEGERS = st.one_of(st.integers(), st.integers(-(10**40), 10**40), st.sampled_from([0, 1, -1, 10**3999, 10**4000 - 1]))
NUMBERS = st.one_of(
    INTEGERS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-0.0, 0.5, 1e15, 1e16, 123456789012345678.0, 1.7976931348623157e308, 5e-324, 2**53 + 1, 10**309]),
)
LISTS = st.lists(st.one_of(NUMBERS, st.text(max_size=3), st.none(), st.booleans()), max_size=3)
DICTS = st.dictionaries(st.text(max_size=2), NUMBERS, max_size=2)
OTHERS = st.one_of(st.none(), st.booleans(), st.text(max_size=4), DICTS)
VALUES = st.one_of(NUMBERS, LISTS, OTHERS).map(freeze)
WRITES = st.one_of(
    NUMBERS.map(lambda number: Add(freeze(number))),
    LISTS.map(lambda items: Extend(freeze(items))),
    VALUES,
    st.just(REMOVED),
)


def folded(value: Any, writes: list[Write]) -> tuple[Any, int | None]:
    """What Python makes of it: what the key holds then, and which write is refused, from 1 on; then before it."""
    for number, write in enumerate(writes, 1):
        try:
            value = apply_write("user:k", value, write)
        except InvalidValueError:
            return value, number
    return value, None


async def folded_there(database: Database, value: Any, writes: list[Write]) -> tuple[Any, int | None]:
    """What the database makes of it."""
    text = None if value is MISSING else dumps(value)
    operations = [operation(write) for write in writes]
    try:
        [result] = await database.write(FOLD(text, operations, [*range(1, len(writes) + 1)]))
    except StorageRolledBackError as error:
        if sqlstate(error) != REFUSED_OPERATION:
            raise
        number, _, _, found = error.__cause__.constraint.split(SEPARATOR)  # type: ignore[union-attr]  # of the server
        return loads(found), int(number)
    [(text,)] = result.rows
    return MISSING if text is None else loads(text), None


def same(one: Any, other: Any) -> bool:
    """Whether they are the same JSON: 1 is not 1.0, and not True; 0.0 is not -0.0."""
    return one is other if MISSING in (one, other) else repr(one) == repr(other)


@settings(max_examples=examples(300))
@given(st.one_of(st.just(MISSING), VALUES), st.lists(WRITES, max_size=6))
@example(1, [Add(1.5)])
@example(10**308, [Add(1e308)])
@example(10**400, [Add(0.5)])
@example(-0.0, [Add(0)])
@example(0, [Add(-0.0)])
@example(MISSING, [Add(-0.0)])
@example(1e15, [Add(1.0)])
@example(10**4000 - 1, [Add(1)])
@example(True, [Add(1)])
@example(freeze([]), [Extend(freeze([])), Extend(freeze([1]))])
@example("[", [Extend(freeze([1]))])
@example("1", [Add(1)])
def test_the_database_folds_as_python_does(database: Database, value: Any, writes: list[Write]) -> None:
    """Any value and operations: the same value of the same type, or the same operation is refused."""
    expected, refused = folded(value, writes)
    found, refused_there = trio.run(folded_there, database, value, writes)
    note(f"expected {expected!r}, found {found!r}")
    assert refused_there == refused
    assert same(expected, found)


@given(st.text())
@example("\0")
@example("=\\u0000")
@example("x" * 600)
@example("ü" * 300)
def test_any_key_can_be_stored(key: str) -> None:
    """What stands for a key in an index has no NUL, is at most 513 bytes long, and names that key alone."""
    stored, name = stored_key(key)
    assert "\0" not in stored + (name or "")
    assert len(stored.encode()) <= 513
    assert read_key(stored, name) == key


def test_a_key_that_was_not_written_so_is_not_read() -> None:
    """A long key whose hash is another's, and one that is no JSON, are damage."""
    stored, _ = stored_key("x" * 600)
    for columns in ((stored, "y" * 600), ('="', None), ("=\\u0061", None)):
        with pytest.raises((ValueError, json.JSONDecodeError)):
            read_key(*columns)


def scope(number: int, **values: Any) -> CachedScope:
    """What is known of a user's state up to a number."""
    found = CachedScope()
    found.commit_no = number
    found.values.update({f"user:{name}": value for name, value in values.items()})
    return found


@pytest.mark.parametrize(
    ("known", "news", "values", "number"),
    [
        (scope(5, k=5), [], {"user:k": 5}, 5),
        (scope(5, k=5), [("user:k", "1", 4)], {"user:k": 5}, 5),
        (scope(5, k=5), [("user:k", "1", 5)], {"user:k": 5}, 5),
        (scope(5, k=5), [("user:k", "1", 6)], {"user:k": 1}, 6),
        (scope(5, k=5), [("user:k", None, 6), ("user:gone", None, 7)], {}, 7),
        (scope(5, k=5), [("user:k", None, 3), ("user:l", "[1]", 8), ("user:m", "2", 7)],
         {"user:k": 5, "user:l": [1], "user:m": 2}, 8),
        (scope(-1, k=5), [("user:l", "0", 0)], {"user:l": 0}, 0),
        (scope(-1, k=5), [], {}, -1),
    ],
)  # fmt: skip
def test_what_is_newer_than_what_is_known_is_taken_over(
    known: CachedScope, news: list[tuple[str, str | None, int]], values: dict[str, Any], number: int
) -> None:
    """An answer that a newer one has overtaken changes nothing; what was not loaded yet is that answer alone."""
    rows = [("app", "u", *stored_key(key), data, at) for key, data, at in news]
    take_news("a database", {("app", ""): CachedScope(), ("app", "u"): known}, rows)
    assert (known.values, known.commit_no) == (values, number)
