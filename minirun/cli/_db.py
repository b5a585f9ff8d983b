"""
The values of `--db` and of options that take files. A password is never shown.

Every command that takes `--db` uses `FILE_OR_URL` or `NEW_FILE_OR_URL`, and every other file option uses `FileType`. A
value that can be the URL of a database is not opened as a file, because errors about files show their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import attrs
import click

from ..errors import MinirunError
from ..sessions import BaseSessionService, SqliteSessionService
from ._show import plain

__all__ = ["FILE_OR_URL", "NEW_FILE_OR_URL", "Db", "DbType", "FileType"]

# A URL, also one with a missing slash or colon, or libpq's `keyword=value` text. `C:/` is a drive of Windows.
_CONNECTION = re.compile(r"\w[\w+.-]+:/|.*:[^/\\]*@|.*password\s*=", re.IGNORECASE | re.DOTALL)


@attrs.frozen
class Db:
    """A SQLite file, or the URL of a database, which may have a password in it."""

    place: Path | str = attrs.field(repr=False)

    @property
    def is_url(self) -> bool:
        """Whether it is a database that has no file here."""
        return isinstance(self.place, str)

    def open(self) -> BaseSessionService:
        """
        The service of the sessions there, not opened yet.

        Raises:
            click.ClickException: It cannot be one.
        """
        if isinstance(self.place, Path):
            return SqliteSessionService(self.place)
        from ..sessions._postgres._service import DatabaseSessionService  # most commands are given a file

        try:
            return DatabaseSessionService(self.place)
        except (MinirunError, ModuleNotFoundError) as error:
            raise click.ClickException(plain(str(error))) from error

    def __str__(self) -> str:
        """What can be shown, and given to another command: the password is left to libpq's own file or variable."""
        return shown_url(self.place) if isinstance(self.place, str) else str(self.place)


def shown_url(url: str) -> str:
    """
    The URL without its password. One that cannot be taken apart is not shown at all.

    What it is to a command that is given it: libpq asks PGPASSWORD and the password file.
    """
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        user, at, hosts = parts.netloc.rpartition("@")
        if "@" in f"{parts.path}{parts.query}{parts.fragment}":  # a password with a character that ends the part
            raise ValueError("which part is the password, nobody knows")
    except ValueError:
        return "the database"
    query = urlencode([pair for pair in options if "password" not in pair[0].lower()], quote_via=quote, safe="/")
    asked = f"?{query}" if query else ""
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}{asked}"


class FileType(click.Path):
    """A file or folder. A value that can have the password of a database in it is refused, and is not shown."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if isinstance(value, str) and _CONNECTION.match(value):
            takes = "a file or postgresql://..." if param is not None and isinstance(param.type, DbType) else "a file"
            self.fail(f"expected {takes}, found another text that can have a password in it (not shown)", param, ctx)
        return super().convert(value, param, ctx)


class DbType(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument here
    """The value of `--db`. With *exists*, a file must be there."""

    name = "file or url"

    def __init__(self, *, exists: bool) -> None:
        self._file = FileType(exists=exists, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Db:
        """Tell a URL by its `://`. That it names a database is seen when it is opened."""
        if isinstance(value, Db):
            return value
        if "://" not in value:
            return Db(self._file.convert(value, param, ctx))
        scheme, _, rest = value.partition("://")
        if scheme.partition("+")[0] == "sqlite":
            return Db(self._file.convert(rest.removeprefix("/"), param, ctx))
        return Db(value)


FILE_OR_URL = DbType(exists=True)
NEW_FILE_OR_URL = DbType(exists=False)
