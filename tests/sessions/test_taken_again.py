"""
Files and leases that somebody has had before: a backup of the same length, an end that comes late, a lease twice over.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from minirun import Event
from minirun.errors import SessionBusyError, StaleSessionError, StorageError
from minirun.sessions import InvocationStatus, SqliteSessionService
from minirun.sessions._sqlite._leases import LEASE_S, RENEW_EVERY_S

from ..stores import HERE, Clock, Elsewhere, append, begin, enter, get, sql, texts

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED


async def test_a_history_of_the_same_length_below_an_open_service_is_another_one(tmp_path: Path) -> None:
    """Where a restored file has as many events, the service shows these, and what was read before is stale."""
    path = tmp_path / "a.db"
    async with (
        SqliteSessionService(path, durability="process") as service,
        Elsewhere(path, durability="process") as other,
    ):
        session = await service.create_session(**HERE)
        await append(service, session, "kept")
        [(chain, number)] = sql(path, "SELECT chain, update_time FROM sessions")
        await append(service, session, "lost", k="lost")
        sql(path, "DELETE FROM events WHERE seq = 2")
        sql(path, "DELETE FROM session_state")
        sql(path, "UPDATE sessions SET revision = 1, chain = ?, update_time = ?", chain, number)
        await append(other, await get(other), "restored", k="restored")
        with trio.fail_after(30), pytest.raises(StaleSessionError, match="another history"):  # else it looks for ever
            await append(service, session, "more")
        found = await get(service)
        assert (texts(found), found.revision, found.state["k"]) == (["kept", "restored"], 2, "restored")
        await append(service, found, "more")
        assert texts(await get(other)) == ["kept", "restored", "more"]


async def test_a_late_end_leaves_the_lease_that_its_own_process_has_taken_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run meets a failing store, twice; when it is stored, the next run is not disturbed."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as one, Elsewhere(path, durability="process") as two:
        await one.create_session(**HERE)
        other = await one.create_session(app_name="app", user_id="u", session_id="other")
        first = await enter(one)
        await begin(first)
        write = one._file.write

        async def fail_where_nobody_waits(work: object, *, durable: bool = True) -> object:
            if not durable:
                raise StorageError("the disk is gone")
            return await write(work, durable=durable)  # type: ignore[arg-type]  # whatever it is

        with monkeypatch.context() as patch:
            patch.setattr(one._file, "write", fail_where_nobody_waits)
            await first.finish(COMPLETED)
            second = await enter(one, "e-2")
            await begin(second)
        assert one._unrecorded
        await append(one, other)
        assert not one._unrecorded
        assert [found.status for found in await two.list_invocations()] == [COMPLETED, InvocationStatus.RUNNING]
        with pytest.raises(SessionBusyError):
            await enter(two, "e-3", reject=True)
        await second.append(Event(author="a", message="said", invocation_id="e-2"))
        await second.finish(COMPLETED)
        await (await enter(two, "e-3", reject=True)).finish(None)


async def test_a_late_end_ends_nothing_that_its_own_process_has_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invocation that is gone on with runs, whatever the run before it has to say of its end."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as one, Elsewhere(path, durability="process") as two:
        await one.create_session(**HERE)
        other = await one.create_session(app_name="app", user_id="u", session_id="other")
        first = await enter(one)
        await begin(first)

        async def fail(*arguments: object, **options: object) -> None:
            raise StorageError("the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(one._file, "write", fail)
            await first.finish(InvocationStatus.PAUSED)
        late = dict(one._unrecorded)
        one._unrecorded.clear()
        again = await enter(one)
        await begin(again)
        one._unrecorded.update(late)  # as if it had met a failing store until now
        await append(one, other)
        assert [found.status for found in await two.list_invocations()] == [InvocationStatus.RUNNING]
        with pytest.raises(SessionBusyError):
            await enter(two, "e-3", reject=True)
        await again.finish(COMPLETED)


async def test_a_lease_that_was_outlived_is_not_over_when_it_is_taken_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Another machine's lease that stands still is over for who has waited; one that is renewed, or new, is not."""
    clock = Clock([1e9], machine="here")
    there = attrs.evolve(clock, steps=[0.0], machine="there")
    path = tmp_path / "a.db"
    async with (
        Elsewhere(path, durability="process", env=clock) as one,
        Elsewhere(path, durability="process", env=there) as two,
    ):
        await one.create_session(**HERE)
        first = await enter(one)
        await begin(first)
        await (await enter(two, "e-2")).finish(None)  # has waited, and left without a word
        clock.seconds[0] += 1
        await first.renew()
        with pytest.raises(SessionBusyError):
            await enter(two, "e-2", reject=True)
        second = await enter(two, "e-2")  # has waited once more
        await begin(second)
        with pytest.raises(StaleSessionError):
            await first.append(Event(author="a", message="said", invocation_id="e-1"))
        await second.finish(COMPLETED)
        await first.finish(FAILED)
        third = await enter(one, "e-3")
        await begin(third)
        with pytest.raises(SessionBusyError):
            await enter(two, "e-4", reject=True)
        await third.finish(COMPLETED)


async def test_who_waits_for_a_lease_that_is_renewed_waits_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A living owner on another machine is not outlived, however long somebody waits for it."""
    clock = Clock([1e9], machine="here")
    there = attrs.evolve(clock, steps=[0.0], machine="there")
    path = tmp_path / "a.db"
    async with (
        Elsewhere(path, durability="process", env=clock) as one,
        Elsewhere(path, durability="process", env=there) as two,
    ):
        await one.create_session(**HERE)
        writer = await enter(one)
        await begin(writer)
        entered: list[str] = []

        async def wait() -> None:
            other = await enter(two, "e-2")
            entered.append("e-2")
            await other.finish(None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for _ in range(int(LEASE_S / RENEW_EVERY_S) + 2):
                await trio.sleep(RENEW_EVERY_S)
                clock.seconds[0] += RENEW_EVERY_S
                await writer.renew()
            assert entered == []
            await writer.finish(COMPLETED)
        assert entered == ["e-2"]
