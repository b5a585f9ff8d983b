"""
Credentials in the operating system's keyring, by the library `keyring`: the extra `minirun[keyring]`.

Keyrings keep texts by two names, and most of them cannot list what they keep. So there are two kinds of entries, both
under the service name `minirun <app name>`:

*   `["<user id>", "<credential key>"]` holds the credential, as JSON.
*   `["<user id>"]` holds the list of that user's keys, as JSON. A key is listed before its credential is kept, and
    until that is gone; what the list says is checked against the entries. So a crash in between leaves nothing wrong.

Everything blocks, and runs in worker threads, one change after another. Two processes that save *different* new keys of
one user at the same moment may leave one of them out of the list (not out of the keyring): it is listed again once it
is saved again. A keyring that wants its owner to unlock it waits for that: loading and listing can be cancelled
meanwhile, saving and deleting wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import keyring
import trio
from keyring.backend import KeyringBackend

from .._json import dumps, shown
from ..env import Env
from ..errors import ConfigurationError, CredentialServiceError, InvalidValueError
from ._service import BaseCredentialService
from ._values import AuthCredential, CredentialKey

__all__ = ["KeyringCredentialService"]

_T = TypeVar("_T")

FORMAT = 1


class KeyringCredentialService(BaseCredentialService):
    """
    Keeps credentials in the operating system's keyring: macOS Keychain, Windows Credential Locker, Secret Service.

    Args:
        backend: The keyring; by default the one that `keyring.get_keyring()` chooses, when it is first used.
        env: Where time and threads come from.

    Raises:
        ConfigurationError: *backend* is no keyring.
    """

    def __init__(self, backend: KeyringBackend | None = None, *, env: Env | None = None) -> None:
        super().__init__(env=env)
        if not isinstance(backend, KeyringBackend | None):
            msg = f"expected backend to be a KeyringBackend, found {shown(backend)}"
            raise ConfigurationError(msg)
        self._backend = backend
        self._lock = trio.Lock()  # around changes, which read the list of keys and write it

    async def _load(self, key: CredentialKey) -> AuthCredential | None:
        return await self._read(lambda ring: _credential_of(_get(ring, key)))

    async def _save(self, key: CredentialKey, credential: AuthCredential) -> None:
        def save(ring: KeyringBackend) -> bool:
            known = _keys(ring, key.app_name, key.user_id)
            if key.credential_key not in known:
                ring.set_password(*_list_entry(key.app_name, key.user_id), dumps([*known, key.credential_key]))
            ring.set_password(*_entry(key), _text_of(credential))
            return _credential_of(_get(ring, key)) == credential

        if not await self._change(save):
            msg = "expected the keyring to keep what was saved, found that it does not; choose another backend"
            raise CredentialServiceError(msg)

    async def _delete(self, key: CredentialKey) -> None:
        def delete(ring: KeyringBackend) -> None:
            if ring.get_password(*_entry(key)) is not None:
                ring.delete_password(*_entry(key))
            known = _keys(ring, key.app_name, key.user_id)
            rest = [name for name in known if name != key.credential_key]
            if rest:
                ring.set_password(*_list_entry(key.app_name, key.user_id), dumps(rest))
            elif known:
                ring.delete_password(*_list_entry(key.app_name, key.user_id))

        await self._change(delete)

    async def _list(self, app_name: str, user_id: str) -> list[str]:
        def found(ring: KeyringBackend) -> list[str]:
            known = _keys(ring, app_name, user_id)
            return [name for name in known if ring.get_password(*_entry(CredentialKey(app_name, user_id, name)))]

        return await self._read(found)

    async def _read(self, look: Callable[[KeyringBackend], _T]) -> _T:
        return await self.env.run_sync(lambda: _without_words(lambda: look(self._ring())), abandon_on_cancel=True)

    async def _change(self, change: Callable[[KeyringBackend], _T]) -> _T:
        async with self._lock:
            return await self.env.run_sync(lambda: _without_words(lambda: change(self._ring())))

    def _ring(self) -> KeyringBackend:
        return keyring.get_keyring() if self._backend is None else self._backend


def _without_words(work: Callable[[], _T]) -> _T:
    """Do *work*; what a backend raises that is no `Exception` says nothing of a secret afterwards."""
    try:
        return work()
    except Exception:
        raise  # the service says of what kind it is
    except BaseException as error:
        kind = type(error)
    if issubclass(kind, KeyboardInterrupt):
        raise KeyboardInterrupt
    raise CredentialServiceError(f"with {kind.__name__} (what it said is not shown: it may be secret)")


def _service(app_name: str) -> str:
    return f"minirun {app_name}"


def _entry(key: CredentialKey) -> tuple[str, str]:
    """The two names of what holds a credential; those of different keys differ, whatever is in them."""
    return _service(key.app_name), dumps([key.user_id, key.credential_key])


def _list_entry(app_name: str, user_id: str) -> tuple[str, str]:
    return _service(app_name), dumps([user_id])


def _keys(ring: KeyringBackend, app_name: str, user_id: str) -> list[str]:
    text = ring.get_password(*_list_entry(app_name, user_id))
    names = [] if text is None else _parsed(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CredentialServiceError(_damaged("a list of keys"))
    return names


def _get(ring: KeyringBackend, key: CredentialKey) -> str | None:
    return ring.get_password(*_entry(key))


def _text_of(credential: AuthCredential) -> str:
    values = {name: credential.reveal(name) for name in credential.names}
    fields = {"format": FORMAT, "scheme": credential.scheme, "expires_at": credential.expires_at, "values": values}
    return dumps(fields)


def _credential_of(text: str | None) -> AuthCredential | None:
    """The credential that *text* was made of; nothing of it is in what is raised, nor in what that comes from."""
    if text is None:
        return None
    fields = _parsed(text)
    try:
        if fields["format"] == FORMAT:
            return AuthCredential(fields["scheme"], expires_at=fields["expires_at"], **fields["values"])
    except (LookupError, TypeError, InvalidValueError):
        pass
    raise CredentialServiceError(_damaged("a credential"))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _damaged(what: str) -> str:
    return f"expected {what} that minirun has saved, found something else; delete it from the keyring, and save again"
