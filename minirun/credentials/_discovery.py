"""
Where an authorization server is asked for what: as the application says, or as the servers themselves do.

    AuthScheme(token_endpoint=…)   nothing is looked up
    AuthScheme(issuer=…)           the issuer's metadata (RFC 8414, OpenID Connect Discovery)
    AuthScheme(resource=…)         the resource's metadata (RFC 9728), which name an issuer; then that one's

What servers say is believed as far as the standards do: metadata speak for whom they were asked of, and for nobody
else. No address leads to this machine unless what has named it is on it, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._api_errors import AuthorizationError, AuthorizationUnavailableError
from .._json import brief
from .._urls import Url, url_of
from .._web import Web, WebAnswer, WebFailedError
from ._oauth_wire import Server, TokenRequest, error_of, object_in
from ._scheme import AuthScheme

__all__ = ["asked", "server_of"]

# Signing in waits for a person, and renewing holds up the calls of tools: neither is worth a long wait for a machine.
TIMEOUT_S = 20.0
# Metadata have some kilobytes.
ANSWER_BYTES_MAX = 2**20

_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_RESOURCE = "/.well-known/oauth-protected-resource"


async def asked(web: Web, what: str, method: str, url: str, request: TokenRequest) -> WebAnswer:
    """
    Send a request to an authorization server.

    Raises:
        AuthorizationUnavailableError: There is no answer, or one that is too long.
    """
    try:
        answer = await web.request(
            method,
            url,
            headers=request.headers,
            content=request.content or None,
            timeout_s=TIMEOUT_S,
            bytes_max=ANSWER_BYTES_MAX,
        )
    except WebFailedError as error:
        msg = f"expected the authorization server to {what}, found that it cannot be reached: {error}"
        raise AuthorizationUnavailableError(msg) from None
    if answer.is_cut:
        raise AuthorizationError(f"expected an answer of at most {ANSWER_BYTES_MAX} bytes, found a longer one")
    return answer


async def server_of(scheme: AuthScheme, web: Web) -> Server:
    """
    Return the server that *scheme* is about.

    Raises:
        AuthorizationError: It says what cannot be, or is none that users can sign in to.
        AuthorizationUnavailableError: It cannot be reached now.
    """
    if scheme.token_endpoint:
        return Server(scheme.token_endpoint, scheme.authorization_endpoint, resource=scheme.resource)
    if scheme.issuer:
        return await _server_at(scheme.issuer, web, scheme, scheme.resource)
    resource, issuers = await _resource_at(scheme.resource, web)
    return await _server_at(issuers[0], web, scheme, resource)


async def _resource_at(address: str, web: Web) -> tuple[str, Sequence[str]]:
    """What the resource calls itself, and its authorization servers."""
    url = url_of(address)
    assert url is not None, "checked by AuthScheme"
    path = url.path.rstrip("/")
    for place in dict.fromkeys((f"{url.root}{_RESOURCE}{path}", f"{url.root}{_RESOURCE}")):
        found = await _metadata(place, web)
        if found is None:
            continue
        own, issuers = found.get("resource"), found.get("authorization_servers")
        if not isinstance(own, str) or not _is_within(url, url_of(own)):
            msg = f"expected the metadata of {brief(address)} to be about that resource, found {brief(own)}"
            raise AuthorizationError(msg)
        if not isinstance(issuers, list) or not issuers or not isinstance(issuers[0], str):
            raise AuthorizationError(f"expected {brief(address)} to name its authorization servers, found none")
        _checked(issuers[0], "authorization server", url)
        return own, issuers
    return address, [url.root]  # as before there were such metadata: its own server is the one


def _is_within(url: Url, own: Url | None) -> bool:
    """Whether the resource *own* has the address *url* in it."""
    if own is None or own.origin != url.origin:
        return False
    inner, outer = url.path.rstrip("/"), own.path.rstrip("/")
    return inner == outer or inner.startswith(f"{outer}/")


async def _server_at(issuer: str, web: Web, scheme: AuthScheme, resource: str) -> Server:
    url = url_of(issuer)
    assert url is not None, "checked before"
    path = url.path.rstrip("/")
    places = (f"{url.root}{_SERVER}{path}", f"{url.root}{_OPENID}{path}", f"{url.root}{path}{_OPENID}")
    for place in dict.fromkeys(places):
        found = await _metadata(place, web)
        if found is not None:
            return _read(found, issuer, url, scheme, resource)
    msg = f"expected {brief(issuer)} to have metadata, found none; is it the issuer? else write its endpoints"
    raise AuthorizationError(msg)


def _read(found: Mapping[str, Any], issuer: str, url: Url, scheme: AuthScheme, resource: str) -> Server:
    if found.get("issuer") != issuer:
        said = brief(found.get("issuer"))
        raise AuthorizationError(f"expected the metadata of the issuer {brief(issuer)}, found those of {said}")
    methods = found.get("code_challenge_methods_supported", ["S256"])
    if scheme.has_person and not (isinstance(methods, list) and "S256" in methods):
        raise AuthorizationError(f"expected a server with PKCE (S256), found {brief(methods)}")
    places = {}
    for name in ("token_endpoint", "authorization_endpoint", "registration_endpoint"):
        if found.get(name) is not None:
            places[name] = _checked(found[name], name, url)
    wanted = ("token_endpoint", "authorization_endpoint") if scheme.has_person else ("token_endpoint",)
    for name in wanted:
        if name not in places:
            raise AuthorizationError(f"expected the metadata of {brief(issuer)} to have a {name}, found none")
    known = found.get("token_endpoint_auth_methods_supported")
    auth_methods = tuple(each for each in known if isinstance(each, str)) if isinstance(known, list) else ()
    says_iss = found.get("authorization_response_iss_parameter_supported") is True
    return Server(**places, issuer=issuer, auth_methods=auth_methods, resource=resource, says_iss=says_iss)


def _checked(value: object, what: str, by: Url) -> str:
    url = url_of(value)
    if url is None or not url.is_private or (url.is_loopback and not by.is_loopback):
        raise AuthorizationError(f"expected the {what} to be an address with https, found {brief(value)}")
    return url.text


async def _metadata(place: str, web: Web) -> Mapping[str, Any] | None:
    """The metadata at a place; None if there are none."""
    request = TokenRequest({"accept": "application/json"}, b"")
    answer = await asked(web, "say where it is asked for what", "GET", place, request)
    if answer.status == 200:
        return object_in(answer.body) or None
    if answer.status >= 500 or answer.status in (408, 429):
        raise error_of("say where it is asked for what", answer.status, answer.body)
    return None
