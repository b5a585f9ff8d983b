"""
Artifacts in a folder.

    minirun-artifacts.json              that this is a store, and in which format
    lock                                held while versions are made, deleted or collected
    content/3f/3fa9…                    content, under its own sha256: what is equal lies there once
    versions/SCOPE/NAME/0.json          what is known of a version, and which content it names; or that it is hidden
    versions/SCOPE/NAME/first           where the versions begin that are not deleted, if any was; see `_file_versions`
    temporary/minirun-…                 files on their way in

SCOPE and NAME are hashes of app, user and session and of the artifact's name, so that any name will do on any file
system, none can leave the folder, and a deleted artifact leaves nothing behind that tells its name.

*   The content is on the disk before the record that names it, and the record before anybody is told its number.
*   Deleted is only what has a name that a store gives.
*   A delete needs no room: if there is none for a new `first`, the record of the newest version takes its name.

`_file_store` says what makes a folder a store, `_file_versions` how versions are found and deleted.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import trio

from .._json import dumps
from ..env import Env
from ..errors import NotSupportedError, StorageBusyError, StorageCorruptError, StorageUncertainError
from ._disk import BUSY, FULL, Draft, fsync_folder, locked, remove, storage_error, supported
from ._file_records import is_hidden, key_fields, read_record, stored_of, version_fields
from ._file_store import DRAFT, StoreFolder, checked_root, entries, uncertain
from ._file_versions import (
    Live,
    check_changed,
    copied_files,
    first_text,
    first_versions,
    holds,
    live_versions,
    newest_record,
    readable_numbers,
)
from ._opening import opening
from ._service import BaseArtifactService, closed_reader, damaged_content
from ._values import ArtifactKey, ArtifactVersion, Collected, Description, Scope, Stored, next_number, taken_name

__all__ = ["FileArtifactService"]

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
# How long others may hold the lock before that is an error. They hold it for a few fsyncs; a collection, for as long
# as it takes to read every record.
BUSY_WAIT_S = 10.0
BUSY_POLL_S = (0.0005, 0.1)  # the first pause and the longest

_SHARD: Final = re.compile(r"[0-9a-f]{2}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


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
        self._store = StoreFolder(checked_root(root_dir))
        self._lock = trio.Lock()

    def _after_fork(self) -> None:
        self._lock = trio.Lock()

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
        draft = Draft(self._store.temporary, name)
        await self._in_thread(partial(self._store.prepare, name), "preparing the folder")
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
        folder = self._store.of_artifact(key)
        live = live_versions(folder)
        number = next_number(live.stop, least)
        stored = Stored.of(key, number, said, size=draft.size, sha256=draft.sha256, create_time=self.env.now())
        content = self._store.of_content(stored)
        self._store.folders.make(content.parent)
        draft.become(content)  # also over equal content: were that damaged, it would be whole again
        self._write_record(name, folder, live, version_fields(key, stored))
        return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        assert not staged, "no event makes a version visible here"
        name = self._new_name()

        def restore() -> int:
            folder = self._store.of_artifact(key)
            live = live_versions(folder)
            number = next_number(live.stop, least)
            earlier = None if version is None else self._look_up(key, version)
            if earlier is None:
                fields: dict[str, Any] = {**key_fields(key), "version": number, "hidden": True}
            else:
                fields = version_fields(key, earlier.again(key, number, self.env.now()))
            self._write_record(name, folder, live, fields)
            return number

        await self._in_thread(partial(self._store.prepare, name), "preparing the folder")
        return await self._exclusively(restore, "restoring an artifact")

    def _write_record(self, name: str, folder: Path, live: Live, fields: dict[str, Any]) -> None:
        """Write the record of a version after those that are *live*, which makes it visible."""
        if not live:
            for path in (folder.parent, folder):
                self._store.folders.make(path)
                self._store.folders.forget(path)
        number = fields["version"]
        if number > live.stop:
            self._store.write(name, folder / "first", live.going_on(number).text)
        self._store.write(name, folder / f"{number}.json", dumps(fields))

    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        name = self._new_name()

        def copy() -> None:
            copies: dict[Path, dict[str, str]] = {}
            for folder in entries(self._store.of_scope(scope)):
                filename, files = copied_files(folder, new, versions)
                target = self._store.of_scope(new) / folder.name
                if files and not holds(target, files):
                    if live_versions(target).stop:
                        raise taken_name(filename, new)
                    copies[target] = files
            for target, files in copies.items():
                self._store.folders.make(target.parent)
                self._store.folders.forget(target.parent)
                self._store.write_folder(name, target, files)

        if await self._in_thread(self._store.is_store, "opening the folder"):
            await self._exclusively(copy, "copying artifacts")

    # --- reading

    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        assert not staged, "nothing was staged here"
        return await self._in_thread(partial(self._look_up, key, version), "reading an artifact")

    def _look_up(self, key: ArtifactKey, version: int | None) -> Stored | None:
        self._store.check_format()
        folder = self._store.of_artifact(key)
        while True:
            live = live_versions(folder)
            number = live.newest if version is None else version
            if number is None or number not in live:
                return None
            fields = read_record(folder / f"{number}.json")
            if fields is not None:
                return None if is_hidden(fields) else stored_of(key, fields)
            check_changed(folder, live, number)

    @opening
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncGenerator[tuple[Stored, AsyncIterator[bytes]] | None, None]:
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
            path = self._store.of_content(stored)
            try:
                return stored, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if stored.version.version in live_versions(self._store.of_artifact(key)):
                    msg = f"{path}: expected the content of {stored.version.canonical_uri}, found no file"
                    raise StorageCorruptError(msg) from None

    async def _versions(self, key: ArtifactKey) -> list[int]:
        def look() -> list[int]:
            self._store.check_format()
            return readable_numbers(self._store.of_artifact(key))

        return await self._in_thread(look, "listing versions")

    async def _names(self, scope: Scope) -> list[str]:
        def look() -> list[str]:
            self._store.check_format()
            found = (newest_record(folder) for folder in entries(self._store.of_scope(scope)))
            return [fields["filename"] for fields in found if fields is not None and not is_hidden(fields)]

        return await self._in_thread(look, "listing artifacts")

    # --- deleting

    async def _delete(self, key: ArtifactKey) -> None:
        await self._delete_folders(lambda: [self._store.of_artifact(key)])

    async def _delete_scope(self, scope: Scope) -> None:
        await self._delete_folders(lambda: list(entries(self._store.of_scope(scope))))

    async def _delete_folders(self, folders: Callable[[], list[Path]]) -> None:
        name = self._new_name()

        def delete() -> None:
            for folder in folders():
                live = live_versions(folder)
                if live:
                    self._write_first(name, folder, live)
                for number in reversed(live.numbers):
                    remove(folder / f"{number}.json")
                self._tidy_first(name, folder)

        if await self._in_thread(self._store.is_store, "opening the folder"):
            await self._exclusively(delete, "deleting an artifact")

    def _write_first(self, name: str, folder: Path, live: Live) -> None:
        """Say that all that are live are deleted, also on a full disk: a record says where it ends, too."""
        target = folder / "first"
        try:
            self._store.write(name, target, str(live.stop))
        except OSError as error:
            if error.errno not in FULL or not live.last:
                raise
            os.replace(folder / f"{live.stop - 1}.json", target)
            try:
                fsync_folder(folder)
            except OSError as failure:
                raise uncertain(target, failure) from failure

    def _tidy_first(self, name: str, folder: Path) -> None:
        """Let `first` be a number where it is a record, as soon as there is room for it."""
        target = folder / "first"
        if first_text(target).startswith(b"{"):
            try:
                self._store.write(name, target, str(first_versions(folder).stop))
            except (OSError, StorageUncertainError):
                pass  # the next collection tries again

    async def _gc(self) -> Collected:
        if not await self._in_thread(self._store.is_store, "opening the folder"):
            return Collected(contents=0, size=0)
        return await self._exclusively(partial(self._collect, self._new_name()), "collecting artifacts")

    def _collect(self, name: str) -> Collected:
        named: set[str] = set()
        deleted: list[Path] = []
        folders = [folder for scope in entries(self._store.root / "versions") for folder in entries(scope)]
        for folder in folders:
            live = live_versions(folder)
            for record in folder.glob("*.json"):
                if not _NUMBER.fullmatch(record.stem):
                    continue
                if int(record.stem) in live:
                    fields = read_record(record)
                    if fields is not None and not is_hidden(fields):
                        named.add(fields["sha256"])
                else:
                    deleted.append(record)
        unnamed = [
            path
            for shard in entries(self._store.root / "content", _SHARD)
            for path in entries(shard)
            if path.name not in named and path.name.startswith(shard.name)
        ]
        size = sum(path.stat().st_size for path in unnamed)
        for path in (*deleted, *unnamed):
            remove(path)
        for folder in folders:
            self._tidy_first(name, folder)
        self._store.sweep()
        return Collected(contents=len(unnamed), size=size)

    # --- the folder

    def _new_name(self) -> str:
        """A name that says that what has it is ours, and temporary."""
        return f"{DRAFT}{self.env.new_id('temporary artifact')}"

    async def _exclusively(self, work: Callable[[], T], doing: str) -> T:
        """Do *work* in a thread while no other task and no other process does; nothing checkpoints after it."""
        async with self._lock:
            attempt = partial(locked, self._store.root / "lock", work)
            waited, pause = 0.0, BUSY_POLL_S[0]
            while True:
                result = await self._in_thread(attempt, doing)
                if result is not BUSY:
                    return cast(T, result)
                if waited >= BUSY_WAIT_S:
                    msg = f"{doing} waited {BUSY_WAIT_S:g} s for another process; end it, or try again"
                    raise StorageBusyError(f"{self._store.root}: {msg}")
                await self.env.sleep(pause)
                waited, pause = waited + pause, min(2 * pause, BUSY_POLL_S[1])

    async def _in_thread(self, work: Callable[[], T], doing: str) -> T:
        try:
            return await self.env.run_sync(work)
        except OSError as error:
            raise storage_error(error, f"{self._store.root}: {doing}") from error


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
