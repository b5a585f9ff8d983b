"""
Leases and clocks that jump: processes of one boot go by the steady clock, others by the one on the wall (promise P3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from minirun import Env, Event
from minirun.errors import SessionBusyError, StaleSessionError
from minirun.sessions import InvocationStatus, SessionWriter, SqliteSessionService
from minirun.sessions._postgres._leases import LeaseWait as DatabaseLeaseWait
from minirun.sessions._sqlite._lease_wait import LeaseWait
from minirun.sessions._sqlite._leases import LEASE_S

from ..stores import HERE, Clock, Elsewhere, begin, enter, get, sql, texts

# The end of a summer, a suspended machine, a clock that was never set; and just enough.
STEPS_S = (3600.0, -3600.0, 1e9, -1e9, LEASE_S + 1, -LEASE_S - 1)


async def look(others: SqliteSessionService) -> None:
    """See that the run of another process goes on, and stay out of its session."""
    assert [one.status for one in await others.list_invocations()] == [InvocationStatus.RUNNING]
    with pytest.raises(SessionBusyError, match="another process is running"):
        await enter(others, "e-2", reject=True)


async def say(writer: SessionWriter) -> None:
    await writer.append(Event(author="a", message="said", invocation_id="e-1"))


OPERATIONS: tuple[Callable[[SessionWriter], Awaitable[object]], ...] = (
    begin,
    say,
    SessionWriter.renew,
    say,
    lambda writer: writer.record_end(InvocationStatus.COMPLETED),
)


@pytest.mark.parametrize("whose", ["both", "mine", "theirs"])
@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("place", range(len(OPERATIONS)))
async def test_no_step_of_the_wall_clock_ends_a_living_run(
    place: int, step_s: float, whose: str, tmp_path: Path
) -> None:
    """
    Wherever in a run the wall clock jumps, in one process or in both: no other process of the boot takes the session.

    The run stores all it has to say, and the next one enters as soon as it has ended.
    """
    clock = Clock([1e9])
    other = attrs.evolve(clock, steps=clock.steps if whose == "both" else [0.0])
    async with (
        Elsewhere(tmp_path / "a.db", durability="process", env=clock) as one,
        Elsewhere(tmp_path / "a.db", durability="process", env=other) as two,
    ):
        await one.create_session(**HERE)
        writer = await enter(one)
        for number, operate in enumerate(OPERATIONS):
            await operate(writer)
            if number == place:
                (other if whose == "theirs" else clock).steps[0] += step_s
            clock.seconds[0] += 1
            if number < len(OPERATIONS) - 1:
                await look(two)
        with pytest.raises(SessionBusyError):
            await enter(two, "e-2", reject=True)
        await writer.finish(InvocationStatus.COMPLETED)
        theirs = await enter(two, "e-2", reject=True)
        await begin(theirs)
        await theirs.finish(InvocationStatus.COMPLETED)
        assert texts(await get(two)) == ["hi", "said", "said", "hi"]


@pytest.mark.parametrize("step_s", STEPS_S)
async def test_an_owner_that_stands_still_loses_its_session_whatever_the_wall_says(
    step_s: float, tmp_path: Path
) -> None:
    """
    The lease of a stopped process is over when it has lasted, with the wall clock set back or ahead; it is fenced.
    """
    clock = Clock([1e9])
    async with (
        Elsewhere(tmp_path / "a.db", durability="process", env=clock) as one,
        Elsewhere(tmp_path / "a.db", durability="process", env=clock) as two,
    ):
        await one.create_session(**HERE)
        writer = await enter(one)
        await begin(writer)
        clock.steps[0] += step_s
        clock.seconds[0] += LEASE_S - 1
        await look(two)
        clock.seconds[0] += 1
        theirs = await enter(two, "e-2", reject=True)
        await begin(theirs)
        with pytest.raises(StaleSessionError, match="has taken the session over"):
            await say(writer)
        await writer.finish(InvocationStatus.FAILED)
        await theirs.finish(InvocationStatus.COMPLETED)


@pytest.mark.parametrize("machines", [("here", "there"), ("", "here"), ("here", ""), ("", "")])
async def test_between_machines_the_wall_clock_decides(machines: tuple[str, str], tmp_path: Path) -> None:
    """
    Who does not share the steady clock, or does not know, goes by the lease's end on the wall.
    """
    clock = Clock([1e9], machine=machines[0])
    other = attrs.evolve(clock, steps=[0.0], machine=machines[1])
    async with (
        Elsewhere(tmp_path / "a.db", durability="process", env=clock) as one,
        Elsewhere(tmp_path / "a.db", durability="process", env=other) as two,
    ):
        await one.create_session(**HERE)
        writer = await enter(one)
        await begin(writer)
        other.steps[0] = LEASE_S - 1
        await look(two)
        other.steps[0] = LEASE_S
        await (await enter(two, "e-2", reject=True)).finish(None)
        await writer.finish(None)


async def test_a_lease_of_an_earlier_version_counts_by_the_wall_clock(tmp_path: Path) -> None:
    """
    A file whose lease names its owner alone, as files did at first, opens; that lease ends on the wall clock.
    """
    clock = Clock([1e9])
    path = tmp_path / "a.db"
    async with (
        Elsewhere(path, durability="process", env=clock) as one,
        Elsewhere(path, durability="process", env=clock) as two,
    ):
        await one.create_session(**HERE)
        writer = await enter(one)
        await begin(writer)
        sql(path, "UPDATE sessions SET lease_owner = substr(lease_owner, 1, instr(lease_owner, ':') - 1)")
        await look(two)
        await writer.renew()  # which knows its own lease in either form
        await look(two)
        sql(path, "UPDATE sessions SET lease_owner = substr(lease_owner, 1, instr(lease_owner, ':') - 1)")
        clock.steps[0] += LEASE_S
        await (await enter(two, "e-2", reject=True)).finish(None)
        await writer.finish(None)


def test_the_real_world_has_a_steady_clock_and_knows_its_boot() -> None:
    """
    The steady clock never goes back; all of this boot name it alike, and where nobody knows it has no name.
    """
    env = Env()
    assert env.steady() <= env.steady()
    assert env.boot() == Env().boot()
    assert ":" not in env.boot()


# --- waiting ----------------------------------------------------------------------------------------------------------


class Waits:
    """What waits, and notes for how long: the leases of a file with their world, or the bell of a database."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._outlived: dict[int, object] = {}
        self._env = self

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await trio.sleep(seconds)

    wait = sleep


@attrs.frozen
class Found:
    """What a wait looks at of a session's row."""

    id: int = 7
    epoch: int = 1
    owner: str = "other"
    expires: float = 5.0


def paused(first: float, longest: float, count: int) -> list[float]:
    return [min(first * 2**step, longest) for step in range(count)]


async def test_a_wait_for_a_lease_of_a_file_grows_and_ends(autojump_clock: MockClock) -> None:
    """Twice as long each time, up to a quarter of a second; a lease that nobody renews for its length is outlived."""
    leases = Waits()
    waiting = LeaseWait(leases)  # type: ignore[arg-type]  # it behaves as one
    for row in (Found(), Found(expires=6.0), Found(epoch=2, expires=6.0)):
        begun = trio.current_time()
        while trio.current_time() < begun + LEASE_S:
            await waiting.sleep(row)  # type: ignore[arg-type]
            assert leases._outlived == {}
    assert leases.slept == paused(0.01, 0.25, len(leases.slept))
    await waiting.sleep(row)  # type: ignore[arg-type]
    assert leases._outlived == {7: (2, 6.0)}


async def test_a_wait_for_a_lease_of_a_database_grows_and_ends(autojump_clock: MockClock) -> None:
    """The same, up to a second: each change of its epoch, its owner or its end begins anew."""
    bell = Waits()
    waiting = DatabaseLeaseWait(bell)  # type: ignore[arg-type]
    for row in (Found(), Found(expires=6.0), Found(owner="third", expires=6.0), Found(epoch=2, owner="third")):
        begun = trio.current_time()
        while trio.current_time() < begun + LEASE_S:
            assert not waiting.is_over(row)  # type: ignore[arg-type]
            await waiting.sleep()
    assert bell.slept == paused(0.05, 1.0, len(bell.slept))
    assert waiting.is_over(row)  # type: ignore[arg-type]
