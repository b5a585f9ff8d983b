"""
A disk below SQLite that records and fails: a VFS (https://sqlite.org/vfs.html) in ctypes, around the default one.

The SQLite above is the real one, unchanged, and so are the files. What this adds:

*   *A trace* of all that changes files, in order. It is what `Disk` replays into the images of power cuts.
*   *Faults*. Before SQLite opens, reads, writes, truncates, syncs or deletes, `fault` is asked, and what it answers
    other than 0 is what SQLite gets, instead of what it asked for. What has failed is not in the trace.
*   *Sameness*. With `clock` and `seed` the same operations give the same trace, byte for byte.

How it works. A registered VFS is a table of functions. Ours is a copy of the default one with some functions replaced;
the files that it opens are the default's own, except that the table of functions that each file carries is replaced by
a copy with some of *its* functions replaced. So nothing is wrapped, and what is not replaced costs nothing.

The rules of this file:

*   What C may call is kept alive until C cannot call it any more: while registered, and while a file is open.
*   No exception leaves a callback: it is kept, SQLite is told of an I/O error, and `close` raises what was kept.
*   A sync is recorded and not done. Nothing in a simulation has to survive its machine, and it would be most of the
    time that a simulation takes.

Not seen: the shared memory of the WAL index (`-shm`), which no power cut keeps; temporary files, which no program
finds again; locks.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, string_at
from functools import cache
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import attrs
import trio

from minirun.env import Env
from minirun.errors import NotSupportedError

from .disk import Delete, Entry, Mark, Sync, Truncate, Write

__all__ = ["DiskEnv", "Fault", "Operation", "RecordingVFS", "why_unavailable"]

T = TypeVar("T")

Operation: TypeAlias = Literal["open", "read", "write", "truncate", "sync", "delete"]
Fault: TypeAlias = Callable[[Operation, str], int]
"""Asked with what is about to be done and the name of the file; returns 0, or a result code of SQLite."""

# --- the tables of functions, as sqlite3.h has them ------------------------------------------------------------------

_VFS_FUNCTIONS: Final = (
    "xOpen xDelete xAccess xFullPathname xDlOpen xDlError xDlSym xDlClose xRandomness xSleep xCurrentTime xGetLastError"
    " xCurrentTimeInt64 xSetSystemCall xGetSystemCall xNextSystemCall"
)
_FILE_FUNCTIONS: Final = (
    "xClose xRead xWrite xTruncate xSync xFileSize xLock xUnlock xCheckReservedLock xFileControl xSectorSize"
    " xDeviceCharacteristics xShmMap xShmLock xShmBarrier xShmUnmap xFetch xUnfetch"
)

# The functions that are replaced or called, by name. Pointers to what we only hand on are plain addresses.
_PROTOTYPES: Final[dict[str, Any]] = {
    "xOpen": CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "xDelete": CFUNCTYPE(c_int, c_void_p, c_char_p, c_int),
    "xSleep": CFUNCTYPE(c_int, c_void_p, c_int),
    "xCurrentTimeInt64": CFUNCTYPE(c_int, c_void_p, POINTER(c_int64)),
    "xClose": CFUNCTYPE(c_int, c_void_p),
    "xRead": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "xWrite": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "xTruncate": CFUNCTYPE(c_int, c_void_p, c_int64),
    "xSync": CFUNCTYPE(c_int, c_void_p, c_int),
}


def _fields(names: str) -> list[tuple[str, Any]]:
    return [(name, _PROTOTYPES.get(name, c_void_p)) for name in names.split()]


class _VFSTable(Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        *_fields(_VFS_FUNCTIONS),
    ]


class _FileTable(Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = [("iVersion", c_int), *_fields(_FILE_FUNCTIONS)]


class _File(Structure):
    """The beginning of every `sqlite3_file`: its table, or NULL if it is not open."""

    _fields_ = [("pMethods", POINTER(_FileTable))]


# Older versions of the tables end earlier: version 1 of the files' before the shared memory, version 2 before mmap.
_FILE_TABLE_ENDS: Final = {1: _FileTable.xShmMap.offset, 2: _FileTable.xFetch.offset}

_OK: Final = sqlite3.SQLITE_OK
_SQLITE_TESTCTRL_PRNG_SEED: Final = 28

# SQLite counts time in milliseconds since noon of 24 November 4714 BC; this is the beginning of 1970.
_EPOCH_MS: Final = 210_866_760_000_000


# --- the library ------------------------------------------------------------------------------------------------------


def why_unavailable() -> str | None:
    """
    Return why there can be no RecordingVFS here, in a sentence for those who skip a test; None if there can.

    It needs the very library that Python's `sqlite3` uses, within reach of ctypes.
    """
    if sys.platform != "linux":
        return f"the recording VFS was tried on Linux only, and this is {sys.platform}"
    path = getattr(_sqlite3, "__file__", None)
    if path is None:
        return "this Python has SQLite built in, where ctypes cannot find it"
    try:
        library = _library(path)
    except (OSError, AttributeError) as error:
        return f"ctypes cannot reach the SQLite that Python uses: {error}"
    if library.sqlite3_sourceid().decode() != _source_id():
        return "the SQLite that ctypes reaches is not the one that Python uses"
    if library.sqlite3_vfs_find(None).contents.iVersion < 3:
        return f"the VFS of SQLite {sqlite3.sqlite_version} is older than expected"
    return None


@cache
def _library(path: str) -> ctypes.CDLL:
    # Names are looked up in what the extension module itself was linked with, so this is its library and no other.
    library = ctypes.CDLL(path)
    library.sqlite3_sourceid.restype = c_char_p
    library.sqlite3_vfs_find.argtypes = [c_char_p]
    library.sqlite3_vfs_find.restype = POINTER(_VFSTable)
    library.sqlite3_vfs_register.argtypes = [POINTER(_VFSTable), c_int]
    library.sqlite3_vfs_unregister.argtypes = [POINTER(_VFSTable)]
    library.sqlite3_test_control.argtypes = [c_int]  # and more, which depend on the first
    return library


@cache
def _source_id() -> str:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        [source_id] = connection.execute("SELECT sqlite_source_id()").fetchone()
    return str(source_id)


# --- the VFS ----------------------------------------------------------------------------------------------------------

# Those that C may call: an object that nobody refers to any more would take its callbacks with it.
_CALLABLE: Final[set[RecordingVFS]] = set()


class RecordingVFS:
    """
    A disk for databases; use it in a `with` block, or close it.

    In the trace a file has the last part of its path as its name: one of these stands for one folder.

    Args:
        reads: Whether `fault` is asked about reads, too. It takes longer than the reading.

    Raises:
        NotSupportedError: There can be none here; see `why_unavailable`.
    """

    def __init__(self, *, reads: bool = True) -> None:
        problem = why_unavailable()
        if problem is not None:
            raise NotSupportedError(problem)
        self.trace: list[Entry] = []
        """What was done to the disk, and the caller's marks, in order. It may be cleared at any time."""
        self.fault: Fault | None = None
        """What decides whether the next operation fails."""
        self.clock: Callable[[], float] | None = None
        """The time for SQLite, in seconds since the epoch; None is the real one. Sleeping takes none of it."""
        self._asks_about_reads = reads
        self._kept: BaseException | None = None  # what a callback has raised
        self._files: dict[int, str] = {}  # the names of the open files, by their address
        self._tables: dict[int, tuple[_FileTable, _FileTable]] = {}  # the default's and ours, by address of the first
        self._callbacks: list[Any] = []
        self._library = _library(_sqlite3.__file__)
        self._default = self._library.sqlite3_vfs_find(None)
        self._real_open, self._real_delete = self._default.contents.xOpen, self._default.contents.xDelete
        self.name = f"minirun-{id(self):x}"
        """By which SQLite knows it, as in `file:chat.db?vfs=NAME`; no other that is open has it."""
        self._table = _VFSTable.from_buffer_copy(self._default.contents)
        self._table.pNext = None
        self._table.zName = self.name.encode()
        self._replace(self._table, "xOpen", self._open)
        self._replace(self._table, "xDelete", self._delete)
        self._replace(self._table, "xSleep", self._sleep)
        self._replace(self._table, "xCurrentTimeInt64", self._now)
        code = self._library.sqlite3_vfs_register(ctypes.byref(self._table), 0)
        assert code == _OK, f"SQLite refuses the VFS: {code}"
        self._registered = True
        self._seeded = False
        _CALLABLE.add(self)

    def __enter__(self) -> RecordingVFS:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException as kept:
            if error is None:
                raise
            error.add_note(f"and within SQLite, before: {kept!r}")

    def close(self) -> None:
        """
        Take it away from SQLite: no database can be opened on it any more. Those that are open go on as before.

        Raises:
            BaseException: What the fault hook or the clock has raised, if one has.
        """
        self._unregister()
        kept, self._kept = self._kept, None
        if kept is not None:
            raise kept

    @property
    def open_files(self) -> list[str]:
        """The names of the files that are open; a connection that was not closed shows here."""
        return sorted(self._files.values())

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        """Open a database on this disk, as `Env.connect` does; a `file:` URI keeps its query."""
        address = database if uri else f"file:{quote(database)}"
        address += f"{'&' if '?' in address else '?'}vfs={self.name}"
        return sqlite3.connect(address, uri=True, timeout=0, isolation_level=None, check_same_thread=False)

    def mark(self, what: object) -> None:
        """Leave a Mark in the trace."""
        self.trace.append(Mark(what))

    def seed(self, number: int) -> None:
        """
        Let SQLite's random numbers follow from *number*, which is not 0, from here on and until this is closed.

        Among them are the salts of a log. There is one generator in the process, so what else uses SQLite disturbs it.
        """
        assert 0 < number < 2**31, f"expected 1 to 2**31 - 1, found {number}"
        self._control_randomness(number)
        self._seeded = True

    def _control_randomness(self, number: int) -> None:
        self._library.sqlite3_test_control(_SQLITE_TESTCTRL_PRNG_SEED, c_int(number), c_void_p(None))

    def _unregister(self) -> None:
        if self._registered:
            self._registered = False
            self._library.sqlite3_vfs_unregister(ctypes.byref(self._table))
            if self._seeded:
                self._control_randomness(0)  # the system's randomness again
        self._release()

    def _release(self) -> None:
        if not self._registered and not self._files:
            _CALLABLE.discard(self)

    # --- what SQLite calls: the disk

    def _open(self, _: int, path: int | None, file: int, flags: int, flags_out: int | None) -> int:
        """Open a file, and give it our table. A file without a name is a temporary one, and none of ours."""
        if path is None:
            return int(self._real_open(self._default, path, file, flags, flags_out))
        name = _name(string_at(path))
        opened = _File.from_address(file)
        opened.pMethods = None  # says that it is not open, should it fail
        code = self._ask("open", name) or self._real_open(self._default, path, file, flags, flags_out)
        if opened.pMethods:
            self._files[file] = name
            opened.pMethods = ctypes.pointer(self._table_for(opened.pMethods.contents))
        return code

    def _delete(self, _: int, path: bytes, synced: int) -> int:
        name = _name(path)
        code = self._ask("delete", name) or self._real_delete(self._default, path, synced)
        return self._done(code, Delete(name, bool(synced)))

    def _sleep(self, _: int, duration_us: int) -> int:
        return duration_us

    def _now(self, _: int, now_ms: Any) -> int:
        seconds = time.time() if self.clock is None else self.clock()
        now_ms[0] = _EPOCH_MS + round(seconds * 1000)
        return _OK

    def _ask(self, operation: Operation, name: str) -> int:
        return 0 if self.fault is None else self.fault(operation, name)

    def _done(self, code: int, entry: Entry) -> int:
        if code == _OK:
            self.trace.append(entry)
        return code

    # --- what SQLite calls: a file

    def _table_for(self, default: _FileTable) -> _FileTable:
        """Our copy of the table that the default VFS has given to a file; it has few, and each is copied once."""
        address = ctypes.addressof(default)
        if address not in self._tables:
            table = _FileTable()
            ctypes.memmove(
                ctypes.byref(table), address, _FILE_TABLE_ENDS.get(default.iVersion, ctypes.sizeof(_FileTable))
            )
            self._replace_in_file(table, default)
            self._tables[address] = (default, table)
        return self._tables[address][1]

    def _replace_in_file(self, table: _FileTable, default: _FileTable) -> None:
        real_close, real_read = default.xClose, default.xRead
        real_write, real_truncate = default.xWrite, default.xTruncate

        def close(file: int) -> int:
            code: int = real_close(file)
            self._files.pop(file, None)
            self._release()
            return code

        def read(file: int, buffer: int, length: int, offset: int) -> int:
            fault = self.fault
            return (fault is not None and fault("read", self._files[file])) or real_read(file, buffer, length, offset)

        def write(file: int, buffer: int, length: int, offset: int) -> int:
            name = self._files[file]  # most of what is done are writes, so each call that is left out shows
            fault = self.fault
            code: int = (fault is not None and fault("write", name)) or real_write(file, buffer, length, offset)
            if code == _OK:
                self.trace.append(Write(name, offset, string_at(buffer, length)))
            return code

        def truncate(file: int, size: int) -> int:
            name = self._files[file]
            code = self._ask("truncate", name) or real_truncate(file, size)
            return self._done(code, Truncate(name, size))

        def sync(file: int, _: int) -> int:
            name = self._files[file]
            return self._done(self._ask("sync", name), Sync(name))

        self._replace(table, "xClose", close)
        if self._asks_about_reads:
            self._replace(table, "xRead", read)
        self._replace(table, "xWrite", write)
        self._replace(table, "xTruncate", truncate)
        self._replace(table, "xSync", sync)

    def _replace(self, table: Structure, name: str, function: Callable[..., int]) -> None:
        """Put *function* into a table, such that no exception leaves it."""

        def guarded(*args: Any) -> int:
            try:
                return function(*args)
            except BaseException as error:  # C would not see it; `close` raises it
                if self._kept is None:
                    self._kept = error
                return sqlite3.SQLITE_IOERR

        callback = _PROTOTYPES[name](guarded)
        self._callbacks.append(callback)
        setattr(table, name, callback)


def _name(path: bytes) -> str:
    return os.fsdecode(path).rpartition("/")[2]


# --- the Env ----------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class DiskEnv(Env):
    """
    The real world, but for its databases, which are on a RecordingVFS, and its worker threads, of which it has none.

    Without threads what is done to the disk is done in the order in which the loop's tasks ask for it.
    """

    vfs: RecordingVFS

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        """Open a database on the VFS."""
        return self.vfs.connect(database, uri=uri)

    async def run_sync(
        self,
        fn: Callable[[], T],
        *,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> T:
        """Call *fn* here, after a checkpoint, as waiting for a thread would be one."""
        await trio.lowlevel.checkpoint()
        return fn()
