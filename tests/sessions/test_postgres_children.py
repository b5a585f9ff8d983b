"""What a service over a database does in a fork of its process: it is another worker, whatever its parent was about."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from minirun import Event
from minirun._postgres._connection import ServerError
from minirun.errors import SessionBusyError
from minirun.sessions import DatabaseSessionService, InvocationStatus, SessionKey

from ..postgres import new_database
from ..postgres_seam import Wired
from ..postgres_sessions import sql
from ..stores import HERE, append, begin, enter, get, texts
from .test_postgres_meanwhile import Meddled


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


@pytest.mark.parametrize("statement", ["has_versions", "append", "renew", "look"])
async def test_a_fork_that_was_made_while_its_parent_waits_waits_for_nothing(statement: str) -> None:
    """Whatever its parent is about: making the schema, appending, renewing a lease, opening a session."""
    url, env = new_database(), Meddled()

    async def work() -> None:
        await append(service, await service.create_session(app_name="app", user_id="u", session_id="fork"), "child")

    async with DatabaseSessionService(url, env=env) as service:
        env.meanwhile[statement] = partial(in_a_fork, work)
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await service.renew_leases([writer])
        await writer.finish(InvocationStatus.COMPLETED)
        await get(service)
        assert env.meanwhile == {}
        assert (texts(await get(service)), texts(await get(service, "fork"))) == (["hi"], ["child"])


async def test_a_fork_neither_runs_nor_ends_what_its_parent_runs() -> None:
    """It is another worker: a session that its parent runs is busy, and what the parent could not record is not its."""
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
