"""Parts of the sessions in a database that are plain functions, or that need no more than one answer of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from minirun import Event, EventActions
from minirun._postgres._connection import ServerError
from minirun.errors import (
    ServiceInUseError,
    SessionNotFoundError,
    StorageCorruptError,
    StorageFormatError,
    StorageRolledBackError,
)
from minirun.events import Replay
from minirun.sessions import DatabaseSessionService, InvocationStatus
from minirun.sessions._postgres._artifacts import named_rows, reserved_rows, taken_error, taken_name
from minirun.sessions._postgres._leases import LeaseWait
from minirun.sessions._postgres._session import Row
from minirun.sessions._postgres._state import is_shared, read_state, take_news
from minirun.sessions._postgres._text import stored_key
from minirun.sessions._postgres._verify import verify_database
from minirun.sessions._scoped import CachedScope

from ..postgres import empty_database, new_database
from ..postgres_seam import Wired
from ..postgres_sessions import sql
from ..stores import HERE, KEY, begin, enter

# --- artifacts --------------------------------------------------------------------------------------------------------

LONG = "n" * 600


def test_an_event_makes_those_versions_visible_that_there_can_be() -> None:
    """Numbers from 0 up that a column can hold; a user's artifact belongs to no session."""
    named = [("a", 0), ("a", 2**63 - 1), ("a", 2**63), ("a", -1), ("a", True), ("a", "1"), ("user:b", 3), (LONG, 1)]
    assert named_rows(7, KEY, named) == [
        (7, "app", "u", "s", "=a", 0),
        (7, "app", "u", "s", "=a", 2**63 - 1),
        (7, "app", "u", "", "=user:b", 3),
        (7, "app", "u", "s", stored_key(LONG)[0], 1),
    ]


def test_the_highest_number_that_a_history_names_is_used_up() -> None:
    """And all below it; one that nobody reaches uses up nothing, and neither does what is no number."""
    histories: list[tuple[list[Any], int | None]] = [
        ([0], 1), ([3, 5, 4], 6), ([5, 0], 6), ([2**53 - 1], 2**53), ([2**53], None), ([-1], None), ([4, 2**53], 5),
    ]  # fmt: skip
    for versions, following in histories:
        events = [Event(author="a", actions=EventActions(artifact_delta={"a": version})) for version in versions]
        expected = [] if following is None else [(7, "app", "u", "s", "=a", None, following)]
        assert reserved_rows(7, KEY, events) == expected
    both = Event(author="a", actions=EventActions(artifact_delta={"user:b": 1, LONG: 2}))
    assert reserved_rows(7, KEY, [both]) == [
        (7, "app", "u", "", "=user:b", None, 2),
        (7, "app", "u", "s", *stored_key(LONG), 3),
    ]


@pytest.mark.parametrize("name", ["a", LONG])
def test_a_copy_that_was_refused_is_told_with_the_name(name: str) -> None:
    """However long it is; another error is none of these."""
    key, beside = stored_key(name)
    error = StorageRolledBackError("refused")
    for code, found in (("MR003", name), ("23505", None)):
        error.__cause__ = ServerError(code, "refused", constraint="\x1f".join((key, beside or "")))
        assert taken_name(error) == found
    assert str(taken_error("a", "s")).startswith("expected no artifact 'a' in session 's', found that there is or was")


# --- state ------------------------------------------------------------------------------------------------------------


def test_a_value_takes_a_hundred_bytes_and_two_for_each_character() -> None:
    """As it stands in the row, beside its key."""
    rows = [("=a", None, "1"), ("=b", None, '"long"')]
    assert read_state("a database", rows) == ({"a": 1, "b": "long"}, 2 * 100 + 2 * 7)
    assert read_state("a database", []) == ({}, 0)


def test_what_writes_one_shared_key_is_shared() -> None:
    """Whatever else it writes."""
    assert is_shared(Event(author="a", state={"own": 1, "app:n": 1}))
    assert is_shared(Event(author="a", state={"user:n": 1, "own": 1}))
    assert not is_shared(Event(author="a", state={"own": 1}))
    assert not is_shared(Event(author="a"))


def test_what_is_known_up_to_the_first_number_stays_known() -> None:
    """Only a scope that was never asked for has nothing to keep."""
    known = CachedScope()
    known.commit_no = 0
    known.values["user:k"] = 5
    take_news("a database", {("app", "u"): known}, [])
    assert known.values == {"user:k": 5}


# --- leases -----------------------------------------------------------------------------------------------------------


class Bell:
    """Nobody rings it; it notes how long it was listened for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        await trio.sleep(seconds)


def leased(epoch: int = 1, owner: str = "o", expires: float = 1.0) -> Row:
    return Row(7, 2, 0.0, 0.0, epoch, owner, expires, False, False, b"", 0, False)


async def test_a_lease_is_over_when_it_has_not_changed_for_half_a_minute(autojump_clock: Any) -> None:
    """Its epoch, its owner, or its end: each renews it, for who looks."""
    bell: Any = Bell()
    waiting = LeaseWait(bell)
    await trio.sleep(20)
    for row in (leased(), leased(epoch=2), leased(owner="p"), leased(expires=2.0), leased()):
        assert not waiting.is_over(row)
        await trio.sleep(29)
        assert not waiting.is_over(row)
        await trio.sleep(1)
        assert waiting.is_over(row)


async def test_the_pauses_between_two_looks_double_up_to_a_second(autojump_clock: Any) -> None:
    """From a twentieth of a second on."""
    bell: Any = Bell()
    waiting = LeaseWait(bell)
    for _ in range(7):
        await waiting.sleep()
    assert bell.waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


# --- the schema -------------------------------------------------------------------------------------------------------

Use = Callable[[DatabaseSessionService], Any]


async def put_message(service: DatabaseSessionService) -> list[Any]:
    with pytest.raises(SessionNotFoundError):
        await service.insert_message(KEY, MESSAGE)
    return []


async def listed(service: DatabaseSessionService) -> list[Any]:
    return list((await service.list_sessions(app_name="app")).sessions)


MESSAGE = Event(id="m", author="user", message="x", actions=EventActions(replay=Replay(sent="next_model_call")))
FIRST: dict[str, Use] = {
    "get": lambda service: service.get_session(**HERE),
    "list": listed,
    "list pending": lambda service: service.list_pending(),
    "list invocations": lambda service: service.list_invocations(),
    "user state": lambda service: service.get_user_state(app_name="app", user_id="u"),
    "verify": verify_database,
    "work": lambda service: service._work("app").look(0.0),
    "message": put_message,
}


@pytest.mark.parametrize("use", FIRST)
async def test_whatever_is_asked_first_makes_the_schema(use: str) -> None:
    """Once, and it finds nothing there."""
    env = Wired()
    async with DatabaseSessionService(empty_database(), env=env) as service:
        for _ in range(2):
            assert not await FIRST[use](service)
        assert sum("migrate" in names for names in env.trips) == 1
        assert env.trips.count(["has_versions"]) == 1


async def test_tasks_that_come_first_at_once_ask_for_the_schema_once() -> None:
    """The others wait for the answer."""
    env = Wired()
    async with DatabaseSessionService(new_database(), env=env) as service:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(FIRST["user state"], service)
        assert env.trips.count(["has_versions"]) == env.trips.count(["version"]) == 1


async def test_a_schema_that_has_no_part_of_ours_yet_is_filled() -> None:
    """Another part may have come first."""
    url = empty_database()
    sql(
        url, "CREATE SCHEMA minirun",
        "CREATE TABLE minirun.versions (part text PRIMARY KEY, version int4 NOT NULL)",
        "INSERT INTO minirun.versions VALUES ('another', 5)",
    )  # fmt: skip
    async with DatabaseSessionService(url) as service:
        await service.create_session(**HERE)
    assert sql(url, "SELECT part FROM minirun.versions ORDER BY part") == [("another",), ("sessions",)]


@pytest.mark.parametrize("version", [-1, 1000])
async def test_a_format_that_there_is_not_is_refused(version: int) -> None:
    """Below all, or beyond."""
    url = new_database()
    sql(url, f"UPDATE minirun.versions SET version = {version}")
    async with DatabaseSessionService(url) as service:
        with pytest.raises(StorageFormatError, match=f"found format {version}, made by a newer minirun"):
            await service.create_session(**HERE)


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["[]", "{", "7"])
async def test_a_message_that_cannot_be_read_is_damage(data: str) -> None:
    """For the run that would take it, and for who looks for what is to be done."""
    url = new_database()
    async with DatabaseSessionService(url) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        await service.insert_message(KEY, MESSAGE)
        assert writer.live.has_messages
        assert [each.id for each in await service.load_messages(writer.live)] == ["m"]
        sql(url, f"UPDATE minirun.events SET data = '{data}' WHERE log < 0")
        with pytest.raises(StorageCorruptError, match="a message of session row 1: "):
            await service.load_messages(writer.live)
        await writer.finish(InvocationStatus.FAILED)


# --- work -------------------------------------------------------------------------------------------------------------


async def test_work_is_looked_for_in_the_run_that_uses_the_service() -> None:
    """Neither a look nor a claim of another one disturbs it."""
    async with DatabaseSessionService(new_database()) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        work = service._work("app")
        uses: list[Callable[[], Any]] = [lambda: work.look(0.0), lambda: work.claim([], 1)]
        for use in uses:
            with pytest.raises(ServiceInUseError):
                await trio.to_thread.run_sync(trio.run, use)
            assert not await use()
        await writer.finish(None)
