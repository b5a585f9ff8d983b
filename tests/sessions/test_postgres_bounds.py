"""How long, how much and how often: the bounds of what a service over a database asks of its server."""

from __future__ import annotations

import trio

from minirun.sessions import DatabaseSessionService
from minirun.sessions._postgres._verify import verify_database

from ..postgres import empty_database, new_database
from ..postgres_seam import Wired
from ..postgres_sessions import sql
from ..stores import HERE, begin, enter


async def left(service: DatabaseSessionService) -> None:
    """A session with an invocation that nobody runs."""
    await service.create_session(**HERE)
    writer = await enter(service)
    await begin(writer)
    await writer.finish(None)


async def test_a_claim_counts_for_half_a_minute() -> None:
    """And is swept half a minute after that."""
    url, env = new_database(), Wired()
    async with DatabaseSessionService(url, env=env) as service:
        await left(service)
        work = service._work("app")
        found = [*await work.look(0.0)]
        assert await work.claim(found, 1) == found
        assert (env.calls["claim"].arguments[1], env.calls["sweep"].arguments) == (30.0, (60.0,))
        assert env.trips[-1] == ["claim", "sweep"]


async def test_a_lease_lasts_for_half_a_minute() -> None:
    """And is renewed every eight seconds, by a worker whose name has 16 letters and digits."""
    env = Wired()
    async with DatabaseSessionService(new_database(), env=env) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await service.renew_leases([writer])
        owner, *_ = env.calls["append"].arguments
        assert (len(owner), service.renew_every_s) == (16, 8.0)
        assert [env.calls[name].arguments[:2] for name in ("append", "renew")] == [(owner, 30.0)] * 2
        await writer.finish(None)


async def test_a_worker_looks_at_a_thousand_jobs_at_once() -> None:
    """The oldest ones, of however many there are."""
    url = new_database()
    async with DatabaseSessionService(url) as service:
        await left(service)
        sql(
            url,
            "INSERT INTO minirun.invocations (session, invocation_id, name, status, seq, end_seq, epoch, commit_no)"
            " SELECT session, '=n' || n, NULL, status, seq, end_seq, epoch, 10000 - n FROM minirun.invocations,"
            " generate_series(1, 1000) AS n",
        )
        found = await service._work("app").look(0.0)
        assert len(found) == 1000
        names = [name for _, name in found]
        assert (names[:2], names[-1], "n1" in names) == (["e-1", "n1000"], "n2", False)


LISTS = {"sessions", "waiting", "all_runs", "unfinished_runs"}
ONCE = {
    "settings", "has_versions", "version", "lock_schema", "make_schema", "make_versions", "set_version", "migrate",
    "alive", *LISTS, "verify_store", "verify_shared", "verify_bases", "verify_unused", "verify_nobodys",
    "verify_stray_memories",
}  # fmt: skip
SET_UP = {"slow", "slow_snapshot", "begin_snapshot"}
"""What lets a list, or a verification, take so long."""


async def test_what_is_asked_once_is_not_prepared_and_what_lists_all_has_two_minutes() -> None:
    """All else is prepared by its connection, and has as long as a commit has."""
    url, env = empty_database(), Wired()
    async with DatabaseSessionService(url, env=env) as service:
        await left(service)
        await service.list_sessions(app_name="app")
        await service.list_pending()
        await service.list_invocations()
        await service.list_invocations(status="running")
        assert await verify_database(service) == []
    assert {name for name, call in env.calls.items() if call.statement.once} == ONCE
    verifying = {name for name in env.calls if name.startswith("verify_")}
    bounds = {name: wait for name, wait in env.waits.items() if wait is not None}
    assert bounds == dict.fromkeys(LISTS | verifying | SET_UP, 120.0 + 5.0)  # and what the network takes


async def test_a_service_that_is_closed_has_no_connection_left() -> None:
    """Neither that of appends, nor that by which it shows that it lives, nor one of the pool."""
    url = new_database()
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with DatabaseSessionService(url) as service:
        await left(service)
        assert sql(url, f"SELECT count(*) >= 3 {others}") == [("t",)]
    with trio.fail_after(10):
        while sql(url, f"SELECT count(*) {others}") != [("0",)]:  # noqa: ASYNC110  # nobody tells
            await trio.sleep(0.01)
    assert service.store_id() is not None  # it is not collected before
