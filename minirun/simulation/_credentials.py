"""The credentials of a simulated world: outside of its processes, as in a keyring, so that they survive them all."""

from __future__ import annotations

from ..credentials import AuthCredential, CredentialKey, InMemoryCredentialService
from ..env import Env

__all__ = ["KeptCredentials"]


class KeptCredentials(InMemoryCredentialService):
    """
    What one process sees of *kept*. Before each operation others may go on, or the process may die.

    Args:
        kept: What is kept, for all processes.
        env: That of the process.
    """

    def __init__(self, kept: dict[CredentialKey, AuthCredential], *, env: Env) -> None:
        super().__init__(env=env)
        self._credentials = kept

    async def _load(self, key: CredentialKey) -> AuthCredential | None:
        await self.env.point("load a credential")
        return await super()._load(key)

    async def _save(self, key: CredentialKey, credential: AuthCredential) -> None:
        await self.env.point("save a credential")
        await super()._save(key, credential)

    async def _delete(self, key: CredentialKey) -> None:
        await self.env.point("delete a credential")
        await super()._delete(key)

    async def _list(self, app_name: str, user_id: str) -> list[str]:
        await self.env.point("list credentials")
        return await super()._list(app_name, user_id)
