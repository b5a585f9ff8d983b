"""
Whose file it is, and in which format.

A file of ours carries an application id and the number of its format. Opening a file

*   of no program (an empty one) makes it ours, in one transaction;
*   of an older format brings it up to date, in one transaction: all of it, or it stays as it was;
*   of a newer format, or of another program, is refused before a byte of it has changed.

The tables themselves are not compared: an application can add its own tables, views and indexes to the file. A trigger,
or a unique index, on a table of minirun can refuse or change what minirun writes; that is its author's responsibility.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..._json import brief, shown
from ...env import Env
from ...errors import InvalidValueError, StorageFormatError, StorageReadOnlyError
from ._errors import ADVICE, SQLITE_ERRORS, result_code

__all__ = ["Format", "check_place", "check_untouched", "make_format", "parse_path", "refuse_url"]

# "mrun" in ASCII: tells a minirun file from another program's (https://sqlite.org/pragma.html#pragma_application_id).
APPLICATION_ID: Final = 0x6D72756E

# A URL, also with the single slash that `Path("postgresql://...")` leaves. `C:/` is a drive of Windows.
_URL: Final = re.compile(r"\w[\w+.-]+:/")


class Format(NamedTuple):
    """
    How a file is laid out.

    Args:
        version: Its number, from 1 up; `PRAGMA user_version`.
        schema: The statements that make an empty file one of this format.
        migrations: For each older version that is still read, what changes a file of it into one of the next version.
            It runs inside the transaction and must neither begin nor end one.
    """

    version: int
    schema: str
    migrations: Mapping[int, Callable[[sqlite3.Connection], None]] = {}


def make_format(connection: sqlite3.Connection, name: str, wanted: Format) -> None:
    """
    Make the file one of the *wanted* format, if it is empty or of an older one.

    Raises:
        StorageFormatError: It is another program's, a newer version's, or too old to be read.
    """
    connection.execute("BEGIN")
    found = _found_version(connection, name, wanted)
    connection.execute("COMMIT")
    if found == wanted.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    found = _found_version(connection, name, wanted)  # another process may have been faster
    if found == 0:
        for statement in wanted.schema.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    for version in range(found or wanted.version, wanted.version):
        wanted.migrations[version](connection)
    connection.execute(f"PRAGMA user_version={wanted.version}")
    connection.execute("COMMIT")


def _found_version(connection: sqlite3.Connection, name: str, wanted: Format) -> int:
    """The version of the file's format, 0 for an empty file. Called in a transaction, for one view."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID and min(wanted.migrations, default=wanted.version) <= version <= wanted.version:
        return int(version)
    if application or version or tables:
        if application != APPLICATION_ID:
            msg = f"{name}: expected a file made by minirun, found another program's database; use another name"
            raise StorageFormatError(msg)
        made_by = "a newer" if version > wanted.version else "an older"
        msg = f"{name}: expected format {wanted.version}, found format {version}, made by {made_by} minirun"
        raise StorageFormatError(f"{msg}; install that, or use another file")
    return 0


def check_untouched(path: Path, wanted: Format, env: Env) -> None:
    """
    Refuse a file that is not ours before anything of it can change.

    To open it properly would already roll back or check in what its own program has left in its journal. Not even
    its locks are taken, and its log is not read: so a file of ours may look damaged here, while or after a process
    wrote back its log and got half way. Only what is certainly foreign is refused.

    It is read by SQLite and by nothing else: a process that opens the file itself, and closes it, loses all locks
    that SQLite has on it in this process, and then others delete its log (https://sqlite.org/howtocorrupt.html, 2.2).
    """
    if not path.exists():
        return
    connection = env.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        [application] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION_ID, wanted.version):  # else it is ours, whatever else is in it
            connection.execute("BEGIN")
            _found_version(connection, str(path), wanted)
    except SQLITE_ERRORS as error:
        if result_code(error) == sqlite3.SQLITE_NOTADB and not _is_half_made(path):
            raise
    finally:
        connection.close()


def _is_half_made(path: Path) -> bool:
    """Whether a journal lies beside the file that would undo what a power cut has left of its first transaction."""
    journal = path.with_name(f"{path.name}-journal")
    return journal.is_file() and journal.stat().st_size > 0


def check_place(path: Path) -> None:
    """
    Refuse a path where there can be no database, in words of its own.

    Raises:
        StorageFormatError, StorageReadOnlyError: It cannot be opened and written.
    """
    try:
        _check_place(path)
    except PermissionError as error:
        msg = f"{path}: this user may not look into {path.parent}; {ADVICE[StorageReadOnlyError]}"
        raise StorageReadOnlyError(msg) from error
    except OSError as error:  # a name too long, a loop of links, …
        msg = f"{path}: cannot be opened: {error.strerror}; choose another name"
        raise StorageFormatError(msg) from error


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        msg = f"{path}: there is no folder {path.parent}; make it first, or choose another place"
        raise StorageFormatError(msg)
    if path.exists() and not path.is_file():
        msg = f"{path}: expected a file, found a folder or device; choose another name"
        raise StorageFormatError(msg)
    if path.exists() and path.stat().st_size == 1:  # which SQLite would take for an empty one
        msg = f"{path}: expected a file made by minirun, found one of one byte; use another name"
        raise StorageFormatError(msg)
    target = path if path.exists() else path.parent
    if not os.access(target, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        msg = f"{path}: cannot be read and written; {ADVICE[StorageReadOnlyError]} (a log is kept beside the file)"
        raise StorageReadOnlyError(msg)


def refuse_url(path: str | os.PathLike[str], expected: str = "a file name") -> None:
    """
    Refuse the URL of a database in place of what is *expected*.

    Raises:
        InvalidValueError: It is one. The message does not show it.
    """
    if _URL.match(os.fspath(path)):
        msg = f"expected {expected}, found a URL (not shown, as it can have a password in it)"
        raise InvalidValueError("path", f"{msg}; DatabaseSessionService takes postgresql://")


def parse_path(path: str | os.PathLike[str] | None) -> Path | None:
    """
    The file that a service was given, resolved; None for a database in memory.

    Raises:
        InvalidValueError: It can be no file.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or "\0" in text:
        raise InvalidValueError("path", f"expected a file name as text without NUL, found {shown(path)}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise InvalidValueError("path", f"expected a file name, found {shown(path)} ({error})") from None
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    else:
        refuse_url(text, "a file name or sqlite:///FILE")
    if text == ":memory:":
        return None
    if not text.strip():
        raise InvalidValueError("path", f"expected a file name, ':memory:' or sqlite:///FILE, found {brief(path)}")
    # Resolved once: neither a change of folder nor a link may make two files, or two owners, out of one.
    return Path(os.path.realpath(text))
