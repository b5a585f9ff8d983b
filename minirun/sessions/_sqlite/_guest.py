"""Services that keep something in the file of the sessions: artifacts, memories."""

from __future__ import annotations

import os

from ..._service import BaseService
from ...env import Env
from ...errors import ConfigurationError, ServiceClosedError
from ._file import Durability
from ._service import SqliteSessionService

__all__ = ["FileGuest"]


class FileGuest(BaseService):
    """
    A service in the file of a session service: of a given one, which stays its owner's, or of one of its own.

    Raises:
        ConfigurationError: A session service came with a durability or an Env of another.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | SqliteSessionService,
        *,
        durability: Durability | None = None,
        env: Env | None = None,
    ) -> None:
        self._is_guest = isinstance(place, SqliteSessionService)
        if isinstance(place, SqliteSessionService):
            if durability is not None or env not in (None, place.env):
                msg = "expected no durability and no env beside a session service, which has its own; leave them out"
                raise ConfigurationError(msg)
            self._sessions = place
        else:
            durability = "power" if durability is None else durability
            self._sessions = SqliteSessionService(place, durability=durability, cache_bytes=0, env=env)
        super().__init__(env=self._sessions.env)
        self._file = self._sessions._file

    def _check_open(self) -> None:
        super()._check_open()
        self._sessions._be_here()
        if self._sessions._closed:
            msg = f"expected the session service of this {type(self).__name__} to be open, found it closed"
            raise ServiceClosedError(f"{msg}; make new ones")

    async def _close(self) -> None:
        if not self._is_guest:
            await self._sessions.aclose()
