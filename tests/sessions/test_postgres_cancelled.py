"""
A cancelled call on Postgres stores nothing (promise P1), also if its statements are larger than the socket's buffer.

The calls go to a real server through a wire that tasks of the same loop relay. So a large statement is always sent in
several pieces, and "after step n of any task" is a point between two pieces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from minirun import DatabaseSessionService
from minirun.artifacts import DatabaseArtifactService
from minirun.artifacts._database import CHUNK_BYTES
from minirun.types import Part

from ..interruptions import PLACE, CancelAtStep
from ..postgres import new_database, shared_server
from ..postgres_sessions import sql
from ..postgres_wire import wire_to

# Several times the buffer of a Unix socket (208 KiB on Linux), and several chunks of an artifact.
LARGE_BYTES = 700_000
# No call takes so many steps: the bound of the enumeration.
STEPS_MAX = 1_000

OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def cancel_at_each_step(work: Callable[[int], Awaitable[object]]) -> set[int]:
    """Call `work(n)` and cancel it after step n, for each n until it ends before step n; return those cancelled."""
    cancelled: set[int] = set()
    for number in range(1, STEPS_MAX):
        has_returned = False
        with trio.CancelScope() as scope:
            instrument = CancelAtStep(scope, number)
            trio.lowlevel.add_instrument(instrument)
            try:
                await work(number)
                has_returned = True
            finally:
                trio.lowlevel.remove_instrument(instrument)
        if not has_returned:
            cancelled.add(number)
        elif instrument.steps < number:
            return cancelled
    raise AssertionError("the call never ends")


async def all_are_gone(url: str) -> None:
    """Wait until the server has taken what was sent, and has closed the connections."""
    with trio.fail_after(30):
        for _ in range(10_000):
            if sql(url, OTHERS) == [("0",)]:
                return
            await trio.sleep(0.01)


def numbers_of_rows(url: str) -> dict[str, str | None]:
    """How many rows each table of minirun has."""
    names = [str(name) for (name,) in sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'minirun'")]
    return {name: sql(url, f"SELECT count(*) FROM minirun.{name}")[0][0] for name in names}


@pytest.fixture
def url() -> str:
    return new_database()


async def test_a_large_create_session_that_raises_cancelled_has_stored_nothing(url: str) -> None:
    """Cancelled after any step of any task, `create_session` has returned a stored session, or there is none."""
    state = {"document": "x" * LARGE_BYTES}

    async with wire_to(shared_server(), url) as wire:
        async with DatabaseSessionService(wire.url) as service:
            await service.list_sessions(app_name="app")  # connects

            async def create(number: int) -> None:
                await service.create_session(app_name="app", user_id="u", session_id=f"s{number}", state=state)

            cancelled = await cancel_at_each_step(create)
        await all_are_gone(url)
    assert len(cancelled) >= 1
    async with DatabaseSessionService(url) as service:
        stored = {each.id for each in (await service.list_sessions(app_name="app")).sessions}
    assert stored.isdisjoint({f"s{number}" for number in cancelled})


async def test_a_large_save_artifact_that_raises_cancelled_has_stored_and_left_nothing(url: str) -> None:
    """Cancelled after any step, `save_artifact` has stored its version, or it has left no row, also before a gc."""
    returned: list[int] = []

    async with wire_to(shared_server(), url) as wire:
        async with DatabaseSessionService(wire.url) as service, DatabaseArtifactService(service) as artifacts:
            await service.create_session(app_name="app", **PLACE)

            async def save(number: int) -> None:
                data = number.to_bytes(2, "big") * (LARGE_BYTES // 2)  # equal contents would be stored once
                part = Part.from_bytes(data=data, mime_type="a/b")
                returned.append(await artifacts.save_artifact(app_name="app", **PLACE, filename="f", artifact=part))

            async def delete() -> None:
                await artifacts.delete_artifact(app_name="app", **PLACE, filename="f")
                await artifacts.gc()

            await save(0)
            await delete()
            before, returned = numbers_of_rows(url), []
            cancelled = await cancel_at_each_step(save)
            left = numbers_of_rows(url)
            chunks = len(returned) * -(-LARGE_BYTES // CHUNK_BYTES)
            assert (left["contents"], left["content_uses"]) == (str(len(returned)), "0")
            assert left["chunks"] == str(chunks)
            assert await artifacts.list_versions(app_name="app", **PLACE, filename="f") == returned
            await delete()
            assert numbers_of_rows(url) == before
    assert len(cancelled) > 10
