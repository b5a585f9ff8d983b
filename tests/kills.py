"""
Writers that are killed: `python -m tests.kills` starts and ends them, as it is told in lines of JSON.

Rules of this file:

*   The process that is told (the *forker*) has imported everything and opened nothing. So one more writer costs a
    fork, and a test can afford hundreds of kills.
*   A writer tells what was acknowledged to it, after it happened and before it goes on, in a file of its own: a line
    is one `write`, so a kill leaves it whole or leaves none.
*   What a writer writes on a session of its own depends on the session's name and the `seq` alone (`planned`), so that
    a check knows what should be there, also of an event that nobody has heard of.

`BROKEN` are the controls: services that break a promise as a bad implementation would. The checks must see it.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import resource
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from importlib import import_module
from random import Random
from typing import Any, TypeAlias

import pytest
import trio

from minirun import (
    Env,
    Event,
    EventActions,
    LlmAgent,
    RunConfig,
    Runner,
    SqliteSessionService,
    ToolContext,
)
from minirun._codec import from_json, to_json
from minirun._values import changed
from minirun.errors import (
    AlreadyExistsError,
    SessionBusyError,
    StaleSessionError,
    StorageError,
)
from minirun.sessions import Session, SessionWriter
from minirun.sessions._live import LiveSession
from minirun.sessions._sqlite import _leases
from minirun.testing import ScriptedLlm, call

from .project.test_layers import LATER

__all__ = ["BROKEN", "OftenCheckpointed", "Teller", "main", "planned"]

for later in LATER:  # no writer spends its short life importing what few programs use
    import_module(f"minirun.{later}")

# Pages of the log until it is written back, instead of SQLite's 1000: a kill should hit that, too.
CHECKPOINT_PAGES = 20


class Teller:
    """Tells the test what has happened."""

    def __init__(self, path: str, ready: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._ready = ready

    def ready(self) -> None:
        """Tell that the writer is about to write."""
        os.write(self._ready, b"r")

    def tell(self, what: str, **more: Any) -> None:
        """One line."""
        os.write(self._file, (json.dumps({"what": what, **more}) + "\n").encode())

    def stored(self, session_id: str, event: Event) -> None:
        """An acknowledgement: this is stored."""
        self.tell("stored", session=session_id, event=to_json(event))


# --- what is written ------------------------------------------------------------------------------------------------


def planned(session_id: str, seq: int) -> Event:
    """The event that is appended to this session at this place."""
    luck = Random(f"{session_id} {seq}")
    delta: dict[str, Any] = {"last": seq, f"user:{session_id}": seq, f"app:{session_id}": [seq], f"k{seq % 7}": seq}
    removed = [f"k{(seq + 3) % 7}"] if luck.random() < 0.5 else []
    ops: dict[str, Any] = {key: {"add": 1} for key in ("n", "user:n", "app:n")}
    if seq % 20:
        ops["log"] = {"extend": [seq]}
    else:
        delta["log"] = []
    return Event(
        author="writer",
        message=f"{session_id} {seq} " + "x" * luck.choice([0, 100, 2000]),
        actions=EventActions(state_delta=delta, state_removed=removed, state_ops=ops),
    )


def worker(name: str, luck: Random) -> LlmAgent:
    """An agent whose turn is two calls at once, each of which writes state, and an answer; all of it says *name*."""

    def answer(request: Any) -> Any:
        if request.contents[-1].parts[-1].function_response is None:
            return [call("work", part=1), call("work", part=2)]
        return name

    async def work(part: int, tool_context: ToolContext) -> str:
        """Do a part of the work."""
        state = tool_context.state
        for key in ("worked", "user:worked", "app:worked"):
            state.add(key, 1)
        state[f"user:{name} {part}"] = state[f"app:{name} {part}"] = part
        await trio.sleep(luck.random() * 0.003)
        return name

    return LlmAgent(name="worker", model=ScriptedLlm(answer), tools=[work])


async def converse(
    service: SqliteSessionService, session_id: str, name: str, luck: Random, tell: Teller, on_busy: str = "wait"
) -> None:
    """One run, whose message is *name*; each event is acknowledged before the agent goes on."""
    agent = worker(name, luck)
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    config = RunConfig(on_busy=on_busy)  # type: ignore[arg-type]  # one of the two
    async with runner.run_async(
        user_id="u", session_id=session_id, new_message=name, run_config=config, yield_user_message=True
    ) as run:
        async for event in run:
            tell.stored(session_id, event)
    tell.tell("ended", session=session_id, invocation=run.invocation_id, status=run.status)


async def get_or_create(service: SqliteSessionService, session_id: str) -> Session:
    """The session, made by whoever is first."""
    while True:
        found = await service.get_session(app_name="app", user_id="u", session_id=session_id)
        try:
            return found or await service.create_session(app_name="app", user_id="u", session_id=session_id)
        except AlreadyExistsError:
            pass


# --- roles ----------------------------------------------------------------------------------------------------------


async def write(service: SqliteSessionService, options: dict[str, Any], tell: Teller) -> None:
    """Append to some sessions and run on others, all at once, until the end of the process."""
    number = options["number"]
    tell.ready()

    async def append(session_id: str) -> None:
        luck = Random(f"{options['seed']} {number} {session_id}")
        session = await get_or_create(service, session_id)
        for seq in itertools.count(session.revision + 1):
            tell.stored(session_id, await service.append_event(session, planned(session_id, seq)))
            if luck.random() < 0.5:
                await trio.sleep(luck.random() * 0.004)

    async def run(session_id: str) -> None:
        luck = Random(f"{options['seed']} {number} {session_id}")
        for turn in itertools.count(1):
            await converse(service, session_id, f"{number}.{session_id}.{turn}", luck, tell)

    async with trio.open_nursery() as nursery:
        for session_id in options["appended"]:
            nursery.start_soon(append, session_id)
        for session_id in options["run"]:
            nursery.start_soon(run, session_id)


async def finish(service: SqliteSessionService, options: dict[str, Any], tell: Teller) -> None:
    """One run on each session."""
    tell.ready()
    for session_id in options["run"]:
        await converse(service, session_id, f"{options['number']}.{session_id}.last", Random(1), tell)


async def collide(service: SqliteSessionService, options: dict[str, Any], tell: Teller) -> None:
    """Two runners and somebody who appends, on the same sessions as other processes, until the end of the process."""
    number, sessions = options["number"], options["run"]
    tell.ready()

    async def run(who: str) -> None:
        luck = Random(f"{options['seed']} {who}")
        for turn in itertools.count(1):
            name = f"{number}.{who}.{turn}"
            on_busy = luck.choice(["wait", "reject", "reject"])
            try:
                await converse(service, luck.choice(sessions), name, luck, tell, on_busy)
            except SessionBusyError:
                tell.tell("refused")
                await trio.sleep(luck.random() * 0.004)
            except StaleSessionError:
                tell.tell("stale", name=name)

    async def append() -> None:
        luck = Random(f"{options['seed']} {number}")
        for turn in itertools.count(1):
            name = f"{number}.append.{turn}"
            session = await get_or_create(service, luck.choice(sessions))
            keys = {f"user:{name}": turn, f"app:{name}": turn}
            ops = {key: {"add": 1} for key in ("appended", "user:appended", "app:appended")}
            event = Event(author="outside", message=name, actions=EventActions(state_delta=keys, state_ops=ops))
            try:
                tell.stored(session.id, await service.append_event(session, event))
            except StaleSessionError:
                tell.tell("overtaken")
            await trio.sleep(luck.random() * 0.02)

    async with trio.open_nursery() as nursery:
        for who in ("one", "two"):
            nursery.start_soon(run, who)
        nursery.start_soon(append)


async def outgrow(service: SqliteSessionService, options: dict[str, Any], tell: Teller) -> None:
    """Write until the files may not grow any more, three times; then each time they may grow a little more."""
    session = await service.create_session(app_name="app", user_id="u", session_id="a")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    tell.ready()
    for round_ in range(1, 4):
        limit = 100_000 * round_
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        event = planned("a", session.revision + 1)
        with pytest.raises(StorageError) as caught:
            while True:
                tell.stored("a", await service.append_event(session, event))
                event = planned("a", session.revision + 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        tell.tell("failed to grow", error=type(caught.value).__name__)
        found = await get_or_create(service, "a")
        assert found.revision == session.revision or caught.value.stored is None
        tell.stored("a", await service.append_event(session, event))


async def hold(service: SqliteSessionService, options: dict[str, Any], tell: Teller) -> None:
    """Hold the file's write lock until the end of the process."""
    connection = sqlite3.connect(options["path"], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    tell.ready()
    await trio.sleep_forever()


ROLES: dict[str, Callable[[SqliteSessionService, dict[str, Any], Teller], Awaitable[None]]] = {
    role.__name__: role for role in (write, finish, collide, outgrow, hold)
}


# --- the services, sound and broken ---------------------------------------------------------------------------------


class OftenCheckpointed(Env):
    """The real world, where a database's log is written back often."""

    kind: type[sqlite3.Connection] = sqlite3.Connection

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        """Open a database."""
        connection = sqlite3.connect(
            database, uri=uri, timeout=0, isolation_level=None, check_same_thread=False, factory=self.kind
        )
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        return connection


class AcknowledgesFirst(SqliteSessionService):
    """Broken: what an append from outside of runs returns is stored when the next one comes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._later: dict[str, Event] = {}

    async def _append(self, live: LiveSession, event: Event, **options: Any) -> Event:
        """Return the event as it will be stored."""
        if options.get("session") is None:
            return await super()._append(live, event, **options)
        name = live.key.session_id
        if earlier := self._later.pop(name, None):
            await super()._append(live, earlier, **options)
        self._later[name] = event = changed(event, id=self.env.new_id("event"), timestamp=self.env.now())
        return changed(event, seq=live.revision + 1)


class LeavesCallsOpen(SqliteSessionService):
    """Broken: a run enters a session without hearing of the calls that are open there."""

    async def open_writer(self, *args: Any, **options: Any) -> SessionWriter | None:
        """Open the session."""
        writer = await super().open_writer(*args, **options)
        if writer is not None:
            writer.live.open_calls.clear()
        return writer


class HalfwayConnection(sqlite3.Connection):
    """Broken: the first state that a transaction writes is written in one of its own."""

    _savepoint = ""
    _split = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement; between an event and its state, commit and take some time."""
        if sql == "BEGIN IMMEDIATE":
            self._split = False
        elif sql.startswith(("SAVEPOINT", "RELEASE")):
            self._savepoint = sql if sql.startswith("SAVEPOINT") else ""
        elif "_state" in sql and sql.startswith("INSERT") and not self._split and self.in_transaction:
            self._split = True
            super().execute("COMMIT")
            time.sleep(0.002)
            super().execute("BEGIN IMMEDIATE")
            if self._savepoint:
                super().execute(self._savepoint)
        return super().execute(sql, parameters)


class Halfway(OftenCheckpointed):
    """Broken: a world whose connections commit halfway."""

    kind = HalfwayConnection


BROKEN: dict[str, tuple[type[SqliteSessionService], type[OftenCheckpointed]]] = {
    "acknowledges first": (AcknowledgesFirst, OftenCheckpointed),
    "leaves calls open": (LeavesCallsOpen, OftenCheckpointed),
    "two transactions": (SqliteSessionService, Halfway),
}


# --- the forker -----------------------------------------------------------------------------------------------------


async def play(options: dict[str, Any], tell: Teller) -> None:
    """Open the file and play the role."""
    if lease_s := options.get("lease_s"):
        _leases.LEASE_S, _leases.RENEW_EVERY_S = lease_s, lease_s / 4
    make, env = BROKEN.get(options.get("broken", ""), (SqliteSessionService, OftenCheckpointed))
    async with make(options["path"], durability=options["durability"], env=env()) as service:
        await ROLES[options["role"]](service, options, tell)


Play: TypeAlias = Callable[[dict[str, Any], Teller], Awaitable[None]]
"""What a forked process does, as its options say."""


def start(play: Play, options: dict[str, Any]) -> dict[str, Any]:
    """Fork a writer, and return its process id as soon as it is ready (or has ended), or at once if it is not asked."""
    ready, is_ready = os.pipe()
    pid = os.fork()
    if pid == 0:  # it keeps both ends, so that nobody needs to listen
        tell = Teller(options["said"], is_ready)
        try:
            trio.run(play, options, tell)
        except BaseException:
            tell.tell("failed", why=traceback.format_exc())
            os._exit(1)
        os._exit(0)
    os.close(is_ready)
    if not options.get("early"):
        os.read(ready, 1)  # one byte, or the end
    os.close(ready)
    return {"pid": pid}


def end(options: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a writer, and return how it was."""
    _, status = os.waitpid(options["pid"], 0)
    return {"status": os.waitstatus_to_exitcode(status)}


def main(play: Play) -> None:
    """Do what the lines say until there are no more; then leave nobody behind."""
    from_json(Event, to_json(Event(author="a")))  # imports what is imported late
    gc.collect()
    gc.freeze()  # what is there is no garbage: no writer needs to look through it
    living: set[int] = set()
    for line in sys.stdin:
        options = json.loads(line)
        if options["do"] == "start":
            answer = start(play, options)
            living.add(answer["pid"])
        else:
            answer = end(options)
            living.discard(options["pid"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in living:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(play)
