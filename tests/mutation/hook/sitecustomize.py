"""
What every process of a test loads first, while mutants are made: it is on PYTHONPATH then.

With MINIRUN_MUTANT, the file that it names has the code of a changed module, which is loaded instead of the module's.
With MINIRUN_LINES, every line of the package that is passed is marked in the shared memory that the file describes.
Nothing of the package is imported here.
"""

from __future__ import annotations

import marshal
import mmap
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

TOOL = 4  # of the six that sys.monitoring has: no profiler's, no debugger's

changed: dict[str, CodeType] = {}
"""Code to load instead of a file's, by path."""
offsets: dict[str, int] = {}
"""Where the marks of a file begin."""
marks: Any = None

_get_code = SourceFileLoader.get_code


def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
    """The code of a module, as all imports ask for it."""
    path = loader.get_filename(fullname)
    code = changed.get(path) or _get_code(loader, fullname)
    if path in offsets and code is not None:
        watch(code)
    return code


def watch(code: CodeType) -> None:
    """Mark the lines of the functions in a module, or in a function, from now on."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            watch(each)
    if code.co_flags & 0x2:  # a function: what runs at import is of no test
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # since 3.12
        monitoring.set_local_events(TOOL, code, monitoring.events.LINE)


def mark(code: CodeType, line: int) -> Any:
    """One line was passed; it is not told of again before `restart_events`."""
    marks[offsets[code.co_filename] + line] = 1
    return disable


SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
if "MINIRUN_MUTANT" in os.environ:
    with open(os.environ["MINIRUN_MUTANT"], "rb") as file:
        changed.update(marshal.load(file))
if "MINIRUN_LINES" in os.environ:
    with open(os.environ["MINIRUN_LINES"], "rb") as file:
        place, offsets = marshal.load(file)
    with open(place, "r+b") as memory:
        marks = mmap.mmap(memory.fileno(), 0)
    disable = sys.monitoring.DISABLE  # type: ignore[attr-defined]
    sys.monitoring.use_tool_id(TOOL, "minirun's lines")  # type: ignore[attr-defined]
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, mark)  # type: ignore[attr-defined]
