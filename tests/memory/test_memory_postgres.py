"""Memories in a Postgres database: the same answers as in memory, many workers at once, and the cost of a search."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun.errors import InvalidValueError, StorageCorruptError
from minirun.memory import DatabaseMemoryService, InMemoryMemoryService, _ranking
from minirun.sessions import DatabaseSessionService

from ..examples import examples
from ..postgres import new_database
from ..postgres_sessions import sql
from .test_memory_search import ACTS, CAPS, FILTERS, TEXTS, USER, Act, do

TABLES = "users", "entries", "postings", "deleted"


@cache
def url() -> str:
    """The URL of one database for all examples of a property."""
    return new_database()


def counts(url: str) -> list[int]:
    """How many rows each table has."""
    return [int(sql(url, f"SELECT count(*) FROM minirun.memory_{table}")[0][0] or 0) for table in TABLES]


@pytest.mark.parametrize(
    "caps", [(500, 8, 500, 50_000, 32, 500_000, 20_000), (3, 2, 4, 6, 2, 12, 5)], ids=["usual", "tiny"]
)
@settings(max_examples=examples(15))
@given(acts=ACTS, query=TEXTS, narrow=FILTERS, limit=st.integers(1, 20))
def test_it_answers_as_the_one_in_memory(
    caps: tuple[int, ...], acts: list[Act], query: str, narrow: dict[str, Any] | None, limit: int
) -> None:
    """After the same adding and deleting, both give the same answer, order and scores included, capped too."""

    async def check() -> None:
        async with InMemoryMemoryService() as one, DatabaseMemoryService(url()) as other:
            await other.search_memory(**USER, query="x")
            sql(url(), "TRUNCATE " + ", ".join(f"minirun.memory_{table}" for table in TABLES))
            for act in acts:
                for service in (one, other):
                    await do(service, act)
            found = [
                await service.search_memory(**USER, query=query, filter=narrow, limit=limit) for service in (one, other)
            ]
            assert found[0] == found[1]

    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(CAPS, caps, strict=True):
            patch.setattr(_ranking, name, value)
        trio.run(check)


async def test_workers_that_add_at_once_lose_nothing() -> None:
    """Two workers add to one user at the same moment: each memory has a place of its own, and totals are exact."""
    place = new_database()
    async with DatabaseMemoryService(place) as one, DatabaseMemoryService(place) as other:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                for service, name in ((one, "one"), (other, "other")):
                    texts = [f"tea {name}{number} a", f"tea {name}{number} b"]
                    nursery.start_soon(partial(service.add_memory, **USER, memories=texts))
        assert len((await one.search_memory(**USER, query="tea", limit=500)).memories) == 40
    assert sql(place, "SELECT newest, count, length FROM minirun.memory_users") == [("40", "40", "120")]
    assert sql(place, "SELECT count(DISTINCT place) FROM minirun.memory_entries") == [("40",)]


async def test_it_shares_the_connections_of_a_session_service() -> None:
    """Sessions and memories in one database; what is forgotten leaves no row but its id."""
    place = new_database()
    async with DatabaseSessionService(place) as sessions, DatabaseMemoryService(sessions) as memories:
        await sessions.create_session(**USER, session_id="s")
        [first, _] = await memories.add_memory(**USER, memories=["green tea", "black tea"])
        await memories.delete_memory(**USER, memory_id=first)
        assert [m.text for m in (await memories.search_memory(**USER, query="tea green")).memories] == ["black tea"]
        assert counts(place) == [1, 1, len(["black", "tea"]) + len(marks(place)), 1]


def marks(place: str) -> list[str]:
    """The marks of the memories."""
    rows = sql(place, "SELECT DISTINCT part FROM minirun.memory_postings WHERE part LIKE '==%'")
    return [row[0] or "" for row in rows]


async def test_a_search_takes_five_round_trips_whatever_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Totals, the newest of each term, the lists, the texts, and the memories that were found."""
    monkeypatch.setattr(_ranking, "RARE_MAX", 3)
    rounds: list[int] = []
    async with DatabaseMemoryService(new_database()) as service:
        for number in range(3):
            texts = [f"tea milk {word}{number}" for word in ("sugar", "lemon", "mint") * 10]
            await service.add_memory(**USER, memories=texts)
            connection = next(iter(service._database.pool._all))
            real = connection.run
            trips: list[int] = []

            async def run(calls: Any, real: Any = real, trips: list[int] = trips, **options: Any) -> Any:
                trips.append(len(calls))
                return await real(calls, **options)

            monkeypatch.setattr(connection, "run", run)
            await service.search_memory(**USER, query="tea milk sugar1 nobody")
            monkeypatch.setattr(connection, "run", real)
            rounds.append(len(trips))
    assert max(rounds) <= 6  # COMMIT is one, too


async def test_what_somebody_else_has_written_is_noticed() -> None:
    """A row that is no memory is an error, and a user whose id the index has no room for is refused."""
    place = new_database()
    async with DatabaseMemoryService(place) as service:
        await service.add_memory(**USER, memories=["tea"])
        sql(place, "UPDATE minirun.memory_entries SET data = '[]'")
        with pytest.raises(StorageCorruptError, match="a memory cannot be read"):
            await service.search_memory(**USER, query="tea")
        with pytest.raises(InvalidValueError, match="at most 512 bytes"):
            await service.add_memory(app_name="a", user_id="ü" * 300, memories=["tea"])
