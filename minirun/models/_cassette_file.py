"""
The file of a cassette: read once, written in whole lines, by one recorder at a time.

A recorder locks the file before its model is asked for the first time, and gives it back when it is closed; the lock
dies with its process. So two of them never write into one file. The lines of an exchange are one write; where the disk
refuses a part of it, the rest is taken back.
"""

from __future__ import annotations

import os
import warnings

from .._files import open_private
from ..errors import CassetteError
from ._cassette import Cassette, read_cassette

try:
    import fcntl
except ImportError:  # not on Windows: there nothing keeps two recorders apart
    fcntl = None  # type: ignore[assignment]  # `_locked` asks for it

__all__ = ["CassetteFile"]


class CassetteFile:
    """Where a cassette lies."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        self._size = 0

    def __del__(self) -> None:
        self.close()

    def read(self) -> Cassette | None:
        """
        What the file holds; None if there is none. A last line that is not whole is warned of, and left out.

        Raises:
            CassetteError: It cannot be read, or is no cassette.
        """
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CassetteError(f"the cassette {self.path} cannot be read: {error}; let this user read it") from error
        cassette = read_cassette(data, self.path)
        if cassette.torn:
            problem = f"its last line is not whole ({cassette.torn} bytes), as after a kill, and is left out"
            warnings.warn(f"the cassette {self.path}: {problem}", UserWarning, stacklevel=4)
        return cassette

    @property
    def is_open(self) -> bool:
        """Whether it is locked, and can be written."""
        return self._descriptor >= 0

    def open(self) -> int:
        """
        Lock the file, and make it if there is none; return its size. From here on it can be written.

        Raises:
            CassetteError: Another recorder has it, or it cannot be written.
        """
        try:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise self._cannot_write(error) from error
        if not _locked(descriptor):
            os.close(descriptor)
            expected = f"expected the cassette {self.path} to be free, found another recorder that has it"
            raise CassetteError(
                f"{expected}; let the agents share one RecordedLlm, give each its own file, or close the other one"
            )
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        return self._size

    def truncate(self, size: int) -> None:
        """Drop what stands behind *size* bytes."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def write(self, data: bytes) -> None:
        """
        Append whole lines.

        Raises:
            CassetteError: They could not be written; the file is as before.
        """
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise self._cannot_write(error) from error
        self._size += len(data)

    @property
    def size(self) -> int:
        """How long it is, or was when it was closed, in bytes."""
        return self._size

    def close(self) -> None:
        """Give the lock back. It may be opened again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _cannot_write(self, error: OSError) -> CassetteError:
        return CassetteError(
            f"the cassette {self.path} cannot be written: {error}; let this user write it, and look after the disk"
        )


def _locked(descriptor: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
