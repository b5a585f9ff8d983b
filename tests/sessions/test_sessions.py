"""
Facts about every session service: the public contract, who waits for whom, and what a service is made with.

What only the SQLite one can get wrong is in test_sqlite_sessions.py, what needs real processes in test_processes.py,
and what holds for any sequence of operations in test_session_properties.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import BaseAgent, Event, InMemoryRunner, InMemorySessionService
from minirun.errors import (
    ConfigurationError,
    InvalidValueError,
    MinirunError,
    ServiceInUseError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
)
from minirun.sessions import (
    BaseSessionService,
    InvocationStatus,
    LiveSession,
    Session,
    SessionKey,
    SessionWriter,
    SqliteSessionService,
)
from minirun.sessions._work import work_in
from minirun.testing import check_session_service

from ..contracts.session_contract import session_service_checks
from ..kept_open import KeptOpen, keeps
from ..postgres import execute as sql_of_postgres
from ..stores import (
    DURABLE,
    HERE,
    KEY,
    KINDS,
    append,
    begin,
    database_of,
    enter,
    get,
    services,
    texts,
)

# --- the contract -----------------------------------------------------------------------------------------------------


# Hundreds of events take a second on a server: there they are written once in each run of the tests.
LONG = "a_long_history_is_read_whole"
AGAIN = "postgres without cache"


@pytest.mark.parametrize("kind", KINDS)
async def test_every_service_keeps_the_contract(kind: str, tmp_path: Path) -> None:
    """Each check of the public contract holds for each service; the note of a failure says which does not."""
    but = {LONG} if kind == AGAIN else set()
    await keeps(services(tmp_path)[kind], session_service_checks, durable=kind in DURABLE, but=but)


@pytest.mark.slow
async def test_a_long_history_is_read_whole_without_a_cache(tmp_path: Path) -> None:
    """What is not read there in each run of the tests."""
    await session_service_checks()[LONG](services(tmp_path)[AGAIN])


async def outcome(ask: Callable[[BaseSessionService], Awaitable[object]], service: BaseSessionService) -> object:
    """What it returns, or how it fails."""
    try:
        return await ask(service)
    except MinirunError as error:
        return type(error)


IN_EMPTY: dict[str, Callable[[BaseSessionService], Awaitable[Any]]] = {
    "get_session": lambda service: service.get_session(**HERE),
    "list_sessions": lambda service: service.list_sessions(app_name=None),
    "list_sessions of an app": lambda service: service.list_sessions(app_name="app", user_id="u", limit=1),
    "read_events": lambda service: service.read_events(**HERE),
    "get_user_state": lambda service: service.get_user_state(app_name="app", user_id="u"),
    "list_invocations": lambda service: service.list_invocations(),
    "list_invocations of a session": lambda service: service.list_invocations(**HERE, status="running"),
    "list_node_runs": lambda service: service.list_node_runs("e-1"),
    "list_pending": lambda service: service.list_pending(include_timers=True),
    "delete_session": lambda service: service.delete_session(**HERE),
    "fork_session": lambda service: service.fork_session(**HERE, new_session_id="new"),
    "open_writer": lambda service: service.open_writer(KEY, "e-1", None, reject=False),
    "load_invocation": lambda service: service.load_invocation(KEY, "e-1"),
    "load_unfinished_invocations": lambda service: service.load_unfinished_invocations(KEY, 0),
    "apps_with_session": lambda service: service.apps_with_session("u", "s"),
    "insert_message": lambda service: service.insert_message(KEY, Event(author="user", message="hi")),
    "resumable": lambda service: work_in(service, "app").look(0.0),
    "claim": lambda service: work_in(service, "app").claim([], 1),
}
"""What can be asked of a store, and what it finds where there is nothing."""


@pytest.mark.parametrize("kind", ["sqlite process", "postgres"])
async def test_whatever_is_asked_first_of_a_new_store_finds_nothing(kind: str, tmp_path: Path) -> None:
    """A store is made by the first call, whichever that is; then it is one in which nothing stands."""
    for name, ask in IN_EMPTY.items():
        async with InMemorySessionService() as service:
            expected = await outcome(ask, service)
        if kind == "postgres":
            sql_of_postgres(database_of(tmp_path), "DROP SCHEMA IF EXISTS minirun CASCADE")
        (tmp_path / name).mkdir()
        async with services(tmp_path if kind == "postgres" else tmp_path / name)[kind]() as service:
            assert await outcome(ask, service) == expected, name


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_that_a_retry_has_advanced_knows_its_history(kind: str, tmp_path: Path) -> None:
    """As one that was read: so it is stale where another history of the same length stands; of a part it knows none."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        late, later = await get(service), await get(service)
        event = Event(id="mine", author="a", message="x")
        await service.append_event(await get(service), event)
        await service.append_event(late, event)
        assert (late.revision, late._history()) == (1, (await get(service))._history())
        await append(service, late, "y")
        await service.append_event(later, event)
        assert (later.revision, later._history()) == (1, None)
        with pytest.raises(StaleSessionError):
            await append(service, later, "z")


async def test_the_contract_runs_as_a_whole_on_one_store(tmp_path: Path) -> None:
    """check_session_service runs every check, also on a store that all of them share, and twice."""
    async with KeptOpen(InMemorySessionService) as kept:
        for _ in range(2):
            await check_session_service(kept)
    await check_session_service(lambda: SqliteSessionService(tmp_path / "a.db", durability="process"), durable=True)


def test_the_contract_needs_no_pytest() -> None:
    """The suite runs in a plain trio program, under `python -O` too, and imports no test framework."""
    program = (
        "import sys, trio; from minirun import InMemorySessionService; from minirun.testing import *; "
        "trio.run(check_session_service, InMemorySessionService); print('pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


class LosesRemovals(InMemorySessionService):
    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        kept = attrs.evolve(event, actions=attrs.evolve(event.actions, state_removed=()))
        await super().commit_event(live, kept, writer=writer, begins=begins)


class ChecksPointAfterTheWrite(InMemorySessionService):
    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        await super().commit_event(live, event, writer=writer, begins=begins)
        await trio.lowlevel.checkpoint()


class AcceptsStaleWriters(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        fresh = await self.get_session(app_name=session.app_name, user_id=session.user_id, session_id=session.id)
        return await super().append_event(fresh or session, event)


class ForgetsScopesOnDelete(InMemorySessionService):
    async def remove_session(self, key: SessionKey) -> None:
        await super().remove_session(key)
        self._user_values.pop((key.app_name, key.user_id), None)


class ListsNewestFirst(InMemorySessionService):
    async def load_sessions(
        self, app_name: str | None, user_id: str | None, limit: int | None, after: int
    ) -> list[Session]:
        return (await super().load_sessions(app_name, user_id, None, after))[::-1][:limit]


class LosesTheFirstPage(InMemorySessionService):
    async def load_events(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        return (await super().load_events(key, after_seq, limit))[-250:]


class LetsEverybodyIn(InMemorySessionService):
    def store_id(self) -> Hashable:
        return object()


BROKEN = [
    LosesRemovals,
    ChecksPointAfterTheWrite,
    AcceptsStaleWriters,
    ForgetsScopesOnDelete,
    ListsNewestFirst,
    LetsEverybodyIn,
]


@pytest.mark.parametrize("service", BROKEN)
async def test_the_contract_finds_a_broken_service(service: type[InMemorySessionService]) -> None:
    """A service with a plausible mistake fails the contract, with a note that names what it breaks."""
    with pytest.raises((AssertionError, MinirunError, trio.TooSlowError, ExceptionGroup)) as caught:
        with trio.fail_after(10):
            await check_session_service(service)
    assert "this breaks the session service's promise" in caught.value.__notes__[-1]


async def test_the_contract_finds_a_page_that_is_lost() -> None:
    """Only the whole suite has a history of several pages."""
    with pytest.raises(AssertionError):
        await session_service_checks()[LONG](LosesTheFirstPage)


# --- gates ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_run(service: BaseSessionService, session_id: str) -> AsyncIterator[trio.Nursery]:
    """A run on the session, as far as the gate is concerned: a writer with a nursery of its own."""
    writer = await service.open_writer(SessionKey("app", "u", session_id), f"e-{session_id}", None, reject=False)
    assert writer is not None
    try:
        async with trio.open_nursery() as nursery:
            writer.belongs_to(nursery)
            yield nursery
    finally:
        await writer.finish(None)


async def sessions(service: BaseSessionService, *ids: str) -> dict[str, Session]:
    return {name: await service.create_session(app_name="app", user_id="u", session_id=name) for name in ids}


async def test_a_cycle_of_waits_is_refused_where_it_closes() -> None:
    """Runs that wait for each other's sessions, through any number of sessions: the last to wait gets an error."""
    async with InMemorySessionService() as service:
        made = await sessions(service, "a", "b", "c")
        ends: list[str] = []

        async def run(mine: str, wanted: str, after: trio.Event, done: trio.Event) -> None:
            async with a_run(service, mine) as nursery:

                async def tool() -> None:
                    try:
                        await append(service, made[wanted])
                        ends.append(f"{mine} stored")
                    except SessionBusyError:
                        ends.append(f"{mine} refused")

                await after.wait()
                nursery.start_soon(tool)
                await trio.testing.wait_all_tasks_blocked()
                done.set()

        first, second, third, last = (trio.Event() for _ in range(4))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, "a", "b", first, second)
                nursery.start_soon(run, "b", "c", second, third)
                nursery.start_soon(run, "c", "a", third, last)
                await trio.testing.wait_all_tasks_blocked()
                first.set()
        assert ends == ["c refused", "b stored", "a stored"]


async def test_waiting_beside_a_run_is_fine() -> None:
    """A task in a nursery that was opened before the run may wait for its session; the run's own tasks may not."""
    async with InMemorySessionService() as service:
        made = await sessions(service, "a")
        ends: list[str] = []

        async def outside() -> None:
            with pytest.raises(StaleSessionError):
                await append(service, made["a"])
            ends.append("outside")

        async def inside() -> None:
            with pytest.raises(SessionBusyError, match="cannot end before this call returns"):
                await append(service, made["a"])
            ends.append("inside")

        with trio.fail_after(60):
            async with trio.open_nursery() as before:
                writer = await service.open_writer(SessionKey("app", "u", "a"), "e", None, reject=False)
                assert writer is not None
                async with trio.open_nursery() as own:
                    writer.belongs_to(own)
                    async with trio.open_nursery() as within:
                        before.start_soon(outside)
                        own.start_soon(inside)
                        within.start_soon(inside)
                        await inside()
                        await trio.testing.wait_all_tasks_blocked()
                        await begin(writer)
                await writer.finish(InvocationStatus.COMPLETED)
        assert ends == ["inside"] * 3 + ["outside"]


async def test_a_run_inside_a_run_on_another_session_is_fine() -> None:
    """Nesting runs on different sessions works, and so does writing a third session from inside both."""
    async with InMemorySessionService() as service:
        made = await sessions(service, "a", "b", "c")
        with trio.fail_after(60):
            async with a_run(service, "a"), a_run(service, "b"):
                await append(service, made["c"])
                for busy in ("a", "b"):
                    with pytest.raises(SessionBusyError):
                        await append(service, made[busy])
            for session in made.values():
                await append(service, session)


async def test_those_who_give_up_waiting_do_not_hold_up_the_line() -> None:
    """Cancelling a waiter in the middle lets the ones behind it in, in their order."""
    async with InMemorySessionService() as service:
        await sessions(service, "a")
        order: list[int] = []
        scopes = [trio.CancelScope() for _ in range(5)]

        async def wait(number: int) -> None:
            with scopes[number]:
                async with a_run(service, "a"):
                    order.append(number)
                    await trio.lowlevel.checkpoint()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                writer = await service.open_writer(SessionKey("app", "u", "a"), "e", None, reject=False)
                assert writer is not None
                for number in range(5):
                    nursery.start_soon(wait, number)
                    await trio.testing.wait_all_tasks_blocked()
                scopes[1].cancel()
                scopes[3].cancel()
                await writer.finish(None)
                scopes[4].cancel()
        assert order == [0, 2]


# --- what a service is made with --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (5, "expected a file name as text"),
        ("a\0.db", "expected a file name as text"),
        ("\ud800.db", "expected a file name"),
        ("", "expected a file name, ':memory:'"),
        ("  ", "expected a file name, ':memory:'"),
        ("postgres://x/y", "expected a file name or sqlite:///FILE"),
        ("sqlite://x", "expected a file name or sqlite:///FILE"),
        ("sqlite:///", "expected a file name, ':memory:'"),
    ],
)
def test_a_path_that_is_none_is_refused(path: Any, problem: str) -> None:
    """What cannot be a file name is refused when the service is made, by the argument's name."""
    with pytest.raises(InvalidValueError, match=f"^path: {problem}"):
        SqliteSessionService(path)


@pytest.mark.parametrize(
    "options", [{"durability": "none"}, {"durability": None}, {"cache_bytes": -1}, {"cache_bytes": "1"}, {"env": 5}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    """A durability, a cache size or an Env that is none is refused when the service is made."""
    with pytest.raises(ConfigurationError, match=f"expected {next(iter(options))}"):
        SqliteSessionService(":memory:", **options)


async def test_leaving_a_service_that_is_in_use_keeps_the_first_error() -> None:
    """An error in the block leaves `async with` as it is, with a note, although a writer was never finished."""
    service = InMemorySessionService()
    with pytest.raises(KeyError) as caught:
        async with service:
            await sessions(service, "s")
            await enter(service)
            raise KeyError
    assert "left open" in caught.value.__notes__[0]
    with pytest.raises(ServiceInUseError):
        async with service:
            pass


async def test_the_state_of_a_session_cannot_be_replaced() -> None:
    """Assigning to `session.state` raises instead of being lost."""
    async with InMemorySessionService() as service:
        session = await service.create_session(**HERE, state={"a": 1})
        with pytest.raises(AttributeError, match="state"):
            session.state = {"a": 2}  # type: ignore[misc]  # that is the point
        assert dict(session.state) == {"a": 1}


async def test_not_found_names_the_apps_that_have_it() -> None:
    """The error for a missing session says in which apps the user has one of this id."""
    async with InMemorySessionService() as service:
        for app in ("shop", "blog"):
            await service.create_session(app_name=app, user_id="u", session_id="s")
        await service.create_session(app_name="other", user_id="someone-else", session_id="s")
        with pytest.raises(SessionNotFoundError, match="one of this user and id: blog, shop; look for it with"):
            await service.read_events(**HERE)


@pytest.mark.parametrize("kind", KINDS)
async def test_invocations_are_listed_by_any_of_the_names_of_their_session(kind: str, tmp_path: Path) -> None:
    """App, user and session, each alone and together with the others."""
    names = ("app_name", "user_id", "session_id")
    keys = [SessionKey(*key) for key in product(("a", "b"), ("u", "v"), ("s", "t"))]
    async with services(tmp_path)[kind]() as service:
        for number, key in enumerate(keys):
            await service.create_session(**attrs.asdict(key))
            writer = await service.open_writer(key, f"e-{number}", None, reject=False)
            assert writer is not None
            await begin(writer)
            await writer.finish(InvocationStatus.COMPLETED)
        for asked in product((None, "a"), (None, "v"), (None, "s")):
            found = await service.list_invocations(**dict(zip(names, asked, strict=True)))
            places = [attrs.astuple(key) for key in keys]
            fits = [own for own in places if all(a in (None, b) for a, b in zip(asked, own, strict=True))]
            assert [(each.app_name, each.user_id, each.session_id) for each in found] == fits


async def test_a_session_begins_with_a_record_of_the_system_under_an_id_that_is_one() -> None:
    """An id of nothing but spaces is none: the session gets a new one."""
    async with InMemorySessionService() as service:
        session = await service.create_session(app_name="app", user_id="u", session_id=" ")
        assert session.id.strip()
        [record] = await service.read_events(app_name="app", user_id="u", session_id=session.id)
        assert (record.author, record.seq, record.content) == ("system", 0, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_import_that_is_cancelled_before_it_begins_stores_nothing(kind: str, tmp_path: Path) -> None:
    """It is looked for a cancellation first, so whoever is cancelled there may import again."""
    async with services(tmp_path)[kind]() as service:
        await service.create_session(**HERE)
        events = await service.read_events(**HERE)
        with trio.CancelScope() as scope:
            scope.cancel()
            await service.import_session(app_name="app", user_id="u", session_id="t", events=events)
        assert scope.cancelled_caught
        assert await service.get_session(app_name="app", user_id="u", session_id="t") is None


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_that_show_the_same_are_equal(kind: str, tmp_path: Path) -> None:
    """
    Sessions are equal by what they show, whoever has read them; what goes on is another one, and stays the same key.
    """
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE, state={"a": [1]})
        await append(service, session, "hi", b=2)
        found = await get(service)
        assert session == found
        assert hash(session) == hash(found)
        assert {session: 1}[found] == 1
        assert found != await get(service, num_recent_events=0)
        assert found != "s"
        await append(service, found, "more")
        assert session != found
        assert hash(session) == hash(found)
        first, second = [(await service.list_sessions(app_name="app")).sessions[0] for _ in range(2)]
        assert first == second != found


def test_a_file_is_named_by_path_or_by_adks_name(tmp_path: Path) -> None:
    """
    `db_path` is the same as `path`; one of the two is given.
    """
    one, other = SqliteSessionService(tmp_path / "a.db"), SqliteSessionService(db_path=tmp_path / "a.db")
    assert one._path == other._path
    with pytest.raises(ConfigurationError, match="found both"):
        SqliteSessionService("a.db", db_path="a.db")
    with pytest.raises(ConfigurationError, match="found neither"):
        SqliteSessionService()


async def test_a_rewind_of_a_session_that_is_not_there_says_where_to_look() -> None:
    """
    Only a run is told to make the session; whoever reads, forks or rewinds is told to look for it.
    """
    runner = InMemoryRunner(agent=BaseAgent(name="a"), app_name="app")
    with pytest.raises(SessionNotFoundError, match="look for it with list_sessions"):
        await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id="e-1")
    with pytest.raises(SessionNotFoundError, match="make it with create_session"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi"):
            pass


ANOTHER: Any = {"app_name": "app", "user_id": "u", "session_id": "other"}
Operation = Callable[[BaseSessionService, Session, list[Event]], Any]


OPERATIONS: dict[str, Operation] = {
    "create": lambda service, session, history: service.create_session(**ANOTHER, state={"user:n": 2}),
    "import": lambda service, session, history: service.import_session(**ANOTHER, events=history),
    "fork": lambda service, session, history: service.fork_session(**HERE, new_session_id="other"),
    "append": lambda service, session, history: append(service, session, "late", user_n=2),
    "delete": lambda service, session, history: service.delete_session(**HERE),
    "get": lambda service, session, history: service.get_session(**HERE),
    "list": lambda service, session, history: service.list_sessions(app_name=None),
    "read": lambda service, session, history: service.read_events(**HERE),
    "state": lambda service, session, history: service.get_user_state(app_name="app", user_id="u"),
    "invocations": lambda service, session, history: service.list_invocations(),
    "questions": lambda service, session, history: service.list_pending(),
}


@pytest.mark.parametrize("kind", ["memory", "sqlite in memory", "sqlite without cache", "postgres"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_operation_in_a_cancelled_scope_is_not_done(operation: str, kind: str, tmp_path: Path) -> None:
    """Every operation of a service is a checkpoint before it does anything."""
    async with services(tmp_path)[kind]() as service:
        session = await service.create_session(**HERE, state={"user:n": 1})
        await append(service, session, "one")
        history = await service.read_events(**HERE)
        with trio.CancelScope() as scope:
            scope.cancel()
            await OPERATIONS[operation](service, session, history)
        assert scope.cancelled_caught
        found = await get(service)
        assert (texts(found), found.state) == (["one"], {"user:n": 1})
        assert len((await service.list_sessions(app_name=None)).sessions) == 1
        await append(service, session, "two")
