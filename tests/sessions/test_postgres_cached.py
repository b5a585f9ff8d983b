"""What is kept of the sessions of a database: how large it is said to be, and what it knows without asking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from minirun.sessions import DatabaseSessionService

from ..postgres import new_database
from ..stores import HERE, KEY, ElsewhereInPostgres, Where, append, get

STATE = {f"key {number}": number for number in range(50)}

Make = Callable[[DatabaseSessionService, DatabaseSessionService], Awaitable[object]]


async def make(service: DatabaseSessionService, _: DatabaseSessionService) -> None:
    await service.create_session(**HERE, state=STATE)


async def append_to_it(service: DatabaseSessionService, _: DatabaseSessionService) -> None:
    session = await service.create_session(**HERE)
    for key, value in STATE.items():
        await append(service, session, "x", **{key: value, f"other {key}": value})


async def catch_up(service: DatabaseSessionService, other: DatabaseSessionService) -> None:
    await service.create_session(**HERE)
    session = await get(other)
    for key, value in STATE.items():
        await append(other, session, "x", **{key: value, f"other {key}": value})
    await get(service)


async def import_it(service: DatabaseSessionService, other: DatabaseSessionService) -> None:
    place = Where(app_name="app", user_id="u", session_id="before")
    session = await other.create_session(**place)
    for key, value in STATE.items():
        await append(other, session, "x", **{key: value, f"other {key}": value})
    await service.import_session(**HERE, events=await other.read_events(**place))


@pytest.mark.parametrize(("how", "least"), [(make, 0.95), (append_to_it, 0.95), (catch_up, 0.8), (import_it, 0.95)])
async def test_a_session_is_as_large_however_it_came_to_be_kept(how: Make, least: float) -> None:
    """About: what was made, written, brought up to date or imported is counted as it is when it is loaded."""
    url = new_database()
    async with ElsewhereInPostgres(url) as service, ElsewhereInPostgres(url) as other, ElsewhereInPostgres(url) as new:
        await how(service, other)
        await get(new)
        kept, loaded = service._cache, new._cache
        assert kept.bytes == sum(each.size for each in kept.sessions.values())
        assert least < kept.sessions[KEY].size / loaded.sessions[KEY].size < 1.3


async def test_no_message_waits_in_a_session_that_was_just_made() -> None:
    """So the first run there does not look for any."""
    async with DatabaseSessionService(new_database()) as service:
        await service.create_session(**HERE)
        assert not service._cache.sessions[KEY].has_messages
