"""
Artifacts and the events that name them, through power cuts, failing disks and cancellations.

A workload saves, stages, shows, restores, forks, deletes and collects on a disk that records. What can be seen of it
after each step is known from a run without faults. The laws: after any end what is found is what was seen after the
last acknowledged step or the one after it; every version that an event names can be read; every version that can be
read was saved directly, or an event names it.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest
import trio

from minirun import Event, EventActions
from minirun.artifacts import ArtifactKey, Collected, SqliteArtifactService, _sqlite
from minirun.artifacts._values import described, described_bytes, taken_apart
from minirun.errors import StorageError
from minirun.sessions import SqliteSessionService, verify
from minirun.sessions._sqlite._file import Durability
from minirun.types import Part

from ..disks import SmallDisk
from ..interruptions import CancelAtStep, enumerate_steps
from ..sessions.test_crash_images import moments
from ..simulation.stores import why_unavailable
from ..simulation.stores.disk import CUTS, Cut, Image, write_image
from ..simulation.stores.vfs import DiskEnv, RecordingVFS
from ..stores import Where, sql

needs_vfs = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

FILE = "chat.db"
CHUNK_BYTES = 700
LARGE = "large " * 400
SESSIONS = ("s", "t", "fork")
NAMES = ("a", "b", "c", "user:u")

Seen: TypeAlias = dict[str, Any]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few hundred bytes are large content."""
    monkeypatch.setattr(_sqlite, "CHUNK_BYTES", CHUNK_BYTES)


def key_of(session: str, name: str) -> ArtifactKey:
    return ArtifactKey("app", "u", None if name.startswith("user:") else session, name)


def place_of(session: str, name: str) -> dict[str, Any]:
    return {"app_name": "app", "user_id": "u", "session_id": session, "filename": name}


async def save(service: SqliteArtifactService, session: str, name: str, text: str, *, staged: bool) -> int:
    data, mime_type, part = taken_apart(Part(text=text))
    said = described(mime_type, part, None)
    return await service._save_chunks(key_of(session, name), (data,), said, staged=staged)


# --- the workload -----------------------------------------------------------------------------------------------------


async def live(sessions: SqliteSessionService, service: SqliteArtifactService) -> AsyncGenerator[None, None]:
    """Yields after each step; a step changes at once what can be seen, or nothing of it."""
    session = await sessions.create_session(app_name="app", user_id="u", session_id="s")
    yield

    async def name(**delta: int) -> None:
        names = {key.replace("user_", "user:"): number for key, number in delta.items()}
        await sessions.append_event(session, Event(author="a", actions=EventActions(artifact_delta=names)))

    await save(service, "s", "a", "direct", staged=False)
    yield
    large = await save(service, "s", "a", LARGE + "1", staged=True)
    yield
    await name(a=large)
    yield
    numbers = {"b": await save(service, "s", "b", "b", staged=True)}
    numbers["user_u"] = await save(service, "s", "user:u", "u" + LARGE, staged=True)
    await save(service, "s", "c", "never named", staged=True)
    yield
    await name(**numbers)
    yield
    await save(service, "s", "a", "direct " + LARGE, staged=False)
    yield
    await save(service, "s", "c", "direct " + LARGE, staged=False)  # equal content
    yield
    await sessions.create_session(app_name="app", user_id="u", session_id="t")
    yield
    await save(service, "t", "a", "direct t" + LARGE, staged=False)
    yield
    await sessions.fork_session(app_name="app", user_id="u", session_id="s", at_seq=1, new_session_id="fork")
    yield
    await sessions.delete_session(app_name="app", user_id="u", session_id="t")
    yield
    dropped = await save(service, "s", "a", "dropped" + LARGE, staged=True)
    await service._discard(key_of("s", "a"), {dropped})
    assert await service.gc() != Collected(contents=0, size=0)
    yield
    await name(a=await service._restore(key_of("s", "a"), 0, staged=True))
    yield
    await name(user_u=await service._restore(key_of("s", "user:u"), None, staged=True))
    yield
    await service.delete_artifact(**place_of("s", "b"))
    await service.gc()
    yield


async def look(sessions: SqliteSessionService, service: SqliteArtifactService) -> Seen:
    """All that can be seen, and whether what events name can be read."""
    seen: Seen = {}
    named: dict[tuple[str, str], set[int]] = {}
    for session in SESSIONS:
        place: Where = {"app_name": "app", "user_id": "u", "session_id": session}
        is_there = await sessions.get_session(**place) is not None
        events = await sessions.read_events(**place) if is_there else []
        seen[session] = len(events)
        for event in events:
            for name, number in event.actions.artifact_delta.items():
                named.setdefault(("" if name.startswith("user:") else session, name), set()).add(number)
        for name in NAMES:
            where = place_of(session, name)
            texts = {number: await text_of(service, where, number) for number in await service.list_versions(**where)}
            seen[f"{session} {name}"] = texts, await text_of(service, where, None)
        seen[f"names of {session}"] = await service.list_artifact_keys(**place)
    for session in SESSIONS:
        for name in NAMES:
            check_named(seen, named.get(("" if name.startswith("user:") else session, name), set()), session, name)
    return seen


def check_named(seen: Seen, named: set[int], session: str, name: str) -> None:
    texts, _ = seen[f"{session} {name}"]
    assert all(text is not None for text in texts.values())
    unread = named - set(texts)
    # `b` is deleted in the end; the last restored `user:u` is hidden
    assert not unread or name == "b" or (name == "user:u" and unread == {1}), f"{session} {name} {unread}"
    unnamed = {number: text for number, text in texts.items() if number not in named}
    assert all(text.startswith("direct") for text in unnamed.values()), f"nobody has shown {unnamed}"


async def text_of(service: SqliteArtifactService, where: dict[str, Any], number: int | None) -> str | None:
    part = await service.load_artifact(**where, version=number)
    return None if part is None else part.text


async def lived(folder: Path, vfs: RecordingVFS | None, durability: Durability, each: Callable[..., Any]) -> None:
    """The workload; after each step *each* is called, and may wait."""
    env = None if vfs is None else SmallDisk(vfs)
    async with SqliteSessionService(folder / FILE, durability=durability, env=env) as sessions:
        service = SqliteArtifactService(sessions)
        async with aclosing(live(sessions, service)) as steps:
            async for _ in steps:
                result = each(sessions, service)
                if isinstance(result, Awaitable):
                    await result


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What can be seen after each number of steps; nothing at first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sqlite, "CHUNK_BYTES", CHUNK_BYTES)
        return trio.run(reference, tmp_path_factory.mktemp("reference"))


async def reference(folder: Path) -> list[Seen]:
    states: list[Seen] = []

    async def note(sessions: SqliteSessionService, service: SqliteArtifactService) -> None:
        states.append(await look(sessions, service))

    async with SqliteSessionService(folder / "empty.db", durability="process") as sessions:
        await note(sessions, SqliteArtifactService(sessions))
    await lived(folder, None, "process", note)
    assert verify(folder / FILE) == []
    return states


class Judge:
    """Opens what an end has left and tells after how many steps that could be seen; nothing is opened twice."""

    def __init__(self, folder: Path, states: list[Seen]) -> None:
        self._folder = folder / "image"
        self._states = states
        self._seen: dict[int, Seen | None] = {}
        self.counts: Counter[str] = Counter()

    async def steps_in(self, image: Image) -> list[int]:
        """The numbers of steps after which this could be seen; none where the store cannot be opened."""
        known = hash(tuple(sorted(image.items())))
        self.counts["images"] += 1
        if known not in self._seen:
            self.counts["different"] += 1
            self._seen[known] = await self._open(image)
        seen = self._seen[known]
        return [number for number, state in enumerate(self._states) if state == seen]

    async def _open(self, image: Image) -> Seen | None:
        write_image(image, self._folder)
        try:
            with RecordingVFS() as vfs:
                sessions = SqliteSessionService(self._folder / FILE, durability="process", env=DiskEnv(vfs))
                async with sessions:
                    return await seen_and_used(sessions, self._folder / FILE)
        except StorageError:
            return None
        finally:
            shutil.rmtree(self._folder)


async def seen_and_used(sessions: SqliteSessionService, path: Path) -> Seen:
    """What can be seen; then the store collects, verifies, and goes on, and nothing of that is lost."""
    service = SqliteArtifactService(sessions)
    seen = await look(sessions, service)
    await service.gc()
    assert await look(sessions, service) == seen
    assert await service.gc() == Collected(contents=0, size=0)
    # Whoever has staged or written something is gone.
    db = sessions._file._connection
    assert db is not None
    assert db.execute("SELECT count(*) FROM content_uses").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM artifact_versions WHERE stager IS NOT NULL").fetchone() == (0,)
    left = "SELECT count(*) FROM contents WHERE sha256 IS NULL OR sha256 NOT IN (SELECT sha256 FROM artifact_versions"
    assert db.execute(f"{left} WHERE sha256 IS NOT NULL)").fetchone() == (0,)
    before = seen["s a"][0]
    number = await save(service, "s", "a", "direct again" + LARGE, staged=False)
    assert number >= len(before)
    assert await text_of(service, place_of("s", "a"), None) == "direct again" + LARGE
    return seen


# --- power cuts -------------------------------------------------------------------------------------------------------


SOME_CUTS = 47  # one of so many places


def some_cuts(number: int) -> list[Cut]:
    if number % SOME_CUTS:
        return []
    which = number // SOME_CUTS
    return ["nothing"] if which % 3 else ["everything", CUTS[1 + which // 3 % (len(CUTS) - 1)]]


def many_cuts(_: int) -> list[Cut]:
    return [*CUTS, *CUTS[2:]]


@needs_vfs
@pytest.mark.parametrize("durability", ["power", "process"])
@pytest.mark.parametrize("cuts", [some_cuts, pytest.param(many_cuts, marks=pytest.mark.slow)])
async def test_after_any_power_cut_events_and_artifacts_agree(
    cuts: Callable[[int], list[Cut]], durability: Durability, states: list[Seen], tmp_path: Path
) -> None:
    """At each operation on the disk a power cut leaves what was acknowledged, whole, and nothing half shown."""
    (tmp_path / "live").mkdir()
    with RecordingVFS() as vfs:
        await lived(tmp_path / "live", vfs, durability, lambda *_: vfs.mark(None))
        trace = vfs.trace
    judge, luck, lost = Judge(tmp_path, states), random.Random(1), 0
    for moment in moments(trace):
        done = len(moment.acknowledged)
        for cut in cuts(moment.number):
            found = await judge.steps_in(moment.disk.image(cut, luck))
            if not found:
                assert done == 0, f"{cut} after operation {moment.number} leaves nothing that was ever seen"
                continue
            assert min(found) <= done + 1, f"{cut} after {moment.number}: what nobody has asked for"
            lost += max(found) < done
            if durability == "power" or cut == "everything":
                assert max(found) >= done, f"{cut} after operation {moment.number} loses an acknowledged step"
    assert lost or durability == "power", "the workload would not notice a loss"
    print(f"\n{durability}: {len(trace)} operations, {dict(judge.counts)}, {lost} with a loss")


# --- failing disks ----------------------------------------------------------------------------------------------------


@attrs.define
class FailsAt:
    """One operation on the disk fails, and from then on all of its kind, until it is mended."""

    number: int
    code: int
    for_good: bool
    count: int = 0
    failed: list[str] = attrs.field(factory=list)
    is_mended: bool = False

    def __call__(self, operation: str, file: str) -> int:
        """Answer as `RecordingVFS.fault` does."""
        if self.is_mended or operation not in ("write", "sync", "truncate", "read"):
            return 0
        self.count += 1
        if self.count == self.number or (self.for_good and self.failed and operation == self.failed[0]):
            self.failed.append(operation)
            return self.code
        return 0


FAULTS = [
    pytest.param(sqlite3.SQLITE_FULL, True, id="full"),
    pytest.param(sqlite3.SQLITE_IOERR, False, id="one error"),
]


@needs_vfs
@pytest.mark.parametrize(("code", "for_good"), FAULTS)
@pytest.mark.parametrize(("stride", "errors"), [(241, 3), pytest.param(1, 5, marks=pytest.mark.slow)])
async def test_a_disk_that_fails_at_any_place_is_told_as_it_is(
    stride: int, errors: int, code: int, for_good: bool, states: list[Seen], tmp_path: Path
) -> None:
    """A failing operation is a typed error that is right about the step, and the same services go on once it works."""
    told: Counter[str] = Counter()
    for number in range(1, 100_000, stride):
        folder = tmp_path / str(number)
        folder.mkdir()
        fault, done = FailsAt(number, code, for_good), [0]
        with RecordingVFS() as vfs:
            vfs.fault = fault
            sessions = SqliteSessionService(folder / FILE, durability="power", env=SmallDisk(vfs))
            service = SqliteArtifactService(sessions)
            stored: bool | None = None
            try:
                async with aclosing(live(sessions, service)) as steps:
                    async for _ in steps:
                        done[0] += 1
                stored = False  # the fault met what is done between the steps, or nothing
            except StorageError as error:
                told[type(error).__name__] += 1
                stored = error.stored
            fault.is_mended = True
            await check_after(sessions, service, states, done[0], stored)
            await sessions.aclose()
        async with SqliteSessionService(folder / FILE, durability="process") as again:
            seen = await look(again, SqliteArtifactService(again))
            assert seen["s a"][1] == "direct after all"
        assert verify(folder / FILE) == []
        shutil.rmtree(folder)
        if fault.count < number:
            break
    print(f"\n{dict(told)}")
    assert sum(told.values()) > errors


async def check_after(
    sessions: SqliteSessionService,
    service: SqliteArtifactService,
    states: list[Seen],
    done: int,
    stored: bool | None,
) -> None:
    seen = await look(sessions, service)
    found = [number for number, state in enumerate(states) if state == seen]
    assert done in found or (stored is None and done + 1 in found), f"{done} steps done, found {found}"
    await service.gc()
    assert await look(sessions, service) == seen
    await save(service, "s", "a", "direct after all", staged=False)
    db = sessions._file._connection
    assert db is not None
    assert db.execute("SELECT count(*) FROM content_uses").fetchone() == (0,)


# --- cancellations ----------------------------------------------------------------------------------------------------

Work: TypeAlias = Callable[[SqliteArtifactService], Awaitable[Any]]


async def stream(service: SqliteArtifactService) -> int:
    chunks = [f"streamed {number} ".encode() * 60 for number in range(5)]
    return await service._save_chunks(key_of("s", "a"), chunks, described_bytes("a/b", None))


async def read_large(service: SqliteArtifactService) -> None:
    assert await text_of(service, place_of("s", "a"), 1) == LARGE


async def collect(service: SqliteArtifactService) -> None:
    await service.delete_artifact(**place_of("s", "gone"))
    await service.gc()


WORK: dict[str, Work] = {
    "save": partial(save, session="s", name="a", text="new", staged=False),
    "save large": partial(save, session="s", name="a", text="new" + LARGE, staged=False),
    "save what is there": partial(save, session="s", name="a", text=LARGE, staged=False),
    "stage": partial(save, session="s", name="a", text="new" + LARGE, staged=True),
    "stream": stream,
    "restore": lambda service: service._restore(key_of("s", "a"), 0),
    "stage a restored one": lambda service: service._restore(key_of("s", "a"), 0, staged=True),
    "read": read_large,
    "delete": lambda service: service.delete_artifact(**place_of("s", "a")),
    "collect": collect,
}


def prepared(folder: Path, durability: Durability) -> Path:
    """A file with versions 0 and 1 of `a`, and one of `gone`."""
    path = folder / "template.db"

    async def prepare() -> None:
        async with SqliteArtifactService(path, durability=durability) as service:
            await save(service, "s", "a", "zero", staged=False)
            await save(service, "s", "a", LARGE, staged=False)
            await save(service, "s", "gone", "gone" + LARGE * 10, staged=False)

    trio.run(prepare)
    return path


@pytest.mark.parametrize(
    ("durability", "every"),
    [
        pytest.param("process", 3, id="some"),
        pytest.param("process", 1, id="process", marks=pytest.mark.slow),
        pytest.param("power", 1, id="power", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", WORK)
def test_cancelled_at_any_step_it_is_done_or_not(kind: str, durability: Durability, every: int, tmp_path: Path) -> None:
    """Wherever a cancellation arrives there is a version if and only if its number was returned, and nothing else."""
    template = prepared(tmp_path, durability)
    path = tmp_path / "a.db"
    outcomes: Counter[bool] = Counter()

    def attempt(step: int) -> int:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(template.read_bytes())
        steps: int = trio.run(cancelled_work, path, durability, kind, step, outcomes)
        assert verify(path) == []
        return steps

    points, steps = enumerate_steps(attempt, every=every)
    print(f"{kind}: {points} places, {steps} steps uninterrupted, {dict(outcomes)}")
    assert points >= steps
    assert set(outcomes) == {False, True}


async def cancelled_work(path: Path, durability: Durability, kind: str, step: int, outcomes: Counter[bool]) -> int:
    answers: list[Any] = []
    async with SqliteArtifactService(path, durability=durability) as service:
        await service.list_versions(**place_of("s", "a"))  # opens the file
        with trio.CancelScope() as scope:
            instrument = CancelAtStep(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                answers.append(await WORK[kind](service))
            finally:
                trio.lowlevel.remove_instrument(instrument)
        outcomes[bool(answers)] += 1
        await check_done_or_not(service, path, kind, answers)
        return instrument.steps


async def check_done_or_not(service: SqliteArtifactService, path: Path, kind: str, answers: list[Any]) -> None:
    is_new = isinstance(next(iter(answers), None), int)
    visible = [0, 1, *answers] if is_new and "stage" not in kind else [0, 1]
    if kind == "delete":
        visible = [] if answers else [0, 1]
    assert await service.list_versions(**place_of("s", "a")) == visible
    found = await service._find(key_of("s", "a"), 2, staged={2})
    assert (found is not None) == is_new
    assert sql(path, "SELECT count(*) FROM content_uses") == [(0,)]
    if kind == "collect":
        await collect(service)
        assert sql(path, "SELECT count(*) FROM contents") == [(2,)]
    await service.gc()
    assert await service.gc() == Collected(contents=0, size=0)
    if 1 in visible:
        assert await text_of(service, place_of("s", "a"), 1) == LARGE
