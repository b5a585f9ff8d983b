"""The credentials of a simulated world: outside of its processes, as in a keyring, so that they survive them all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from ..credentials import AuthCredential, CredentialKey, InMemoryCredentialService
from ._env import SimulatedEnv

__all__ = ["KeptCredentials", "Keyring"]

# How often a process looks whether another one has given a lock back, in seconds of virtual time.
LOCK_POLL_S = 1.0


@attrs.define
class Keyring:
    """What is kept for all processes, and which of them has a credential for itself."""

    credentials: dict[CredentialKey, AuthCredential] = attrs.Factory(dict)
    locks: dict[CredentialKey, SimulatedEnv] = attrs.Factory(dict)


class KeptCredentials(InMemoryCredentialService):
    """
    What one process sees of *kept*. Before each operation others may go on, or the process may die.

    Args:
        kept: What is kept, for all processes.
        env: That of the process.
    """

    def __init__(self, kept: Keyring, *, env: SimulatedEnv) -> None:
        super().__init__(env=env)
        self._process = env
        self._credentials = kept.credentials
        self._taken = kept.locks

    async def _come_to(self, label: str) -> None:
        await self._process.point(label)
        self._process.refuse_if_dead()

    async def _load(self, key: CredentialKey) -> AuthCredential | None:
        await self._come_to("load a credential")
        return await super()._load(key)

    async def _save(self, key: CredentialKey, credential: AuthCredential) -> None:
        await self._come_to("save a credential")
        await super()._save(key, credential)

    async def _delete(self, key: CredentialKey) -> None:
        await self._come_to("delete a credential")
        await super()._delete(key)

    async def _list(self, app_name: str, user_id: str) -> list[str]:
        await self._come_to("list credentials")
        return await super()._list(app_name, user_id)

    @asynccontextmanager
    async def _exclusive(self, key: CredentialKey) -> AsyncIterator[None]:
        """As with a lock on a file: it dies with its process."""
        async with super()._exclusive(key):
            while self._is_taken(key):
                await self._process.sleep(LOCK_POLL_S)
            self._taken[key] = self._process
            try:
                yield
            finally:
                if self._taken.get(key) is self._process:
                    del self._taken[key]

    def _is_taken(self, key: CredentialKey) -> bool:
        holder = self._taken.get(key)
        return holder is not None and holder is not self._process and holder.lives
