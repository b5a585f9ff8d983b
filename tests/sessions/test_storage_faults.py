"""
Disks that are full, files that are locked, gone, replaced or read-only, clocks that go back (promises P1, P4 and P6).

Real ones: nothing here is injected into SQLite, except where the name of a fault says so. The law for all of them
(`Fault`): the error is typed and tells the truth about the event, what was stored before is there, and the same
service object works again when the fault is gone, with nothing stored twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing

from minirun import Env, Event, LlmAgent, Runner
from minirun.errors import (
    AlreadyExistsError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageBusyError,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StorageReadOnlyError,
    StorageUncertainError,
)
from minirun.sessions import InvocationStatus, SqliteSessionService
from minirun.sessions._sqlite._file import BUSY_WAIT_S
from minirun.sessions._sqlite._leases import LEASE_S
from minirun.sessions._sqlite._lost_file import close_lost
from minirun.testing import ScriptedLlm, call

from ..ledger import Ledger, check_calls, forker
from ..stores import HERE, Clock, Elsewhere, append, begin, enter, get, texts
from .test_session_properties import check_file

DURABILITIES = pytest.mark.parametrize("durability", ["power", "process"])

# More than is free in the small places below, and less than SQLite's own limit of a value.
LARGE = "x" * 400_000


class Fault:
    """
    Something that goes wrong with a file, and right again.

    `kinds` are the errors that it may cause; `large`, whether only a large event feels it; `reads`, whether what is
    stored can be read meanwhile; `swaps`, whether another file takes the place of ours, which is told once when it
    comes and once when it goes.
    """

    kinds: tuple[type[StorageError], ...]
    large = False
    reads = True
    swaps = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "a.db"

    def begin(self, service: SqliteSessionService) -> None:
        """Let it go wrong."""

    def end(self, service: SqliteSessionService) -> None:
        """Let it go right again."""

    def close(self) -> None:
        """Leave nothing of it."""


def connection_of(service: SqliteSessionService) -> sqlite3.Connection | None:
    return service._file._connection


def run_pragma(service: SqliteSessionService, pragma: str) -> None:
    """On the service's own connection; a new one would not need it."""
    if connection := connection_of(service):
        connection.execute(f"PRAGMA {pragma}").fetchall()


# --- full disks -----------------------------------------------------------------------------------------------------


class FullDisk(Fault):
    """A file system of 4 MB, and somebody else fills it. It is noticed when pages are written, in COMMIT or before."""

    kinds = (StorageFullError, StorageUncertainError)
    large = True
    reads = False  # opening the file anew takes room beside it

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no `mount` to make a small disk with")
        if done.returncode:
            pytest.skip(f"this user may not mount a small disk: {done.stderr.strip()}")

    def begin(self, service: SqliteSessionService) -> None:
        """Fill it to the last byte."""
        with (self.folder / "ballast").open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 1024):
                    pass
            except OSError:
                pass

    def end(self, service: SqliteSessionService) -> None:
        """Make room."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; whatever happened, the folder is free again."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


class PageLimit(Fault):
    """SQLite's own limit of the file, set to what it has: noticed by the statement that needs a page."""

    kinds = (StorageFullError,)
    large = True

    def begin(self, service: SqliteSessionService) -> None:
        """Allow not one page more."""
        run_pragma(service, "max_page_count=1")

    def end(self, service: SqliteSessionService) -> None:
        """Allow as many as ever."""
        run_pragma(service, "max_page_count=1073741823")


# --- files that are not there any more ------------------------------------------------------------------------------


class Gone(Fault):
    """The files with these endings are deleted; it ends when they are there again, the very same."""

    kinds = (StorageMissingError,)
    reads = False
    endings: tuple[str, ...] = ("", "-wal", "-shm")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = folder / "kept"
        self.kept.mkdir()

    def begin(self, service: SqliteSessionService) -> None:
        """Delete them."""
        for ending in self.endings:
            file = Path(f"{self.path}{ending}")
            os.link(file, self.kept / file.name)
            file.unlink()

    def end(self, service: SqliteSessionService) -> None:
        """Put them back, over what is there."""
        for file in self.kept.iterdir():
            file.rename(self.folder / file.name)


class FileAloneGone(Gone):
    """The file is deleted, its log is left."""

    endings = ("",)


class LogGone(Gone):
    """The log is deleted, the file is left. It fits again only if nothing was written meanwhile."""

    swaps = True  # a file without its log is one of an earlier moment
    endings = ("-wal",)


class Replaced(Gone):
    """Another file of ours, with a session of the same name, has the file's name."""

    swaps = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.new = folder / "new.db"

    def begin(self, service: SqliteSessionService) -> None:
        """Move the other file in, as a restored backup would be."""
        super().begin(service)
        self.new.rename(self.path)

    def end(self, service: SqliteSessionService) -> None:
        """Move the first one back, and the logs that belong to it."""
        for ending in ("-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        super().end(service)


# --- files that cannot be written -----------------------------------------------------------------------------------


class QueryOnly(Fault):
    """SQLite refuses to write, as on a medium that has become read-only."""

    kinds = (StorageReadOnlyError,)

    def begin(self, service: SqliteSessionService) -> None:
        """Refuse."""
        run_pragma(service, "query_only=ON")

    def end(self, service: SqliteSessionService) -> None:
        """Accept."""
        run_pragma(service, "query_only=OFF")


FAULTS: tuple[type[Fault], ...] = (FullDisk, PageLimit, Gone, FileAloneGone, LogGone, Replaced, QueryOnly)


@pytest.fixture(params=FAULTS, ids=lambda kind: kind.__name__)
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fault]:
    """Each of them, with a folder of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made: Fault = request.param(folder)
    try:
        if isinstance(made, Replaced):
            trio.run(make_other, made.new)
        yield made
    finally:
        made.close()


async def make_other(path: Path) -> None:
    """Another file with the same session, and another event in it."""
    async with SqliteSessionService(path, durability="process") as service:
        await append(service, await service.create_session(**HERE), "in the other file", user_k="other")


def check_truth(fault: Fault, error: StorageError) -> None:
    """It is of a type that says what happened, and says whether the event is stored as its type does."""
    assert type(error) in fault.kinds, repr(error)
    assert error.stored is (None if isinstance(error, StorageUncertainError) else False)
    assert str(fault.path) in str(error)
    assert ";" in str(error), "it says what to do"


# --- the law --------------------------------------------------------------------------------------------------------


@DURABILITIES
async def test_an_append_that_meets_a_fault_is_told_the_truth_and_can_be_retried(durability: Any, fault: Fault) -> None:
    """The error is typed and true, nothing earlier is lost, and afterwards the same objects go on, storing it once."""
    async with SqliteSessionService(fault.path, durability=durability) as service:
        session = await service.create_session(**HERE, state={"k": 0, "user:k": 0})
        for number in range(3):
            await append(service, session, str(number), k=number)
        event = Event(id="mine", author="a", message=LARGE if fault.large else "mine", state={"user:k": 1, "l": 2})
        fault.begin(service)
        errors = []
        for _ in range(3):  # it stays so while the fault lasts
            with pytest.raises(StorageError) as caught:
                await service.append_event(session, event)
            errors.append(caught.value)
            if fault.swaps:
                break
        check_truth(fault, errors[0])
        assert all(isinstance(error, StorageError) for error in errors)
        assert (texts(session), dict(session.state)) == (["0", "1", "2"], {"k": 2, "user:k": 0})
        if fault.reads:
            found = await get(service)
            assert (texts(found), dict(found.state)) == (["0", "1", "2"], {"k": 2, "user:k": 0})
        fault.end(service)
        found = await get(service)
        assert texts(found)[:3] == ["0", "1", "2"]
        if all(error.stored is False for error in errors):
            assert found.revision == 3, "not stored, as the errors said"
        assert (await service.append_event(session, event)).seq == 4
        await append(service, session, "after", after=1)
        found = await get(service)
        assert texts(found) == texts(session) == ["0", "1", "2", event.text, "after"]
        assert dict(found.state) == dict(session.state) == {"k": 2, "l": 2, "user:k": 1, "after": 1}
    async with SqliteSessionService(fault.path, durability=durability) as service:
        again = await get(service)
        assert (list(again.events), dict(again.state)) == (list(found.events), dict(found.state))
    check_file(fault.path)


@DURABILITIES
async def test_a_run_that_meets_a_fault_fails_with_it_and_the_next_one_recovers(durability: Any, fault: Fault) -> None:
    """A file that fails while a tool runs ends the run with that error; the next run closes the call and goes on."""
    if isinstance(fault, LogGone) and not hasattr(sqlite3.Connection, "setconfig"):
        pytest.skip("Python 3.11 cannot let go of a log that was swapped below it; its process has to end")
    async with SqliteSessionService(fault.path, durability=durability) as service:
        await service.create_session(**HERE)

        async def break_it() -> str:
            """Let the fault begin."""
            fault.begin(service)
            return LARGE if fault.large else "broken"

        agent = LlmAgent(name="a", model=ScriptedLlm([call("break_it"), "fine"]), tools=[break_it])
        runner = Runner(agent=agent, app_name="app", session_service=service)
        with pytest.raises(StorageError) as caught:
            async with runner.run_async(user_id="u", session_id="s", new_message="first") as run:
                await run.wait()
        check_truth(fault, caught.value)
        fault.end(service)
        if fault.swaps:  # the failed run has looked at the other file
            with pytest.raises(StorageMissingError):
                await get(service)
        agent = LlmAgent(name="a", model=ScriptedLlm(["all right"]))
        runner = Runner(agent=agent, app_name="app", session_service=service)
        async with runner.run_async(user_id="u", session_id="s", new_message="second") as run:
            await run.wait()
        events = (await get(service)).events
        assert [event.text for event in events if event.author == "user" or event.text] == [
            "first",
            "second",
            "all right",
        ]
        check_calls(events, ended=True)
        [first, second] = await service.list_invocations()
        assert first.status in (InvocationStatus.FAILED, InvocationStatus.INTERRUPTED)
        assert second.status == InvocationStatus.COMPLETED
    check_file(fault.path)


@pytest.mark.parametrize("fault", [kind for kind in FAULTS if kind is not LogGone], indirect=True)
async def test_whatever_is_asked_of_a_faulty_file_the_answer_is_typed(fault: Fault) -> None:
    """Making, deleting, forking, reading, listing and entering raise nothing but StorageError, and then work again."""
    async with SqliteSessionService(fault.path, durability="process") as service:
        session = await service.create_session(**HERE)
        await append(service, session, "before")
        here: dict[str, Any] = dict(HERE)
        new = here | {"session_id": "new"}
        large = {"k": LARGE if fault.large else 1}

        async def run() -> None:
            writer = await enter(service, f"e-{trio.current_time()}")
            try:
                await begin(writer)
            finally:
                await writer.finish(InvocationStatus.COMPLETED)

        asked: tuple[Callable[[], Any], ...] = (
            partial(service.create_session, **new, state=large),
            partial(service.fork_session, **here, new_session_id="fork"),
            partial(service.read_events, **here),
            partial(service.list_sessions, app_name="app"),
            service.list_invocations,
            run,
            partial(service.delete_session, **new),
            partial(service.delete_session, **here | {"session_id": "fork"}),
        )
        fault.begin(service)
        errors = []
        for ask in asked:
            try:
                await ask()
            except StorageError as error:
                errors.append(error)
            except (SessionNotFoundError, AlreadyExistsError):
                assert fault.swaps, "in the other file this is so"
        check_truth(fault, errors[0])
        fault.end(service)
        if fault.swaps:
            with pytest.raises(StorageMissingError):
                await get(service)
        for name in ("new", "fork"):
            await service.delete_session(**here | {"session_id": name})
        for ask in asked:
            await ask()
        assert texts(await get(service))[0] == "before"
    check_file(fault.path)


# --- what needs a process of its own --------------------------------------------------------------------------------


@DURABILITIES
def test_a_file_that_may_not_grow_is_a_full_disk(durability: str, tmp_path: Path) -> None:
    """At its limit of file size (RLIMIT_FSIZE) a process gets typed errors, and goes on when the limit is raised."""
    path, said = tmp_path / "a.db", tmp_path / "said"
    status = forker().ends(forker().start("outgrow", path, said, number=0, durability=durability))
    ledger = Ledger(path)
    ledger.hear(said)
    assert status == 0
    assert ledger.said["failed to grow"] == 3
    ledger.check()
    assert [event.seq for event in ledger.known["a"]] == list(range(ledger.acknowledged + 1))


async def test_the_end_of_a_process_that_holds_the_lock_lets_others_write(tmp_path: Path) -> None:
    """While a process stands in a transaction others wait and the loop goes on; when it is killed, they are stored."""
    path = tmp_path / "a.db"
    forks = forker()
    async with SqliteSessionService(path, durability="process") as service:
        sessions = [
            await service.create_session(app_name="app", user_id="u", session_id=name) for name in ("s", "t")
        ]
        pid = forks.start("hold", path, tmp_path / "said", number=0, durability="process")
        stored: list[str] = []

        async def write(number: int) -> None:
            await append(service, sessions[number], "waited")
            stored.append(sessions[number].id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, 0)
            nursery.start_soon(write, 1)
            for _ in range(50):
                await trio.lowlevel.checkpoint()
                assert texts(await get(service)) == []
                assert len((await service.list_sessions(app_name="app")).sessions) == 2
            assert stored == []
            os.kill(pid, signal.SIGKILL)
            forks.ends(pid)
        assert sorted(stored) == ["s", "t"]
        assert texts(await get(service)) == ["waited"]
    check_file(path)


async def test_every_wait_for_a_locked_file_is_bounded(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Making, appending, deleting and entering fail with StorageBusyError at the bound, on trio's clock."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        session = await service.create_session(**HERE)
        await service.create_session(app_name="app", user_id="u", session_id="t")
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        agent = LlmAgent(name="a", model=ScriptedLlm([]))
        runner = Runner(agent=agent, app_name="app", session_service=service)

        async def run() -> None:
            async with runner.run_async(user_id="u", session_id="t", new_message="hi") as begun:
                await begun.wait()

        async def fail(ask: Callable[[], Any]) -> None:
            with pytest.raises(StorageBusyError) as caught:
                await ask()
            assert caught.value.stored is False
            waits.append(trio.current_time() - started)

        waits: list[float] = []
        started = trio.current_time()
        asked: tuple[Callable[[], Any], ...] = (
            partial(service.create_session, app_name="app", user_id="u", session_id="new"),
            partial(append, service, session),
            partial(service.delete_session, app_name="app", user_id="u", session_id="old"),
            run,
        )
        async with trio.open_nursery() as nursery:
            for ask in asked:
                nursery.start_soon(fail, ask)
        assert len(waits) == len(asked)
        assert max(waits) < BUSY_WAIT_S + 0.5
        lock.execute("ROLLBACK")
        lock.close()
        assert [one.id for one in (await service.list_sessions(app_name="app")).sessions] == ["s", "t"]
        assert await service.list_invocations() == []
        assert session.revision == 0
        await append(service, session)
    check_file(path)


# --- permissions ----------------------------------------------------------------------------------------------------


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder of a user for whom permissions count; root is nobody for a while."""
    folder = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        nobody = 65534
        os.chown(folder, nobody, nobody)
        try:
            os.setresuid(nobody, nobody, 0)
        except PermissionError:
            shutil.rmtree(folder)
            pytest.skip("root ignores permissions, and may not become another user here")
    try:
        yield folder
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


async def test_a_file_that_was_made_read_only_is_refused_and_works_when_it_is_writable_again() -> None:
    """A service that finds its file, or its folder, read-only says so, stores nothing, and is usable afterwards."""
    with ordinary_user() as folder:
        path = folder / "a.db"
        async with SqliteSessionService(path, durability="process") as service:
            await append(service, await service.create_session(**HERE), "before")
        for place, read_only, writable in ((path, 0o444, 0o644), (folder, 0o555, 0o700)):
            place.chmod(read_only)
            async with SqliteSessionService(path, durability="process") as service:
                for ask in (partial(get, service), partial(enter, service)):
                    with pytest.raises(StorageReadOnlyError, match="let this user read and write") as caught:
                        await ask()
                    assert caught.value.stored is False
                place.chmod(writable)
                before = await get(service)
                await append(service, before, "after")
            assert path.stat().st_mode & 0o777 == 0o644
        async with SqliteSessionService(path, durability="process") as service:
            assert texts(await get(service)) == ["before", "after", "after"]
        check_file(path)


@DURABILITIES
async def test_a_file_that_becomes_read_only_while_it_is_open_loses_nothing(durability: Any) -> None:
    """An open file can still be written, and is: what is acknowledged is there; if not, the error says so."""
    with ordinary_user() as folder:
        path = folder / "a.db"
        async with SqliteSessionService(path, durability=durability) as service:
            session = await service.create_session(**HERE)
            for file in folder.iterdir():
                file.chmod(0o444)
            folder.chmod(0o555)
            acknowledged = []
            for number in range(3):
                try:
                    acknowledged.append((await append(service, session, str(number))).text)
                except StorageReadOnlyError:
                    pass
            folder.chmod(0o700)
            for file in folder.iterdir():
                file.chmod(0o644)
            assert texts(await get(service)) == acknowledged
            await append(service, session, "after")
        async with SqliteSessionService(path, durability=durability) as service:
            assert texts(await get(service)) == [*acknowledged, "after"]
        check_file(path)


# --- files that do not come back ------------------------------------------------------------------------------------


async def test_a_log_that_is_lost_for_good_leaves_an_earlier_moment(tmp_path: Path) -> None:
    """After the error the service works with what the file alone has: whole sessions of some moment before."""
    path = tmp_path / "a.db"
    async with SqliteSessionService(path, durability="process") as service:
        session = await service.create_session(**HERE)
        for number in range(10):
            await append(service, session, str(number), user_n=number)
            if number == 4:
                run_pragma(service, "wal_checkpoint")
        os.unlink(f"{path}-wal")
        with pytest.raises(StorageMissingError):
            await append(service, session, "lost?")
        found = await get(service)
        assert texts(found) == [str(number) for number in range(found.revision)]
        assert found.revision >= 5
        assert found.state["user:n"] == found.revision - 1
        if found.revision < session.revision:
            with pytest.raises(StaleSessionError):
                await append(service, session, "on what is not there")
        await append(service, found, "after")
    check_file(path)
    async with SqliteSessionService(path) as service:
        assert texts(await get(service)) == texts(found)


async def test_what_is_read_of_a_replacement_is_forgotten_when_the_first_file_is_back(tmp_path: Path) -> None:
    """Nothing of one file is shown as the other's, events, state and shared scopes, however they take turns."""
    fault = Replaced(tmp_path)
    await make_other(fault.new)
    async with SqliteSessionService(fault.path, durability="process") as service:
        session = await service.create_session(**HERE, state={"user:k": "first"})
        await append(service, session, "in the first file")
        fault.begin(service)
        with pytest.raises(StorageMissingError):
            await get(service)
        other = await get(service)
        assert (texts(other), dict(other.state)) == (["in the other file"], {"user:k": "other"})
        fault.end(service)
        with pytest.raises(StorageMissingError):
            await append(service, other, "into which?")
        found = await get(service)
        assert (texts(found), dict(found.state)) == (["in the first file"], {"user:k": "first"})
        await append(service, session, "after")
    check_file(fault.path)


@pytest.mark.parametrize("how", ["append", "run"])
async def test_what_was_read_of_one_file_is_stale_in_another(how: str, tmp_path: Path) -> None:
    """Nothing is appended to another file's session only because its numbers are the same."""
    fault = Replaced(tmp_path)
    await make_other(fault.new)
    async with SqliteSessionService(fault.path, durability="process") as service:
        session = await service.create_session(**HERE)
        await append(service, session, "in the first file")
        writer = await enter(service)

        async def write() -> None:
            if how == "run":
                await begin(writer)
            else:
                await append(service, session, "on top of what is not there")

        try:
            fault.begin(service)
            if how == "append":
                await writer.finish(None)
            with pytest.raises(StorageMissingError):
                await write()
            with pytest.raises(StaleSessionError):
                await write()
        finally:
            if how == "run":
                await writer.finish(None)
        other = await get(service)
        assert (texts(other), dict(other.state)) == (["in the other file"], {"user:k": "other"})
    check_file(fault.path)


@pytest.mark.parametrize("there", ["nothing", "a file", "a log", "a file and a log"])
def test_closing_a_lost_file_touches_nothing_that_has_its_names_now(there: str, tmp_path: Path) -> None:
    """SQLite checks in the log and deletes it, by name, when the last connection is closed; not where that is ours."""
    file, log, index = (tmp_path / f"a.db{suffix}" for suffix in ("", "-wal", "-shm"))
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE ours (a)")
    found = file.stat()
    identity = (found.st_dev, found.st_ino, index.stat().st_ino)
    for each in (file, log, index):
        each.unlink()
    strangers = [each for each, name in ((file, "a file"), (log, "a log")) if name in there]
    for each in strangers:
        each.write_bytes(b"somebody else's")
    close_lost(connection, str(file), str(log), str(index), identity)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == dict.fromkeys(strangers, b"somebody else's")


# --- clocks ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Backwards(Env):
    """A wall clock that is an hour earlier each time it is asked."""

    seconds: list[float] = attrs.field(factory=lambda: [1e9])

    def now(self) -> float:
        """The time."""
        self.seconds[0] -= 3600
        return self.seconds[0]


@DURABILITIES
async def test_a_clock_that_goes_back_orders_nothing(durability: Any, tmp_path: Path) -> None:
    """Events, sessions, invocations and pages are in the order of their making, whatever the clock says."""
    path = tmp_path / "a.db"
    names = ["s", "b", "a"]
    async with SqliteSessionService(path, durability=durability, env=Backwards()) as service:
        sessions = [await service.create_session(app_name="app", user_id="u", session_id=name) for name in names]
        for number in range(5):
            for session in sessions:
                await append(service, session, str(number), user_last=f"{session.id}{number}")
        for number in range(3):
            writer = await enter(service, f"e-{number}")
            await begin(writer)
            await writer.renew()
            await writer.append(Event(author="a", message="said", invocation_id=f"e-{number}"))
            await writer.finish(InvocationStatus.COMPLETED)
    for make in (SqliteSessionService, Elsewhere):
        async with make(path, durability=durability, env=Backwards()) as service:
            events = await service.read_events(**HERE)
            times = [event.timestamp or 0.0 for event in events]
            assert times == sorted(times, reverse=True), "the clock did go back"
            assert [event.text for event in events[1:]] == [*"01234", *["hi", "said"] * 3]
            paged: list[Event] = []
            while page := await service.read_events(**HERE, after_seq=len(paged) - 1, limit=2):
                paged += page
            assert paged == events
            assert texts(await get(service, after_seq=3)) == ["3", "4", *["hi", "said"] * 3]
            assert texts(await get(service, num_recent_events=1)) == ["said"]
            assert (await get(service)).state["user:last"] == "a4"
            listed, after = [], None
            while True:
                page_of = await service.list_sessions(app_name="app", limit=1, after=after)
                listed += [one.id for one in page_of.sessions]
                if (after := page_of.next) is None:
                    break
            assert listed == names
            assert [one.invocation_id for one in await service.list_invocations()] == ["e-0", "e-1", "e-2"]
            await append(service, await get(service, "b"), "later")
    check_file(path)


async def test_a_clock_that_goes_back_takes_no_lease_and_keeps_none_of_the_dead(tmp_path: Path) -> None:
    """A living owner keeps its session, a dead one's is free at once, though its lease now ends in a far future."""
    path = tmp_path / "a.db"
    clock = Clock([1e9])
    async with (
        Elsewhere(path, durability="process", env=clock) as one,
        Elsewhere(path, durability="process", env=clock) as two,
    ):
        await one.create_session(**HERE)
        mine = await enter(one)
        await begin(mine)
        for seconds in (-3600.0, -LEASE_S, 0.0, LEASE_S / 2):
            clock.steps[0] += seconds
            with pytest.raises(SessionBusyError):
                await enter(two, reject=True)
            await mine.append(Event(author="a", message="mine", invocation_id="e-1"))
            await mine.renew()
        [running] = await two.list_invocations()
        assert running.status == InvocationStatus.RUNNING
        await mine.finish(InvocationStatus.COMPLETED)
        theirs = await enter(two, "e-2", reject=True)
        await begin(theirs)
        clock.steps[0] -= 1e6
        with pytest.raises(SessionBusyError):
            await enter(one, "e-3", reject=True)
        assert two._leases.lock is not None
        two._leases.lock.release()  # as the end of the process does
        assert [found.status for found in await one.list_invocations()] == ["completed", "interrupted"]
        writer = await enter(one, "e-3", reject=True)
        await begin(writer)
        with pytest.raises(StaleSessionError):
            await theirs.append(Event(author="a", message="too late", invocation_id="e-2"))
        await theirs.finish(InvocationStatus.FAILED)
        await writer.finish(InvocationStatus.COMPLETED)
        assert texts(await get(two)) == ["hi", *["mine"] * 4, "hi", "hi"]
    check_file(path)
