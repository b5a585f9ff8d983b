"""
The folder of one artifact in a `FileArtifactService`: which of its versions are there, and their records.

    0.json 1.json ...   the record of each version
    first               the number of the first version that is not deleted, if any was; see `Live`

*   Versions are deleted all at once, by writing `first`; what lies before it is gone, also if the process died before
    the files were. Where numbers were left out, `first` says so, and there are no other gaps. So the newest is found in
    a few steps, however many there are.
*   Reading takes no lock. It sees `first` twice, before and after, and looks again if it has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from .._json import brief, dumps
from ..errors import StorageCorruptError
from ._file_records import is_hidden, key_fields, read_record, record_of
from ._values import ArtifactKey, Scope

__all__ = [
    "Live",
    "check_changed",
    "copied_files",
    "first_text",
    "first_versions",
    "holds",
    "live_versions",
    "newest_record",
    "readable_numbers",
]

_FIRST: Final = re.compile(rb"(?:[0-9]{1,19}-[0-9]{1,19} )*[0-9]{1,19}")


@attrs.frozen
class Live:
    """
    The numbers of the versions that are not deleted.

    That is `range(first, stop)`, and nothing else where no number was left out. Else it is some ranges before that,
    too, and the file `first` says `0-3 7-9 20`: from 0 to below 3, from 7 to below 9, and from 20 on.
    """

    earlier: tuple[range, ...]
    last: range = attrs.field(eq=lambda numbers: (numbers.start, numbers.stop))  # also where it is empty

    @property
    def stop(self) -> int:
        """The number after all of them, deleted ones included."""
        return self.last.stop

    @property
    def numbers(self) -> list[int]:
        return [number for numbers in (*self.earlier, self.last) for number in numbers]

    @property
    def newest(self) -> int | None:
        runs = [numbers for numbers in (*self.earlier, self.last) if numbers]
        return runs[-1][-1] if runs else None

    @property
    def text(self) -> str:
        return " ".join([*(f"{numbers.start}-{numbers.stop}" for numbers in self.earlier), str(self.last.start)])

    def __contains__(self, number: int) -> bool:
        return any(number in numbers for numbers in (*self.earlier, self.last))

    def __bool__(self) -> bool:
        return self.newest is not None

    def going_on(self, number: int) -> Live:
        """These, where the next one is *number*."""
        earlier = tuple(numbers for numbers in (*self.earlier, self.last) if numbers)
        return Live(earlier, range(number, number))

    def up_to(self, newest: int) -> Live:
        """Those of them that are not after *newest*."""
        runs = [range(numbers.start, min(numbers.stop, newest + 1)) for numbers in (*self.earlier, self.last)]
        runs = [numbers for numbers in runs if numbers] or [range(newest + 1, newest + 1)]
        return Live(tuple(runs[:-1]), runs[-1])


def first_text(path: Path) -> bytes:
    """Return what the file `first` says, at this path or not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"0"


def first_versions(folder: Path) -> Live:
    """Where the versions that are not deleted begin; where they end is not known to be there."""
    path = folder / "first"
    text = first_text(path)
    if text.startswith(b"{"):  # the last that was deleted
        number = record_of(path, text)["version"] + 1
        return Live((), range(number, number))
    if not _FIRST.fullmatch(text):
        msg = f"{path}: expected the number of a version, found {brief(text)}; the file is damaged"
        raise StorageCorruptError(msg)
    *earlier, last = text.decode().split()
    runs = [range(*map(int, numbers.split("-"))) for numbers in earlier]
    return Live(tuple(runs), range(int(last), int(last)))


def live_versions(folder: Path) -> Live:
    """The versions that are not deleted, in a number of steps that grows with the logarithm of theirs."""
    while True:
        first = first_versions(folder)
        stop = _end(first.stop, lambda number: os.path.exists(folder / f"{number}.json"))
        if first_versions(folder) == first:
            return attrs.evolve(first, last=range(first.stop, stop))


def _end(first: int, is_there: Callable[[int], bool]) -> int:
    """The first number from *first* that is not there, where those that are have no gaps."""
    step = 1
    while is_there(first + step - 1):
        step *= 2
    low, high = first + step // 2, first + step - 1  # below `low` all are there, and `high` is not
    while low < high:
        middle = (low + high) // 2
        if is_there(middle):
            low = middle + 1
        else:
            high = middle
    return low


def check_changed(folder: Path, live: Live, number: int) -> None:
    """
    See to it that a missing record was deleted meanwhile.

    Raises:
        StorageCorruptError: It should be there.
    """
    if live_versions(folder) == live:
        msg = f"{folder / f'{number}.json'}: expected the record of a version, found no file; the store is damaged"
        raise StorageCorruptError(msg)


def newest_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of the newest version that is not deleted, hidden or not; None if there is none."""
    while True:
        live = live_versions(folder)
        if live.newest is None:
            return None
        fields = read_record(folder / f"{live.newest}.json")
        if fields is not None:
            return fields
        check_changed(folder, live, live.newest)


def readable_numbers(folder: Path) -> list[int]:
    """Return the numbers of the versions that are neither deleted nor hidden."""
    while True:
        live, found = live_versions(folder), []
        for number in live.numbers:
            fields = read_record(folder / f"{number}.json")
            if fields is None:
                check_changed(folder, live, number)
                break
            if not is_hidden(fields):
                found.append(number)
        else:
            return found


def copied_files(folder: Path, new: Scope, versions: Mapping[str, int] | None) -> tuple[str, dict[str, str]]:
    """The name of an artifact, and the files of its versions, if there are any, as they would be in another scope."""
    newest = newest_record(folder)
    if newest is None:
        return "", {}
    filename: str = newest["filename"]
    live = live_versions(folder)
    copied = live if versions is None else live.up_to(versions.get(filename, -1))
    files = {"first": copied.text} if copied and copied.text != "0" else {}
    for number in copied.numbers:
        fields = read_record(folder / f"{number}.json")
        if fields is None:
            check_changed(folder, live, number)
            continue
        files[f"{number}.json"] = dumps(fields | key_fields(ArtifactKey(*new, filename)))
    return filename, files


def holds(folder: Path, files: dict[str, str]) -> bool:
    """Whether these files, and no others, are in the folder."""
    return {path.name: path.read_text("utf-8") for path in folder.glob("*")} == files
