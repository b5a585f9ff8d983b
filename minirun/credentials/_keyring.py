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

Keyrings have no locks either. Processes that are given the same folder for lock files renew a credential one after
another. The files are empty, and named by digests; the lock dies with its process.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import keyring
import trio
from keyring.backend import KeyringBackend

from .._files import open_private
from .._json import dumps, shown
from ..env import Env, derived_id
from ..errors import ConfigurationError, CredentialServiceError, InvalidValueError
from ._service import BaseCredentialService
from ._values import AuthCredential, CredentialKey

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]  # asked for where it is needed

__all__ = ["KeyringCredentialService"]

_T = TypeVar("_T")

FORMAT = 1

# Renewing a token takes two requests, of at most 20 seconds each; a longer wait is for something else.
LOCK_WAIT_S = 60.0
LOCK_POLL_S = 0.05


class KeyringCredentialService(BaseCredentialService):
    """
    Keeps credentials in the operating system's keyring: macOS Keychain, Windows Credential Locker, Secret Service.

    Args:
        backend: The keyring; by default the one that `keyring.get_keyring()` chooses, when it is first used.
        lock_folder: A folder for lock files, which is made if it is missing: all processes that renew the same
            credentials, as those of users who sign in, are given the same one. None: this is the only process. Not on
            Windows.
        env: Where time and threads come from.

    Raises:
        ConfigurationError: *backend* is no keyring, or *lock_folder* no folder, or there are no such locks here.
    """

    def __init__(
        self,
        backend: KeyringBackend | None = None,
        *,
        lock_folder: str | os.PathLike[str] | None = None,
        env: Env | None = None,
    ) -> None:
        super().__init__(env=env)
        self._lock_folder = None if lock_folder is None else _folder(lock_folder)
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

    @asynccontextmanager
    async def _exclusive(self, key: CredentialKey) -> AsyncIterator[None]:
        async with super()._exclusive(key):
            if self._lock_folder is None:
                yield
                return
            path = self._lock_folder / f"{derived_id('credential', key.app_name, key.user_id, key.credential_key)}.lock"
            try:
                self._lock_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = open_private(path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                problem = f"found {type(error).__name__} ({error.strerror})"
                raise CredentialServiceError(f"expected a folder for lock files, {problem}") from None
            try:
                await self._take(file)
                yield
            finally:
                os.close(file)  # this gives the lock back

    async def _take(self, file: int) -> None:
        """Wait for the lock of another process, which may be killed any time."""
        until = self.env.steady() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if self.env.steady() > until:
                    msg = f"another process has been renewing this credential for {LOCK_WAIT_S:g} s; look what it does"
                    raise CredentialServiceError(msg) from None
            await self.env.sleep(LOCK_POLL_S)

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


def _folder(value: str | os.PathLike[str]) -> Path:
    if fcntl is None:
        raise ConfigurationError("expected no lock_folder where there is no fcntl, found one; leave it out")
    try:
        path = Path(value)
        is_fine = not path.exists() or path.is_dir()
    except (TypeError, ValueError, OSError):
        is_fine = False
    if not is_fine:
        raise ConfigurationError(f"expected lock_folder to be the path of a folder, found {shown(value)}")
    return path.absolute()


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
