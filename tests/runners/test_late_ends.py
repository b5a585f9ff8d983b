"""
Messages, and ends that reach the store late: the store has failed, or another process has taken the session meanwhile.

The sender of a message is told that it waits, so an invocation that can take it no more is not completed by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minirun import Event, LlmAgent, Runner
from minirun.errors import StaleSessionError, StorageError
from minirun.events import EventActions, Replay
from minirun.sessions import InvocationStatus, SessionKey, SessionWriter
from minirun.sessions._messages import take_over_messages
from minirun.simulation import SeededChoices, simulate
from minirun.testing import ScriptedLlm

from ..helpers import PLACE
from ..stores import HERE, KEY, Elsewhere, ElsewhereInPostgres, append, begin, database_of, enter, get
from ..worlds import WORLDS
from .test_sending import log_of

COMPLETED, INTERRUPTED = InvocationStatus.COMPLETED, InvocationStatus.INTERRUPTED


Process = Elsewhere | ElsewhereInPostgres
STORES = pytest.mark.parametrize("store", ["sqlite", "postgres"])


@asynccontextmanager
async def two_processes(store: str, folder: Path) -> AsyncIterator[tuple[Process, Process]]:
    """Two processes over one file or one database, with one session in it."""

    def process() -> Process:
        if store == "postgres":
            return ElsewhereInPostgres(database_of(folder))
        return Elsewhere(folder / "a.db", durability="process")

    async with process() as one, process() as two:
        await one.create_session(**HERE)
        yield one, two


def lose_leases(one: Process) -> None:
    """Let others take what *one* runs, as if it had stood still for long."""
    if isinstance(one, ElsewhereInPostgres):
        one._leases.close()  # its sign of life
        return
    assert one._leases.lock is not None
    one._leases.lock.release()


def no_writing(one: Process, patch: pytest.MonkeyPatch) -> None:
    """Let the store of *one* fail at each write."""

    async def fail(*arguments: object, **options: object) -> None:
        raise StorageError("the disk is gone")

    patch.setattr(one._database if isinstance(one, ElsewhereInPostgres) else one._file, "write", fail)


def sent(name: str, invocation_id: str | None = None) -> Event:
    actions = EventActions(replay=Replay(sent="next_model_call"))
    return Event(id=name, author="user", message="m", invocation_id=invocation_id, actions=actions)


async def send(service: Process, invocation_id: str | None = None) -> None:
    await service.insert_message(KEY, sent("m-1", invocation_id))


async def next_run(two: Process) -> SessionWriter:
    """Another process runs the session, after it has taken over what waits."""
    writer = await enter(two, "e-2")
    await take_over_messages(writer, None)
    await begin(writer)
    return writer


async def record_late(one: Process) -> None:
    """Let *one* write something, somewhere."""
    other = await one.create_session(app_name="app", user_id="u", session_id="other")
    await one.append_event(other, Event(author="a", message="x"))
    assert not one._unrecorded


async def status_of(service: Process) -> InvocationStatus:
    [status] = [found.status for found in await service.list_invocations() if found.invocation_id == "e-1"]
    return status


@STORES
@pytest.mark.parametrize("what", ["nothing", "it waits", "it was taken over", "another run, and nothing"])
async def test_a_late_end_completes_nothing_that_a_message_has_come_to(
    what: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails as a run is completed; a message is taken by the store, and the end recorded after it."""
    async with two_processes(store, tmp_path) as (one, two):
        writer = await enter(one, "e-1")
        await begin(writer)
        with monkeypatch.context() as patch:
            no_writing(one, patch)
            await writer.finish(COMPLETED)
        assert one._unrecorded
        has_message = what.startswith("it")
        if has_message:
            await send(two)
        if what in ("it was taken over", "another run, and nothing"):
            lose_leases(one)
            await (await next_run(two)).finish(COMPLETED)
        await record_late(one)
        assert await status_of(two) is (INTERRUPTED if has_message else COMPLETED)
        waiting = [] if what == "nothing" else await two.load_messages(writer.live)
        assert [each.text for each in waiting] == (["m"] if what == "it waits" else [])
        await (await enter(two, "e-3", reject=True)).finish(None)  # the lease was given back


@STORES
@pytest.mark.parametrize("what", ["nothing", "it waits", "it was taken over"])
async def test_who_has_lost_the_session_completes_nothing_that_a_message_has_come_to(
    what: str, store: str, tmp_path: Path
) -> None:
    """Another process has run the session before the first one says how its run has ended."""
    async with two_processes(store, tmp_path) as (one, two):
        writer = await enter(one, "e-1")
        await begin(writer)
        lose_leases(one)
        if what == "it was taken over":
            await send(two)
        after = await next_run(two)
        if what == "it waits":
            await send(two, "e-1")
        assert await writer.finish(COMPLETED)
        assert await status_of(two) is (COMPLETED if what == "nothing" else INTERRUPTED)
        await after.finish(COMPLETED)
        assert [found.status for found in await two.list_invocations()][1:] == [COMPLETED]


@STORES
async def test_what_was_completed_in_vain_goes_on_with_the_message(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's end could not be stored, a message was sent after it: who resumes the invocation answers it."""
    async with two_processes(store, tmp_path) as (one, two):
        agent = LlmAgent(name="a", model=ScriptedLlm(["one", "two"]))
        runner = Runner(agent=agent, app_name="app", session_service=one)
        finish = one.finish_invocation

        async def fails(*arguments: Any) -> Any:
            with monkeypatch.context() as patch:
                no_writing(one, patch)
                return await finish(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(one, "finish_invocation", fails)
            async with runner.run_async(**PLACE, new_message="go") as run:
                await run.wait()
        elsewhere = Runner(agent=agent, app_name="app", session_service=two)
        await elsewhere.send("and that", **PLACE)
        async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as run:
            await run.wait()
        assert await log_of(one) == ["user: go", "a: one", "user: and that", "a: two"]
        [found] = await two.list_invocations()
        assert found.status is COMPLETED


@STORES
async def test_an_append_that_waits_for_a_late_end_is_stale_where_another_process_was_faster(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the session is written elsewhere and read here: the event keeps the place that it was completed for."""
    async with two_processes(store, tmp_path) as (one, two):
        await one.create_session(app_name="app", user_id="u", session_id="ended")
        writer = await one.open_writer(SessionKey("app", "u", "ended"), "e-1", None, reject=False)
        assert writer is not None
        await begin(writer)
        with monkeypatch.context() as patch:
            no_writing(one, patch)
            await writer.finish(COMPLETED)
        session, record = await get(one), one._record_late

        async def record_slowly() -> None:
            await append(two, await get(two), "faster")
            await get(one)
            await record()

        monkeypatch.setattr(one, "_record_late", record_slowly)
        with pytest.raises(StaleSessionError):
            await append(one, session, "slower")
        assert not one._unrecorded
        await append(one, await get(one), "slower")
        assert [(event.seq, event.text) for event in (await get(two)).events] == [(1, "faster"), (2, "slower")]


@pytest.mark.parametrize("seed", [5011, 5098, 5137])
def test_seeds_that_have_found_late_ends(seed: int) -> None:
    """In these worlds an invocation was recorded as completed after a message that it had not answered."""
    scenario, options = WORLDS["steering in two processes"]
    simulate(scenario, SeededChoices(seed), **options).check()
