"""A store with the real SQLite on a recording disk: a kill leaves what was written, a power cut some of it."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import attrs

from .._codec import from_json, to_json
from .._json import JSON, loads
from ..artifacts import ArtifactKey
from ..env import Env
from ..events import Event
from ..memory import MemoryEntry
from ..memory._sqlite_tables import _entry_of
from ..sessions import BaseSessionService, InvocationStatus, SessionKey, SqliteSessionService, verify
from ..sessions._sqlite._artifacts import NO_SESSION
from ..sessions._sqlite._create import create_session
from ..sessions._sqlite._delete import delete_session
from ..sessions._sqlite._file import Transaction
from ..sessions._sqlite._state import NO_USER
from ._artifacts import SharedArtifacts, StoredArtifacts
from ._checks import State
from ._choices import Choices
from ._disk import CUTS, Disk, Truncate, write_image
from ._memories import SharedMemories, StoredMemories
from ._processes import Process
from ._store import SETTER, ObservedService, Store, creation
from ._vfs import Fault, RecordingVFS
from ._witness import Witness

__all__ = ["SqliteStore", "new_file"]

# A new file in so many worlds; the others begin with one that has its tables, which takes a third of the time.
NEW_FILE_ONE_IN = 8
# How many initial states are remembered as files: a search has one, mostly, and a file has 150 kB.
STATES_KEPT_MAX = 16


class _SqliteService(ObservedService, SqliteSessionService):
    """A service of one process, which knows nothing of those of others in the same Python."""

    def __init__(self, path: Path, process: Process, witness: Witness) -> None:
        super().__init__(path, env=process.env)
        self._file.name = path.name  # where it is, is another place each time
        self.process = process
        self.witness = witness

    def store_id(self) -> tuple[Path | None, int]:
        return self._path, self.process.number


@cache
def new_file() -> bytes:
    """A session file with nothing in it but its tables."""
    with tempfile.TemporaryDirectory(prefix="minirun-") as folder:
        service = SqliteSessionService(Path(folder) / "world.db")
        service._file._connect()
        service._file._disconnect()
        return (Path(folder) / "world.db").read_bytes()


@attrs.frozen(eq=False)
class _FixedEnv(Env):
    """For a file that is the same in every process that makes it."""

    def new_id(self, path: str) -> str:
        """The id of the only owner that such a file has."""
        return f"{0:032x}"


@lru_cache(maxsize=STATES_KEPT_MAX)
def file_with(app_name: str, created: str) -> bytes:
    """A session file that has an app's initial state, of which *created* is the event; its session is deleted."""
    with tempfile.TemporaryDirectory(prefix="minirun-") as folder:
        path = Path(folder) / "world.db"
        path.write_bytes(new_file())
        service = SqliteSessionService(path, env=_FixedEnv())
        _seed(service, SessionKey(app_name, SETTER, SETTER), from_json(Event, created))
        service._file._disconnect()
        service._leases.release()
        return path.read_bytes()


def _seed(service: SqliteSessionService, key: SessionKey, made: Event) -> None:
    """Commit an app's initial state, and let it be certain, whatever is cut later."""
    db = service._file._begin_writing(service._file._opened())
    transaction = Transaction(db, {})
    create_session(service._cache, key, [made], [to_json(made)], transaction)
    delete_session(service._cache, service._leases, key, transaction)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for apply in transaction._callbacks:
        apply()


class SqliteStore(Store):
    """The real SQLite on a recording disk; each power cut leaves another folder."""

    def __init__(self, folder: Path, choices: Choices, witness: Witness, new_file: bytes) -> None:
        self._root = folder
        self._choices = choices
        self._witness = witness
        self._cuts = 0
        begins_new = choices.choose(NEW_FILE_ONE_IN, "whether the file is new") == 1
        files = {} if begins_new else {"world.db": new_file}
        self._disk = Disk(files)
        self._folder = folder / "0"
        write_image(files, self._folder)
        self._services: dict[int, _SqliteService] = {}
        self._disks: dict[int, RecordingVFS] = {}
        self._observer: sqlite3.Connection | None = None
        self._locker: sqlite3.Connection | None = None
        self._read_at = -1  # how much of the trace was done when the following was read
        self._read: dict[tuple[str, str | None, str | None], dict[str, JSON]] = {}
        self._stored: dict[SessionKey, dict[int, str | None]] | None = None
        self._calm = RecordingVFS(reads=False)  # for looking without being noticed
        self._salts = 1 + choices.choose(2**16, "salts of SQLite", lambda randomness: randomness.randrange(2**16))
        self._calm.seed(self._salts)
        self._trace = self._calm.trace

    def disk_for(self, process: Process, fault: Fault) -> RecordingVFS:
        """A way to the world's disk, of a process of its own."""
        vfs = self._disks[process.number] = RecordingVFS()
        vfs.trace = self._trace
        vfs.fault = fault
        return vfs

    def open(self, process: Process) -> BaseSessionService:
        """A service on the file."""
        service = self._services[process.number] = _SqliteService(self._folder / "world.db", process, self._witness)
        return service

    def open_artifacts(self, process: Process) -> SharedArtifacts:
        """Those in the file."""
        return SharedArtifacts(self._services[process.number], self._witness.artifacts)

    def open_memories(self, process: Process) -> SharedMemories:
        """Those in the file."""
        return SharedMemories(self._services[process.number], self._witness.memories)

    def bury(self, process: Process) -> None:
        """Close what the dead process had open: its locks go, and nothing else changes."""
        service, vfs = self._services.pop(process.number), self._disks.pop(process.number)
        service._file._disconnect()
        service._leases.release()
        vfs.close()

    def lock(self) -> bool:
        """Let another program hold the write lock of the file."""
        if self._locker is not None or not (self._folder / "world.db").exists():
            return False
        locker = self._calm.connect(str(self._folder / "world.db"))
        try:
            locker.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            self._close_calmly(locker)
            return False
        self._locker = locker
        return True

    def unlock(self) -> None:
        """Let it give the lock back."""
        locker, self._locker = self._locker, None
        if locker is not None:
            locker.execute("ROLLBACK")
            self._close_calmly(locker)

    def power_is_back(self) -> None:
        """Make the folder that the power cut has left."""
        self.unlock()
        self._stop_observing()
        self._disk.replay(self._trace)
        del self._trace[:]
        cut = CUTS[self._choices.choose(len(CUTS), "what the power cut leaves")]
        image = self._disk.image(cut, _ChosenRandomness(self._choices))
        self._cuts += 1
        self._folder = self._root / str(self._cuts)
        write_image(image, self._folder)
        self._disk = Disk(image)

    def close(self) -> None:
        """Close what is open; SQLite must not call a disk that is gone."""
        self.unlock()
        self._stop_observing()
        for service in self._services.values():
            service._file._disconnect()
            service._leases.release()
        for vfs in (*self._disks.values(), self._calm):
            vfs.close()

    def seed(self, app_name: str, state: dict[str, object]) -> None:
        """Commit an app's initial state, now; nothing goes wrong with it."""
        service = next(iter(self._services.values()))
        key = SessionKey(app_name, SETTER, SETTER)
        made = creation(state)
        self.unlock()
        with self._nothing_fails():
            if self._is_unused():
                self._begin_with(file_with(app_name, to_json(made)))
                service._file._opened()
            else:
                _seed(service, key, made)
        self._witness.seeded(key, made)

    def _is_unused(self) -> bool:
        """Whether nobody has opened the file yet."""
        is_open = self._observer is not None or any(each._file.generation for each in self._services.values())
        return not (is_open or self._cuts or self._trace)

    def _begin_with(self, file: bytes) -> None:
        """Let the disk have the file as if its state had been committed here."""
        (self._folder / "world.db").write_bytes(file)
        self._disk = Disk({"world.db": file, "world.db-wal": b""})
        self._trace.append(Truncate("world.db-wal", 0))  # of which nobody knows whether it is certain
        self._calm.seed(self._salts)  # to make the file may have taken some

    @contextlib.contextmanager
    def _nothing_fails(self) -> Iterator[None]:
        faults = [(vfs, vfs.fault) for vfs in self._disks.values()]
        for vfs, _ in faults:
            vfs.fault = None
        try:
            yield
        finally:
            for vfs, fault in faults:
                vfs.fault = fault

    # --- looking

    def _rows(self, query: str, *arguments: object) -> list[Any]:
        """Read through a connection of its own, to which nothing happens."""
        if self._observer is None:
            self._observer = self._calm.connect(str(self._folder / "world.db"))
        try:
            return self._observer.execute(query, arguments).fetchall()
        except sqlite3.OperationalError:
            if self._observer.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                return []  # nobody has used the file yet
            raise

    def _stop_observing(self) -> None:
        self._read_at = -1
        observer, self._observer = self._observer, None
        if observer is not None:
            self._close_calmly(observer)

    def _close_calmly(self, connection: sqlite3.Connection) -> None:
        """Close a connection without a change of the disk: the last one to close would check in the log."""
        self._calm.fault = lambda operation, file: self.error
        connection.close()
        self._calm.fault = None

    def _forget_what_has_changed(self) -> None:
        """What was read once is read again only if the disk has changed."""
        if self._read_at != len(self._trace):
            self._read_at = len(self._trace)
            self._read.clear()
            self._stored = None

    def state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        """The committed state."""
        self._forget_what_has_changed()
        place = (app_name, user_id, session_id)
        found = self._read.get(place)
        if found is None:
            found = self._read[place] = self._read_state(*place)
        return found.copy()

    def _read_state(self, app_name: str, user_id: str | None, session_id: str | None) -> dict[str, JSON]:
        query = "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL"
        found = {key: loads(value) for key, value in self._rows(query, app_name, NO_USER)}
        if user_id is not None:
            found.update({key: loads(value) for key, value in self._rows(query, app_name, user_id)})
            if session_id is not None:
                rows = self._rows(
                    "SELECT key, value FROM session_state WHERE session ="
                    " (SELECT id FROM sessions WHERE app_name = ? AND user_id = ? AND session_id = ?)",
                    app_name,
                    user_id,
                    session_id,
                )
                found.update({key: loads(value) for key, value in rows})
        return found

    def stored(self) -> dict[SessionKey, dict[int, str | None]]:
        """The ids of all events."""
        self._forget_what_has_changed()
        if self._stored is None:
            self._stored = self._read_stored()
        return self._stored

    def _read_stored(self) -> dict[SessionKey, dict[int, str | None]]:
        rows = self._rows(
            "SELECT s.app_name, s.user_id, s.session_id, e.seq, json_extract(e.data, '$.id')"
            " FROM sessions s LEFT JOIN events e ON e.log = s.id ORDER BY s.id, e.seq"
        )
        found: dict[SessionKey, dict[int, str | None]] = {}
        for app, user, session, seq, event_id in rows:
            ids = found.setdefault(SessionKey(app, user, session), {})
            if seq is not None:
                ids[seq] = event_id
        return found

    def log(self, key: SessionKey) -> list[Event]:
        """All events of a session, those of its shared past included."""
        rows = self._rows(
            "WITH wanted AS (SELECT id FROM sessions WHERE app_name = ? AND user_id = ? AND session_id = ?)"
            " SELECT e.data, e.seq FROM wanted w JOIN events e ON e.log = w.id"
            " UNION SELECT e.data, e.seq FROM wanted w JOIN shared_pasts p ON p.session = w.id"
            " JOIN events e ON e.log = p.log AND e.seq BETWEEN p.first_seq AND p.last_seq ORDER BY 2",
            key.app_name,
            key.user_id,
            key.session_id,
        )
        return [from_json(Event, data) for data, _ in rows]

    def all_state(self) -> State:
        """Everything that is stored beside the events."""
        sessions: dict[SessionKey, dict[str, JSON]] = {}
        for app, user, session, name, value in self._rows(
            "SELECT s.app_name, s.user_id, s.session_id, t.key, t.value"
            " FROM sessions s JOIN session_state t ON t.session = s.id"
        ):
            sessions.setdefault(SessionKey(app, user, session), {})[name] = loads(value)
        shared: dict[tuple[str, str], dict[str, JSON]] = {}
        for app, user, name, value in self._rows(
            "SELECT app_name, user_id, key, value FROM shared_state WHERE value IS NOT NULL"
        ):
            shared.setdefault((app, "" if user == NO_USER else user), {})[name] = loads(value)
        return State(sessions, shared)

    def has_ended(self, key: SessionKey, invocation_id: str, status: InvocationStatus) -> bool:
        """Whether this end of an invocation is recorded."""
        rows = self._rows(
            "SELECT i.status FROM invocations i JOIN sessions s ON s.id = i.session WHERE s.app_name = ?"
            " AND s.user_id = ? AND s.session_id = ? AND i.invocation_id = ?",
            key.app_name,
            key.user_id,
            key.session_id,
            invocation_id,
        )
        return rows == [(str(status),)]

    forks_copy = True

    def artifacts(self) -> StoredArtifacts:
        """All artifacts, as everybody sees them, with the hashes of the contents as they are."""
        contents: dict[str, bytes] = {}
        rows = self._rows(
            "SELECT c.sha256, k.data FROM contents c LEFT JOIN chunks k ON k.content = c.id"
            " WHERE c.sha256 IS NOT NULL ORDER BY c.id, k.number"
        )
        for sha256, data in rows:
            contents[sha256] = contents.get(sha256, b"") + (data or b"")
        hashes = {sha256: hashlib.sha256(content).hexdigest() for sha256, content in contents.items()}
        found: dict[ArtifactKey, dict[int, str | None]] = {}
        for app, user, session, filename, number, sha256 in self._rows(
            "SELECT a.app_name, a.user_id, a.session_id, a.filename, v.version, v.sha256"
            " FROM artifacts a JOIN artifact_versions v ON v.artifact = a.id WHERE v.stager IS NULL ORDER BY a.id"
        ):
            key = ArtifactKey(app, user, None if session == NO_SESSION else session, filename)
            found.setdefault(key, {})[number] = None if sha256 is None else hashes.get(sha256, "not there")
        return found

    def memories(self) -> StoredMemories:
        """All memories."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'memory_store'"):
            return {}
        found: dict[tuple[str, str], list[MemoryEntry]] = {}
        for app, user, *columns in self._rows(
            "SELECT u.app_name, u.user_id, e.id, e.session_id, e.timestamp, e.data"
            " FROM memory_users u JOIN memory_entries e ON e.user = u.id ORDER BY e.number"
        ):
            found.setdefault((app, user), []).append(_entry_of(columns))
        return found

    def damages(self) -> list[str]:
        """What `verify` finds."""
        return [str(damage) for damage in verify(self._folder / "world.db")]


class _ChosenRandomness:
    """The randomness of a power cut, from the world's choices."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def randrange(self, stop: int) -> int:
        """A number below *stop*."""
        return self._choices.choose(stop, "power cut")
