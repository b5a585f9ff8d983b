"""
What simulations have found in minirun, as the few choices that were left of it.

Each list failed when it was made, with the message beside it. It is replayed here as it is; where a later change lets
the same numbers mean other choices, the bug has a test of its own in words, too.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import attrs
import pytest

from minirun import Content, Event, Part, SqliteSessionService
from minirun.errors import StorageRolledBackError
from minirun.sessions import InvocationStatus, SessionKey
from minirun.sessions._sqlite import _cache
from minirun.simulation import RecordedChoices
from minirun.types import FunctionCall

from ..worlds import WORLDS, Options
from .stores import Scenario, simulate, why_unavailable
from .test_simulation_world import deleted_meanwhile

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


@attrs.frozen
class Trace:
    """The scenario and its options, what it failed with, and the choices."""

    scenario: Scenario
    options: Options
    failed_with: str
    choices: list[int]


def picks(text: str) -> list[int]:
    """A longer list, as numbers in a text."""
    return [int(word) for word in text.split()]


TRACES = {
    "recovery answered calls in the order of their ids": Trace(
        *WORLDS["errands in two processes"],
        "CheckError: ['call-2e7e…', 'call-5606…'] do not answer ['call-5606…', 'call-2e7e…'] in their order",
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 21],
    ),
    "a message failed whose session another process deleted": Trace(
        deleted_meanwhile,
        {"faults": (), "storage": "sqlite", "processes": 2},
        "SessionNotFoundError: session 'ada' of user 'ada' in app 'app' was deleted",
        [0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ),
    "a read failed while a cached session was brought up to date, and its open calls stayed unknown": Trace(
        *WORLDS["errands in two processes"],
        "CheckError: the calls ['call-47a9…', 'call-5e1b…'] are open while a new message is stored",
        picks(
            "0 1 0 0 0 0 0 3 0 0 0 0 0 0 211 158 39 0 0 44 0 85 1 0 1 0 2 0 8 0 46 1 2 0 1 54 0 13 0 1 0 0 0 "
            "0 0 2 1 0 2 0 1 0 113 0 1 1 0 1 1 0 0 1 0 0 1 1 0 0 0 115 0 0 0 0 1 0 1 0 1 0 0 0 1 0 1"
        ),
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_what_was_found_stays_fixed(name: str) -> None:
    """The choices that led to it lead to nothing any more."""
    trace = TRACES[name]
    assert simulate(trace.scenario, RecordedChoices(trace.choices), **trace.options).failure is None, trace.failed_with


async def test_a_failed_read_leaves_no_call_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was cached before another process made a call, and whose refreshing fails once, knows it then."""
    key = SessionKey("app", "u", "s")
    part = Part(function_call=FunctionCall(id="c", name="look"))
    here, there = (SqliteSessionService(tmp_path / "file.db") for _ in range(2))
    await here.create_session(app_name="app", user_id="u", session_id="s")
    writer = await here.open_writer(key, "e-0", None, reject=False)  # now it is cached
    assert writer is not None
    await writer.append(Event(id="0", invocation_id="e-0", author="user", message="hello"), begins=True)
    await writer.finish(InvocationStatus.COMPLETED)
    writer = await there.open_writer(key, "e-1", None, reject=False)
    assert writer is not None
    await writer.append(Event(id="1", invocation_id="e-1", author="user", message="go"), begins=True)
    await writer.append(
        Event(id="2", invocation_id="e-1", author="a", content=Content(role="model", parts=[part])), begins=False
    )
    await writer.finish(None)

    def fail(db: object, row: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(_cache, "read_open_calls", fail)
        with pytest.raises(StorageRolledBackError):
            await here.open_writer(key, "e-2", None, reject=False)
    writer = await here.open_writer(key, "e-2", None, reject=False)
    assert writer is not None
    assert list(writer.live.open_calls) == ["c"]
    await writer.finish(None)
    for service in (here, there):
        await service.aclose()
