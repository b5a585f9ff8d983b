"""Credentials in a dict: for tests, simulations and scripts. They end with the object."""

from __future__ import annotations

from ..env import Env
from ._service import BaseCredentialService
from ._values import AuthCredential, CredentialKey

__all__ = ["InMemoryCredentialService"]


class InMemoryCredentialService(BaseCredentialService):
    """
    Keeps credentials in memory, as long as the object lives.

    Args:
        env: Where time comes from.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._credentials: dict[CredentialKey, AuthCredential] = {}

    async def _load(self, key: CredentialKey) -> AuthCredential | None:
        return self._credentials.get(key)

    async def _save(self, key: CredentialKey, credential: AuthCredential) -> None:
        self._credentials[key] = credential

    async def _delete(self, key: CredentialKey) -> None:
        self._credentials.pop(key, None)

    async def _list(self, app_name: str, user_id: str) -> list[str]:
        return [key.credential_key for key in self._credentials if (key.app_name, key.user_id) == (app_name, user_id)]
