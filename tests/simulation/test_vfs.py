"""
The disk below SQLite that records and fails, and what the service makes of a disk that fails.

The second half injects every error of the disk at every place of a small workload. Whoever asks the service for
something then acts as its errors advise: asks again, and never asks whether it was there.
"""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
import sqlite3
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import Event, EventActions, LlmAgent, Runner, ToolContext
from minirun.errors import AlreadyExistsError, NotSupportedError, StorageError
from minirun.sessions import InvocationStatus, Session, SqliteSessionService
from minirun.sessions._fold import fold
from minirun.sessions._state import Values
from minirun.testing import ScriptedLlm, call

from ..disks import FILE, History, check_calls, store_on
from ..stores import HERE, texts
from .stores import vfs as _vfs
from .stores import why_unavailable
from .stores.disk import Delete, Disk, Entry, Mark, Sync, Truncate, Write, write_image
from .stores.vfs import DiskEnv, Operation, RecordingVFS

REASON = why_unavailable()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture
def vfs() -> Iterator[RecordingVFS]:
    with RecordingVFS() as vfs:
        yield vfs


@contextlib.contextmanager
def database(vfs: RecordingVFS, path: Path) -> Iterator[sqlite3.Connection]:
    """A database with a log and a table of one column."""
    with contextlib.closing(vfs.connect(str(path))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
        yield connection


# --- recording --------------------------------------------------------------------------------------------------------


def test_the_trace_has_all_that_was_done_to_the_files(vfs: RecordingVFS, tmp_path: Path) -> None:
    """Replayed, the trace gives the very files of the folder, at any time, but for the shared memory."""
    disk = Disk()
    done = 0
    with database(vfs, tmp_path / "a.db") as connection:
        for number in range(80):
            connection.execute("INSERT INTO t VALUES (?)", ("x" * 80 * number,))
            if number % 20 == 19:
                connection.execute("DELETE FROM t")
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            disk.replay(vfs.trace[done:])
            done = len(vfs.trace)
            files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
            assert disk.image("everything", FAIR) == files
    assert {type(entry) for entry in vfs.trace} == {Write, Truncate, Sync, Delete}


class Fair:
    """Luck that nobody asks for."""

    def randrange(self, stop: int, /) -> int:
        raise NotImplementedError


FAIR = Fair()


def test_marks_stand_where_they_were_made(vfs: RecordingVFS, tmp_path: Path) -> None:
    """What the caller marks is in the trace after what was done before and before what is done later."""
    with database(vfs, tmp_path / "a.db") as connection:
        before = len(vfs.trace)
        vfs.mark({"any": "thing"})
        connection.execute("INSERT INTO t VALUES (1)")
    assert vfs.trace[before] == Mark({"any": "thing"})
    assert isinstance(vfs.trace[before + 1], Write)


def test_any_name_and_any_uri_can_be_opened(vfs: RecordingVFS, tmp_path: Path) -> None:
    """Names are taken as they are, and a URI keeps its own query; a database in memory does nothing to the disk."""
    path = tmp_path / "100% a?b#c&d=e ü.db"
    with database(vfs, path) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert path.exists()
    assert {entry.file for entry in vfs.trace if isinstance(entry, Write)} >= {path.name, f"{path.name}-wal"}
    with contextlib.closing(vfs.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT x FROM t").fetchall() == [(1,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("INSERT INTO t VALUES (2)")
    vfs.trace.clear()
    with contextlib.closing(vfs.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (x)")
    assert vfs.trace == []


def test_several_disks_know_nothing_of_each_other(vfs: RecordingVFS, tmp_path: Path) -> None:
    """Each of several at once has the trace, the files and the faults of its own databases only."""
    vfs.fault = lambda operation, file: sqlite3.SQLITE_IOERR if operation == "sync" else 0
    with RecordingVFS() as other:
        with database(other, tmp_path / "b.db") as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            assert other.open_files == ["b.db", "b.db-wal"]
            assert vfs.open_files == []
        assert other.open_files == []
    assert other.trace
    assert vfs.trace == []


async def test_the_env_opens_databases_on_the_disk_and_has_no_threads(vfs: RecordingVFS, tmp_path: Path) -> None:
    """What the service writes is in the trace; blocking calls run in the loop's thread, at a checkpoint."""
    env = DiskEnv(vfs)
    with trio.testing.assert_checkpoints():
        assert await env.run_sync(threading.get_ident) == threading.get_ident()
    async with SqliteSessionService(tmp_path / FILE, env=env) as service:
        await service.create_session(**HERE)
        assert vfs.trace[-1] == Sync(f"{FILE}-wal")


# --- sameness ---------------------------------------------------------------------------------------------------------


def trace_of_service(folder: Path, seed: int) -> list[Entry]:
    """What a service does to the disk, one thing after another."""

    async def use(vfs: RecordingVFS) -> None:
        history = History(vfs)
        vfs.seed(seed)
        vfs.clock = lambda: 1e9
        async with store_on(vfs, folder) as service:
            made, session = await history.make(service, "u1", "one")
            for number in range(20):
                await history.append(service, made, session, number, size=20 * number)
            run, _ = await history.make(service, "u1", "run")
            await history.run(service, run)
            await history.delete(service, made)

    folder.mkdir()
    with RecordingVFS() as vfs:
        trio.run(use, vfs)
    return [entry for entry in vfs.trace if not isinstance(entry, Mark)]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """The same operations after the same seed give the same trace; after another seed, another (promise P10)."""
    traces = [trace_of_service(tmp_path / str(number), seed) for number, seed in enumerate((7, 7, 8))]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 300
    assert traces[0] != traces[2]


def test_the_luck_of_the_system_is_back_after_closing(tmp_path: Path) -> None:
    """What was seeded is seeded until the disk is closed."""
    numbers = []
    for _ in range(2):
        with RecordingVFS() as vfs:
            vfs.seed(5)
            numbers.append(some_luck())
        numbers.append(some_luck())
    assert numbers[0] == numbers[2]
    assert numbers[1] != numbers[3]


def some_luck() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        [number] = connection.execute("SELECT randomblob(16)").fetchone()
        return bytes(number)


def test_time_is_the_clocks(vfs: RecordingVFS, tmp_path: Path) -> None:
    """SQLite asks the clock that was given, in seconds since the epoch, and otherwise the real one."""
    now = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')"
    with contextlib.closing(vfs.connect(str(tmp_path / "a.db"))) as connection:
        assert connection.execute(now).fetchone() >= ("2024",)
        vfs.clock = lambda: 1_000_000_000.25
        assert connection.execute(now).fetchone() == ("2001-09-09 01:46:40.250",)


# --- failing ----------------------------------------------------------------------------------------------------------

# What the disk answers, by what it is asked for.
CODES: list[tuple[Operation, int]] = [
    ("open", sqlite3.SQLITE_CANTOPEN),
    ("open", sqlite3.SQLITE_IOERR),
    ("read", sqlite3.SQLITE_IOERR_READ),
    ("write", sqlite3.SQLITE_IOERR_WRITE),
    ("write", sqlite3.SQLITE_FULL),
    ("truncate", sqlite3.SQLITE_IOERR_TRUNCATE),
    ("sync", sqlite3.SQLITE_IOERR_FSYNC),
    ("delete", sqlite3.SQLITE_IOERR_DELETE),
]


@pytest.mark.parametrize(("operation", "code"), CODES)
def test_a_fault_reaches_sqlite_and_does_nothing(
    operation: Operation, code: int, vfs: RecordingVFS, tmp_path: Path
) -> None:
    """SQLite gets the error that the hook returns, the disk is not touched, and without the hook all goes on."""
    asked: list[str] = []

    def fault(what: Operation, file: str) -> int:
        if what == operation:
            asked.append(file)
        return code if what == operation else 0

    path = tmp_path / "a.db"
    with contextlib.closing(vfs.connect(str(path))) as connection:
        connection.execute("CREATE TABLE t (x)")
    vfs.trace.clear()
    vfs.fault = fault
    with pytest.raises(sqlite3.OperationalError) as caught:
        with contextlib.closing(vfs.connect(str(path))) as connection:
            connection.execute(f"PRAGMA journal_mode={'TRUNCATE' if operation == 'truncate' else 'DELETE'}")
            connection.execute("INSERT INTO t VALUES (1)")
    assert caught.value.sqlite_errorcode == code
    assert {file.removesuffix("-journal") for file in asked} == {"a.db"}
    kinds = {"write": Write, "truncate": Truncate, "sync": Sync, "delete": Delete}
    assert kinds.get(operation) not in {type(entry) for entry in vfs.trace}
    vfs.fault = None
    with database(vfs, path) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        assert connection.execute("SELECT max(x) FROM t").fetchall() == [(2,)]


class HookError(Exception):
    """What a faulty hook raises."""


def faulty_hook(operation: Operation, file: str) -> int:
    raise HookError(operation)


def test_what_a_hook_raises_is_an_io_error_now_and_raised_at_the_end(tmp_path: Path) -> None:
    """No exception goes through C: SQLite sees an I/O error, and closing raises the first that there was."""
    vfs = RecordingVFS()
    vfs.fault = faulty_hook
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        vfs.connect(str(tmp_path / "a.db")).execute("CREATE TABLE t (x)")
    with pytest.raises(HookError, match="open"):
        vfs.close()
    vfs.close()


def test_what_a_hook_has_raised_is_a_note_on_what_it_has_caused(tmp_path: Path) -> None:
    """An error that leaves the `with` block goes first."""
    with pytest.raises(sqlite3.OperationalError) as caught:
        with RecordingVFS() as vfs:
            vfs.fault = faulty_hook
            vfs.connect(str(tmp_path / "a.db"))
    assert "HookError('open')" in caught.value.__notes__[0]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_after_closing_nothing_can_be_opened_and_what_is_open_goes_on(tmp_path: Path) -> None:
    """A closed disk is unknown to SQLite; a connection that is still open records and works until it is closed."""
    gc.freeze()  # what is there already need not be looked through
    vfs = RecordingVFS()
    with database(vfs, tmp_path / "a.db") as connection:
        vfs.close()
        with pytest.raises(sqlite3.OperationalError, match="no such vfs"):
            vfs.connect(str(tmp_path / "b.db"))
        count = len(vfs.trace)
        reference = weakref.ref(vfs)
        trace = vfs.trace
        del vfs
        gc.collect()
        connection.execute("INSERT INTO t VALUES (1)")
        assert len(trace) > count
        assert reference() is not None
    gc.collect()
    assert reference() is None


def test_nothing_is_left_of_what_was_closed(tmp_path: Path) -> None:
    """However many databases were opened on it, a disk keeps one table of functions for each kind of file."""
    gc.freeze()
    before = len(_vfs._CALLABLE)
    with RecordingVFS() as vfs:
        for _ in range(50):
            with database(vfs, tmp_path / "a.db") as connection:
                connection.execute("INSERT INTO t VALUES (1)")
        assert len(vfs._tables) <= 2
        assert len(vfs._callbacks) <= 4 + 2 * 5
        assert vfs.open_files == []
    assert len(_vfs._CALLABLE) == before
    reference = weakref.ref(vfs)
    del vfs
    gc.collect()
    assert reference() is None


def test_where_there_can_be_none_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system where nobody has tried it, the reason is a sentence, and making one raises it."""
    monkeypatch.setattr(sys, "platform", "plan9")
    assert why_unavailable() == "the recording VFS was tried on Linux only, and this is plan9"
    with pytest.raises(NotSupportedError, match="tried on Linux only"):
        RecordingVFS()


# --- a service on a disk that fails -----------------------------------------------------------------------------------


@attrs.define
class Trouble:
    """Lets the *at*-th operation of a kind fail; if it *lasts*, all that follow too, of any kind, until it is over."""

    operation: Operation
    code: int
    at: int
    lasts: bool
    seen: int = 0
    struck: bool = False
    over: bool = False

    def __call__(self, operation: Operation, file: str) -> int:
        if self.over:
            return 0
        if self.struck:
            return sqlite3.SQLITE_IOERR if self.lasts else 0
        if operation == self.operation:
            self.seen += 1
            if self.seen == self.at:
                self.struck = True
                return self.code
        return 0


class Caller:
    """
    Someone who wants things stored, and asks again, once, when that fails.

    Of each error it checks what it says: with `stored` False the event is nowhere, whatever a power cut would leave,
    and what was stored before is there.
    """

    def __init__(self, vfs: RecordingVFS, folder: Path, trouble: Trouble) -> None:
        self._vfs = vfs
        self._folder = folder
        self._trouble = trouble
        self.stored: list[str] = []
        self.errors: Counter[str] = Counter()

    async def create(self, service: SqliteSessionService) -> Session:
        try:
            return await service.create_session(**HERE, state={"made": 1})
        except StorageError as error:
            await self._learn(error, None)
        try:
            return await service.create_session(**HERE, state={"made": 1})
        except AlreadyExistsError:
            assert self.errors["uncertain"], "it was said not to be stored"
            return await self.read(service)

    async def append(self, service: SqliteSessionService, session: Session, text: str, size: int = 0) -> None:
        actions = EventActions(
            state_delta={"last": text},
            state_ops={"n": {"add": 1}, "user:n": {"add": 1}, "app:texts": {"extend": [text]}},
        )
        event = Event(id=f"id-{text}", author="a", message=text, output="." * size, actions=actions)
        try:
            await service.append_event(session, event)
        except StorageError as error:
            await self._learn(error, text)
            again = await service.append_event(session, event)
            assert (again.id, again.seq, session.revision) == (event.id, len(self.stored) + 1, len(self.stored) + 1)
        self.stored.append(text)

    async def read(self, service: SqliteSessionService) -> Session:
        try:
            session = await service.get_session(**HERE)
        except StorageError as error:
            await self._learn(error, None)
            assert self.errors["uncertain"] == 0, "reading stores nothing"
            session = await service.get_session(**HERE)
        assert session is not None
        check_state(session)
        assert texts(session) == self.stored
        return session

    async def _learn(self, error: StorageError, text: str | None) -> None:
        self._trouble.over = True
        self.errors["uncertain" if error.stored is None else "not stored"] += 1
        for found in await self.found():
            possible = [self.stored] if text is None or error.stored is False else [self.stored, [*self.stored, text]]
            assert found in possible, f"{error!r}, and {found} is there"

    async def found(self) -> list[list[str]]:
        """The texts that are found if the process ends now, or the power goes."""
        disk = Disk()
        disk.replay(self._vfs.trace)
        place = self._folder / "image"
        found = []
        for cut in ("everything", "nothing", "torn"):
            write_image(disk.image(cut, random.Random(len(self._vfs.trace))), place)
            with RecordingVFS() as vfs:
                async with SqliteSessionService(place / FILE, durability="process", env=DiskEnv(vfs)) as service:
                    session = await service.get_session(**HERE)
                    found.append([] if session is None else texts(session))
                    if session is not None:
                        check_state(session)
            shutil.rmtree(place)
        return found


def check_state(session: Session) -> None:
    """The state is the fold of the events, in all scopes."""
    found = texts(session)
    assert [event.seq for event in session.events] == [*range(1, session.revision + 1)]
    state = {"n": len(found), "user:n": len(found), "app:texts": found, "last": found[-1]} if found else {}
    assert dict(session.state) == {"made": 1, **state}


async def live_with(trouble: Trouble, folder: Path) -> Caller:
    """A small workload: a session, events, enough for the log to be written back; closed, and once more."""
    write_image({}, folder)
    with RecordingVFS() as vfs:
        vfs.fault = trouble
        caller = Caller(vfs, folder, trouble)
        for part in range(2):
            async with store_on(vfs, folder) as service:
                session = await (caller.read(service) if part else caller.create(service))
                for number in range(3):
                    await caller.append(service, session, f"{part}.{number}", size=2000 * (number == 1))
                await caller.read(service)
        assert vfs.open_files == []
        trouble.over = True
        assert await caller.found() == [caller.stored] * 3
    return caller


# Each run of the tests lets half of them fail once and the others for good, at some places.
LASTING = {
    ("open", sqlite3.SQLITE_IOERR),
    ("write", sqlite3.SQLITE_FULL),
    ("truncate", sqlite3.SQLITE_IOERR_TRUNCATE),
    ("delete", sqlite3.SQLITE_IOERR_DELETE),
}
SOME_PLACES = 6


@pytest.mark.parametrize(
    ("operation", "code", "lasts", "places"),
    [
        pytest.param(*each, each in LASTING, SOME_PLACES, id=f"{each[0]}-{each[1]}-some") for each in CODES
    ]
    + [
        pytest.param(*each, lasts, sys.maxsize, id=f"{each[0]}-{each[1]}-{lasts}-all", marks=pytest.mark.slow)
        for each in CODES
        for lasts in (False, True)
    ],
)
async def test_every_error_of_the_disk_is_typed_and_true(
    operation: Operation, code: int, lasts: bool, places: int, tmp_path: Path
) -> None:
    """
    An error at any place is a StorageError that says truly what is stored, or none where SQLite can go on.

    The same service works once the disk does, the same event appended again is stored once, and all before is there.
    """
    errors = Counter[str]()
    untroubled = Trouble(operation, code, sys.maxsize, lasts)
    await live_with(untroubled, tmp_path / "untroubled")
    last = untroubled.seen
    assert last > 0
    for at in sorted({1 + (last - 1) * place // (min(places, last) - 1 or 1) for place in range(min(places, last))}):
        trouble = Trouble(operation, code, at, lasts)
        try:
            caller = await live_with(trouble, tmp_path / str(at))
        except BaseException as error:
            error.add_note(f"the {operation} number {at} fails")
            raise
        shutil.rmtree(tmp_path / str(at))
        errors += caller.errors or Counter(["none"])
        assert trouble.struck or at > 1
    print(f"\n{operation} {code}: {last} places, {dict(errors)}")


async def run_once(service: SqliteSessionService, *script: Any) -> None:
    """A run that counts in the state."""

    async def count(tool_context: ToolContext) -> str:
        tool_context.state.add("count", 1)
        return "counted"

    agent = LlmAgent(name="agent", model=ScriptedLlm(list(script)), tools=[count])
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()


RUNS_ON_A_DISK: list[tuple[Operation, bool]] = [("write", False), ("sync", True), ("read", True)]


@pytest.mark.parametrize(
    ("operation", "lasts", "stride"),
    [pytest.param(*each, 7, id=f"{each[0]}-some") for each in RUNS_ON_A_DISK]
    + [
        pytest.param(operation, lasts, 1, id=f"{operation}-{lasts}-all", marks=pytest.mark.slow)
        for operation, _ in RUNS_ON_A_DISK
        for lasts in (False, True)
    ],
)
async def test_a_run_on_a_disk_that_fails_leaves_no_call_without_a_response(
    operation: Operation, lasts: bool, stride: int, tmp_path: Path
) -> None:
    """A run that meets an error of the disk ends with a StorageError; the next one on the same service goes well."""
    ends = Counter[str]()
    at = 1
    while True:
        trouble = Trouble(operation, sqlite3.SQLITE_IOERR, at, lasts)
        folder = tmp_path / str(at)
        write_image({}, folder)
        with RecordingVFS() as vfs:
            vfs.fault = trouble
            async with store_on(vfs, folder) as service:
                try:
                    await run_once(service, [call("count"), call("count")], "done")
                    ends["completed"] += 1
                except StorageError:
                    ends["failed"] += 1
                trouble.over = True
                await run_once(service, "again")
                events = await service.read_events(**HERE)
                session = await service.get_session(**HERE)
                invocations = await service.list_invocations()
        check_calls(events)
        assert session is not None
        assert dict(session.state) == fold(Values({}, {}, {}), events, shared=False).session
        assert invocations[-1].status is InvocationStatus.COMPLETED
        shutil.rmtree(folder)
        if not trouble.struck:
            break
        at += 1 if at < 4 else stride
    print(f"\na run, {operation}: {at} places, {dict(ends)}")
