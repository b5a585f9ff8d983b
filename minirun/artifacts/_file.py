"""
Artifacts in a folder.

    minirun-artifacts.json              that this is a store, and in which format
    lock                                held while versions are made, deleted or collected
    content/3f/3fa9…                    content, under its own sha256: what is equal lies there once
    versions/SCOPE/NAME/0.json          what is known of a version, and which content it names; or that it is hidden
    versions/SCOPE/NAME/first           the number of the first version that is not deleted, if any was; see `_Live`
    temporary/minirun-…                 files on their way in

SCOPE and NAME are hashes of app, user and session and of the artifact's name, so that any name will do on any file
system, none can leave the folder, and a deleted artifact leaves nothing behind that tells its name.

*   The content is on the disk before the record that names it, and the record before anybody is told its number.
*   The first of all is made first: a folder that is not empty and does not say that it is a store is not touched.
    Deleted is only what has a name that a store gives.
*   Versions are deleted all at once, by writing `first`; what lies before it is gone, also if the process died before
    the files were. Where numbers were left out, `first` says so, and there are no other gaps. So the newest is found in
    a few steps, however many there are.
*   A delete needs no room: if there is none for a new `first`, the record of the newest version takes its name.
*   Reading takes no lock. It sees `first` twice, before and after, and looks again if it has changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import attrs
import trio

from .._json import dumps, freeze, loads, shown
from ..env import Env
from ..errors import (
    InvalidValueError,
    NotSupportedError,
    StorageBusyError,
    StorageCorruptError,
    StorageFormatError,
    StorageUncertainError,
)
from ._disk import (
    BUSY,
    FULL,
    Draft,
    Folders,
    fsync_folder,
    locked,
    make_folder,
    remove,
    storage_error,
    supported,
    sweep,
)
from ._service import BaseArtifactService, closed_reader, damaged_content
from ._values import (
    ArtifactKey,
    ArtifactVersion,
    Collected,
    Description,
    Scope,
    Stored,
    next_number,
    taken_name,
)

__all__ = ["FileArtifactService"]

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
FORMAT: Final = 1
MARK: Final = "minirun-artifacts.json"
DRAFT: Final = "minirun-"
# How long others may hold the lock before that is an error. They hold it for a few fsyncs; a collection, for as long
# as it takes to read every record.
BUSY_WAIT_S = 10.0
BUSY_POLL_S = (0.0005, 0.1)  # the first pause and the longest


class FileArtifactService(BaseArtifactService):
    """
    Keeps artifacts in a folder, which several processes may use at once.

    The folder is made when the first artifact is saved. It must be on a local disk: the locks of network disks may
    keep nobody out. One that is not empty and no store is refused by every operation (StorageFormatError).

    Args:
        root_dir: The folder; for the store alone.
        env: Where time and ids come from.

    Raises:
        InvalidValueError: `root_dir` is blank or no path.
    """

    def __init__(self, root_dir: str | PathLike[str], *, env: Env | None = None) -> None:
        super().__init__(env=env)
        if not supported():
            msg = "FileArtifactService needs the file locks of POSIX systems; use another artifact service here"
            raise NotSupportedError(msg)
        self._root = _checked_root(root_dir)
        self._lock = trio.Lock()
        self._folders = Folders()
        self._is_checked = False

    # --- saving

    async def _save(
        self,
        key: ArtifactKey,
        chunks: AsyncIterator[bytes],
        said: Description,
        *,
        staged: bool = False,
        least: int = 0,
    ) -> int:
        assert not staged, "no event makes a version visible here"
        name = self._new_name()
        draft = Draft(self._root / "temporary", name)
        await self._in_thread(partial(self._prepare, name), "preparing the folder")
        waiting = bytearray()
        try:
            async for chunk in chunks:
                if len(waiting) + len(chunk) < CHUNK_BYTES:
                    waiting += chunk
                    continue
                for data in (waiting, chunk):
                    if data:
                        await self._in_thread(partial(draft.write, data), "writing an artifact")
                waiting = bytearray()
            await self._in_thread(partial(draft.seal, waiting), "writing an artifact")
            publish = partial(self._publish, draft, name, key, said, least)
            return await self._exclusively(publish, "saving an artifact")
        finally:
            if draft.is_open:
                with trio.CancelScope(shield=True):
                    await self.env.run_sync(draft.discard)

    def _publish(self, draft: Draft, name: str, key: ArtifactKey, said: Description, least: int) -> int:
        """Give the content its name and then the version its own."""
        folder = self._folder(key)
        live = _live(folder)
        number = next_number(live.stop, least)
        stored = Stored.of(key, number, said, size=draft.size, sha256=draft.sha256, create_time=self.env.now())
        content = self._content(stored)
        self._folders.make(content.parent)
        draft.become(content)  # also over equal content: were that damaged, it would be whole again
        self._write_record(name, folder, live, _fields(key, stored))
        return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        assert not staged, "no event makes a version visible here"
        name = self._new_name()

        def restore() -> int:
            folder = self._folder(key)
            live = _live(folder)
            number = next_number(live.stop, least)
            earlier = None if version is None else self._look_up(key, version)
            if earlier is None:
                fields: dict[str, Any] = {**_names(key), "version": number, "hidden": True}
            else:
                fields = _fields(key, earlier.again(key, number, self.env.now()))
            self._write_record(name, folder, live, fields)
            return number

        await self._in_thread(partial(self._prepare, name), "preparing the folder")
        return await self._exclusively(restore, "restoring an artifact")

    def _write_record(self, name: str, folder: Path, live: _Live, fields: dict[str, Any]) -> None:
        """Write the record of a version after those that are *live*, which makes it visible."""
        if not live:
            for path in (folder.parent, folder):
                self._folders.make(path)
                self._folders.forget(path)
        number = fields["version"]
        if number > live.stop:
            self._write(name, folder / "first", live.going_on(number).text)
        self._write(name, folder / f"{number}.json", dumps(fields))

    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        name = self._new_name()

        def copy() -> None:
            copies: dict[Path, dict[str, str]] = {}
            for folder in _entries(self._scope_folder(scope)):
                filename, files = _copied(folder, new, versions)
                target = self._scope_folder(new) / folder.name
                if files and not _holds(target, files):
                    if _live(target).stop:
                        raise taken_name(filename, new)
                    copies[target] = files
            for target, files in copies.items():
                self._folders.make(target.parent)
                self._folders.forget(target.parent)
                self._write_folder(name, target, files)

        if await self._in_thread(self._is_store, "opening the folder"):
            await self._exclusively(copy, "copying artifacts")

    def _write_folder(self, name: str, target: Path, files: dict[str, str]) -> None:
        """Make a folder with small files in it, as a whole or not at all."""
        draft = self._root / "temporary" / f"{name}-folder"
        try:
            make_folder(draft, target, files)
        except OSError as error:
            if not _holds(target, files):
                raise
            raise _uncertain(target, error) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _write(self, name: str, target: Path, text: str) -> None:
        """Write a small file, as a whole or not at all."""
        draft = Draft(self._root / "temporary", f"{name}-record")
        try:
            draft.seal(text.encode())
            try:
                draft.become(target)
            except OSError as error:
                if not draft.is_renamed:
                    raise
                raise _uncertain(target, error) from error
        finally:
            draft.discard()

    # --- reading

    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        assert not staged, "nothing was staged here"
        return await self._in_thread(partial(self._look_up, key, version), "reading an artifact")

    def _look_up(self, key: ArtifactKey, version: int | None) -> Stored | None:
        self._check_format()
        folder = self._folder(key)
        while True:
            live = _live(folder)
            number = live.newest if version is None else version
            if number is None or number not in live:
                return None
            fields = _read_record(folder / f"{number}.json")
            if fields is not None:
                return None if _is_hidden(fields) else _stored(key, fields)
            _check_changed(folder, live, number)

    @asynccontextmanager
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncIterator[tuple[Stored, AsyncIterator[bytes]] | None]:
        assert not staged, "nothing was staged here"
        opened = await self._in_thread(partial(self._open_content, key, version), "opening an artifact")
        if opened is None:
            yield None
            return
        stored, file = opened
        content = _Content(self, stored.version, file)
        try:
            yield stored, content
        finally:
            content.close()

    def _open_content(self, key: ArtifactKey, version: int | None) -> tuple[Stored, int] | None:
        while True:
            stored = self._look_up(key, version)
            if stored is None:
                return None
            path = self._content(stored)
            try:
                return stored, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if stored.version.version in _live(self._folder(key)):
                    msg = f"{path}: expected the content of {stored.version.canonical_uri}, found no file"
                    raise StorageCorruptError(msg) from None

    async def _versions(self, key: ArtifactKey) -> list[int]:
        def look() -> list[int]:
            self._check_format()
            return _readable(self._folder(key))

        return await self._in_thread(look, "listing versions")

    async def _names(self, scope: Scope) -> list[str]:
        def look() -> list[str]:
            self._check_format()
            found = (_newest(folder) for folder in _entries(self._scope_folder(scope)))
            return [fields["filename"] for fields in found if fields is not None and not _is_hidden(fields)]

        return await self._in_thread(look, "listing artifacts")

    # --- deleting

    async def _delete(self, key: ArtifactKey) -> None:
        await self._delete_folders(lambda: [self._folder(key)])

    async def _delete_scope(self, scope: Scope) -> None:
        await self._delete_folders(lambda: list(_entries(self._scope_folder(scope))))

    async def _delete_folders(self, folders: Callable[[], list[Path]]) -> None:
        name = self._new_name()

        def delete() -> None:
            for folder in folders():
                live = _live(folder)
                if live:
                    self._write_first(name, folder, live)
                for number in reversed(live.numbers):
                    remove(folder / f"{number}.json")
                self._tidy_first(name, folder)

        if await self._in_thread(self._is_store, "opening the folder"):
            await self._exclusively(delete, "deleting an artifact")

    def _write_first(self, name: str, folder: Path, live: _Live) -> None:
        """Say that all that are live are deleted, also on a full disk: a record says where it ends, too."""
        target = folder / "first"
        try:
            self._write(name, target, str(live.stop))
        except OSError as error:
            if error.errno not in FULL or not live.last:
                raise
            os.replace(folder / f"{live.stop - 1}.json", target)
            try:
                fsync_folder(folder)
            except OSError as failure:
                raise _uncertain(target, failure) from failure

    def _tidy_first(self, name: str, folder: Path) -> None:
        """Let `first` be a number where it is a record, as soon as there is room for it."""
        target = folder / "first"
        if _first_text(target).startswith(b"{"):
            try:
                self._write(name, target, str(_first(folder).stop))
            except (OSError, StorageUncertainError):
                pass  # the next collection tries again

    async def _gc(self) -> Collected:
        if not await self._in_thread(self._is_store, "opening the folder"):
            return Collected(contents=0, size=0)
        return await self._exclusively(partial(self._collect, self._new_name()), "collecting artifacts")

    def _collect(self, name: str) -> Collected:
        named: set[str] = set()
        deleted: list[Path] = []
        folders = [folder for scope in _entries(self._root / "versions") for folder in _entries(scope)]
        for folder in folders:
            live = _live(folder)
            for record in folder.glob("*.json"):
                if not _NUMBER.fullmatch(record.stem):
                    continue
                if int(record.stem) in live:
                    fields = _read_record(record)
                    if fields is not None and not _is_hidden(fields):
                        named.add(fields["sha256"])
                else:
                    deleted.append(record)
        unnamed = [
            path
            for shard in _entries(self._root / "content", _SHARD)
            for path in _entries(shard)
            if path.name not in named and path.name.startswith(shard.name)
        ]
        size = sum(path.stat().st_size for path in unnamed)
        for path in (*deleted, *unnamed):
            remove(path)
        for folder in folders:
            self._tidy_first(name, folder)
        sweep(self._root / "temporary", DRAFT)
        sweep(self._root, f"{MARK}-")
        return Collected(contents=len(unnamed), size=size)

    # --- the folder

    def _scope_folder(self, scope: Scope) -> Path:
        return self._root / "versions" / _hash(*scope)

    def _folder(self, key: ArtifactKey) -> Path:
        return self._scope_folder(key.scope) / _hash(key.filename)

    def _content(self, stored: Stored) -> Path:
        sha256 = stored.version.sha256
        return self._root / "content" / sha256[:2] / sha256

    def _new_name(self) -> str:
        """A name that says that what has it is ours, and temporary."""
        return f"{DRAFT}{self.env.new_id('temporary artifact')}"

    def _prepare(self, name: str) -> None:
        """Make what a store has, unless it is there."""
        self._check_format()
        try:
            self._folders.make(self._root)
        except PermissionError:  # of the folder above, which is not ours
            if not self._root.is_dir():
                raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._no_place() from error
        if not self._root.is_dir():
            raise self._no_place()
        if not self._is_checked:
            self._mark(name.removeprefix(DRAFT))
        for folder in ("content", "versions", "temporary"):
            self._folders.make(self._root / folder)

    def _no_place(self) -> StorageFormatError:
        msg = f"{self._root}: expected a folder, or a place where one can be made, found neither; choose another one"
        return StorageFormatError(msg)

    def _mark(self, name: str) -> None:
        """Say that this is a store, before anything else is in it."""
        draft = Draft(self._root, f"{MARK}-{name}")
        try:
            draft.seal(dumps({"format": FORMAT}).encode())
            draft.become(self._root / MARK)
        finally:
            draft.discard()
        self._is_checked = True

    def _is_store(self) -> bool:
        self._check_format()
        return self._is_checked

    def _check_format(self) -> None:
        """
        See to it that the folder is a store of this format, or empty, or not there.

        Raises:
            StorageFormatError: It is something else.
        """
        if self._is_checked:
            return
        path = self._root / MARK
        for _ in range(2):  # what there is may have been made between the two looks
            try:
                return self._check_mark(path, path.read_bytes())
            except NotADirectoryError as error:
                raise self._no_place() from error
            except FileNotFoundError:
                others = _others(self._root)
            if not others:
                return
        msg = (
            f"{self._root}: expected a store of artifacts, or an empty folder, found no {MARK} beside {others[0]!r:.80}"
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

    async def _exclusively(self, work: Callable[[], T], doing: str) -> T:
        """Do *work* in a thread while no other task and no other process does; nothing checkpoints after it."""
        async with self._lock:
            attempt = partial(locked, self._root / "lock", work)
            waited, pause = 0.0, BUSY_POLL_S[0]
            while True:
                result = await self._in_thread(attempt, doing)
                if result is not BUSY:
                    return cast(T, result)
                if waited >= BUSY_WAIT_S:
                    msg = f"{self._root}: {doing} waited {BUSY_WAIT_S:g} s for another process; end it, or try again"
                    raise StorageBusyError(msg)
                await self.env.sleep(pause)
                waited, pause = waited + pause, min(2 * pause, BUSY_POLL_S[1])

    async def _in_thread(self, work: Callable[[], T], doing: str) -> T:
        try:
            return await self.env.run_sync(work)
        except OSError as error:
            raise storage_error(error, f"{self._root}: {doing}") from error


class _Content:
    """The chunks of an open file, and at their end the proof that they are what was saved."""

    def __init__(self, service: FileArtifactService, version: ArtifactVersion, file: int) -> None:
        self._service = service
        self._version = version
        self._file = file
        self._hash = hashlib.sha256()
        self._size = 0
        self._readers = 0
        self._is_closed = False

    def close(self) -> None:
        """Close the file, once nobody reads: its number may be another file's right after that."""
        self._is_closed = True
        if not self._readers:
            os.close(self._file)

    def __aiter__(self) -> _Content:
        return self

    async def __anext__(self) -> bytes:
        if self._is_closed:
            raise closed_reader(self._version)
        self._readers += 1
        try:
            data = await self._service._in_thread(self._read, "reading an artifact")
        finally:
            self._readers -= 1
            if self._is_closed:
                self.close()
        if not data:
            raise StopAsyncIteration
        return data

    def _read(self) -> bytes:
        data = os.read(self._file, CHUNK_BYTES)
        self._hash.update(data)
        self._size += len(data)
        if not data and self._hash.hexdigest() != self._version.sha256:
            raise damaged_content(self._version, self._size)
        return data


# --- what lies in a folder of versions --------------------------------------------------------------------------------


_HASH: Final = re.compile(r"[0-9a-f]{64}")
_SHARD: Final = re.compile(r"[0-9a-f]{2}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_FIRST: Final = re.compile(rb"(?:[0-9]{1,19}-[0-9]{1,19} )*[0-9]{1,19}")


def _checked_root(root_dir: object) -> Path:
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


def _entries(folder: Path, kind: re.Pattern[str] = _HASH) -> Iterator[Path]:
    """What lies in a folder under a hash, or another *kind* of name."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        if kind.fullmatch(name):
            yield folder / name


@attrs.frozen
class _Live:
    """
    The numbers of the versions that are not deleted.

    That is `range(first, stop)`, and nothing else where no number was left out. Else it is some ranges before that,
    too, and the file `first` says `0-3 7-9 20`: from 0 to below 3, from 7 to below 9, and from 20 on.
    """

    earlier: tuple[range, ...]
    last: range = attrs.field(eq=lambda numbers: (numbers.start, numbers.stop))  # also where it is empty

    @property
    def stop(self) -> int:
        """The number after all of them, deleted ones included."""
        return self.last.stop

    @property
    def numbers(self) -> list[int]:
        return [number for numbers in (*self.earlier, self.last) for number in numbers]

    @property
    def newest(self) -> int | None:
        runs = [numbers for numbers in (*self.earlier, self.last) if numbers]
        return runs[-1][-1] if runs else None

    @property
    def text(self) -> str:
        return " ".join([*(f"{numbers.start}-{numbers.stop}" for numbers in self.earlier), str(self.last.start)])

    def __contains__(self, number: int) -> bool:
        return any(number in numbers for numbers in (*self.earlier, self.last))

    def __bool__(self) -> bool:
        return self.newest is not None

    def going_on(self, number: int) -> _Live:
        """These, where the next one is *number*."""
        earlier = tuple(numbers for numbers in (*self.earlier, self.last) if numbers)
        return _Live(earlier, range(number, number))

    def up_to(self, newest: int) -> _Live:
        """Those of them that are not after *newest*."""
        runs = [range(numbers.start, min(numbers.stop, newest + 1)) for numbers in (*self.earlier, self.last)]
        runs = [numbers for numbers in runs if numbers] or [range(newest + 1, newest + 1)]
        return _Live(tuple(runs[:-1]), runs[-1])


def _first_text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"0"


def _first(folder: Path) -> _Live:
    """Where the versions that are not deleted begin; where they end is not known to be there."""
    path = folder / "first"
    text = _first_text(path)
    if text.startswith(b"{"):  # the last that was deleted
        number = _record_of(path, text)["version"] + 1
        return _Live((), range(number, number))
    if not _FIRST.fullmatch(text):
        msg = f"{path}: expected the number of a version, found {text!r:.80}; the file is damaged"
        raise StorageCorruptError(msg)
    *earlier, last = text.decode().split()
    runs = [range(*map(int, numbers.split("-"))) for numbers in earlier]
    return _Live(tuple(runs), range(int(last), int(last)))


def _live(folder: Path) -> _Live:
    """The versions that are not deleted, in a number of steps that grows with the logarithm of theirs."""
    while True:
        first = _first(folder)
        stop = _end(first.stop, lambda number: os.path.exists(folder / f"{number}.json"))
        if _first(folder) == first:
            return attrs.evolve(first, last=range(first.stop, stop))


def _end(first: int, is_there: Callable[[int], bool]) -> int:
    """The first number from *first* that is not there, where those that are have no gaps."""
    step = 1
    while is_there(first + step - 1):
        step *= 2
    low, high = first + step // 2, first + step - 1  # below `low` all are there, and `high` is not
    while low < high:
        middle = (low + high) // 2
        if is_there(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _check_changed(folder: Path, live: _Live, number: int) -> None:
    """
    See to it that a missing record was deleted meanwhile.

    Raises:
        StorageCorruptError: It should be there.
    """
    if _live(folder) == live:
        msg = f"{folder / f'{number}.json'}: expected the record of a version, found no file; the store is damaged"
        raise StorageCorruptError(msg)


def _newest(folder: Path) -> dict[str, Any] | None:
    while True:
        live = _live(folder)
        if live.newest is None:
            return None
        fields = _read_record(folder / f"{live.newest}.json")
        if fields is not None:
            return fields
        _check_changed(folder, live, live.newest)


def _readable(folder: Path) -> list[int]:
    """The numbers of the versions that are neither deleted nor hidden."""
    while True:
        live, found = _live(folder), []
        for number in live.numbers:
            fields = _read_record(folder / f"{number}.json")
            if fields is None:
                _check_changed(folder, live, number)
                break
            if not _is_hidden(fields):
                found.append(number)
        else:
            return found


def _copied(folder: Path, new: Scope, versions: Mapping[str, int] | None) -> tuple[str, dict[str, str]]:
    """The name of an artifact, and the files of its versions, if there are any, as they would be in another scope."""
    newest = _newest(folder)
    if newest is None:
        return "", {}
    filename: str = newest["filename"]
    live = _live(folder)
    copied = live if versions is None else live.up_to(versions.get(filename, -1))
    files = {"first": copied.text} if copied and copied.text != "0" else {}
    for number in copied.numbers:
        fields = _read_record(folder / f"{number}.json")
        if fields is None:
            _check_changed(folder, live, number)
            continue
        files[f"{number}.json"] = dumps(fields | _names(ArtifactKey(*new, filename)))
    return filename, files


def _holds(folder: Path, files: dict[str, str]) -> bool:
    """Whether these files, and no others, are in the folder."""
    return {path.name: path.read_text("utf-8") for path in folder.glob("*")} == files


def _uncertain(target: Path, error: OSError) -> StorageUncertainError:
    msg = f"{target}: the folder could not be written ({error}); look at it again, then try again"
    return StorageUncertainError(msg)


def _names(key: ArtifactKey) -> dict[str, Any]:
    return {
        "app_name": key.app_name,
        "user_id": key.user_id,
        "session_id": key.session_id,
        "filename": key.filename,
    }


def _fields(key: ArtifactKey, stored: Stored) -> dict[str, Any]:
    version = stored.version
    return {
        **_names(key),
        "version": version.version,
        "mime_type": version.mime_type,
        "size": version.size,
        "sha256": version.sha256,
        "create_time": version.create_time,
        "custom_metadata": version.custom_metadata,
        "part": stored.part,
    }


_NAMED: Final[dict[str, type | tuple[type, ...]]] = {"filename": str, "version": int}
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    **_NAMED,
    "mime_type": str,
    "size": int,
    "sha256": str,
    "create_time": (int, float),
    "custom_metadata": dict,
    "part": dict,
}


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    return _record_of(path, text)


def _record_of(path: Path, text: bytes) -> dict[str, Any]:
    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        fields = None
    is_named = isinstance(fields, dict) and path.name in ("first", f"{fields.get('version')}.json")
    if not is_named or not _is_record(fields):
        msg = f"{path}: expected the record of a version, found {text!r:.80}; the file is damaged"
        raise StorageCorruptError(msg)
    return cast(dict[str, Any], fields)


def _is_record(fields: dict[str, Any]) -> bool:
    kinds = _NAMED if _is_hidden(fields) else _KINDS
    whole = all(isinstance(fields.get(name), kind) for name, kind in kinds.items())
    return whole and (_is_hidden(fields) or _HASH.fullmatch(fields["sha256"]) is not None)


def _is_hidden(fields: dict[str, Any]) -> bool:
    return fields.get("hidden") is True


def _stored(key: ArtifactKey, fields: dict[str, Any]) -> Stored:
    said = Description(
        mime_type=fields["mime_type"],
        part=freeze(fields["part"], "part"),
        custom_metadata=freeze(fields["custom_metadata"], "custom_metadata"),
    )
    return Stored.of(
        key,
        fields["version"],
        said,
        size=fields["size"],
        sha256=fields["sha256"],
        create_time=fields["create_time"],
    )
