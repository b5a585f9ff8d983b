"""
A credential that works now: the one that is kept, or one that it is renewed to.

Rules of this file:

1.  Tokens are nowhere but in the credential service, and in the hands of the code that has asked for one.
2.  Who renews has the credential for itself (`BaseCredentialService._exclusive`), looks again, and then asks: so of all
    workers that find it ended, one asks the server, and the others find what it got.
3.  From a request that a server may act on to the service's answer nothing is cancelled: a refresh token that was used
    up would else be all that is left. A process that is killed in between may leave one; then the server says no, and
    somebody is asked to sign in again.
4.  What the server says no to is forgotten. What it does not answer stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from .._api_errors import AuthorizationError
from .._web import Web
from ._discovery import asked, server_of
from ._oauth_wire import Client, Server, TokenRequest, error_of, token_in
from ._quiet import plain, quiet
from ._scheme import AuthScheme
from ._service import BaseCredentialService
from ._values import AuthConfig, AuthCredential, covers, credential_key

__all__ = ["renewed_credential", "token_for"]


def _works(config: AuthConfig, credential: AuthCredential | None, rejected: AuthCredential | None, now: float) -> bool:
    if credential is None or credential.scheme != "oauth2" or credential.has_expired(now):
        return False
    return covers(config, credential) and not _is_same(credential, rejected)


def _is_same(credential: AuthCredential, rejected: AuthCredential | None) -> bool:
    return rejected is not None and rejected.scheme == "oauth2" and credential.reveal() == rejected.reveal()


async def renewed_credential(
    service: BaseCredentialService,
    names: Mapping[str, str],
    config: AuthConfig,
    credential: AuthCredential | None,
    rejected: AuthCredential | None,
) -> AuthCredential | None:
    """
    Return a credential that works, for a *config* with an `auth_scheme`; None if somebody has to sign in.

    Args:
        service: What keeps it, under *names*.
        names: `app_name`, `user_id` and `credential_key`.
        config: What is needed.
        credential: What is kept.
        rejected: What the API has refused, though it has not expired.

    Raises:
        AuthorizationError: The authorization server has refused, for another reason than that access has ended.
        AuthorizationUnavailableError: It cannot be reached now.
        CredentialServiceError: The service has failed.
    """
    scheme = config.auth_scheme
    assert scheme is not None, "asked for such alone"
    if _works(config, credential, rejected, service.env.now()):
        return credential
    if credential is None and scheme.has_person:
        return None
    async with service._exclusive(credential_key(**names)):
        credential = await service.load_credential(**names)
        if _works(config, credential, rejected, service.env.now()):
            return credential
        web = service.env.web()
        try:
            if not scheme.has_person:
                return await _granted(service, names, config, scheme, web)
            if credential is None or credential.scheme != "oauth2" or not covers(config, credential):
                return None
            return await _refreshed(service, names, config, scheme, web, credential)
        finally:
            await web.aclose()


async def _granted(
    service: BaseCredentialService, names: Mapping[str, str], config: AuthConfig, scheme: AuthScheme, web: Web
) -> AuthCredential:
    """A token for the application itself."""
    server = await server_of(scheme, web)
    client = _client_of(config, scheme, server)
    scope = " ".join(config.scopes)
    fields = {**scheme.parameters, "grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    found = await token_for(service, web, server, client, fields, {"scope": scope} if scope else {})
    await service.save_credential(**names, credential=found)
    return found


async def _refreshed(
    service: BaseCredentialService,
    names: Mapping[str, str],
    config: AuthConfig,
    scheme: AuthScheme,
    web: Web,
    credential: AuthCredential,
) -> AuthCredential | None:
    """What the refresh token is renewed to; None if access has ended: then there is no credential any more."""
    kept = quiet({name: credential.reveal(name) for name in credential.names if name != "access_token"})
    server = await server_of(scheme, web) if "refresh_token" in kept else None
    # Another server than the one that has issued it would get a secret that is not its own: what the tokens are for
    # names its server anew each time.
    if server is None or kept.get("issuer", server.issuer) != server.issuer:
        await service.delete_credential(**names)
        return None
    own: dict[str, str] = {name: kept[name] for name in ("client_id", "client_secret") if name in kept}
    client = _client_of(config, scheme, server, AuthCredential("client", **plain(own)) if "client_id" in own else None)
    fields = {"grant_type": "refresh_token", "refresh_token": kept["refresh_token"]}
    found: AuthCredential | None = None
    with trio.CancelScope(shield=True):
        try:
            found = await token_for(service, web, server, client, fields, kept)
            await service.save_credential(**names, credential=found)
        except AuthorizationError as error:
            if error.code != "invalid_grant":
                raise
            await service.delete_credential(**names)
    return found


def _client_of(
    config: AuthConfig, scheme: AuthScheme, server: Server, registered: AuthCredential | None = None
) -> Client:
    known = config.raw_auth_credential or registered
    if known is None:
        raise AuthorizationError("expected a client_id, found none; give the AuthConfig a raw_auth_credential")
    return Client.of(known, scheme.token_endpoint_auth_method, server)


async def token_for(
    service: BaseCredentialService,
    web: Web,
    server: Server,
    client: Client,
    fields: Mapping[str, str],
    kept: Mapping[str, str],
) -> AuthCredential:
    """
    Ask for tokens; return them with what is *kept* beside them.

    Raises:
        AuthorizationError: There are none; its `code` says why.
        AuthorizationUnavailableError: The server cannot be reached now.
    """
    request, asked_at = TokenRequest.of(client, server.resource, fields), service.env.now()
    what = "issue a token"
    answer = await asked(web, what, "POST", server.token_endpoint, request)
    if answer.status != 200:
        sent = (client.client_secret, *(fields.get(name) for name in ("code", "code_verifier", "refresh_token")))
        raise error_of(what, answer.status, answer.body, [secret for secret in sent if secret])
    return token_in(answer.body, asked_at, kept)
