"""
Artifacts in a Postgres database, that of the sessions.

What is small is one transaction and one round trip: content and version. Larger content comes in chunks, each a
transaction of its own that waits for no disk; the last one, which gives the content its hash and makes the version
visible, waits for all of it. What a dead worker left has no name.

*   A version is *staged* until the event that names it is stored; `DatabaseSessionService` makes it visible in that
    very transaction. Its row says which worker has staged it.
*   The writer of a large content, or its reader, says so in a row (`Use`). A collection spares what is used, and ends
    the uses of workers that are gone.
*   Equal content is stored once. Of a large one that is known by the time its chunks are written, the stored one is
    read first: if it is damaged, the new one takes its place.
*   Contents are deleted in steps, too. The first takes the hash away, so that nobody can name what is half gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from typing import Any, Final

import trio

from .._json import brief
from .._postgres._values import Call, Statement
from ..env import Env
from ..errors import StorageCorruptError, StorageError, StorageRolledBackError
from ..sessions import DatabaseSessionService
from ..sessions._postgres._artifacts import LOCK, taken_error, taken_name
from ..sessions._postgres._guest import DatabaseGuest, sqlite_place
from ..sessions._postgres._text import read_key, stored_key
from . import _database_rows as rows
from ._chunks import ChunkedContent, ProvenChunks
from ._opening import opening
from ._service import BaseArtifactService
from ._values import ArtifactKey, Collected, Description, Scope, Stored, next_number

__all__ = ["DatabaseArtifactService"]

# A chunk is sent within some milliseconds, also to another machine.
CHUNK_BYTES = 256 * 1024
# So many are deleted in one transaction: 16 MB, of which the server only marks the rows.
DROPPED_CHUNKS: Final = 64
# So many contents a collection looks at in one transaction.
PAGE_ROWS: Final = 500
# A worker whose sign of life is missing is gone. But it may have lost its connection alone, and be about to make a new
# one, which takes seconds; and nothing is wrong with its keeping some space for an hour.
GONE_S = 3600.0

# What a power cut may take back: the transaction that names it waits for the disk, and with it for all before.
_HURRIED: Final = Statement("hurried", "SELECT set_config('synchronous_commit', 'off', true)")


class DatabaseArtifactService(DatabaseGuest, BaseArtifactService):
    """
    Keeps artifacts in a Postgres database, which any number of workers may share.

    Args:
        db_url: A URL, as `DatabaseSessionService` takes it; or such a service, whose connections and Env are shared
            then. With the latter a version that an agent saves becomes visible in the transaction that stores the
            event of the save, or not at all; the session service is closed by the code that made it.
        env: Where time and ids come from; only for a URL.

    Of a `sqlite:` URL, or of the service that DatabaseSessionService has made of one, a SqliteArtifactService is made
    and returned.

    Raises:
        ConfigurationError: A session service came with an Env of another, or the URL is none.
        NotSupportedError: It is of another database, or an option of SQLAlchemy's was given; or a class that is derived
            from this one was given a SQLite file.
        InvalidValueError: On use: an app, user or session id has more than 512 bytes of UTF-8.
    """

    _own_service = "a subclass of BaseArtifactService of your own"

    def __new__(cls, db_url: object = None, **options: Any) -> DatabaseArtifactService:
        """Make one; for a SQLite file a SqliteArtifactService. Derived classes are made as they are."""
        place = sqlite_place(cls.__name__, db_url, options) if cls is DatabaseArtifactService else None
        if place is None:
            return super().__new__(cls)
        from ._sqlite import SqliteArtifactService  # a worker on Postgres has no use for it

        return SqliteArtifactService(place, **options)  # type: ignore[return-value]  # on purpose

    def __init__(self, db_url: str | DatabaseSessionService, *, env: Env | None = None, **options: object) -> None:
        super().__init__(db_url, env=env, **options)
        self._late: set[rows.Use] = set()  # uses that could not be ended

    def _after_fork(self) -> None:
        self._late.clear()

    def _shares(self, session_service: object) -> bool:
        return isinstance(session_service, DatabaseSessionService) and session_service._database is self._database

    async def _owner(self) -> str:
        """Who writes, for others: known to be gone when its sign of life is."""
        await self._sessions._leases.show_life()
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
        place = rows.next_place(key, next_number(0, least))
        upload = _Upload(self)
        try:
            async for chunk in chunks:
                await upload.write(chunk)
            naming = await upload.prepare()
            stager = await self._owner() if staged else None
            version = (upload.sha256, upload.size, self.env.now(), rows.about_of(said), stager)
            *_, added = await self._database.write(LOCK(), *naming, rows.ADD(*place, *version))
        except BaseException:
            await upload.abandon()
            raise
        if not added.rows:
            msg = f"{self._database.name}: the content of {brief(key.filename)} was collected before it had its name"
            raise StorageRolledBackError(f"{msg}: this worker was taken for dead; save it again")
        number: int = added.rows[0][0]
        return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        stager = await self._owner() if staged else None
        place = rows.next_place(key, next_number(0, least))
        known = None if version is None or version >= 2**63 else version
        [_, made] = await self._database.write(LOCK(), rows.RESTORE(*place, known, self.env.now(), stager))
        number: int = made.rows[0][0]
        return number

    async def _discard(self, key: ArtifactKey, versions: Collection[int]) -> None:
        if versions:
            await self._database.write(_HURRIED(), rows.DISCARD(*rows.place_of(key), [*versions]))

    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        only = newest = None
        if versions is not None:
            only = [stored_key(filename)[0] for filename in versions]
            newest = [min(number, 2**63 - 1) for number in versions.values()]
        copy = rows.COPY(*rows.rows_of(scope), *rows.rows_of(new), only, newest)
        try:
            await self._database.write(copy)
        except StorageError as error:
            filename = taken_name(error)
            if filename is None:
                raise
            raise taken_error(filename, new[2] or "") from None

    # --- reading

    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        call = rows.find(rows.FIND, key, version, [*staged])
        if call is None:
            return None
        [found] = await self._database.read(call)
        return self._stored(key, found.rows)

    @opening
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncGenerator[tuple[Stored, AsyncIterator[bytes]] | None, None]:
        call = rows.find(rows.OPEN, key, version, [*staged], CHUNK_BYTES)
        found = [] if call is None else (await self._database.read(call))[0].rows
        stored = self._stored(key, found)
        if stored is None:
            yield None
            return
        *_, content, only = found[0]
        if content is None:
            raise self._absent(stored)
        if stored.version.size <= CHUNK_BYTES:
            with ProvenChunks(stored.version, _Content(self, content, only or b"")) as chunks:
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

    async def _use(
        self, key: ArtifactKey, version: int | None, staged: Collection[int]
    ) -> tuple[Stored, rows.Use] | None:
        """Find a version, and let collections spare its content until it is read."""
        call = rows.find(rows.USE_VERSION, key, version, [*staged], await self._owner())
        assert call is not None, "it was found before"
        [*_, found] = await self._database.write(_HURRIED(), LOCK(), call)
        stored = self._stored(key, found.rows)
        if stored is None:
            return None
        *_, use, content = found.rows[0]
        if use is None:
            raise self._absent(stored)
        return stored, rows.Use(use, content)

    def _stored(self, key: ArtifactKey, found: list[tuple[object, ...]]) -> Stored | None:
        """The version of an answer; None if there is none, or it is hidden."""
        if not found or found[0][1] is None:
            return None
        try:
            return rows.stored_of(key, found[0][:5])
        except ValueError as error:
            raise self._damaged(str(error)) from error

    async def _end(self, *uses: rows.Use) -> None:
        """End uses; where that fails, the next collection does it."""
        try:
            await self._database.write(_HURRIED(), rows.RELEASE([use.id for use in uses]))
        except StorageError:
            self._late.update(uses)

    async def _versions(self, key: ArtifactKey) -> list[int]:
        [found] = await self._database.read(rows.VERSIONS(*rows.place_of(key)))
        return [number for (number,) in found.rows]

    async def _names(self, scope: Scope) -> list[str]:
        [found] = await self._database.read(rows.NAMES(*rows.rows_of(scope)))
        return [read_key(key, name) for key, name in found.rows]

    # --- deleting

    async def _delete(self, key: ArtifactKey) -> None:
        await self._database.write(rows.DELETE(*rows.place_of(key)))

    async def _delete_scope(self, scope: Scope) -> None:
        await self._database.write(rows.DELETE_SCOPE(*rows.rows_of(scope)))

    async def _gc(self) -> Collected:
        [dangling] = await self._database.read(rows.DANGLING())
        if dangling.rows:
            raise self._damaged(f"a version names the content {brief(dangling.rows[0][0])}, which is not there")
        late = set(self._late)
        ends = (rows.END_USES([use.id for use in late], GONE_S), rows.DROP_STAGED(GONE_S))
        await self._database.write(_HURRIED(), *ends)
        self._late -= late
        contents, size = 0, 0
        after = 0
        while True:
            [page] = await self._database.read(rows.PAGE_END(after, PAGE_ROWS))
            last = page.rows[0][0]
            if last is None:
                return Collected(contents=contents, size=size)
            [*_, found] = await self._database.write(_HURRIED(), LOCK(), rows.UNNAME(after, last))
            for (content,) in found.rows:
                dropped = await self._drop(content)
                contents, size = contents + dropped.contents, size + dropped.size
            after = last

    async def _drop(self, content: int) -> Collected:
        """Delete a content that has no hash, in steps, and return what was there to be deleted."""
        dropping, size = (rows.DROP_CHUNKS(content, DROPPED_CHUNKS), rows.DROP_CONTENT(content)), 0
        while True:
            [_, chunks, dropped] = await self._database.write(_HURRIED(), *dropping)
            size += sum(length for (length,) in chunks.rows)
            if len(chunks.rows) < DROPPED_CHUNKS:
                return Collected(contents=dropped.changed, size=size)

    def _absent(self, stored: Stored) -> StorageCorruptError:
        return self._damaged(f"the content of {stored.version.canonical_uri} is not there")

    def _damaged(self, what: str) -> StorageCorruptError:
        return StorageCorruptError(f"{self._database.name}: {what:.300}; somebody else has written there: restore it")


class _Upload:
    """Content on its way in: nothing of it is stored before it fills a chunk."""

    def __init__(self, service: DatabaseArtifactService) -> None:
        self._service = service
        self._database = service._database
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self._uses: list[rows.Use] = []  # of what was written, then perhaps of what is there already
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
        owner, data = await self._service._owner(), bytes(self._waiting)
        if self._uses:
            put = rows.PUT_CHUNK(self._uses[0].id, self._number, data)
            await self._database.write(_HURRIED(), put)
        else:
            [_, begun] = await self._database.write(_HURRIED(), rows.BEGIN_CONTENT(owner, data))
            self._uses = [rows.Use(*begun.rows[0])]
        self._number += 1
        self._waiting = bytearray()

    async def prepare(self) -> list[Call]:
        """
        Let all be there but the name: of large content all chunks, or the equal content that is there already.

        Returns:
            What names it, in the transaction in which a version does.
        """
        self.sha256 = self._hash.hexdigest()
        if not self._uses:
            return [rows.NAME_SMALL(self.sha256, bytes(self._waiting))]
        await self._flush()
        if await self._is_there():
            mine = self._uses[0]
            await self._service._end(mine)
            await self._service._drop(mine.content)
            self._uses.remove(mine)
        use = self._uses[0].id
        uses = [each.id for each in self._uses]
        return [rows.UNNAME_TWIN(use, self.sha256), rows.SEAL(use, self.sha256, self.size), rows.RELEASE(uses)]

    async def _is_there(self) -> bool:
        """Whether equal content is stored, and whole; if so, it is used from here on."""
        use = rows.USE_CONTENT(self.sha256, await self._service._owner())
        [*_, found] = await self._database.write(_HURRIED(), LOCK(), use)
        if not found.rows:
            return False
        twin = rows.Use(*found.rows[0])
        self._uses.append(twin)
        content = _Content(self._service, twin.content)
        while await content.read():
            pass
        return content.sha256 == self.sha256

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
    """A content of the database."""

    def __init__(self, service: DatabaseArtifactService, content: int, only: bytes | None = None) -> None:
        super().__init__(only)
        self._service = service
        self._content = content

    async def _chunk(self, number: int) -> bytes:
        [found] = await self._service._database.read(rows.GET_CHUNK(self._content, number))
        return found.rows[0][0] if found.rows else b""
