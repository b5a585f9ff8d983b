"""The renewal of leases: one task for all runs of a service (`sessions/_renewals.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from minirun import BaseAgent, Env, InvocationContext, Runner
from minirun.errors import SessionBusyError, StorageBusyError
from minirun.sessions._renewals import Renewals
from minirun.sessions._sqlite._leases import LEASE_S

from ..stores import Elsewhere, enter


@attrs.define
class Leases:
    """Notes who was renewed when; the first attempts may fail, or take a while."""

    renewed: list[tuple[float, str]] = attrs.field(factory=list)
    failures: int = 0
    takes_s: float = 0.0

    async def renew(self, writers: Sequence[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageBusyError("planted")
        await trio.sleep(self.takes_s)
        self.renewed.append((trio.current_time(), "".join(writers)))

    def renewals(self) -> Renewals[str]:
        return Renewals(Env(), 8.0, self.renew)


async def test_one_task_renews_for_all_and_moves_on_when_its_host_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The newest of the others takes over, at the time that was due anyway; nobody is waited for but the own task."""
    leases = Leases()
    renewals = leases.renewals()
    async with trio.open_nursery() as newest:
        async with trio.open_nursery() as middle:
            async with trio.open_nursery() as first:
                for writer, nursery in (("a", first), ("b", middle), ("c", newest)):
                    renewals.add(writer, nursery)
                assert [len(each.child_tasks) for each in (first, middle, newest)] == [1, 0, 0]
                await trio.sleep(10)
                assert renewals.remove("a")
                assert [len(each.child_tasks) for each in (middle, newest)] == [0, 1]
            assert trio.current_time() == 10
            await trio.sleep(10)
            assert renewals.remove("b")
        await trio.sleep(10)
        assert not renewals.remove("c")
    assert leases.renewed == [(8, "abc"), (16, "bc"), (24, "c")]


async def test_a_renewal_that_fails_is_tried_again_the_next_time(autojump_clock: trio.testing.MockClock) -> None:
    """A failing store ends neither the run nor the renewals."""
    leases = Leases(failures=2)
    renewals = leases.renewals()
    async with trio.open_nursery() as nursery:
        renewals.add("a", nursery)
        await trio.sleep(30)
        renewals.remove("a")
    assert leases.renewed == [(24, "a")]


async def test_a_host_that_ends_in_the_middle_delays_nobody(autojump_clock: trio.testing.MockClock) -> None:
    """What was not renewed because the host has ended is renewed by the next one at once."""
    leases = Leases(takes_s=1)
    renewals = leases.renewals()
    async with trio.open_nursery() as other:
        async with trio.open_nursery() as host:
            renewals.add("a", host)
            renewals.add("b", other)
            await trio.sleep(8.5)
            renewals.remove("a")
        assert trio.current_time() == 8.5
        await trio.sleep(5)
        renewals.remove("b")
    assert leases.renewed == [(9.5, "b")]


class OnTriosClock(Env):
    """Clocks that go as trio's does."""

    def now(self) -> float:
        return trio.current_time()

    def steady(self) -> float:
        return trio.current_time()


class Sleeps(BaseAgent):
    """Takes its time."""

    seconds: float

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await trio.sleep(self.seconds)


async def test_long_runs_keep_their_leases(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """As long as a run lasts no other process can enter its session, and from its end on each can."""
    path, env = tmp_path / "a.db", OnTriosClock()
    async with (
        Elsewhere(path, durability="process", env=env) as one,
        Elsewhere(path, durability="process", env=env) as two,
    ):
        for name in ("short", "s"):
            await one.create_session(app_name="app", user_id="u", session_id=name)

        async def run(name: str, seconds: float) -> None:
            agent = Sleeps(name="agent", seconds=seconds)
            runner = Runner(agent=agent, app_name="app", session_service=one)
            async with runner.run_async(user_id="u", session_id=name, new_message="hi") as running:
                await running.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "short", LEASE_S / 2)  # which hosts the renewal of both at first
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(run, "s", 4 * LEASE_S)
            for _ in range(7):
                await trio.sleep(LEASE_S / 2)
                with pytest.raises(SessionBusyError):
                    await enter(two, reject=True)
        writer = await enter(two, reject=True)
        await writer.finish(None)
