"""
Tables that are kept as JSON in `tests/fixtures`: what something was when somebody last read it.

A test compares what there is with what is kept. `python -m` of the module that makes a table writes it anew; the
difference is read before it is committed, so each case has a line, or lines, of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["as_kept", "kept", "write"]

FOLDER = Path(__file__).parent / "fixtures"


def kept(name: str) -> Any:
    """The table of this name, such as "wire/tables/answers"."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def as_kept(value: Any) -> Any:
    """What *value* is after it was kept."""
    return json.loads(json.dumps(value))


def write(name: str, table: Any, depth: int = 1) -> None:
    """Keep *table*; what lies deeper in it than *depth* stands in one line."""
    (FOLDER / f"{name}.json").write_text(_laid_out(table, depth, "\n") + "\n", "utf-8")


def _laid_out(value: Any, depth: int, begin: str) -> str:
    if not value or not depth or not isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value)
    inside = f"{begin} "
    if isinstance(value, Mapping):
        lines = [f"{json.dumps(key)}: {_laid_out(each, depth - 1, inside)}" for key, each in value.items()]
        return f"{{{inside}{f',{inside}'.join(lines)}{begin}}}"
    return f"[{inside}{f',{inside}'.join(_laid_out(each, depth - 1, inside) for each in value)}{begin}]"
