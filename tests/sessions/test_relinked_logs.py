"""
Logs whose links are right, and in which one event makes no sense: what a bug would have written, and no disk.

Reading such a log raises StorageCorruptError, and `verify` reports where the event is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import DatabaseSessionService, Event, EventActions, SqliteSessionService
from minirun.errors import StorageCorruptError
from minirun.sessions import BaseSessionService, verify
from minirun.sessions._postgres._verify import verify_database
from minirun.sessions._sqlite._logs import link

from ..postgres import missing
from ..postgres_sessions import sql as postgres
from ..stores import HERE, database_of, get, sql

SESSION = "session 's' of user 'u' in app 'app'"
USER = "the state of user 'u' in app 'app'"


async def write(service: BaseSessionService) -> None:
    """Four events after the creation record, of which two write what users share."""
    session = await service.create_session(**HERE, state={"word": "a", "n": 1})
    for actions in (
        EventActions(state_delta={"user:word": "a"}),
        EventActions(),
        EventActions(state_ops={"user:n": {"add": 1}, "n": {"add": 1}}),
        EventActions(),
    ):
        await service.append_event(session, Event(author="a", message="x", actions=actions))


Line = tuple[int, int, str]
"""An event as its row has it: its place, its number, and its text."""


def relinked(lines: list[Line], change: dict[str, Any]) -> list[tuple[int, bytes, str, int]]:
    """The log with its event 2 changed: of each event its number, its link, its text and its place."""
    found, chain = [], bytes(32)
    for seq, number, data in lines:
        if seq == 2:
            number = change.get("number", number)
            data = change.get("data") or json.dumps({**json.loads(data), **change.get("fields", {})})
        chain = link(chain, seq, number, data)
        found.append((number, chain, data, seq))
    return found


UNREAD, FOLDED, FINE = "is not read", "is read, but not folded", "is read"

CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no object": (
        {"data": "[]"}, f"{SESSION}, event 2", "it cannot be read: Event: expected a JSON object, found list", UNREAD,
    ),
    "a field of another type": (
        {"fields": {"author": 7}}, f"{SESSION}, event 2", "it cannot be read: Event.author: expected a string, found 7",
        UNREAD,
    ),
    "another place": (
        {"fields": {"seq": 7}}, f"{SESSION}, event 2", "expected the seq 2 in it, found 7", UNREAD,
    ),
    "a number that is not above the one before": (
        {"number": 0}, f"{SESSION}, event 2", "expected a number ", FINE,
    ),
    "a key that is none": (
        {"fields": {"actions": {"state_delta": {"user:": 1}}}}, f"{SESSION}, event 2",
        "it cannot be read: state_delta: expected a name after the prefix, found 'user:'", FOLDED,
    ),
    "an operation that does not fit": (
        {"fields": {"actions": {"state_ops": {"word": {"add": 1}}}}}, f"{SESSION}, event 2",
        "its state changes cannot be applied: state['word']: `add` expects a number, found 'a'", FOLDED,
    ),
    "an operation that does not fit what users share": (
        {"fields": {"actions": {"state_ops": {"user:word": {"add": 1}}}}}, USER,
        "event number 3 cannot be applied to it: state['user:word']: `add` expects a number, found 'a'", FINE,
    ),
}  # fmt: skip
"""By what is wrong: the change, where it is told and what, and whether the log is read all the same."""


FOLLOWING = [
    f"{USER}: state key 'user:n': expected no such key, found 1",
    f"{USER}: state key 'user:n': no event has the number 4",
]
"""What is told of a database besides, whose log ends there for all who look."""


def check_told(told: list[str], case: str) -> None:
    """It is told in its place, first of all."""
    _, place, problem, _ = CASES[case]
    assert told[0].startswith(f"{place}: {problem}")


async def check_reading(service: BaseSessionService, case: str) -> None:
    """What cannot be read is damage, however it is asked for; nobody gets a part of it."""
    for read in (get(service), service.read_events(**HERE), get(service, num_recent_events=3)):
        if CASES[case][3] == UNREAD:
            with pytest.raises(StorageCorruptError):
                await read
        else:
            await read
    assert [event.seq for event in await service.read_events(**HERE, after_seq=2)] == [3, 4]


@pytest.mark.parametrize("case", CASES)
def test_an_event_in_a_file_that_makes_no_sense(case: str, tmp_path: Path) -> None:
    """It is told once, and reading it is an error."""

    async def make() -> None:
        async with SqliteSessionService(path, durability="process") as service:
            await write(service)

    async def read() -> None:
        async with SqliteSessionService(path, durability="process") as service:
            await check_reading(service, case)

    path = tmp_path / "a.db"
    trio.run(make)
    change = CASES[case][0]
    lines = relinked(sql(path, "SELECT seq, commit_no, data FROM events ORDER BY seq"), change)
    for number, chain, data, seq in lines:
        sql(path, "UPDATE events SET commit_no = ?, chain = ?, data = ? WHERE seq = ?", number, chain, data, seq)
    sql(path, "UPDATE sessions SET chain = ?", lines[-1][1])
    told = [str(damage) for damage in verify(path)]
    check_told(told, case)
    assert len(told) == 1
    trio.run(read)

@pytest.mark.skipif(bool(missing()), reason="no Postgres server")
@pytest.mark.parametrize("case", CASES)
def test_an_event_in_a_database_that_makes_no_sense(case: str, tmp_path: Path) -> None:
    """It is told once, as it is of a file, and reading it is an error."""

    async def make() -> None:
        async with DatabaseSessionService(url) as service:
            await write(service)

    async def look() -> None:
        async with DatabaseSessionService(url) as service:
            told = [str(damage) for damage in await verify_database(service)]
            check_told(told, case)
            assert told[1:] == ([] if CASES[case][1] == USER else FOLLOWING)
            await check_reading(service, case)

    url = database_of(tmp_path)
    trio.run(make)
    rows = postgres(url, "SELECT seq, commit_no, data FROM minirun.events ORDER BY seq")
    lines = relinked([(int(seq or 0), int(number or 0), data or "") for seq, number, data in rows], CASES[case][0])
    for number, chain, data, seq in lines:
        text = data.replace("'", "''")
        values = f"commit_no = {number}, chain = '\\x{chain.hex()}', data = '{text}'"
        postgres(url, f"UPDATE minirun.events SET {values} WHERE seq = {seq}")
    postgres(url, f"UPDATE minirun.sessions SET chain = '\\x{lines[-1][1].hex()}'")
    trio.run(look)
