"""
A file that was damaged is found in an earlier state of it, or is refused with a typed error; never anything else.

A stored file, most of it still in its log, is copied, damaged in one place and opened with a new service. The log of
SQLite has checksums: what follows the damage is cut off, so what is found is exactly what was committed before. The
file itself has none: there the service must not fail in a way of its own, and whether the events are what they were is
for the hash chain of a session to say.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio

from minirun.errors import MinirunError, StorageCorruptError, StorageFormatError
from minirun.sessions import SqliteSessionService

from .. import disks
from ..disks import (
    APP,
    FILE,
    PAGE_BYTES,
    AnyStep,
    Found,
    History,
    SmallDisk,
    judge,
    look,
    missing_of,
    run_again,
    store_on,
)
from ..simulation.stores import why_unavailable
from ..simulation.stores.disk import Disk, Entry, Image, Mark, Write, write_image
from ..simulation.stores.vfs import DiskEnv, RecordingVFS
from ..stores import sql

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

LOG = f"{FILE}-wal"

# The layout of a log: a header, then frames of a header and a page (https://sqlite.org/fileformat2.html#walformat).
LOG_HEADER_BYTES = 32
FRAME_BYTES = 24 + PAGE_BYTES


@attrs.frozen
class Stored:
    """A file with a log beside it, as they are while a service uses them."""

    file: bytes
    log: bytes
    history: History
    written_back: list[AnyStep]
    """What stands in the file itself."""
    ends: dict[AnyStep, int]
    """Where in the log each of the other steps ends."""

    def until(self, log_bytes: int) -> list[str]:
        """The names of the steps that are stored, if so much of the log is good."""
        return [step.name for step in self.history.done if self.ends.get(step, 0) <= log_bytes]

    @property
    def frames(self) -> range:
        """Where in the log each frame begins."""
        return range(LOG_HEADER_BYTES, len(self.log), FRAME_BYTES)


async def stored(folder: Path, appends: int) -> Stored:
    """A store that was closed once, its log written back into the file, and written again since."""
    with RecordingVFS() as vfs:
        vfs.seed(1)
        history = History(vfs)
        async with store_on(vfs, folder) as service:
            one, session = await history.make(service, "u1", "one")
            for number in range(2):
                await history.append(service, one, session, number)
        written_back = [*history.done]
        begin = len(vfs.trace)
        async with store_on(vfs, folder, env=SmallDisk(vfs, log_pages=100_000)) as service:
            found = await service.get_session(app_name="app", user_id="u1", session_id="one")
            assert found is not None
            for number in range(2, appends):
                await history.append(service, one, found, number, size=100 * number)
            two, session = await history.make(service, "u2", "two")
            await history.append(service, two, session, 0)
            end = len(vfs.trace)
            await history.keep(service, one)
            await history.keep(service, two)
            history.log = list(session.state["app:log"])
        image, ends = replayed(vfs.trace[:end], begin)
    assert [*ends] == history.done[len(written_back) :]
    assert [*image] == [FILE, LOG]
    return Stored(image[FILE], image[LOG], history, written_back, ends)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Such a store, made once."""
    return trio.run(stored, tmp_path_factory.mktemp("short"), 4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A longer one."""
    return trio.run(stored, tmp_path_factory.mktemp("long"), 8)


def replayed(trace: list[Entry], begin: int) -> tuple[Image, dict[AnyStep, int]]:
    """What a trace leaves on the disk, and where in the log the steps after *begin* end."""
    disk = Disk()
    disk.replay(trace[:begin])
    ends = {}
    for entry in trace[begin:]:
        disk.replay([entry])
        if isinstance(entry, Mark):
            ends[entry.what] = len(disk.image("everything", random.Random(0))[LOG])
    return disk.image("everything", random.Random(0)), ends


async def opened(image: Image, folder: Path, use: Callable[[SqliteSessionService], Awaitable[Found]] = look) -> Found:
    """What a new service finds in a copy."""
    write_image(image, folder / "copy")
    try:
        with RecordingVFS() as vfs:
            async with store_on(vfs, folder / "copy", "process", DiskEnv(vfs)) as service:
                return await use(service)
    finally:
        shutil.rmtree(folder / "copy")


async def names_in(image: Image, store: Stored, folder: Path) -> list[str]:
    """The names of the steps that are found in a copy; they are a prefix, and consistent."""
    found = await opened(image, folder)
    judge(found, store.history)
    return [step.name for step in store.history.done if step.is_in(found)]


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [pytest.param(397, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
async def test_a_log_that_ends_early_holds_the_commits_that_are_whole(
    stride: int, short: Stored, tmp_path: Path
) -> None:
    """Wherever the log is cut, exactly the commits that lie before the cut are found."""
    store = short
    borders = [end + off for end in (LOG_HEADER_BYTES, *store.ends.values()) for off in (-1, 0, 1)]
    cuts = {cut for cut in (*range(0, len(store.log), stride), *borders) if cut <= len(store.log)}
    for cut in sorted(cuts):
        assert await names_in({FILE: store.file, LOG: store.log[:cut]}, store, tmp_path) == store.until(cut), cut
    print(f"\n{len(cuts)} cuts of a log of {len(store.log)} bytes")


async def test_a_frame_of_zeros_ends_the_log(store: Stored, tmp_path: Path) -> None:
    """Whichever frame is zeroed, exactly the commits that lie before it are found."""
    for frame in store.frames:
        log = store.log[:frame] + bytes(FRAME_BYTES) + store.log[frame + FRAME_BYTES :]
        assert await names_in({FILE: store.file, LOG: log}, store, tmp_path) == store.until(frame), frame
    print(f"\n{len(store.frames)} frames")


@pytest.mark.parametrize("flips", [pytest.param(1, id="some"), pytest.param(60, id="many", marks=pytest.mark.slow)])
async def test_a_bit_that_flips_in_a_frame_ends_the_log(flips: int, store: Stored, tmp_path: Path) -> None:
    """Whichever bit of a frame is another, in its header or its page, the commits that lie before it are found."""
    luck = random.Random(1)
    either = [24 * 8, FRAME_BYTES * 8]
    for number, frame in enumerate(store.frames):
        for bits in either * (flips // 2) or [either[number % 2]]:
            log = flipped(store.log, frame * 8 + luck.randrange(bits))
            assert await names_in({FILE: store.file, LOG: log}, store, tmp_path) == store.until(frame), frame


@pytest.mark.parametrize("stride", [pytest.param(9, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
async def test_a_log_without_its_header_is_silently_ignored(
    stride: int, short: Stored, tmp_path: Path
) -> None:
    """
    A known limit: where the log is missing, or a bit of its header is another, SQLite takes it for an old one.

    Then the store is what it was when the log was last written back, and nothing in the file says that there was more.
    """
    store = short
    damaged = [{FILE: store.file}, {FILE: store.file, LOG: b""}]
    damaged += [{FILE: store.file, LOG: flipped(store.log, bit)} for bit in range(0, LOG_HEADER_BYTES * 8, stride)]
    for image in damaged:
        assert await names_in(image, store, tmp_path) == [step.name for step in store.written_back]


@pytest.mark.parametrize("count", [pytest.param(20, id="some"), pytest.param(1500, id="many", marks=pytest.mark.slow)])
async def test_a_log_that_was_written_back_by_half_is_written_back_again(
    count: int, store: Stored, tmp_path: Path
) -> None:
    """Whichever pages of the log stand in the file already, one of them by half, everything is found."""
    luck = random.Random(1)
    for _ in range(count):
        disk = Disk({FILE: store.file, LOG: store.log})
        disk.replay(writing_back(store))
        image = disk.image("torn", luck)
        assert image[LOG] == store.log
        assert await names_in(image, store, tmp_path) == store.until(len(store.log))


def writing_back(store: Stored) -> list[Entry]:
    """What SQLite does to write the log back: the last version of each page, in their order."""
    pages = {}
    for frame in store.frames:
        number = int.from_bytes(store.log[frame : frame + 4], "big")
        pages[number] = store.log[frame + 24 : frame + FRAME_BYTES]
    return [Write(FILE, (number - 1) * PAGE_BYTES, page) for number, page in sorted(pages.items())]


# --- the file ---------------------------------------------------------------------------------------------------------


UNTYPED = "untyped:"
SESSIONS = (("u1", "gone"), ("u1", "one"), ("u2", "three"), ("u2", "run"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, History]:
    """Such a file, made once."""
    return trio.run(whole_file, tmp_path_factory.mktemp("whole"))


async def whole_file(folder: Path) -> tuple[bytes, History]:
    """The file of a store that was closed, all of its log written back; the same file each time."""
    with RecordingVFS() as vfs:
        vfs.seed(1)
        history = History(vfs)
        async with store_on(vfs, folder) as service:
            sessions = [await history.make(service, user, name) for user, name in SESSIONS]
            for number in range(4):
                for made, session in sessions[:3]:
                    await history.append(service, made, session, number, size=100 * number)
            for _ in range(2):
                await history.run(service, sessions[3][0])
            await history.delete(service, sessions[0][0])
            for made, _ in sessions[1:]:
                await history.keep(service, made)
            history.log = list(sessions[2][1].state["app:log"])
    return (folder / FILE).read_bytes(), history


async def use(service: SqliteSessionService) -> Found:
    """Do with a store what one does with a store."""
    found = await look(service)
    await service.list_invocations()
    await service.fork_session(app_name=APP, user_id="u1", session_id="one", at_seq=2)
    await run_again(service)
    await service.delete_session(app_name=APP, user_id="u2", session_id="three")
    return found


async def outcome_of(file: bytes, history: History, folder: Path) -> str:
    """What becomes of a damaged file: an error by its name, or what is found."""
    try:
        found = await opened({FILE: file}, folder, use)
    except MinirunError as error:
        return type(error).__name__
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, AssertionError) and at.filename == disks.__file__:
            return "contradicts itself"
        return f"{UNTYPED} {type(error).__name__} in {at.name}"
    try:
        judge(found, history)
    except AssertionError:
        return "changed"
    return "lost" if missing_of(found, history.done) else "as it was"


def check_typed(outcomes: dict[str, list[int]]) -> None:
    """Print how often there was each outcome, and raise for those that there must not be."""
    print({outcome: len(where) for outcome, where in sorted(outcomes.items())})
    assert [(outcome, where[:3]) for outcome, where in outcomes.items() if outcome.startswith(UNTYPED)] == []


@pytest.mark.parametrize("count", [pytest.param(25, id="some"), pytest.param(6000, id="many", marks=pytest.mark.slow)])
async def test_a_bit_that_flips_in_the_file_raises_nothing_untyped(
    count: int, whole: tuple[bytes, History], tmp_path: Path
) -> None:
    """
    Whichever bit of the file is another, using the store works or raises an error of ours.

    SQLite has no checksum of a page, so what is found may be changed; that is found by the chain of hashes alone.
    """
    file, history = whole
    luck = random.Random(2)
    outcomes: dict[str, list[int]] = {}
    for _ in range(count):
        bit = luck.randrange(len(file) * 8)
        outcomes.setdefault(await outcome_of(flipped(file, bit), history, tmp_path), []).append(bit)
    check_typed(outcomes)


@pytest.mark.parametrize("share", [pytest.param(9, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
async def test_a_page_that_is_missing_or_another_raises_nothing_untyped(
    share: int, whole: tuple[bytes, History], tmp_path: Path
) -> None:
    """A file cut at any page, or with any page zeroed or exchanged, works or raises an error of ours."""
    file, history = whole
    size = PAGE_BYTES
    outcomes: dict[str, list[int]] = {}
    for at in range(0, len(file), size):
        first, rest = file[:at], file[at + size :]
        pages = (bytes(size), file[-size:], file[at : at + size // 2] + bytes(size // 2))
        damaged = [*(first + page + rest for page in pages), file[:at], file[: at + 100]]
        for each in damaged[at // size % share :: share]:  # a part of them for each page, in turn
            outcomes.setdefault(await outcome_of(each, history, tmp_path), []).append(at // size)
    check_typed(outcomes)


# What a bit that flips makes of a row: another letter, another type of column, a row that cannot be found.
ROWS = [
    "UPDATE invocations SET status = 'c' || char(127) || 'mpleted'",
    "UPDATE invocations SET epoch = 'x'",
    "UPDATE sessions SET revision = 'x'",
    "UPDATE sessions SET revision = revision + 1",
    "UPDATE sessions SET lease_epoch = 'x'",
    "UPDATE sessions SET create_time = 'x'",
    "UPDATE sessions SET session_id = CAST(session_id AS BLOB)",
    "UPDATE sessions SET user_id = CAST(user_id AS BLOB)",
    "UPDATE sessions SET chain = 'x'",
    "UPDATE session_state SET key = CAST(key AS BLOB)",
    "UPDATE session_state SET value = CAST(value AS BLOB)",
    "UPDATE session_state SET value = '{'",
    "UPDATE shared_state SET key = CAST(key AS BLOB)",
    "UPDATE shared_state SET value = CAST(value AS BLOB)",
    "UPDATE shared_state SET commit_no = 'x'",
    "UPDATE store SET deleted_no = 'x'",
    "UPDATE store SET deleted_no = 0",
    "DELETE FROM store",
    "DELETE FROM events WHERE seq = 2",
    "UPDATE events SET data = CAST(data AS BLOB)",
    "UPDATE events SET data = CAST(x'7bff7d' AS TEXT)",
    "UPDATE events SET data = '[]'",
    "UPDATE events SET data = replace(data, 'app:log', 'app:' || char(127))",
    "UPDATE events SET seq = 'x' WHERE seq = 3",
    "UPDATE events SET chain = 'x'",
]


@pytest.mark.parametrize("statement", ROWS)
async def test_a_row_that_makes_no_sense_raises_nothing_untyped(
    statement: str, whole: tuple[bytes, History], tmp_path: Path
) -> None:
    """What was changed where SQLite sees no damage is no surprise for the service either."""
    file, history = whole
    (tmp_path / FILE).write_bytes(file)
    sql(tmp_path / FILE, statement)
    sql(tmp_path / FILE, "PRAGMA wal_checkpoint(TRUNCATE)")
    outcome = await outcome_of((tmp_path / FILE).read_bytes(), history, tmp_path)
    assert not outcome.startswith(UNTYPED), outcome


async def test_a_file_that_is_not_one_is_refused(tmp_path: Path) -> None:
    """A file of other bytes is refused with a StorageFormatError or StorageCorruptError, and stays as it is."""
    luck = random.Random(3)
    for size in (2, 100, 512, 4096, 5000):
        (tmp_path / FILE).write_bytes(content := luck.randbytes(size))
        with RecordingVFS() as vfs:
            async with store_on(vfs, tmp_path, "process", DiskEnv(vfs)) as service:
                with pytest.raises((StorageFormatError, StorageCorruptError)):
                    await look(service)
        assert (tmp_path / FILE).read_bytes() == content
