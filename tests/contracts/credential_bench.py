"""What the checks of a credential service stand on: a bench with short forms of its operations on one app."""

from __future__ import annotations

from minirun.credentials import AuthCredential, BaseCredentialService
from minirun.testing._contract import BaseBench

__all__ = ["Bench"]


class Bench(BaseBench[BaseCredentialService]):
    """One service under test, with short forms of its operations on one app."""

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
