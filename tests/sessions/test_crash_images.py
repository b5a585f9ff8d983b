"""
What is stored survives a power cut: the promise of durability, checked on what each cut may leave.

A workload runs on a disk that records. Then, after every operation on that disk, the power goes: what the disk may hold
at that moment, by a model that knows only what was synced (`minirun.simulation.Disk`), is opened with a new service.
The larger forms (`-m slow`) differ in how many such images are opened for each operation.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from minirun.errors import StorageError
from minirun.sessions import SqliteSessionService
from minirun.sessions._sqlite._file import Durability

from ..disks import FILE, AnyStep, Found, History, SmallDisk, judge, live, look, missing_of, run_again, store_on
from ..simulation.stores import why_unavailable
from ..simulation.stores.disk import CUTS, Cut, Delete, Disk, Entry, Image, Mark, Sync, Truncate, Write, write_image
from ..simulation.stores.vfs import DiskEnv, RecordingVFS

needs_vfs = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

# --- the model of the disk --------------------------------------------------------------------------------------------


def disk_after(*entries: Entry) -> Disk:
    disk = Disk()
    disk.replay(entries)
    return disk


def images(disk: Disk, cut: Cut) -> set[tuple[tuple[str, bytes], ...]]:
    """What a cut may leave, by many choices."""
    return {tuple(sorted(disk.image(cut, random.Random(seed)).items())) for seed in range(300)}


def contents(disk: Disk, cut: Cut, file: str = "a") -> set[bytes | None]:
    return {dict(image).get(file) for image in images(disk, cut)}


AAAA, BB = Write("a", 0, b"AAAA"), Write("a", 2, b"BB")


def test_what_is_synced_is_certain() -> None:
    """Whatever a power cut does, what was written before the sync of its file is there."""
    disk = disk_after(AAAA, BB, Write("b", 0, b"b"), Sync("a"))
    for cut in CUTS:
        assert contents(disk, cut) == {b"AABB"}
    assert contents(disk, "nothing", "b") == {None}
    assert contents(disk, "subset", "b") == {None, b"b"}


def test_each_cut_leaves_its_share_of_what_is_not_synced() -> None:
    """Nothing, everything, any first part, any part at all, and any part with one write torn."""
    disk = disk_after(Write("a", 0, b"...."), Sync("a"), AAAA, BB)
    assert contents(disk, "nothing") == {b"...."}
    assert contents(disk, "everything") == {b"AABB"}
    assert contents(disk, "prefix") == {b"....", b"AAAA", b"AABB"}
    assert contents(disk, "subset") == {b"....", b"AAAA", b"..BB", b"AABB"}
    assert contents(disk, "torn") > {b"AAA.", b"...A", b"...B", b"..B.", b"AABB"}
    assert disk.pending == (AAAA, BB)


def test_a_prefix_goes_over_all_files() -> None:
    """Nothing that was done later survives what was done earlier, whatever files it was done to."""
    disk = disk_after(Write("a", 0, b"1"), Write("b", 0, b"2"), Write("a", 1, b"3"))
    assert images(disk, "prefix") == {
        (),
        (("a", b"1"),),
        (("a", b"1"), ("b", b"2")),
        (("a", b"13"), ("b", b"2")),
    }


def test_holes_are_zeros_and_truncating_is_a_change() -> None:
    """What is written beyond the end leaves zeros before it; a truncation may happen or not."""
    disk = disk_after(Write("a", 2, b"x"), Sync("a"), Truncate("a", 1))
    assert contents(disk, "subset") == {b"\0\0x", b"\0"}


def test_a_deleted_file_may_come_back_until_its_folder_is_synced() -> None:
    """Then the new one under its name is nowhere; once a new file is synced, the old one is gone for good."""
    deleted: list[Entry] = [Write("a", 0, b"old"), Sync("a"), Delete("a", synced=False), Write("a", 0, b"new")]
    assert contents(disk_after(*deleted), "subset") == {b"old", None, b"new"}
    assert contents(disk_after(*deleted), "prefix") == {b"old", None, b"new"}
    for certain in (Sync("a"), Sync("b")):
        assert contents(disk_after(*deleted, certain), "subset") <= {None, b"new"}
    assert contents(disk_after(*deleted[:2], Delete("a", synced=True)), "everything") == {None}


def test_the_same_luck_leaves_the_same() -> None:
    """An image follows from the trace, the cut and the luck."""
    disk = disk_after(AAAA, BB, Write("b", 0, bytes(600)), Truncate("b", 100), Delete("a", synced=False))
    for cut in CUTS:
        assert disk.image(cut, random.Random(3)) == disk.image(cut, random.Random(3))


# --- a workload, and all moments of it --------------------------------------------------------------------------------


@attrs.frozen
class Moment:
    """The disk after some operation, and the steps that were acknowledged by then."""

    number: int
    disk: Disk
    acknowledged: list[AnyStep]


def moments(trace: Sequence[Entry], before: Disk | None = None) -> Iterator[Moment]:
    """Every moment of a trace at which something was done to the disk, or acknowledged."""
    disk, acknowledged = before or Disk(), list[AnyStep]()
    for number, entry in enumerate(trace):
        disk.replay([entry])
        if isinstance(entry, Mark):
            acknowledged.append(entry.what)
        yield Moment(number, disk, acknowledged)


async def recorded(
    folder: Path, durability: Durability, *, rounds: int = 1, make: type[SmallDisk] = SmallDisk
) -> tuple[list[Entry], History]:
    """The trace of the workload, and its history."""
    with RecordingVFS() as vfs:
        history = History(vfs)
        async with store_on(vfs, folder, durability, make(vfs)) as service:
            await live(service, history, rounds)
        assert vfs.open_files == []
        return vfs.trace, history


class Inspector:
    """Opens images and judges them, with *resumes* also by a run; one that it has seen is not opened again."""

    def __init__(self, folder: Path, history: History, *, resumes: bool = True) -> None:
        self._folder = folder / "image"
        self._history = history
        self._seen: dict[int, Found | None] = {}
        self._resumes = resumes
        self._resumed: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.trace: list[Entry] = []
        """What opening the last image has done to the disk."""

    async def inspect(self, image: Image, acknowledged: list[AnyStep]) -> list[str]:
        """
        Judge an image; return what was acknowledged and is lost.

        Where the store cannot be opened, a typed error must say so, and nothing may have been acknowledged.
        """
        self.counts["images"] += 1
        known = hash(tuple(sorted(image.items())))
        if known not in self._seen:
            self.counts["different"] += 1
            self._seen[known] = await self._open(image)
        found = self._seen[known]
        if found is None:
            self.counts["unreadable"] += 1
            assert not acknowledged, "the store cannot be opened, and something in it was acknowledged"
            return []
        lost = missing_of(found, acknowledged)
        self.counts["with a loss"] += bool(lost)
        return lost

    async def _open(self, image: Image) -> Found | None:
        write_image(image, self._folder)
        try:
            with RecordingVFS() as vfs:
                async with store_on(vfs, self._folder, "process", DiskEnv(vfs)) as service:
                    found = await look(service)
                    await self._resume(service, found)
                self.trace = vfs.trace
        except StorageError:
            return None
        finally:
            shutil.rmtree(self._folder)
        judge(found, self._history)
        return found

    async def _resume(self, service: SqliteSessionService, found: Found) -> None:
        """Run the session of the runs again, once for each length that it is found in."""
        log = next((log for name, log in found.logs.items() if name.startswith("run.")), [])
        if self._resumes and log and len(log) not in self._resumed:
            self._resumed.add(len(log))
            await run_again(service)


def some_cuts(number: int) -> list[Cut]:
    """At some operations the worst cut for whoever forgets to sync, at some one of the others in turn."""
    if number % 11 == 0:
        return ["nothing"]
    return [CUTS[1 + number // 11 % (len(CUTS) - 1)]] if number % 11 == 5 else []


def many_cuts(_: int) -> list[Cut]:
    return [*CUTS, *CUTS[2:] * 3]


SIZES = [
    pytest.param(1, some_cuts, id="some"),
    pytest.param(3, many_cuts, id="many", marks=pytest.mark.slow),
]


@needs_vfs
@pytest.mark.parametrize(("rounds", "cuts"), SIZES)
async def test_a_power_cut_takes_nothing_that_was_acknowledged(
    rounds: int, cuts: Callable[[int], list[Cut]], tmp_path: Path
) -> None:
    """Under "power" all that was acknowledged is found in every image, and the rest is a consistent prefix."""
    trace, history = await recorded(tmp_path, "power", rounds=rounds)
    inspector = Inspector(tmp_path, history)
    luck = random.Random(1)
    for moment in moments(trace):
        for cut in cuts(moment.number):
            lost = await inspector.inspect(moment.disk.image(cut, luck), moment.acknowledged)
            assert not lost, f"{cut} after operation {moment.number} loses {lost}"
    print(f"\npower: {len(trace)} operations, {dict(inspector.counts)}")


@needs_vfs
@pytest.mark.parametrize(("rounds", "cuts"), SIZES)
async def test_a_power_cut_under_process_leaves_a_consistent_prefix(
    rounds: int, cuts: Callable[[int], list[Cut]], tmp_path: Path
) -> None:
    """Under "process" the latest commits may be lost, never part of one; where only the process ends, none is."""
    trace, history = await recorded(tmp_path, "process", rounds=rounds)
    inspector = Inspector(tmp_path, history)
    luck = random.Random(1)
    for moment in moments(trace):
        for cut in cuts(moment.number):
            lost = await inspector.inspect(moment.disk.image(cut, luck), moment.acknowledged)
            assert not lost or cut != "everything", f"the end of the process at {moment.number} loses {lost}"
    assert inspector.counts["with a loss"], "the workload would not notice a loss"
    print(f"\nprocess: {len(trace)} operations, {dict(inspector.counts)}")


@needs_vfs
@pytest.mark.parametrize("stride", [pytest.param(499, id="some"), pytest.param(11, id="many", marks=pytest.mark.slow)])
async def test_a_power_cut_during_recovery_takes_nothing_either(stride: int, tmp_path: Path) -> None:
    """What a first power cut has left, a second one leaves too, at any operation of opening and using it."""
    trace, history = await recorded(tmp_path, "power")
    luck = random.Random(1)
    count = 0
    for moment in moments(trace):
        if moment.number % stride == stride - 1:
            inspector = Inspector(tmp_path, history, resumes=False)
            image = moment.disk.image("torn", luck)
            await inspector.inspect(image, moment.acknowledged)
            for second in moments(inspector.trace, Disk(image)):
                again = second.disk.image("torn", luck)
                assert not await inspector.inspect(again, moment.acknowledged), (moment.number, second.number)
            count += inspector.counts["different"]
    print(f"\nrecovery: {count} images")


@needs_vfs
async def test_a_power_cut_while_a_file_is_made_leaves_one_that_can_be_opened(tmp_path: Path) -> None:
    """Where nothing is stored yet nothing can be damaged: SQLite's journal undoes half a header."""
    trace, history = await recorded(tmp_path, "power")
    logged = next(number for number, entry in enumerate(trace) if entry == Sync(f"{FILE}-wal"))
    inspector = Inspector(tmp_path, history)
    for moment in moments(trace[:logged]):
        for seed in range(15):
            await inspector.inspect(moment.disk.image("torn", random.Random(seed)), [])
    assert inspector.counts["unreadable"] == 0


# --- planted bugs -----------------------------------------------------------------------------------------------------


class Careless:
    """A connection on which the level of syncing is another one than the service has set."""

    def __init__(self, connection: sqlite3.Connection, level: str) -> None:
        self._connection = connection
        self._level = level

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if statement.startswith("PRAGMA synchronous="):
            statement = f"PRAGMA synchronous={self._level}"
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class NormalDisk(SmallDisk):
    """Syncs only before the log is written back."""

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        return Careless(super().connect(database, uri=uri), "NORMAL")  # type: ignore[return-value]  # behaves as one


class OffDisk(SmallDisk):
    """Never syncs."""

    def connect(self, database: str, *, uri: bool = False) -> sqlite3.Connection:
        return Careless(super().connect(database, uri=uri), "OFF")  # type: ignore[return-value]  # behaves as one


@needs_vfs
@pytest.mark.parametrize("make", [NormalDisk, OffDisk])
async def test_a_store_that_does_not_sync_is_found_out(make: type[SmallDisk], tmp_path: Path) -> None:
    """A service that promises "power" and commits as under "process", or worse, loses acknowledged steps here."""
    trace, history = await recorded(tmp_path, "power", make=make)
    inspector = Inspector(tmp_path, history)
    luck = random.Random(1)
    found = Counter[str]()
    for moment in moments(trace):
        if moment.number % 19 == 0:
            try:
                found["losses"] += bool(await inspector.inspect(moment.disk.image("subset", luck), moment.acknowledged))
            except AssertionError as error:
                found[str(error).splitlines()[0].partition(":")[0]] += 1
    assert found["losses"] >= 5
    assert (len(found) > 1) == (make is OffDisk)  # without any sync the file is not even consistent
    print(f"\n{make.__name__}: {dict(found)}")


SPOILS: dict[str, Callable[[Found], object]] = {
    "not a prefix of the commits": lambda found: found.app["app:log"].pop(3),
    "the app's counter": lambda found: found.app.update({"app:count": 4}),
    "the log of a user": lambda found: found.users["u1"]["user:log"].pop(),
    "the counter of a user": lambda found: found.users["u2"].update({"user:count": 99}),
    "not a prefix of the session's log": lambda found: found.logs["one.0"].pop(2),
    "session and app do not agree": lambda found: found.logs["one.0"].pop(),
    "before it are not": lambda found: found.app.pop("app:made two.1"),
}


@needs_vfs
@pytest.mark.parametrize("message", SPOILS)
async def test_the_judge_sees_what_is_wrong(message: str, tmp_path: Path) -> None:
    """A store with something missing or too much is condemned, and an honest one is not."""
    with RecordingVFS() as vfs:
        history = History(vfs)
        async with store_on(vfs, tmp_path, "process") as service:
            await live(service, history)
            found = await look(service)
        judge(found, history)
        assert missing_of(found, history.done) == []
        found.app["app:log"] = list(found.app["app:log"])
        for state in found.users.values():
            state["user:log"] = list(state["user:log"])
        SPOILS[message](found)
        with pytest.raises(AssertionError, match=message):
            judge(found, history)
