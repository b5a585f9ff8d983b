"""
What only sessions in a SQLite file can get wrong: caches, commits, damage, the file, leases.

Two services over one file stand for two processes where they are `Elsewhere`: then they share no gate.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sqlite3
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio
import trio.testing

from minirun import BaseAgent, Env, Event, EventActions, InvocationContext, LlmAgent, Runner
from minirun.errors import (
    AlreadyExistsError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageReadOnlyError,
    StorageRolledBackError,
    StorageUncertainError,
)
from minirun.sessions import (
    GetSessionConfig,
    InvocationStatus,
    LiveSession,
    Session,
    SessionKey,
    SessionWriter,
    SqliteSessionService,
    _earlier,
)
from minirun.sessions._sqlite import _cache, _file, _leases
from minirun.sessions._sqlite._dead_owners import owner_is_gone, remove_dead_locks
from minirun.sessions._sqlite._owner_lock import OwnerLock
from minirun.testing import ScriptedLlm

from ..interruptions import CancelAtStep
from ..stores import (
    HERE,
    KEY,
    Clock,
    Elsewhere,
    append,
    begin,
    enter,
    failing,
    get,
    inject,
    one_session,
    services,
    sql,
    texts,
)

# --- two services over one file ---------------------------------------------------------------------------------------


async def test_two_services_over_one_file_see_each_other(tmp_path: Path) -> None:
    """What one commits, the other reads on its next use, from its cache brought up to date: events and all scopes."""
    async with one_session(tmp_path / "a.db", Elsewhere) as (one, mine), Elsewhere(tmp_path / "a.db") as two:
        await append(one, mine, "1", a=1, user_n=1, app_n=1)
        yours = await get(two)
        assert dict(yours.state) == {"a": 1, "user:n": 1, "app:n": 1}
        removal = EventActions(state_removed=["user:n"], state_ops={"app:n": {"add": 1}, "a": {"add": 1}})
        await two.append_event(yours, Event(author="b", message="2", actions=removal))
        with pytest.raises(StaleSessionError):
            await append(one, mine)
        mine = await get(one)
        assert dict(mine.state) == {"a": 2, "app:n": 2}
        assert texts(mine) == ["1", "2"]
        await append(one, mine, "3")
        assert texts(await get(two)) == ["1", "2", "3"]


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_who_opens_the_file_once_more_takes_no_lock_from_who_has_it_open(
    durability: Literal["power", "process"], tmp_path: Path
) -> None:
    """A second service in this process does not let another process take itself for the last, and delete the log."""
    path = tmp_path / "s.db"
    outside = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('SELECT * FROM sessions'); d.close()"
    async with SqliteSessionService(path, durability=durability) as first:
        await first.create_session(app_name="app", user_id="u", session_id="1")
        async with SqliteSessionService(path, durability=durability) as second:
            assert await second.get_session(app_name="app", user_id="u", session_id="1") is not None
            await trio.run_process([sys.executable, "-c", outside, str(path)])
            assert path.with_name("s.db-wal").exists()
            await second.create_session(app_name="app", user_id="u", session_id="2")
        await trio.run_process([sys.executable, "-c", outside, str(path)])
        await first.create_session(app_name="app", user_id="u", session_id="3")
        assert len((await first.list_sessions(app_name="app")).sessions) == 3


async def test_shared_values_are_current_in_another_services_transaction(tmp_path: Path) -> None:
    """An operation on a shared key applies to what any process has committed, not to what this one has cached."""
    async with one_session(tmp_path / "a.db", Elsewhere) as (one, mine), Elsewhere(tmp_path / "a.db") as two:
        yours = await two.create_session(app_name="app", user_id="u", session_id="other")
        for _ in range(3):
            for service, session in ((one, mine), (two, yours)):
                actions = EventActions(state_ops={"user:n": {"add": 1}, "app:log": {"extend": [session.id]}})
                await service.append_event(session, Event(author="a", actions=actions))
        for service, session_id in ((one, "other"), (two, "s")):
            state = (await get(service, session_id)).state
            assert state["user:n"] == 6
            assert state["app:log"] == ["s", "other"] * 3


async def test_catching_up_does_not_repeat_operations_on_shared_values(tmp_path: Path) -> None:
    """An event whose operation would no longer fit its shared value is caught up with all the same."""
    async with one_session(tmp_path / "a.db", Elsewhere) as (one, mine), Elsewhere(tmp_path / "a.db") as two:
        await get(two)
        actions = EventActions(state_ops={"user:n": {"add": 1}, "app:l": {"extend": [1]}, "n": {"add": 1}})
        await one.append_event(mine, Event(author="a", actions=actions))
        await append(one, mine, user_n="now a text", app_l=None, n="text")
        assert dict((await get(two)).state) == {"user:n": "now a text", "app:l": None, "n": "text"}


async def test_a_session_that_another_process_made_again_is_another(tmp_path: Path) -> None:
    """A cached session is dropped when its id was deleted and made again elsewhere, whatever its revision."""
    async with one_session(tmp_path / "a.db", Elsewhere) as (one, mine), Elsewhere(tmp_path / "a.db") as two:
        await append(one, mine, "old", a=1)
        await two.delete_session(**HERE)
        with pytest.raises(SessionNotFoundError):
            await append(one, mine)
        await append(two, await two.create_session(**HERE), "new")
        with pytest.raises(StaleSessionError, match="deleted and made again"):
            await append(one, mine)
        found = await get(one)
        assert (texts(found), dict(found.state)) == (["new"], {})
        with pytest.raises(AlreadyExistsError):
            await one.create_session(**HERE)
        await two.delete_session(**HERE)
        await append(two, await two.create_session(**HERE), "newest")  # and at the same revision
        assert texts(await get(one)) == ["newest"]


async def test_a_session_object_may_be_used_through_another_service(tmp_path: Path) -> None:
    """What one service returned can be appended to through another; the first one's own copy is not written into."""
    async with one_session(tmp_path / "a.db", Elsewhere) as (one, session), Elsewhere(tmp_path / "a.db") as two:
        await append(two, session, "1")
        await append(one, session, "2")
        for service in (one, two):
            assert texts(await get(service)) == texts(session) == ["1", "2"]


async def test_an_append_that_loses_a_race_between_look_and_write_is_stale(tmp_path: Path) -> None:
    """If another process writes after this one has looked and before it writes, the append looks again."""
    async with one_session(tmp_path / "a.db", Elsewhere) as (one, mine), Elsewhere(tmp_path / "a.db") as two:
        yours = await get(two)
        real = one.commit_event
        races = 0

        async def late(live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
            nonlocal races
            if not races:
                races += 1
                await append(two, yours, "faster")
            await real(live, event, writer=writer, begins=begins)

        one.commit_event = late  # type: ignore[method-assign]  # the other process is faster, once
        with pytest.raises(StaleSessionError):
            await append(one, mine, "slower", user_x=1)
        found = await get(one)
        assert (texts(found), dict(found.state)) == (["faster"], {})
        await append(one, found, "later")
        assert texts(await get(two)) == ["faster", "later"]


# --- the cache and long histories -------------------------------------------------------------------------------------


async def long_session(path: Path, length: int) -> None:
    async with one_session(path) as (service, session):
        for number in range(1, length + 1):
            await append(service, session, str(number), last=number)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a session of 1 100 events, for those who only read it."""
    path = tmp_path_factory.mktemp("long") / "a.db"
    trio.run(long_session, path, 1100)
    return path


async def test_windows_opened_at_once_each_get_all_their_events(long: Path) -> None:
    """Tasks that load different parts of one cached session at the same time each see the whole of theirs."""
    async with SqliteSessionService(long, durability="process") as service:
        await get(service, num_recent_events=0)
        found: dict[int, list[str]] = {}

        async def load(recent: int) -> None:
            found[recent] = texts(await get(service, num_recent_events=recent))

        async with trio.open_nursery() as nursery:
            for recent in (300, 1100, 10, 700, 5000):
                nursery.start_soon(load, recent)
        for recent, events in found.items():
            assert events == [str(number) for number in range(max(1, 1101 - recent), 1101)]


async def test_a_long_load_lets_other_tasks_go_on(long: Path) -> None:
    """Loading a long history is done in pages, and between two of them other tasks run."""
    async with SqliteSessionService(long, durability="process") as service:
        ticks = 0
        done = False

        async def tick() -> None:
            nonlocal ticks
            while not done:
                await trio.lowlevel.checkpoint()
                ticks += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            assert len((await get(service)).events) == 1100
            loaded, ticks = ticks, 0
            assert len(await service.read_events(**HERE)) == 1101
            done = True
        assert min(loaded, ticks) >= 1100 // _earlier.PAGE_EVENTS - 1


async def test_a_session_that_disappears_while_it_is_loaded_is_not_there(tmp_path: Path) -> None:
    """Deleted between two pages, by another process, a session is not found; made again, the new one is read."""
    await long_session(tmp_path / "a.db", 600)
    for made_again in (False, True):
        for read in ("get", "read"):
            copy = tmp_path / f"{made_again}-{read}.db"
            copy.write_bytes((tmp_path / "a.db").read_bytes())
            async with Elsewhere(copy, durability="process") as one, Elsewhere(copy, durability="process") as two:
                await two.get_session(**HERE, config=GetSessionConfig(num_recent_events=0))
                after_first_page(one, partial(replace, two, made_again))
                if read == "get":
                    found = await one.get_session(**HERE)
                    seen = None if found is None else texts(found)
                else:
                    try:
                        seen = [event.text for event in await one.read_events(**HERE, after_seq=0)]
                    except SessionNotFoundError:
                        seen = None
            assert seen == (["new"] if made_again else None), (made_again, read)


async def replace(service: SqliteSessionService, again: bool) -> None:
    await service.delete_session(**HERE)
    if again:
        await append(service, await service.create_session(**HERE), "new")


def after_first_page(service: SqliteSessionService, act: Callable[[], Awaitable[None]]) -> None:
    """Let something happen before the second transaction of *service*."""
    real = service._file.reading
    count = 0

    @asynccontextmanager
    async def reading() -> AsyncIterator[sqlite3.Connection]:
        nonlocal count
        count += 1
        if count == 2:
            await act()
        async with real() as connection:
            yield connection

    service._file.reading = reading  # type: ignore[method-assign]  # another process acts in between


async def test_a_session_works_the_same_when_it_is_never_cached(tmp_path: Path) -> None:
    """With sessions evicted all the time, objects, windows, retries and shared scopes agree with the store."""
    async with SqliteSessionService(tmp_path / "a.db", durability="process", cache_bytes=0) as service:
        sessions = [await service.create_session(app_name="app", user_id="u", session_id=str(i)) for i in range(4)]
        narrow = await get(service, "0", num_recent_events=0)
        for turn in range(3):
            for session in sessions:
                actions = EventActions(state_ops={"n": {"add": 1}, "user:n": {"add": 1}})
                event = Event(id=f"{session.id}-{turn}", author="a", message=f"{turn}", actions=actions)
                stored = await service.append_event(session, event)
                assert await service.append_event(session, event) == stored
            assert len(service._cache.sessions) == 1
        for session in sessions:
            found = await get(service, session.id)
            assert texts(found) == texts(session) == ["0", "1", "2"]
            assert (found.state["n"], found.state["user:n"], found.revision) == (3, 12, 3)
            assert texts(await get(service, session.id, num_recent_events=2)) == ["1", "2"]
            assert texts(await get(service, session.id, after_seq=2)) == ["2"]
        with pytest.raises(StaleSessionError):
            await append(service, narrow)
        again = await service.append_event(narrow, Event(id="0-0", author="a", message="0", actions=actions))
        assert (again.seq, narrow.revision, narrow.state["n"]) == (1, 1, 1)


async def test_old_session_objects_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Sessions that share one event list go their own ways after it was evicted, and none sees another's events."""
    async with one_session(tmp_path / "a.db", cache_bytes=0) as (service, session):
        await append(service, session, "1")
        one, two, three = [await get(service) for _ in range(3)]
        await get(service, (await service.create_session(app_name="app", user_id="u", session_id="o")).id)
        event = Event(id="mine", author="a", message="2")
        await service.append_event(one, event)
        await get(service, "o")
        await service.append_event(two, event)
        assert texts(one) == texts(two) == ["1", "2"]
        assert texts(three) == texts(session) == ["1"]
        await append(service, one, "3")
        assert (texts(one), texts(two)) == (["1", "2", "3"], ["1", "2"])


async def test_a_run_goes_on_while_its_session_is_evicted(tmp_path: Path) -> None:
    """A run whose session was dropped from the cache and read again by others still writes and is seen."""
    async with one_session(tmp_path / "a.db", cache_bytes=0) as (service, _):
        await service.create_session(app_name="app", user_id="u", session_id="other", state={"user:x": 0})
        writer = await enter(service)
        await begin(writer)
        for number in range(3):
            await get(service, "other")
            found = await get(service)
            assert found.revision == writer.live.revision == number + 1
            event = Event(author="a", message=str(number), state={"n": number, "user:x": number})
            await writer.append(attrs.evolve(event, invocation_id="e-1"))
            assert writer.live.values.get("user:x") == number
        await writer.finish(InvocationStatus.COMPLETED)
        final = await get(service)
        assert texts(final) == ["hi", "0", "1", "2"]
        assert dict(final.state) == {"n": 2, "user:x": 2}
        assert list(final.events) == writer.live.events


class Quiet(BaseAgent):
    """Says one thing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="said", state={"n": 1}))


@pytest.mark.parametrize("kind", ["memory", "sqlite process", "sqlite without cache"])
async def test_the_session_of_a_run_can_be_appended_to_after_it(kind: str, tmp_path: Path) -> None:
    """`run.session` is an ordinary session object once the run is over, whether or not it is still cached."""
    async with services(tmp_path)[kind]() as service:
        runner = Runner(agent=Quiet(name="q"), app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
        await service.create_session(app_name="app", user_id="u", session_id="other")
        for number in (2, 3):
            await get(service, "other")
            await append(service, run.session, str(number), n=number)
            assert run.session.revision == number + 1
            assert run.session.state["n"] == number
            assert texts(run.session) == ["hi", "said", "2", "3"][: number + 1]
        assert texts(await get(service)) == ["hi", "said", "2", "3"]


async def test_the_cache_is_bounded(tmp_path: Path) -> None:
    """No more than cache_bytes of memory is kept, state included, beside the session used last."""
    async with SqliteSessionService(tmp_path / "a.db", durability="process", cache_bytes=25_000) as service:
        for number in range(10):
            session = await service.create_session(app_name="app", user_id="u", session_id=str(number))
            await append(service, session, "x" * 3_000)
            await get(service, str(number))
        assert 2 <= len(service._cache.sessions) <= 3
        assert service._cache.bytes == sum(live.size for live in service._cache.sessions.values())
    async with SqliteSessionService(tmp_path / "a.db", durability="process", cache_bytes=25_000) as service:
        big = await service.create_session(app_name="app", user_id="u", session_id="big", state={"k": "x" * 9_000})
        await append(service, big)
        service._cache.drop(SessionKey("app", "u", "big"))
        await get(service, "big")
        assert service._cache.bytes > 9_000
        await get(service, "1")
        assert [key.session_id for key in service._cache.sessions] == ["1"]


@pytest.mark.parametrize(
    ("turns", "text", "state"),
    [(0, "", 0), (1, "hello", 0), (30, "hello", 0), (10, "x" * 2_000, 0), (1, "x" * 50_000, 0), (0, "", 200)],
)
async def test_what_a_cached_session_counts_is_what_it_costs(
    turns: int, text: str, state: int, tmp_path: Path
) -> None:
    """What the cache counts and what Python has allocated for it are within a factor of two, whatever the session."""
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: "".join(text)))
        runner = Runner(agent=agent, app_name="app", session_service=service)

        async def make(name: str) -> None:
            initial = {f"key {number}": number for number in range(state)}
            await service.create_session(app_name="app", state=initial, user_id=name, session_id=name)
            for _ in range(turns):
                async with runner.run_async(user_id=name, session_id=name, new_message="hi") as run:
                    await run.wait()

        await make("warm")
        gc.freeze()  # what is there already need not be looked through
        counted, sessions = service._cache.bytes, 6 if turns < 10 else 2
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for number in range(sessions):
                await make(str(number))
            gc.collect()
            costs = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        counted = service._cache.bytes - counted
        assert costs / 2 < counted < 2 * costs, (costs // sessions, counted // sessions)


async def test_many_sessions_that_ran_once_stay_within_the_bound(tmp_path: Path) -> None:
    """However many sessions are run once, what is kept of them takes at most twice the memory that was asked for."""
    bound = 2**17
    async with SqliteSessionService(tmp_path / "a.db", durability="process", cache_bytes=bound) as service:
        gc.freeze()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for number in range(250):
                session = await service.create_session(app_name="app", user_id=str(number), session_id="s")
                await append(service, session)
            del session
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] - before < 2 * bound
        finally:
            tracemalloc.stop()
        assert bound / 2 < service._cache.bytes <= bound + 2_000  # the one used last is beside them


async def test_an_append_costs_the_same_however_much_there_is(tmp_path: Path) -> None:
    """The statements of an append depend on its delta, not on the length of the history or the size of the state."""
    counts = []
    for events, keys in ((1, 1), (300, 1), (1, 3000)):
        path = tmp_path / f"{events}-{keys}.db"
        async with SqliteSessionService(path, durability="process") as service:
            state = {f"{scope}k{n}": n for n in range(keys) for scope in ("", "user:", "app:")}
            session = await service.create_session(**HERE, state=state)
            for _ in range(events):
                await append(service, session)
            statements: list[str] = []
            connection = service._file._connection
            assert connection is not None
            connection.set_trace_callback(statements.append)
            rows = connection.total_changes
            await append(service, session, k0=2, user_k0=2, app_k0=2)
            counts.append((len(statements), connection.total_changes - rows))
            connection.set_trace_callback(None)
    assert counts[0] == counts[1] == counts[2]


# --- commits that fail, or take their time ----------------------------------------------------------------------------


async def commits(service: SqliteSessionService) -> None:
    """The service takes an append and shows it: it is as good as new."""
    session = await get(service)
    await append(service, session, "after", after=True)
    found = await get(service)
    assert (found.revision, found.state["after"]) == (session.revision, True)


@pytest.mark.parametrize("durability", ["power", "process"])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY])
async def test_a_commit_that_failed_and_did_not_happen_can_be_retried(
    durability: str, code: int, tmp_path: Path
) -> None:
    """COMMIT fails: the outcome is unknown, the session object stays, and the same event can be appended again."""
    async with one_session(tmp_path / "a.db", durability=durability) as (service, session):
        await service.create_session(app_name="app", user_id="u", session_id="other")
        event = Event(id="mine", author="a", message="x", state={"user:n": 1})
        inject(service, {"COMMIT": failing(code)})
        with pytest.raises(StorageUncertainError, match=r"COMMIT failed: planted; .*read the session again") as caught:
            await service.append_event(session, event)
        assert caught.value.stored is None
        assert (session.revision, dict(session.state)) == (0, {})
        assert dict((await get(service, "other")).state) == {}, "nothing is applied that is not stored"
        stored = await service.append_event(session, event)
        assert (stored.seq, texts(await get(service))) == (1, ["x"])
        await commits(service)


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_commit_that_failed_and_did_happen_is_recognized(durability: str, tmp_path: Path) -> None:
    """COMMIT reports a failure after it has worked: a retry finds the event and stores nothing twice."""
    async with one_session(tmp_path / "a.db", durability=durability) as (service, session):
        await append(service, session, "1", user_n=0)
        event = Event(id="mine", author="a", message="2", actions=EventActions(state_ops={"user:n": {"add": 1}}))
        real = service._file._connection
        assert real is not None

        def commit_and_fail() -> None:
            real.execute("COMMIT")
            failing(sqlite3.SQLITE_IOERR)()

        inject(service, {"COMMIT": commit_and_fail})
        with pytest.raises(StorageUncertainError):
            await service.append_event(session, event)
        assert texts(await get(service)) == ["1", "2"]
        stored = await service.append_event(session, event)
        assert (stored.seq, session.revision, dict(session.state)) == (2, 2, {"user:n": 1})
        assert texts(await get(service)) == texts(session) == ["1", "2"]
        await commits(service)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StorageFullError),
        (sqlite3.SQLITE_CORRUPT, StorageCorruptError),
        (sqlite3.SQLITE_READONLY, StorageReadOnlyError),
        (sqlite3.SQLITE_IOERR, StorageRolledBackError),
    ],
)
async def test_a_statement_that_fails_before_commit_stored_nothing(
    code: int, kind: type[StorageError], tmp_path: Path
) -> None:
    """An error inside the transaction rolls it back, whole, and has the type that says what happened."""
    statement = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
    async with one_session(tmp_path / "a.db") as (service, session):
        faults = {statement: failing(code)}
        inject(service, faults)
        for attempt in (
            lambda: append(service, session, user_n=1),
            lambda: service.create_session(app_name="app", user_id="u", session_id="new", state={"user:n": 1}),
        ):
            with pytest.raises(kind, match=r"a\.db: writing failed: planted") as caught:
                await attempt()
            assert type(caught.value) is kind
        assert (session.revision, dict(session.state)) == (0, {})
        faults.clear()  # the disk is well again
        assert await service.get_session(app_name="app", user_id="u", session_id="new") is None
        assert dict((await get(service)).state) == {}
        await append(service, session)
        await commits(service)


async def test_a_rollback_that_fails_does_not_wedge_the_service(tmp_path: Path) -> None:
    """When even ROLLBACK fails the connection is given up, and the next use opens a new one."""
    async with one_session(tmp_path / "a.db") as (service, session):
        faults: dict[str, Callable[[], None]] = {}

        def fail_for_good() -> None:
            faults["ROLLBACK"] = failing(sqlite3.SQLITE_IOERR, "second")
            failing(sqlite3.SQLITE_IOERR, "first")()

        faults["INSERT INTO events VALUES (?, ?, ?, ?, ?)"] = fail_for_good
        inject(service, faults)
        with pytest.raises(StorageError, match="first"):
            await append(service, session)
        await append(service, session)
        await commits(service)


async def test_an_interrupt_right_after_begin_does_not_wedge_the_service(tmp_path: Path) -> None:
    """A KeyboardInterrupt between BEGIN and the first statement rolls back."""
    async with one_session(tmp_path / "a.db") as (service, session):
        real = service._file._connection
        assert real is not None
        hits = 0

        def begin_and_interrupt() -> None:
            nonlocal hits
            hits += 1
            if hits == 1:
                real.execute("BEGIN IMMEDIATE")
                raise KeyboardInterrupt

        inject(service, {"BEGIN IMMEDIATE": begin_and_interrupt})
        session = await get(service)
        with pytest.raises(KeyboardInterrupt):
            await append(service, session)
        await append(service, session)
        await commits(service)


async def test_a_cancellation_during_the_commit_comes_after_it(tmp_path: Path) -> None:
    """While COMMIT waits for the disk, in its thread, the loop goes on, and cancelling the append changes nothing."""
    async with one_session(tmp_path / "a.db", durability="power") as (service, session):
        started, proceed = threading.Event(), threading.Event()

        def slow_commit() -> None:
            started.set()
            assert proceed.wait(120)

        await service.create_session(app_name="app", user_id="u", session_id="other")
        writer = await service.open_writer(SessionKey("app", "u", "other"), "e-1", None, reject=False)
        assert writer is not None
        inject(service, {"COMMIT": slow_commit})
        ends: list[str] = []

        async def cancelled_append() -> None:
            with trio.CancelScope() as scope:
                scopes.append(scope)
                await append(service, session, "1", n=1, user_n=1)
                ends.append("returned")
            ends.append("caught" if scope.cancelled_caught else "not cancelled")

        async def second_append() -> None:
            await append(service, session, "2", n=2)
            ends.append("second")

        scopes: list[trio.CancelScope] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled_append)
            while not started.is_set():
                await trio.lowlevel.checkpoint()
            nursery.start_soon(second_append)
            scopes[0].cancel()
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            assert ends == []
            assert session.revision == 0
            assert dict(writer.live.values.user) == {}, "nobody sees it before it is stored"
            proceed.set()
        await writer.finish(None)
        assert ends == ["returned", "not cancelled", "second"]
        assert texts(await get(service)) == texts(session) == ["1", "2"]


async def test_many_appends_cancelled_at_any_time_are_stored_or_not(tmp_path: Path) -> None:
    """With a commit in its thread and others in line, cancelling some leaves exactly those that returned."""
    async with SqliteSessionService(tmp_path / "a.db") as service:
        names = [str(number) for number in range(12)]
        sessions = [await service.create_session(app_name="app", user_id="u", session_id=name) for name in names]
        returned: list[str] = []

        async def one(session: Session, scope: trio.CancelScope) -> None:
            with scope:
                actions = EventActions(state_ops={"user:n": {"add": 1}})
                await service.append_event(session, Event(author="a", message="x", actions=actions))
                returned.append(session.id)

        scopes = [trio.CancelScope() for _ in names]
        async with trio.open_nursery() as nursery:
            for session, scope in zip(sessions, scopes, strict=True):
                nursery.start_soon(one, session, scope)
            for scope in scopes[1::2]:
                await trio.lowlevel.checkpoint()
                scope.cancel()
        for session in sessions:
            assert session.revision == (session.id in returned)
            assert (await get(service, session.id)).revision == session.revision
        assert (await get(service, "0")).state.get("user:n", 0) == len(returned)
        assert set(names[::2]) <= set(returned)


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_an_append_in_line_can_be_cancelled_at_any_step(
    durability: _file.Durability, tmp_path: Path
) -> None:
    """Cancelled at each step while another append and a reader are at work, an append is stored or leaves no trace."""
    async with SqliteSessionService(tmp_path / "a.db", durability=durability) as service:
        mine, other = [await service.create_session(app_name="app", user_id="u", session_id=name) for name in "ab"]
        stored = number = quiet = 0
        add = Event(author="a", actions=EventActions(state_ops={"user:n": {"add": 1}, "n": {"add": 1}}))
        while quiet < 5:  # the steps vary with the order of tasks and the speed of threads
            number += 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.append_event, other, add)
                nursery.start_soon(get, service, "a")
                with trio.CancelScope() as scope:
                    steps = CancelAtStep(scope, number)
                    trio.lowlevel.add_instrument(steps)
                    await service.append_event(mine, add)
                trio.lowlevel.remove_instrument(steps)
            stored += not scope.cancelled_caught
            quiet = 0 if scope.cancel_called else quiet + 1
            found = await get(service, "a")
            assert found.revision == mine.revision == stored
            assert found.state["user:n"] == stored + number
            assert found.state.get("n", 0) == mine.state.get("n", 0) == stored
        assert stored < number, "some were cancelled"


async def test_a_locked_file_is_waited_for_on_trios_clock(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Another process's lock is waited for without stopping the loop, up to a bound; the wait can be cancelled."""
    async with one_session(tmp_path / "a.db") as (service, session):
        other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with trio.move_on_after(1) as scope:
            await append(service, session)
        assert scope.cancelled_caught
        begun = trio.current_time()
        with pytest.raises(StorageBusyError, match="another process holds the write lock") as caught:
            await append(service, session)
        assert caught.value.stored is False
        assert trio.current_time() - begun == pytest.approx(_file.BUSY_WAIT_S, abs=0.1)
        assert (await get(service)).revision == session.revision == 0, "reading needs no lock"

        async def unlock() -> None:
            await trio.sleep(3)
            other.execute("ROLLBACK")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(unlock)
            await append(service, session)
        assert trio.current_time() - begun < 14
        other.close()


async def test_a_reader_waits_while_another_process_recovers_the_log(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """SQLITE_BUSY is waited for, by a look at a session that is cached and on the first reading of a transaction."""
    async with one_session(tmp_path / "a.db") as (service, _):
        left = 0

        def busy() -> None:
            nonlocal left
            left -= 1
            if left > 0:
                failing(sqlite3.SQLITE_BUSY)()

        inject(service, {_cache._ROW_AND_NEWS: busy, "PRAGMA user_version": busy})
        for read in (partial(get, service), partial(service.read_events, **HERE)):
            left = 5
            assert await read()
            assert left <= 0


async def test_durability_is_what_was_asked_for(tmp_path: Path) -> None:
    """`power` commits with synchronous=FULL, `process` with NORMAL; only what may be lost switches down, and back."""
    for durability, level in (("power", 2), ("process", 1)):
        async with one_session(tmp_path / f"{durability}.db", durability=durability) as (service, _session):
            connection = service._file._connection
            assert connection is not None
            statements: list[str] = []
            connection.set_trace_callback(statements.append)
            writer = await enter(service)
            await begin(writer)
            assert not [statement for statement in statements if "synchronous" in statement]
            await writer.finish(InvocationStatus.COMPLETED)
            await append(service, await get(service))
            levels = [statement for statement in statements if "synchronous" in statement]
            down_and_up = ["PRAGMA synchronous=NORMAL", "PRAGMA synchronous=FULL"]
            assert levels == (down_and_up if durability == "power" else [])
            assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


def _note_thread(threads: list[int]) -> None:
    threads.append(threading.get_ident())


async def test_power_commits_run_in_a_thread_and_process_commits_do_not(tmp_path: Path) -> None:
    """Only a COMMIT that waits for the disk leaves the loop's thread, through Env."""
    for durability, elsewhere in (("power", True), ("process", False)):
        async with one_session(tmp_path / f"{durability}.db", durability=durability) as (service, session):
            threads: list[int] = []
            inject(service, {"COMMIT": partial(_note_thread, threads)})
            await append(service, session)
            assert [thread != threading.get_ident() for thread in threads] == [elsewhere]


# --- damage -----------------------------------------------------------------------------------------------------------


async def damaged(path: Path, statement: str) -> None:
    async with one_session(path) as (service, session):
        for number in range(5):
            await append(service, session, str(number), n=number, user_n=number)
    sql(path, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE seq = 3",
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM events WHERE seq = 5",
        "DELETE FROM events",
        "UPDATE events SET data = '{' WHERE seq = 2",
        "UPDATE events SET data = '{\"seq\":2}' WHERE seq = 3",
        "UPDATE events SET data = x'ff00' WHERE seq = 4",
        "UPDATE events SET data = cast(x'ff22' AS TEXT) WHERE seq = 4",
        "UPDATE session_state SET value = '['",
        "UPDATE session_state SET value = 'NaN'",
        "UPDATE shared_state SET value = x'00'",
    ],
)
async def test_damage_is_an_error_and_not_a_hang(statement: str, tmp_path: Path) -> None:
    """Rows that are missing or unreadable raise StorageCorruptError, which says what to do, from every reading."""
    await damaged(tmp_path / "a.db", statement)
    async with SqliteSessionService(tmp_path / "a.db") as service:
        with trio.fail_after(10), pytest.raises(StorageCorruptError, match=r"sqlite3 FILE \.recover"):
            await service.get_session(**HERE)
        if "state" not in statement:
            with trio.fail_after(10), pytest.raises(StorageCorruptError, match=r"sqlite3 FILE \.recover"):
                await service.read_events(**HERE)


async def test_an_operation_that_does_not_fit_is_damage_for_who_goes_through_the_log(tmp_path: Path) -> None:
    """A fork of the past and a rewind fold what was; it was never stored so, and both say that the file is damaged."""
    path = tmp_path / "a.db"
    async with one_session(path) as (service, session):
        await append(service, session, n=1)
        await service.append_event(session, Event(author="a", actions=EventActions(state_ops={"n": {"add": 1}})))
        await service.append_event(session, Event(author="a", message="hi", invocation_id="e-1"))
    sql(path, """UPDATE events SET data = replace(data, '"n":1}', '"n":"x"}') WHERE seq = 1""")
    async with SqliteSessionService(path) as service:
        assert (await service.fork_session(**HERE, at_seq=1)).state["n"] == "x"
        with pytest.raises(StorageCorruptError, match=r"event 2: state\['n'\]: `add` .*sqlite3 FILE .recover"):
            await service.fork_session(**HERE, at_seq=2)
        runner = Runner(agent=BaseAgent(name="a"), app_name="app", session_service=service)
        with pytest.raises(StorageCorruptError, match=r"before event 3: state\['n'\]: `add` expects .*verify"):
            await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id="e-1")


async def test_a_checkpoint_that_got_half_way_is_no_damage(tmp_path: Path) -> None:
    """A file whose log was being written back when its process died, or that is just being written, can be opened."""
    path = tmp_path / "a.db"
    async with one_session(path):
        pass
    old_size = len(read_bytes(path))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute("INSERT INTO session_state VALUES (1, 'k', ?)", (f'"{"x" * 100_000}"',))
    log = read_bytes(tmp_path / "a.db-wal")
    db.execute("PRAGMA wal_checkpoint")
    whole = read_bytes(path)
    db.close()
    for size in (old_size, len(whole) - 4096):  # the first page, and how many there are, is written first
        write_bytes(path, whole[:size])
        write_bytes(tmp_path / "a.db-wal", log)
        async with SqliteSessionService(path) as service:
            assert len((await get(service)).state["k"]) == 100_000


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_a_file_says_whose_it_is(tmp_path: Path) -> None:
    """A new file carries minirun's application id and a format version; closed, nothing else is left beside it."""
    path = tmp_path / "a.db"
    async with one_session(path) as (service, _):
        writer = await enter(service)
        await begin(writer)
        assert any(name.startswith("a.db-owner-") for name in os.listdir(tmp_path))
        await writer.finish(InvocationStatus.COMPLETED)
    assert sql(path, "PRAGMA application_id") == [(0x6D72756E,)]
    assert sql(path, "PRAGMA user_version") == [(1,)]
    assert os.listdir(tmp_path) == ["a.db"]


async def test_a_service_that_nobody_closed_is_no_nuisance(tmp_path: Path) -> None:
    """Forgetting a service warns of nothing, and leaves no file but the database."""
    service = SqliteSessionService(tmp_path / "a.db")
    await service.create_session(**HERE)
    del service
    gc.collect()
    assert os.listdir(tmp_path) == ["a.db"]


async def test_the_forms_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name, a Path, a URL and a link name one file, which stays the same when the working folder changes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.db").symlink_to(tmp_path / "a.db")
    forms: list[str | Path] = [
        "a.db",
        tmp_path / "a.db",
        "sqlite:///a.db",
        f"sqlite:///{tmp_path}/a.db",
        "elsewhere/link.db",
    ]
    opened = [SqliteSessionService(form, durability="process") for form in forms]
    monkeypatch.chdir(tmp_path / "elsewhere")
    for number, service in enumerate(opened):
        await service.create_session(app_name="app", user_id="u", session_id=str(number))
    for service in opened:
        listed = await service.list_sessions(app_name="app")
        assert [session.id for session in listed.sessions] == ["0", "1", "2", "3", "4"]
        assert service.store_id() == opened[0].store_id()
        await service.aclose()
    assert sorted(os.listdir(tmp_path)) == ["a.db", "elsewhere"]


async def test_two_services_over_one_file_share_their_gates(tmp_path: Path) -> None:
    """In one trio.run a second service over the file waits at the same gate, in line, whatever the path's form."""
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    async with one_session(tmp_path / "a.db") as (one, _), SqliteSessionService(tmp_path / "link.db") as two:
        writer = await enter(one)
        with pytest.raises(SessionBusyError):
            await enter(two, reject=True)
        await writer.finish(None)
        await (await enter(two, reject=True)).finish(None)


def test_a_first_look_at_a_file_in_the_making_is_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes open a new file: the slower one never sees the header half made and takes it for a foreign one."""
    real = sqlite3.connect
    raced = False

    async def open_it() -> None:
        async with Elsewhere(tmp_path / "a.db", durability="process") as service:
            await service.list_sessions(app_name="app")

    class Racing(sqlite3.Connection):
        """Lets the other one make the file just before the second field of the header is read."""

        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            nonlocal raced
            if statement == "PRAGMA user_version" and not raced:
                raced = True
                other = threading.Thread(target=trio.run, args=(open_it,))
                other.start()
                other.join()
            return super().execute(statement, *parameters)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, **options, factory=Racing))
    trio.run(open_it)
    assert raced


# --- leases, as two processes have them -------------------------------------------------------------------------------


@asynccontextmanager
async def two_processes(
    path: Path, *machines: str
) -> AsyncIterator[tuple[Elsewhere, Elsewhere, Clock]]:
    """Two services over one file, by default on one machine, and the clock that both see."""
    clock = Clock([1000.0])
    mine, others = machines or ("here", "here")
    async with (
        one_session(path, Elsewhere, env=attrs.evolve(clock, machine=mine)) as (one, _),
        Elsewhere(path, durability="process", env=attrs.evolve(clock, machine=others)) as two,
    ):
        assert isinstance(one, Elsewhere)
        yield one, two, clock


async def test_the_lease_is_taken_with_the_first_append(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Entering stores nothing; the first append takes the lease; then others are refused, or wait for the end."""
    async with two_processes(tmp_path / "a.db") as (one, two, _):
        mine = await enter(one)
        theirs = await enter(two, "e-2", reject=True)
        await begin(mine)
        with pytest.raises(StaleSessionError, match="another process has entered it first"):
            await begin(theirs)
        with pytest.raises(SessionBusyError, match="another process"):
            await theirs.reload(None, reject=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(theirs.reload, None, reject=False))
            await trio.sleep(20)
            await mine.renew()
            await mine.append(Event(author="a", message="mine", invocation_id="e-1"))
            await mine.finish(InvocationStatus.COMPLETED)
        await begin(theirs)
        await theirs.finish(InvocationStatus.COMPLETED)
        assert texts(await get(one)) == ["hi", "mine", "hi"]


async def test_others_wait_for_a_leased_session(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """append_event and delete_session of another process wait for the run's end; reading does not."""
    async with two_processes(tmp_path / "a.db") as (one, two, _):
        outside = await get(two)
        writer = await enter(one)
        await begin(writer)
        ends: list[str] = []

        async def stale() -> None:
            with pytest.raises(StaleSessionError):
                await append(two, outside)
            ends.append("append")

        async def delete() -> None:
            await two.delete_session(**HERE)
            ends.append("delete")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stale)
            await trio.sleep(5)
            nursery.start_soon(delete)
            await trio.sleep(5)
            assert texts(await get(two)) == ["hi"]
            assert ends == []
            await writer.finish(InvocationStatus.COMPLETED)
        assert ends == ["append", "delete"]
        assert await one.get_session(**HERE) is None


async def test_a_session_that_another_process_has_just_entered_is_deleted_after_that(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Deleting finds the lease in its transaction, and waits until the run has left; nothing of it is gone before."""
    path = tmp_path / "a.db"
    async with Elsewhere(path, durability="process") as owner, Elsewhere(path, durability="process") as other:
        await owner.create_session(**HERE)
        writer = await enter(owner)
        await begin(writer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.remove_session, KEY)
            await trio.sleep(5)
            await writer.append(Event(author="a", message="on", invocation_id="e-1"))
            assert texts(await get(owner)) == ["hi", "on"]
            await writer.finish(InvocationStatus.COMPLETED)
        assert await owner.get_session(**HERE) is None
        assert await other.get_session(**HERE) is None
    assert sql(path, "SELECT count(*) FROM events") == [(0,)]


@pytest.mark.parametrize("machines", [("here", "here"), ("here", "there"), ("", ""), ("", "here")])
async def test_an_expired_lease_may_be_taken_and_its_owner_is_fenced(
    machines: tuple[str, str], tmp_path: Path
) -> None:
    """After the expiry another process enters, under a new epoch; the old owner's next append is stale."""
    async with two_processes(tmp_path / "a.db", *machines) as (one, two, clock):
        old = await enter(one)
        await begin(old)
        clock.seconds[0] += _leases.LEASE_S - 1
        with pytest.raises(SessionBusyError):
            await enter(two, reject=True)
        await old.renew()
        clock.seconds[0] += _leases.LEASE_S - 1
        with pytest.raises(SessionBusyError):
            await enter(two, reject=True)
        clock.seconds[0] += 2
        new = await enter(two, "e-2", reject=True)
        assert [one.status for one in await two.list_invocations()] == [InvocationStatus.INTERRUPTED]
        await begin(new)
        with pytest.raises(StaleSessionError, match="another process has taken the session over"):
            await old.append(Event(author="a", message="too late", invocation_id="e-1"))
        await old.renew()
        await old.finish(InvocationStatus.COMPLETED)
        assert new.epoch is not None
        await new.append(Event(author="a", message="goes on", invocation_id="e-2"))
        await new.finish(InvocationStatus.COMPLETED)
        assert texts(await get(one)) == ["hi", "hi", "goes on"]


async def test_an_outside_append_ends_an_expired_lease(tmp_path: Path) -> None:
    """What outside code appends after the expiry fences the old owner, even if no run enters."""
    async with two_processes(tmp_path / "a.db") as (one, two, clock):
        old = await enter(one)
        await begin(old)
        clock.seconds[0] += _leases.LEASE_S + 1
        await append(two, await get(two), "outside")
        with pytest.raises(StaleSessionError):
            await old.append(Event(author="a", message="too late", invocation_id="e-1"))
        await old.finish(InvocationStatus.FAILED)
        assert texts(await get(two)) == ["hi", "outside"]


async def test_an_owner_that_is_gone_is_known_at_once(tmp_path: Path) -> None:
    """Without its lock an owner's lease is free and its running invocations are interrupted, long before the expiry."""
    async with two_processes(tmp_path / "a.db") as (one, two, _):
        await begin(await enter(one))
        with pytest.raises(SessionBusyError):
            await enter(two, reject=True)
        assert [one.status for one in await two.list_invocations()] == [InvocationStatus.RUNNING]
        assert one._leases.lock is not None
        one._leases.lock.release()  # as the end of the process does
        assert [one.status for one in await two.list_invocations()] == [InvocationStatus.INTERRUPTED]
        writer = await enter(two, "e-2", reject=True)
        await begin(writer)
        await writer.finish(InvocationStatus.COMPLETED)
        one._users = 0  # its process has ended


@pytest.mark.parametrize("happened", [True, False])
async def test_a_lease_whose_commit_is_uncertain_is_given_back(happened: bool, tmp_path: Path) -> None:
    """If the first append of a run fails in COMMIT, leaving frees the session for other processes at once."""
    async with two_processes(tmp_path / "a.db") as (one, two, _):
        writer = await enter(one)
        real = one._file._connection
        assert real is not None

        def fail() -> None:
            if happened:
                real.execute("COMMIT")
            failing(sqlite3.SQLITE_IOERR)()

        inject(one, {"COMMIT": fail})
        with pytest.raises(StorageUncertainError):
            await begin(writer)
        await writer.finish(None)
        again = await enter(two, "e-2", reject=True)
        assert texts(await get(two)) == (["hi"] if happened else [])
        statuses = [one.status for one in await two.list_invocations()]
        assert statuses == ([InvocationStatus.INTERRUPTED] if happened else [])
        await begin(again)
        await again.finish(InvocationStatus.COMPLETED)


async def test_a_lease_that_nobody_renews_is_over_whatever_the_clock_says(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever waits for as long as a lease lasts, and sees no renewal, enters, though the clock was set back."""
    async with two_processes(tmp_path / "a.db", "here", "there") as (one, two, clock):
        mine = await enter(one)
        await begin(mine)
        clock.steps[0] -= 3600
        entered = trio.Event()

        async def wait() -> None:
            theirs = await enter(two, "e-2")
            entered.set()
            await begin(theirs)
            await theirs.finish(InvocationStatus.COMPLETED)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for _ in range(10):  # a living owner renews, and keeps it
                await trio.sleep(_leases.RENEW_EVERY_S)
                await mine.renew()
                clock.steps[0] -= 100
                assert not entered.is_set()
            start = trio.current_time()
            await entered.wait()
            assert _leases.LEASE_S <= trio.current_time() - start < _leases.LEASE_S + 1
        await mine.finish(InvocationStatus.COMPLETED)


async def test_an_end_that_met_a_failing_store_is_recorded_with_the_next_append(tmp_path: Path) -> None:
    """The lease is given back and the status recorded by whatever the process stores next, in any session."""
    async with two_processes(tmp_path / "a.db") as (one, two, _):
        writer = await enter(one)
        await begin(writer)
        inject(one, {"COMMIT": failing(sqlite3.SQLITE_IOERR)})
        await writer.finish(InvocationStatus.COMPLETED)
        with pytest.raises(SessionBusyError):
            await enter(two, "e-2", reject=True)
        await append(one, await one.create_session(app_name="app", user_id="u", session_id="other"), "elsewhere")
        assert [found.status for found in await two.list_invocations()] == [InvocationStatus.COMPLETED]
        theirs = await enter(two, "e-2", reject=True)
        await begin(theirs)
        await append(one, await one.create_session(app_name="app", user_id="u", session_id="third"), "once is enough")
        await theirs.append(Event(author="a", message="still mine", invocation_id="e-2"))
        await theirs.finish(InvocationStatus.FAILED)
        assert [found.status for found in await one.list_invocations()] == ["completed", "failed"]


def test_an_owners_lock_is_seen_by_all_who_ask_at_once(tmp_path: Path) -> None:
    """A living owner is never taken for gone; of a dead one everybody hears, also two who ask together."""
    database = tmp_path / "a.db"
    lock = OwnerLock(database, "mine")
    assert not owner_is_gone(database, "mine")
    lock.release()
    assert owner_is_gone(database, "mine")
    left_behind = tmp_path / "a.db-owner-dead"
    left_behind.touch()
    with left_behind.open("r+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH | fcntl.LOCK_NB)  # another one that is just asking
        assert owner_is_gone(database, "dead")
    assert not left_behind.exists()


def test_an_owner_that_is_swept_up_while_it_comes_to_life_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of its file and the lock on it others may take it for a dead one's; nobody does afterwards."""
    database, take_lock, swept = tmp_path / "a.db", fcntl.flock, list[bool]()

    def sweep_first(file: int, kind: int) -> None:
        if kind & fcntl.LOCK_EX and len(swept) < 2:
            swept.append(True)
            remove_dead_locks(database)
        take_lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    lock = OwnerLock(database, "mine")
    assert len(swept) == 2
    assert not owner_is_gone(database, "mine")
    lock.release()
    assert owner_is_gone(database, "mine")


def test_an_owner_outlives_somebody_who_sweeps_up_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened an owner's file, and locks it after another one has swept it up, takes nothing from that owner."""
    database, take_lock, living = tmp_path / "a.db", fcntl.flock, list[OwnerLock]()
    (tmp_path / "a.db-owner-mine").touch()  # the owner has made its file and has yet to lock it

    def come_late(file: int, kind: int) -> None:
        if kind & fcntl.LOCK_SH and not living:
            monkeypatch.setattr(fcntl, "flock", take_lock)
            remove_dead_locks(database)
            living.append(OwnerLock(database, "mine"))
        take_lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", come_late)
    assert not owner_is_gone(database, "mine")
    assert not owner_is_gone(database, "mine"), "its file is still there"
    living.pop().release()
    assert owner_is_gone(database, "mine")


async def test_a_folder_that_takes_no_lock_file_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the owner's lock cannot be made, entering fails with a typed error before anything is stored."""
    async with one_session(tmp_path / "a.db") as (service, _):
        writer = await enter(service)

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(_leases, "OwnerLock", refuse)
        with pytest.raises(StorageReadOnlyError, match="make the folder writable") as caught:
            await begin(writer)
        assert caught.value.stored is False
        await writer.finish(None)
        assert (await get(service)).revision == 0


async def test_deleting_writes_the_scopes_down_first(tmp_path: Path) -> None:
    """A deleted session's part in its scopes becomes their base row, with the commit number it is current at."""
    path = tmp_path / "a.db"
    async with one_session(path) as (service, session):
        await append(service, session, user_a=1, app_b=[1])
        await append(service, session, user_gone=1)
        await service.append_event(session, Event(author="a", actions=EventActions(state_removed=["user:gone"])))
        await service.delete_session(**HERE)
        await append(service, await service.create_session(**HERE), user_a=2)
    rows = sql(path, "SELECT user_id, commit_no, value FROM shared_base ORDER BY user_id")
    assert rows == [("", 4, '{"app:b":[1]}'), ("u", 4, '{"user:a":1}')]
    assert sql(path, "SELECT seq, commit_no FROM events") == [(0, 5), (1, 6)]


def read_bytes(path: Path) -> bytes:
    return path.read_bytes()


def write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def lines(path: Path) -> Iterator[str]:
    yield from (data for (data,) in sql(path, "SELECT data FROM events ORDER BY seq"))


async def test_what_is_stored_is_the_events_line(tmp_path: Path) -> None:
    """A row of events is the event's JSON, complete: whoever reads the file needs no other column."""
    path = tmp_path / "a.db"
    async with one_session(path) as (service, session):
        stored = await append(service, session, "hi", n=1)
    assert list(lines(path))[1] == (
        f'{{"id":"{stored.id}","author":"a","seq":1,"timestamp":{stored.timestamp!r},'
        '"content":{"parts":[{"text":"hi"}]},"actions":{"state_delta":{"n":1}}}'
    )


async def test_a_missing_folder_and_a_newer_format_are_told_apart(tmp_path: Path) -> None:
    """Both are StorageFormatError, and the message says which it is."""
    async with one_session(tmp_path / "a.db"):
        pass
    sql(tmp_path / "a.db", "PRAGMA user_version=2")
    for path, words in ((tmp_path / "a.db", "format 2, made by a newer minirun"), (tmp_path / "no" / "b", "no folder")):
        with pytest.raises(StorageFormatError, match=words):
            await SqliteSessionService(path).get_session(**HERE)


class WithoutLog(sqlite3.Connection):
    """A connection to a file that cannot have a write-ahead log, as on a disk of a network."""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute("SELECT 'delete'" if statement.endswith("journal_mode=WAL") else statement, *parameters)


@attrs.frozen(eq=False)
class OnANetwork(Env):
    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(
            database, uri=uri, timeout=0, isolation_level=None, check_same_thread=False, factory=WithoutLog
        )


async def test_a_place_that_cannot_keep_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    """A file there could lose acknowledged commits. A database in memory has nothing to lose."""
    with pytest.raises(StorageFormatError, match="cannot keep a write-ahead log here, as on a network's disk"):
        await SqliteSessionService(tmp_path / "s.db", env=OnANetwork()).create_session(**HERE)
    async with SqliteSessionService(":memory:", env=OnANetwork()) as service:
        await service.create_session(**HERE)
