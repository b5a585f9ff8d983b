"""Services that keep something in the database of the sessions: artifacts, memories."""

from __future__ import annotations

from ..._service import BaseService
from ...env import Env
from ...errors import ConfigurationError, ServiceClosedError
from ._service import DatabaseSessionService

__all__ = ["DatabaseGuest"]


class DatabaseGuest(BaseService):
    """
    A service in the database of a session service: of a given one, which stays its owner's, or of one of its own.

    Raises:
        ConfigurationError: A session service came with an Env of another, or the URL is none.
    """

    def __init__(self, place: str | DatabaseSessionService, *, env: Env | None = None) -> None:
        self._is_guest = isinstance(place, DatabaseSessionService)
        if isinstance(place, DatabaseSessionService):
            if env not in (None, place.env):
                msg = "expected no env beside a session service, which has its own; leave it out"
                raise ConfigurationError(msg)
            self._sessions = place
        else:
            self._sessions = DatabaseSessionService(place, cache_bytes=0, env=env)
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
