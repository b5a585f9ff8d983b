"""Credentials: secrets of users, that agents ask for and no log ever holds, and the services that keep them."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._bearer import BearerHeaders as BearerHeaders
    from ._in_memory import InMemoryCredentialService as InMemoryCredentialService
    from ._keyring import KeyringCredentialService as KeyringCredentialService
    from ._scheme import AuthScheme as AuthScheme
    from ._service import BaseCredentialService as BaseCredentialService
    from ._values import AuthConfig as AuthConfig
    from ._values import AuthCredential as AuthCredential
    from ._values import CredentialKey as CredentialKey
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._bearer": "BearerHeaders",
            "._in_memory": "InMemoryCredentialService",
            "._scheme": "AuthScheme",
            "._service": "BaseCredentialService",
            "._values": "AuthConfig AuthCredential CredentialKey",
            "._keyring": "KeyringCredentialService",
        },
    )
