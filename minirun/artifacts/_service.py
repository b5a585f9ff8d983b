"""
The artifact service: what applications, runners and the authors of other services rely on.

Rules of this file:

1.  A version never changes, and its number never names anything else, also after it was deleted.
2.  Nothing is visible before it is stored as a whole: a save that fails or is cancelled leaves no version.
3.  A save is cancellable until the store has begun to make the version visible, and nothing checkpoints after that.
4.  Content is read and written in chunks; only `load_artifact` holds the whole of it.

A service author subclasses `BaseArtifactService` and implements the storage primitives at its end; what is above them
is the same for all. `tests/contracts/artifact_contract.py` is the contract, as tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeAlias

import trio

from .._json import shown
from .._service import BaseService
from ..errors import InvalidValueError, ServiceClosedError, StorageCorruptError
from ..types import Part
from ._opening import opening
from ._values import (
    ArtifactKey,
    ArtifactVersion,
    Collected,
    Description,
    Scope,
    Stored,
    artifact_key,
    artifact_scope,
    check_version,
    check_versions,
    described,
    described_bytes,
    taken_apart,
)

__all__ = ["ArtifactReader", "BaseArtifactService", "Chunks", "closed_reader", "damaged_content"]

Chunks: TypeAlias = AsyncIterable[bytes | bytearray | memoryview] | Iterable[bytes | bytearray | memoryview]
"""Content, a piece after the other, from any iterable or async iterable."""


class ArtifactReader:
    """
    The content of one version, in chunks: `async for chunk in reader`. Once only, from the beginning to the end.

    After the block of `open_artifact` it raises ServiceClosedError.
    """

    def __init__(self, version: ArtifactVersion, chunks: AsyncIterator[bytes]) -> None:
        self.version = version
        """What is known of the version."""
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)


class BaseArtifactService(BaseService, ABC):
    """
    Keeps artifacts: content in versions, of a session or, if the name begins with `user:`, of a user.

    Every name is a relative path without `.` and `..`. Versions are counted from 0; a number is never used again.

    Args:
        env: Where time and ids come from.
    """

    # --- saving

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: Part,
        session_id: str | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """
        Store a part as the next version of *filename* and return the version's number, from 0.

        Args:
            app_name: The app that the artifact belongs to.
            user_id: The user that it belongs to.
            filename: A relative path; `user:` before it makes the artifact one of the user, in all sessions.
            artifact: A part with text, bytes, or the URI of a file, of which the URI is kept.
            session_id: The session; only names with `user:` may do without.
            custom_metadata: A JSON object to be kept with the version.

        Raises:
            InvalidValueError: A name cannot be one, or the artifact is nothing that can be kept.
            NotSupportedError: The artifact refers to another one.
            StorageError: The store failed.
        """
        key = self._key(app_name, user_id, session_id, filename)
        data, mime_type, part = taken_apart(artifact)
        return await self._save_chunks(key, (data,), described(mime_type, part, custom_metadata))

    async def save_artifact_stream(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        chunks: Chunks,
        mime_type: str = "application/octet-stream",
        session_id: str | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """
        Store bytes that come in *chunks* as the next version of *filename* and return the version's number.

        It loads as a part with `inline_data`. An error of the chunks is raised as it is, and leaves no version.

        Raises:
            InvalidValueError: A name cannot be one, or a chunk is not bytes.
            StorageError: The store failed.
        """
        key = self._key(app_name, user_id, session_id, filename)
        return await self._save_chunks(key, chunks, described_bytes(mime_type, custom_metadata))

    async def _save_chunks(
        self, key: ArtifactKey, chunks: Chunks, said: Description, *, staged: bool = False, least: int = 0
    ) -> int:
        async with aclosing(_checked(chunks)) as checked:
            return await self._save(key, checked, said, staged=staged, least=least)

    # --- reading

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> Part | None:
        """
        Return the part of a version, by default the newest; None if there is no such version.

        Raises:
            StorageCorruptError: What is stored is not what was saved.
        """
        return await self._load(self._key(app_name, user_id, session_id, filename), check_version(version))

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C on the way out of the block would leave the content in use
    async def _load(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Part | None:
        async with self._open(key, version, staged=staged) as found:
            if found is None:
                return None
            stored, chunks = found
            data = b"".join([chunk async for chunk in chunks])
        try:
            return stored.put_together(data)
        except ValueError as error:
            msg = f"{stored.version.canonical_uri}: expected what makes a part, found {error}; the store is damaged"
            raise StorageCorruptError(msg) from error

    @opening
    async def open_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> AsyncGenerator[ArtifactReader | None, None]:
        """
        Open a version, by default the newest, to be read in chunks; None if there is no such version.

        What is open can be read to its end, also when it is deleted meanwhile. That the content is what was saved is
        known at the end, where StorageCorruptError is raised if it is not.
        """
        key = self._key(app_name, user_id, session_id, filename)
        async with self._open(key, check_version(version)) as found:
            yield None if found is None else ArtifactReader(found[0].version, found[1])

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return what is known of a version, by default the newest; None if there is no such version."""
        found = await self._find(self._key(app_name, user_id, session_id, filename), check_version(version))
        return None if found is None else found.version

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """Return the names of a session's artifacts and of its user's, sorted; without a session only the user's."""
        self._check_open()
        scope = artifact_scope(app_name, user_id, session_id)
        names = await self._names((*scope[:2], None))
        return sorted(names if session_id is None else [*names, *await self._names(scope)])

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the numbers of the versions that there are, in order."""
        return await self._versions(self._key(app_name, user_id, session_id, filename))

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return what is known of each version, in order."""
        key = self._key(app_name, user_id, session_id, filename)
        found = [await self._find(key, number) for number in await self._versions(key)]
        return [stored.version for stored in found if stored is not None]

    # --- deleting

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """
        Delete all versions of an artifact, if there are any; their numbers stay used.

        Content that no other version names is deleted by the next `gc` at the latest.
        """
        await self._delete(self._key(app_name, user_id, session_id, filename))

    async def delete_session_artifacts(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete all artifacts of a session, as `delete_artifact` does; those of its user stay."""
        self._check_open()
        if session_id is None:
            raise InvalidValueError("session_id", "expected the id of a session, found None")
        await self._delete_scope(artifact_scope(app_name, user_id, session_id))

    async def copy_session_artifacts(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        new_session_id: str,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        """
        Give another session all versions of a session's artifacts, with their numbers; contents are not copied.

        Where a store is several files, it is done name by name; done again, it goes on where it was interrupted.

        Args:
            app_name: The app of both sessions.
            user_id: Their user.
            session_id: The session that has the artifacts.
            new_session_id: The one that gets them.
            versions: The newest version to be copied, by name; what has no name here is not copied. What a fork's past
                knows of are the highest numbers in the `actions.named_artifacts()` of its events.

        Raises:
            AlreadyExistsError: The other session has, or had, an artifact of one of the names, and not the same one.
            InvalidValueError: An id cannot be one, or `versions` is no mapping of names to numbers.
        """
        self._check_open()
        for name, value in (("session_id", session_id), ("new_session_id", new_session_id)):
            if value is None:
                raise InvalidValueError(name, "expected the id of a session, found None")
        source = artifact_scope(app_name, user_id, session_id)
        target = artifact_scope(app_name, user_id, new_session_id)
        await self._copy_scope(source, target, check_versions(versions))

    async def gc(self) -> Collected:
        """
        Delete the content that no version names, and what processes that have ended left behind.

        Raises:
            StorageCorruptError: A version cannot be read, so nobody knows what it names; nothing was deleted.
        """
        self._check_open()
        return await self._gc()

    # --- helpers

    def _key(self, app_name: str, user_id: str, session_id: str | None, filename: str) -> ArtifactKey:
        self._check_open()
        return artifact_key(app_name, user_id, session_id, filename)

    # --- staging: for a service that can make versions visible in the transaction of an event

    def _shares(self, session_service: object) -> bool:
        """
        Whether staged versions become visible in the very transaction in which *session_service* stores their event.

        They do so with the event whose `actions.artifact_delta` names them. Nobody stages in a service that says no.
        """
        return False

    async def _discard(self, key: ArtifactKey, versions: Collection[int]) -> None:
        """Drop staged versions that no event will name; those that are visible stay. Their numbers stay used."""
        assert not versions, "nobody has staged anything here"

    # --- the storage primitives: what a service implements, given checked arguments

    @abstractmethod
    async def _save(
        self,
        key: ArtifactKey,
        chunks: AsyncIterator[bytes],
        said: Description,
        *,
        staged: bool = False,
        least: int = 0,
    ) -> int:
        """
        Store the content as the next version and return its number; the first is 0.

        The number is not below *least* (see `next_number`): those below are named by events of a past that came from
        elsewhere. What is left out stays unused.

        A *staged* one is stored and has its number, and only who names that number sees it. It is asked for only
        where `_shares` has said yes.
        """

    @abstractmethod
    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        """
        Make a new version that is what *version* was, with the same content, not copied; return its number.

        With None, or if there is no such version any more, the new one is *hidden*: the newest is nothing then, the
        name is not listed, and the number names nothing; earlier versions stay, and a later save is seen again.
        """

    @abstractmethod
    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        """Return a version, or the newest; for this reader the *staged* numbers are visible."""

    @abstractmethod
    def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AbstractAsyncContextManager[tuple[Stored, AsyncIterator[bytes]] | None]:
        """Open the content of a version, or of the newest; for this reader the *staged* numbers are visible."""

    @abstractmethod
    async def _versions(self, key: ArtifactKey) -> list[int]:
        """Return the numbers of all versions that can be read, in order; there may be gaps."""

    @abstractmethod
    async def _names(self, scope: Scope) -> list[str]:
        """Return the names of the artifacts of this scope alone whose newest version is not hidden."""

    @abstractmethod
    async def _delete(self, key: ArtifactKey) -> None:
        """Delete all versions."""

    @abstractmethod
    async def _delete_scope(self, scope: Scope) -> None:
        """Delete all versions of all artifacts of this scope alone."""

    @abstractmethod
    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        """
        Let *new* have all visible versions of the artifacts of *scope*, hidden ones included, or raise.

        With *versions* only those of its names, up to its numbers.
        """

    @abstractmethod
    async def _gc(self) -> Collected:
        """Delete the content that no version names."""


def closed_reader(version: ArtifactVersion) -> ServiceClosedError:
    """The error for who reads what is not open any more."""
    msg = f"expected to be read within `async with open_artifact(...)`, found {version.canonical_uri} closed"
    return ServiceClosedError(f"{msg}; open it again")


def damaged_content(version: ArtifactVersion, size: int) -> StorageCorruptError:
    """The error for a read of *size* bytes that are not those that were saved."""
    msg = f"{version.canonical_uri}: expected {version.size} bytes with the sha256 {version.sha256}"
    return StorageCorruptError(f"{msg}, found {size} others; the file is damaged, save the artifact again")


async def _checked(chunks: Chunks) -> AsyncGenerator[bytes, None]:
    """The chunks as bytes, from either kind of iterable."""
    check: Callable[[object], bytes] = _bytes_of
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield check(chunk)
    elif isinstance(chunks, (str, bytes, bytearray, memoryview)) or not isinstance(chunks, Iterable):
        raise InvalidValueError("chunks", f"expected an iterable of bytes, found {shown(chunks)}; write [data]")
    else:
        for chunk in chunks:
            yield check(chunk)


def _bytes_of(chunk: object) -> bytes:
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    raise InvalidValueError("chunks", f"expected bytes, found {shown(chunk)}")
