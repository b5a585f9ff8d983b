"""
Sessions in a store of one's own, whatever happens to its calls: slow, cancelled, failing, forked.

A run is interrupted at every step that trio takes in it, and fails at every call of the store; the promises are those
of the bundled services, with the same checks (`tests/interruptions.py`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from minirun import Event, Runner
from minirun.errors import StorageBusyError, StorageError
from minirun.sessions import BaseSessionService, KeyValueSessionService, KeyValueStore

from ..fork_server import program, run
from ..interruptions import (
    AGENTS,
    PLACE,
    Diary,
    Store,
    cancel_at_every_step,
    check_aftermath,
    check_new_turn,
    check_reopened,
    open_calls,
    read_run,
)
from ..stores import HERE, append, get

scenarios = pytest.mark.parametrize("agent", AGENTS)


class Slow(KeyValueStore):
    """A dict that takes its time, before and after each look and each change; one call of it may fail."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.calls = 0
        self.fails_at = 0
        self.how = ""

    async def read(self, first: str, end: str, limit: int) -> Sequence[tuple[str, str]]:
        is_failing = self._begin()
        await trio.lowlevel.checkpoint()
        found = sorted(entry for entry in self.values.items() if first <= entry[0] < end)[:limit]
        await trio.lowlevel.checkpoint()
        if is_failing:
            raise OSError("nobody answers")
        return found

    async def write(self, changes: Mapping[str, str | None], *, owner: tuple[str, str | None]) -> bool:
        is_failing = self._begin()
        await trio.lowlevel.checkpoint()
        if is_failing and self.how == "busy":
            raise StorageBusyError("later")
        if is_failing and self.how == "lost":
            raise OSError("nobody answers")
        if self.values.get(owner[0]) != owner[1]:
            return False
        self.values |= {key: value for key, value in changes.items() if value is not None}
        for key in changes.keys() - {key for key, value in changes.items() if value is not None}:
            self.values.pop(key, None)
        await trio.lowlevel.checkpoint()
        if is_failing and self.how == "stored":
            raise trio.TooSlowError
        return None if is_failing else True  # type: ignore[return-value]  # "says nothing": a store may be wrong

    def _begin(self) -> bool:
        self.calls += 1
        return self.calls == self.fails_at


@attrs.define
class OwnStores(Store):
    """As the bundled ones, for the checks of `interruptions`."""

    values: dict[str, str] = attrs.Factory(dict)
    slow: Slow | None = None

    def fresh(self) -> OwnStores:
        return OwnStores(self.kind, self.folder)

    @asynccontextmanager
    async def opened(self, wrap: Callable[[BaseSessionService], object] = id) -> AsyncIterator[BaseSessionService]:
        self.slow = Slow(self.values)
        cache_bytes = 2**20 if self.kind == "cached" else 0
        async with KeyValueSessionService(self.slow, cache_bytes=cache_bytes) as service:
            if await service.get_session(app_name="app", **PLACE) is None:
                await service.create_session(app_name="app", **PLACE, state={"begun": True})
            wrap(service)
            yield service

    def remove(self) -> None:
        self.values.clear()


@scenarios
@pytest.mark.parametrize(
    ("kind", "every"),
    [
        pytest.param("cached", 3, id="some"),
        pytest.param("cached", 1, id="cached", marks=pytest.mark.slow),
        pytest.param("not cached", 1, id="not cached", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_cancelled_at_any_step_keeps_its_promises(
    agent: str, kind: str, every: int, tmp_path: Path
) -> None:
    """After a cancellation at any step, what returned is stored, what raised is not, and a new turn works."""
    interrupted, uninterrupted = cancel_at_every_step(OwnStores(kind, tmp_path), agent, every=every)
    print(f"{agent} on a store of one's own: {interrupted} interruption points, {uninterrupted} steps uninterrupted")
    assert interrupted >= uninterrupted


@scenarios
@pytest.mark.parametrize("how", ["busy", "lost", "stored", "says nothing"])
def test_a_store_that_fails_at_any_call_leaves_a_usable_session(agent: str, how: str, tmp_path: Path) -> None:
    """
    A failing read, a refused write, a lost one, one that was stored all the same, and one whose word is none: the run
    fails with a StorageError or ends as ever, what is stored is what was seen, and turns go on in this service and in
    the next one.
    """

    async def attempt(number: int) -> int:
        store, diary = OwnStores("cached", tmp_path), Diary()
        async with store.opened() as service:
            slow = store.slow
            assert slow is not None
            slow.calls, slow.fails_at, slow.how = 0, number, how
            runner = Runner(agent=AGENTS[agent](diary), app_name="app", session_service=service)
            failed: StorageError | None = None
            try:
                async with runner.run_async(**PLACE, new_message="go") as run:
                    await read_run(run, diary)
            except StorageError as error:
                failed = error
            calls, slow.fails_at = slow.calls, 0
            events = await service.read_events(app_name="app", **PLACE)
            if failed is None or failed.stored is False:
                await check_aftermath(service, diary)
            else:  # nobody knows what became of the last one
                stored = [event.text for event in events]
                assert all(stored.count(text) == 1 for text in diary.returned)
                await check_new_turn(service)
        await check_reopened(store)
        async with store.opened() as service:
            assert open_calls(await service.read_events(app_name="app", **PLACE)) == []
        return calls

    for number in itertools.count(1):
        if trio.run(attempt, number) < number:
            break
    assert number > 3


async def test_what_a_cancelled_caller_leaves_behind_is_told_apart() -> None:
    """An append that was cancelled before the write is not stored; one that was cancelled during the write is."""
    values: dict[str, str] = {}
    async with KeyValueSessionService(Slow(values)) as service:
        session = await service.create_session(**HERE)
        for number in range(12):
            before = session.revision
            said = partial(service.append_event, session, Event(author="a", message=f"{number}"))
            was_cancelled = await cancelled_after(number, said)
            stored = await get(service)
            is_stored = any(event.text == f"{number}" for event in stored.events)
            assert session.revision == stored.revision == before + is_stored
            assert is_stored or was_cancelled
    async with KeyValueSessionService(Slow(values)) as service:
        again = await get(service)
        assert [event.seq for event in again.events] == list(range(1, again.revision + 1))


async def cancelled_after(checkpoints: int, function: Callable[[], Awaitable[object]]) -> bool:
    """Call *function*, cancelled after so many checkpoints of another task; return whether it was."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(cancel)
            await function()
            nursery.cancel_scope.cancel()
    return scope.cancelled_caught


async def test_the_first_use_of_a_store_may_be_cancelled_anywhere() -> None:
    """Whoever is stopped while it makes the store its own has it, or can try again; nobody is locked out."""
    was_cancelled = []
    for number in range(40):
        values: dict[str, str] = {}
        async with KeyValueSessionService(Slow(values)) as service:

            async def create(service: BaseSessionService = service) -> None:
                await service.create_session(**HERE)

            was_cancelled.append(await cancelled_after(number, create))
            if await service.get_session(**HERE) is None:
                await create()
            await append(service, await get(service), "here")
        async with KeyValueSessionService(Slow(values)) as service:
            assert [event.text for event in (await get(service)).events] == ["here"]
    assert was_cancelled[0]
    assert not was_cancelled[-1]


# --- forks ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
import trio
from examples.own_store import JsonLines
from minirun import Event
from minirun.errors import MinirunError
from minirun.sessions import KeyValueSessionService
from pathlib import Path

sessions = KeyValueSessionService(JsonLines(Path(sys.argv[1])))
place = {"app_name": "app", "user_id": "u", "session_id": "s"}

async def begin():
    await sessions.create_session(**place)

async def say(text):
    session = await sessions.get_session(**place) or await sessions.create_session(**place)
    await sessions.append_event(session, Event(author="a", message=text))
    return [event.text for event in (await sessions.get_session(**place)).events]

async def read():
    return (await sessions.get_session(**place)).revision

async def count():
    return len((await sessions.list_sessions(app_name="app")).sessions)

def look(side):
    for what, *args in ((say, side), (read,), (count,)):
        try:
            print(side, trio.run(what, *args), flush=True)
        except MinirunError as error:
            print(side, type(error).__name__, flush=True)

if sys.argv[2] == "used":
    trio.run(begin)
pid = os.fork()
if not pid:
    look("child")
    trio.run(sessions.aclose)
    os._exit(0)
os.waitpid(pid, 0)
if sys.argv[2] == "used":
    look("parent")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("stage", ["made", "used"])
def test_a_store_that_was_used_stays_on_its_side_of_a_fork(stage: str, tmp_path: Path) -> None:
    """
    A store holds what no two processes may use: once it was used, its fork is refused, and takes nothing from it. One
    that was only made serves the process that begins to use it.
    """
    done = run(program(PROGRAM, tmp_path / "sessions.jsonl", stage))
    assert (done.returncode, done.stderr) == (0, "")
    seen = done.stdout.splitlines()
    if stage == "made":
        assert seen == ["child ['child']", "child 1", "child 1"]
    else:
        assert seen == ["child ServiceInUseError"] * 3 + ["parent ['parent']", "parent 1", "parent 1"]
