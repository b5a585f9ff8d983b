"""
Modules of minirun that come from another folder: those in which a bug was planted. All others are the true ones.

It imports nothing of minirun, so that it can be said before anything is imported where it comes from.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["use"]


class Planted(MetaPathFinder):
    """Finds a module of minirun in a folder, if there is a file for it, as it would be found in its package."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        true = PathFinder.find_spec(fullname, path, target) if fullname.partition(".")[0] == "minirun" else None
        if true is None or true.origin is None:
            return None
        name = fullname.replace(".", "/")
        file = self._folder / (f"{name}.py" if true.submodule_search_locations is None else f"{name}/__init__.py")
        if not file.is_file():
            return None
        return spec_from_file_location(fullname, file, submodule_search_locations=true.submodule_search_locations)


def use(folder: str) -> None:
    """From now on modules of minirun are imported from *folder*, if they stand there."""
    assert "minirun" not in sys.modules, "expected to be asked before minirun is imported"
    sys.meta_path.insert(0, Planted(Path(folder)))
