"""What the checks of a credential service stand on: a bench with short forms of its operations on one app."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from ..credentials import AuthCredential, BaseCredentialService

__all__ = ["Bench", "Body", "Factory", "listed_in"]

Factory: TypeAlias = Callable[[], AbstractAsyncContextManager[BaseCredentialService]]


class Bench:
    """One service under test, with short forms of its operations on one app."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self.app = ""
        self.service: BaseCredentialService

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseCredentialService]:
        """Open the service, or open it again."""
        async with self._factory() as service:
            if not self.app:
                self.app = "contract-" + re.sub(r"[^A-Za-z0-9]", "-", service.env.new_id("contract"))
            self.service = service
            yield service

    async def save(self, credential: AuthCredential, key: str = "k", *, user: str = "u", app: str = "") -> None:
        await self.service.save_credential(
            app_name=app or self.app, user_id=user, credential_key=key, credential=credential
        )

    async def load(self, key: str = "k", *, user: str = "u", app: str = "") -> AuthCredential | None:
        return await self.service.load_credential(app_name=app or self.app, user_id=user, credential_key=key)

    async def delete(self, key: str = "k", *, user: str = "u", app: str = "") -> None:
        await self.service.delete_credential(app_name=app or self.app, user_id=user, credential_key=key)

    async def keys(self, *, user: str = "u", app: str = "") -> list[str]:
        return await self.service.list_credentials(app_name=app or self.app, user_id=user)


Body: TypeAlias = Callable[[Bench], Awaitable[None]]


def listed_in(table: dict[str, Body]) -> Callable[[Body], Body]:
    """A decorator that puts a check into *table*, under its name."""

    def put(body: Body) -> Body:
        table[body.__name__.strip("_")] = body
        return body

    return put
