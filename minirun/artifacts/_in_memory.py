"""
Artifacts in a dict: for tests, simulations and scripts.

It keeps the promises of the other services, and all of it ends with the object. Equal content is held once, and freed
with the last version that names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import attrs
import trio

from ..env import Env
from ._service import BaseArtifactService
from ._values import ArtifactKey, Collected, Description, Scope, Stored, taken_name

__all__ = ["InMemoryArtifactService"]


@attrs.define
class _Content:
    data: bytes
    uses: int = 0


@attrs.define
class _Artifact:
    first: int = 0  # the number of the first version that is not deleted
    stored: list[Stored | None] = attrs.field(factory=list)  # None for a hidden one

    @property
    def versions(self) -> range:
        return range(self.first, self.first + len(self.stored))

    def find(self, version: int | None) -> Stored | None:
        versions = self.versions
        if version is None:
            return self.stored[-1] if versions else None
        return self.stored[version - self.first] if version in versions else None


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
        self, key: ArtifactKey, chunks: AsyncIterator[bytes], said: Description, *, staged: bool = False
    ) -> int:
        assert not staged, "no event makes a version visible here"
        data = b"".join([chunk async for chunk in chunks])
        sha256 = hashlib.sha256(data).hexdigest()
        await trio.lowlevel.checkpoint()
        artifact = self._made(key)
        number = artifact.versions.stop
        now = self.env.now()
        artifact.stored.append(Stored.of(key, number, said, size=len(data), sha256=sha256, create_time=now))
        self._contents.setdefault(sha256, _Content(data)).uses += 1
        return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False) -> int:
        assert not staged, "no event makes a version visible here"
        await trio.lowlevel.checkpoint()
        artifact = self._made(key)
        number = artifact.versions.stop
        earlier = None if version is None else artifact.find(version)
        if earlier is not None:
            earlier = earlier.again(key, number, self.env.now())
            self._contents[earlier.version.sha256].uses += 1
        artifact.stored.append(earlier)
        return number

    async def _find(self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()) -> Stored | None:
        assert not staged, "nothing was staged here"
        await trio.lowlevel.checkpoint()
        return self._artifact(key).find(version)

    @asynccontextmanager
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncIterator[tuple[Stored, AsyncIterator[bytes]] | None]:
        stored = await self._find(key, version, staged=staged)
        yield None if stored is None else (stored, _Once(self._contents[stored.version.sha256].data))

    async def _versions(self, key: ArtifactKey) -> list[int]:
        await trio.lowlevel.checkpoint()
        artifact = self._artifact(key)
        return [number for number in artifact.versions if artifact.find(number) is not None]

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

    async def _copy_scope(self, scope: Scope, new: Scope) -> None:
        await trio.lowlevel.checkpoint()
        sources = {name: artifact for name, artifact in self._scopes.get(scope, {}).items() if artifact.stored}
        taken = self._scopes.setdefault(new, {})
        for name in sources:
            if name in taken:
                raise taken_name(name, new)
        for name, artifact in sources.items():
            key = ArtifactKey(*new, name)
            copies = [
                stored and stored.again(key, stored.version.version, stored.version.create_time)
                for stored in artifact.stored
            ]
            taken[name] = _Artifact(artifact.first, copies)
            for stored in copies:
                if stored is not None:
                    self._contents[stored.version.sha256].uses += 1

    async def _gc(self) -> Collected:
        await trio.lowlevel.checkpoint()
        return Collected(contents=0, size=0)  # what nobody names was freed at once

    def _artifact(self, key: ArtifactKey) -> _Artifact:
        return self._scopes.get(key.scope, {}).get(key.filename) or _Artifact()

    def _made(self, key: ArtifactKey) -> _Artifact:
        return self._scopes.setdefault(key.scope, {}).setdefault(key.filename, _Artifact())

    def _empty(self, artifact: _Artifact) -> None:
        artifact.first = artifact.versions.stop
        for stored in artifact.stored:
            if stored is None:
                continue
            content = self._contents[stored.version.sha256]
            content.uses -= 1
            if not content.uses:
                del self._contents[stored.version.sha256]
        artifact.stored.clear()


class _Once:
    """One chunk, if it is not empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        data, self._data = self._data, b""
        if not data:
            raise StopAsyncIteration
        return data
