"""
Files that are there as a whole or not at all, and that survive a power cut once they are.

*   A file is written under a temporary name, fsynced, renamed, and then its folder is fsynced.
*   The writer of a temporary file holds an OS lock on it, so that one that nobody holds is known to be left behind.
*   A store has one lock for what must not happen at once. It dies with its process.

All of it blocks and belongs in worker threads.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from .._files import open_private
from ..errors import StorageError, StorageFullError, StorageReadOnlyError, StorageRolledBackError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]  # FileArtifactService asks for it

__all__ = [
    "BUSY",
    "FULL",
    "Draft",
    "Folders",
    "fsync_folder",
    "locked",
    "make_folder",
    "remove",
    "storage_error",
    "supported",
    "sweep",
]

T = TypeVar("T")

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

BUSY: Final = object()
"""What `locked` returns if somebody else has the lock."""


def supported() -> bool:
    """Whether this system has the locks that keep several processes apart."""
    return fcntl is not None


def storage_error(error: OSError, doing: str) -> StorageError:
    """Return the typed error for what the system raised before anything was stored."""
    if error.errno in FULL:
        return StorageFullError(f"{doing} failed: {error}; make room on the disk")
    if error.errno in _READ_ONLY:
        return StorageReadOnlyError(f"{doing} failed: {error}; let this user read and write the folder")
    return StorageRolledBackError(f"{doing} failed: {error}; look after the disk; it can be tried again")


def fsync_folder(path: Path) -> None:
    """Let the names in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Folders:
    """Makes folders that survive a power cut."""

    def __init__(self) -> None:
        self._made: set[Path] = set()

    def make(self, path: Path) -> None:
        """Make a folder, and those above it if they are missing, and be certain that its name is on the disk."""
        try:
            try:
                os.mkdir(path, 0o700)
            except FileNotFoundError:
                if path == path.parent:
                    raise
                self.make(path.parent)
                os.mkdir(path, 0o700)  # not again: what is above may be a link that leads nowhere
        except FileExistsError:
            if path in self._made:
                return
        fsync_folder(path.parent)  # also if it was there: who made it may have died before this line
        self._made.add(path)

    def forget(self, path: Path) -> None:
        """Hold this one no longer, for folders of which there are many."""
        self._made.discard(path)


def make_folder(draft: Path, target: Path, files: Mapping[str, str]) -> None:
    """Make a folder with these files, which gets its name when all of them are on the disk, and wait for the name."""
    os.mkdir(draft, 0o700)
    for name, text in files.items():
        file = open_private(draft / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            view = memoryview(text.encode())
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        finally:
            os.close(file)
    fsync_folder(draft)
    os.replace(draft, target)
    fsync_folder(target.parent)


def remove(path: Path) -> None:
    """Delete a file if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def locked(path: Path, work: Callable[[], T]) -> T | object:
    """Do *work* while nobody else holds the lock, and return what it returns; `BUSY` if somebody does."""
    file = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return BUSY
        return work()
    finally:
        os.close(file)  # which gives the lock back


class Draft:
    """
    A file under a temporary name, locked as long as it is written.

    Args:
        folder: Where it lies; the same file system as where it will go.
        name: A name that nobody else is likely to use.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file = -1
        self._hash = hashlib.sha256()
        self.path = folder / name
        self.size = 0
        self.is_renamed = False
        """Whether the file has its name, also if nobody knows that the disk has it."""

    @property
    def sha256(self) -> str:
        """The hash of what was written."""
        return self._hash.hexdigest()

    @property
    def is_open(self) -> bool:
        """Whether there is something to give up."""
        return self._file >= 0

    def write(self, data: bytes | bytearray) -> None:
        """Write all of *data*."""
        if self._file < 0:
            self._create()
        self._hash.update(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self.size += len(data)

    def _create(self) -> None:
        for attempt in count():
            self.path = self._folder / f"{self._name}-{attempt}"
            try:
                file = open_private(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody who sweeps was here first, and deletes it
                os.close(file)
                continue
            except BaseException:
                os.close(file)
                raise
            if os.path.exists(self.path):
                self._file = file
                return
            os.close(file)

    def seal(self, data: bytes | bytearray = b"") -> None:
        """Write the last of it and wait until all is on the disk."""
        self.write(data)
        os.fsync(self._file)

    def become(self, target: Path) -> None:
        """Give the sealed file its name, over what may have it, and wait until the name is on the disk."""
        os.replace(self.path, target)
        self.is_renamed = True
        fsync_folder(target.parent)
        self._close()

    def discard(self) -> None:
        """Delete it, unless it has become something. What cannot be deleted is left to the next sweep."""
        if self.is_open:
            try:
                remove(self.path)
            except OSError:
                pass
            finally:
                self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        os.close(file)


def sweep(folder: Path, prefix: str) -> None:
    """Delete what processes that have ended left under temporary names. Only who holds the store's lock may."""
    for path in folder.glob(f"{prefix}*"):
        if path.is_dir():  # made under the lock: its maker is gone
            shutil.rmtree(path)
            continue
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
        except BlockingIOError:
            pass
        finally:
            os.close(file)
