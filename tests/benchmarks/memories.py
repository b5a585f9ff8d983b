"""
How long searching takes among many memories of one user, in a process of its own: rows, as JSON.

    python -m tests.benchmarks.memories ROUNDS MEMORIES STORE...

The benchmark starts it once for each size. STORE is `memory` or `disk`.

Rules of this file:

*   The memories are of one user: all others would only make it faster. Each has 20 words, whose frequencies fall as
    those of a language do, and one of two words that each half of the memories has.
*   The *floor* is SQLite's full-text search by itself, on the same texts: porter and unicode61, and `MATCH ... ORDER BY
    rank LIMIT 10`. It ranks all that match, so it grows with them; a search is bounded.
*   A search runs inline, so a time is what the loop stands still for.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import trio

from minirun import Event
from minirun.memory import BaseMemoryService, InMemoryMemoryService, SqliteMemoryService

USER: dict[str, Any] = {"app_name": "app", "user_id": "u"}
VOCABULARY = 50_000
PAGE = 5_000
TARGETS_MS = {20_000: 10, 1_000_000: 50}

LUCK = random.Random(1)
WORDS = ["".join(LUCK.choices("abcdefghijklmnopr", k=7)) for _ in range(VOCABULARY)]
WEIGHTS = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))

QUERIES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "a rare word": (WORDS[9_000], None),
    "3 common words": (" ".join(WORDS[:3]), None),
    "5 common words": (" ".join(["even", "odd", *WORDS[:3]]), None),
    "of one author": (" ".join(WORDS[:3]), {"author": "user"}),
    "of the first half": (" ".join(WORDS[:3]), {"before": 0.5}),
}


def texts(count: int) -> Iterator[tuple[int, str]]:
    """What was said, by number."""
    luck = random.Random(2)
    for number in range(count):
        words = luck.choices(WORDS, cum_weights=WEIGHTS, k=20)
        yield number, " ".join([*words, "odd" if number % 2 else "even"])


async def filled(service: BaseMemoryService, count: int) -> None:
    """Let all of it be remembered; times go from 0 to 1."""
    said = texts(count)
    while page := [each for _, each in zip(range(PAGE), said, strict=False)]:
        events = [
            Event(id=str(number), author=("user", "agent")[number % 3 > 0], timestamp=number / count, message=text)
            for number, text in page
        ]
        await service.add_events_to_memory(**USER, session_id=f"s{page[0][0]}", events=events)


def floor_of(path: Path, count: int) -> sqlite3.Connection:
    """The same texts in a plain full-text index."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')")
    db.execute("BEGIN")
    db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", texts(count))
    db.execute("COMMIT")
    return db


async def rounds_of(rounds: int, step: Callable[[], Awaitable[object]]) -> list[float]:
    """The milliseconds that each round takes; the first warms up."""
    times = []
    for _ in range(rounds + 1):
        gc.collect()
        start = time.perf_counter()
        await step()
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]


async def measured(service: BaseMemoryService, floor: sqlite3.Connection, where: str, rounds: int, count: int) -> Any:
    """A row for each query."""
    for name, (query, narrow) in QUERIES.items():

        async def search(query: str = query, narrow: dict[str, Any] | None = narrow) -> None:
            found = await service.search_memory(**USER, query=query, filter=narrow)
            assert len(found.memories) <= 10

        async def bare(query: str = query) -> None:
            match = " OR ".join(query.split())
            floor.execute("SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 10", (match,)).fetchall()

        times, floor_times = await rounds_of(rounds, search), await rounds_of(rounds, bare)
        target = f"<= {TARGETS_MS[count]} ms" if count in TARGETS_MS else ""
        yield {
            "what": f"search {count}, {where}, {name}",
            "rounds": times,
            "beside": "FTS5's own ranking of all",
            "floor_rounds": floor_times,
            "target": target,
            "unit": "ms",
            "note": f"(worst {max(times):.1f} ms)",
        }


async def speed(rounds: int, count: int, stores: list[str]) -> list[dict[str, Any]]:
    """The rows of all stores."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        floor = floor_of(Path(folder) / "floor.db", count)
        for store in stores:
            service: BaseMemoryService = InMemoryMemoryService()
            if store == "disk":
                service = SqliteMemoryService(Path(folder) / "memories.db", durability="process")
            async with service:
                await filled(service, count)
                rows += [row async for row in measured(service, floor, store, rounds, count)]
        floor.close()
    return rows


def main() -> None:
    """Do what the command line asks for, once."""
    parser = argparse.ArgumentParser(description="Searching memories, in a process of its own.")
    parser.add_argument("rounds", type=int)
    parser.add_argument("memories", type=int)
    parser.add_argument("stores", nargs="+", choices=["memory", "disk"])
    options = parser.parse_args()
    print(json.dumps(trio.run(speed, options.rounds, options.memories, options.stores)))


if __name__ == "__main__":
    main()
