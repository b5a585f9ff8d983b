"""
The folder of a `FileArtifactService`: that it is one, where in it what lies, and how files get into it.

The first of all is made first: a folder that is not empty and does not say that it is a store is not touched.
Everything here is done in a thread.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from .._json import brief, dumps, loads, shown
from ..errors import InvalidValueError, StorageFormatError, StorageUncertainError
from ._disk import Draft, Folders, make_folder, sweep
from ._file_records import HASH
from ._file_versions import holds
from ._values import ArtifactKey, Scope, Stored

__all__ = ["DRAFT", "StoreFolder", "checked_root", "entries", "uncertain"]

FORMAT: Final = 1
MARK: Final = "minirun-artifacts.json"
DRAFT: Final = "minirun-"


class StoreFolder:
    """The folder, and what this process knows of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.temporary = root / "temporary"
        self.folders = Folders()
        self._is_checked = False

    # --- where things lie

    def of_scope(self, scope: Scope) -> Path:
        return self.root / "versions" / _hash(*scope)

    def of_artifact(self, key: ArtifactKey) -> Path:
        return self.of_scope(key.scope) / _hash(key.filename)

    def of_content(self, stored: Stored) -> Path:
        sha256 = stored.version.sha256
        return self.root / "content" / sha256[:2] / sha256

    # --- whether it is a store

    def prepare(self, name: str) -> None:
        """Make what a store has, unless it is there."""
        self.check_format()
        try:
            self.folders.make(self.root)
        except PermissionError:  # of the folder above, which is not ours
            if not self.root.is_dir():
                raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._no_place() from error
        if not self.root.is_dir():
            raise self._no_place()
        if not self._is_checked:
            self._mark(name.removeprefix(DRAFT))
        for folder in ("content", "versions", "temporary"):
            self.folders.make(self.root / folder)

    def _no_place(self) -> StorageFormatError:
        msg = f"{self.root}: expected a folder, or a place where one can be made, found neither; choose another one"
        return StorageFormatError(msg)

    def _mark(self, name: str) -> None:
        """Say that this is a store, before anything else is in it."""
        draft = Draft(self.root, f"{MARK}-{name}")
        try:
            draft.seal(dumps({"format": FORMAT}).encode())
            draft.become(self.root / MARK)
        finally:
            draft.discard()
        self._is_checked = True

    def is_store(self) -> bool:
        """Whether anything was ever kept here; raises as `check_format` does."""
        self.check_format()
        return self._is_checked

    def check_format(self) -> None:
        """
        See to it that the folder is a store of this format, or empty, or not there.

        Raises:
            StorageFormatError: It is something else.
        """
        if self._is_checked:
            return
        path = self.root / MARK
        for _ in range(2):  # what there is may have been made between the two looks
            try:
                return self._check_mark(path, path.read_bytes())
            except NotADirectoryError as error:
                raise self._no_place() from error
            except FileNotFoundError:
                others = _others(self.root)
            if not others:
                return
        msg = (
            f"{self.root}: expected a store of artifacts, or an empty folder, found no {MARK} beside {brief(others[0])}"
        )
        raise StorageFormatError(f"{msg}; choose another folder")

    def _check_mark(self, path: Path, text: bytes) -> None:
        try:
            found = loads(text)["format"]
        except (ValueError, TypeError, KeyError):
            found = text[:80]
        if found != FORMAT:
            msg = f"{path}: expected format {FORMAT}, found {found!r}; use the version of minirun that has written it"
            raise StorageFormatError(msg)
        self._is_checked = True

    # --- what gets into it

    def write_folder(self, name: str, target: Path, files: dict[str, str]) -> None:
        """Make a folder with small files in it, as a whole or not at all."""
        draft = self.temporary / f"{name}-folder"
        try:
            make_folder(draft, target, files)
        except OSError as error:
            if not holds(target, files):
                raise
            raise uncertain(target, error) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def write(self, name: str, target: Path, text: str) -> None:
        """Write a small file, as a whole or not at all."""
        draft = Draft(self.temporary, f"{name}-record")
        try:
            draft.seal(text.encode())
            try:
                draft.become(target)
            except OSError as error:
                if not draft.is_renamed:
                    raise
                raise uncertain(target, error) from error
        finally:
            draft.discard()

    def sweep(self) -> None:
        """Delete what processes that have ended left on the way in. Only who holds the lock may."""
        sweep(self.temporary, DRAFT)
        sweep(self.root, f"{MARK}-")


def checked_root(root_dir: object) -> Path:
    """
    Return the path of a store's folder.

    Raises:
        InvalidValueError: It is blank or no path.
    """
    path = fspath(root_dir) if isinstance(root_dir, (str, PathLike)) else None
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise InvalidValueError("root_dir", f"expected the path of a folder, found {shown(root_dir)}")
    return Path(path).absolute()


def _others(root: Path) -> list[str]:
    """What is in the folder, except for what is left of an attempt to make it a store."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if not name.startswith(f"{MARK}-"))


def _hash(*names: str | None) -> str:
    return hashlib.sha256(dumps(names).encode()).hexdigest()


def entries(folder: Path, kind: re.Pattern[str] = HASH) -> Iterator[Path]:
    """What lies in a folder under a hash, or another *kind* of name."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        if kind.fullmatch(name):
            yield folder / name


def uncertain(target: Path, error: OSError) -> StorageUncertainError:
    """Return the error for a file that has its name, though perhaps not on the disk."""
    msg = f"{target}: the folder could not be written ({error}); look at it again, then try again"
    return StorageUncertainError(msg)
