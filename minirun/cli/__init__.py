"""The command line: `minirun`, or `python -m minirun`. It needs the extra `cli` (click and rich)."""

from __future__ import annotations

import io
import logging
import sys

try:
    from ._commands import cli
except ModuleNotFoundError as error:
    if error.name not in ("click", "rich"):
        raise
    _missing = error.name
else:
    _missing = ""

__all__ = ["main"]


def main() -> None:
    """Run the command line; without click and rich say how to get them."""
    if _missing:
        print(f'minirun: the command line needs {_missing}; run: pip install "minirun[cli]"', file=sys.stderr)
        sys.exit(1)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # a character that cannot be read or shown must not end a run
            stream.reconfigure(errors="replace")
    logging.getLogger("minirun").addHandler(logging.NullHandler())  # what it tells of failed tools is shown here
    cli(prog_name="minirun")
