"""
Headers with a credential that works: what a toolset asks for before each request.

Which credential a request was sent with is remembered in the task that sends it: fifty calls that a server refuses at
once have each refused the same one, and it is renewed once.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .._json import shown
from .._service import given
from ..errors import ConfigurationError, CredentialRefusedError
from ._current import current_credential
from ._headers import authorization_of
from ._service import BaseCredentialService
from ._values import AuthConfig, AuthCredential, credential_key

__all__ = ["BearerHeaders", "SignInNeededError"]

_SENT: ContextVar[dict[int, AuthCredential] | None] = ContextVar("minirun credentials of requests", default=None)


class SignInNeededError(CredentialRefusedError):
    """A user has no credential, and nobody can be asked here. An agent that lists tools asks for *auth_config*."""

    def __init__(self, auth_config: AuthConfig) -> None:
        key = auth_config.credential_key
        msg = f"there is no credential {key!r} of this user, and nobody can be asked here; ask for it before, as in a "
        super().__init__(f"{msg}before_agent_callback: `await callback_context.request_credential(...)`")
        self.auth_config = auth_config


class BearerHeaders:
    """
    Headers with a credential, renewed when it is due: for the `headers=` of a toolset.

        McpToolset(url, headers=BearerHeaders(config))     # of the user of each run
        McpToolset(url, headers=BearerHeaders(config, service, app_name="app", user_id="the app itself"))

    All workers with the same credential service share what is kept there; one renews it.

    Args:
        config: What is needed: one of the scheme `"oauth2"`, `"bearer"` or `"basic"`.
        service: What keeps the credential of one account, for all runs. None: each run uses its own user's, by the
            service of its Runner.
        app_name: The app that the account belongs to.
        user_id: The user of that app whose account it is.

    Raises:
        ConfigurationError: *config* or *service* is none, the scheme has no place in a header, or names stand without a
            service.
        InvalidValueError: A name cannot be one.
    """

    def __init__(
        self,
        config: AuthConfig,
        service: BaseCredentialService | None = None,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        if not isinstance(config, AuthConfig) or config.scheme not in ("oauth2", "bearer", "basic"):
            msg = f"expected an AuthConfig of the scheme 'oauth2', 'bearer' or 'basic', found {shown(config)}"
            raise ConfigurationError(msg)
        if not isinstance(service, BaseCredentialService | None):
            raise ConfigurationError(f"expected a credential service, found {shown(service)}")
        if service is None and (app_name, user_id) != (None, None):
            msg = "expected no app_name and user_id without a service, found one; a run has its own user"
            raise ConfigurationError(msg)
        self._config = config
        self._service = service
        self._names: dict[str, str] = {}
        if service is not None:
            key = credential_key(app_name, user_id, config.credential_key)
            self._names = {"app_name": key.app_name, "user_id": key.user_id, "credential_key": key.credential_key}

    async def __call__(self, context: Any = None, *, refresh: bool = False) -> dict[str, str]:
        """
        Return the headers to use now: `{"Authorization": "Bearer …"}`.

        Args:
            context: That of the call that is made, or of the agent whose tools are listed: if there is no credential,
                somebody is asked, and the invocation paused. None: nobody is asked, and a run's own user is not known.
                Then there are no headers, if there is no *service*.
            refresh: The server has refused what the last request of this task was sent with.

        Raises:
            CredentialRefusedError: There is no such credential, and there will be none, or nobody can be asked here.
            AuthorizationError: Renewing it has failed.
            CredentialServiceError: The service has failed.
        """
        sent = dict(_SENT.get() or {})
        rejected = sent.get(id(self)) if refresh else None
        if self._service is not None:
            found = await self._of_account(self._service, rejected)
            if hasattr(context, "_invocation"):
                context._invocation.know_secret(found)  # what comes back may repeat it
        elif hasattr(context, "request_credential"):
            found = await context.request_credential(self._config, rejected=rejected)
        elif hasattr(context, "_invocation"):
            found = await self._of_user(context, rejected)
        else:
            return {}
        _SENT.set({**sent, id(self): found})
        return {"Authorization": authorization_of(found)}

    async def _of_user(self, context: Any, rejected: AuthCredential | None) -> AuthCredential:
        """What is kept for the user of a run, where nobody can be asked."""
        service = given(context._invocation.program.services.credential, "credential")
        key = self._config.credential_key
        names = {"app_name": context.app_name, "user_id": context.user_id, "credential_key": key}
        found = await current_credential(service, names, self._config, rejected)
        if found is None:
            raise SignInNeededError(self._config)
        context._invocation.know_secret(found)
        return found

    async def _of_account(self, service: BaseCredentialService, rejected: AuthCredential | None) -> AuthCredential:
        found = await current_credential(service, self._names, self._config, rejected)
        if found is None:
            key = self._config.credential_key
            msg = f"there is no credential {key!r}, and nobody who could be asked; have somebody sign in, or save it"
            raise CredentialRefusedError(msg)
        return found
