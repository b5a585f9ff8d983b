"""Tokens for what an application asks as itself, outside of any run: headers that always work."""

from __future__ import annotations

from collections.abc import Mapping

from .._json import shown
from ..errors import ConfigurationError, CredentialRefusedError
from ._current import current_credential
from ._headers import authorization_of
from ._service import BaseCredentialService
from ._values import AuthConfig, AuthCredential, credential_key

__all__ = ["BearerHeaders"]


class BearerHeaders:
    """
    Headers with the credential of one account, renewed when it is due: for the `headers=` of a toolset.

        headers = BearerHeaders(config, credential_service, app_name="app", user_id="the app itself")
        await headers()                # {"Authorization": "Bearer …"}
        await headers(rejected=old)    # the server has refused these: others

    All workers with the same credential service share what is kept there; one renews it.

    Args:
        config: What is needed: one of the scheme `"oauth2"`, `"bearer"` or `"basic"`.
        service: What keeps it.
        app_name: The app that it belongs to.
        user_id: The user of that app whose account it is.

    Raises:
        ConfigurationError: *config* or *service* is none, or the scheme has no place in a header.
        InvalidValueError: A name cannot be one.
    """

    def __init__(self, config: AuthConfig, service: BaseCredentialService, *, app_name: str, user_id: str) -> None:
        if not isinstance(config, AuthConfig) or config.scheme not in ("oauth2", "bearer", "basic"):
            msg = f"expected an AuthConfig of the scheme 'oauth2', 'bearer' or 'basic', found {shown(config)}"
            raise ConfigurationError(msg)
        if not isinstance(service, BaseCredentialService):
            raise ConfigurationError(f"expected a credential service, found {shown(service)}")
        key = credential_key(app_name, user_id, config.credential_key)
        self._config = config
        self._service = service
        self._names = {"app_name": key.app_name, "user_id": key.user_id, "credential_key": key.credential_key}
        self._last: AuthCredential | None = None

    async def __call__(self, rejected: Mapping[str, str] | None = None) -> dict[str, str]:
        """
        Return the headers to use now; others than those *rejected*, if these are the last.

        Raises:
            CredentialRefusedError: There is no such credential; nobody can be asked here. Let a tool ask for it, by
                `request_credential`.
            AuthorizationError: Renewing it has failed.
            CredentialServiceError: The service has failed.
        """
        last, refused = self._last, None
        if rejected is not None and last is not None and self._of(last) == dict(rejected):
            refused = last
        found = await current_credential(self._service, self._names, self._config, refused)
        if found is None:
            key = self._config.credential_key
            msg = f"there is no credential {key!r}, and nobody who could be asked; have somebody sign in, or save it"
            raise CredentialRefusedError(msg)
        self._last = found
        return self._of(found)

    @property
    def last(self) -> AuthCredential | None:
        """The credential that the last headers were made of: what it holds has to be kept out of all that is said."""
        return self._last

    def _of(self, credential: AuthCredential) -> dict[str, str]:
        return {"Authorization": authorization_of(credential)}
