"""
Group commit over a database: which appends share a statement, and what each is told of how that has ended.

The database is a fake that stores what it is sent. That the real one does is in test_postgres_sessions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from minirun._postgres._connection import ConnectionLostError, ServerError
from minirun._postgres._values import Call, Result
from minirun.errors import (
    StaleSessionError,
    StorageBusyError,
    StorageConnectionError,
    StorageFullError,
    StorageUncertainError,
)
from minirun.sessions._postgres._commits import Commits, _Job
from minirun.sessions._postgres._schema import REFUSED_RUN

TEXT = -1
"""Where the events stand among the parameters of the statement."""


class Live:
    in_flight = False


class Text:
    """An append of a text to a session of its own."""

    is_shared = False

    def __init__(self, line: str) -> None:
        self.line = line
        self.live = Live()
        self.applied: tuple[Any, ...] = ()

    def add_rows(self, member: int, rows: Any) -> None:
        """It writes nothing beside its event."""

    def member(self) -> tuple[Any, ...]:
        return (1, 0, b"", 0, 0, None, 0.0, 0, self.line)

    def apply(self, epoch: int, chain: bytes, *, has_messages: bool) -> None:
        self.applied = (epoch, chain, has_messages)

    def run_error(self) -> StaleSessionError:
        return StaleSessionError(f"{self.line} has been ended")


class Wire:
    """A connection to it."""

    is_released = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def is_alive(self) -> bool:
        return not self._store.has_ended

    async def run(self, calls: Sequence[Call], *, withdraw: bool) -> list[Result]:
        assert not withdraw
        assert not self.is_released
        [call] = calls
        lines = list(call.arguments[TEXT])
        self._store.sent.append(lines)
        await self._store.works()
        if self._store.faults:
            raise self._store.faults.pop(0)
        first = self._store.number + 1
        self._store.number += len(lines)
        rows = [(at, first + at, 5, line.encode(), line == "m") for at, line in enumerate(lines, 1)]
        return [Result(rows[::-1])]  # in no order


class Store:
    """A database that stores texts. `sent` are the groups that it was sent; `faults` is what befalls the next ones."""

    name = "a database"

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.faults: list[Exception] = []
        self.away: list[StorageConnectionError] = []
        self.wires: list[Wire] = []
        self.has_ended = False
        self.number = 0
        self.pool = self
        self.works: Callable[[], Any] = trio.lowlevel.checkpoint
        self.connects: Callable[[], Any] = trio.lowlevel.checkpoint

    async def connect(self) -> Wire:
        await self.connects()
        if self.away:
            raise self.away.pop(0)
        self.has_ended = False
        self.wires.append(Wire(self))
        return self.wires[-1]

    def release(self, wire: Wire) -> None:
        wire.is_released = True


class Texts:
    """Appends to a store, and how each has ended."""

    def __init__(self) -> None:
        self.store = Store()
        self.stored: list[str] = []
        database: Any = self.store
        self.commits = Commits(database, lambda: "owner", 30.0, lambda append: self.stored.append(append.line))
        self.made: dict[str, Text] = {}
        self.ends: dict[str, bool | BaseException] = {}

    async def append(self, line: str) -> None:
        append: Any = Text(line)
        self.made[line] = append
        try:
            self.ends[line] = await self.commits.store(append)
        except Exception as error:
            self.ends[line] = error

    async def all_of(self, *lines: str) -> None:
        """Append them at once."""
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for line in lines:
                    nursery.start_soon(self.append, line)

    async def behind_one(self, *lines: str) -> None:
        """Append them one after the other, while the store is at work on another one."""
        free = trio.Event()
        self.store.works = free.wait
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for line in ("first", *lines):
                    nursery.start_soon(self.append, line)
                    await trio.testing.wait_all_tasks_blocked()
                free.set()


@pytest.fixture
def texts() -> Texts:
    return Texts()


# --- groups


async def test_what_is_stored_is_applied_in_the_order_of_the_numbers(texts: Texts) -> None:
    """Each append gets the epoch, the link and what is said of messages, of its own row."""
    await texts.behind_one("a", "m", "c")
    assert texts.store.sent == [["first"], ["a", "m", "c"]]
    assert texts.stored == ["first", "a", "m", "c"]
    assert texts.ends == dict.fromkeys(("first", "a", "m", "c"), True)
    assert [texts.made[line].applied for line in "amc"] == [(5, b"a", False), (5, b"m", True), (5, b"c", False)]


@pytest.mark.parametrize(("count", "groups"), [(256, [256]), (257, [256, 1])])
async def test_a_group_has_256_appends_at_most(texts: Texts, count: int, groups: list[int]) -> None:
    """The others are the next group."""
    await texts.behind_one()
    await texts.all_of(*map(str, range(count)))
    assert [len(group) for group in texts.store.sent] == [1, *groups]
    assert len(texts.stored) == 1 + count


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([3_999_999, 1, 2], [2, 1]),
        ([3_999_999, 0, 2], [3]),
        ([4_000_000, 1], [1, 1]),
        ([9_000_000, 9_000_000], [1, 1]),
    ],
)
async def test_a_group_ends_with_the_text_that_makes_it_too_long(
    texts: Texts, sizes: list[int], groups: list[int]
) -> None:
    """That is one with which it has four million characters; however long a text is, it is sent."""
    await texts.behind_one(*(letter * size for letter, size in zip("abc", sizes, strict=False)))
    assert [len(group) for group in texts.store.sent] == [1, *groups]


class Steps(trio.abc.Instrument):
    """Counts how often a task goes on, and does something each time."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.count = 0
        self._do = do
        self._task = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.count += 1
            self._do()


async def test_who_leads_waits_for_others_for_eight_ticks_at_most(texts: Texts) -> None:
    """While one more comes with each of them; alone it waits for one."""
    await texts.append("first")
    alone = Steps(lambda: None)
    trio.lowlevel.add_instrument(alone)
    await texts.append("alone")
    trio.lowlevel.remove_instrument(alone)
    joined = Steps(lambda: texts.commits._queue.append(_Job(Text("joins"))))  # type: ignore[arg-type]  # it behaves so
    trio.lowlevel.add_instrument(joined)
    await texts.append("leads")
    trio.lowlevel.remove_instrument(joined)
    assert [len(group) for group in texts.store.sent] == [1, 1, 9]
    assert joined.count - alone.count == 7


# --- what fails

BUSY = ServerError("40001", "in the way")
GONE = ServerError("26000", "what was prepared is gone")
FULL = ServerError("53100", "no room")
NOT_SENT = ConnectionLostError("the cable", sent=False)
SENT = ConnectionLostError("the cable", sent=True)


@pytest.mark.parametrize(
    ("faults", "kind", "wires", "sent"),
    [
        ([BUSY], None, 1, 2),
        ([GONE], None, 2, 2),
        ([NOT_SENT], None, 2, 2),
        ([BUSY, BUSY], StorageBusyError, 1, 2),
        ([NOT_SENT, NOT_SENT], StorageConnectionError, 2, 2),
        ([BUSY, NOT_SENT], StorageConnectionError, 1, 2),
        ([NOT_SENT, BUSY], StorageBusyError, 2, 2),
        ([FULL], StorageFullError, 1, 1),
        ([SENT], StorageUncertainError, 1, 1),
    ],
)
async def test_what_is_no_fault_of_a_statement_is_sent_once_more(
    texts: Texts, faults: list[Exception], kind: type[Exception] | None, wires: int, sent: int
) -> None:
    """Over a new connection where the old one is lost, or has lost what was prepared; the second time it is told."""
    texts.store.faults += faults
    await texts.all_of("a", "b")
    assert (len(texts.store.wires), len(texts.store.sent)) == (wires, sent)
    if kind is None:
        assert texts.ends == {"a": True, "b": True}
    else:
        assert [type(texts.ends[line]) for line in "ab"] == [kind, kind]
        assert texts.ends["a"] is not texts.ends["b"]
        assert [getattr(texts.ends[line], "__cause__", None) for line in "ab"] == [faults[-1]] * 2
        assert str(texts.ends["a"]).startswith("a database: ")
        assert "storing" in str(texts.ends["a"]).replace(";", " ").replace(":", " ").split()
    is_lost = isinstance(faults[-1], ConnectionLostError) and kind is not None
    assert [wire.is_released for wire in texts.store.wires] == [True] * (wires - 1) + [is_lost]
    await texts.append("on")
    assert texts.ends["on"] is True
    assert len(texts.store.wires) == wires + is_lost


async def test_a_server_that_is_away_tells_each_why(texts: Texts) -> None:
    """By an error of its own, of one cause; nobody else tries, and the next append finds the server."""
    for faults in ([], [NOT_SENT]):
        away = StorageConnectionError("the cable")
        away.__cause__ = cause = ValueError("cut")
        if faults:
            await texts.append("connects")
            texts.store.faults += faults
        texts.store.away.append(away)
        before, wires = len(texts.store.sent), len(texts.store.wires)
        await texts.all_of("a", "b")
        assert len(texts.store.sent) == before + len(faults)
        assert len(texts.store.wires) == wires
        for line in "ab":
            told = texts.ends[line]
            assert isinstance(told, StorageConnectionError)
            assert (str(told), told.__cause__, told is away) == ("the cable", cause, False)
        assert texts.ends["a"] is not texts.ends["b"]
        await texts.append("on")
        assert texts.ends["on"] is True


async def test_who_was_refused_is_told_so_whatever_befalls_the_others(texts: Texts) -> None:
    """They are sent again without it; a bug that they meet then is theirs, and the connection is given up."""
    texts.store.faults[:] = [ServerError(REFUSED_RUN, "ended", constraint="2"), RuntimeError("a bug")]
    await texts.all_of("a", "b")
    *_, [first, second], [again] = texts.store.sent
    assert again == first
    assert isinstance(texts.ends[second], StaleSessionError)
    assert str(texts.ends[first]) == "a bug"
    assert [wire.is_released for wire in texts.store.wires] == [True]
    await texts.append("on")
    assert texts.ends["on"] is True


async def test_a_connection_that_has_ended_is_given_back_before_there_is_another_one(texts: Texts) -> None:
    """And one that lives serves the next group, until the service is closed."""
    await texts.append("a")
    await texts.append("b")
    assert len(texts.store.wires) == 1
    texts.store.has_ended = True
    await texts.append("c")
    assert [wire.is_released for wire in texts.store.wires] == [True, False]
    texts.commits.close()
    assert [wire.is_released for wire in texts.store.wires] == [True, True]
    texts.commits.close()


# --- who leaves


async def test_who_is_sent_cannot_leave(texts: Texts) -> None:
    """Neither who leads nor who follows is cancelled before the answer, which both return; who waits may go."""
    free = trio.Event()
    texts.store.works = free.wait
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for lines in ("ab", "c", "d"):
                for line in lines:
                    nursery.start_soon(texts.append, line)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            assert texts.ends == {}
            free.set()
    assert texts.ends == {"a": True, "b": True}
    assert [sorted(group) for group in texts.store.sent] == [["a", "b"]]


async def test_answered_is_told_when_the_group_is(texts: Texts) -> None:
    """Not before; and while a group is under way, its sessions say so."""
    free = trio.Event()
    texts.store.works = free.wait
    told: list[str] = []

    async def wait() -> None:
        await texts.commits.answered()
        told.append("answered")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(texts.append, "a")
            await trio.testing.wait_all_tasks_blocked()
            assert (told, texts.made["a"].live.in_flight) == ([], True)
            free.set()
    assert (told, texts.made["a"].live.in_flight) == (["answered"], False)


async def test_who_leads_may_leave_before_anything_is_sent(texts: Texts) -> None:
    """The first of those who wait leads then, and what was not sent is not stored."""
    free = trio.Event()
    texts.store.connects = free.wait
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, trio.open_nursery() as leading:
            leading.start_soon(texts.append, "leads")
            await trio.testing.wait_all_tasks_blocked()
            for line in ("a", "b"):
                nursery.start_soon(texts.append, line)
                await trio.testing.wait_all_tasks_blocked()
            leading.cancel_scope.cancel()
            free.set()
    assert leading.cancel_scope.cancelled_caught
    assert texts.store.sent == [["a", "b"]]
    assert texts.ends == {"a": True, "b": True}

