"""
Where a program's log goes, for scripts that do not set up logging themselves: ADK has it as `cli.utils.logs`.

Importing minirun never configures logging; calling one of these does.
"""

from __future__ import annotations

import logging
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from ..env import REAL_ENV

__all__ = ["log_to_tmp_folder", "setup_adk_logger"]

FORMAT = "%(asctime)s - %(levelname)s - %(filename)s:%(lineno)d - %(message)s"


def setup_adk_logger(level: int = logging.INFO) -> None:
    """Send what is logged to standard error, with time and place; what minirun logs from *level* up."""
    logging.basicConfig(level=logging.WARNING, format=FORMAT)
    logging.getLogger("minirun").setLevel(level)


def log_to_tmp_folder(
    level: int = logging.INFO,
    *,
    sub_folder: str = "agents_log",
    log_file_prefix: str = "agent",
    log_file_timestamp: str | None = None,
) -> str:
    """
    Send what is logged from *level* up to a new file, in place of where it went, and return the path of the file.

    The file is `PREFIX.TIMESTAMP.RANDOM.log`, in *sub_folder* of the folder for temporary files. Only the user who runs
    the program can read it.

    Raises:
        OSError: The folder or the file cannot be made; logging goes where it went.
    """
    now = datetime.fromtimestamp(REAL_ENV.now(), tz=UTC)
    stamp = now.strftime("%Y%m%d_%H%M%S") if log_file_timestamp is None else log_file_timestamp
    folder = Path(tempfile.gettempdir(), sub_folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Others can write to the folder for temporary files: the file is one that was not there, readable by its owner.
    number, path = tempfile.mkstemp(prefix=f"{log_file_prefix}.{stamp}.", suffix=".log", dir=folder)
    os.close(number)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.setLevel(level)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    print(f"The log goes to {path}")
    return path
