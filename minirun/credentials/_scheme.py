"""
How the users of a service sign in: OAuth 2 and OpenID Connect, as an application describes it. Nothing here is secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import attrs

from .._arguments import refuse_unknown
from .._json import Secret, brief, check_text, shown
from .._urls import Url, url_of
from ..errors import InvalidValueError, SecretError

__all__ = ["AuthScheme"]

GRANTS = ("authorization_code", "client_credentials")
METHODS = ("client_secret_basic", "client_secret_post", "none")
# What the framework itself says in the requests to which `parameters` are added.
_OWN = frozenset(
    {
        *("response_type", "client_id", "client_secret", "redirect_uri", "scope", "state", "code_challenge"),
        *("code_challenge_method", "code_verifier", "code", "grant_type", "refresh_token", "resource"),
    }
)


def _refuse(name: str, problem: str) -> NoReturn:
    raise InvalidValueError(name, problem)


def _address(name: str) -> Any:
    def checked(value: object) -> str:
        if isinstance(value, Secret):
            raise SecretError(name, "expected an address, found a credential")
        if value == "":
            return ""
        url = url_of(value)
        if url is None or not url.is_private:
            expected = "expected an address that begins with https:// (or leads to this machine, as http://127.0.0.1)"
            _refuse(name, f"{expected}, found {shown(value)}")
        return url.text

    return attrs.field(default="", converter=checked, kw_only=True)


def _choice(name: str, default: str, options: tuple[str, ...]) -> Any:
    def checked(value: object) -> str:
        if value != default and value not in options:
            _refuse(name, f"expected one of {', '.join(options)}, found {shown(value)}")
        return str(value)

    return attrs.field(default=default, converter=checked, kw_only=True)


def _redirect(value: object) -> str:
    """An address of the application's own: of the web, or of a scheme that the system has it open (RFC 8252)."""
    if value == "":
        return ""
    expected = "expected an address such as 'https://app.example/callback' or 'com.example.app:/callback'"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        _refuse("redirect_uri", f"{expected}, found {shown(value)}")
    scheme, _, rest = value.partition(":")
    is_own = scheme not in ("http", "https") and "." in scheme and rest.startswith("/")
    url: Url | None = url_of(value)
    if "#" in value or not (is_own or (url is not None and url.is_private)) or not _splits(value):
        _refuse("redirect_uri", f"{expected}, found {brief(value)}; http is for addresses of this machine alone")
    return value


def _splits(value: str) -> bool:
    try:
        urlsplit(value)
    except ValueError:
        return False
    return True


def _parameters(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        _refuse("parameters", f"expected texts by name, found {shown(value)}")
    for name, text in value.items():
        if isinstance(text, Secret):
            raise SecretError("parameters", "expected texts for everybody to see, found a credential")
        if not isinstance(name, str) or not isinstance(text, str) or name in _OWN:
            problem = f"expected texts by name, and none that minirun says itself, found {brief(name)}: {brief(text)}"
            _refuse("parameters", problem)
        check_text(name, "parameters"), check_text(text, "parameters")
    return MappingProxyType(dict(value))


@refuse_unknown
@attrs.frozen
class AuthScheme:
    """
    How to get a token: OAuth 2, with PKCE where a person signs in, or OpenID Connect. It stands in an `AuthConfig`.

    Say where the authorization server is in one of three ways: by its `issuer`, by its endpoints, or by the `resource`
    that the tokens are for. What is not said is looked up at the server each time somebody signs in or a token is
    renewed, and may be nowhere but where https protects it (or on this machine).

    Args:
        issuer: The server's name for itself. Its metadata are read (OpenID Connect Discovery, RFC 8414).
        authorization_endpoint: Where a person's browser is sent to.
        token_endpoint: Where codes become tokens, and tokens are renewed.
        resource: The address that the tokens are for, such as that of an MCP server (RFC 8707). Alone, it is asked who
            its authorization server is (RFC 9728); an application with a `client_secret` says that itself.
        redirect_uri: Where the browser is sent back to: an address of the application, as it is registered.
        grant_type: `"authorization_code"`: a person signs in; `"client_credentials"`: the application does, as itself.
        token_endpoint_auth_method: How the application proves who it is: `"client_secret_basic"`,
            `"client_secret_post"` or `"none"`. Empty: by the metadata and whether there is a secret.
        parameters: What else the server wants to be told when somebody signs in (`{"access_type": "offline"}`), or,
            without a person, when a token is asked for. No secrets.

    Raises:
        InvalidValueError: One of them is not of its form, has no effect, or is missing.
    """

    issuer: str = _address("issuer")
    authorization_endpoint: str = _address("authorization_endpoint")
    token_endpoint: str = _address("token_endpoint")
    resource: str = _address("resource")
    redirect_uri: str = attrs.field(default="", converter=_redirect, kw_only=True)
    grant_type: Literal["authorization_code", "client_credentials"] = _choice("grant_type", GRANTS[0], GRANTS)
    token_endpoint_auth_method: str = _choice("token_endpoint_auth_method", "", METHODS)
    parameters: Mapping[str, str] = attrs.field(factory=dict, converter=_parameters, kw_only=True, hash=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what has no effect, and what is missing."""
        endpoints = [name for name in ("authorization_endpoint", "token_endpoint") if getattr(self, name)]
        if self.issuer and endpoints:
            _refuse(endpoints[0], "expected nothing beside an issuer, whose endpoints are looked up; leave one out")
        if not (self.issuer or self.resource or self.token_endpoint):
            _refuse("AuthScheme", "expected an issuer, a token_endpoint or a resource, found none of them")
        if self.has_person:
            if not self.redirect_uri:
                _refuse("redirect_uri", "expected where the browser is sent back to, found nothing")
            if len(endpoints) == 1:
                missing = "token_endpoint" if self.authorization_endpoint else "authorization_endpoint"
                _refuse(missing, f"expected it beside {endpoints[0]}, found nothing; or write issuer=")
        else:
            for name in ("authorization_endpoint", "redirect_uri"):
                if getattr(self, name):
                    _refuse(name, "expected nothing where no person signs in (client_credentials); leave it out")

    @property
    def has_person(self) -> bool:
        """Whether a person signs in."""
        return self.grant_type == "authorization_code"
