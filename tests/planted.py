"""
Modules of minirun that come from another folder: those in which a bug was planted. All others are the true ones.

It imports nothing of minirun, so that it can be said before anything is imported where it comes from (`use`). Where
the two differ in what functions do, and in nothing else, that can be said afterwards, too (`swap`).
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

__all__ = ["SWAPPED", "can_swap", "swap", "use"]

SWAPPED: list[str] = []
"""The files of a folder of which functions do what stands there."""


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


def can_swap(true: str, planted: str) -> bool:
    """Whether the text of a module differs from the true one only inside of functions."""
    return _outside(true) == _outside(planted)


def _outside(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = []
    return ast.dump(tree)


def swap(folder: str) -> None:
    """
    From now on the functions of modules that stand in *folder* do what they do there, whoever has them already.

    Nothing of minirun may be running.

    Raises:
        ValueError: A function that is there has no counterpart, or one that takes other variables from around it.
    """
    swapped: dict[tuple[str, str, int], CodeType] = {}
    for path in sorted(Path(folder).rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        true = import_module(name).__file__ or ""
        old, new = (_codes(Path(each).read_text("utf-8"), true) for each in (true, path))
        for named, codes in old.items():
            for one, other in zip(codes, new.get(named, []), strict=False):
                swapped[true, named, one.co_firstlineno] = other
        SWAPPED.append(str(path))
    files = {file for file, _, _ in swapped}
    gc.unfreeze()  # what is frozen is not among what follows
    for each in gc.get_objects():
        if type(each) is FunctionType and (code := each.__code__).co_filename in files:
            other_code = swapped.get((code.co_filename, code.co_qualname, code.co_firstlineno))
            if other_code is None or other_code.co_freevars != code.co_freevars:
                msg = f"expected a function like {code.co_qualname} in {folder}"
                raise ValueError(msg)
            each.__code__ = other_code
    gc.freeze()


def _codes(text: str, file: str) -> dict[str, list[CodeType]]:
    """The code of every function of a module, by qualified names; several of one name in their order."""
    found: dict[str, list[CodeType]] = {}
    for code in _inside(compile(text, file, "exec", dont_inherit=True)):
        found.setdefault(code.co_qualname, []).append(code)
    return found


def _inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)
