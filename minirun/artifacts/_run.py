"""
Artifacts, as one run of a session sees them.

A run sees what everybody sees, and what it has saved itself. Where the artifact service shares the session service's
store, that is a difference: what the run saves is *staged* there, and everybody sees it once the event that names it is
stored. What no event has named by the end of the run is dropped. Other services show a version as soon as it is saved.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .._json import brief, freeze
from .._service import given
from .._values import changed
from ..errors import InvalidEventError, StorageError
from ..events import Event, EventActions
from ..types import Part
from ._opening import opening
from ._service import ArtifactReader, BaseArtifactService, Chunks
from ._values import (
    ArtifactKey,
    ArtifactVersion,
    artifact_key,
    check_version,
    described,
    described_bytes,
    taken_apart,
)

if TYPE_CHECKING:
    from ..sessions import LiveSession
    from ..sessions._store import SessionStore

__all__ = ["RunArtifacts", "Save", "artifacts_of"]

Save: TypeAlias = Callable[[], Awaitable[int]]
"""Saves what was checked, and returns the number of the new version."""


def artifacts_of(
    service: BaseArtifactService | None, live: LiveSession, sessions: SessionStore
) -> RunArtifacts:
    """
    Return the artifacts of a session that is run: what *sessions* keeps.

    Raises:
        ServiceNotConfiguredError: There is no service.
    """
    found, key = given(service, "artifact"), live.key
    return RunArtifacts(
        found,
        key.app_name,
        key.user_id,
        key.session_id,
        staged=found._shares(sessions),
        past=lambda: live.events,
    )


class RunArtifacts:
    """
    The artifacts of a session, for one run.

    Args:
        service: Where they are kept.
        staged: Whether versions are shown by the event that names them, and not before.
        past: The events that the run sees. Where the service has nothing under a name that stands there, as in a fork
            whose artifacts were not copied, numbers go on above those that they name.
    """

    def __init__(
        self,
        service: BaseArtifactService,
        app_name: str,
        user_id: str,
        session_id: str,
        *,
        staged: bool,
        past: Callable[[], Iterable[Event]],
    ) -> None:
        self._service = service
        self._session = app_name, user_id, session_id
        self._past = past
        self._floors: dict[ArtifactKey, int] = {}
        self.is_staged = staged
        self._staged: dict[ArtifactKey, set[int]] = {}  # what no event has named yet
        self._dropped: list[tuple[ArtifactKey, set[int]]] = []  # what none will name
        self._saved: set[tuple[str, int]] = set()

    # --- saving

    def to_save(self, filename: str, artifact: Part, custom_metadata: Mapping[str, Any] | None) -> Save:
        """Check everything, and return what saves the part; see `BaseArtifactService.save_artifact`."""
        key = self._key(filename)
        data, mime_type, part = taken_apart(artifact)
        said = described(mime_type, part, custom_metadata)
        return partial(self._save, key, partial(self._service._save_chunks, key, (data,), said))

    def to_save_stream(
        self, filename: str, chunks: Chunks, mime_type: str, custom_metadata: Mapping[str, Any] | None
    ) -> Save:
        """Check what can be, and return what saves the bytes; see `BaseArtifactService.save_artifact_stream`."""
        key = self._key(filename)
        said = described_bytes(mime_type, custom_metadata)
        return partial(self._save, key, partial(self._service._save_chunks, key, chunks, said))

    async def restore(self, filename: str, version: int | None) -> int:
        """Let the newest be what *version* was, or nothing; return the number of the new version."""
        key = self._key(filename)
        return await self._save(key, partial(self._service._restore, key, version))

    async def _save(self, key: ArtifactKey, save: Callable[..., Awaitable[int]]) -> int:
        number = await save(staged=self.is_staged, least=await self._floor(key))
        if self.is_staged:
            self._staged.setdefault(key, set()).add(number)
        self._saved.add((key.filename, number))
        return number

    async def _floor(self, key: ArtifactKey) -> int:
        """The least number that a new version may have; looked for once for each name."""
        if key not in self._floors:
            least = 0
            if not self.is_staged and await self._service._find(key, None) is None:
                named = (found for event in self._past() for found in event.actions.named_artifacts())
                least = max((number + 1 for name, number in named if name == key.filename), default=0)
            self._floors[key] = least
        return self._floors[key]

    def named(self, actions: EventActions) -> None:
        """An event that names versions is stored: everybody sees them."""
        for filename, number in actions.named_artifacts():  # also where the service was closed meanwhile
            self._staged.get(artifact_key(*self._session, filename), set()).discard(number)

    def drop(self, saved: Mapping[str, Iterable[int]]) -> None:
        """No event will name these versions: nobody sees them any more, where nobody else has."""
        for filename, numbers in saved.items() if self.is_staged else ():
            key, dropped = self._key(filename), set(numbers)
            self._own(key).difference_update(dropped)
            self._dropped.append((key, dropped))

    async def discard(self) -> None:
        """Delete what no event has named."""
        for key, numbers in (*self._staged.items(), *self._dropped):
            if numbers:
                await self._service._discard(key, numbers)
        self._staged.clear()
        self._dropped.clear()

    async def drop_unnamed(self) -> None:
        """Do so at the end of a run. A collection finds what is left if that fails."""
        with suppress(StorageError):
            await self.discard()

    async def checked(self, actions: EventActions) -> EventActions:
        """
        What an event may name of what *actions* name: versions of this run that were deleted meanwhile are left out.

        Raises:
            InvalidEventError: Something else is not there.
        """
        gone: set[tuple[str, int]] = set()
        for filename, number in actions.named_artifacts():
            if await self.version(filename, number) is None:
                if (filename, number) not in self._saved:
                    msg = (
                        "expected artifact_delta and artifact_versions to name versions that there are, found "
                        f"{brief(filename)} version {number}; save them first, and name what save_artifact returns"
                    )
                    raise InvalidEventError(msg)
                gone.add((filename, number))
        if not gone:
            return actions
        delta = {each: number for each, number in actions.artifact_delta.items() if (each, number) not in gone}
        left = {
            each: [number for number in numbers if (each, number) not in gone]
            for each, numbers in actions.artifact_versions.items()
        }
        others = {each: numbers for each, numbers in left.items() if numbers}
        return changed(actions, artifact_delta=freeze(delta), artifact_versions=freeze(others))

    # --- reading

    async def version(self, filename: str, version: int | None) -> ArtifactVersion | None:
        """What is known of a version, or of the newest."""
        key, number = self._key(filename), check_version(version)
        found = await self._service._find(key, number, staged=self._own(key))
        return None if found is None else found.version

    async def load(self, filename: str, version: int | None) -> Part | None:
        """The part of a version, or of the newest."""
        key, number = self._key(filename), check_version(version)
        return await self._service._load(key, number, staged=self._own(key))

    def open(self, filename: str, version: int | None) -> AbstractAsyncContextManager[ArtifactReader | None]:
        """Open a version, or the newest, to be read in chunks."""
        return self._open(self._key(filename), check_version(version))

    @opening
    async def _open(self, key: ArtifactKey, number: int | None) -> AsyncGenerator[ArtifactReader | None, None]:
        async with self._service._open(key, number, staged=self._own(key)) as found:
            yield None if found is None else ArtifactReader(found[0].version, found[1])

    async def versions(self, filename: str) -> list[int]:
        """The numbers of the versions that everybody sees."""
        return await self._service._versions(self._key(filename))

    async def names(self) -> list[str]:
        """The names of the session's artifacts and of its user's, sorted."""
        app_name, user_id, session_id = self._session
        names = await self._service.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=session_id)
        own = {key.filename for key, numbers in self._staged.items() if numbers}
        return sorted(own.union(names))

    # --- deleting

    async def delete(self, filename: str) -> None:
        """Delete all versions, also those that only this run sees."""
        key = self._key(filename)
        await self._service._delete(key)
        await self._service._discard(key, self._own(key))
        self._staged.pop(key, None)

    # --- helpers

    def _key(self, filename: str) -> ArtifactKey:
        self._service._check_open()
        return artifact_key(*self._session, filename)

    def _own(self, key: ArtifactKey) -> set[int]:
        return self._staged.get(key, set())
