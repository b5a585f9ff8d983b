"""
Where the epoch of a lease decides by itself who may write.

One statement alone changes the epoch, the one that appends, and it moves revision and chain as well. So an append of
an earlier epoch is stale by its revision too, as long as leases change hands by appends. The epoch alone tells a lease
that somebody has ended by hand; and what a worker says of a run after it has lost the session, which stands on no
revision.

Each check is also made with a statement that does not look at the epoch: then it must fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import pytest

from minirun import Event
from minirun._postgres._values import Statement
from minirun.errors import StaleSessionError
from minirun.sessions import InvocationStatus
from minirun.sessions._postgres import _leases, _statement

from ..postgres import new_database
from ..postgres_seam import Wired
from ..postgres_sessions import check_database, sql
from ..stores import HERE, KEY, ElsewhereInPostgres, begin, enter, get, texts

Check: TypeAlias = Callable[[ElsewhereInPostgres, ElsewhereInPostgres, Wired, str], Awaitable[None]]

EXPIRE = "UPDATE minirun.sessions SET lease_expires = now() - interval '1 s' WHERE lease_owner IS NOT NULL"
TAKE_AWAY = (
    "UPDATE minirun.sessions SET lease_owner = NULL, lease_expires = NULL, lease_epoch = lease_epoch + 1"
    " WHERE session_id = 's'"
)


async def ended_by_hand(slow: ElsewhereInPostgres, fast: ElsewhereInPostgres, wires: Wired, url: str) -> None:
    """A run whose lease an operator has ended writes nothing more, though nobody has written meanwhile."""
    writer = await enter(slow, "e-1")
    await begin(writer)
    sql(url, TAKE_AWAY)
    with pytest.raises(StaleSessionError):
        await writer.append(Event(author="a", message="late"))
    await writer.finish(None)
    other = await enter(fast, "e-2", reject=True)
    await begin(other)
    await other.finish(InvocationStatus.COMPLETED)
    assert texts(await get(fast)) == ["hi", "hi"]


async def late_end(slow: ElsewhereInPostgres, fast: ElsewhereInPostgres, wires: Wired, url: str) -> None:
    """A worker that is stopped between its last event and the record of its pause changes no end of another one's."""
    writer = await enter(slow, "e-1")
    await begin(writer)
    sql(url, EXPIRE)
    other = await enter(fast, "e-1")
    await begin(other)
    await other.finish(InvocationStatus.COMPLETED)
    await writer.finish(InvocationStatus.PAUSED)
    assert [one.status for one in await fast.list_invocations()] == ["completed"]


async def late_leave(slow: ElsewhereInPostgres, fast: ElsewhereInPostgres, wires: Wired, url: str) -> None:
    """A lease is given back late by a run that is over: the one of the next run of the same worker stays."""
    writer = await enter(slow, "e-1")
    await begin(writer)
    wires.faults["leave"] = "lost"
    await writer.finish(InvocationStatus.CANCELLED)
    wires.faults["leave"] = "lost"  # once more, just before the next run begins
    again = await enter(slow, "e-2")
    await begin(again)
    assert not wires.faults
    await slow.create_session(app_name="app", user_id="u", session_id="another")
    beside = await slow.open_writer(attrs.evolve(KEY, session_id="another"), "e-3", None, reject=True)
    assert beside is not None
    await begin(beside)  # records what is late
    await beside.finish(InvocationStatus.COMPLETED)
    assert not slow._unrecorded
    assert sql(url, "SELECT lease_owner IS NULL FROM minirun.sessions WHERE session_id = 's'") == [("f",)]
    await again.finish(InvocationStatus.COMPLETED)
    assert {one.status for one in await slow.list_invocations()} == {"cancelled", "completed"}


def without(statement: Statement, condition: str) -> Statement:
    """The statement without one of its conditions."""
    assert statement.sql.count(condition) == 1, f"renew the control: {condition!r}"
    return Statement(statement.name, statement.sql.replace(condition, ""), statement.types)


CHECKS: dict[str, tuple[Check, object, str, object]] = {
    "ended by hand": (ended_by_hand, _statement, "_APPEND", _statement._APPEND.replace(
        " AND s.lease_epoch = m.epoch", "", 1
    )),
    "late end": (late_end, _leases, "_END", without(_leases._END, " AND epoch = $2")),
    "late leave": (late_leave, _leases, "_LEAVE", without(_leases._LEAVE, " AND lease_epoch = $2")),
}  # fmt: skip
"""A check, and which statement of which module does without the epoch in its control."""


async def check(name: str) -> None:
    """Make a check on a database of its own."""
    url, wires = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=wires) as slow, ElsewhereInPostgres(url) as fast:
        await slow.create_session(**HERE)
        await CHECKS[name][0](slow, fast, wires, url)
    check_database(url, is_whole=True)


@pytest.mark.parametrize("name", CHECKS)
async def test_who_has_lost_a_session_changes_nothing_of_it(name: str) -> None:
    """Neither its log, nor how an invocation has ended, nor the lease of a later run."""
    await check(name)


@pytest.mark.parametrize("name", CHECKS)
async def test_without_the_epoch_the_check_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the statements needs its comparison."""
    _, module, attribute, broken = CHECKS[name]
    monkeypatch.setattr(module, attribute, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await check(name)
