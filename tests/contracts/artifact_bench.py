"""What the checks of an artifact service stand on: a bench with short forms of its operations on one app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from minirun.artifacts import ArtifactKey, ArtifactVersion, BaseArtifactService, Chunks
from minirun.artifacts._values import described, taken_apart
from minirun.testing._contract import BaseBench, expect
from minirun.types import Blob, Part

__all__ = ["Bench", "Place", "blob"]


class Place(TypedDict):
    """Which artifact an operation is about."""

    app_name: str
    user_id: str
    session_id: str | None
    filename: str


class Bench(BaseBench[BaseArtifactService]):
    """One service under test, with short forms of its operations on one app."""

    def place(self, filename: str = "a.txt", *, session: str | None = "s", user: str = "u", app: str = "") -> Place:
        return Place(app_name=app or self.app, user_id=user, session_id=session, filename=filename)

    async def save(
        self,
        artifact: Part | str | bytes,
        filename: str = "a.txt",
        metadata: Mapping[str, Any] | None = None,
        **where: Any,
    ) -> int:
        if isinstance(artifact, bytes):
            artifact = blob(artifact)
        elif isinstance(artifact, str):
            artifact = Part(text=artifact)
        return await self.service.save_artifact(
            **self.place(filename, **where), artifact=artifact, custom_metadata=metadata
        )

    async def stream(self, chunks: Chunks, filename: str = "a.txt", **where: Any) -> int:
        return await self.service.save_artifact_stream(**self.place(filename, **where), chunks=chunks)

    async def load(self, filename: str = "a.txt", version: int | None = None, **where: Any) -> Part | None:
        return await self.service.load_artifact(**self.place(filename, **where), version=version)

    async def text(self, filename: str = "a.txt", version: int | None = None, **where: Any) -> str | None:
        part = await self.load(filename, version, **where)
        return None if part is None else part.text

    async def read(self, filename: str = "a.txt", version: int | None = None, **where: Any) -> bytes | None:
        """The content, as the stream of it gives it."""
        async with self.service.open_artifact(**self.place(filename, **where), version=version) as reader:
            if reader is None:
                return None
            return b"".join([chunk async for chunk in reader])

    async def about(self, filename: str = "a.txt", version: int | None = None, **where: Any) -> ArtifactVersion:
        found = await self.service.get_artifact_version(**self.place(filename, **where), version=version)
        expect("get_artifact_version finds the version", found is not None, True)
        assert found is not None
        return found

    async def versions(self, filename: str = "a.txt", **where: Any) -> list[int]:
        return await self.service.list_versions(**self.place(filename, **where))

    async def restore(self, version: int | None, filename: str = "a.txt", least: int = 0, **where: Any) -> int:
        """What a rewind does: the newest becomes what *version* was, or nothing."""
        return await self.service._restore(self._key(filename, **where), version, least=least)

    async def save_from(self, least: int, text: str, filename: str = "a.txt", **where: Any) -> int:
        """What a run does in a session whose past comes from elsewhere: the number is not below *least*."""
        data, mime_type, part = taken_apart(Part(text=text))
        said = described(mime_type, part, None)
        return await self.service._save_chunks(self._key(filename, **where), (data,), said, least=least)

    def _key(self, filename: str, **where: Any) -> ArtifactKey:
        place = self.place(filename, **where)
        if filename.startswith("user:"):
            place["session_id"] = None
        return ArtifactKey(**place)

    async def delete(self, filename: str = "a.txt", **where: Any) -> None:
        await self.service.delete_artifact(**self.place(filename, **where))

    async def copy_session(self, session: str, new: str, versions: Mapping[str, int] | None = None) -> None:
        await self.service.copy_session_artifacts(
            app_name=self.app, user_id="u", session_id=session, new_session_id=new, versions=versions
        )

    async def delete_session(self, session: str = "s", *, user: str = "u") -> None:
        await self.service.delete_session_artifacts(app_name=self.app, user_id=user, session_id=session)

    async def names(self, *, session: str | None = "s", user: str = "u", app: str = "") -> list[str]:
        return await self.service.list_artifact_keys(app_name=app or self.app, user_id=user, session_id=session)


def blob(data: bytes, mime_type: str = "application/octet-stream") -> Part:
    return Part(inline_data=Blob(data=data, mime_type=mime_type))
