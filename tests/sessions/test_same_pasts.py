"""
What a session was at any of its events is the same in memory and in a store of one's own.

One history with a bit of everything is forked at each of its events, imported up to each, and undone from each on; what
is open and waits then, and how far invocations had come, has to be what the other service says, and what stands in
`fixtures/pasts.json`. Run as a program, this writes that anew; whoever has to do it says in the commit message why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from minirun import Event, EventActions, InMemorySessionService
from minirun.artifacts import InMemoryArtifactService
from minirun.errors import MinirunError
from minirun.sessions import BaseSessionService, InvocationStatus, SessionKey, SqliteSessionService

from ..one_history import History, Told
from ..tables import as_kept, kept, write
from .test_stored_rows import live_of

SOURCES = ("s", "r", "f-2", "t")
Make = Callable[[Told], BaseSessionService]
Ask = Callable[[BaseSessionService, str, int], Awaitable[str]]


def in_memory(env: Told) -> BaseSessionService:
    return InMemorySessionService(env=env)


def sqlite(env: Told) -> BaseSessionService:
    return SqliteSessionService(":memory:", env=env)


async def fork(service: BaseSessionService, source: str, seq: int) -> str:
    """The session as it was at an event."""
    name = f"{source}-fork-{seq}"
    place: Any = {"app_name": "app", "user_id": "u", "session_id": source}
    await service.fork_session(**place, at_seq=seq, new_session_id=name)
    return name


async def imported(service: BaseSessionService, source: str, seq: int) -> str:
    """A session that is made of the log up to an event."""
    name = f"{source}-import-{seq}"
    events = await service.read_events(app_name="app", user_id="u", session_id=source)
    await service.import_session(app_name="app", user_id="u", session_id=name, events=events[: seq + 1])
    return name


async def fork_of_import(service: BaseSessionService, source: str, seq: int) -> str:
    """A fork of a session that is made of the whole log, and so has recorded only what waits at its end."""
    if seq == 0:
        events = await service.read_events(app_name="app", user_id="u", session_id=source)
        await service.import_session(app_name="app", user_id="u", session_id=f"{source}-import", events=events)
    return await fork(service, f"{source}-import", seq)


async def undone(service: BaseSessionService, source: str, seq: int) -> str:
    """A fork that has undone what stands from an event on, by a run; the next run begins there again."""
    name = f"{source}-undone-{seq}"
    place: Any = {"app_name": "app", "user_id": "u", "session_id": source}
    await service.fork_session(**place, new_session_id=name)
    writer = await service.open_writer(SessionKey("app", "u", name), "e-undo", None, reject=True)
    assert writer is not None
    actions = EventActions(rewind_before_invocation_id="e", rewind_before_seq=max(seq, 1))
    undoes = Event(id="undo", author="user", invocation_id="e-undo", actions=actions)
    await writer.append(undoes, begins=seq % 2 == 0)
    await writer.finish(InvocationStatus.COMPLETED if seq % 3 else InvocationStatus.PAUSED)
    return name


async def seen(service: BaseSessionService, name: str) -> dict[str, Any]:
    """All that a service says of a session."""
    key = SessionKey("app", "u", name)
    place = attrs.asdict(key)
    live = await service.load_session(key, None)
    assert live is not None
    session = await service.get_session(**place)
    assert session is not None
    pending = await service.list_pending(**place, include_timers=True)
    return {
        **live_of(live),
        "state": dict(session.state),
        "shared": await service.get_user_state(app_name="app", user_id="u"),
        "listed": [session.revision, session.create_time, session.last_update_time],
        "invocations": [attrs.astuple(run) for run in await service.list_invocations(**place)],
        "pending": [attrs.asdict(call, recurse=False) for call in pending],
        "not ended": [run.invocation_id for run in await service.load_unfinished_invocations(key, 0)],
    }


async def all_seen(make: Make, ask: Ask) -> dict[str, Any]:
    """What a service says of each event of each session."""
    env = Told()
    found: dict[str, Any] = {}
    async with make(env) as service:
        await History(service, InMemoryArtifactService(env=env), env).write()
        for source in SOURCES:
            log = await service.read_events(app_name="app", user_id="u", session_id=source)
            for seq in range(len(log)):
                env.seconds[0] += 1
                try:
                    name = await ask(service, source, seq)
                except MinirunError as error:
                    found[f"{source} {seq}"] = str(error)
                else:
                    found[name] = await seen(service, name)
        found["all invocations"] = [attrs.astuple(run) for run in await service.list_invocations()]
        found["all pending"] = [call.call_id for call in await service.list_pending(include_timers=True)]
    return found


ASKS = (fork, imported, fork_of_import, undone)


def in_short(found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of it: open calls and what they wait for, how far invocations have come, and what is visible."""
    return {
        name: [
            " ".join(f"{call[0]}:{call[2]}:{call[7] or 'open'}:{call[8]}" for call in told["open calls"]),
            " ".join(f"{run[3]}:{run[4]}:{run[5]}-{run[6] or ''}" for run in told["invocations"]),
            " ".join(map(str, told["events"])),
            told["compaction"],
        ]
        for name, told in found.items()
        if isinstance(told, dict)
    }


@pytest.mark.parametrize("ask", ASKS)
async def test_a_past_is_the_same_in_each_store(ask: Ask) -> None:
    """Whether it is forked, imported or undone."""
    expected, found = await all_seen(in_memory, ask), await all_seen(sqlite, ask)
    assert [*found] == [*expected]
    for name in expected:
        assert found[name] == expected[name], name
    told = kept("pasts")[ask.__name__]
    for name, short in as_kept(in_short(expected)).items():
        assert short == told[name], name
    assert len(told) == len(in_short(expected))


async def write_anew() -> None:
    """Write the file."""
    write("pasts", {ask.__name__: in_short(await all_seen(in_memory, ask)) for ask in ASKS}, 2)


if __name__ == "__main__":
    trio.run(write_anew)
