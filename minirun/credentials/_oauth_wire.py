"""
What is said to an authorization server, and what is understood of its answers (RFC 6749, 7636, 7591, 9207). No I/O.

Nothing that a server says gets into a message but its code for an error: it may repeat what it was sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import attrs

from .._api_errors import AuthorizationError, AuthorizationUnavailableError
from .._json import finite
from ..errors import InvalidMessageError, MinirunError
from ._quiet import Quiet, plain
from ._values import AuthCredential

__all__ = [
    "Client", "Server", "TokenRequest", "authorization_url", "callback_code", "challenge_of", "error_of", "object_in",
    "registered", "registration_of", "token_in",
]

# Before a token ends it is renewed: requests take time, and clocks differ. Of a short life, a tenth.
EARLY_S = 60.0
EARLY_SHARE = 0.1
# Tokens stand in headers, and servers take some kilobytes of these.
TOKEN_CHARS_MAX = 16_384
_ERROR_CODE = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_IN_HEADERS = re.compile(r"[!-~]+")


@attrs.frozen
class Server:
    """An authorization server: where it is asked for what."""

    token_endpoint: str
    authorization_endpoint: str = ""
    issuer: str = ""
    registration_endpoint: str = ""
    auth_methods: Sequence[str] = ()  # that the token endpoint takes; empty: it does not say
    resource: str = ""  # what the tokens are for, as the server of that calls itself
    says_iss: bool = False  # whether the browser comes back with the issuer, too (RFC 9207)


class Client(NamedTuple):
    """What the application is known by at a server, and how it proves that. Its repr has no secret."""

    client_id: str
    client_secret: str | None
    method: str

    @classmethod
    def of(cls, credential: AuthCredential, method: str, server: Server) -> Client:
        """The client that *credential* is, with the *method* asked for, or one that the *server* takes."""
        secret = Quiet(credential.reveal("client_secret")) if "client_secret" in credential.names else None
        if not method:
            is_posted = "client_secret_post" in server.auth_methods and "client_secret_basic" not in server.auth_methods
            method = "none" if secret is None else "client_secret_post" if is_posted else "client_secret_basic"
        if secret is None and method != "none":
            raise AuthorizationError(f"expected a client_secret for {method!r}, found none; give it, or write 'none'")
        return cls(credential.reveal("client_id"), secret, method)

    def __repr__(self) -> str:
        return f"Client({self.client_id!r}, method={self.method!r})"


class TokenRequest(NamedTuple):
    """The body of a request, and its headers. No repr: there are secrets in both."""

    headers: Mapping[str, str]
    content: bytes

    @classmethod
    def of(cls, client: Client, resource: str, fields: Mapping[str, str]) -> TokenRequest:
        """The request of *client* with these fields."""
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        said = {**fields, **({"resource": resource} if resource else {})}
        if client.method == "client_secret_basic":
            pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret or '')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            said["client_id"] = client.client_id
            if client.method == "client_secret_post":
                said["client_secret"] = client.client_secret or ""
        return cls(headers, urlencode(said).encode())

    def __repr__(self) -> str:
        return "TokenRequest(...)"


def challenge_of(verifier: str) -> str:
    """What shows a server later that the program with the code is the one that has asked for it."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def authorization_url(endpoint: str, fields: Mapping[str, str]) -> str:
    """Where the browser is sent to."""
    said = urlencode({name: text for name, text in fields.items() if text})
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{said}"


# --- answers ----------------------------------------------------------------------------------------------------------


def callback_code(answer: str, state: str, issuer: str, *, must_name_issuer: bool = False) -> str | None:
    """
    Return the code in what somebody has brought back: the whole address, or the code alone. None: the person refuses.

    Raises:
        InvalidMessageError: It is not the answer to this question. The message does not show it.
        AuthorizationError: The server says that it went wrong.
    """
    found = _read_callback(Quiet(answer), state, issuer, must_name_issuer)
    if isinstance(found, MinirunError):
        raise found
    return found


def _read_callback(answer: str, state: str, issuer: str, must_name_issuer: bool) -> str | MinirunError | None:
    """As above; but what would be raised is returned: the frames of what is raised hold the code nowhere."""
    if len(answer) > 2 * TOKEN_CHARS_MAX:
        return _not_brought_back("a much longer text")
    if "://" not in answer and "?" not in answer and "=" not in answer.rstrip("="):
        return _code(answer.strip())
    try:
        fields = parse_qs(urlsplit(answer.strip()).query, strict_parsing=True, max_num_fields=50)
    except ValueError:
        fields = {}
    said = {name: values[0] for name, values in fields.items() if len(values) == 1}
    if len(said) != len(fields) or not said:
        return _not_brought_back("something else")
    if not _is_same(said.get("state", ""), state):
        return _not_brought_back("one with another state: it belongs to another question")
    if issuer and said.get("iss", None if must_name_issuer else issuer) != issuer:
        return _not_brought_back("one of another authorization server")
    if "error" in said:
        if said["error"] == "access_denied":
            return None
        code = _error_code(said["error"])
        msg = f"expected the authorization server to let somebody sign in, found that it does not ({code!r})"
        return AuthorizationError(msg, code=code)
    return _code(said.get("code", ""))


def _not_brought_back(found: str) -> InvalidMessageError:
    return InvalidMessageError(
        "expected the address that the browser was sent back to after signing in (with `code` and `state`), or the "
        f"code, found {found} (not shown: it may be secret)"
    )


def _code(text: str) -> str | MinirunError:
    if not _IN_HEADERS.fullmatch(text) or len(text) > TOKEN_CHARS_MAX:
        return _not_brought_back("no code")
    return Quiet(text)


def _is_same(one: str, other: str) -> bool:
    """Whether two texts are equal, in a time that does not depend on where they differ."""
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (one, other)]
    return bool(one) and digests[0] == digests[1]


def object_in(body: bytes) -> Mapping[str, Any]:
    """The JSON object that a body is; an empty one if it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def error_of(what: str, status: int, body: bytes, secrets: Iterable[str] = ()) -> AuthorizationError:
    """Return the error for a response that is no success; a code that repeats one of the *secrets* sent is left out."""
    code = _error_code(object_in(body).get("error"))
    if code and any(secret in code or code in secret for secret in secrets if secret):
        code = None
    said = f"status {status}" + (f", {code!r}" if code else "")
    if status >= 500 or status in (408, 429):
        msg = f"the authorization server could not {what} now ({said}); try again"
        return AuthorizationUnavailableError(msg, code=code)
    return AuthorizationError(f"expected the authorization server to {what}, found that it refuses ({said})", code=code)


def _error_code(said: object) -> str | None:
    return said if isinstance(said, str) and _ERROR_CODE.fullmatch(said) else None


def token_in(body: bytes, asked_at: float, kept: Mapping[str, str]) -> AuthCredential:
    """
    Return the tokens of a successful response, with what is *kept* beside them, such as an old refresh token.

    *asked_at* is when they were asked for, in seconds since the epoch.

    Raises:
        AuthorizationError: There are none that can be used.
    """
    found = _quiet_fields(body)
    del body
    token, refresh = found.get("access_token"), found.get("refresh_token")
    if not _is_token(token) or str(found.get("token_type", "bearer")).lower() != "bearer":
        raise AuthorizationError("expected the authorization server to send a bearer token, found something else")
    values: dict[str, Any] = {**kept, "access_token": token}
    if _is_token(refresh):
        values["refresh_token"] = refresh
    return AuthCredential("oauth2", expires_at=_end_of(found.get("expires_in"), asked_at), **plain(values))


def _quiet_fields(body: bytes) -> dict[str, Any]:
    """The texts and numbers of an answer; no traceback shows the texts."""
    found = {name: value for name, value in object_in(body).items() if isinstance(value, (str, int, float))}
    return {name: Quiet(value) if isinstance(value, str) else value for name, value in found.items()}


def _is_token(value: object) -> bool:
    return isinstance(value, str) and len(value) <= TOKEN_CHARS_MAX and _IN_HEADERS.fullmatch(value) is not None


def _end_of(expires_in: object, asked_at: float) -> float | None:
    try:
        seconds = finite(float(expires_in) if isinstance(expires_in, str) else expires_in)
    except ValueError:
        seconds = None
    # Some servers write 0 for a token that never ends. Taken by its word, a person who has just signed in is sent back,
    # for ever; the API itself says what it does not take.
    if seconds is None or seconds <= 0:
        return None
    return finite(asked_at + seconds - min(EARLY_S, EARLY_SHARE * seconds))


# --- an application that registers itself -----------------------------------------------------------------------------


def registration_of(name: str, redirect_uri: str, scopes: Sequence[str], server: Server) -> dict[str, Any]:
    """What an application says of itself (RFC 7591): one without a secret, if the server takes such."""
    methods = server.auth_methods
    method = "none" if not methods or "none" in methods else methods[0]
    said = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    return {**said, "scope": " ".join(scopes)} if scopes else said


def registered(body: bytes) -> AuthCredential:
    """
    Return what the application is known by from now on.

    Raises:
        AuthorizationError: The response does not say so.
    """
    found = _quiet_fields(body)
    del body
    values = {name: found[name] for name in ("client_id", "client_secret") if _is_token(found.get(name))}
    if "client_id" not in values:
        raise AuthorizationError("expected the authorization server to register this application, found no client_id")
    return AuthCredential("client", **plain(values))


