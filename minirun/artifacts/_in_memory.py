"""
Artifacts in a dict: for tests, simulations and scripts.

It keeps the promises of the other services, and all of it ends with the object. Equal content is held once, and freed
with the last version that names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping

import attrs
import trio

from ..env import Env
from ._opening import opening
from ._service import BaseArtifactService, closed_reader
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

__all__ = ["InMemoryArtifactService"]


@attrs.define
class _Content:
    data: bytes
    uses: int = 0


@attrs.define
class _Artifact:
    following: int = 0  # the number after all that were ever used
    stored: dict[int, Stored | None] = attrs.field(factory=dict)  # in order; None for a hidden one

    def find(self, version: int | None) -> Stored | None:
        if version is None:
            version = next(reversed(self.stored), -1)
        return self.stored.get(version)

    def add(self, number: int, stored: Stored | None) -> None:
        self.stored[number] = stored
        self.following = number + 1


class InMemoryArtifactService(BaseArtifactService):
    """
    Keeps artifacts in memory, as long as the object lives.

    Args:
        env: Where time and ids come from.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._scopes: dict[Scope, dict[str, _Artifact]] = {}
        self._contents: dict[str, _Content] = {}

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
        data = b"".join([chunk async for chunk in chunks])
        sha256 = hashlib.sha256(data).hexdigest()
        await trio.lowlevel.checkpoint()
        artifact = self._made(key)
        number = next_number(artifact.following, least)
        now = self.env.now()
        artifact.add(number, Stored.of(key, number, said, size=len(data), sha256=sha256, create_time=now))
        self._contents.setdefault(sha256, _Content(data)).uses += 1
        return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        assert not staged, "no event makes a version visible here"
        await trio.lowlevel.checkpoint()
        artifact = self._made(key)
        number = next_number(artifact.following, least)
        earlier = None if version is None else artifact.find(version)
        if earlier is not None:
            earlier = earlier.again(key, number, self.env.now())
            self._contents[earlier.version.sha256].uses += 1
        artifact.add(number, earlier)
        return number

    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        assert not staged, "nothing was staged here"
        await trio.lowlevel.checkpoint()
        return self._artifact(key).find(version)

    @opening
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncGenerator[tuple[Stored, AsyncIterator[bytes]] | None, None]:
        stored = await self._find(key, version, staged=staged)
        if stored is None:
            yield None
            return
        content = _Once(stored.version, self._contents[stored.version.sha256].data)
        try:
            yield stored, content
        finally:
            content.is_closed = True

    async def _versions(self, key: ArtifactKey) -> list[int]:
        await trio.lowlevel.checkpoint()
        artifact = self._artifact(key)
        return [number for number, stored in artifact.stored.items() if stored is not None]

    async def _names(self, scope: Scope) -> list[str]:
        await trio.lowlevel.checkpoint()
        return [name for name, artifact in self._scopes.get(scope, {}).items() if artifact.find(None) is not None]

    async def _delete(self, key: ArtifactKey) -> None:
        await trio.lowlevel.checkpoint()
        self._empty(self._artifact(key))

    async def _delete_scope(self, scope: Scope) -> None:
        await trio.lowlevel.checkpoint()
        for artifact in self._scopes.get(scope, {}).values():
            self._empty(artifact)

    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        await trio.lowlevel.checkpoint()
        copies = {}
        for name, artifact in self._scopes.get(scope, {}).items():
            newest = artifact.following if versions is None else versions.get(name, -1)
            chosen = {number: stored for number, stored in artifact.stored.items() if number <= newest}
            if chosen:
                copies[name] = _Artifact(artifact.following, chosen)
        taken = self._scopes.setdefault(new, {})
        for name in copies:
            if name in taken:
                raise taken_name(name, new)
        taken.update(copies)
        for name, artifact in copies.items():
            key = ArtifactKey(*new, name)
            for number, stored in artifact.stored.items():
                if stored is not None:
                    artifact.stored[number] = stored.again(key, number, stored.version.create_time)
                    self._contents[stored.version.sha256].uses += 1

    async def _gc(self) -> Collected:
        await trio.lowlevel.checkpoint()
        return Collected(contents=0, size=0)  # what nobody names was freed at once

    def _artifact(self, key: ArtifactKey) -> _Artifact:
        return self._scopes.get(key.scope, {}).get(key.filename) or _Artifact()

    def _made(self, key: ArtifactKey) -> _Artifact:
        return self._scopes.setdefault(key.scope, {}).setdefault(key.filename, _Artifact())

    def _empty(self, artifact: _Artifact) -> None:
        for stored in artifact.stored.values():
            if stored is None:
                continue
            content = self._contents[stored.version.sha256]
            content.uses -= 1
            if not content.uses:
                del self._contents[stored.version.sha256]
        artifact.stored.clear()


class _Once:
    """One chunk, if it is not empty."""

    def __init__(self, version: ArtifactVersion, data: bytes) -> None:
        self._version = version
        self._data = data
        self.is_closed = False

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        if self.is_closed:
            raise closed_reader(self._version)
        await trio.lowlevel.checkpoint()
        data, self._data = self._data, b""
        if not data:
            raise StopAsyncIteration
        return data
