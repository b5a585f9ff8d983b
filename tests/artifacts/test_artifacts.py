"""
Facts about every artifact service: the public contract, and what holds for any sequence of operations.

And about the one that keeps files: what is on the disk when it dies at any step, when the disk fails at any step, and
when other processes use the same folder.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import hashlib
import json
import os
import shutil
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import Env
from minirun.artifacts import (
    ArtifactKey,
    ArtifactVersion,
    BaseArtifactService,
    Collected,
    DatabaseArtifactService,
    Description,
    FileArtifactService,
    InMemoryArtifactService,
    SqliteArtifactService,
    _disk,
    _file,
    _file_store,
    _file_versions,
)
from minirun.errors import (
    InvalidValueError,
    NotSupportedError,
    ServiceClosedError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFormatError,
    StorageFullError,
    StorageReadOnlyError,
    StorageRolledBackError,
    StorageUncertainError,
)
from minirun.sessions import DatabaseSessionService, SqliteSessionService
from minirun.types import Part

from ..contracts.artifact_contract import artifact_service_checks, check_artifact_service
from ..examples import examples
from ..fork_server import program, run, start
from ..interruptions import CancelAtStep, enumerate_steps
from ..kept_open import KeptOpen, keeps
from ..stores import database_of

HERE: dict[str, Any] = {"app_name": "app", "user_id": "u", "session_id": "s", "filename": "a.txt"}


async def save(service: BaseArtifactService, text: str, **where: Any) -> int:
    return await service.save_artifact(**(HERE | where), artifact=Part(text=text))


async def text_of(service: BaseArtifactService, version: int | None = None, **where: Any) -> str | None:
    part = await service.load_artifact(**(HERE | where), version=version)
    return None if part is None else part.text


def files(root: Path, folder: str) -> list[Path]:
    return sorted(path for path in (root / folder).rglob("*") if path.is_file())


def everything(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


def record_of(root: Path, filename: str = "a.txt") -> Path:
    """The record of version 0 of an artifact."""
    [record] = [path for path in root.rglob("0.json") if json.loads(path.read_text())["filename"] == filename]
    return record


# --- the contract -----------------------------------------------------------------------------------------------------


class InTheFileOfSessions(SqliteArtifactService):
    """Shares the file of a session service, and closes that when it is closed."""

    def __init__(self, path: Path) -> None:
        self.sessions = SqliteSessionService(path)
        super().__init__(self.sessions)

    async def _close(self) -> None:
        await super()._close()
        await self.sessions.aclose()


class InTheDatabaseOfSessions(DatabaseArtifactService):
    """Shares the database of a session service, and closes that when it is closed."""

    def __init__(self, url: str) -> None:
        self.sessions = DatabaseSessionService(url)
        super().__init__(self.sessions)

    async def _close(self) -> None:
        await super()._close()
        await self.sessions.aclose()


def services(folder: Path) -> dict[str, Callable[[], BaseArtifactService]]:
    return {
        "memory": InMemoryArtifactService,
        "file": lambda: FileArtifactService(folder / "artifacts"),
        "sqlite in memory": lambda: SqliteArtifactService(":memory:"),
        "sqlite": lambda: SqliteArtifactService(folder / "artifacts.db"),
        "sqlite process": lambda: SqliteArtifactService(folder / "process.db", durability="process"),
        "with sessions": lambda: InTheFileOfSessions(folder / "sessions.db"),
        "postgres": lambda: DatabaseArtifactService(database_of(folder)),
        "postgres with sessions": lambda: InTheDatabaseOfSessions(database_of(folder)),
    }


KINDS = tuple(services(Path()))
DURABLE = frozenset(KINDS) - {"memory", "sqlite in memory"}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_service_keeps_the_contract(kind: str, tmp_path: Path) -> None:
    """Each check of the public contract holds for each service; the note of a failure says which does not."""
    await keeps(services(tmp_path)[kind], artifact_service_checks, durable=kind in DURABLE)


async def test_the_contract_runs_as_a_whole_on_one_store(tmp_path: Path) -> None:
    """check_artifact_service runs every check, also on a store that all of them share, and twice."""
    async with KeptOpen(InMemoryArtifactService) as kept:
        for _ in range(2):
            await check_artifact_service(kept)
    await check_artifact_service(services(tmp_path)["file"], durable=True)


class CountsWhatIsThere(InMemoryArtifactService):
    async def _delete(self, key: ArtifactKey) -> None:
        await super()._delete(key)
        self._scopes.get(key.scope, {}).pop(key.filename, None)


class ListsDeletedNames(InMemoryArtifactService):
    async def _names(self, scope: Any) -> list[str]:
        return list(self._scopes.get(scope, {}))


class ForgetsTheUsers(InMemoryArtifactService):
    async def _delete_scope(self, scope: Any) -> None:
        await super()._delete_scope(scope)
        await super()._delete_scope((*scope[:2], None))


class KeepsHalfOfAStream(InMemoryArtifactService):
    async def _save(
        self, key: ArtifactKey, chunks: AsyncIterator[bytes], said: Description, *, staged: bool = False, least: int = 0
    ) -> int:
        async def some() -> AsyncIterator[bytes]:
            try:
                async for chunk in chunks:
                    yield chunk
            except OSError:
                pass

        async with aclosing(some()) as kept:  # type: ignore[type-var]  # an async generator has aclose
            return await super()._save(key, kept, said)


class CollectsEverything(InMemoryArtifactService):
    async def _gc(self) -> Collected:
        for content in self._contents.values():
            content.data = b""
        return await super()._gc()


class GivesNumbersLate(InMemoryArtifactService):
    async def _save(
        self, key: ArtifactKey, chunks: AsyncIterator[bytes], said: Description, *, staged: bool = False, least: int = 0
    ) -> int:
        await super()._save(key, chunks, said)
        await trio.lowlevel.checkpoint()
        return (await self._versions(key))[-1]


class ForgetsWhatItHides(InMemoryArtifactService):
    async def _restore(self, key: ArtifactKey, version: int | None, *, staged: bool = False, least: int = 0) -> int:
        number = await super()._restore(key, version)
        if version is None:
            self._artifact(key).stored.clear()
        return number


@pytest.mark.parametrize(
    ("broken", "note"),
    [
        (CountsWhatIsThere, "a number is never used again"),
        (ListsDeletedNames, "a number is never used again"),
        (ForgetsTheUsers, "a session goes without what is the users"),
        (KeepsHalfOfAStream, "a stream that fails is no version"),
        (CollectsEverything, "gc takes only what nobody names"),
        (GivesNumbersLate, "a cancelled save is whole or nothing"),
        (ForgetsWhatItHides, "the newest can be hidden"),
    ],
)
async def test_the_contract_finds_a_broken_service(broken: type[BaseArtifactService], note: str) -> None:
    """A service that breaks a promise fails its check, with a note that names the promise."""
    check = artifact_service_checks()[note.replace(" ", "_")]
    with pytest.raises(AssertionError) as caught:
        await check(broken)
    assert note in caught.value.__notes__[0]


# --- the weaknesses of the peer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_an_old_number_never_names_new_content(kind: str, tmp_path: Path) -> None:
    """A delta of the past that names a version still names that content or nothing, after a delete and a new save."""
    service = services(tmp_path)[kind]()
    delta = {"a.txt": await save(service, "old")}
    await service.delete_artifact(**HERE)
    assert await save(service, "new") == 1
    assert await text_of(service, delta["a.txt"]) is None


async def test_equal_content_lies_there_once(tmp_path: Path) -> None:
    """Equal content of any versions, names, sessions and users is one file, which gc deletes with the last of them."""
    service = FileArtifactService(tmp_path)
    for where in ({}, {}, {"filename": "b"}, {"session_id": "t"}, {"user_id": "v"}, {"filename": "user:a"}):
        await save(service, "same", **where)
    assert [path.name for path in files(tmp_path, "content")] == [hashlib.sha256(b"same").hexdigest()]
    for where in ({}, {"filename": "b"}, {"session_id": "t"}, {"filename": "user:a"}):
        await service.delete_artifact(**(HERE | where))
    assert await service.gc() == Collected(contents=0, size=0)
    await service.delete_artifact(**(HERE | {"user_id": "v"}))
    assert await service.gc() == Collected(contents=1, size=4)
    assert files(tmp_path, "content") == []


async def test_memory_frees_what_nobody_names() -> None:
    """The service in memory holds equal content once, and frees it with the last version that names it."""
    service = InMemoryArtifactService()
    await save(service, "same")
    await save(service, "same", filename="b")
    assert len(service._contents) == 1
    await service.delete_artifact(**HERE)
    assert len(service._contents) == 1
    await service.delete_session_artifacts(app_name="app", user_id="u", session_id="s")
    assert service._contents == {}


@pytest.mark.parametrize("megabytes", [24, pytest.param(1024, marks=pytest.mark.slow)])
async def test_large_content_does_not_pass_through_memory(megabytes: int, tmp_path: Path) -> None:
    """Writing and reading in chunks holds a few chunks in memory at a time, however large the whole is."""
    service = FileArtifactService(tmp_path)
    chunk = bytes(range(256)) * 1024

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(4 * megabytes):
            yield chunk

    await save(service, "warm")
    gc.collect()
    tracemalloc.start()
    try:
        async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
            await service.save_artifact_stream(**HERE, chunks=given)
        size = 0
        async with service.open_artifact(**HERE) as reader:
            assert reader is not None
            async for data in reader:
                size += len(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"peak of {megabytes} MB: {peak / 1e6:.1f} MB")
    assert size == 4 * megabytes * len(chunk)
    assert peak < 8e6


class Counted:
    """The `os` of the modules that touch files: records what is called, and does something at a certain call."""

    CHANGES = frozenset({"open", "mkdir", "write", "fsync", "replace", "unlink"})

    def __init__(self, at: Callable[[int, str, tuple[Any, ...]], None] = lambda *_: None) -> None:
        self._at = at
        self.meanwhile: Callable[[Path], None] = lambda _: None
        """What others do after it was asked whether a file is there."""
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.all: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "path":
            return Path_(self)
        real = getattr(os, name)
        if not callable(real):
            return real

        def called(*args: Any) -> Any:
            self.all.append(name)
            if name in self.CHANGES:
                self.calls.append((name, args))
                self._at(len(self.calls), name, args)
            return real(*args)

        return called


class Path_:
    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    def exists(self, path: Path) -> bool:
        self._counted.all.append("exists")
        found = os.path.exists(path)
        self._counted.meanwhile(path)
        return found


def put_in(patch: pytest.MonkeyPatch, counted: Counted) -> None:
    """Let *counted* be the system of everything that makes up the store in a folder."""
    for module in (_disk, _file, _file_store, _file_versions):
        patch.setattr(module, "os", counted)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counted]:
    def patched(*args: Any) -> Counted:
        counted = Counted(*args)
        put_in(monkeypatch, counted)
        return counted

    return patched


async def test_many_versions_cost_no_more(tmp_path: Path, world: Callable[..., Counted]) -> None:
    """The newest of 300 versions is found, loaded and followed by another without listing or reading the others."""
    service = FileArtifactService(tmp_path)
    await save(service, "first")
    record = record_of(tmp_path)
    for number in range(1, 300):
        fields = json.loads(record.read_text()) | {"version": number}
        record.with_name(f"{number}.json").write_text(json.dumps(fields))
    counted = world()
    assert await save(service, "last") == 300
    assert await text_of(service) == "last"
    assert len(counted.all) < 80
    assert "listdir" not in counted.all


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_end_is_found_in_a_few_steps(first: int, length: int) -> None:
    """Of numbers without gaps the end is found with about twice the logarithm of their count of questions."""
    asked = []

    def is_there(number: int) -> bool:
        asked.append(number)
        return first <= number < first + length

    assert _file_versions._end(first, is_there) == first + length
    assert len(asked) <= 2 * (length + 1).bit_length() + 1


# --- any sequence of operations ---------------------------------------------------------------------------------------

NAMES = ["a", "b/c", "user:a"]
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.sampled_from("st"), st.sampled_from(NAMES), st.sampled_from(["", "x", "y"])),
        st.tuples(st.just("delete"), st.sampled_from("st"), st.sampled_from(NAMES)),
        st.tuples(st.just("delete session"), st.sampled_from("st")),
        st.tuples(st.just("gc")),
        st.tuples(st.just("reopen")),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite in memory", "sqlite process"])
@settings(max_examples=examples(40))
@given(operations=OPERATIONS)
def test_any_sequence_of_operations(kind: str, operations: list[Any], tmp_path_factory: Any) -> None:
    """After any operations there are the versions of a simple model, each with its content, and no others."""
    trio.run(check_sequence, services(tmp_path_factory.mktemp("any"))[kind], kind in DURABLE, operations)


async def check_sequence(make: Callable[[], BaseArtifactService], durable: bool, operations: list[Any]) -> None:
    service = make()
    model: dict[tuple[str, str], dict[int, str]] = {}
    used: dict[tuple[str, str], int] = {}

    def at(session: str, name: str) -> tuple[str, str]:
        return ("" if name.startswith("user:") else session, name)

    for kind, *args in operations:
        if kind == "save":
            session, name, text = args
            number = await save(service, text, session_id=session, filename=name)
            assert number == used.get(at(session, name), 0)
            used[at(session, name)] = number + 1
            model.setdefault(at(session, name), {})[number] = text
        elif kind == "delete":
            await service.delete_artifact(app_name="app", user_id="u", session_id=args[0], filename=args[1])
            model.pop(at(*args), None)
        elif kind == "delete session":
            await service.delete_session_artifacts(app_name="app", user_id="u", session_id=args[0])
            model = {place: versions for place, versions in model.items() if place[0] != args[0]}
        elif kind == "gc":
            await service.gc()
            assert await service.gc() == Collected(contents=0, size=0)
        elif durable:
            service = make()
    for session in "st":
        names = await service.list_artifact_keys(app_name="app", user_id="u", session_id=session)
        assert names == sorted(name for where, name in model if where in (session, ""))
        for name in NAMES:
            where = {"session_id": session, "filename": name}
            expected = model.get(at(session, name), {})
            found = await service.list_artifact_versions(**(HERE | where))
            assert [one.version for one in found] == list(expected)
            assert {number: await text_of(service, number, **where) for number in expected} == expected
            assert [one.sha256 for one in found] == [
                hashlib.sha256(text.encode()).hexdigest() for text in expected.values()
            ]


@given(st.text(max_size=20))
def test_a_name_is_refused_or_stays_below_its_folder(name: str) -> None:
    """Every name that is accepted is, as a path of POSIX or of Windows, one below the folder it would be put in."""
    service = InMemoryArtifactService()
    try:
        trio.run(lambda: save(service, "x", filename=name))
    except InvalidValueError:
        return
    path = name.removeprefix("user:")
    steps = path.replace("\\", "/").split("/")
    assert os.path.normpath(os.path.join("/root", path)).startswith("/root/")
    assert ".." not in steps
    assert path[1:3] not in (":/", ":\\")


def test_uris_of_two_versions_differ() -> None:
    """The URI of a version tells app, user, session, name and number apart, whatever characters they have."""
    keys = [
        ArtifactKey("a", "u", "s", "n"),
        ArtifactKey("a", "u", None, "n"),
        ArtifactKey("a", "u/sessions/s", None, "n"),
        ArtifactKey("a", "u", "s", "n/versions/0"),
        ArtifactKey("a", "u", "s/artifacts/n", "n"),
    ]
    uris = [key.uri(number) for key in keys for number in (0, 1)]
    assert len(set(uris)) == len(uris)
    assert uris[0] == "artifact://apps/a/users/u/sessions/s/artifacts/n/versions/0"


async def test_a_version_cannot_change() -> None:
    """What is known of a version refuses to change, with its metadata, and is compared by content."""
    service = InMemoryArtifactService()
    await service.save_artifact(**HERE, artifact=Part(text="a"), custom_metadata={"n": [1]})
    [found] = await service.list_artifact_versions(**HERE)
    assert isinstance(found, ArtifactVersion)
    with pytest.raises(AttributeError):
        found.size = 0  # type: ignore[misc]  # on purpose
    with pytest.raises(TypeError, match="cannot change"):
        found.custom_metadata["n"].append(2)
    assert found == await service.get_artifact_version(**HERE)


# --- files: the order of things, deaths, and disks that fail ----------------------------------------------------------


def is_new(path: Path) -> bool:
    """Whether a folder can be made here."""
    return path.parent.is_dir() and not path.exists()


async def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_answer(
    tmp_path: Path, world: Callable[..., Counted]
) -> None:
    """Each file is fsynced before its rename, and its folder after; content comes before the record that names it."""
    events: list[tuple[str, Path]] = []

    def note(_: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "fsync":
            events.append(("fsync", Path(os.readlink(f"/proc/self/fd/{args[0]}"))))
        elif name in ("replace", "unlink") or (name == "mkdir" and is_new(Path(args[0]))):
            events.append((name, Path(args[0])))
            if name == "replace":
                events.append(("to", Path(args[1])))

    world(note)
    root = tmp_path / "deep" / "root"
    service = FileArtifactService(root)
    await save(service, "a")
    await save(service, "b")
    await service.delete_artifact(**HERE)
    renamed = [path for kind, path in events if kind == "to"]
    assert [path.name for path in renamed if path.suffix == ".json"] == ["minirun-artifacts.json", "0.json", "1.json"]
    for index, (kind, path) in enumerate(events):
        if kind == "replace":
            assert ("fsync", path) in events[:index]
            assert events[index + 2] == ("fsync", events[index + 1][1].parent)
        if kind == "mkdir":
            assert events[index + 1] == ("fsync", path.parent)
    content = root / "content"
    kinds = ["content" if content in path.parents else path.name for path in renamed]
    assert kinds[1:] == ["content", "0.json", "content", "1.json", "first"]
    deleted = [path.name for kind, path in events if kind == "unlink"]
    assert deleted == ["1.json", "0.json"]
    assert [path.name for kind, path in events if kind in ("to", "unlink")][-3:] == ["first", "1.json", "0.json"]


class Died(BaseException):
    """The process was killed."""


def dies_at(step: int) -> Callable[[int, str, tuple[Any, ...]], None]:
    """From this change of the disk on, nothing is done any more."""

    def at(count: int, name: str, args: tuple[Any, ...]) -> None:
        if count >= step:
            raise Died

    return at


def fails_at(step: int, number: int) -> Callable[[int, str, tuple[Any, ...]], None]:
    """This one change of the disk fails."""

    def at(count: int, name: str, args: tuple[Any, ...]) -> None:
        if count == step:
            raise OSError(number, os.strerror(number))

    return at


async def workload(service: FileArtifactService, acknowledged: list[Any]) -> None:
    """Save, delete and collect; what was answered is noted, and what was asked, before."""
    for text in ("a", "b", "a", None, "gc", "d"):
        acknowledged.append(["asked", text])
        if text is None:
            await service.delete_artifact(**HERE)
            number = None
        elif text == "gc":
            await service.gc()
            number = None
        else:
            number = await save(service, text)
        acknowledged[-1] = ["done", text, number]


async def check_store(root: Path, log: list[Any]) -> None:
    """What was acknowledged is there, what was asked last is there or not, and the store works on."""
    service = FileArtifactService(root)
    expected: dict[int, str] = {}
    used = 0
    for entry in log:
        if entry[0] == "done" and entry[1] is None:
            expected = {}
        elif entry[0] == "done" and entry[2] is not None:
            expected[entry[2]] = entry[1]
            used = entry[2] + 1
    last = log[-1][1] if log and log[-1][0] == "asked" else "gc"
    found = {number: await text_of(service, number) for number in await service.list_versions(**HERE)}
    if last is None:
        assert found in (expected, {})
    elif last == "gc":
        assert found == expected
    else:
        assert found in (expected, expected | {used: last})
    await service.gc()
    assert {number: await text_of(service, number) for number in found} == found
    assert files(root, "temporary") == []
    assert len(files(root, "content")) == len(set(found.values()))
    assert await save(service, "next") in (used, used + 1)
    assert await text_of(service) == "next"


AT = pytest.mark.parametrize("every", [pytest.param(3, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
"""At each third step, or at each."""


@AT
async def test_a_death_at_any_step_loses_nothing(every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any change of the disk, the store has what was acknowledged, whole versions only, and works on."""
    deaths = 0
    for step in range(1, 1000, every):
        root = tmp_path / str(step)
        log: list[Any] = []
        with monkeypatch.context() as patch:
            counted = Counted(dies_at(step))
            put_in(patch, counted)
            try:
                await workload(FileArtifactService(root), log)
            except Died:
                deaths += 1
        release(root)
        await check_store(root, log)
        if log[-1] == ["done", "d", 3]:
            break
    print(f"{deaths} deaths")
    assert deaths > 50 // every


async def restores(service: FileArtifactService) -> None:
    await service._restore(ArtifactKey("app", "u", "s", "a.txt"), 0)


async def hides(service: FileArtifactService) -> None:
    await service._restore(ArtifactKey("app", "u", "s", "a.txt"), None)


async def copies(service: FileArtifactService) -> None:
    await service.copy_session_artifacts(app_name="app", user_id="u", session_id="s", new_session_id="t")


async def seen(root: Path) -> list[Any]:
    """What the names `a.txt` and `b` are in two sessions."""
    service, found = FileArtifactService(root), list[Any]()
    for session in "st":
        for name in ("a.txt", "b"):
            where: dict[str, Any] = {"session_id": session, "filename": name}
            versions = await service.list_versions(**(HERE | where))
            texts = {number: await text_of(service, number, **where) for number in versions}
            found.append((texts, await text_of(service, **where)))
    return found


@pytest.mark.parametrize("change", [restores, hides, copies])
@pytest.mark.parametrize("number", [None, errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.slow)])
@AT
async def test_a_change_without_content_is_whole_or_nothing(
    every: int,
    change: Callable[[FileArtifactService], Any],
    number: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed, or failing, at any step of restoring or copying, each name is as before or after; then it can be done."""
    template = tmp_path / "template"
    service = FileArtifactService(template)
    for text in ("gone", "x"):
        await save(service, text)
    await service.delete_artifact(**HERE)
    for text in ("a", "b"):
        await save(service, text)
        await save(service, text, filename="b")
    before = await seen(template)
    interrupted = 0
    for step in range(1, 200, every):
        root = tmp_path / str(step)
        shutil.copytree(template, root)
        with monkeypatch.context() as patch:
            counted = Counted(dies_at(step) if number is None else fails_at(step, number))
            put_in(patch, counted)
            try:
                await change(FileArtifactService(root))
            except (Died, StorageError):
                interrupted += 1
        release(root)
        left = await seen(root)
        await FileArtifactService(root).gc()
        assert await seen(root) == left
        assert files(root, "temporary") == []
        if left == before:
            await change(FileArtifactService(root))
        elif change is copies:
            await change(FileArtifactService(root))  # goes on
        after = await seen(root)
        assert after != before
        assert all(one in (old, new) for one, old, new in zip(left, before, after, strict=True))
        if len(counted.calls) < step:
            break
    print(f"{interrupted} interruptions")
    assert interrupted > 8 // every


def release(root: Path) -> None:
    """Close the files that a process which has died in a test would have open: the system does it for a real one."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if target.startswith(f"{root}/"):
            os.close(int(entry))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@AT
async def test_a_disk_that_fails_at_any_step_is_told_as_it_is(
    every: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing change gives a StorageError, which is right if it says that nothing was stored; the store works on."""
    told: dict[type, int] = {}
    for step in range(1, 1000, every):
        root = tmp_path / str(step)
        log: list[Any] = []
        with monkeypatch.context() as patch:
            counted = Counted(fails_at(step, number))
            put_in(patch, counted)
            service = FileArtifactService(root)
            try:
                await workload(service, log)
            except StorageError as error:
                told[type(error)] = told.get(type(error), 0) + 1
                if error.stored is False and log[-1][1] not in (None, "gc"):
                    versions = await service.list_versions(**HERE)
                    done = [entry[2] for entry in log if entry[0] == "done" and entry[2] is not None]
                    assert all(version in done for version in versions)
        await check_store(root, log)
        if log[-1] == ["done", "d", 3] and len(counted.calls) < step:
            break
    print({kind.__name__: count for kind, count in told.items()})
    assert told.keys() == {
        StorageFullError if number == errno.ENOSPC else StorageRolledBackError,
        StorageUncertainError,
    }


async def test_what_dead_processes_left_is_collected(tmp_path: Path) -> None:
    """gc deletes temporary files that nobody writes any more, and leaves one that somebody does."""
    service = FileArtifactService(tmp_path)
    await save(service, "a")
    (tmp_path / "temporary" / "minirun-left").write_bytes(b"half")
    os.makedirs(tmp_path / "content" / "ab", exist_ok=True)
    (tmp_path / "content" / "ab" / ("ab" * 32)).write_bytes(b"named by nobody")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        assert len(files(tmp_path, "temporary")) == 2
        assert await service.gc() == Collected(contents=1, size=15)
        assert len(files(tmp_path, "temporary")) == 1
        yield b"y"

    async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
        assert await service.save_artifact_stream(**HERE, chunks=given) == 1
    assert files(tmp_path, "temporary") == []


@pytest.mark.parametrize("ask", ["versions", "newest", "names"])
async def test_a_delete_while_somebody_looks_is_seen_as_a_whole(
    ask: str, tmp_path: Path, world: Callable[..., Counted]
) -> None:
    """Who looks while another process deletes and saves sees what was before or after, and nothing in between."""
    service = FileArtifactService(tmp_path)
    for text in ("a", "b", "c"):
        await save(service, text)
    record = record_of(tmp_path)

    def meanwhile(path: Path) -> None:
        counted.meanwhile = lambda _: None
        after = json.loads(record.read_text()) | {"version": 3}
        record.with_name("first").write_text("3")
        record.with_name("2.json").unlink()
        record.with_name("1.json").unlink()
        record.with_name("3.json").write_text(json.dumps(after))

    counted = world()
    counted.meanwhile = meanwhile
    if ask == "versions":
        assert await service.list_versions(**HERE) == [3]
    elif ask == "newest":
        found = await service.get_artifact_version(**HERE)
        assert found is not None
        assert found.version == 3
    else:
        assert await service.list_artifact_keys(app_name="app", user_id="u", session_id="s") == ["a.txt"]
    assert await service.gc() == Collected(contents=2, size=2)
    assert files(tmp_path, "versions") == [record.with_name("3.json"), record.with_name("first")]
    assert await text_of(service) == "a"


@attrs.frozen(eq=False)
class CancelsAfter(Env):
    """Cancels *scope* while the *number*th thread works."""

    number: int
    scope: trio.CancelScope
    begun: list[None] = attrs.field(factory=list)

    async def run_sync(self, fn: Callable[[], Any], **options: Any) -> Any:
        self.begun.append(None)
        if len(self.begun) == self.number:
            self.scope.cancel()
            with trio.CancelScope(shield=True):
                return await super().run_sync(fn, **options)
        return await super().run_sync(fn, **options)


async def test_a_save_cancelled_at_any_step_has_answered_or_not_happened(tmp_path: Path) -> None:
    """Wherever a cancellation arrives, there is a version if and only if its number was returned."""
    outcomes = []
    for number in range(1, 6):
        root = tmp_path / str(number)
        answers = []
        with trio.CancelScope() as scope:
            answers.append(await save(FileArtifactService(root, env=CancelsAfter(number, scope)), "a"))
        assert await FileArtifactService(root).list_versions(**HERE) == answers
        assert files(root, "temporary") == []
        outcomes.append(len(answers))
    assert outcomes == [0, 0, 1, 1, 1]


async def streams(service: BaseArtifactService) -> None:
    await service.save_artifact_stream(**HERE, chunks=[b"x" * 700_000] * 4)


async def deletes(service: BaseArtifactService) -> None:
    await service.delete_artifact(**HERE)


async def collects(service: BaseArtifactService) -> None:
    await service.delete_artifact(**HERE)
    await service.gc()


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("change", [streams, restores, hides, copies, deletes, collects])
def test_a_change_cancelled_at_any_step_is_whole_or_nothing(
    kind: str, change: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Wherever a cancellation arrives, what returned has happened, and what did not has not, or as a whole before."""
    outcomes: set[bool] = set()
    counter = count()

    async def cancelled(step: int) -> int:
        folder = tmp_path / str(next(counter))
        service = services(folder)[kind]()
        await save(service, "a")
        await save(service, "b")
        before = await service.list_versions(**HERE)
        answered = False
        with trio.CancelScope() as scope:
            instrument = CancelAtStep(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                await change(service)
                answered = True
            finally:
                trio.lowlevel.remove_instrument(instrument)
        outcomes.add(answered)
        versions = await service.list_versions(**HERE)
        if change in (streams, restores):
            assert versions == [*before, 2][: len(before) + answered]
        elif change in (hides, copies):
            assert versions == before
            assert await text_of(service) == (None if change is hides and answered else "b")
            copied = await text_of(service, session_id="t")
            assert copied == ("b" if change is copies and answered else None)
        elif answered:
            assert versions == []
        await service.gc()
        assert await service.gc() == Collected(contents=0, size=0)
        if kind == "file":
            assert files(folder / "artifacts", "temporary") == []
        return instrument.steps

    points, steps = enumerate_steps(lambda step: trio.run(cancelled, step))
    assert points >= steps
    assert outcomes == {False, True}


@pytest.mark.parametrize("late", [False, True])
async def test_a_draft_that_is_swept_before_it_is_locked_is_made_again(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection of another process between a file's making and its locking costs nothing."""
    swept: list[str] = []

    class Locks:
        def __getattr__(self, name: str) -> Any:
            return getattr(fcntl, name)

        def flock(self, file: int, how: int) -> None:
            path = os.readlink(f"/proc/self/fd/{file}")
            if "/temporary/" in path and not swept:
                swept.append(path)
                os.unlink(path)
                if late:
                    raise BlockingIOError
            fcntl.flock(file, how)

    monkeypatch.setattr(_disk, "fcntl", Locks())
    service = FileArtifactService(tmp_path)
    assert await save(service, "a") == 0
    assert await text_of(service) == "a"
    assert len(swept) == 1
    assert files(tmp_path, "temporary") == []


# --- files: damage, strangers and other processes ---------------------------------------------------------------------


async def test_damaged_content_is_not_returned(tmp_path: Path) -> None:
    """Content that is not what was saved, or is missing, is damage and not an answer; saving it again heals it."""
    service = FileArtifactService(tmp_path)
    await save(service, "good")
    [content] = files(tmp_path, "content")
    for spoil in (lambda: content.write_bytes(b"evil"), lambda: content.write_bytes(b""), content.unlink):
        spoil()
        with pytest.raises(StorageCorruptError, match="expected"):
            await text_of(service)
        await save(service, "good")
        assert await text_of(service, 0) == "good"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version":0}', b"\xff"])
async def test_a_damaged_record_is_told(damage: bytes, tmp_path: Path) -> None:
    """A record that is none is damage; gc then deletes nothing, because nobody knows what it named."""
    service = FileArtifactService(tmp_path)
    await save(service, "a")
    await save(service, "b", filename="b")
    record = record_of(tmp_path)
    record.write_bytes(damage)
    for act in (
        text_of(service),
        service.gc(),
        service.list_artifact_keys(app_name="app", user_id="u", session_id="s"),
    ):
        with pytest.raises(StorageCorruptError, match="expected the record of a version"):
            await act
    assert len(files(tmp_path, "content")) == 2


async def test_a_record_that_points_elsewhere_is_damage(tmp_path: Path) -> None:
    """A record cannot name a file outside of the store."""
    service = FileArtifactService(tmp_path / "root")
    (tmp_path / "secret").write_text("secret")
    await save(service, "a")
    record = record_of(tmp_path)
    record.write_text(json.dumps(json.loads(record.read_text()) | {"sha256": "../../../secret"}))
    with pytest.raises(StorageCorruptError):
        await text_of(service)


async def test_a_store_of_another_format_is_left_alone(tmp_path: Path) -> None:
    """A folder that says another format is neither read nor written."""
    marker = tmp_path / "minirun-artifacts.json"
    for text in ('{"format":2}', "{}", "no"):
        marker.write_text(text)
        service = FileArtifactService(tmp_path)
        for act in (save(service, "a"), text_of(service), service.gc(), service.delete_artifact(**HERE)):
            with pytest.raises(StorageFormatError, match="expected format 1"):
                await act
    assert os.listdir(tmp_path) == ["minirun-artifacts.json"]


async def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """A folder with files and no mark is refused by everything, whatever its files are called, and nothing changes."""
    for name in ("temporary/thesis.txt", "content/3f/" + "3f" * 32, "versions/readme", "lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    before = everything(tmp_path)
    service = FileArtifactService(tmp_path)
    copy = service.copy_session_artifacts(app_name="app", user_id="u", session_id="s", new_session_id="t")
    listed = service.list_artifact_keys(app_name="app", user_id="u", session_id="s")
    acts = (save(service, "a"), text_of(service), service.gc(), service.delete_artifact(**HERE), copy, listed)
    for act in acts:
        with pytest.raises(StorageFormatError, match="expected a store of artifacts, or an empty folder, found no"):
            await act
        assert everything(tmp_path) == before


async def test_only_what_a_store_names_is_swept(tmp_path: Path) -> None:
    """A collection leaves what somebody else has put into the store."""
    service = FileArtifactService(tmp_path)
    await save(service, "a")
    folder = record_of(tmp_path).parent
    others = [tmp_path / "temporary" / "mine", tmp_path / "content" / "ad" / "cafe", folder / "notes.json"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
    (tmp_path / "temporary" / "folder").mkdir()
    (tmp_path / "minirun-artifacts.json-left-0").write_text("half")
    assert await service.gc() == Collected(contents=0, size=0)
    assert all(path.exists() for path in (*others, tmp_path / "temporary" / "folder"))
    assert not (tmp_path / "minirun-artifacts.json-left-0").exists()


async def test_an_interrupted_beginning_goes_on(tmp_path: Path) -> None:
    """A folder with nothing but the draft of a mark is as good as empty."""
    (tmp_path / "minirun-artifacts.json-left-0").write_text("half")
    service = FileArtifactService(tmp_path)
    assert await text_of(service) is None
    assert await save(service, "a") == 0


async def test_a_mark_that_is_made_meanwhile_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that another process makes between the look for the mark and the one into the folder is a store."""
    real = os.listdir

    def listdir(path: Any) -> list[str]:
        (tmp_path / "minirun-artifacts.json").write_text('{"format": 1}')
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert await text_of(FileArtifactService(tmp_path)) is None


@pytest.mark.parametrize("root", ["", " ", "a\0b", b"folder", None, 1])
def test_a_place_that_is_no_path_is_refused(root: Any) -> None:
    """A blank path would be the folder that the program happens to run in."""
    with pytest.raises(InvalidValueError, match="root_dir"):
        FileArtifactService(root)


@pytest.mark.parametrize("place", ["link", "link/below", "file", "file/below", "/proc/none"])
async def test_a_place_where_no_folder_can_be_is_told(place: str, tmp_path: Path) -> None:
    """A link that leads nowhere, a file, and a file system that has no room for us, are StorageErrors."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at all")
    (tmp_path / "file").write_text("precious")
    service = FileArtifactService(tmp_path / place)
    with pytest.raises(StorageFormatError, match="where one can be made"):
        await save(service, "a")
    assert (tmp_path / "file").read_text() == "precious"


async def test_a_reader_never_reads_another_file(tmp_path: Path) -> None:
    """The file of a reader is closed once its last reading ends, and its number is read from no more."""
    service = FileArtifactService(tmp_path)
    await save(service, "x" * 3_000_000)
    async with service.open_artifact(**HERE) as reader:
        assert reader is not None
        await anext(reader)
    with (tmp_path / "other").open("wb+") as other:
        other.write(b"secret")
        other.flush()
        other.seek(0)
        with pytest.raises(ServiceClosedError, match="open it again"):
            await anext(reader)
        assert os.lseek(other.fileno(), 0, os.SEEK_CUR) == 0


@pytest.mark.parametrize("gap", [0, 1_000_000])
async def test_a_delete_needs_no_room(gap: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk versions are deleted, numbers stay used, and the name is gone with the next collection."""
    service = FileArtifactService(tmp_path)
    key = ArtifactKey("app", "u", "s", "a.txt")
    for text in "abc":
        await save(service, text)
    stop = await service._restore(key, None, least=gap) + 1
    folder = record_of(tmp_path).parent
    with monkeypatch.context() as patch:

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "no room")

        patch.setattr(os, "write", full)
        with pytest.raises(StorageFullError):
            await save(service, "d")
        await service.delete_artifact(**HERE)
        assert [path.name for path in folder.iterdir()] == ["first"]
        assert await service.list_versions(**HERE) == []
        assert (await service.gc()).contents == 3
    assert await FileArtifactService(tmp_path).list_artifact_keys(app_name="app", user_id="u", session_id="s") == []
    assert holds(folder / "first", b"a.txt")
    await service.gc()
    assert not holds(folder / "first", b"a.txt")
    assert await save(FileArtifactService(tmp_path), "next") == stop
    assert await text_of(service, 0) is None


async def test_reading_and_deleting_make_no_store(tmp_path: Path) -> None:
    """A folder is made by the first save, and by nothing else."""
    service = FileArtifactService(tmp_path / "root")
    assert await text_of(service) is None
    await service.delete_artifact(**HERE)
    assert await service.gc() == Collected(contents=0, size=0)
    assert os.listdir(tmp_path) == []


async def test_names_and_ids_are_no_paths(tmp_path: Path) -> None:
    """No name of an app, user, session or artifact becomes the name of a file, so none can lead out of the root."""
    service = FileArtifactService(tmp_path / "root")
    where: dict[str, Any] = {"app_name": "../../app", "user_id": "/etc", "session_id": "..", "filename": "..."}
    await save(service, "a", **where)
    assert await text_of(service, **where) == "a"
    assert os.listdir(tmp_path) == ["root"]
    names = {path.name for path in everything(tmp_path / "root")}
    assert not any("app" in name or "etc" in name or ".." in name for name in names - {"minirun-artifacts.json"})


def holds(path: Path, *words: bytes) -> bool:
    return path.is_file() and any(word in path.read_bytes() for word in words)


async def test_a_deleted_artifact_leaves_no_name(tmp_path: Path) -> None:
    """After a delete and a gc, no file of the store holds or has the artifact's name or content."""
    service = FileArtifactService(tmp_path)
    await save(service, "the content", filename="the-name.txt")
    await service.delete_session_artifacts(app_name="app", user_id="u", session_id="s")
    await service.gc()
    for path in everything(tmp_path):
        assert "the-name" not in path.name
        assert not holds(path, b"the-name", b"the content")


def test_files_are_the_users_alone(tmp_path: Path) -> None:
    """Other users of the machine may read nothing of a store."""
    trio.run(lambda: save(FileArtifactService(tmp_path / "root"), "a"))
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "root").rglob("*")}
    assert modes == {0}


@pytest.mark.parametrize("step", [1, 4, 9])
async def test_a_folder_that_cannot_be_written_is_told(
    step: int, tmp_path: Path, world: Callable[..., Counted]
) -> None:
    """A folder without permission gives StorageReadOnlyError, which says what to do."""
    world(fails_at(step, errno.EACCES))
    with pytest.raises(StorageReadOnlyError, match="let this user"):
        await save(FileArtifactService(tmp_path / "root"), "a")


async def test_without_file_locks_the_service_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can keep processes apart, the service is refused by name."""
    monkeypatch.setattr(_disk, "fcntl", None)
    with pytest.raises(NotSupportedError, match="FileArtifactService"):
        FileArtifactService(tmp_path)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The lock of a store, as another process holds it."""
    with path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_a_lock_held_for_long_is_an_error(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """Who waits for another process waits 10 s at most, can be cancelled, and stores nothing."""
    service = FileArtifactService(tmp_path)
    await save(service, "a")
    with held(tmp_path / "lock"):
        begun = trio.current_time()
        with pytest.raises(StorageBusyError, match="another process"):
            await save(service, "b")
        assert 10 <= trio.current_time() - begun < 11
        with trio.move_on_after(1) as scope:
            await save(service, "b")
        assert scope.cancelled_caught
        assert await text_of(service) == "a"
    assert files(tmp_path, "temporary") == []
    assert await save(service, "b") == 1


PROGRAM = """
import sys, trio
from minirun.artifacts import FileArtifactService
from minirun.types import Part
async def main(root, name):
    service = FileArtifactService(root)
    print("ready", flush=True)
    sys.stdin.readline()  # all begin at once
    for number in range(15):
        where = dict(app_name="app", user_id="u", session_id="s", filename="a.txt")
        print(await service.save_artifact(**where, artifact=Part(text=f"{name} {number}")), f"{name} {number}", sep=":")
        if number % 5 == 4:
            await service.gc()
trio.run(main, *sys.argv[1:])
"""


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    """Three processes that save one name and collect at once get each number once, and nothing is lost."""
    processes = [start(program(PROGRAM, tmp_path, name)) for name in ("one", "two", "three")]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers: dict[int, str] = {}
    for process in processes:
        out, _ = process.communicate()
        assert process.returncode == 0
        answers.update((int(number), text) for number, text in (line.split(":") for line in out.splitlines()))
    assert sorted(answers) == list(range(45))

    async def check() -> None:
        service = FileArtifactService(tmp_path)
        assert {number: await text_of(service, number) for number in await service.list_versions(**HERE)} == answers

    trio.run(check)


def test_a_killed_writer_leaves_no_version(tmp_path: Path) -> None:
    """A process killed while it streams leaves no version, and its bytes are collected."""
    writer = """
import sys, trio
from minirun.artifacts import FileArtifactService
async def chunks():
    yield b"x" * 2_000_000
    print("written", flush=True)
    await trio.sleep_forever()
where = dict(app_name="app", user_id="u", session_id="s", filename="a.txt")
trio.run(lambda: FileArtifactService(sys.argv[1]).save_artifact_stream(**where, chunks=chunks()))
"""
    trio.run(lambda: save(FileArtifactService(tmp_path), "a"))
    with start(program(writer, tmp_path)) as process:
        assert process.stdout.readline() == "written\n"
        assert len(files(tmp_path, "temporary")) == 1
        process.kill()

    async def check() -> None:
        service = FileArtifactService(tmp_path)
        assert await service.list_versions(**HERE) == [0]
        await service.gc()
        assert files(tmp_path, "temporary") == []

    trio.run(check)


def test_a_process_killed_between_content_and_record_leaves_no_version(tmp_path: Path) -> None:
    """Content whose version was not made is no version; saved again it is one, else it is collected."""
    writer = """
import os, signal, sys, trio
from minirun.artifacts import FileArtifactService, _file
from minirun.types import Part
real = _file.FileArtifactService._write_record
_file.FileArtifactService._write_record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
where = dict(app_name="app", user_id="u", session_id="s", filename="a.txt")
trio.run(lambda: FileArtifactService(sys.argv[1]).save_artifact(**where, artifact=Part(text=sys.argv[2])))
"""
    for text in ("again", "never"):
        assert run(program(writer, tmp_path, text)).returncode == -9
    assert len(files(tmp_path, "content")) == 2

    async def check() -> None:
        service = FileArtifactService(tmp_path)
        assert await service.list_versions(**HERE) == []
        assert await save(service, "again") == 0
        assert await text_of(service) == "again"
        assert await service.gc() == Collected(contents=1, size=5)
        assert await text_of(service) == "again"

    trio.run(check)
