"""
The artifacts of a simulated world: what its processes use, and what must hold of them, whatever goes wrong.

The *ledger* knows what was acknowledged (the number that a save has returned, with the hash of what was handed in), and
what somebody has tried without hearing how it ended. With that it judges what is stored: when a process has died, and
at the end. A number that names two contents is told at once.

Where the sessions are in memory, artifacts outlive the processes in a store of their own, as in a bucket: a version is
there as soon as it is saved. On a disk they share the file of the sessions, and come with the event that names them.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import TypeAlias

import attrs

from minirun.artifacts import (
    ArtifactKey,
    BaseArtifactService,
    Description,
    InMemoryArtifactService,
    SqliteArtifactService,
)
from minirun.artifacts import Stored as StoredVersion
from minirun.artifacts._opening import opening
from minirun.artifacts._values import USER_PREFIX, Scope
from minirun.events import Event
from minirun.sessions import SessionKey, SqliteSessionService
from minirun.simulation import Process
from minirun.simulation._services import KeptArtifacts

from .checks import Ledger

__all__ = [
    "ArtifactLedger",
    "CheckedArtifacts",
    "SharedArtifacts",
    "StoredArtifacts",
    "stored_artifacts",
]

StoredArtifacts: TypeAlias = Mapping[ArtifactKey, Mapping[int, str | None]]
"""What everybody sees: the hash of what each version's content is now; None of a hidden one."""


@attrs.define(eq=False)
class _Version:
    """A version that was, or is being, saved: what it may be (None: hidden), and whether only an event shows it."""

    contents: set[str | None]
    staged: bool
    may_be_gone: bool = False


class ArtifactLedger:
    """
    What is known of artifacts, and what must hold of them.

    Args:
        ledger: What is known of the events.
        fail: Told of what does not hold, and of the name of the property.
        events: All events that are stored at this moment, also those that nobody was told of yet.
    """

    def __init__(
        self,
        ledger: Ledger,
        fail: Callable[[str, str], None],
        events: Callable[[], Iterable[tuple[SessionKey, Event]]],
    ) -> None:
        self._ledger = ledger
        self._fail = fail
        self._events = events
        self._versions: defaultdict[ArtifactKey, dict[int, _Version]] = defaultdict(dict)
        self._attempts: defaultdict[ArtifactKey, list[_Version]] = defaultdict(list)  # whose number nobody was told
        self._deleted: defaultdict[ArtifactKey, set[int]] = defaultdict(set)
        self._sources: dict[Scope, tuple[Scope, bool]] = {}  # whether with all that the source shows
        self._emptied: set[tuple[Scope, str | None]] = set()
        self._going: Counter[tuple[Scope, str | None]] = Counter()  # deletions that go on

    # --- what is done

    @contextmanager
    def saving(self, key: ArtifactKey, *, staged: bool) -> Iterator[tuple[_Version, Callable[[int], None]]]:
        """Note a save that begins; what is yielded last is called with the number that it has returned."""
        attempt = _Version(set(), staged)
        self._attempts[key].append(attempt)

        def saved(number: int) -> None:
            if number in self._versions[key]:
                self._fail(f"{key}: the number {number} was given to two versions", "NumbersNameOneVersion")
            self._versions[key][number] = attempt
            self._attempts[key].remove(attempt)

        yield attempt, saved

    def could_be(self, key: ArtifactKey, version: int | None) -> set[str | None]:
        """What a new version may be that is to be what *version* is."""
        found = None if version is None else self._known(key, version)
        if found is None:
            return {None}
        return found.contents | ({None} if found.may_be_gone or found.staged else set())

    @contextmanager
    def deleting(self, scope: Scope, filename: str | None, *, staged: bool = False) -> Iterator[None]:
        """Note a deletion, of one artifact or of all; those that only their stager sees go only if told so."""
        keys = [key for key in self._all_keys() if key.scope == scope and filename in (None, key.filename)]
        named = self._named()
        certain = [
            (key, number)
            for key in keys
            for number, version in self._versions[key].items()
            if staged or not version.staged or number in named[key]
        ]
        self._may_go(scope, filename)
        self._going[scope, filename] += 1
        try:
            yield
        finally:
            self._going[scope, filename] -= 1
            self._may_go(scope, filename)  # what came meanwhile may be gone, too
        for key, number in certain:
            self._deleted[key].add(number)

    def copying(self, source: Scope, new: Scope, *, whole: bool) -> None:
        """Note that *new* may begin with what *source* has: all that is shown there, or what its own events name."""
        self._sources[new] = source, whole

    def forked(self, new: Scope) -> None:
        """Note that a session was forked to *new*: what one of the same id had, which was deleted, is forgotten."""
        for key in self._all_keys():
            if key.scope == new:
                for number in self._deleted.pop(key, ()):
                    self._versions[key].pop(number, None)

    def _may_go(self, scope: Scope, filename: str | None) -> None:
        self._emptied.add((scope, filename))
        for key in self._all_keys():
            if key.scope == scope and filename in (None, key.filename):
                for version in (*self._versions[key].values(), *self._attempts[key]):
                    version.may_be_gone = True

    def _all_keys(self) -> list[ArtifactKey]:
        return list(dict.fromkeys((*self._versions, *self._attempts)))

    @property
    def is_used(self) -> bool:
        """Whether anybody has saved anything."""
        return bool(self._attempts)

    # --- what must hold

    def check(self, stored: StoredArtifacts, *, forks_copy: bool) -> None:
        """
        Judge what is stored, and seen by everybody.

        Args:
            stored: What it is.
            forks_copy: Whether a fork of a session begins with the artifacts that its past names.
        """
        named = self._named()
        for key, versions in stored.items():
            for number, content in versions.items():
                self._check_seen(key, number, content, named)
                if number in self._deleted[key]:
                    self._fail(f"{key}: version {number} was deleted, and is there", "DeletedStaysDeleted")
        for key in self._all_keys():
            for number, version in self._versions[key].items():
                if not version.staged:
                    self._check_kept(key, number, stored)
        for session, log in self._ledger.logs.items():
            for event in log if forks_copy else log[self._ledger.own.get(session, 0) :]:
                for filename, number in event.actions.named_artifacts():
                    self._check_kept(_key_of(session, filename), number, stored)

    def reading(self, key: ArtifactKey, own: Collection[int]) -> _Reading:
        """Note that somebody begins to read, who sees what everybody sees, and *own* versions; it judges the answer."""
        named = self._named()[key]
        shown = {n for n, version in self._versions[key].items() if n in own or n in named or not version.staged}
        return _Reading(self, key, frozenset(own), shown, frozenset(self._deleted[key]))

    def _check_seen(self, key: ArtifactKey, number: int, content: str | None, named: _Named) -> None:
        """Nothing is seen that nobody has saved, or that no event or call has shown."""
        known = self._known(key, number)
        could_be = [known] if known is not None else []
        if number not in self._versions[key]:
            could_be += [attempt for each in self._lineage(key) for attempt in self._attempts[each]]
        fitting = [version for version in could_be if content in version.contents]
        if not fitting:
            self._fail(f"{key}: version {number} is {content}, which nobody has saved as that", "VersionsNeverChange")
        if all(version.staged for version in fitting) and not self._is_shown(key, number, named):
            self._fail(f"{key}: version {number} is seen by all, and no event names it", "ShownByAnEvent")

    def _check_kept(self, key: ArtifactKey, number: int, stored: StoredArtifacts) -> None:
        """What was acknowledged, and what an event names, can be read, unless it was deleted or hides the others."""
        if self._may_be_gone(key, number):
            return
        version = self._known(key, number)
        is_hidden = version is not None and None in version.contents and number in stored.get(key, {})
        if not is_hidden and stored.get(key, {}).get(number) is None:
            self._fail(f"{key}: version {number} was saved and named, and cannot be read", "NamedCanBeRead")

    def _may_be_gone(self, key: ArtifactKey, number: int) -> bool:
        version = self._known(key, number)
        deletions = ((key.scope, None), (key.scope, key.filename))
        if any(self._going[each] for each in deletions):
            return True
        is_emptied = number not in self._versions[key] and any(each in self._emptied for each in deletions)
        return is_emptied or (version is not None and version.may_be_gone)

    def _named(self) -> _Named:
        """What events name, those of deleted sessions included."""
        events = ((session, event) for session, log in self._ledger.logs.items() for event in log)
        return _named_by((*events, *self._ledger.deleted))

    def _is_shown(self, key: ArtifactKey, number: int, named: _Named) -> bool:
        if number in named[key]:
            return True
        source, whole = self._sources.get(key.scope, (None, False))
        return source is not None and whole and self._is_shown(_in(source, key), number, named)

    def _known(self, key: ArtifactKey, number: int) -> _Version | None:
        """The version of this number, which may be one that the session has begun with."""
        found = (self._versions[each].get(number) for each in self._lineage(key))
        return next((version for version in found if version is not None), None)

    def _lineage(self, key: ArtifactKey) -> list[ArtifactKey]:
        """The artifact, and those that it may have begun with."""
        found = [key]
        while (source := self._sources.get(found[-1].scope)) is not None and _in(source[0], key) not in found:
            found.append(_in(source[0], key))
        return found


@attrs.frozen
class _Reading:
    """Somebody reads an artifact: what was shown, and deleted, when that began."""

    _ledger: ArtifactLedger
    _key: ArtifactKey
    _own: frozenset[int]
    _shown: set[int]
    _deleted: frozenset[int]

    def found(self, number: int, content: str) -> None:
        """Judge a version that was found."""
        ledger = self._ledger
        if number in self._deleted:
            ledger._fail(f"{self._key}: version {number} was deleted, and was read", "DeletedStaysDeleted")
        if number in self._own:
            return
        named = ledger._named()
        if not ledger._is_shown(self._key, number, named):  # the event may be stored, and nobody told
            named = _named_by([*ledger._events(), *ledger._ledger.deleted])
        ledger._check_seen(self._key, number, content, named)

    def listed(self, number: int) -> None:
        """Judge a version that is listed."""
        known = self._ledger._known(self._key, number)
        for content in () if known is None else known.contents:
            if content is not None:
                self.found(number, content)

    def newest(self, number: int | None) -> None:
        """Judge which version is the newest; None: none, or a hidden one."""
        shown = [one for one in self._shown if not self._ledger._may_be_gone(self._key, one)]
        hiding = [one for one in self._all_numbers() if None in one.contents]
        if shown and (max(shown) > number if number is not None else not hiding):
            self._fail_lost(max(shown))

    def missing(self, number: int) -> None:
        """Judge that a version was not found."""
        version = self._ledger._known(self._key, number)
        is_readable = version is not None and None not in version.contents
        if is_readable and number in self._shown and not self._ledger._may_be_gone(self._key, number):
            self._fail_lost(number)

    def _all_numbers(self) -> list[_Version]:
        ledger, lineage = self._ledger, self._ledger._lineage(self._key)
        return [one for key in lineage for one in (*ledger._versions[key].values(), *ledger._attempts[key])]

    def _fail_lost(self, number: int) -> None:
        self._ledger._fail(f"{self._key}: version {number} was saved and shown, and is not found", "NamedCanBeRead")


_Named: TypeAlias = defaultdict[ArtifactKey, set[int]]


def _named_by(events: Iterable[tuple[SessionKey, Event]]) -> _Named:
    named: _Named = defaultdict(set)
    for session, event in events:
        for filename, number in event.actions.named_artifacts():
            named[_key_of(session, filename)].add(number)
    return named


def _in(scope: Scope, key: ArtifactKey) -> ArtifactKey:
    return ArtifactKey(*scope, key.filename)


def _key_of(session: SessionKey, filename: str) -> ArtifactKey:
    session_id = None if filename.startswith(USER_PREFIX) else session.session_id
    return ArtifactKey(session.app_name, session.user_id, session_id, filename)


# --- what processes use -----------------------------------------------------------------------------------------------


class _Observed(BaseArtifactService):
    """What the services of a world have in common: the ledger knows what they do."""

    ledger: ArtifactLedger

    async def _save(
        self,
        key: ArtifactKey,
        chunks: AsyncIterator[bytes],
        said: Description,
        *,
        staged: bool = False,
        least: int = 0,
    ) -> int:
        with self.ledger.saving(key, staged=staged) as (version, saved):
            async with aclosing(_hashed(chunks, version.contents)) as hashed:
                number: int = await super()._save(  # type: ignore[safe-super]
                    key, hashed, said, staged=staged, least=least
                )
            saved(number)
            return number

    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        with self.ledger.saving(key, staged=staged) as (restored, saved):
            restored.contents |= self.ledger.could_be(key, version)
            number: int = await super()._restore(  # type: ignore[safe-super]
                key, version, staged=staged, least=least
            )
            restored.contents |= self.ledger.could_be(key, version)  # it may have been deleted meanwhile
            saved(number)
            return number

    async def _find(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> StoredVersion | None:
        reading = self.ledger.reading(key, staged)
        found: StoredVersion | None = await super()._find(key, version, staged=staged)  # type: ignore[safe-super]
        if version is None:
            reading.newest(None if found is None else found.version.version)
        elif found is None:
            reading.missing(version)
        if found is not None:
            reading.found(found.version.version, found.version.sha256)
        return found

    async def _versions(self, key: ArtifactKey) -> list[int]:
        reading = self.ledger.reading(key, ())
        found: list[int] = await super()._versions(key)  # type: ignore[safe-super]
        for number in found:
            reading.listed(number)
        return found

    async def _delete(self, key: ArtifactKey) -> None:
        with self.ledger.deleting(key.scope, key.filename):
            await super()._delete(key)  # type: ignore[safe-super]

    async def _delete_scope(self, scope: Scope) -> None:
        with self.ledger.deleting(scope, None):
            await super()._delete_scope(scope)  # type: ignore[safe-super]

    async def _copy_scope(self, scope: Scope, new: Scope, versions: Mapping[str, int] | None = None) -> None:
        self.ledger.copying(scope, new, whole=True)
        await super()._copy_scope(scope, new, versions)  # type: ignore[safe-super]


async def _hashed(chunks: AsyncIterator[bytes], contents: set[str | None]) -> AsyncGenerator[bytes, None]:
    """The same chunks; at their end their hash is put into *contents*."""
    found = hashlib.sha256()
    async for chunk in chunks:
        found.update(chunk)
        yield chunk
    contents.add(found.hexdigest())


class SharedArtifacts(_Observed, SqliteArtifactService):
    """What a process sees of the artifacts in the file of its sessions."""

    def __init__(self, sessions: SqliteSessionService, ledger: ArtifactLedger) -> None:
        super().__init__(sessions)
        self.ledger = ledger

    @opening
    async def _open(
        self, key: ArtifactKey, version: int | None, *, staged: Collection[int] = ()
    ) -> AsyncGenerator[tuple[StoredVersion, AsyncIterator[bytes]] | None, None]:
        reading = self.ledger.reading(key, staged)
        async with super()._open(key, version, staged=staged) as found:
            if version is None:
                reading.newest(None if found is None else found[0].version.version)
            elif found is None:
                reading.missing(version)
            if found is not None:
                reading.found(found[0].version.version, found[0].version.sha256)
            yield found


class CheckedArtifacts(_Observed, KeptArtifacts):
    """The artifacts of one process outside of all processes."""

    def __init__(self, kept: InMemoryArtifactService, process: Process, ledger: ArtifactLedger) -> None:
        super().__init__(kept, process.env)
        self.ledger = ledger


def stored_artifacts(kept: InMemoryArtifactService) -> StoredArtifacts:
    """What everybody sees of *kept*, with the hashes of the contents as they are."""

    def hash_of(stored: StoredVersion | None) -> str | None:
        if stored is None:
            return None
        content = kept._contents.get(stored.version.sha256)
        return "not there" if content is None else hashlib.sha256(content.data).hexdigest()

    return {
        ArtifactKey(*scope, filename): {number: hash_of(stored) for number, stored in artifact.stored.items()}
        for scope, artifacts in kept._scopes.items()
        for filename, artifact in artifacts.items()
    }
