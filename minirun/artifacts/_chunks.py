"""Reading a content chunk by chunk, and the proof at its end that it is what was saved."""

from __future__ import annotations

import hashlib

import trio

from ._service import closed_reader, damaged_content
from ._values import ArtifactVersion

__all__ = ["ChunkedContent", "ProvenChunks"]


class ChunkedContent:
    """The chunks of a content, one after another; of a small one *only* that, which was read already."""

    def __init__(self, only: bytes | None = None) -> None:
        self._only = only
        self._hash = hashlib.sha256()
        self._number = 0
        self.size = 0

    @property
    def sha256(self) -> str:
        """The hash of what was read."""
        return self._hash.hexdigest()

    async def _chunk(self, number: int) -> bytes:
        """Read a chunk of the store, the first one is 0; empty if there is none."""
        raise NotImplementedError

    async def read(self) -> bytes:
        """The next chunk; empty at the end."""
        if self._only is None:
            data = await self._chunk(self._number)
        else:
            await trio.lowlevel.checkpoint()
            data, self._only = self._only, b""
        self._number += 1
        self._hash.update(data)
        self.size += len(data)
        return data


class ProvenChunks:
    """The content of a version, and at its end the proof that it is what was saved."""

    def __init__(self, version: ArtifactVersion, content: ChunkedContent) -> None:
        self._version = version
        self._content = content
        self._is_closed = False

    def __enter__(self) -> ProvenChunks:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True

    def __aiter__(self) -> ProvenChunks:
        return self

    async def __anext__(self) -> bytes:
        if self._is_closed:
            raise closed_reader(self._version)
        data = await self._content.read()
        if data:
            return data
        if self._content.sha256 != self._version.sha256:
            raise damaged_content(self._version, self._content.size)
        raise StopAsyncIteration
