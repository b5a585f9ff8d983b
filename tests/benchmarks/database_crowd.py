"""
Writers of a Postgres database, in a process of its own: what their appends took, as one line of JSON.

    python -m tests.benchmarks.database_crowd SIDE WRITERS TIMES URL

It says `ready` once its sessions are made, and begins when it is told to, so that several can begin together. Each
writer appends so many times in a row to a session of its own. The floor is the same SQL by bare libpq, without a loop:
one statement has an event of each writer, as it would be if nobody ever came late.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio
from psycopg import pq

from minirun import Event
from minirun._postgres._values import Call, decoder, encode
from minirun.sessions import DatabaseSessionService, Session
from minirun.sessions._postgres._state import state_rows
from minirun.sessions._postgres._statement import OUTSIDE, append_call

from .floors import floor_event, floor_line
from .programs.protocol import ANSWER


def begin() -> tuple[float, float]:
    """Wait until it may begin; return the time on both clocks."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter(), time.process_time()


def told(writers: int, times: int, begun: tuple[float, float]) -> dict[str, float]:
    """What it took, per event."""
    events = writers * times
    return {
        "us": (time.perf_counter() - begun[0]) / events * 1e6,
        "cpu_us": (time.process_time() - begun[1]) / events * 1e6,
    }


# --- minirun ----------------------------------------------------------------------------------------------------------


async def appended(writers: int, times: int, url: str) -> dict[str, float]:
    """Each writer is a task."""

    async def write(session: Session) -> None:
        for _ in range(times):
            await service.append_event(session, Event(author="agent", message=ANSWER, state={"last": ANSWER}))

    async with DatabaseSessionService(url) as service:
        sessions = [await service.create_session(app_name="app", user_id="u") for _ in range(writers)]
        for session in sessions:
            await service.append_event(session, Event(author="agent", message=ANSWER, state={"last": ANSWER}))
        begun = begin()
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(write, session)
        return told(writers, times, begun)


# --- the floor --------------------------------------------------------------------------------------------------------


class Libpq:
    """One connection that waits."""

    def __init__(self, url: str) -> None:
        self._connection = pq.PGconn.connect(url.encode())
        assert self._connection.status == pq.ConnStatus.OK, self._connection.get_error_message()
        self._prepared: set[str] = set()

    def execute(self, call: Call) -> list[list[Any]]:
        """Execute a statement, prepared the first time, and return its rows."""
        name = call.statement.name.encode()
        if call.statement.sql not in self._prepared:
            self._prepared.add(call.statement.sql)
            self._connection.prepare(name, call.statement.sql.encode(), call.statement.oids)
        values: list[Any] = [*encode(call)]
        result = self._connection.exec_prepared(name, values, [1] * len(values), 1)
        assert result.status == pq.ExecStatus.TUPLES_OK, result.get_error_message()
        readers = [decoder(result.ftype(column)) for column in range(result.nfields)]
        return [
            [read(result.get_value(row, column) or b"") for column, read in enumerate(readers)]
            for row in range(result.ntuples)
        ]


def floor_append(connection: Libpq, heads: list[list[Any]]) -> None:
    """Append one event to each of the sessions: their number, revision, link and epoch are in *heads*."""
    members: list[Sequence[Any]] = []
    rows: dict[str, list[Any]] = {"set_state": []}
    for member, (session, revision, chain, epoch) in enumerate(heads, 1):
        line = floor_line(floor_event(revision + 1, ANSWER))
        members.append((session, revision, chain, epoch, OUTSIDE, None, time.time(), 0, line))
        rows["set_state"] += state_rows(member, {"last": ANSWER})[0]
    answer = connection.execute(append_call("floor", 30.0, members, rows))
    assert len(answer) == len(heads)
    for member, _, epoch, chain, *_ in answer:
        head = heads[member - 1]
        head[1:] = [head[1] + 1, chain, epoch]


def floored(writers: int, times: int, url: str) -> dict[str, float]:
    """One statement after the other."""

    async def made() -> list[list[Any]]:
        async with DatabaseSessionService(url) as service:
            lives = []
            for _ in range(writers):
                session = await service.create_session(app_name="app", user_id="u")
                [live] = [one for key, one in service._cache.sessions.items() if key.session_id == session.id]
                lives.append([live.incarnation, live.revision, live.mark, live.epoch])
            return lives

    heads = trio.run(made)
    connection = Libpq(url)
    floor_append(connection, heads)
    begun = begin()
    for _ in range(times):
        floor_append(connection, heads)
    return told(writers, times, begun)


def main() -> None:
    """Do what the command line asks for, once."""
    parser = argparse.ArgumentParser(description="Writers of a database, in a process of their own.")
    parser.add_argument("side", choices=("minirun", "floor"))
    parser.add_argument("writers", type=int)
    parser.add_argument("times", type=int)
    parser.add_argument("url")
    given = parser.parse_args()
    size = given.writers, given.times, given.url
    print(json.dumps(floored(*size) if given.side == "floor" else trio.run(partial(appended, *size))))


if __name__ == "__main__":
    main()
