"""Keyrings for tests: backends of the library `keyring` that keep what they are given in a dict, or fail to."""

from __future__ import annotations

import threading

import pytest

keyring = pytest.importorskip("keyring", reason="the extra `minirun[keyring]` is not installed")

from keyring.backend import KeyringBackend  # noqa: E402 # see above
from keyring.errors import PasswordDeleteError, PasswordSetError  # noqa: E402

__all__ = ["BrokenKeyring", "DictKeyring", "ForgetfulKeyring"]


class DictKeyring(KeyringBackend):
    """Behaves as the keyrings of operating systems do: texts by two names; what is not there cannot be deleted."""

    priority = 0.1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library's
        self.entries: dict[tuple[str, str], str] = {}
        self.threads: set[str] = set()

    def get_password(self, service: str, username: str) -> str | None:
        self.threads.add(threading.current_thread().name)
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if (service, username) not in self.entries:
            raise PasswordDeleteError("not found")
        del self.entries[service, username]


class ForgetfulKeyring(DictKeyring):
    """Keeps nothing, and says nothing of it."""

    def set_password(self, service: str, username: str, password: str) -> None:
        pass


class BrokenKeyring(DictKeyring):
    """Fails to keep what it is given, and says what that was."""

    def set_password(self, service: str, username: str, password: str) -> None:
        raise PasswordSetError(f"could not store {password!r}")
