"""
A process that forks at one stage of a service's life: `python -m tests.forking STAGE END FILE`.

It has one thread, so that a fork of it is a whole process. The child uses the service that it was born with, in a
`trio.run` of its own; then it ends: at once, or as programs end, by giving up all that it has. (Out of the middle of a
`trio.run` it can only end at once: trio shares the parent's epoll there.) What the two have seen is printed as JSON,
the child's line first.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from minirun import BaseAgent, Event, InMemorySessionService, InvocationContext, RunConfig, Runner, SqliteSessionService
from minirun.artifacts import SqliteArtifactService
from minirun.errors import MinirunError
from minirun.sessions import BaseSessionService
from minirun.types import Part

STAGES = ("made", "opened", "used", "in a run", "after a run", "closed")
ENDS = ("at once", "giving up all")

Fork = Callable[[], None]


class Forker(BaseAgent):
    """Emits, forks if it is told to, and emits again."""

    fork: Any = None

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="before"))
        if self.fork is not None:
            self.fork()
        await ctx.emit(Event(message="after"))


async def take_turn(service: BaseSessionService, session_id: str, fork: Fork | None = None) -> str:
    """Run an agent, without waiting for a session; return how that went."""
    agent = Forker(name="forker", fork=fork)
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    config = RunConfig(on_busy="reject")
    try:
        async with runner.run_async(user_id="u", session_id=session_id, new_message="hi", run_config=config) as run:
            await run.wait()
    except MinirunError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


async def append_outside(service: BaseSessionService) -> None:
    """Append to a new session, without a run."""
    session = await service.create_session(app_name="app", user_id="u", session_id="parent")
    await service.append_event(session, Event(author="a", message="outside"))


async def texts_of(service: BaseSessionService, session_id: str) -> list[str]:
    """What is stored of a session."""
    session = await service.get_session(app_name="app", user_id="u", session_id=session_id)
    return [] if session is None else [event.text for event in session.events]


async def as_child(service: BaseSessionService, artifacts: SqliteArtifactService | None) -> dict[str, object]:
    """Use what the parent has made."""
    seen: dict[str, object] = {"of the parent": await take_turn(service, "parent")}
    seen["its own"] = await take_turn(service, "child")
    seen["statuses"] = sorted(one.status for one in await service.list_invocations())
    seen["stored"] = await texts_of(service, "child")
    if artifacts is not None:
        seen["version"] = await artifacts.save_artifact(
            app_name="app", user_id="u", session_id="child", filename="a", artifact=Part(text="text")
        )
    return seen


class InChild:
    """Forks; the child looks, tells, and ends in its way, and the parent waits for that."""

    def __init__(self, end: str, service: BaseSessionService, artifacts: SqliteArtifactService | None) -> None:
        self._end = end
        self._service = service
        self._artifacts = artifacts

    def __call__(self) -> None:
        pid = os.fork()
        if pid:
            _, status = os.waitpid(pid, 0)
            assert status == 0, f"the child has ended with {status}"
            return
        thread = threading.Thread(target=self._look)  # this one may be in the middle of a trio.run
        thread.start()
        thread.join()
        if self._end == "at once":
            os._exit(0)
        sys.exit(0)

    def _look(self) -> None:
        try:
            seen: object = trio.run(partial(as_child, self._service, self._artifacts))
        except MinirunError as error:
            seen = type(error).__name__
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        print(json.dumps(seen), flush=True)


def live(stage: str, end: str, file: str) -> dict[str, object]:
    """Bring a service to the stage, fork there, and go on."""
    path = None if file == "memory" else Path(file)
    service = InMemorySessionService() if path is None else SqliteSessionService(path, durability="process")
    artifacts = SqliteArtifactService(service) if isinstance(service, SqliteSessionService) else None
    fork = InChild(end, service, artifacts)
    seen: dict[str, object] = {}
    if stage == "opened":
        trio.run(partial(service.list_sessions, app_name="app"))
    elif stage == "used":
        trio.run(append_outside, service)
    elif stage != "made":
        seen["went first"] = trio.run(take_turn, service, "parent", fork if stage == "in a run" else None)
    if stage == "closed":
        trio.run(service.aclose)
    if stage != "in a run":
        fork()
    gc.collect()
    if stage != "closed":
        seen["went"] = trio.run(take_turn, service, "parent")
        seen["stored"] = trio.run(texts_of, service, "parent")
        seen["child's"] = trio.run(texts_of, service, "child")
    if path is not None:
        seen["log"] = path.with_name(f"{path.name}-wal").exists()
    return seen


if __name__ == "__main__":
    print(json.dumps(live(*sys.argv[1:])), flush=True)
