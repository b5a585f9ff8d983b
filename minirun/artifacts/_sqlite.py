"""
Artifacts in one SQLite file, which may be that of the sessions.

What is small is one transaction: content and version. Larger content comes in chunks, each a transaction of its own
that waits for no disk; the last one, which gives the content its hash and makes the version visible, waits for all of
it. So the loop is never held for longer than a chunk takes, and what a dead process left has no name.

*   A version is *staged* until the event that names it is stored; `SqliteSessionService` makes it visible in that very
    transaction. Its row says who staged it.
*   The writer of a large content, or its reader, says so in a row (`Use`), for other processes, too. A collection
    spares what is used, and ends the uses of those that are gone.
*   Equal content is stored once. Of a large one that is known by the time its chunks are written, the stored one is
    read first: if it is damaged, the new one takes its place.
*   Contents are deleted in steps, too. The first takes the hash away, so that nobody can name what is half gone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from functools import partial
from sqlite3 import Connection
from typing import Final

import trio

from .._json import brief
from ..env import Env
from ..errors import StorageCorruptError, StorageError
from ..sessions import SqliteSessionService
from ..sessions._sqlite._artifacts import copy_artifacts, delete_artifacts
from ..sessions._sqlite._dead_owners import owner_is_gone
from ..sessions._sqlite._errors import ADVICE
from ..sessions._sqlite._file import Durability, Transaction
from ..sessions._sqlite._guest import FileGuest
from ._chunks import ChunkedContent, ProvenChunks
from ._opening import opening
from ._service import BaseArtifactService
from ._sqlite_rows import (
    Use,
    add_version,
    begin_content,
    chunk_of,
    delete_visible,
    discard,
    drop_chunks,
    find_content,
    find_version,
    name_content,
    put_chunk,
    release,
    rows_of,
    seal_content,
    use_content,
    visible_names,
    visible_versions,
)
from ._values import ArtifactKey, Collected, Description, Scope, Stored

__all__ = ["SqliteArtifactService"]

# A chunk is written, hashed or read within about a millisecond. It is also what a transaction writes at most.
CHUNK_BYTES = 256 * 1024
# So many are deleted in one transaction; SQLite looks at each of their pages.
DROPPED_CHUNKS: Final = 16
# So many rows are looked at before other tasks get their turn.
PAGE_ROWS: Final = 500


class SqliteArtifactService(FileGuest, BaseArtifactService):
    """
    Keeps artifacts in one SQLite file, which several processes may share.

    Deleting and collecting are written to the file's log before anything gets free: on a full disk they need room, too.

    Args:
        place: A file, as `SqliteSessionService` takes it; or such a service, whose file, connection and Env are then
            shared. With the latter a version that an agent saves becomes visible in the transaction that stores the
            event of the save, or not at all; the session service is closed by the code that made it.
        durability: As of `SqliteSessionService`, by default `"power"`; only for a file.
        env: Where time and ids come from; only for a file.

    Raises:
        ConfigurationError: A session service came with a durability or an Env of another.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | SqliteSessionService,
        *,
        durability: Durability | None = None,
        env: Env | None = None,
    ) -> None:
        super().__init__(place, durability=durability, env=env)
        self._late: set[Use] = set()  # uses that could not be ended

    def _after_fork(self) -> None:
        self._late.clear()

    def _shares(self, session_service: object) -> bool:
        return isinstance(session_service, SqliteSessionService) and session_service._file is self._file

    def _owner(self) -> str:
        """Who writes, for others: known to be gone as soon as this process has ended."""
        self._sessions._leases.lock_owner()
        return self._sessions._leases.owner

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
        upload = _Upload(self)
        stager = self._owner() if staged else None
        try:
            async for chunk in chunks:
                await upload.write(chunk)
            await upload.prepare()

            def save(transaction: Transaction) -> int:
                now = self.env.now()
                stored = Stored.of(key, 0, said, size=upload.size, sha256=upload.sha256, create_time=now)
                upload.name(transaction.db)
                return add_version(transaction.db, key, stored, now, stager, least)

            return await self._file.write(save)
        except BaseException:
            await upload.abandon()
            raise

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        stager = self._owner() if staged else None

        def restore(transaction: Transaction) -> int:
            earlier = None if version is None else find_version(transaction.db, key, version)
            return add_version(transaction.db, key, earlier, self.env.now(), stager, least)

        return await self._file.write(restore)

    async def _discard(self, key: ArtifactKey, versions: Collection[int]) -> None:
        if versions:
            await self._file.write(lambda transaction: discard(transaction.db, key, versions), durable=False)

    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        source, target = rows_of(scope), rows_of(new)
        await self._file.write(lambda transaction: copy_artifacts(transaction.db, source, target, versions=versions))

    # --- reading

    @trio.lowlevel.enable_ki_protection
    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        async with self._file.reading() as db:
            return find_version(db, key, version, staged)

    @opening
    @trio.lowlevel.enable_ki_protection
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncGenerator[tuple[Stored, AsyncIterator[bytes]] | None, None]:
        async with self._file.reading() as db:
            stored = find_version(db, key, version, staged)
            content = 0 if stored is None else self._content(db, stored)
            is_small = stored is not None and stored.version.size <= CHUNK_BYTES
            only = (chunk_of(db, content, 0) or b"") if is_small else None
        if stored is None or is_small:
            if stored is None:
                yield None
                return
            with ProvenChunks(stored.version, _Content(self, content, only)) as chunks:
                yield stored, chunks
            return
        opened = await self._use(key, version, staged)
        if opened is None:  # it was deleted meanwhile
            yield None
            return
        stored, use = opened
        try:
            with ProvenChunks(stored.version, _Content(self, use.content)) as chunks:
                yield stored, chunks
        finally:
            with trio.CancelScope(shield=True):
                await self._end(use)

    def _content(self, db: Connection, stored: Stored) -> int:
        found = find_content(db, stored.version.sha256)
        if found is None:
            raise self._damaged(f"the content of {stored.version.canonical_uri} is not there")
        return found

    async def _use(self, key: ArtifactKey, version: int | None, staged: Collection[int]) -> tuple[Stored, Use] | None:
        """Find a version, and let collections spare its content until it is read."""
        owner = self._owner()

        def use(transaction: Transaction) -> tuple[Stored, Use] | None:
            stored = find_version(transaction.db, key, version, staged)
            if stored is None:
                return None
            return stored, use_content(transaction.db, self._content(transaction.db, stored), owner)

        return await self._file.write(use, durable=False)

    async def _end(self, *uses: Use) -> None:
        """End uses; where that fails, the next collection does it."""

        def end(transaction: Transaction) -> None:
            for use in uses:
                release(transaction.db, use)

        try:
            await self._file.write(end, durable=False)
        except StorageError:
            self._late.update(uses)

    @trio.lowlevel.enable_ki_protection
    async def _versions(self, key: ArtifactKey) -> list[int]:
        async with self._file.reading() as db:
            return visible_versions(db, key)

    @trio.lowlevel.enable_ki_protection
    async def _names(self, scope: Scope) -> list[str]:
        async with self._file.reading() as db:
            return visible_names(db, scope)

    # --- deleting

    async def _delete(self, key: ArtifactKey) -> None:
        await self._file.write(lambda transaction: delete_visible(transaction.db, key))

    async def _delete_scope(self, scope: Scope) -> None:
        await self._file.write(lambda transaction: delete_artifacts(transaction.db, rows_of(scope), staged=False))

    async def _gc(self) -> Collected:
        await self._check_names()
        await self._end_the_gone()
        contents, size = 0, 0
        after: int | None = 0
        while after is not None:
            found, after = await self._file.write(partial(self._unname, after), durable=False)
            for content in found:
                contents, size = contents + 1, size + await self._drop(content)
        return Collected(contents=contents, size=size)

    @trio.lowlevel.enable_ki_protection
    async def _check_names(self) -> None:
        """
        See that every version names a content that is there.

        Raises:
            StorageCorruptError: One does not, so nobody knows what it names.
        """
        query = (
            "SELECT v.rowid, v.sha256, c.id FROM artifact_versions v LEFT JOIN contents c ON c.sha256 = v.sha256"
            " WHERE v.rowid > ? ORDER BY v.rowid LIMIT ?"
        )
        after = 0
        while True:
            async with self._file.reading() as db:
                rows = db.execute(query, (after, PAGE_ROWS)).fetchall()
            for _, sha256, content in rows:
                if sha256 is not None and content is None:
                    raise self._damaged(f"a version names the content {brief(sha256)}, which is not there")
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1][0]

    @trio.lowlevel.enable_ki_protection
    async def _end_the_gone(self) -> None:
        """End the uses of owners that are gone, and drop what they have staged."""
        owners = "SELECT owner FROM content_uses UNION SELECT stager FROM artifact_versions WHERE stager IS NOT NULL"
        path, late = self._file.path, list(self._late)
        async with self._file.reading() as db:
            found = [owner for (owner,) in db.execute(owners)]
            gone = [owner for owner in found if path is not None and owner_is_gone(path, owner)]

        def end(transaction: Transaction) -> None:
            for use in late:
                release(transaction.db, use)
            for owner in gone:
                transaction.db.execute("DELETE FROM content_uses WHERE owner = ?", (owner,))
                transaction.db.execute("DELETE FROM artifact_versions WHERE stager = ?", (owner,))

        if gone or late:
            await self._file.write(end, durable=False)
            self._late.difference_update(late)

    def _unname(self, after: int, transaction: Transaction) -> tuple[list[int], int | None]:
        """
        Take the hashes of contents that nobody names or uses, of a page of them from *after* on.

        Returns:
            Those, and where the next page begins, or None.
        """
        db = transaction.db
        rows = "SELECT id FROM contents WHERE id > ? ORDER BY id LIMIT ?"
        page = [number for (number,) in db.execute(rows, (after, PAGE_ROWS))]
        if not page:
            return [], None
        unnamed = (
            "SELECT id FROM contents c WHERE id > ? AND id <= ?"
            " AND NOT EXISTS (SELECT 1 FROM artifact_versions v WHERE v.sha256 = c.sha256)"
            " AND NOT EXISTS (SELECT 1 FROM content_uses u WHERE u.content = c.id)"
        )
        found = [content for (content,) in db.execute(unnamed, (after, page[-1]))]
        for content in found:
            db.execute("UPDATE contents SET sha256 = NULL WHERE id = ?", (content,))
        return found, page[-1]

    async def _drop(self, content: int) -> int:
        """Delete a content that has no hash, in steps, and return how many bytes were deleted."""

        def drop(transaction: Transaction) -> list[int]:
            return drop_chunks(transaction.db, content, DROPPED_CHUNKS)

        size = 0
        while True:
            lengths = await self._file.write(drop, durable=False, heavy=True)
            size += sum(lengths)
            if len(lengths) < DROPPED_CHUNKS:
                return size

    def _damaged(self, what: str) -> StorageCorruptError:
        return StorageCorruptError(f"{self._file.name}: {what:.300}; {ADVICE[StorageCorruptError]}")


class _Upload:
    """Content on its way in: nothing of it is stored before it fills a chunk."""

    def __init__(self, service: SqliteArtifactService) -> None:
        self._service = service
        self._file = service._file
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self._uses: list[Use] = []  # of what was written, then perhaps of what is there already
        self._number = 0
        self.size = 0
        self.sha256 = ""

    async def write(self, chunk: bytes) -> None:
        """Take more of the content, and write what is full."""
        view = memoryview(chunk)
        while view:
            if len(self._waiting) == CHUNK_BYTES:
                await self._flush()
            taken = view[: CHUNK_BYTES - len(self._waiting)]
            self._hash.update(taken)
            self._waiting += taken
            self.size += len(taken)
            view = view[len(taken) :]

    async def _flush(self) -> None:
        data, number = bytes(self._waiting), self._number
        owner = self._service._owner()

        def put(transaction: Transaction) -> Use:
            use = self._uses[0] if self._uses else begin_content(transaction.db, owner)
            put_chunk(transaction.db, use.content, number, data)
            return use

        self._uses = [await self._file.write(put, durable=False, heavy=True)]
        self._number += 1
        self._waiting = bytearray()

    async def prepare(self) -> None:
        """Let all be there but the name: of large content all chunks, or the equal content that is there already."""
        self.sha256 = self._hash.hexdigest()
        if not self._uses:
            return
        await self._flush()
        if await self._is_there():
            mine = self._uses[0]
            await self._service._end(mine)
            await self._service._drop(mine.content)
            self._uses.remove(mine)

    async def _is_there(self) -> bool:
        """Whether equal content is stored, and whole; if so, it is used from here on."""
        owner = self._service._owner()

        def look(transaction: Transaction) -> Use | None:
            found = find_content(transaction.db, self.sha256)
            return None if found is None else use_content(transaction.db, found, owner)

        twin = await self._file.write(look, durable=False)
        if twin is None:
            return False
        self._uses.append(twin)
        content = _Content(self._service, twin.content)
        try:
            while await content.read():
                pass
        except StorageCorruptError:
            return False
        return content.sha256 == self.sha256

    def name(self, db: Connection) -> None:
        """Give the content its hash, in the transaction in which a version names it."""
        if self._uses:
            seal_content(db, self._uses[0].content, self.sha256, self.size)
            for use in self._uses:
                release(db, use)
        else:
            name_content(db, bytes(self._waiting), self.sha256)

    async def abandon(self) -> None:
        """Delete what no version names; where that fails, the next collection does it."""
        if not self._uses:
            return
        with trio.CancelScope(shield=True):
            await self._service._end(*self._uses)
            try:
                await self._service._drop(self._uses[0].content)
            except StorageError:
                pass


class _Content(ChunkedContent):
    """A content of the file."""

    def __init__(self, service: SqliteArtifactService, content: int, only: bytes | None = None) -> None:
        super().__init__(only)
        self._service = service
        self._content = content

    @trio.lowlevel.enable_ki_protection
    async def _chunk(self, number: int) -> bytes:
        async with self._service._file.reading() as db:
            return chunk_of(db, self._content, number) or b""
