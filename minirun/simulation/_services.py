"""
Artifacts, memories and credentials that outlive the processes of a simulated run, as in a bucket or a keyring.

Each process has services of its own over one copy of the data. Before each operation other tasks can run, or the
process can die; a dead process changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import attrs

from ..artifacts import InMemoryArtifactService
from ..credentials import AuthCredential, CredentialKey, InMemoryCredentialService
from ..memory import InMemoryMemoryService
from ._env import SimulatedEnv

__all__ = ["KeptArtifacts", "KeptCredentials", "KeptMemories", "Keyring"]

# How often a process looks whether another one has given a lock back, in seconds of virtual time.
LOCK_POLL_S = 1.0


def _add_points(service: type, labels: dict[str, str]) -> None:
    """Let the methods that are named pass the point of this label before they do anything."""
    for name, label in labels.items():
        setattr(service, name, _with_point(getattr(service, name), label))


def _with_point(method: Callable[..., Awaitable[Any]], label: str) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def pass_point(self: Any, *args: Any, **options: Any) -> Any:
        await self.env.point(label)
        self.env.refuse_if_dead()
        return await method(self, *args, **options)

    return pass_point


class KeptArtifacts(InMemoryArtifactService):
    """The artifacts of *kept*, for the process of *env*."""

    def __init__(self, kept: InMemoryArtifactService, env: SimulatedEnv) -> None:
        super().__init__(env=env)
        self._scopes, self._contents = kept._scopes, kept._contents


_add_points(
    KeptArtifacts,
    {
        "_save": "save an artifact",
        "_restore": "restore an artifact",
        "_find": "find an artifact",
        "_versions": "list an artifact",
        "_names": "list artifacts",
        "_delete": "delete an artifact",
        "_delete_scope": "delete artifacts",
        "_copy_scope": "copy artifacts",
    },
)


class KeptMemories(InMemoryMemoryService):
    """The memories of *kept*, for the process of *env*."""

    def __init__(self, kept: InMemoryMemoryService, env: SimulatedEnv) -> None:
        super().__init__(env=env)
        self._users = kept._users


_add_points(
    KeptMemories,
    {
        "_add": "add memories",
        "_look_up": "look up memories",
        "_search": "search memories",
        "_delete": "delete a memory",
        "_delete_page": "delete memories",
    },
)


@attrs.define
class Keyring:
    """The credentials of all processes, and the process that has locked each."""

    credentials: dict[CredentialKey, AuthCredential] = attrs.Factory(dict)
    locks: dict[CredentialKey, SimulatedEnv] = attrs.Factory(dict)


class KeptCredentials(InMemoryCredentialService):
    """The credentials of *kept*, for the process of *env*."""

    def __init__(self, kept: Keyring, env: SimulatedEnv) -> None:
        super().__init__(env=env)
        self._process = env
        self._credentials = kept.credentials
        self._taken = kept.locks

    @asynccontextmanager
    async def _exclusive(self, key: CredentialKey) -> AsyncIterator[None]:
        """As with a lock on a file, the lock ends with its process."""
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


_add_points(
    KeptCredentials,
    {
        "_load": "load a credential",
        "_save": "save a credential",
        "_delete": "delete a credential",
        "_list": "list credentials",
    },
)
