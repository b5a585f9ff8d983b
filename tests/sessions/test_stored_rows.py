"""
One history in every store: the rows it leaves there, and what is read of it.

Stores outlive the versions that have written them, and other programs look into tables. So the rows of a durable store
are a promise as much as its schema is: `fixtures/rows-KIND.json` has them. What is read has to be the same in every
store, and stands in `fixtures/read.json`. Run as a program, this writes them anew; whoever has to do that says in the
commit message why, and how an earlier store is still read.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import InMemorySessionService
from minirun._postgres._values import Statement
from minirun.artifacts import (
    BaseArtifactService,
    DatabaseArtifactService,
    InMemoryArtifactService,
    SqliteArtifactService,
)
from minirun.sessions import (
    BaseSessionService,
    DatabaseSessionService,
    GetSessionConfig,
    InvocationStatus,
    Session,
    SessionKey,
    SqliteSessionService,
    _earlier,
)
from minirun.sessions._live import LiveSession, RunWindow
from minirun.sessions._postgres import _queries as _postgres_queries
from minirun.sessions._postgres._verify import verify_database
from minirun.sessions._read_only import ReadOnlyState
from minirun.sessions._sqlite import _queries as _sqlite_queries
from minirun.sessions._work import work_in

from ..one_history import History, Told
from ..postgres import execute
from ..stores import Elsewhere, ElsewhereInPostgres, database_of
from ..tables import as_kept, kept, write

Rows = dict[str, Any]
Service = Callable[[Told], BaseSessionService]


def over(service: BaseSessionService, env: Told) -> BaseArtifactService:
    """The artifacts of a service: in the same place, if they can be."""
    if isinstance(service, SqliteSessionService):
        return SqliteArtifactService(service)
    if isinstance(service, DatabaseSessionService):
        return DatabaseArtifactService(service)
    return InMemoryArtifactService(env=env)


# --- what is left in each store ---------------------------------------------------------------------------------------


def sqlite_rows(folder: Path) -> tuple[Service, Callable[[], Rows]]:
    path = folder / "rows.db"

    def rows() -> Rows:
        db = sqlite3.connect(path)
        try:
            tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            names = [name for (name,) in tables]
            found = {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}
        finally:
            db.close()
        return {
            name: [[each.hex() if isinstance(each, bytes) else each for each in row] for row in rows]
            for name, rows in found.items()
        }

    return lambda env: SqliteSessionService(path, durability="process", env=env), rows


def postgres_rows(folder: Path) -> tuple[Service, Callable[[], Rows]]:
    url = database_of(folder)

    def rows() -> Rows:
        tables = execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'minirun' ORDER BY 1")
        names = [name for (name,) in tables if name is not None]
        execute(url, "UPDATE minirun.artifact_versions SET staged_at = 'epoch'")  # it is of the server's clock
        return {name: sorted(map(list, execute(url, f"SELECT * FROM minirun.{name}")), key=repr) for name in names}

    return lambda env: DatabaseSessionService(url, env=env), rows


KINDS: dict[str, Callable[[Path], tuple[Service, Callable[[], Rows]]]] = {
    "sqlite": sqlite_rows,
    "postgres": postgres_rows,
}


# --- what is read -----------------------------------------------------------------------------------------------------

APPS, USERS, SESSIONS = ("app", "other", "none"), ("u", "v", "ü/%"), ("s", "f-2", "r", "t", "a b")
WINDOWS: Mapping[str, GetSessionConfig | None] = {
    "all": None,
    "none": GetSessionConfig(num_recent_events=0),
    "recent": GetSessionConfig(num_recent_events=3),
    "after": GetSessionConfig(after_seq=7),
    "since": GetSessionConfig(after_timestamp=1_700_000_015.5),
    "recent since": GetSessionConfig(num_recent_events=4, after_timestamp=1_700_000_016.0),
    "whole": RunWindow(num_recent_events=1, asked=GetSessionConfig(num_recent_events=1), whole=True),
    "prompt": RunWindow(num_recent_events=1, asked=GetSessionConfig(num_recent_events=1)),
}


def narrowed(*names: tuple[str, ...]) -> list[dict[str, str]]:
    """Every way to ask for less: by any of app, user and session."""
    fields = ("app_name", "user_id", "session_id")
    wanted = product(*((None, *each) for each in names))
    return [{key: name for key, name in zip(fields, each, strict=False) if name is not None} for each in wanted]


def place_of(key: SessionKey) -> dict[str, str]:
    return {"app_name": key.app_name, "user_id": key.user_id, "session_id": key.session_id}


def shown(session: Session) -> list[Any]:
    """A session of a list, or with the events that were asked for."""
    seqs = [event.seq for event in session.events]
    return [session.app_name, session.user_id, session.id, session.revision, session.create_time,
            session.last_update_time, seqs]  # fmt: skip


def live_of(live: LiveSession) -> dict[str, Any]:
    """What a run finds in a session that it enters."""
    return {
        "open calls": [attrs.astuple(call) for call in live.open_calls.values()],
        "compaction": None if live.compaction is None else [live.compaction.seq, live.compaction.end_seq],
        "has messages": live.has_messages,
        "events": [event.seq for event in live.events],
        "calls": sorted(call or "" for call in live.call_ids),
        "times": [live.create_time, live.last_update_time],
    }


async def pages(service: BaseSessionService, app_name: str | None, user_id: str | None) -> list[Any]:
    """A list of sessions, two at a time."""
    found, after = [], None
    while True:
        page = await service.list_sessions(app_name=app_name, user_id=user_id, limit=2, after=after)
        found.append([shown(session) for session in page.sessions])
        after = page.next
        if after is None:
            return found


async def windows(service: BaseSessionService, key: SessionKey) -> dict[str, Any]:
    """What each window shows of a session, with its state."""
    found: dict[str, Any] = {}
    for name, config in WINDOWS.items():
        if not isinstance(config, RunWindow):
            session = await service.get_session(**place_of(key), config=config)
            assert session is not None
            found[name] = [shown(session), dict(session.state)] if config is None else shown(session)
    return found


async def entered(service: BaseSessionService, key: SessionKey) -> dict[str, Any]:
    """What a run finds, with each window."""
    found = {}
    for name, config in WINDOWS.items():
        writer = await service.open_writer(key, "e-look", config, reject=True)
        assert writer is not None
        first = writer.live.run_start_seq(config.asked if isinstance(config, RunWindow) else config)
        found[name] = [first, [event.seq for event in writer.live.window(first)]]
        if name == "all":
            found["live"] = [live_of(writer.live), [one.id for one in await service.load_messages(writer.live)]]
        await writer.finish(None)
    return found


async def parts(service: BaseSessionService, key: SessionKey) -> list[Any]:
    """The log, by pages."""
    texts = []
    for after, limit in ((None, None), (None, 2), (0, 3), (5, None), (15, 100), (10**6, 1)):
        events = await service.read_events(**place_of(key), after_seq=after, limit=limit)
        texts.append([[event.seq, event.id, event.author, event.text] for event in events])
    return texts


FIELDS = ("app_name", "user_id", "session_id", "invocation_id", "call_id", "kind", "tool", "author", "branch", "due")


def questions() -> dict[str, Callable[[BaseSessionService], Awaitable[Any]]]:
    """All that can be asked of a service, by name."""
    asked: dict[str, Callable[[BaseSessionService], Awaitable[Any]]] = {}

    def ask(name: str, question: Callable[[BaseSessionService], Awaitable[Any]]) -> None:
        asked[name] = question

    def ask_invocations(where: dict[str, str], status: str | None) -> None:
        async def answer(service: BaseSessionService) -> Any:
            found = await service.list_invocations(**where, status=status)
            return [[*attrs.astuple(one)] for one in found]

        ask(f"invocations {status} {where}", answer)

    def ask_pending(where: dict[str, str]) -> None:
        async def answer(service: BaseSessionService) -> Any:
            found = await service.list_pending(**where, include_timers=True)
            return [[getattr(one, field) for field in FIELDS] for one in found]

        ask(f"pending {where}", answer)

    for where in narrowed(APPS, USERS, SESSIONS):
        if len(where) != 2 or "session_id" in where:
            ask_invocations(where, None)
            ask_pending(where)
    for status in InvocationStatus:
        ask_invocations({"app_name": "app"}, status)
    for app, user in product((None, *APPS), (None, *USERS)):
        ask(f"sessions {app} {user}", lambda service, a=app, u=user: pages(service, a, u))  # type: ignore[misc]
    for app, user in product(APPS, USERS):
        ask(f"state {app} {user}", lambda service, a=app, u=user: service.get_user_state(app_name=a, user_id=u))  # type: ignore[misc]
    for key in KEYS:
        ask(f"log {key}", lambda service, k=key: parts(service, k))  # type: ignore[misc]
        ask(f"windows {key}", lambda service, k=key: windows(service, k))  # type: ignore[misc]
        ask(f"entered {key}", lambda service, k=key: entered(service, k))  # type: ignore[misc]
        ask(f"runs {key}", lambda service, k=key: runs(service, k))  # type: ignore[misc]
    ask("apps", apps)
    return asked


UNDONE = SessionKey("app", "u", "r")
KEYS = [
    *(SessionKey("app", "u", name) for name in ("s", "f-2", "f-3", "r", "t", "left")),
    SessionKey("other", "ü/%", "a b"),
    *(SessionKey("app", "v", name) for name in "dk"),
]


async def runs(service: BaseSessionService, key: SessionKey) -> list[Any]:
    """The invocations of a session, one by one, and those that have not ended."""
    names = ("e-1", "e-2", "e-3", "e-4", "e-5", "e-99")
    found = [await service.load_invocation(key, name) for name in names]
    later = [await service.load_unfinished_invocations(key, seq) for seq in (0, 6, 8, 12)]
    return [
        [None if one is None else [*attrs.astuple(one)] for one in found],
        [[one.invocation_id for one in each] for each in later],
    ]


async def apps(service: BaseSessionService) -> list[Any]:
    """The apps that have a session of a name."""
    asked = (("u", "s"), ("v", "s"), ("ü/%", "a b"))
    return [sorted(await service.apps_with_session(user, name)) for user, name in asked]


async def answers(service: BaseSessionService) -> dict[str, Any]:
    """All answers, as JSON has them."""
    found = {name: await question(service) for name, question in questions().items()}
    return as_kept(found)  # type: ignore[no-any-return]  # of a dict


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_history_leaves_the_same_rows_and_is_read_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    In every kind of store: whoever changes what is stored does it on purpose; what is read does not depend on it.

    Nor does it depend on whether the service that is asked has written it, or has just opened the store, and reads that
    in pages of two.
    """
    make, rows = KINDS[kind](tmp_path)
    expected = kept("read")
    env = Told()
    async with make(env) as service:
        await History(service, over(service, env), env).write()
        check_same(await answers(service), expected)
        written = counted(service)
    check_same(as_kept(rows()), kept(f"rows-{kind}"))
    for module in (_earlier, _sqlite_queries, _postgres_queries):
        monkeypatch.setattr(module, "PAGE_EVENTS", 2)
    async with make(env) as service:
        check_same(await answers(service), expected)
        loaded = counted(service)
        if isinstance(service, DatabaseSessionService):
            assert await verify_database(service) == []
            work = work_in(service, "app")
            await work.claim([*await work.look(2e9)], 1)
            check_statements(env.statements)
    assert [*written] == [*loaded] == [str(key) for key in KEYS]
    del written[str(UNDONE)], loaded[str(UNDONE)]  # of which small pages pass what was undone
    assert all(loaded[key] / 1.5 < written[key] < 1.5 * loaded[key] for key in loaded), (written, loaded)


ONCE = {
    "has_versions", "version", "lock_schema", "make_schema", "make_versions", "set_version", "migrate", "settings",
    "alive", "sessions", "waiting", "all_runs", "unfinished_runs",
    "verify_store", "verify_shared", "verify_bases", "verify_unused", "verify_nobodys", "verify_stray_memories",
}  # fmt: skip
"""What a worker says on its way in, what is planned for what is asked, and what looks at whole tables."""


def check_statements(statements: set[Statement]) -> None:
    """
    Each has a name, in letters and underscores, by which errors and the server's views tell of it; and each is kept
    prepared on its connection, but for those that are said once or are planned better each time.
    """
    names = [each.name for each in statements if each.name != "migrate"]
    assert len(names) > 60
    assert [name for name in names if not re.fullmatch("[a-z_]+", name)] == []
    assert {each.name for each in statements if each.once} <= ONCE
    assert [each.name for each in statements if not each.once and each.name in ONCE] == []


def counted(service: Any) -> dict[str, int]:
    """What each session counts in the memory of a service that keeps those that it has used lately."""
    sizes = {str(key): live.size for key, live in service._cache.sessions.items()}
    assert service._cache.bytes == sum(sizes.values())
    return sizes


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_other_processes_see_each_step(kind: str, tmp_path: Path) -> None:
    """One that looks after each event, and one that looks seldom: what they have kept is brought up to date."""
    place: Any = tmp_path / "rows.db" if kind == "sqlite" else database_of(tmp_path)
    make: Any = Elsewhere if kind == "sqlite" else ElsewhereInPostgres
    env = Told()
    async with make(place, env=env) as writing, make(place, env=env) as often, make(place, env=env) as seldom:

        async def compare(service: BaseSessionService, key: SessionKey) -> None:
            there = [await each.load_session(key, None) for each in (writing, service)]
            if None not in there:
                own, other = ([*live_of(live).items(), dict(ReadOnlyState(live.values))] for live in there if live)
                assert own == other, key

        async def both(key: SessionKey) -> None:
            await compare(seldom, key)
            await compare(often, key)

        await History(writing, over(writing, env), env, partial(compare, often), both).write()


def in_any_order(answer: Any) -> Any:
    return sorted(answer, key=repr) if isinstance(answer, list) else answer


async def test_a_history_in_memory_is_read_as_that_of_a_store() -> None:
    """It is the simplest of the services, and tells the same."""
    env = Told()
    async with InMemorySessionService(env=env) as service:
        await History(service, over(service, env), env).write()
        check_same(await answers(service), kept("read"))


def check_same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Each part of it is as it is expected."""
    assert [*found] == [*expected]
    for name in expected:
        assert found[name] == expected[name], name


async def write_anew() -> None:
    """Write the files."""
    for kind, place in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            env = Told()
            make, rows = place(Path(folder))
            async with make(env) as service:
                await History(service, over(service, env), env).write()
                found = await answers(service)
            write(f"rows-{kind}", rows(), 2)
    write("read", found, 2)


if __name__ == "__main__":
    trio.run(write_anew)
