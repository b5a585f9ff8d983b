"""
What grows with a store and what does not: counted, never timed.

An append costs what it changes, a page costs what is on it, and the newest events cost no more when there are many
before them. So the same work is done in a small store and in a large one, and what is counted must be about the same:

*   `steps` of SQLite's machine: each row that is looked at takes some;
*   `opcodes` of Python, and the most memory that is `allocated` meanwhile: each value that is looked at takes some of
    the ones, each that is copied or encoded some of the other;
*   bytes `read` and `written`, where the system counts them: what SQLite does in one step may touch many pages.

A file is filled by one service and measured through a fresh one with a cache of few pages, after one piece of work of
the same kind, so that no first use is counted. The stores of a common run are as large as its time allows; `-m slow`
has those of the promise.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio

from minirun import Env, Event, EventActions, InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.models import LlmRequest
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.types import Part

from ..stores import HERE, get

Kind: TypeAlias = Literal["memory", "file"]
KINDS: tuple[Kind, ...] = ("memory", "file")
SMALL = 100
IO_COUNTERS = Path("/proc/self/io")  # of Linux
TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]

# --- counting -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Work:
    """What something took, counted."""

    steps: int
    opcodes: int
    allocated: int
    read: int
    written: int


# What chance adds: a turn of trio's loop, a resized table, a page split.
SLACK = Work(steps=50, opcodes=2_000, allocated=20_000, read=6 * 4_096, written=8 * 4_096)


@attrs.frozen(eq=False)
class Counting(Env):
    """The real world, with few pages in SQLite's cache, and a count of its steps."""

    steps: list[int] = attrs.field(factory=lambda: [0])

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        connection = super().connect(database, uri=uri)
        connection.execute("PRAGMA cache_size=5")
        connection.set_progress_handler(self._count, 1)
        return connection

    def _count(self) -> int:
        self.steps[0] += 1
        return 0


def transferred() -> tuple[int, int]:
    """The bytes that this process has asked the system to read and to write; zeros where it does not tell."""
    if not IO_COUNTERS.exists():
        return 0, 0
    read, written, *_ = (int(line.split()[1]) for line in IO_COUNTERS.read_text().splitlines())
    return read, written


async def counted(env: Counting, work: Callable[[], Awaitable[object]]) -> Work:
    """Do the work, and count."""
    opcodes = 0

    def trace(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal opcodes
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        opcodes += event == "opcode"
        return trace

    gc.disable()
    read, written = transferred()
    steps, before = env.steps[0], sys.gettrace()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(before)
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        gc.enable()
    read_now, written_now = transferred()
    return Work(env.steps[0] - steps, opcodes, allocated, read_now - read, written_now - written)


def assert_as_much(small: Work, large: Work) -> None:
    """What the large store took is about what the small one took."""
    print(f"small {small}\nlarge {large}")
    for name, most in attrs.asdict(SLACK).items():
        assert getattr(large, name) <= 1.25 * getattr(small, name) + most, f"{name} grow with the store"


# --- stores ---------------------------------------------------------------------------------------------------------

Fill: TypeAlias = Callable[[BaseSessionService], Awaitable[object]]
Use: TypeAlias = Callable[[BaseSessionService], AsyncIterator[object]]


@asynccontextmanager
async def filled(kind: Kind, path: Path, fill: Fill) -> AsyncIterator[tuple[BaseSessionService, Counting]]:
    """A service over a store that was filled."""
    env = Counting()
    if kind == "memory":
        memory = InMemorySessionService(env=env)
        await fill(memory)
        yield memory, env
        return
    async with SqliteSessionService(path, durability="process") as filling:
        await fill(filling)
    async with SqliteSessionService(path, durability="process", env=env) as service:
        yield service, env


async def work_of(kind: Kind, path: Path, fill: Fill, use: Use) -> Work:
    """What one use of a filled store takes, after another one."""
    async with filled(kind, path, fill) as (service, env):
        uses = use(service)
        await anext(uses)
        work = await counted(env, lambda: anext(uses))
        assert [_ async for _ in uses] == [], "a store is used twice"
    return work


def a_history(events: int) -> Iterator[Event]:
    """A session as `import_session` takes it, with so many events after its creation record."""
    yield Event(id="ev-0", author="system", seq=0, timestamp=0.0)
    for seq in range(1, events + 1):
        state = {"last": seq}
        yield Event(id=f"ev-{seq}", author="agent", seq=seq, timestamp=float(seq), message="hello", state=state)


def history_of(events: int) -> Fill:
    """The session has so many events; another one has 20."""

    async def fill(service: BaseSessionService) -> None:
        await service.import_session(**HERE, events=a_history(events))
        await service.import_session(app_name="app", user_id="u", session_id="other", events=a_history(20))

    return fill


def undone_of(events: int) -> Fill:
    """So many events of the session were undone: between 20 at its begin, and the rewind with 10 more at its end."""
    actions = EventActions(rewind_before_invocation_id="e-1", rewind_before_seq=21)

    async def fill(service: BaseSessionService) -> None:
        history = list(a_history(events + 31))
        history[-11] = attrs.evolve(history[-11], actions=actions)
        await service.import_session(**HERE, events=history)
        await service.import_session(app_name="app", user_id="u", session_id="other", events=a_history(20))

    return fill


def state_of(prefix: str, keys: int, value: object = 0) -> Fill:
    """The session has so many keys of state with this value, and the key `last`."""

    async def fill(service: BaseSessionService) -> None:
        state = {f"{prefix}key {number}": value for number in range(keys)}
        await service.create_session(**HERE, state={**state, f"{prefix}last": 0})

    return fill


def sessions_of(count: int) -> Fill:
    """So many sessions: three of the user `u`, first, in the middle and last, the others of `v`."""
    mine = (0, count // 2, count - 1)

    async def fill(service: BaseSessionService) -> None:
        for number in range(count):
            await service.create_session(app_name="app", user_id="u" if number in mine else "v")

    return fill


def appending(prefix: str = "") -> Use:
    """Append an event that changes one key of state that was there."""

    async def use(service: BaseSessionService) -> AsyncIterator[object]:
        session = await get(service, num_recent_events=0)
        for number in (1, 2):
            event = Event(author="agent", message="hello", state={f"{prefix}last": number})
            yield await service.append_event(session, event)
        assert session.state[f"{prefix}last"] == 2

    return use


async def opening(service: BaseSessionService) -> AsyncIterator[object]:
    """Read a session for the first time, with its last 20 events; before it the other one."""
    for session_id in ("other", "s"):
        session = await get(service, session_id, num_recent_events=20)
        assert len(session.events) == 20
        assert session.events[-1].seq == session.revision
        yield session


async def reading(service: BaseSessionService) -> AsyncIterator[object]:
    """Read 20 events from the middle."""
    middle = (await get(service, num_recent_events=0)).revision // 2
    for after_seq in (middle, middle + 20):
        events = await service.read_events(**HERE, after_seq=after_seq, limit=20)
        assert [event.seq for event in events] == list(range(after_seq + 1, after_seq + 21))
        yield events


async def listing(service: BaseSessionService) -> AsyncIterator[object]:
    """List two pages of 20 sessions."""
    after = None
    for _ in range(2):
        page = await service.list_sessions(app_name="app", limit=20, after=after)
        assert len(page.sessions) == 20
        after = page.next
        yield page


async def listing_mine(service: BaseSessionService) -> AsyncIterator[object]:
    """List the three sessions of a user who has few."""
    for _ in range(2):
        page = await service.list_sessions(app_name="app", user_id="u", limit=20)
        assert len(page.sessions) == 3
        yield page


# --- facts ----------------------------------------------------------------------------------------------------------

LARGE = [pytest.param(800, id="800"), pytest.param(100_000, id="100000", marks=pytest.mark.slow)]


async def assert_independent(kind: Kind, folder: Path, use: Use, small: Fill, large: Fill) -> None:
    """The use takes as much in the one store as in the other."""
    assert_as_much(
        await work_of(kind, folder / "small.db", small, use), await work_of(kind, folder / "large.db", large, use)
    )


@pytest.mark.parametrize("keys", [pytest.param(800, id="800"), pytest.param(3_000, id="3000", marks=pytest.mark.slow)])
@pytest.mark.parametrize("prefix", ["", "user:", "app:"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_append_costs_what_it_changes_of_many_keys(
    kind: Kind, prefix: str, keys: int, tmp_path: Path
) -> None:
    """An append that changes one key takes as much with many keys of state as with 100, in every scope."""
    await assert_independent(kind, tmp_path, appending(prefix), state_of(prefix, SMALL), state_of(prefix, keys))


@pytest.mark.parametrize("prefix", ["", "user:", "app:"])
@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_an_append_does_not_touch_a_large_value(kind: Kind, prefix: str, tmp_path: Path) -> None:
    """An append that changes one key takes as much beside a value of 1 MB as beside a small one, in every scope."""
    large = state_of(prefix, 1, "x" * 1_000_000)
    await assert_independent(kind, tmp_path, appending(prefix), state_of(prefix, 1), large)


@pytest.mark.parametrize("events", LARGE)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_append_costs_as_much_after_many_events(kind: Kind, events: int, tmp_path: Path) -> None:
    """An append takes as much in a session of many events as in one of few."""
    await assert_independent(kind, tmp_path, appending(), history_of(SMALL), history_of(events))


@pytest.mark.parametrize("events", LARGE)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_newest_events_are_opened_without_the_others(kind: Kind, events: int, tmp_path: Path) -> None:
    """Opening a session with its last 20 events takes as much when there are many before them as when there are few."""
    await assert_independent(kind, tmp_path, opening, history_of(SMALL), history_of(events))


@pytest.mark.parametrize("events", LARGE)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_newest_events_are_opened_without_those_undone(kind: Kind, events: int, tmp_path: Path) -> None:
    """Opening a session with its last 20 events takes as much after a rewind of many events as after one of few."""
    await assert_independent(kind, tmp_path, opening, undone_of(SMALL), undone_of(events))


@pytest.mark.parametrize("events", LARGE)
@pytest.mark.parametrize("kind", KINDS)
async def test_events_are_read_without_the_others(kind: Kind, events: int, tmp_path: Path) -> None:
    """Reading 20 events out of the middle takes as much among many events as among few."""
    await assert_independent(kind, tmp_path, reading, history_of(SMALL), history_of(events))


@pytest.mark.parametrize("sessions", LARGE)
@pytest.mark.parametrize("use", [listing, listing_mine])
async def test_a_page_of_sessions_costs_what_is_on_it(use: Use, sessions: int, tmp_path: Path) -> None:
    """A file's page of 20 sessions takes as much among many as among few; so does a list of few among many others'."""
    await assert_independent("file", tmp_path, use, sessions_of(SMALL), sessions_of(sessions))


# --- many at once ---------------------------------------------------------------------------------------------------

CROWDS = [pytest.param(40, 2, id="40 x 2"), pytest.param(1_000, 5, id="1000 x 5", marks=pytest.mark.slow)]


def calls_once(request: LlmRequest) -> str | Part:
    """A model that calls the tool, and answers when it has the response."""
    return "done" if request.contents[-1].parts[-1].function_response else call("double", x=21)


async def double(x: int) -> int:
    """Double a number."""
    await trio.lowlevel.checkpoint()
    return 2 * x


@pytest.mark.parametrize(("sessions", "turns"), CROWDS)
async def test_many_sessions_take_tool_turns_at_once(sessions: int, turns: int, tmp_path: Path) -> None:
    """None of many runs at once fails, every event of theirs is stored in order, and nothing is left open."""
    names = [f"s-{number}" for number in range(sessions)]
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with SqliteSessionService(tmp_path / "crowd.db", durability="power") as service:
        agent = LlmAgent(name="agent", model=ScriptedLlm(calls_once), tools=[double])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)

        async def talk(name: str) -> None:
            for _ in range(turns):
                async with runner.run_async(user_id="u", session_id=name, new_message="hi") as run:
                    assert [event.author async for event in run] == ["agent", "agent", "agent"]

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(talk, name)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        for name in names:
            events = await service.read_events(app_name="app", user_id="u", session_id=name, after_seq=0)
            assert [event.author for event in events] == ["user", "agent", "agent", "agent"] * turns
        invocations = await service.list_invocations(app_name="app", status="completed")
        assert len(invocations) == sessions * turns == len(await service.list_invocations())
    assert os.listdir(tmp_path) == ["crowd.db"], "a log or a lock is left: something is open"
