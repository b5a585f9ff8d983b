"""Services that keep something in the database of the sessions: artifacts, memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ..._service import BaseService
from ...env import Env
from ...errors import ConfigurationError, ServiceClosedError
from .._service import BaseSessionService
from ._service import DatabaseSessionService
from ._url import check_options, postgres_url, sqlite_path

if TYPE_CHECKING:
    from .._sqlite._service import SqliteSessionService

__all__ = ["DatabaseGuest", "sqlite_place"]


def sqlite_place(service: str, db_url: object, options: Mapping[str, object]) -> str | SqliteSessionService | None:
    """
    Return what a service for SQLite files takes in the place of *service*: the file of a `sqlite:` URL, or the session
    service that such a URL has made. None if *db_url* is neither.

    Raises:
        NotSupportedError: *options*, those of *service*, have one of SQLAlchemy's; or the URL has options.
        TypeError: They have one that nobody has.
        ConfigurationError: The URL has a host.
    """
    place: str | SqliteSessionService | None = sqlite_path(db_url)
    if isinstance(db_url, BaseSessionService) and not isinstance(db_url, DatabaseSessionService):
        from .._sqlite._service import SqliteSessionService  # a worker on Postgres has no use for it

        place = db_url if isinstance(db_url, SqliteSessionService) else None
    if place is not None:
        check_options({name: option for name, option in options.items() if name != "env"}, service)
    return place


class DatabaseGuest(BaseService):
    """
    A service in the database of a session service: of a given one, which stays its owner's, or of one of its own.

    Raises:
        ConfigurationError: A session service came with an Env of another, or the URL is none.
        NotSupportedError: It is of another database, or an option of SQLAlchemy's was given; or a class that is derived
            from this one was given a SQLite file.
    """

    _own_service: ClassVar[str]
    """What else there is for other databases, for messages."""

    def __init__(self, db_url: str | DatabaseSessionService, *, env: Env | None = None, **options: object) -> None:
        name = type(self).__name__
        check_options(options, name)
        self._is_guest = isinstance(db_url, DatabaseSessionService)
        if isinstance(db_url, DatabaseSessionService):
            if env not in (None, db_url.env):
                msg = "expected no env beside a session service, which has its own; leave it out"
                raise ConfigurationError(msg)
            self._sessions = db_url
        elif isinstance(db_url, BaseSessionService):
            msg = f"{name} shares the database of a DatabaseSessionService, found a {type(db_url).__name__}"
            raise ConfigurationError(f"{msg}; give it such a service or a URL")
        else:
            url = postgres_url(db_url, name, self._own_service)
            self._sessions = DatabaseSessionService(url, cache_bytes=0, env=env)
        super().__init__(env=self._sessions.env)
        self._database = self._sessions._database

    def _check_open(self) -> None:
        super()._check_open()
        self._sessions._be_here()
        if self._sessions._closed:
            msg = f"expected the session service of this {type(self).__name__} to be open, found it closed"
            raise ServiceClosedError(f"{msg}; make new ones")

    async def _close(self) -> None:
        if not self._is_guest:
            await self._sessions.aclose()
