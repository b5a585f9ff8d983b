"""
What a service over a database does where something else happens than it has asked for: a bug, a server that is away, an
error of the server that means nothing to it, rows that were changed below it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from minirun import Event, EventActions
from minirun._postgres._connection import ServerError
from minirun._postgres._values import Result
from minirun.errors import (
    InvalidValueError,
    SessionNotFoundError,
    StaleSessionError,
    StorageConnectionError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageRolledBackError,
    StorageUncertainError,
)
from minirun.sessions import DatabaseSessionService, InvocationStatus, SessionKey
from minirun.sessions._postgres import _verify
from minirun.sessions._postgres._logs import read_lines
from minirun.sessions._postgres._state import operation, operation_error, shared_rows
from minirun.sessions._postgres._text import message_begins, read_key, stored_key
from minirun.sessions._postgres._turn import look_again
from minirun.sessions._postgres._verify import verify_database
from minirun.sessions._scoped import Segment
from minirun.sessions._state import REMOVED, writes_of
from minirun.sessions._store import ChangedMeanwhileError
from minirun.types import Content, FunctionCall, Part

from ..postgres import new_database
from ..postgres_seam import Wired
from ..postgres_sessions import check_database, keep, restore, sql
from ..stores import HERE, KEY, ElsewhereInPostgres, append, begin, enter, get, texts
from .test_postgres_meanwhile import Meddled

BESIDE: Any = {"app_name": "app", "user_id": "u", "session_id": "beside"}


async def together(*works: Callable[[], Any]) -> list[BaseException | None]:
    """Do all of it at the same time, and return what each has raised."""
    raised: list[BaseException | None] = [None] * len(works)

    async def do(number: int) -> None:
        try:
            await works[number]()
        except Exception as error:
            raised[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(works)):
            nursery.start_soon(do, number)
    return raised


# --- appends ----------------------------------------------------------------------------------------------------------


async def test_a_bug_while_a_group_is_sent_reaches_all_who_wait_for_it() -> None:
    """Nobody is left asleep; what was stored all the same is found by reading, over a connection of its own."""
    url, env = new_database(), Meddled()

    def bug() -> None:
        raise RuntimeError("a bug")

    async with ElsewhereInPostgres(url, env=env) as service:
        mine, beside = await service.create_session(**HERE), await service.create_session(**BESIDE)
        env.meanwhile["append"] = bug
        with trio.fail_after(10):
            raised = await together(lambda: append(service, mine, "one"), lambda: append(service, beside, "one"))
        assert [str(error) for error in raised] == ["a bug", "a bug"]
        assert service._commits._connection is None
        service._cache.clear()
        for found in (await get(service), await get(service, "beside")):
            assert texts(found) == ["one"]
            await append(service, found, "two")
    check_database(url, is_whole=True)


async def test_a_server_that_is_away_at_the_second_attempt_is_told_to_each() -> None:
    """Every append of the group has an error of its own, of the kind and with the words of the one that was met."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        mine, beside = await service.create_session(**HERE), await service.create_session(**BESIDE)
        await append(service, mine, "one")
        env.faults["append"] = "not sent"
        env.away.append(StorageConnectionError("the cable"))
        with trio.fail_after(10):
            raised = await together(lambda: append(service, mine, "two"), lambda: append(service, beside, "two"))
        assert [type(error) for error in raised] == [StorageConnectionError] * 2
        assert [str(error) for error in raised] == ["the cable"] * 2
        assert raised[0] is not raised[1]
        assert service._commits._connection is None
        env.away.clear()
        await append(service, mine, "two")
        await append(service, beside, "two")
        assert (texts(await get(service)), texts(await get(service, "beside"))) == (["one", "two"], ["two"])


async def test_an_append_that_was_not_sent_is_sent_once_more() -> None:
    """Over a new connection; the second time that is an error."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        session = await service.create_session(**HERE)
        for fault in ("not sent", ServerError("40001", "in the way", statement="append"), ServerError("26000", "gone")):
            env.faults["append"] = fault
            env.trips.clear()
            await append(service, session, "again")
            assert [names[0] for names in env.trips if "append" in names] == ["append", "append"]
        assert texts(await get(service)) == ["again"] * 3


@pytest.mark.parametrize("fault", ["stored", "lost"])
async def test_a_lease_that_may_have_been_taken_is_given_back(fault: str) -> None:
    """Where nobody knows whether the first event of a run is stored, its end gives back what it may have taken."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        await service.create_session(**HERE)
        for name in ("e-1", "e-2"):
            writer = await enter(service, name)
            env.faults["append"] = fault
            with pytest.raises(StorageUncertainError):
                await begin(writer)
            await writer.finish(None)
            assert sql(url, "SELECT lease_owner, lease_expires FROM minirun.sessions") == [(None, None)]
        assert len((await get(service)).events) == (2 if fault == "stored" else 0)


# --- errors of the server ---------------------------------------------------------------------------------------------

Use = Callable[[DatabaseSessionService], Any]


@pytest.mark.parametrize(
    ("statement", "use"),
    [
        ("create", lambda service: service.create_session(**BESIDE)),
        ("fork", lambda service: service.fork_session(**HERE, new_session_id="fork")),
    ],
)
@pytest.mark.parametrize(
    ("code", "kind"),
    [("53100", StorageFullError), ("XX000", StorageRolledBackError), ("23505", StorageRolledBackError)],
)
async def test_an_error_of_the_server_is_told_as_what_it_is(
    statement: str, use: Use, code: str, kind: type[StorageError]
) -> None:
    """One that means nothing to the service says what the server has said, and that nothing was stored."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        await service.create_session(**HERE)
        env.faults[statement] = ServerError(code, "no room", statement=statement, constraint="another")
        with pytest.raises(StorageError) as caught:
            await use(service)
        assert type(caught.value) is kind
        assert caught.value.stored is False
        assert f"no room (SQLSTATE {code}, statement {statement})" in str(caught.value)
        await use(service)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("42P07", StorageFormatError, "expected the schema 'minirun' to be ours or empty, found another program's: "),
        ("42723", StorageFormatError, "expected the schema 'minirun' to be ours or empty, found another program's: "),
        ("42710", StorageFormatError, "expected the schema 'minirun' to be ours or empty, found another program's: "),
        ("53100", StorageFullError, ""),
        ("XX000", StorageRolledBackError, ""),
    ],
)
async def test_a_schema_that_cannot_be_made_is_told(code: str, kind: type[StorageError], words: str) -> None:
    """What is in the way is somebody's else; any other error is the server's own. Then it is made all the same."""
    url, env = new_database(), Wired()
    sql(url, "DROP SCHEMA minirun CASCADE")
    async with ElsewhereInPostgres(url, env=env) as service:
        env.faults["migrate"] = ServerError(code, "it fails", statement="migrate")
        with pytest.raises(StorageError) as caught:
            await service.create_session(**HERE)
        assert type(caught.value) is kind
        name = service._database.name
        assert str(caught.value).startswith(f"{name}: {words}")
        if words:
            assert str(caught.value).endswith("; rename that schema, or use another database")
        await service.create_session(**HERE)
        migrated = [names for names in env.trips if "migrate" in names]
        assert len(migrated) == 2
        await ElsewhereInPostgres(url, env=env).create_session(**BESIDE)
        assert [names for names in env.trips if "migrate" in names] == migrated


async def test_nothing_is_asked_for_no_events() -> None:
    """Where the end is not beyond the beginning there are none, whatever the log has."""
    url, env = new_database(), Wired()
    async with ElsewhereInPostgres(url, env=env) as service:
        session = await service.create_session(**HERE)
        await append(service, session, "one")
        segments = (Segment(0, 9, 1),)
        env.trips.clear()
        for first in (1, 2):
            assert await read_lines(service._database, segments, first, 1) == []
        assert env.trips == []
        found = await read_lines(service._database, segments, 1, 2)
        assert found is not None
        assert [event.text for event, _ in found] == ["one"]


# --- keys and operations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "a", "=a", "#a", "é" * 256, "é" * 257, "x" * 512, "x" * 513, 'a"b\\c\n', "\0"])
def test_a_key_is_read_as_it_was_written(text: str) -> None:
    """Up to 512 bytes it stands in the index as it is, and beyond by its hash, with all of it beside."""
    key, beside = stored_key(text)
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    assert beside == (None if len(escaped.encode()) <= 512 else escaped)
    assert key == f"={escaped}" if beside is None else key.startswith("#")
    assert read_key(key, beside) == text
    others = [(key, "another"), (key, escaped) if beside is None else (key, None), (f"{key}x", beside or "")]
    for odd in others:
        with pytest.raises(ValueError, match="a key that is written in another way"):
            read_key(*odd)


def test_a_message_is_known_by_the_beginning_of_its_text() -> None:
    """The id stands first, as JSON."""
    assert message_begins("m") == '{"id":"m",'
    assert Event(id="m", author="user").to_json().startswith(message_begins("m"))


EVENT = Event(
    author="a",
    actions=EventActions(
        state_delta={"own": 1, "user:set": [1], "app:set": {"a": None}},
        state_ops={"user:n": {"add": 2}, "app:list": {"extend": [1, "x"]}, "app:n": {"add": 0.5}},
        state_removed=["user:gone", "gone"],
    ),
)


def test_shared_writes_are_sent_as_letters_with_their_operands() -> None:
    """Those of the session's own scope are not; the user of a key of the app is nobody."""
    rows = {row[3]: (row[0], *row[1:3], *row[4:]) for row in shared_rows(7, KEY, EVENT)}
    assert rows == {
        "=user:set": (7, "app", "u", None, "s[1]"),
        "=app:set": (7, "app", "", None, 's{"a":null}'),
        "=user:n": (7, "app", "u", None, "a2"),
        "=app:list": (7, "app", "", None, 'e[1,"x"]'),
        "=app:n": (7, "app", "", None, "a0.5"),
        "=user:gone": (7, "app", "u", None, "r"),
    }
    assert operation(REMOVED) == "r"
    assert operation(writes_of(EVENT.actions)["own"]) == "s1"


def test_an_operation_that_the_server_has_refused_is_told_as_in_any_store() -> None:
    """What it met there is shown; where it would fit what the server has shown, that is said."""
    error = operation_error(EVENT, "user:n", '"text"')
    assert str(error) == "state['user:n']: `add` expects a number, found 'text'"
    error = operation_error(EVENT, "user:n", "5")
    assert str(error) == "state['user:n']: expected an operation that fits the value, found 5"
    assert isinstance(error, InvalidValueError)


@pytest.mark.parametrize("key", ["app:n", f"app:{'n' * 600}"])
async def test_an_operation_that_is_refused_is_told_with_its_key(key: str) -> None:
    """However long that is, and whether the event is appended or is one of a history that is imported."""
    adds = Event(author="a", actions=EventActions(state_ops={key: {"add": 1}}))
    async with ElsewhereInPostgres(new_database()) as service:
        session = await service.create_session(**HERE)
        await append(service, session, "before")
        await service.append_event(session, adds)
        await append(service, session, "after")
        history = await service.read_events(**HERE)
        beside = await service.create_session(**BESIDE)
        await service.append_event(beside, Event(author="a", state={key: "text"}))
        for use in (
            lambda: service.append_event(beside, adds),
            lambda: service.import_session(app_name="app", user_id="u", session_id="new", events=history),
        ):
            with pytest.raises(InvalidValueError) as caught:
                await use()
            assert str(caught.value) == f"state[{key!r}]: `add` expects a number, found 'text'"
        assert await service.get_session(app_name="app", user_id="u", session_id="new") is None


# --- turns ------------------------------------------------------------------------------------------------------------


class Rows:
    """A database that answers with these rows, and notes what it was asked for."""

    name = "a database"

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self.rows = rows
        self.asked: list[tuple[Any, ...]] = []

    async def read(self, call: Any) -> list[Result]:
        self.asked.append(call.arguments)
        return [Result([*self.rows])]


class Live:
    key, incarnation = KEY, 7


class Waiting:
    """What an append knows that was not stored."""

    live = Live()
    revision, mark, epoch, gone = 2, b"mark", 4, "before"

    def __init__(self, *, writer: object = None, has_entered: bool = False) -> None:
        self.writer, self.has_entered = writer, has_entered


def row(
    *, revision: int = 2, epoch: int = 5, is_over: bool = True, is_free: bool = True, chain: bytes = b"mark"
) -> Any:
    return (7, revision, 0.0, 0.0, epoch, "other", 1.0, is_over, is_free, chain, 0, False)


async def test_an_append_goes_on_with_the_lease_as_it_is_if_that_is_free() -> None:
    """It takes over the epoch, and from whom; whose lease is over needs not be looked for any more."""
    for is_over, gone in ((True, None), (False, "other")):
        database, waiting = Rows(row(is_over=is_over)), Waiting()
        await look_again(database, waiting, "mine")  # type: ignore[arg-type]  # they behave as what is asked for
        assert (waiting.epoch, waiting.gone, database.asked) == (5, gone, [("mine", 7)])


@pytest.mark.parametrize(
    ("found", "has_entered"),
    [
        ({"is_free": False}, False),
        ({"revision": 3}, False),
        ({"chain": b"other"}, False),
        ({}, True),
    ],
)
async def test_an_append_whose_turn_it_is_not_changes_nothing(found: dict[str, Any], has_entered: bool) -> None:
    """From outside it looks again; a run has lost its session, to whom has entered first or has taken it over."""
    waiting = Waiting(has_entered=has_entered)
    with pytest.raises(ChangedMeanwhileError):
        await look_again(Rows(row(**found)), waiting, "mine")  # type: ignore[arg-type]
    runs = Waiting(writer=object(), has_entered=has_entered)
    with pytest.raises(StaleSessionError) as caught:
        await look_again(Rows(row(**found)), runs, "mine")  # type: ignore[arg-type]
    how = "taken the session over" if has_entered else "entered it first"
    assert str(caught.value) == (
        f"session 's' of user 'u' in app 'app' was read at revision 2 and is at {found.get('revision', 2)}: another "
        f"worker has {how}, or the database is another one; run the message again"
    )
    assert (waiting.epoch, waiting.gone, runs.epoch, runs.gone) == (4, "before", 4, "before")
    with pytest.raises(SessionNotFoundError) as gone:
        await look_again(Rows(), waiting, "mine")  # type: ignore[arg-type]
    assert str(gone.value) == "session 's' of user 'u' in app 'app' was deleted"


@pytest.mark.parametrize("status", [*(one for one in InvocationStatus if one not in ("running", "interrupted")), None])
async def test_a_claim_ends_with_the_run_that_was_claimed(status: InvocationStatus | None) -> None:
    """Whichever session it is of, and however it ends; the claims of others stay."""
    url = new_database()
    async with ElsewhereInPostgres(url) as service, ElsewhereInPostgres(url) as other:
        for name in ("first", "second", "s"):
            await service.create_session(app_name="app", user_id="u", session_id=name)
        for name in ("second", "s"):
            writer = await service.open_writer(SessionKey("app", "u", name), "e-1", None, reject=False)
            assert writer is not None
            await begin(writer)
            await writer.finish(None)
        work = other._work("app")
        jobs = [*await work.look(0.0)]
        assert sorted(await work.claim(jobs, 9), key=str) == sorted(jobs, key=str)
        assert len(jobs) == 2
        writer = await enter(other)
        await begin(writer)
        await writer.finish(status)
        assert sql(url, "SELECT session, invocation_id FROM minirun.claims ORDER BY 1") == [("2", "=e-1")]
        assert [one.status for one in await service.list_invocations(session_id="s")] == [status or "interrupted"]


# --- verifying --------------------------------------------------------------------------------------------------------


async def write(url: str) -> None:
    """A session with a run that waits for an answer."""
    async with DatabaseSessionService(url) as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        asked = Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name="f"))])
        event = Event(author="a", content=asked, invocation_id="e-1", long_running_tool_ids=["c"])
        await writer.append(event)
        await writer.finish(InvocationStatus.PAUSED)


@pytest.fixture(scope="module")
def kept() -> str:
    url = new_database()
    trio.run(write, url)
    keep(url)
    return url


@pytest.fixture
def url(kept: str) -> str:
    """The database as it was written."""
    restore(kept)
    return kept


async def test_a_database_is_verified_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a page is the same is told, of every session and every event; progress is told for each session."""
    url = new_database()
    async with DatabaseSessionService(url) as service:
        for name in ("s", "a", "b", "c"):
            session = await service.create_session(app_name="app", user_id="u", session_id=name, state={"k": 1})
            for number in range(3):
                await append(service, session, f"text {number}", user_n=number)
        changes = "UPDATE minirun.session_state SET value = '2'"
        sql(url, changes, "UPDATE minirun.events SET data = replace(data, 'text 2', 'TEXT 2') WHERE log = 3")
        found = {}
        for page in (1, 2, 3, 4, 5, 500):
            monkeypatch.setattr(_verify, "PAGE", page)
            told: list[tuple[int, int]] = []
            damages = await verify_database(service, progress=lambda *step, told=told: told.append(step))
            assert told == [(number, 4) for number in range(1, 5)]
            found[page] = [*map(str, damages)]
    assert found[500] == [
        *(f"session '{name}' of user 'u' in app 'app': state key 'k': expected 1, found 2" for name in ("s", "a")),
        "session 'b' of user 'u' in app 'app', event 3: its link in the hash chain is another one",
        "session 'c' of user 'u' in app 'app': state key 'k': expected 1, found 2",
    ]
    assert all(each == found[500] for each in found.values()), found


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE minirun.open_calls SET pending_no = 0", "open call 'c' has the number 0 of 3"),
        ("UPDATE minirun.open_calls SET pending_no = 4", "open call 'c' has the number 4 of 3"),
        ("UPDATE minirun.open_calls SET pending_no = -1", "open call 'c' has the number -1 of 3"),
        ("DELETE FROM minirun.events WHERE seq = 2", "event 2: it is missing; the session goes on to 2"),
        ("DELETE FROM minirun.events WHERE seq = 1", "event 1: it is missing; the next one is 2"),
        ("DELETE FROM minirun.events", "event 0: it is missing; the session goes on to 2"),
        ("UPDATE minirun.sessions SET revision = -1", "expected a revision from 0 up, found -1"),
    ],
)
async def test_what_is_wrong_with_a_session_in_a_database_is_told(statement: str, expected: str, url: str) -> None:
    """The numbers of calls that wait are those of events; a log ends with the event that its row says."""
    sql(url, statement)
    async with DatabaseSessionService(url) as service:
        found = [*map(str, await verify_database(service))]
    assert any(each.endswith(expected) for each in found), found
