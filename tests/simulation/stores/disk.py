"""
What a disk may hold after a power cut: a model, replayed from what was done to the disk.

A *trace* is a list of what was done, in order. The model of the disk keeps what is certain, the *synced* files, and
what is not, the *pending* changes since. A power cut leaves the synced files with any of the pending changes made, one
of them perhaps half: an *image*. Which ones is a choice, so the caller decides by the randomness it passes.

The rules, per file, unless they say otherwise:

*   `Sync` makes all changes of its file certain. A file that is synced for the first time gets its place in the folder
    with it, and so do all names that were removed before: SQLite syncs the folder with a new log, and a file system
    does it with a new file.
*   `Delete` is a change like another: until the folder is synced, the old file may come back as it was. Then what was
    written under its name since is nowhere.
*   A write is torn at a byte or at a sector, and keeps its beginning or its end. Nothing else of the file suffers: this
    is what SQLite calls powersafe overwrite, and assumes (https://sqlite.org/psow.html).

Not modelled: rot of what is synced, writes torn in several places, and a disk that lies about syncing (for that, leave
the `Sync` out of the trace).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

__all__ = [
    "CUTS",
    "Change",
    "Cut",
    "Delete",
    "Disk",
    "Entry",
    "Image",
    "Mark",
    "Randomness",
    "Sync",
    "Truncate",
    "Write",
    "write_image",
]

# The unit that a disk writes whole, as SQLite has it for crash tests too.
SECTOR_BYTES: Final = 512


@attrs.frozen
class Write:
    """Bytes were written into a file."""

    file: str
    offset: int
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")


@attrs.frozen
class Truncate:
    """A file was cut to *size* bytes."""

    file: str
    size: int


@attrs.frozen
class Delete:
    """A file was deleted; if *synced*, so was its folder."""

    file: str
    synced: bool


@attrs.frozen
class Sync:
    """What was done to a file before is certain from here on."""

    file: str


@attrs.frozen
class Mark:
    """What the caller wanted to find in the trace, such as: this event is acknowledged."""

    what: Any


Change: TypeAlias = Write | Truncate | Delete
Entry: TypeAlias = Change | Sync | Mark
Image: TypeAlias = dict[str, bytes]
"""The files of a folder, by their names."""

# How a power cut treats the pending changes:
Cut: TypeAlias = Literal[
    "nothing",  # none of them is made
    "everything",  # all of them are; also what the end of the process alone leaves, as the system still has them
    "prefix",  # the first ones are
    "subset",  # any of them are
    "torn",  # any of them are, and one write only in part
]
CUTS: Final[tuple[Cut, ...]] = ("nothing", "everything", "prefix", "subset", "torn")


class Randomness(Protocol):
    """Where choices come from; `random.Random` will do."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 up to *stop*, without it."""


class Disk:
    """
    A disk after some part of a trace.

    Args:
        image: What is on it, for certain, before the trace begins.
    """

    def __init__(self, image: Mapping[str, bytes] | None = None) -> None:
        self._synced = dict(image or {})
        self._pending: list[Change] = []

    @property
    def pending(self) -> tuple[Change, ...]:
        """What has been done and is not certain yet, in order."""
        return tuple(self._pending)

    def replay(self, entries: Iterable[Entry]) -> None:
        """Go on to what is true after *entries*."""
        for entry in entries:
            if isinstance(entry, Sync):
                if self._is_new(entry.file):
                    self._sync_folder()
                self._sync(entry.file)
            elif not isinstance(entry, Mark):
                self._pending.append(entry)
                if isinstance(entry, Delete) and entry.synced:
                    self._sync_folder()

    def image(self, cut: Cut, randomness: Randomness) -> Image:
        """What a power cut right now leaves, by this *cut*; of all such images the one that *randomness* chooses."""
        changes = _kept(self._pending, cut, randomness)
        files = {change.file for change in self._pending}
        image = {name: content for name, content in self._synced.items() if name not in files}
        for name in sorted(files):
            all_of_file = [pair for pair in changes if pair[0].file == name]
            content = _played(self._synced.get(name), all_of_file)
            if content is not None:
                image[name] = content
        return image

    def _is_new(self, file: str) -> bool:
        removed = any(isinstance(change, Delete) for change in self._pending if change.file == file)
        return removed or file not in self._synced

    def _sync(self, file: str) -> None:
        mine: list[_Fate] = [(change, change) for change in self._pending if change.file == file]
        self._pending = [change for change in self._pending if change.file != file]
        content = _played(self._synced.pop(file, None), mine)
        # A file that was opened and never written is there too, empty.
        self._synced[file] = b"" if content is None else content

    def _sync_folder(self) -> None:
        """Let every name that was removed be gone for certain, with what was under it."""
        for file in {change.file for change in self._pending if isinstance(change, Delete)}:
            mine = [(number, change) for number, change in enumerate(self._pending) if change.file == file]
            removed = max(number for number, change in mine if isinstance(change, Delete))
            over = {number for number, _ in mine if number <= removed}
            self._pending = [change for number, change in enumerate(self._pending) if number not in over]
            self._synced.pop(file, None)


_Fate: TypeAlias = tuple[Change, Change | None]
"""A change, and what the power cut makes of it: the same, a part of it, or nothing."""


def _kept(pending: list[Change], cut: Cut, randomness: Randomness) -> list[_Fate]:
    if cut == "nothing":
        return [(change, None) for change in pending]
    if cut == "everything":
        return [(change, change) for change in pending]
    if cut == "prefix":
        length = randomness.randrange(len(pending) + 1)
        return [(change, change if number < length else None) for number, change in enumerate(pending)]
    fates: list[_Fate] = [(change, change if randomness.randrange(2) else None) for change in pending]
    writes = [number for number, change in enumerate(pending) if isinstance(change, Write)]
    if cut == "torn" and writes:
        number = writes[randomness.randrange(len(writes))]
        torn = pending[number]
        assert isinstance(torn, Write)
        fates[number] = (torn, _torn(torn, randomness))
    return fates


def _torn(write: Write, randomness: Randomness) -> Write:
    at = randomness.randrange(len(write.data) + 1)
    if randomness.randrange(2):  # sectors are counted from the beginning of the file
        at = max(0, (write.offset + at) // SECTOR_BYTES * SECTOR_BYTES - write.offset)
    if randomness.randrange(2):
        return attrs.evolve(write, data=write.data[:at])
    return attrs.evolve(write, offset=write.offset + at, data=write.data[at:])


def _played(content: bytes | None, fates: list[_Fate]) -> bytes | None:
    """What a file holds after its changes, each as its fate will have it; None if there is no such file."""
    file = None if content is None else bytearray(content)
    for change, made in fates:
        if isinstance(change, Delete):
            if made is None:
                break  # the name still leads to the old file, and what follows was done to another one
            file = None
        elif isinstance(made, Write):
            file = bytearray() if file is None else file
            file.extend(bytes(max(0, made.offset - len(file))))
            file[made.offset : made.offset + len(made.data)] = made.data
        elif isinstance(made, Truncate):
            file = bytearray() if file is None else file
            file.extend(bytes(max(0, made.size - len(file))))
            del file[made.size :]
    return None if file is None else bytes(file)


def write_image(image: Image, folder: Path) -> None:
    """Make a new *folder* with the files of *image* in it."""
    folder.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)
