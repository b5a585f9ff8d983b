"""
The credential service: what applications, runners and the authors of other services rely on.

Rules of this file:

1.  A credential belongs to one user of one app. Nobody else's is ever found, listed or deleted.
2.  An operation is cancellable until it begins, and shielded from there to the store's answer: `Cancelled` means that
    nothing was saved, and nothing deleted.
3.  A task that renews a credential has it for itself meanwhile (`_exclusive`), among all that use the service.
4.  No error says more than what kind of failure it was. What a store raises may hold the secret, in its text or in the
    variables of its frames; so it is dropped, not chained.

A service author subclasses `BaseCredentialService` and implements the storage primitives at its end.
`tests/contracts/credential_contract.py` is the contract, as tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from .._service import BaseService
from ..env import Env
from ..errors import CredentialServiceError, InvalidValueError, MinirunError
from ._values import AuthCredential, CredentialKey, credential_key

__all__ = ["BaseCredentialService"]

_T = TypeVar("_T")


class BaseCredentialService(BaseService, ABC):
    """
    Keeps the credentials of users, by key.

    It works without `async with`, which only closes it.

    Args:
        env: Where time and threads come from; a Runner with this service uses the same.
    """

    def __init__(self, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        self._locks: dict[CredentialKey, tuple[trio.Lock, list[None]]] = {}  # with the tasks that use it

    async def load_credential(self, *, app_name: str, user_id: str, credential_key: str) -> AuthCredential | None:
        """
        Return the user's credential of this key, also one that has expired; None if there is none.

        Raises:
            InvalidValueError: A name cannot be one.
            CredentialServiceError: The store failed.
        """
        key = self._key(app_name, user_id, credential_key)
        await trio.lowlevel.checkpoint()
        return await _answered("loading", self._load(key))

    async def save_credential(
        self, *, app_name: str, user_id: str, credential_key: str, credential: AuthCredential
    ) -> None:
        """
        Keep *credential* under this key, in the place of what was there.

        When it returns, `load_credential` finds it. `Cancelled` means that nothing has changed.

        Raises:
            InvalidValueError: A name cannot be one, or *credential* is no AuthCredential.
            CredentialServiceError: The store failed, and may have it or not.
        """
        key = self._key(app_name, user_id, credential_key)
        if not isinstance(credential, AuthCredential):
            found = type(credential).__name__
            problem = f"expected an AuthCredential, found {found} (not shown: it may be secret)"
            raise InvalidValueError("credential", problem)
        await trio.lowlevel.checkpoint()
        await _answered("saving", self._save(key, credential))

    async def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        """
        Forget the user's credential of this key, if there is one.

        Raises:
            InvalidValueError: A name cannot be one.
            CredentialServiceError: The store failed, and may have it or not.
        """
        key = self._key(app_name, user_id, credential_key)
        await trio.lowlevel.checkpoint()
        await _answered("deleting", self._delete(key))

    async def list_credentials(self, *, app_name: str, user_id: str) -> list[str]:
        """
        Return the keys of the user's credentials, sorted, expired ones included.

        Raises:
            InvalidValueError: A name cannot be one.
            CredentialServiceError: The store failed.
        """
        key = self._key(app_name, user_id, "any")
        await trio.lowlevel.checkpoint()
        return sorted(await _answered("listing", self._list(key.app_name, key.user_id)))

    def _key(self, app_name: object, user_id: object, name: object) -> CredentialKey:
        self._check_open()
        return credential_key(app_name, user_id, name)

    @asynccontextmanager
    async def _exclusive(self, key: CredentialKey) -> AsyncIterator[None]:
        """
        Have a credential for oneself, to renew it: waits until nobody else has it. Loading and saving are open to all.

        This is enough for one process. A service that several processes use overrides it, and calls it first.

        Raises:
            CredentialServiceError: It cannot be had.
        """
        lock, users = self._locks.setdefault(key, (trio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                self._locks.pop(key, None)

    def _after_fork(self) -> None:
        self._locks = {}

    # --- what a service implements: as documented above, with names that were checked. What raises anything but a
    # MinirunError has failed; a cancellation may not come after something was changed.

    @abstractmethod
    async def _load(self, key: CredentialKey) -> AuthCredential | None:
        """Return what is kept."""

    @abstractmethod
    async def _save(self, key: CredentialKey, credential: AuthCredential) -> None:
        """Keep it."""

    @abstractmethod
    async def _delete(self, key: CredentialKey) -> None:
        """Forget it, if it is there."""

    @abstractmethod
    async def _list(self, app_name: str, user_id: str) -> list[str]:
        """Return the keys, in any order."""


async def _answered(what: str, operation: Awaitable[_T]) -> _T:
    """
    Return what a store answers.

    Raises:
        CredentialServiceError: It has failed; with nothing of what it has said, see the rules of this file.
    """
    try:
        return await operation
    except CredentialServiceError as error:
        failure = str(error)
    except MinirunError:
        raise
    except Exception as error:
        failure = f"with {type(error).__name__} (what it said is not shown: it may be secret)"
    raise CredentialServiceError(f"{what} a credential has failed in its store: {failure}")
