"""
A busy store on a disk that records, and the judge of whatever is found of it later.

The store keeps its own account of what was stored, in the order of the commits: each event that the workload appends
adds its name to `app:log` and `user:log` and one to `app:count` and `user:count`. So the judge can tell, from what a
service says and without a look into its tables, whether the store holds all that was done up to some moment, and
nothing of what was done later.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from minirun import Event, EventActions, LlmAgent, Runner, ToolContext
from minirun._codec import to_json
from minirun.sessions import Session, SessionKey, SqliteSessionService
from minirun.sessions._fold import fold
from minirun.sessions._sqlite._file import Durability
from minirun.sessions._state import Values
from minirun.testing import ScriptedLlm, call

from .simulation.stores.vfs import DiskEnv, RecordingVFS

FILE = "chat.db"
APP = "app"
USERS = ("u1", "u2")

# Small pages, and a log that is written back often: more to go wrong for each event.
PAGE_BYTES = 512
LOG_PAGES = 20


@attrs.frozen(eq=False)
class SmallDisk(DiskEnv):
    """A disk with small pages and a short log; ids and times are counted."""

    log_pages: int = LOG_PAGES
    numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        connection = super().connect(database, uri=uri)
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint={self.log_pages}")
        return connection

    def now(self) -> float:
        return 1_000_000.0 + next(self.numbers)

    def steady(self) -> float:
        return 1_000.0 + next(self.numbers)

    def boot(self) -> str:
        return "here"

    def new_id(self, path: str) -> str:
        return f"{path}-{next(self.numbers):08d}"


# --- what is done to the store, and what is known of it ---------------------------------------------------------------


@attrs.frozen(eq=False)
class Step:
    """Something that was asked of the store. It can be told from what is found whether it was done."""

    name: str
    after: int
    """How many steps had been acknowledged when this one was asked for: those are before it, whatever else is."""


@attrs.frozen(eq=False)
class Made(Step):
    """A session was made; its events are in `app:log` under *name*, `#` and a number."""

    key: SessionKey

    def is_in(self, found: Found) -> bool:
        return f"app:made {self.name}" in found.app


@attrs.frozen(eq=False)
class Deleted(Step):
    """The session that *made* had made was deleted."""

    made: Made

    def is_in(self, found: Found) -> bool:
        return self.made.is_in(found) and self.made.name not in found.logs


@attrs.frozen(eq=False)
class Appended(Step):
    """An event was appended by hand."""

    made: Made

    def is_in(self, found: Found) -> bool:
        return self.name in found.log


@attrs.frozen(eq=False)
class Emitted(Step):
    """A run has stored an event, and shown it."""

    made: Made
    seq: int

    def is_in(self, found: Found) -> bool:
        return len(found.logs.get(self.made.name, ())) > self.seq


AnyStep = Made | Deleted | Appended | Emitted


class History:
    """
    What was done to a store, as the one who did it knows it.

    It marks the trace with each step that the store has acknowledged; `done` has them too.
    """

    def __init__(self, vfs: RecordingVFS) -> None:
        self._vfs = vfs
        self.done: list[AnyStep] = []
        self.user_of: dict[str, str] = {}
        """Whose event has this name."""
        self.log: list[str] = []
        """The names of all events, in the order of their commits; known at the end."""
        self.lines: dict[str, list[str]] = {}
        """The events of each session as JSON, by the name of what has made it; of a deleted one, as they were."""

    def acknowledge(self, step: AnyStep) -> None:
        self.done.append(step)
        self._vfs.mark(step)

    async def make(self, service: SqliteSessionService, user: str, session_id: str) -> tuple[Made, Session]:
        key = SessionKey(APP, user, session_id)
        name = f"{session_id}.{sum(isinstance(step, Made) for step in self.done)}"
        step = Made(name, len(self.done), key)
        state = {"made": name, f"app:made {name}": True, "user:last made": name, "n": 0}
        session = await service.create_session(app_name=APP, user_id=user, session_id=session_id, state=state)
        self.acknowledge(step)
        return step, session

    async def append(
        self, service: SqliteSessionService, made: Made, session: Session, number: int, size: int = 0
    ) -> Appended:
        step = Appended(f"{made.name}#{number}", len(self.done), made)
        await service.append_event(session, self.event(step, number, size))
        self.acknowledge(step)
        return step

    def event(self, step: Appended, number: int, size: int = 0) -> Event:
        """The event of a step: it counts, sets and removes."""
        self.user_of[step.name] = step.made.key.user_id
        actions = EventActions(
            state_delta={f"k{number % 3}": step.name, "user:last": step.name},
            state_removed=[f"k{(number + 1) % 3}"],
            state_ops={
                "app:log": {"extend": [step.name]},
                "user:log": {"extend": [step.name]},
                "app:count": {"add": 1},
                "user:count": {"add": 1},
                "n": {"add": number},
            },
        )
        return Event(id=f"id {step.name}", author="a", message=step.name + "." * size, actions=actions)

    async def run(self, service: SqliteSessionService, made: Made) -> None:
        """A run with two calls of a tool."""

        async def count(by: int, tool_context: ToolContext) -> int:
            tool_context.state.add("n", by)
            return by

        model = ScriptedLlm([[call("count", by=1), call("count", by=2)], "done"])
        agent = LlmAgent(name="agent", model=model, tools=[count], output_key="said")
        runner = Runner(agent=agent, app_name=APP, session_service=service)
        after = len(self.done)
        async with runner.run_async(
            user_id=made.key.user_id, session_id=made.key.session_id, new_message="count", yield_user_message=True
        ) as run:
            async for event in run:
                assert event.seq is not None
                self.acknowledge(Emitted(f"{made.name}/{event.seq}", after, made, event.seq))
                after = len(self.done)

    async def delete(self, service: SqliteSessionService, made: Made) -> None:
        await self.keep(service, made)
        step = Deleted(f"not {made.name}", len(self.done), made)
        await service.delete_session(**spread(made.key))
        self.acknowledge(step)

    async def keep(self, service: SqliteSessionService, made: Made) -> None:
        """Note the whole log of a session."""
        self.lines[made.name] = [to_json(event) for event in await service.read_events(**spread(made.key))]


def spread(key: SessionKey) -> Any:
    return {"app_name": key.app_name, "user_id": key.user_id, "session_id": key.session_id}


async def live(service: SqliteSessionService, history: History, rounds: int = 1) -> None:
    """A workload: sessions of two users are made, written one by one and all at once, run, deleted, made again."""
    kept: dict[str, tuple[Made, Session]] = {}
    for name, user in (("one", "u1"), ("two", "u1"), ("three", "u2"), ("run", "u2")):
        kept[name] = await history.make(service, user, name)
    for name in ("one", "two", "one", "three"):
        made, session = kept[name]
        await history.append(service, made, session, session.revision)
    for number in range(rounds):
        async with trio.open_nursery() as nursery:
            for name in ("one", "two", "three"):
                nursery.start_soon(append_many, service, history, *kept[name])
            nursery.start_soon(history.run, service, kept["run"][0])
        await history.delete(service, kept["two"][0])
        made, session = kept["two"] = await history.make(service, USERS[number % 2], "two")
        await history.append(service, made, session, 0, size=3 * PAGE_BYTES)
    for made, _ in kept.values():
        await history.keep(service, made)
    session = await service.create_session(app_name=APP, user_id="u1")
    history.log = list(session.state["app:log"])


async def append_many(service: SqliteSessionService, history: History, made: Made, session: Session) -> None:
    for number in range(session.revision, session.revision + 3):
        await history.append(service, made, session, number, size=100 * number)


@asynccontextmanager
async def store_on(
    vfs: RecordingVFS, folder: Path, durability: Durability = "power", env: DiskEnv | None = None
) -> AsyncIterator[SqliteSessionService]:
    """The store in *folder*, on this disk."""
    async with SqliteSessionService(folder / FILE, durability=durability, env=env or SmallDisk(vfs)) as service:
        yield service


# --- what is found of it ----------------------------------------------------------------------------------------------


@attrs.frozen
class Found:
    """What a store says of itself."""

    app: dict[str, Any]
    users: dict[str, dict[str, Any]]
    logs: dict[str, list[Event]]
    """The events of each session, creation record included, by the name of what has made it."""

    @property
    def log(self) -> list[str]:
        return list(self.app.get("app:log", ()))


async def look(service: SqliteSessionService) -> Found:
    """
    Read all of a store, and write into it; sessions are checked against their logs and against each other.

    Raises:
        StorageError: The service does.
    """
    logs: dict[str, list[Event]] = {}
    shared: dict[str, dict[str, Any]] = {}
    for listed in (await service.list_sessions(app_name=APP)).sessions:
        key = SessionKey(APP, listed.user_id, listed.id)
        events = await service.read_events(**spread(key))
        session = await service.get_session(**spread(key))
        assert session is not None
        assert [event.seq for event in events] == list(range(session.revision + 1)), "there are gaps"
        assert session.revision == listed.revision
        assert [event.seq for event in session.events] == list(range(1, session.revision + 1))
        state = in_scopes(session)
        assert state[""] == fold(Values({}, {}, {}), events, shared=False).session, "the state is not the fold"
        for scope, place in (("app", "app"), ("user", key.user_id)):
            assert shared.setdefault(place, state[scope]) == state[scope], "two sessions do not see the same"
        if "made" in state[""]:
            logs[state[""]["made"]] = events
    # The store takes sessions and events as before, and scopes outlive their sessions.
    for user in USERS if len(shared) < 1 + len(USERS) else USERS[:1]:
        session = await service.create_session(app_name=APP, user_id=user)
        await service.append_event(session, Event(author="a", message="after all"))
        state = in_scopes(session)
        shared |= {"app": state["app"], user: state["user"]}
    return Found(shared["app"], {user: shared[user] for user in USERS}, logs)


def in_scopes(session: Session) -> dict[str, dict[str, Any]]:
    """The state of a session by scope: `app`, `user` and, under an empty name, its own."""
    scopes: dict[str, dict[str, Any]] = {"app": {}, "user": {}, "": {}}
    for key, value in session.state.items():
        scopes.get(key.partition(":")[0], scopes[""])[key] = value
    return scopes


def judge(found: Found, history: History) -> None:
    """Raise AssertionError unless *found* is all that *history* knows up to some moment."""
    log = found.log
    assert log == history.log[: len(log)], "not a prefix of the commits"
    assert found.app.get("app:count", 0) == len(log), "the app's counter does not agree with its log"
    for user, state in found.users.items():
        own = [name for name in log if history.user_of[name] == user]
        assert state.get("user:log", []) == own, "the log of a user does not agree with the app's"
        assert state.get("user:count", 0) == len(own), "the counter of a user does not agree with its log"
    for name, events in found.logs.items():
        lines = [to_json(event) for event in events]
        assert lines == history.lines[name][: len(lines)], "not a prefix of the session's log"
        named = [event.text.rstrip(".") for event in events if event.author == "a"]
        assert named == [entry for entry in log if entry.partition("#")[0] == name], "session and app do not agree"
    for step in history.done:
        if step.is_in(found):
            missing = [before.name for before in history.done[: step.after] if not before.is_in(found)]
            assert not missing, f"{step.name} is there, and {missing} before it are not"


def missing_of(found: Found, acknowledged: list[AnyStep]) -> list[str]:
    """The names of those acknowledged steps that are not found."""
    return [step.name for step in acknowledged if not step.is_in(found)]


def check_calls(events: list[Event]) -> None:
    """Every call has exactly one response (promise P6)."""
    calls = Counter(call.id for event in events for call in event.get_function_calls())
    responses = Counter(response.id for event in events for response in event.get_function_responses())
    assert calls == responses


async def run_again(service: SqliteSessionService) -> None:
    """Run the session of the runs once more; a call that it finds open is closed."""
    agent = LlmAgent(name="agent", model=ScriptedLlm(["again"]))
    runner = Runner(agent=agent, app_name=APP, session_service=service)
    async with runner.run_async(user_id="u2", session_id="run", new_message="again") as run:
        await run.wait()
    events = await service.read_events(app_name=APP, user_id="u2", session_id="run")
    assert [event.seq for event in events] == list(range(len(events)))
    check_calls(events)
