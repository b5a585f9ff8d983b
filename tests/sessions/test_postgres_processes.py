"""
Sessions in Postgres between real processes: who may write, who waits, and what a killed or a stopped worker leaves.

What the other processes do is in processes.py.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
import trio

from minirun import Event, Runner
from minirun._postgres._connection import ServerError
from minirun.errors import SessionBusyError
from minirun.sessions import DatabaseSessionService, InvocationStatus, Session, SessionKey

from ..postgres import new_database
from ..postgres_seam import Wired
from ..postgres_sessions import check_database, sql
from ..processes import AGENTS
from ..stores import HERE, append, begin, enter, get, texts
from .test_processes import Others, others

__all__ = ["others"]  # a fixture

# Far less than a lease lasts, and more than a loaded machine takes to notice that a process has died.
SOON_S = 25.0


@pytest.fixture
def url() -> str:
    """A database with one session."""

    async def make(url: str) -> None:
        async with DatabaseSessionService(url) as service:
            await service.create_session(**HERE)

    url = new_database()
    trio.run(make, url)
    return url


def session_at(url: str, session_id: str = "s") -> Session:
    """The session, as this process reads it."""

    async def read() -> Session:
        async with DatabaseSessionService(url) as service:
            return await get(service, session_id)

    return trio.run(read)


def resumed(url: str) -> Session:
    """The session, after a turn of this process on it."""

    async def turn() -> Session:
        async with DatabaseSessionService(url) as service:
            runner = Runner(agent=AGENTS["greeter"](), app_name="app", session_service=service)
            async with runner.run_async(user_id="u", session_id="s", new_message="and now") as run:
                await run.wait()
            return await get(service)

    return trio.run(turn)


def test_first_runs_that_race_all_succeed(others: Others) -> None:
    """Three workers make the same sessions of a new database by their first runs: each run is there, none is mixed."""
    url = new_database()
    workers = [others.start("race", url, name=name, sessions=2) for name in ("one", "two", "three")]
    for worker in workers:
        assert worker.says() == "ready"
    for worker in workers:
        worker.hears()
    assert [worker.ends() for worker in workers] == ["done"] * 3
    for number in range(2):
        session = session_at(url, str(number))
        said = texts(session)
        assert sorted(said[::3]) == ["one", "three", "two"]
        assert said[1::3] + said[2::3] == ["hello"] * 3 + ["bye"] * 3
        assert session.state["user:runs"] == 6
    check_database(url, is_whole=True)


def test_shared_state_of_many_workers_is_that_of_all_their_events(others: Others) -> None:
    """Three workers write the same scopes at once: no key, no addition and no item is lost, and the order is one."""
    url = new_database()
    names, keys = ("a", "b", "c"), 12
    workers = [others.start("write_keys", url, name=name, keys=keys) for name in names]
    for worker in workers:
        assert worker.says() == "ready"
    for worker in workers:
        worker.hears()
    assert [worker.ends() for worker in workers] == ["done"] * 3
    state = session_at(url, "a").state
    assert state["user:count"] == len(names) * keys
    assert sorted(state["app:log"]) == sorted(f"{name}{number}" for name in names for number in range(keys))
    assert all(state[f"{scope}:{name}{number}"] == number
               for name in names for number in range(keys) for scope in ("user", "app"))  # fmt: skip
    check_database(url, is_whole=True)


def test_the_sessions_of_a_killed_worker_are_free_at_once(url: str, others: Others) -> None:
    """kill -9 in the middle of a run: another worker goes on long before the lease is over, and closes what is open."""
    holder = others.start("run_agent", url, agent="worker", message="call it")
    assert holder.says() == "in tool"
    assert sql(url, "SELECT lease_expires > now() + interval '20 s' FROM minirun.sessions") == [("t",)]
    holder.kill()
    begun = time.monotonic()
    session = resumed(url)
    assert time.monotonic() - begun < SOON_S
    kinds = [response.response["error"]["type"] for e in session.events for response in e.get_function_responses()]
    assert kinds == ["outcome_unknown"]
    assert texts(session)[-3:] == ["and now", "hello", "bye"]
    check_database(url, is_whole=True)


def test_a_stopped_worker_keeps_its_sessions_until_the_lease_is_over_and_is_fenced_then(
    url: str, others: Others
) -> None:
    """SIGSTOP: nobody enters before the lease is over; then another worker does. Woken up, it writes nothing more."""
    holder = others.start("run_agent", url, agent="holder", message="hold it")
    assert holder.says() == "holding"
    os.kill(holder.process.pid, signal.SIGSTOP)
    try:
        other = others.start("try_often", url, seconds=0.3)
        assert other.ends() == "done"
        assert texts(session_at(url)) == ["hold it", "first"]
        sql(url, "UPDATE minirun.sessions SET lease_expires = now() - interval '1 s'")
        before = texts(resumed(url))
        assert before[-3:] == ["and now", "hello", "bye"]
    finally:
        os.kill(holder.process.pid, signal.SIGCONT)
    holder.hears()
    assert holder.ends() == "StaleSessionError"
    assert texts(session_at(url)) == before
    check_database(url, is_whole=True)


@pytest.mark.slow  # leases of other processes are over in real time; test_renewals.py has this with a clock
def test_a_worker_that_lives_renews_its_lease(url: str, others: Others) -> None:
    """With leases of a second, a run that takes three is not taken over, and its second event is stored."""
    holder = others.start("run_agent", url, agent="holder", message="hold it", lease_s=1.0)
    assert holder.says() == "holding"
    other = others.start("try_often", url, seconds=3.0)
    said = list(iter(other.says, "(ended)"))
    assert said == ["refused True", "done"]
    holder.hears()
    assert holder.ends() == "done"
    assert texts(session_at(url)) == ["hold it", "first", "second"]


def test_what_was_acknowledged_before_a_kill_is_stored(others: Others) -> None:
    """Three workers that append all the time are killed: every event that one of them has heard of is there."""
    url = new_database()
    names = ("a", "b", "c")
    workers = {name: others.start("append_for_ever", url, session=name) for name in names}
    heard = dict.fromkeys(names, 0)
    for name, worker in workers.items():
        while heard[name] < 8:
            heard[name] = int(worker.says())
    for name, worker in workers.items():
        worker.kill()
        said = [int(line) for line in iter(worker.says, "(ended)") if line.isdigit()]
        heard[name] = max([heard[name], *said])
    total = 0
    for name in names:
        session = session_at(url, name)
        assert session.revision >= heard[name]
        assert session.state["n"] == session.revision
        total += session.revision
    assert session_at(url, "a").state["user:n"] == total
    check_database(url, is_whole=True)


def test_a_fork_of_the_process_is_another_worker(url: str) -> None:
    """A child of a process with an open service uses connections of its own, and the parent goes on with its own."""

    async def work(service: DatabaseSessionService, text: str) -> None:
        await append(service, await get(service), text)

    service = DatabaseSessionService(url)
    trio.run(work, service, "parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            trio.run(work, service, "child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    trio.run(work, service, "parent again")
    assert texts(session_at(url)) == ["parent", "child", "parent again"]
    trio.run(service.aclose)


def in_a_fork(work: Callable[[], Awaitable[object]]) -> None:
    """Do this in a fork of this process, in a trio.run of its own; it must succeed."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        done: list[bool] = []

        async def do() -> None:
            await work()
            done.append(True)

        thread = threading.Thread(target=trio.run, args=(do,))  # this one is in a run
        thread.start()
        thread.join()
        os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_a_fork_of_a_process_neither_runs_nor_ends_what_its_parent_runs() -> None:
    """It is another worker: a session that its parent runs is busy, and it records no end for its parent."""
    url, env = new_database(), Wired()

    async def work() -> None:
        with pytest.raises(SessionBusyError):
            await enter(service, "e-2", reject=True)
        await append(service, await service.create_session(app_name="app", user_id="u", session_id="fork"), "child")

    async with DatabaseSessionService(url, env=env) as service:
        await service.create_session(app_name="app", user_id="u", session_id="late")
        late = await service.open_writer(SessionKey("app", "u", "late"), "e-9", None, reject=False)
        assert late is not None
        await begin(late)
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        env.faults["leave"] = ServerError("53100", "no room")
        await late.finish(InvocationStatus.FAILED)
        in_a_fork(work)
        assert sql(url, "SELECT status FROM minirun.invocations WHERE invocation_id = '=e-9'") == [("running",)]
        await writer.append(Event(author="a", message="on", invocation_id="e-1"))
        assert sql(url, "SELECT status FROM minirun.invocations WHERE invocation_id = '=e-9'") == [("failed",)]
        await writer.finish(InvocationStatus.COMPLETED)
