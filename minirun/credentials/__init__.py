"""Credentials: secrets of users, that agents ask for and no log ever holds, and the services that keep them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._in_memory import InMemoryCredentialService as InMemoryCredentialService
from ._service import BaseCredentialService as BaseCredentialService
from ._values import AuthConfig as AuthConfig
from ._values import AuthCredential as AuthCredential
from ._values import CredentialKey as CredentialKey

if TYPE_CHECKING:
    from ._keyring import KeyringCredentialService as KeyringCredentialService

__all__ = [
    "AuthConfig",
    "AuthCredential",
    "BaseCredentialService",
    "CredentialKey",
    "InMemoryCredentialService",
    "KeyringCredentialService",
]


def __getattr__(name: str) -> Any:
    if name != "KeyringCredentialService":  # it needs an extra: `minirun[keyring]`
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = import_module("._keyring", __name__).KeyringCredentialService
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
