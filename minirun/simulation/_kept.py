"""
Failures that are kept: a file for each test, with the choices that fail and what they were made under.

The files lie in `.minirun/failures` below the project's root. One that is damaged, of another format or of another
program is never a reason to fail: a run that meets one says so, and goes on without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from ..errors import ConfigurationError, MinirunError
from ._explore import checked_options, plain_options, stripped
from ._simulate import Outcome

__all__ = ["FOLDER", "Kept", "KeptFileError", "file_of", "keep", "kept_of", "read_kept"]

FOLDER = Path(".minirun/failures")
FORMAT = 1
# File names may be 255 bytes long almost everywhere; the rest of a test's name is in the digest.
NAME_CHARS_MAX = 100


class KeptFileError(MinirunError, ValueError):
    """A file is not one of a kept failure, or not of this format."""


@attrs.frozen
class Kept:
    """A failure that was kept."""

    test: str
    """As pytest names it: the file below the root, and the function."""
    seed: int
    options: Mapping[str, Any]
    """What `simulate` was called with, as far as `plain_options` has it."""
    failure: str
    """The type of the error."""
    message: str
    choices: tuple[int, ...]
    minirun: str
    """The version of the minirun that has found it."""

    @property
    def headline(self) -> str:
        """What it is, for people."""
        return f"the kept failure (found with seed {self.seed})"


def file_of(root: Path, test: str) -> Path:
    """Where the failure of *test* is kept."""
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]  # other tests have other files
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", test).strip("-.")[-NAME_CHARS_MAX:]
    return root / FOLDER / f"{readable}-{digest}.json"


def kept_of(test: str, seed: int, options: Mapping[str, Any], outcome: Outcome) -> Kept:
    """What there is to keep of a failure."""
    assert outcome.failure is not None, "only failures are kept"
    kind, choices = type(outcome.failure).__name__, tuple(stripped(outcome.picks))
    return Kept(test, seed, plain_options(options), kind, str(outcome.failure), choices, _version())


def keep(file: Path, kept: Kept) -> str:
    """
    Write a failure, all at once: a process that dies leaves the old file or the new one.

    Where it cannot be written, why not is returned: the failure itself is what has to be told.
    """
    content = {"format": FORMAT, **attrs.asdict(kept)}
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(content, indent=1).replace(",\n  ", ", ") + "\n", "utf-8")
        new.replace(file)
    except OSError as error:
        return f" (it could not be kept there: {error})"
    return ""


def read_kept(file: Path) -> Kept:
    """
    Read a kept failure.

    Raises:
        KeptFileError: The file cannot be read, or is something else.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{file}: expected a kept failure, found a file that cannot be read: {error}"
        raise KeptFileError(msg) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        told = (
            f"format {found['format']!r}" if isinstance(found, dict) and "format" in found else "another kind of file"
        )
        msg = (
            f"{file}: expected a kept failure of format {FORMAT}, found {told}; delete it, or use the minirun it is of"
        )
        raise KeptFileError(msg)
    kinds: dict[str, Any] = {
        "test": str,
        "seed": int,
        "options": dict,
        "failure": str,
        "message": str,
        "choices": list,
        "minirun": str,
    }
    wrong = [name for name, kind in kinds.items() if name not in found or not isinstance(found[name], kind)]
    if wrong or not all(type(pick) is int and pick >= 0 for pick in found["choices"]):
        msg = f"{file}: expected a kept failure, found one with damaged {', '.join(wrong) or 'choices'}; delete it"
        raise KeptFileError(msg)
    try:
        options = plain_options(checked_options(**found["options"]))
    except (ConfigurationError, TypeError) as error:
        msg = f"{file}: expected a kept failure, found one with options that are none here: {error}"
        raise KeptFileError(msg) from error
    values = {name: found[name] for name in ("test", "seed", "failure", "message", "minirun")}
    return Kept(**values, options=options, choices=tuple(found["choices"]))


def _version() -> str:
    try:
        return metadata.version("minirun")
    except metadata.PackageNotFoundError:  # a checkout that was put on the path
        return "unknown"
