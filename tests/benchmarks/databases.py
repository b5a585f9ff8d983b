"""
What appends to a Postgres database cost: beside the same SQL by bare libpq, beside google-adk, and in a large table.

The server is one of the benchmark's own, with fsync, see `tests/postgres.py`. Sides take turns, in changing order, each
time in fresh processes, on one database. All figures are per event; beside the time stands the processor's, of the
client alone, which a busy machine disturbs less.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from ..postgres import PostgresServer, execute, own_server
from .environments import python_of
from .measuring import Row
from .scale import Scale
from .sides import Peer, SideFailedError

ROOT = Path(__file__).parents[2]
LIBPQ = "the same SQL by bare libpq"
ADK = Peer("google-adk-postgres", "adk_database", ("google-adk[db]==2.13.0", "asyncpg"), "")
# (processes, writers in each, most that it may cost beside the floor)
CROWDS = ((1, 1, 1.5), (1, 16, 2.0), (1, 64, 2.0), (4, 16, 2.0))
# About so many events in a round, so that it takes a second or more of a disk.
EVENTS = 4_000

Told: TypeAlias = dict[str, float]


def took(processes: int, *command: str) -> Told:
    """What an event took where so many processes do this at the same time: the time of all, and the processor's."""
    started = [
        subprocess.Popen([*command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for each in started:
            assert _line(each) == "ready\n", f"{command} did not begin"
        for each in started:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        answers = [json.loads(_line(each)) for each in started]
    finally:
        for each in started:
            each.communicate()
    slowest = max(answer["us"] for answer in answers)
    return {"us": slowest / processes, "cpu_us": sum(answer["cpu_us"] for answer in answers) / processes}


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def ours(side: str, processes: int, writers: int, events: int, url: str) -> Told:
    """What an event took on one of our two sides."""
    times = max(3, events // (processes * writers))
    size = str(writers), str(times), url
    return took(processes, sys.executable, "-m", "tests.benchmarks.database_crowd", side, *size)


def theirs(writers: int, events: int, url: str) -> Told:
    """What an event took with google-adk."""
    program = Path(__file__).parent / "programs" / f"{ADK.program}.py"
    return took(1, python_of(ADK), str(program), str(writers), str(max(3, events // writers)), url)


def in_turns(rounds: int, *sides: Any) -> list[list[Told]]:
    """What each of the sides took, round by round; the first round warms up."""
    taken: list[list[Told]] = [[] for _ in sides]
    for number in range(rounds + 1):
        places = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
        for place in places:
            taken[place].append(sides[place]())
    return [rows[1:] for rows in taken]


def rows_of(what: str, mine: list[Told], beside: str, floor: list[Told], target: str) -> list[Row]:
    """A row for the time, and one for the processor's."""
    both = [([told[kind] for told in mine], [told[kind] for told in floor]) for kind in ("us", "cpu_us")]
    per_s = f"({1e6 / median(both[0][0]):.0f} events/s, {1e6 / median(both[0][1]):.0f} there)"
    return [
        Row(what, both[0][0], beside, both[0][1], target, note=per_s),
        Row("    processor, client", both[1][0], beside, both[1][1]),
    ]


def crowds(server: PostgresServer, rounds: int, events: int) -> Iterator[Row]:
    """Appends of one or more processes beside the floor."""
    url = server.new_database()
    for processes, writers, most in CROWDS:
        size = processes, writers, events, url
        mine, floor = in_turns(rounds, partial(ours, "minirun", *size), partial(ours, "floor", *size))
        name = f"Postgres append, {f'{processes} x ' if processes > 1 else ''}{writers} writer{'s' * (writers > 1)}"
        yield from rows_of(name, mine, LIBPQ, floor, f"<= {most}")


def beside_adk(server: PostgresServer, rounds: int, events: int) -> list[Row]:
    """16 writers beside those of google-adk, on the same server."""
    url, its = server.new_database(), server.new_database()
    name = its.partition("?")[0].rpartition("/")[2]
    address = f"postgresql+asyncpg://{server.user}@/{name}?host={server.folder}"
    try:
        python_of(ADK)
    except SideFailedError as error:
        print(f"google-adk: {error}", file=sys.stderr)
        return []
    mine, adk = in_turns(
        rounds, partial(ours, "minirun", 1, 16, events, url), partial(theirs, 16, max(48, events // 10), address)
    )
    return rows_of("Postgres append, 16 writers", adk, "minirun", mine, ">= 10")


def large_table(server: PostgresServer, rounds: int, events: int, size: int) -> list[Row]:
    """One writer's append in a table of so many events, beside an empty one."""
    empty, full = server.new_database(), server.new_database()
    ours("minirun", 1, 1, 3, full)  # makes the tables
    execute(
        full,
        "INSERT INTO minirun.sessions (id, app_name, user_id, session_id, revision, create_time, update_time, chain)"
        " SELECT 1000000 + n, 'app', 'u' || n % 1000, 's' || n, 99, 0, 0, sha256('')"
        f" FROM generate_series(1, {size // 100}) n",
        "INSERT INTO minirun.events (log, seq, commit_no, chain, data)"
        " SELECT 1000000 + n / 100, n % 100, n, sha256(''), repeat('x', 300)"
        f" FROM generate_series(100, {size + 99}) n",
        f"UPDATE minirun.store SET commit_no = {size + 1000}, session_no = 2000000",
        "VACUUM ANALYZE minirun.events",
        "CHECKPOINT",
    )
    mine, before = in_turns(
        rounds, partial(ours, "minirun", 1, 1, events // 8, full), partial(ours, "minirun", 1, 1, events // 8, empty)
    )
    return rows_of(f"Postgres append at {size} events", mine, "an empty table", before, "<= 1.3")


async def databases(scale: Scale, folder: Path) -> list[Row]:
    """Sessions in Postgres; nothing without a server."""
    server = own_server()
    try:
        events = EVENTS if scale.events > 100 else 20
        rows = [*crowds(server, scale.slow_rounds, events)]
        if scale.peers:
            rows += beside_adk(server, scale.slow_rounds, events)
        if scale.database_events:
            rows += large_table(server, scale.slow_rounds, events, scale.database_events)
        return rows
    finally:
        server.remove()
