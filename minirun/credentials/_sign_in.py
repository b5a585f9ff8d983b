"""
Signing in: what is remembered between the question, which may be asked in one process, and its answer in another.

    question   a state and a verifier are made and kept in the credential service, under the id of the question; the
               question itself has the address with the state and a digest of the verifier, and nothing secret
    answer     the address that the browser came back to. The state is compared, the code and the verifier become
               tokens, these are kept, and then the state and the verifier are forgotten

What is kept for a question has all that the answer needs: the process that gets it may be one without the agents. A
crash before the tokens are kept leaves the question open, and the person may sign in again by the same
address; one after that leaves a question that is answered by saying yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from .._api_errors import AuthorizationError
from .._json import dumps
from .._web import Web
from ..errors import InvalidMessageError
from ._discovery import asked, server_of
from ._oauth_wire import (
    Client,
    Server,
    authorization_url,
    callback_code,
    challenge_of,
    error_of,
    registered,
    registration_of,
)
from ._scheme import AuthScheme
from ._service import BaseCredentialService
from ._tokens import token_for
from ._values import AuthConfig, AuthCredential, credential_key, unusable

__all__ = ["finish_sign_in", "forget_sign_in", "sign_in_question"]


def _names(names: Mapping[str, str], question_id: str) -> dict[str, str]:
    """Where the beginning of a sign-in is kept."""
    return {**names, "credential_key": f"sign-in {question_id}"}


async def sign_in_question(
    service: BaseCredentialService, names: Mapping[str, str], config: AuthConfig, question_id: str
) -> AuthConfig:
    """
    Return what the question of this id says: the *config*, with the address to sign in at, and the state.

    Raises:
        AuthorizationError: The authorization server has refused, or says what cannot be.
        AuthorizationUnavailableError: It cannot be reached now.
        CredentialServiceError: The service has failed.
    """
    begun = await service.load_credential(**_names(names, question_id))
    if begun is None:
        begun = await _begun(service, names, config, question_id)
        await service.save_credential(**_names(names, question_id), credential=begun)
    return AuthConfig(
        config.credential_key,
        scheme="oauth2",
        hint=config.hint,
        scopes=config.scopes,
        auth_uri=begun.reveal("auth_uri"),
        state=begun.reveal("state"),
    )


async def _begun(
    service: BaseCredentialService, names: Mapping[str, str], config: AuthConfig, question_id: str
) -> AuthCredential:
    scheme = config.auth_scheme
    assert scheme is not None, "the caller has checked it"
    web = service.env.web()
    try:
        server = await server_of(scheme, web)
        known = config.raw_auth_credential or await _registered(names["app_name"], config, scheme, server, web)
    finally:
        await web.aclose()
    client = Client.of(known, scheme.token_endpoint_auth_method, server)
    env, scope = service.env, " ".join(config.scopes)
    state, verifier = env.new_id(f"state of {question_id}"), "".join(
        env.new_id(f"verifier of {question_id}, {half}") for half in ("first", "second")
    )
    fields = {
        **scheme.parameters,
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": scheme.redirect_uri,
        "scope": scope,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "resource": server.resource,
    }
    kept = {
        "state": state,
        "verifier": verifier,
        "auth_uri": authorization_url(server.authorization_endpoint, fields),
        "token_endpoint": server.token_endpoint,
        "issuer": server.issuer,
        "resource": server.resource,
        "client_id": client.client_id,
        "client_secret": client.client_secret,
        "method": client.method,
        "redirect_uri": scheme.redirect_uri,
        "scope": scope,
        "is_registered": "" if config.raw_auth_credential else "yes",
    }
    values: dict[str, Any] = {name: text for name, text in kept.items() if text}
    return AuthCredential("custom", **values)


async def _registered(
    app_name: str, config: AuthConfig, scheme: AuthScheme, server: Server, web: Web
) -> AuthCredential:
    if not server.registration_endpoint:
        msg = "expected what the application is known by (raw_auth_credential), or a server where it can register "
        raise AuthorizationError(f"{msg}itself, found neither")
    body = dumps(registration_of(app_name, scheme.redirect_uri, config.scopes, server)).encode()
    headers = {"content-type": "application/json", "accept": "application/json"}
    answer = await asked(web, "register this application", "POST", server.registration_endpoint, headers, body)
    if answer.status not in (200, 201):
        raise error_of("register this application", answer.status, answer.body)
    return registered(answer.body)


async def finish_sign_in(
    service: BaseCredentialService, names: Mapping[str, str], config: AuthConfig, question_id: str, answer: str
) -> bool:
    """
    Turn what the browser came back with into tokens, and keep them; return False if the person has refused.

    `Cancelled` means that nothing has changed. If it fails, the same address may be used to sign in again.

    Args:
        service: What keeps the tokens, under *names*.
        names: `app_name`, `user_id` and `credential_key`.
        config: What the question says.
        question_id: The id of its call.
        answer: The address that the browser came back to, or the code in it.

    Raises:
        InvalidMessageError: This is no answer to that question. The message does not show it.
        AuthorizationError: The authorization server has refused, or says what cannot be used.
        AuthorizationUnavailableError: It cannot be reached now.
        CredentialServiceError: The service has failed.
    """
    async with service._exclusive(credential_key(**names)):
        begun = await service.load_credential(**_names(names, question_id))
        issuer = begun.reveal("issuer") if begun is not None and "issuer" in begun.names else ""
        code = callback_code(answer, config.state, issuer)
        if code is None:
            return False
        if begun is None:
            kept = await service.load_credential(**names)
            if not unusable(config, kept, service.env.now()):
                return True  # it was answered already, and the message is sent once more
            msg = "expected a sign-in that has begun, found none in this credential service"
            raise InvalidMessageError(f"{msg}; answer the question with False, and ask again")
        with trio.CancelScope(shield=True):  # the code is used up by being sent
            found = await _exchanged(service, begun, code)
            await service.save_credential(**names, credential=found)
            await service.delete_credential(**_names(names, question_id))
        return True


async def _exchanged(service: BaseCredentialService, begun: AuthCredential, code: str) -> AuthCredential:
    said = {name: begun.reveal(name) for name in begun.names}
    server = Server(said["token_endpoint"], issuer=said.get("issuer", ""), resource=said.get("resource", ""))
    client = Client(said["client_id"], said.get("client_secret"), said["method"])
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": said["redirect_uri"],
        "code_verifier": said["verifier"],
    }
    # An application that has registered itself is known by this alone; another one has it in its own settings.
    own = ("scope", "issuer", *(("client_id", "client_secret") if "is_registered" in said else ()))
    web = service.env.web()
    try:
        return await token_for(service, web, server, client, fields, {name: said[name] for name in own if name in said})
    finally:
        await web.aclose()


async def forget_sign_in(service: BaseCredentialService, names: Mapping[str, str], question_id: str) -> None:
    """Forget what was kept for a question that nobody will answer any more."""
    await service.delete_credential(**_names(names, question_id))
