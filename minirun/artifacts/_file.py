"""
Artifacts in a folder.

    minirun-artifacts.json              that this is a store, and in which format
    lock                                held while versions are made, deleted or collected
    content/3f/3fa9…                    content, under its own sha256: what is equal lies there once
    versions/SCOPE/NAME/0.json          what is known of a version, and which content it names; or that it is hidden
    versions/SCOPE/NAME/first           the number of the first version that is not deleted, if any was
    temporary/…                         files on their way in

SCOPE and NAME are hashes of app, user and session and of the artifact's name, so that any name will do on any file
system, none can leave the folder, and a deleted artifact leaves nothing behind that tells its name.

*   The content is on the disk before the record that names it, and the record before anybody is told its number.
*   Versions have no gaps: they are deleted all at once, by writing `first`; what lies before it is gone, also if the
    process died before the files were. So the newest is found in a few steps, however many there are.
*   Reading takes no lock. It sees `first` twice, before and after, and looks again if it has changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import trio

from .._json import dumps, freeze, loads
from ..env import Env
from ..errors import (
    NotSupportedError,
    StorageBusyError,
    StorageCorruptError,
    StorageFormatError,
    StorageUncertainError,
)
from ._disk import BUSY, Draft, Folders, locked, make_folder, remove, storage_error, supported, sweep
from ._service import BaseArtifactService
from ._values import ArtifactKey, ArtifactVersion, Collected, Description, Scope, Stored, taken_name

__all__ = ["FileArtifactService"]

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
FORMAT: Final = 1
# How long others may hold the lock before that is an error. They hold it for a few fsyncs; a collection, for as long
# as it takes to read every record.
BUSY_WAIT_S = 10.0
BUSY_POLL_S = (0.0005, 0.1)  # the first pause and the longest


class FileArtifactService(BaseArtifactService):
    """
    Keeps artifacts in a folder, which several processes may use at once.

    The folder is made when the first artifact is saved. It must be on a local disk: the locks of network disks may
    keep nobody out.

    Args:
        root_dir: The folder; for the store alone.
        env: Where time and ids come from.
    """

    def __init__(self, root_dir: str | os.PathLike[str], *, env: Env | None = None) -> None:
        super().__init__(env=env)
        if not supported():
            msg = "FileArtifactService needs the file locks of POSIX systems; use another artifact service here"
            raise NotSupportedError(msg)
        self._root = Path(root_dir).absolute()
        self._lock = trio.Lock()
        self._folders = Folders()
        self._is_checked = False

    # --- saving

    async def _save(
        self, key: ArtifactKey, chunks: AsyncIterator[bytes], said: Description, *, staged: bool = False
    ) -> int:
        assert not staged, "no event makes a version visible here"
        name = self.env.new_id("temporary artifact")
        draft = Draft(self._root / "temporary", name)
        await self._in_thread(self._prepare, "preparing the folder")
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
            return await self._exclusively(partial(self._publish, draft, name, key, said), "saving an artifact")
        finally:
            if draft.is_open:
                with trio.CancelScope(shield=True):
                    await self.env.run_sync(draft.discard)

    def _publish(self, draft: Draft, name: str, key: ArtifactKey, said: Description) -> int:
        """Give the content its name and then the version its own."""
        folder = self._folder(key)
        live = _live(folder)
        number = live.stop
        stored = Stored.of(key, number, said, size=draft.size, sha256=draft.sha256, create_time=self.env.now())
        content = self._content(stored)
        self._folders.make(content.parent)
        draft.become(content)  # also over equal content: were that damaged, it would be whole again
        self._write_record(name, folder, live, _fields(key, stored))
        return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False) -> int:
        assert not staged, "no event makes a version visible here"
        name = self.env.new_id("temporary artifact")

        def restore() -> int:
            folder = self._folder(key)
            live = _live(folder)
            number = live.stop
            earlier = None if version is None else self._look_up(key, version)
            if earlier is None:
                fields: dict[str, Any] = {**_names(key), "version": number, "hidden": True}
            else:
                fields = _fields(key, earlier.again(key, number, self.env.now()))
            self._write_record(name, folder, live, fields)
            return number

        await self._in_thread(self._prepare, "preparing the folder")
        return await self._exclusively(restore, "restoring an artifact")

    def _write_record(self, name: str, folder: Path, live: range, fields: dict[str, Any]) -> None:
        """Write the record of the version after those that are *live*, which makes it visible."""
        if not live:
            for path in (folder.parent, folder):
                self._folders.make(path)
                self._folders.forget(path)
        self._write(name, folder / f"{live.stop}.json", dumps(fields))

    async def _copy_scope(self, scope: Scope, new: Scope) -> None:
        name = self.env.new_id("temporary artifact")

        def copy() -> None:
            copies: dict[Path, dict[str, str]] = {}
            for folder in _entries(self._scope_folder(scope)):
                filename, files = _copied(folder, new)
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
            number = live.stop - 1 if version is None else version
            if number not in live:
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
        try:
            yield stored, _Content(self, stored.version, file)
        finally:
            os.close(file)

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
        name = self.env.new_id("temporary artifact")

        def delete() -> None:
            for folder in folders():
                live = _live(folder)
                if live:
                    self._write(name, folder / "first", str(live.stop))
                for number in reversed(live):
                    remove(folder / f"{number}.json")

        if await self._in_thread(self._is_store, "opening the folder"):
            await self._exclusively(delete, "deleting an artifact")

    async def _gc(self) -> Collected:
        if not await self._in_thread(self._is_store, "opening the folder"):
            return Collected(contents=0, size=0)
        return await self._exclusively(self._collect, "collecting artifacts")

    def _collect(self) -> Collected:
        named: set[str] = set()
        deleted: list[Path] = []
        for folder in (folder for scope in _entries(self._root / "versions") for folder in _entries(scope)):
            live = _live(folder)
            for record in folder.glob("*.json"):
                if record.stem.isdecimal() and int(record.stem) in live:
                    fields = _read_record(record)
                    if fields is not None and not _is_hidden(fields):
                        named.add(fields["sha256"])
                else:
                    deleted.append(record)
        unnamed = [
            path for shard in _entries(self._root / "content") for path in _entries(shard) if path.name not in named
        ]
        size = sum(path.stat().st_size for path in unnamed)
        for path in (*deleted, *unnamed):
            remove(path)
        sweep(self._root / "temporary")
        return Collected(contents=len(unnamed), size=size)

    # --- the folder

    def _scope_folder(self, scope: Scope) -> Path:
        return self._root / "versions" / _hash(*scope)

    def _folder(self, key: ArtifactKey) -> Path:
        return self._scope_folder(key.scope) / _hash(key.filename)

    def _content(self, stored: Stored) -> Path:
        sha256 = stored.version.sha256
        return self._root / "content" / sha256[:2] / sha256

    def _prepare(self) -> None:
        """Make what a store has, unless it is there."""
        self._check_format()
        try:
            self._folders.make(self._root)
        except PermissionError:  # of the folder above, which is not ours
            if not self._root.is_dir():
                raise
        for name in ("content", "versions", "temporary"):
            self._folders.make(self._root / name)

    def _is_store(self) -> bool:
        """Whether there is something here, if only what a process left that died before its first save."""
        self._check_format()
        return self._is_checked or (self._root / "temporary").is_dir()

    def _check_format(self) -> None:
        if self._is_checked:
            return
        path = self._root / "minirun-artifacts.json"
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return
        try:
            found = loads(text)["format"]
        except (ValueError, TypeError, KeyError):
            found = text[:80]
        if found != FORMAT:
            msg = f"{path}: expected format {FORMAT}, found {found!r}; use the version of minirun that has written it"
            raise StorageFormatError(msg)
        self._is_checked = True

    def _mark(self, name: str) -> None:
        """Say that this is a store, before the first change. Only who holds the lock may."""
        self._check_format()
        if not self._is_checked:
            self._write(name, self._root / "minirun-artifacts.json", dumps({"format": FORMAT}))
            self._is_checked = True

    async def _exclusively(self, work: Callable[[], T], doing: str) -> T:
        """Do *work* in a thread while no other task and no other process does; nothing checkpoints after it."""
        name = self.env.new_id("temporary artifact")

        def marked() -> T:
            self._mark(name)
            return work()

        async with self._lock:
            attempt = partial(locked, self._root / "lock", marked)
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

    def __aiter__(self) -> _Content:
        return self

    async def __anext__(self) -> bytes:
        data = await self._service._in_thread(self._read, "reading an artifact")
        if not data:
            raise StopAsyncIteration
        return data

    def _read(self) -> bytes:
        data = os.read(self._file, CHUNK_BYTES)
        self._hash.update(data)
        self._size += len(data)
        if not data and self._hash.hexdigest() != self._version.sha256:
            msg = (
                f"{self._version.canonical_uri}: expected {self._version.size} bytes with the sha256 "
                f"{self._version.sha256}, found {self._size} others; the file is damaged, save the artifact again"
            )
            raise StorageCorruptError(msg)
        return data


# --- what lies in a folder of versions --------------------------------------------------------------------------------


_HASH = re.compile(r"[0-9a-f]+")


def _hash(*names: str | None) -> str:
    return hashlib.sha256(dumps(names).encode()).hexdigest()


def _entries(folder: Path) -> Iterator[Path]:
    """What lies in a folder under a hash, or the beginning of one."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        if _HASH.fullmatch(name):
            yield folder / name


def _first(folder: Path) -> int:
    path = folder / "first"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return 0
    if not text.isdigit():
        msg = f"{path}: expected the number of a version, found {text!r:.80}; the file is damaged"
        raise StorageCorruptError(msg)
    return int(text)


def _live(folder: Path) -> range:
    """The versions that are not deleted, in a number of steps that grows with the logarithm of theirs."""
    while True:
        first = _first(folder)
        stop = _end(first, lambda number: os.path.exists(folder / f"{number}.json"))
        if _first(folder) == first:
            return range(first, stop)


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


def _check_changed(folder: Path, live: range, number: int) -> None:
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
        if not live:
            return None
        fields = _read_record(folder / f"{live[-1]}.json")
        if fields is not None:
            return fields
        _check_changed(folder, live, live[-1])


def _readable(folder: Path) -> list[int]:
    """The numbers of the versions that are neither deleted nor hidden."""
    while True:
        live, found = _live(folder), []
        for number in live:
            fields = _read_record(folder / f"{number}.json")
            if fields is None:
                _check_changed(folder, live, number)
                break
            if not _is_hidden(fields):
                found.append(number)
        else:
            return found


def _copied(folder: Path, new: Scope) -> tuple[str, dict[str, str]]:
    """The name of an artifact, and the files of its versions, if there are any, as they would be in another scope."""
    live, filename, files = _live(folder), "", dict[str, str]()
    if live and live.start:
        files["first"] = str(live.start)
    for number in live:
        fields = _read_record(folder / f"{number}.json")
        if fields is None:
            _check_changed(folder, live, number)
            continue
        filename = fields["filename"]
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
    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not _is_record(fields) or f"{fields['version']}.json" != path.name:
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
