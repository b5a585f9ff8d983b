"""
What outlives a simulated process: a disk with a SQLite file, or dicts that play a disk.

A store opens a session service for each life. It hears of every append that was acknowledged, and knows what a dead
process may leave: everything it has written, after a kill; what was synced and any of the rest, after a power cut.
"""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._codec import event_to_json
from .._json import JSON, loads
from ..env import Env
from ..errors import StorageRolledBackError
from ..events import Event, EventActions
from ..sessions import BaseSessionService, InMemorySessionService, InvocationStatus, SessionKey, SqliteSessionService
from ..sessions._fold import fold
from ..sessions._live import LiveSession
from ..sessions._sqlite_file import Transaction
from ..sessions._sqlite_schema import NO_USER
from ..sessions._state import Values
from ..types import changed
from ._choices import Choices
from ._disk import CUTS, Disk, write_image
from ._vfs import Operation, RecordingVFS

__all__ = ["MemoryStore", "SqliteStore", "Store"]

# Under this user the initial state of apps is created, in a session for each app.
SETTER = "simulation"


class Store(ABC):
    """What a world keeps its sessions in."""

    error = sqlite3.SQLITE_IOERR
    vfs: RecordingVFS | None = None
    service: Any

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[SessionKey, int], str | None] = {}

    def prepare(self) -> None:
        """Make ready what the next process needs before it has an Env."""

    @abstractmethod
    def open(self, env: Env) -> BaseSessionService:
        """Open a service for a new process."""

    @abstractmethod
    def die(self, *, power: bool) -> None:
        """From now on the process changes nothing any more."""

    @abstractmethod
    def bury(self) -> None:
        """All its tasks have ended: make what is left ready for the next one."""

    def close(self) -> None:
        """The world has ended."""

    @abstractmethod
    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit an app's initial state, now."""

    @abstractmethod
    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """The committed state."""

    def note(self, live: LiveSession, stored: Event) -> None:
        """An append was acknowledged."""
        assert stored.seq is not None
        self.acknowledged[live.key, stored.seq] = stored.id

    async def check(self, fail: Callable[[str], None]) -> None:
        """Compare everything that is stored with what it must be."""
        service: BaseSessionService = self.service
        logs: dict[SessionKey, list[Event]] = {}
        for listed in (await service.list_sessions(app_name=None)).sessions:
            key = SessionKey(listed.app_name, listed.user_id, listed.id)
            logs[key] = await _check_session(service, key, fail)
        for (key, seq), event_id in self.acknowledged.items():
            log = logs.get(key, [])
            if seq >= len(log) or log[seq].id != event_id:
                fail(f"{key}: event {seq} was acknowledged and is not stored")
        for invocation in await service.list_invocations():
            if invocation.status == "running":
                fail(f"invocation {invocation.invocation_id} is listed as running, and nothing runs")


async def _check_session(service: BaseSessionService, key: SessionKey, fail: Callable[[str], None]) -> list[Event]:
    app, user, name = key.app_name, key.user_id, key.session_id
    log = await service.read_events(app_name=app, user_id=user, session_id=name)
    session = await service.get_session(app_name=app, user_id=user, session_id=name)
    if session is None or [event.seq for event in log] != list(range(session.revision + 1)):
        fail(f"{key}: its log has a gap or ends early: {[event.seq for event in log]}")
        return log
    folded = fold(Values({}, {}, {}), log, shared=False).session
    own = {name: value for name, value in session.state.items() if not name.startswith(("user:", "app:"))}
    if own != folded:
        fail(f"{key}: its state {own} is not the fold of its log, {folded}")
    answers: list[str | None] = []
    calls: list[str | None] = []
    for event in log:
        calls.extend(call.id for call in event.get_function_calls())
        answers.extend(response.id for response in event.get_function_responses())
    twice = {answer for answer in answers if answers.count(answer) > 1}
    if twice:
        fail(f"{key}: calls {sorted(map(str, twice))} were answered twice")
    return log


# --- dicts ------------------------------------------------------------------------------------------------------------


class _MemoryService(InMemorySessionService):
    """A service whose dicts are a disk: another process may go on with them, once this one is dead."""

    def __init__(self, store: MemoryStore, env: Env) -> None:
        super().__init__(env=env)
        self._store = store
        self._is_dead = False

    async def _append(self, live: LiveSession, event: Event, **options: Any) -> Event:
        stored = await super()._append(live, event, **options)
        self._store.note(live, stored)
        return stored

    async def _commit(self, live: LiveSession, event: Event, **options: Any) -> None:
        await self._env.point("commit")
        self._refuse_the_dead()
        await super()._commit(live, event, **options)

    async def _create(self, *arguments: Any) -> LiveSession:
        await self._env.point("create")
        self._refuse_the_dead()
        return await super()._create(*arguments)

    async def _finish(self, *arguments: Any) -> None:
        self._refuse_the_dead()
        await super()._finish(*arguments)

    def _refuse_the_dead(self) -> None:
        if self._is_dead:
            raise StorageRolledBackError("this process is dead")


class MemoryStore(Store):
    """A store that is only a model of a disk: fast, and without faults of its own."""

    def open(self, env: Env) -> BaseSessionService:
        """A service that goes on with what the last one has left."""
        service = _MemoryService(self, env)
        if hasattr(self, "service"):
            for name in (
                "_runs",
                "_sessions",
                "_ordered",
                "_logs",
                "_app_values",
                "_user_values",
                "_invocations",
                "_incarnations",
            ):
                setattr(service, name, getattr(self.service, name))
            for live in service._ordered:
                live.held = False
        self.service = service
        return service

    def die(self, *, power: bool) -> None:
        """Refuse what the dead process still asks for."""
        self.service._is_dead = True

    def bury(self) -> None:
        """Its unfinished invocations are interrupted: nobody runs them any more."""
        for place, invocation in self.service._invocations.items():
            if invocation.status is InvocationStatus.RUNNING:
                self.service._invocations[place] = changed(invocation, status=InvocationStatus.INTERRUPTED)

    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit an app's initial state, now."""
        key = SessionKey(app_name, SETTER, SETTER)
        creation = Event(id=SETTER, author="system", seq=0, timestamp=0.0, actions=EventActions(state_delta=state))
        with contextlib.suppress(StopIteration):
            InMemorySessionService._create(self.service, key, [creation]).send(None)

    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """The committed state."""
        found = dict(self.service._app_values.get(app_name, {}))
        if user_id is not None:
            found.update(self.service._user_values.get((app_name, user_id), {}))
            if session_id is not None:
                live = self.service._sessions.get(SessionKey(app_name, user_id, session_id))
                found.update({} if live is None else live.values.session)
        return found


# --- a disk -----------------------------------------------------------------------------------------------------------


class _SqliteService(SqliteSessionService):
    def __init__(self, store: SqliteStore, path: Path, env: Env) -> None:
        super().__init__(path, env=env)
        self._file.name = path.name  # where it is, is another place each time
        self._store = store

    async def _append(self, live: LiveSession, event: Event, **options: Any) -> Event:
        stored = await super()._append(live, event, **options)
        self._store.note(live, stored)
        return stored


class SqliteStore(Store):
    """The real SQLite on a recording disk; each power cut leaves another folder."""

    def __init__(self, folder: Path, choices: Choices, fault: Callable[[Operation, str], int]) -> None:
        super().__init__()
        self._root = folder
        self._choices = choices
        self._fault = fault
        self._disk = Disk()
        self._replayed = 0
        self._cuts = 0
        self._power_failed = False
        self._is_dead = False
        self._is_observed = False
        self._folder = folder / "0"
        self._folder.mkdir()
        self._reader: sqlite3.Connection | None = None

    def prepare(self) -> None:
        """A disk for the next process."""
        self._is_dead = False
        self.vfs = RecordingVFS()
        self.vfs.fault = self._answer
        self.vfs.seed(1 + self._choices.choose(2**16, "salts of SQLite", lambda luck: luck.randrange(2**16)))
        self._replayed = 0

    def _answer(self, operation: Operation, file: str) -> int:
        if self._is_observed:
            return 0
        return self.error if self._is_dead else self._fault(operation, file)

    def open(self, env: Env) -> BaseSessionService:
        """A service on the file."""
        service = self.service = _SqliteService(self, self._folder / "world.db", env)
        return service

    def die(self, *, power: bool) -> None:
        """Let every operation of the disk fail from now on."""
        self._is_dead = True
        self._power_failed = power

    def bury(self) -> None:
        """Close what the dead process had open; after a power cut, make the folder that it has left."""
        assert self.vfs is not None
        self._disconnect()
        self._disk.replay(self.vfs.trace)
        if self._power_failed:
            cut = CUTS[self._choices.choose(len(CUTS), "what the power cut leaves")]
            image = self._disk.image(cut, _Luck(self._choices))
            self._cuts += 1
            self._folder = self._root / str(self._cuts)
            write_image(image, self._folder)
            self._disk = Disk(image)
        self.vfs.close()

    def close(self) -> None:
        """Close what is open; SQLite must not call a disk that is gone."""
        if self.vfs is not None and self.vfs.open_files:
            self._disconnect()
        if self.vfs is not None:
            self.vfs.close()

    def _disconnect(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self.service._file._disconnect()

    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit an app's initial state, now; nothing goes wrong with it."""
        with self._observing():
            self._seed(app_name, state)

    def _seed(self, app_name: str, state: dict[str, object]) -> None:
        key = SessionKey(app_name, SETTER, SETTER)
        creation = Event(id=SETTER, author="system", seq=0, timestamp=0.0, actions=EventActions(state_delta=state))
        db = self.service._file._begin("BEGIN IMMEDIATE")
        transaction = Transaction(db, {})
        self.service._do_create(key, [creation], [event_to_json(creation)], transaction)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # certain, whatever is cut later
        for apply in transaction._callbacks:
            apply()

    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """The committed state, through a connection of its own, to which nothing happens."""
        with self._observing():
            return self._state(app_name, user_id, session_id)

    @contextlib.contextmanager
    def _observing(self) -> Iterator[None]:
        self._is_observed = True
        try:
            yield
        finally:
            self._is_observed = False

    def _state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        if self._reader is None:
            assert self.vfs is not None
            self._reader = self.service.env.connect(str(self._folder / "world.db"))
        db = self._reader
        query = "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL"
        found = {key: loads(value) for key, value in db.execute(query, (app_name, NO_USER))}
        if user_id is not None:
            found.update({key: loads(value) for key, value in db.execute(query, (app_name, user_id))})
            if session_id is not None:
                rows = db.execute(
                    "SELECT key, value FROM session_state WHERE session ="
                    " (SELECT id FROM sessions WHERE app_name = ? AND user_id = ? AND session_id = ?)",
                    (app_name, user_id, session_id),
                )
                found.update({key: loads(value) for key, value in rows})
        return found


class _Luck:
    """The luck of a power cut, from the world's choices."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def randrange(self, stop: int) -> int:
        """A number below *stop*."""
        return self._choices.choose(stop, "power cut")
