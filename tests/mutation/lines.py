"""
Which lines of the package each test passes: the map, as files in a folder outside of the repository.

There is one file per file of tests, with a digest of it, and the text of every module as it was. So the map is made
again only for files of tests that changed; where a module changed since, its lines are found again: those that are
the same stand for themselves, and whoever passed some of what was replaced passes all of what replaces it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs

__all__ = ["ROOT", "LineMap", "Passage", "digest", "modules", "ranges", "test_files"]

ROOT = Path(__file__).parents[2]
FOLDERS = ("runtime", "sessions", "agents", "tools", "workflow", "models")


def modules() -> list[str]:
    """The modules that are changed, relative to the repository; of `models/`, those that speak with a wire."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / "minirun" / folder).rglob("*.py"))]
    return [str(p.relative_to(ROOT)) for p in found if "models" not in p.parts or p.name.startswith("_wire")]


def test_files() -> list[str]:
    """All files of tests, relative to the repository, but the one about mutants."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in found if path.name != "test_mutation.py"]


def digest(data: bytes) -> str:
    """A short name for a text."""
    return hashlib.sha256(data).hexdigest()[:16]


@attrs.frozen
class Passage:
    """A test that passes, and the lines that it went through."""

    test: str
    seconds: float
    """Of processor time, with all its processes."""
    waited_s: float
    """From its begin to its end."""
    lines: dict[str, frozenset[int]]


class LineMap:
    """The map in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "tests").mkdir(parents=True, exist_ok=True)
        (folder / "texts").mkdir(exist_ok=True)

    def _part(self, file: str) -> Path:
        return self._folder / "tests" / (file.replace("/", "__") + ".json")

    def missing(self) -> list[str]:
        """The files of tests that are not in it as they are."""
        return [file for file in test_files() if self._read(file).get("digest") != digest((ROOT / file).read_bytes())]

    def _read(self, file: str) -> dict[str, Any]:
        part = self._part(file)
        return json.loads(part.read_text()) if part.exists() else {}

    def keep(self, file: str, read: str, texts: dict[str, str], tests: dict[str, Any], loading: Any) -> None:
        """
        Store what the tests of a file have passed.

        *read* is the digest of the file when it was imported, *texts* are digests of the modules, *tests* has for each
        test its outcome, seconds, and ranges of lines by module; *loading* are the lines that were passed by imports.
        """
        for module, text in texts.items():
            copy = self._folder / "texts" / text
            if not copy.exists():
                copy.write_bytes((ROOT / module).read_bytes())
        part = self._part(file)
        new = part.with_suffix(".new")
        new.write_text(json.dumps({"digest": read, "texts": texts, "tests": tests, "loading": loading}))
        new.replace(part)

    def passages(self) -> Iterator[Passage]:
        """All tests that have passed when the map was made."""
        for file in test_files():
            part = self._read(file)
            for test, (outcome, seconds, waited_s, ranges) in part.get("tests", {}).items():
                if outcome == "passed":
                    lines = {m: self._now(m, part["texts"][m], told) for m, told in ranges.items()}
                    yield Passage(test, seconds, waited_s, {m: found for m, found in lines.items() if found})

    def loading(self) -> dict[str, set[int]]:
        """The lines of functions that are passed while modules and tests are imported, by module."""
        found: dict[str, set[int]] = {}
        for file in test_files():
            part = self._read(file)
            for module, told in part.get("loading", {}).items():
                found.setdefault(module, set()).update(self._now(module, part["texts"][module], told))
        return found

    def _now(self, module: str, text: str, told: list[list[int]]) -> frozenset[int]:
        """The lines as they are now, of those that were told of an earlier text of the module."""
        lines = frozenset(line for first, last in told for line in range(first, last + 1))
        moved = self._moved(module, text)
        return lines if moved is None else frozenset(line for old in lines for line in moved.get(old, ()))

    @cache  # noqa: B019  # as long as the process
    def _moved(self, module: str, text: str) -> dict[int, range] | None:
        if not (ROOT / module).exists():
            return {}
        now = (ROOT / module).read_bytes()
        if digest(now) == text:
            return None
        before = (self._folder / "texts" / text).read_text("utf-8").splitlines()
        after = now.decode().splitlines()
        moved: dict[int, range] = {}
        for how, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            for old in range(i1, i2):
                same = j1 + old - i1 + 1
                moved[old + 1] = range(same, same + 1) if how == "equal" else range(j1 + 1, j2 + 1)
            if how == "insert" and i1:  # new lines belong to whoever passed the line before
                moved[i1] = range(moved[i1].start, j2 + 1)
        return moved


def ranges(lines: Iterable[int]) -> list[list[int]]:
    """Lines as first and last ones of runs."""
    found: list[list[int]] = []
    for line in sorted(lines):
        if found and found[-1][1] == line - 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return found
